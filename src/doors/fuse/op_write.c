/*
 * WRITE: to the source, and answered when it has the bytes (which are on its disks after FSYNC).
 *
 * The data stays where libfuse read it: the request's buffer is taken over, and the thread gets a
 * new one; small writes are copied instead. How many bytes are under way is bounded (session.c).
 *
 * And READ of a live node, the same in the other direction.
 */
#include <errno.h>
#include <fcntl.h>

#include "core/mem.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

static void written(struct fb_change *change, struct fb_source_job *job)
{
    struct fb_mount *mount = change->mount;
    char buf[FB_PATH_MAX];
    const char *path = NULL;

    if (!change->handle->direct)
        path = fb_node_path(mount, change->handle->id, buf, NULL);
    if (path)
        fb_changed_file(mount, path, NULL);
    if (job->refused)
        fb_handle_fail(change->handle);
    if (job->result < 0)
        fuse_reply_err(change->req, -job->result);
    else
        fuse_reply_write(change->req, job->bytes);
}

void fb_op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
                 struct fuse_file_info *fi)
{
    struct fb_mount *mount = fb_mount_of(req);
    struct fb_handle *handle = fb_handle_of(fi);
    struct fb_source_job *job;
    struct fb_change *change;
    char *bytes;

    (void)ino;
    if (!handle || off < 0 || size > FB_SOURCE_READ_MAX) {
        fuse_reply_err(req, handle ? EINVAL : EBADF);
        return;
    }
    change = fb_change_new(req, FB_SOURCE_WRITE, NULL, &job);
    if (!change) {
        fb_handle_fail(handle);
        return;
    }
    job->memory = fb_session_take(mount, data, size, &bytes, &change->bytes);
    if (!job->memory) {
        fb_handle_fail(handle);
        fuse_reply_err(req, ENOMEM);
        fb_source_job_put(job);
        fb_request_free(mount, change);
        return;
    }
    /* Relaxed: the close that looks at it has waited for our answer. */
    atomic_store_explicit(&handle->written, true, memory_order_relaxed);
    change->handle = handle;
    job->handle = handle->source;
    job->offset = (uint64_t)off;
    /* A page that is written back goes where it belongs; the kernel does not look how much of it
     * was written. All else by the descriptor's flags, which fcntl() changes. */
    if (fi->writepage)
        job->flags = FB_WRITE_WHOLE;
    else
        job->flags = fi->flags & O_APPEND ? FB_WRITE_APPEND : 0;
    job->iov[0] = (struct iovec){.iov_base = bytes, .iov_len = size};
    job->iov_count = 1;
    /* A part of an object may have to go first. */
    fb_change_submit(change, job, handle->direct, written);
}

/* ---- READ of a live node ---- */

struct live_read {
    struct fb_mount *mount;
    fuse_req_t req;
    _Atomic bool interrupted;
    struct fb_handle *handle;
    uint64_t dev;
    uint64_t ino;
    size_t size;
    bool one_version; /* which the source checks */
};

/* By path, it may be another file by now. A file that is being written by somebody else shows
 * another version after the read than before: that is no fault here, where there is none to keep.
 * */
static int verdict(const struct live_read *r, const struct fb_source_job *job)
{
    if (r->handle || r->one_version || (job->result < 0 && job->result != -ESTALE))
        return job->result == -ENOENT || job->result == -ENOTDIR ? -ESTALE : job->result;
    return job->attr.ino == r->ino && job->attr.dev == r->dev ? 0 : -ESTALE;
}

static void live_read_done(struct fb_source_job *job)
{
    struct live_read *r = job->arg;
    struct fb_mount *mount = r->mount;
    int rc = verdict(r, job);

    fb_interruptible(r->req, NULL);
    if (rc < 0)
        fuse_reply_err(r->req, -rc);
    else
        fuse_reply_buf(r->req, job->memory, job->bytes);
    fb_bytes_give(mount, r->size);
    fb_source_job_put(job);
    fb_handle_put(r->handle);
    fb_request_free(mount, r);
}

void fb_live_read(fuse_req_t req, uint32_t id, size_t size, off_t off, struct fb_live_view *view)
{
    struct fb_mount *mount = fb_mount_of(req);
    struct fb_source_job *job =
        fb_source_job_new(view->handle ? FB_SOURCE_PREAD : FB_SOURCE_READ, view->path);
    struct live_read *r = job ? fb_request_new(mount, sizeof *r) : NULL;
    struct fb_caller caller = fb_caller_of(req);

    if (r)
        job->memory = malloc(size + 1);
    if (!r || !job->memory) {
        fuse_reply_err(req, ENOMEM);
        fb_source_job_put(job);
        if (r)
            fb_request_free(mount, r);
        return;
    }
    *r = (struct live_read){.mount = mount,
                            .req = req,
                            .size = size,
                            .dev = view->attr.dev,
                            .ino = view->attr.ino,
                            .handle = fb_steal(view->handle)};
    if (r->handle) {
        job->handle = r->handle->source;
    } else if (mount->direct) {
        r->one_version = true;
        job->expected = *fb_files_version(mount->files, id);
        job->expect = &job->expected;
    }
    job->offset = (uint64_t)off;
    job->iov[0] = (struct iovec){.iov_base = job->memory, .iov_len = size};
    job->iov_count = 1;
    fb_bytes_take(mount, size);
    fb_interruptible(req, &r->interrupted);
    fb_job_submit(mount, job, &caller, &r->interrupted, live_read_done, r);
}
