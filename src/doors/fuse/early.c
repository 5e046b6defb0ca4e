/*
 * Reading a file when it is looked up, before READ asks for it.
 *
 * A program that opens a small file and reads it sends LOOKUP, waits, then sends READ, and only
 * then would the disk begin to work. So it begins at LOOKUP. For several readers that is done in
 * crowd.c; for a lone one (lone.c) it is done here, in the thread that serves it:
 *
 *     reader      open ────────┐      ┌─ read ──────────────────┐     ┌─ has the bytes
 *     our thread       LOOKUP ─ reply ─ wait for it, verify it ─ READ, reply
 *     disk                    └─ the item ──────────┘
 *
 * READ finds its bytes in memory, or waits in the kernel until they are. Nobody else is kept
 * waiting: there is nobody else. The bytes are dropped when the next request is for something else,
 * or none comes soon (fb_lone_wait), so a mount has at most one such read and one buffer.
 *
 *     IDLE ─ LOOKUP ─► READING ─┬─ in this thread ─► READY ─ READ, or dropped ─► ENDING ─► IDLE
 *                               └─ it has to wait for buffers, or for the source: not worth it, it
 *                                  is dropped when it is done: ABANDONED ─► IDLE
 *
 * When: of a file that is one item and only on a medium, for tasks whose look-ups are followed by
 * reads. A look-up whose file the task reads before its next look-up scores a point, any other
 * costs several; that is counted whether or not something was read early. So `find` and `ls -l`
 * over any number of files read nothing, but for the first one or two after an epoch of reads.
 *
 * The bytes are those of the record that LOOKUP named, one version of the file: a file that changes
 * in between has another record, and its READ another number.
 *
 * No lock: who changes the state owns the read.
 */
#include <errno.h>

#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

#define BYTES_MAX    (256u << 10) /* what the kernel asks for at once when a file is read whole */
#define SCORE_MAX    8
#define SCORE_ENOUGH 4
#define SCORE_LOSS   4

static bool change(struct fb_early *e, int from, int to)
{
    /* The first look leaves the cache line shared: every READ comes by here. */
    return atomic_load(&e->state) == from && atomic_compare_exchange_strong(&e->state, &from, to);
}

/* Two tasks may share a place, and take it from each other: then nothing is read early. */
static struct fb_early_task *place_of(struct fb_early *e, uint32_t task)
{
    return &e->tasks[task % FB_EARLY_TASKS];
}

/* Relaxed, here and below: hints, and a point lost between two threads does no harm. */
static bool score_lookup(struct fb_early *e, uint32_t task, uint32_t file)
{
    struct fb_early_task *t = place_of(e, task);
    int points = atomic_load_explicit(&t->score, memory_order_relaxed);
    int before = points;

    if (atomic_exchange_explicit(&t->task, task, memory_order_relaxed) != task)
        points = 0;
    if (atomic_exchange_explicit(&t->last, file, memory_order_relaxed) != FB_FILE_NONE)
        points = points > SCORE_LOSS ? points - SCORE_LOSS : 0;
    if (points != before)
        atomic_store_explicit(&t->score, points, memory_order_relaxed);
    return points >= SCORE_ENOUGH;
}

static void score_read(struct fb_early *e, uint32_t task, uint32_t file)
{
    struct fb_early_task *t = place_of(e, task);
    int points = atomic_load_explicit(&t->score, memory_order_relaxed);

    if (atomic_load_explicit(&t->last, memory_order_relaxed) != file)
        return;
    atomic_store_explicit(&t->last, FB_FILE_NONE, memory_order_relaxed);
    if (points < SCORE_MAX)
        atomic_store_explicit(&t->score, points + 1, memory_order_relaxed);
}

/* By whoever owns the read. */
static void end(struct fb_mount *mount)
{
    struct fb_early *e = &mount->early;

    if (e->read.result == 0)
        fb_read_release(&e->read);
    fb_files_unref(mount->files, e->read.file, 1);
    atomic_store(&e->state, FB_EARLY_IDLE);
    fb_request_end(mount);
}

static void read_done(struct fb_read *read)
{
    struct fb_mount *mount = read->arg;

    /* A failure is for READ itself to find. */
    if (read->result < 0 || !change(&mount->early, FB_EARLY_READING, FB_EARLY_READY))
        end(mount);
}

void fb_early_fill(struct fb_mount *mount, struct fb_read *read, uint32_t file,
                   const struct fb_caller *caller)
{
    fb_request_begin(mount);
    fb_files_ref(mount->files, file, 1);
    read->volume = mount->volume;
    read->caller = *caller;
    read->deadline_ns = 0;
    read->file = file;
    read->offset = 0;
    read->length = FB_READ_MAX;
    read->door = FB_DOOR_FUSE;
    read->early = true;
    read->steady = false;
}

static void read_here(struct fb_mount *mount, uint32_t file, const struct fb_caller *caller,
                      struct fb_meanwhile *reply)
{
    struct fb_early *e = &mount->early;

    if (!change(e, FB_EARLY_IDLE, FB_EARLY_READING))
        return;
    fb_early_fill(mount, &e->read, file, caller);
    e->read.meanwhile = reply;
    e->read.cancel = NULL;
    e->read.done = read_done;
    e->read.arg = mount;
    fb_cache_read(&e->read);
    change(e, FB_EARLY_READING, FB_EARLY_ABANDONED);
    /* seq_cst, with the other order in lone.c: it is dropped here or there. */
    if (!fb_lone_is_on(mount))
        fb_early_drop(mount);
}

void fb_early_lookup(struct fb_mount *mount, uint32_t file, const struct fb_caller *caller,
                     struct fb_meanwhile *reply)
{
    if (!score_lookup(&mount->early, caller->pid, file) ||
        fb_files_version(mount->files, file)->size > BYTES_MAX ||
        !fb_cache_on_medium(mount->volume, file))
        return;
    if (fb_lone_is_on(mount))
        read_here(mount, file, caller, reply);
    else
        fb_crowd_begin(mount, file, caller);
}

void fb_early_drop(struct fb_mount *mount)
{
    if (change(&mount->early, FB_EARLY_READY, FB_EARLY_ENDING))
        end(mount);
}

bool fb_early_read(struct fb_mount *mount, uint32_t task, uint32_t file,
                   const struct fb_wanted *wanted)
{
    struct fb_early *e = &mount->early;
    bool good;

    score_read(e, task, file);
    if (!change(e, FB_EARLY_READY, FB_EARLY_ENDING))
        return fb_crowd_read(mount, file, wanted);
    good = e->read.file == file && fb_read_answer(mount, &e->read, wanted);
    end(mount);
    return good;
}
