/*
 * source/s3_parts.h - how long the parts of a multipart upload are.
 *
 * An object has at most 10,000 parts, and its length is not known when the first one leaves. So
 * parts grow: the first 1,000 have `first` bytes, the next 1,000 twice as many and so on, up to
 * `cap`. Small files leave early and take little memory, and large ones have room: with the
 * defaults an object can have 492 GiB, with a cap of 2 GiB all of S3's 5 TiB.
 */
#ifndef FB_SOURCE_S3_PARTS_H
#define FB_SOURCE_S3_PARTS_H

#include <stdint.h>

#define FB_S3_PARTS_MAX        10000
#define FB_S3_PART_FIRST       (8ull << 20)
#define FB_S3_PART_CAP         (64ull << 20)
#define FB_S3_PART_BYTES_MAX   (5ull << 30)
#define FB_S3_OBJECT_BYTES_MAX (5ull << 40)

/* Of part `number`, from 1. `first` > 0, `cap` >= `first`. Beyond FB_S3_PARTS_MAX, where there are
 * no parts, that of the last one. */
uint64_t fb_s3_part_size(unsigned number, uint64_t first, uint64_t cap);

/* Where part `number` begins; FB_S3_PARTS_MAX + 1 may be asked for. */
uint64_t fb_s3_part_offset(unsigned number, uint64_t first, uint64_t cap);

/* The longest object that can be written. */
uint64_t fb_s3_object_max(uint64_t first, uint64_t cap);

#endif
