/*
 * Learning when objects come back.
 *
 *     on a request: a watched object closes its interval: one observation for each age class it
 *                   passed, and one "came back" for the class it came back in
 *     train: seen = observations + those of intervals that are still open
 *            boost over all cells (history, size, age) with weight seen, label came back / seen
 *            hazard = (came back + 10 * boosted) / (seen + 10)
 *            ages that hardly anybody has reached yet: at least 0.1, for nothing is known of them;
 *            until the cache has evicted as much as it holds: 0.9, and for all ages above 0.3 of
 *            all time (so what is old stays until there is evidence, as in LIRS)
 *            observations fade: half after 4 turnovers of the cache
 *     utility(history, size, age): walk through the ages to come with the probability to be idle
 *            still, and sum up P(back here) * s / (s + wait); filled for a history when first used
 *
 * Ages are in half octaves around R, the number of objects that the cache holds: class 14 begins at
 * R requests. The cells take 1.2 MB, the watched objects 1.6 MB, ghosts 8 to 16 bytes for each
 * object that fits into the cache.
 */
#include "policy/reuse.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/mem.h"
#include "model/boost.h"

#define AGES            28
#define AGE_OF_R        14
#define SIZES           8 /* of two octaves each, from 256 bytes on */
#define SIZE_FIRST      8 /* octave */
#define HISTORIES       256
#define CELLS           (HISTORIES * SIZES * AGES)
#define ROWS_MAX        8192
#define COUNT_MAX       3
#define NO_GAP          8 /* the class of a gap that there was not */
#define WATCHED_MAX     16384
#define WATCH_SLOTS     (2 * WATCHED_MAX)
#define GHOST_WAYS      8
#define GHOST_SHARE     2  /* at least so many ghosts for each object in the cache */
#define GHOST_TIME      12 /* bits of time in a ghost, and of its tag */
#define GHOSTS_MAX      (1u << 30)
#define BACK_MIN        50    /* observations of coming back before there is a model */
#define PRIOR           10.0f /* observations that the boosted hazard is worth */
#define REACHED_MIN     30    /* observations of an age, or nothing is known of it */
#define HOPE_FIRST      0.9f  /* of ages above YOUNG of all time, in the first generation */
#define YOUNG           0.3
#define HOPE            0.1f
#define HAZARD_MIN      1e-4f
#define NEAR            0.3  /* s, in turnovers */
#define HALF_LIFE       4.0  /* turnovers */
#define FORGET          16.0 /* turnovers after which a watched object is given up */
#define MISS_RATIO_STEP 1e-4
#define MISS_RATIO_MIN  0.01

struct watched {
    uint64_t hash; /* 0: free */
    uint32_t last;
    uint32_t size;
    uint8_t history;
};

struct fb_reuse {
    uint64_t capacity;
    uint32_t now;
    double size_sum; /* of requests, until R is fixed */
    int octave2;     /* 2 log2(R) - AGE_OF_R: where the age classes begin */
    double turnover; /* requests */
    double miss_ratio;

    struct watched *watched; /* open addressing */
    struct watched *spare;   /* the next table, free */
    uint32_t watched_count;
    uint64_t watch_mask; /* hashes without these bits are watched */

    uint32_t *ghost; /* buckets of GHOST_WAYS: time, tag, history */
    uint64_t ghost_buckets;
    unsigned ghost_shift;

    float *seen; /* observations by cell, fading */
    float *back; /* of these, came back */
    float *all;  /* as of the last training, with the open intervals */
    float *all_back;
    float *utility; /* NaN: not filled */
    double reached[AGES];

    uint64_t cached;  /* objects, at the last training */
    uint64_t evicted; /* objects, ever */

    struct fb_boost *model;
    float *rows; /* for training: features, then label, then weight */
    unsigned trainings;
    uint32_t trained; /* when */
    uint32_t due;
};

/* ---- classes ---- */

/* floor(2 log2(x)), x > 0 */
static int half_octave(uint64_t x)
{
    int octave = 63 - __builtin_clzll(x);
    unsigned __int128 square = (unsigned __int128)x * x;

    return 2 * octave + (square >> (2 * octave + 1) != 0);
}

