/*
 * base/hash.h - XXH3, in its two uses: 64-bit hashes of keys, and checksums of bytes.
 *
 * xxHash is included header-only, so a foreign process that loads us needs no further library.
 */
#ifndef FB_BASE_HASH_H
#define FB_BASE_HASH_H

#define XXH_INLINE_ALL
#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

static inline uint64_t fb_hash64(const void *data, size_t len)
{
    return XXH3_64bits(data, len);
}

static inline uint64_t fb_hash64_seed(const void *data, size_t len, uint64_t seed)
{
    return XXH3_64bits_withSeed(data, len, seed);
}

/* A cheap full-avalanche mix of one word (the finaliser of splitmix64). */
static inline uint64_t fb_mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ULL;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

#endif
