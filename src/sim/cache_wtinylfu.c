/*
 * W-TinyLFU (Einziger, Friedman, Manes, TOS 2017): a small LRU window; what leaves it enters the
 * main part, a segmented LRU, only if it is asked for more often than what it would push out.
 *
 *   on a hit:  in the window: to its head; in probation: to protected's head, whose tail goes back
 *                  to probation when it is over 80%; in protected: to its head
 *   on a miss: insert at the window's head
 *              while the window is over 1%: its tail is the candidate:
 *                  while main has no room: is the candidate more frequent than main's victim
 *                      (probation's tail)? evict the victim; else evict the candidate
 *                  insert at probation's head
 *   frequency: counts up to 15, halved each time there were ten times as many requests as there
 *                  are cached objects. A sketch approximates that in little memory; here the counts
 *                  are exact, 4 bytes an object.
 */
#include <errno.h>

#include "core/mem.h"
#include "sim/node.h"
#include "sim/policies.h"

enum {
    NOWHERE = 0,
    WINDOW = 1,
    PROBATION = 2,
    PROTECTED = 3,
    LISTS = 4,
};

#define COUNT_BITS 4
#define COUNT_MAX  15
#define AGE_FACTOR 10

struct wtinylfu {
    struct fb_sim_base base;
    struct fb_sim_list list[LISTS];
    uint64_t window_limit;
    uint64_t main_limit;
    uint64_t protected_limit;
    uint32_t *frequency; /* the epoch it was written in, and the count */
    size_t frequencies;
    uint32_t epoch;
    uint64_t requests; /* in this epoch */
};

static const struct fb_sim_param params[] = {
    {"window", 0.01, 0, 0.99, "share of the cache"},
    {"protected", 0.8, 0, 1, "share of the main part"},
    {0},
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct wtinylfu *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    c->window_limit = (uint64_t)((double)setup->capacity * setup->param[0]);
    c->main_limit = setup->capacity - c->window_limit;
    c->protected_limit = (uint64_t)((double)c->main_limit * setup->param[1]);
    for (unsigned i = 0; i < LISTS; i++)
        fb_sim_list_init(&c->list[i]);
    *ret_cache = c;
    return 0;
}

static int reserve(void *cache, size_t objects)
{
    struct wtinylfu *c = cache;
    int rc = fb_sim_base_reserve(cache, objects);

    return rc ? rc : fb_sim_grow(&c->frequency, &c->frequencies, objects, sizeof *c->frequency);
}

/* ---- frequencies ---- */

static uint32_t frequency_of(const struct wtinylfu *c, uint32_t id)
{
    uint32_t age = c->epoch - (c->frequency[id] >> COUNT_BITS);

    return age > COUNT_BITS ? 0 : (c->frequency[id] & COUNT_MAX) >> age;
}

static void count(struct wtinylfu *c, uint32_t id)
{
    uint32_t now = frequency_of(c, id);
    uint64_t cached = c->list[WINDOW].count + c->list[PROBATION].count + c->list[PROTECTED].count;

    c->frequency[id] = c->epoch << COUNT_BITS | (now < COUNT_MAX ? now + 1 : now);
    if (++c->requests >= AGE_FACTOR * (cached + 1)) {
        c->requests = 0;
        c->epoch++;
    }
}

/* ---- lists ---- */

static void put(struct wtinylfu *c, unsigned list, uint32_t id)
{
    c->base.node[id].tag = list;
    fb_sim_push_head(c->base.node, &c->list[list], id);
}

static void hit(struct wtinylfu *c, uint32_t id)
{
    struct fb_sim_node *node = c->base.node;

    if (node[id].tag != PROBATION) {
        fb_sim_move_to_head(node, &c->list[node[id].tag], id);
        return;
    }
    fb_sim_remove(node, &c->list[PROBATION], id);
    put(c, PROTECTED, id);
    while (c->list[PROTECTED].size > c->protected_limit)
        put(c, PROBATION, fb_sim_pop_tail(node, &c->list[PROTECTED]));
}

/* The candidate has left the window. */
static void admit(struct wtinylfu *c, uint32_t id)
{
    struct fb_sim_node *node = c->base.node;

    node[id].tag = NOWHERE;
    if (node[id].size > c->main_limit)
        return;
    while (c->list[PROBATION].size + c->list[PROTECTED].size + node[id].size > c->main_limit) {
        struct fb_sim_list *from = &c->list[c->list[PROBATION].count ? PROBATION : PROTECTED];

        if (frequency_of(c, id) <= frequency_of(c, from->tail))
            return;
        node[fb_sim_pop_tail(node, from)].tag = NOWHERE;
    }
    put(c, PROBATION, id);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct wtinylfu *c = cache;
    struct fb_sim_node *node = c->base.node;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];

        fb_sim_prefetch(node, batch, i);
        count(c, id);
        ret_hit[i] = node[id].tag != NOWHERE;
        if (ret_hit[i]) {
            hit(c, id);
        } else if (batch->size[i] <= c->base.capacity) {
            node[id].size = batch->size[i];
            put(c, WINDOW, id);
            while (c->list[WINDOW].size > c->window_limit)
                admit(c, fb_sim_pop_tail(node, &c->list[WINDOW]));
        }
    }
    return 0;
}

static void destroy(void *cache)
{
    struct wtinylfu *c = cache;

    if (c)
        free(c->frequency);
    fb_sim_base_destroy(c);
}

const struct fb_sim_policy fb_sim_wtinylfu = {
    .name = "wtinylfu",
    .alias = "w-tinylfu",
    .summary = "a small window, and a main part that admits only what is more frequent",
    .params = params,
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .destroy = destroy,
};
