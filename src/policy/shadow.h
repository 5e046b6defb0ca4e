/*
 * policy/shadow.h - what each stream would hold if all of the cache were one LRU.
 *
 * A shadow of such a cache, of items sampled by hash: it knows keys and sizes, and holds nothing.
 * It tells what is fair: a stream for which LRU is right should not have less than LRU would give
 * it, however useful its space is to others. The sample is all items at first; when there are more
 * than fit into the table, every second one goes, as often as it takes. So small caches are
 * followed exactly, large ones to within some percent. 700 KB. Pure.
 */
#ifndef FB_POLICY_SHADOW_H
#define FB_POLICY_SHADOW_H

#include <stdint.h>

#include "base/attr.h"

#define FB_SHADOW_ITEMS   16384
#define FB_SHADOW_STREAMS 256

struct fb_shadow;

FB_MUST_CHECK int fb_shadow_new(uint64_t total_bytes, struct fb_shadow **ret_shadow);
void fb_shadow_free(struct fb_shadow *shadow);

enum fb_shadowed {
    FB_SHADOW_UNSEEN = 1, /* the item is not in the sample, or not in the share */
    FB_SHADOW_HIT = 2,
    FB_SHADOW_MISS = 3,
};

/* An access of an item of a stream. key is not 0. `share`: of the stream's items only so many,
 * chosen by hash, take part; a stream that reads faster than it would with one LRU presses no
 * harder then. */
enum fb_shadowed fb_shadow_access(struct fb_shadow *shadow, uint32_t stream, uint64_t key,
                                  uint64_t bytes, double share);

/* Bytes that the stream would hold. */
uint64_t fb_shadow_holds(const struct fb_shadow *shadow, uint32_t stream);

/* The stream is no more: what it would hold goes. */
void fb_shadow_forget(struct fb_shadow *shadow, uint32_t stream);

#endif
