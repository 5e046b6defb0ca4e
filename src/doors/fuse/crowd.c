/*
 * Reading files when they are looked up, for several readers at a time.
 *
 * early.c decides what is worth it, and serves a lone reader in the thread that took its request
 * in. Here nobody's thread waits: the disk begins at LOOKUP, and READ finds its bytes or is
 * answered when they come.
 *
 *     reader      open ───────┐      ┌─ read ──┐              ┌─ has the bytes
 *     our threads     LOOKUP ─ reply            READ: attached ─ reply
 *     disk                  └─ the item ──────────────────────┘
 *
 *     IDLE ─ LOOKUP ─► READING ─┬─ READ ─► WAITED ─ the bytes come: answered ──► ENDING ─► IDLE
 *                               ├─ the bytes come ─► READY ─ READ, or swept ───────┘
 *                               └─ it fails: left for READ to find ────────────────┘
 *
 * Without it each of several readers leaves its part of the disk idle while its LOOKUP is answered
 * and its READ is on its way, which is two wake-ups of threads on either side.
 *
 * A mount has at most FB_CROWD_READS such reads, a buffer each, and begins none while less than
 * half of the buffers are free: those who have asked come first. What nobody asked for is swept by
 * the notifier's thread, which looks every FB_FUSE_SWEEP_NS for as long as there is anything.
 *
 * Lock: `lock` (FB_RANK_DOOR) guards all states and who waits; nothing but libfuse's list of who
 * may be interrupted is touched under it. Whoever sets ENDING owns the read.
 */
#include <errno.h>

#include "core/clock.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

#define STALE_NS (200 * FB_NS_PER_MS)

void fb_crowd_init(struct fb_mount *mount)
{
    fb_mutex_init(&mount->crowd.lock, FB_RANK_DOOR);
    for (unsigned i = 0; i < FB_CROWD_READS; i++)
        mount->crowd.reads[i].mount = mount;
}

void fb_crowd_destroy(struct fb_mount *mount)
{
    fb_mutex_destroy(&mount->crowd.lock);
}

/* By whoever owns the read. */
static void end(struct fb_crowd_read *c)
{
    struct fb_mount *mount = c->mount;

    if (c->read.result == 0)
        fb_read_release(&c->read);
    fb_files_unref(mount->files, c->read.file, 1);
    fb_mutex_lock(&mount->crowd.lock);
    c->state = FB_CROWD_IDLE;
    fb_mutex_unlock(&mount->crowd.lock);
    /* Relaxed: a hint, see fb_crowd_read(). */
    atomic_fetch_sub_explicit(&mount->crowd.held, 1, memory_order_relaxed);
    fb_request_end(mount);
}

/* Answers a READ with what was read, and ends it. Of a failure READ finds out by itself, within the
 * time that the whole had. */
static void answer(struct fb_crowd_read *c, const struct fb_wanted *wanted)
{
    struct fb_mount *mount = c->mount;
    if (c->read.result == -EINTR)
        fuse_reply_err(wanted->req, EINTR);
    else if (c->read.result < 0 || !fb_read_answer(mount, &c->read, wanted))
        fb_read_begin(mount, c->read.file, wanted, c->read.deadline_ns, NULL);
    end(c);
}

static void read_done(struct fb_read *read)
{
    struct fb_crowd_read *c = FB_CONTAINER_OF(read, struct fb_crowd_read, read);
    struct fb_crowd *crowd = &c->mount->crowd;
    bool waited, keep;

    fb_mutex_lock(&crowd->lock);
    waited = c->state == FB_CROWD_WAITED;
    keep = !waited && read->result == 0 && !crowd->closing;
    c->state = keep ? FB_CROWD_READY : FB_CROWD_ENDING;
    fb_mutex_unlock(&crowd->lock);
    if (waited) {
        fb_interruptible(c->wanted.req, NULL);
        answer(c, &c->wanted);
    } else if (!keep) {
        end(c);
    }
}

/* A free place, which is the caller's now; NULL: there is none. */
static struct fb_crowd_read *take_place(struct fb_mount *mount, uint32_t file, bool *ret_first)
{
    struct fb_crowd *crowd = &mount->crowd;
    struct fb_crowd_read *c = NULL;

