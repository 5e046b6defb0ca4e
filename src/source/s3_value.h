/*
 * source/s3_value.h - values that S3 sends: dates, ETags, sizes, headers.
 *
 * All input is the network's: whatever is not exactly of the expected form is refused. Times are
 * cut to whole seconds, since listings give milliseconds and headers do not, and both must give the
 * same version. Nothing here knows of locales or time zones: S3 speaks UTC.
 *
 * An ETag is kept without its quotes. It names the bytes of an object, so a version that has one is
 * strong: two objects written within one second still differ.
 */
#ifndef FB_SOURCE_S3_VALUE_H
#define FB_SOURCE_S3_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "proto/file.h"

#define FB_S3_ETAG_MAX       255
#define FB_S3_REGION_MAX     63
#define FB_S3_PLACE_MAX      279
#define FB_S3_REQUEST_ID_MAX 127
#define FB_S3_CHECKSUM_MAX   32 /* bytes: SHA-256 */

/* Decimal digits and nothing else; at most INT64_MAX, what a file can have. -EBADMSG. */
FB_MUST_CHECK int fb_s3_parse_size(const char *text, size_t len, uint64_t *ret_size);

/* 2026-11-15T15:36:54.207Z, as in listings. From 1970 to 2261. -EBADMSG. */
FB_MUST_CHECK int fb_s3_parse_time(const char *text, size_t len, int64_t *ret_wall_ns);

/* Sun, 15 Nov 2026 15:36:54 GMT, as in headers. -EBADMSG. */
FB_MUST_CHECK int fb_s3_parse_http_time(const char *text, size_t len, int64_t *ret_wall_ns);

/* Without quotes and W/. -EBADMSG when it is too long or has control characters or quotes. */
FB_MUST_CHECK int fb_s3_parse_etag(const char *text, size_t len, char ret_etag[FB_S3_ETAG_MAX + 1]);

/* The MD5 of the object's bytes, where the ETag can be that: objects uploaded in parts, and those
 * encrypted with a key of their own (headers.encrypted), have others. */
bool fb_s3_etag_md5(const char *etag, uint8_t ret_md5[16]);

/* tag is of the ETag, tag[1] is not 0; without an ETag ("") both are 0. */
struct fb_version fb_s3_version(uint64_t size, int64_t mtime_ns, const char *etag);

/* The ETag in quotes, as If-Match wants it; false and "" when the version does not tell it. */
#define FB_S3_ETAG_TEXT 48
bool fb_s3_version_etag(const struct fb_version *version, char ret_text[FB_S3_ETAG_TEXT]);

/* ---- headers --------------------------------------------------------------------------------- */

enum fb_s3_checksum_kind {
    FB_S3_CRC32,
    FB_S3_CRC32C,
    FB_S3_SHA1,
    FB_S3_SHA256,
    FB_S3_CRC64NVME,
    FB_S3_CHECKSUMS,
};

/* Of a whole object; those of multipart uploads that are made of the parts' checksums are left
 * out. */
struct fb_s3_checksum {
    bool present;
    uint8_t bytes[FB_S3_CHECKSUM_MAX]; /* big-endian, as many as the kind has */
};

size_t fb_s3_checksum_size(enum fb_s3_checksum_kind kind);

struct fb_s3_headers {
    bool malformed; /* one of the headers below came with a value that makes no sense */
    bool has_length;
    bool has_range; /* Content-Range: bytes first-last/... */
    bool has_total; /* Content-Range: .../total */
    bool has_mtime;
    bool has_date;
    bool has_retry_after;
    bool encrypted; /* with a key of KMS or of the customer: the ETag is no MD5 */
    bool composite; /* the checksums are made of those of parts */
    uint64_t length;
    uint64_t range_first;
    uint64_t range_last;
    uint64_t range_total;
    int64_t mtime_ns;              /* Last-Modified */
    int64_t date_ns;               /* the server's clock */
    uint64_t retry_after_s;        /* at most a day */
    char etag[FB_S3_ETAG_MAX + 1]; /* "": none */
    char region[FB_S3_REGION_MAX + 1];
    char location[FB_S3_PLACE_MAX + 1]; /* scheme://host[:port] of it */
    char request_id[FB_S3_REQUEST_ID_MAX + 1];
    struct fb_s3_checksum checksums[FB_S3_CHECKSUMS];
};

/* One line of an answer's head, with or without its end of line, zeroed headers at first. A status
 * line forgets what was before it: it begins another answer (after 100 Continue). */
void fb_s3_headers_line(struct fb_s3_headers *headers, const char *line, size_t len);

#endif
