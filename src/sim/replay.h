/*
 * sim/replay.h - replays a trace through many caches at once.
 *
 * The trace is read in batches and never held in memory: each batch is mapped to dense numbers once
 * (sim/map.h) and replayed by every cache. With several jobs, one thread reads and maps the next
 * batch while the others replay this one. Memory is the map plus what each policy keeps per object,
 * and, for policies that must know the future of a trace that does not tell it, 8 bytes a request.
 *
 * A scan beforehand counts requests, objects and bytes: sizes in percent and the future need it.
 *
 * Sampling (SHARDS: Waldspurger et al., FAST 2015): only ids whose hash falls below a threshold are
 * replayed, through caches smaller by the same factor. What the sample has too many or too few of
 * is added to the hits, of requests and of bytes (SHARDS-adj). The error stated is 1.96 standard
 * errors of the sum of misses, from how much 64 groups of sampled objects differ. It covers the
 * luck of the draw, not what a cache of few objects does otherwise than a large one: below some
 * hundred objects in the small cache a larger sample is needed.
 */
#ifndef FB_SIM_REPLAY_H
#define FB_SIM_REPLAY_H

#include "sim/cache.h"
#include "trace/trace.h"

#define FB_SIM_JOBS_MAX    64
#define FB_SIM_RUNS_MAX    4096
#define FB_SIM_FIGURES_MAX 16

struct fb_sim_facts {
    uint64_t requests;
    uint64_t objects;
    uint64_t footprint; /* bytes; objects when sizes are ignored */
    uint64_t bytes;     /* of all requests */
    uint64_t replayed;  /* requests that are in the sample; all, where there is none */
    uint64_t next_max;  /* the last request that a trace that knows the future speaks of */
};

struct fb_sim_figure {
    char name[32];
    double value;
};

/* One cache, and what became of it. */
struct fb_sim_run {
    const struct fb_sim_policy *policy;
    double param[FB_SIM_PARAMS_MAX];
    uint64_t capacity; /* of the cache that is simulated; with sampling a smaller one stands in */

    uint64_t requests; /* after the warm-up */
    uint64_t misses;
    uint64_t bytes;
    uint64_t missed_bytes;
    double miss_ratio;
    double byte_miss_ratio;
    double error; /* of the miss ratio, 95%; 0 without sampling */
    double byte_error;
    double replay_s;
    struct fb_sim_figure figure[FB_SIM_FIGURES_MAX];
    size_t figures;
};

struct fb_sim_options {
    unsigned jobs; /* caches replayed at the same time; 0 and 1: one thread does it all */
    bool ignore_size;
    double sample; /* 0 to 1: the share of objects; 0 or 1: all */
    uint64_t seed;
    void (*progress)(void *arg,
                     double share); /* NULL: none. Negative: not known how much there is */
    void *arg;
};

struct fb_sim;

/* The trace stays the caller's and must outlive it. */
FB_MUST_CHECK int fb_sim_create(struct fb_trace *trace, const struct fb_sim_options *options,
                                struct fb_sim **ret_sim);
void fb_sim_destroy(struct fb_sim *sim);

/* Reads the trace once, counts, and goes back to its start. With `future` it also notes when each
 * object is asked for again, or sees whether what the trace says of it is true. */
FB_MUST_CHECK int fb_sim_scan(struct fb_sim *sim, bool future, struct fb_error *err);

/* Of the scan; of the replay when there was none. */
const struct fb_sim_facts *fb_sim_facts(const struct fb_sim *sim);

/* Replays the trace through all caches; the first `warmup` requests are not counted. */
FB_MUST_CHECK int fb_sim_replay(struct fb_sim *sim, struct fb_sim_run *runs, size_t count,
                                uint64_t warmup, struct fb_error *err);

/* CPU time for mapping ids in the replay: every cache alone would have to pay it. */
double fb_sim_map_s(const struct fb_sim *sim);

#endif
