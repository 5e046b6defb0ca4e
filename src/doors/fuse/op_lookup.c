/*
 * LOOKUP: a name in a directory becomes a node. Also FORGET, its opposite.
 */
#include <errno.h>
#include <string.h>

#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

struct lookup_request {
    struct fb_lookup lookup;
    struct fb_mount *mount;
    fuse_req_t req;
    _Atomic bool interrupted;
    uint32_t parent;
    pthread_t thread; /* that took it in */
    char path[];
};

/* The kernel may believe in an absence, too, but not for long: somebody may wait for the file. */
static void reply_absent(struct fb_mount *mount, fuse_req_t req)
{
    struct fuse_entry_param entry = {.ino = 0};

    entry.entry_timeout = (double)mount->config.metadata_ttl_ns * 1e-9;
    if (!fb_mount_is_static(mount) && entry.entry_timeout > FB_FUSE_NEGATIVE_MAX_S)
        entry.entry_timeout = FB_FUSE_NEGATIVE_MAX_S;
    if (entry.entry_timeout <= 0)
        fuse_reply_err(req, ENOENT);
    else
        fuse_reply_entry(req, &entry);
}

/* Takes the look-up's reference. */
static void reply_entry(struct lookup_request *r)
{
    struct fb_mount *mount = r->mount;
    struct fb_lookup *lookup = &r->lookup;
    uint32_t id = lookup->file;
    bool watch = fb_mount_is_static(mount);
    struct fuse_entry_param entry;
    int rc;

    /* Held over the reply, for the last look at it below. */
    if (watch)
        fb_files_ref(mount->files, id, 1);
    rc = fb_entry_make(mount, id, r->parent, &lookup->attr, lookup->valid_until_ns, &entry);
    if (rc < 0)
        fuse_reply_err(r->req, -rc);
    else if (fuse_reply_entry(r->req, &entry) != 0)
        fb_entry_forget(mount, id, 1); /* interrupted: the kernel never heard of it */
    else if (watch && fb_entry_outdated(mount, id, lookup->valid_until_ns))
        /* Evicted while we replied: the invalidation may have come before the reply, and there is
         * no time-out to make up for it. */
        fb_notifier_retired(mount->notifier, id);
    if (watch)
        fb_files_unref(mount->files, id, 1);
}

static void lookup_done(struct fb_lookup *lookup)
{
    struct lookup_request *r = FB_CONTAINER_OF(lookup, struct lookup_request, lookup);
    struct fb_mount *mount = r->mount;

    struct fb_caller caller = lookup->caller;
    uint32_t file = FB_FILE_NONE;

    fb_interruptible(r->req, NULL);
    /* In the thread that took it in: nobody there is kept waiting. */
    if (lookup->result == 0 && S_ISREG(lookup->attr.mode) &&
        pthread_equal(r->thread, pthread_self())) {
        file = lookup->file;
        fb_files_ref(mount->files, file, 1);
    }
    if (lookup->result == 0)
        reply_entry(r);
    else if (lookup->result == -ENOENT)
        reply_absent(mount, r->req);
    else
        fuse_reply_err(r->req, -lookup->result);
    if (lookup->result == -ENOMEM)
        fb_notifier_shed(mount->notifier, true);
    fb_request_free(mount, r);
    if (file != FB_FILE_NONE) {
        fb_early_lookup(mount, file, &caller);
        fb_files_unref(mount->files, file, 1);
    }
}

void fb_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fb_mount *mount = fb_mount_of(req);
    size_t dir_len;
    const char *dir = fb_files_path(mount->files, fb_file_of(mount, parent), &dir_len);
    struct lookup_request *r;
    char path[FB_PATH_MAX];
    int rc = fb_path_join(dir, dir_len, name, path);
    size_t size;

    if (rc < 0) {
        fuse_reply_err(req, -rc);
        return;
    }
    size = strlen(path) + 1;
    r = fb_request_new(mount, sizeof *r + size);
    if (!r) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    r->mount = mount;
    r->req = req;
    r->parent = fb_parent_of(parent);
    r->thread = pthread_self();
    memcpy(r->path, path, size);
    r->lookup = (struct fb_lookup){
        .volume = mount->volume,
        .caller = fb_caller_of(req),
        .path = r->path,
        .cancel = &r->interrupted,
        .done = lookup_done,
    };
    atomic_init(&r->interrupted, false);
    fb_interruptible(req, &r->interrupted);
    fb_cache_lookup(&r->lookup);
}

void fb_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
    struct fb_mount *mount = fb_mount_of(req);

    if (ino != FUSE_ROOT_ID)
        fb_entry_forget(mount, fb_file_of(mount, ino), count);
    fuse_reply_none(req);
}

void fb_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    struct fb_mount *mount = fb_mount_of(req);

    for (size_t i = 0; i < count; i++)
        if (forgets[i].ino != FUSE_ROOT_ID)
            fb_entry_forget(mount, fb_file_of(mount, forgets[i].ino), forgets[i].nlookup);
    fuse_reply_none(req);
}
