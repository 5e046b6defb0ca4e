/*
 * A job passes through these stages, each an entry of one heap ordered by due time and served by
 * one thread; without a delay the next one is entered at once:
 *
 *     start ──► WAIT for latency and jitter ──► fails, or goes to the inner source
 *        └────► hung, until let go ─┘                     └─► SEND: bandwidth ──► finish
 *
 * Bandwidth is a virtual clock: the moment at which the line is free again. Each READ
 * and WRITE moves it on by what its bytes cost and is answered then. The lock (rank FAULT) guards
 * settings, dice, clock, heap, hung jobs and handles; no function of either source is called under
 * it.
 */
#include "source/source_fault.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/rand.h"
#include "core/clock.h"
#include "core/lock.h"
#include "core/mem.h"
#include "core/thread.h"

#define INNER_GRACE_NS FB_NS_PER_S /* by which inner deadlines lie later than outer ones */
#define DELAY_MAX_NS   (3600 * FB_NS_PER_S)

struct fault {
    struct fb_source *inner;
    pthread_t thread;
    bool threaded;

    struct fb_mutex lock;
    struct fb_cond wake;
    bool closing;
    struct fb_fault_config config;
    struct fb_rand dice;
    int64_t line_free_ns;
    struct fb_due_heap due;
    struct fb_list hung;    /* of struct step */
    struct fb_list handles; /* of struct fault_handle */
};

enum stage {
    WAIT,
    SEND,
};

/* What is to happen to one job; lives until that is finished. */
struct step {
    struct fb_due due;
    struct fb_list link;
    struct fault *fault;
    struct fb_source_job *job;
    enum stage stage;
    int result;  /* SEND: the answer; WAIT: the error to fail with, or 0 */
    double keep; /* share of the bytes to keep; 1 but for a READ to be cut short */
};

struct fault_handle {
    struct fb_source_handle base;
    struct fb_list link;
    struct fb_source_handle *inner;
};

static void finish(struct step *step, int result)
{
    struct fb_source_job *job = step->job;

    free(step);
    fb_source_job_finish(job, result);
}

/* ---- under the lock -------------------------------------------------------------------------- */

static bool cast(struct fault *fault, struct step *step, int64_t *ret_delay_ns)
    FB_REQUIRES(fault->lock);
static void schedule(struct fault *fault, struct step *step, int64_t at_ns)
    FB_REQUIRES(fault->lock);

/* Every job costs the same number of casts, so what becomes of the next one does not depend on what
 * became of this one. True: it hangs. */
static bool cast(struct fault *fault, struct step *step, int64_t *ret_delay_ns)
{
    const struct fb_fault_config *config = &fault->config;
    double hang = fb_rand_unit(&fault->dice), error = fb_rand_unit(&fault->dice);
    double cut = fb_rand_unit(&fault->dice), keep = fb_rand_unit(&fault->dice);
    double jitter = fb_rand_unit(&fault->dice);

    *ret_delay_ns = config->latency_ns + (int64_t)(jitter * (double)config->jitter_ns);
    step->result = error < config->error ? -(config->error_code ? config->error_code : EIO) : 0;
    step->keep = cut < config->short_read ? keep : 1;
    return hang < config->hang;
}

static void schedule(struct fault *fault, struct step *step, int64_t at_ns)
{
    struct fb_due *first = fb_due_first(&fault->due);

    fb_due_add(&fault->due, &step->due, at_ns);
    if (!first || at_ns < first->at_ns)
        fb_cond_signal(&fault->wake);
}

/* ---- the inner source ------------------------------------------------------------------------ */

static int wrap_handle(struct fault *fault, struct fb_source_job *outer,
                       struct fb_source_handle *inner)
{
    struct fault_handle *handle = fb_alloc(sizeof *handle);

    /* Without memory the inner one stays open until the source is closed. */
    if (!handle)
        return -ENOMEM;
    handle->inner = inner;
    outer->handle = &handle->base;
    fb_mutex_lock(&fault->lock);
    fb_list_push_back(&fault->handles, &handle->link);
    fb_mutex_unlock(&fault->lock);
    return 0;
}

static bool gives_handle(enum fb_source_op op)
{
    return op == FB_SOURCE_OPENDIR || op == FB_SOURCE_OPEN;
}

