/*
 * source/test_jobs.h - for unit tests: jobs made, run and looked at in one line.
 */
#ifndef FB_SOURCE_TEST_JOBS_H
#define FB_SOURCE_TEST_JOBS_H

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "source/source.h"

#define FB_TEST_PATIENCE_NS (60 * FB_NS_PER_S) /* a test that waits this long has failed */
#define FB_TEST_SOON_NS     (10 * FB_NS_PER_MS)

/* Waits until `condition` holds. */
#define FB_TEST_EVENTUALLY(condition)                 \
 do {                                                 \
  int64_t until_ = fb_now_ns() + FB_TEST_PATIENCE_NS; \
  while (!(condition) && fb_now_ns() < until_)        \
   fb_sleep_ns(FB_NS_PER_MS);                         \
  assert_true(condition);                             \
 } while (0)

static inline struct fb_source_job *fb_test_job(enum fb_source_op op, const char *path)
{
    struct fb_source_job *job = fb_source_job_new(op, path);

    assert_non_null(job);
    job->deadline_ns = fb_now_ns() + FB_TEST_PATIENCE_NS;
    return job;
}

/* A READ of up to `len` bytes into buffers of the pool. */
static inline struct fb_source_job *fb_test_read_job(struct fb_buffer_pool *pool, const char *path,
                                                     uint64_t offset, size_t len)
{
    struct fb_source_job *job = fb_test_job(FB_SOURCE_READ, path);

    job->offset = offset;
    while (len > 0) {
        struct fb_buffer *buffer = fb_buffer_get(pool);
        size_t part;

        assert_non_null(buffer);
        part = len < buffer->size ? len : buffer->size;
        job->buffers[job->buffer_count++] = buffer;
        job->iov[job->iov_count++] = (struct iovec){.iov_base = buffer->data, .iov_len = part};
        len -= part;
    }
    return job;
}

/* Byte `i` of what a READ gave. */
static inline uint8_t fb_test_byte(const struct fb_source_job *job, uint64_t i)
{
    unsigned k = 0;

    for (; i >= job->iov[k].iov_len; k++)
        i -= job->iov[k].iov_len;
    return ((const uint8_t *)job->iov[k].iov_base)[i];
}

/* Runs one job on a path, gives back its result and, if asked for, its attributes. */
static inline int fb_test_run(struct fb_source *source, enum fb_source_op op, const char *path,
                              struct fb_attr *ret_attr)
{
    struct fb_source_job *job = fb_test_job(op, path);
    int r = fb_source_wait(source, job);

    if (ret_attr)
        *ret_attr = job->attr;
    fb_source_job_put(job);
    return r;
}

static inline int fb_test_stat(struct fb_source *source, const char *path)
{
    return fb_test_run(source, FB_SOURCE_STAT, path, NULL);
}

static inline int fb_test_read(struct fb_source *source, struct fb_buffer_pool *pool,
                               const char *path)
{
    struct fb_source_job *job = fb_test_read_job(pool, path, 0, 100);
    int r = fb_source_wait(source, job);

    fb_source_job_put(job);
    return r;
}

static inline enum fb_source_health fb_test_health(struct fb_source *source)
{
    struct fb_source_stats stats;

    fb_source_stats(source, &stats);
    return stats.health;
}

static inline struct fb_source_handle *fb_test_opendir(struct fb_source *source, const char *path)
{
    struct fb_source_job *job = fb_test_job(FB_SOURCE_OPENDIR, path);
    struct fb_source_handle *dir;

    assert_int_equal(fb_source_wait(source, job), 0);
    dir = job->handle;
    fb_source_job_put(job);
    assert_non_null(dir);
    return dir;
}

static inline void fb_test_closedir(struct fb_source *source, struct fb_source_handle *dir)
{
    struct fb_source_job *job = fb_test_job(FB_SOURCE_CLOSE, NULL);

    job->handle = dir;
    assert_int_equal(fb_source_wait(source, job), 0);
    fb_source_job_put(job);
}

#endif
