/*
 * client/sys.h - system calls, without libc's wrappers.
 *
 * The preload library exports open, read, close and many more: a call to one of them from here
 * would come back to itself. These go to the kernel directly, return a negative errno, and leave
 * errno as it was.
 */
#ifndef FB_CLIENT_SYS_H
#define FB_CLIENT_SYS_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#define FB_SYS_HIGH_FD   900
#define FB_SYS_HIGH_ROOM 24 /* where the limit is below that: so far below the limit */

#if defined(__x86_64__) || defined(__aarch64__)
# define FB_SYS_INSTRUCTION /* system calls are made without libc's syscall() */
#endif

/* The preload library exports syscall(), too. Always inline: who is called before a sanitizer is
 * ready makes its calls here. */
#if !defined(FB_SYS_INSTRUCTION) || defined(__clang_analyzer__) /* which sees no writes of asm */
static inline long fb_sys6(long no, long a, long b, long c, long d, long e, long f)
{
    int saved = errno;
    long r = syscall(no, a, b, c, d, e, f);

    if (r == -1) {
        r = -errno;
        errno = saved;
    }
    return r;
}
#elif defined(__x86_64__)
static inline __attribute__((always_inline)) long fb_sys6(long no, long a, long b, long c, long d,
                                                          long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long r;

    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "a"(no), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return r;
}
#else
static inline __attribute__((always_inline)) long fb_sys6(long no, long a, long b, long c, long d,
                                                          long e, long f)
{
    register long x8 __asm__("x8") = no;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;

    __asm__ volatile("svc 0"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
#endif

#define fb_sys(no, a, b, c, d) fb_sys6(no, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

static inline int fb_sys_open(const char *path, int flags, mode_t mode)
{
    return (int)fb_sys(SYS_openat, AT_FDCWD, path, flags, mode);
}

static inline int fb_sys_close(int fd)
{
    return (int)fb_sys(SYS_close, fd, 0, 0, 0);
}

static inline int fb_sys_dup3(int from, int to, int flags)
{
    return (int)fb_sys(SYS_dup3, from, to, flags, 0);
}

static inline int fb_sys_fcntl(int fd, int command, long arg)
{
    return (int)fb_sys(SYS_fcntl, fd, command, arg, 0);
}

static inline int64_t fb_sys_pread(int fd, void *to, size_t bytes, int64_t offset)
{
    return fb_sys(SYS_pread64, fd, to, bytes, offset);
}

static inline int64_t fb_sys_lseek(int fd, int64_t offset, int whence)
{
    return fb_sys(SYS_lseek, fd, offset, whence, 0);
}

static inline int fb_sys_fstatat(int dir, const char *path, struct stat *ret, int flags)
{
    return (int)fb_sys(SYS_newfstatat, dir, path, ret, flags);
}

static inline int fb_sys_fstat(int fd, struct stat *ret)
{
    return fb_sys_fstatat(fd, "", ret, AT_EMPTY_PATH);
}

static inline int64_t fb_sys_readlink(const char *path, char *ret, size_t size)
{
    return fb_sys(SYS_readlinkat, AT_FDCWD, path, ret, size);
}

static inline int fb_sys_getpid(void)
{
    return (int)fb_sys(SYS_getpid, 0, 0, 0, 0);
}

static inline void *fb_sys_mmap(void *at, size_t bytes, int protection, int flags, int fd,
                                int64_t offset)
{
    long r = fb_sys6(SYS_mmap, (long)at, (long)bytes, protection, flags, fd, offset);

    return r < 0 && r > -4096 ? MAP_FAILED : (void *)r;
}

static inline void fb_sys_munmap(void *at, size_t bytes)
{
    (void)fb_sys(SYS_munmap, at, bytes, 0, 0);
}

/* A descriptor of our own, at a high number if there is one: programs count on low ones. */
static inline int fb_sys_lift(int fd)
{
    struct rlimit limit;
    int high = fb_sys_fcntl(fd, F_DUPFD_CLOEXEC, FB_SYS_HIGH_FD);

    if (high == -EINVAL && fb_sys(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &limit) == 0 &&
        limit.rlim_cur > 2 * FB_SYS_HIGH_ROOM)
        high = fb_sys_fcntl(fd, F_DUPFD_CLOEXEC, (long)limit.rlim_cur - FB_SYS_HIGH_ROOM);
    if (high < 0)
        return fd;
    fb_sys_close(fd);
    return high;
}

/* Memory of our own: no malloc, which may be the program's, and busy. NULL: none. */
static inline void *fb_sys_memory(size_t bytes)
{
    void *p = fb_sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

#endif
