/*
 * S3-FIFO (Yang et al., SOSP 2023): a small FIFO sifts, a main FIFO keeps, a ghost FIFO remembers.
 *
 *   on a hit:  count
 *   on a miss: is its id in Ghost? then take it out of there
 *              while there is no room:
 *                  Main over its share, or Small empty? from Main:
 *                      while the oldest has a count: min(count, 3) - 1, and make it the newest
 *                      evict the oldest
 *                  else from Small:
 *                      while the oldest has a count of 2: move it to Main, count 0
 *                      evict the oldest, and note its id in Ghost
 *              insert into Main, if the id was in Ghost, else into Small, with a count of 0
 */
#include <errno.h>

#include "sim/node.h"
#include "sim/policies.h"

/* A tag is the queue, and the count above it; a count never needs to go beyond 3. */
enum {
    NOWHERE = 0,
    GHOST = 1,
    SMALL = 2,
    MAIN = 3,
    COUNT_ONE = 4,
    COUNT_MAX = 3 * COUNT_ONE,
};

struct s3fifo {
    struct fb_sim_base base;
    struct fb_sim_list small;
    struct fb_sim_list main;
    struct fb_sim_list ghost;
    uint64_t small_limit;
    uint64_t main_limit;
    uint64_t ghost_limit;
    uint32_t move_tag; /* of those in Small that go to Main: at least this */
};

static const struct fb_sim_param params[] = {
    {"small", 0.1, 0.001, 0.999, "share of the cache that sifts"},
    {"ghost", 0.9, 0, 10, "bytes that are remembered, as a share of the cache"},
    {"hits", 2, 1, 3, "in Small that lead to Main"},
    {0},
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct s3fifo *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    c->small_limit = (uint64_t)((double)setup->capacity * setup->param[0]);
    c->main_limit = setup->capacity - c->small_limit;
    c->ghost_limit = (uint64_t)((double)setup->capacity * setup->param[1]);
    c->move_tag = SMALL + (uint32_t)setup->param[2] * COUNT_ONE;
    fb_sim_list_init(&c->small);
    fb_sim_list_init(&c->main);
    fb_sim_list_init(&c->ghost);
    *ret_cache = c;
    return 0;
}

static void put(struct s3fifo *c, struct fb_sim_list *list, uint32_t tag, uint32_t id)
{
    c->base.node[id].tag = tag;
    fb_sim_push_head(c->base.node, list, id);
}

static void remember(struct s3fifo *c, uint32_t id)
{
    struct fb_sim_node *node = c->base.node;

    node[id].tag = NOWHERE;
    if (node[id].size > c->ghost_limit)
        return;
    while (c->ghost.size + node[id].size > c->ghost_limit)
        node[fb_sim_pop_tail(node, &c->ghost)].tag = NOWHERE;
    put(c, &c->ghost, GHOST, id);
}

static void evict_small(struct s3fifo *c)
{
    struct fb_sim_node *node = c->base.node;

    while (c->small.count > 0) {
        uint32_t id = fb_sim_pop_tail(node, &c->small);

        if (node[id].tag < c->move_tag) {
            remember(c, id);
            return;
        }
        put(c, &c->main, MAIN, id);
    }
}

static void evict_main(struct s3fifo *c)
{
    struct fb_sim_node *node = c->base.node;

    while (node[c->main.tail].tag >= MAIN + COUNT_ONE) {
        node[c->main.tail].tag -= COUNT_ONE;
        fb_sim_move_to_head(node, &c->main, c->main.tail);
    }
    node[fb_sim_pop_tail(node, &c->main)].tag = NOWHERE;
}

static void insert(struct s3fifo *c, uint32_t id, uint32_t size)
{
    struct fb_sim_node *node = c->base.node;
    bool known = node[id].tag == GHOST;

    if (size > c->small_limit)
        return;
    if (known)
        fb_sim_remove(node, &c->ghost, id);
    node[id].size = size;
    while (c->small.size + c->main.size + size > c->base.capacity) {
        if (c->main.size > c->main_limit || c->small.count == 0)
            evict_main(c);
        else
            evict_small(c);
    }
    if (known)
        put(c, &c->main, MAIN, id);
    else
        put(c, &c->small, SMALL, id);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct s3fifo *c = cache;
    struct fb_sim_node *node = c->base.node;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];
        uint32_t tag = node[id].tag;

        fb_sim_prefetch(node, batch, i);
        ret_hit[i] = tag >= SMALL;
        if (!ret_hit[i])
            insert(c, id, batch->size[i]);
        else if (tag < COUNT_MAX)
            node[id].tag = tag + COUNT_ONE;
    }
    return 0;
}

const struct fb_sim_policy fb_sim_s3fifo = {
    .name = "s3fifo",
    .alias = "s3-fifo",
    .summary = "a small FIFO sifts, a main FIFO keeps, a ghost FIFO remembers",
    .params = params,
    .create = create,
    .reserve = fb_sim_base_reserve,
    .replay = replay,
    .destroy = fb_sim_base_destroy,
};
