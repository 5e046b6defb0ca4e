/*
 * policy/reuse_priv.h - what the parts of the model of reuse share.
 *
 *     reuse.c         requests, watched objects, training, utility
 *     reuse_ghosts.c  histories of objects that are gone
 *     reuse_judge.c   how good the model is
 *     reuse_save.c    over a restart
 *
 * A cell is a history, a class of size and a class of age. Ages are in half octaves around R, the
 * number of objects that the cache holds: class 14 begins at R requests.
 */
#ifndef FB_POLICY_REUSE_PRIV_H
#define FB_POLICY_REUSE_PRIV_H

#include "policy/reuse.h"
#include "policy/reuse_ghosts.h"

#define AGES        28
#define AGE_OF_R    14
#define SIZES       8 /* of two octaves each, from 256 bytes on */
#define HISTORIES   256
#define CELLS       (HISTORIES * SIZES * AGES)
#define WATCHED_MAX 16384
#define WATCH_SLOTS (2 * WATCHED_MAX)
#define HAZARD_MIN  1e-4f

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
    unsigned shift;    /* of requests, to the time that metas have */
    double turnover;   /* requests */
    double miss_ratio;
    double recent; /* miss ratio of the last tenth of a turnover */
    double recent_step;
    double usual;        /* what it was at the last training */
    uint32_t calm_until; /* when a drift can be told again */
    uint64_t drifted_at; /* in requests */

    struct watched *watched; /* open addressing */
    struct watched *spare;   /* the next table, free */
    uint32_t watched_count;
    uint64_t watch_mask; /* hashes without these bits are watched */

    struct fb_reuse_ghosts ghosts;

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

static inline size_t fb_reuse_cell(unsigned history, unsigned size, unsigned age)
{
    return ((size_t)history * SIZES + size) * AGES + age;
}

/* R / 256, so that times of 16 bits come round after 256 R, when nobody is that old. */
static inline unsigned fb_reuse_shift_of(const struct fb_reuse *r)
{
    int shift = (r->octave2 + AGE_OF_R) / 2 - 8;

    /* Of 32 bits of requests, 16 are left: beyond that, times come round sooner. */
    return shift < 0 ? 0 : shift > 16 ? 16 : (unsigned)shift;
}

/* For a hash that is watched: its place, or a free one. */
struct watched *fb_reuse_slot_of(struct fb_reuse *r, uint64_t hash);

/* Every age's, as `seen` and `back` and the model have it. */
void fb_reuse_hazards(const struct fb_reuse *r, const float *seen, const float *back,
                      unsigned history, unsigned size, float ret[AGES]);

/* All observations, with those of open intervals; those of the last time are in `was`. */
void fb_reuse_add_open(struct fb_reuse *r);
/* A training has begun: what misses now is usual. */
void fb_reuse_calm(struct fb_reuse *r);
void fb_reuse_forget_utilities(struct fb_reuse *r);

/* Judges the model that is about to be replaced, on what has come since. */
void fb_reuse_judge(struct fb_reuse *r);

#endif
