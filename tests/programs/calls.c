/*
 * tests/programs/calls - calls cached|real DIR: what a program can do to a descriptor of DIR/data.
 * `cached` are calls that are answered from the cache, `real` those for which it becomes the file
 * itself.
 */
#include <aio.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio_ext.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

#include "raw.h"
#include "transcript.h"

#define BIG (2u << 20)

static char big[BIG];
static const char *data_path;

static int open_data(int flags)
{
    int fd = open(data_path, O_RDONLY | flags);

    if (fd < 0)
        die(data_path);
    return fd;
}

/* ---- answered from the cache ---- */

static void reading(void)
{
    int fd = open_data(0);
    struct iovec iov[3] = {{big, 1000}, {big + 1000, 300000}, {big + 301000, 7}};

    say_bytes("read 1", big, read(fd, big, 1));
    say_bytes("read 100", big, read(fd, big, 100));
    say_bytes("read nothing", big, read(fd, big, 0));
    say_bytes("readv", big, readv(fd, iov, 3));
    say("readv, none", readv(fd, iov, 0));
    say_bytes("pread", big, pread(fd, big, 5000, 999000));
    say_bytes("pread, beyond", big, pread(fd, big, 5000, 5000000));
    say_bytes("pread, before", big, pread(fd, big, 5000, -1));
    say_bytes("preadv", big, preadv(fd, iov, 3, 262000));
    say_bytes("preadv, before", big, preadv(fd, iov, 3, -5));
    say_bytes("preadv2 at", big, preadv2(fd, iov, 3, 12345, 0));
    say_bytes("preadv2", big, preadv2(fd, iov, 2, -1, 0));
    say("where", lseek(fd, 0, SEEK_CUR));
    say_bytes("the rest", big, read(fd, big, BIG));
    say_bytes("the end", big, read(fd, big, BIG));
    say("close", close(fd));
    say("read, closed", read(fd, big, 1));
    say("close, closed", close(fd));
}

static void seeking(void)
{
    int fd = open_data(0);

    say("set", lseek(fd, 1000, SEEK_SET));
    say("cur", lseek(fd, 500, SEEK_CUR));
    say("back", lseek(fd, -200, SEEK_CUR));
    say("end", lseek(fd, -3, SEEK_END));
    say_bytes("last", big, read(fd, big, 100));
    say("beyond", lseek(fd, 100, SEEK_END));
    say_bytes("beyond", big, read(fd, big, 100));
    say("before", lseek(fd, -1, SEEK_SET));
    say("far before", lseek(fd, -100000000, SEEK_END));
    say("no way", lseek(fd, 0, 77));
    say("too far", lseek(fd, INT64_MAX, SEEK_CUR));
    say("data", lseek(fd, 5, SEEK_DATA));
    say("hole", lseek(fd, 5, SEEK_HOLE));
    say("data beyond", lseek(fd, 5000000, SEEK_DATA));
    say("hole before", lseek(fd, -1, SEEK_HOLE));
    say("where", lseek(fd, 0, SEEK_CUR));
    close(fd);
}

static void duplicates(void)
{
    int a = open_data(0), b, c, d, e;

    read(a, big, 10);
    b = dup(a);
    c = dup2(a, 70);
    d = dup3(a, 71, O_CLOEXEC);
    e = fcntl(a, F_DUPFD, 80);
    say("dup2 number", c);
    say("dup3 number", d);
    say("dupfd number", e);
    say("dup2 to itself", dup2(a, a) == a);
    say("dup3 to itself", dup3(a, a, 0));
    say("dup2 to nowhere", dup2(a, -1));
    say("dup2 too far", dup2(a, 100000000));
    say("dupfd before", fcntl(a, F_DUPFD, -1));
    say("dupfd too far", fcntl(a, F_DUPFD, 100000000));
    say("dup of nothing onto it", dup2(999, a));
    say("cloexec", fcntl(b, F_GETFD));
    say("cloexec", fcntl(d, F_GETFD));
    say("cloexec", fcntl(e, F_GETFD));
    say_bytes("shared offset", big, read(b, big, 10));
    say_bytes("shared offset", big, read(c, big, 10));
    say_bytes("shared offset", big, read(d, big, 10));
    say("where", lseek(e, 0, SEEK_CUR));
    close(a);
    say_bytes("after close", big, read(b, big, 10));
    say("over it", dup2(b, c));
    close(b);
    say_bytes("after close", big, read(c, big, 10));
    close(c);
    close(d);
    say_bytes("the last", big, read(e, big, 10));
    close(e);
    say("all closed", read(e, big, 10));
}

