/*
 * The io_uring engine: one thread owns the ring; it alone submits and reaps.
 *
 * Submitters append to the queue under the lock and, only when the ring's thread sleeps, wake it
 * through an eventfd that the ring itself reads. The thread then goes round:
 *
 *     peek completions ── lock: count them, observe, fill free places from the queue ── unlock
 *         ── submit ── done() of each ── and again; when nothing is finished: submit and wait, in
 *         one call
 *
 * so under load one system call carries a batch of submissions and of completions.
 *
 * Why no other thread submits: the kernel finishes a request in the context of the thread that
 * submitted it, by a signal-like interruption. That makes that thread's later blocking calls fail
 * with EINTR or, on a FUSE file system, send an interrupt to its server; and when the thread ends,
 * its flushes still waiting for a kernel worker are cancelled. With one submitter the kernel can
 * also leave completion work to our own wait (DEFER_TASKRUN, Linux 6.1), which is the cheapest of
 * all.
 *
 * The completion queue cannot overflow: it has room for `depth` ios and the read of the eventfd.
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/thread.h"
#include "io/engine_priv.h"

#define BATCH           4                  /* completions between two looks at the queue */
#define SUBMIT_PAUSE_NS (FB_NS_PER_MS / 4) /* the kernel was short of memory for a request */
#define STARTED_UNSET   1

struct uring {
    struct io_uring ring;
    pthread_t thread;
    int wake_fd;
    uint64_t
        wake_value;  /* where the ring reads the eventfd to; its address marks that completion */
    bool wake_armed; /* the ring's thread only */
    struct fb_cond started;
    /* under the engine's lock */
    int start_result; /* STARTED_UNSET until the ring is there */
    unsigned in_ring;
    bool sleeping;
    bool woken; /* an eventfd write is on its way */
};

static void prepare(struct uring *u, struct fb_io *io)
{
    /* Never NULL: the queue has more places than ios are let in. */
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    uint8_t *at = io->moved > 0 ? (uint8_t *)io->data + io->moved : io->data;
    unsigned left = io->length - io->moved;

    FB_ASSERT(sqe);
    switch (io->op) {
    case FB_IO_READ:
        io_uring_prep_read(sqe, io->fd, at, left, io->offset + io->moved);
        break;
    case FB_IO_WRITE:
        io_uring_prep_write(sqe, io->fd, at, left, io->offset + io->moved);
        break;
    case FB_IO_FSYNC:
        io_uring_prep_fsync(sqe, io->fd, IORING_FSYNC_DATASYNC);
        break;
    }
    io_uring_sqe_set_data(sqe, io);
}

static void arm_wake(struct uring *u)
{
    struct io_uring_sqe *sqe;

    if (u->wake_armed)
        return;
    sqe = io_uring_get_sqe(&u->ring);
    FB_ASSERT(sqe);
    io_uring_prep_read(sqe, u->wake_fd, &u->wake_value, sizeof u->wake_value, 0);
    io_uring_sqe_set_data(sqe, &u->wake_value);
    u->wake_armed = true;
}

/* One completion; appends the io to `finished`, or prepares the rest of it. */
static void complete(struct fb_engine *e, struct uring *u, const struct io_uring_cqe *cqe,
                     struct fb_list *finished) FB_REQUIRES(&e->lock)
{
    struct fb_io *io = io_uring_cqe_get_data(cqe);

    if ((void *)io == &u->wake_value) {
        u->wake_armed = false;
        u->woken = false;
        return;
    }
    if (!fb_engine_advance(io, cqe->res)) {
        prepare(u, io);
        return;
    }
    u->in_ring--;
    fb_engine_completed(e, io);
    fb_list_push_back(finished, &io->link);
}

static void refill(struct fb_engine *e, struct uring *u) FB_REQUIRES(&e->lock)
{
    while (u->in_ring < e->depth && !fb_list_empty(&e->queue)) {
        struct fb_io *io = FB_LIST_ENTRY(e->queue.next, struct fb_io, link);

        fb_list_remove(&io->link);
        prepare(u, io);
        u->in_ring++;
    }
}

static unsigned run_done(struct fb_list *finished)
{
    struct fb_list *it;
    struct fb_list *tmp;
    unsigned count = 0;

    FB_LIST_FOREACH (it, tmp, finished) {
        struct fb_io *io = FB_LIST_ENTRY(it, struct fb_io, link);

        fb_list_remove(it);
        io->done(io);
        count++;
    }
    return count;
}

