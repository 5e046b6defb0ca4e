/*
 * FIFO: what came first leaves first.
 *
 *   on a hit:  nothing
 *   on a miss: while there is no room: evict the oldest
 *              insert as the newest
 */
#include <errno.h>

#include "core/mem.h"
#include "sim/node.h"

struct fifo {
    struct fb_sim_node *node; /* tag 1: cached */
    size_t objects;
    struct fb_sim_list queue; /* newest at the head */
    uint64_t capacity;
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct fifo *c = fb_alloc(sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    c->capacity = setup->capacity;
    fb_sim_list_init(&c->queue);
    *ret_cache = c;
    return 0;
}

static int reserve(void *cache, size_t objects)
{
    struct fifo *c = cache;

    return fb_sim_grow(&c->node, &c->objects, objects, sizeof *c->node);
}

static void insert(struct fifo *c, uint32_t id, uint32_t size)
{
    if (size > c->capacity)
        return;
    while (c->queue.size + size > c->capacity)
        c->node[fb_sim_pop_tail(c->node, &c->queue)].tag = 0;
    c->node[id].size = size;
    c->node[id].tag = 1;
    fb_sim_push_head(c->node, &c->queue, id);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct fifo *c = cache;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];

        fb_sim_prefetch(c->node, batch, i);
        ret_hit[i] = c->node[id].tag != 0;
        if (!ret_hit[i])
            insert(c, id, batch->size[i]);
    }
    return 0;
}

static void destroy(void *cache)
{
    struct fifo *c = cache;

    if (c)
        free(c->node);
    free(c);
}

const struct fb_sim_policy fb_sim_fifo = {
    .name = "fifo",
    .summary = "what came first leaves first",
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .destroy = destroy,
};
