/*
 * LeCaR (Vietri et al., HotStorage 2018): LRU and LFU, chosen by lot with weights that are learned
 * from regret.
 *
 *   on a hit:  move to LRU's head; count + 1
 *   on a miss: is its id in a history, t requests after it was evicted? then the one who evicted it
 *                  is to blame: weight *= exp(-rate * d^t), weights sum to 1; its count goes on
 *              while there is no room: draw LRU or LFU by weight; evict its victim, and note its id
 *                  in the history of the one drawn (of neither, if both would have taken it)
 *              insert
 *   Each history remembers ids of half the cache's size. d = 0.005^(1/N), N cached objects.
 */
#include <errno.h>
#include <math.h>

#include "base/rand.h"
#include "core/mem.h"
#include "sim/heap.h"
#include "sim/node.h"
#include "sim/policies.h"

enum {
    NOWHERE = 0,
    CACHED = 1,
    BY_LRU = 2, /* in that one's history */
    BY_LFU = 3,
    LISTS = 4,
};

#define DISCOUNT 0.005

struct past {
    uint64_t evicted; /* when */
    uint32_t count;
};

struct lecar {
    struct fb_sim_base base;
    struct fb_sim_list list[LISTS];
    struct fb_sim_heap lfu;
    struct past *past;
    size_t pasts;
    double weight; /* of LRU; LFU has the rest */
    double rate;
    struct fb_rand lot;
};

static const struct fb_sim_param params[] = {
    {"rate", 0.45, 0, 10, "of learning"},
    {0},
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct lecar *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    c->weight = 0.5;
    c->rate = setup->param[0];
    c->lot.state = setup->seed;
    for (unsigned i = 0; i < LISTS; i++)
        fb_sim_list_init(&c->list[i]);
    *ret_cache = c;
    return 0;
}

static int reserve(void *cache, size_t objects)
{
    struct lecar *c = cache;
    int rc = fb_sim_base_reserve(cache, objects);

    if (rc == 0)
        rc = fb_sim_heap_reserve(&c->lfu, objects);
    return rc ? rc : fb_sim_grow(&c->past, &c->pasts, objects, sizeof *c->past);
}

static void put(struct lecar *c, unsigned list, uint32_t id)
{
    c->base.node[id].tag = list;
    fb_sim_push_head(c->base.node, &c->list[list], id);
}

/* The one whose history has the id is to blame. */
static void learn(struct lecar *c, uint32_t id, uint64_t now)
{
    double n = (double)fb_max_u64(c->list[CACHED].count, 1);
    double regret = pow(DISCOUNT, (double)(now - c->past[id].evicted) / n);
    double lru = c->weight;
    double lfu = 1 - c->weight;

    if (c->base.node[id].tag == BY_LRU)
        lru *= exp(-c->rate * regret);
    else
        lfu *= exp(-c->rate * regret);
    c->weight = lru / (lru + lfu);
}

static void remember(struct lecar *c, unsigned history, uint32_t id, uint64_t now)
{
    struct fb_sim_node *node = c->base.node;
    uint64_t limit = c->base.capacity / 2;

    c->past[id].evicted = now;
    node[id].tag = NOWHERE;
    if (node[id].size > limit)
        return;
    while (c->list[history].size + node[id].size > limit)
        node[fb_sim_pop_tail(node, &c->list[history])].tag = NOWHERE;
    put(c, history, id);
}

static void evict(struct lecar *c, uint64_t now)
{
    uint32_t lru = c->list[CACHED].tail;
    uint32_t lfu = fb_sim_heap_first(&c->lfu)->id;
    bool by_lru = fb_rand_unit(&c->lot) < c->weight;
    uint32_t id = by_lru ? lru : lfu;

    fb_sim_remove(c->base.node, &c->list[CACHED], id);
    fb_sim_heap_remove(&c->lfu, id);
    if (lru == lfu)
        c->base.node[id].tag = NOWHERE;
    else
        remember(c, by_lru ? BY_LRU : BY_LFU, id, now);
}

static void insert(struct lecar *c, uint32_t id, uint32_t size, uint64_t now)
{
    unsigned history = c->base.node[id].tag;

    if (history == NOWHERE) {
        c->past[id].count = 0;
    } else {
        learn(c, id, now);
        fb_sim_remove(c->base.node, &c->list[history], id);
    }
    c->base.node[id].size = size;
    while (c->list[CACHED].size + size > c->base.capacity)
        evict(c, now);
    put(c, CACHED, id);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct lecar *c = cache;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];
        uint64_t now = batch->first + i;
        int rc;

        ret_hit[i] = c->base.node[id].tag == CACHED;
        if (ret_hit[i])
            fb_sim_move_to_head(c->base.node, &c->list[CACHED], id);
        else if (batch->size[i] <= c->base.capacity)
            insert(c, id, batch->size[i], now);
        else
            continue;
        rc = fb_sim_heap_set(&c->lfu, id, ++c->past[id].count, now);
        if (rc)
            return rc;
    }
    return 0;
}

static void figures(void *cache, fb_sim_figure_fn *tell, void *arg)
{
    struct lecar *c = cache;

    tell(arg, "weight_lru", c->weight);
}

static void destroy(void *cache)
{
    struct lecar *c = cache;

    if (c) {
        fb_sim_heap_free(&c->lfu);
        free(c->past);
    }
    fb_sim_base_destroy(c);
}

const struct fb_sim_policy fb_sim_lecar = {
    .name = "lecar",
    .summary = "LRU and LFU by lot, with weights learned from regret",
    .params = params,
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .figures = figures,
    .destroy = destroy,
};
