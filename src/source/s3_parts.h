#ifndef FB_SOURCE_S3_PARTS_H
#define FB_SOURCE_S3_PARTS_H
#include <stdint.h>
#define FB_S3_PARTS_MAX 10000u

static inline uint64_t fb_s3_part_size(unsigned number, uint64_t first, uint64_t cap)
{
    uint64_t s = first << ((number - 1) / 1000 < 20 ? (number - 1) / 1000 : 20);
    return s > cap ? (cap > first ? cap : first) : s;
}
#endif
