/*
 * policy/reuse_ghosts.h - histories of objects that have left the cache, 4 bytes each.
 *
 *     ghost = time (12 bits) | tag (12 bits) | history (8 bits)
 *
 * A bucket of 8 is found by the hash, a ghost in it by its tag; a stranger is taken for one it
 * knows in 8 of 4,096 cases. A new ghost takes the place of the oldest in its bucket. Time is in
 * steps of a sixteenth of the cache's objects or so, and comes round after 256 times as many.
 */
#ifndef FB_POLICY_REUSE_GHOSTS_H
#define FB_POLICY_REUSE_GHOSTS_H

#include "policy/reuse.h"

struct fb_reuse_ghosts {
    uint32_t *ghost; /* NULL: there are none */
    uint64_t buckets;
    unsigned shift; /* of requests, to a ghost's time */
};

/* For a cache of so many objects. Without memory for them there are no ghosts. */
void fb_reuse_ghosts_make(struct fb_reuse_ghosts *g, uint64_t cached);
void fb_reuse_ghosts_free(struct fb_reuse_ghosts *g);
size_t fb_reuse_ghosts_bytes(const struct fb_reuse_ghosts *g);

void fb_reuse_ghosts_add(struct fb_reuse_ghosts *g, uint32_t now, uint64_t hash,
                         const struct fb_reuse_meta *meta);
/* Whether there is a ghost; it is taken, and meta is what it says. */
FB_MUST_CHECK bool fb_reuse_ghosts_take(struct fb_reuse_ghosts *g, uint32_t now, uint64_t hash,
                                        struct fb_reuse_meta *ret_meta);

#endif
