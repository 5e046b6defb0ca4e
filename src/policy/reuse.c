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
#define JUDGED_MIN      1 /* observations */
#define HELD_SCORE      1 /* a byte; what is learned gives far less */
#define PINNED_SCORE    1000

struct watched {
    uint64_t hash; /* 0: free */
    uint32_t last;
    uint32_t size;
    uint8_t history;
};

struct fb_reuse {
    uint64_t capacity;
    uint64_t requests; /* over restarts */
    uint32_t now;      /* requests since the start */
    double size_sum;   /* of requests, until R is fixed */
    int octave2;       /* 2 log2(R) - AGE_OF_R: where the age classes begin */
    double turnover;   /* requests */
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
    float *was; /* as of the one before */
    float *was_back;
    float *utility; /* NaN: not filled */
    double reached[AGES];

    uint64_t cached;  /* objects, at the last training */
    uint64_t evicted; /* objects, ever */

    struct fb_boost *model;
    float *rows; /* for training: features, then label, then weight */
    size_t row_count;
    struct fb_reuse_quality quality;
    struct fb_reuse_quality judged; /* by fit(), to be taken over by adopt() */
    float left;                     /* at prepare(), of what was seen at the last training */
    unsigned trainings;
    uint64_t trained_at; /* in requests */
    uint32_t trained;    /* when */
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
    double objects = (double)r->capacity * (double)r->requests / r->size_sum;

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
    r->was = fb_alloc_array(CELLS, sizeof *r->was);
    r->was_back = fb_alloc_array(CELLS, sizeof *r->was_back);
    r->utility = fb_alloc_array(CELLS, sizeof *r->utility);
    r->rows = fb_alloc_array(ROWS_MAX, (FB_REUSE_FEATURES + 2) * sizeof *r->rows);
    if (!r->watched || !r->spare || !r->seen || !r->back || !r->all || !r->all_back || !r->was ||
        !r->was_back || !r->utility || !r->rows) {
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
    free(reuse->was);
    free(reuse->was_back);
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
    r->requests++;
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

/* The history of an object whose own does not count. */
static uint8_t first_history(struct fb_reuse *r, uint64_t hash, struct fb_reuse_meta *meta)
{
    if (!take_ghost(r, hash, meta))
        return 0;
    return next_history(r, meta->history, r->now - meta->last);
}

void fb_reuse_hit(struct fb_reuse *reuse, uint64_t hash, uint32_t size, struct fb_reuse_meta *meta)
{
    request(reuse, size, true);
    if (fb_reuse_is_mark(meta->history))
        meta->history = first_history(reuse, hash, meta);
    else
        meta->history = next_history(reuse, meta->history, reuse->now - meta->last);
    note(reuse, hash, size, meta);
}

void fb_reuse_miss(struct fb_reuse *reuse, uint64_t hash, uint32_t size, struct fb_reuse_meta *meta)
{
    request(reuse, size, false);
    meta->history = first_history(reuse, hash, meta);
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
    float *was = r->was;
    float *was_back = r->was_back;

    r->was = r->all;
    r->was_back = r->all_back;
    r->all = was;
    r->all_back = was_back;
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
    double slow = fmin((double)r->requests / 10.0, r->turnover + 20000);

    return (uint32_t)fmin(fmax(fmax(slow, r->turnover / 10), 1000), INT32_MAX);
}

/* What is left of an observation that was made at the last training. */
static float left_since(const struct fb_reuse *r)
{
    return (float)exp2(-(double)(r->now - r->trained) / (HALF_LIFE * r->turnover));
}

static void fade(struct fb_reuse *r)
{
    float left = left_since(r);

    for (size_t i = 0; i < CELLS; i++) {
        r->seen[i] *= left;
        r->back[i] *= left;
    }
    r->trained = r->now;
}

bool fb_reuse_prepare(struct fb_reuse *reuse, uint64_t cached)
{
    double back;

    reuse->cached = cached;
    reuse->turnover = (double)cached / fmax(reuse->miss_ratio, MISS_RATIO_MIN) + 1;
    if (!reuse->ghost)
        make_ghosts(reuse, cached);
    rebuild(reuse, FORGET * reuse->turnover);
    add_open(reuse);
    reuse->left = left_since(reuse);
    reuse->row_count = fill_rows(reuse, &back);
    reuse->due = reuse->now + until_next(reuse);
    return back >= BACK_MIN;
}

static int train(const struct fb_reuse *r, struct fb_boost **ret_model)
{
    const struct fb_boost_options options = {
        .rounds = 20, .depth = 5, .rate = 0.3f, .leaf_min = 16};
    const float *label = r->rows + (size_t)ROWS_MAX * FB_REUSE_FEATURES;

    return fb_boost_train(r->rows, label, label + ROWS_MAX, r->row_count, FB_REUSE_FEATURES,
                          &options, ret_model);
}

/* ---- utility ---- */

/* What an age's hazard is at least. Until the cache has evicted as many objects as it holds, all it
 * knows is from its first fill: it would throw away what is old on no more than the evidence that
 * it has not come back within a time that was too short. */
static float least_hazard(const struct fb_reuse *r, unsigned age)
{
    bool reached = r->reached[age] >= REACHED_MIN;

    if (r->evicted < r->cached)
        return !reached || exp2((age + r->octave2) / 2.0) > YOUNG * (double)r->requests ? HOPE_FIRST
                                                                                        : 0;
    return reached ? 0 : HOPE;
}

/* As `seen` and `back` and the model have it. */
static void hazards(const struct fb_reuse *r, const float *seen, const float *back,
                    unsigned history, unsigned size, float *ret)
{
    float rows[AGES * FB_REUSE_FEATURES];

    for (unsigned age = 0; age < AGES; age++)
        set_features(rows + age * FB_REUSE_FEATURES, history, size, age);
    fb_boost_predict(r->model, rows, AGES, ret);
    for (unsigned age = 0; age < AGES; age++) {
        size_t i = cell(history, size, age);
        float boosted = fminf(fmaxf(ret[age], HAZARD_MIN), 1);

        ret[age] = (back[i] + PRIOR * boosted) / (seen[i] + PRIOR);
    }
}

/* The utility at every age. An object is in the middle of its class: half of the hazard is left. */
static void fill(struct fb_reuse *r, unsigned history, unsigned size)
{
    float hazard[AGES];
    double middle[AGES];
    double near = NEAR * r->turnover;

    hazards(r, r->all, r->all_back, history, size, hazard);
    for (unsigned age = 0; age < AGES; age++) {
        hazard[age] = fmaxf(hazard[age], least_hazard(r, age));
        middle[age] = exp2((age + r->octave2 + 0.5) / 2);
    }
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
    unsigned history = meta->history == FB_REUSE_FRESH ? 0 : meta->history;
    unsigned of_size = size_class(size);
    const float *u;

    if (history == FB_REUSE_PINNED)
        return PINNED_SCORE;
    if (history == FB_REUSE_HELD)
        return HELD_SCORE;
    if (!reuse->model)
        return (float)(1 + (history >> 6)) / ((float)age + 1) / (float)size;
    u = &reuse->utility[cell(history, of_size, age_class(reuse, age))];
    if (isnan(*u))
        fill(reuse, history, of_size);
    return (*u + 1e-6f) / (float)size;
}

/* ---- how good it is ---- */

/* -log2 of the chance that was given to what happened: `back` of `seen` came back. */
static double loss(double hazard, double seen, double back)
{
    double h = fmin(fmax(hazard, HAZARD_MIN), 1 - HAZARD_MIN);

    return -back * log2(h) - (seen - back) * log2(1 - h);
}

/* Open intervals fade as closed ones do, so what was seen since the last training is the difference
 * to what is left of what had been seen then. */
static void judge_row(struct fb_reuse *r, unsigned row, const double by_age[AGES])
{
    const size_t first = (size_t)row * AGES;
    const float left = r->left;
    float hazard[AGES];
    double sum = 0;

    for (unsigned age = 0; age < AGES; age++)
        sum += r->all[first + age] - left * r->was[first + age];
    if (sum < JUDGED_MIN)
        return;
    hazards(r, r->was, r->was_back, row / SIZES, row % SIZES, hazard);
    for (unsigned age = 0; age < AGES; age++) {
        double seen = fmax(r->all[first + age] - left * r->was[first + age], 0);
        double back = r->all_back[first + age] - left * r->was_back[first + age];

        back = fmin(fmax(back, 0), seen);
        r->judged.observations += seen;
        r->judged.loss += loss(hazard[age], seen, back);
        r->judged.loss_by_age += loss(by_age[age], seen, back);
    }
}

/* The model that is about to be replaced, on what has come since. */
static void judge(struct fb_reuse *r)
{
    const float left = r->left;
    double seen[AGES] = {0};
    double by_age[AGES] = {0};

    for (size_t i = 0; i < CELLS; i++) {
        seen[i % AGES] += r->was[i];
        by_age[i % AGES] += r->was_back[i];
    }
    for (unsigned age = 0; age < AGES; age++)
        by_age[age] /= fmax(seen[age], 1);
    r->judged = (struct fb_reuse_quality){r->quality.observations * left, r->quality.loss * left,
                                          r->quality.loss_by_age * left};
    for (unsigned row = 0; row < HISTORIES * SIZES; row++)
        judge_row(r, row, by_age);
}

int fb_reuse_fit(struct fb_reuse *reuse, struct fb_boost **ret_model)
{
    if (reuse->model)
        judge(reuse);
    return train(reuse, ret_model);
}

void fb_reuse_adopt(struct fb_reuse *reuse, struct fb_boost *model)
{
    fb_boost_free(reuse->model);
    reuse->model = model;
    reuse->quality = reuse->judged;
    reuse->trainings++;
    reuse->trained_at = reuse->requests;
    memset(reuse->utility, 0xff, CELLS * sizeof *reuse->utility); /* NaN */
    fade(reuse);
}

int fb_reuse_train(struct fb_reuse *reuse, uint64_t cached)
{
    struct fb_boost *model;
    int rc;

    if (!fb_reuse_prepare(reuse, cached))
        return 0;
    rc = fb_reuse_fit(reuse, &model);
    if (rc == 0)
        fb_reuse_adopt(reuse, model);
    return rc;
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

const char *fb_reuse_feature_name(enum fb_reuse_feature feature)
{
    static const char *const names[FB_REUSE_FEATURES] = {"count", "gap", "gap_before", "size",
                                                         "age"};

    return names[feature];
}

void fb_reuse_quality(const struct fb_reuse *reuse, struct fb_reuse_quality *ret_quality)
{
    double count = fmax(reuse->quality.observations, 1);

    *ret_quality = reuse->quality;
    ret_quality->loss /= count;
    ret_quality->loss_by_age /= count;
}

uint64_t fb_reuse_requests(const struct fb_reuse *reuse)
{
    return reuse->requests;
}

uint64_t fb_reuse_trained_at(const struct fb_reuse *reuse)
{
    return reuse->trained_at;
}

uint32_t fb_reuse_now(const struct fb_reuse *reuse)
{
    return reuse->now;
}

size_t fb_reuse_bytes(const struct fb_reuse *reuse)
{
    return sizeof *reuse + 7 * CELLS * sizeof(float) + 2 * WATCH_SLOTS * sizeof(struct watched) +
           (size_t)ROWS_MAX * (FB_REUSE_FEATURES + 2) * sizeof(float) +
           reuse->ghost_buckets * GHOST_WAYS * sizeof(uint32_t);
}

/* ---- over a restart ---- */

struct saved {
    uint32_t magic;
    uint32_t version;
    uint64_t capacity;
    uint64_t requests;
    uint64_t trained_at;
    uint64_t cached;
    uint64_t evicted;
    uint64_t watch_mask;
    double size_sum;
    double turnover;
    double miss_ratio;
    struct fb_reuse_quality quality;
    int32_t octave2;
    uint32_t trainings;
    uint32_t since_trained; /* requests */
    uint32_t until_due;
    uint32_t watched;
    uint32_t model_bytes;
    /* Then seen, back, the watched, and the model. */
};

static_assert(sizeof(struct saved) == 128, "written to disk");

#define SAVED_MAGIC   0x46425255u /* FBRU */
#define SAVED_VERSION 1

static size_t saved_size(uint32_t watched, uint32_t model_bytes)
{
    return sizeof(struct saved) + 2 * CELLS * sizeof(float) + watched * sizeof(struct watched) +
           model_bytes;
}

size_t fb_reuse_saved_bytes(const struct fb_reuse *reuse)
{
    return saved_size(reuse->watched_count,
                      reuse->model ? (uint32_t)fb_boost_size(reuse->model) : 0);
}

void fb_reuse_save(const struct fb_reuse *reuse, void *ret_bytes)
{
    const struct saved head = {
        .magic = SAVED_MAGIC,
        .version = SAVED_VERSION,
        .capacity = reuse->capacity,
        .requests = reuse->requests,
        .trained_at = reuse->trained_at,
        .cached = reuse->cached,
        .evicted = reuse->evicted,
        .watch_mask = reuse->watch_mask,
        .size_sum = reuse->size_sum,
        .turnover = reuse->turnover,
        .miss_ratio = reuse->miss_ratio,
        .quality = reuse->quality,
        .octave2 = reuse->octave2,
        .trainings = reuse->trainings,
        .since_trained = reuse->now - reuse->trained,
        .until_due = reuse->due - reuse->now,
        .watched = reuse->watched_count,
        .model_bytes = reuse->model ? (uint32_t)fb_boost_size(reuse->model) : 0,
    };
    uint8_t *at = ret_bytes;

    memcpy(at, &head, sizeof head);
    at += sizeof head;
    memcpy(at, reuse->seen, CELLS * sizeof(float));
    at += CELLS * sizeof(float);
    memcpy(at, reuse->back, CELLS * sizeof(float));
    at += CELLS * sizeof(float);
    for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
        struct watched w = reuse->watched[i];

        if (w.hash == 0)
            continue;
        w.last -= reuse->now;
        memcpy(at, &w, sizeof w);
        at += sizeof w;
    }
    if (reuse->model)
        fb_boost_save(reuse->model, at);
}

static bool counts_good(const float *cells)
{
    for (size_t i = 0; i < CELLS; i++) {
        if (!isfinite(cells[i]) || cells[i] < 0)
            return false;
    }
    return true;
}

/* A cache of quite another size has other classes of age. */
static bool head_good(const struct fb_reuse *r, const struct saved *h, size_t size)
{
    return h->magic == SAVED_MAGIC && h->version == SAVED_VERSION && h->watched <= WATCHED_MAX &&
           h->model_bytes <= size && size == saved_size(h->watched, h->model_bytes) &&
           h->trainings > 0 && h->model_bytes > 0 && h->capacity / 2 <= r->capacity &&
           r->capacity / 2 <= h->capacity && h->octave2 >= -AGE_OF_R && h->octave2 < 128 &&
           isfinite(h->size_sum) && h->size_sum >= 0 && h->turnover >= 1 && isfinite(h->turnover) &&
           h->miss_ratio >= 0 && h->miss_ratio <= 1 && isfinite(h->quality.observations) &&
           isfinite(h->quality.loss) && isfinite(h->quality.loss_by_age);
}

static void take_head(struct fb_reuse *r, const struct saved *h)
{
    r->requests = h->requests;
    r->trained_at = h->trained_at;
    r->cached = h->cached;
    r->evicted = h->evicted;
    r->watch_mask = h->watch_mask;
    r->size_sum = h->size_sum;
    r->turnover = h->turnover;
    r->miss_ratio = h->miss_ratio;
    r->quality = h->quality;
    r->judged = h->quality;
    r->octave2 = h->octave2;
    r->trainings = h->trainings;
    r->trained = 0 - h->since_trained;
    r->due = h->until_due;
}

static void take_watched(struct fb_reuse *r, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct watched w, *slot;

        memcpy(&w, bytes + i * sizeof w, sizeof w);
        if (w.hash == 0 || (w.hash & r->watch_mask))
            continue;
        slot = slot_of(r, w.hash);
        r->watched_count += slot->hash == 0;
        *slot = w;
    }
}

int fb_reuse_load(struct fb_reuse *reuse, const void *bytes, size_t size)
{
    const uint8_t *cells = (const uint8_t *)bytes + sizeof(struct saved);
    const uint8_t *watched = cells + 2 * CELLS * sizeof(float);
    struct fb_boost *model;
    struct saved head;
    int rc;

    if (size < saved_size(0, 0))
        return -EINVAL;
    memcpy(&head, bytes, sizeof head);
    if (!head_good(reuse, &head, size))
        return -EINVAL;
    /* Into tables that nobody has looked at yet. */
    memcpy(reuse->was, cells, CELLS * sizeof(float));
    memcpy(reuse->was_back, cells + CELLS * sizeof(float), CELLS * sizeof(float));
    if (!counts_good(reuse->was) || !counts_good(reuse->was_back))
        return -EINVAL;
    rc = fb_boost_load(watched + head.watched * sizeof(struct watched), head.model_bytes, &model);
    if (rc == 0 && fb_boost_features(model) != FB_REUSE_FEATURES) {
        fb_boost_free(model);
        rc = -EINVAL;
    }
    if (rc)
        return rc;
    memcpy(reuse->seen, reuse->was, CELLS * sizeof(float));
    memcpy(reuse->back, reuse->was_back, CELLS * sizeof(float));
    take_head(reuse, &head);
    take_watched(reuse, watched, head.watched);
    reuse->model = model;
    make_ghosts(reuse, reuse->cached);
    add_open(reuse);
    memset(reuse->utility, 0xff, CELLS * sizeof *reuse->utility); /* NaN */
    return 0;
}
