/*
 * FLUSH, FSYNC, FSYNCDIR, RELEASE: the source is asked to say that it has the bytes.
 *
 * FLUSH comes at every close() and its answer is close()'s. It may take long: a network file system
 * writes back. But a program that was killed cannot end before it is answered, and hears nothing
 * more: that one has the usual deadline. Where nothing is opened nothing is written: the kernel is
 * told once (ENOSYS) that it need not ask.
 *
 * RELEASE comes after the last one, and nobody hears its answer: what goes wrong there is logged.
 * From then on the name leads to a new record (live.c).
 */
#include <errno.h>
#include <string.h>

#include "core/limits.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

static void committed(struct fb_change *change, struct fb_source_job *job)
{
    /* The program is told, and the last close must not do it after all. */
    if (job->refused && (job->flags & FB_COMMIT_FLUSH))
        fb_handle_fail(change->handle);
    fb_publish(change, job);
    fuse_reply_err(change->req, -job->result);
}

static void commit(fuse_req_t req, const struct fuse_file_info *fi, uint32_t flags, bool lengthy)
{
    struct fb_handle *handle = fb_handle_of(fi);
    struct fb_source_job *job;
    struct fb_change *change;

    if (!handle) {
        fuse_reply_err(req, 0);
        return;
    }
    if (fb_handle_failed(handle)) {
        fuse_reply_err(req, EIO);
        return;
    }
    change = fb_change_new(req, FB_SOURCE_COMMIT, NULL, &job);
    if (!change)
        return;
    change->handle = handle;
    job->handle = handle->source;
    job->flags = flags;
    fb_change_submit(change, job, lengthy, committed);
}

/* ---- FLUSH ---- */

/* What is written to it is meant, and this is who opened it. */
static bool is_meant(const struct fb_handle *handle, uint32_t task)
{
    return atomic_load_explicit(&handle->written, memory_order_relaxed) &&
           fb_task_process(task) == handle->process;
}

/* A close that may not be meant is, when it is the last one; the kernel does not say. */
static bool is_alone(const struct fb_handle *handle)
{
    char buf[FB_PATH_MAX];
    const char *path = fb_node_path(handle->mount, handle->id, buf, NULL);
    const char *slash = path ? strrchr(path, '/') : NULL;

    return path && !fb_tasks_have_open(slash ? slash + 1 : path);
}

/* A FLUSH whose caller may be the last: all that is open on this machine is looked at. */
struct inquiry {
    struct fb_mount *mount;
    fuse_req_t req;
    struct fuse_file_info fi;
};

static void flush_direct(fuse_req_t req, const struct fuse_file_info *fi, bool alone)
{
    commit(req, fi, FB_COMMIT_FLUSH | (alone ? FB_COMMIT_ALONE : 0), true);
}

static void *inquire(void *arg)
{
    struct inquiry *inquiry = arg;
    struct fb_mount *mount = inquiry->mount;

    flush_direct(inquiry->req, &inquiry->fi, is_alone(fb_handle_of(&inquiry->fi)));
    atomic_fetch_sub_explicit(&mount->inquiries, 1, memory_order_relaxed);
    fb_request_free(mount, inquiry);
    return NULL;
}

/* In a thread of its own, as it may take a tenth of a second; where there are many, in this one.
 * The mount waits for its requests, so the thread is left to itself. */
static void flush_inquiring(fuse_req_t req, const struct fuse_file_info *fi)
{
    struct fb_mount *mount = fb_mount_of(req);
    struct inquiry *inquiry = NULL;

    if (atomic_fetch_add_explicit(&mount->inquiries, 1, memory_order_relaxed) <
        FB_FUSE_INQUIRIES_MAX)
        inquiry = fb_request_new(mount, sizeof *inquiry);
    if (inquiry) {
        *inquiry = (struct inquiry){.mount = mount, .req = req, .fi = *fi};
        if (fb_thread_start_detached("fb-inquiry", inquire, inquiry) == 0)
            return;
        fb_request_free(mount, inquiry);
    }
    atomic_fetch_sub_explicit(&mount->inquiries, 1, memory_order_relaxed);
    flush_direct(req, fi, is_alone(fb_handle_of(fi)));
}

