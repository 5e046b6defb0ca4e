#include "sim/heap.h"

#include <errno.h>

#include "core/mem.h"
#include "sim/cache.h"

#define CHILDREN   4
#define ROOM_START 1024

int fb_sim_heap_reserve(struct fb_sim_heap *heap, size_t objects)
{
    return fb_sim_grow(&heap->place, &heap->objects, objects, sizeof *heap->place);
}

void fb_sim_heap_free(struct fb_sim_heap *heap)
{
    free(heap->entry);
    free(heap->place);
}

static bool before(const struct fb_sim_heap_entry *a, const struct fb_sim_heap_entry *b)
{
    return a->priority < b->priority || (a->priority == b->priority && a->tie < b->tie);
}

static void put(struct fb_sim_heap *heap, size_t at, const struct fb_sim_heap_entry *e)
{
    heap->entry[at] = *e;
    heap->place[e->id] = (uint32_t)at + 1;
}

static void rise(struct fb_sim_heap *heap, size_t at, struct fb_sim_heap_entry e)
{
    while (at > 0) {
        size_t parent = (at - 1) / CHILDREN;

        if (!before(&e, &heap->entry[parent]))
            break;
        put(heap, at, &heap->entry[parent]);
        at = parent;
    }
    put(heap, at, &e);
}

static void sink(struct fb_sim_heap *heap, size_t at, struct fb_sim_heap_entry e)
{
    for (;;) {
        size_t child = at * CHILDREN + 1;
        size_t end = fb_min_u64(child + CHILDREN, heap->count);
        size_t least = child;

        if (child >= heap->count)
            break;
        for (size_t i = child + 1; i < end; i++) {
            if (before(&heap->entry[i], &heap->entry[least]))
                least = i;
        }
        if (!before(&heap->entry[least], &e))
            break;
        put(heap, at, &heap->entry[least]);
        at = least;
    }
    put(heap, at, &e);
}

/* Whichever way it has to go. */
static void settle(struct fb_sim_heap *heap, size_t at, struct fb_sim_heap_entry e)
{
    if (at > 0 && before(&e, &heap->entry[(at - 1) / CHILDREN]))
        rise(heap, at, e);
    else
        sink(heap, at, e);
}

int fb_sim_heap_set(struct fb_sim_heap *heap, uint32_t id, double priority, uint64_t tie)
{
    struct fb_sim_heap_entry e = {priority, tie, id};
    int rc = 0;

    if (heap->place[id]) {
        settle(heap, heap->place[id] - 1, e);
        return 0;
    }
    if (heap->count == heap->room)
        rc = fb_sim_grow(&heap->entry, &heap->room, heap->room * 2 + ROOM_START,
                         sizeof *heap->entry);
    if (rc)
        return rc;
    rise(heap, heap->count++, e);
    return 0;
}

void fb_sim_heap_remove(struct fb_sim_heap *heap, uint32_t id)
{
    size_t at = heap->place[id] - 1;

    heap->place[id] = 0;
    heap->count--;
    if (at < heap->count)
        settle(heap, at, heap->entry[heap->count]);
}
