/*
 * sim/jobs_ahead.h - what caches without a brain fetch ahead.
 *
 *     readahead  blocks of a file that is read from its front or in order: 1, 2, 4 ... 16 of them.
 *                What JuiceFS does ("enhanced stride" in IGTCache's figure 9), and what Forebay's
 *                read-ahead does beside the brain
 *     stride     4 blocks after every 4 that were read in a row
 *     markov     the file that followed this one last time, and the one that followed that (SFP):
 *                the likeliest of up to 4 successors each
 */
#ifndef FB_SIM_JOBS_AHEAD_H
#define FB_SIM_JOBS_AHEAD_H

#include "sim/jobs_run.h"

#define FB_JOBS_AHEAD_MAX 16 /* items for one read */

enum fb_jobs_ahead_kind {
    FB_JOBS_AHEAD_NONE,
    FB_JOBS_AHEAD_READAHEAD,
    FB_JOBS_AHEAD_STRIDE,
    FB_JOBS_AHEAD_MARKOV,
};

struct fb_jobs_ahead;

FB_MUST_CHECK int fb_jobs_ahead_new(const struct fb_jobs_world *world, enum fb_jobs_ahead_kind kind,
                                    struct fb_jobs_ahead **ret_ahead);
void fb_jobs_ahead_free(struct fb_jobs_ahead *ahead);

/* Items to fetch after this read; some may be there already. */
unsigned fb_jobs_ahead_of(struct fb_jobs_ahead *ahead, const struct fb_jobs_read *read,
                          uint32_t ret_items[FB_JOBS_AHEAD_MAX]);

#endif
