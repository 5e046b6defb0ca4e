/*
 * GETATTR. What is known of a regular file's record is its version and never changes. Directories
 * and links are asked for anew once they have outlived the TTL.
 */
#include <errno.h>

#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

struct getattr_request {
    struct fb_lookup lookup;
    struct fb_mount *mount;
    fuse_req_t req;
    _Atomic bool interrupted;
    uint32_t mode; /* of the inode the kernel knows */
};

static void reply(struct fb_mount *mount, fuse_req_t req, const struct fb_attr *attr,
                  int64_t valid_until_ns)
{
    struct stat st;

    fb_stat_of(attr, &st);
    fuse_reply_attr(req, &st, fb_attr_timeout(mount, attr, valid_until_ns));
}

static void getattr_done(struct fb_lookup *lookup)
{
    struct getattr_request *r = FB_CONTAINER_OF(lookup, struct getattr_request, lookup);
    struct fb_mount *mount = r->mount;

    fb_interruptible(r->req, NULL);
    if (lookup->result < 0) {
        fuse_reply_err(r->req, -lookup->result);
    } else {
        /* A directory that was removed and made again goes on; one that became a file does not. */
        if ((lookup->attr.mode & S_IFMT) == (r->mode & S_IFMT))
            reply(mount, r->req, &lookup->attr, lookup->valid_until_ns);
        else
            fuse_reply_err(r->req, ESTALE);
        fb_files_unref(mount->files, lookup->file, 1);
    }
    fb_request_free(mount, r);
}

void fb_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct fb_mount *mount = fb_mount_of(req);
    uint32_t id = fb_file_of(mount, ino);
    struct getattr_request *r;
    struct fb_attr attr;

    (void)fi;
    fb_files_attr(mount->files, id, &attr);
    if (S_ISREG(attr.mode)) {
        reply(mount, req, &attr, 0);
        return;
    }
    r = fb_request_new(mount, sizeof *r);
    if (!r) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    r->mount = mount;
    r->req = req;
    r->mode = attr.mode;
    r->lookup = (struct fb_lookup){
        .volume = mount->volume,
        .caller = fb_caller_of(req),
        .path = fb_files_path(mount->files, id, NULL),
        .cancel = &r->interrupted,
        .done = getattr_done,
    };
    atomic_init(&r->interrupted, false);
    fb_interruptible(req, &r->interrupted);
    fb_cache_lookup(&r->lookup);
}