void fb_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    const struct fb_handle *handle = fb_handle_of(fi);
    uint32_t task = fb_caller_of(req).pid;

    (void)ino;
    if (!handle && fb_mount_of(req)->no_open && fb_mount_of(req)->config.read_only)
        fuse_reply_err(req, ENOSYS);
    else if (!handle || !handle->direct)
        commit(req, fi, FB_COMMIT_FLUSH, !handle || !fb_task_is_exiting(task));
    else if (is_meant(handle, task))
        flush_direct(req, fi, false);
    else
        flush_inquiring(req, fi);
}

void fb_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    (void)ino;
    commit(req, fi, FB_COMMIT_SYNC | (datasync ? FB_COMMIT_DATA : 0), true);
}

/* Of a directory that is gone there is nothing to keep. */
static void dir_committed(struct fb_change *change, struct fb_source_job *job)
{
    fuse_reply_err(change->req, job->result == -ENOENT ? 0 : -job->result);
}

/* What is made, removed or renamed is with the source when its answer comes; on its disks it is
 * after this. An object store has no such difference. */
void fb_op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    struct fb_mount *mount = fb_mount_of(req);
    char buf[FB_PATH_MAX];
    const char *path = fb_node_path(mount, fb_file_of(mount, ino), buf, NULL);
    struct fb_source_job *job;
    struct fb_change *change;

    (void)fi;
    if (!path || mount->direct || mount->config.read_only) {
        fuse_reply_err(req, 0);
        return;
    }
    change = fb_change_new(req, FB_SOURCE_COMMIT, path, &job);
    if (!change)
        return;
    job->flags = FB_COMMIT_SYNC | (datasync ? FB_COMMIT_DATA : 0);
    fb_change_submit(change, job, true, dir_committed);
}

/* ---- RELEASE ---- */

static void released(struct fb_change *change, struct fb_source_job *job)
{
    struct fb_mount *mount = change->mount;
    char buf[FB_PATH_MAX];
    const char *path = fb_node_path(mount, change->handle->id, buf, NULL);

    if (job->result < 0)
        fb_log_warn("%s: %s, closed: %s", mount->config.mountpoint, path ? path : "a removed file",
                    fb_strerror(job->result));
    fb_publish(change, job);
    fb_live_close(change->handle);
    /* Its other names. */
    if (path && !change->handle->direct && job->result == 0 && job->attr.nlink > 1)
        fb_cache_changed(mount->volume, path, &job->attr);
    fb_handle_put(change->handle);
    fuse_reply_err(change->req, 0);
}

/* What others have learned of it while it was open is not what it is now. */
static void close_file(struct fb_handle *handle)
{
    char buf[FB_PATH_MAX];
    const char *path = fb_node_path(handle->mount, handle->id, buf, NULL);

    if (path)
        fb_changed_file(handle->mount, path, NULL);
    fb_live_close(handle);
}

void fb_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct fb_handle *handle = fb_handle_of(fi);
    struct fb_source_job *job;
    struct fb_change *change;

    (void)ino;
    if (!handle) {
        fuse_reply_err(req, 0);
        return;
    }
    /* At once: who opens the file next is to find it by its name, as a new version. */
    if (!handle->direct)
        close_file(handle);
    if (fb_handle_failed(handle)) {
        fb_live_close(handle);
        fb_handle_put(handle);
        fuse_reply_err(req, 0);
        return;
    }
    change = fb_change_new(req, FB_SOURCE_COMMIT, NULL, &job);
    if (!change) {
        fb_live_close(handle);
        fb_handle_put(handle);
        return;
    }
    change->handle = handle;
    job->handle = handle->source;
    job->flags = FB_COMMIT_LAST;
    fb_change_submit(change, job, handle->direct, released);
}
