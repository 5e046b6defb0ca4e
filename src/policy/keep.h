/*
 * policy/keep.h - what a stream keeps, by its pattern (IGTCache, section 3.3).
 *
 *     sequential  eager    an item goes as soon as it was read to its end: nobody reads it again
 *     random      uniform  what came first stays, nothing is exchanged: any item is as good as any
 *                          other, and exchanging them throws hits away
 *     cyclic      cycle    the same; but when room must be made, the item read last goes, since it
 *                          returns last
 *     skewed      lru      the least recently used goes
 *
 * Besides there is `never`, which a user may ask for. All are questions about one item of one
 * stream; space between streams is policy/alloc.h. Pure.
 */
#ifndef FB_POLICY_KEEP_H
#define FB_POLICY_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "stream/pattern.h"

enum fb_keep {
    FB_KEEP_LRU,
    FB_KEEP_EAGER,
    FB_KEEP_UNIFORM,
    FB_KEEP_CYCLE,
    FB_KEEP_NEVER,
    FB_KEEPS,
};

/* What users may write for a path; `auto` follows the pattern. */
#define FB_KEEP_CHOICES "auto|uniform|lru|eager|never"

const char *fb_keep_name(enum fb_keep keep);

/* Whether what is kept is not exchanged for what comes. */
static inline bool fb_keep_holds(enum fb_keep keep)
{
    return keep == FB_KEEP_UNIFORM || keep == FB_KEEP_CYCLE;
}

/* LRU for a pattern that is not known. */
enum fb_keep fb_keep_for(enum fb_pattern pattern);

/* One of FB_KEEP_CHOICES but `auto`. -EINVAL for anything else. */
FB_MUST_CHECK int fb_keep_parse(const char *name, enum fb_keep *ret_keep);

/* Whether an item that was fetched is worth a place, given what its stream has and may have. LRU
 * makes room for it; uniform and cycle take it while there is room. What a cycle fetches ahead
 * takes the place of the item read last. */
bool fb_keep_admits(enum fb_keep keep, bool is_ahead, uint64_t used_bytes, uint64_t quota_bytes,
                    uint64_t item_bytes);

/* Whether an item that was read up to `end_bytes` of its `item_bytes` goes at once. */
bool fb_keep_drops(enum fb_keep keep, uint64_t end_bytes, uint64_t item_bytes);

/* An item, or a segment of items, of a stream that is over its quota. */
struct fb_kept {
    int64_t admitted_ns;
    int64_t used_ns; /* 0: never read */
};

/* The place in `kept` of the one that goes first. count > 0. */
uint32_t fb_keep_victim(enum fb_keep keep, const struct fb_kept *kept, uint32_t count);

#endif
