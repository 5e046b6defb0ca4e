#include "epoch/seed_search.h"

#include <errno.h>
#include <string.h>

#include "core/mem.h"
#include "epoch/seed_prefix.h"
#include "epoch/seed_track.h"
#include "epoch/seed_walk.h"

#define HITS        1024              /* of a scan, before they are looked at */
#define HIT_COST    256               /* seeds that could be scanned in the time a hit takes */
#define ORDER_COST  8                 /* files of an order that is made in the time a seed takes */
#define RANKS       64                /* looked for first */
#define LARGE_FILES (UINT32_MAX / 20) /* from here on torch shuffles from the back */
#define WALK_COST   128               /* steps of a walk in the time a seed takes */
#define WALK_ONE    (16 * 512)        /* positions: 16 workers of one rank, batches of 512 */
#define WALK_NEAR   (4 * WALK_ONE)    /* of a few ranks, or smaller batches */
#define WALK_MIDDLE (16 * WALK_ONE)
#define WALK_FAR    (64 * WALK_ONE)

enum family {
    DIRECT, /* DistributedSampler, RandomSampler */
    LOADER, /* the generator gave the workers' base seed first */
    GLOBAL, /* the generator gave that, and then the seed of the one that shuffles */
};

/* Which seeds are scanned for what: accesses first to last, each at the positions where ranks low
 * to high have it while they read their first batch. Or walked: the first two accesses, anywhere
 * from position low on. */
struct pass {
    enum family family;
    bool is_long;   /* where more than the small seeds are to be searched */
    bool is_rare;   /* where the first access may have been displaced */
    bool is_liked;  /* nothing is scanned: samplers that shuffle from the back, seed by seed */
    bool is_beyond; /* seeds that are not small */
    uint32_t first;
    uint32_t last;
    uint32_t low;
    uint32_t high;
    uint32_t steps; /* of a walk */
    uint64_t seeds; /* that are walked; 0: all small ones */
};

static const struct pass passes[] = {
    {.high = RANKS},                                         /* finds most */
    {.family = GLOBAL, .high = 1},                           /* torch's global generator */
    {.first = 1, .last = 2, .high = RANKS, .is_rare = true}, /* a swap displaced the first */
    {.steps = WALK_FAR, .seeds = FB_SEED_LIKED},             /* not the first worker */
    {.steps = WALK_NEAR},
    {.steps = WALK_ONE, .family = LOADER},
    {.steps = WALK_ONE, .family = GLOBAL},
    {.low = RANKS, .high = FB_SEED_RANK_MAX, .is_long = true}, /* high ranks */
    {.is_liked = true, .is_long = true},
    {.high = RANKS, .is_long = true, .is_beyond = true},
    {.low = WALK_NEAR, .steps = WALK_MIDDLE},
    {.low = WALK_MIDDLE, .steps = WALK_FAR}, /* takes as long as all of the above */
};

struct fb_seed_search {
    struct fb_seed_config config;
    enum fb_seed_state state;
    struct fb_seed_track track;

    bool has_last;
    struct fb_seed_belief last;

    uint32_t kept;
    uint32_t files[FB_SEED_ORDERS][FB_SEED_KEPT];
    uint32_t fed[FB_SEED_ORDERS]; /* last */
    bool is_out[FB_SEED_ORDERS];  /* an order that has not all files */

    unsigned pass;
    unsigned order; /* of that pass */
    bool is_begun;
    uint64_t next_seed;
    struct fb_scan scan;
    struct fb_walk walk;
    uint32_t hits[HITS];
    struct fb_mt19937 mt;
    struct fb_prefix prefix;
};

struct fb_seed_search *fb_seed_search_new(const struct fb_seed_config *config)
{
    struct fb_seed_search *s = fb_alloc(sizeof *s);

    if (!s)
        return NULL;
    s->config = *config;
    if (s->config.seed_limit == 0)
        s->config.seed_limit = FB_SEED_SMALL;
    fb_seed_search_restart(s, NULL);
    return s;
}

