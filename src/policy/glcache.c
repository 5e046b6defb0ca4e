/*
 * GL-Cache's learning.
 *
 *     an interval: in its first half, sample groups at 32 moments; at its end, train
 *     sample(group): copy the features into a row; the group's turn changes, so that no object has
 *         counted in it
 *     request for an object of a sampled group, or for its ghost, that has not counted in it:
 *         row's label += 1 / (size * (time since the sampling + a tenth of the interval)); it has
 *         counted
 *     train: boost labels over features, forget all samplings and ghosts
 *     drift: many more requests miss than when the interval began, and go on missing; and of the
 *         groups that were there when they rose only the youngest have been asked for since, or
 *         none, whatever the model said of them: forget all rows and the model, and begin anew,
 *         with the short intervals of the beginning
 *     burst: they rise, and old groups are asked for as before: nothing is forgotten
 *     rank: predict for all groups, divide by their bytes, sort, hand out the first share `evict`
 */
#include "policy/glcache.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/rand.h"
#include "core/mem.h"
#include "model/boost.h"

#define ROWS_MAX       2048
#define ROWS_MIN       32 /* for a model */
#define GHOSTS_MAX     32768
#define GHOST_SLOTS    (2 * GHOSTS_MAX)
#define GHOST_BITS     18     /* of a hash */
#define WINDOW         10000u /* requests */
#define MOMENTS        32
#define INTERVAL_MIN   2000.0
#define INTERVAL_LATE  20.0 /* at most this part of all time so far */
#define LATE_MAX       8.0  /* turnovers */
#define MISS_RATIO_MIN 0.01
#define SOON           0.1  /* of an interval */
#define DRIFT          0.1f /* misses of a request, more than at the last training */
#define LOOK           0.25 /* of the cache's objects, */
#define LOOK_MIN       400  /* and at least so many, are missed in a look */
#define SUSPECTS       256  /* groups on which the model is tried */
#define PAIRS_MIN      32   /* pairs of them, of which one was asked for more */
#define HITS_MIN       32   /* in a look: some would be old groups', were these alive */
#define YOUNGER        0.8  /* of the pairs: only what is new is asked for */

struct ghost {
    uint64_t hash; /* 0: free */
    uint32_t row;
};

struct ranked {
    float score;
    uint32_t group;
};

/* What was said of a group when misses had risen. */
struct suspect {
    uint32_t group;
    uint32_t opened; /* what it was; another group may be in its place by now */
    uint32_t requests;
    float score;
};

struct fb_gl_state {
    struct fb_gl_settings settings;
    struct fb_rand rand;
    struct fb_boost *model;
    unsigned trainings;
    unsigned drifts;

    /* The window: what it began with, and what it said in the end. */
    uint32_t window_start;
    uint32_t window_start_s;
    uint32_t window_misses;
    float request_rate;
    float write_rate;
    float miss_ratio;

    /* A look: what misses now. */
    uint32_t look_start;
    uint32_t look_misses;
    float recent;   /* miss ratio of the last one */
    float usual;    /* what it was when the interval began */
    uint32_t began; /* to learn: at the start, or after a drift */
    struct suspect suspect[SUSPECTS];
    size_t suspects; /* 0: nothing is suspected */

    uint32_t next_sample;
    uint32_t next_train;
    uint32_t sample_end;
    uint32_t moment; /* requests between samplings */
    uint32_t soon;   /* added to all waits */

    float rows[ROWS_MAX * FB_GL_FEATURES];
    float label[ROWS_MAX];
    uint32_t sampled[ROWS_MAX]; /* when */
    size_t row;                 /* the next one to write */
    size_t row_count;
    size_t row_first; /* of this interval */

