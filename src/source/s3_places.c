#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "source/s3_ask.h"
#include "source/s3_creds_priv.h"

/* ---- the lookup ------------------------------------------------------------------------------ */

/* The file that `variable` names, or ~/.aws/`name`. */
static void find_file(struct fb_s3_lookup *lookup, const char *variable, const char *name,
                      struct fb_s3_text *ret_path)
{
    const char *home = fb_s3_env(lookup->env, "HOME");
    const char *path = fb_s3_env(lookup->env, variable);

    if (path && strncmp(path, "~/", 2) != 0) {
        fb_s3_text_adds(ret_path, path);
    } else if (home) {
        fb_s3_text_adds(ret_path, home);
        fb_s3_text_adds(ret_path, path ? path + 1 : "/.aws/");
        fb_s3_text_adds(ret_path, path ? "" : name);
    }
}

int fb_s3_lookup_init(struct fb_s3_lookup *lookup, const char *const *env, const char *profile)
{
    memset(lookup, 0, sizeof *lookup);
    lookup->env = env;
    lookup->profile_asked = profile != NULL;
    lookup->profile = profile ? profile : fb_s3_env(env, "AWS_PROFILE");
    lookup->profile_named = lookup->profile != NULL;
    if (!lookup->profile)
        lookup->profile = "default";
    find_file(lookup, "AWS_SHARED_CREDENTIALS_FILE", "credentials", &lookup->credentials_path);
    find_file(lookup, "AWS_CONFIG_FILE", "config", &lookup->config_path);
    return fb_s3_text_ok(&lookup->credentials_path) && fb_s3_text_ok(&lookup->config_path)
               ? 0
               : -ENOMEM;
}

void fb_s3_lookup_free(struct fb_s3_lookup *lookup)
{
    fb_s3_text_free(&lookup->credentials_path);
    fb_s3_text_free(&lookup->config_path);
    fb_s3_text_free(&lookup->looked);
}

void fb_s3_looked(struct fb_s3_lookup *lookup, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (lookup->looked.len > 0)
        fb_s3_text_adds(&lookup->looked, ", ");
    fb_s3_text_adds(&lookup->looked, text);
}

/* ---- environment ----------------------------------------------------------------------------- */

int fb_s3_from_environment(struct fb_s3_lookup *lookup, struct fb_s3_keys *keys,
                           struct fb_error *err)
{
    const char *access_key = fb_s3_env(lookup->env, "AWS_ACCESS_KEY_ID");
    const char *secret = fb_s3_env(lookup->env, "AWS_SECRET_ACCESS_KEY");
    const char *token = fb_s3_env(lookup->env, "AWS_SESSION_TOKEN");

    if (lookup->profile_asked)
        return FB_S3_NOT_HERE;
    if (!access_key && !secret) {
        fb_s3_looked(lookup, "AWS_ACCESS_KEY_ID is not set");
        return FB_S3_NOT_HERE;
    }
    if (!access_key || !secret)
        return fb_error_set(err, -EINVAL, "%s is set, but %s is not; set both or none",
                            access_key ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                            access_key ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
    fb_s3_text_adds(&keys->access_key, access_key);
    fb_s3_text_adds(&keys->secret, secret);
    fb_s3_text_adds(&keys->session_token, token ? token : "");
    keys->expires_ns = FB_NEVER_NS;
    if (!fb_s3_keys_ok(keys))
        return fb_error_set(err, -EINVAL,
                            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_SESSION_TOKEN has "
                            "spaces or characters that do not belong there");
    return 0;
}

/* ---- profile --------------------------------------------------------------------------------- */

static int read_profile(struct fb_s3_lookup *lookup, const struct fb_s3_text *path, bool config,
                        struct fb_s3_profile *profile, struct fb_error *err)
{
    struct fb_s3_text text = {0};
    int r;

    if (path->len == 0)
        return 0;
    r = fb_s3_file_read(path->data, &text);
    if (r == 0)
        r = fb_s3_profile_parse(profile, fb_s3_text_string(&text), text.len, lookup->profile,
                                config, path->data, err);
    else if (r == -ENOENT || r == -ENOTDIR)
        r = 0;
    else
        r = fb_error_set(err, -EINVAL, "cannot read %s: %s", path->data, fb_strerror(r));
    fb_s3_text_free(&text);
    return r;
}

int fb_s3_lookup_profile(struct fb_s3_lookup *lookup, struct fb_s3_profile *profile,
                         struct fb_error *err)
{
    int r = read_profile(lookup, &lookup->config_path, true, profile, err);

