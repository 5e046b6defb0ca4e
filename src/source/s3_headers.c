#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "source/s3_value.h"

#define RETRY_AFTER_MAX_S 86400u

size_t fb_s3_checksum_size(enum fb_s3_checksum_kind kind)
{
    static const uint8_t sizes[FB_S3_CHECKSUMS] = {
        [FB_S3_CRC32] = 4,   [FB_S3_CRC32C] = 4,    [FB_S3_SHA1] = 20,
        [FB_S3_SHA256] = 32, [FB_S3_CRC64NVME] = 8,
    };

    return sizes[kind];
}

/* ---- values ---------------------------------------------------------------------------------- */

static int take_length(struct fb_s3_headers *headers, const char *text, size_t len)
{
    uint64_t length;
    int r = fb_s3_parse_size(text, len, &length);

    if (r == 0 && headers->has_length && headers->length != length)
        r = -EBADMSG;
    if (r == 0) {
        headers->length = length;
        headers->has_length = true;
    }
    return r;
}

/* bytes first-last/total, with * for an unknown total or an unsatisfied range. */
static int take_range(struct fb_s3_headers *headers, const char *text, size_t len)
{
    const char *end = text + len, *slash, *dash;
    uint64_t first, last, total;

    if (len < 6 || strncasecmp(text, "bytes ", 6) != 0)
        return -EBADMSG;
    text += 6;
    slash = memchr(text, '/', (size_t)(end - text));
    if (!slash)
        return -EBADMSG;
    if (end - slash != 2 || slash[1] != '*') {
        if (fb_s3_parse_size(slash + 1, (size_t)(end - slash - 1), &total) < 0)
            return -EBADMSG;
        headers->range_total = total;
        headers->has_total = true;
    }
    if (slash - text == 1 && *text == '*')
        return headers->has_total ? 0 : -EBADMSG;
    dash = memchr(text, '-', (size_t)(slash - text));
    if (!dash || fb_s3_parse_size(text, (size_t)(dash - text), &first) < 0 ||
        fb_s3_parse_size(dash + 1, (size_t)(slash - dash - 1), &last) < 0 || last < first ||
        (headers->has_total && last >= headers->range_total))
        return -EBADMSG;
    headers->range_first = first;
    headers->range_last = last;
    headers->has_range = true;
    return 0;
}

static int take_etag(struct fb_s3_headers *headers, const char *text, size_t len)
{
    return fb_s3_parse_etag(text, len, headers->etag);
}

static int take_mtime(struct fb_s3_headers *headers, const char *text, size_t len)
{
    int r = fb_s3_parse_http_time(text, len, &headers->mtime_ns);

    headers->has_mtime = r == 0;
    return r;
}

static int take_date(struct fb_s3_headers *headers, const char *text, size_t len)
{
    headers->has_date = fb_s3_parse_http_time(text, len, &headers->date_ns) == 0;
    return 0;
}

/* It may also be a date, which nobody sends; then the usual pause will do. */
static int take_retry_after(struct fb_s3_headers *headers, const char *text, size_t len)
{
    uint64_t seconds;

    if (fb_s3_parse_size(text, len, &seconds) == 0) {
        headers->retry_after_s = seconds < RETRY_AFTER_MAX_S ? seconds : RETRY_AFTER_MAX_S;
        headers->has_retry_after = true;
    }
    return 0;
}

static int take_encryption(struct fb_s3_headers *headers, const char *text, size_t len)
{
    if (len >= 7 && !strncasecmp(text, "aws:kms", 7))
        headers->encrypted = true;
    return 0;
}

static int take_customer_key(struct fb_s3_headers *headers, const char *text, size_t len)
{
    (void)text;
    (void)len;
    headers->encrypted = true;
    return 0;
}

/* What is shown to people, or put into host names: plain characters only. */
static int take_word(char *to, size_t max, const char *text, size_t len)
{
    if (len > max)
        return -EBADMSG;
    for (size_t i = 0; i < len; i++) {
        if (text[i] <= ' ' || text[i] > '~')
            return -EBADMSG;
    }
    memcpy(to, text, len);
    to[len] = '\0';
    return 0;
}

static int take_region(struct fb_s3_headers *headers, const char *text, size_t len)
{
    return take_word(headers->region, FB_S3_REGION_MAX, text, len);
}

/* Where the answer is to be had instead: of the address only the place, as the rest of it is signed
 * anew. One that is relative, or that we would not send a request to, is none. */
static int take_location(struct fb_s3_headers *headers, const char *text, size_t len)
{
    size_t scheme = len > 8 && !strncmp(text, "https://", 8)  ? 8
                    : len > 7 && !strncmp(text, "http://", 7) ? 7
                                                              : 0;
    size_t n = scheme;

    while (n < len && (isalnum((unsigned char)text[n]) || (text[n] && strchr(".-:[]", text[n]))))
        n++;
    if (scheme == 0 || n == scheme || n > FB_S3_PLACE_MAX || (n < len && !strchr("/?#", text[n])))
        return 0;
    memcpy(headers->location, text, n);
    headers->location[n] = '\0';
    return 0;
}

