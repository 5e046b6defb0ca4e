/*
 * syscall(): system calls that programs make by number. Node asks so how long a file is (statx),
 * and a placeholder would say: a socket, of no bytes. So what concerns a descriptor of ours goes
 * the way of libc's function of that name, or the descriptor becomes real first. Paths are the
 * kernel's: who opens a file by number opens the source.
 *
 * Allocators and sanitizers call this before libc can be asked for its own: the call is made here.
 */
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "doors/preload/preload_priv.h"

#ifdef FB_SYS_INSTRUCTION

# define EARLY __attribute__((no_sanitize("address", "thread", "undefined")))

/* ---- one descriptor ---- */

/* Answered without the file itself, most of them. False: it is none of these. */
static bool read_ours(long no, int fd, const long a[6], long *ret)
{
    const struct iovec *iov = (const struct iovec *)a[1];
    void *to = (void *)a[1];
    int error;

    switch (no) {
    case SYS_read:
        *ret = read(fd, to, (size_t)a[2]);
        return true;
    case SYS_pread64:
        *ret = pread(fd, to, (size_t)a[2], a[3]);
        return true;
    case SYS_readv:
        *ret = readv(fd, iov, (int)a[2]);
        return true;
    case SYS_preadv: /* the offset's other half is for 32 bits */
        *ret = preadv(fd, iov, (int)a[2], a[3]);
        return true;
    case SYS_preadv2:
        *ret = preadv2(fd, iov, (int)a[2], a[3], (int)a[5]);
        return true;
    case SYS_lseek:
        *ret = lseek(fd, a[1], (int)a[2]);
        return true;
    case SYS_copy_file_range:
        *ret = copy_file_range(fd, (off64_t *)a[1], (int)a[2], (off64_t *)a[3], (size_t)a[4],
                               (unsigned)a[5]);
        return true;
    case SYS_fstat:
        *ret = fstat(fd, (struct stat *)a[1]);
        return true;
    case SYS_fstatfs:
        *ret = fstatfs(fd, (struct statfs *)a[1]);
        return true;
    case SYS_ioctl:
        *ret = ioctl(fd, (unsigned long)a[1], a[2]);
        return true;
    case SYS_flock:
        *ret = flock(fd, (int)a[1]);
        return true;
    case SYS_fchmod:
        *ret = fchmod(fd, (mode_t)a[1]);
        return true;
    case SYS_fchown:
        *ret = fchown(fd, (uid_t)a[1], (gid_t)a[2]);
        return true;
    case SYS_ftruncate:
        *ret = ftruncate(fd, a[1]);
        return true;
    case SYS_fadvise64:
        error = posix_fadvise(fd, a[1], a[2], (int)a[3]);
        *ret = error == 0 ? 0 : fb_fail(error);
        return true;
    default:
        return false;
    }
}

/* Of what is open at `dir`, when the path is empty. */
static bool stat_ours(long no, int dir, const long a[6], long *ret)
{
    const char *path = (const char *)a[1];

    if (no == SYS_newfstatat && fb_pl_names_fd(path, (int)a[3]))
        *ret = fstatat(dir, path, (struct stat *)a[2], (int)a[3]);
    else if (no == SYS_statx && fb_pl_names_fd(path, (int)a[2]))
        *ret = statx(dir, path, (int)a[2], (unsigned)a[3], (struct statx *)a[4]);
    else
        return false;
    return true;
}

/* What the kernel does with the file itself. True: a call on such a descriptor. */
static bool needs_real(long no, const long a[6])
{
    const char *path = (const char *)a[1];

    switch (no) {
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_syncfs:
    case SYS_readahead:
    case SYS_splice:
    case SYS_fgetxattr:
    case SYS_flistxattr:
    case SYS_fsetxattr:
    case SYS_fremovexattr:
        return true;
    case SYS_utimensat: /* of a descriptor also without a path at all */
    case SYS_fchownat:
    case SYS_linkat:
    case SYS_name_to_handle_at:
    case SYS_execveat:
    case SYS_faccessat2:
        return !path || path[0] == '\0';
    default:
        return false;
    }
}

