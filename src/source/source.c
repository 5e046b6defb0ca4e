/*
 * The dispatcher between callers and a backend: deadlines, health, statistics, the order of
 * jobs with a handle. The backend does the work and may hang; nothing here ever waits for it but
 * close, and that for a bounded time.
 *
 * One thread, the watch, sleeps until the earliest deadline or the next probe; while there are jobs
 * that can be cancelled it looks after them ten times a second. The lock (rank
 * DEADLINE) guards everything mutable in struct fb_source and every struct fb_source_handle; it is
 * never held while a backend's function or done() is called. A job costs two short critical
 * sections and two heap operations.
 */
#include "source/source.h"

#include <errno.h>
#include <inttypes.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/lock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"
#include "source/job_priv.h"

#define CANCEL_BATCH 64u /* jobs looked at outside the lock at a time */

struct fb_source {
    const struct fb_source_ops *ops;
    void *backend;
    char *uri;
    pthread_t watch;
    bool watching;

    struct fb_mutex lock;
    struct fb_cond wake;  /* for the watch: an earlier deadline, or the end */
    struct fb_cond quiet; /* for close: nobody is inside start */
    bool closing;
    uint32_t starting;      /* callers inside the backend's start */
    struct fb_due_heap due; /* jobs that are PENDING */
    int64_t down_ns;        /* since when it is DOWN */
    int64_t patience_ns;    /* with a probe */
    int64_t wake_ns;        /* what the watch sleeps for; 0 while it is awake */
    int64_t look_ns;        /* when to look for cancelled jobs; FB_NEVER_NS: none can be */
    uint32_t look_from;     /* where in the heap the last look ended */
    struct fb_source_stats stats;

    uint32_t probes;  /* unanswered, of this episode */
    uint32_t episode; /* counts departures from UP */
    int64_t probe_ns; /* when the next one is due, unless UP */

    struct fb_source *next_abandoned;
};

/* Sources that were closed while threads of theirs were stuck in the kernel. Never read: it keeps
 * what those threads may still touch reachable, so that leak checkers tell it from a leak. */
static struct fb_source *_Atomic abandoned;

static void abandon(struct fb_source *source)
{
    struct fb_source *head = atomic_load_explicit(&abandoned, memory_order_relaxed);
    struct fb_source_stats stats;

    fb_source_stats(source, &stats);
    fb_log_warn("source %s was closed while %" PRIu32 " of its jobs hang", source->uri,
                stats.in_flight);
    do
        source->next_abandoned = head;
    while (!atomic_compare_exchange_weak_explicit(&abandoned, &head, source, memory_order_release,
                                                  memory_order_relaxed));
}

/* Tells the source's own probes from all other jobs. */
static void probe_done(struct fb_source_job *job)
{
    fb_source_job_put(job);
}

