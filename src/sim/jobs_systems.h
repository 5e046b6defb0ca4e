/*
 * sim/jobs_systems.h - the caches that are held against each other, by name.
 */
#ifndef FB_SIM_JOBS_SYSTEMS_H
#define FB_SIM_JOBS_SYSTEMS_H

#include "sim/jobs_cache.h"

struct fb_jobs_system {
    const char *name;
    const char *summary;
    const char *policy; /* of `forebay sim`; NULL: the brain, or no cache at all */
    enum fb_jobs_ahead_kind ahead;
    bool is_brain;
    bool no_keep, no_prefetch, no_fill, no_ttl, no_alloc, no_turns;
    uint32_t depth;     /* of prefetch; 0: as it takes */
    double share;       /* f_p; 0: the usual; negative: everything is fetched ahead */
    double ttl_base_s;  /* 0: the usual */
    uint32_t nodes_max; /* 0: the usual */
    bool no_readahead;  /* not even blocks of large files */
};

extern const struct fb_jobs_system fb_jobs_no_cache;
extern const struct fb_jobs_system fb_jobs_block_lru; /* what JuiceFS does */
extern const struct fb_jobs_system fb_jobs_forebay;

/* All of the mix's table, ended by a NULL name. */
extern const struct fb_jobs_system fb_jobs_systems[];

struct fb_jobs_outcome {
    struct fb_jobs_result *job; /* of each job of the mix */
    struct fb_jobs_totals totals;
    double mean_s; /* of completion */
    double hit_ratio;
};

struct fb_jobs_case {
    const struct fb_jobs_world *world;
    const double *start_s;
    const double *stop_s;
    uint64_t cache_bytes;
    uint64_t seed;
    /* Each tick; `brain` is NULL when there is none. */
    void (*watch)(void *arg, struct fb_jobs_run *run, double now_s);
    void *watch_arg;
    struct fb_brain **ret_brain; /* set while it runs, when it has one; may be NULL */
};

/* Runs it. ret_outcome is to be freed. */
FB_MUST_CHECK int fb_jobs_try(const struct fb_jobs_system *system, const struct fb_jobs_case *the,
                              struct fb_jobs_outcome *ret_outcome);
void fb_jobs_outcome_free(struct fb_jobs_outcome *outcome);

#endif