    struct ghost *ghost; /* open addressing */
    /* A bit for each part of the hashes that a ghost is in, so that most misses, which have none,
     * do not wait for the table to come from memory. */
    uint64_t ghost_bits[(1u << GHOST_BITS) / 64];
    struct ranked *ranked;
    size_t ranked_room;
    float *features; /* of the groups that are ranked */
    size_t victim;
    size_t victims;
};

/* ---- life ---- */

int fb_gl_create(const struct fb_gl_settings *settings, uint64_t seed, struct fb_gl **ret_gl)
{
    struct fb_gl *gl = fb_alloc(sizeof *gl);

    if (!gl)
        return -ENOMEM;
    gl->state = fb_alloc(sizeof *gl->state);
    if (gl->state)
        gl->state->ghost = fb_alloc_array(GHOST_SLOTS, sizeof *gl->state->ghost);
    if (!gl->state || !gl->state->ghost) {
        fb_gl_destroy(gl);
        return -ENOMEM;
    }
    gl->state->settings = *settings;
    gl->state->rand.state = seed;
    gl->state->miss_ratio = 1;
    gl->state->recent = 1;
    *ret_gl = gl;
    return 0;
}

void fb_gl_destroy(struct fb_gl *gl)
{
    if (!gl)
        return;
    if (gl->state) {
        fb_boost_free(gl->state->model);
        free(gl->state->ghost);
        free(gl->state->ranked);
        free(gl->state->features);
    }
    free(gl->state);
    free(gl->group);
    free(gl);
}

int fb_gl_reserve(struct fb_gl *gl, size_t groups)
{
    struct fb_gl_group *grown;

    if (groups <= gl->groups)
        return 0;
    grown = fb_alloc_array(groups, sizeof *grown);
    if (!grown)
        return -ENOMEM;
    if (gl->groups > 0)
        memcpy(grown, gl->group, gl->groups * sizeof *grown);
    free(gl->group);
    gl->group = grown;
    gl->groups = groups;
    return 0;
}

/* ---- groups ---- */

void fb_gl_open(struct fb_gl *gl, uint32_t group)
{
    struct fb_gl_state *s = gl->state;

    gl->group[group] = (struct fb_gl_group){.request_rate = s->request_rate,
                                            .write_rate = s->write_rate,
                                            .miss_ratio = s->miss_ratio,
                                            .opened = gl->now,
                                            .row = FB_GL_NONE,
                                            .used = true,
                                            .open = true};
}

void fb_gl_close(struct fb_gl *gl, uint32_t group)
{
    gl->group[group].open = false;
}

void fb_gl_merge(struct fb_gl *gl, const uint32_t *merged, unsigned count, uint32_t group)
{
    struct fb_gl_group mean = {.opened = gl->now, .row = FB_GL_NONE, .used = true};
    double requests = 0;
    double active = 0;

    for (unsigned i = 0; i < count; i++) {
        const struct fb_gl_group *g = &gl->group[merged[i]];

        mean.request_rate += g->request_rate / (float)count;
        mean.write_rate += g->write_rate / (float)count;
        mean.miss_ratio += g->miss_ratio / (float)count;
        requests += (double)g->requests / count;
        active += (double)g->active / count;
    }
    mean.requests = (uint32_t)requests;
    mean.active = (uint32_t)active;
    for (unsigned i = 0; i < count; i++)
        gl->group[merged[i]].used = false;
    gl->group[group] = mean;
}

void fb_gl_add(struct fb_gl *gl, uint32_t group, uint32_t size, struct fb_gl_meta *meta)
{
    gl->group[group].objects++;
    gl->group[group].size += size;
    meta->mark = 0;
}

/* ---- labels ---- */

static void add_label(struct fb_gl *gl, uint32_t row, uint32_t size)
{
    uint32_t wait = gl->now - gl->state->sampled[row] + gl->state->soon;

    gl->state->label[row] += 1.0f / ((float)size * (float)(wait + 1));
}

