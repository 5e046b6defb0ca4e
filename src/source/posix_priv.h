/*
 * source/posix_priv.h - what the files of source_posix share.
 *
 * source_posix.c: opening, closing, the ops table, each job's frame (root checks, repetition).
 * posix_root.c: the root's identity. posix_ops.c: the operations on paths. posix_dir.c: listings.
 * posix_file.c: files open for writing. posix_change.c: changes by path. Handles: source_posix.c.
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

#define FB_POSIX_PROC_SIZE 32 /* of "/proc/self/fd/N" */

/* Opens below the root, see source_posix.h; a descriptor or negative errno. */
FB_MUST_CHECK int fb_posix_openat(int root, const char *path, uint64_t flags);

/* An O_PATH descriptor, and what it leads to. */
FB_MUST_CHECK int fb_posix_look_at(int root, const char *path, int *ret_fd, struct stat *ret_st);

/* The same for a change: -ESTALE when the job is meant for another file. */
FB_MUST_CHECK int fb_posix_look_at_own(int root, const struct fb_source_job *job, int *ret_fd,
                                       struct stat *ret_st);

/* The name that leads to the very inode of a descriptor. */
void fb_posix_proc_path(char path[FB_POSIX_PROC_SIZE], int fd);

/* The negative errno of the last system call; FB_POSIX_AGAIN for the kernel's own ESTALE, which
 * means a stale handle and not what -ESTALE says here. */
FB_MUST_CHECK int fb_posix_errno(void);
/* The same after a call with such a name: a missing /proc would give ENOENT, and so does a server
 * on which the file vanished after it was found. Neither says that the name does not exist. */
FB_MUST_CHECK int fb_posix_proc_errno(void);

void fb_posix_attr(const struct stat *st, struct fb_attr *ret_attr);

FB_MUST_CHECK int fb_posix_stat(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_read(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_readlink(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_getxattr(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_listxattr(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_statfs(int root, struct fb_source_job *job);

/* ---- handles --------------------------------------------------------------------------------- */

struct fb_posix_handles {
    struct fb_mutex lock; /* rank SOURCE */
    struct fb_list open;
};

/* First in what an operation keeps of an open file or directory. */
struct fb_posix_handle {
    struct fb_source_handle base;
    struct fb_list link;
    int fd;
};

/* Makes a handle of `size` bytes, zeroed but for this struct, gives it to the job, and takes the
 * descriptor over. NULL without memory. */
FB_MUST_CHECK void *fb_posix_handle_new(struct fb_posix_handles *handles, size_t size, int *fd,
                                        struct fb_source_job *job);
void fb_posix_handle_close(struct fb_posix_handles *handles, struct fb_source_handle *base);

static inline int fb_posix_handle_fd(const struct fb_source_job *job)
{
    return FB_CONTAINER_OF(job->handle, struct fb_posix_handle, base)->fd;
}

FB_MUST_CHECK int fb_posix_opendir(struct fb_posix_handles *handles, int root,
                                   struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_readdir(struct fb_source_job *job);

/* ---- changes --------------------------------------------------------------------------------- */

/* The directory that holds the last component of `path`, and that component. */
FB_MUST_CHECK int fb_posix_open_parent(int root, const char *path, int *ret_fd,
                                       char ret_name[FB_NAME_MAX + 1]);

/* The mode to make something with. */
uint32_t fb_posix_mode(int parent, const struct fb_source_job *job);

/* What was just made belongs to whom it was made for, with that mode. `fd` is the thing itself,
 * open or O_PATH; `parent` its directory. */
void fb_posix_hand_over(int fd, int parent, const struct fb_source_job *job, uint32_t mode);

FB_MUST_CHECK int fb_posix_open(struct fb_posix_handles *handles, int root,
                                struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_fstat(struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_pread(struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_write(struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_commit(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_fallocate(struct fb_source_job *job);

FB_MUST_CHECK int fb_posix_setattr(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_mknod(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_symlink(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_link(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_unlink(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_rename(int root, struct fb_source_job *job);
FB_MUST_CHECK int fb_posix_setxattr(int root, struct fb_source_job *job);

#endif
