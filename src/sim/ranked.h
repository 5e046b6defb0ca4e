/*
 * sim/ranked.h - a cache whose objects are in a heap, the first of which goes first: what LFU, GDSF
 * and Belady share. They differ in the priority they give an object at each request.
 */
#ifndef FB_SIM_RANKED_H
#define FB_SIM_RANKED_H

#include <errno.h>

#include "core/mem.h"
#include "sim/heap.h"
#include "sim/node.h"

struct fb_sim_ranked {
    struct fb_sim_base base; /* tag: requests since it came; 0: not cached */
    struct fb_sim_heap heap;
    uint64_t size;
    double evicted; /* the priority of the last one evicted; 0: none was */
};

static inline int fb_sim_ranked_create(const struct fb_sim_setup *setup, void **ret_cache,
                                       struct fb_error *err)
{
    (void)err;
    *ret_cache = fb_sim_base_new(setup, sizeof(struct fb_sim_ranked));
    return *ret_cache ? 0 : -ENOMEM;
}

FB_MUST_CHECK static inline int fb_sim_ranked_reserve(void *cache, size_t objects)
{
    struct fb_sim_ranked *c = cache;
    int rc = fb_sim_base_reserve(cache, objects);

    return rc ? rc : fb_sim_heap_reserve(&c->heap, objects);
}

static inline void fb_sim_ranked_destroy(void *cache)
{
    struct fb_sim_ranked *c = cache;

    if (c)
        fb_sim_heap_free(&c->heap);
    fb_sim_base_destroy(c);
}

/* Counts a request and makes room for what is not cached. False: it is too large, and stays out.
 * Else the caller must put it into the heap. */
static inline bool fb_sim_ranked_ask(struct fb_sim_ranked *c, uint32_t id, uint32_t size)
{
    struct fb_sim_node *node = c->base.node;

    if (node[id].tag++)
        return true;
    if (size > c->base.capacity) {
        node[id].tag = 0;
        return false;
    }
    while (c->size + size > c->base.capacity) {
        const struct fb_sim_heap_entry *first = fb_sim_heap_first(&c->heap);
        uint32_t victim = first->id;

        c->evicted = first->priority;
        fb_sim_heap_remove(&c->heap, victim);
        c->size -= node[victim].size;
        node[victim].tag = 0;
    }
    node[id].size = size;
    c->size += size;
    return true;
}

#endif
