/* Headers of S3, and the values in them. */
#include <string.h>

#include "base/assert.h"
#include "fuzz.h"
#include "source/s3_value.h"

const char *const fb_fuzz_seeds[] = {
    "HTTP/1.1 206 Partial Content\r\nContent-Length: 10\r\nContent-Range: bytes 5-14/100\r\n"
    "ETag: \"49f68a5c8493ec2c0bf489821c21fc3b\"\r\n"
    "Last-Modified: Sun, 15 Nov 2026 15:36:54 GMT\r\nDate: Sun, 15 Nov 2026 15:36:55 GMT\r\n",
    "x-amz-bucket-region: eu-west-3\r\nx-amz-request-id: tx0-default\r\nRetry-After: 3\r\n"
    "x-amz-server-side-encryption: aws:kms\r\nx-amz-checksum-crc32c: 4waSgw==\r\n",
    "x-amz-checksum-sha256: 47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\r\n"
    "x-amz-checksum-crc64nvme: AAAAAAAAAAA=\r\nx-amz-checksum-crc32: AAAAAA==-3\r\n"
    "x-amz-checksum-sha1: 2jmj7l5rSw0yVb/vlWAYkK/YBwk=\r\n",
    "Content-Range: bytes */100\r\nETag: W/\"a\"\r\nContent-Length: 1\r\nContent-Length: 1\r\n",
    "HTTP/1.1 307 Temporary Redirect\r\nLocation: https://bucket.s3.example.com:443/key?a=b\r\n",
    "2026-11-15T15:36:54.207Z",
    "Sun, 15 Nov 2026 15:36:54 GMT",
    "9223372036854775807",
    NULL,
};

const char *const fb_fuzz_words[] = {
    ":",
    "\r\n",
    "\n",
    " ",
    "\t",
    "\"",
    "W/",
    "-",
    "/",
    "*",
    "bytes ",
    "9",
    "0",
    "=",
    "==",
    "Content-Length: ",
    "Content-Range: ",
    "ETag: ",
    "Last-Modified: ",
    "HTTP/",
    "99999999999999",
    "Z",
    ".",
    "T",
    "Feb",
    "29",
    "2262",
    "GMT",
    "x-amz-checksum-crc32c: ",
    "AAAA",
    "\x7f",
    "\xff",
    NULL,
};

static void check(const struct fb_s3_headers *h)
{
    FB_ASSERT(!h->has_length || h->length <= INT64_MAX);
    FB_ASSERT(!h->has_range || h->range_first <= h->range_last);
    FB_ASSERT(strlen(h->etag) <= FB_S3_ETAG_MAX && !strpbrk(h->etag, "\"\r\n\t "));
    FB_ASSERT(!strpbrk(h->region, "\r\n\t ") && !strpbrk(h->request_id, "\r\n\t "));
    FB_ASSERT(!h->location[0] ||
              (!strncmp(h->location, "http", 4) && !strpbrk(h->location, "@?#\r\n\t ")));
    FB_ASSERT(!h->has_retry_after || h->retry_after_s <= 86400);
    FB_ASSERT(!h->has_mtime || (h->mtime_ns >= 0 && h->mtime_ns % 1000000000 == 0));
}

static void check_values(const char *text, size_t len)
{
    char etag[FB_S3_ETAG_MAX + 1];
    uint8_t md5[16];
    uint64_t size;
    int64_t ns;

    if (fb_s3_parse_time(text, len, &ns) == 0 || fb_s3_parse_http_time(text, len, &ns) == 0)
        FB_ASSERT(ns >= 0 && ns % 1000000000 == 0);
    if (fb_s3_parse_size(text, len, &size) == 0)
        FB_ASSERT(size <= INT64_MAX);
    if (fb_s3_parse_etag(text, len, etag) == 0) {
        struct fb_version version = fb_s3_version(1, 2, etag);

        FB_ASSERT(!fb_s3_etag_md5(etag, md5) || strlen(etag) == 32);
        FB_ASSERT((version.tag[1] != 0) == (etag[0] != 0));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fb_s3_headers headers = {0};

    check_values((const char *)data, size);
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t len = end ? (size_t)(end - data) + 1 - at : size - at;

        fb_s3_headers_line(&headers, (const char *)data + at, len);
        check(&headers);
        at += len;
    }
    return 0;
}
