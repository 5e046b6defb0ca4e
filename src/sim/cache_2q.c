/*
 * 2Q (Johnson, Shasha, VLDB 1994): what is asked for again after it has left a FIFO is kept by LRU.
 *
 *   on a hit:  in Main: move to its head; in In: nothing
 *   on a miss: was its id in Out? then take it out of there
 *              while there is no room: In over its share? evict In's oldest, and note its id in Out
 *                                      else evict Main's tail
 *              insert into Main, if the id was in Out, else into In
 *   Out remembers ids of so many bytes as half the cache.
 */
#include <errno.h>

#include "sim/node.h"
#include "sim/policies.h"

enum {
    NOWHERE = 0,
    OUT = 1, /* a ghost */
    IN = 2,
    MAIN = 3,
};

struct two_q {
    struct fb_sim_base base;
    struct fb_sim_list in;
    struct fb_sim_list out;
    struct fb_sim_list main;
    uint64_t in_limit;
    uint64_t out_limit;
    uint64_t main_limit;
};

static const struct fb_sim_param params[] = {
    {"in", 0.25, 0.01, 0.99, "share of the cache that is FIFO"},
    {"out", 0.5, 0, 10, "bytes that are remembered, as a share of the cache"},
    {0},
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct two_q *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    c->in_limit = (uint64_t)((double)setup->capacity * setup->param[0]);
    c->out_limit = (uint64_t)((double)setup->capacity * setup->param[1]);
    c->main_limit = setup->capacity - c->in_limit;
    fb_sim_list_init(&c->in);
    fb_sim_list_init(&c->out);
    fb_sim_list_init(&c->main);
    *ret_cache = c;
    return 0;
}

static void put(struct two_q *c, struct fb_sim_list *list, uint32_t tag, uint32_t id)
{
    c->base.node[id].tag = tag;
    fb_sim_push_head(c->base.node, list, id);
}

static void remember(struct two_q *c, uint32_t id)
{
    struct fb_sim_node *node = c->base.node;

    node[id].tag = NOWHERE;
    if (node[id].size > c->out_limit)
        return;
    while (c->out.size + node[id].size > c->out_limit)
        node[fb_sim_pop_tail(node, &c->out)].tag = NOWHERE;
    put(c, &c->out, OUT, id);
}

static void evict(struct two_q *c)
{
    if (c->in.size > c->in_limit || c->main.count == 0)
        remember(c, fb_sim_pop_tail(c->base.node, &c->in));
    else
        c->base.node[fb_sim_pop_tail(c->base.node, &c->main)].tag = NOWHERE;
}

static void insert(struct two_q *c, uint32_t id, uint32_t size)
{
    struct fb_sim_node *node = c->base.node;
    bool known = node[id].tag == OUT;

    if (size > c->in_limit)
        return;
    if (known)
        fb_sim_remove(node, &c->out, id);
    node[id].size = size;
    while (c->in.size + c->main.size + size > c->base.capacity)
        evict(c);
    while (known && c->main.size + size > c->main_limit)
        node[fb_sim_pop_tail(node, &c->main)].tag = NOWHERE;
    if (known)
        put(c, &c->main, MAIN, id);
    else
        put(c, &c->in, IN, id);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct two_q *c = cache;
    struct fb_sim_node *node = c->base.node;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];

        fb_sim_prefetch(node, batch, i);
        ret_hit[i] = node[id].tag >= IN;
        if (!ret_hit[i])
            insert(c, id, batch->size[i]);
        else if (node[id].tag == MAIN)
            fb_sim_move_to_head(node, &c->main, id);
    }
    return 0;
}

const struct fb_sim_policy fb_sim_2q = {
    .name = "2q",
    .alias = "twoq",
    .summary = "a FIFO first; LRU for what is asked for again after it has left that",
    .params = params,
    .create = create,
    .reserve = fb_sim_base_reserve,
    .replay = replay,
    .destroy = fb_sim_base_destroy,
};
