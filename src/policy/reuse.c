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
 *     drift: many more requests miss than at the last training: it trains at once, and as often
 *            as in the beginning
 *     utility(history, size, age): walk through the ages to come, with the chance to be back by
 *            then and the time it is held for until then; the best quotient of the two, which is
 *            the best rate of hits; filled for a history when first used
 *
 * The first model comes with the first eviction, even where nothing has come back: then ages up to
 * that of the cache are known to be useless, and those above, of which nothing is known, are not.
 *
 * The cells take 1.6 MB, the watched objects 1.6 MB, ghosts at most 2 bytes for each cached object.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/mem.h"
#include "model/boost.h"
#include "policy/reuse_priv.h"

#define SIZE_FIRST      8 /* octave */
#define ROWS_MAX        8192
#define COUNT_MAX       3
#define NO_GAP          8     /* the class of a gap that there was not */
#define PRIOR           10.0f /* observations that the boosted hazard is worth */
#define REACHED_MIN     30    /* observations of an age, or nothing is known of it */
#define HOPE_FIRST      0.9f  /* of ages above YOUNG of all time, in the first generation */
#define YOUNG           0.3
#define HOPE            0.1f
#define UTILITY_MIN     1e-6 /* hits in a turnover */
#define HALF_LIFE       4.0  /* turnovers */
#define FORGET          16.0 /* turnovers after which a watched object is given up */
#define SETTLED         1024 /* requests after which the unit of time is known */
#define FORGET_MIN      1000 /* requests, added to a turnover there, for caches of few objects */
#define STEP_MIN        200  /* requests between trainings */
#define MISS_RATIO_STEP 1e-4
#define MISS_RATIO_MIN  0.01
#define DRIFT           0.1 /* misses of a request, more than at the last training */
#define RECENT          0.1 /* turnovers, */
#define RECENT_MIN      100 /* and at least so many requests, are recent */
#define CALM            0.3 /* turnovers after a training in which there is no drift */
#define GHOSTS          0.9 /* of the objects in the cache, */
#define GHOSTS_MIN      0.7 /* and at least so many */
#define HELD_SCORE      10  /* what is learned is a rate, of a few hits a request at most */
#define PINNED_SCORE    1000

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

static void set_features(float *row, unsigned history, unsigned size, unsigned age)
{
    unsigned count = history >> 6;

    row[FB_REUSE_COUNT] = (float)count;
    row[FB_REUSE_GAP] = (float)(count > 0 ? history >> 3 & 7 : NO_GAP);
    row[FB_REUSE_GAP_BEFORE] = (float)(count > 1 ? history & 7 : NO_GAP);
    row[FB_REUSE_SIZE] = (float)size;
    row[FB_REUSE_AGE] = (float)age;
}

/* R from the mean size; once there is a model it stays, for the classes hang on it. A unit of time
 * is R / 256 or so; what was noted in another unit would be misread, so it is changed only in the
 * very beginning, or when it is quite wrong. */
static void place_classes(struct fb_reuse *r)
{
    double objects = (double)r->capacity * (double)r->requests / fmax(r->size_sum, 1);
    unsigned shift;

    r->octave2 = half_octave((uint64_t)fmax(objects, 1)) - AGE_OF_R;
    shift = fb_reuse_shift_of(r);
    if (r->requests < SETTLED || shift > r->shift + 2 || r->shift > shift + 2)
        r->shift = shift;
}

uint16_t fb_reuse_now(const struct fb_reuse *reuse)
{
    return (uint16_t)(reuse->now >> reuse->shift);
}

/* In requests. */
static uint32_t age_of(const struct fb_reuse *r, const struct fb_reuse_meta *meta)
{
    return (uint32_t)(uint16_t)(fb_reuse_now(r) - meta->last) << r->shift;
}

/* ---- life ---- */

