/*
 * CLOCK (FIFO with second chances).
 *
 *   on a hit:  count up to 2^bits - 1
 *   on a miss: while there is no room:
 *                  while the oldest has a count: take one off, and make it the newest
 *                  evict the oldest
 *              insert as the newest, with a count of 0
 */
#include <errno.h>

#include "sim/node.h"
#include "sim/policies.h"

struct clock {
    struct fb_sim_base base; /* tag: 1 + count */
    struct fb_sim_list queue;
    uint32_t tag_max;
};

static const struct fb_sim_param params[] = {
    {"bits", 1, 1, 8, "of the counter"},
    {0},
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct clock *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    fb_sim_list_init(&c->queue);
    c->tag_max = 1U << (unsigned)setup->param[0];
    *ret_cache = c;
    return 0;
}

static void evict(struct clock *c)
{
    struct fb_sim_node *node = c->base.node;

    while (node[c->queue.tail].tag > 1) {
        node[c->queue.tail].tag--;
        fb_sim_move_to_head(node, &c->queue, c->queue.tail);
    }
    node[fb_sim_pop_tail(node, &c->queue)].tag = 0;
}

static void insert(struct clock *c, uint32_t id, uint32_t size)
{
    if (size > c->base.capacity)
        return;
    while (c->queue.size + size > c->base.capacity)
        evict(c);
    c->base.node[id].size = size;
    c->base.node[id].tag = 1;
    fb_sim_push_head(c->base.node, &c->queue, id);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct clock *c = cache;
    struct fb_sim_node *node = c->base.node;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];

        fb_sim_prefetch(node, batch, i);
        ret_hit[i] = node[id].tag != 0;
        if (!ret_hit[i])
            insert(c, id, batch->size[i]);
        else if (node[id].tag < c->tag_max)
            node[id].tag++;
    }
    return 0;
}

const struct fb_sim_policy fb_sim_clock = {
    .name = "clock",
    .summary = "FIFO with second chances",
    .params = params,
    .create = create,
    .reserve = fb_sim_base_reserve,
    .replay = replay,
    .destroy = fb_sim_base_destroy,
};