void fb_seed_search_free(struct fb_seed_search *s)
{
    if (!s)
        return;
    fb_seed_track_clear(&s->track);
    fb_walk_close(&s->walk);
    free(s);
}

void fb_seed_search_restart(struct fb_seed_search *s, const struct fb_seed_belief *last)
{
    s->has_last = last != NULL;
    if (last)
        s->last = *last;
    fb_seed_track_clear(&s->track);
    fb_walk_close(&s->walk);
    s->state = FB_SEED_COLLECT;
    s->kept = 0;
    s->pass = 0;
    s->order = 0;
    s->is_begun = false;
    for (unsigned o = 0; o < s->config.order_count; o++) {
        uint32_t count = s->config.counts[o];

        s->fed[o] = FB_SEED_NO_FILE;
        s->is_out[o] = count < FB_SEED_FILES || count >= LARGE_FILES;
    }
}

enum fb_seed_state fb_seed_search_state(const struct fb_seed_search *s)
{
    return s->state;
}

const struct fb_seed_belief *fb_seed_search_belief(const struct fb_seed_search *s)
{
    return s->state == FB_SEED_VERIFY || s->state == FB_SEED_BELIEVED ? &s->track.belief : NULL;
}

/* ---- accesses ---- */

static void keep(struct fb_seed_search *s, const uint32_t *files)
{
    if (s->kept == FB_SEED_KEPT)
        return;
    for (unsigned o = 0; o < s->config.order_count; o++) {
        s->files[o][s->kept] = files[o];
        if (files[o] >= s->config.counts[o])
            s->is_out[o] = true;
    }
    s->kept++;
    if (s->state == FB_SEED_COLLECT && s->kept >= FB_SEED_FIRST)
        s->state = FB_SEED_SEARCH;
}

/* The guess did not hold. One that was believed is dropped, and what comes is a new stream; one
 * that was not lets the search go on. */
static void contradict(struct fb_seed_search *s, const uint32_t *files)
{
    struct fb_seed_belief last = s->track.belief;

    if (s->state == FB_SEED_VERIFY && s->track.need == FB_SEED_ENOUGH) {
        fb_seed_track_clear(&s->track);
        s->state = FB_SEED_SEARCH;
        return;
    }
    fb_seed_search_restart(s, &last);
    keep(s, files);
}

static int follow(struct fb_seed_search *s, const uint32_t *files)
{
    uint32_t file = files[s->track.belief.order];
    int rc = file < s->track.belief.shuffle.count ? fb_seed_track_follow(&s->track, file)
                                                  : FB_SEED_CONTRADICTED;

    if (rc == FB_SEED_FORETOLD)
        s->state = fb_seed_track_is_sure(&s->track) ? FB_SEED_BELIEVED : FB_SEED_VERIFY;
    else
        contradict(s, files);
    return rc < 0 ? rc : 0;
}

int fb_seed_search_feed(struct fb_seed_search *s, const uint32_t *files)
{
    bool is_known = false;
    bool is_new = false;

    for (unsigned o = 0; o < s->config.order_count; o++) {
        is_known = is_known || files[o] < s->config.counts[o];
        is_new = is_new || files[o] != s->fed[o];
        s->fed[o] = files[o];
    }
    if (!is_known || !is_new || s->state == FB_SEED_NONE)
        return 0;
    if (s->state != FB_SEED_BELIEVED)
        keep(s, files);
    if (s->state == FB_SEED_VERIFY || s->state == FB_SEED_BELIEVED)
        return follow(s, files);
    return 0;
}

/* ---- guesses ---- */

