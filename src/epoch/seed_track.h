/*
 * epoch/seed_track.h - one guess about a shuffle, held against accesses: what seed_search.h has
 * found, and does not yet or does already believe.
 */
#ifndef FB_EPOCH_SEED_TRACK_H
#define FB_EPOCH_SEED_TRACK_H

#include "epoch/seed_search.h"

/* An epoch of a shuffle. */
struct fb_seed_guess {
    struct fb_shuffle_spec shuffle;
    uint64_t epoch;
};

#define FB_SEED_GUESSES 4
#define FB_SEED_AGAIN   4 /* accesses to be foretold, where only a few were to choose from */

/* What may come after an epoch. Returns how many. */
unsigned fb_seed_successors(const struct fb_seed_belief *b,
                            struct fb_seed_guess guesses[FB_SEED_GUESSES]);

struct fb_seed_track {
    struct fb_seed_belief belief;
    uint32_t *place; /* file -> position in the belief's epoch; NULL: no guess */
    uint64_t need;   /* accesses to be foretold until it is believed */
    unsigned tries;  /* to find a next epoch that are left */
};

void fb_seed_track_clear(struct fb_seed_track *t);

/* A new guess, in place of the last, to be believed after `need` accesses. -ENOMEM. */
FB_MUST_CHECK int fb_seed_track_guess(struct fb_seed_track *t, const struct fb_seed_guess *guess,
                                      unsigned order, uint64_t need);

/* World, rank and where the process begins, from its first two accesses. False: they are not the
 * first two of anybody. */
FB_MUST_CHECK bool fb_seed_track_place(struct fb_seed_track *t, uint32_t first, uint32_t second);

enum fb_seed_fate {
    FB_SEED_FORETOLD = 0,
    FB_SEED_CONTRADICTED = 1,
};

/* Whether the next access is what was foretold, or can be in spite of it. -ENOMEM. */
FB_MUST_CHECK int fb_seed_track_follow(struct fb_seed_track *t, uint32_t file);

static inline bool fb_seed_track_is_sure(const struct fb_seed_track *t)
{
    return t->place && t->belief.foretold >= t->need;
}

#endif
