/*
 * What takes a path and is the kernel's to do: below a virtual root, at the private mount.
 */
#include <dirent.h>
#include <sys/inotify.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "doors/preload/preload_priv.h"

#define WRAP_PATH(type, name, params, args, dir, path)    \
 FB_EXPORT type name params                               \
 {                                                        \
  struct fb_pl_way way;                                   \
                                                          \
  path = fb_pl_go(&way, dir, path);                       \
  return (type)fb_pl_end(&way, (long)FB_REAL(name) args); \
 }

/* ---- looking ---- */

WRAP_PATH(int, access, (const char *p, int mode), (p, mode), AT_FDCWD, p)
WRAP_PATH(int, eaccess, (const char *p, int mode), (p, mode), AT_FDCWD, p)
WRAP_PATH(int, euidaccess, (const char *p, int mode), (p, mode), AT_FDCWD, p)
WRAP_PATH(int, statfs, (const char *p, struct statfs *s), (p, s), AT_FDCWD, p)
WRAP_PATH(int, statfs64, (const char *p, struct statfs64 *s), (p, s), AT_FDCWD, p)
WRAP_PATH(int, statvfs, (const char *restrict p, struct statvfs *restrict s), (p, s), AT_FDCWD, p)
WRAP_PATH(int, statvfs64, (const char *restrict p, struct statvfs64 *restrict s), (p, s), AT_FDCWD,
          p)
WRAP_PATH(long, pathconf, (const char *p, int name), (p, name), AT_FDCWD, p)
WRAP_PATH(ssize_t, getxattr, (const char *p, const char *n, void *v, size_t s), (p, n, v, s),
          AT_FDCWD, p)
WRAP_PATH(ssize_t, lgetxattr, (const char *p, const char *n, void *v, size_t s), (p, n, v, s),
          AT_FDCWD, p)
WRAP_PATH(ssize_t, listxattr, (const char *p, char *list, size_t s), (p, list, s), AT_FDCWD, p)
WRAP_PATH(ssize_t, llistxattr, (const char *p, char *list, size_t s), (p, list, s), AT_FDCWD, p)
WRAP_PATH(int, inotify_add_watch, (int fd, const char *p, uint32_t mask), (fd, p, mask), AT_FDCWD,
          p)

/* Of a path, or of a descriptor itself. */
#define WRAP_PATH_AT(name, params, args, dir, path, flags) \
 FB_EXPORT int name params                                 \
 {                                                         \
  struct fb_pl_way way;                                    \
                                                           \
  if (fb_pl_names_fd(path, flags) && !fb_pl_real_now(dir)) \
   return -1;                                              \
  path = fb_pl_go(&way, dir, path);                        \
  return (int)fb_pl_end(&way, FB_REAL(name) args);         \
 }

WRAP_PATH_AT(faccessat, (int d, const char *p, int mode, int flags), (d, p, mode, flags), d, p,
             flags)
WRAP_PATH_AT(name_to_handle_at,
             (int d, const char *p, struct file_handle *h, int *mount, int flags),
             (d, p, h, mount, flags), d, p, flags)

typedef int filter(const struct dirent *);
typedef int order(const struct dirent **, const struct dirent **);
typedef int filter64(const struct dirent64 *);
typedef int order64(const struct dirent64 **, const struct dirent64 **);

WRAP_PATH(int, scandir, (const char *restrict p, struct dirent ***restrict l, filter *f, order *o),
          (p, l, f, o), AT_FDCWD, p)
WRAP_PATH(int, scandir64,
          (const char *restrict p, struct dirent64 ***restrict l, filter64 *f, order64 *o),
          (p, l, f, o), AT_FDCWD, p)
WRAP_PATH(int, scandirat,
          (int d, const char *restrict p, struct dirent ***restrict l, filter *f, order *o),
          (d, p, l, f, o), d, p)
WRAP_PATH(int, scandirat64,
          (int d, const char *restrict p, struct dirent64 ***restrict l, filter64 *f, order64 *o),
          (d, p, l, f, o), d, p)

/* ---- changing ---- */

WRAP_PATH(int, mkdirat, (int d, const char *p, mode_t mode), (d, p, mode), d, p)

/* A sanitizer makes the directory of its reports before it is ready for us to be looked at. */
FB_EXPORT __attribute__((no_sanitize("address", "thread", "undefined"))) int mkdir(const char *path,
                                                                                   mode_t mode)
{
    long rc;

    if (fb_pl_virtual)
        return mkdirat(AT_FDCWD, path, mode);
    rc = fb_sys(SYS_mkdirat, AT_FDCWD, path, mode, 0);
    if (rc < 0)
        errno = (int)-rc;
    return rc < 0 ? -1 : 0;
}

WRAP_PATH(int, mkfifo, (const char *p, mode_t mode), (p, mode), AT_FDCWD, p)
WRAP_PATH(int, mkfifoat, (int d, const char *p, mode_t mode), (d, p, mode), d, p)
WRAP_PATH(int, mknod, (const char *p, mode_t mode, dev_t dev), (p, mode, dev), AT_FDCWD, p)
WRAP_PATH(int, mknodat, (int d, const char *p, mode_t mode, dev_t dev), (d, p, mode, dev), d, p)
