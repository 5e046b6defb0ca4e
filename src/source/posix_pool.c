/*
 * A queue, and detached threads that serve it. The lock (rank SOURCE) guards all of the pool; jobs
 * are run and finished without it. A thread's struct worker lives on its own stack: a stuck thread
 * owns what describes it.
 */
#include "source/posix_pool.h"

#include <errno.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/lock.h"
#include "core/mem.h"
#include "core/thread.h"
#include "source/source_posix.h"

#define MEAN_OVER  8 /* jobs */
#define SHORT_READ (256U << 10)

struct fb_posix_pool {
    fb_posix_run_fn *run;
    void *arg;
    unsigned near; /* threads that are not stuck, at most */
    unsigned far;

    struct fb_mutex lock;
    struct fb_cond work;
    struct fb_cond left; /* for close: the last thread is gone */
    bool closing;
    struct fb_list queue; /* of jobs, by backend_link */
    unsigned urgent;      /* of them, at its front */
    struct fb_list workers;
    int64_t took_ns; /* jobs take on average; 0: none has ended yet */
    bool is_far;
    struct fb_posix_pool_stats stats;
};

struct worker {
    struct fb_list link;
    const struct fb_source_job *job;
    bool stuck;
};

static unsigned allowed(const struct fb_posix_pool *pool) FB_REQUIRES(pool->lock);
static bool reserve_thread(struct fb_posix_pool *pool) FB_REQUIRES(pool->lock);
static void enqueue(struct fb_posix_pool *pool, struct fb_source_job *job) FB_REQUIRES(pool->lock);
static void dequeue(struct fb_posix_pool *pool, struct fb_source_job *job) FB_REQUIRES(pool->lock);
static struct fb_source_job *next_job(struct fb_posix_pool *pool) FB_REQUIRES(pool->lock);
static void note_time(struct fb_posix_pool *pool, int64_t took_ns) FB_REQUIRES(pool->lock);
static void serve(struct fb_posix_pool *pool, struct worker *self, struct fb_source_job *job)
    FB_REQUIRES(pool->lock);
static void start_thread(struct fb_posix_pool *pool);

static unsigned allowed(const struct fb_posix_pool *pool)
{
    unsigned stuck =
        pool->stats.stuck < FB_POSIX_STUCK_MAX ? pool->stats.stuck : FB_POSIX_STUCK_MAX;

    return (pool->is_far ? pool->far : pool->near) + stuck + (pool->urgent > 0);
}

/* True when the caller, after unlocking, must start a thread. */
static bool reserve_thread(struct fb_posix_pool *pool)
{
    if (pool->closing || pool->stats.queued <= pool->stats.idle ||
        pool->stats.threads >= allowed(pool))
        return false;
    pool->stats.threads++;
    return true;
}

static void enqueue(struct fb_posix_pool *pool, struct fb_source_job *job)
{
    if (job->urgent)
        fb_list_push_front(&pool->queue, &job->backend_link);
    else
        fb_list_push_back(&pool->queue, &job->backend_link);
    pool->urgent += job->urgent;
    pool->stats.queued++;
}

static void dequeue(struct fb_posix_pool *pool, struct fb_source_job *job)
{
    fb_list_remove(&job->backend_link);
    pool->urgent -= job->urgent;
    pool->stats.queued--;
}

/* Waits for one; NULL when the thread is to leave. */
static struct fb_source_job *next_job(struct fb_posix_pool *pool)
{
    struct fb_source_job *job;

    for (;;) {
        /* A stuck thread is counted in what is allowed, so this one is not stuck. */
        if (pool->closing || pool->stats.threads > allowed(pool))
            return NULL;
        if (!fb_list_empty(&pool->queue))
            break;
        pool->stats.idle++;
        fb_cond_wait(&pool->work, &pool->lock, FB_NEVER_NS);
        pool->stats.idle--;
    }
    job = FB_LIST_ENTRY(pool->queue.next, struct fb_source_job, backend_link);
    dequeue(pool, job);
    return job;
}

/* Half of that must be left before the source is near again, so that threads do not come and go. */
static void note_time(struct fb_posix_pool *pool, int64_t took_ns)
{
    pool->took_ns =
        pool->took_ns == 0 ? took_ns : pool->took_ns + (took_ns - pool->took_ns) / MEAN_OVER;
    if (pool->took_ns >= FB_POSIX_FAR_NS)
        pool->is_far = true;
    else if (pool->took_ns < FB_POSIX_FAR_NS / 2)
        pool->is_far = false;
}

static void serve(struct fb_posix_pool *pool, struct worker *self, struct fb_source_job *job)
{
    int result = -ETIMEDOUT;
    int64_t begun_ns = 0;
    bool spawn = reserve_thread(pool); /* others may wait since before the source was far */

    self->job = job;
    fb_mutex_unlock(&pool->lock);
    if (spawn)
        start_thread(pool);
    if (!fb_source_job_expired(job)) {
        begun_ns = fb_now_ns();
        result = pool->run(pool->arg, job);
    }
    fb_mutex_lock(&pool->lock);
    /* A long read says how wide the way to the source is, not how long. */
    if (begun_ns > 0 && job->bytes <= SHORT_READ)
        note_time(pool, fb_now_ns() - begun_ns);
    self->job = NULL;
    pool->stats.stuck -= self->stuck;
    self->stuck = false;
    fb_mutex_unlock(&pool->lock);
    fb_source_job_finish(job, result);
    fb_mutex_lock(&pool->lock);
}

