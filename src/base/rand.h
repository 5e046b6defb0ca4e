/*
 * base/rand.h - a small random generator (splitmix64) for sampling, jitter and tests.
 *
 * Not for secrets. State is one word owned by the caller, so results repeat with the seed.
 */
#ifndef FB_BASE_RAND_H
#define FB_BASE_RAND_H

#include <stdint.h>

struct fb_rand {
    uint64_t state;
};

static inline uint64_t fb_rand_u64(struct fb_rand *r)
{
    uint64_t x = (r->state += 0x9e3779b97f4a7c15ULL);

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/* Uniform in [0, bound); bound > 0. Lemire's multiply, its bias is below bound / 2^64. */
static inline uint64_t fb_rand_below(struct fb_rand *r, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)fb_rand_u64(r) * bound) >> 64);
}

/* Uniform in [0, 1). */
static inline double fb_rand_unit(struct fb_rand *r)
{
    return (double)(fb_rand_u64(r) >> 11) * 0x1.0p-53;
}

#endif
