/*
 * source/s3_md5.h - MD5 of several messages side by side.
 *
 * Each step of MD5 needs the one before, so that a message alone leaves most of a processor idle;
 * eight in the lanes of a vector take little longer than one. Objects that arrive together are
 * checked together: MD5, which is all that most servers give, was a third of what a small object
 * costs the daemon.
 */
#ifndef FB_SOURCE_S3_MD5_H
#define FB_SOURCE_S3_MD5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define FB_S3_MD5_BYTES 16
#define FB_S3_MD5_LANES 8
#define FB_S3_MD5_BLOCK 64

struct fb_s3_md5 {
    const struct iovec *iov;
    unsigned count;
    uint8_t *digest; /* of FB_S3_MD5_BYTES: set */
};

/* Whether this processor has the vectors; without, the other must not be called. */
bool fb_s3_md5_able(void);
void fb_s3_md5_all(const struct fb_s3_md5 *messages, unsigned count);

/* Of each lane so many blocks. Whoever calls one has asked the CPU: for AVX2, or for AVX-512 (VL),
 * which takes seven tenths of the time. */
typedef void fb_s3_md5_fn(uint32_t state[4][FB_S3_MD5_LANES],
                          const uint8_t *const data[FB_S3_MD5_LANES], size_t blocks);

fb_s3_md5_fn fb_s3_md5_blocks_avx2, fb_s3_md5_blocks_avx512;

#endif
