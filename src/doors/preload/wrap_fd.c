/*
 * Descriptors: closing, duplicating, fcntl, and everything that wants the file itself.
 */
#include <aio.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

#include "doors/preload/alone.h"
#include "doors/preload/preload_priv.h"

/* libc hides it where there is no other size. */
#if defined(__aarch64__)
# define KERNEL_LARGEFILE 0400000
#else
# define KERNEL_LARGEFILE 0100000
#endif

/* ---- close ---- */

/* What was written becomes visible, at the latest, when the kernel has closed it: a writer's
 * path is forgotten after that. */
static __attribute__((noinline)) int close_ours(int fd)
{
    struct fb_pl_file *f = NULL;
    int rc;

    if (fb_unlikely(fb_pl_closing(fd, &f)))
        return fb_fail(EBADF);
    rc = FB_REAL(close)(fd);
    if (f)
        fb_pl_put(f);
    return rc;
}

int fb_pl_close_any(int fd)
{
    return fb_likely(fb_pl_is_foreign(fd)) ? FB_REAL(close)(fd) : close_ours(fd);
}

/* All of [first, last] but what is the library's own. */
static int close_around(unsigned first, unsigned last)
{
    unsigned from = first;
    int rc = 0;

    for (unsigned fd = first; fd <= last && fd < FB_PL_FDS; fd++) {
        struct fb_pl_file *f = NULL;
        bool keep = fb_pl_closing((int)fd, &f);

        if (!keep && !f)
            continue;
        if (fd > from)
            rc |= FB_REAL(close_range)(from, fd - 1, 0);
        if (!keep)
            rc |= fb_sys_close((int)fd);
        if (f)
            fb_pl_put(f);
        from = fd + 1;
    }
    if (from <= last)
        rc |= FB_REAL(close_range)(from, last, 0);
    return rc == 0 ? 0 : -1;
}

/* With a table of its own, a thread leaves the others their descriptors, and a number means two
 * things from then on: all is real before, and nothing is cached after it. */
FB_EXPORT int close_range(unsigned first, unsigned last, int flags)
{
    if ((flags & CLOSE_RANGE_UNSHARE) && !fb_pl_vforked) {
        fb_client_turn_off(&fb_pl_client);
        fb_pl_make_real_if(fb_pl_any);
    }
    if (first > last || fb_pl_vforked || flags != 0)
        return FB_REAL(close_range)(first, last, flags);
    return close_around(first, last);
}

FB_EXPORT void closefrom(int lowest)
{
    if (lowest < 0)
        lowest = 0;
    if (fb_pl_vforked)
        FB_REAL(closefrom)(lowest);
    else
        (void)close_around((unsigned)lowest, ~0U);
}

/* ---- dup ---- */

static int settle(int fd)
{
    return fd < 0 ? fb_fail(-fd) : fd;
}

static bool is_cached(int fd)
{
    struct fb_pl_file *f = fb_pl_is_ours(fd) ? fb_pl_get(fd) : NULL;
    bool is = f && f->kind == FB_PL_CACHED;

    if (f)
        fb_pl_put(f);
    return is;
}

/* A duplicate of a real one, at a number that may have stood for something. Who walks a tree keeps
 * directories so. */
static int passed(int from, int fd)
{
    if (fd >= 0 && fb_unlikely(fb_pl_slot(from) == FB_PL_DIRECTORY) && !fb_pl_vforked)
        fb_pl_mark_dir(fd);
    else
        fb_pl_fresh(fd);
    return fd;
}

/* Writers are duplicated as well: the path is written to until the last of them is closed. */
FB_EXPORT int dup(int fd)
{
    return fb_unlikely(fb_pl_is_ours(fd)) ? settle(fb_pl_dup(fd, 0, -1, false))
                                          : passed(fd, FB_REAL(dup)(fd));
}

FB_EXPORT int dup2(int fd, int to)
{
    if (fd == to)
        return FB_REAL(dup2)(fd, to);
    fb_pl_overwriting(to);
    if (fb_unlikely(fb_pl_is_ours(fd)))
        return settle(fb_pl_dup(fd, -1, to, false));
    return passed(fd, fb_unlikely(fb_pl_is_ours(to)) ? settle(fb_pl_dup_onto(fd, to, 0, 0))
                                                     : FB_REAL(dup2)(fd, to));
}

