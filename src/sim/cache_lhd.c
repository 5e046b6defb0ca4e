/*
 * LHD (Beckmann, Chen, Cidon, NSDI 2018): evict what has the least hit density, the hits that are
 * to be expected from it per byte and time, learned from the ages at which objects hit and leave.
 *
 *   age of an object: requests since it was asked for last, in steps
 *   class of an object: how old it was at its last two hits, by powers of two
 *   density[class][age] = hits to come / lifetime to come, over all objects of the class that got
 *                         as old; at first about 1 / age, as LRU
 *
 *   on a hit:  count a hit at [class][age]; note the age
 *   on a miss: while there is no room: of 8 (later 32) drawn by lot, and of the last 8 that looked
 *                  worse than the usual victim when they came, evict the one with the least
 *                  density / size; count an eviction at [class][age]
 *              insert
 *   every 2^20 requests: age the counts by 0.9; compute the densities; twice, early on, fit the
 *                  step of ages to the number of objects
 *   explorers: 1 request in 32 makes its object dear, within 1% of the cache, so that more is
 *                  learned than what the present ranking lets live.
 */
#include "sim/policies.h"
#include "sim/pool.h"

#define CLASSES      16
#define AGES         20000U
#define AGE_LAST     (AGES - 1)
#define NEWCOMERS    8
#define LEARNING     50 /* recomputations during which fewer are drawn, and explorers are made */
#define DRAWS_FIRST  8
#define EXPLORE_ONE  32 /* in so many */
#define EXPLORE_PART 0.01
#define DECAY        0.9f
#define STEP_FIRST   10 /* log2 of the requests in a step of age */
#define AGE_ERROR    0.01f
#define START_CLASS  17 /* densities start as (17 + class) / age: nearly the same for all classes */

struct object {
    uint64_t asked; /* number of its last request */
    uint32_t size;
    uint16_t age;        /* at its last hit */
    uint16_t age_before; /* at the hit before */
    bool explorer;
};

struct class
{
    float hits[AGES];
    float evictions[AGES];
    float density[AGES];
};

struct lhd {
    struct fb_sim_pool pool;
    struct object *object;
    size_t objects;
    uint64_t capacity;
    uint64_t size;
    uint64_t now;
    uint64_t period;
    unsigned draws;
    unsigned step; /* log2 */
    unsigned learned;
    int64_t explore_left; /* bytes */
    float usual_victim;   /* density per byte of victims, smoothed */
    float objects_sum;
    float objects_weight;
    uint32_t newcomer[NEWCOMERS];
    unsigned newcomer_at;
    struct fb_rand lot;
    struct class class[CLASSES];
};

