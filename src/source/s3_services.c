#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/mem.h"
#include "source/s3_ask.h"
#include "source/s3_creds_priv.h"

#define CONTAINER_HOST "http://169.254.170.2"
#define INSTANCE_HOST  "http://169.254.169.254"
#define ROLES          "/latest/meta-data/iam/security-credentials/"
#define TOKEN_TTL      "21600"

/* ---- container ------------------------------------------------------------------------------- */

/* Plain HTTP may carry credentials only to this machine and to the agents' fixed addresses. */
static bool url_allowed(const char *url)
{
    static const char *const hosts[] = {"localhost",     "127.0.0.1",      "[::1]",
                                        "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
    CURLU *parts = curl_url();
    char *scheme = NULL, *host = NULL;
    bool allowed = false;

    if (parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
        curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
        allowed = !strcmp(scheme, "https");
        for (size_t i = 0; !strcmp(scheme, "http") && i < FB_ARRAY_SIZE(hosts); i++)
            allowed |= !strcasecmp(host, hosts[i]);
    }
    curl_free(scheme);
    curl_free(host);
    curl_url_cleanup(parts);
    return allowed;
}

/* A token from a file: white space at its end does not belong to it, and a line break within would
 * let it forge headers. */
static int read_token(const char *path, struct fb_s3_text *ret_token, struct fb_error *err)
{
    int r = fb_s3_file_read(path, ret_token);

    if (r < 0)
        return fb_error_set(err, -EACCES, "cannot read the token in %s: %s", path, fb_strerror(r));
    while (ret_token->len > 0 && strchr(" \t\r\n", ret_token->data[ret_token->len - 1]))
        ret_token->len--;
    if (ret_token->len == 0)
        return fb_error_set(err, -EACCES, "there is no token in %s", path);
    ret_token->data[ret_token->len] = '\0';
    for (size_t i = 0; i < ret_token->len; i++) {
        if (ret_token->data[i] < ' ' || ret_token->data[i] > '~')
            return fb_error_set(err, -EACCES, "what is in %s is not a token", path);
    }
    return 0;
}

/* Seconds in AWS_METADATA_SERVICE_TIMEOUT, as other programs take them. */
static long service_ms(const struct fb_s3_lookup *lookup)
{
    const char *text = fb_s3_env(lookup->env, "AWS_METADATA_SERVICE_TIMEOUT");
    long seconds = text ? strtol(text, NULL, 10) : 0;

    return seconds > 0 && seconds <= FB_S3_SERVICE_MAX_S ? seconds * 1000 : FB_S3_SERVICE_MS;
}

static int container_token(struct fb_s3_lookup *lookup, struct fb_s3_text *ret_token,
                           struct fb_error *err)
{
    const char *file = fb_s3_env(lookup->env, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *token = fb_s3_env(lookup->env, "AWS_CONTAINER_AUTHORIZATION_TOKEN");

    if (file)
        return read_token(file, ret_token, err);
    fb_s3_text_adds(ret_token, token ? token : "");
    if (token && strpbrk(token, "\r\n"))
        return fb_error_set(err, -EINVAL, "AWS_CONTAINER_AUTHORIZATION_TOKEN has line breaks");
    return fb_s3_text_ok(ret_token) ? 0 : -ENOMEM;
}

static int ask_container(struct fb_s3_lookup *lookup, const char *url, struct fb_s3_keys *keys,
                         struct fb_error *err)
{
    struct fb_s3_text token = {0}, body = {0};
    struct fb_s3_pair header = {"Authorization", NULL};
    int r = container_token(lookup, &token, err);

    if (r == 0) {
        header.value = fb_s3_text_string(&token);
        r = fb_s3_ask(&(struct fb_s3_ask){.method = "GET",
                                          .url = url,
                                          .headers = &header,
                                          .header_count = token.len > 0,
                                          .timeout_ms = service_ms(lookup),
                                          .cancel = lookup->cancel},
                      &body);
        if (r < 0)
            r = fb_error_set(err, -EACCES, "no credentials from the container's service at %s: %s",
                             url, fb_strerror(r));
        else if (r != 200)
            r = fb_error_set(err, -EACCES,
                             "no credentials from the container's service at %s: it answers with "
                             "status %d",
                             url, r);
        else
            r = fb_s3_keys_from_json(&body, "Token", keys);
        if (r == -EBADMSG)
            r = fb_error_set(err, -EACCES,
                             "the container's service at %s answers with something that is no "
                             "credentials",
                             url);
    }
    fb_s3_text_free(&token);
    fb_s3_text_free(&body);
    return r;
}

int fb_s3_from_container(struct fb_s3_lookup *lookup, struct fb_s3_keys *keys, struct fb_error *err)
{
    const char *relative = fb_s3_env(lookup->env, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = fb_s3_env(lookup->env, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
    FB_AUTO_FREE char *url = NULL;

    if (!relative && !full) {
        fb_s3_looked(lookup, "AWS_CONTAINER_CREDENTIALS_FULL_URI is not set");
        return FB_S3_NOT_HERE;
    }
    if (relative)
        url = fb_asprintf("%s%s%s", CONTAINER_HOST, relative[0] == '/' ? "" : "/", relative);
    else
        url = fb_strdup(full);
    if (!url)
        return -ENOMEM;
    if (!url_allowed(url))
        return fb_error_set(err, -EINVAL,
                            "AWS_CONTAINER_CREDENTIALS_FULL_URI must be an https URL, or lead to "
                            "this machine, not %s",
                            url);
    return ask_container(lookup, url, keys, err);
}

/* ---- instance -------------------------------------------------------------------------------- */

static int ask_instance(struct fb_s3_lookup *lookup, const char *host, const char *path,
                        const struct fb_s3_pair *header, struct fb_s3_text *ret_body)
{
    FB_AUTO_FREE char *url = fb_asprintf("%s%s", host, path);
    int r;

    if (!url)
        return -ENOMEM;
    r = fb_s3_ask(&(struct fb_s3_ask){.method = strstr(path, "/api/token") ? "PUT" : "GET",
                                      .url = url,
                                      .headers = header,
                                      .header_count = 1,
                                      .timeout_ms = service_ms(lookup),
                                      .cancel = lookup->cancel},
                  ret_body);
    if (r == 200)
        return 0;
    return r == 404 ? -ENOENT : r < 0 ? r : -EPROTO;
}

/* The first role named in the answer; it becomes part of a URL. */
static bool take_role(struct fb_s3_text *body)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "+=,.@_-";
    size_t len = strcspn(fb_s3_text_string(body), "\r\n");

    if (len == 0 || strspn(body->data, plain) != len)
        return false;
    body->data[len] = '\0';
    body->len = len;
    return true;
}

static bool is_token(const struct fb_s3_text *token)
{
    for (size_t i = 0; i < token->len; i++) {
        if (token->data[i] <= ' ' || token->data[i] > '~')
            return false;
    }
    return token->len > 0;
}

static int instance_keys(struct fb_s3_lookup *lookup, const char *host, struct fb_s3_text *token,
                         struct fb_s3_text *body, struct fb_s3_keys *keys)
{
    const struct fb_s3_pair ttl = {"X-aws-ec2-metadata-token-ttl-seconds", TOKEN_TTL};
    struct fb_s3_pair with_token = {"X-aws-ec2-metadata-token", NULL};
    FB_AUTO_FREE char *path = NULL;
    int r = ask_instance(lookup, host, "/latest/api/token", &ttl, token);

    if (r == 0 && !is_token(token))
        r = -EBADMSG;
    if (r < 0)
        return r;
    with_token.value = token->data;
    r = ask_instance(lookup, host, ROLES, &with_token, body);
    if (r < 0)
        return r;
    if (!take_role(body))
        return -EBADMSG;
    path = fb_asprintf("%s%s", ROLES, body->data);
    if (!path)
        return -ENOMEM;
    r = ask_instance(lookup, host, path, &with_token, body);
    return r == 0 ? fb_s3_keys_from_json(body, "Token", keys) : r;
}

int fb_s3_from_instance(struct fb_s3_lookup *lookup, struct fb_s3_keys *keys, struct fb_error *err)
{
    const char *disabled = fb_s3_env(lookup->env, "AWS_EC2_METADATA_DISABLED");
    const char *host = fb_s3_env(lookup->env, "AWS_EC2_METADATA_SERVICE_ENDPOINT");
    struct fb_s3_text token = {0}, body = {0};
    char base[256];
    int r;

    (void)err;
    if (disabled && !strcasecmp(disabled, "true")) {
        fb_s3_looked(lookup, "AWS_EC2_METADATA_DISABLED forbids the instance's metadata service");
        return FB_S3_NOT_HERE;
    }
    snprintf(base, sizeof base, "%s", host ? host : INSTANCE_HOST);
    for (size_t len = strlen(base); len > 0 && base[len - 1] == '/'; len--)
        base[len - 1] = '\0';
    r = instance_keys(lookup, base, &token, &body, keys);
    if (r == -ENOENT)
        fb_s3_looked(lookup, "the instance has no role (%s)", base);
    else if (r == -EBADMSG || r == -EPROTO)
        fb_s3_looked(lookup, "the metadata service %s has no credentials", base);
    else if (r < 0)
        fb_s3_looked(lookup, "there is no metadata service at %s (%s)", base, fb_strerror(r));
    fb_s3_text_free(&token);
    fb_s3_text_free(&body);
    return r < 0 ? FB_S3_NOT_HERE : 0;
}

/* ---- web identity ---------------------------------------------------------------------------- */

static void add_field(struct fb_s3_text *form, const char *name, const char *value, size_t len)
{
    fb_s3_text_addc(form, '&');
    fb_s3_text_adds(form, name);
    fb_s3_text_addc(form, '=');
    fb_s3_text_add_encoded(form, value, len, false);
}

void fb_s3_sts_url(const struct fb_s3_lookup *lookup, const char *region,
                   struct fb_s3_text *ret_url)
{
    const char *endpoint = fb_s3_env(lookup->env, "AWS_ENDPOINT_URL_STS");

    if (!*region)
        region = fb_s3_env(lookup->env, "AWS_REGION");
    if (!region)
        region = fb_s3_env(lookup->env, "AWS_DEFAULT_REGION");
    if (!endpoint)
        endpoint = fb_s3_env(lookup->env, "AWS_ENDPOINT_URL");
    fb_s3_text_adds(ret_url, endpoint ? endpoint : "https://sts.");
    if (!endpoint && region) {
        fb_s3_text_add_encoded(ret_url, region, strlen(region), false);
        fb_s3_text_addc(ret_url, '.');
    }
    if (!endpoint)
        fb_s3_text_adds(ret_url, region && strncmp(region, "cn-", 3) == 0 ? "amazonaws.com.cn/"
                                                                          : "amazonaws.com/");
}

int fb_s3_trade_token(struct fb_s3_lookup *lookup, const char *token_file, const char *role_arn,
                      const char *region, struct fb_s3_keys *keys, struct fb_error *err)
{
    const char *session = fb_s3_env(lookup->env, "AWS_ROLE_SESSION_NAME");
    struct fb_s3_text token = {0}, url = {0}, form = {0}, body = {0};
    int r = read_token(token_file, &token, err);

    session = session ? session : "forebay";
    fb_s3_sts_url(lookup, region, &url);
    fb_s3_text_adds(&form, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15");
    add_field(&form, "RoleArn", role_arn, strlen(role_arn));
    add_field(&form, "RoleSessionName", session, strlen(session));
    add_field(&form, "WebIdentityToken", fb_s3_text_string(&token), token.len);
    if (r == 0 && (!fb_s3_text_ok(&url) || !fb_s3_text_ok(&form)))
        r = -ENOMEM;
    if (r == 0) {
        r = fb_s3_ask(&(struct fb_s3_ask){.method = "POST",
                                          .url = url.data,
                                          .body = form.data,
                                          .timeout_ms = FB_S3_STS_MS,
                                          .proxies = true,
                                          .ca_bundle = fb_s3_env(lookup->env, "AWS_CA_BUNDLE"),
                                          .cancel = lookup->cancel},
                      &body);
        if (r < 0)
            r = fb_error_set(err, -EACCES, "no credentials for role %s from %s: %s", role_arn,
                             url.data, fb_strerror(r));
        else if (r != 200 || fb_s3_keys_from_sts(&body, keys) < 0)
            r = fb_error_set(err, -EACCES,
                             "no credentials for role %s from %s: it answers with status %d",
                             role_arn, url.data, r);
        else
            r = 0;
    }
    fb_s3_text_free(&token);
    fb_s3_text_free(&url);
    fb_s3_text_free(&form);
    fb_s3_text_free(&body);
    return r;
}

int fb_s3_from_web_identity(struct fb_s3_lookup *lookup, struct fb_s3_keys *keys,
                            struct fb_error *err)
{
    const char *file = fb_s3_env(lookup->env, "AWS_WEB_IDENTITY_TOKEN_FILE");
    const char *role = fb_s3_env(lookup->env, "AWS_ROLE_ARN");

    if (lookup->profile_asked)
        return FB_S3_NOT_HERE;
    if (!file) {
        fb_s3_looked(lookup, "AWS_WEB_IDENTITY_TOKEN_FILE is not set");
        return FB_S3_NOT_HERE;
    }
    if (!role)
        return fb_error_set(err, -EINVAL,
                            "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not; set both "
                            "or none");
    return fb_s3_trade_token(lookup, file, role, "", keys, err);
}
