/*
 * What says a path: below a virtual root, the one that the program sees. And what walks trees
 * inside libc, where we do not see it: glob() gets functions of ours to look with, ftw() a function
 * that passes on what it is told.
 *
 * Where there is no virtual root all of this is libc's; but that walks may change the current
 * directory has to be known.
 */
#include <dirent.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doors/preload/preload_priv.h"

/* ---- the current directory ---- */

/* As it is seen; false: libc's to say. */
static bool seen_cwd(char text[PATH_MAX])
{
    return fb_pl_virtual && fb_sys(SYS_getcwd, text, PATH_MAX, 0, 0) > 0 && fb_pl_back(text);
}

/* As getcwd() gives it: in memory of the caller, or its own. */
static char *give_cwd(const char *text, char *to, size_t size)
{
    size_t bytes = strlen(text) + 1;

    if ((to || size > 0) && size < bytes) {
        errno = to && size == 0 ? EINVAL : ERANGE;
        return NULL;
    }
    if (!to)
        to = malloc(size > bytes ? size : bytes);
    return to ? memcpy(to, text, bytes) : NULL;
}

FB_EXPORT char *getcwd(char *to, size_t size)
{
    char text[PATH_MAX];

    return seen_cwd(text) ? give_cwd(text, to, size) : FB_REAL(getcwd)(to, size);
}

FB_EXPORT char *get_current_dir_name(void)
{
    char text[PATH_MAX];

    return seen_cwd(text) ? give_cwd(text, NULL, 0) : FB_REAL(get_current_dir_name)();
}

/* With _FORTIFY_SOURCE; libc's own check says what it always says. */
char *__getcwd_chk(char *to, size_t size, size_t room);

FB_EXPORT char *__getcwd_chk(char *to, size_t size, size_t room)
{
    return size > room || !fb_pl_virtual ? FB_REAL(__getcwd_chk)(to, size, room) : getcwd(to, size);
}

/* ---- where a path leads ---- */

FB_EXPORT char *realpath(const char *restrict path, char *restrict to)
{
    char text[PATH_MAX];
    struct fb_pl_way way;

    if (!fb_pl_virtual)
        return FB_REAL(realpath)(path, to);
    path = fb_pl_go(&way, AT_FDCWD, path);
    if (!FB_REAL(realpath)(path, text)) {
        fb_pl_failed(&way);
        return NULL;
    }
    (void)fb_pl_back(text);
    return to ? strcpy(to, text) : strdup(text); /* NOLINT: both have PATH_MAX bytes */
}

FB_EXPORT char *canonicalize_file_name(const char *path)
{
    return fb_pl_virtual ? realpath(path, NULL) : FB_REAL(canonicalize_file_name)(path);
}

char *__realpath_chk(const char *path, char *to, size_t room);

FB_EXPORT char *__realpath_chk(const char *path, char *to, size_t room)
{
    return room < PATH_MAX || !fb_pl_virtual ? FB_REAL(__realpath_chk)(path, to, room)
                                             : realpath(path, to);
}

/* What the kernel says of /proc/self/cwd and the like. */
FB_EXPORT ssize_t readlinkat(int dir, const char *restrict path, char *restrict to, size_t size)
{
    char text[PATH_MAX];
    struct fb_pl_way way;
    ssize_t n;

    if (!fb_pl_virtual)
        return FB_REAL(readlinkat)(dir, path, to, size);
    path = fb_pl_go(&way, dir, path);
    n = FB_REAL(readlinkat)(dir, path, text, sizeof text - 1);
    if (n < 0 || size == 0)
        return fb_pl_end(&way, n < 0 ? n : FB_REAL(readlinkat)(dir, path, to, size));
    text[n] = '\0';
    if (fb_pl_back(text))
        n = (ssize_t)strlen(text);
    n = n < (ssize_t)size ? n : (ssize_t)size;
    memcpy(to, text, (size_t)n);
    return n;
}

FB_EXPORT ssize_t readlink(const char *restrict path, char *restrict to, size_t size)
{
    return fb_pl_virtual ? readlinkat(AT_FDCWD, path, to, size) : FB_REAL(readlink)(path, to, size);
}

