/*
 * OPENDIR and RELEASEDIR.
 *
 * Opening asks the source for nothing but the directory's version, and that only when its record
 * has outlived the TTL (on static mounts not even then): the kernel may have the whole listing. The
 * source's directory is opened by the first READDIR that comes.
 *
 * The kernel keeps a listing while the directory's version stays the same. Which version a listing
 * was made from is remembered, as 64 bits, in a table of fixed size: what falls out of it is listed
 * once more. A version that has not settled keeps no listing: a file could come and the version not
 * change.
 */
#include <errno.h>

#include "base/hash.h"
#include "core/clock.h"
#include "core/mem.h"
#include "doors/fuse/dir_priv.h"
#include "doors/fuse/fuse_priv.h"
#include "store/files.h"

struct fb_dir *fb_dir_new(struct fb_mount *mount, uint32_t id, uint32_t node)
{
    struct fb_dir *dir = fb_alloc(sizeof *dir);

    if (!dir)
        return NULL;
    dir->mount = mount;
    dir->id = id;
    dir->node = node;
    atomic_flag_clear(&dir->busy);
    fb_mutex_lock(&mount->dirs_lock);
    fb_list_push_back(&mount->dirs, &dir->link);
    fb_mutex_unlock(&mount->dirs_lock);
    return dir;
}

void fb_dir_close(struct fb_dir *dir)
{
    struct fb_mount *mount = dir->mount;

    if (dir->source)
        fb_source_close_handle(mount, dir->source);
    fb_mutex_lock(&mount->dirs_lock);
    fb_list_remove(&dir->link);
    fb_mutex_unlock(&mount->dirs_lock);
    fb_source_job_put(dir->batch);
    free(dir);
}

void fb_dirs_close(struct fb_mount *mount)
{
    struct fb_list *it, *tmp;

    /* No lock: the threads that take requests in are gone. */
    FB_LIST_FOREACH (it, tmp, &mount->dirs)
        fb_dir_close(FB_LIST_ENTRY(it, struct fb_dir, link));
}

static void reply_open(struct fb_mount *mount, fuse_req_t req, fuse_ino_t ino, bool cache,
                       bool keep)
{
    struct fb_dir *dir = fb_dir_new(mount, fb_file_of(mount, ino), fb_parent_of(ino));
    struct fuse_file_info fi = {.cache_readdir = cache, .keep_cache = keep};

    if (!dir) {
        fuse_reply_err(req, ENOMEM);
        return;
    }
    fi.fh = (uintptr_t)dir;
    if (fuse_reply_open(req, &fi) != 0)
        fb_dir_close(dir); /* interrupted: no RELEASEDIR will come */
}

/* True when the kernel's listing, if it has one, is of this very version. */
static bool same_version(struct fb_mount *mount, uint32_t id, const struct fb_version *version)
{
    uint64_t mark = fb_hash64(version, sizeof *version) ^ fb_mix64(id);
    _Atomic uint64_t *at = &mount->dir_marks[fb_mix64(id) % FB_FUSE_DIR_MARKS];

    /* Relaxed: the word is all there is. */
    return atomic_exchange_explicit(at, mark, memory_order_relaxed) == mark;
}

static void answer(const struct fb_ask *ask)
{
    const struct fb_version *version = &ask->lookup.attr.version;
    bool cache;

    if (ask->lookup.result < 0) {
        fuse_reply_err(ask->req, -ask->lookup.result);
    } else if (!S_ISDIR(ask->lookup.attr.mode)) {
        fuse_reply_err(ask->req, ESTALE);
    } else {
        cache = fb_version_settled(version, fb_wall_ns());
        reply_open(ask->mount, ask->req, ask->ino, cache,
                   cache && same_version(ask->mount, ask->id, version));
    }
}

void fb_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct fb_mount *mount = fb_mount_of(req);

    (void)fi;
    if (fb_mount_is_static(mount))
        reply_open(mount, req, ino, true, true);
    else
        fb_ask(req, ino, answer);
}

void fb_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    fb_dir_close((struct fb_dir *)(uintptr_t)fi->fh);
    fuse_reply_err(req, 0);
}