    /* Second, so that its keys count. */
    if (r == 0)
        r = read_profile(lookup, &lookup->credentials_path, false, profile, err);
    if (r == 0 && lookup->profile_named && !profile->found)
        r = fb_error_set(err, -EINVAL, "there is no profile \"%s\" in %s or %s", lookup->profile,
                         fb_s3_text_string(&lookup->credentials_path),
                         fb_s3_text_string(&lookup->config_path));
    return r;
}

static int run_process(struct fb_s3_lookup *lookup, const char *command, struct fb_s3_keys *keys,
                       struct fb_error *err)
{
    struct fb_s3_text output = {0};
    int r = fb_s3_ask_program(command, lookup->env, FB_S3_PROGRAM_MS, lookup->cancel, &output);

    if (r == 0) {
        r = fb_s3_keys_from_json(&output, "SessionToken", keys);
        if (r < 0)
            r = fb_error_set(err, -EACCES,
                             "the credential_process of profile \"%s\" printed no credentials",
                             lookup->profile);
    } else if (r == -ECHILD) {
        r = fb_error_set(err, -EACCES, "the credential_process of profile \"%s\" failed",
                         lookup->profile);
    } else {
        r = fb_error_set(err, -EACCES,
                         "the credential_process of profile \"%s\" cannot be used: %s",
                         lookup->profile, fb_strerror(r));
    }
    fb_s3_text_free(&output);
    return r;
}

static int take_keys(struct fb_s3_lookup *lookup, struct fb_s3_profile *profile,
                     struct fb_s3_keys *keys, struct fb_error *err)
{
    if (profile->access_key.len == 0 || profile->secret.len == 0)
        return fb_error_set(err, -EINVAL,
                            "profile \"%s\" has only one of aws_access_key_id and "
                            "aws_secret_access_key; it needs both",
                            lookup->profile);
    fb_s3_text_add(&keys->access_key, profile->access_key.data, profile->access_key.len);
    fb_s3_text_add(&keys->secret, profile->secret.data, profile->secret.len);
    fb_s3_text_add(&keys->session_token, fb_s3_text_string(&profile->session_token),
                   profile->session_token.len);
    keys->expires_ns = FB_NEVER_NS;
    return fb_s3_keys_ok(keys) ? 0 : -ENOMEM;
}

static int use_profile(struct fb_s3_lookup *lookup, struct fb_s3_profile *profile,
                       struct fb_s3_keys *keys, struct fb_error *err)
{
    if (profile->access_key.len > 0 || profile->secret.len > 0)
        return take_keys(lookup, profile, keys, err);
    if (profile->web_identity_token_file.len > 0 && profile->role_arn.len > 0)
        return fb_s3_trade_token(lookup, profile->web_identity_token_file.data,
                                 profile->role_arn.data, fb_s3_text_string(&profile->region), keys,
                                 err);
    if (profile->role_arn.len > 0)
        return fb_error_set(err, -EINVAL,
                            "profile \"%s\" takes on a role (role_arn), which is not supported; "
                            "make credentials for it with: aws configure export-credentials "
                            "--profile %s --format env",
                            lookup->profile, lookup->profile);
    if (profile->credential_process.len > 0)
        return run_process(lookup, profile->credential_process.data, keys, err);
    if (profile->sso.len > 0)
        return fb_error_set(err, -EINVAL,
                            "profile \"%s\" signs in through a browser (sso), which is not "
                            "supported; make credentials for it with: aws configure "
                            "export-credentials --profile %s --format env",
                            lookup->profile, lookup->profile);
    return FB_S3_NOT_HERE;
}

int fb_s3_from_profile(struct fb_s3_lookup *lookup, struct fb_s3_keys *keys, struct fb_error *err)
{
    struct fb_s3_profile profile = {0};
    int r = fb_s3_lookup_profile(lookup, &profile, err);

    if (r == 0)
        r = use_profile(lookup, &profile, keys, err);
    if (r == FB_S3_NOT_HERE && lookup->credentials_path.len == 0)
        fb_s3_looked(lookup, "there is no HOME with .aws/credentials");
    else if (r == FB_S3_NOT_HERE)
        fb_s3_looked(lookup, "%s and %s have no keys for profile \"%s\"",
                     lookup->credentials_path.data, lookup->config_path.data, lookup->profile);
    fb_s3_profile_free(&profile);
    return r;
}
