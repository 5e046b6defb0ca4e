/*
 * source/s3_creds_priv.h - the places where credentials are found, one function each.
 *
 * s3_places.c: environment and profile. s3_services.c: container, instance, web identity.
 */
#ifndef FB_SOURCE_S3_CREDS_PRIV_H
#define FB_SOURCE_S3_CREDS_PRIV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "source/s3_profile.h"
#include "source/s3_text.h"

#define FB_S3_SERVICE_MS    1000 /* a metadata service on the same machine, unless told otherwise */
#define FB_S3_SERVICE_MAX_S 300
#define FB_S3_STS_MS        5000  /* one over the network */
#define FB_S3_PROGRAM_MS    30000 /* a credential_process */

struct fb_s3_keys {
    struct fb_s3_text access_key;
    struct fb_s3_text secret;
    struct fb_s3_text session_token;
    int64_t expires_ns; /* wall clock; FB_NEVER_NS */
};

void fb_s3_keys_free(struct fb_s3_keys *keys); /* takes zeroed ones */

/* What all places need to know. */
struct fb_s3_lookup {
    const char *const *env;
    const char *profile;                /* the name in force */
    bool profile_asked;                 /* by --profile */
    bool profile_named;                 /* by --profile or AWS_PROFILE */
    struct fb_s3_text credentials_path; /* "" without a home directory */
    struct fb_s3_text config_path;
    struct fb_s3_text looked;   /* where nothing was found, as one enumeration */
    const _Atomic bool *cancel; /* give up */
};

FB_MUST_CHECK int fb_s3_lookup_init(struct fb_s3_lookup *lookup, const char *const *env,
                                    const char *profile);
void fb_s3_lookup_free(struct fb_s3_lookup *lookup);

/* Adds to the enumeration of places where nothing was found. */
void fb_s3_looked(struct fb_s3_lookup *lookup, const char *format, ...) FB_PRINTF(2, 3);

/* Both files. -EINVAL with a sentence; a file that is not there has no profiles, but a profile that
 * was named must be in one of them. */
FB_MUST_CHECK int fb_s3_lookup_profile(struct fb_s3_lookup *lookup, struct fb_s3_profile *profile,
                                       struct fb_error *err);

enum fb_s3_place_outcome {
    FB_S3_NOT_HERE = 1, /* said in lookup->looked */
};

/* 0 with keys, FB_S3_NOT_HERE, or negative errno with a sentence: there should be something here
 * and there is not, so the chain ends. */
typedef int fb_s3_place_fn(struct fb_s3_lookup *lookup, struct fb_s3_keys *keys,
                           struct fb_error *err);

fb_s3_place_fn fb_s3_from_environment;
fb_s3_place_fn fb_s3_from_web_identity;
fb_s3_place_fn fb_s3_from_profile;
fb_s3_place_fn fb_s3_from_container;
fb_s3_place_fn fb_s3_from_instance;

/* Trades the token in a file for keys, at STS. */
FB_MUST_CHECK int fb_s3_trade_token(struct fb_s3_lookup *lookup, const char *token_file,
                                    const char *role_arn, const char *region,
                                    struct fb_s3_keys *keys, struct fb_error *err);

/* Where that is, for a region ("": the environment's). */
void fb_s3_sts_url(const struct fb_s3_lookup *lookup, const char *region,
                   struct fb_s3_text *ret_url);

/* Takes AccessKeyId, SecretAccessKey, `token_name` and Expiration from a JSON object. -EBADMSG when
 * it is not that. */
FB_MUST_CHECK int fb_s3_keys_from_json(const struct fb_s3_text *json, const char *token_name,
                                       struct fb_s3_keys *keys);

/* An answer of AssumeRoleWithWebIdentity. -EBADMSG. */
FB_MUST_CHECK int fb_s3_keys_from_sts(const struct fb_s3_text *xml, struct fb_s3_keys *keys);

/* A point in time with Z or an offset. -EBADMSG. */
FB_MUST_CHECK int fb_s3_parse_expiry(const char *text, size_t len, int64_t *ret_wall_ns);

/* Access key and secret are there, and nothing in them breaks a header. */
bool fb_s3_keys_ok(const struct fb_s3_keys *keys);

#endif