static unsigned age_class(const struct fb_reuse *r, uint32_t age)
{
    int k = half_octave((uint64_t)age + 1) - r->octave2;

    return k < 0 ? 0 : k >= AGES ? AGES - 1 : (unsigned)k;
}

/* R / 16, R / 6, R / 2, R, 2 R, 6 R, 16 R are the bounds. */
static unsigned gap_class(const struct fb_reuse *r, uint32_t gap)
{
    static const uint8_t of_age[AGES] = {0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3,
                                         4, 4, 5, 5, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7};

    return of_age[age_class(r, gap)];
}

static unsigned size_class(uint32_t size)
{
    int k = (31 - __builtin_clz(size | 1) - SIZE_FIRST) / 2;

    return k < 0 ? 0 : k >= SIZES ? SIZES - 1 : (unsigned)k;
}

/* History: count * 64 + gap * 8 + gap before. */
static uint8_t next_history(const struct fb_reuse *r, uint8_t history, uint32_t gap)
{
    unsigned count = history >> 6;

    if (count < COUNT_MAX)
        count++;
    return (uint8_t)(count << 6 | gap_class(r, gap) << 3 | (history >> 3 & 7));
}

static size_t cell(unsigned history, unsigned size, unsigned age)
{
    return ((size_t)history * SIZES + size) * AGES + age;
}

static void set_features(float *row, unsigned history, unsigned size, unsigned age)
{
    unsigned count = history >> 6;

    row[FB_REUSE_COUNT] = (float)count;
    row[FB_REUSE_GAP] = (float)(count > 0 ? history >> 3 & 7 : NO_GAP);
    row[FB_REUSE_GAP_BEFORE] = (float)(count > 1 ? history & 7 : NO_GAP);
    row[FB_REUSE_SIZE] = (float)size;
    row[FB_REUSE_AGE] = (float)age;
}

/* R from the mean size; once there is a model it stays, for the classes hang on it. */
static void place_classes(struct fb_reuse *r)
{
    double objects = (double)r->capacity * r->now / r->size_sum;

    r->octave2 = half_octave((uint64_t)fmax(objects, 1)) - AGE_OF_R;
}

/* ---- life ---- */

int fb_reuse_create(uint64_t capacity, struct fb_reuse **ret_reuse)
{
    struct fb_reuse *r = fb_alloc(sizeof *r);

    if (!r)
        return -ENOMEM;
    r->capacity = capacity;
    r->miss_ratio = 1;
    r->watched = fb_alloc_array(WATCH_SLOTS, sizeof *r->watched);
    r->spare = fb_alloc_array(WATCH_SLOTS, sizeof *r->spare);
    r->seen = fb_alloc_array(CELLS, sizeof *r->seen);
    r->back = fb_alloc_array(CELLS, sizeof *r->back);
    r->all = fb_alloc_array(CELLS, sizeof *r->all);
    r->all_back = fb_alloc_array(CELLS, sizeof *r->all_back);
    r->utility = fb_alloc_array(CELLS, sizeof *r->utility);
    r->rows = fb_alloc_array(ROWS_MAX, (FB_REUSE_FEATURES + 2) * sizeof *r->rows);
    if (!r->watched || !r->spare || !r->seen || !r->back || !r->all || !r->all_back ||
        !r->utility || !r->rows) {
        fb_reuse_destroy(r);
        return -ENOMEM;
    }
    *ret_reuse = r;
    return 0;
}

void fb_reuse_destroy(struct fb_reuse *reuse)
{
    if (!reuse)
        return;
    fb_boost_free(reuse->model);
    free(reuse->watched);
    free(reuse->spare);
    free(reuse->ghost);
    free(reuse->seen);
    free(reuse->back);
    free(reuse->all);
    free(reuse->all_back);
    free(reuse->utility);
    free(reuse->rows);
    free(reuse);
}

/* ---- watched objects ---- */

static void observe(float *seen, const struct watched *w, unsigned passed, float weight)
{
    float *first = &seen[cell(w->history, size_class(w->size), 0)];

    for (unsigned age = 0; age < passed; age++)
        first[age] += weight;
}

static struct watched *slot_of(struct fb_reuse *r, uint64_t hash)
{
    uint64_t i = hash >> 32;

