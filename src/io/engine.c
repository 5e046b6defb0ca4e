#include "io/engine.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/assert.h"
#include "core/error.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/mem.h"
#include "io/engine_priv.h"

#define CPUS_A_RING 4u

static int start(struct fb_engine *e, const struct fb_engine_ops *ops)
{
    e->ops = ops;
    return ops->start(e);
}

/* One keeps two processors busy where items are small: it submits, verifies and copies. */
static unsigned rings_of(unsigned wanted, unsigned depth, unsigned lanes)
{
    uint64_t rings = wanted ? wanted : fb_cpu_count() / CPUS_A_RING;

    return (unsigned)fb_max_u64(lanes, fb_min_u64(rings, fb_min_u64(depth, FB_ENGINE_RINGS_MAX)));
}

int fb_engine_create(enum fb_engine_kind kind, unsigned rings, unsigned depth, unsigned lanes,
                     struct fb_engine **ret_engine)
{
    struct fb_engine *e = fb_alloc(sizeof *e);
    int r = 0;

    FB_ASSERT(lanes > 0 && lanes <= FB_ENGINE_LANES_MAX);
    if (!e)
        return -ENOMEM;
    e->depth = (unsigned)fb_min_u64(fb_max_u64(depth, lanes), FB_ENGINE_DEPTH_MAX);
    e->rings = rings_of(rings, e->depth, lanes);
    e->lanes = lanes;
    fb_mutex_init(&e->lock, FB_RANK_URING);
    for (unsigned i = 0; i < lanes; i++)
        fb_list_init(&e->queue[i]);
    if (kind != FB_ENGINE_THREADS) {
        r = start(e, &fb_engine_uring);
        if (r < 0 && kind == FB_ENGINE_AUTO)
            fb_log_info("io_uring is not available (%s): using threads for disk I/O",
                        fb_strerror(r));
    }
    if (kind == FB_ENGINE_THREADS || (r < 0 && kind == FB_ENGINE_AUTO))
        r = start(e, &fb_engine_threads);
    if (r < 0) {
        fb_mutex_destroy(&e->lock);
        free(e);
        return r;
    }
    *ret_engine = e;
    return 0;
}

void fb_engine_destroy(struct fb_engine *engine)
{
    if (!engine)
        return;
    fb_mutex_lock(&engine->lock);
    engine->stopping = true;
    fb_mutex_unlock(&engine->lock);
    engine->ops->stop(engine);
    FB_ASSERT(engine->outstanding == 0);
    fb_mutex_destroy(&engine->lock);
    free(engine);
}

const char *fb_engine_name(const struct fb_engine *engine)
{
    return engine->ops->name;
}

void fb_engine_submit(struct fb_engine *engine, struct fb_io *const *ios, unsigned count)
{
    bool wake;

    if (count == 0)
        return;
    fb_mutex_lock(&engine->lock);
    for (unsigned i = 0; i < count; i++) {
        struct fb_io *io = ios[i];

        FB_ASSERT(io->length <= INT32_MAX && io->lane < engine->lanes);
        io->moved = 0;
        io->retries = 0;
        io->result = 0;
        if (engine->observer && io->op != FB_IO_READ)
            engine->observer(engine->observer_arg, io, false);
        fb_list_push_back(&engine->queue[io->lane], &io->link);
    }
    engine->outstanding += count;
    wake = engine->ops->queued(engine);
    fb_mutex_unlock(&engine->lock);
    if (wake)
        engine->ops->wake(engine);
}

bool fb_engine_serves(const struct fb_engine *engine, unsigned server, unsigned lane)
{
    bool enough = engine->servers >= engine->lanes;

    return engine->stopping ||
           (enough ? server % engine->lanes == lane : lane % engine->servers == server);
}

struct fb_io *fb_engine_next(struct fb_engine *engine, unsigned server)
{
    for (unsigned i = 0; i < engine->lanes; i++) {
        unsigned lane = (engine->turn + i) % engine->lanes;
        struct fb_io *io = FB_LIST_ENTRY(engine->queue[lane].next, struct fb_io, link);

        if (fb_list_empty(&engine->queue[lane]) || !fb_engine_serves(engine, server, lane))
            continue;
        fb_list_remove(&io->link);
        engine->turn = lane + 1;
        return io;
    }
    return NULL;
}

bool fb_engine_ready(const struct fb_engine *engine, unsigned server)
{
    bool ready = false;

    for (unsigned lane = 0; lane < engine->lanes && !ready; lane++)
        ready = !fb_list_empty(&engine->queue[lane]) && fb_engine_serves(engine, server, lane);
    return ready;
}

void fb_engine_observe(struct fb_engine *engine, fb_engine_observer *observer, void *arg)
{
    fb_mutex_lock(&engine->lock);
    engine->observer = observer;
    engine->observer_arg = arg;
    fb_mutex_unlock(&engine->lock);
}

void fb_engine_tell(struct fb_engine *engine, const struct fb_io *io, bool completed)
{
    if (!engine)
        return;
    fb_mutex_lock(&engine->lock);
    if (engine->observer)
        engine->observer(engine->observer_arg, io, completed);
    fb_mutex_unlock(&engine->lock);
}

void fb_engine_completed(struct fb_engine *engine, const struct fb_io *io)
{
    if (engine->observer && io->op != FB_IO_READ && io->result >= 0)
        engine->observer(engine->observer_arg, io, true);
}

bool fb_engine_advance(struct fb_io *io, int64_t outcome)
{
    /* A ring whose submitter is gone cancels what waits for a kernel worker: the same as EINTR. */
    if (outcome == -EINTR || outcome == -EAGAIN || outcome == -ECANCELED) {
        if (++io->retries <= FB_ENGINE_RETRIES_MAX)
            return false;
        outcome = -EIO;
    }
    if (io->op == FB_IO_FSYNC) {
        io->result = outcome < 0 ? (int32_t)outcome : 0;
        return true;
    }
    if (outcome < 0) {
        /* After a short direct read the rest starts unaligned; only the end of the file does
         * that. */
        bool at_end = outcome == -EINVAL && io->op == FB_IO_READ && io->moved > 0;

        io->result = at_end ? (int32_t)io->moved : (int32_t)outcome;
        return true;
    }
    io->moved += (uint32_t)outcome;
    if (outcome == 0 || io->moved >= io->length) {
        bool stuck = io->op == FB_IO_WRITE && io->moved < io->length;

        io->result = stuck ? -EIO : (int32_t)io->moved;
        return true;
    }
    return false;
}

struct run {
    struct fb_event all_done;
    _Atomic unsigned left;
};

static void run_done(struct fb_io *io)
{
    struct run *run = io->owner;

    /* Release by each, acquire by the last: the waiter sees the results of all. */
    if (atomic_fetch_sub_explicit(&run->left, 1, memory_order_acq_rel) == 1)
        fb_event_set(&run->all_done);
}

void fb_engine_run(struct fb_engine *engine, struct fb_io *const *ios, unsigned count)
{
    struct run run = {.left = count};

    if (count == 0)
        return;
    fb_event_init(&run.all_done);
    for (unsigned i = 0; i < count; i++) {
        ios[i]->done = run_done;
        ios[i]->owner = &run;
    }
    fb_engine_submit(engine, ios, count);
    fb_event_wait(&run.all_done);
}
