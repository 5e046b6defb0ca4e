/*
 * doors/preload/alone.h - what open(), close() and stat() look at first, in processes that have
 * nothing to do with the data set, or not yet.
 *
 * A call of the kernel pushes most of what is here out of the processor's nearest caches, so each
 * line of code or data that is touched next to it costs some 3 to 10 ns, and all instructions
 * together less than that. So what open() and close() need is one line of data and the beginning of
 * a root's name; the code beside it is in wrap_alone.c.
 *
 *     not yet ── the library is loaded ──► alone ── a path below a root ──► no more
 */
#ifndef FB_DOORS_PRELOAD_ALONE_H
#define FB_DOORS_PRELOAD_ALONE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/attr.h"
#include "client/client.h"

enum fb_pl_alone_state {
    FB_PL_ALONE_NOT_YET, /* or never: a root is virtual, or only the daemon knows the roots */
    FB_PL_ALONE,         /* no path was below a root: no descriptor is ours, no slot is taken */
    FB_PL_ALONE_NO_MORE,
};

struct fb_pl_alone {
    _Atomic uint8_t state; /* enum fb_pl_alone_state */
    /* What would have been called without us. All is there before it is FB_PL_ALONE. */
    int (*close)(int fd);
    int (*open)(const char *path, int flags, ...);
    int (*open64)(const char *path, int flags, ...);
    int (*openat)(int dir, const char *path, int flags, ...);
    int (*openat64)(int dir, const char *path, int flags, ...);
    const char *roots[FB_CLIENT_ROOTS_MAX + 1]; /* with no slash at the end; NULL: no more */
    int (*stat)(const char *restrict path, struct stat *restrict st);
    int (*stat64)(const char *restrict path, struct stat64 *restrict st);
    int (*lstat)(const char *restrict path, struct stat *restrict st);
    int (*lstat64)(const char *restrict path, struct stat64 *restrict st);
    int (*fstatat)(int dir, const char *restrict path, struct stat *restrict st, int flags);
    int (*fstatat64)(int dir, const char *restrict path, struct stat64 *restrict st, int flags);
} FB_ALIGNED(FB_CACHELINE);

extern struct fb_pl_alone fb_pl_alone __attribute__((visibility("hidden"))); /* paths.c */

/* The calls themselves, whatever they are about. */
int fb_pl_open_any(const char *path, int flags, mode_t mode);
int fb_pl_open64_any(const char *path, int flags, mode_t mode);
int fb_pl_openat_any(int dir, const char *path, int flags, mode_t mode);
int fb_pl_openat64_any(int dir, const char *path, int flags, mode_t mode);
int fb_pl_close_any(int fd);
int fb_pl_stat_any(const char *path, struct stat *st);
int fb_pl_stat64_any(const char *path, struct stat64 *st);
int fb_pl_lstat_any(const char *path, struct stat *st);
int fb_pl_lstat64_any(const char *path, struct stat64 *st);
int fb_pl_fstatat_any(int dir, const char *path, struct stat *st, int flags);
int fb_pl_fstatat64_any(int dir, const char *path, struct stat64 *st, int flags);

#endif
