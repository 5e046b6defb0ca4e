/*
 * What a descriptor is: fstat and kin of cached files. Paths are libc's to look at.
 */
#include <string.h>
#include <sys/sysmacros.h>

#include "doors/preload/preload_priv.h"

static void fill_time(struct timespec *t, int64_t ns)
{
    t->tv_sec = ns / 1000000000LL;
    t->tv_nsec = ns % 1000000000LL;
    if (t->tv_nsec < 0) {
        t->tv_nsec += 1000000000L;
        t->tv_sec--;
    }
}

static void fill_stat(const struct fb_pl_file *f, struct stat *st)
{
    const struct fb_attr *a = &f->file.attr;

    memset(st, 0, sizeof *st);
    st->st_dev = a->dev;
    st->st_ino = a->ino;
    st->st_mode = a->mode;
    st->st_nlink = a->nlink;
    st->st_uid = a->uid;
    st->st_gid = a->gid;
    st->st_rdev = a->rdev;
    st->st_size = (off_t)a->version.size;
    st->st_blksize = f->file.block_bytes;
    st->st_blocks = (blkcnt_t)a->blocks;
    fill_time(&st->st_atim, a->atime_ns);
    fill_time(&st->st_mtim, a->version.mtime_ns);
    fill_time(&st->st_ctim, a->version.ctime_ns);
}

/* True when the descriptor is a cached file's: then *st is filled in. */
static bool stat_cached(int fd, struct stat *st)
{
    struct fb_pl_file *f = fb_pl_is_ours(fd) ? fb_pl_get(fd) : NULL;
    bool is = f && f->kind == FB_PL_CACHED;

    if (is)
        fill_stat(f, st);
    if (f)
        fb_pl_put(f);
    return is;
}

static_assert(sizeof(struct stat) == sizeof(struct stat64), "the same on 64-bit machines");

FB_EXPORT int fstat(int fd, struct stat *st)
{
    return stat_cached(fd, st) ? 0 : FB_REAL(fstat)(fd, st);
}

FB_EXPORT int fstat64(int fd, struct stat64 *st)
{
    return stat_cached(fd, (struct stat *)st) ? 0 : FB_REAL(fstat64)(fd, st);
}

/* What programs built against an older libc call. */
int __fxstat(int version, int fd, struct stat *st);

FB_EXPORT int __fxstat(int version, int fd, struct stat *st)
{
    return stat_cached(fd, st) ? 0 : FB_REAL(__fxstat)(version, fd, st);
}

int __fxstat64(int version, int fd, struct stat64 *st);

FB_EXPORT int __fxstat64(int version, int fd, struct stat64 *st)
{
    return stat_cached(fd, (struct stat *)st) ? 0 : FB_REAL(__fxstat64)(version, fd, st);
}

/* ---- by descriptor, through the calls that take a path ---- */

static bool names_fd(const char *path, int flags)
{
    return (flags & AT_EMPTY_PATH) != 0 && (!path || path[0] == '\0');
}

FB_EXPORT int fstatat(int dir, const char *path, struct stat *st, int flags)
{
    if (names_fd(path, flags) && stat_cached(dir, st))
        return 0;
    return FB_REAL(fstatat)(dir, path, st, flags);
}

FB_EXPORT int fstatat64(int dir, const char *path, struct stat64 *st, int flags)
{
    if (names_fd(path, flags) && stat_cached(dir, (struct stat *)st))
        return 0;
    return FB_REAL(fstatat64)(dir, path, st, flags);
}

static struct statx_timestamp stamp(const struct timespec *t)
{
    return (struct statx_timestamp){.tv_sec = t->tv_sec, .tv_nsec = (uint32_t)t->tv_nsec};
}

FB_EXPORT int statx(int dir, const char *restrict path, int flags, unsigned mask,
                    struct statx *restrict ret)
{
    struct stat st;

    if (!names_fd(path, flags) || !stat_cached(dir, &st))
        return FB_REAL(statx)(dir, path, flags, mask, ret);
    *ret = (struct statx){
        .stx_mask = STATX_BASIC_STATS,
        .stx_blksize = (uint32_t)st.st_blksize,
        .stx_nlink = (uint32_t)st.st_nlink,
        .stx_uid = st.st_uid,
        .stx_gid = st.st_gid,
        .stx_mode = (uint16_t)st.st_mode,
        .stx_ino = st.st_ino,
        .stx_size = (uint64_t)st.st_size,
        .stx_blocks = (uint64_t)st.st_blocks,
        .stx_atime = stamp(&st.st_atim),
        .stx_mtime = stamp(&st.st_mtim),
        .stx_ctime = stamp(&st.st_ctim),
        .stx_dev_major = major(st.st_dev),
        .stx_dev_minor = minor(st.st_dev),
    };
    return 0;
}
