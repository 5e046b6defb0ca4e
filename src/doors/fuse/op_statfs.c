/*
 * STATFS: the source's numbers. `df` shows what the data set's file system shows.
 */
#include <errno.h>

#include "doors/fuse/fuse_priv.h"

struct statfs_request {
    struct fb_mount *mount;
    fuse_req_t req;
    _Atomic bool interrupted;
};

static void statfs_done(struct fb_source_job *job)
{
    struct statfs_request *r = job->arg;
    struct fb_mount *mount = r->mount;

    fb_interruptible(r->req, NULL);
    if (job->result < 0)
        fuse_reply_err(r->req, -job->result);
    else
        fuse_reply_statfs(r->req, &job->statfs);
    fb_source_job_put(job);
    fb_request_free(mount, r);
}

void fb_op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    struct fb_mount *mount = fb_mount_of(req);
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_STATFS, NULL);
    struct statfs_request *r = job ? fb_request_new(mount, sizeof *r) : NULL;
    struct fb_caller caller = fb_caller_of(req);

    (void)ino;
    if (!r) {
        fb_source_job_put(job);
        fuse_reply_err(req, ENOMEM);
        return;
    }
    *r = (struct statfs_request){.mount = mount, .req = req};
    fb_interruptible(req, &r->interrupted);
    fb_job_submit(mount, job, &caller, &r->interrupted, statfs_done, r);
}
