/*
 * What a descriptor is: fstat and kin of cached files. Paths are libc's to look at; but when what
 * it says of one is not what the cache has, the cache is told, so that a program that looks at a
 * file and then opens it finds the same file.
 */
#include <string.h>
#include <sys/sysmacros.h>

#include "doors/preload/alone.h"
#include "doors/preload/preload_priv.h"

/* True when the descriptor is a cached file's: then *st is filled in. */
static bool stat_cached(int fd, struct stat *st)
{
    struct fb_pl_file *f = fb_pl_is_ours(fd) ? fb_pl_get(fd) : NULL;
    bool is = f && f->kind == FB_PL_CACHED;

    if (is) {
        fb_pl_note_use(f, FB_PL_USED_STAT);
        fb_client_stat(&f->file, st);
    }
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

/* ---- paths ---- */

/* In what the mask says was seen. */
static bool differs(const struct fb_version *a, const struct fb_version *b, unsigned mask)
{
    return ((mask & STATX_SIZE) && a->size != b->size) ||
           ((mask & STATX_MTIME) && a->mtime_ns != b->mtime_ns) ||
           ((mask & STATX_CTIME) && a->ctime_ns != b->ctime_ns) ||
           ((mask & STATX_INO) && a->tag[0] != b->tag[0]);
}

/* The source has just said that the path has this size, these times and this inode. */
static void compare(int dir, const char *path, mode_t mode, const struct fb_version *seen,
                    unsigned mask)
{
    char clean[FB_CLIENT_FILE_PATH];
    const struct fb_client_place *place;
    struct fb_found_file found;
    struct fb_session *s;
    const char *below;
    size_t len;

    if (!S_ISREG(mode) || !path || !fb_pl_path(dir, path, clean))
        return;
    s = fb_client_session(&fb_pl_client);
    place = s ? fb_client_place(s, clean) : NULL;
    if (!place || strlen(clean) <= place->path_len + 1u)
        return;
    below = clean + place->path_len + 1;
    len = strlen(below);
    /* What has an ETag the daemon itself has shown, through its mount. */
    if (fb_layout_find_file(&s->layout, fb_path_hash(place->source, below, len), place->source,
                            below, len, &found) &&
        found.valid_until_ns > 0 && found.version.tag[1] == 0 &&
        differs(&found.version, seen, mask))
        fb_client_forget(&fb_pl_client, clean);
}

static void compare_stat(int dir, const char *path, const struct stat *st)
{
    struct fb_version seen = {
        .size = (uint64_t)st->st_size,
        .mtime_ns = st->st_mtim.tv_sec * 1000000000LL + st->st_mtim.tv_nsec,
        .ctime_ns = st->st_ctim.tv_sec * 1000000000LL + st->st_ctim.tv_nsec,
        .tag = {st->st_ino},
    };

    compare(dir, path, st->st_mode, &seen, STATX_BASIC_STATS);
}

/* As with open(): libc returns to the caller itself when the path is not ours. */
#define WRAP_STAT(name, type)                                                                   \
 static __attribute__((noinline)) int name##_ours(const char *restrict path, type *restrict st) \
 {                                                                                              \
  struct fb_pl_way way;                                                                         \
  int rc;                                                                                       \
                                                                                                \
  path = fb_pl_go(&way, AT_FDCWD, path);                                                        \
  rc = (int)fb_pl_end(&way, FB_REAL(name)(path, st));                                           \
  if (rc == 0)                                                                                  \
   compare_stat(AT_FDCWD, path, (const struct stat *)st);                                       \
  return rc;                                                                                    \
 }                                                                                              \
 int fb_pl_##name##_any(const char *path, type *st)                                             \
 {                                                                                              \
  return fb_likely(!fb_pl_virtual && fb_pl_outside(AT_FDCWD, path)) ? FB_REAL(name)(path, st)   \
                                                                    : name##_ours(path, st);    \
 }

WRAP_STAT(stat, struct stat)
WRAP_STAT(stat64, struct stat64)
WRAP_STAT(lstat, struct stat)
WRAP_STAT(lstat64, struct stat64)

/* What programs built against an older libc call. */
#define WRAP_XSTAT(name, type)                                 \
 int name(int version, const char *path, type *st);            \
 FB_EXPORT int name(int version, const char *path, type *st)   \
 {                                                             \
  struct fb_pl_way way;                                        \
  int rc;                                                      \
                                                               \
  path = fb_pl_go(&way, AT_FDCWD, path);                       \
  rc = (int)fb_pl_end(&way, FB_REAL(name)(version, path, st)); \
  if (rc == 0)                                                 \
   compare_stat(AT_FDCWD, path, (const struct stat *)st);      \
  return rc;                                                   \
 }

WRAP_XSTAT(__xstat, struct stat)
WRAP_XSTAT(__xstat64, struct stat64)
WRAP_XSTAT(__lxstat, struct stat)
WRAP_XSTAT(__lxstat64, struct stat64)

/* ---- at a directory, or by descriptor ---- */

#define STATAT_BODY(dir, st, real)                                         \
 struct fb_pl_way way;                                                     \
 int rc;                                                                   \
                                                                           \
 if (fb_pl_names_fd(path, flags) && stat_cached(dir, (struct stat *)(st))) \
  return 0;                                                                \
 path = fb_pl_go(&way, dir, path);                                         \
 rc = (int)fb_pl_end(&way, real);                                          \
 if (rc == 0)                                                              \
  compare_stat(dir, path, (const struct stat *)(st));                      \
 return rc;

#define WRAP_STATAT(name, type)                                                       \
 static __attribute__((noinline)) int name##_ours(int dir, const char *restrict path, \
                                                  type *restrict st, int flags)       \
 {                                                                                    \
  STATAT_BODY(dir, st, FB_REAL(name)(dir, path, st, flags))                           \
 }                                                                                    \
 int fb_pl_##name##_any(int dir, const char *path, type *st, int flags)               \
 {                                                                                    \
  return fb_likely(!fb_pl_virtual && fb_pl_outside(dir, path))                        \
             ? FB_REAL(name)(dir, path, st, flags)                                    \
             : name##_ours(dir, path, st, flags);                                     \
 }