/* Takes a guess up if all accesses so far were as it has them. -ENOMEM. */
static int try_guess(struct fb_seed_search *s, const struct fb_seed_guess *guess, unsigned order,
                     uint64_t need)
{
    const uint32_t *files = s->files[order];
    int rc = fb_seed_track_guess(&s->track, guess, order, need);

    if (rc)
        return rc;
    rc = fb_seed_track_place(&s->track, files[0], files[1]) ? 0 : FB_SEED_CONTRADICTED;
    for (uint32_t i = 0; rc == 0 && i < s->kept; i++)
        rc = fb_seed_track_follow(&s->track, files[i]);
    if (rc == 0)
        s->state = fb_seed_track_is_sure(&s->track) ? FB_SEED_BELIEVED : FB_SEED_VERIFY;
    else
        fb_seed_track_clear(&s->track);
    return rc < 0 ? rc : 0;
}

/* The epoch believed in last, for another of its readers; then what may follow it. */
static int try_last(struct fb_seed_search *s)
{
    struct fb_seed_guess guesses[1 + FB_SEED_GUESSES];
    unsigned count = 1 + fb_seed_successors(&s->last, guesses + 1);
    int rc = 0;

    s->has_last = false;
    guesses[0] = (struct fb_seed_guess){s->last.shuffle, s->last.epoch};
    if (s->last.order >= s->config.order_count || s->is_out[s->last.order] ||
        s->last.shuffle.count != s->config.counts[s->last.order])
        return 0;
    for (unsigned i = 0; rc == 0 && i < count && s->state == FB_SEED_SEARCH; i++)
        rc = try_guess(s, &guesses[i], s->last.order, FB_SEED_AGAIN);
    return rc;
}

static struct fb_shuffle_spec spec_of(const struct fb_seed_search *s, enum family family,
                                      uint32_t seed)
{
    struct fb_shuffle_spec spec = {.seed = seed, .count = s->config.counts[s->order]};

    spec.sampler = fb_sampler_find(family == DIRECT ? "torch-distributed" : "torch-random");
    spec.rule = spec.sampler->rule;
    spec.generator = family == LOADER ? FB_TORCH_LOADER : FB_TORCH_GLOBAL;
    return spec;
}

static void seed_generator(struct fb_mt19937 *mt, enum family family, uint32_t seed)
{
    fb_mt19937_seed(mt, seed);
    if (family == LOADER)
        fb_mt19937_skip(mt, 2);
    if (family == GLOBAL) {
        fb_mt19937_skip(mt, 3);
        fb_mt19937_seed(mt, fb_mt19937_u32(mt));
    }
}

/* Where a file is among the positions drawn so far; UINT32_MAX: it is not. */
static uint32_t find(const struct fb_prefix *p, uint32_t file)
{
    for (uint32_t i = 0; i < p->count; i++) {
        if (p->order[i] == file)
            return i;
    }
    return UINT32_MAX;
}

/* Whether the first accesses can be those of a rank. Cheap: only the beginning is drawn. */
static bool is_plausible(struct fb_seed_search *s, enum family family, uint32_t seed)
{
    const uint32_t *files = s->files[s->order];
    uint32_t rank, after, world;

    seed_generator(&s->mt, family, seed);
    fb_prefix_begin(&s->prefix, s->config.counts[s->order]);
    fb_prefix_draw(&s->prefix, &s->mt, family == DIRECT ? FB_SEED_RANK_MAX : 1);
    rank = find(&s->prefix, files[0]);
    if (rank == UINT32_MAX)
        return false;
    fb_prefix_draw(&s->prefix, &s->mt, FB_PREFIX_MAX);
    after = find(&s->prefix, files[1]);
    if (after == UINT32_MAX || after <= rank || after - rank <= rank)
        return false;
    world = after - rank;
    for (uint32_t i = 2; i < FB_SEED_FIRST; i++) {
        uint32_t at = find(&s->prefix, files[i]);

        if (at != UINT32_MAX && (at <= after || at % world != rank))
            return false;
        after = at != UINT32_MAX ? at : after;
    }
    return true;
}

static int try_seed(struct fb_seed_search *s, enum family family, uint32_t seed)
{
    struct fb_seed_guess guess = {.shuffle = spec_of(s, family, seed)};

    return is_plausible(s, family, seed) ? try_guess(s, &guess, s->order, FB_SEED_ENOUGH) : 0;
}

