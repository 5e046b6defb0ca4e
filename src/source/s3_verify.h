/*
 * source/s3_verify.h - a whole object held against the checksum that came with it.
 */
#ifndef FB_SOURCE_S3_VERIFY_H
#define FB_SOURCE_S3_VERIFY_H

#include <stdbool.h>
#include <sys/uio.h>

#include "source/s3_value.h"

/* False when the bytes are not those of the object. True when they are, and when S3 gave nothing to
 * tell it by. */
bool fb_s3_verify(const struct fb_s3_headers *headers, const struct iovec *iov, unsigned count);

/* The ETag that S3 gives to an upload of parts with these; "" when they are no MD5s. */
void fb_s3_etag_of_parts(char (*etags)[FB_S3_ETAG_MAX + 1], unsigned count,
                         char ret_etag[FB_S3_ETAG_MAX + 1]);

#endif
