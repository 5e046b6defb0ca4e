/*
 * RENAME. The kernel moves its names by itself, with the nodes they lead to; so those nodes, and
 * all that it knows below a directory, live on under their new paths (live.c). Moving a directory
 * costs a look at every node that the kernel knows; moving a file does not.
 */
#include <errno.h>
#include <stdio.h>

#include "core/mem.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

static void forget_paths(struct fb_change *change, const struct fb_source_job *job)
{
    struct fb_volume *volume = change->mount->volume;

    if (change->file != FB_FILE_NONE) {
        fb_changed_gone(change->mount, job->path);
        fb_changed_gone(change->mount, job->path2);
    } else {
        fb_changed_gone(change->mount, job->path2);
        fb_cache_changed_below(volume, job->path);
        fb_cache_changed_below(volume, job->path2);
    }
    fb_changed_parent(change->mount, job->path);
    fb_changed_parent(change->mount, job->path2);
}

static void renamed(struct fb_change *change, struct fb_source_job *job)
{
    struct fb_mount *mount = change->mount;
    bool exchange = job->flags & RENAME_EXCHANGE;

    if (job->result == 0)
        fb_live_moved(mount, job->path, job->path2, exchange, change->file);
    /* ESTALE: an object was replaced while it was moved; the others have been. */
    if (job->result == 0 || job->result == -ENOENT || job->result == -ESTALE ||
        fb_source_is_outage(job->result))
        forget_paths(change, job);
    fuse_reply_err(change->req, -job->result);
    if (change->file != FB_FILE_NONE)
        fb_files_unref(mount->files, change->file, 1);
}

/* The record of a regular file, with a reference. */
static uint32_t file_at(struct fb_mount *mount, const char *path)
{
    uint32_t id = fb_files_find(mount->files, fb_volume_id(mount->volume), path);
    struct fb_attr attr;

    if (id == FB_FILE_NONE)
        return id;
    fb_files_attr(mount->files, id, &attr);
    if (S_ISREG(attr.mode))
        return id;
    fb_files_unref(mount->files, id, 1);
    return FB_FILE_NONE;
}

void fb_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                  const char *new_name, unsigned flags)
{
    struct fb_mount *mount = fb_mount_of(req);
    char from[FB_PATH_MAX], to[FB_PATH_MAX];
    struct fb_source_job *job;
    struct fb_change *change;

    if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE)) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    if (!fb_child_path(req, parent, name, from) || !fb_child_path(req, new_parent, new_name, to))
        return;
    change = fb_change_new(req, FB_SOURCE_RENAME, from, &job);
    if (!change)
        return;
    job->path2 = fb_strdup(to);
    if (!job->path2) {
        fuse_reply_err(req, ENOMEM);
        fb_source_job_put(job);
        fb_request_free(mount, change);
        return;
    }
    /* What is exchanged may be one of each kind. */
    if (!(flags & RENAME_EXCHANGE))
        change->file = file_at(mount, from);
    job->flags = flags;
    fb_change_submit(change, job, true, renamed);
}
