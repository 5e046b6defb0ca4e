/*
 * Changes by path. The directory above is resolved below the root, and the last component, which is
 * never followed, is changed in it. FB_POSIX_AGAIN says that nothing was changed: the directory, or
 * the file, was gone by the time it was to be used.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "core/clock.h"
#include "core/mem.h"
#include "source/posix_priv.h"

int fb_posix_open_parent(int root, const char *path, int *ret_fd, char ret_name[FB_NAME_MAX + 1])
{
    FB_AUTO_FREE char *above = fb_strdup(path);
    char *slash = above ? strrchr(above, '/') : NULL;
    const char *name = slash ? slash + 1 : path;
    int fd;

    if (!above)
        return -ENOMEM;
    if (!*path)
        return -EBUSY; /* the root itself */
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return -EINVAL;
    if (strlen(name) > FB_NAME_MAX)
        return -ENAMETOOLONG;
    if (slash)
        *slash = '\0';
    else
        *above = '\0';
    memcpy(ret_name, name, strlen(name) + 1);
    fd = fb_posix_openat(root, above, O_PATH | O_DIRECTORY);
    if (fd < 0)
        return fd == -ESTALE ? FB_POSIX_AGAIN : fd;
    *ret_fd = fd;
    return 0;
}

static int look_below(int parent, const char *name, struct fb_source_job *job)
{
    struct stat st;

    /* It was made: that it cannot be looked at any more must not have it made again. */
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ESTALE ? -EIO : -errno;
    fb_posix_attr(&st, &job->attr);
    return 0;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static struct timespec time_to_set(const struct fb_source_job *job, uint32_t now, uint32_t given,
                                   int64_t ns)
{
    int64_t s = ns / FB_NS_PER_S, rest = ns % FB_NS_PER_S;

    if (job->set & now)
        return (struct timespec){.tv_nsec = UTIME_NOW};
    if (!(job->set & given))
        return (struct timespec){.tv_nsec = UTIME_OMIT};
    if (rest < 0) {
        rest += FB_NS_PER_S;
        s--;
    }
    return (struct timespec){.tv_sec = s, .tv_nsec = rest};
}

/* `fd` may be O_PATH and then of anything; `path` leads to the same. By the descriptor where it is
 * a handle, which may do what the path's mode would forbid. Owner before mode: a new owner takes
 * the set-id bits away. */
static int set_attributes(int fd, const char *path, const struct fb_source_job *job)
{
    const struct fb_attr *a = &job->attr;
    struct timespec times[2] = {
        time_to_set(job, FB_SET_ATIME_NOW, FB_SET_ATIME, a->atime_ns),
        time_to_set(job, FB_SET_MTIME_NOW, FB_SET_MTIME, a->version.mtime_ns),
    };
    off_t size = (off_t)a->version.size;
    bool handle = job->handle != NULL;
    int r = 0;

    if (job->set & FB_SET_SIZE)
        r = handle ? ftruncate(fd, size) : truncate(path, size);
    if (r == 0 && (job->set & (FB_SET_UID | FB_SET_GID)))
        r = fchownat(fd, "", job->set & FB_SET_UID ? a->uid : (uid_t)-1,
                     job->set & FB_SET_GID ? a->gid : (gid_t)-1, AT_EMPTY_PATH);
    if (r == 0 && (job->set & FB_SET_MODE))
        r = handle ? fchmod(fd, a->mode & 07777) : chmod(path, a->mode & 07777);
    if (r == 0 && (times[0].tv_nsec != UTIME_OMIT || times[1].tv_nsec != UTIME_OMIT))
        r = handle ? futimens(fd, times) : utimensat(AT_FDCWD, path, times, 0);
    return r;
}

int fb_posix_setattr(int root, struct fb_source_job *job)
{
    FB_AUTO_CLOSE int path_fd = -1;
    int fd = job->handle ? fb_posix_handle_fd(job) : -1, r = 0;
    char path[FB_POSIX_PROC_SIZE];
    struct stat st;

    if (!job->handle) {
        r = fb_posix_look_at_own(root, job, &path_fd, &st);
        fd = path_fd;
    }
    if (r != 0)
        return r;
    if (!job->handle && (job->set & FB_SET_SIZE) && !S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    fb_posix_proc_path(path, fd);
    if (set_attributes(fd, path, job) < 0)
        return job->handle && errno == ESTALE ? -EIO : fb_posix_proc_errno();
    if (fstat(fd, &st) < 0)
        return job->handle && errno == ESTALE ? -EIO : fb_posix_errno();
    fb_posix_attr(&st, &job->attr);
    return 0;
}

int fb_posix_setxattr(int root, struct fb_source_job *job)
{
    FB_AUTO_CLOSE int fd = -1;
    char path[FB_POSIX_PROC_SIZE];
    struct stat st;
    int r = fb_posix_look_at_own(root, job, &fd, &st);

    if (r != 0)
        return r;
    fb_posix_proc_path(path, fd);
    if (job->op == FB_SOURCE_SETXATTR)
        r = setxattr(path, job->name, job->data, job->data_len, (int)job->flags);
    else
        r = removexattr(path, job->name);
    return r < 0 ? fb_posix_proc_errno() : 0;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Devices are nobody's business here: the doors do not open them. */
static int make_node(int parent, const char *name, uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return mkdirat(parent, name, mode & 07777);
    case S_IFIFO:
    case S_IFSOCK:
        return mknodat(parent, name, mode, 0);
    default:
        errno = EPERM;
        return -1;
    }
}

/* It is of that type, has no other name, and is ours, whatever the source makes of who we are
 * unless we are root. */
static bool is_just_made(const struct stat *st, uint32_t mode)
{
    return (st->st_mode & S_IFMT) == (mode & S_IFMT) && (S_ISDIR(mode) || st->st_nlink == 1) &&
           (geteuid() != 0 || st->st_uid == 0);
}

/* Who may write to the directory on the source may have put something else there since, which is
 * not the caller's to have. */
static void hand_over_below(int parent, const char *name, const struct fb_source_job *job,
                            uint32_t mode)
{
    FB_AUTO_CLOSE int fd = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && is_just_made(&st, mode))
        fb_posix_hand_over(fd, parent, job, mode);
}

/* By its descriptor, which leads to nothing else. */
static int make_regular(int parent, const char *name, struct fb_source_job *job, uint32_t mode)
{
    FB_AUTO_CLOSE int fd =
        openat(parent, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode & 07777);
    struct stat st;

    if (fd < 0)
        return fb_posix_errno();
    fb_posix_hand_over(fd, parent, job, mode);
    if (fstat(fd, &st) < 0)
        return errno == ESTALE ? -EIO : -errno;
    fb_posix_attr(&st, &job->attr);
    return 0;
}

int fb_posix_mknod(int root, struct fb_source_job *job)
{
    FB_AUTO_CLOSE int parent = -1;
    char name[FB_NAME_MAX + 1];
    int r = fb_posix_open_parent(root, job->path, &parent, name);
    uint32_t mode;

    if (r != 0)
        return r;
    mode = fb_posix_mode(parent, job);
    if (S_ISREG(mode))
        return make_regular(parent, name, job, mode);
    if (make_node(parent, name, mode) < 0)
        return fb_posix_errno();
    hand_over_below(parent, name, job, mode);
    return look_below(parent, name, job);
}

int fb_posix_symlink(int root, struct fb_source_job *job)
{
    FB_AUTO_CLOSE int parent = -1;
    char name[FB_NAME_MAX + 1];
    int r = fb_posix_open_parent(root, job->path, &parent, name);

    if (r != 0)
        return r;
    if (symlinkat(job->path2, parent, name) < 0)
        return fb_posix_errno();
    hand_over_below(parent, name, job, S_IFLNK);
    return look_below(parent, name, job);
}

/* Both directories of an operation on two paths. */
struct two {
    int from;
    int to;
    char from_name[FB_NAME_MAX + 1];
    char to_name[FB_NAME_MAX + 1];
};

static int open_two(int root, const struct fb_source_job *job, struct two *ret_two)
{
    int r;

    ret_two->from = -1;
    ret_two->to = -1;
    r = fb_posix_open_parent(root, job->path, &ret_two->from, ret_two->from_name);
    if (r == 0)
        r = fb_posix_open_parent(root, job->path2, &ret_two->to, ret_two->to_name);
    return r;
}

static void close_two(struct two *two)
{
    if (two->from >= 0)
        close(two->from);
    if (two->to >= 0)
        close(two->to);
}

int fb_posix_link(int root, struct fb_source_job *job)
{
    struct two two;
    int r = open_two(root, job, &two);

    if (r == 0 && linkat(two.from, two.from_name, two.to, two.to_name, 0) < 0)
        r = fb_posix_errno();
    if (r == 0)
        r = look_below(two.to, two.to_name, job);
    close_two(&two);
    return r;
}

int fb_posix_rename(int root, struct fb_source_job *job)
{
    struct two two;
    int r = open_two(root, job, &two);

    if (r == 0 && renameat2(two.from, two.from_name, two.to, two.to_name, job->flags) < 0)
        r = fb_posix_errno();
    close_two(&two);
    return r;
}

int fb_posix_unlink(int root, struct fb_source_job *job)
{
    FB_AUTO_CLOSE int parent = -1;
    char name[FB_NAME_MAX + 1];
    int r = fb_posix_open_parent(root, job->path, &parent, name);

    if (r != 0)
        return r;
    if (unlinkat(parent, name, job->op == FB_SOURCE_RMDIR ? AT_REMOVEDIR : 0) < 0)
        return fb_posix_errno();
    return 0;
}