/* Submits what is prepared and waits for `wanted` completions. */
static void enter(struct uring *u, unsigned wanted)
{
    int r = io_uring_submit_and_wait(&u->ring, wanted);

    if (r >= 0 || r == -EINTR)
        return;
    /* What could not be submitted stays prepared, and goes with the next try. */
    FB_ASSERT(r == -EAGAIN || r == -EBUSY || r == -ENOMEM);
    fb_sleep_ns(SUBMIT_PAUSE_NS);
}

static void loop(struct fb_engine *e, struct uring *u)
{
    struct io_uring_cqe *cqes[BATCH];
    unsigned ran = 0;

    for (;;) {
        unsigned count = io_uring_peek_batch_cqe(&u->ring, cqes, BATCH);
        struct fb_list finished = FB_LIST_INIT(finished);
        bool stopping;

        fb_mutex_lock(&e->lock);
        e->outstanding -= ran;
        for (unsigned i = 0; i < count; i++)
            complete(e, u, cqes[i], &finished);
        io_uring_cq_advance(&u->ring, count);
        refill(e, u);
        /* Whoever submits from here on sees `sleeping` and wakes us; before, we saw their ios. */
        u->sleeping = fb_list_empty(&finished);
        stopping = e->stopping;
        if (stopping && e->outstanding == 0 && !u->wake_armed) {
            fb_mutex_unlock(&e->lock);
            return;
        }
        fb_mutex_unlock(&e->lock);
        if (fb_list_empty(&finished)) {
            /* uring_stop() has written what an armed read waits for; one armed later would wait for
             * ever. Until then completions of what is under way are enough to go on. */
            if (!stopping)
                arm_wake(u);
            enter(u, 1);
            ran = 0;
        } else {
            /* The disk shall not idle while done() runs. */
            if (io_uring_sq_ready(&u->ring) > 0)
                enter(u, 0);
            ran = run_done(&finished);
        }
    }
}

static int ring_init(struct fb_engine *e, struct uring *u)
{
    /* From the best to what any kernel with io_uring takes. */
    static const unsigned flags[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
        IORING_SETUP_COOP_TASKRUN,
        0,
    };
    int r = -EINVAL;

    for (unsigned i = 0; i < FB_ARRAY_SIZE(flags) && r == -EINVAL; i++) {
        struct io_uring_params params = {
            .flags = flags[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
            .cq_entries = 2 * (e->depth + 1),
        };

        r = io_uring_queue_init_params(e->depth + 1, &u->ring, &params);
    }
    return r;
}

static void *run(void *arg)
{
    struct fb_engine *e = arg;
    struct uring *u = e->state;
    int r = ring_init(e, u);

    fb_mutex_lock(&e->lock);
    u->start_result = r;
    fb_cond_signal(&u->started);
    fb_mutex_unlock(&e->lock);
    if (r < 0)
        return NULL;
    loop(e, u);
    io_uring_queue_exit(&u->ring);
    return NULL;
}

static void uring_free(struct uring *u)
{
    if (u->wake_fd >= 0)
        close(u->wake_fd);
    fb_cond_destroy(&u->started);
    free(u);
}

static int uring_start(struct fb_engine *e)
{
    struct uring *u = fb_alloc(sizeof *u);
    int r;

    if (!u)
        return -ENOMEM;
    fb_cond_init(&u->started);
    u->start_result = STARTED_UNSET;
    u->wake_fd = eventfd(0, EFD_CLOEXEC);
    e->state = u;
    r = u->wake_fd < 0 ? -errno : fb_thread_start(&u->thread, "fb-ring", run, e);
    if (r < 0) {
        uring_free(u);
        return r;
    }
    fb_mutex_lock(&e->lock);
    while (u->start_result == STARTED_UNSET)
        fb_cond_wait(&u->started, &e->lock, FB_NEVER_NS);
    r = u->start_result;
    fb_mutex_unlock(&e->lock);
    if (r < 0) {
        pthread_join(u->thread, NULL);
        uring_free(u);
    }
    return r;
}

static bool uring_queued(struct fb_engine *e)
{
    struct uring *u = e->state;

    if (!u->sleeping || u->woken)
        return false;
    u->woken = true;
    return true;
}

static void uring_wake(struct fb_engine *e)
{
    const struct uring *u = e->state;
    uint64_t one = 1;
    ssize_t n = write(u->wake_fd, &one, sizeof one);

    FB_ASSERT(n == (ssize_t)sizeof one);
}

static void uring_stop(struct fb_engine *e)
{
    struct uring *u = e->state;

    uring_wake(e);
    pthread_join(u->thread, NULL);
    uring_free(u);
}

const struct fb_engine_ops fb_engine_uring = {
    .name = "io_uring",
    .start = uring_start,
    .queued = uring_queued,
    .wake = uring_wake,
    .stop = uring_stop,
};