int fb_reuse_create(uint64_t capacity, struct fb_reuse **ret_reuse)
{
    struct fb_reuse *r = fb_alloc(sizeof *r);

    if (!r)
        return -ENOMEM;
    r->capacity = capacity;
    r->miss_ratio = 1;
    r->recent = 1;
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
    fb_reuse_ghosts_free(&reuse->ghosts);
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
    float *first = &seen[fb_reuse_cell(w->history, size_class(w->size), 0)];

    for (unsigned age = 0; age < passed; age++)
        first[age] += weight;
}

struct watched *fb_reuse_slot_of(struct fb_reuse *r, uint64_t hash)
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
        *fb_reuse_slot_of(r, w.hash) = w;
        r->watched_count++;
    }
}

/* The object's interval ends here, and another begins with `history`. */
static void watch(struct fb_reuse *r, uint64_t hash, uint32_t size, uint8_t history)
{
    struct watched *w = fb_reuse_slot_of(r, hash);

    if (w->hash) {
        unsigned age = age_class(r, r->now - w->last);

        observe(r->seen, w, age + 1, 1);
        r->back[fb_reuse_cell(w->history, size_class(w->size), age)] += 1;
    } else if (r->watched_count == WATCHED_MAX) {
        r->watch_mask = 2 * r->watch_mask + 1;
        rebuild(r, UINT32_MAX);
        return;
    } else {
        r->watched_count++;
    }
    *w = (struct watched){hash, r->now, size, history};
}

/* ---- requests ---- */

static void request(struct fb_reuse *r, uint32_t size, bool hit)
{
    r->now++;
    r->requests++;
    r->miss_ratio += ((hit ? 0 : 1) - r->miss_ratio) * MISS_RATIO_STEP;
    r->recent += ((hit ? 0 : 1) - r->recent) * r->recent_step;
    r->size_sum += size;
    if (r->trainings == 0)
        place_classes(r);
}

static void note(struct fb_reuse *r, uint64_t hash, uint32_t size, struct fb_reuse_meta *meta)
{
    meta->last = fb_reuse_now(r);
    if ((hash & r->watch_mask) == 0 && hash != 0)
        watch(r, hash, size, meta->history);
}

/* In the middle of its class. */
static double gap_of(const struct fb_reuse *r, unsigned class)
{
    static const uint8_t age2[] = {6, 15, 21, 26, 30, 35, 41, 47}; /* quarters of an octave */

    return exp2((age2[class] + 2 * r->octave2) / 4.0);
}

static uint64_t ghosts_of(const struct fb_reuse *r)
{
    return fb_reuse_ghosts_bytes(&r->ghosts) / FB_REUSE_GHOST;
}

/* The history of an object whose own does not count. */
static uint8_t first_history(struct fb_reuse *r, uint64_t hash)
{
    struct fb_reuse_ghost ghost;
    double left; /* objects, since it did */
    double gap;

    if (!fb_reuse_ghosts_take(&r->ghosts, hash, &ghost))
        return 0;
    left = ghost.since * (double)ghosts_of(r);
    gap = gap_of(r, ghost.age) + left / (double)fb_max_u64(r->cached, 1) * r->turnover;
    return next_history(r, (uint8_t)(ghost.history << 3), (uint32_t)fmin(gap, UINT32_MAX));
}

void fb_reuse_hit(struct fb_reuse *reuse, uint64_t hash, uint32_t size, struct fb_reuse_meta *meta)
{
    request(reuse, size, true);
    if (fb_reuse_is_mark(meta->history))
        meta->history = first_history(reuse, hash);
    else
        meta->history = next_history(reuse, meta->history, age_of(reuse, meta));
    note(reuse, hash, size, meta);
}

void fb_reuse_miss(struct fb_reuse *reuse, uint64_t hash, uint32_t size, struct fb_reuse_meta *meta)
{
    request(reuse, size, false);
    meta->history = first_history(reuse, hash);
    note(reuse, hash, size, meta);
}

/* ---- ghosts ---- */

/* Never more than there are objects in the cache, so that an object takes 5 bytes at most; somewhat
 * fewer, so that not every change of their number is one of the ghosts'. A cache that has grown, as
 * when a disk fills up behind DRAM, has too few. */
