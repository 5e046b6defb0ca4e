/*
 * LRU: what was not asked for the longest leaves first.
 *
 *   on a hit:  move to the head
 *   on a miss: while there is no room: evict the tail
 *              insert at the head
 */
#include <errno.h>

#include "sim/node.h"
#include "sim/policies.h"

struct lru {
    struct fb_sim_base base; /* tag 1: cached */
    struct fb_sim_list list; /* the last one asked for at the head */
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct lru *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    fb_sim_list_init(&c->list);
    *ret_cache = c;
    return 0;
}

static inline void insert(struct fb_sim_node *node, struct fb_sim_list *list, uint64_t capacity,
                          uint32_t id, uint32_t size)
{
    if (size > capacity)
        return;
    while (list->size + size > capacity)
        node[fb_sim_pop_tail(node, list)].tag = 0;
    node[id].size = size;
    node[id].tag = 1;
    fb_sim_push_head(node, list, id);
}

/* The list is a local variable, so that its ends are in registers: each hit depends on the last. */
static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct lru *c = cache;
    struct fb_sim_node *node = c->base.node;
    struct fb_sim_list list = c->list;
    uint64_t capacity = c->base.capacity;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];

        fb_sim_prefetch(node, batch, i);
        ret_hit[i] = node[id].tag != 0;
        if (ret_hit[i])
            fb_sim_move_to_head(node, &list, id);
        else
            insert(node, &list, capacity, id, batch->size[i]);
    }
    c->list = list;
    return 0;
}

const struct fb_sim_policy fb_sim_lru = {
    .name = "lru",
    .summary = "what was not asked for the longest leaves first",
    .create = create,
    .reserve = fb_sim_base_reserve,
    .replay = replay,
    .destroy = fb_sim_base_destroy,
};
