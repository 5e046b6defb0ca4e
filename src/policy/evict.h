/*
 * policy/evict.h - which segment leaves a tier, and which of its items move down instead of away.
 *
 * Policies are pure: they see copies of what the store knows, get the time as an argument, do no
 * I/O and take no lock, so the daemon and the simulator run the very same code. One instance serves
 * one tier; calls come one at a time.
 */
#ifndef FB_POLICY_EVICT_H
#define FB_POLICY_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "store/store.h"

struct fb_evict_ops {
    const char *name;
    const char *help;
    bool learns;        /* merges by policy/groups.h; victim() is for when there is no ranking */
    size_t state_bytes; /* zeroed memory given to the other calls; may be 0 */
    /* The position in `segments` of the one to evict. count > 0; pinned ones are not among them. */
    uint32_t (*victim)(void *state, const struct fb_segment_info *segments, uint32_t count,
                       int64_t now_ns);
    /* Whether a live item of a victim is worth a place in the tier below. NULL: yes. */
    bool (*keep)(void *state, const struct fb_victim *victim, int64_t now_ns);
};

extern const struct fb_evict_ops fb_evict_learned;
extern const struct fb_evict_ops fb_evict_fifo;
extern const struct fb_evict_ops fb_evict_lru;

/* For policies that do as LRU does where they know nothing better. */
uint32_t fb_evict_lru_victim(void *state, const struct fb_segment_info *segments, uint32_t count,
                             int64_t now_ns);

/* NULL when there is none of that name. */
const struct fb_evict_ops *fb_evict_find(const char *name);

/* For the settings table and error messages. */
#define FB_EVICT_NAMES "learned|fifo|lru"

#endif
