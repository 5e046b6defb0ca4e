/*
 * LRB, a small one (Song, Berger, Li, Lloyd, "Learning Relaxed Belady", NSDI 2020): learning at the
 * level of objects, what GL-Cache is held against. It predicts when each object is asked for again.
 *
 *   features: age; size; the last 6 gaps between requests; 8 counters that halve in 2^10 ... 2^24
 *       requests
 *   on every request: label the object's sample with the time since it was taken; update features;
 *       now and then sample one cached object: copy its features
 *   a sample that waits for longer than the memory window gets twice the window as its label: how
 *       far beyond it does not matter (the relaxed Belady boundary)
 *   4,096 labels are there? train a new model from them alone, on the logarithm of the time
 *   on a miss: while there is no room: draw 64 cached objects by lot; evict one that nobody asked
 *       for within the window, else the one with the largest predicted time * size; the least
 *       recently asked for while there is no model
 *
 * Instead of 32 gaps, 10 counters and a window that is tuned on a part of the trace, which the
 * original has, there are these, and a window of some turnovers of the cache.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "model/boost.h"
#include "sim/node.h"
#include "sim/policies.h"
#include "sim/pool.h"

#define GAPS       6
#define COUNTERS   8
#define HALF_FIRST 10 /* log2 of requests; each next one is four times as long */
#define FEATURES   (2 + GAPS + COUNTERS)
#define ROWS       4096
#define WAITING    16384 /* samples without a label */
#define NO_GAP     1e9f
#define DRAWS_MAX  256
#define WINDOW_MIN 1000.0
#define BEHIND     1000.0 /* more than any logarithm */

static_assert(FEATURES <= FB_BOOST_FEATURES_MAX, "for the booster");

struct object {
    uint32_t last; /* request number */
    uint32_t size;
    uint32_t sample; /* 1 + its place among the waiting; 0: none */
    uint32_t gap[GAPS];
    float counter[COUNTERS];
};

struct sample {
    uint32_t id; /* FB_SIM_NONE: it has its label */
    uint32_t taken;
    float features[FEATURES];
};

struct lrb {
    struct fb_sim_pool pool;
    struct object *object;
    size_t objects;
    uint64_t capacity;
    uint64_t size;
    struct fb_rand lot;
    unsigned draws;
    double turnovers;
    uint32_t now;
    uint32_t since; /* requests and misses are counted from here */
    uint32_t misses;
    uint32_t window; /* requests; 0: the cache is not full yet */
    uint32_t next_sample;

    struct sample waiting[WAITING]; /* a ring */
    uint64_t waiting_first;
    uint64_t waiting_end;
    float row[ROWS * FEATURES];
    float label[ROWS];
    size_t rows;
    struct fb_boost *model;
    unsigned trainings;

    uint32_t drawn[DRAWS_MAX]; /* candidates, their features, and when they are asked for */
    float drawn_row[DRAWS_MAX * FEATURES];
    float drawn_wait[DRAWS_MAX];
};

static const struct fb_sim_param params[] = {
    {"draws", 64, 1, DRAWS_MAX, "candidates for eviction"},
    {"window", 2, 0.1, 1000, "memory, in turnovers of the cache"},
    {0},
};

/* ---- features ---- */

static void set_features(const struct lrb *c, const struct object *o, float *row)
{
    row[0] = (float)(c->now - o->last);
    row[1] = (float)o->size;
    for (unsigned i = 0; i < GAPS; i++)
        row[2 + i] = o->gap[i] ? (float)o->gap[i] : NO_GAP;
    memcpy(row + 2 + GAPS, o->counter, sizeof o->counter);
}

/* A counter of 0: it was never asked for. */
static void note_request(const struct lrb *c, struct object *o)
{
    uint32_t gap = c->now - o->last;
    float age = (float)gap;

    if (o->counter[0] > 0) {
        memmove(o->gap + 1, o->gap, sizeof o->gap - sizeof o->gap[0]);
        o->gap[0] = gap;
    }
    for (unsigned i = 0; i < COUNTERS; i++)
        o->counter[i] = 1 + o->counter[i] * exp2f(-age / (float)(1u << (HALF_FIRST + 2 * i)));
    o->last = c->now;
}

/* ---- training ---- */

/* Of as many turnovers, by the misses since it was set last. */
static void set_window(struct lrb *c)
{
    double misses = c->misses ? c->misses : 1;
    double turnover = (double)c->pool.count * (double)(c->now - c->since) / misses;

    c->window = (uint32_t)fmin(fmax(c->turnovers * turnover, WINDOW_MIN), INT32_MAX / 4);
    c->since = c->now;
    c->misses = 0;
}

static int train(struct lrb *c)
{
    const struct fb_boost_options options = FB_BOOST_OPTIONS_DEFAULT;
    struct fb_boost *model;
    int rc = fb_boost_train(c->row, c->label, NULL, c->rows, FEATURES, &options, &model);

    if (rc)
        return rc;
    fb_boost_free(c->model);
    c->model = model;
    c->trainings++;
    c->rows = 0;
    set_window(c);
    return 0;
}

static int give_label(struct lrb *c, struct sample *s, double wait)
{
    memcpy(c->row + c->rows * FEATURES, s->features, sizeof s->features);
    c->label[c->rows++] = (float)log1p(wait);
    c->object[s->id].sample = 0;
    s->id = FB_SIM_NONE;
    return c->rows == ROWS ? train(c) : 0;
}

