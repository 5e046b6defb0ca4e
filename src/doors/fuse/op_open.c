/*
 * OPEN, in close-to-open: the version is asked for again once the record has outlived the TTL.
 *
 * Another version than the node's is answered ESTALE; upon that the kernel looks the name up anew,
 * gets the node of the new version and opens that, unseen by the program. As a node has one version
 * only, its pages in the kernel stay good: keep_cache.
 *
 * A file touched less than FB_SETTLE_TIME_NS ago may change again and show the same version. Its
 * pages are dropped by every open until it has settled, and by the first one after. (No direct I/O:
 * libfuse before 3.17 cannot allow shared mappings of such a file, and what a program has just
 * written is what it maps next.)
 *
 * There is nothing to release: an open file is a node the kernel knows. RELEASE does nothing, and
 * FLUSH is not sent (by kernels before 5.18 it is, and does nothing).
 *
 * A live node is opened while a program writes to it, and for a moment more by who found it then;
 * after that its name leads elsewhere. What is written as a whole is not there before it is
 * complete: EBUSY. To open for writing is in op_create.c.
 */
#include <errno.h>
#include <fcntl.h>

#include "core/clock.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

static void reply_open(struct fb_mount *mount, fuse_req_t req, uint32_t id)
{
    struct fuse_file_info fi = {.fh = 0, .noflush = 1};

    if (mount->config.bypass) {
        fi.direct_io = 1;
    } else if (!fb_version_settled(fb_files_version(mount->files, id), fb_wall_ns())) {
        fb_node_set_flags(mount->nodes, id, FB_NODE_UNSETTLED, 0);
    } else if (fb_node_flags(mount->nodes, id) & FB_NODE_UNSETTLED) {
        fb_node_set_flags(mount->nodes, id, 0, FB_NODE_UNSETTLED);
    } else {
        fi.keep_cache = 1;
    }
    fuse_reply_open(req, &fi);
}

static void answer(const struct fb_ask *ask)
{
    int result = ask->lookup.result;

    if (result == 0 && ask->lookup.file == ask->id)
        reply_open(ask->mount, ask->req, ask->id);
    else if (result == 0 || result == -ENOENT || result == -ENOTDIR)
        fuse_reply_err(ask->req, ESTALE);
    else
        fuse_reply_err(ask->req, -result);
}

static void open_live(fuse_req_t req, struct fb_live_view *view)
{
    struct fb_mount *mount = fb_mount_of(req);
    struct fuse_file_info fi = {.fh = 0, .noflush = 1, .direct_io = mount->config.bypass};

    if (mount->direct && view->handle)
        fuse_reply_err(req, EBUSY); /* it is not complete */
    else if (view->open)
        fuse_reply_open(req, &fi);
    else
        fuse_reply_err(req, ESTALE);
    fb_live_view_end(view);
}

void fb_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct fb_mount *mount = fb_mount_of(req);
    uint32_t id = fb_file_of(mount, ino);
    struct fb_live_view view;

    if ((fi->flags & O_ACCMODE) != O_RDONLY || (fi->flags & O_TRUNC)) {
        if (mount->config.read_only)
            fuse_reply_err(req, EROFS);
        else
            fb_open_for_writing(req, ino, fi);
        return;
    }
    if (mount->no_open) {
        fuse_reply_err(req, ENOSYS);
        return;
    }
    if (fb_live_get(mount, id, &view)) {
        (void)!fb_claim_take(req, id); /* made for a writer that did not come */
        open_live(req, &view);
        return;
    }
    if (fb_files_current(mount->files, id) && fb_files_valid_until(mount->files, id) > fb_now_ns())
        reply_open(mount, req, id);
    else
        fb_ask(req, ino, answer);
}
