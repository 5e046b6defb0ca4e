/*
 * source/s3_ask.h - the small questions of the credential chain: one short HTTP request, or one
 * program run, answered within seconds or not at all.
 *
 * Both block the caller, hold what they read in texts that are wiped, and follow nowhere: no
 * redirects, no other protocols, and for metadata services no proxies.
 */
#ifndef FB_SOURCE_S3_ASK_H
#define FB_SOURCE_S3_ASK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/attr.h"
#include "source/s3_sign.h"
#include "source/s3_text.h"

#define FB_S3_ASK_BODY_MAX 65536

struct fb_s3_ask {
    const char *method; /* GET, PUT; or POST with a body */
    const char *url;    /* http or https */
    const char *body;   /* NULL: none */
    const struct fb_s3_pair *headers;
    unsigned header_count;
    long timeout_ms;
    bool proxies;               /* those of the environment are used */
    const char *ca_bundle;      /* NULL: the system's */
    const _Atomic bool *cancel; /* NULL, or gives up with -ECANCELED soon after it is set */
};

/* The status of the answer (200...), or negative errno when there was none: -ETIMEDOUT,
 * -ECONNREFUSED and so on; -EMSGSIZE for a body beyond FB_S3_ASK_BODY_MAX. */
FB_MUST_CHECK int fb_s3_ask(const struct fb_s3_ask *ask, struct fb_s3_text *ret_body);

/* Runs a command line, split at white space outside quotes and not given to a shell, with `env`,
 * and gives its standard output. Killed, with its process group, after `timeout_ms`: -ETIMEDOUT.
 * -EINVAL: nothing to run, or a quote without its end. -ECHILD: it did not exit with 0. -EMSGSIZE:
 * it wrote too much. Or why it could not be started. */
FB_MUST_CHECK int fb_s3_ask_program(const char *command, const char *const *env, long timeout_ms,
                                    const _Atomic bool *cancel, struct fb_s3_text *ret_output);

#endif
