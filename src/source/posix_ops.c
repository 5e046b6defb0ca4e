/*
 * Operations on paths. Each resolves its path once, to an O_PATH descriptor, which opens nothing:
 * no FIFO blocks and no device notices. What needs more (reading, extended attributes) then goes
 * through /proc/self/fd, which leads to the very inode that was looked at.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "core/clock.h"
#include "core/mem.h"
#include "source/posix_priv.h"

#define RESOLVE_TRIES  16    /* renames somewhere in the tree make a resolution with `..` fail */
#define XATTR_DATA_MAX 65536 /* the kernel's XATTR_SIZE_MAX and XATTR_LIST_MAX */

int fb_posix_errno(void)
{
    return errno == ESTALE ? FB_POSIX_AGAIN : -errno;
}

int fb_posix_openat(int root, const char *path, uint64_t flags)
{
    struct open_how how = {
        .flags = flags | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS,
    };
    long fd = -1;

    if (!*path)
        path = ".";
    for (int i = 0; i < RESOLVE_TRIES; i++) {
        fd = syscall(SYS_openat2, root, path, &how, sizeof how);
        if (fd >= 0 || errno != EAGAIN)
            break;
    }
    if (fd >= 0)
        return (int)fd;
    return errno == EXDEV ? -EACCES : -errno;
}

int fb_posix_look_at(int root, const char *path, int *ret_fd, struct stat *ret_st)
{
    FB_AUTO_CLOSE int fd = fb_posix_openat(root, path, O_PATH);

    if (fd < 0)
        return fd == -ESTALE ? FB_POSIX_AGAIN : fd;
    if (fstat(fd, ret_st) < 0)
        return fb_posix_errno();
    *ret_fd = fb_steal_fd(&fd);
    return 0;
}

int fb_posix_look_at_own(int root, const struct fb_source_job *job, int *ret_fd,
                         struct stat *ret_st)
{
    int r = fb_posix_look_at(root, job->path, ret_fd, ret_st);

    if (r == 0 && job->own_ino != 0 &&
        (ret_st->st_ino != job->own_ino || ret_st->st_dev != job->own_dev))
        return -ESTALE;
    return r;
}

void fb_posix_proc_path(char path[FB_POSIX_PROC_SIZE], int fd)
{
    snprintf(path, FB_POSIX_PROC_SIZE, "/proc/self/fd/%d", fd);
}

void fb_posix_attr(const struct stat *st, struct fb_attr *ret_attr)
{
    *ret_attr = (struct fb_attr){
        .version = {.size = (uint64_t)st->st_size,
                    .mtime_ns = fb_timespec_ns(&st->st_mtim),
                    .ctime_ns = fb_timespec_ns(&st->st_ctim),
                    .tag = {st->st_ino, 0}},
        .dev = st->st_dev,
        .ino = st->st_ino,
        .rdev = st->st_rdev,
        .blocks = (uint64_t)st->st_blocks,
        .atime_ns = fb_timespec_ns(&st->st_atim),
        .mode = st->st_mode,
        .nlink = (uint32_t)st->st_nlink,
        .uid = st->st_uid,
        .gid = st->st_gid,
    };
}

static int copy_out(struct fb_source_job *job, const char *data, size_t len)
{
    job->data = malloc(len + 1);
    if (!job->data)
        return -ENOMEM;
    memcpy(job->data, data, len);
    job->data[len] = '\0';
    job->data_len = len;
    return 0;
}

int fb_posix_stat(int root, struct fb_source_job *job)
{
    FB_AUTO_CLOSE int fd = -1;
    struct stat st;
    int r = fb_posix_look_at(root, job->path, &fd, &st);

    if (r == 0)
        fb_posix_attr(&st, &job->attr);
    return r;
}

int fb_posix_readlink(int root, struct fb_source_job *job)
{
    FB_AUTO_CLOSE int fd = -1;
    char target[FB_PATH_MAX];
    struct stat st;
    ssize_t n;
    int r = fb_posix_look_at(root, job->path, &fd, &st);

    if (r != 0)
        return r;
    if (!S_ISLNK(st.st_mode))
        return -EINVAL;
    n = readlinkat(fd, "", target, sizeof target);
    if (n < 0)
        return fb_posix_errno();
    return n < FB_PATH_MAX ? copy_out(job, target, (size_t)n) : -ENAMETOOLONG;
}