    for (;; i++) {
        struct watched *w = &r->watched[i % WATCH_SLOTS];

        if (w->hash == hash || w->hash == 0)
            return w;
    }
}

/* Takes those out that are too old, or not to be watched any more. */
static void rebuild(struct fb_reuse *r, double age_max)
{
    struct watched *old = r->watched;

    r->watched = r->spare;
    r->spare = old;
    r->watched_count = 0;
    for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
        struct watched w = old[i];

        old[i].hash = 0;
        if (w.hash == 0 || (w.hash & r->watch_mask) || r->now - w.last > age_max)
            continue;
        *slot_of(r, w.hash) = w;
        r->watched_count++;
    }
}

/* The object's interval ends here, and another begins with `history`. */
static void watch(struct fb_reuse *r, uint64_t hash, uint32_t size, uint8_t history)
{
    struct watched *w = slot_of(r, hash);

    if (w->hash) {
        unsigned age = age_class(r, r->now - w->last);

        observe(r->seen, w, age + 1, 1);
        r->back[cell(w->history, size_class(w->size), age)] += 1;
    } else if (r->watched_count == WATCHED_MAX) {
        r->watch_mask = 2 * r->watch_mask + 1;
        rebuild(r, UINT32_MAX);
        return;
    } else {
        r->watched_count++;
    }
    *w = (struct watched){hash, r->now, size, history};
}

/* ---- ghosts ---- */

static uint32_t *bucket_of(struct fb_reuse *r, uint64_t hash, uint32_t *ret_tag)
{
    *ret_tag = (uint32_t)(hash & ((1u << GHOST_TIME) - 1));
    return &r->ghost[(hash >> GHOST_TIME) % r->ghost_buckets * GHOST_WAYS];
}

/* A ghost is time << 20 | tag << 8 | history. */
static uint32_t ghost_age(const struct fb_reuse *r, uint32_t ghost)
{
    return ((r->now >> r->ghost_shift) - (ghost >> 20)) & ((1u << GHOST_TIME) - 1);
}

void fb_reuse_evicted(struct fb_reuse *reuse, uint64_t hash, const struct fb_reuse_meta *meta)
{
    uint32_t tag;
    uint32_t *bucket;
    unsigned oldest = 0;

    reuse->evicted++;
    if (!reuse->ghost)
        return;
    bucket = bucket_of(reuse, hash, &tag);
    for (unsigned i = 1; i < GHOST_WAYS; i++) {
        if (ghost_age(reuse, bucket[i]) > ghost_age(reuse, bucket[oldest]))
            oldest = i;
    }
    bucket[oldest] = meta->last >> reuse->ghost_shift << 20 | tag << 8 | meta->history;
}

/* Whether there is a ghost; it is taken, and meta is what it says. */
static bool take_ghost(struct fb_reuse *r, uint64_t hash, struct fb_reuse_meta *meta)
{
    uint32_t tag;
    uint32_t *bucket;

    if (!r->ghost)
        return false;
    bucket = bucket_of(r, hash, &tag);
    for (unsigned i = 0; i < GHOST_WAYS; i++) {
        if ((bucket[i] >> 8 & ((1u << GHOST_TIME) - 1)) == tag && bucket[i] != 0) {
            meta->history = (uint8_t)bucket[i];
            meta->last = r->now - (ghost_age(r, bucket[i]) << r->ghost_shift);
            bucket[i] = 0;
            return true;
        }
    }
    return false;
}

/* Without memory for them there are no ghosts. */
static void make_ghosts(struct fb_reuse *r, uint64_t cached)
{
    uint64_t wanted = GHOST_SHARE * cached / GHOST_WAYS;
    uint64_t buckets = 1;

    while (buckets < wanted && buckets * GHOST_WAYS < GHOSTS_MAX)
        buckets *= 2;
    r->ghost = fb_alloc_array(buckets, GHOST_WAYS * sizeof *r->ghost);
    r->ghost_buckets = buckets;
    while (cached >> r->ghost_shift > 16)
        r->ghost_shift++;
}

/* ---- requests ---- */

