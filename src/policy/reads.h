/*
 * policy/reads.h - how often items were read, of the last million or so.
 *
 * What policy/turns.h must know of items that are in the cache and of those that are not. A bucket
 * has 16 words; a word is 22 bits of the name's hash and 10 of the count, 0: free. Where a bucket
 * is full, the one that was read least goes: it is the one least missed, since what is not known
 * counts as never read. 4 bytes an item. Pure.
 */
#ifndef FB_POLICY_READS_H
#define FB_POLICY_READS_H

#include <stdint.h>

#include "base/attr.h"

struct fb_reads;

#define FB_READS_MAX 1023 /* counts end there */

/* Room for so many items, rounded up; at least a bucket. */
FB_MUST_CHECK int fb_reads_new(uint64_t items, struct fb_reads **ret_reads);
void fb_reads_free(struct fb_reads *reads); /* takes NULL */

/* `name`: any hash or number that stays the item's own. */
uint32_t fb_reads_of(const struct fb_reads *reads, uint64_t name);

/* It is read once more. Returns how often it was before. */
uint32_t fb_reads_add(struct fb_reads *reads, uint64_t name);

#endif
