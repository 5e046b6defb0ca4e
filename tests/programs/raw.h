/*
 * tests/programs/raw.h - system calls past any library: not even syscall() is called.
 */
#ifndef FB_TESTS_PROGRAMS_RAW_H
#define FB_TESTS_PROGRAMS_RAW_H

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
static inline long raw_result(long no, long a, long b, long c, long d, long e, long f)
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
static inline long raw_result(long no, long a, long b, long c, long d, long e, long f)
{
    long r = syscall(no, a, b, c, d, e, f);

    return r == -1 ? -errno : r;
}
#endif

/* As syscall(): -1 and errno. */
static inline long raw6(long no, long a, long b, long c, long d, long e, long f)
{
    long r = raw_result(no, a, b, c, d, e, f);

    if (r >= 0 || r <= -4096)
        return r;
    errno = (int)-r;
    return -1;
}

#define raw(no, a, b, c, d) raw6(no, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

#endif
