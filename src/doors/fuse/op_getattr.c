/*
 * GETATTR. What is known of a regular file's record is its version and never changes, unless the
 * node is live: then the source is asked. (The kernel does not say whether somebody asks by name or
 * by descriptor.) Directories and links are asked for anew once they have outlived the TTL.
 */
#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

static void reply(struct fb_mount *mount, fuse_req_t req, const struct fb_attr *attr,
                  int64_t valid_until_ns)
{
    struct stat st;

    fb_stat_of(attr, &st);
    fuse_reply_attr(req, &st, fb_attr_timeout(mount, attr, valid_until_ns));
}

static void answer(const struct fb_ask *ask)
{
    const struct fb_lookup *lookup = &ask->lookup;

    if (lookup->result < 0)
        fuse_reply_err(ask->req, -lookup->result);
    /* A directory that was removed and made again goes on; one that became a file does not. */
    else if ((lookup->attr.mode & S_IFMT) == (ask->mode & S_IFMT))
        reply(ask->mount, ask->req, &lookup->attr, lookup->valid_until_ns);
    else
        fuse_reply_err(ask->req, ESTALE);
}

/* ---- live nodes ---- */

struct live_request {
    struct fb_mount *mount;
    fuse_req_t req;
    _Atomic bool interrupted;
    uint32_t id;
    int64_t asked_ns;
    struct fb_live_view view;
};

/* By path, it may be another file by now. */
static bool is_other(const struct live_request *r, const struct fb_attr *now)
{
    struct fb_mount *mount = r->mount;
    const struct fb_version *version = fb_files_version(mount->files, r->id);

    if (!mount->direct)
        return now->ino != r->view.attr.ino || now->dev != r->view.attr.dev;
    return now->version.size != version->size || now->version.tag[0] != version->tag[0] ||
           now->version.tag[1] != version->tag[1];
}

static void live_done(struct fb_source_job *job)
{
    struct live_request *r = job->arg;
    struct fb_mount *mount = r->mount;
    int rc = job->result;

    fb_interruptible(r->req, NULL);
    if (rc == -ENOENT || rc == -ENOTDIR || (rc == 0 && !r->view.handle && is_other(r, &job->attr)))
        rc = -ESTALE;
    if (rc < 0) {
        fuse_reply_err(r->req, -rc);
    } else {
        fb_live_seen(mount, &job->attr, r->asked_ns);
        fb_reply_live_attr(r->req, &job->attr);
    }
    fb_source_job_put(job);
    fb_live_view_end(&r->view);
    fb_request_free(mount, r);
}

/* Takes the view over. */
static void ask_source(fuse_req_t req, uint32_t id, struct fb_live_view *view)
{
    struct fb_mount *mount = fb_mount_of(req);
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_STAT, view->handle ? NULL : view->path);
    struct live_request *r = job ? fb_request_new(mount, sizeof *r) : NULL;
    struct fb_caller caller = fb_caller_of(req);

    if (!r) {
        fuse_reply_err(req, ENOMEM);
        fb_source_job_put(job);
        fb_live_view_end(view);
        return;
    }
    *r = (struct live_request){
        .mount = mount, .req = req, .id = id, .asked_ns = fb_now_ns(), .view = *view};
    if (view->handle)
        job->handle = view->handle->source;
    fb_interruptible(req, &r->interrupted);
    fb_job_submit(mount, job, &caller, &r->interrupted, live_done, r);
}

static bool is_unmoved(struct fb_mount *mount, uint32_t id, const char *path)
{
    return strcmp(path, fb_files_path(mount->files, id, NULL)) == 0;
}

/* True: it has been answered, or will be. */
static bool answer_live(fuse_req_t req, uint32_t id, struct fb_handle *own)
{
    struct fb_mount *mount = fb_mount_of(req);
    struct fb_live_view view = {.handle = NULL};

    /* A direct file is not what its node shows to others. */
    if (own) {
        fb_handle_get(own);
        view.handle = own;
    } else if (!fb_live_get(mount, id, &view)) {
        return false;
    }
    if (view.handle || (view.path && !(mount->direct && is_unmoved(mount, id, view.path)))) {
        ask_source(req, id, &view);
    } else {
        struct fb_attr attr = view.attr;

        /* Removed, nobody can tell more than what was last seen; and a node made for a writer is
         * what it was made from, before and after. */
        if (mount->direct)
            fb_files_attr(mount->files, id, &attr);
        if (!view.path)
            attr.nlink = 0;
        fb_reply_live_attr(req, &attr);
        fb_live_view_end(&view);
    }
    return true;
}

void fb_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct fb_mount *mount = fb_mount_of(req);
    uint32_t id = fb_file_of(mount, ino);
    struct fb_attr attr;

    fb_files_attr(mount->files, id, &attr);
    if (S_ISREG(attr.mode) && answer_live(req, id, fb_handle_of(fi)))
        return;
    if (S_ISREG(attr.mode))
        reply(mount, req, &attr, 0);
    else
        fb_ask(req, ino, answer);
}
