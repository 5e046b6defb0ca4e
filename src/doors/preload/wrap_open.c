/*
 * Opening. Read-only opens below a root are answered from the cache; all others are libc's.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doors/preload/alone.h"
#include "doors/preload/preload_priv.h"

static bool is_write(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)) != 0;
}

/* ---- opening ---- */

/* With O_NOFOLLOW a link at the end is an error, which the kernel words. */
static int find_file(int dir, const char *path, int flags, const char *clean, struct fb_pl_file *f)
{
    int rc;

    memcpy(f->path, clean, strlen(clean) + 1);
    rc = fb_client_open(&fb_pl_client, f->path, &f->file);
    if (rc == FB_CLIENT_LINK && !(flags & O_NOFOLLOW) && fb_pl_exact(dir, path, f->path))
        rc = fb_client_open(&fb_pl_client, f->path, &f->file);
    return rc;
}

/* A descriptor of a cached file, or -1: pass. */
static int open_cached(int dir, const char *path, int flags, const char *clean)
{
    struct fb_pl_file *f;

    if ((flags & ~FB_PL_SERVABLE) != 0)
        return -1;
    f = fb_pl_new(FB_PL_CACHED);
    if (!f)
        return -1;
    if (find_file(dir, path, flags, clean, f) != 0) {
        fb_pl_put(f);
        return -1;
    }
    if (!fb_client_may_read(&fb_pl_client, &f->file, flags) || fb_pl_writes_to(f->path) ||
        fb_pl_is_locked(f)) {
        fb_pl_put(f);
        return -1;
    }
    f->flags = flags & ~O_CLOEXEC;
    return fb_pl_install(f, 0, (flags & O_CLOEXEC) != 0);
}

int fb_pl_open(int dir, const char *path, int flags)
{
    char clean[FB_CLIENT_FILE_PATH];
    int fd = path && fb_pl_path(dir, path, clean) ? open_cached(dir, path, flags, clean) : -1;

    return fd < 0 ? -1 : fd;
}

/* A writer's path is forgotten now and when it closes; a directory is worth knowing, since openat()
 * may name files by it. */
static void note_real(int fd, const char *clean, int flags)
{
    struct fb_pl_file *f;
    struct stat st;

    if (!is_write(flags)) {
        if ((flags & O_DIRECTORY) || (fb_sys_fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)))
            fb_pl_mark_dir(fd);
        return;
    }
    f = fb_pl_new(FB_PL_WRITER);
    /* Without room for it: now, and when the process ends. */
    if (!f) {
        fb_client_writes(&fb_pl_client, clean);
        return;
    }
    if (!fb_pl_path_of(fd, f->path))
        memcpy(f->path, clean, strlen(clean) + 1);
    fb_client_writes(&fb_pl_client, f->path);
    fb_pl_watch(fd, f);
}

int fb_pl_opened_real(int fd, int dir, const char *path, int flags)
{
    char clean[FB_CLIENT_FILE_PATH];
    int saved = errno;

    if (fd < 0)
        return fd;
    fb_pl_fresh(fd);
    if (path && !fb_pl_elsewhere(path) &&
        (fb_pl_path(dir, path, clean) || (!fb_pl_vforked && fb_pl_path_of(fd, clean))))
        note_real(fd, clean, flags);
    errno = saved;
    return fd;
}

static int took_note(int fd, const char *clean, int flags)
{
    int saved = errno;

    if (fd >= 0 && fb_unlikely(!fb_pl_is_there(fd, clean))) {
        fb_sys_close(fd);
        return fb_fail(EIO);
    }
    if (fd >= 0) {
        fb_pl_fresh(fd);
        note_real(fd, clean, flags);
    }
    errno = saved;
    return fd;
}

/* `..` after a name: the kernel knows where that leads. */
static bool follow(int dir, const char *path, int flags, char ret_path[FB_CLIENT_FILE_PATH])
{
    return strstr(path, "/../") && (flags & ~FB_PL_SERVABLE) == 0 && !fb_pl_vforked &&
           !(path[0] == '/' && fb_pl_outside(dir, path)) && fb_pl_on() &&
           fb_pl_exact(dir, path, ret_path);
}

/* Of a path that was not followed, what is to be known of it all the same. */
static int took_odd_note(int fd, const char *path, int flags)
{
    char clean[FB_CLIENT_FILE_PATH];
    int saved = errno;

    if (fd >= 0 && (is_write(flags) || (flags & O_DIRECTORY)) && !fb_pl_vforked &&
        !fb_pl_elsewhere(path) && fb_pl_path_of(fd, clean))
        note_real(fd, clean, flags);
    errno = saved;
    return fd;
}

/* What the program has open of it for reading is to show what it writes. */
static inline void about_to_write(int dir, const char *path, int flags)
{
    if (fb_unlikely(is_write(flags)) && !(flags & O_DIRECTORY))
        fb_pl_before_change(dir, path);
}

