/*
 * LRU: what was not asked for the longest leaves first.
 *
 *   on a hit:  move to the head
 *   on a miss: while there is no room: evict the tail
 *              insert at the head
 */
#include <errno.h>

#include "core/mem.h"
#include "sim/node.h"

struct lru {
    struct fb_sim_node *node; /* tag 1: cached */
    size_t objects;
    struct fb_sim_list list; /* the last one asked for at the head */
    uint64_t capacity;
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct lru *c = fb_alloc(sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    c->capacity = setup->capacity;
    fb_sim_list_init(&c->list);
    *ret_cache = c;
    return 0;
}

static int reserve(void *cache, size_t objects)
{
    struct lru *c = cache;

    return fb_sim_grow(&c->node, &c->objects, objects, sizeof *c->node);
}

static void insert(struct lru *c, uint32_t id, uint32_t size)
{
    if (size > c->capacity)
        return;
    while (c->list.size + size > c->capacity)
        c->node[fb_sim_pop_tail(c->node, &c->list)].tag = 0;
    c->node[id].size = size;
    c->node[id].tag = 1;
    fb_sim_push_head(c->node, &c->list, id);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct lru *c = cache;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];

        fb_sim_prefetch(c->node, batch, i);
        ret_hit[i] = c->node[id].tag != 0;
        if (ret_hit[i])
            fb_sim_move_to_head(c->node, &c->list, id);
        else
            insert(c, id, batch->size[i]);
    }
    return 0;
}

static void destroy(void *cache)
{
    struct lru *c = cache;

    if (c)
        free(c->node);
    free(c);
}

const struct fb_sim_policy fb_sim_lru = {
    .name = "lru",
    .summary = "what was not asked for the longest leaves first",
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .destroy = destroy,
};
