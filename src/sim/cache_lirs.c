/*
 * LIRS (Jiang, Zhang, SIGMETRICS 2002): keep what comes back soon, by the distance between its last
 * two requests rather than by the last one.
 *
 *   S: a stack of what was asked for recently: LIR objects (kept), HIR objects, and HIR objects
 *      that have left the cache (gone); its bottom is always a LIR object ("pruned")
 *   Q: the cached HIR objects, 1% of the cache; they leave first
 *
 *   on a hit:  LIR: to the top of S; prune
 *              HIR in S: to its top, becomes LIR and leaves Q; room for LIR is made below
 *              HIR not in S: to the top of S, and to the end of Q
 *   on a miss: gone, in S: room for LIR is made; becomes LIR, at the top of S
 *              room among LIR objects: becomes LIR, at the top of S
 *              else while Q has no room: evict its first (gone, if it is in S)
 *                   becomes HIR, at the top of S and the end of Q
 *   room for LIR: while they are over 99% of the cache: the bottom of S becomes HIR, at the end of
 *              Q, which makes room as above; prune
 *   S is kept below twice the cache: the longest gone are forgotten.
 */
#include <errno.h>

#include "core/mem.h"
#include "sim/node.h"
#include "sim/policies.h"

/* The tag of a node in S's array: */
enum {
    NOWHERE = 0,
    LIR = 1,
    HIR = 2,  /* in S and Q */
    GONE = 3, /* in S, not cached */
    ONLY = 4, /* HIR in Q alone */
};

struct lirs {
    struct fb_sim_base base; /* S; newest at the head */
    struct fb_sim_list s;
    struct fb_sim_node *side; /* Q, or the list of those gone: links only */
    size_t side_objects;
    struct fb_sim_list q;
    struct fb_sim_list gone;
    uint64_t lir_size;
    uint64_t lir_limit;
    uint64_t hir_limit;
};

static const struct fb_sim_param params[] = {
    {"hir", 0.01, 0.001, 0.9, "share of the cache for HIR objects"},
    {0},
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct lirs *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    c->hir_limit = fb_max_u64((uint64_t)((double)setup->capacity * setup->param[0]), 1);
    c->lir_limit = setup->capacity - c->hir_limit;
    fb_sim_list_init(&c->s);
    fb_sim_list_init(&c->q);
    fb_sim_list_init(&c->gone);
    *ret_cache = c;
    return 0;
}

static int reserve(void *cache, size_t objects)
{
    struct lirs *c = cache;
    int rc = fb_sim_base_reserve(cache, objects);

    return rc ? rc : fb_sim_grow(&c->side, &c->side_objects, objects, sizeof *c->side);
}

/* The bottom of S is LIR; what lies below the last one says nothing more. */
static void prune(struct lirs *c)
{
    struct fb_sim_node *node = c->base.node;

    while (c->s.count > 0 && node[c->s.tail].tag != LIR) {
        uint32_t id = fb_sim_pop_tail(node, &c->s);

        if (node[id].tag == GONE) {
            fb_sim_remove(c->side, &c->gone, id);
            node[id].tag = NOWHERE;
        } else {
            node[id].tag = ONLY;
        }
    }
}

static void evict_hir(struct lirs *c)
{
    struct fb_sim_node *node = c->base.node;
    uint32_t id = fb_sim_pop_tail(c->side, &c->q);

    if (node[id].tag == HIR) {
        node[id].tag = GONE;
        fb_sim_push_head(c->side, &c->gone, id);
    } else {
        node[id].tag = NOWHERE;
    }
}

static void enter_q(struct lirs *c, uint32_t id)
{
    while (c->q.size + c->side[id].size > c->hir_limit)
        evict_hir(c);
    fb_sim_push_head(c->side, &c->q, id);
}

/* The bottom of S moves to the end of Q, or leaves if it is larger than that. */
static void demote_lir(struct lirs *c)
{
    struct fb_sim_node *node = c->base.node;
    uint32_t id = fb_sim_pop_tail(node, &c->s);

    c->lir_size -= node[id].size;
    if (node[id].size <= c->hir_limit) {
        node[id].tag = ONLY;
        enter_q(c, id);
    } else {
        node[id].tag = NOWHERE;
    }
    prune(c);
}

/* It is at the top of S already. */
static void become_lir(struct lirs *c, uint32_t id)
{
    c->base.node[id].tag = LIR;
    c->lir_size += c->base.node[id].size;
    while (c->lir_size > c->lir_limit && c->s.tail != id)
        demote_lir(c);
}

static void hit(struct lirs *c, uint32_t id)
{
    struct fb_sim_node *node = c->base.node;

    switch (node[id].tag) {
    case LIR:
        fb_sim_move_to_head(node, &c->s, id);
        prune(c);
        break;
    case HIR:
        fb_sim_move_to_head(node, &c->s, id);
        fb_sim_remove(c->side, &c->q, id);
        become_lir(c, id);
        prune(c);
        break;
    default:
        fb_sim_push_head(node, &c->s, id);
        node[id].tag = HIR;
        fb_sim_move_to_head(c->side, &c->q, id);
    }
}

static void insert(struct lirs *c, uint32_t id, uint32_t size)
{
    struct fb_sim_node *node = c->base.node;

    if (node[id].tag == GONE) {
        fb_sim_move_to_head(node, &c->s, id);
        fb_sim_remove(c->side, &c->gone, id);
        become_lir(c, id);
        prune(c);
        return;
    }
    if (size > c->hir_limit || size > c->lir_limit)
        return;
    node[id].size = size;
    c->side[id].size = size;
    fb_sim_push_head(node, &c->s, id);
    if (c->lir_size + size <= c->lir_limit) {
        node[id].tag = LIR;
        c->lir_size += size;
        return;
    }
    node[id].tag = HIR;
    enter_q(c, id);
}

static void limit_stack(struct lirs *c)
{
    struct fb_sim_node *node = c->base.node;

    while (c->s.size > 2 * c->base.capacity && c->gone.count > 0) {
        uint32_t id = fb_sim_pop_tail(c->side, &c->gone);

        fb_sim_remove(node, &c->s, id);
        node[id].tag = NOWHERE;
    }
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct lirs *c = cache;
    struct fb_sim_node *node = c->base.node;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];

        fb_sim_prefetch(node, batch, i);
        ret_hit[i] = node[id].tag != NOWHERE && node[id].tag != GONE;
        if (ret_hit[i])
            hit(c, id);
        else
            insert(c, id, batch->size[i]);
        limit_stack(c);
    }
    return 0;
}

static void destroy(void *cache)
{
    struct lirs *c = cache;

    if (c)
        free(c->side);
    fb_sim_base_destroy(c);
}

const struct fb_sim_policy fb_sim_lirs = {
    .name = "lirs",
    .summary = "keeps what comes back soon, by the distance of its last two requests",
    .params = params,
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .destroy = destroy,
};
