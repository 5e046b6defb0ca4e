/*
 * source/posix_pool.h - threads for calls that may block, or hang for ever.
 *
 * Threads start on demand, up to `near`, and up to `far` while jobs take long (FB_POSIX_FAR_NS on
 * average, not counting the queue): a thread that waits for a far server costs nothing, and without
 * more of them a server gives no more than `near` requests a round trip, whatever it could. Where
 * answers come at once, more threads would only be in each other's way.
 *
 * A thread whose job expired counts as stuck, and another
 * may take its place, up to FB_POSIX_STUCK_MAX of them; a probe may have one more when all are
 * busy, so that a slow source is not taken for a dead one. When every thread the pool may have is
 * stuck, jobs fail at once with -EIO. Threads beyond what is allowed leave after their job.
 */
#ifndef FB_SOURCE_POSIX_POOL_H
#define FB_SOURCE_POSIX_POOL_H

#include "source/source.h"

struct fb_posix_pool;

/* Does the job, on a thread of the pool, and returns its result. */
typedef int fb_posix_run_fn(void *arg, struct fb_source_job *job);

FB_MUST_CHECK int fb_posix_pool_create(unsigned near, unsigned far, fb_posix_run_fn *run, void *arg,
                                       struct fb_posix_pool **ret_pool);

/* These do what the functions of the same name of struct fb_source_ops do. */
void fb_posix_pool_start(struct fb_posix_pool *pool, struct fb_source_job *job);
void fb_posix_pool_expired(struct fb_posix_pool *pool, struct fb_source_job *job);
bool fb_posix_pool_close(struct fb_posix_pool *pool, int64_t until_ns);
void fb_posix_pool_destroy(struct fb_posix_pool *pool); /* takes NULL */

struct fb_posix_pool_stats {
    unsigned threads;
    unsigned stuck;
    unsigned idle;
    unsigned queued;
};

void fb_posix_pool_stats(struct fb_posix_pool *pool, struct fb_posix_pool_stats *ret_stats);

#endif
