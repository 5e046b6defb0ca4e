/*
 * ARC (Megiddo, Modha, FAST 2003): two LRU lists, for what was asked for once and more than once,
 * with ghosts of both that say which deserves more of the cache.
 *
 *   T1, T2: cached; B1, B2: their ghosts; p: the size that T1 should have
 *
 *   on a hit:  move to the head of T2
 *   on a miss: in B1? p += max(1, |B2| / |B1|) times its size; take it out of B1
 *              in B2? p -= max(1, |B1| / |B2|) times its size; take it out of B2
 *              while there is no room:
 *                  neither in B1 nor in B2, and T1 with B1 are as large as the cache?
 *                      B1 empty? evict T1's tail for good, and go on
 *                      drop B1's tail
 *                  else all four are twice the cache? drop B2's tail
 *                  T1 larger than p (or as large, and it was in B2)? move T1's tail to B1
 *                  else move T2's tail to B2
 *              insert at the head of T2, if it was in B1 or B2, else of T1
 */
#include <errno.h>
#include <math.h>

#include "sim/node.h"
#include "sim/policies.h"

enum {
    NOWHERE = 0,
    B1 = 1,
    B2 = 2,
    T1 = 3,
    T2 = 4,
    LISTS = 5,
};

struct arc {
    struct fb_sim_base base;        /* tag: the list */
    struct fb_sim_list list[LISTS]; /* list[NOWHERE] is not used */
    double p;
    bool scale;
};

static const struct fb_sim_param params[] = {
    {"scale", 1, 0, 1, "1: a ghost moves p by its size; 0: by one, whatever the sizes are"},
    {0},
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct arc *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    for (unsigned i = 0; i < LISTS; i++)
        fb_sim_list_init(&c->list[i]);
    c->scale = setup->param[0] > 0;
    *ret_cache = c;
    return 0;
}

static void put(struct arc *c, unsigned list, uint32_t id)
{
    c->base.node[id].tag = list;
    fb_sim_push_head(c->base.node, &c->list[list], id);
}

static void drop_tail(struct arc *c, unsigned list)
{
    c->base.node[fb_sim_pop_tail(c->base.node, &c->list[list])].tag = NOWHERE;
}

static void move_tail(struct arc *c, unsigned from, unsigned to)
{
    put(c, to, fb_sim_pop_tail(c->base.node, &c->list[from]));
}

static void replace(struct arc *c, unsigned was)
{
    double t1 = (double)c->list[T1].size;
    bool from_t1 = t1 > c->p || (t1 == c->p && was == B2);

    if ((from_t1 && c->list[T1].count > 0) || c->list[T2].count == 0)
        move_tail(c, T1, B1);
    else
        move_tail(c, T2, B2);
}

static void evict(struct arc *c, unsigned was, uint32_t size)
{
    uint64_t l1 = c->list[T1].size + c->list[B1].size;
    uint64_t l2 = c->list[T2].size + c->list[B2].size;

    if (was == NOWHERE && l1 + size > c->base.capacity) {
        if (c->list[B1].count == 0) {
            drop_tail(c, T1);
            return;
        }
        drop_tail(c, B1);
    } else if (was == NOWHERE && l1 + l2 >= 2 * c->base.capacity && c->list[B2].count > 0) {
        drop_tail(c, B2);
    }
    replace(c, was);
}

/* A ghost was asked for: its list should have been larger. */
static void adapt(struct arc *c, unsigned was, uint32_t size)
{
    double b1 = (double)c->list[B1].size;
    double b2 = (double)c->list[B2].size;
    double unit = c->scale ? size : 1;

    if (was == B1)
        c->p = fmin(c->p + fmax(b2 / b1, 1) * unit, (double)c->base.capacity);
    else
        c->p = fmax(c->p - fmax(b1 / b2, 1) * unit, 0);
}

static void insert(struct arc *c, uint32_t id, uint32_t size)
{
    struct fb_sim_node *node = c->base.node;
    unsigned was = node[id].tag;

    if (size > c->base.capacity)
        return;
    if (was != NOWHERE) {
        adapt(c, was, size);
        fb_sim_remove(node, &c->list[was], id);
    }
    node[id].size = size;
    while (c->list[T1].size + c->list[T2].size + size > c->base.capacity)
        evict(c, was, size);
    put(c, was == NOWHERE ? T1 : T2, id);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct arc *c = cache;
    struct fb_sim_node *node = c->base.node;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];

        fb_sim_prefetch(node, batch, i);
        ret_hit[i] = node[id].tag >= T1;
        if (ret_hit[i]) {
            fb_sim_remove(node, &c->list[node[id].tag], id);
            put(c, T2, id);
        } else {
            insert(c, id, batch->size[i]);
        }
    }
    return 0;
}

const struct fb_sim_policy fb_sim_arc = {
    .name = "arc",
    .summary = "balances what was asked for once and more than once",
    .params = params,
    .create = create,
    .reserve = fb_sim_base_reserve,
    .replay = replay,
    .destroy = fb_sim_base_destroy,
};