static void flags(void)
{
    int fd = open_data(O_CLOEXEC), plain = open_data(O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);

    say("getfd", fcntl(fd, F_GETFD));
    say("setfd", fcntl(fd, F_SETFD, 0));
    say("getfd", fcntl(fd, F_GETFD));
    say("fioclex", ioctl(fd, FIOCLEX));
    say("getfd", fcntl(fd, F_GETFD));
    say("fionclex", ioctl(fd, FIONCLEX));
    say("getfd", fcntl(fd, F_GETFD));
    say("getfl", fcntl(fd, F_GETFL));
    say("getfl", fcntl(plain, F_GETFL));
    say("setfl", fcntl(plain, F_SETFL, 0));
    say("getfl", fcntl(plain, F_GETFL));
    say("setfl", fcntl(fd, F_SETFL, O_NONBLOCK));
    say("getfl", fcntl(fd, F_GETFL));
    say("isatty", isatty(fd));
    printf("%s\n", strerrorname_np(errno));
    say("fadvise", posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    say("readahead", readahead(fd, 0, 4096));
    say("write", write(fd, "x", 1));
    say("ftruncate", ftruncate(fd, 0));
    say("tcgetattr", tcgetattr(fd, &(struct termios){0}));
    say("openat below it", openat(fd, "x", O_RDONLY));
    say("fchdir", fchdir(fd));
    close(fd);
    close(plain);
}

static void say_stat(const char *what, int rc, const struct stat *st)
{
    say(what, rc);
    printf(
        "dev %lx ino %lu mode %o nlink %lu uid %u gid %u size %ld blocks %ld m %ld.%ld c %ld.%ld\n",
        st->st_dev, st->st_ino, st->st_mode, st->st_nlink, st->st_uid, st->st_gid, st->st_size,
        st->st_blocks, st->st_mtim.tv_sec, st->st_mtim.tv_nsec, st->st_ctim.tv_sec,
        st->st_ctim.tv_nsec);
}

static void attributes(void)
{
    int fd = open_data(0);
    struct statx x = {0};
    struct stat st = {0};

    say_stat("fstat", fstat(fd, &st), &st);
    say_stat("fstatat", fstatat(fd, "", &st, AT_EMPTY_PATH), &st);
    say("statx", statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x));
    printf("ino %llu mode %o nlink %u size %llu blocks %llu m %lld.%09u dev %u:%u\n", x.stx_ino,
           x.stx_mode, x.stx_nlink, x.stx_size, x.stx_blocks, x.stx_mtime.tv_sec,
           x.stx_mtime.tv_nsec, x.stx_dev_major, x.stx_dev_minor);
    say_stat("stat", stat(data_path, &st), &st);
    say_stat("lstat", lstat(data_path, &st), &st);
    close(fd);
}

static void streams(void)
{
    FILE *f = fopen(data_path, "rb");
    char line[4096];
    int fd;

    say_bytes("fread", big, (long)fread(big, 1, 100, f));
    say("ftell", ftell(f));
    say("getc", getc(f));
    say("ungetc", ungetc('x', f));
    say("getc", getc(f));
    say("fseek", fseek(f, 500000, SEEK_SET));
    say_bytes("fread", big, (long)fread(big, 1, 400000, f));
    say("fseek end", fseek(f, -10, SEEK_END));
    say_bytes("fread", big, (long)fread(big, 3, 100, f));
    say("feof", feof(f) != 0);
    say("ferror", ferror(f));
    say("fwrite", (long)fwrite("x", 1, 1, f));
    rewind(f);
    say("fileno works", fstat(fileno(f), &(struct stat){0}));
    say_bytes("fread", big, (long)fread(big, 1, BIG, f));
    fd = fileno(f);
    say("fclose", fclose(f));
    say("closed", fcntl(fd, F_GETFD));

    fd = open_data(0);
    lseek(fd, 77, SEEK_SET);
    f = fdopen(fd, "r");
    say("fileno", fileno(f) == fd);
    say_bytes("fdopen, fread", big, (long)fread(big, 1, 100, f));
    say("setvbuf", setvbuf(f, NULL, _IOFBF, 1 << 16));
    say("fgets", fgets(line, sizeof line, f) != NULL);
    say("ftell", ftell(f));
    fclose(f);
    say("closed", fcntl(fd, F_GETFD));

    fd = open_data(0);
    say("fdopen for writing", fdopen(fd, "r+") ? 0 : -1);
    say("fdopen of nothing", fdopen(999, "r") ? 0 : -1);
    close(fd);
    say("fopen of nothing", fopen("/nowhere/x", "r") ? 0 : -1);
}

