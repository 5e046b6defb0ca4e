/*
 * source/posix_priv.h - what the files of source_posix share.
 *
 * source_posix.c: opening, closing, the ops table, each job's frame (root checks, repetition).
 * posix_root.c: the root's identity. posix_ops.c: the operations on paths. posix_dir.c: listings.
 */
#ifndef FB_SOURCE_POSIX_PRIV_H
#define FB_SOURCE_POSIX_PRIV_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/list.h"
#include "core/error.h"
#include "core/lock.h"
#include "core/mem.h"
#include "source/posix_pool.h"
#include "source/source.h"

/* ---- the root -------------------------------------------------------------------------------- */

#define FB_POSIX_ROOT_CHECK_NS 1000000000LL

/* What must stay the same for a directory to count as the same source. */
struct fb_posix_identity {
    uint64_t dev;
    uint64_t fs_type;
    bool mount_point;
};

/* One opening of the root; jobs hold references while they use the descriptor. */
struct fb_posix_root {
    int fd; /* O_PATH */
    uint64_t dev;
    uint64_t ino;
    _Atomic uint32_t refs;
};

struct fb_posix_base {
    char *path; /* canonical */
    struct fb_posix_identity identity;
    struct fb_mutex lock; /* rank SOURCE: the pointer to the present root */
    struct fb_posix_root *root;
    _Atomic int64_t checked_ns;
    _Atomic bool lost;
    _Atomic int64_t logged_ns;
};

/* Makes `path` canonical and opens it; may hang. */
FB_MUST_CHECK int fb_posix_base_open(const char *path, struct fb_posix_base **ret_base,
                                     struct fb_error *err);
void fb_posix_base_destroy(struct fb_posix_base *base); /* takes NULL */

struct fb_posix_root *fb_posix_root_get(struct fb_posix_base *base);
void fb_posix_root_put(struct fb_posix_root *root); /* takes NULL */

enum fb_posix_root_outcome {
    FB_POSIX_ROOT_CHANGED = 1, /* it was opened anew: what `used` gave may be of another tree */
};

/* 0: the path still leads to `used`. -EIO: the root is gone. Unless `force`d, looks at most once in
 * FB_POSIX_ROOT_CHECK_NS while all is well. */
FB_MUST_CHECK int fb_posix_root_check(struct fb_posix_base *base, const struct fb_posix_root *used,
                                      bool force);

/* ---- operations ------------------------------------------------------------------------------ */

/* Besides 0 and negative errno, an operation on a path may say: */
enum fb_posix_outcome {
    FB_POSIX_AGAIN = 1, /* what the path led to was replaced meanwhile: resolve it again */
};

/* Opens below the root, see source_posix.h; a descriptor or negative errno. */
FB_MUST_CHECK int fb_posix_openat(int root, const char *path, uint64_t flags);

/* The negative errno of the last system call; FB_POSIX_AGAIN for the kernel's own ESTALE, which
 * means a stale handle and not what -ESTALE says here. */
FB_MUST_CHECK int fb_posix_errno(void);

void fb_posix_attr(const struct stat *st, struct fb_attr *ret_attr);

FB_MUST_CHECK int fb_posix_stat(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_read(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_readlink(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_getxattr(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_listxattr(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_statfs(int root, struct fb_source_job *job);

/* ---- listings -------------------------------------------------------------------------------- */

struct fb_posix_dirs {
    struct fb_mutex lock; /* rank SOURCE */
    struct fb_list open;
};

void fb_posix_dirs_init(struct fb_posix_dirs *dirs);
void fb_posix_dirs_destroy(struct fb_posix_dirs *dirs); /* closes those left */

FB_MUST_CHECK int fb_posix_opendir(struct fb_posix_dirs *dirs, int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_readdir(struct fb_source_job *job);
void fb_posix_closedir(struct fb_posix_dirs *dirs, struct fb_source_handle *base);

#endif
