/*
 * Changes that this program makes below a root, past the cache: it must see them at once, however
 * long the metadata TTL is. What it has open of the file becomes the file itself, since of the
 * version that was opened nothing more can be had afterwards; libc does the work; then the daemon
 * is told to ask the source next time.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#include "doors/preload/preload_priv.h"

/* ---- before ---- */

/* What is about to be changed. */
struct target {
    int dir;
    const char *path;
    bool known; /* the rest is: found out when a file is open that may be it */
    bool is_dir;
    struct stat st;                  /* no inode: there is nothing */
    char clean[FB_CLIENT_FILE_PATH]; /* "": not to be had */
    char exact[FB_CLIENT_FILE_PATH];
};

static _Thread_local struct target *target;

static void find_out(struct target *t)
{
    int flags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW;

    t->known = true;
    if (fb_sys_fstatat(t->dir, t->path, &t->st, flags) != 0 ||
        (S_ISLNK(t->st.st_mode) && fb_sys_fstatat(t->dir, t->path, &t->st, AT_EMPTY_PATH) != 0))
        t->st.st_ino = 0;
    t->is_dir = t->st.st_ino != 0 && S_ISDIR(t->st.st_mode);
    if (!fb_pl_path(t->dir, t->path, t->clean))
        t->clean[0] = '\0';
    if (t->path[0] == '\0' || !fb_pl_exact_name(t->dir, t->path, t->exact))
        t->exact[0] = '\0';
}

static bool is_at(const struct target *t, const char *name, const char *path)
{
    size_t len = strlen(name);

    return len > 0 && strncmp(path, name, len) == 0 &&
           (path[len] == '\0' || (t->is_dir && path[len] == '/'));
}

/* By its inode, whatever name it was opened by; or by name, where the kernel says other numbers. */
static bool is_target(int fd, const struct fb_pl_file *f)
{
    const struct fb_attr *attr = &f->file.attr;
    struct target *t = target;

    (void)fd;
    if (!t->known)
        find_out(t);
    if (t->st.st_ino != 0 && t->st.st_ino == attr->ino &&
        t->st.st_dev == (attr->dev ? attr->dev : f->file.root_dev))
        return true;
    return is_at(t, t->clean, f->path) || is_at(t, t->exact, f->path);
}

/* Not inlined: the target is large. */
__attribute__((noinline)) static void make_real(int dir, const char *path)
{
    struct target t, *outer = target;

    t.dir = dir;
    t.path = path ? path : "";
    t.known = false;
    target = &t;
    fb_pl_make_real_if(is_target);
    target = outer; /* of the call that we are a signal handler in */
}

void fb_pl_before_change(int dir, const char *path)
{
    if (fb_unlikely(atomic_load_explicit(&fb_pl_active, memory_order_relaxed)) &&
        !fb_pl_elsewhere(path))
        make_real(dir, path);
}

/* ---- after ---- */

/* By all its names: as it was written, and with links followed, those on the way and the last. */
static void changed(int dir, const char *path)
{
    char clean[FB_CLIENT_FILE_PATH], exact[FB_CLIENT_FILE_PATH];
    int saved = errno;

    if (!path || fb_pl_vforked || fb_pl_elsewhere(path) || !fb_pl_on())
        return;
    if (!fb_pl_path(dir, path, clean))
        clean[0] = '\0';
    else
        fb_client_forget(&fb_pl_client, clean);
    if (fb_pl_exact_name(dir, path, exact) && strcmp(exact, clean) != 0) {
        fb_client_forget(&fb_pl_client, exact);
        memcpy(clean, exact, sizeof clean);
    }
    if (fb_pl_exact(dir, path, exact) && strcmp(exact, clean) != 0)
        fb_client_forget(&fb_pl_client, exact);
    errno = saved;
}

void fb_pl_changed_fd(int fd)
{
    char path[FB_CLIENT_FILE_PATH];
    int saved = errno;

    if (fd >= 0 && !fb_pl_vforked && fb_pl_path_of(fd, path))
        fb_client_forget(&fb_pl_client, path);
    errno = saved;
}

/* ---- directories ---- */

