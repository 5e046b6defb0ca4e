/*
 * Cacheus (Rodriguez et al., FAST 2021): LeCaR with better experts and no parameter.
 *
 *   SR-LRU, against scans: S keeps what was asked for again, Q what is new and what S demoted;
 *                  its victim is Q's tail
 *   CR-LFU, against churn: the least count; of equals, the most recent
 *
 *   on a hit:  count + 1; in S: to its head. In Q: was it demoted? S should be larger; to S's head,
 *                  and S's tail, if S is full, goes to Q, demoted
 *   on a miss: is its id in a history? the expert who evicted it is to blame, as in LeCaR but
 *                  without discount; was it new when SR-LRU evicted it? Q should be larger
 *              while there is no room: draw an expert by weight; evict; note in its history
 *              in a history: insert into S, demoting what is over; else into Q, as new (into S
 *                  while the cache fills)
 *   S grows by max(1, new / demoted) objects, Q by max(1, demoted / new): counts of objects that
 *                  are in SR-LRU's history as new, and in Q as demoted
 *   rate of learning: every N requests (N cached objects), in the direction in which the hit ratio
 *                  rose; begun anew by lot after ten changes without gain
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
    IN_S = 1,
    IN_Q = 2,
    BY_LRU = 3, /* in that one's history */
    BY_LFU = 4,
    LISTS = 5,
};

#define Q_PART       0.01
#define WEIGHT_MIN   0.01
#define RATE_MIN     0.001
#define STALLS_MAX   10
#define HISTORY_PART 2 /* of the cache: one in so many bytes is remembered, by each expert */

struct past {
    uint32_t count;
    bool is_new;
    bool demoted;
};

struct rate {
    double now;
    double before;
    double hit_ratio; /* of the last period */
    unsigned stalls;
    uint64_t hits; /* in this period */
    uint64_t requests;
};

struct cacheus {
    struct fb_sim_base base;
    struct fb_sim_list list[LISTS];
    struct fb_sim_heap lfu;
    struct past *past;
    size_t pasts;
    uint64_t s_limit;
    uint64_t demoted;     /* objects in Q that are */
    uint64_t new_evicted; /* objects in SR-LRU's history that were new */
    double weight;        /* of SR-LRU */
    struct rate rate;
    struct fb_rand lot;
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct cacheus *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    c->s_limit = setup->capacity - fb_max_u64((uint64_t)((double)setup->capacity * Q_PART), 1);
    c->weight = 0.5;
    c->lot.state = setup->seed;
    for (unsigned i = 0; i < LISTS; i++)
        fb_sim_list_init(&c->list[i]);
    *ret_cache = c;
    return 0;
}

static int reserve(void *cache, size_t objects)
{
    struct cacheus *c = cache;
    int rc = fb_sim_base_reserve(cache, objects);

    if (rc == 0)
        rc = fb_sim_heap_reserve(&c->lfu, objects);
    return rc ? rc : fb_sim_grow(&c->past, &c->pasts, objects, sizeof *c->past);
}

static uint64_t cached_objects(const struct cacheus *c)
{
    return c->list[IN_S].count + c->list[IN_Q].count;
}

static uint64_t cached_size(const struct cacheus *c)
{
    return c->list[IN_S].size + c->list[IN_Q].size;
}

static void put(struct cacheus *c, unsigned list, uint32_t id)
{
    c->base.node[id].tag = list;
    fb_sim_push_head(c->base.node, &c->list[list], id);
}

/* ---- the rate of learning ---- */

static double start_rate(const struct cacheus *c)
{
    return sqrt(2 * M_LN2 / (double)fb_max_u64(cached_objects(c), 1));
}

static void change_rate(struct cacheus *c, double gain)
{
    struct rate *r = &c->rate;
    double step = r->now - r->before;
    double direction = step * gain;

    r->before = r->now;
    if (direction != 0) {
        double by = fabs(r->now * step);

        r->now = direction > 0 ? fmin(r->now + by, 1) : fmax(r->now - by, RATE_MIN);
        r->stalls = 0;
    } else if ((r->hit_ratio == 0 || gain <= 0) && ++r->stalls >= STALLS_MAX) {
        r->now = fmax(fb_rand_unit(&c->lot), RATE_MIN);
        r->stalls = 0;
    }
}

static void end_period(struct cacheus *c)
{
    struct rate *r = &c->rate;
    double hit_ratio = (double)r->hits / (double)r->requests;
    double gain = hit_ratio - r->hit_ratio;

    if (r->now == 0) {
        r->now = start_rate(c);
        r->before = 0;
    } else {
        change_rate(c, gain);
    }
    r->hit_ratio = hit_ratio;
    r->hits = 0;
    r->requests = 0;
}

static void blame(struct cacheus *c, unsigned expert)
{
    double rate = c->rate.now > 0 ? c->rate.now : start_rate(c);
    double lru = c->weight * (expert == BY_LRU ? exp(-rate) : 1);
    double lfu = (1 - c->weight) * (expert == BY_LFU ? exp(-rate) : 1);

    c->weight = fmin(fmax(lru / (lru + lfu), WEIGHT_MIN), 1 - WEIGHT_MIN);
}

/* ---- S and Q ---- */

