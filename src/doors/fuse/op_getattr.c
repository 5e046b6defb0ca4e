/*
 * GETATTR. What is known of a regular file's record is its version and never changes. Directories
 * and links are asked for anew once they have outlived the TTL.
 */
#include <errno.h>

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

void fb_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct fb_mount *mount = fb_mount_of(req);
    uint32_t id = fb_file_of(mount, ino);
    struct fb_attr attr;

    (void)fi;
    fb_files_attr(mount->files, id, &attr);
    if (S_ISREG(attr.mode))
        reply(mount, req, &attr, 0);
    else
        fb_ask(req, ino, answer);
}
