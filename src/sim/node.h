/*
 * sim/node.h - 16 bytes for each object, and lists through them: enough for most policies.
 *
 * Lists are doubly linked by object number, so they cost no pointers and one object is in at most
 * one list of its cache. `tag` is the policy's own; zero must mean "not cached", for new nodes are
 * zero. A list counts its objects and their sizes.
 */
#ifndef FB_SIM_NODE_H
#define FB_SIM_NODE_H

#include "sim/cache.h"

#define FB_SIM_NONE     UINT32_MAX
#define FB_SIM_PREFETCH 16 /* requests ahead */

struct fb_sim_node {
    uint32_t prev; /* towards the head */
    uint32_t next; /* towards the tail */
    uint32_t size;
    uint32_t tag;
};

struct fb_sim_list {
    uint32_t head;
    uint32_t tail;
    uint64_t count;
    uint64_t size;
};

static inline void fb_sim_list_init(struct fb_sim_list *list)
{
    *list = (struct fb_sim_list){FB_SIM_NONE, FB_SIM_NONE, 0, 0};
}

static inline void fb_sim_push_head(struct fb_sim_node *node, struct fb_sim_list *list, uint32_t id)
{
    uint32_t old = list->head;

    node[id].prev = FB_SIM_NONE;
    node[id].next = old;
    if (old == FB_SIM_NONE)
        list->tail = id;
    else
        node[old].prev = id;
    list->head = id;
    list->count++;
    list->size += node[id].size;
}

static inline void fb_sim_push_tail(struct fb_sim_node *node, struct fb_sim_list *list, uint32_t id)
{
    uint32_t old = list->tail;

    node[id].next = FB_SIM_NONE;
    node[id].prev = old;
    if (old == FB_SIM_NONE)
        list->head = id;
    else
        node[old].next = id;
    list->tail = id;
    list->count++;
    list->size += node[id].size;
}

static inline void fb_sim_remove(struct fb_sim_node *node, struct fb_sim_list *list, uint32_t id)
{
    uint32_t prev = node[id].prev;
    uint32_t next = node[id].next;

    if (prev == FB_SIM_NONE)
        list->head = next;
    else
        node[prev].next = next;
    if (next == FB_SIM_NONE)
        list->tail = prev;
    else
        node[next].prev = prev;
    list->count--;
    list->size -= node[id].size;
}

/* The list must not be empty. */
static inline uint32_t fb_sim_pop_tail(struct fb_sim_node *node, struct fb_sim_list *list)
{
    uint32_t id = list->tail;

    fb_sim_remove(node, list, id);
    return id;
}

static inline void fb_sim_move_to_head(struct fb_sim_node *node, struct fb_sim_list *list,
                                       uint32_t id)
{
    uint32_t prev = node[id].prev;
    uint32_t next = node[id].next;
    uint32_t head = list->head;

    if (head == id)
        return;
    node[prev].next = next;
    if (next == FB_SIM_NONE)
        list->tail = prev;
    else
        node[next].prev = prev;
    node[id].prev = FB_SIM_NONE;
    node[id].next = head;
    node[head].prev = id;
    list->head = id;
}

/* What caches made of nodes have in common; the first member of their struct. */
struct fb_sim_base {
    struct fb_sim_node *node;
    size_t objects;
    uint64_t capacity;
};

/* A zeroed cache of `size` bytes that begins with a base; NULL without memory. */
FB_MUST_CHECK void *fb_sim_base_new(const struct fb_sim_setup *setup, size_t size);

/* reserve() and destroy() for caches that keep nothing else per object. */
FB_MUST_CHECK int fb_sim_base_reserve(void *cache, size_t objects);
void fb_sim_base_destroy(void *cache);

/* Asks for the node of a request to come, so that it is there when its turn comes. */
static inline void fb_sim_prefetch(const struct fb_sim_node *node, const struct fb_sim_batch *batch,
                                   size_t i)
{
    if (i + FB_SIM_PREFETCH < batch->count)
        __builtin_prefetch(&node[batch->id[i + FB_SIM_PREFETCH]], 1);
}

#endif
