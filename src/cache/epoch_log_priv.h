/*
 * cache/epoch_log_priv.h - what the two sides of the epoch log share: epoch_log.c has the plans'
 * buckets and judges segments, epoch_log_io.c reads and writes them.
 */
#ifndef FB_CACHE_EPOCH_LOG_PRIV_H
#define FB_CACHE_EPOCH_LOG_PRIV_H

#include <pthread.h>

#include "cache/cache_priv.h"
#include "cache/epoch_log.h"
#include "cache/epoch_writes.h"

#define FB_EPOCH_LOG_LOADS   256u /* segments that wait to be read */
#define FB_EPOCH_LOG_READERS 2u

/* An item that waits, with a reference to its file. */
struct fb_logged {
    uint64_t key;
    uint32_t number; /* of its file, in the plan */
    bool stays;      /* in DRAM: somebody is about to read it */
};

/* Items for one segment. */
struct fb_log_batch {
    struct fb_list link;
    uint64_t bytes;
    uint32_t count;
    struct fb_logged items[];
};

/* What is known of a segment: the thread's of epochs.c. */
struct fb_log_seen {
    uint64_t sequence;
    uint64_t epoch;
    bool covers;
};

struct fb_epoch_log {
    struct fb_cache *cache;
    unsigned tier;
    uint32_t base; /* number of the tier's first segment */
    uint64_t segment_bytes;
    struct fb_log_seen *seen;      /* by slot */
    struct fb_epoch_writes writes; /* the writing thread's */
    _Atomic int64_t refused_ns;    /* for fb_log_limited() */
    uint32_t buckets;              /* of all plans: the thread's of epochs.c */
    _Atomic uint32_t spare;        /* slots that are the log's; relaxed: a number by itself */

    pthread_t threads[FB_EPOCH_LOG_READERS + 1];
    unsigned thread_count;
    struct fb_mutex lock; /* FB_RANK_EPOCH_LOG: what follows */
    struct fb_cond cond;
    bool stop;
    uint32_t loads[FB_EPOCH_LOG_LOADS]; /* a ring */
    unsigned load_first, load_count;
    struct fb_list batches;
    unsigned batch_count, batch_max; /* what waits takes DRAM */
};

FB_MUST_CHECK int fb_epoch_log_start(struct fb_epoch_log *log);
void fb_epoch_log_stop(struct fb_epoch_log *log);

/* False: too many wait. */
FB_MUST_CHECK bool fb_epoch_log_load(struct fb_epoch_log *log, uint32_t segment);
/* Takes the batch over. */
void fb_epoch_log_write(struct fb_epoch_log *log, struct fb_log_batch *batch);

/* What was not written leaves DRAM as it would without a log. Frees the batch. */
void fb_epoch_log_leave(struct fb_cache *cache, struct fb_log_batch *batch);

#endif
