#include "stream/synth.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/hash.h"
#include "core/mem.h"

#define JITTER_MAX 4

struct worker {
    uint32_t batch[FB_SYNTH_BATCH_MAX];
    uint32_t left;
};

struct fb_synth {
    enum fb_synth_kind kind;
    struct fb_rand rand;
    uint32_t items;
    uint32_t *order; /* a permutation of the items, where the kind needs one */
    uint32_t length; /* of the cycle */
    uint32_t at;     /* in the sequence */
    uint32_t stride;
    double skip;
    double hot_share;
    uint32_t hot;
    double *zipf; /* cumulated, ending in 1 */
    uint32_t jitter;
    uint32_t ahead[JITTER_MAX + 1]; /* not yet read, where order is off */
    uint32_t ahead_count;
    unsigned workers;
    uint32_t batch;
    struct worker worker[FB_SYNTH_WORKERS_MAX];
    unsigned turn; /* who takes the next batch */
};

const char *fb_synth_name(enum fb_synth_kind kind)
{
    static const char *const names[] = {
        "sequential, jitter",
        "strided",
        "uniform, no repeats",
        "Zipf 0.9-1.2, scattered",
        "Zipf 0.9-1.2, clustered",
        "hot set",
        "cyclic",
        "Zipf 0.6-0.8, scattered",
    };

    FB_ASSERT((size_t)kind < FB_ARRAY_SIZE(names));
    return names[kind];
}

enum fb_pattern fb_synth_pattern(enum fb_synth_kind kind)
{
    switch (kind) {
    case FB_SYNTH_SEQUENTIAL:
    case FB_SYNTH_STRIDED:
        return FB_PATTERN_SEQUENTIAL;
    case FB_SYNTH_RANDOM:
        return FB_PATTERN_RANDOM;
    case FB_SYNTH_CYCLIC:
        return FB_PATTERN_CYCLIC;
    default:
        return FB_PATTERN_SKEWED;
    }
}

/* ---- parameters ---- */

static uint32_t between(struct fb_rand *r, uint32_t low, uint32_t high)
{
    return low + (uint32_t)fb_rand_below(r, high - low + 1);
}

/* As many of each order of magnitude. */
static uint32_t between_log(struct fb_rand *r, double low, double high)
{
    return (uint32_t)(low * pow(high / low, fb_rand_unit(r)));
}

static void shuffle(struct fb_rand *r, uint32_t *a, uint32_t n)
{
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)fb_rand_below(r, i);
        uint32_t t = a[j];

        a[j] = a[i - 1];
        a[i - 1] = t;
    }
}

static int make_order(struct fb_synth *s, bool shuffled)
{
    s->order = fb_alloc_array(s->items, sizeof *s->order);
    if (!s->order)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->items; i++)
        s->order[i] = i;
    if (shuffled)
        shuffle(&s->rand, s->order, s->items);
    return 0;
}

static int make_zipf(struct fb_synth *s, double low, double high)
{
    double exponent = low + (high - low) * fb_rand_unit(&s->rand);
    double sum = 0;

    s->zipf = fb_alloc_array(s->items, sizeof *s->zipf);
    if (!s->zipf)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->items; i++)
        s->zipf[i] = sum += pow(i + 1, -exponent);
    for (uint32_t i = 0; i < s->items; i++)
        s->zipf[i] /= sum;
    return 0;
}

static int make_cycle(struct fb_synth *s)
{
    bool subset = fb_rand_below(&s->rand, 2);
    bool shuffled = fb_rand_below(&s->rand, 2);
    uint32_t kept = 0;
    int rc;

    s->length = between_log(&s->rand, 20, 2000);
    s->items = subset ? s->length * between(&s->rand, 2, 5) : s->length;
    rc = make_order(s, subset);
    if (rc)
        return rc;
    /* A subset is what a shuffle puts first; without `shuffled` it is read in order. */
    if (subset && !shuffled) {
        for (uint32_t i = 0; i < s->items; i++) {
            if (fb_rand_below(&s->rand, s->items - i) < s->length - kept)
                s->order[kept++] = i;
        }
    } else if (shuffled) {
        shuffle(&s->rand, s->order, s->length);
    }
    return 0;
}