/* open(path, flags, mode) and its kin differ in name and arguments only.
 *
 * For most programs most calls are not for us: libc's function then returns to the caller itself.
 * (A return more would cost more than all the rest: system calls leave the processor without a
 * memory of where calls came from.) */
#define OPEN_BODY(dir, real)                                                         \
 char clean[FB_CLIENT_FILE_PATH];                                                    \
 int fd;                                                                             \
                                                                                     \
 if (!path || (!fb_pl_path(dir, path, clean) && !follow(dir, path, flags, clean))) { \
  about_to_write(dir, path, flags);                                                  \
  fd = real;                                                                         \
  fb_pl_fresh(fd);                                                                   \
  return took_odd_note(fd, path, flags);                                             \
 }                                                                                   \
 fd = open_cached(dir, path, flags, clean);                                          \
 if (fd >= 0)                                                                        \
  return fd;                                                                         \
 about_to_write(dir, path, flags);                                                   \
 return took_note(real, clean, flags);

#define WRAP_OPEN(name)                                                                      \
 static __attribute__((noinline)) int name##_ours(const char *path, int flags, mode_t mode)  \
 {                                                                                           \
  OPEN_BODY(AT_FDCWD, FB_REAL(name)(path, flags, mode))                                      \
 }                                                                                           \
 static __attribute__((noinline)) int name##_there(const char *path, int flags, mode_t mode) \
 {                                                                                           \
  struct fb_pl_way way;                                                                      \
                                                                                             \
  path = fb_pl_go(&way, AT_FDCWD, path);                                                     \
  return (int)fb_pl_end(&way, name##_ours(path, flags, mode));                               \
 }                                                                                           \
 int fb_pl_##name##_any(const char *path, int flags, mode_t mode)                            \
 {                                                                                           \
  if (fb_unlikely(fb_pl_virtual))                                                            \
   return name##_there(path, flags, mode);                                                   \
  return fb_likely(fb_pl_stranger(AT_FDCWD, path, flags)) ? FB_REAL(name)(path, flags, mode) \
                                                          : name##_ours(path, flags, mode);  \
 }

#define WRAP_OPENAT(name)                                                                          \
 static                                                                                            \
     __attribute__((noinline)) int name##_ours(int dir, const char *path, int flags, mode_t mode)  \
 {                                                                                                 \
  OPEN_BODY(dir, FB_REAL(name)(dir, path, flags, mode))                                            \
 }                                                                                                 \
 static                                                                                            \
     __attribute__((noinline)) int name##_there(int dir, const char *path, int flags, mode_t mode) \
 {                                                                                                 \
  struct fb_pl_way way;                                                                            \
                                                                                                   \
  path = fb_pl_go(&way, dir, path);                                                                \
  return (int)fb_pl_end(&way, name##_ours(dir, path, flags, mode));                                \
 }                                                                                                 \
 int fb_pl_##name##_any(int dir, const char *path, int flags, mode_t mode)                         \
 {                                                                                                 \
  if (fb_unlikely(fb_pl_virtual))                                                                  \
   return name##_there(dir, path, flags, mode);                                                    \
  return fb_likely(fb_pl_stranger(dir, path, flags)) ? FB_REAL(name)(dir, path, flags, mode)       \
                                                     : name##_ours(dir, path, flags, mode);        \
 }

#define WRAP_OPEN_2(name)                                                                         \
 int name(const char *path, int flags);                                                           \
 static int name##_ours(const char *path,                                                         \
                        int flags){OPEN_BODY(AT_FDCWD, FB_REAL(name)(path, flags))} FB_EXPORT int \
 name(const char *path, int flags)                                                                \
 {                                                                                                \
  struct fb_pl_way way;                                                                           \
                                                                                                  \
  path = fb_pl_go(&way, AT_FDCWD, path);                                                          \
  return (int)fb_pl_end(&way, name##_ours(path, flags));                                          \
 }

#define WRAP_OPENAT_2(name)                                                                       \
 int name(int dir, const char *path, int flags);                                                  \
 static int name##_ours(int dir, const char *path,                                                \
                        int flags){OPEN_BODY(dir, FB_REAL(name)(dir, path, flags))} FB_EXPORT int \
 name(int dir, const char *path, int flags)                                                       \
 {                                                                                                \
  struct fb_pl_way way;                                                                           \
                                                                                                  \
  path = fb_pl_go(&way, dir, path);                                                               \
  return (int)fb_pl_end(&way, name##_ours(dir, path, flags));                                     \
 }

#define WRAP_CREAT(name)                                                                   \
 FB_EXPORT int name(const char *path, mode_t mode)                                         \
 {                                                                                         \
  struct fb_pl_way way;                                                                    \
                                                                                           \
  path = fb_pl_go(&way, AT_FDCWD, path);                                                   \
  fb_pl_before_change(AT_FDCWD, path);                                                     \
  return (int)fb_pl_end(&way, fb_pl_opened_real(FB_REAL(name)(path, mode), AT_FDCWD, path, \
                                                O_CREAT | O_WRONLY | O_TRUNC));            \
 }

WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)
WRAP_OPEN_2(__open_2)
WRAP_OPEN_2(__open64_2)
WRAP_OPENAT_2(__openat_2)
WRAP_OPENAT_2(__openat64_2)
WRAP_CREAT(creat)
WRAP_CREAT(creat64)

/* ---- writers of files that move ---- */

static void move_writer(int fd, struct fb_pl_file *was, const char *to)
{
    struct fb_pl_file *f = fb_pl_new(FB_PL_WRITER);

    if (!f)
        return;
    memcpy(f->path, to, strlen(to) + 1);
    fb_client_writes(&fb_pl_client, f->path);
    fb_pl_watch_instead(fd, was, f);
}

/* The only name of the file that was linked: it was made without one (O_TMPFILE). */
static bool is_only_name(int fd, const struct stat *st)
{
    struct stat own;

    return fb_sys_fstat(fd, &own) == 0 && own.st_dev == st->st_dev && own.st_ino == st->st_ino &&
           own.st_nlink == 1;
}

void fb_pl_writers_moved(const char *to, const struct stat *st)
{
    int high = atomic_load(&fb_pl_highest);

    if (fb_likely(atomic_load(&fb_pl_writers) == 0))
        return;
    for (int fd = 0; fd <= high; fd++) {
        struct fb_pl_file *f = fb_pl_is_ours(fd) ? fb_pl_get(fd) : NULL;
        char path[FB_CLIENT_FILE_PATH];

        if (f && f->kind == FB_PL_WRITER) {
            if (to && is_only_name(fd, st))
                move_writer(fd, f, to);
            else if (!to && fb_pl_path_of(fd, path) && strcmp(path, f->path) != 0)
                move_writer(fd, f, path);
        }
        if (f)
            fb_pl_put(f);
    }
}

/* ---- writers that nobody opens or closes ---- */

/* Numbers that shells redirect (prog 3>file). To look at all that a program has inherited would
 * take 30 us, at the start of every one. */
#define INHERITED_END 10

/* What somebody has opened for us (prog >file): the daemon is told when it is closed, or we end. */
__attribute__((constructor)) static void take_inherited(void)
{
    char path[FB_CLIENT_FILE_PATH];
    struct stat st;

    for (int fd = 0; fd < INHERITED_END; fd++) {
        int flags = fb_sys_fcntl(fd, F_GETFL, 0);

        if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH) &&
            fb_sys_fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fb_pl_path_of(fd, path))
            note_real(fd, path, O_WRONLY);
    }
}

