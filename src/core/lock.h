/*
 * core/lock.h - mutexes and conditions with a rank.
 *
 * Every mutex of the daemon has a rank from the table below, and a thread may only take a mutex of
 * a higher rank than those it holds. Debug builds (FB_DEBUG) assert it at every lock; so a deadlock
 * is found by any test that merely takes the locks, in whatever order the scheduler ran them. Waits
 * are on the monotonic clock and always have a deadline (FB_NEVER_NS for a worker's idle wait).
 */
#ifndef FB_CORE_LOCK_H
#define FB_CORE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

/* The table of locks: rank, lock, what it guards. Ranks leave gaps for what is to come. */
#define FB_LOCK_TABLE(X)                                                                    \
 X(FB_RANK_DAEMON, 10, "the daemon's list of mounts and sources")                           \
 X(FB_RANK_HOOK, 15, "what the background thread calls for a door")                         \
 X(FB_RANK_LIVE, 18, "what programs change through a mount, and have open for writing")     \
 X(FB_RANK_DOOR, 20, "a mount's directory handles and pending replies")                     \
 X(FB_RANK_RAISE, 21, "which data set is to be raised into DRAM")                           \
 X(FB_RANK_BRAIN, 22, "the tree of streams")                                                \
 X(FB_RANK_SEEDS, 23, "what processes have read that no plan foretells")                    \
 X(FB_RANK_EPOCHS, 24, "plans, and accesses on their way to them")                          \
 X(FB_RANK_WATCH, 25, "whether the background thread is to stop")                           \
 X(FB_RANK_EPOCH_LOG, 26, "segments that the epoch log is to read and to write")            \
 X(FB_RANK_FILL, 27, "which data set is to be loaded")                                      \
 X(FB_RANK_BRING, 28, "files that are brought before anybody asks")                         \
 X(FB_RANK_NEAR, 29, "files beside those that were read, which wait to be")                 \
 X(FB_RANK_FETCH, 30, "fetches in flight and who waits for them")                           \
 X(FB_RANK_META, 35, "look-ups in flight and who waits for them")                           \
 X(FB_RANK_DIRS, 37, "listings of directories that are known")                              \
 X(FB_RANK_ADMIT, 40, "open segments: where the next item goes, and the choice of victims") \
 X(FB_RANK_LEARN, 45, "what is learned about reuse, and the ranking of segments")           \
 X(FB_RANK_SEGMENT, 50, "the states and free lists of segments in one tier")                \
 X(FB_RANK_GUARD, 52, "who else may be reading a segment of DRAM")                          \
 X(FB_RANK_CLIENTS, 54, "the areas of memory shared with clients")                          \
 X(FB_RANK_TIER, 55, "a tier's free slots and staging memory")                              \
 X(FB_RANK_ORDERS, 57, "what users have ordered for paths")                                 \
 X(FB_RANK_GONE, 58, "items that were evicted since the brain was told")                    \
 X(FB_RANK_SPENT, 59, "files that were read and may go for others")                         \
 X(FB_RANK_FILES, 60, "writers of the file table")                                          \
 X(FB_RANK_INDEX, 65, "writers of the item index")                                          \
 X(FB_RANK_SOURCE, 70, "a source's queue of jobs and its workers")                          \
 X(FB_RANK_CREDS, 71, "credentials for S3, which are replaced as they expire")              \
 X(FB_RANK_FAULT, 72, "delayed jobs of the fault source")                                   \
 X(FB_RANK_JOURNAL, 74, "uploads to S3 under way, and records on their way to the journal") \
 X(FB_RANK_DEADLINE, 75, "jobs waiting for their deadline")                                 \
 X(FB_RANK_BUFFER, 80, "free buffers and those who wait for one")                           \
 X(FB_RANK_URING, 85, "a ring's submission queue")                                          \
 X(FB_RANK_METRICS, 90, "the registry of metrics")                                          \
 X(FB_RANK_LOG, 95, "the log file and its rotation")                                        \
 X(FB_RANK_LOG_QUEUE, 97, "lines on their way to the log")                                  \
 X(FB_RANK_EVENT, 99, "one event that somebody waits for")

enum fb_lock_rank {
#define X(name, rank, guards) name = (rank),
    FB_LOCK_TABLE(X)
#undef X
};

struct FB_CAPABILITY("mutex") fb_mutex {
    pthread_mutex_t mutex;
    enum fb_lock_rank rank;
};

struct fb_cond {
    _Atomic uint32_t signals; /* a futex: counts on, wraps */
    _Atomic uint32_t waiters; /* changed under the mutex that they wait with */
};

void fb_mutex_init(struct fb_mutex *m, enum fb_lock_rank rank);
void fb_mutex_destroy(struct fb_mutex *m);
void fb_mutex_lock(struct fb_mutex *m) FB_ACQUIRES(m);
bool fb_mutex_try(struct fb_mutex *m) FB_TRIES(m); /* false: somebody has it */
void fb_mutex_unlock(struct fb_mutex *m) FB_RELEASES(m);

void fb_cond_init(struct fb_cond *c);
void fb_cond_destroy(struct fb_cond *c);
/* What is waited for is changed under the mutex; the signal comes then or later. */
void fb_cond_signal(struct fb_cond *c);
void fb_cond_broadcast(struct fb_cond *c);

/* Waits until signalled or until `until_ns` on the monotonic clock (FB_NEVER_NS: no limit). Returns
 * false when the time ran out. Wakes spuriously, as pthreads do. */
bool fb_cond_wait(struct fb_cond *c, struct fb_mutex *m, int64_t until_ns) FB_REQUIRES(m);

/* Something that happens once, and somebody who waits for it: what makes an asynchronous call a
 * synchronous one. Lives on the waiter's stack; set() touches it no more once wait() may return. */
struct fb_event {
    struct fb_mutex lock;
    struct fb_cond cond;
    bool happened;
};

void fb_event_init(struct fb_event *e);
void fb_event_set(struct fb_event *e);
/* Waits for set() and destroys the event. */
void fb_event_wait(struct fb_event *e);

#endif