static void request(struct fb_reuse *r, uint32_t size, bool hit)
{
    r->now++;
    r->miss_ratio += ((hit ? 0 : 1) - r->miss_ratio) * MISS_RATIO_STEP;
    r->size_sum += size;
    if (r->trainings == 0)
        place_classes(r);
}

static void note(struct fb_reuse *r, uint64_t hash, uint32_t size, struct fb_reuse_meta *meta)
{
    meta->last = r->now;
    if ((hash & r->watch_mask) == 0 && hash != 0)
        watch(r, hash, size, meta->history);
}

void fb_reuse_hit(struct fb_reuse *reuse, uint64_t hash, uint32_t size, struct fb_reuse_meta *meta)
{
    request(reuse, size, true);
    meta->history = next_history(reuse, meta->history, reuse->now - meta->last);
    note(reuse, hash, size, meta);
}

void fb_reuse_miss(struct fb_reuse *reuse, uint64_t hash, uint32_t size, struct fb_reuse_meta *meta)
{
    request(reuse, size, false);
    if (take_ghost(reuse, hash, meta))
        meta->history = next_history(reuse, meta->history, reuse->now - meta->last);
    else
        meta->history = 0;
    note(reuse, hash, size, meta);
}

/* ---- training ---- */

bool fb_reuse_due(const struct fb_reuse *reuse)
{
    return reuse->due == 0 || (int32_t)(reuse->now - reuse->due) >= 0;
}

/* All observations, with those of open intervals, which fade with their age as the others did. */
static void add_open(struct fb_reuse *r)
{
    memcpy(r->all, r->seen, CELLS * sizeof *r->all);
    memcpy(r->all_back, r->back, CELLS * sizeof *r->all_back);
    for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
        const struct watched *w = &r->watched[i];
        uint32_t age = r->now - w->last;

        if (w->hash)
            observe(r->all, w, age_class(r, age),
                    (float)exp2(-(double)age / (HALF_LIFE * r->turnover)));
    }
    memset(r->reached, 0, sizeof r->reached);
    for (size_t i = 0; i < CELLS; i++)
        r->reached[i % AGES] += r->all[i];
}

/* Rows of the cells that were seen; returns how many. */
static size_t fill_rows(struct fb_reuse *r, double *ret_back)
{
    float *label = r->rows + (size_t)ROWS_MAX * FB_REUSE_FEATURES;
    float *weight = label + ROWS_MAX;
    size_t count = 0;

    *ret_back = 0;
    for (size_t i = 0; i < CELLS && count < ROWS_MAX; i++) {
        if (r->all[i] < 0.05f)
            continue;
        set_features(r->rows + count * FB_REUSE_FEATURES, (unsigned)(i / AGES / SIZES),
                     (unsigned)(i / AGES % SIZES), (unsigned)(i % AGES));
        label[count] = r->all_back[i] / r->all[i];
        weight[count] = r->all[i];
        *ret_back += r->all_back[i];
        count++;
    }
    return count;
}

/* Often in the beginning, then once a turnover or so. */
static uint32_t until_next(const struct fb_reuse *r)
{
    double slow = fmin(r->now / 10.0, r->turnover + 20000);

    return (uint32_t)fmin(fmax(fmax(slow, r->turnover / 10), 1000), INT32_MAX);
}

static void fade(struct fb_reuse *r)
{
    float left = (float)exp2(-(double)(r->now - r->trained) / (HALF_LIFE * r->turnover));

    for (size_t i = 0; i < CELLS; i++) {
        r->seen[i] *= left;
        r->back[i] *= left;
    }
    r->trained = r->now;
}

int fb_reuse_train(struct fb_reuse *reuse, uint64_t cached)
{
    const struct fb_boost_options options = {
        .rounds = 20, .depth = 5, .rate = 0.3f, .leaf_min = 16};
    float *label = reuse->rows + (size_t)ROWS_MAX * FB_REUSE_FEATURES;
    struct fb_boost *model;
    double back;
    size_t count;
    int rc;

    reuse->cached = cached;
    reuse->turnover = (double)cached / fmax(reuse->miss_ratio, MISS_RATIO_MIN) + 1;
    if (!reuse->ghost)
        make_ghosts(reuse, cached);
    rebuild(reuse, FORGET * reuse->turnover);
    add_open(reuse);
    count = fill_rows(reuse, &back);
    reuse->due = reuse->now + until_next(reuse);
    if (back < BACK_MIN)
        return 0;
    rc = fb_boost_train(reuse->rows, label, label + ROWS_MAX, count, FB_REUSE_FEATURES, &options,
                        &model);
    if (rc)
        return rc;
    fb_boost_free(reuse->model);
    reuse->model = model;
    reuse->trainings++;
    memset(reuse->utility, 0xff, CELLS * sizeof *reuse->utility); /* NaN */
    fade(reuse);
    return 0;
}