WRAP_STATAT(fstatat, struct stat)
WRAP_STATAT(fstatat64, struct stat64)

/* What programs built against an older libc call. */
#define WRAP_XSTATAT(name, type)                                                 \
 int name(int version, int dir, const char *path, type *st, int flags);          \
 FB_EXPORT int name(int version, int dir, const char *path, type *st, int flags) \
 {                                                                               \
  STATAT_BODY(dir, st, FB_REAL(name)(version, dir, path, st, flags))             \
 }

WRAP_XSTATAT(__fxstatat, struct stat)
WRAP_XSTATAT(__fxstatat64, struct stat64)

static struct statx_timestamp stamp(const struct timespec *t)
{
    return (struct statx_timestamp){.tv_sec = t->tv_sec, .tv_nsec = (uint32_t)t->tv_nsec};
}

static void fill_statx(const struct stat *st, struct statx *ret)
{
    *ret = (struct statx){
        .stx_mask = STATX_BASIC_STATS,
        .stx_blksize = (uint32_t)st->st_blksize,
        .stx_nlink = (uint32_t)st->st_nlink,
        .stx_uid = st->st_uid,
        .stx_gid = st->st_gid,
        .stx_mode = (uint16_t)st->st_mode,
        .stx_ino = st->st_ino,
        .stx_size = (uint64_t)st->st_size,
        .stx_blocks = (uint64_t)st->st_blocks,
        .stx_atime = stamp(&st->st_atim),
        .stx_mtime = stamp(&st->st_mtim),
        .stx_ctime = stamp(&st->st_ctim),
        .stx_dev_major = major(st->st_dev),
        .stx_dev_minor = minor(st->st_dev),
    };
}

/* What was not asked for is not compared. A type that is not known may be that of a file. */
static void compare_statx(int dir, const char *path, const struct statx *sx)
{
    struct fb_version seen = {
        .size = sx->stx_size,
        .mtime_ns = sx->stx_mtime.tv_sec * 1000000000LL + sx->stx_mtime.tv_nsec,
        .ctime_ns = sx->stx_ctime.tv_sec * 1000000000LL + sx->stx_ctime.tv_nsec,
        .tag = {sx->stx_ino},
    };

    compare(dir, path, sx->stx_mask & STATX_TYPE ? sx->stx_mode : S_IFREG, &seen, sx->stx_mask);
}

FB_EXPORT int statx(int dir, const char *restrict path, int flags, unsigned mask,
                    struct statx *restrict ret)
{
    struct fb_pl_way way;
    struct stat st;
    int rc;

    if (fb_pl_names_fd(path, flags) && stat_cached(dir, &st)) {
        fill_statx(&st, ret);
        return 0;
    }
    path = fb_pl_go(&way, dir, path);
    rc = (int)fb_pl_end(&way, FB_REAL(statx)(dir, path, flags, mask, ret));
    if (rc == 0)
        compare_statx(dir, path, ret);
    return rc;
}
