/*
 * SETATTR: mode, owner, times and size; and FALLOCATE. The kernel has checked what the caller may
 * do (default_permissions).
 */
#include <errno.h>

#include "core/clock.h"
#include "core/mem.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

static const struct {
    int to_set;
    uint32_t set;
} sets[] = {
    {FUSE_SET_ATTR_MODE, FB_SET_MODE},
    {FUSE_SET_ATTR_UID, FB_SET_UID},
    {FUSE_SET_ATTR_GID, FB_SET_GID},
    {FUSE_SET_ATTR_SIZE, FB_SET_SIZE},
    {FUSE_SET_ATTR_ATIME, FB_SET_ATIME},
    {FUSE_SET_ATTR_MTIME, FB_SET_MTIME},
    {FUSE_SET_ATTR_ATIME_NOW, FB_SET_ATIME_NOW},
    {FUSE_SET_ATTR_MTIME_NOW, FB_SET_MTIME_NOW},
};

static void changed(struct fb_change *change, const struct fb_source_job *job)
{
    struct fb_mount *mount = change->mount;
    const struct fb_attr *now = job->result == 0 ? &job->attr : NULL;
    char buf[FB_PATH_MAX];
    const char *path = fb_node_path(mount, change->id, buf, NULL);
    struct fb_attr known;

    fb_files_attr(mount->files, change->id, &known);
    if (!path || mount->direct)
        return;
    /* ESTALE: another file stands there, and the kernel looks the name up anew. */
    if (!S_ISREG(known.mode) || job->result == -ESTALE) {
        fb_cache_forget(mount->volume, path);
        return;
    }
    /* A source without modes and times may say yes and change nothing. */
    if (now && fb_version_equal(&now->version, &known.version) && !fb_is_live(mount, change->id))
        return;
    fb_live_touch(mount, change->id, path, &known);
    fb_changed_file(mount, path, now);
}

/* An object of another size is another version; all else changes nothing. */
static void resized(struct fb_change *change, const struct fb_source_job *job)
{
    struct fb_mount *mount = change->mount;
    uint32_t id;

    if (job->result == 0 &&
        fb_cache_learn(mount->volume, job->path, &job->attr, change->asked, &id) == 0)
        fb_files_unref(mount->files, id, 1);
    else
        fb_cache_forget(mount->volume, job->path);
    fb_changed_parent(mount, job->path);
}

static void set_done(struct fb_change *change, struct fb_source_job *job)
{
    struct fb_mount *mount = change->mount;

    changed(change, job);
    if (mount->direct && !change->handle) {
        if (job->set & FB_SET_SIZE)
            resized(change, job);
        else if (job->result == 0)
            fb_files_attr(mount->files, change->id, &job->attr); /* of the version that it is */
    }
    if (job->result == 0)
        fb_reply_live_attr(change->req, &job->attr);
    else
        fuse_reply_err(change->req, job->result == -ENOENT ? ESTALE : -job->result);
}

/* A path, or a handle; a direct file's own size is its handle's, all else is the path's. */
static struct fb_change *begin(fuse_req_t req, fuse_ino_t ino, enum fb_source_op op,
                               struct fb_handle *handle, struct fb_source_job **ret_job)
{
    struct fb_mount *mount = fb_mount_of(req);
    uint32_t id = fb_file_of(mount, ino);
    struct fb_live_view view = {.handle = NULL};
    struct fb_change *change = NULL;
    char buf[FB_PATH_MAX];
    const char *path = handle ? NULL : fb_node_own_path(mount, id, buf);

    /* Removed, and open for writing; or a writer's own node. */
    if (!handle && (!path || mount->direct) && fb_live_get(mount, id, &view) && view.handle) {
        handle = view.handle;
        path = NULL;
    } else if (!handle && !path) {
        fb_live_view_end(&view);
        fuse_reply_err(req, ESTALE);
        return NULL;
    }
    change = fb_change_new(req, op, path, ret_job);
    if (change) {
        change->id = id;
        change->handle = handle;
        change->held = fb_steal(view.handle);
        if (handle)
            (*ret_job)->handle = handle->source;
        else
            fb_job_own(mount, id, *ret_job);
    }
    fb_live_view_end(&view);
    return change;
}

/* What is cut here must not be what others read. */
static bool needs_own(fuse_req_t req, fuse_ino_t ino)
{
    struct fb_mount *mount = fb_mount_of(req);
    uint32_t id = fb_file_of(mount, ino);
    struct fb_live_view view;
    bool written;

    if (!mount->direct)
        return false;
    written = fb_live_get(mount, id, &view) && view.handle;
    fb_live_view_end(&view);
    return !written && !fb_claim_take(req, id);
}

void fb_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set,
                   struct fuse_file_info *fi)
{
    struct fb_source_job *job;
    struct fb_change *change;

    if ((to_set & FUSE_SET_ATTR_SIZE) && !fb_handle_of(fi) && needs_own(req, ino)) {
        fb_claim(req, fb_file_of(fb_mount_of(req), ino));
        return;
    }
    change = begin(req, ino, FB_SOURCE_SETATTR, fb_handle_of(fi), &job);
    if (!change)
        return;
    for (unsigned i = 0; i < FB_ARRAY_SIZE(sets); i++)
        if (to_set & sets[i].to_set)
            job->set |= sets[i].set;
    job->attr = (struct fb_attr){
        .version = {.size = (uint64_t)st->st_size, .mtime_ns = fb_timespec_ns(&st->st_mtim)},
        .atime_ns = fb_timespec_ns(&st->st_atim),
        .mode = st->st_mode,
        .uid = st->st_uid,
        .gid = st->st_gid,
    };
    fb_change_submit(change, job, false, set_done);
}

static void allocated(struct fb_change *change, struct fb_source_job *job)
{
    changed(change, job);
    fuse_reply_err(change->req, -job->result);
}

void fb_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                     struct fuse_file_info *fi)
{
    struct fb_source_job *job;
    struct fb_change *change;

    if (!fb_handle_of(fi)) {
        fuse_reply_err(req, EBADF);
        return;
    }
    change = begin(req, ino, FB_SOURCE_FALLOCATE, fb_handle_of(fi), &job);
    if (!change)
        return;
    job->flags = (uint32_t)mode;
    job->offset = (uint64_t)offset;
    job->length = (uint64_t)length;
    fb_change_submit(change, job, true, allocated);
}