/* ---- utility ---- */

/* What an age's hazard is at least. Until the cache has evicted as many objects as it holds, all it
 * knows is from its first fill: it would throw away what is old on no more than the evidence that
 * it has not come back within a time that was too short. */
static float least_hazard(const struct fb_reuse *r, unsigned age)
{
    bool reached = r->reached[age] >= REACHED_MIN;

    if (r->evicted < r->cached)
        return !reached || exp2((age + r->octave2) / 2.0) > YOUNG * r->now ? HOPE_FIRST : 0;
    return reached ? 0 : HOPE;
}

static void hazards(const struct fb_reuse *r, unsigned history, unsigned size, float *ret)
{
    float rows[AGES * FB_REUSE_FEATURES];

    for (unsigned age = 0; age < AGES; age++)
        set_features(rows + age * FB_REUSE_FEATURES, history, size, age);
    fb_boost_predict(r->model, rows, AGES, ret);
    for (unsigned age = 0; age < AGES; age++) {
        size_t i = cell(history, size, age);
        float boosted = fminf(fmaxf(ret[age], HAZARD_MIN), 1);

        ret[age] = (r->all_back[i] + PRIOR * boosted) / (r->all[i] + PRIOR);
        ret[age] = fmaxf(ret[age], least_hazard(r, age));
    }
}

/* The utility at every age. An object is in the middle of its class: half of the hazard is left. */
static void fill(struct fb_reuse *r, unsigned history, unsigned size)
{
    float hazard[AGES];
    double middle[AGES];
    double near = NEAR * r->turnover;

    hazards(r, history, size, hazard);
    for (unsigned age = 0; age < AGES; age++)
        middle[age] = exp2((age + r->octave2 + 0.5) / 2);
    for (unsigned age = 0; age < AGES; age++) {
        double here = hazard[age] / 2;
        double idle = 1 - here;
        double sum = here / (near + 0.15 * middle[age]);

        for (unsigned k = age + 1; k < AGES; k++) {
            sum += idle * hazard[k] / (near + middle[k] - middle[age]);
            idle *= 1 - hazard[k];
        }
        r->utility[cell(history, size, age)] = (float)(sum * near);
    }
}

float fb_reuse_score(struct fb_reuse *reuse, const struct fb_reuse_meta *meta, uint32_t size)
{
    uint32_t age = reuse->now - meta->last;
    unsigned of_size = size_class(size);
    const float *u;

    if (!reuse->model)
        return (float)(1 + (meta->history >> 6)) / ((float)age + 1) / (float)size;
    u = &reuse->utility[cell(meta->history, of_size, age_class(reuse, age))];
    if (isnan(*u))
        fill(reuse, meta->history, of_size);
    return (*u + 1e-6f) / (float)size;
}

/* ---- what is told ---- */

unsigned fb_reuse_trainings(const struct fb_reuse *reuse)
{
    return reuse->trainings;
}

void fb_reuse_importance(const struct fb_reuse *reuse, double ret_shares[FB_REUSE_FEATURES])
{
    memset(ret_shares, 0, FB_REUSE_FEATURES * sizeof *ret_shares);
    if (reuse->model)
        fb_boost_importance(reuse->model, ret_shares);
}

size_t fb_reuse_bytes(const struct fb_reuse *reuse)
{
    return sizeof *reuse + 5 * CELLS * sizeof(float) + 2 * WATCH_SLOTS * sizeof(struct watched) +
           (size_t)ROWS_MAX * (FB_REUSE_FEATURES + 2) * sizeof(float) +
           reuse->ghost_buckets * GHOST_WAYS * sizeof(uint32_t);
}
