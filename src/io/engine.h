/*
 * io/engine.h - asynchronous file I/O: io_uring, or threads where the kernel refuses it.
 *
 * Submitting costs the caller at most one system call for a batch (none while all threads are busy)
 * and never waits for the disk; `done` is called on an engine thread with no lock held, several at
 * a time. It may submit, but must not wait for another io: what is in a ring moves no further while
 * the ring's thread is away. At most `depth` operations are in the kernel; more wait in a queue,
 * first in, first out.
 *
 * A disk that hangs keeps what it was given for as long as it hangs, and the thread that gives it
 * more than its file system takes at a time. So each disk has a lane of its own: a queue, and rings
 * (or threads) that serve no other. What is asked of the other disks goes on meanwhile.
 *
 * Containers often forbid io_uring: then the same interface runs on a small pool of threads with
 * pread and pwrite.
 *
 * Barriers are the caller's business: an FSYNC covers only writes whose `done` has run.
 */
#ifndef FB_IO_ENGINE_H
#define FB_IO_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/list.h"

enum fb_io_op {
    FB_IO_READ,
    FB_IO_WRITE,
    FB_IO_FSYNC, /* fdatasync */
};

/* Owned by the submitter until done() has been called; embed it in your own request. */
struct fb_io {
    enum fb_io_op op;
    int fd;
    void *data;
    uint64_t offset;
    uint32_t length;
    unsigned lane;  /* below the engine's number of them */
    int32_t result; /* bytes or negative errno. A short WRITE is carried on by the engine, a READ is
                     * short only at the end of the file; EINTR and EAGAIN are retried */
    void (*done)(struct fb_io *io);
    void *owner; /* the submitter's, for done(); the engine does not look at it */
    /* private */
    uint32_t moved;
    uint32_t retries;
    struct fb_list link;
};

enum fb_engine_kind {
    FB_ENGINE_AUTO,
    FB_ENGINE_URING,
    FB_ENGINE_THREADS,
};

struct fb_engine;

#define FB_ENGINE_RINGS_MAX 4u /* where one lane or a few need no more */
#define FB_ENGINE_LANES_MAX 16u

/* FB_ENGINE_URING fails with the kernel's errno where it is not to be had; AUTO falls back. So many
 * rings, each with a thread, and one a lane at least; 0: as many as this machine has use for.
 * `lanes`: from 1 on. */
FB_MUST_CHECK int fb_engine_create(enum fb_engine_kind kind, unsigned rings, unsigned depth,
                                   unsigned lanes, struct fb_engine **ret_engine);
/* Waits for what is under way, and for what its done() submit. */
void fb_engine_destroy(struct fb_engine *engine);

const char *fb_engine_name(const struct fb_engine *engine); /* "io_uring" or "threads" */

void fb_engine_submit(struct fb_engine *engine, struct fb_io *const *ios, unsigned count);

/* Submits and waits for all; for start-up and tests. Sets `done` and `owner` itself. Not from a
 * done(). */
void fb_engine_run(struct fb_engine *engine, struct fb_io *const *ios, unsigned count);

/* Sees every WRITE and FSYNC when it is submitted and again when it completes successfully (before
 * done). For power-cut tests: from the events one can rebuild what a disk may hold at any moment.
 * Called under a lock: the order of calls is an order that really happened. Set it while nothing is
 * under way; NULL ends it. */
typedef void fb_engine_observer(void *arg, const struct fb_io *io, bool completed);
void fb_engine_observe(struct fb_engine *engine, fb_engine_observer *observer, void *arg);
/* Of a WRITE or FSYNC that its submitter does without the engine, in memory that is mapped; such an
 * FSYNC covers `length` bytes from `offset` on. Takes NULL for an engine. */
void fb_engine_tell(struct fb_engine *engine, const struct fb_io *io, bool completed);

#endif
