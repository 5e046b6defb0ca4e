/*
 * sim/cache.h - what an eviction policy is to the simulator, and how to add one.
 *
 * A policy is one file, sim/cache_NAME.c, with its algorithm in pseudo-code on top and one
 * `const struct fb_sim_policy`, which is listed in sim/policies.c. The simulator makes one cache
 * per size, calls reserve() and replay() for batch after batch of the trace, and destroys it. A
 * cache belongs to one thread at a time, so it needs no locks; caches share nothing.
 *
 * Speed is the point of the shape:
 * - Ids of the trace become dense numbers 0, 1, 2 ... in the order of first appearance (sim/map.h),
 *   once for all caches. A policy keeps plain arrays indexed by them, and needs no hash table.
 * - One call replays a whole batch, so there is no call per request; the policy may prefetch
 *   its array for requests to come.
 * - The policy only says which requests hit. Counting, warm-up and curves are the simulator's.
 *
 * Objects keep the size of their first request: the trace is changed so before it gets here.
 * An object larger than the cache is never admitted: it must miss and change nothing.
 * sim/node.h has what most policies need: a 16-byte node an object, and lists of them.
 */
#ifndef FB_SIM_CACHE_H
#define FB_SIM_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"

#define FB_SIM_BATCH_MAX  16384
#define FB_SIM_NEVER      INT64_MAX
#define FB_SIM_PARAMS_MAX 12

/* A number that `--policy name:key=value` sets. */
struct fb_sim_param {
    const char *key;
    double fallback;
    double min;
    double max;
    const char *help;
};

struct fb_sim_setup {
    uint64_t capacity;   /* bytes; objects when sizes are ignored */
    bool ignore_size;    /* every size is 1 */
    uint64_t seed;       /* for policies that draw lots: the same seed, the same result */
    uint64_t requests;   /* of the whole trace; 0: not known. No on-line policy may use it. */
    uint64_t objects;    /* the same */
    const double *param; /* in the order of the policy's table */
};

/* Requests `first`, `first + 1`, ... of the trace, counted from 0; arrays of `count`. */
struct fb_sim_batch {
    size_t count;
    uint64_t first;
    uint64_t objects; /* all numbers in `id` are below */
    const uint32_t *id;
    const uint32_t *size;
    const uint32_t *time_s;
    /* When the object is asked for again, in the same count as `first`, or FB_SIM_NEVER; NULL
     * unless the policy has needs_future. */
    const int64_t *next;
};

/* A figure beside the miss ratio, for JSON: "trainings", 12. */
typedef void fb_sim_figure_fn(void *arg, const char *name, double value);

struct fb_sim_policy {
    const char *name;    /* "lru" */
    const char *alias;   /* what others call it; NULL: nothing else */
    const char *summary; /* one line for --help */
    bool needs_future;
    const struct fb_sim_param *params; /* ended by a NULL key; NULL: none */

    /* -EINVAL with a sentence when it cannot work so; -ENOMEM. */
    int (*create)(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err);

    /* Makes room in arrays for objects numbered below `objects`, keeping what is there. Called
     * before the first replay() and whenever more are needed; never shrinks. */
    int (*reserve)(void *cache, size_t objects);

    /* Replays the batch and sets ret_hit[i] to 1 for a hit, 0 for a miss. Negative errno ends the
     * simulation. */
    int (*replay)(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit);

    /* NULL: there are none. */
    void (*figures)(void *cache, fb_sim_figure_fn *tell, void *arg);

    /* Takes NULL. */
    void (*destroy)(void *cache);
};

/* Grows an array of objects for reserve(): *count elements become `wanted`, new ones zero. */
FB_MUST_CHECK int fb_sim_grow(void *array_pointer, size_t *count, size_t wanted, size_t size);

/* All policies, in the order of --help, ended by NULL; one by name or alias, in capitals or small
 * letters, NULL when there is none. */
const struct fb_sim_policy *const *fb_sim_policies(void);
const struct fb_sim_policy *fb_sim_policy_find(const char *name, size_t len);

#endif
