/*
 * source/s3_creds.h - who we are to S3: the AWS chain of places where credentials are found, kept
 * fresh.
 *
 * Looked at in this order, and the first that has something counts:
 *
 *     environment       AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
 *                       (passed over when a profile was asked for by --profile)
 *     web identity      AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN: traded at STS
 *     profile           --profile, AWS_PROFILE or "default", in AWS_SHARED_CREDENTIALS_FILE
 *                       (~/.aws/credentials) and AWS_CONFIG_FILE (~/.aws/config): keys, a
 *                       web_identity_token_file, or a credential_process
 *     container         AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI
 *     instance          the metadata service of EC2, version 2; unless AWS_EC2_METADATA_DISABLED
 *
 * What expires is fetched anew in the background, FB_S3_CREDS_EARLY_NS before it does (sooner for
 * what does not live long); while that fails the old credentials are used, to their end. When a
 * request was refused, files are read again if they changed, and services asked again. So requests
 * never wait for credentials.
 *
 *     open: look ──found──► snapshot ──get, put── a request each
 *                 │             ▲
 *                 │             └── refresh ◄── thread: due, or refused
 *                 └─nothing──► one sentence that names every place
 *
 * The environment is that of the program that mounts, not of this process. Secrets are in no
 * sentence and no log, and are wiped when the last user of a snapshot puts it back.
 */
#ifndef FB_SOURCE_S3_CREDS_H
#define FB_SOURCE_S3_CREDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"

#define FB_S3_CREDS_EARLY_NS 300000000000LL /* five minutes */
#define FB_S3_CREDS_RETRY_NS 10000000000LL  /* after a failure, or an answer with nothing new */

struct fb_s3_creds_config {
    const char *const *env; /* "NAME=value", ends with NULL; copied */
    const char *profile;    /* --profile, or NULL */
    bool no_sign;           /* --no-sign-request */
    int64_t retry_ns;       /* 0: FB_S3_CREDS_RETRY_NS */
};

/* Does not change; several may be in use while they are replaced. */
struct fb_s3_snapshot {
    bool anonymous; /* requests are not signed; the rest is "" */
    const char *access_key;
    const char *secret;
    const char *session_token; /* "": none */
    const char *place;         /* where it was found, for status output */
    int64_t expires_ns;        /* wall clock; FB_NEVER_NS */
};

struct fb_s3_creds;

/* Looks, and waits for it: some seconds at most, or half a minute for a program. -EACCES or -EINVAL
 * with a sentence. Starts a thread: not before a fork. */
FB_MUST_CHECK int fb_s3_creds_open(const struct fb_s3_creds_config *config,
                                   struct fb_s3_creds **ret_creds, struct fb_error *err);
void fb_s3_creds_close(struct fb_s3_creds *creds); /* takes NULL; all snapshots are back */

/* Never blocks. With a sentence, when the credentials expired: -EKEYEXPIRED while new ones are
 * being looked for, -EACCES when there are none. */
FB_MUST_CHECK int fb_s3_creds_get(struct fb_s3_creds *creds,
                                  const struct fb_s3_snapshot **ret_snapshot, struct fb_error *err);
void fb_s3_creds_put(const struct fb_s3_snapshot *snapshot); /* takes NULL */

/* The server refused the keys of `snapshot`. True when there are other ones by now: try again at
 * once. Else they are looked for in the background, and trying again later may help. */
bool fb_s3_creds_refused(struct fb_s3_creds *creds, const struct fb_s3_snapshot *snapshot);

/* From AWS_REGION, AWS_DEFAULT_REGION or the profile; "" for none. */
const char *fb_s3_creds_region(const struct fb_s3_creds *creds);
/* From AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the profile; "" for none. */
const char *fb_s3_creds_endpoint(const struct fb_s3_creds *creds);

#endif
