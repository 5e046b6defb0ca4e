/*
 * The frame of every change: a job for the source, and what has to be forgotten when it is done.
 *
 * A change is answered when the source has done it. Before the answer goes out, whatever the change
 * made untrue is forgotten: by the cache for all doors, by this door's node table, and, through
 * notifications that follow, by the kernels of other mounts. (The kernel that asked knows by
 * itself.) A change whose end nobody saw - a time-out, a program killed - may have happened, so it
 * is treated as if it had.
 */
#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

struct fb_change *fb_change_new(fuse_req_t req, enum fb_source_op op, const char *path,
                                struct fb_source_job **ret_job)
{
    struct fb_mount *mount = fb_mount_of(req);
    struct fb_source_job *job = fb_source_job_new(op, path);
    struct fb_change *change = job ? fb_request_new(mount, sizeof *change) : NULL;

    if (!change) {
        fb_source_job_put(job);
        fuse_reply_err(req, ENOMEM);
        return NULL;
    }
    *change = (struct fb_change){.mount = mount, .req = req};
    *ret_job = job;
    return change;
}

static void change_done(struct fb_source_job *job)
{
    struct fb_change *change = job->arg;
    struct fb_mount *mount = change->mount;

    fb_interruptible(change->req, NULL);
    /* No file has the number 0, as do the answers without attributes. */
    if (job->result == 0 && job->attr.ino != 0)
        fb_live_seen(mount, &job->attr, change->asked_ns);
    change->answer(change, job);
    if (change->bytes > 0)
        fb_bytes_give(mount, change->bytes);
    fb_source_job_put(job);
    fb_handle_put(change->held);
    fb_request_free(mount, change);
}

/* Of the path that will be learned. */
static uint64_t moment(const struct fb_change *change, const struct fb_source_job *job)
{
    struct fb_mount *mount = change->mount;
    char buf[FB_PATH_MAX];
    const char *path = job->op == FB_SOURCE_LINK ? job->path2 : job->path;

    if (job->op == FB_SOURCE_COMMIT && change->handle)
        path = fb_node_path(mount, change->handle->id, buf, NULL);
    return fb_cache_moment(mount->volume, path);
}

void fb_change_submit(struct fb_change *change, struct fb_source_job *job, bool lengthy,
                      void (*answer)(struct fb_change *change, struct fb_source_job *job))
{
    struct fb_mount *mount = change->mount;
    int64_t patience_ns = fb_volume_timeout_ns(mount->volume);

    if (lengthy && patience_ns < FB_FUSE_LONG_NS) {
        job->doubt_ns = patience_ns;
        patience_ns = FB_FUSE_LONG_NS;
    }
    change->answer = answer;
    change->asked = moment(change, job);
    change->asked_ns = fb_now_ns();
    fb_interruptible(change->req, &change->interrupted);
    job->caller = fb_caller_of(change->req);
    job->cancel = &change->interrupted;
    job->deadline_ns = change->asked_ns + patience_ns;
    job->done = change_done;
    job->arg = change;
    fb_source_submit(fb_volume_source(mount->volume), job);
}

bool fb_child_path(fuse_req_t req, fuse_ino_t parent, const char *name, char buf[FB_PATH_MAX])
{
    struct fb_mount *mount = fb_mount_of(req);
    char above[FB_PATH_MAX];
    size_t len;
    const char *dir = fb_node_path(mount, fb_file_of(mount, parent), above, &len);
    int rc = dir ? fb_path_join(dir, len, name, buf) : -ESTALE;

    if (rc < 0)
        fuse_reply_err(req, -rc);
    return rc == 0;
}

/* ---- what is to be forgotten ---- */

struct links {
    struct fb_mount *mount;
    const struct fb_attr *attr;
};

static void enliven_link(void *arg, uint32_t id)
{
    const struct links *l = arg;
    struct fb_mount *mount = l->mount;
    struct fb_attr attr;

    fb_files_attr(mount->files, id, &attr);
    if (!S_ISDIR(attr.mode) && attr.ino == l->attr->ino && attr.dev == l->attr->dev &&
        fb_node_known(mount->nodes, id, NULL)) {
        fb_live_touch(mount, id, fb_files_path(mount->files, id, NULL), &attr);
        /* The attributes only: this takes no lock that a program may hold. */
        fuse_lowlevel_notify_inval_inode(mount->session, fb_ino_of(id), -1, 0);
    }
    fb_files_unref(mount->files, id, 1);
}

