/*
 * CREATE, and OPEN for writing: a handle of the source, and a node that is live from now on.
 *
 * Its pages are not kept from before, and it has no direct I/O, so programs can map it and write to
 * the mapping. A `direct` file has direct I/O, as nothing of it can be read back once it was sent;
 * and its node is not the one that others read (claim.c).
 */
#include <errno.h>
#include <fcntl.h>

#include "core/mem.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

#define OPEN_FLAGS (O_ACCMODE | O_CREAT | O_EXCL | O_TRUNC | O_APPEND)

static void fill_in(struct fuse_file_info *fi, const struct fb_handle *handle)
{
    fi->fh = (uintptr_t)handle;
    fi->direct_io = handle->direct || handle->mount->config.bypass;
    fi->keep_cache = 0;
}

/* The file was opened and nobody will use it. */
static void drop(struct fb_handle *handle)
{
    fb_live_close(handle);
    fb_handle_put(handle);
}

/* ---- CREATE ---- */

static int make_entry(struct fb_change *change, struct fb_source_job *job,
                      struct fuse_entry_param *ret_entry)
{
    struct fb_mount *mount = change->mount;
    uint32_t id;
    int rc;

    rc = fb_live_create(change->handle, job->path, &job->attr, &id);
    if (rc < 0)
        return rc;
    rc = fb_entry_make(mount, id, change->parent, &job->attr, 0, ret_entry);
    if (rc < 0)
        return rc;
    fb_node_set_flags(mount->nodes, id, FB_NODE_LIVE, 0);
    fb_entry_live(mount, id, &job->attr, ret_entry);
    return 0;
}

static void created(struct fb_change *change, struct fb_source_job *job)
{
    struct fb_mount *mount = change->mount;
    struct fuse_file_info *fi = &change->fi;
    struct fuse_entry_param entry = {.ino = 0};
    int rc = job->result;

    if (rc == 0) {
        change->handle = fb_handle_new(mount, job, FB_FILE_NONE);
        rc = change->handle ? make_entry(change, job, &entry) : -ENOMEM;
        if (!change->handle)
            fb_source_close_handle(mount, job->handle);
    }
    fb_changed_parent(mount, job->path);
    if (rc < 0) {
        if (change->handle)
            drop(change->handle);
        fuse_reply_err(change->req, -rc);
        return;
    }
    fill_in(fi, change->handle);
    if (fuse_reply_create(change->req, &entry, fi) == 0)
        return;
    /* Interrupted: neither RELEASE nor FORGET will come. */
    drop(change->handle);
    fb_entry_forget(mount, fb_file_of(mount, entry.ino), 1);
}

void fb_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                  struct fuse_file_info *fi)
{
    struct fb_source_job *job;
    struct fb_change *change;
    char path[FB_PATH_MAX];

    if (!fb_child_path(req, parent, name, path))
        return;
    change = fb_change_new(req, FB_SOURCE_OPEN, path, &job);
    if (!change)
        return;
    change->parent = fb_parent_of(parent);
    change->fi = *fi;
    job->flags = ((uint32_t)fi->flags & OPEN_FLAGS) | O_CREAT;
    job->mode = mode;
    job->umask = fuse_req_ctx(req)->umask;
    fb_change_submit(change, job, false, created);
}

/* ---- OPEN ---- */

static int take_open(struct fb_change *change, struct fb_source_job *job)
{
    struct fb_mount *mount = change->mount;
    int rc;

    change->handle = fb_handle_new(mount, job, change->id);
    if (!change->handle) {
        fb_source_close_handle(mount, job->handle);
        return -ENOMEM;
    }
    rc = fb_live_open(change->handle, change->id, job->path, &job->attr, !change->handle->direct);
    if (!change->handle->direct)
        fb_changed_file(mount, job->path, &job->attr);
    return rc;
}

static void opened(struct fb_change *change, struct fb_source_job *job)
{
    int rc = job->result;

    if (rc == 0)
        rc = take_open(change, job);
    else if (rc == -ENOENT || rc == -ENOTDIR)
        rc = -ESTALE; /* the kernel looks the name up anew */
    if (rc == -ESTALE)
        fb_cache_forget(change->mount->volume, job->path);
    if (rc < 0) {
        if (change->handle)
            drop(change->handle);
        fuse_reply_err(change->req, -rc);
        return;
    }
    fill_in(&change->fi, change->handle);
    if (fuse_reply_open(change->req, &change->fi) != 0)
        drop(change->handle); /* interrupted: no RELEASE will come */
}

void fb_open_for_writing(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi)
{
    struct fb_mount *mount = fb_mount_of(req);
    uint32_t id = fb_file_of(mount, ino);
    struct fb_source_job *job;
    struct fb_change *change;
    char buf[FB_PATH_MAX];
    const char *path = NULL;

    /* A node that was made for this open is whatever is opened; else it may be a descriptor that is
     * opened again, long after its name has become another's. */
    if (mount->direct)
        path = fb_node_path(mount, id, buf, NULL);
    else
        path = fb_node_own_path(mount, id, buf);
    if (!path) {
        fuse_reply_err(req, ESTALE);
        return;
    }
    if (mount->direct && !fb_claim_take(req, id)) {
        fb_claim(req, id);
        return;
    }
    change = fb_change_new(req, FB_SOURCE_OPEN, path, &job);
    if (!change)
        return;
    change->id = id;
    change->fi = *fi;
    fb_job_own(mount, id, job);
    job->flags = (uint32_t)fi->flags & OPEN_FLAGS & ~(unsigned)(O_CREAT | O_EXCL);
    fb_change_submit(change, job, false, opened);
}