static void to_others(const char *dir)
{
    int fd = open_data(0), out, pipes[2];
    char path[4096];
    off_t at = 1000;
    off64_t out_at = 5;

    snprintf(path, sizeof path, "%s/../out", dir);
    out = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out < 0 || pipe2(pipes, O_CLOEXEC) != 0)
        die(path);
    say("sendfile", sendfile(out, fd, NULL, 3000));
    say("sendfile at", sendfile(out, fd, &at, 300000));
    say("at", at);
    say("sendfile, the rest", sendfile(out, fd, NULL, BIG));
    say("sendfile, the end", sendfile(out, fd, NULL, BIG));
    say("sendfile to a pipe", sendfile(pipes[1], fd, &(off_t){0}, 1000));
    say_bytes("the pipe", big, read(pipes[0], big, BIG));
    lseek(fd, 10, SEEK_SET);
    say("copy_file_range", copy_file_range(fd, NULL, out, NULL, 5000, 0));
    say("copy_file_range at", copy_file_range(fd, &at, out, &out_at, 5000, 0));
    say("at", at);
    say("out", out_at);
    say("copy_file_range, flags", copy_file_range(fd, NULL, out, NULL, 5000, 77));
    say("where", lseek(fd, 0, SEEK_CUR));
    say_bytes("what came out", big, pread(out, big, BIG, 0));
    close(out);
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
}

/* By syscall(), as libuv does. */
static void by_number(const char *dir)
{
    int fd = open_data(0), copy, out;
    struct iovec iov[2] = {{big, 1000}, {big + 1000, 300000}};
    char path[4096];
    struct stat st = {0};
    struct statx x = {0};

    say("statx", syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x));
    printf("mode %o size %llu\n", x.stx_mode, x.stx_size);
    say_stat("newfstatat", (int)syscall(SYS_newfstatat, fd, "", &st, AT_EMPTY_PATH), &st);
    say_stat("fstat", (int)syscall(SYS_fstat, fd, &st), &st);
    say_stat("by path", (int)syscall(SYS_newfstatat, AT_FDCWD, data_path, &st, 0), &st);
    say_bytes("read", big, syscall(SYS_read, fd, big, 1000));
    say_bytes("readv", big, syscall(SYS_readv, fd, iov, 2));
    say_bytes("pread64", big, syscall(SYS_pread64, fd, big, 5000, 999000L));
    say_bytes("preadv", big, syscall(SYS_preadv, fd, iov, 2, 262000L, 0L));
    say_bytes("preadv2", big, syscall(SYS_preadv2, fd, iov, 2, -1L, -1L, 0));
    say("lseek", syscall(SYS_lseek, fd, -7L, SEEK_CUR));
    copy = (int)syscall(SYS_dup, fd);
    say("dup3", syscall(SYS_dup3, fd, 90, O_CLOEXEC));
    say("dupfd", syscall(SYS_fcntl, fd, F_DUPFD, 95));
    say("getfl", syscall(SYS_fcntl, copy, F_GETFL));
    say("getfd", syscall(SYS_fcntl, 90, F_GETFD));
    say("close", syscall(SYS_close, fd));
    say("closed", read(fd, big, 10));
    say_bytes("a duplicate", big, read(copy, big, 10));
    say_bytes("another", big, read(90, big, 10));
    say_bytes("the third", big, syscall(SYS_read, 95, big, 10));
    snprintf(path, sizeof path, "%s/../out", dir);
    out = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    say("sendfile", syscall(SYS_sendfile, out, copy, NULL, 3000));
    say("copy_file_range", syscall(SYS_copy_file_range, copy, NULL, out, NULL, 5000, 0));
    say_bytes("what came out", big, pread(out, big, BIG, 0));
    say("close_range", syscall(SYS_close_range, 90, 95, 0));
    say("closed", read(95, big, 10));
    say("nothing", syscall(SYS_read, -1, big, 10));
    close(copy);
    close(out);
}

