/*
 * A job by itself: memory, references, the race for its answer (job_priv.h has the states). What
 * happens to jobs inside a source is in source.c.
 */
#include <errno.h>

#include "base/assert.h"
#include "core/lock.h"
#include "core/mem.h"
#include "source/job_priv.h"

struct fb_source_job *fb_source_job_new(enum fb_source_op op, const char *path)
{
    struct fb_source_job *job = fb_alloc(sizeof *job);

    if (!job)
        return NULL;
    job->op = op;
    atomic_init(&job->refs, 1);
    fb_list_init(&job->backend_link);
    if (path) {
        job->path = fb_strdup(path);
        if (!job->path) {
            free(job);
            return NULL;
        }
    }
    return job;
}

void fb_source_job_ref(struct fb_source_job *job)
{
    /* Relaxed: whoever takes a reference already has one. */
    atomic_fetch_add_explicit(&job->refs, 1, memory_order_relaxed);
}

void fb_source_job_put(struct fb_source_job *job)
{
    /* Release: our use of the job comes before the free; acquire: the free after all others'
     * use. */
    if (!job || atomic_fetch_sub_explicit(&job->refs, 1, memory_order_acq_rel) != 1)
        return;
    FB_ASSERT(job->buffer_count <= FB_SOURCE_IOV_MAX);
    for (unsigned i = 0; i < job->buffer_count; i++)
        fb_buffer_put(job->buffers[i]);
    free(job->memory);
    free(job->data);
    free(job->path2);
    free(job->path);
    free(job);
}

bool fb_source_job_leave(struct fb_source_job *job, enum fb_job_state to)
{
    uint32_t pending = FB_JOB_PENDING;

    /* Acquire and release, its own partner: finish and expire meet here. */
    return atomic_compare_exchange_strong_explicit(&job->state, &pending, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

bool fb_source_job_expired(const struct fb_source_job *job)
{
    /* Relaxed: a hint; the exchange in fb_source_job_leave() decides. */
    return atomic_load_explicit(&job->state, memory_order_relaxed) == FB_JOB_EXPIRED;
}

void fb_source_job_check(const struct fb_source_job *job)
{
    uint64_t length = 0;

    FB_ASSERT(job->op < FB_SOURCE_OPS && job->done);
    FB_ASSERT(job->handle || job->path || job->op == FB_SOURCE_STATFS);
    FB_ASSERT(!job->handle || !fb_source_job_gives_handle(job));
    FB_ASSERT(job->iov_count <= FB_SOURCE_IOV_MAX && job->buffer_count <= FB_SOURCE_IOV_MAX);
    FB_ASSERT(!job->expect || job->expect == &job->expected);
    for (unsigned i = 0; i < job->iov_count; i++) {
        FB_ASSERT(job->iov[i].iov_len <= FB_SOURCE_READ_MAX);
        length += job->iov[i].iov_len;
    }
    FB_ASSERT(length <= FB_SOURCE_READ_MAX);
}

bool fb_source_is_outage(int result)
{
    switch (-result) {
    case 0:
    case EACCES:
    case E2BIG:
    case EBUSY:
    case EDQUOT:
    case EEXIST:
    case EFBIG:
    case EINVAL:
    case EISDIR:
    case ELOOP:
    case EMLINK:
    case ENAMETOOLONG:
    case ENODATA:
    case ENOENT:
    case ENOSPC:
    case ENOSYS:
    case ENOTDIR:
    case ENOTEMPTY:
    case ENOTSUP:
    case EOVERFLOW:
    case EPERM:
    case ERANGE:
    case EROFS:
    case ESTALE:
    case EXDEV:
        return false;
    default:
        return result < 0;
    }
}

static void wake(struct fb_source_job *job)
{
    fb_event_set(job->arg);
}

int fb_source_wait(struct fb_source *source, struct fb_source_job *job)
{
    struct fb_event answered;

    fb_event_init(&answered);
    job->done = wake;
    job->arg = &answered;
    fb_source_submit(source, job);
    /* Not for ever: the source answers by the job's deadline. */
    fb_event_wait(&answered);
    return job->result;
}
