/*
 * io/engine_priv.h - what the two kinds of engine share: the queue, its lock, the observer.
 *
 * A back end is one or more threads that take ios from `queue`, move bytes, and hand each io back
 * through finish: engine_completed() under the lock, then io->done() without it.
 */
#ifndef FB_IO_ENGINE_PRIV_H
#define FB_IO_ENGINE_PRIV_H

#include "core/lock.h"
#include "io/engine.h"

#define FB_ENGINE_DEPTH_MAX   1024
#define FB_ENGINE_RETRIES_MAX 64 /* of one io, for EINTR and EAGAIN */

struct fb_engine_ops {
    const char *name;
    /* Starts the threads. Negative errno: nothing runs, destroy is not called. */
    int (*start)(struct fb_engine *engine);
    /* ios were queued. Under the lock; true: call `wake` when it has been released. */
    bool (*queued)(struct fb_engine *engine);
    void (*wake)(struct fb_engine *engine);
    /* `stopping` is set and nothing new comes: ends when all done() have returned. */
    void (*stop)(struct fb_engine *engine);
};

struct fb_engine {
    const struct fb_engine_ops *ops;
    unsigned depth;
    struct fb_mutex lock; /* FB_RANK_URING: guards all that follows */
    struct fb_list queue;
    uint64_t outstanding; /* submitted, and done() has not returned */
    bool stopping;
    fb_engine_observer *observer;
    void *observer_arg;
    unsigned rings; /* of a back end that has any: at first those that are wanted */
    void *state;    /* the back end's own */
};

extern const struct fb_engine_ops fb_engine_uring;
extern const struct fb_engine_ops fb_engine_threads;

/* Takes the outcome of one system call or completion (bytes or negative errno) into account. True:
 * the io is finished and its result set; false: the rest has to be issued. */
bool fb_engine_advance(struct fb_io *io, int64_t outcome);

/* Tells the observer; call under the lock, before done(). */
void fb_engine_completed(struct fb_engine *engine, const struct fb_io *io)
    FB_REQUIRES(&engine->lock);

#endif
