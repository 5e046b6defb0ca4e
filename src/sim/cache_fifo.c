/*
 * FIFO: what came first leaves first.
 *
 *   on a hit:  nothing
 *   on a miss: while there is no room: evict the oldest
 *              insert as the newest
 */
#include <errno.h>

#include "sim/node.h"
#include "sim/policies.h"

struct fifo {
    struct fb_sim_base base;  /* tag 1: cached */
    struct fb_sim_list queue; /* newest at the head */
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct fifo *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    fb_sim_list_init(&c->queue);
    *ret_cache = c;
    return 0;
}

static void insert(struct fifo *c, uint32_t id, uint32_t size)
{
    struct fb_sim_node *node = c->base.node;

    if (size > c->base.capacity)
        return;
    while (c->queue.size + size > c->base.capacity)
        node[fb_sim_pop_tail(node, &c->queue)].tag = 0;
    node[id].size = size;
    node[id].tag = 1;
    fb_sim_push_head(node, &c->queue, id);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct fifo *c = cache;
    struct fb_sim_node *node = c->base.node;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];

        fb_sim_prefetch(node, batch, i);
        ret_hit[i] = node[id].tag != 0;
        if (!ret_hit[i])
            insert(c, id, batch->size[i]);
    }
    return 0;
}

const struct fb_sim_policy fb_sim_fifo = {
    .name = "fifo",
    .summary = "what came first leaves first",
    .create = create,
    .reserve = fb_sim_base_reserve,
    .replay = replay,
    .destroy = fb_sim_base_destroy,
};
