/*
 * Files open for writing. A handle is a descriptor, open for reading too where the source allows:
 * whoever reads what is being written reads it there.
 *
 * A file is made with O_EXCL, so it is known who made it; one that stands is found with O_PATH
 * first, so that no FIFO blocks and no device notices. What fails half-way is answered with its
 * error and never tried again: a change is done once or not at all. (A stale handle of the kernel's
 * is an I/O error here: there is no path to resolve again.)
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>

#include "core/mem.h"
#include "source/posix_priv.h"

#define ACL_DEFAULT "system.posix_acl_default"

static int handle_errno(void)
{
    return errno == ESTALE ? -EIO : -errno;
}

/* A default ACL decides about the mode by itself. */
static bool has_default_acl(int dir)
{
    char path[FB_POSIX_PROC_SIZE];

    fb_posix_proc_path(path, dir);
    return getxattr(path, ACL_DEFAULT, NULL, 0) > 0;
}

uint32_t fb_posix_mode(int parent, const struct fb_source_job *job)
{
    if (!(job->mode & job->umask) || has_default_acl(parent))
        return job->mode;
    return job->mode & ~job->umask;
}

static void keep_mode(int fd, int parent, const struct stat *st, uint32_t mode)
{
    char path[FB_POSIX_PROC_SIZE];
    uint32_t want = mode & 07777;

    if (S_ISDIR(st->st_mode))
        want |= st->st_mode & S_ISGID;
    if ((st->st_mode & 07777) == want || S_ISLNK(st->st_mode) || has_default_acl(parent))
        return;
    fb_posix_proc_path(path, fd);
    /* Where the source refuses, the mode is what the daemon may give. */
    (void)!chmod(path, want);
}

void fb_posix_hand_over(int fd, int parent, const struct fb_source_job *job, uint32_t mode)
{
    struct stat st, above;
    gid_t gid;

    if (fstat(fd, &st) < 0 || fstat(parent, &above) < 0)
        return;
    gid = above.st_mode & S_ISGID ? st.st_gid : job->caller.gid;
    /* Where that is not possible it stays the daemon's. */
    if (geteuid() == 0 && (st.st_uid != job->caller.uid || st.st_gid != gid) &&
        (fchownat(fd, "", job->caller.uid, gid, AT_EMPTY_PATH) < 0 || fstat(fd, &st) < 0))
        return;
    keep_mode(fd, parent, &st, mode);
}