/* Where else descriptors stand. */
static bool elsewhere(long no, const long a[6], long *ret)
{
    int fd = (int)(no == SYS_mmap ? a[4] : no == SYS_sendfile ? a[1] : a[2]);

    if ((no != SYS_mmap && no != SYS_sendfile && no != SYS_epoll_ctl) || !fb_pl_is_ours(fd))
        return false;
    if (no == SYS_mmap)
        *ret = (long)mmap((void *)a[0], (size_t)a[1], (int)a[2], (int)a[3], fd, a[5]);
    else if (no == SYS_sendfile)
        *ret = sendfile((int)a[0], fd, (off_t *)a[2], (size_t)a[3]);
    else
        *ret = epoll_ctl((int)a[0], (int)a[1], fd, (struct epoll_event *)a[3]);
    return true;
}

/* ---- numbers ---- */

/* What gives out numbers, or gives them back: whatever they stand for. */
static bool number_them(long no, const long a[6], long *ret)
{
    switch (no) {
    case SYS_close:
        *ret = close((int)a[0]);
        return true;
    case SYS_close_range:
        *ret = close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]);
        return true;
    case SYS_dup:
        *ret = dup((int)a[0]); /* NOLINT(android-cloexec-dup) */
        return true;
# ifdef SYS_dup2
    case SYS_dup2:
        *ret = dup2((int)a[0], (int)a[1]);
        return true;
# endif
    case SYS_dup3:
        *ret = dup3((int)a[0], (int)a[1], (int)a[2]);
        return true;
    case SYS_fcntl:
        *ret = fcntl((int)a[0], (int)a[1], a[2]);
        return true;
    case SYS_unshare:
        *ret = unshare((int)a[0]);
        return true;
    default:
        return false;
    }
}

/* ---- processes ---- */

static inline EARLY bool makes_process(long no)
{
# ifdef SYS_fork
    if (no == SYS_fork || no == SYS_vfork)
        return true;
# endif
    return no == SYS_clone || no == SYS_clone3;
}

static void before_process(long no, long a)
{
    uint64_t flags = 0;

    if (no == SYS_clone)
        flags = (uint64_t)a;
    else if (no == SYS_clone3 && a != 0)
        memcpy(&flags, (const void *)a, sizeof flags);
    if (!(flags & CLONE_FILES))
        fb_pl_make_real_if(fb_pl_any);
}

static inline EARLY bool makes_other(long no)
{
    switch (no) {
    case SYS_setuid:
    case SYS_setgid:
    case SYS_setreuid:
    case SYS_setregid:
    case SYS_setresuid:
    case SYS_setresgid:
    case SYS_setgroups:
    case SYS_setfsuid:
    case SYS_setfsgid:
    case SYS_capset:
    case SYS_chroot:
    case SYS_setns:
    case SYS_unshare:
        return true;
    default:
        return false;
    }
}

/* ---- all ---- */

/* False: the kernel is to be asked. */
static bool answer(long no, const long a[6], long *ret)
{
    int fd = (int)a[0];

    if (number_them(no, a, ret) || elsewhere(no, a, ret))
        return true;
    if (no == SYS_execve || no == SYS_execveat)
        fb_pl_make_real_if(fb_pl_inherited);
    if (!fb_pl_is_ours(fd))
        return false;
    if (read_ours(no, fd, a, ret) || stat_ours(no, fd, a, ret))
        return true;
    if (!needs_real(no, a) || fb_pl_real_now(fd))
        return false;
    *ret = -1;
    return true;
}

static inline EARLY __attribute__((always_inline)) long pass(long no, const long a[6])
{
    long result = fb_sys6(no, a[0], a[1], a[2], a[3], a[4], a[5]);

    if (fb_likely(result >= 0 || result <= -4096))
        return result;
    errno = (int)-result;
    return -1;
}

__attribute__((noinline)) static long look(long no, const long a[6])
{
    long result;

    if (answer(no, a, &result))
        return result;
    result = pass(no, a);
    /* The kernel has done so to this thread alone; the library knows whole processes. */
    if (makes_other(no) && result >= 0)
        fb_pl_become_other();
    return result;
}

/* Six arguments, whether there are so many or not; not named, though, as with open(): the last ones
 * are on the stack, which is the caller's where there are fewer. */
FB_EXPORT EARLY long syscall(long no, ...)
{
    long a[6];
    va_list args;

    va_start(args, no);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(a); i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (fb_unlikely(makes_process(no))) {
        before_process(no, a[0]);
        /* By libc: the child may have a stack of its own, on which there is no frame of ours. */
        return FB_REAL(syscall)(no, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
    if (fb_unlikely(atomic_load_explicit(&fb_pl_active, memory_order_relaxed) || makes_other(no)))
        return look(no, a);
    return pass(no, a);
}

#endif