/* Samples leave the ring in the order they came: those that wait for too long, and those before
 * them, which have their labels. */
static int expire(struct lrb *c)
{
    while (c->waiting_first < c->waiting_end) {
        struct sample *s = &c->waiting[c->waiting_first % WAITING];
        bool late = c->now - s->taken > c->window;
        int rc = 0;

        if (s->id != FB_SIM_NONE && !late)
            break;
        if (s->id != FB_SIM_NONE)
            rc = give_label(c, s, 2.0 * c->window);
        if (rc)
            return rc;
        c->waiting_first++;
    }
    return 0;
}

/* So many that the ring does not run over in a window. */
static void take_sample(struct lrb *c)
{
    uint32_t id = fb_sim_pool_draw(&c->pool, &c->lot);
    struct sample *s = &c->waiting[c->waiting_end % WAITING];

    c->next_sample = c->now + 1 + 2 * c->window / WAITING;
    if (c->object[id].sample || c->waiting_end - c->waiting_first == WAITING)
        return;
    s->id = id;
    s->taken = c->now;
    set_features(c, &c->object[id], s->features);
    c->object[id].sample = 1 + (uint32_t)(c->waiting_end++ % WAITING);
}

static int learn(struct lrb *c, struct object *o)
{
    int rc = 0;

    if (o->sample) {
        struct sample *s = &c->waiting[o->sample - 1];

        rc = give_label(c, s, c->now - s->taken);
    }
    if (!rc && c->window && (int32_t)(c->now - c->next_sample) >= 0) {
        rc = expire(c);
        if (!rc && c->pool.count > 0)
            take_sample(c);
    }
    return rc;
}

/* ---- requests ---- */

/* How soon it should leave: those beyond the window by age, before all others by what is predicted.
 * Without a model, by age. */
static double score_of(const struct lrb *c, unsigned i)
{
    const struct object *o = &c->object[c->drawn[i]];
    uint32_t age = c->now - o->last;

    if (!c->model || age > c->window)
        return age;
    return (double)c->drawn_wait[i] + log(o->size) - BEHIND;
}

static void evict(struct lrb *c)
{
    double most = -INFINITY;
    uint32_t victim = FB_SIM_NONE;

    for (unsigned i = 0; i < c->draws; i++) {
        c->drawn[i] = fb_sim_pool_draw(&c->pool, &c->lot);
        set_features(c, &c->object[c->drawn[i]], c->drawn_row + (size_t)i * FEATURES);
    }
    if (c->model)
        fb_boost_predict(c->model, c->drawn_row, c->draws, c->drawn_wait);
    for (unsigned i = 0; i < c->draws; i++) {
        double score = score_of(c, i);

        if (score > most) {
            most = score;
            victim = c->drawn[i];
        }
    }
    fb_sim_pool_remove(&c->pool, victim);
    c->size -= c->object[victim].size;
}

static void insert(struct lrb *c, uint32_t id, uint32_t size)
{
    c->misses++;
    if (size > c->capacity)
        return;
    if (!c->window && c->size + size > c->capacity)
        set_window(c);
    while (c->size + size > c->capacity)
        evict(c);
    c->size += size;
    fb_sim_pool_add(&c->pool, id);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct lrb *c = cache;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];
        struct object *o = &c->object[id];
        int rc;

        c->now = (uint32_t)(batch->first + i + 1);
        ret_hit[i] = fb_sim_pool_has(&c->pool, id);
        rc = learn(c, o);
        if (rc)
            return rc;
        o->size = batch->size[i];
        note_request(c, o);
        if (!ret_hit[i])
            insert(c, id, batch->size[i]);
    }
    return 0;
}

/* ---- life ---- */

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct lrb *c = fb_alloc(sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    c->capacity = setup->capacity;
    c->draws = (unsigned)setup->param[0];
    c->turnovers = setup->param[1];
    c->lot.state = setup->seed;
    *ret_cache = c;
    return 0;
}

static int reserve(void *cache, size_t objects)
{
    struct lrb *c = cache;
    int rc = fb_sim_grow(&c->object, &c->objects, objects, sizeof *c->object);

    return rc ? rc : fb_sim_pool_reserve(&c->pool, objects);
}

static void figures(void *cache, fb_sim_figure_fn *tell, void *arg)
{
    static const char *const names[] = {"importance_age", "importance_size", "importance_gaps",
                                        "importance_counters"};
    struct lrb *c = cache;
    double share[FEATURES] = {0};
    double sum[4] = {0};

    tell(arg, "trainings", c->trainings);
    if (c->model)
        fb_boost_importance(c->model, share);
    for (unsigned i = 0; i < FEATURES; i++)
        sum[i < 2 ? i : i < 2 + GAPS ? 2 : 3] += share[i];
    for (unsigned i = 0; i < FB_ARRAY_SIZE(names); i++)
        tell(arg, names[i], sum[i]);
}

static void destroy(void *cache)
{
    struct lrb *c = cache;

    if (!c)
        return;
    fb_sim_pool_free(&c->pool);
    fb_boost_free(c->model);
    free(c->object);
    free(c);
}

const struct fb_sim_policy fb_sim_lrb = {
    .name = "lrb",
    .summary = "a small LRB: predicts when each object is asked for again; slow",
    .params = params,
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .figures = figures,
    .destroy = destroy,
};