FB_EXPORT int dup3(int fd, int to, int flags)
{
    if (fd == to || (flags & ~O_CLOEXEC))
        return FB_REAL(dup3)(fd, to, flags);
    fb_pl_overwriting(to);
    if (fb_unlikely(fb_pl_is_ours(fd)))
        return settle(fb_pl_dup(fd, -1, to, (flags & O_CLOEXEC) != 0));
    return passed(fd, fb_unlikely(fb_pl_is_ours(to)) ? settle(fb_pl_dup_onto(fd, to, flags, 0))
                                                     : FB_REAL(dup3)(fd, to, flags));
}

/* ---- fcntl ---- */

/* What is known of a cached file without the file itself; false: the kernel is to be asked. */
static bool answer(struct fb_pl_file *f, int fd, int command, void *arg, int *ret)
{
    int value = (int)(intptr_t)arg;

    switch (command) {
    case F_GETFD: /* of the number, not of the file */
    case F_SETFD:
        *ret = settle(fb_sys_fcntl(fd, command, value));
        return true;
    case F_GETFL:
        *ret = (f->flags & ~O_NOCTTY) | KERNEL_LARGEFILE;
        return true;
    case F_SETFL:
        if ((value & (O_APPEND | O_ASYNC | O_DIRECT | O_NOATIME)) != (f->flags & O_NOATIME))
            return false;
        f->flags = (f->flags & ~O_NONBLOCK) | (value & O_NONBLOCK);
        *ret = 0;
        return true;
    default: /* locks, leases, owners ... */
        return false;
    }
}

/* Nothing is held over the call itself: with the last reference a descriptor is closed, and with
 * any descriptor of a file the locks on it go. */
static int control_real(int fd, int command, void *arg, int (*real)(int, int, ...))
{
    int rc = command == F_SETLK || command == F_SETLKW ? fb_pl_before_lock(fd)
             : fb_pl_is_ours(fd)                       ? fb_pl_make_real(fd)
                                                       : 0;

    return rc < 0 ? fb_fail(-rc) : real(fd, command, arg);
}

static int control(int fd, int command, void *arg, int (*real)(int, int, ...))
{
    struct fb_pl_file *f = fb_pl_is_ours(fd) ? fb_pl_get(fd) : NULL;
    bool done = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
    int rc = -1;

    if (!done)
        done = f && f->kind == FB_PL_CACHED && answer(f, fd, command, arg, &rc);
    else if (f && (int)(intptr_t)arg >= 0)
        rc = settle(fb_pl_dup(fd, (int)(intptr_t)arg, -1, command == F_DUPFD_CLOEXEC));
    else
        rc = passed(fd, real(fd, command, arg));
    if (f)
        fb_pl_put(f);
    return done ? rc : control_real(fd, command, arg, real);
}

#define WRAP_FCNTL(name)                           \
 FB_EXPORT int name(int fd, int command, ...)      \
 {                                                 \
  va_list args;                                    \
  void *arg;                                       \
                                                   \
  va_start(args, command);                         \
  arg = va_arg(args, void *);                      \
  va_end(args);                                    \
  return control(fd, command, arg, FB_REAL(name)); \
 }

WRAP_FCNTL(fcntl)
WRAP_FCNTL(fcntl64)

/* ---- what needs nothing ---- */

FB_EXPORT int isatty(int fd)
{
    if (!is_cached(fd))
        return FB_REAL(isatty)(fd);
    errno = ENOTTY;
    return 0;
}

FB_EXPORT int tcgetattr(int fd, struct termios *ret)
{
    return is_cached(fd) ? fb_fail(ENOTTY) : FB_REAL(tcgetattr)(fd, ret);
}

/* Not open for writing. */
#define WRAP_FTRUNCATE(name, type)                                  \
 FB_EXPORT int name(int fd, type size)                              \
 {                                                                  \
  return is_cached(fd) ? fb_fail(EINVAL) : FB_REAL(name)(fd, size); \
 }

WRAP_FTRUNCATE(ftruncate, off_t)
WRAP_FTRUNCATE(ftruncate64, off64_t)

#define WRAP_ADVICE(name)                                          \
 FB_EXPORT int name(int fd, off_t at, off_t bytes, int advice)     \
 {                                                                 \
  return is_cached(fd) ? 0 : FB_REAL(name)(fd, at, bytes, advice); \
 }

WRAP_ADVICE(posix_fadvise)
WRAP_ADVICE(posix_fadvise64)