static bool is_probe(const struct fb_source_job *job)
{
    return job->done == probe_done;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- under the lock -------------------------------------------------------------------------- */

static void accept_job(struct fb_source *source, struct fb_source_job *job)
    FB_REQUIRES(source->lock);
static void suspect(struct fb_source *source, int64_t patience_ns) FB_REQUIRES(source->lock);
static bool expire(struct fb_source *source, struct fb_source_job *job) FB_REQUIRES(source->lock);
static bool probe_answered(struct fb_source *source, struct fb_source_job *job, int result)
    FB_REQUIRES(source->lock);
static struct fb_source_job *last_user(struct fb_source *source, struct fb_source_handle *handle)
    FB_REQUIRES(source->lock);

/* When to look at it first. */
static int64_t first_look(const struct fb_source_job *job)
{
    return job->doubt_ns > 0 ? earlier(fb_now_ns() + job->doubt_ns, job->deadline_ns)
                             : job->deadline_ns;
}

static void accept_job(struct fb_source *source, struct fb_source_job *job)
{
    int64_t look_ns = first_look(job);

    fb_source_job_ref(job);
    atomic_store_explicit(&job->state, FB_JOB_PENDING, memory_order_relaxed);
    if (fb_source_job_uses_handle(job))
        job->handle->users++;
    source->stats.in_flight++;
    source->starting++;
    fb_due_add(&source->due, &job->due, look_ns);
    if (job->cancel && source->look_ns == FB_NEVER_NS)
        source->look_ns = fb_now_ns() + FB_SOURCE_CANCEL_NS;
    if (earlier(look_ns, source->look_ns) < source->wake_ns)
        fb_cond_signal(&source->wake);
}

static void suspect(struct fb_source *source, int64_t patience_ns)
{
    /* Who has more reason for it has less patience: another probe goes at once. */
    if (source->stats.health == FB_SOURCE_SUSPECT && patience_ns < source->patience_ns) {
        source->patience_ns = patience_ns;
        source->probe_ns = 0;
    }
    if (source->stats.health != FB_SOURCE_UP)
        return;
    source->stats.health = FB_SOURCE_SUSPECT;
    source->patience_ns = patience_ns;
    source->probes = 0;
    source->episode++;
    source->probe_ns = 0;
}

/* Takes a reference for the caller; true when it is the caller's to call done(). */
static bool expire(struct fb_source *source, struct fb_source_job *job)
{
    fb_source_job_ref(job);
    fb_due_remove(&source->due, &job->due);
    if (!fb_source_job_leave(job, FB_JOB_EXPIRED))
        return false;
    source->stats.stuck++;
    return true;
}

/* True when this ends an outage. */
static bool probe_answered(struct fb_source *source, struct fb_source_job *job, int result)
{
    bool was_down = source->stats.health == FB_SOURCE_DOWN;

    /* A probe of an earlier episode, unanswered until now, is no longer counted. */
    if (job->cookie == source->episode && source->probes > 0)
        source->probes--;
    if (fb_source_is_outage(result))
        return false;
    source->stats.health = FB_SOURCE_UP;
    return was_down;
}

/* The CLOSE to start now, if any. */
static struct fb_source_job *last_user(struct fb_source *source, struct fb_source_handle *handle)
{
    FB_ASSERT(handle->users > 0);
    handle->users--;
    if (handle->users > 0 || !handle->closer)
        return NULL;
    if (source->closing)
        source->stats.in_flight--;
    return fb_steal(handle->closer);
}

/* ---- submit ---------------------------------------------------------------------------------- */

static void start(struct fb_source *source, struct fb_source_job *job)
{
    source->ops->start(source->backend, job);
    fb_mutex_lock(&source->lock);
    if (--source->starting == 0 && source->closing)
        fb_cond_signal(&source->quiet);
    fb_mutex_unlock(&source->lock);
}

static void submit_close(struct fb_source *source, struct fb_source_job *job)
{
    bool now = false, later = false;

    fb_source_job_ref(job);
    atomic_store_explicit(&job->state, FB_JOB_DETACHED, memory_order_relaxed);
    job->result = 0;
    fb_mutex_lock(&source->lock);
    source->stats.jobs++;
    if (!source->closing) {
        later = job->handle->users > 0;
        now = !later;
        FB_ASSERT(!job->handle->closer);
        if (later)
            job->handle->closer = job;
        source->stats.in_flight++;
        source->starting += now;
    }
    fb_mutex_unlock(&source->lock);
    job->done(job);
    if (now)
        start(source, job);
    else if (!later)
        fb_source_job_put(job);
}

void fb_source_submit(struct fb_source *source, struct fb_source_job *job)
{
    int refusal = 0;

    fb_source_job_check(job);
    job->source = source;
    if (job->op == FB_SOURCE_CLOSE) {
        submit_close(source, job);
        return;
    }
    fb_mutex_lock(&source->lock);
    source->stats.jobs++;
    if (source->closing)
        refusal = -ESHUTDOWN;
    else if (source->stats.health == FB_SOURCE_DOWN)
        refusal = -EIO;
    else if (source->stats.in_flight >= FB_SOURCE_JOBS_MAX)
        refusal = -EAGAIN;
    if (refusal == 0)
        accept_job(source, job);
    else
        source->stats.errors++;
    fb_mutex_unlock(&source->lock);
    if (refusal == 0) {
        start(source, job);
        return;
    }
    atomic_store_explicit(&job->state, FB_JOB_FINISHED, memory_order_relaxed);
    job->result = refusal;
    job->refused = true;
    job->done(job);
}

/* ---- finish ---------------------------------------------------------------------------------- */

/* Nobody took the handle of an OPENDIR or OPEN that expired. Without memory it stays until the
 * source is closed. */
static void discard_handle(struct fb_source *source, struct fb_source_handle *handle)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_CLOSE, NULL);

    if (!job)
        return;
    job->handle = handle;
    job->done = fb_source_job_put;
    fb_source_submit(source, job);
}

