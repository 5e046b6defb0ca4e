/*
 * cache/epochs_priv.h - what the files of epochs.h share.
 *
 *     epochs.c        the thread, accesses
 *     epoch_plans.c   the table of plans
 *     epoch_bring.c   files on their way into DRAM
 *     epoch_file.c    plans over a restart
 *     epoch_seeds.c   plans that nobody told; epoch_names.c: the files that there are
 *     epoch_log.c     the next epoch, laid out on NVMe; epoch_log_io.c: its threads
 */
#ifndef FB_CACHE_EPOCHS_PRIV_H
#define FB_CACHE_EPOCHS_PRIV_H

#include <pthread.h>

#include "cache/cache_priv.h"
#include "cache/epoch_log.h"
#include "cache/epoch_seeds.h"

#define FB_EPOCHS_QUEUE 8192u
#define FB_PLAN_LOOKS   64u
#define FB_FOLLOWED_NS  (10 * FB_NS_PER_S) /* since the last access of a plan */
#define FB_ASTRAY_ALL   1024u

/* A plan at work. The thread's own but for what is marked. */
struct fb_planned {
    struct fb_list link; /* among those to be freed */
    unsigned number;     /* in the table, and of its file */
    uint16_t source;
    char *uri;
    char *dir;
    size_t dir_len;
    struct fb_plan_order order;
    uint64_t first_epoch;
    bool found;
    bool ended;
    bool has_begun; /* what DRAM had of its files counts as kept */
    struct fb_names *names;
    struct fb_follow *follow;
    struct fb_follow_stats stats; /* under the lock, as the next */
    uint32_t buckets;
    _Atomic int64_t used_ns; /* last access, or when it came */
    _Atomic unsigned astray; /* accesses in FB_ASTRAY_ALL that were not foretold, of the last few */

    struct fb_layout_next *layout; /* epoch_log.c's */
    uint32_t files[FB_PLAN_LOOKS]; /* a ring: handed out, in order, and not begun yet */
    unsigned file_first, file_count;
    _Atomic uint64_t window; /* files to have ready */
    uint64_t kept_bytes;     /* of DRAM at most, in which files stay that have no place below, */
    uint64_t copied_bytes;   /* and with copies of others */
    uint64_t reads;          /* since rate_ns */
    int64_t rate_ns;
    double rate; /* files a second */

    _Atomic unsigned in_flight;
    _Atomic unsigned fetching; /* of them, from the source */
    _Atomic unsigned looking;  /* of them, for attributes alone */
    _Atomic uint64_t brought_files;
    _Atomic uint64_t brought_bytes;
};

/* Relaxed: each word counts by itself, and is only looked at by others. */
static inline int64_t fb_planned_used_ns(const struct fb_planned *p)
{
    return atomic_load_explicit(&p->used_ns, memory_order_relaxed);
}

static inline uint64_t fb_planned_window(const struct fb_planned *p)
{
    return atomic_load_explicit(&p->window, memory_order_relaxed);
}

struct fb_epochs {
    struct fb_cache *cache;
    int dir_fd; /* -1: plans do not survive */
    pthread_t thread;
    bool is_running;
    _Atomic unsigned count;    /* of plans */
    _Atomic bool followed;     /* some of them are read just now */
    _Atomic uint64_t foretold; /* a bit for each of their sources, by its number modulo 64 */
    _Atomic uint64_t owned[FB_PLANS_MAX]; /* directories of those read lately: hash, length + 1 */
    _Atomic uint64_t told[FB_PLANS_MAX];  /* of them, those that somebody has told */

    struct fb_mutex lock; /* FB_RANK_EPOCHS: guards what is below */
    struct fb_cond cond;
    bool stop;
    bool woken;
    bool attached; /* look for saved plans */
    struct fb_planned *plans[FB_PLANS_MAX];
    bool taken[FB_PLANS_MAX];
    bool waits[FB_PLANS_MAX]; /* saved, for a source that is not there */
    struct fb_list leaving;
    int64_t cut_ns; /* all accesses until then are here */
    uint32_t queued;
    struct fb_access *queue; /* FB_EPOCHS_QUEUE */

    struct fb_seeds *seeds;   /* NULL: nothing is searched */
    struct fb_epoch_log *log; /* NULL: nothing is laid out */

    struct fb_access *accesses;               /* the thread's, 2 * FB_EPOCHS_QUEUE */
    struct fb_access *sorted;                 /* as many */
    struct fb_planned *working[FB_PLANS_MAX]; /* the plans that it knows of */
    uint32_t *order;
    uint32_t held; /* of them, not yet looked at */
};

/* Under the lock, all three: the thread has something to do; a plan leaves its place in the table;
 * it ends for good, and is not there after a restart, either. */
static inline void fb_epochs_signal(struct fb_epochs *e) FB_REQUIRES(&e->lock)
{
    e->woken = true;
    fb_cond_signal(&e->cond);
}

void fb_epochs_retire(struct fb_epochs *e, unsigned number) FB_REQUIRES(&e->lock);
/* The lock is let go meanwhile: the disk that its file is on may hang, and requests wait for us. */
void fb_epochs_end(struct fb_epochs *e, unsigned number) FB_REQUIRES(&e->lock);

/* A plan that nobody uses any more. Takes NULL. */
void fb_planned_free(struct fb_planned *p);

/* The thread: takes up the saved plans whose source is there. */
void fb_epochs_resume(struct fb_epochs *e);

/* Begins to bring what the plan's readers want next; returns how many files. `share`: how many
 * plans divide DRAM among them. */
void fb_epochs_bring(struct fb_epochs *e, struct fb_planned *p, unsigned share);

/* A plan that nobody told, for a directory below a source; never instead of one that somebody did.
 * Takes `names` over. */
FB_MUST_CHECK int fb_epochs_found(struct fb_epochs *e, uint16_t source, const char *dir,
                                  struct fb_names *names, const struct fb_plan_order *order,
                                  struct fb_error *err);

/* Most bytes of DRAM that plans fill ahead. */
uint64_t fb_epochs_room(const struct fb_cache *cache);

/* Bytes of a file, as far as some have come. */
uint64_t fb_planned_mean_bytes(const struct fb_planned *p);

/* The number that a path below the source has in the plan's data set. False: it is not of it. */
FB_MUST_CHECK bool fb_planned_number(const struct fb_planned *p, const char *path, size_t len,
                                     uint32_t *ret_number);

/* Path below the source of a file of the plan. False: too long. */
FB_MUST_CHECK bool fb_planned_path(const struct fb_planned *p, uint32_t file,
                                   char path[FB_PATH_MAX]);

#endif
