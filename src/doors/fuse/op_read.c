/*
 * READ: the answer goes to the kernel straight from segments and buffers, one copy in all. (The
 * kernel copies; splicing from the memfd instead gained nothing when measured.)
 */
#include <errno.h>

#include "doors/fuse/fuse_priv.h"

struct read_request {
    struct fb_mount *mount;
    fuse_req_t req;
    _Atomic bool interrupted;
    struct fb_read read;
};

static struct fb_meanwhile nothing_else;

static void reply_bytes(fuse_req_t req, const struct fb_read *read)
{
    struct iovec iov[FB_READ_PIECES];

    if (read->bytes == 0) {
        fuse_reply_buf(req, NULL, 0);
        return;
    }
    for (unsigned i = 0; i < read->piece_count; i++)
        iov[i] = (struct iovec){.iov_base = (void *)(uintptr_t)read->pieces[i].data,
                                .iov_len = read->pieces[i].length};
    fuse_reply_iov(req, iov, (int)read->piece_count);
}

bool fb_read_answer(struct fb_mount *mount, struct fb_read *read, const struct fb_wanted *wanted)
{
    uint64_t left;

    if (read->piece_count != 1 || wanted->offset >= read->bytes)
        return false;
    left = fb_min_u64(read->bytes - wanted->offset, wanted->size);
    fb_read_wanted(read);
    fb_notifier_read(mount->notifier, read->file, wanted->offset + left);
    fuse_reply_buf(wanted->req, (const char *)read->pieces[0].data + wanted->offset, left);
    return true;
}

static void read_done(struct fb_read *read)
{
    struct read_request *r = FB_CONTAINER_OF(read, struct read_request, read);
    struct fb_mount *mount = r->mount;
    int result = read->result;

    fb_interruptible(r->req, NULL);
    if (result == 0) {
        fb_notifier_read(mount->notifier, read->file, read->offset + read->bytes);
        reply_bytes(r->req, read);
        fb_read_release(read);
    } else {
        /* The source has another version by now: let the kernel look the name up again. */
        if (result == -ESTALE)
            fb_notifier_retired(mount->notifier, read->file);
        fuse_reply_err(r->req, -result);
    }
    fb_request_free(mount, r);
}

/* What is being written is read where it is written. */
static void read_live(fuse_req_t req, uint32_t file, struct fb_handle *own, size_t size, off_t off)
{
    struct fb_live_view view = {.handle = NULL};

    if (own) {
        fb_handle_get(own);
        view.handle = own;
    } else {
        (void)!fb_live_get(fb_mount_of(req), file, &view);
    }
    if (view.handle || view.path)
        fb_live_read(req, file, size, off, &view);
    else
        fuse_reply_err(req, ESTALE);
    fb_live_view_end(&view);
}

void fb_read_begin(struct fb_mount *mount, uint32_t file, const struct fb_wanted *wanted,
                   int64_t deadline_ns, struct fb_meanwhile *meanwhile)
{
    struct read_request *r = fb_request_new(mount, sizeof *r);

    if (!r) {
        fuse_reply_err(wanted->req, ENOMEM);
        return;
    }
    r->mount = mount;
    r->req = wanted->req;
    r->read.volume = mount->volume;
    r->read.caller = fb_caller_of(wanted->req);
    r->read.deadline_ns = deadline_ns;
    r->read.file = file;
    r->read.offset = wanted->offset;
    r->read.length = wanted->size;
    r->read.door = FB_DOOR_FUSE;
    r->read.meanwhile = meanwhile;
    r->read.early = false;
    r->read.steady = false;
    r->read.done = read_done;
    r->read.arg = NULL;
    r->read.cancel = &r->interrupted;
    atomic_init(&r->interrupted, false);
    fb_interruptible(wanted->req, &r->interrupted);
    fb_cache_read(&r->read);
}

void fb_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
    struct fb_mount *mount = fb_mount_of(req);
    uint32_t file = fb_file_of(mount, ino);
    struct fb_handle *own = fb_handle_of(fi);
    struct fb_wanted wanted = {.req = req, .size = (uint32_t)size, .offset = (uint64_t)off};
    bool alone;

    /* max_read forbids more than this. */
    if (size > FB_READ_MAX || off < 0) {
        fuse_reply_err(req, EINVAL);
        return;
    }
    if (own || fb_is_live(mount, file)) {
        read_live(req, file, own, size, off);
        return;
    }
    if (fb_early_read(mount, fb_caller_of(req).pid, file, &wanted))
        return;
    /* Alone, nobody waits behind this thread. Relaxed: a hint; this one is not counted yet. */
    alone = atomic_load_explicit(&mount->requests, memory_order_relaxed) == 0;
    fb_read_begin(mount, file, &wanted, 0, alone ? &nothing_else : NULL);
}