void fb_source_job_finish(struct fb_source_job *job, int result)
{
    struct fb_source *source = job->source;
    bool won = fb_source_job_leave(job, FB_JOB_FINISHED);
    struct fb_source_job *closer = NULL;
    bool back = false, gave_up = result == -EHOSTDOWN, closing;

    FB_ASSERT(result <= 0);
    if (gave_up)
        result = -EIO;
    fb_mutex_lock(&source->lock);
    fb_due_remove(&source->due, &job->due);
    source->stats.in_flight--;
    if (fb_source_job_expired(job))
        source->stats.stuck--;
    if (won) {
        source->stats.errors += fb_source_is_outage(result);
        if (result == 0 && (job->op == FB_SOURCE_READ || job->op == FB_SOURCE_PREAD))
            source->stats.bytes_read += job->bytes;
    }
    if (is_probe(job)) {
        back = probe_answered(source, job, result);
    } else if (won && gave_up) {
        suspect(source, FB_SOURCE_PROBE_NS);
        fb_cond_signal(&source->wake);
    }
    if (fb_source_job_uses_handle(job))
        closer = last_user(source, job->handle);
    closing = source->closing;
    fb_mutex_unlock(&source->lock);

    if (back)
        fb_log_info("source %s answers again", source->uri);
    if (!won && fb_source_job_gives_handle(job) && result == 0)
        discard_handle(source, job->handle);
    if (won)
        job->result = result;
    /* First the backend's reference: when the caller gives back its own, the buffers are free. */
    fb_source_job_put(job);
    if (won)
        job->done(job);
    if (closer && closing)
        fb_source_job_put(closer);
    else if (closer)
        source->ops->start(source->backend, closer);
}

/* ---- the watch ------------------------------------------------------------------------------- */

static void expire_first(struct fb_source *source, struct fb_source_job *job)
    FB_REQUIRES(source->lock);
static unsigned collect_signalled(struct fb_source *source, int64_t now_ns,
                                  struct fb_source_job *ret_jobs[CANCEL_BATCH])
    FB_REQUIRES(source->lock);
static void cancel_dying(struct fb_source *source, int64_t now_ns) FB_REQUIRES(source->lock);
static void probe(struct fb_source *source, int64_t now_ns) FB_REQUIRES(source->lock);

/* The backend still has the job, but nobody waits for it any more. */
static void give_up(struct fb_source *source, struct fb_source_job *job, int result)
{
    job->result = result;
    job->done(job);
    if (source->ops->expired)
        source->ops->expired(source->backend, job);
}

static void expire_first(struct fb_source *source, struct fb_source_job *job)
{
    bool won = expire(source, job), down = false;

    if (won && is_probe(job)) {
        down = source->stats.health == FB_SOURCE_SUSPECT && job->cookie == source->episode;
        if (down) {
            source->stats.health = FB_SOURCE_DOWN;
            source->down_ns = fb_now_ns();
            source->patience_ns = FB_SOURCE_PROBE_NS;
        }
    } else if (won) {
        source->stats.timeouts++;
        suspect(source, FB_SOURCE_PROBE_NS);
    }
    fb_mutex_unlock(&source->lock);
    if (down)
        fb_log_warn("source %s does not answer; only cached data is served until it does",
                    source->uri);
    if (won)
        give_up(source, job, -ETIMEDOUT);
    fb_source_job_put(job);
    fb_mutex_lock(&source->lock);
}

/* A job that may take long has taken the usual time. It goes on while the source answers. That it
 * takes long says little, and what it sends may fill the line: the probe has long to come before
 * the source counts as down, for others' jobs would end with it. */