static const char *const back_shufflers[] = {"numpy", "numpy-generator", "python"};

static int try_liked(struct fb_seed_search *s, uint64_t number)
{
    const char *name = back_shufflers[number % FB_ARRAY_SIZE(back_shufflers)];
    struct fb_seed_guess guess = {
        .shuffle = {.sampler = fb_sampler_find(name),
                    .seed = number / FB_ARRAY_SIZE(back_shufflers),
                    .count = s->config.counts[s->order],
                    .rule = FB_EPOCH_CONTINUE},
    };

    return try_guess(s, &guess, s->order, FB_SEED_ENOUGH);
}

/* ---- passes ---- */

/* Two orders may be one: then the second is not searched. */
static bool is_twin(const struct fb_seed_search *s, unsigned order)
{
    for (unsigned o = 0; o < order; o++) {
        if (!s->is_out[o] && s->config.counts[o] == s->config.counts[order] &&
            memcmp(s->files[o], s->files[order], s->kept * sizeof s->files[o][0]) == 0)
            return true;
    }
    return false;
}

/* Positions that a pass looks at, as far as its table may go; a chunk more at both ends. */
static uint32_t walk_steps(const struct fb_seed_search *s, const struct pass *pass)
{
    uint64_t room = s->config.walk_bytes / sizeof(struct fb_walk_step);

    if (s->config.walk_bytes == 0)
        return pass->steps;
    return (uint32_t)fb_min_u64(pass->steps, room - fb_min_u64(room, 2 * FB_WALK_CHUNK));
}

/* Nothing to be found in this order, or not by this pass. What swaps leave at a later place are
 * files whose own place was before it: a displaced first access of rank r is a file below r. */
static bool is_idle(const struct fb_seed_search *s, const struct pass *pass)
{
    return s->is_out[s->order] || (pass->is_rare && s->files[s->order][0] >= RANKS) ||
           (pass->is_long && s->config.seed_limit <= FB_SEED_SMALL) ||
           (pass->is_beyond && s->order >= FB_SEED_USUAL) ||
           (pass->steps > 0 && (!s->config.any_worker || s->config.counts[s->order] <= pass->low ||
                                walk_steps(s, pass) <= pass->low)) ||
           is_twin(s, s->order);
}

/* One rank alone reads all positions, one after the other; of several, each has enough to be
 * believed by. */
static int begin_walk(struct fb_seed_search *s, const struct pass *pass)
{
    uint32_t n = s->config.counts[s->order];
    int rc = fb_walk_open(&s->walk, n, walk_steps(s, pass), pass->family == LOADER ? 2 : 0);

    s->walk.apart =
        pass->family == DIRECT ? (uint32_t)fb_min_u64(FB_SEED_RANK_MAX, n / FB_SEED_ENOUGH) : 1;
    s->walk.is_nested = pass->family == GLOBAL;
    s->walk.files[0] = s->files[s->order][0];
    s->walk.files[1] = s->files[s->order][1];
    return rc;
}

static void begin_scan(struct fb_seed_search *s, const struct pass *pass)
{
    uint32_t n = s->config.counts[s->order];
    const uint32_t *files = s->files[s->order];

    s->scan.is_nested = pass->family == GLOBAL;
    s->scan.count = 0;
    for (uint32_t p = pass->low; p < pass->high * (pass->last + 1); p++) {
        for (uint32_t a = pass->first; a <= pass->last; a++) {
            if (p < pass->high * (a + 1))
                fb_scan_add(&s->scan, n, files[a], p, 0);
        }
        /* The family LOADER, which is never displaced. */
        if (p == 2 && pass->first == 0)
            fb_scan_add(&s->scan, n, files[0], 0, 2);
    }
}

/* -ENOMEM. */
static int begin_pass(struct fb_seed_search *s, const struct pass *pass)
{
    int rc = 0;

    s->next_seed = pass->is_beyond ? FB_SEED_SMALL : 0;
    s->is_begun = true;
    if (pass->steps > 0)
        rc = begin_walk(s, pass);
    else
        begin_scan(s, pass);
    return rc;
}

