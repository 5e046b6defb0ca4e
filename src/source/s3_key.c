#include "source/s3_key.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "core/mem.h"
#include "source/s3_text.h"

#define SCHEME "s3://"

/* ---- keys ------------------------------------------------------------------------------------ */

static bool bucket_ok(const char *bucket, size_t len)
{
    if (len == 0 || len > FB_S3_BUCKET_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = bucket[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');

        if (!letter && (i == 0 || (c != '-' && c != '.' && c != '_')))
            return false;
    }
    return true;
}

int fb_s3_url_parse(const char *url, char **ret_bucket, char **ret_prefix, struct fb_error *err)
{
    FB_AUTO_FREE char *bucket = NULL;
    FB_AUTO_FREE char *prefix = NULL;
    const char *start, *slash;
    size_t len;

    if (strncmp(url, SCHEME, strlen(SCHEME)) != 0)
        return fb_error_set(err, -EINVAL, "\"%s\" is not of the form s3://bucket/prefix", url);
    start = url + strlen(SCHEME);
    slash = strchrnul(start, '/');
    if (!bucket_ok(start, (size_t)(slash - start)))
        return fb_error_set(err, -EINVAL,
                            "\"%.*s\" in %s is not the name of a bucket; write s3://bucket/prefix",
                            (int)(slash - start), start, url);
    bucket = fb_asprintf("%.*s", (int)(slash - start), start);
    if (*slash)
        slash++;
    len = strlen(slash);
    if (len + 1 > FB_S3_KEY_MAX)
        return fb_error_set(err, -ENAMETOOLONG,
                            "the prefix in %.100s... is longer than a key can be", url);
    prefix = fb_asprintf("%s%s", slash, len > 0 && slash[len - 1] != '/' ? "/" : "");
    if (!bucket || !prefix)
        return -ENOMEM;
    *ret_bucket = fb_steal(bucket);
    *ret_prefix = fb_steal(prefix);
    return 0;
}

bool fb_s3_name_ok(const char *name, size_t len)
{
    if (len == 0 || len > FB_NAME_MAX || memchr(name, 0, len) || memchr(name, '/', len))
        return false;
    return !(name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')));
}

static int check_path(const char *path)
{
    for (;;) {
        size_t len = strcspn(path, "/");

        if (len > FB_NAME_MAX)
            return -ENAMETOOLONG;
        if (!fb_s3_name_ok(path, len))
            return -EINVAL;
        if (!path[len])
            return 0;
        path += len + 1;
    }
}

ssize_t fb_s3_key_make(const char *prefix, const char *path, bool directory,
                       char ret_key[FB_S3_KEY_MAX + 1])
{
    size_t prefix_len = strlen(prefix), path_len = strlen(path);
    size_t slash = path_len > 0 && directory ? 1 : 0;
    int r = path_len > 0 ? check_path(path) : 0;

    if (r < 0)
        return r;
    if (prefix_len + path_len + slash > FB_S3_KEY_MAX)
        return -ENAMETOOLONG;
    memcpy(ret_key, prefix, prefix_len);
    memcpy(ret_key + prefix_len, path, path_len);
    memcpy(ret_key + prefix_len + path_len, slash ? "/" : "", slash + 1);
    return (ssize_t)(prefix_len + path_len + slash);
}

uint64_t fb_s3_ino(const char *key, size_t len)
{
    uint64_t hash = fb_hash64(key, len);

    return hash > 1 ? hash : hash + 2;
}

ssize_t fb_s3_decode(char *text, size_t len)
{
    size_t to = 0;

    for (size_t from = 0; from < len; from++) {
        char c = text[from];

        if (c == '+') {
            c = ' ';
        } else if (c == '%') {
            int high = from + 2 < len ? fb_s3_hex_digit(text[from + 1]) : -1;
            int low = from + 2 < len ? fb_s3_hex_digit(text[from + 2]) : -1;

            if (high < 0 || low < 0)
                return -EBADMSG;
            c = (char)(high * 16 + low);
            from += 2;
        }
        text[to++] = c;
    }
    return (ssize_t)to;
}
