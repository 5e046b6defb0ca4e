/*
 * base/checksum.h - checksums of bulk data: XXH3, as in base/hash.h, with the widest vectors this
 * CPU has.
 *
 * base/hash.h is compiled for any x86-64 (SSE2). Every byte that comes from a medium or a source is
 * hashed, where AVX2 takes a third less time. The values are the same.
 */
#ifndef FB_BASE_CHECKSUM_H
#define FB_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
# include <sys/platform/x86.h>
#endif

#include "base/hash.h"

uint64_t fb_checksum_avx2(const void *data, size_t len);

static inline uint64_t fb_checksum(const void *data, size_t len)
{
#if defined(__x86_64__)
    /* libc knows. The compiler's own test would ask the CPU in every program that loads us, which
     * takes 50 us on a virtual machine. */
    if (CPU_FEATURE_ACTIVE(AVX2))
        return fb_checksum_avx2(data, len);
#endif
    return fb_hash64(data, len);
}

#endif
