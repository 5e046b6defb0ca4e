/*
 * epoch/seed_search.h - the seed of a shuffle, found from what one process reads.
 *
 * The first accesses of a process that reads a shuffled data set are the first samples of a rank:
 * of the rank's only process, or of worker 0 of its loader. Other workers begin far into the epoch:
 * to understand one of them alone takes minutes instead of a tenth of a second, and is done when
 * asked for (any_worker). What was found for one worker finds all others at once; so let it begin
 * with the lowest process of those that one parent started. Unknown are the seed, which generator
 * it went into, the order in which the data set numbers its files, the world and the rank. It goes
 * so:
 *
 *     collect   FB_SEED_FIRST accesses
 *     search    seeds below 2^20, then up to the limit, by seed_scan.h: does the seed put the first
 *               access, or when a swap has displaced that, the second or third, at a position that
 *               is the number of a rank? A seed that does is made to draw its first positions
 *               exactly: there the second access tells the world. Then the whole order is made, and
 *               all accesses must be where they should.
 *               For another worker than the first both accesses are followed through the shuffle of
 *               each seed (seed_walk.h): people's favourite seeds far into the epoch, then all
 *               small ones, near before far.
 *               A longer search also tries the seeds people like with numpy's and Python's
 *               shuffles, which begin at the back: there each seed costs a whole order.
 *     verify    until FB_SEED_ENOUGH accesses were foretold
 *     believed  as long as accesses go on to be foretold; batch and workers become known on the
 *               way. An access that is not begins the next epoch, or ends the belief at once.
 *
 * A wrong seed foretells an access with probability 1/n, so with 16 accesses and 256 files or more
 * no search is long enough to meet one by chance. Records of accesses may get lost: a step ahead
 * among the rank's own samples is forgiven to a belief, a step back or to another rank's is not.
 *
 * Pure: no I/O, no threads; the caller steps it with a budget. Memory: 4 bytes a file from the
 * moment a seed is found, 8 while it is checked; 6 MB more to search for any worker.
 */
#ifndef FB_EPOCH_SEED_SEARCH_H
#define FB_EPOCH_SEED_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "epoch/seed_scan.h"
#include "epoch/shuffle.h"
#include "epoch/split.h"

#define FB_SEED_FIRST    12 /* accesses to begin a search with */
#define FB_SEED_ENOUGH   16 /* accesses foretold to be believed */
#define FB_SEED_KEPT     4096
#define FB_SEED_FILES    256 /* fewer are too easily met by chance */
#define FB_SEED_ORDERS   4   /* in which a data set may number its files */
#define FB_SEED_USUAL    2   /* of them, for which all seeds are searched */
#define FB_SEED_NO_FILE  UINT32_MAX
#define FB_SEED_SMALL    (UINT64_C(1) << 20)
#define FB_SEED_ALL      (UINT64_C(1) << 32)
#define FB_SEED_RANK_MAX 224  /* ranks from here on are not found */
#define FB_SEED_LIKED    1024 /* seeds tried of samplers that shuffle from the back */

enum fb_seed_state {
    FB_SEED_COLLECT,  /* feed it */
    FB_SEED_SEARCH,   /* step it */
    FB_SEED_VERIFY,   /* feed it */
    FB_SEED_BELIEVED, /* feed it */
    FB_SEED_NONE,     /* nothing found; fb_seed_search_restart() begins anew */
};

struct fb_seed_belief {
    struct fb_shuffle_spec shuffle;
    uint64_t epoch; /* of that shuffle, under way */
    unsigned order; /* of the data set */
    uint32_t world;
    uint32_t rank;
    uint64_t start;    /* the process's first sample, of the rank's */
    uint32_t batch;    /* 0: not yet known, or there is one worker */
    uint32_t workers;  /* 0: likewise */
    uint32_t worker;   /* which of them the process is; as long as batch is not known, 0 */
    uint64_t foretold; /* accesses of this epoch */
    uint64_t lost;     /* accesses of this epoch that must have been made but were not told */
    uint64_t sample;   /* of the rank: the last one read */
};

struct fb_seed_config {
    unsigned order_count;            /* 1 to FB_SEED_ORDERS */
    uint32_t counts[FB_SEED_ORDERS]; /* files in each order */
    uint64_t seed_limit;             /* 0: FB_SEED_SMALL */
    bool any_worker;                 /* the process may be another worker than the first */
    enum fb_scan_level level;
    uint64_t walk_bytes; /* for the table of seed_walk.h, at most: it looks less far. 0: no limit */
};

struct fb_seed_search;

/* NULL: out of memory. */
FB_MUST_CHECK struct fb_seed_search *fb_seed_search_new(const struct fb_seed_config *config);
void fb_seed_search_free(struct fb_seed_search *s);

/* Begins anew. `last` may be NULL, or a belief about an earlier epoch, or another process, be it of
 * another rank or another worker: its seed and what follows from it are tried first. */
void fb_seed_search_restart(struct fb_seed_search *s, const struct fb_seed_belief *last);

/* The process has read a file: its number in each order, FB_SEED_NO_FILE where it has none. Reading
 * the same file again at once does not count. -ENOMEM: a next epoch could not be worked out; the
 * belief is dropped. */
FB_MUST_CHECK int fb_seed_search_feed(struct fb_seed_search *s, const uint32_t *files);

/* Goes on with a search for about `seeds` seeds (25 million take a second with AVX-512); returns
 * FB_SEED_SEARCH when there is more to do. -ENOMEM. */
FB_MUST_CHECK int fb_seed_search_step(struct fb_seed_search *s, uint64_t seeds);

enum fb_seed_state fb_seed_search_state(const struct fb_seed_search *s);

/* What is believed, or about to be (VERIFY); NULL: nothing. */
const struct fb_seed_belief *fb_seed_search_belief(const struct fb_seed_search *s);

#endif
