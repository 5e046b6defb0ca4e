#include "source/s3_parts.h"

#include "base/assert.h"
#include "base/attr.h"

#define STEP 1000 /* parts of one length */

uint64_t fb_s3_part_size(unsigned number, uint64_t first, uint64_t cap)
{
    unsigned doublings = ((unsigned)fb_min_u64(number, FB_S3_PARTS_MAX) - 1) / STEP;

    FB_ASSERT(number >= 1 && first > 0 && cap >= first);
    cap = fb_min_u64(cap, FB_S3_PART_BYTES_MAX);
    return first > cap >> doublings ? cap : first << doublings;
}

uint64_t fb_s3_part_offset(unsigned number, uint64_t first, uint64_t cap)
{
    uint64_t offset = 0;

    FB_ASSERT(number >= 1 && number <= FB_S3_PARTS_MAX + 1);
    for (unsigned from = 1; from < number; from += STEP)
        offset += fb_min_u64(number - from, STEP) * fb_s3_part_size(from, first, cap);
    return offset;
}

uint64_t fb_s3_object_max(uint64_t first, uint64_t cap)
{
    return fb_min_u64(fb_s3_part_offset(FB_S3_PARTS_MAX + 1, first, cap), FB_S3_OBJECT_BYTES_MAX);
}