/* ---- for which it becomes the file itself ---- */

/* The same by syscall(). */
static void real_by_number(const char *dir)
{
    struct timespec when[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    int fd = open_data(0), status = 0;
    struct statfs fs = {0};
    char path[4096];
    char *p;
    pid_t pid;

    read(fd, big, 10);
    say("fsync", syscall(SYS_fsync, fd));
    close(fd);
    fd = open_data(0);
    say("fstatfs", syscall(SYS_fstatfs, fd, &fs));
    say("type", fs.f_type);
    p = (char *)syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0L);
    say_bytes("mmap", p, 4096);
    munmap(p, 4096);
    say("utimensat", syscall(SYS_utimensat, fd, NULL, when, 0));
    close(fd);
    snprintf(path, sizeof path, "%s/text", dir);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    read(fd, big, 10);
    fflush(stdout);
    pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
    if (pid == 0)
        _exit(read(fd, big, 100) == 100 ? 0 : 1);
    waitpid(pid, &status, 0);
    say("a child", status);
    say("has moved on", lseek(fd, 0, SEEK_CUR));
    close(fd);
}

static void mapping(void)
{
    int fd = open_data(0);
    char *p = mmap(NULL, 1000003, PROT_READ, MAP_PRIVATE, fd, 0);
    char *q = mmap(NULL, 5000, PROT_READ, MAP_SHARED, fd, 8192);

    say_bytes("private", p, 1000003);
    say_bytes("shared", q, 5000);
    say("for writing", mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
    say("misaligned", mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 1) == MAP_FAILED ? -1 : 0);
    close(fd);
    say_bytes("after close", p + 500000, 1000);
    munmap(p, 1000003);
    munmap(q, 5000);
    say("closed", mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
}

static void locking(void)
{
    int a = open_data(0), b = open_data(0);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

    read(a, big, 123);
    say("flock", flock(a, LOCK_EX | LOCK_NB));
    say("flock, again", flock(b, LOCK_SH | LOCK_NB));
    say("a lease makes it real", fcntl(a, F_GETLEASE));
    say("flock, still", flock(b, LOCK_SH | LOCK_NB));
    say_bytes("read", big, read(a, big, 100));
    close(a);
    say("flock, free", flock(b, LOCK_SH | LOCK_NB));
    say("setlk", fcntl(b, F_SETLK, &lock));
    say("setlk for writing", fcntl(b, F_SETLK, &(struct flock){.l_type = F_WRLCK}));
    close(b);
}

/* Whether this process has a lock on the file: another one asks, past the library. */
static void held(const char *what, const char *path)
{
    int status = 0;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int fd = (int)raw(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);

        _exit(raw(SYS_fcntl, fd, F_GETLK, &lock, 0) != 0 ? 2 : lock.l_type != F_UNLCK);
    }
    waitpid(pid, &status, 0);
    say(what, WEXITSTATUS(status));
}

static void use_beside(const char *what, int fd, const char *path)
{
    char *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    struct statfs fs;

    say_bytes(what, p, 4096);
    munmap(p, 4096);
    held("mapped beside", path);
    lseek(fd, 0, SEEK_HOLE);
    held("looked for holes beside", path);
    fstatfs(fd, &fs);
    held("asked beside", path);
    say_bytes("read", big, pread(fd, big, 100, 7));
}

/* Locks that go with any descriptor of the file that the process closes: with none that it does not
 * know of. */
