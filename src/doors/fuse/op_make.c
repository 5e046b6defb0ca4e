/*
 * MKNOD, MKDIR, SYMLINK, LINK: a name that was not there. Answered with its entry, as a LOOKUP is.
 */
#include <errno.h>
#include <sys/stat.h>

#include "core/mem.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

static void make(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct fb_source_job *job;
    struct fb_change *change;
    char path[FB_PATH_MAX];

    if (!fb_child_path(req, parent, name, path))
        return;
    change = fb_change_new(req, FB_SOURCE_MKNOD, path, &job);
    if (!change)
        return;
    change->parent = fb_parent_of(parent);
    job->mode = mode;
    job->umask = fuse_req_ctx(req)->umask;
    fb_change_submit(change, job, false, fb_change_reply_entry);
}

void fb_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    make(req, parent, name, S_IFDIR | (mode & 07777));
}

void fb_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    (void)rdev;
    make(req, parent, name, mode);
}

static void no_memory(struct fb_change *change, struct fb_source_job *job)
{
    fuse_reply_err(change->req, ENOMEM);
    fb_source_job_put(job);
    fb_request_free(change->mount, change);
}

void fb_op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    struct fb_source_job *job;
    struct fb_change *change;
    char path[FB_PATH_MAX];

    if (!fb_child_path(req, parent, name, path))
        return;
    change = fb_change_new(req, FB_SOURCE_SYMLINK, path, &job);
    if (!change)
        return;
    change->parent = fb_parent_of(parent);
    job->path2 = fb_strdup(target);
    if (job->path2)
        fb_change_submit(change, job, false, fb_change_reply_entry);
    else
        no_memory(change, job);
}

/* The file that has one more name now has another version under the old one, too. */
static void linked(struct fb_change *change, struct fb_source_job *job)
{
    if (job->result == 0) {
        fb_live_touch(change->mount, change->id, job->path, &job->attr);
        fb_changed_file(change->mount, job->path, &job->attr);
        change->asked = fb_cache_moment(change->mount->volume, job->path2);
    }
    fb_change_reply_entry(change, job);
}

void fb_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    struct fb_mount *mount = fb_mount_of(req);
    char from[FB_PATH_MAX], to[FB_PATH_MAX];
    const char *path = fb_node_own_path(mount, fb_file_of(mount, ino), from);
    struct fb_source_job *job;
    struct fb_change *change;

    if (!path) {
        fuse_reply_err(req, ESTALE);
        return;
    }
    if (!fb_child_path(req, parent, name, to))
        return;
    change = fb_change_new(req, FB_SOURCE_LINK, path, &job);
    if (!change)
        return;
    change->id = fb_file_of(mount, ino);
    change->parent2 = fb_parent_of(parent);
    job->path2 = fb_strdup(to);
    if (job->path2)
        fb_change_submit(change, job, false, linked);
    else
        no_memory(change, job);
}