static int take_request_id(struct fb_s3_headers *headers, const char *text, size_t len)
{
    /* What it says is of no use: a strange one is no reason to distrust the rest. */
    if (take_word(headers->request_id, FB_S3_REQUEST_ID_MAX, text, len) < 0)
        headers->request_id[0] = '\0';
    return 0;
}

/* ---- checksums ------------------------------------------------------------------------------- */

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;

    return found ? (int)(found - digits) : -1;
}

/* Exactly `size` bytes. */
static bool base64_decode(const char *text, size_t len, uint8_t *ret_bytes, size_t size)
{
    uint32_t bits = 0;
    unsigned have = 0;
    size_t at = 0, i = 0;

    if (len != (size + 2) / 3 * 4)
        return false;
    for (; at < size; i++) {
        int digit = base64_digit(text[i]);

        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        have += 6;
        if (have >= 8) {
            have -= 8;
            ret_bytes[at++] = (uint8_t)(bits >> have);
        }
    }
    if (bits & ((1u << have) - 1))
        return false;
    for (; i < len; i++) {
        if (text[i] != '=')
            return false;
    }
    return true;
}

/* A checksum made of parts' checksums has "-N" at its end. */
static int take_checksum(struct fb_s3_headers *headers, enum fb_s3_checksum_kind kind,
                         const char *text, size_t len)
{
    struct fb_s3_checksum *checksum = &headers->checksums[kind];

    if (memchr(text, '-', len))
        return 0;
    checksum->present = base64_decode(text, len, checksum->bytes, fb_s3_checksum_size(kind));
    return checksum->present ? 0 : -EBADMSG;
}

/* Such a checksum, with or without "-N", is none of the bytes. */
static int take_checksum_type(struct fb_s3_headers *headers, const char *text, size_t len)
{
    headers->composite = len == 9 && !strncasecmp(text, "COMPOSITE", len);
    return 0;
}

static int take_crc32(struct fb_s3_headers *headers, const char *text, size_t len)
{
    return take_checksum(headers, FB_S3_CRC32, text, len);
}

static int take_crc32c(struct fb_s3_headers *headers, const char *text, size_t len)
{
    return take_checksum(headers, FB_S3_CRC32C, text, len);
}

static int take_sha1(struct fb_s3_headers *headers, const char *text, size_t len)
{
    return take_checksum(headers, FB_S3_SHA1, text, len);
}

static int take_sha256(struct fb_s3_headers *headers, const char *text, size_t len)
{
    return take_checksum(headers, FB_S3_SHA256, text, len);
}

static int take_crc64nvme(struct fb_s3_headers *headers, const char *text, size_t len)
{
    return take_checksum(headers, FB_S3_CRC64NVME, text, len);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static const struct known {
    const char *name;
    int (*take)(struct fb_s3_headers *headers, const char *text, size_t len);
} known[] = {
    {"content-length", take_length},
    {"content-range", take_range},
    {"etag", take_etag},
    {"last-modified", take_mtime},
    {"location", take_location},
    {"date", take_date},
    {"retry-after", take_retry_after},
    {"x-amz-bucket-region", take_region},
    {"x-amz-request-id", take_request_id},
    {"x-amz-server-side-encryption", take_encryption},
    {"x-amz-server-side-encryption-customer-algorithm", take_customer_key},
    {"x-amz-checksum-crc32", take_crc32},
    {"x-amz-checksum-crc32c", take_crc32c},
    {"x-amz-checksum-sha1", take_sha1},
    {"x-amz-checksum-sha256", take_sha256},
    {"x-amz-checksum-crc64nvme", take_crc64nvme},
    {"x-amz-checksum-type", take_checksum_type},
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void take(struct fb_s3_headers *headers, const char *name, size_t name_len,
                 const char *value, size_t value_len)
{
    for (size_t i = 0; i < FB_ARRAY_SIZE(known); i++) {
        if (strlen(known[i].name) == name_len && !strncasecmp(known[i].name, name, name_len)) {
            if (known[i].take(headers, value, value_len) < 0)
                headers->malformed = true;
            return;
        }
    }
}

void fb_s3_headers_line(struct fb_s3_headers *headers, const char *line, size_t len)
{
    const char *colon = len > 0 ? memchr(line, ':', len) : NULL;
    const char *value, *end = line + len;

    if (len >= 5 && !memcmp(line, "HTTP/", 5)) {
        memset(headers, 0, sizeof *headers);
        return;
    }
    if (!colon)
        return;
    value = colon + 1;
    while (value < end && is_blank(*value))
        value++;
    while (end > value && is_blank(end[-1]))
        end--;
    take(headers, line, (size_t)(colon - line), value, (size_t)(end - value));
}
