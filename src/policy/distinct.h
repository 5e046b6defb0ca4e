/*
 * policy/distinct.h - how many different items were seen, and how large they are on average.
 *
 * HyperLogLog: each of 1,024 places remembers the longest run of zeros among the hashes that fall
 * to it. Off by 3% on average, 1 KB, a few nanoseconds an item. An item that raises a place is new
 * for certain and chosen by its hash alone, so the mean size of those is the mean size of all. It
 * never shrinks: who forgets begins anew. Pure.
 */
#ifndef FB_POLICY_DISTINCT_H
#define FB_POLICY_DISTINCT_H

#include <stdint.h>

#define FB_DISTINCT_PLACES 1024

/* Zeroed at first. */
struct fb_distinct {
    uint8_t place[FB_DISTINCT_PLACES];
    uint32_t filled; /* places that are not 0 */
    uint32_t raised; /* times a place was */
    double lack;     /* sum of 1 - 2^-place */
    double bytes;    /* of the items that raised one */
};

void fb_distinct_add(struct fb_distinct *distinct, uint64_t key, uint64_t bytes);

uint64_t fb_distinct_items(const struct fb_distinct *distinct);
uint64_t fb_distinct_bytes(const struct fb_distinct *distinct);

#endif