static void look_at_first(struct fb_source *source, struct fb_source_job *job, int64_t now_ns)
    FB_REQUIRES(source->lock)
{
    if (now_ns >= job->deadline_ns ||
        (source->stats.health == FB_SOURCE_DOWN && now_ns - source->down_ns >= job->doubt_ns / 2)) {
        expire_first(source, job);
        return;
    }
    suspect(source,
            job->doubt_ns / 2 > FB_SOURCE_PROBE_NS ? job->doubt_ns / 2 : FB_SOURCE_PROBE_NS);
    fb_due_remove(&source->due, &job->due);
    fb_due_add(&source->due, &job->due, earlier(now_ns + job->doubt_ns, job->deadline_ns));
}

/* Jobs whose program got a signal, with a reference each, and when to look again. A job in the heap
 * has not been answered, so what `cancel` points at is still there. */
static unsigned collect_signalled(struct fb_source *source, int64_t now_ns,
                                  struct fb_source_job *ret_jobs[CANCEL_BATCH])
{
    uint32_t total = source->due.count;
    unsigned count = 0;

    source->look_ns = FB_NEVER_NS;
    for (uint32_t i = 0; i < total && count < CANCEL_BATCH; i++) {
        uint32_t slot = source->look_from++ % total + 1;
        struct fb_source_job *job =
            FB_CONTAINER_OF(source->due.slots[slot], struct fb_source_job, due);

        if (!job->cancel)
            continue;
        source->look_ns = now_ns + FB_SOURCE_CANCEL_NS;
        /* Relaxed: a hint; what is missed now is seen by the next look. */
        if (!atomic_load_explicit(job->cancel, memory_order_relaxed))
            continue;
        fb_source_job_ref(job);
        ret_jobs[count++] = job;
    }
    return count;
}

/* A signal that the program handles leaves its wait as it is; one that ends it ends the wait. */
static void cancel_dying(struct fb_source *source, int64_t now_ns)
{
    struct fb_source_job *jobs[CANCEL_BATCH];
    unsigned count = collect_signalled(source, now_ns, jobs);

    for (unsigned i = 0; i < count; i++) {
        bool dying, won = false;

        fb_mutex_unlock(&source->lock);
        dying = fb_task_is_dying(jobs[i]->caller.pid);
        if (dying) {
            fb_mutex_lock(&source->lock);
            won = expire(source, jobs[i]);
            fb_mutex_unlock(&source->lock);
        }
        if (won)
            give_up(source, jobs[i], -EINTR);
        if (dying)
            fb_source_job_put(jobs[i]);
        fb_source_job_put(jobs[i]);
        fb_mutex_lock(&source->lock);
    }
}

static void probe(struct fb_source *source, int64_t now_ns)
{
    struct fb_source_job *job;

    source->probe_ns = now_ns + source->patience_ns;
    if (source->probes >= FB_SOURCE_PROBES_MAX ||
        source->stats.in_flight >= FB_SOURCE_JOBS_MAX + FB_SOURCE_PROBES_MAX)
        return;
    fb_mutex_unlock(&source->lock);
    job = fb_source_job_new(FB_SOURCE_STAT, "");
    fb_mutex_lock(&source->lock);
    if (!job)
        return;
    job->source = source;
    job->urgent = true;
    job->done = probe_done;
    job->deadline_ns = source->probe_ns;
    job->cookie = source->episode;
    source->probes++;
    accept_job(source, job);
    fb_mutex_unlock(&source->lock);
    start(source, job);
    fb_mutex_lock(&source->lock);
}

