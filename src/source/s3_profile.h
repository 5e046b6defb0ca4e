/*
 * source/s3_profile.h - the files of the AWS tools: ~/.aws/credentials and ~/.aws/config.
 *
 *     [default]                      in both files; other profiles are [name] in credentials
 *     aws_access_key_id = AKIA...    and [profile name] in config
 *
 * Both are read by people and programs of many minds, so: names of settings in any case, white
 * space around everything, CRLF, a byte order mark, comments (# or ;) on lines of their own and
 * after a space, a section more than once (the last value counts), lines as long as a session token
 * of any length. A line indented further than the setting above it belongs to that one (`s3 =`) and
 * is passed over, and so are lines that are none of this. A file with a zero byte is not text and
 * is refused, and so are values with control characters or spaces where keys are wanted.
 *
 * The environment is always that of the program that mounts: it is handed over as strings, and
 * nothing here looks at the environment of this process.
 */
#ifndef FB_SOURCE_S3_PROFILE_H
#define FB_SOURCE_S3_PROFILE_H

#include <stdbool.h>

#include "base/attr.h"
#include "core/error.h"
#include "source/s3_text.h"

#define FB_S3_FILE_MAX (1u << 20)

/* The value of a variable in "NAME=value" strings that end with NULL; NULL when it is not set, or
 * empty. `env` may be NULL. */
const char *fb_s3_env(const char *const *env, const char *name);

/* Settings of one profile; an empty text is one that is not set. */
struct fb_s3_profile {
    bool found; /* there is such a section */
    struct fb_s3_text access_key;
    struct fb_s3_text secret;
    struct fb_s3_text session_token;
    struct fb_s3_text region;
    struct fb_s3_text endpoint_url;
    struct fb_s3_text credential_process;
    struct fb_s3_text role_arn;
    struct fb_s3_text source_profile;
    struct fb_s3_text web_identity_token_file;
    struct fb_s3_text sso; /* any setting of sso */
};

void fb_s3_profile_free(struct fb_s3_profile *profile); /* takes a zeroed one */

/* Takes what `text`, with `len` bytes, has for the profile `name`; values already there are
 * replaced. `config`: its sections are called [profile name]. `path` is for the sentence: -EINVAL,
 * never with a value in it. -ENOMEM. */
FB_MUST_CHECK int fb_s3_profile_parse(struct fb_s3_profile *profile, const char *text, size_t len,
                                      const char *name, bool config, const char *path,
                                      struct fb_error *err);

/* Reads a file of at most FB_S3_FILE_MAX bytes, whatever it is, without ever waiting for it. */
FB_MUST_CHECK int fb_s3_file_read(const char *path, struct fb_s3_text *ret_text);

#endif
