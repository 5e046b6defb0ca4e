/*
 * sim/jobs_cache.h - caches for sim/jobs_run.h: one of any policy, one of the brain.
 */
#ifndef FB_SIM_JOBS_CACHE_H
#define FB_SIM_JOBS_CACHE_H

#include "policy/brain.h"
#include "sim/cache.h"
#include "sim/jobs_ahead.h"
#include "sim/jobs_run.h"

/* An eviction policy of `forebay sim`, and something to fetch ahead by. An item counts as cached
 * from the moment it is asked for. */
extern const struct fb_jobs_cache_ops fb_jobs_plain;
FB_MUST_CHECK int fb_jobs_plain_new(const struct fb_jobs_world *world,
                                    const struct fb_sim_policy *policy, uint64_t bytes,
                                    enum fb_jobs_ahead_kind ahead, void **ret_cache);

/* Forebay: the brain, carried out. Beside it files are read ahead as the daemon does, unless the
 * brain's prefetch is off. */
extern const struct fb_jobs_cache_ops fb_jobs_brain;
FB_MUST_CHECK int fb_jobs_brain_new(const struct fb_jobs_world *world,
                                    const struct fb_brain_config *config, bool no_readahead,
                                    void **ret_cache);

/* The brain's settings as the daemon chooses them for a cache of this size. */
struct fb_brain_config fb_jobs_brain_config(uint64_t bytes);

struct fb_brain *fb_jobs_brain_of(void *cache);

#endif