static void *watch_main(void *arg)
{
    struct fb_source *source = arg;

    fb_mutex_lock(&source->lock);
    while (!source->closing) {
        struct fb_due *first = fb_due_first(&source->due);
        int64_t now_ns = fb_now_ns();
        bool well = source->stats.health == FB_SOURCE_UP;

        source->wake_ns = 0;
        if (first && first->at_ns <= now_ns) {
            look_at_first(source, FB_CONTAINER_OF(first, struct fb_source_job, due), now_ns);
        } else if (!well && source->probe_ns <= now_ns) {
            probe(source, now_ns);
        } else if (source->look_ns <= now_ns) {
            cancel_dying(source, now_ns);
        } else {
            source->wake_ns = earlier(first ? first->at_ns : FB_NEVER_NS, source->look_ns);
            if (!well && source->probe_ns < source->wake_ns)
                source->wake_ns = source->probe_ns;
            fb_cond_wait(&source->wake, &source->lock, source->wake_ns);
        }
    }
    fb_mutex_unlock(&source->lock);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void destroy(struct fb_source *source)
{
    source->ops->destroy(source->backend);
    fb_due_destroy(&source->due);
    fb_cond_destroy(&source->quiet);
    fb_cond_destroy(&source->wake);
    fb_mutex_destroy(&source->lock);
    free(source->uri);
    free(source);
}

int fb_source_create(const struct fb_source_ops *ops, void *backend, const char *uri,
                     struct fb_source **ret_source)
{
    struct fb_source *source = fb_alloc(sizeof *source);
    int r;

    if (!source) {
        if (ops->close(backend, fb_now_ns() + FB_SOURCE_CLOSE_NS))
            ops->destroy(backend);
        return -ENOMEM;
    }
    source->ops = ops;
    source->backend = backend;
    source->uri = fb_strdup(uri);
    source->look_ns = FB_NEVER_NS;
    fb_mutex_init(&source->lock, FB_RANK_DEADLINE);
    fb_cond_init(&source->wake);
    fb_cond_init(&source->quiet);
    r = fb_due_create(&source->due, FB_SOURCE_JOBS_MAX + FB_SOURCE_PROBES_MAX);
    if (r == 0 && !source->uri)
        r = -ENOMEM;
    if (r == 0)
        r = fb_thread_start(&source->watch, "fb-watch", watch_main, source);
    if (r < 0) {
        fb_source_close(source);
        return r;
    }
    source->watching = true;
    *ret_source = source;
    return 0;
}

static void shut_down_jobs(struct fb_source *source)
{
    struct fb_due *first;

    fb_mutex_lock(&source->lock);
    while ((first = fb_due_first(&source->due))) {
        struct fb_source_job *job = FB_CONTAINER_OF(first, struct fb_source_job, due);
        bool won = expire(source, job);

        fb_mutex_unlock(&source->lock);
        if (won) {
            job->result = -ESHUTDOWN;
            job->done(job);
        }
        fb_source_job_put(job);
        fb_mutex_lock(&source->lock);
    }
    fb_mutex_unlock(&source->lock);
}

bool fb_source_close(struct fb_source *source)
{
    if (!source)
        return true;
    fb_mutex_lock(&source->lock);
    source->closing = true;
    fb_cond_signal(&source->wake);
    /* Not for ever: start must not block. */
    while (source->starting > 0)
        fb_cond_wait(&source->quiet, &source->lock, FB_NEVER_NS);
    fb_mutex_unlock(&source->lock);
    if (source->watching)
        pthread_join(source->watch, NULL);
    shut_down_jobs(source);
    if (!source->ops->close(source->backend, fb_now_ns() + FB_SOURCE_CLOSE_NS)) {
        abandon(source);
        return false;
    }
    FB_ASSERT(source->stats.in_flight == 0);
    destroy(source);
    return true;
}

void fb_source_stats(struct fb_source *source, struct fb_source_stats *ret_stats)
{
    fb_mutex_lock(&source->lock);
    *ret_stats = source->stats;
    fb_mutex_unlock(&source->lock);
}

bool fb_source_is_direct(const struct fb_source *source)
{
    return source->ops->is_direct && source->ops->is_direct(source->backend);
}

bool fb_source_is_far(const struct fb_source *source)
{
    return source->ops->is_far && source->ops->is_far(source->backend);
}

bool fb_source_is_bare(const struct fb_source *source)
{
    return source->ops->is_bare && source->ops->is_bare(source->backend);
}

const char *fb_source_uri(const struct fb_source *source)
{
    return source->uri;
}

void *fb_source_backend(struct fb_source *source, const struct fb_source_ops *ops)
{
    return source->ops == ops ? source->backend : NULL;
}
