/*
 * A lone reader: one task that sends one request at a time, one after the other.
 *
 * What it waits for is mostly the waking of threads, 10 to 30 us each time, most of it on virtual
 * machines, where a processor without work halts: its request wakes a thread of ours, the disk
 * wakes that again, our reply wakes the reader. So while requests of this kind come densely,
 *
 *   - one thread serves, and stays awake a little for the next request (it polls);
 *   - the others are parked: any thread that waits in the kernel would be woken by each request;
 *   - what is looked up is read before READ asks for it (early.c).
 *
 *     OFF ─ a streak of such requests ─► ON ─ another task, a second request under way, or none in
 *     time ─► OFF
 *
 * While ON every thread that comes back for a request parks, but for the last one: that one serves.
 * One of the parked looks every WATCH_NS whether requests still come. If not, the last thread hangs
 * (on a disk) or waits in the kernel after all, and it is OFF again. So nothing here can hold up a
 * request for longer than that, and an idle mount costs nothing.
 *
 * A streak that ends soon makes the next one twice as long, up to STREAK << LEVEL_MAX: a reader who
 * works on what it reads is left alone, mostly.
 *
 * On two processors, one reader of cold files of 100 KiB took 163 us a file instead of 196. With
 * one processor there is nobody to stay awake for; with many, and as many threads, it was slower
 * than linger() in session.c, which is used there.
 *
 * Lock: `lock` (FB_RANK_DOOR) guards parking and the change of ON and OFF; the counts of the streak
 * are hints.
 */
#include <linux/fuse.h>
#include <poll.h>

#include "core/clock.h"
#include "core/limits.h"
#include "doors/fuse/fuse_priv.h"

#define CPUS_MIN    2
#define THREADS_MIN 2                    /* one serves, one looks after it */
#define DENSE_NS    (500 * FB_NS_PER_US) /* between requests of a streak */
#define AWAKE_NS    (250 * FB_NS_PER_US)
#define WATCH_NS    (5 * FB_NS_PER_MS)
#define STREAK      32u
#define LEVEL_MAX   4u
#define PENALTY_MAX 255u /* a power of two less one */
#define PHASE_SHORT 128u /* requests */

void fb_lone_init(struct fb_mount *mount, unsigned threads)
{
    struct fb_lone *l = &mount->lone;
    unsigned cpus = fb_cpu_count();

    fb_mutex_init(&l->lock, FB_RANK_DOOR);
    fb_cond_init(&l->over);
    l->able = cpus >= CPUS_MIN && cpus < FB_FUSE_LINGER_CPUS && threads >= THREADS_MIN;
    l->threads = threads;
}

void fb_lone_destroy(struct fb_mount *mount)
{
    fb_cond_destroy(&mount->lone.over);
    fb_mutex_destroy(&mount->lone.lock);
}

bool fb_lone_is_on(const struct fb_mount *mount)
{
    return atomic_load(&mount->lone.on);
}

static void begin(struct fb_lone *l)
{
    fb_mutex_lock(&l->lock);
    if (!l->closing && !l->on) {
        l->begun = atomic_load_explicit(&l->count, memory_order_relaxed);
        atomic_store(&l->on, true);
    }
    fb_mutex_unlock(&l->lock);
}

static void end(struct fb_mount *mount)
{
    struct fb_lone *l = &mount->lone;

    fb_mutex_lock(&l->lock);
    if (l->on) {
        bool brief = atomic_load_explicit(&l->count, memory_order_relaxed) - l->begun < PHASE_SHORT;

        if (!brief)
            l->level = 0;
        else if (l->level < LEVEL_MAX)
            l->level++;
        atomic_store(&l->on, false);
        fb_cond_broadcast(&l->over);
    }
    fb_mutex_unlock(&l->lock);
    atomic_store_explicit(&l->streak, 0, memory_order_relaxed);
    fb_early_drop(mount);
}

void fb_lone_close(struct fb_mount *mount)
{
    fb_mutex_lock(&mount->lone.lock);
    mount->lone.closing = true;
    fb_mutex_unlock(&mount->lone.lock);
    end(mount);
}