void fb_gl_count(struct fb_gl *gl, struct fb_gl_group *group, uint32_t size,
                 struct fb_gl_meta *meta)
{
    if ((meta->mark & FB_GL_TURNS) == group->turn)
        return;
    meta->mark = (uint8_t)((meta->mark & FB_GL_ACTIVE_BIT) | group->turn);
    add_label(gl, group->row, size);
}

static struct ghost *ghost_slot(struct fb_gl_state *s, uint64_t hash)
{
    uint64_t i = hash;

    while (s->ghost[i % GHOST_SLOTS].hash != 0 && s->ghost[i % GHOST_SLOTS].hash != hash)
        i++;
    return &s->ghost[i % GHOST_SLOTS];
}

static uint64_t *ghost_bits(struct fb_gl_state *s, uint64_t hash, uint64_t *ret_bit)
{
    uint64_t part = hash >> (64 - GHOST_BITS);

    *ret_bit = 1ull << part % 64;
    return &s->ghost_bits[part / 64];
}

void fb_gl_evicted(struct fb_gl *gl, uint32_t group, uint64_t hash, const struct fb_gl_meta *meta)
{
    const struct fb_gl_group *g = &gl->group[group];
    struct ghost *ghost;
    uint64_t bit;

    if (g->row == FB_GL_NONE || (meta->mark & FB_GL_TURNS) == g->turn || gl->ghosts == GHOSTS_MAX ||
        hash == 0)
        return;
    ghost = ghost_slot(gl->state, hash);
    if (ghost->hash == 0)
        gl->ghosts++;
    *ghost = (struct ghost){hash, g->row};
    *ghost_bits(gl->state, hash, &bit) |= bit;
}

/* A ghost counts once: its row is taken from it, its place stays until the training. */
void fb_gl_ghost(struct fb_gl *gl, uint64_t hash, uint32_t size)
{
    struct ghost *ghost;
    uint64_t bit;

    if (!(*ghost_bits(gl->state, hash, &bit) & bit))
        return;
    ghost = ghost_slot(gl->state, hash);
    if (ghost->hash == 0 || ghost->row == FB_GL_NONE)
        return;
    add_label(gl, ghost->row, size);
    ghost->row = FB_GL_NONE;
}

/* ---- requests ---- */

static void close_window(struct fb_gl *gl, uint32_t now_s)
{
    struct fb_gl_state *s = gl->state;
    float requests = (float)(gl->now - s->window_start);
    float seconds = (float)(now_s - s->window_start_s);

    if (seconds < 1)
        seconds = 1;
    s->request_rate = requests / seconds;
    s->write_rate = (float)s->window_misses / seconds;
    s->miss_ratio = (float)s->window_misses / requests;
    s->window_start = gl->now;
    s->window_start_s = now_s;
    s->window_misses = 0;
}

void fb_gl_miss(struct fb_gl *gl, uint64_t hash, uint32_t size, uint32_t now_s,
                struct fb_gl_meta *meta)
{
    gl->now++;
    meta->last = gl->now;
    gl->state->window_misses++;
    gl->state->look_misses++;
    if (gl->now - gl->state->window_start >= WINDOW)
        close_window(gl, now_s);
    if (gl->ghosts > 0)
        fb_gl_ghost(gl, hash, size);
}

/* ---- training ---- */

static void set_features(const struct fb_gl *gl, const struct fb_gl_group *g, float *row)
{
    row[FB_GL_REQUEST_RATE] = g->request_rate;
    row[FB_GL_WRITE_RATE] = g->write_rate;
    row[FB_GL_MISS_RATIO] = g->miss_ratio;
    row[FB_GL_SIZE] = g->objects ? (float)g->size / (float)g->objects : 0;
    row[FB_GL_AGE] = (float)(gl->now - g->opened);
    row[FB_GL_REQUESTS] = (float)g->requests;
    row[FB_GL_ACTIVE] = (float)g->active;
    for (unsigned i = 0; i < FB_GL_FEATURES; i++) {
        if (!(gl->state->settings.features & 1u << i))
            row[i] = 0;
    }
}

