/*
 * UNLINK and RMDIR. Who has the file open for writing goes on with it, as long as the source does.
 */
#include <errno.h>

#include "doors/fuse/fuse_priv.h"

static void removed(struct fb_change *change, struct fb_source_job *job)
{
    struct fb_mount *mount = change->mount;

    if (job->result == 0)
        fb_live_removed(mount, job->path);
    if (job->result == 0 || job->result == -ENOENT || fb_source_is_outage(job->result)) {
        fb_changed_gone(mount, job->path);
        fb_changed_parent(mount, job->path);
    }
    fuse_reply_err(change->req, -job->result);
}

static void remove_name(fuse_req_t req, fuse_ino_t parent, const char *name, enum fb_source_op op)
{
    struct fb_source_job *job;
    struct fb_change *change;
    char path[FB_PATH_MAX];

    if (!fb_child_path(req, parent, name, path))
        return;
    change = fb_change_new(req, op, path, &job);
    if (change)
        fb_change_submit(change, job, false, removed);
}

void fb_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    remove_name(req, parent, name, FB_SOURCE_UNLINK);
}

void fb_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    remove_name(req, parent, name, FB_SOURCE_RMDIR);
}