/* Until it is over; true: all the others are parked already. One looks after the last. */
static bool last_after_parking(struct fb_mount *mount)
{
    struct fb_lone *l = &mount->lone;
    bool last, parked, watch = false, quiet = false;

    fb_mutex_lock(&l->lock);
    last = l->on && l->parked + 1 >= l->threads;
    parked = l->on && !last;
    l->parked += parked;
    while (parked && l->on && !quiet) {
        uint32_t seen = atomic_load_explicit(&l->count, memory_order_relaxed);

        watch = watch || !l->watched;
        l->watched = true;
        if (!fb_cond_wait(&l->over, &l->lock, watch ? fb_now_ns() + WATCH_NS : FB_NEVER_NS))
            quiet = seen == atomic_load_explicit(&l->count, memory_order_relaxed);
    }
    l->parked -= parked;
    if (watch)
        l->watched = false;
    fb_mutex_unlock(&l->lock);
    if (quiet)
        end(mount);
    return last;
}

/* Stays awake for the next request, unless that was in vain lately. */
static void poll_awake(struct fb_mount *mount)
{
    struct pollfd pfd = {.events = POLLIN};
    struct fb_lone *l = &mount->lone;
    int64_t until_ns;
    int ready;

    if (l->skip > 0) {
        l->skip--;
        return;
    }
    pfd.fd = fuse_session_fd(mount->session);
    until_ns = fb_now_ns() + AWAKE_NS;
    do
        ready = poll(&pfd, 1, 0);
    while (ready == 0 && fb_lone_is_on(mount) && fb_now_ns() < until_ns);
    l->penalty = ready != 0 ? l->penalty / 2 : (l->penalty * 2 + 1) & PENALTY_MAX;
    l->skip = ready != 0 ? 0 : l->penalty;
}

void fb_lone_wait(struct fb_mount *mount)
{
    if (fb_lone_is_on(mount) && last_after_parking(mount))
        poll_awake(mount);
}

/* What is read early is for the one reader, too, or for nobody. */
static bool disturbed(struct fb_mount *mount)
{
    uint32_t requests = atomic_load_explicit(&mount->requests, memory_order_relaxed);
    int early = atomic_load_explicit(&mount->early.state, memory_order_relaxed);

    uint32_t held = atomic_load_explicit(&mount->crowd.held, memory_order_relaxed);

    return requests > held + (early == FB_EARLY_IDLE ? 0 : 1);
}

static void leave(struct fb_mount *mount)
{
    if (fb_lone_is_on(mount))
        end(mount);
    atomic_store_explicit(&mount->lone.streak, 0, memory_order_relaxed);
}

/* The kernel sends these by itself, without a task's number, and waits for no answer. */
static bool is_nobodys(uint32_t opcode)
{
    return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT ||
           opcode == FUSE_RELEASE || opcode == FUSE_RELEASEDIR;
}

void fb_lone_request(struct fb_mount *mount, const struct fuse_buf *buf)
{
    const struct fuse_in_header *in = buf->mem;
    struct fb_lone *l = &mount->lone;
    int64_t now_ns, last_ns, gap_ns = fb_lone_is_on(mount) ? WATCH_NS : DENSE_NS;
    uint32_t last_pid;

    if (!l->able || (buf->flags & FUSE_BUF_IS_FD) || buf->size < sizeof *in ||
        is_nobodys(in->opcode))
        return;
    /* Relaxed: hints. Threads that get into each other's way here are no lone reader's. */
    now_ns = fb_now_ns();
    last_ns = atomic_exchange_explicit(&l->last_ns, now_ns, memory_order_relaxed);
    last_pid = atomic_exchange_explicit(&l->pid, in->pid, memory_order_relaxed);
    atomic_fetch_add_explicit(&l->count, 1, memory_order_relaxed);
    if (in->pid != last_pid || now_ns - last_ns > gap_ns || disturbed(mount)) {
        leave(mount);
        return;
    }
    if (atomic_fetch_add_explicit(&l->streak, 1, memory_order_relaxed) >=
            STREAK << atomic_load_explicit(&l->level, memory_order_relaxed) &&
        !fb_lone_is_on(mount))
        begin(l);
}

void fb_lone_answered(struct fb_mount *mount)
{
    if (mount->lone.able && disturbed(mount))
        leave(mount);
}