static void fit_ghosts(struct fb_reuse *r, uint64_t cached)
{
    uint64_t ghosts = ghosts_of(r);

    if (ghosts > cached || (double)ghosts < GHOSTS_MIN * (double)cached)
        fb_reuse_ghosts_resize(&r->ghosts, (uint64_t)(GHOSTS * (double)cached));
}

void fb_reuse_evicted(struct fb_reuse *reuse, uint64_t cached, uint64_t hash,
                      const struct fb_reuse_meta *meta)
{
    const struct fb_reuse_ghost ghost = {
        .history = meta->history >> 3,
        .age = (uint8_t)gap_class(reuse, age_of(reuse, meta)),
    };

    reuse->evicted++;
    if (reuse->trainings > 0)
        fit_ghosts(reuse, cached);
    fb_reuse_ghosts_add(&reuse->ghosts, hash, &ghost);
}

/* ---- training ---- */

/* What was asked for is not asked for any more: many more requests miss than at the last training.
 * Not right after it, for that takes time to tell. */
static bool has_drifted(const struct fb_reuse *r)
{
    return r->trainings > 0 && (int32_t)(r->now - r->calm_until) >= 0 &&
           r->recent > r->usual + DRIFT;
}

void fb_reuse_calm(struct fb_reuse *r)
{
    r->usual = r->recent;
    r->recent_step = 1 / fmax(RECENT * r->turnover, RECENT_MIN);
    r->calm_until = r->now + (uint32_t)fmin(fmax(CALM * r->turnover, STEP_MIN), INT32_MAX);
}

bool fb_reuse_due(const struct fb_reuse *reuse)
{
    return reuse->due == 0 || (int32_t)(reuse->now - reuse->due) >= 0 || has_drifted(reuse);
}

/* All observations, with those of open intervals, which fade with their age as the others did. */
void fb_reuse_add_open(struct fb_reuse *r)
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
static size_t fill_rows(struct fb_reuse *r)
{
    float *label = r->rows + (size_t)ROWS_MAX * FB_REUSE_FEATURES;
    float *weight = label + ROWS_MAX;
    size_t count = 0;

    for (size_t i = 0; i < CELLS && count < ROWS_MAX; i++) {
        if (r->all[i] < 0.05f)
            continue;
        set_features(r->rows + count * FB_REUSE_FEATURES, (unsigned)(i / AGES / SIZES),
                     (unsigned)(i / AGES % SIZES), (unsigned)(i % AGES));
        label[count] = r->all_back[i] / r->all[i];
        weight[count] = r->all[i];
        count++;
    }
    return count;
}