/* A copy of the path of a record below `dir`, to be forgotten. */
static bool is_below(const struct fb_layout *l, uint32_t id, const struct fb_client_place *place,
                     const char *dir, size_t len, char *ret_path, uint32_t *ret_next)
{
    const struct fb_layout_file *f = fb_layout_file(l, id);
    uint32_t gen = f ? atomic_load_explicit(&f->gen, memory_order_acquire) : 1;
    size_t path_len;
    bool below;

    *ret_next = 0;
    if (gen & 1)
        return false;
    path_len = f->path_len;
    below = f->source == place->source && path_len > len &&
            place->path_len + 1 + path_len < FB_CLIENT_FILE_PATH &&
            (uint64_t)id * FB_UNIT + sizeof *f + path_len <= l->h.files_bytes &&
            memcmp(f->path, dir, len) == 0 && f->path[len] == '/';
    if (below) {
        memcpy(ret_path, f->path, path_len);
        ret_path[path_len] = '\0';
    }
    *ret_next = atomic_load_explicit(&f->next, memory_order_relaxed);
    /* The record may have become another one's: then what was read means nothing. */
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&f->gen, memory_order_relaxed) != gen) {
        *ret_next = 0;
        return false;
    }
    return below;
}

/* A directory has moved, and with it every name below: all of them that the cache knows are
 * forgotten. That takes long where it knows many; directories move seldom. */
static void forget_below(const char *path)
{
    struct fb_session *s = fb_client_session(&fb_pl_client);
    const struct fb_client_place *place = s ? fb_client_place(s, path) : NULL;
    char full[FB_CLIENT_FILE_PATH];
    const char *dir;

    if (!place || strlen(path) <= place->path_len + 1u)
        return;
    dir = path + place->path_len + 1;
    memcpy(full, path, place->path_len + 1u);
    for (uint64_t i = 0; i < s->layout.h.heads; i++) {
        const struct fb_layout_head *head = fb_layout_head_no(&s->layout, i);
        uint32_t id = atomic_load_explicit(&head->id, memory_order_acquire), next;

        for (int step = 0; id != 0 && step < FB_FILE_CHAIN_MAX; step++, id = next)
            if (is_below(&s->layout, id, place, dir, strlen(dir), full + place->path_len + 1,
                         &next))
                fb_client_forget(&fb_pl_client, full);
    }
}

static void moved(int from_dir, const char *from, int to_dir, const char *to)
{
    char exact[FB_CLIENT_FILE_PATH];
    int saved = errno;
    struct stat st;

    fb_pl_dirs_moved(); /* perhaps it is one that is remembered, or above one */
    if (fb_pl_vforked || (fb_pl_elsewhere(from) && fb_pl_elsewhere(to)) || !fb_pl_on())
        return;
    changed(from_dir, from);
    changed(to_dir, to);
    fb_pl_writers_moved(NULL, NULL);
    if (fb_sys_fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)) {
        if (fb_pl_exact_name(from_dir, from, exact))
            forget_below(exact);
        if (fb_pl_exact_name(to_dir, to, exact))
            forget_below(exact);
    }
    errno = saved;
}

/* ---- calls ---- */

/* Another directory may come to a name whose directory is removed. */
#define WRAP_REMOVE(name, params, args, dir, path, is_dir) \
 FB_EXPORT int name params                                 \
 {                                                         \
  struct fb_pl_way way;                                    \
  int rc;                                                  \
                                                           \
  path = fb_pl_go(&way, dir, path);                        \
  fb_pl_before_change(dir, path);                          \
  rc = (int)fb_pl_end(&way, FB_REAL(name) args);           \
  if (is_dir)                                              \
   fb_pl_dirs_moved();                                     \
  changed(dir, path);                                      \
  return rc;                                               \
 }

#define WRAP_CHANGE(name, params, args, dir, path) WRAP_REMOVE(name, params, args, dir, path, false)

WRAP_CHANGE(unlink, (const char *p), (p), AT_FDCWD, p)
WRAP_REMOVE(unlinkat, (int d, const char *p, int f), (d, p, f), d, p, (f & AT_REMOVEDIR) != 0)
WRAP_REMOVE(remove, (const char *p), (p), AT_FDCWD, p, true)
WRAP_REMOVE(rmdir, (const char *p), (p), AT_FDCWD, p, true)
WRAP_CHANGE(truncate, (const char *p, off_t n), (p, n), AT_FDCWD, p)
WRAP_CHANGE(truncate64, (const char *p, off64_t n), (p, n), AT_FDCWD, p)
WRAP_CHANGE(chmod, (const char *p, mode_t m), (p, m), AT_FDCWD, p)
WRAP_CHANGE(chown, (const char *p, uid_t u, gid_t g), (p, u, g), AT_FDCWD, p)
WRAP_CHANGE(utime, (const char *p, const struct utimbuf *t), (p, t), AT_FDCWD, p)
WRAP_CHANGE(utimes, (const char *p, const struct timeval t[2]), (p, t), AT_FDCWD, p)
WRAP_CHANGE(lchown, (const char *p, uid_t u, gid_t g), (p, u, g), AT_FDCWD, p)
WRAP_CHANGE(lutimes, (const char *p, const struct timeval t[2]), (p, t), AT_FDCWD, p)
WRAP_CHANGE(lchmod, (const char *p, mode_t m), (p, m), AT_FDCWD, p)
WRAP_CHANGE(setxattr, (const char *p, const char *n, const void *v, size_t s, int f),
            (p, n, v, s, f), AT_FDCWD, p)