static int set_up(struct fb_synth *s)
{
    struct fb_rand *r = &s->rand;
    int rc;

    switch (s->kind) {
    case FB_SYNTH_SEQUENTIAL:
        s->items = between_log(r, 1000, 100000);
        s->skip = 0.3 * fb_rand_unit(r);
        s->jitter = between(r, 0, JITTER_MAX);
        s->at = (uint32_t)fb_rand_below(r, s->items);
        return 0;
    case FB_SYNTH_STRIDED:
        s->stride = between(r, 2, 64);
        s->items = between_log(r, 10000, 100000);
        s->at = (uint32_t)fb_rand_below(r, s->items);
        return 0;
    case FB_SYNTH_RANDOM:
        s->items = between_log(r, 500, 100000);
        s->at = (uint32_t)fb_rand_below(r, s->items);
        return make_order(s, true);
    case FB_SYNTH_HOT_SET:
        s->items = between_log(r, 1000, 10000);
        s->hot = between_log(r, 10, 100);
        s->hot_share = 0.8 + 0.15 * fb_rand_unit(r);
        return make_order(s, true);
    case FB_SYNTH_CYCLIC:
        return make_cycle(s);
    default:
        s->items = between_log(r, 500, 100000);
        rc = make_order(s, s->kind != FB_SYNTH_CLUSTERED);
        return rc ? rc
                  : make_zipf(s, s->kind == FB_SYNTH_WEAK ? 0.6 : 0.9,
                              s->kind == FB_SYNTH_WEAK ? 0.8 : 1.2);
    }
}

int fb_synth_new(enum fb_synth_kind kind, uint64_t seed, unsigned workers,
                 struct fb_synth **ret_synth)
{
    struct fb_synth *s = fb_alloc(sizeof *s);

    FB_ASSERT(workers >= 1 && workers <= FB_SYNTH_WORKERS_MAX);
    if (!s)
        return -ENOMEM;
    s->kind = kind;
    /* Mixed, or streams of neighbouring seeds would be the same draws, one apart. */
    s->rand.state = fb_mix64(seed * FB_SYNTH_KINDS + (uint64_t)kind + 1);
    s->workers = workers;
    if (set_up(s) != 0) {
        fb_synth_free(s);
        return -ENOMEM;
    }
    /* A loader has at most a quarter of what it goes round in its hands at a time. */
    s->batch = between(&s->rand, 1, FB_SYNTH_BATCH_MAX);
    while (s->length && s->batch > 1 && s->batch * s->workers * 4 > s->length)
        s->batch /= 2;
    while (s->length && s->workers > 1 && s->workers * 4 > s->length)
        s->workers /= 2;
    *ret_synth = s;
    return 0;
}

void fb_synth_free(struct fb_synth *s)
{
    if (!s)
        return;
    free(s->order);
    free(s->zipf);
    free(s);
}

uint32_t fb_synth_items(const struct fb_synth *s)
{
    return s->items;
}

uint32_t fb_synth_patience(const struct fb_synth *s, uint32_t window)
{
    /* One access makes the node, before it has a window; a cycle is asked for after two rounds. */
    return s->length * 2 + window + 1;
}

/* ---- the sequence ---- */

static uint32_t next_zipf(struct fb_synth *s)
{
    double u = fb_rand_unit(&s->rand);
    uint32_t low = 0, high = s->items - 1;

    while (low < high) {
        uint32_t mid = (low + high) / 2;

        if (s->zipf[mid] < u)
            low = mid + 1;
        else
            high = mid;
    }
    return s->order[low];
}

static uint32_t next_scan(struct fb_synth *s)
{
    uint32_t index = s->at % s->items;

    s->at = index + (s->stride ? s->stride : 1);
    while (s->skip > 0 && fb_rand_unit(&s->rand) < s->skip)
        s->at++;
    return index;
}