static void process_locks(const char *name, int flags)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int before = open(name, O_RDONLY | O_CLOEXEC), fd = open(name, flags | O_CLOEXEC), after;

    say("setlk", fcntl(fd, F_SETLK, &lock));
    held("locked", name);
    use_beside("opened before", before, name);
    after = open(name, O_RDONLY | O_CLOEXEC);
    use_beside("opened after", after, name);
    say_bytes("read", big, read(fd, big, 100));
    close(after);
    held("closed one", name);
    say("lockf", lockf(fd, F_TLOCK, 10));
    held("locked", name);
    close(fd);
    held("closed", name);
    say_bytes("read", big, read(before, big, 100));
    close(before);
}

/* NOLINTBEGIN(bugprone-reserved-identifier) */
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                const sigset_t *mask, size_t room);

/* NOLINTEND(bugprone-reserved-identifier) */

static void waiting(void)
{
    struct pollfd p = {.fd = open_data(0), .events = POLLIN};
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    fd_set set;

    read(p.fd, big, 50);
    say("poll", poll(&p, 1, 0));
    say("revents", p.revents);
    say_bytes("read", big, read(p.fd, big, 100));
    close(p.fd);
    /* What poll() becomes with _FORTIFY_SOURCE. */
    p.fd = open_data(0);
    say("poll, checked", __poll_chk(&p, 1, 0, sizeof p));
    say("revents", p.revents);
    close(p.fd);
    p.fd = open_data(0);
    say("ppoll, checked", __ppoll_chk(&p, 1, &(struct timespec){0}, NULL, sizeof p));
    say("revents", p.revents);
    close(p.fd);
    p.fd = open_data(0);
    FD_ZERO(&set);
    FD_SET(p.fd, &set);
    say("select", select(p.fd + 1, &set, NULL, NULL, &(struct timeval){0}));
    say("epoll", epoll_ctl(epoll, EPOLL_CTL_ADD, p.fd, &event));
    close(p.fd);
    close(epoll);
}

static void others(const char *dir)
{
    struct aiocb cb = {.aio_fildes = open_data(0), .aio_buf = big, .aio_nbytes = 1000};
    const struct aiocb *list[1] = {&cb};
    int fd = open_data(0), pipes[2], left = 0;
    char path[4096];
    struct statfs fs;
    off64_t at = 100;
    FILE *f;

    if (pipe2(pipes, O_CLOEXEC) != 0)
        die("pipe");
    read(fd, big, 11);
    say("splice", splice(fd, NULL, pipes[1], NULL, 1000, 0));
    say("splice at", splice(fd, &at, pipes[1], NULL, 1 << 20, 0));
    say("at", at);
    say("where", lseek(fd, 0, SEEK_CUR));
    say_bytes("the pipe", big, read(pipes[0], big, 2000));
    close(fd);
    fd = open_data(0);
    lseek(fd, 1000000, SEEK_SET);
    say("fionread", ioctl(fd, FIONREAD, &left));
    say("left", left);
    close(fd);
    fd = open_data(0);
    say("fsync", fsync(fd));
    say("fstatfs", fstatfs(fd, &fs));
    say("type", fs.f_type);
    say("fgetxattr", fgetxattr(fd, "user.none", big, 100));
    say("ftruncate", ftruncate(fd, 0));
    say("pathconf", fpathconf(fd, _PC_NAME_MAX));
    close(fd);
    say("aio_read", aio_read(&cb));
    aio_suspend(list, 1, NULL);
    say_bytes("aio", big, aio_return(&cb));
    close(cb.aio_fildes);

    f = fopen(data_path, "r");
    fread(big, 1, 10, f);
    snprintf(path, sizeof path, "%s/text", dir);
    f = freopen(path, "r", f);
    say("freopen", f != NULL);
    say_bytes("freopen", big, (long)fread(big, 1, BIG, f));
    say("fileno works", fstat(fileno(f), &(struct stat){0}));
    fclose(f);
    snprintf(path, sizeof path, "%s/sparse", dir);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    say("sparse, data", lseek(fd, 0, SEEK_DATA));
    say("sparse, hole", lseek(fd, 0, SEEK_HOLE));
    say("sparse, end", lseek(fd, 0, SEEK_END));
    say_bytes("sparse, a hole", big, pread(fd, big, 100000, 1500000000));
    say_bytes("sparse, data", big, pread(fd, big, 100000, 2999999990));
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
}