/* FB_POSIX_AGAIN: somebody else was quicker, unless that is an error. */
static int make_file(int root, struct fb_source_job *job, int *ret_fd)
{
    FB_AUTO_CLOSE int parent = -1;
    char name[FB_NAME_MAX + 1];
    int r = fb_posix_open_parent(root, job->path, &parent, name);
    uint32_t mode;

    if (r != 0)
        return r;
    mode = fb_posix_mode(parent, job) & 07777;
    *ret_fd = openat(parent, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (*ret_fd >= 0) {
        fb_posix_hand_over(*ret_fd, parent, job, mode);
        return 0;
    }
    if (errno == EEXIST && !(job->flags & O_EXCL))
        return FB_POSIX_AGAIN;
    return fb_posix_errno();
}

/* The kernel has checked what the caller may do; reading is for others who have the file open. */
static int open_standing(int root, struct fb_source_job *job, int *ret_fd)
{
    FB_AUTO_CLOSE int path_fd = -1;
    char path[FB_POSIX_PROC_SIZE];
    int flags = O_CLOEXEC | (int)(job->flags & O_TRUNC);
    struct stat st;
    int r = fb_posix_look_at_own(root, job, &path_fd, &st);

    if (r != 0)
        return r;
    if (!S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : S_ISLNK(st.st_mode) ? -ELOOP : -EINVAL;
    fb_posix_proc_path(path, path_fd);
    *ret_fd = open(path, O_RDWR | flags);
    if (*ret_fd < 0 && errno == EACCES)
        *ret_fd = open(path, O_WRONLY | flags);
    return *ret_fd < 0 ? fb_posix_proc_errno() : 0;
}

int fb_posix_open(struct fb_posix_handles *handles, int root, struct fb_source_job *job)
{
    FB_AUTO_CLOSE int fd = -1;
    struct stat st;
    int r = -ENOENT;

    if (!(job->flags & O_CREAT) || !(job->flags & O_EXCL))
        r = open_standing(root, job, &fd);
    if (r == -ENOENT && (job->flags & O_CREAT))
        r = make_file(root, job, &fd);
    if (r != 0)
        return r;
    if (fstat(fd, &st) < 0)
        return handle_errno();
    fb_posix_attr(&st, &job->attr);
    job->direct = false;
    return fb_posix_handle_new(handles, sizeof(struct fb_posix_handle), &fd, job) ? 0 : -ENOMEM;
}

int fb_posix_fstat(struct fb_source_job *job)
{
    struct stat st;

    if (fstat(fb_posix_handle_fd(job), &st) < 0)
        return handle_errno();
    fb_posix_attr(&st, &job->attr);
    return 0;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Moves on by `n` bytes; what is left to do. */
static unsigned advance(struct iovec **next, unsigned left, size_t n)
{
    for (; left > 0 && n >= (*next)->iov_len; (*next)++, left--)
        n -= (*next)->iov_len;
    if (left > 0) {
        (*next)->iov_base = (char *)(*next)->iov_base + n;
        (*next)->iov_len -= n;
    }
    return left;
}

int fb_posix_pread(struct fb_source_job *job)
{
    struct iovec iov[FB_SOURCE_IOV_MAX], *next = iov;
    unsigned left = job->iov_count;

    memcpy(iov, job->iov, left * sizeof *iov);
    job->bytes = 0;
    while (left > 0) {
        ssize_t n =
            preadv(fb_posix_handle_fd(job), next, (int)left, (off_t)(job->offset + job->bytes));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return handle_errno();
        if (n == 0)
            break;
        job->bytes += (uint64_t)n;
        left = advance(&next, left, (size_t)n);
    }
    return 0;
}

int fb_posix_write(struct fb_source_job *job)
{
    struct iovec iov[FB_SOURCE_IOV_MAX], *next = iov;
    int flags = job->flags & FB_WRITE_APPEND ? RWF_APPEND : 0;
    unsigned left = job->iov_count;

    memcpy(iov, job->iov, left * sizeof *iov);
    job->bytes = 0;
    while (left > 0) {
        ssize_t n = pwritev2(fb_posix_handle_fd(job), next, (int)left,
                             (off_t)(job->offset + job->bytes), flags);

        if (n < 0 && errno == EINTR)
            continue;
        /* What is in the file is told as written: who hears an error would append it once more. */
        if (n <= 0 && job->bytes > 0 && !(job->flags & FB_WRITE_WHOLE))
            break;
        if (n <= 0)
            return n < 0 ? handle_errno() : -EIO;
        job->bytes += (uint64_t)n;
        left = advance(&next, left, (size_t)n);
    }
    return 0;
}

/* Network file systems write back, and say what went wrong, when a descriptor is closed. */
static int flush(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (copy < 0)
        return handle_errno();
    return close(copy) < 0 && errno != EINTR ? handle_errno() : 0;
}

static int sync_to_disk(int fd, const struct fb_source_job *job)
{
    return (job->flags & FB_COMMIT_DATA ? fdatasync(fd) : fsync(fd)) < 0 ? handle_errno() : 0;
}

/* The names in a directory. */
static int commit_dir(int root, const struct fb_source_job *job)
{
    FB_AUTO_CLOSE int fd = fb_posix_openat(root, job->path, O_RDONLY | O_DIRECTORY);

    if (fd < 0)
        return fd == -ESTALE ? FB_POSIX_AGAIN : fd;
    return sync_to_disk(fd, job);
}

int fb_posix_commit(int root, struct fb_source_job *job)
{
    int fd, r = 0;

    if (!job->handle)
        return commit_dir(root, job);
    fd = fb_posix_handle_fd(job);
    if (job->flags & FB_COMMIT_SYNC)
        r = sync_to_disk(fd, job);
    if (r == 0 && (job->flags & FB_COMMIT_FLUSH))
        r = flush(fd);
    return r == 0 ? fb_posix_fstat(job) : r;
}

int fb_posix_fallocate(struct fb_source_job *job)
{
    int r;

    do
        r = fallocate(fb_posix_handle_fd(job), (int)job->flags, (off_t)job->offset,
                      (off_t)job->length);
    while (r < 0 && errno == EINTR && !fb_source_job_expired(job));
    return r < 0 ? handle_errno() : fb_posix_fstat(job);
}