static uint32_t next_plain(struct fb_synth *s)
{
    uint32_t index;

    switch (s->kind) {
    case FB_SYNTH_SEQUENTIAL:
    case FB_SYNTH_STRIDED:
        return next_scan(s);
    case FB_SYNTH_RANDOM:
        index = s->order[s->at++];
        if (s->at == s->items) {
            shuffle(&s->rand, s->order, s->items);
            s->at = 0;
        }
        return index;
    case FB_SYNTH_HOT_SET:
        if (fb_rand_unit(&s->rand) < s->hot_share)
            return s->order[fb_rand_below(&s->rand, s->hot)];
        return s->order[s->hot + fb_rand_below(&s->rand, s->items - s->hot)];
    case FB_SYNTH_CYCLIC:
        index = s->order[s->at++];
        s->at %= s->length;
        return index;
    default:
        return next_zipf(s);
    }
}

/* Anything of the next few goes first, but nothing waits for more than `jitter` others. */
static uint32_t next_jittered(struct fb_synth *s)
{
    uint32_t pick, index;

    if (!s->jitter)
        return next_plain(s);
    while (s->ahead_count <= s->jitter)
        s->ahead[s->ahead_count++] = next_plain(s);
    pick = (uint32_t)fb_rand_below(&s->rand, 2) ? 0 : between(&s->rand, 0, s->jitter);
    index = s->ahead[pick];
    s->ahead_count--;
    for (uint32_t i = pick; i < s->ahead_count; i++)
        s->ahead[i] = s->ahead[i + 1];
    return index;
}

uint32_t fb_synth_next(struct fb_synth *s, uint32_t *ret_worker)
{
    unsigned who = (unsigned)fb_rand_below(&s->rand, s->workers);
    struct worker *w = &s->worker[who];

    *ret_worker = who;
    if (s->workers == 1)
        return next_jittered(s);
    /* Batches are handed out in turn: those whose turn comes first get theirs now. */
    while (w->left == 0) {
        struct worker *next = &s->worker[s->turn++ % s->workers];

        if (next->left) {
            who = (unsigned)(next - s->worker);
            *ret_worker = who;
            s->turn--;
            w = next;
            break;
        }
        next->left = s->batch;
        for (uint32_t i = 0; i < s->batch; i++)
            next->batch[s->batch - 1 - i] = next_jittered(s);
    }
    return w->batch[--w->left];
}

void fb_synth_fact(struct fb_synth *s, enum fb_synth_form form, uint32_t number,
                   char path[FB_SYNTH_PATH_MAX], struct fb_fact *ret_fact)
{
    uint32_t worker;
    uint32_t index = fb_synth_next(s, &worker);
    int len = snprintf(path, FB_SYNTH_PATH_MAX, "sets/d%u", number);

    *ret_fact = (struct fb_fact){
        .path = path,
        .pid = 1000 + number * FB_SYNTH_WORKERS_MAX + worker,
        .blocks = 1,
        .position = FB_POSITION_UNKNOWN,
    };
    if (form == FB_SYNTH_BLOCKS) {
        ret_fact->block = index;
        ret_fact->blocks = s->items > 1 ? s->items : 2;
    } else if (form == FB_SYNTH_LISTED) {
        ret_fact->position = index;
        len = snprintf(path, FB_SYNTH_PATH_MAX, "sets/d%u/%016llx.jpg", number,
                       (unsigned long long)fb_mix64(index + 1ULL));
    } else {
        len = snprintf(path, FB_SYNTH_PATH_MAX, "sets/d%u/img_%06u.jpg", number, index);
        if (form == FB_SYNTH_UNSORTED)
            ret_fact->position = (uint32_t)(fb_mix64(index + 1ULL) % s->items);
    }
    if (ret_fact->position != FB_POSITION_UNKNOWN)
        ret_fact->siblings = s->items;
    ret_fact->path_len = (uint32_t)len;
}
