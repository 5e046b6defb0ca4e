#include "epoch/seed_track.h"

#include <errno.h>

#include "core/mem.h"

#define TRIES 8  /* per epoch; each costs as much as making a few orders */
#define LATE  64 /* accesses that one may be seen too late by */

/* ---- orders ---- */

/* file -> position in that epoch. NULL: out of memory. */
static uint32_t *make_place(const struct fb_seed_guess *guess)
{
    uint32_t n = guess->shuffle.count;
    FB_AUTO_FREE uint32_t *order = fb_alloc_large(n, sizeof *order);
    uint32_t *place = fb_alloc_large(n, sizeof *place);
    struct fb_shuffle shuffle;

    if (!order || !place || fb_shuffle_init(&shuffle, &guess->shuffle, NULL) != 0) {
        free(place);
        return NULL;
    }
    if (shuffle.spec.rule == FB_EPOCH_RESEED)
        shuffle.epoch = guess->epoch;
    do
        fb_shuffle_next(&shuffle, order);
    while (shuffle.epoch <= guess->epoch);
    for (uint32_t i = 0; i < n; i++)
        place[order[i]] = i;
    return place;
}

unsigned fb_seed_successors(const struct fb_seed_belief *b,
                            struct fb_seed_guess guesses[FB_SEED_GUESSES])
{
    struct fb_seed_guess next = {.shuffle = b->shuffle, .epoch = b->epoch + 1};
    unsigned count = 0;

    guesses[count++] = next;
    if (b->shuffle.rule == FB_EPOCH_RESEED) {
        /* Nobody called set_epoch. */
        guesses[count] = next;
        guesses[count].shuffle.seed += b->epoch;
        guesses[count++].shuffle.rule = FB_EPOCH_FIXED;
    }
    if (b->epoch == 0 && b->world == 1 && b->shuffle.rule == FB_EPOCH_RESEED) {
        /* RandomSampler with a generator of its own begins like DistributedSampler. */
        guesses[count] = next;
        guesses[count].shuffle.sampler = fb_sampler_find("torch-random");
        guesses[count].shuffle.rule = FB_EPOCH_CONTINUE;
        guesses[count++].shuffle.generator = FB_TORCH_SAMPLER;
    }
    if (b->epoch == 0 && b->shuffle.rule == FB_EPOCH_CONTINUE) {
        /* What the rule is shows in the second epoch. */
        static const enum fb_epoch_rule rules[] = {FB_EPOCH_RESHUFFLE, FB_EPOCH_RESEED,
                                                   FB_EPOCH_FIXED};

        for (size_t i = 0; i < FB_ARRAY_SIZE(rules) && b->shuffle.sampler->can_reshuffle; i++) {
            guesses[count] = next;
            guesses[count++].shuffle.rule = rules[i];
        }
        if (!b->shuffle.sampler->can_reshuffle) {
            guesses[count] = next;
            guesses[count++].shuffle.persistent_workers = true;
        }
    }
    return count;
}

/* ---- guesses ---- */

void fb_seed_track_clear(struct fb_seed_track *t)
{
    free(t->place);
    *t = (struct fb_seed_track){0};
}

int fb_seed_track_guess(struct fb_seed_track *t, const struct fb_seed_guess *guess, unsigned order,
                        uint64_t need)
{
    fb_seed_track_clear(t);
    t->place = make_place(guess);
    if (!t->place)
        return -ENOMEM;
    t->belief = (struct fb_seed_belief){
        .shuffle = guess->shuffle, .epoch = guess->epoch, .order = order, .world = 1};
    t->need = need;
    t->tries = TRIES;
    return 0;
}

bool fb_seed_track_place(struct fb_seed_track *t, uint32_t first, uint32_t second)
{
    uint32_t at = t->place[first];
    uint32_t after = t->place[second];

    if (after <= at || after - at > FB_WORLD_MAX)
        return false;
    t->belief.world = after - at;
    t->belief.rank = at % t->belief.world;
    t->belief.start = at / t->belief.world;
    return true;
}

/* ---- accesses ---- */

static uint64_t position_of(const struct fb_seed_belief *b, uint64_t sample)
{
    return (b->rank + sample * b->world) % b->shuffle.count;
}

static uint64_t samples_of(const struct fb_seed_belief *b)
{
    return fb_div_up(b->shuffle.count, b->world);
}

static uint64_t expected(const struct fb_seed_belief *b)
{
    uint64_t next = b->sample + 1;

    if (b->foretold == 0)
        return b->start;
    return b->batch && next % b->batch == 0 ? next + (uint64_t)(b->workers - 1) * b->batch : next;
}

static int take(struct fb_seed_belief *b, uint64_t sample)
{
    b->sample = sample;
    b->foretold++;
    return FB_SEED_FORETOLD;
}

/* The first batch has ended where the process goes on elsewhere: that is the worker's second. */
static bool learn_batch(struct fb_seed_belief *b, uint64_t sample)
{
    uint64_t batch = b->sample + 1 - b->start;
    uint64_t workers = (sample - b->start) / batch;

    if (b->batch || b->lost || sample < b->start || (sample - b->start) % batch != 0 ||
        workers < 2 || workers > FB_WORKERS_MAX || b->start % batch != 0 ||
        b->start / batch >= workers)
        return false;
    b->batch = (uint32_t)batch;
    b->workers = (uint32_t)workers;
    b->worker = (uint32_t)(b->start / batch);
    return true;
}

/* Begins the next epoch when it begins with that file. -ENOMEM. */
static int begin_epoch(struct fb_seed_track *t, uint32_t file)
{
    struct fb_seed_guess guesses[FB_SEED_GUESSES];
    unsigned count = fb_seed_successors(&t->belief, guesses);

    if (t->tries == 0)
        return FB_SEED_CONTRADICTED;
    t->tries--;
    for (unsigned i = 0; i < count; i++) {
        uint32_t *place = make_place(&guesses[i]);

        if (!place)
            return -ENOMEM;
        if (place[file] != position_of(&t->belief, t->belief.start)) {
            free(place);
            continue;
        }
        free(t->place);
        t->place = place;
        t->belief.shuffle = guesses[i].shuffle;
        t->belief.epoch = guesses[i].epoch;
        t->belief.foretold = 0;
        t->belief.lost = 0;
        t->need = FB_SEED_AGAIN;
        t->tries = TRIES;
        return take(&t->belief, t->belief.start);
    }
    return FB_SEED_CONTRADICTED;
}

int fb_seed_track_follow(struct fb_seed_track *t, uint32_t file)
{
    struct fb_seed_belief *b = &t->belief;
    uint64_t position = t->place[file];
    uint64_t next = expected(b);
    bool is_ours = position >= b->rank && (position - b->rank) % b->world == 0;
    uint64_t sample = is_ours ? (position - b->rank) / b->world : 0;
    int rc;

    if (next < samples_of(b) && position == position_of(b, next))
        return take(b, next);
    if (is_ours && b->foretold && learn_batch(b, sample))
        return take(b, sample);
    if (!fb_seed_track_is_sure(t))
        return FB_SEED_CONTRADICTED;
    /* Those of a few milliseconds come in any order. */
    if (is_ours && b->lost > 0 && sample < next && next - sample <= LATE) {
        b->lost--;
        return FB_SEED_FORETOLD;
    }
    rc = begin_epoch(t, file);
    if (rc != FB_SEED_CONTRADICTED || !is_ours || sample < next)
        return rc;
    b->lost += sample - next;
    return take(b, sample);
}