    *ret_first = false;
    fb_mutex_lock(&crowd->lock);
    for (unsigned i = 0; i < FB_CROWD_READS && !c && !crowd->closing; i++)
        if (crowd->reads[i].state == FB_CROWD_IDLE)
            c = &crowd->reads[i];
    if (c) {
        c->state = FB_CROWD_READING;
        c->file = file;
        c->begun_ns = fb_now_ns();
        /* Here: another task's READ may be attached as soon as the lock is let go. */
        atomic_store_explicit(&c->interrupted, false, memory_order_relaxed);
        *ret_first = !crowd->swept;
        crowd->swept = true;
    }
    fb_mutex_unlock(&crowd->lock);
    return c;
}

void fb_crowd_begin(struct fb_mount *mount, uint32_t file, const struct fb_caller *caller)
{
    struct fb_crowd_read *c;
    bool first;

    if (!fb_cache_medium_is_free(mount->cache))
        return;
    c = take_place(mount, file, &first);
    if (!c)
        return;
    atomic_fetch_add_explicit(&mount->crowd.held, 1, memory_order_relaxed);
    fb_early_fill(mount, &c->read, file, caller);
    c->read.meanwhile = NULL;
    c->read.cancel = &c->interrupted;
    c->read.done = read_done;
    fb_cache_read(&c->read);
    if (first)
        fb_notifier_sweep(mount->notifier);
}

bool fb_crowd_read(struct fb_mount *mount, uint32_t file, const struct fb_wanted *wanted)
{
    struct fb_crowd *crowd = &mount->crowd;
    struct fb_crowd_read *found = NULL;
    bool ready = false;

    /* Relaxed: LOOKUP was answered after it was counted, and READ came after the answer. Another
     * program's may be missed, which does no harm. */
    if (atomic_load_explicit(&crowd->held, memory_order_relaxed) == 0)
        return false;
    fb_mutex_lock(&crowd->lock);
    for (unsigned i = 0; i < FB_CROWD_READS && !found; i++) {
        struct fb_crowd_read *c = &crowd->reads[i];

        ready = c->state == FB_CROWD_READY;
        if (c->file == file && (ready || c->state == FB_CROWD_READING))
            found = c;
    }
    if (found && ready) {
        found->state = FB_CROWD_ENDING;
    } else if (found) {
        found->wanted = *wanted;
        found->state = FB_CROWD_WAITED;
        /* Under the lock: once it is let go, the request may be answered. */
        fb_interruptible(wanted->req, &found->interrupted);
    }
    fb_mutex_unlock(&crowd->lock);
    if (found && ready)
        answer(found, wanted);
    return found != NULL;
}

/* What nobody asked for since `before_ns` goes. */
static void drop(struct fb_mount *mount, int64_t before_ns)
{
    struct fb_crowd *crowd = &mount->crowd;

    for (unsigned i = 0; i < FB_CROWD_READS; i++) {
        struct fb_crowd_read *c = &crowd->reads[i];
        bool stale;

        fb_mutex_lock(&crowd->lock);
        stale = c->state == FB_CROWD_READY && c->begun_ns <= before_ns;
        if (stale)
            c->state = FB_CROWD_ENDING;
        fb_mutex_unlock(&crowd->lock);
        if (stale)
            end(c);
    }
}

bool fb_crowd_sweep(struct fb_mount *mount)
{
    struct fb_crowd *crowd = &mount->crowd;
    bool more = false;

    drop(mount, fb_now_ns() - STALE_NS);
    fb_mutex_lock(&crowd->lock);
    for (unsigned i = 0; i < FB_CROWD_READS; i++)
        more = more || crowd->reads[i].state != FB_CROWD_IDLE;
    crowd->swept = more;
    fb_mutex_unlock(&crowd->lock);
    return more;
}

void fb_crowd_close(struct fb_mount *mount)
{
    fb_mutex_lock(&mount->crowd.lock);
    mount->crowd.closing = true;
    fb_mutex_unlock(&mount->crowd.lock);
    drop(mount, FB_NEVER_NS);
}