/* The inner job has memory of its own: it may use it when nobody waits for the outer one any more.
 */
static void fetch_memory(struct fb_source_job *outer, const struct fb_source_job *inner)
{
    for (unsigned i = 0; i < outer->iov_count; i++)
        memcpy(outer->iov[i].iov_base, inner->iov[i].iov_base, outer->iov[i].iov_len);
}

static int take_answer(struct step *step, struct fb_source_job *inner)
{
    struct fb_source_job *outer = step->job;

    /* The backend may still be writing. */
    if (inner->result == -ETIMEDOUT || inner->result == -ESHUTDOWN)
        return inner->result;
    outer->bytes = inner->bytes;
    if (step->keep < 1 && inner->op != FB_SOURCE_WRITE)
        outer->bytes = (uint64_t)((double)inner->bytes * step->keep);
    outer->attr = inner->attr;
    outer->direct = inner->direct;
    outer->at_end = inner->at_end;
    outer->statfs = inner->statfs;
    if (inner->op != FB_SOURCE_SETXATTR) {
        outer->data = fb_steal(inner->data);
        outer->data_len = inner->data_len;
    }
    if (inner->memory && inner->op != FB_SOURCE_WRITE)
        fetch_memory(outer, inner);
    if (inner->result == 0 && gives_handle(inner->op))
        return wrap_handle(step->fault, outer, inner->handle);
    return inner->result;
}

static void inner_done(struct fb_source_job *inner)
{
    struct step *step = inner->arg;
    struct fault *fault = step->fault;
    int64_t now_ns = fb_now_ns();
    bool delayed = false;

    step->stage = SEND;
    step->result = take_answer(step, inner);
    fb_source_job_put(inner);
    if (step->result == 0 && step->job->op == FB_SOURCE_READ && step->job->bytes > 0) {
        fb_mutex_lock(&fault->lock);
        delayed = fault->config.bandwidth > 0 && !fault->closing;
        if (delayed) {
            double cost_ns =
                (double)step->job->bytes * (double)FB_NS_PER_S / (double)fault->config.bandwidth;

            if (fault->line_free_ns < now_ns)
                fault->line_free_ns = now_ns;
            if (fault->line_free_ns < now_ns + DELAY_MAX_NS && cost_ns < (double)DELAY_MAX_NS)
                fault->line_free_ns += (int64_t)cost_ns;
            schedule(fault, step, fault->line_free_ns);
        }
        fb_mutex_unlock(&fault->lock);
    }
    if (!delayed)
        finish(step, step->result);
}

static bool copy_iov(struct fb_source_job *job, const struct fb_source_job *outer)
{
    size_t size = 0;

    for (unsigned i = 0; i < outer->iov_count; i++)
        size += outer->iov[i].iov_len;
    job->memory = malloc(size + 1);
    if (!job->memory)
        return false;
    size = 0;
    for (unsigned i = 0; i < outer->iov_count; i++) {
        job->iov[i].iov_base = (char *)job->memory + size;
        if (outer->op == FB_SOURCE_WRITE)
            memcpy(job->iov[i].iov_base, outer->iov[i].iov_base, outer->iov[i].iov_len);
        size += outer->iov[i].iov_len;
    }
    return true;
}

/* What the inner source may still read when nobody waits for the outer job any more. */
static bool copy_memory(struct fb_source_job *job, const struct fb_source_job *outer)
{
    if (outer->path2 && !(job->path2 = fb_strdup(outer->path2)))
        return false;
    if (outer->op == FB_SOURCE_SETXATTR) {
        job->data = malloc(outer->data_len + 1);
        if (!job->data)
            return false;
        memcpy(job->data, outer->data, outer->data_len);
        job->data_len = outer->data_len;
    }
    return !outer->memory || copy_iov(job, outer);
}

static struct fb_source_job *inner_job(const struct fb_source_job *outer)
{
    struct fb_source_job *job = fb_source_job_new(outer->op, outer->path);

