/*
 * Changes that this program makes below a root, past the cache: it must see them at once, however
 * long the metadata TTL is. libc does the work; then the daemon is told to ask the source next time.
 */
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#include "doors/preload/preload_priv.h"

static void changed(int dir, const char *path)
{
    char clean[FB_CLIENT_FILE_PATH];
    int saved = errno;

    if (path && !fb_pl_vforked && fb_pl_path(dir, path, clean))
        fb_client_forget(&fb_pl_client, clean);
    errno = saved;
}

#define WRAP_CHANGE(name, params, args, dir, path) \
 FB_EXPORT int name params                         \
 {                                                 \
  int rc = FB_REAL(name) args;                     \
                                                   \
  changed(dir, path);                              \
  return rc;                                       \
 }

WRAP_CHANGE(unlink, (const char *p), (p), AT_FDCWD, p)
WRAP_CHANGE(unlinkat, (int d, const char *p, int f), (d, p, f), d, p)
WRAP_CHANGE(remove, (const char *p), (p), AT_FDCWD, p)
WRAP_CHANGE(truncate, (const char *p, off_t n), (p, n), AT_FDCWD, p)
WRAP_CHANGE(truncate64, (const char *p, off64_t n), (p, n), AT_FDCWD, p)
WRAP_CHANGE(chmod, (const char *p, mode_t m), (p, m), AT_FDCWD, p)
WRAP_CHANGE(fchmodat, (int d, const char *p, mode_t m, int f), (d, p, m, f), d, p)
WRAP_CHANGE(chown, (const char *p, uid_t u, gid_t g), (p, u, g), AT_FDCWD, p)
WRAP_CHANGE(fchownat, (int d, const char *p, uid_t u, gid_t g, int f), (d, p, u, g, f), d, p)
WRAP_CHANGE(utime, (const char *p, const struct utimbuf *t), (p, t), AT_FDCWD, p)
WRAP_CHANGE(utimes, (const char *p, const struct timeval t[2]), (p, t), AT_FDCWD, p)
WRAP_CHANGE(utimensat, (int d, const char *p, const struct timespec t[2], int f), (d, p, t, f), d,
            p)
WRAP_CHANGE(link, (const char *o, const char *p), (o, p), AT_FDCWD, o)
WRAP_CHANGE(symlink, (const char *o, const char *p), (o, p), AT_FDCWD, p)

FB_EXPORT int rename(const char *from, const char *to)
{
    int rc = FB_REAL(rename)(from, to);

    changed(AT_FDCWD, from);
    changed(AT_FDCWD, to);
    return rc;
}

FB_EXPORT int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    int rc = FB_REAL(renameat)(from_dir, from, to_dir, to);

    changed(from_dir, from);
    changed(to_dir, to);
    return rc;
}

FB_EXPORT int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    int rc = FB_REAL(renameat2)(from_dir, from, to_dir, to, flags);

    changed(from_dir, from);
    changed(to_dir, to);
    return rc;
}
