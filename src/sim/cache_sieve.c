/*
 * SIEVE (Zhang et al., NSDI 2024): FIFO with a hand that moves from old to new and sifts.
 *
 *   on a hit:  mark
 *   on a miss: while there is no room:
 *                  while the hand stands at a marked one: unmark it, and go on towards the newest;
 *                      from there begin again at the oldest
 *                  evict the one at the hand; the hand goes on
 *              insert as the newest, unmarked
 */
#include <errno.h>

#include "sim/node.h"
#include "sim/policies.h"

enum {
    CACHED = 1,
    MARKED = 2,
};

struct sieve {
    struct fb_sim_base base;
    struct fb_sim_list queue;
    uint32_t hand; /* NONE: at the oldest */
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct sieve *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    fb_sim_list_init(&c->queue);
    c->hand = FB_SIM_NONE;
    *ret_cache = c;
    return 0;
}

static void evict(struct sieve *c)
{
    struct fb_sim_node *node = c->base.node;
    uint32_t id = c->hand == FB_SIM_NONE ? c->queue.tail : c->hand;

    while (node[id].tag == MARKED) {
        node[id].tag = CACHED;
        id = node[id].prev == FB_SIM_NONE ? c->queue.tail : node[id].prev;
    }
    c->hand = node[id].prev;
    fb_sim_remove(node, &c->queue, id);
    node[id].tag = 0;
}

static void insert(struct sieve *c, uint32_t id, uint32_t size)
{
    if (size > c->base.capacity)
        return;
    while (c->queue.size + size > c->base.capacity)
        evict(c);
    c->base.node[id].size = size;
    c->base.node[id].tag = CACHED;
    fb_sim_push_head(c->base.node, &c->queue, id);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct sieve *c = cache;
    struct fb_sim_node *node = c->base.node;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];

        fb_sim_prefetch(node, batch, i);
        ret_hit[i] = node[id].tag != 0;
        if (ret_hit[i])
            node[id].tag = MARKED;
        else
            insert(c, id, batch->size[i]);
    }
    return 0;
}

const struct fb_sim_policy fb_sim_sieve = {
    .name = "sieve",
    .summary = "FIFO whose hand sifts what was asked for again from what was not",
    .create = create,
    .reserve = fb_sim_base_reserve,
    .replay = replay,
    .destroy = fb_sim_base_destroy,
};