WRAP_CHANGE(lsetxattr, (const char *p, const char *n, const void *v, size_t s, int f),
            (p, n, v, s, f), AT_FDCWD, p)
WRAP_CHANGE(removexattr, (const char *p, const char *n), (p, n), AT_FDCWD, p)
WRAP_CHANGE(lremovexattr, (const char *p, const char *n), (p, n), AT_FDCWD, p)
WRAP_CHANGE(symlinkat, (const char *o, int d, const char *p), (o, d, p), d, p)
WRAP_CHANGE(symlink, (const char *o, const char *p), (o, p), AT_FDCWD, p)

/* Of a path, or of a descriptor itself. */
#define WRAP_CHANGE_AT(name, params, args, dir, path, flags) \
 FB_EXPORT int name params                                   \
 {                                                           \
  struct fb_pl_way way;                                      \
  bool of_fd = fb_pl_names_fd(path, flags);                  \
  int rc;                                                    \
                                                             \
  if (of_fd && !fb_pl_real_now(dir))                         \
   return -1;                                                \
  path = fb_pl_go(&way, dir, path);                          \
  fb_pl_before_change(dir, path);                            \
  rc = (int)fb_pl_end(&way, FB_REAL(name) args);             \
  if (of_fd)                                                 \
   fb_pl_changed_fd(dir);                                    \
  else                                                       \
   changed(dir, path);                                       \
  return rc;                                                 \
 }

WRAP_CHANGE_AT(fchmodat, (int d, const char *p, mode_t m, int f), (d, p, m, f), d, p, f)
WRAP_CHANGE_AT(fchownat, (int d, const char *p, uid_t u, gid_t g, int f), (d, p, u, g, f), d, p, f)
WRAP_CHANGE_AT(utimensat, (int d, const char *p, const struct timespec t[2], int f), (d, p, t, f),
               d, p, f)
WRAP_CHANGE_AT(futimesat, (int d, const char *p, const struct timeval t[2]), (d, p, t), d, p,
               p ? 0 : AT_EMPTY_PATH)

/* Two paths; `told` is what the cache is told, `ready` whether the call may be made. */
#define WRAP_TWO(name, params, args, from_dir, from, to_dir, to, told, ready) \
 FB_EXPORT int name params                                                    \
 {                                                                            \
  struct fb_pl_way way, other;                                                \
  int rc;                                                                     \
                                                                              \
  if (!(ready))                                                               \
   return -1;                                                                 \
  from = fb_pl_go(&way, from_dir, from);                                      \
  to = fb_pl_go(&other, to_dir, to);                                          \
  fb_pl_before_change(from_dir, from);                                        \
  fb_pl_before_change(to_dir, to);                                            \
  rc = FB_REAL(name) args;                                                    \
  if (rc < 0)                                                                 \
   fb_pl_failed(way.root ? &way : &other);                                    \
  told(from_dir, from, to_dir, to);                                           \
  return rc;                                                                  \
 }

static void linked(int from_dir, const char *from, int to_dir, const char *to)
{
    char exact[FB_CLIENT_FILE_PATH];
    int saved = errno;
    struct stat st;

    if (fb_pl_vforked || !fb_pl_on())
        return;
    if (from && from[0] == '\0')
        fb_pl_changed_fd(from_dir);
    changed(from_dir, from);
    changed(to_dir, to);
    if (atomic_load(&fb_pl_writers) > 0 && to && fb_pl_exact_name(to_dir, to, exact) &&
        fb_sys_fstatat(to_dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
        fb_pl_writers_moved(exact, &st);
    errno = saved;
}

WRAP_TWO(link, (const char *f, const char *t), (f, t), AT_FDCWD, f, AT_FDCWD, t, linked, true)
WRAP_TWO(linkat, (int fd, const char *f, int td, const char *t, int flags), (fd, f, td, t, flags),
         fd, f, td, t, linked, !fb_pl_names_fd(f, flags) || fb_pl_real_now(fd))
WRAP_TWO(rename, (const char *f, const char *t), (f, t), AT_FDCWD, f, AT_FDCWD, t, moved, true)
WRAP_TWO(renameat, (int fd, const char *f, int td, const char *t), (fd, f, td, t), fd, f, td, t,
         moved, true)
WRAP_TWO(renameat2, (int fd, const char *f, int td, const char *t, unsigned flags),
         (fd, f, td, t, flags), fd, f, td, t, moved, true)
