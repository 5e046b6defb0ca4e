/*
 * epoch/seed_prefix.h - the first positions of torch's randperm, exactly, without making the rest.
 *
 * Position i takes what stands at i + z, and leaves there what stood at i. Only places that were
 * written to differ from 0, 1, 2 ...; they are kept in a small hash table. Costs 10 ns a position
 * whatever the size of the data set.
 */
#ifndef FB_EPOCH_SEED_PREFIX_H
#define FB_EPOCH_SEED_PREFIX_H

#include "epoch/generator.h"

#define FB_PREFIX_MAX   1100
#define FB_PREFIX_SLOTS 4096 /* a power of two, well above one for each position */

struct fb_prefix {
    uint32_t n;
    uint32_t count; /* positions drawn */
    uint32_t order[FB_PREFIX_MAX];
    uint32_t at[FB_PREFIX_SLOTS]; /* place + 1; 0: free */
    uint32_t value[FB_PREFIX_SLOTS];
};

/* Nothing is drawn yet of a permutation of n. */
void fb_prefix_begin(struct fb_prefix *p, uint32_t n);

/* Draws on, until `count` positions are known, at most FB_PREFIX_MAX and n. */
void fb_prefix_draw(struct fb_prefix *p, struct fb_mt19937 *mt, uint32_t count);

#endif
