/*
 * passthrough DIR MOUNTPOINT - a file system that shows DIR, by a server in the foreground.
 *
 * Stopped (SIGSTOP) it is a disk that hangs: whatever touches it waits until it goes on. SIGUSR1
 * makes it read-only, as a file system does that has found an error in itself, and writable again.
 * Only what a cache directory needs.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int root = -1;
static volatile sig_atomic_t read_only;

static void toggle(int number)
{
    (void)number;
    read_only = !read_only;
}

static const char *below(const char *path)
{
    return path[1] ? path + 1 : ".";
}

static int verdict(long result)
{
    return result < 0 ? -errno : (int)result;
}

/* Of something that changes the disk. */
#define CHANGE(call) (read_only ? -EROFS : verdict(call))

static int do_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    return verdict(fi ? fstat((int)fi->fh, st)
                      : fstatat(root, below(path), st, AT_SYMLINK_NOFOLLOW));
}

static int do_mkdir(const char *path, mode_t mode)
{
    return CHANGE(mkdirat(root, below(path), mode));
}

static int do_unlink(const char *path)
{
    return CHANGE(unlinkat(root, below(path), 0));
}

static int do_rename(const char *from, const char *to, unsigned flags)
{
    return flags ? -EINVAL : CHANGE(renameat(root, below(from), root, below(to)));
}

static int do_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    return CHANGE(fi ? fchmod((int)fi->fh, mode) : fchmodat(root, below(path), mode, 0));
}

static int do_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    int fd = CHANGE(openat(root, below(path), (fi->flags & ~O_DIRECT) | O_CREAT | O_CLOEXEC, mode));

    fi->fh = (uint64_t)fd;
    return fd < 0 ? fd : 0;
}

static int do_open(const char *path, struct fuse_file_info *fi)
{
    int fd;

    if (read_only && (fi->flags & O_ACCMODE) != O_RDONLY)
        return -EROFS;
    fd = openat(root, below(path), (fi->flags & ~O_DIRECT) | O_CLOEXEC);
    fi->fh = (uint64_t)fd;
    return fd < 0 ? -errno : 0;
}

static int do_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
    (void)path;
    return fi ? CHANGE(ftruncate((int)fi->fh, size)) : -ENOSYS;
}

static int do_read(const char *path, char *data, size_t size, off_t at, struct fuse_file_info *fi)
{
    (void)path;
    return verdict(pread((int)fi->fh, data, size, at));
}

static int do_write(const char *path, const char *data, size_t size, off_t at,
                    struct fuse_file_info *fi)
{
    (void)path;
    return CHANGE(pwrite((int)fi->fh, data, size, at));
}

static int do_fallocate(const char *path, int mode, off_t at, off_t size, struct fuse_file_info *fi)
{
    (void)path;
    return CHANGE(fallocate((int)fi->fh, mode, at, size));
}

static int do_fsync(const char *path, int datasync, struct fuse_file_info *fi)
{
    (void)path;
    return verdict(datasync ? fdatasync((int)fi->fh) : fsync((int)fi->fh));
}

static int do_release(const char *path, struct fuse_file_info *fi)
{
    (void)path;
    return verdict(close((int)fi->fh));
}

static int do_statfs(const char *path, struct statvfs *st)
{
    (void)path;
    return verdict(fstatvfs(root, st));
}

static int do_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t at,
                      struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
    int fd = openat(root, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *d;

    (void)at;
    (void)fi;
    (void)flags;
    if (!dir)
        return -errno;
    while ((d = readdir(dir))) /* NOLINT: a stream of our own */
        fill(buffer, d->d_name, NULL, 0, 0);
    closedir(dir);
    return 0;
}

static int do_fsyncdir(const char *path, int datasync, struct fuse_file_info *fi)
{
    (void)path;
    (void)datasync;
    (void)fi;
    return 0;
}

static const struct fuse_operations operations = {
    .getattr = do_getattr,
    .mkdir = do_mkdir,
    .unlink = do_unlink,
    .rename = do_rename,
    .chmod = do_chmod,
    .create = do_create,
    .open = do_open,
    .truncate = do_truncate,
    .read = do_read,
    .write = do_write,
    .fallocate = do_fallocate,
    .fsync = do_fsync,
    .release = do_release,
    .statfs = do_statfs,
    .readdir = do_readdir,
    .fsyncdir = do_fsyncdir,
};

int main(int argc, char **argv)
{
    char foreground[] = "-f";
    char *args[] = {argv[0], foreground, argc == 3 ? argv[2] : NULL, NULL};
    struct sigaction action = {.sa_handler = toggle, .sa_flags = SA_RESTART};

    root = argc == 3 ? open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0) {
        fprintf(stderr, "usage: passthrough DIR MOUNTPOINT\n");
        return 2;
    }
    sigaction(SIGUSR1, &action, NULL);
    return fuse_main(3, args, &operations, NULL);
}