FB_EXPORT ssize_t readahead(int fd, off64_t at, size_t bytes)
{
    return is_cached(fd) ? 0 : FB_REAL(readahead)(fd, at, bytes);
}

/* A lock is taken on the file itself, which stays open beside the cached one: HDF5 locks what it
 * then reads. */
FB_EXPORT int flock(int fd, int operation)
{
    struct fb_pl_file *f = is_cached(fd) ? fb_pl_get(fd) : NULL;
    int shadow, rc;

    if (!f)
        return FB_REAL(flock)(fd, operation);
    shadow = fb_pl_shadow(f);
    rc = shadow < 0 ? fb_fail(-shadow) : FB_REAL(flock)(shadow, operation);
    fb_pl_put(f);
    return rc;
}

/* Questions that the file itself answers: it is opened beside the cached one. */
#define WRAP_BESIDE(type, name, params, args)                   \
 FB_EXPORT type name params                                     \
 {                                                              \
  struct fb_pl_file *f = is_cached(fd) ? fb_pl_get(fd) : NULL;  \
  int shadow = f ? fb_pl_shadow(f) : -1;                        \
  type rc;                                                      \
                                                                \
  fd = shadow >= 0 ? shadow : fd;                               \
  rc = f && shadow < 0 ? fb_fail(-shadow) : FB_REAL(name) args; \
  if (f)                                                        \
   fb_pl_put(f);                                                \
  return rc;                                                    \
 }

WRAP_BESIDE(int, fstatfs, (int fd, struct statfs *s), (fd, s))
WRAP_BESIDE(int, fstatfs64, (int fd, struct statfs64 *s), (fd, s))
WRAP_BESIDE(int, fstatvfs, (int fd, struct statvfs *s), (fd, s))
WRAP_BESIDE(int, fstatvfs64, (int fd, struct statvfs64 *s), (fd, s))
WRAP_BESIDE(ssize_t, fgetxattr, (int fd, const char *n, void *v, size_t s), (fd, n, v, s))
WRAP_BESIDE(ssize_t, flistxattr, (int fd, char *list, size_t s), (fd, list, s))
WRAP_BESIDE(long, fpathconf, (int fd, int name), (fd, name))

/* ---- what needs the file itself ---- */

#define WRAP_REAL(type, name, params, args)            \
 FB_EXPORT type name params                            \
 {                                                     \
  return fb_pl_real_now(fd) ? FB_REAL(name) args : -1; \
 }

WRAP_REAL(int, fsync, (int fd), (fd))
WRAP_REAL(int, fdatasync, (int fd), (fd))
WRAP_REAL(int, syncfs, (int fd), (fd))

/* The same, and whoever opens the path next is to see it: no writer's close() tells of it. */
#define WRAP_ATTRIBUTE(name, params, args) \
 FB_EXPORT int name params                 \
 {                                         \
  int rc;                                  \
                                           \
  if (!fb_pl_real_now(fd))                 \
   return -1;                              \
  fb_pl_before_change(fd, NULL);           \
  rc = FB_REAL(name) args;                 \
  if (rc == 0)                             \
   fb_pl_changed_fd(fd);                   \
  return rc;                               \
 }

WRAP_ATTRIBUTE(fchmod, (int fd, mode_t mode), (fd, mode))
WRAP_ATTRIBUTE(fchown, (int fd, uid_t uid, gid_t gid), (fd, uid, gid))
WRAP_ATTRIBUTE(futimens, (int fd, const struct timespec t[2]), (fd, t))
WRAP_ATTRIBUTE(futimes, (int fd, const struct timeval t[2]), (fd, t))
WRAP_ATTRIBUTE(fsetxattr, (int fd, const char *n, const void *v, size_t s, int flags),
               (fd, n, v, s, flags))
WRAP_ATTRIBUTE(fremovexattr, (int fd, const char *n), (fd, n))

#define WRAP_LOCKF(name, type)                                      \
 FB_EXPORT int name(int fd, int command, type bytes)                \
 {                                                                  \
  int rc = fb_pl_before_lock(fd);                                   \
                                                                    \
  return rc < 0 ? fb_fail(-rc) : FB_REAL(name)(fd, command, bytes); \
 }

WRAP_LOCKF(lockf, off_t)
WRAP_LOCKF(lockf64, off64_t)