static void resize(struct cacheus *c, bool grow_s, uint32_t size)
{
    double demoted = (double)fb_max_u64(c->demoted, 1);
    double new_evicted = (double)fb_max_u64(c->new_evicted, 1);
    uint64_t by;

    if (grow_s) {
        by = (uint64_t)fmax(1, round((double)c->new_evicted / demoted)) * size;
        c->s_limit = fb_min_u64(c->s_limit + by, c->base.capacity - 1);
    } else {
        by = (uint64_t)fmax(1, round((double)c->demoted / new_evicted)) * size;
        c->s_limit = c->s_limit > by + 1 ? c->s_limit - by : 1;
    }
}

/* S has room for so much more, or is empty. */
static void shrink_s(struct cacheus *c, uint32_t room)
{
    while (c->list[IN_S].size + room > c->s_limit && c->list[IN_S].count > 0) {
        uint32_t id = fb_sim_pop_tail(c->base.node, &c->list[IN_S]);

        c->past[id].demoted = true;
        c->demoted++;
        put(c, IN_Q, id);
    }
}

static void forget_demotion(struct cacheus *c, uint32_t id)
{
    if (c->past[id].demoted)
        c->demoted--;
    c->past[id].demoted = false;
}

static void hit(struct cacheus *c, uint32_t id)
{
    struct fb_sim_node *node = c->base.node;

    if (node[id].tag == IN_S) {
        fb_sim_move_to_head(node, &c->list[IN_S], id);
        return;
    }
    if (c->past[id].demoted)
        resize(c, true, node[id].size);
    forget_demotion(c, id);
    c->past[id].is_new = false;
    fb_sim_remove(node, &c->list[IN_Q], id);
    shrink_s(c, node[id].size);
    put(c, IN_S, id);
}

/* ---- evictions and histories ---- */

static void leave_history(struct cacheus *c, uint32_t id)
{
    unsigned history = c->base.node[id].tag;

    fb_sim_remove(c->base.node, &c->list[history], id);
    c->base.node[id].tag = NOWHERE;
    if (history == BY_LRU && c->past[id].is_new)
        c->new_evicted--;
}

static void remember(struct cacheus *c, unsigned history, uint32_t id)
{
    uint64_t limit = c->base.capacity / HISTORY_PART;
    uint32_t size = c->base.node[id].size;

    c->base.node[id].tag = NOWHERE;
    if (size > limit)
        return;
    while (c->list[history].size + size > limit)
        leave_history(c, c->list[history].tail);
    put(c, history, id);
    if (history == BY_LRU && c->past[id].is_new)
        c->new_evicted++;
}

static void evict(struct cacheus *c)
{
    uint32_t lru = c->list[c->list[IN_Q].count ? IN_Q : IN_S].tail;
    uint32_t lfu = fb_sim_heap_first(&c->lfu)->id;
    bool by_lru = fb_rand_unit(&c->lot) < c->weight;
    uint32_t id = by_lru ? lru : lfu;

    fb_sim_remove(c->base.node, &c->list[c->base.node[id].tag], id);
    fb_sim_heap_remove(&c->lfu, id);
    forget_demotion(c, id);
    if (lru == lfu)
        c->base.node[id].tag = NOWHERE;
    else
        remember(c, by_lru ? BY_LRU : BY_LFU, id);
}

static void insert(struct cacheus *c, uint32_t id, uint32_t size)
{
    unsigned history = c->base.node[id].tag;

    if (history == NOWHERE) {
        c->past[id] = (struct past){.is_new = true};
    } else {
        blame(c, history);
        if (history == BY_LRU && c->past[id].is_new)
            resize(c, false, size);
        leave_history(c, id);
        c->past[id].is_new = false;
    }
    c->base.node[id].size = size;
    while (cached_size(c) + size > c->base.capacity)
        evict(c);
    if (history == NOWHERE && (c->list[IN_Q].count || c->list[IN_S].size + size > c->s_limit)) {
        put(c, IN_Q, id);
        shrink_s(c, 0);
        return;
    }
    c->past[id].is_new = false;
    shrink_s(c, size);
    put(c, IN_S, id);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct cacheus *c = cache;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];
        unsigned tag = c->base.node[id].tag;
        uint64_t now = batch->first + i;
        int rc;

        ret_hit[i] = tag == IN_S || tag == IN_Q;
        c->rate.hits += ret_hit[i];
        if (++c->rate.requests >= fb_max_u64(cached_objects(c), 1))
            end_period(c);
        if (ret_hit[i])
            hit(c, id);
        else if (batch->size[i] <= c->base.capacity)
            insert(c, id, batch->size[i]);
        else
            continue;
        rc = fb_sim_heap_set(&c->lfu, id, ++c->past[id].count, UINT64_MAX - now);
        if (rc)
            return rc;
    }
    return 0;
}

static void figures(void *cache, fb_sim_figure_fn *tell, void *arg)
{
    struct cacheus *c = cache;

    tell(arg, "weight_srlru", c->weight);
    tell(arg, "learning_rate", c->rate.now);
}

static void destroy(void *cache)
{
    struct cacheus *c = cache;

    if (c) {
        fb_sim_heap_free(&c->lfu);
        free(c->past);
    }
    fb_sim_base_destroy(c);
}

const struct fb_sim_policy fb_sim_cacheus = {
    .name = "cacheus",
    .summary = "LeCaR with experts against scans and churn, and a learned rate",
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .figures = figures,
    .destroy = destroy,
};
