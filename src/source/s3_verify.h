/*
 * source/s3_verify.h - a whole object held against the checksum that came with it.
 */
#ifndef FB_SOURCE_S3_VERIFY_H
#define FB_SOURCE_S3_VERIFY_H

#include <stdbool.h>
#include <sys/uio.h>

#include "source/s3_value.h"

struct fb_s3_sum {
    bool present;
    uint8_t md5[16];
};

/* Whether nothing but the MD5 of the bytes can tell. */
bool fb_s3_verify_by_md5(const struct fb_s3_headers *headers);

/* False when the bytes are not those of the object. True when they are, and when S3 gave nothing to
 * tell it by. Their MD5 is computed unless it is present in `sum`. */
bool fb_s3_verify(const struct fb_s3_headers *headers, const struct iovec *iov, unsigned count,
                  const struct fb_s3_sum *sum);

/* The ETag that S3 gives to an object of these bytes; "" when it cannot be computed. */
void fb_s3_etag_of_bytes(const void *data, size_t length, char ret_etag[FB_S3_ETAG_MAX + 1]);

/* The ETag that S3 gives to an upload of parts with these; "" when they are no MD5s. */
void fb_s3_etag_of_parts(char (*etags)[FB_S3_ETAG_MAX + 1], unsigned count,
                         char ret_etag[FB_S3_ETAG_MAX + 1]);

#endif