static void sample(struct fb_gl *gl, struct fb_gl_group *g)
{
    struct fb_gl_state *s = gl->state;
    size_t row = s->row % ROWS_MAX;

    set_features(gl, g, s->rows + row * FB_GL_FEATURES);
    s->label[row] = 0;
    s->sampled[row] = gl->now;
    s->row++;
    if (s->row_count < ROWS_MAX)
        s->row_count++;
    g->row = (uint32_t)row;
    g->turn = (uint8_t)(g->turn % FB_GL_TURNS + 1);
}

/* A thirty-second of the groups, at most as many as fit into half of the rows by the end. */
static void sample_some(struct fb_gl *gl)
{
    size_t wanted = gl->groups / MOMENTS + 1;

    if (wanted > ROWS_MAX / 2 / MOMENTS)
        wanted = ROWS_MAX / 2 / MOMENTS;
    for (size_t tries = 2 * wanted; tries > 0 && wanted > 0; tries--) {
        struct fb_gl_group *g = &gl->group[fb_rand_below(&gl->state->rand, gl->groups)];

        if (!g->used || g->open || g->row != FB_GL_NONE || g->objects == 0)
            continue;
        sample(gl, g);
        wanted--;
    }
}

static void forget_samples(struct fb_gl *gl)
{
    for (size_t i = 0; i < gl->groups; i++)
        gl->group[i].row = FB_GL_NONE;
    if (gl->ghosts > 0) {
        memset(gl->state->ghost, 0, GHOST_SLOTS * sizeof *gl->state->ghost);
        memset(gl->state->ghost_bits, 0, sizeof gl->state->ghost_bits);
    }
    gl->ghosts = 0;
}

static int train(struct fb_gl *gl)
{
    const struct fb_boost_options options = {.rounds = 12, .depth = 4, .rate = 0.3f, .leaf_min = 8};
    struct fb_gl_state *s = gl->state;
    struct fb_boost *model;
    int rc;

    if (s->row_count < ROWS_MIN)
        return 0;
    rc = fb_boost_train(s->rows, s->label, NULL, s->row_count, FB_GL_FEATURES, &options, &model);
    if (rc)
        return rc;
    fb_boost_free(s->model);
    s->model = model;
    s->trainings++;
    s->victims = s->victim = 0;
    return 0;
}

static void plan_interval(struct fb_gl *gl, uint64_t cached)
{
    struct fb_gl_state *s = gl->state;
    double turnover = (double)cached / fmax(s->miss_ratio, MISS_RATIO_MIN);
    double late = fmin((gl->now - s->began) / INTERVAL_LATE, LATE_MAX * turnover);
    double interval = fmax(turnover / 2, late);

    if (s->settings.interval > 0)
        interval = s->settings.interval * turnover;
    interval = fmin(fmax(interval, INTERVAL_MIN), INT32_MAX);
    s->soon = (uint32_t)(SOON * interval);
    s->moment = (uint32_t)(interval / 2 / MOMENTS) + 1;
    s->next_sample = gl->now;
    s->sample_end = gl->now + (uint32_t)(interval / 2);
    s->next_train = gl->now + (uint32_t)interval;
    if (s->suspects == 0) /* else it is not known yet whether this is usual */
        s->usual = s->recent;
}

/* ---- drift ---- */

static bool can_go(const struct fb_gl_group *g)
{
    return g->used && !g->open && g->objects > 0;
}

/* A model may say less than nothing of the worst: they stay the worst. */
static float per_byte(float utility, uint64_t size)
{
    return utility > 0 ? utility / (float)size : utility * (float)size;
}

