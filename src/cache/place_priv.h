/*
 * cache/place_priv.h - what place.c and place_plan.c share.
 */
#ifndef FB_CACHE_PLACE_PRIV_H
#define FB_CACHE_PLACE_PRIV_H

#include "cache/cache_priv.h"
#include "core/clock.h"

#define FB_ADMIT_PATIENCE_NS (2 * FB_NS_PER_S)
#define FB_NO_PATIENCE_NS    0

/* Items on their way down. */
struct fb_demotion {
    struct fb_cache *cache;
    unsigned tier; /* that the items leave */
    int64_t until_ns;
    int64_t now_ns;
    bool only_into_room; /* the tier below evicts nothing for them */
    uint64_t evictions;  /* by hand, that had been before the segment was emptied */
};

/* Appends to `tier`, evicting there when needed. */
FB_MUST_CHECK int fb_place_append(struct fb_cache *cache, unsigned tier, const struct fb_item *item,
                                  int64_t until_ns) FB_REQUIRES(&cache->admit_lock);
/* Appends to `tier` if that needs no eviction. */
FB_MUST_CHECK int fb_place_append_into_room(struct fb_cache *cache, unsigned tier,
                                            const struct fb_item *item, int64_t until_ns);

/* An item was put into the index, and may have been evicted by hand since it was read: then it must
 * go again, and this is true. */
bool fb_place_take_back(struct fb_cache *cache, const struct fb_item *item, uint64_t evictions);

/* For fb_store_evict(), with the admit lock held: what goes moves down, or leaves for good. */
void fb_place_demote(void *arg, const struct fb_victim *victim);

/* Empties a sealed segment of the last tier. What a user has pinned stays in that tier. */
FB_MUST_CHECK int fb_place_empty(struct fb_cache *cache, unsigned tier, uint32_t segment)
    FB_REQUIRES(&cache->admit_lock);

#endif
