/*
 * policy/reuse_ghosts.h - histories of objects that have left the cache, 2 bytes each, at most
 * as many as there are objects in the cache.
 *
 *     ghost = tag (8 bits) | age when it left (3 bits, class of a gap) | history (5 bits)
 *
 * A bucket of 8 is found by the hash, a ghost in it by its tag; a stranger is taken for one it
 * knows in 8 of 255 cases. A bucket is a queue: a new ghost comes first, and the others move on by
 * one. So the place of a ghost says how long it has been here, and it needs no time of its own:
 * since the one in place 4 came, about half as many objects have left as there are ghosts.
 */
#ifndef FB_POLICY_REUSE_GHOSTS_H
#define FB_POLICY_REUSE_GHOSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

#define FB_REUSE_GHOST 2 /* bytes */

struct fb_reuse_ghosts {
    uint16_t *ghost; /* NULL: there are none */
    uint64_t buckets;
};

struct fb_reuse_ghost {
    uint8_t history; /* 5 bits */
    uint8_t age;     /* 3 bits */
    float since;     /* then so many objects have left, as a share of the ghosts */
};

/* At most so many; those that there are stay, as far as there is room. Without memory for more
 * there are as many as before. */
void fb_reuse_ghosts_resize(struct fb_reuse_ghosts *g, uint64_t ghosts);
void fb_reuse_ghosts_free(struct fb_reuse_ghosts *g);
size_t fb_reuse_ghosts_bytes(const struct fb_reuse_ghosts *g);

void fb_reuse_ghosts_add(struct fb_reuse_ghosts *g, uint64_t hash,
                         const struct fb_reuse_ghost *add);
/* Whether there is a ghost; it is taken. */
FB_MUST_CHECK bool fb_reuse_ghosts_take(struct fb_reuse_ghosts *g, uint64_t hash,
                                        struct fb_reuse_ghost *ret_ghost);

#endif