/* Remembers what the model says of the groups; of many groups, of some. */
static void suspect(struct fb_gl *gl)
{
    struct fb_gl_state *s = gl->state;
    float features[SUSPECTS * FB_GL_FEATURES];
    float score[SUSPECTS];
    size_t step = gl->groups / SUSPECTS + 1;

    s->suspects = 0;
    for (size_t i = 0; i < gl->groups; i += step) {
        const struct fb_gl_group *g = &gl->group[i];

        if (!can_go(g))
            continue;
        set_features(gl, g, features + s->suspects * FB_GL_FEATURES);
        s->suspect[s->suspects++] =
            (struct suspect){.group = (uint32_t)i, .opened = g->opened, .requests = g->requests};
    }
    fb_boost_predict(s->model, features, s->suspects, score);
    for (size_t i = 0; i < s->suspects; i++)
        s->suspect[i].score = per_byte(score[i], gl->group[s->suspect[i].group].size);
}

/* Those that are still there, with the requests for a byte since. */
static size_t remaining(const struct fb_gl *gl, const struct suspect *ret_left[SUSPECTS],
                        double ret_asked[SUSPECTS])
{
    const struct fb_gl_state *s = gl->state;
    size_t n = 0;

    for (size_t i = 0; i < s->suspects; i++) {
        const struct suspect *x = &s->suspect[i];
        const struct fb_gl_group *g = &gl->group[x->group];

        if (!can_go(g) || g->opened != x->opened)
            continue;
        ret_left[n] = x;
        ret_asked[n++] = (double)(g->requests - x->requests) / (double)g->size;
    }
    return n;
}

enum verdict {
    UNKNOWN,
    DRIFTED,
    BURST,
};

/* Of all pairs of which one was asked for more, how often did the model say so, and how often is it
 * the younger? Without pairs nobody asks for what is old; there may be hits on what came since. */
static enum verdict try_model(const struct fb_gl *gl, uint32_t hits)
{
    const struct suspect *left[SUSPECTS];
    double asked[SUSPECTS];
    size_t n = remaining(gl, left, asked);
    size_t pairs = 0;
    size_t said = 0;
    size_t younger = 0;

    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            if (asked[i] <= asked[j])
                continue;
            pairs++;
            said += left[i]->score > left[j]->score;
            younger += (int32_t)(left[i]->opened - left[j]->opened) > 0;
        }
    }
    if (pairs < PAIRS_MIN)
        return hits < HITS_MIN ? UNKNOWN : DRIFTED;
    return said < younger && (double)younger > YOUNGER * (double)pairs ? DRIFTED : BURST;
}

/* A rise of the misses alone may be a burst, after which all is as before. */
static bool has_drifted(struct fb_gl *gl, uint64_t cached)
{
    struct fb_gl_state *s = gl->state;
    enum verdict verdict = UNKNOWN;
    uint32_t requests = gl->now - s->look_start;
    uint32_t hits = requests - s->look_misses;

    if (s->look_misses < fmax(LOOK * (double)cached, LOOK_MIN))
        return false;
    s->recent = (float)s->look_misses / (float)requests;
    s->look_start = gl->now;
    s->look_misses = 0;
    if (!s->model || s->recent <= s->usual + DRIFT) {
        s->suspects = 0;
        return false;
    }
    if (s->suspects > 0)
        verdict = try_model(gl, hits);
    if (verdict == UNKNOWN) {
        suspect(gl);
    } else {
        s->suspects = 0;
        s->usual = s->recent; /* not to be asked again before it rises further */
    }
    return verdict == DRIFTED;
}

/* Without a model the groups go in turn, which is better than one that is wrong. */
static void begin_anew(struct fb_gl *gl)
{
    struct fb_gl_state *s = gl->state;

    fb_boost_free(s->model);
    s->model = NULL;
    s->row = s->row_count = 0;
    s->victims = s->victim = 0;
    s->began = gl->now;
    s->suspects = 0;
    s->drifts++;
}

