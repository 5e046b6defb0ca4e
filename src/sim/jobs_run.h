/*
 * sim/jobs_run.h - jobs that read through a cache from a slow source, in simulated time.
 *
 *     job: workers, compute ──read──> cache ──miss, ahead──> source
 *
 * The source answers after its latency; then the bytes of all answers under way share its bandwidth
 * equally. At most `connections` are asked for at a time; what jobs wait for goes before what is
 * fetched ahead, of which there is never more than fb_prefetch_room() allows. An item is fetched
 * once however many wait for it. A read that the cache holds costs the hit time. Time is a double
 * of seconds; events at the same time happen in the order in which they were foreseen; the same
 * seed gives the same run.
 *
 * A cache is a table of functions (below): sim/jobs_plain.c makes one of any policy of sim/cache.h,
 * sim/jobs_brain.c one of policy/brain.h. It is told of each read and of each item that arrived,
 * and asks for items ahead of their readers by fb_jobs_fetch_ahead().
 */
#ifndef FB_SIM_JOBS_RUN_H
#define FB_SIM_JOBS_RUN_H

#include "sim/jobs_world.h"

#define FB_JOBS_HIT_S     0.0001 /* of a read from the cache ... */
#define FB_JOBS_HIT_RATE  1e9    /* ... and its bytes a second */
#define FB_JOBS_QUEUE_MAX 4096   /* items to be fetched ahead; more are not taken on */
#define FB_JOBS_TICK_S    1.0

struct fb_jobs_run;

struct fb_jobs_source {
    double latency_s;
    double bytes_per_s;
    uint32_t connections;
};

/* The paper's: 150 ms, 1 Gbit/s; 64 at a time. */
struct fb_jobs_source fb_jobs_source_default(void);

struct fb_jobs_read {
    uint32_t item;
    uint32_t bytes; /* of the item */
    uint32_t pid;
    double now_s;
};

struct fb_jobs_cache_ops {
    /* A read: true when the item is there. A cache without `arrived` may count it as there from
     * now on; readers wait for it all the same while it is under way. */
    bool (*read)(void *cache, struct fb_jobs_run *run, const struct fb_jobs_read *read);

    /* What was fetched is here. NULL: see above. */
    void (*arrived)(void *cache, uint32_t item, bool is_ahead, double now_s);

    /* Every FB_JOBS_TICK_S. May be NULL. */
    void (*tick)(void *cache, struct fb_jobs_run *run, double now_s);

    /* There is room to fetch something that nobody asked for yet: an item, or FB_JOBS_NONE. May be
     * NULL. */
    uint32_t (*idle)(void *cache, struct fb_jobs_run *run);

    void (*destroy)(void *cache);
};

struct fb_jobs_setup {
    const struct fb_jobs_world *world;
    const double *start_s; /* of each job of the mix; negative: it does not take part */
    const double *stop_s;  /* when it is stopped; NULL, or negative: it ends by itself */
    struct fb_jobs_source source;
    uint64_t seed;
    const struct fb_jobs_cache_ops *ops; /* NULL: no cache */
    void *cache;
    /* To look at it while it runs, each tick; may be NULL. */
    void (*watch)(void *arg, struct fb_jobs_run *run, double now_s);
    void *watch_arg;
};

struct fb_jobs_result {
    double start_s;
    double end_s;
    uint64_t reads;
    uint64_t hits;
    uint64_t late; /* misses that found their item on its way, fetched ahead */
    uint64_t read_bytes;
};

struct fb_jobs_totals {
    double end_s;
    uint64_t fetches;
    uint64_t fetched_bytes;
    uint64_t ahead; /* of the fetches */
    uint64_t ahead_bytes;
};

/* Runs all jobs to their end. ret_results: one for each job of the mix. */
FB_MUST_CHECK int fb_jobs_go(const struct fb_jobs_setup *setup, struct fb_jobs_result *ret_results,
                             struct fb_jobs_totals *ret_totals);

/* ---- for caches, during a run ---- */

/* Not when it is under way already, or too many are. */
bool fb_jobs_may_fetch_ahead(const struct fb_jobs_run *run, uint32_t item);
/* `yields`: not while programs fill the pipe (policy/prefetch.h); the read-ahead of a file that is
 * being read does not. */
void fb_jobs_fetch_ahead(struct fb_jobs_run *run, uint32_t item, bool yields);
const struct fb_jobs_world *fb_jobs_world_of(const struct fb_jobs_run *run);

/* What the source takes: mean time of the last fetches, of those that readers wait for. */
double fb_jobs_fetch_time(const struct fb_jobs_run *run);
double fb_jobs_bytes_per_s(const struct fb_jobs_run *run);

/* As far as the job has come. */
const struct fb_jobs_result *fb_jobs_so_far(const struct fb_jobs_run *run, size_t job);

#endif
