/*
 * io/engine_priv.h - what the two kinds of engine share: the queues, their lock, the observer.
 *
 * A back end is one or more threads, with numbers from 0 on, that take ios with fb_engine_next(),
 * move bytes, and hand each io back: fb_engine_completed() under the lock, then io->done() without
 * it. Each serves one lane; only where fewer could be started than there are lanes, several.
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
    unsigned lanes;
    struct fb_mutex lock;                      /* FB_RANK_URING: guards all that follows */
    struct fb_list queue[FB_ENGINE_LANES_MAX]; /* a lane */
    unsigned turn;                             /* which lane who serves several looks at first */
    unsigned servers;                          /* threads of the back end, once they have started */
    uint64_t outstanding;                      /* submitted, and done() has not returned */
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

/* Whether the thread of that number serves a lane in whose queue there is something. When the
 * engine stops all of them serve all, as some have ended. */
bool fb_engine_serves(const struct fb_engine *engine, unsigned server, unsigned lane)
    FB_REQUIRES(&engine->lock);
/* The next io for it, NULL: there is none; and whether there is one. */
struct fb_io *fb_engine_next(struct fb_engine *engine, unsigned server) FB_REQUIRES(&engine->lock);
bool fb_engine_ready(const struct fb_engine *engine, unsigned server) FB_REQUIRES(&engine->lock);

/* Tells the observer; call under the lock, before done(). */
void fb_engine_completed(struct fb_engine *engine, const struct fb_io *io)
    FB_REQUIRES(&engine->lock);

#endif