ssize_t __readlink_chk(const char *path, char *to, size_t size, size_t room);

FB_EXPORT ssize_t __readlink_chk(const char *path, char *to, size_t size, size_t room)
{
    return size > room || !fb_pl_virtual ? FB_REAL(__readlink_chk)(path, to, size, room)
                                         : readlink(path, to, size);
}

ssize_t __readlinkat_chk(int dir, const char *path, char *to, size_t size, size_t room);

FB_EXPORT ssize_t __readlinkat_chk(int dir, const char *path, char *to, size_t size, size_t room)
{
    return size > room || !fb_pl_virtual ? FB_REAL(__readlinkat_chk)(dir, path, to, size, room)
                                         : readlinkat(dir, path, to, size);
}

/* ---- names that are made up ---- */

/* The last component is what was made up; it is as long there as here. */
static void take_name(char *name, const char *there)
{
    const char *made = strrchr(there, '/');
    char *last = strrchr(name, '/');

    if (there != name && made && last)
        memcpy(last, made, strlen(made));
}

#define WRAP_TEMP(name, params, args)                                           \
 FB_EXPORT int name params                                                      \
 {                                                                              \
  struct fb_pl_way way;                                                         \
  char *given = path;                                                           \
  int fd;                                                                       \
                                                                                \
  path = (char *)(uintptr_t)fb_pl_go(&way, AT_FDCWD, path);                     \
  fd = way.error ? fb_fail(way.error) : FB_REAL(name) args;                     \
  if (fd >= 0)                                                                  \
   take_name(given, path);                                                      \
  fd = (int)fb_pl_end(&way, fd);                                                \
  return fd < 0 ? fd : fb_pl_opened_real(fd, AT_FDCWD, path, O_RDWR | O_CREAT); \
 }

WRAP_TEMP(mkstemp, (char *path), (path))
WRAP_TEMP(mkstemp64, (char *path), (path))
WRAP_TEMP(mkostemp, (char *path, int flags), (path, flags))
WRAP_TEMP(mkostemp64, (char *path, int flags), (path, flags))
WRAP_TEMP(mkstemps, (char *path, int suffix), (path, suffix))
WRAP_TEMP(mkstemps64, (char *path, int suffix), (path, suffix))
WRAP_TEMP(mkostemps, (char *path, int suffix, int flags), (path, suffix, flags))
WRAP_TEMP(mkostemps64, (char *path, int suffix, int flags), (path, suffix, flags))

FB_EXPORT char *mkdtemp(char *path)
{
    struct fb_pl_way way;
    char *there = (char *)(uintptr_t)fb_pl_go(&way, AT_FDCWD, path);

    if (way.error || !FB_REAL(mkdtemp)(there)) {
        fb_pl_failed(&way);
        return NULL;
    }
    take_name(path, there);
    return path;
}

/* ---- glob ---- */

static void close_dir(void *d)
{
    (void)closedir(d);
}

static struct dirent *next_entry(void *d)
{
    return readdir(d);
}

static struct dirent64 *next_entry64(void *d)
{
    return readdir64(d);
}

static void *open_dir(const char *path)
{
    return opendir(path);
}

#define WRAP_GLOB(name, type, next, look, look_at)                                             \
 FB_EXPORT int name(const char *restrict pattern, int flags, int (*failed)(const char *, int), \
                    type *restrict found)                                                      \
 {                                                                                             \
  if (fb_pl_virtual && !(flags & GLOB_ALTDIRFUNC)) {                                           \
   found->gl_opendir = open_dir;                                                               \
   found->gl_readdir = next;                                                                   \
   found->gl_closedir = close_dir;                                                             \
   found->gl_stat = look;                                                                      \
   found->gl_lstat = look_at;                                                                  \
   flags |= GLOB_ALTDIRFUNC;                                                                   \
  }                                                                                            \
  return FB_REAL(name)(pattern, flags, failed, found);                                         \
 }

WRAP_GLOB(glob, glob_t, next_entry, stat, lstat)
WRAP_GLOB(glob64, glob64_t, next_entry64, stat64, lstat64)