/* Often in the beginning and after a drift, then once a turnover or so. */
static uint32_t until_next(const struct fb_reuse *r)
{
    double slow = fmin((double)(r->requests - r->drifted_at) / 10.0, r->turnover + 20000);

    return (uint32_t)fmin(fmax(fmax(slow, r->turnover / 10), STEP_MIN), INT32_MAX);
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
    if (has_drifted(reuse))
        reuse->drifted_at = reuse->requests;
    reuse->cached = cached;
    reuse->turnover = (double)cached / fmax(reuse->miss_ratio, MISS_RATIO_MIN) + 1;
    fit_ghosts(reuse, cached);
    rebuild(reuse, FORGET * (reuse->turnover + FORGET_MIN));
    fb_reuse_add_open(reuse);
    reuse->left = left_since(reuse);
    reuse->row_count = fill_rows(reuse);
    reuse->due = reuse->now + until_next(reuse);
    fb_reuse_calm(reuse);
    return reuse->row_count > 0;
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

void fb_reuse_hazards(const struct fb_reuse *r, const float *seen, const float *back,
                      unsigned history, unsigned size, float ret[AGES])
{
    float rows[AGES * FB_REUSE_FEATURES];

    for (unsigned age = 0; age < AGES; age++)
        set_features(rows + age * FB_REUSE_FEATURES, history, size, age);
    fb_boost_predict(r->model, rows, AGES, ret);
    for (unsigned age = 0; age < AGES; age++) {
        size_t i = fb_reuse_cell(history, size, age);
        float boosted = fminf(fmaxf(ret[age], HAZARD_MIN), 1);

        ret[age] = (back[i] + PRIOR * boosted) / (seen[i] + PRIOR);
    }
}

void fb_reuse_forget_utilities(struct fb_reuse *r)
{
    memset(r->utility, 0xff, CELLS * sizeof *r->utility); /* NaN */
}

/* The best rate of hits that can be had from an object in the middle of class `age`, by holding it
 * for as long as is best and no longer: the most, over all times to give it up, of the chance that
 * it is back by then, over the requests for which it is expected to take its room. */
static double best_rate(const struct fb_reuse *r, const float hazard[AGES], unsigned age)
{
    double idle = 1, back = 0, held = 0, best = 0;
    double from = exp2(((int)age + r->octave2 + 0.5) / 2);

    for (unsigned k = age; k < AGES; k++) {
        double to = exp2(((int)k + r->octave2 + 1) / 2.0);
        double h = k == age ? hazard[k] / 2 : hazard[k]; /* half of the first class has passed */

        held += idle * (to - from) * (1 - h / 2);
        back += idle * h;
        idle *= 1 - h;
        best = fmax(best, back / held);
        from = to;
    }
    return best;
}

static void fill(struct fb_reuse *r, unsigned history, unsigned size)
{
    float hazard[AGES];

    fb_reuse_hazards(r, r->all, r->all_back, history, size, hazard);
    for (unsigned age = 0; age < AGES; age++)
        hazard[age] = fmaxf(hazard[age], least_hazard(r, age));
    for (unsigned age = 0; age < AGES; age++)
        r->utility[fb_reuse_cell(history, size, age)] =
            (float)(best_rate(r, hazard, age) + UTILITY_MIN / r->turnover);
}

float fb_reuse_score(struct fb_reuse *reuse, const struct fb_reuse_meta *meta, uint32_t size)
{
    uint32_t age = age_of(reuse, meta);
    unsigned history = meta->history == FB_REUSE_FRESH ? 0 : meta->history;
    unsigned of_size = size_class(size);
    const float *u;

    if (history == FB_REUSE_PINNED)
        return PINNED_SCORE;
    if (history == FB_REUSE_HELD)
        return HELD_SCORE;
    if (!reuse->model)
        return (float)(1 + (history >> 6)) / ((float)age + 1) / (float)size;
    u = &reuse->utility[fb_reuse_cell(history, of_size, age_class(reuse, age))];
    if (isnan(*u))
        fill(reuse, history, of_size);
    return *u / (float)size;
}

int fb_reuse_fit(struct fb_reuse *reuse, struct fb_boost **ret_model)
{
    if (reuse->model)
        fb_reuse_judge(reuse);
    return train(reuse, ret_model);
}

void fb_reuse_adopt(struct fb_reuse *reuse, struct fb_boost *model)
{
    fb_boost_free(reuse->model);
    reuse->model = model;
    reuse->quality = reuse->judged;
    reuse->trainings++;
    reuse->trained_at = reuse->requests;
    fb_reuse_forget_utilities(reuse);
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

uint64_t fb_reuse_requests(const struct fb_reuse *reuse)
{
    return reuse->requests;
}

uint64_t fb_reuse_trained_at(const struct fb_reuse *reuse)
{
    return reuse->trained_at;
}

size_t fb_reuse_rows(const struct fb_reuse *reuse)
{
    return reuse->row_count;
}

size_t fb_reuse_bytes(const struct fb_reuse *reuse)
{
    return sizeof *reuse + 7 * CELLS * sizeof(float) + 2 * WATCH_SLOTS * sizeof(struct watched) +
           (size_t)ROWS_MAX * (FB_REUSE_FEATURES + 2) * sizeof(float) +
           fb_reuse_ghosts_bytes(&reuse->ghosts);
}

size_t fb_reuse_ghost_bytes(const struct fb_reuse *reuse)
{
    return fb_reuse_ghosts_bytes(&reuse->ghosts);
}
