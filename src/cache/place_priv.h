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
    bool was_busy;       /* an item found room below, and the disk did not take it in time */
    uint64_t evictions;  /* by hand, that had been before the segment was emptied */
};

/* Segments that are being emptied, and copies of the items that stay. */
struct fb_parting {
    struct fb_demotion down;
    const uint64_t *stays; /* keys, in order */
    size_t stay_count;
    bool lower;              /* there is a tier below */
    bool yielding;           /* only what goes for a plan's */
    bool busy_stays;         /* what the disk does not take in time */
    bool is_late;            /* some did stay for that */
    fb_place_due_fn *is_due; /* NULL, or for place_plan.c: what stays besides */
    void *due_arg;
    struct fb_list kept;
};

/* For fb_store_evict(), with the admit lock held: an item stays, goes down, or leaves for good. */
void fb_place_part(void *arg, const struct fb_victim *victim);
/* There: it stays; false: there is no memory for a copy of it. Afterwards: those that stay go into
 * the room that was made. */
bool fb_place_stay(struct fb_parting *p, const struct fb_victim *victim);
void fb_place_put_back(struct fb_parting *p);

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

/* Empties a sealed segment of the last tier. What a user has pinned stays in that tier; with
 * `yielding` whatever does not go for a plan's. What stays waits for the disk until then. */
FB_MUST_CHECK int fb_place_empty(struct fb_cache *cache, unsigned tier, uint32_t segment,
                                 bool yielding, int64_t until_ns) FB_REQUIRES(&cache->admit_lock);

#endif
