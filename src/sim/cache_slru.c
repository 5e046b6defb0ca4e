/*
 * Segmented LRU: several LRU lists of equal size; each hit climbs one list.
 *
 *   on a hit:  move to the head of the next higher list (in the highest: to its head);
 *              while a list is over its size: move its tail to the head of the one below,
 *                  out of the lowest: evict
 *   on a miss: while there is no room: evict the tail of the lowest list that has one
 *              insert at the head of the lowest list that has room, else of the lowest
 */
#include <errno.h>

#include "sim/node.h"
#include "sim/policies.h"

#define LISTS_MAX 16

struct slru {
    struct fb_sim_base base; /* tag: 1 + number of its list */
    unsigned lists;
    uint64_t limit; /* of each list */
    uint64_t size;  /* of all */
    struct fb_sim_list list[LISTS_MAX];
};

static const struct fb_sim_param params[] = {
    {"lists", 4, 1, LISTS_MAX, "of equal size"},
    {0},
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct slru *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    c->lists = (unsigned)setup->param[0];
    c->limit = setup->capacity / c->lists;
    for (unsigned i = 0; i < c->lists; i++)
        fb_sim_list_init(&c->list[i]);
    *ret_cache = c;
    return 0;
}

static void evict(struct slru *c)
{
    unsigned i = 0;
    uint32_t id;

    while (c->list[i].count == 0)
        i++;
    id = fb_sim_pop_tail(c->base.node, &c->list[i]);
    c->base.node[id].tag = 0;
    c->size -= c->base.node[id].size;
}

static void put(struct slru *c, uint32_t id, unsigned list)
{
    c->base.node[id].tag = list + 1;
    fb_sim_push_head(c->base.node, &c->list[list], id);
}

/* From list `i` down to the lowest: what is over moves down. */
static void settle(struct slru *c, unsigned i)
{
    for (; i > 0; i--) {
        while (c->list[i].size > c->limit)
            put(c, fb_sim_pop_tail(c->base.node, &c->list[i]), i - 1);
    }
    while (c->list[0].size > c->limit)
        evict(c);
}

static void promote(struct slru *c, uint32_t id)
{
    unsigned list = c->base.node[id].tag - 1;

    if (list == c->lists - 1) {
        fb_sim_move_to_head(c->base.node, &c->list[list], id);
        return;
    }
    fb_sim_remove(c->base.node, &c->list[list], id);
    put(c, id, list + 1);
    settle(c, list + 1);
}

static void insert(struct slru *c, uint32_t id, uint32_t size)
{
    unsigned to = 0;

    if (size > c->limit)
        return;
    while (c->size + size > c->base.capacity)
        evict(c);
    while (to < c->lists && c->list[to].size + size > c->limit)
        to++;
    c->base.node[id].size = size;
    c->size += size;
    put(c, id, to < c->lists ? to : 0);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct slru *c = cache;
    struct fb_sim_node *node = c->base.node;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];

        fb_sim_prefetch(node, batch, i);
        ret_hit[i] = node[id].tag != 0;
        if (ret_hit[i])
            promote(c, id);
        else
            insert(c, id, batch->size[i]);
    }
    return 0;
}

const struct fb_sim_policy fb_sim_slru = {
    .name = "slru",
    .summary = "segmented LRU: each hit climbs to the next list",
    .params = params,
    .create = create,
    .reserve = fb_sim_base_reserve,
    .replay = replay,
    .destroy = fb_sim_base_destroy,
};
