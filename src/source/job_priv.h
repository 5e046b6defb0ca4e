/*
 * source/job_priv.h - the states of a job.
 *
 *     IDLE ──submit──► PENDING ──finish──► FINISHED     done(result)
 *                         └──────expire──► EXPIRED      done(-ETIMEDOUT), -EINTR or -ESHUTDOWN
 *     IDLE ──submit──► FINISHED                         done(), refused: the backend never sees it
 *     IDLE ──submit──► DETACHED                         done(0), CLOSE: the backend goes on
 *
 * PENDING is left by compare-and-exchange, and who succeeds calls done(). References: the caller's,
 * from job_new to its job_put, and the backend's, from start to finish.
 */
#ifndef FB_SOURCE_JOB_PRIV_H
#define FB_SOURCE_JOB_PRIV_H

#include "source/source.h"

enum fb_job_state {
    FB_JOB_IDLE,
    FB_JOB_PENDING,
    FB_JOB_FINISHED,
    FB_JOB_EXPIRED,
    FB_JOB_DETACHED,
};

void fb_source_job_ref(struct fb_source_job *job);

/* True for the one who may call done(). */
bool fb_source_job_leave(struct fb_source_job *job, enum fb_job_state to);

/* OPENDIR and OPEN; and those that came after them and before CLOSE. */
static inline bool fb_source_job_gives_handle(const struct fb_source_job *job)
{
    return job->op == FB_SOURCE_OPENDIR || job->op == FB_SOURCE_OPEN;
}

static inline bool fb_source_job_uses_handle(const struct fb_source_job *job)
{
    return job->handle && !fb_source_job_gives_handle(job) && job->op != FB_SOURCE_CLOSE;
}

/* Asserts what a caller must have filled in. */
void fb_source_job_check(const struct fb_source_job *job);

#endif