    if (!job)
        return NULL;
    job->caller = outer->caller;
    job->deadline_ns = outer->deadline_ns < FB_NEVER_NS - INNER_GRACE_NS
                           ? outer->deadline_ns + INNER_GRACE_NS
                           : FB_NEVER_NS;
    job->expected = outer->expected;
    job->expect = outer->expect ? &job->expected : NULL;
    job->own_dev = outer->own_dev;
    job->own_ino = outer->own_ino;
    job->offset = outer->offset;
    job->buffer_count = outer->buffer_count;
    for (unsigned i = 0; i < outer->buffer_count; i++)
        job->buffers[i] = fb_buffer_ref(outer->buffers[i]);
    job->iov_count = outer->iov_count;
    memcpy(job->iov, outer->iov, outer->iov_count * sizeof *outer->iov);
    job->cookie = outer->cookie;
    job->want_attrs = outer->want_attrs;
    memcpy(job->name, outer->name, sizeof job->name);
    job->urgent = outer->urgent;
    job->flags = outer->flags;
    job->mode = outer->mode;
    job->umask = outer->umask;
    job->set = outer->set;
    job->length = outer->length;
    job->attr = outer->attr;
    if (outer->handle && !gives_handle(outer->op))
        job->handle = FB_CONTAINER_OF(outer->handle, struct fault_handle, base)->inner;
    if (!copy_memory(job, outer)) {
        fb_source_job_put(job);
        return NULL;
    }
    return job;
}

static void advance(struct step *step)
{
    struct fb_source_job *job;

    if (step->stage == SEND || step->result < 0) {
        finish(step, step->result);
        return;
    }
    job = fb_source_job_expired(step->job) ? NULL : inner_job(step->job);
    if (!job) {
        finish(step, fb_source_job_expired(step->job) ? -ETIMEDOUT : -ENOMEM);
        return;
    }
    job->done = inner_done;
    job->arg = step;
    fb_source_submit(step->fault->inner, job);
}

/* Without memory it stays open until the source is closed. */
static void close_handle(struct fault *fault, struct fb_source_handle *base)
{
    struct fault_handle *handle = FB_CONTAINER_OF(base, struct fault_handle, base);
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_CLOSE, NULL);

    if (!job)
        return;
    fb_mutex_lock(&fault->lock);
    fb_list_remove(&handle->link);
    fb_mutex_unlock(&fault->lock);
    job->handle = handle->inner;
    job->done = fb_source_job_put;
    free(handle);
    fb_source_submit(fault->inner, job);
}

/* ---- the backend ----------------------------------------------------------------------------- */

static void fault_start(void *backend, struct fb_source_job *job)
{
    struct fault *fault = backend;
    struct step *step;
    int64_t delay_ns;
    bool at_once = false, closing;

    if (job->op == FB_SOURCE_CLOSE) {
        close_handle(fault, job->handle);
        fb_source_job_finish(job, 0);
        return;
    }
    step = fb_alloc(sizeof *step);
    if (!step) {
        fb_source_job_finish(job, -ENOMEM);
        return;
    }
    step->fault = fault;
    step->job = job;
    fb_mutex_lock(&fault->lock);
    closing = fault->closing;
    if (!closing) {
        if (cast(fault, step, &delay_ns))
            fb_list_push_back(&fault->hung, &step->link);
        else if (delay_ns > 0)
            schedule(fault, step, fb_now_ns() + delay_ns);
        else
            at_once = true;
    }
    fb_mutex_unlock(&fault->lock);
    if (closing)
        finish(step, -ESHUTDOWN);
    else if (at_once)
        advance(step);
}

static void *fault_main(void *arg)
{
    struct fault *fault = arg;

    fb_mutex_lock(&fault->lock);
    while (!fault->closing) {
        struct fb_due *first = fb_due_first(&fault->due);

        if (!first || first->at_ns > fb_now_ns()) {
            fb_cond_wait(&fault->wake, &fault->lock, first ? first->at_ns : FB_NEVER_NS);
            continue;
        }
        fb_due_remove(&fault->due, first);
        fb_mutex_unlock(&fault->lock);
        advance(FB_CONTAINER_OF(first, struct step, due));
        fb_mutex_lock(&fault->lock);
    }
    fb_mutex_unlock(&fault->lock);
    return NULL;
}

