/*
 * store/huge.h - huge pages for stretches of shared memory: at once where they cost little, else in
 * quiet moments.
 *
 *     life of a stretch:  small ── want ──► (cheap) made at once ─────────────► asked
 *                                    └────► (dear)  waiting ── quiet moment ──┘
 *
 * A stretch is asked for once; what the kernel refuses stays in small pages. Its bytes are the same
 * before, meanwhile and after, for everybody who has mapped the memory: whoever touches a page that
 * is being moved waits for the kernel, as for a page that comes from a disk.
 */
#ifndef FB_STORE_HUGE_H
#define FB_STORE_HUGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

#define FB_HUGE_BYTES    (2ULL << 20)
#define FB_HUGE_CHEAP_NS 1000000LL /* for one page */

struct fb_huge;

/* `map` is aligned to FB_HUGE_BYTES and outlives this; a last part that is no whole stretch stays
 * as it is. A page that takes longer than cheap_ns is dear (0: all are). */
FB_MUST_CHECK int fb_huge_create(uint8_t *map, uint64_t bytes, int64_t cheap_ns,
                                 struct fb_huge **ret_huge);
/* What still waits is let go. Takes NULL. */
void fb_huge_destroy(struct fb_huge *huge);

/* All stretches that have a byte in [from, until); those that are dear at once, too, unless they
 * may wait. One thread at a time. */
void fb_huge_want(struct fb_huge *huge, uint64_t from, uint64_t until, bool may_wait);

/* Stretches that wait for a quiet moment. */
uint64_t fb_huge_waiting(struct fb_huge *huge);

#endif