int fb_posix_proc_errno(void)
{
    return errno == ENOENT ? FB_POSIX_AGAIN : fb_posix_errno();
}

static int xattr(int root, struct fb_source_job *job, const char *name)
{
    FB_AUTO_CLOSE int fd = -1;
    char path[FB_POSIX_PROC_SIZE], data[XATTR_DATA_MAX];
    struct stat st;
    ssize_t n;
    int r = fb_posix_look_at(root, job->path, &fd, &st);

    if (r != 0)
        return r;
    fb_posix_proc_path(path, fd);
    n = name ? getxattr(path, name, data, sizeof data) : listxattr(path, data, sizeof data);
    return n < 0 ? fb_posix_proc_errno() : copy_out(job, data, (size_t)n);
}

int fb_posix_getxattr(int root, struct fb_source_job *job)
{
    return xattr(root, job, job->name);
}

int fb_posix_listxattr(int root, struct fb_source_job *job)
{
    return xattr(root, job, NULL);
}

int fb_posix_statfs(int root, struct fb_source_job *job)
{
    return fstatvfs(root, &job->statfs) < 0 ? fb_posix_errno() : 0;
}

/* ---- READ ------------------------------------------------------------------------------------ */

static int refuse_type(mode_t mode)
{
    if (S_ISREG(mode))
        return 0;
    if (S_ISDIR(mode))
        return -EISDIR;
    return S_ISLNK(mode) ? -ELOOP : -EINVAL;
}

/* Reading for the cache should not count as the data's being used; only its owner may ask so. */
static int reopen(int fd, const struct stat *st)
{
    bool own = geteuid() == 0 || geteuid() == st->st_uid;
    char path[FB_POSIX_PROC_SIZE];
    int r;

    fb_posix_proc_path(path, fd);
    r = open(path, O_RDONLY | O_CLOEXEC | (own ? O_NOATIME : 0));
    if (r < 0 && own && errno == EPERM)
        r = open(path, O_RDONLY | O_CLOEXEC);
    return r;
}

/* Reads until `need` bytes are there or the file ends. */
static int fill(int fd, struct fb_source_job *job, uint64_t need)
{
    struct iovec iov[FB_SOURCE_IOV_MAX], *next = iov;
    unsigned left = job->iov_count;

    memcpy(iov, job->iov, left * sizeof *iov);
    job->bytes = 0;
    while (job->bytes < need) {
        ssize_t n = preadv(fd, next, (int)left, (off_t)(job->offset + job->bytes));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fb_posix_errno();
        if (n == 0)
            break;
        job->bytes += (uint64_t)n;
        for (; left > 0 && (size_t)n >= next->iov_len; next++, left--)
            n -= (ssize_t)next->iov_len;
        if (left == 0)
            break;
        next->iov_base = (char *)next->iov_base + n;
        next->iov_len -= (size_t)n;
    }
    return 0;
}

/* The bytes are in; says whether they are those of the version in job->attr. */
static int verify(int fd, struct fb_source_job *job, uint64_t need)
{
    struct fb_version before = job->attr.version;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return fb_posix_errno();
    fb_posix_attr(&st, &job->attr);
    if (!fb_version_equal(&before, &job->attr.version))
        return -ESTALE;
    return job->bytes == need ? 0 : -EIO;
}

static uint64_t bytes_due(const struct fb_source_job *job, uint64_t size)
{
    uint64_t want = 0;

    for (unsigned i = 0; i < job->iov_count; i++)
        want += job->iov[i].iov_len;
    return job->offset < size ? fb_min_u64(want, size - job->offset) : 0;
}

int fb_posix_read(int root, struct fb_source_job *job)
{
    FB_AUTO_CLOSE int path_fd = -1;
    FB_AUTO_CLOSE int fd = -1;
    uint64_t need;
    struct stat st;
    int r = fb_posix_look_at(root, job->path, &path_fd, &st);

    if (r == 0)
        r = refuse_type(st.st_mode);
    if (r != 0)
        return r;
    fb_posix_attr(&st, &job->attr);
    if (job->expect && !fb_version_equal(job->expect, &job->attr.version))
        return -ESTALE;
    fd = reopen(path_fd, &st);
    if (fd < 0)
        return fb_posix_proc_errno();
    need = bytes_due(job, job->attr.version.size);
    r = fill(fd, job, need);
    return r == 0 ? verify(fd, job, need) : r;
}