/* One waiting or hung step, or NULL. */
static struct step *take_step(struct fault *fault)
{
    struct step *step = NULL;
    struct fb_due *first;

    fb_mutex_lock(&fault->lock);
    first = fb_due_first(&fault->due);
    if (first) {
        fb_due_remove(&fault->due, first);
        step = FB_CONTAINER_OF(first, struct step, due);
    } else if (!fb_list_empty(&fault->hung)) {
        step = FB_LIST_ENTRY(fault->hung.next, struct step, link);
        fb_list_remove(&step->link);
    }
    fb_mutex_unlock(&fault->lock);
    return step;
}

/* The inner source is closed here and sees to what is stuck in it; after that nobody calls us. */
static bool fault_close(void *backend, int64_t until_ns)
{
    struct fault *fault = backend;
    struct step *step;

    (void)until_ns;
    fb_mutex_lock(&fault->lock);
    fault->closing = true;
    fb_cond_signal(&fault->wake);
    fb_mutex_unlock(&fault->lock);
    if (fault->threaded)
        pthread_join(fault->thread, NULL);
    while ((step = take_step(fault)))
        finish(step, -ESHUTDOWN);
    return fb_source_close(fault->inner);
}

static void fault_destroy(void *backend)
{
    struct fault *fault = backend;
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &fault->handles)
        free(FB_LIST_ENTRY(it, struct fault_handle, link));
    fb_due_destroy(&fault->due);
    fb_cond_destroy(&fault->wake);
    fb_mutex_destroy(&fault->lock);
    free(fault);
}

static bool fault_is_direct(void *backend)
{
    const struct fault *fault = backend;

    return fb_source_is_direct(fault->inner);
}

static const struct fb_source_ops fault_ops = {
    .name = "fault",
    .start = fault_start,
    .close = fault_close,
    .destroy = fault_destroy,
    .is_direct = fault_is_direct,
};

static void configure(struct fault *fault, const struct fb_fault_config *config)
{
    FB_ASSERT(config->latency_ns >= 0 && config->jitter_ns >= 0 && config->error_code >= 0);
    fault->config = *config;
    if (config->latency_ns > DELAY_MAX_NS)
        fault->config.latency_ns = DELAY_MAX_NS;
    if (config->jitter_ns > DELAY_MAX_NS)
        fault->config.jitter_ns = DELAY_MAX_NS;
}

int fb_source_fault_open(struct fb_source *inner, const struct fb_fault_config *config,
                         struct fb_source **ret_source)
{
    FB_AUTO_FREE char *uri = fb_strdup(fb_source_uri(inner));
    struct fault *fault = fb_alloc(sizeof *fault);
    int r;

    if (!fault) {
        fb_source_close(inner);
        return -ENOMEM;
    }
    fault->inner = inner;
    configure(fault, config);
    fault->dice.state = config->seed;
    fb_mutex_init(&fault->lock, FB_RANK_FAULT);
    fb_cond_init(&fault->wake);
    fb_list_init(&fault->hung);
    fb_list_init(&fault->handles);
    r = fb_due_create(&fault->due, FB_SOURCE_JOBS_MAX + FB_SOURCE_PROBES_MAX);
    if (r == 0 && !uri)
        r = -ENOMEM;
    if (r == 0)
        r = fb_thread_start(&fault->thread, "fb-fault", fault_main, fault);
    if (r < 0) {
        if (fault_close(fault, 0))
            fault_destroy(fault);
        return r;
    }
    fault->threaded = true;
    return fb_source_create(&fault_ops, fault, uri, ret_source);
}

void fb_source_fault_set(struct fb_source *source, const struct fb_fault_config *config)
{
    struct fault *fault = fb_source_backend(source, &fault_ops);
    struct fb_list *it, *tmp;

    FB_ASSERT(fault);
    fb_mutex_lock(&fault->lock);
    if (config->seed != fault->config.seed)
        fault->dice.state = config->seed;
    configure(fault, config);
    if (!(config->hang > 0)) {
        FB_LIST_FOREACH (it, tmp, &fault->hung) {
            fb_list_remove(it);
            schedule(fault, FB_LIST_ENTRY(it, struct step, link), fb_now_ns());
        }
    }
    fb_mutex_unlock(&fault->lock);
}