static const struct fb_sim_param params[] = {
    {"draws", 32, 1, 4096, "candidates for eviction"},
    {"period", 1 << 20, 1000, 1e12, "requests between two recomputations"},
    {0},
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct lhd *c = fb_alloc(sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    c->capacity = setup->capacity;
    c->draws = (unsigned)setup->param[0];
    c->period = (uint64_t)setup->param[1];
    c->step = STEP_FIRST;
    c->explore_left = (int64_t)((double)setup->capacity * EXPLORE_PART);
    c->lot.state = setup->seed;
    for (unsigned i = 0; i < NEWCOMERS; i++)
        c->newcomer[i] = UINT32_MAX;
    for (unsigned k = 0; k < CLASSES; k++) {
        for (unsigned a = 0; a < AGES; a++)
            c->class[k].density[a] = (float)(START_CLASS + k) / (float)(a + 1);
    }
    *ret_cache = c;
    return 0;
}

static int reserve(void *cache, size_t objects)
{
    struct lhd *c = cache;
    int rc = fb_sim_grow(&c->object, &c->objects, objects, sizeof *c->object);

    return rc ? rc : fb_sim_pool_reserve(&c->pool, objects);
}

/* ---- ranking ---- */

static unsigned age_of(const struct lhd *c, const struct object *o)
{
    return (unsigned)fb_min_u64((c->now - o->asked) >> c->step, AGE_LAST);
}

/* The younger at its hits, the higher. */
static struct class *class_of(struct lhd *c, const struct object *o)
{
    unsigned age = (unsigned)o->age + o->age_before;
    unsigned k = 0;

    if (age == 0)
        return &c->class[CLASSES - 1];
    for (; age < AGES && k < CLASSES - 1; age <<= 1)
        k++;
    return &c->class[k];
}

static float density_of(struct lhd *c, const struct object *o)
{
    unsigned age = age_of(c, o);

    if (age == AGE_LAST)
        return -1;
    return class_of(c, o)->density[age] / (float)o->size + (o->explorer ? 1.0f : 0.0f);
}

static void compare(struct lhd *c, uint32_t id, uint32_t *victim, float *least)
{
    float density = density_of(c, &c->object[id]);

    if (*victim == UINT32_MAX || density < *least) {
        *victim = id;
        *least = density;
    }
}

static uint32_t choose(struct lhd *c)
{
    unsigned draws = c->learned > LEARNING ? c->draws : DRAWS_FIRST;
    uint32_t victim = UINT32_MAX;
    float least = 0;

    for (unsigned i = 0; i < draws; i++)
        compare(c, fb_sim_pool_draw(&c->pool, &c->lot), &victim, &least);
    for (unsigned i = 0; i < NEWCOMERS; i++) {
        if (c->newcomer[i] != UINT32_MAX && fb_sim_pool_has(&c->pool, c->newcomer[i]))
            compare(c, c->newcomer[i], &victim, &least);
    }
    c->usual_victim = DECAY * c->usual_victim + (1 - DECAY) * least;
    return victim;
}

/* ---- learning ---- */

/* Ages in steps twice as long, `times` times. */
static void coarsen(struct class *k, unsigned times)
{
    unsigned factor = 1U << times;

    for (unsigned a = 0; a < AGES >> times; a++) {
        float hits = 0;
        float evictions = 0;

        for (unsigned i = 0; i < factor; i++) {
            hits += k->hits[(a << times) + i];
            evictions += k->evictions[(a << times) + i];
        }
        k->hits[a] = hits;
        k->evictions[a] = evictions;
    }
    for (unsigned a = AGES >> times; a < AGE_LAST; a++) {
        k->hits[a] = 0;
        k->evictions[a] = 0;
    }
}

/* Ages in steps half as long, `times` times: what is beyond the last age is lumped there. */
static void refine(struct class *k, unsigned times)
{
    float factor = (float)(1U << times);

    for (unsigned a = AGES >> times; a < AGE_LAST; a++) {
        k->hits[AGE_LAST] += k->hits[a];
        k->evictions[AGE_LAST] += k->evictions[a];
    }
    for (unsigned a = AGE_LAST; a-- > 0;) {
        k->hits[a] = k->hits[a >> times] / factor;
        k->evictions[a] = k->evictions[a >> times] / factor;
    }
}

/* The last age should be a hundred times the number of objects. */
static void fit_step(struct lhd *c)
{
    unsigned step = 1;
    float best;

    c->objects_sum = c->objects_sum * DECAY + (float)c->pool.count;
    c->objects_weight = c->objects_weight * DECAY + 1;
    if (c->learned != 5 && c->learned != 25)
        return;
    best = c->objects_sum / c->objects_weight / (AGE_ERROR * AGES);
    while ((float)(1U << step) < best)
        step++;
    for (unsigned k = 0; k < CLASSES; k++) {
        if (step > c->step)
            coarsen(&c->class[k], step - c->step);
        else if (step < c->step)
            refine(&c->class[k], c -> step - step);
    }
    c->step = step;
    c->objects_sum *= 8;
    c->objects_weight *= 8;
}

/* From old to young: all that got as old as `a` has still to live, and to hit, what is summed. */
static void compute(struct class *k)
{
    float hits = k->hits[AGE_LAST];
    float events = hits + k->evictions[AGE_LAST];
    float lifetime = events;

    for (unsigned a = AGE_LAST; a-- > 0;) {
        hits += k->hits[a];
        events += k->hits[a] + k->evictions[a];
        lifetime += events;
        k->density[a] = events > 1e-5f ? hits / lifetime : 0;
    }
}

static void learn(struct lhd *c)
{
    for (unsigned k = 0; k < CLASSES; k++) {
        for (unsigned a = 0; a < AGES; a++) {
            c->class[k].hits[a] *= DECAY;
            c->class[k].evictions[a] *= DECAY;
        }
    }
    fit_step(c);
    for (unsigned k = 0; k < CLASSES; k++)
        compute(&c->class[k]);
    c->learned++;
}

/* ---- requests ---- */

static void evict(struct lhd *c)
{
    uint32_t id = choose(c);
    struct object *o = &c->object[id];

    class_of(c, o)->evictions[age_of(c, o)] += 1;
    if (o->explorer)
        c->explore_left += o->size;
    c->size -= o->size;
    fb_sim_pool_remove(&c->pool, id);
}

/* What is the same for a hit and an insertion. */
static bool touch(struct lhd *c, struct object *o)
{
    bool explore = fb_rand_below(&c->lot, EXPLORE_ONE) == 0;

    o->asked = c->now;
    o->explorer = explore && c->explore_left > 0 && c->learned < LEARNING;
    if (o->explorer)
        c->explore_left -= o->size;
    return explore;
}

static void tick(struct lhd *c)
{
    c->now++;
    if (c->now % c->period == 0)
        learn(c);
}

static void hit(struct lhd *c, struct object *o)
{
    unsigned age = age_of(c, o);

    class_of(c, o)->hits[age] += 1;
    if (o->explorer)
        c->explore_left += o->size;
    o->age_before = o->age;
    o->age = (uint16_t)age;
    touch(c, o);
    tick(c);
}

static void insert(struct lhd *c, uint32_t id, uint32_t size)
{
    struct object *o = &c->object[id];

    if (size > c->capacity)
        return;
    while (c->size + size > c->capacity)
        evict(c);
    *o = (struct object){.size = size, .age_before = AGES};
    c->size += size;
    fb_sim_pool_add(&c->pool, id);
    if (!touch(c, o) && density_of(c, o) < c->usual_victim)
        c->newcomer[c->newcomer_at++ % NEWCOMERS] = id;
    tick(c);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct lhd *c = cache;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];

        ret_hit[i] = fb_sim_pool_has(&c->pool, id);
        if (ret_hit[i])
            hit(c, &c->object[id]);
        else
            insert(c, id, batch->size[i]);
    }
    return 0;
}

static void destroy(void *cache)
{
    struct lhd *c = cache;

    if (c) {
        fb_sim_pool_free(&c->pool);
        free(c->object);
    }
    free(c);
}

const struct fb_sim_policy fb_sim_lhd = {
    .name = "lhd",
    .summary = "least hit density: learns from ages at which objects hit and leave",
    .params = params,
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .destroy = destroy,
};
