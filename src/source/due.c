#include "source/due.h"

#include <errno.h>
#include <stddef.h>

#include "base/assert.h"
#include "core/mem.h"

int fb_due_create(struct fb_due_heap *heap, uint32_t capacity)
{
    heap->slots = fb_alloc_array((size_t)capacity + 1, sizeof(struct fb_due *));
    heap->count = 0;
    heap->capacity = capacity;
    return heap->slots ? 0 : -ENOMEM;
}

void fb_due_destroy(struct fb_due_heap *heap)
{
    free((void *)heap->slots);
    heap->slots = NULL;
}

static void place(struct fb_due_heap *heap, uint32_t slot, struct fb_due *node)
{
    heap->slots[slot] = node;
    node->slot = slot;
}

static void sift_up(struct fb_due_heap *heap, uint32_t slot, struct fb_due *node)
{
    while (slot > 1 && heap->slots[slot / 2]->at_ns > node->at_ns) {
        place(heap, slot, heap->slots[slot / 2]);
        slot /= 2;
    }
    place(heap, slot, node);
}

static void sift_down(struct fb_due_heap *heap, uint32_t slot, struct fb_due *node)
{
    for (uint32_t child = slot * 2; child <= heap->count; child = slot * 2) {
        if (child < heap->count && heap->slots[child + 1]->at_ns < heap->slots[child]->at_ns)
            child++;
        if (heap->slots[child]->at_ns >= node->at_ns)
            break;
        place(heap, slot, heap->slots[child]);
        slot = child;
    }
    place(heap, slot, node);
}

void fb_due_add(struct fb_due_heap *heap, struct fb_due *node, int64_t at_ns)
{
    FB_ASSERT(node->slot == 0 && heap->count < heap->capacity);
    node->at_ns = at_ns;
    heap->count++;
    sift_up(heap, heap->count, node);
}

void fb_due_remove(struct fb_due_heap *heap, struct fb_due *node)
{
    uint32_t slot = node->slot;
    struct fb_due *last;

    if (slot == 0)
        return;
    FB_ASSERT(slot <= heap->count && heap->slots[slot] == node);
    node->slot = 0;
    last = heap->slots[heap->count--];
    if (last == node)
        return;
    if (slot > 1 && heap->slots[slot / 2]->at_ns > last->at_ns)
        sift_up(heap, slot, last);
    else
        sift_down(heap, slot, last);
}
