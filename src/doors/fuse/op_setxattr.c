/*
 * SETXATTR and REMOVEXATTR. They change the file's ctime, and with it its version.
 */
#include <errno.h>
#include <string.h>

#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

static void xattr_changed(struct fb_change *change, struct fb_source_job *job)
{
    struct fb_mount *mount = change->mount;
    struct fb_attr attr;

    if (job->result == 0 || fb_source_is_outage(job->result)) {
        fb_node_set_flags(mount->nodes, change->id, 0, FB_NODE_NO_XATTRS);
        fb_files_attr(mount->files, change->id, &attr);
        if (S_ISREG(attr.mode)) {
            fb_live_touch(mount, change->id, job->path, &attr);
            fb_changed_file(mount, job->path, &attr);
        } else {
            fb_cache_forget(mount->volume, job->path);
        }
    } else if (job->result == -ESTALE) {
        fb_cache_forget(mount->volume, job->path); /* the kernel looks the name up anew */
    }
    fuse_reply_err(change->req, -job->result);
}

static void change_xattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                         size_t size, int flags)
{
    struct fb_mount *mount = fb_mount_of(req);
    uint32_t id = fb_file_of(mount, ino);
    char buf[FB_PATH_MAX];
    const char *path = fb_node_own_path(mount, id, buf);
    struct fb_source_job *job;
    struct fb_change *change;

    if (!path || strlen(name) > FB_NAME_MAX) {
        fuse_reply_err(req, path ? ERANGE : ESTALE);
        return;
    }
    change = fb_change_new(req, value ? FB_SOURCE_SETXATTR : FB_SOURCE_REMOVEXATTR, path, &job);
    if (!change)
        return;
    change->id = id;
    fb_job_own(mount, id, job);
    memcpy(job->name, name, strlen(name) + 1);
    job->flags = (uint32_t)flags;
    job->data = value ? malloc(size + 1) : NULL;
    if (value && !job->data) {
        fuse_reply_err(req, ENOMEM);
        fb_source_job_put(job);
        fb_request_free(mount, change);
        return;
    }
    if (value)
        memcpy(job->data, value, size);
    job->data_len = size;
    fb_change_submit(change, job, false, xattr_changed);
}

void fb_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                    size_t size, int flags)
{
    change_xattr(req, ino, name, value, size, flags);
}

void fb_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    change_xattr(req, ino, name, NULL, 0, 0);
}