/* What is still open for writing the kernel will close: whoever opens it next is to see what is in
 * it. (What libc writes out still later, and what a process that is killed has written, the daemon
 * notices with the end of our connection.) */
static void end_writers(void)
{
    int high = atomic_load(&fb_pl_highest), saved = errno;

    if (fb_likely(atomic_load(&fb_pl_writers) == 0) || fb_pl_vforked)
        return;
    for (int fd = 0; fd <= high; fd++) {
        struct fb_pl_file *f = fb_pl_is_ours(fd) ? fb_pl_get(fd) : NULL;

        if (f && f->kind == FB_PL_WRITER)
            fb_client_writes(&fb_pl_client, f->path);
        if (f)
            fb_pl_put(f);
    }
    errno = saved;
}

__attribute__((destructor)) static void at_end(void)
{
    end_writers();
}

#define WRAP_EXIT(name)          \
 FB_EXPORT void name(int status) \
 {                               \
  end_writers();                 \
  FB_REAL(name)(status);         \
  __builtin_unreachable();       \
 }

WRAP_EXIT(_exit)
WRAP_EXIT(_Exit)

/* ---- directories ---- */

/* An empty directory where the mount was is not what was asked for. */
static DIR *opened_dir(DIR *d, const char *path)
{
    if (!d)
        return NULL;
    if (path[0] == '/' && !fb_pl_is_there(dirfd(d), path)) {
        (void)FB_REAL(closedir)(d);
        errno = EIO;
        return NULL;
    }
    (void)fb_pl_opened_real(dirfd(d), AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
    return d;
}

FB_EXPORT DIR *opendir(const char *path)
{
    struct fb_pl_way way;
    DIR *d;

    path = fb_pl_go(&way, AT_FDCWD, path);
    d = opened_dir(FB_REAL(opendir)(path), path);
    if (!d)
        fb_pl_failed(&way);
    return d;
}

FB_EXPORT int closedir(DIR *d)
{
    if (d)
        fb_pl_fresh(dirfd(d));
    return FB_REAL(closedir)(d);
}
