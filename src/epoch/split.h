/*
 * epoch/split.h - who reads which sample of an epoch: ranks, batches, workers.
 *
 * DistributedSampler deals the epoch's order out to the ranks like cards, sample k of rank r being
 * the one at position r + k * world. When the cards do not come out even, it begins again at the
 * front, or drops the rest. The rank's loader groups its samples into batches, in order, and asks
 * its workers for batches in turn: worker w reads batches w, w + workers, w + 2 * workers ...
 * All of it is arithmetic; a world of 1 leaves everything to rank 0.
 */
#ifndef FB_EPOCH_SPLIT_H
#define FB_EPOCH_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"

#define FB_WORLD_MAX   65536
#define FB_WORKERS_MAX 4096

struct fb_split {
    uint32_t count; /* samples of the data set */
    uint32_t world;
    uint32_t rank;
    uint32_t batch;
    uint32_t workers; /* 0: the program's own process reads */
    bool drop_last;   /* DataLoader's: an incomplete batch is not read */
    bool drop_uneven; /* DistributedSampler's drop_last */
};

/* -EINVAL, with a sentence, when a number is out of bounds. */
FB_MUST_CHECK int fb_split_check(const struct fb_split *s, struct fb_error *err);

/* How many samples the rank reads in an epoch; batches likewise. */
uint64_t fb_split_samples(const struct fb_split *s);
uint64_t fb_split_batches(const struct fb_split *s);

/* Where in the epoch's order the rank's sample k is. */
static inline uint32_t fb_split_position(const struct fb_split *s, uint64_t k)
{
    return (uint32_t)((s->rank + k * s->world) % s->count);
}

/* The first k at that position. False when the rank does not read it. */
FB_MUST_CHECK bool fb_split_sample_at(const struct fb_split *s, uint32_t position, uint64_t *ret_k);

/* Which worker reads the rank's sample k. */
static inline uint32_t fb_split_worker(const struct fb_split *s, uint64_t k)
{
    return s->workers ? (uint32_t)(k / s->batch % s->workers) : 0;
}

/* The j-th sample that a worker reads, as one of the rank's; false when it reads no more. */
FB_MUST_CHECK bool fb_split_worker_sample(const struct fb_split *s, uint32_t worker, uint64_t j,
                                          uint64_t *ret_k);

#endif
