/*
 * The engine where io_uring is refused: a few threads that take one io after the other and finish
 * it with pread, pwrite or fdatasync. `depth` is not needed: at most one io a thread is in the
 * kernel. Each lane has LANE_THREADS of them, so that a disk is kept as busy as one that is alone.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/thread.h"
#include "io/engine_priv.h"

#define LANE_THREADS 4u
#define THREADS_MAX  (LANE_THREADS * FB_ENGINE_LANES_MAX)

struct threads {
    struct fb_cond work;
    unsigned started;
    unsigned idle;

    struct one {
        struct fb_engine *engine;
        unsigned no;
        pthread_t thread;
    } all[THREADS_MAX];
};

static int64_t issue(const struct fb_io *io)
{
    uint8_t *at = io->moved > 0 ? (uint8_t *)io->data + io->moved : io->data;
    size_t left = io->length - io->moved;
    off_t offset = (off_t)(io->offset + io->moved);
    int64_t n = 0;

    switch (io->op) {
    case FB_IO_READ:
        n = pread(io->fd, at, left, offset);
        break;
    case FB_IO_WRITE:
        n = pwrite(io->fd, at, left, offset);
        break;
    case FB_IO_FSYNC:
        n = fdatasync(io->fd);
        break;
    }
    return n < 0 ? -errno : n;
}

static struct fb_io *next(struct fb_engine *e, struct threads *t, unsigned no) FB_REQUIRES(&e->lock)
{
    struct fb_io *io;

    while (!(io = fb_engine_next(e, no))) {
        if (e->stopping && e->outstanding == 0)
            return NULL;
        t->idle++;
        fb_cond_wait(&t->work, &e->lock, FB_NEVER_NS);
        t->idle--;
    }
    return io;
}

static void *run(void *arg)
{
    const struct one *one = arg;
    struct fb_engine *e = one->engine;
    struct threads *t = e->state;
    struct fb_io *io;

    fb_mutex_lock(&e->lock);
    while ((io = next(e, t, one->no))) {
        fb_mutex_unlock(&e->lock);
        while (!fb_engine_advance(io, issue(io)))
            ;
        fb_mutex_lock(&e->lock);
        fb_engine_completed(e, io);
        fb_mutex_unlock(&e->lock);
        io->done(io);
        fb_mutex_lock(&e->lock);
        if (--e->outstanding == 0 && e->stopping)
            fb_cond_broadcast(&t->work);
    }
    fb_mutex_unlock(&e->lock);
    return NULL;
}

static void threads_stop(struct fb_engine *e)
{
    struct threads *t = e->state;

    fb_mutex_lock(&e->lock);
    fb_cond_broadcast(&t->work);
    fb_mutex_unlock(&e->lock);
    for (unsigned i = 0; i < t->started; i++)
        pthread_join(t->all[i].thread, NULL);
    fb_cond_destroy(&t->work);
    free(t);
}

static int threads_start(struct fb_engine *e)
{
    struct threads *t = fb_alloc(sizeof *t);
    unsigned wanted = LANE_THREADS * e->lanes;
    int r = 0;

    if (!t)
        return -ENOMEM;
    fb_cond_init(&t->work);
    e->state = t;
    while (t->started < wanted) {
        struct one *one = &t->all[t->started];

        *one = (struct one){.engine = e, .no = t->started};
        r = fb_thread_start(&one->thread, "fb-io", run, one);
        if (r < 0)
            break;
        t->started++;
        fb_mutex_lock(&e->lock);
        e->servers = t->started;
        fb_mutex_unlock(&e->lock);
    }
    if (t->started > 0)
        return 0;
    fb_cond_destroy(&t->work);
    free(t);
    return r;
}

static bool threads_queued(struct fb_engine *e)
{
    const struct threads *t = e->state;

    return t->idle > 0;
}

static void threads_wake(struct fb_engine *e)
{
    struct threads *t = e->state;

    fb_cond_broadcast(&t->work);
}

const struct fb_engine_ops fb_engine_threads = {
    .name = "threads",
    .start = threads_start,
    .queued = threads_queued,
    .wake = threads_wake,
    .stop = threads_stop,
};
