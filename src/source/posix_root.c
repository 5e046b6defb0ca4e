/*
 * The root and its identity. A root that vanishes must not look like a source in which every file
 * was deleted, so what its path leads to is compared with what is open: as long as a descriptor
 * holds the old root, its device and inode numbers belong to no other directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "source/posix_priv.h"

static uint64_t device(const struct statx *stx)
{
    return makedev(stx->stx_dev_major, stx->stx_dev_minor);
}

/* Network file systems, FUSE, tmpfs and overlays get a new number with every mount. */
static bool anonymous(uint64_t dev)
{
    return major(dev) == 0;
}

void fb_posix_root_put(struct fb_posix_root *root)
{
    /* Release: our use of the descriptor; acquire: everybody's use before the close. */
    if (!root || atomic_fetch_sub_explicit(&root->refs, 1, memory_order_acq_rel) != 1)
        return;
    close(root->fd);
    free(root);
}

struct fb_posix_root *fb_posix_root_get(struct fb_posix_base *base)
{
    struct fb_posix_root *root;

    fb_mutex_lock(&base->lock);
    root = base->root;
    atomic_fetch_add_explicit(&root->refs, 1, memory_order_relaxed);
    fb_mutex_unlock(&base->lock);
    return root;
}

/* The last system call's; never 0, which would pass for success. */
static int failure(void)
{
    int code = errno;

    return code > 0 ? -code : -EIO;
}

static int open_root(const char *path, struct fb_posix_root **ret_root,
                     struct fb_posix_identity *ret_identity)
{
    FB_AUTO_CLOSE int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct fb_posix_root *root;
    struct statx stx;
    struct statfs fs;

    if (fd < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_INO, &stx) < 0 || fstatfs(fd, &fs) < 0)
        return failure();
    root = fb_alloc(sizeof *root);
    if (!root)
        return -ENOMEM;
    root->fd = fb_steal_fd(&fd);
    root->dev = device(&stx);
    root->ino = stx.stx_ino;
    atomic_init(&root->refs, 1);
    ret_identity->dev = root->dev;
    ret_identity->fs_type = (uint64_t)fs.f_type;
    ret_identity->mount_point = stx.stx_attributes & STATX_ATTR_MOUNT_ROOT;
    *ret_root = root;
    return 0;
}

static bool same_source(const struct fb_posix_identity *was, const struct fb_posix_identity *is)
{
    if (was->mount_point && !is->mount_point)
        return false;
    if (was->dev == is->dev)
        return true;
    return anonymous(was->dev) && anonymous(is->dev) && was->fs_type == is->fs_type;
}

static int lose(struct fb_posix_base *base, const char *why)
{
    atomic_store_explicit(&base->lost, true, memory_order_relaxed);
    if (fb_log_limited(&base->logged_ns))
        fb_log_warn("the source directory %s %s", base->path, why);
    return -EIO;
}

/* Relaxed throughout: both are hints of when to look again. */
static void found(struct fb_posix_base *base)
{
    atomic_store_explicit(&base->checked_ns, fb_now_ns(), memory_order_relaxed);
    if (atomic_load_explicit(&base->lost, memory_order_relaxed))
        atomic_store_explicit(&base->lost, false, memory_order_relaxed);
}

static int replace_root(struct fb_posix_base *base, const struct fb_posix_root *used)
{
    struct fb_posix_identity identity = {0};
    struct fb_posix_root *fresh = NULL, *old = NULL;
    int r = open_root(base->path, &fresh, &identity);

    if (r < 0)
        return lose(base, "is gone");
    if (!same_source(&base->identity, &identity)) {
        fb_posix_root_put(fresh);
        return lose(base, "is on another file system");
    }
    fb_mutex_lock(&base->lock);
    if (base->root == used) {
        old = base->root;
        base->root = fb_steal(fresh);
    }
    fb_mutex_unlock(&base->lock);
    fb_posix_root_put(old);
    fb_posix_root_put(fresh);
    found(base);
    return FB_POSIX_ROOT_CHANGED;
}

int fb_posix_root_check(struct fb_posix_base *base, const struct fb_posix_root *used, bool force)
{
    int64_t checked_ns = atomic_load_explicit(&base->checked_ns, memory_order_relaxed);
    struct statx stx;

    if (!force && !atomic_load_explicit(&base->lost, memory_order_relaxed) &&
        fb_now_ns() - checked_ns < FB_POSIX_ROOT_CHECK_NS)
        return 0;
    if (statx(AT_FDCWD, base->path, 0, STATX_INO, &stx) < 0)
        return lose(base, "is gone");
    if (device(&stx) != used->dev || stx.stx_ino != used->ino)
        return replace_root(base, used);
    found(base);
    return 0;
}

static int sentence(struct fb_error *err, int r, const char *path)
{
    switch (r) {
    case -ENOENT:
        return fb_error_set(err, r, "there is no directory %s to serve as the source", path);
    case -ENOTDIR:
        return fb_error_set(err, r, "the source %s is not a directory", path);
    case -EACCES:
        return fb_error_set(err, r, "no permission to reach the source directory %s", path);
    default:
        return fb_error_set(err, r, "cannot open the source directory %s: %s", path,
                            fb_strerror(r));
    }
}

int fb_posix_base_open(const char *path, struct fb_posix_base **ret_base, struct fb_error *err)
{
    struct fb_posix_base *base = fb_alloc(sizeof *base);
    int r;

    if (!base)
        return -ENOMEM;
    fb_mutex_init(&base->lock, FB_RANK_SOURCE);
    atomic_init(&base->checked_ns, fb_now_ns());
    base->path = realpath(path, NULL);
    if (!base->path)
        r = failure();
    else
        r = open_root(base->path, &base->root, &base->identity);
    if (r < 0) {
        fb_posix_base_destroy(base);
        return sentence(err, r, path);
    }
    r = fb_posix_openat(base->root->fd, ".", O_PATH);
    if (r < 0) {
        fb_posix_base_destroy(base);
        if (r == -EACCES)
            return fb_error_set(err, r, "the source directory %s may not be entered by this user",
                                path);
        return fb_error_set(err, r, "the source directory %s cannot be served safely: openat2: %s",
                            path, fb_strerror(r));
    }
    close(r);
    *ret_base = base;
    return 0;
}

void fb_posix_base_destroy(struct fb_posix_base *base)
{
    if (!base)
        return;
    fb_posix_root_put(base->root);
    fb_mutex_destroy(&base->lock);
    free(base->path);
    free(base);
}
