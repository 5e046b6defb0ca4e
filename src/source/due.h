/*
 * source/due.h - what falls due when: a binary heap of nodes embedded in their owners.
 *
 * Of fixed capacity: nothing is allocated after fb_due_create(). Adding and removing any node cost
 * log2(count) moves, looking at the first one nothing. A zeroed node is in no heap. Not locked: the
 * owner's lock guards heap and nodes.
 */
#ifndef FB_SOURCE_DUE_H
#define FB_SOURCE_DUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

struct fb_due {
    int64_t at_ns;
    uint32_t slot; /* where it is in the heap, from 1; 0: in none */
};

struct fb_due_heap {
    struct fb_due **slots; /* slots[1] to slots[count] */
    uint32_t count;
    uint32_t capacity;
};

FB_MUST_CHECK int fb_due_create(struct fb_due_heap *heap, uint32_t capacity);
void fb_due_destroy(struct fb_due_heap *heap); /* takes a zeroed heap */

/* There must be room, and the node in no heap. */
void fb_due_add(struct fb_due_heap *heap, struct fb_due *node, int64_t at_ns);
void fb_due_remove(struct fb_due_heap *heap, struct fb_due *node); /* takes a node in no heap */

/* The node due first, or NULL. */
static inline struct fb_due *fb_due_first(const struct fb_due_heap *heap)
{
    return heap->count > 0 ? heap->slots[1] : NULL;
}

#endif