/* What headers make of scanf() differs: each by its symbol, as the first to read. */
int scanf_99(const char *format, ...) __asm__("__isoc99_scanf");
int scanf_old(const char *format, ...) __asm__("scanf");
int fscanf_99(FILE *file, const char *format, ...) __asm__("__isoc99_fscanf");
int fscanf_old(FILE *file, const char *format, ...) __asm__("fscanf");
int vscanf_99(const char *format, va_list args) __asm__("__isoc99_vscanf");
int vscanf_old(const char *format, va_list args) __asm__("vscanf");
int vfscanf_99(FILE *file, const char *format, va_list args) __asm__("__isoc99_vfscanf");
int vfscanf_old(FILE *file, const char *format, va_list args) __asm__("vfscanf");

enum {
    SCANS = 9
};

static int scan(int way, const char *format, ...)
{
    va_list args, again;
    int *number, rc;

    va_start(args, format);
    va_copy(again, args);
    number = va_arg(again, int *);
    va_end(again);
    rc = way == 0   ? scanf_99(format, number)
         : way == 1 ? scanf_old(format, number)
         : way == 2 ? fscanf_99(stdin, format, number)
         : way == 3 ? fscanf_old(stdin, format, number)
         : way == 4 ? vscanf_99(format, args)
         : way == 5 ? vscanf_old(format, args)
         : way == 6 ? vfscanf_99(stdin, format, args)
         : way == 7 ? vfscanf_old(stdin, format, args)
                    : (*number = getw(stdin)) != EOF;
    va_end(args);
    return rc;
}

/* In each way in a child, whose standard input nobody has read from. */
static void scanning(const char *path)
{
    for (int way = 0; way < SCANS; way++) {
        int status = 0, number = 0;
        pid_t pid;

        fflush(stdout);
        pid = fork();
        if (pid == 0) {
            close(0);
            say("opened as", open(path, O_RDONLY)); /* NOLINT(android-cloexec-open) */
            say("scanned", scan(way, "%d", &number));
            say("number", number);
            fflush(stdout);
            _exit(0);
        }
        waitpid(pid, &status, 0);
        say("status", status);
    }
}

/* Standard input, by descriptor and by stream. */
static void input(const char *dir)
{
    char path[4096], line[100] = "";
    int number = 0;
    int fd = open_data(O_CLOEXEC);

    say("stdin", dup2(fd, 0));
    say_bytes("read", big, read(0, big, 100));
    close(fd);
    close(0);
    snprintf(path, sizeof path, "%s/text", dir);
    scanning(path);
    say("opened as", open(path, O_RDONLY)); /* NOLINT(android-cloexec-open) */
    say_bytes("read", big, read(0, big, 2));
    say("scanf", scanf("%d", &number)); /* NOLINT */
    say("number", number);
    say("getchar", getchar());
    say("fgets", fgets(line, sizeof line, stdin) != NULL);
    printf("%s", line);
    say("ftell", ftell(stdin));
    say_bytes("fread", big, (long)fread(big, 1, BIG, stdin));
    say("freopen", freopen(path, "r", stdin) == stdin);
    say("fileno", fileno(stdin));
    say("fgets", fgets(line, sizeof line, stdin) != NULL);
    printf("%s", line);
}

int main(int argc, char **argv)
{
    static char path[4096], other[4096];

    if (argc < 3)
        return 2;
    snprintf(path, sizeof path, "%s/data", argv[2]);
    data_path = path;
    if (strcmp(argv[1], "cached") == 0) {
        reading();
        seeking();
        duplicates();
        flags();
        attributes();
        streams();
        to_others(argv[2]);
        by_number(argv[2]);
    } else {
        mapping();
        locking();
        snprintf(other, sizeof other, "%s/sparse", argv[2]);
        process_locks(data_path, O_RDONLY);
        process_locks(other, O_RDWR);
        waiting();
        others(argv[2]);
        real_by_number(argv[2]);
        input(argv[2]);
    }
    return 0;
}
