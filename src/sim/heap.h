/*
 * sim/heap.h - objects in the order of a key that changes: a heap with four children a node.
 *
 * Keys are pairs: a priority, and a number that decides between equal ones. The least comes first.
 * 24 bytes for each object in it, and 4 for each that could be.
 */
#ifndef FB_SIM_HEAP_H
#define FB_SIM_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

struct fb_sim_heap_entry {
    double priority;
    uint64_t tie;
    uint32_t id;
};

struct fb_sim_heap {
    struct fb_sim_heap_entry *entry;
    size_t count;
    size_t room;
    uint32_t *place; /* of an object: 1 + its position; 0: it is not in */
    size_t objects;
};

FB_MUST_CHECK int fb_sim_heap_reserve(struct fb_sim_heap *heap, size_t objects);
void fb_sim_heap_free(struct fb_sim_heap *heap);

/* Puts the object in, or moves it. -ENOMEM. */
FB_MUST_CHECK int fb_sim_heap_set(struct fb_sim_heap *heap, uint32_t id, double priority,
                                  uint64_t tie);
void fb_sim_heap_remove(struct fb_sim_heap *heap, uint32_t id);

/* The least; the heap must not be empty. */
static inline const struct fb_sim_heap_entry *fb_sim_heap_first(const struct fb_sim_heap *heap)
{
    return &heap->entry[0];
}

static inline bool fb_sim_heap_has(const struct fb_sim_heap *heap, uint32_t id)
{
    return heap->place[id] != 0;
}

#endif