int fb_gl_step(struct fb_gl *gl, uint64_t cached)
{
    struct fb_gl_state *s = gl->state;
    int rc = 0;

    if (has_drifted(gl, cached)) {
        begin_anew(gl);
        forget_samples(gl);
        plan_interval(gl, cached);
    } else if (s->moment == 0) {
        plan_interval(gl, cached);
    } else if ((int32_t)(gl->now - s->next_train) >= 0) {
        rc = train(gl);
        forget_samples(gl);
        plan_interval(gl, cached);
    }
    if ((int32_t)(gl->now - s->next_sample) >= 0 && (int32_t)(gl->now - s->sample_end) < 0) {
        sample_some(gl);
        s->next_sample = gl->now + s->moment;
    }
    return rc;
}

/* ---- ranking ---- */

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a;
    const struct ranked *y = b;

    if (x->score != y->score)
        return x->score < y->score ? -1 : 1;
    return x->group < y->group ? -1 : x->group > y->group;
}

static int grow_ranking(struct fb_gl *gl)
{
    struct fb_gl_state *s = gl->state;

    if (gl->groups <= s->ranked_room)
        return 0;
    free(s->ranked);
    free(s->features);
    s->ranked = fb_alloc_array(gl->groups, sizeof *s->ranked);
    s->features = fb_alloc_array(gl->groups, (FB_GL_FEATURES + 1) * sizeof *s->features);
    s->ranked_room = s->ranked && s->features ? gl->groups : 0;
    return s->ranked_room ? 0 : -ENOMEM;
}

static int rank(struct fb_gl *gl)
{
    struct fb_gl_state *s = gl->state;
    float *scores;
    size_t count = 0;
    int rc = grow_ranking(gl);

    if (rc)
        return rc;
    for (uint32_t i = 0; i < gl->groups; i++) {
        if (!can_go(&gl->group[i]))
            continue;
        set_features(gl, &gl->group[i], s->features + count * FB_GL_FEATURES);
        s->ranked[count++].group = i;
    }
    scores = s->features + gl->groups * FB_GL_FEATURES;
    fb_boost_predict(s->model, s->features, count, scores);
    for (size_t i = 0; i < count; i++)
        s->ranked[i].score = per_byte(scores[i], gl->group[s->ranked[i].group].size);
    if (count > 1)
        qsort(s->ranked, count, sizeof *s->ranked, by_score);
    s->victim = 0;
    s->victims = (size_t)(s->settings.evict * (double)count);
    if (s->victims == 0 && count > 0)
        s->victims = 1;
    /* Mark what the ranking saw: a slot that is used anew later is another group. */
    for (size_t i = 0; i < s->victims; i++)
        s->ranked[i].score = (float)gl->group[s->ranked[i].group].opened;
    return 0;
}

int fb_gl_victim(struct fb_gl *gl, uint32_t *ret_group)
{
    struct fb_gl_state *s = gl->state;
    bool ranked = false;
    int rc;

    *ret_group = FB_GL_NONE;
    while (s->model) {
        for (; s->victim < s->victims; s->victim++) {
            const struct ranked *r = &s->ranked[s->victim];
            const struct fb_gl_group *g = &gl->group[r->group];

            if (can_go(g) && r->score == (float)g->opened) {
                *ret_group = r->group;
                s->victim++;
                return 0;
            }
        }
        if (ranked)
            break;
        rc = rank(gl);
        if (rc)
            return rc;
        ranked = true;
    }
    return 0;
}

unsigned fb_gl_trainings(const struct fb_gl *gl)
{
    return gl->state->trainings;
}

unsigned fb_gl_drifts(const struct fb_gl *gl)
{
    return gl->state->drifts;
}

void fb_gl_importance(const struct fb_gl *gl, double ret_shares[FB_GL_FEATURES])
{
    memset(ret_shares, 0, FB_GL_FEATURES * sizeof *ret_shares);
    if (gl->state->model)
        fb_boost_importance(gl->state->model, ret_shares);
}