/* ---- ftw ---- */

/* The walk of this thread whose names are led back. */
static _Thread_local void *walker;

/* Says the path as it is seen; where its last component begins moves with it. */
static const char *seen_name(const char *path, char text[PATH_MAX], int *base)
{
    size_t len = strlen(path);

    if (len >= PATH_MAX)
        return path;
    memcpy(text, path, len + 1);
    if (!fb_pl_back(text))
        return path;
    if (base)
        *base += (int)strlen(text) - (int)len;
    return text;
}

#define WRAP_FTW(name, type)                                                                 \
 static int name##_walk(const char *path, const type *st, int flag)                          \
 {                                                                                           \
  int (*walk)(const char *, const type *, int) = walker;                                     \
  char text[PATH_MAX];                                                                       \
                                                                                             \
  return walk(seen_name(path, text, NULL), st, flag);                                        \
 }                                                                                           \
 FB_EXPORT int name(const char *path, int (*walk)(const char *, const type *, int), int fds) \
 {                                                                                           \
  void *outer = walker;                                                                      \
  struct fb_pl_way way;                                                                      \
  int rc;                                                                                    \
                                                                                             \
  if (!fb_pl_virtual)                                                                        \
   return FB_REAL(name)(path, walk, fds);                                                    \
  path = fb_pl_go(&way, AT_FDCWD, path);                                                     \
  walker = (void *)walk;                                                                     \
  rc = FB_REAL(name)(path, name##_walk, fds);                                                \
  walker = outer;                                                                            \
  return rc == -1 ? (int)fb_pl_end(&way, rc) : rc;                                           \
 }

#define WRAP_NFTW(name, type)                                                                     \
 static int name##_walk(const char *path, const type *st, int flag, struct FTW *at)               \
 {                                                                                                \
  int (*walk)(const char *, const type *, int, struct FTW *) = walker;                            \
  struct FTW seen = *at;                                                                          \
  char text[PATH_MAX];                                                                            \
                                                                                                  \
  fb_pl_dir_forget(AT_FDCWD);                                                                     \
  return walk(seen_name(path, text, &seen.base), st, flag, &seen);                                \
 }                                                                                                \
 FB_EXPORT int name(const char *path, int (*walk)(const char *, const type *, int, struct FTW *), \
                    int fds, int flags)                                                           \
 {                                                                                                \
  void *outer = walker;                                                                           \
  struct fb_pl_way way;                                                                           \
  int rc;                                                                                         \
                                                                                                  \
  if (!fb_pl_virtual && !(flags & FTW_CHDIR))                                                     \
   return FB_REAL(name)(path, walk, fds, flags);                                                  \
  path = fb_pl_go(&way, AT_FDCWD, path);                                                          \
  walker = (void *)walk;                                                                          \
  rc = FB_REAL(name)(path, name##_walk, fds, flags);                                              \
  walker = outer;                                                                                 \
  fb_pl_dir_forget(AT_FDCWD);                                                                     \
  return rc == -1 ? (int)fb_pl_end(&way, rc) : rc;                                                \
 }

WRAP_FTW(ftw, struct stat)
WRAP_FTW(ftw64, struct stat64)
WRAP_NFTW(nftw, struct stat)
WRAP_NFTW(nftw64, struct stat64)

/* ---- fts ---- */

/* It goes into the directories that it walks. */
#define WRAP_FTS(type, name, params, args) \
 FB_EXPORT type name params                \
 {                                         \
  type rc = FB_REAL(name) args;            \
                                           \
  fb_pl_dir_forget(AT_FDCWD);              \
  return rc;                               \
 }

WRAP_FTS(FTSENT *, fts_read, (FTS * walk), (walk))
WRAP_FTS(FTSENT64 *, fts64_read, (FTS64 * walk), (walk))
WRAP_FTS(FTSENT *, fts_children, (FTS * walk, int options), (walk, options))
WRAP_FTS(FTSENT64 *, fts64_children, (FTS64 * walk, int options), (walk, options))
WRAP_FTS(int, fts_close, (FTS * walk), (walk))
WRAP_FTS(int, fts64_close, (FTS64 * walk), (walk))