static void *worker_main(void *arg)
{
    struct fb_posix_pool *pool = arg;
    struct worker self = {.job = NULL};
    struct fb_source_job *job;

    fb_mutex_lock(&pool->lock);
    fb_list_push_back(&pool->workers, &self.link);
    while ((job = next_job(pool)))
        serve(pool, &self, job);
    fb_list_remove(&self.link);
    /* The signal that woke this thread may have been meant for a job. */
    if (!fb_list_empty(&pool->queue))
        fb_cond_signal(&pool->work);
    /* Signalled under the lock: once it is released, close may free the pool. */
    if (--pool->stats.threads == 0)
        fb_cond_signal(&pool->left);
    fb_mutex_unlock(&pool->lock);
    return NULL;
}

/* One by one: until it is off the queue, a job may be taken from there by
 * fb_posix_pool_expired(). */
static void drain(struct fb_posix_pool *pool, int result)
{
    struct fb_source_job *job;

    do {
        job = NULL;
        fb_mutex_lock(&pool->lock);
        if (!fb_list_empty(&pool->queue)) {
            job = FB_LIST_ENTRY(pool->queue.next, struct fb_source_job, backend_link);
            dequeue(pool, job);
        }
        fb_mutex_unlock(&pool->lock);
        if (job)
            fb_source_job_finish(job, result);
    } while (job);
}

/* Uses a reservation. Without a thread to wait for, the queue is answered here. */
static void start_thread(struct fb_posix_pool *pool)
{
    int r = fb_thread_start_detached("fb-posix", worker_main, pool);
    bool alone;

    if (r == 0)
        return;
    fb_mutex_lock(&pool->lock);
    alone = --pool->stats.threads == 0;
    if (alone)
        fb_cond_signal(&pool->left);
    fb_mutex_unlock(&pool->lock);
    if (alone)
        drain(pool, r);
}

void fb_posix_pool_start(struct fb_posix_pool *pool, struct fb_source_job *job)
{
    bool spawn = false;
    int refusal = 0;

    fb_mutex_lock(&pool->lock);
    if (pool->closing)
        refusal = -ESHUTDOWN;
    else if (pool->stats.stuck >= pool->near + FB_POSIX_STUCK_MAX && job->op != FB_SOURCE_CLOSE)
        refusal = -EIO;
    if (refusal == 0) {
        enqueue(pool, job);
        spawn = reserve_thread(pool);
        if (!spawn)
            fb_cond_signal(&pool->work);
    }
    fb_mutex_unlock(&pool->lock);
    if (refusal < 0)
        fb_source_job_finish(job, refusal);
    if (spawn)
        start_thread(pool);
}

void fb_posix_pool_expired(struct fb_posix_pool *pool, struct fb_source_job *job)
{
    struct fb_list *it, *tmp;
    bool queued, spawn = false;

    fb_mutex_lock(&pool->lock);
    queued = fb_list_linked(&job->backend_link);
    if (queued)
        dequeue(pool, job);
    FB_LIST_FOREACH (it, tmp, &pool->workers) {
        struct worker *w = FB_LIST_ENTRY(it, struct worker, link);

        if (w->job == job && !w->stuck) {
            w->stuck = true;
            pool->stats.stuck++;
            spawn = reserve_thread(pool);
        }
    }
    fb_mutex_unlock(&pool->lock);
    if (queued)
        fb_source_job_finish(job, -ETIMEDOUT);
    if (spawn)
        start_thread(pool);
}

int fb_posix_pool_create(unsigned near, unsigned far, fb_posix_run_fn *run, void *arg,
                         struct fb_posix_pool **ret_pool)
{
    struct fb_posix_pool *pool = fb_alloc(sizeof *pool);

    FB_ASSERT(near > 0 && far >= near);
    if (!pool)
        return -ENOMEM;
    pool->run = run;
    pool->arg = arg;
    pool->near = near;
    pool->far = far;
    fb_mutex_init(&pool->lock, FB_RANK_SOURCE);
    fb_cond_init(&pool->work);
    fb_cond_init(&pool->left);
    fb_list_init(&pool->queue);
    fb_list_init(&pool->workers);
    *ret_pool = pool;
    return 0;
}

bool fb_posix_pool_close(struct fb_posix_pool *pool, int64_t until_ns)
{
    bool in_time = true, empty;

    fb_mutex_lock(&pool->lock);
    pool->closing = true;
    fb_cond_broadcast(&pool->work);
    fb_mutex_unlock(&pool->lock);
    drain(pool, -ESHUTDOWN);
    fb_mutex_lock(&pool->lock);
    while (pool->stats.threads > 0 && in_time)
        in_time = fb_cond_wait(&pool->left, &pool->lock, until_ns);
    empty = pool->stats.threads == 0;
    fb_mutex_unlock(&pool->lock);
    return empty;
}

void fb_posix_pool_destroy(struct fb_posix_pool *pool)
{
    if (!pool)
        return;
    FB_ASSERT(pool->stats.threads == 0 && fb_list_empty(&pool->queue));
    fb_cond_destroy(&pool->left);
    fb_cond_destroy(&pool->work);
    fb_mutex_destroy(&pool->lock);
    free(pool);
}

void fb_posix_pool_stats(struct fb_posix_pool *pool, struct fb_posix_pool_stats *ret_stats)
{
    fb_mutex_lock(&pool->lock);
    *ret_stats = pool->stats;
    fb_mutex_unlock(&pool->lock);
}