/* The other names of a file: inodes of their own to the kernel, which does not know that they have
 * changed, too. */
static void enliven_links(struct fb_mount *mount, const struct fb_attr *attr)
{
    struct links l = {.mount = mount, .attr = attr};

    if (!S_ISDIR(attr->mode) && attr->nlink > 1)
        fb_files_visit(mount->files, fb_volume_id(mount->volume), "", enliven_link, &l);
}

void fb_changed_file(struct fb_mount *mount, const char *path, const struct fb_attr *attr)
{
    uint32_t id = fb_files_find(mount->files, fb_volume_id(mount->volume), path);
    struct fb_attr known = {.nlink = 0};

    if (id != FB_FILE_NONE) {
        fb_files_attr(mount->files, id, &known);
        /* Who has it open goes on with the file as it is now. */
        if (S_ISREG(known.mode))
            fb_live_touch(mount, id, path, &known);
        fb_files_unref(mount->files, id, 1);
    }
    enliven_links(mount, attr ? attr : &known);
    fb_cache_changed(mount->volume, path, attr);
}

void fb_changed_gone(struct fb_mount *mount, const char *path)
{
    uint32_t id = fb_files_find(mount->files, fb_volume_id(mount->volume), path);
    struct fb_attr known;

    if (id != FB_FILE_NONE) {
        fb_files_attr(mount->files, id, &known);
        fb_node_set_flags(mount->nodes, id, FB_NODE_GONE, 0);
        enliven_links(mount, &known);
        fb_files_unref(mount->files, id, 1);
    }
    fb_cache_changed(mount->volume, path, NULL);
}

void fb_changed_parent(struct fb_mount *mount, const char *path)
{
    char above[FB_PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;

    memcpy(above, path, len);
    above[len] = '\0';
    fb_cache_forget(mount->volume, above);
}

/* ---- answers ---- */

void fb_reply_live_attr(fuse_req_t req, const struct fb_attr *attr)
{
    struct stat st;

    fb_stat_of(attr, &st);
    fuse_reply_attr(req, &st, 0);
}

void fb_change_reply_entry(struct fb_change *change, struct fb_source_job *job)
{
    struct fb_mount *mount = change->mount;
    const char *path = job->op == FB_SOURCE_LINK ? job->path2 : job->path;
    uint32_t parent = job->op == FB_SOURCE_LINK ? change->parent2 : change->parent;
    struct fuse_entry_param entry;
    uint32_t id = FB_FILE_NONE;
    int rc = job->result;

    if (rc == 0)
        rc = fb_cache_learn(mount->volume, path, &job->attr, change->asked, &id);
    if (rc == 0)
        rc = fb_entry_make(mount, id, parent, &job->attr, fb_files_valid_until(mount->files, id),
                           &entry);
    fb_changed_parent(mount, path);
    if (rc < 0)
        fuse_reply_err(change->req, -rc);
    else if (fuse_reply_entry(change->req, &entry) != 0)
        fb_entry_forget(mount, id, 1); /* interrupted: the kernel never heard of it */
}

void fb_publish(struct fb_change *change, const struct fb_source_job *job)
{
    struct fb_handle *handle = change->handle;
    struct fb_mount *mount = change->mount;
    char buf[FB_PATH_MAX];
    const char *path;
    uint32_t id;

    /* 0: nothing has taken its place yet. */
    if (!handle->direct || job->result < 0 || job->attr.mode == 0)
        return;
    path = fb_node_path(mount, handle->id, buf, NULL);
    if (!path || !fb_handle_publishes(handle, &job->attr.version))
        return;
    /* The name leads to the new version from now on. */
    fb_live_unname(mount, handle->id);
    if (fb_cache_learn(mount->volume, path, &job->attr, change->asked, &id) == 0) {
        if (job->data)
            fb_cache_fill(mount->volume, id, (const uint8_t *)job->data, job->data_len);
        fb_files_unref(mount->files, id, 1);
    }
    fb_changed_parent(mount, path);
}
