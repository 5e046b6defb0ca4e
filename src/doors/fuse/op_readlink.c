/*
 * READLINK. Always asks the source; on static mounts the kernel keeps the answer.
 */
#include <errno.h>

#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

struct readlink_request {
    struct fb_mount *mount;
    fuse_req_t req;
    _Atomic bool interrupted;
};

static void readlink_done(struct fb_source_job *job)
{
    struct readlink_request *r = job->arg;
    struct fb_mount *mount = r->mount;

    fb_interruptible(r->req, NULL);
    if (job->result < 0)
        fuse_reply_err(r->req, -job->result);
    else
        fuse_reply_readlink(r->req, job->data);
    fb_source_job_put(job);
    fb_request_free(mount, r);
}

void fb_op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    struct fb_mount *mount = fb_mount_of(req);
    char buf[FB_PATH_MAX];
    const char *path = fb_node_path(mount, fb_file_of(mount, ino), buf, NULL);
    struct fb_source_job *job = path ? fb_source_job_new(FB_SOURCE_READLINK, path) : NULL;
    struct readlink_request *r = job ? fb_request_new(mount, sizeof *r) : NULL;
    struct fb_caller caller = fb_caller_of(req);

    if (!r) {
        fb_source_job_put(job);
        fuse_reply_err(req, path ? ENOMEM : ESTALE);
        return;
    }
    *r = (struct readlink_request){.mount = mount, .req = req};
    fb_interruptible(req, &r->interrupted);
    fb_job_submit(mount, job, &caller, &r->interrupted, readlink_done, r);
}