static uint64_t pass_end(const struct fb_seed_search *s, const struct pass *pass)
{
    uint64_t limit = s->config.seed_limit;

    if (pass->is_liked)
        return FB_SEED_LIKED * FB_ARRAY_SIZE(back_shufflers);
    if (pass->seeds)
        limit = fb_min_u64(limit, pass->seeds);
    return pass->is_beyond ? limit : fb_min_u64(limit, FB_SEED_SMALL);
}

static void end_pass(struct fb_seed_search *s)
{
    s->is_begun = false;
    fb_walk_close(&s->walk);
    if (++s->order < s->config.order_count)
        return;
    s->order = 0;
    if (++s->pass == FB_ARRAY_SIZE(passes))
        s->state = FB_SEED_NONE;
}

/* Returns what it cost, in seeds; -ENOMEM. */
static int64_t walk_some(struct fb_seed_search *s, const struct pass *pass)
{
    struct fb_walked walked;
    int rc = 0;

    fb_walk_run(&s->walk, s->config.level, (uint32_t)s->next_seed, &walked);
    for (uint32_t i = 0; rc == 0 && i < FB_WALK_BLOCK && s->state == FB_SEED_SEARCH; i++) {
        struct fb_seed_guess guess = {.shuffle =
                                          spec_of(s, pass->family, (uint32_t)s->next_seed + i)};
        uint32_t at = walked.positions[0][i], after = walked.positions[1][i];

        if (at != FB_WALK_NOWHERE && after != FB_WALK_NOWHERE && at >= pass->low && at < after &&
            after - at <= s->walk.apart)
            rc = try_guess(s, &guess, s->order, FB_SEED_ENOUGH);
    }
    s->next_seed += FB_WALK_BLOCK;
    return rc ? rc : FB_WALK_BLOCK * ((int64_t)s->walk.steps / WALK_COST + 1);
}

/* As walk_some(). */
static int64_t scan_some(struct fb_seed_search *s, const struct pass *pass, uint64_t seeds)
{
    size_t hits;
    uint64_t done;
    int rc = 0;

    if (pass->is_liked) {
        rc = try_liked(s, s->next_seed++);
        return rc ? rc : (int64_t)(1 + s->config.counts[s->order] / ORDER_COST);
    }
    seeds = fb_min_u64(seeds, pass_end(s, pass) - s->next_seed);
    done =
        fb_scan_run(&s->scan, s->config.level, (uint32_t)s->next_seed, seeds, s->hits, HITS, &hits);
    s->next_seed += done;
    for (size_t i = 0; rc == 0 && i < hits && s->state == FB_SEED_SEARCH; i++) {
        rc = try_seed(s, pass->family, s->hits[i]);
        if (rc == 0 && s->state == FB_SEED_SEARCH && pass->family == DIRECT && pass->first == 0)
            rc = try_seed(s, LOADER, s->hits[i]);
    }
    return rc ? rc : (int64_t)(done + hits * HIT_COST);
}

int fb_seed_search_step(struct fb_seed_search *s, uint64_t seeds)
{
    uint64_t spent = 0;

    if (s->state == FB_SEED_SEARCH && s->has_last) {
        int rc = try_last(s);

        if (rc)
            return rc;
    }
    while (s->state == FB_SEED_SEARCH && spent < seeds) {
        const struct pass *pass = &passes[s->pass];
        int64_t cost = 0;

        if (is_idle(s, pass) || (s->is_begun && s->next_seed >= pass_end(s, pass)))
            end_pass(s);
        else if (!s->is_begun)
            cost = begin_pass(s, pass);
        else
            cost = pass->steps > 0 ? walk_some(s, pass) : scan_some(s, pass, seeds - spent);
        if (cost < 0)
            return (int)cost;
        spent += (uint64_t)cost;
    }
    return (int)s->state;
}