FB_EXPORT int ioctl(int fd, unsigned long request, ...)
{
    va_list args;
    void *arg;

    va_start(args, request);
    arg = va_arg(args, void *);
    va_end(args);
    /* Python asks every file whether it is a terminal. */
    if (request == TCGETS && is_cached(fd))
        return fb_fail(ENOTTY);
    if ((request == FIOCLEX || request == FIONCLEX) && is_cached(fd))
        return settle(fb_sys_fcntl(fd, F_SETFD, request == FIOCLEX ? FD_CLOEXEC : 0));
    /* cp tries this first, and knows what to do when it cannot be. */
    if (request == FICLONE && is_cached((int)(intptr_t)arg))
        return fb_fail(EOPNOTSUPP);
    return fb_pl_real_now(fd) ? FB_REAL(ioctl)(fd, request, arg) : -1;
}

/* ---- waiting ---- */

FB_EXPORT int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    for (nfds_t i = 0; i < count; i++)
        (void)fb_pl_real_now(fds[i].fd);
    return FB_REAL(poll)(fds, count, timeout);
}

/* With _FORTIFY_SOURCE. An array that is too short libc treats as it always does. */
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                const sigset_t *mask, size_t room);

FB_EXPORT int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room)
{
    return room / sizeof *fds < count ? FB_REAL(__poll_chk)(fds, count, timeout, room)
                                      : poll(fds, count, timeout);
}

FB_EXPORT int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                    const sigset_t *mask)
{
    for (nfds_t i = 0; i < count; i++)
        (void)fb_pl_real_now(fds[i].fd);
    return FB_REAL(ppoll)(fds, count, timeout, mask);
}

FB_EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                          const sigset_t *mask, size_t room)
{
    return room / sizeof *fds < count ? FB_REAL(__ppoll_chk)(fds, count, timeout, mask, room)
                                      : ppoll(fds, count, timeout, mask);
}

static void real_set(int count, const fd_set *set)
{
    for (int fd = 0; set && fd < count && fd < FD_SETSIZE; fd++)
        if (fb_unlikely(fb_pl_is_ours(fd)) && FD_ISSET(fd, set))
            (void)fb_pl_real_now(fd);
}

FB_EXPORT int select(int count, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
    real_set(count, in);
    real_set(count, out);
    return FB_REAL(select)(count, in, out, except, timeout);
}

FB_EXPORT int pselect(int count, fd_set *in, fd_set *out, fd_set *except,
                      const struct timespec *timeout, const sigset_t *mask)
{
    real_set(count, in);
    real_set(count, out);
    return FB_REAL(pselect)(count, in, out, except, timeout, mask);
}

FB_EXPORT int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    return fb_pl_real_now(fd) ? FB_REAL(epoll_ctl)(epoll, op, fd, event) : -1;
}

/* ---- by other threads of libc ---- */

#define WRAP_AIO(name, type)                                      \
 FB_EXPORT int name(type *cb)                                     \
 {                                                                \
  return fb_pl_real_now(cb->aio_fildes) ? FB_REAL(name)(cb) : -1; \
 }

WRAP_AIO(aio_read, struct aiocb)
WRAP_AIO(aio_read64, struct aiocb64)

#define WRAP_LIO(name, type)                                                                  \
 FB_EXPORT int name(int mode, type *const list[restrict], int n, struct sigevent *restrict e) \
 {                                                                                            \
  for (int i = 0; i < n; i++)                                                                 \
   if (list[i])                                                                               \
    (void)fb_pl_real_now(list[i]->aio_fildes);                                                \
  return FB_REAL(name)(mode, list, n, e);                                                     \
 }

WRAP_LIO(lio_listio, struct aiocb)
WRAP_LIO(lio_listio64, struct aiocb64)

/* ---- to another process ---- */

static void real_in_message(const struct msghdr *msg)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR((struct msghdr *)msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            (void)fb_pl_real_now(fd);
        }
    }
}

FB_EXPORT int sendmmsg(int socket, struct mmsghdr *msgs, unsigned count, int flags)
{
    for (unsigned i = 0; i < count; i++)
        if (fb_unlikely(msgs[i].msg_hdr.msg_controllen > 0))
            real_in_message(&msgs[i].msg_hdr);
    return FB_REAL(sendmmsg)(socket, msgs, count, flags);
}

FB_EXPORT ssize_t sendmsg(int socket, const struct msghdr *msg, int flags)
{
    if (fb_unlikely(msg && msg->msg_controllen > 0))
        real_in_message(msg);
    return FB_REAL(sendmsg)(socket, msg, flags);
}
