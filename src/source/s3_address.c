/*
 * Where requests go: Amazon's own endpoint of the region, or the one given; the bucket in the name
 * of the host where a certificate would cover that, else in the path.
 */
#include <errno.h>
#include <string.h>

#include "core/log.h"
#include "core/mem.h"
#include "source/s3_http_priv.h"

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Names that can be part of a host name, and with a certificate for one level below. */
static bool fits_host(const char *bucket)
{
    return !strchr(bucket, '.') && !strchr(bucket, '_');
}

int fb_s3_address(struct fb_s3_http *http)
{
    FB_AUTO_FREE char *endpoint = NULL;
    FB_AUTO_FREE char *host = NULL;
    FB_AUTO_FREE char *root = NULL;
    const char *scheme_end;
    char *at, *base;
    bool own = !http->endpoint || !*http->endpoint;

    endpoint = own ? fb_asprintf("https://s3.%s.amazonaws.com%s", http->region,
                                 strncmp(http->region, "cn-", 3) == 0 ? ".cn" : "")
                   : fb_strdup(http->endpoint);
    if (!endpoint)
        return -ENOMEM;
    while (ends_with(endpoint, "/"))
        endpoint[strlen(endpoint) - 1] = '\0';
    scheme_end = strstr(endpoint, "://");
    /* No names and passwords, which would be shown, and nothing behind the path. */
    if (!scheme_end || strpbrk(endpoint, "@?# "))
        return -EINVAL;
    at = endpoint + (scheme_end + 3 - endpoint);
    root = fb_strdup(strchrnul(at, '/'));
    if (!root)
        return -ENOMEM;
    *strchrnul(at, '/') = '\0';
    http->in_path = http->config.path_style || !fits_host(http->bucket) ||
                    !(own || ends_with(at, ".amazonaws.com"));
    host = http->in_path ? fb_strdup(at) : fb_asprintf("%s.%s", http->bucket, at);
    base = host ? fb_asprintf("%.*s://%s", (int)(scheme_end - endpoint), endpoint, host) : NULL;
    if (!base)
        return -ENOMEM;
    free(http->host);
    http->host = fb_steal(host);
    free(http->root);
    http->root = fb_steal(root);
    /* Whoever opens the source says where it is. */
    fb_mutex_lock(&http->why_lock);
    free(http->base);
    http->base = base;
    fb_mutex_unlock(&http->why_lock);
    return 0;
}

bool fb_s3_move_to(struct fb_s3_http *http, const char *region)
{
    char *copy;

    if (!*region || strcmp(region, http->region) == 0)
        return false;
    copy = fb_strdup(region);
    if (!copy)
        return false;
    fb_log_info("the bucket %s is in the region %s", http->bucket, region);
    free(http->region);
    http->region = copy;
    return fb_s3_address(http) == 0;
}

/* Never from a place that nobody can listen to, to one where anybody can. */
bool fb_s3_redirect(const struct fb_s3_http *http, struct fb_s3_call *call)
{
    const char *now = call->place[0] ? call->place : http->base;
    const char *to = call->reply.location;

    if (!*to || strcmp(to, now) == 0 ||
        (strncmp(now, "https://", 8) == 0 && strncmp(to, "https://", 8) != 0))
        return false;
    snprintf(call->place, sizeof call->place, "%s", to);
    return true;
}
