/*
 * What else gives out descriptors. A number that was closed past us (by a raw system call, inside
 * libc) may still stand for a cached file here when it comes back as a socket or a pipe: whoever
 * makes a descriptor clears its slot.
 */
#include <mqueue.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "doors/preload/preload_priv.h"

static int fresh(int fd)
{
    if (fb_unlikely(atomic_load_explicit(&fb_pl_active, memory_order_relaxed)))
        fb_pl_fresh(fd);
    return fd;
}

static int fresh_pair(int rc, const int fds[2])
{
    if (rc == 0) {
        (void)fresh(fds[0]);
        (void)fresh(fds[1]);
    }
    return rc;
}

#define WRAP_MAKER(name, params, args) \
 FB_EXPORT int name params             \
 {                                     \
  return fresh(FB_REAL(name) args);    \
 }

WRAP_MAKER(socket, (int domain, int type, int protocol), (domain, type, protocol))
WRAP_MAKER(accept, (int fd, __SOCKADDR_ARG to, socklen_t *restrict len), (fd, to, len))
WRAP_MAKER(accept4, (int fd, __SOCKADDR_ARG to, socklen_t *restrict len, int flags),
           (fd, to, len, flags))
WRAP_MAKER(eventfd, (unsigned count, int flags), (count, flags))
WRAP_MAKER(epoll_create, (int size), (size))
WRAP_MAKER(epoll_create1, (int flags), (flags))
WRAP_MAKER(timerfd_create, (clockid_t clock, int flags), (clock, flags))
WRAP_MAKER(signalfd, (int fd, const sigset_t *mask, int flags), (fd, mask, flags))
WRAP_MAKER(inotify_init, (void), ())
WRAP_MAKER(inotify_init1, (int flags), (flags))
WRAP_MAKER(fanotify_init, (unsigned flags, unsigned event_flags), (flags, event_flags))
WRAP_MAKER(memfd_create, (const char *name, unsigned flags), (name, flags))
WRAP_MAKER(shm_open, (const char *name, int flags, mode_t mode), (name, flags, mode))
WRAP_MAKER(posix_openpt, (int flags), (flags))
WRAP_MAKER(open_by_handle_at, (int mount, struct file_handle *handle, int flags),
           (mount, handle, flags))

FB_EXPORT int pipe(int fds[2])
{
    return fresh_pair(FB_REAL(pipe)(fds), fds);
}

FB_EXPORT int pipe2(int fds[2], int flags)
{
    return fresh_pair(FB_REAL(pipe2)(fds, flags), fds);
}

FB_EXPORT int socketpair(int domain, int type, int protocol, int fds[2])
{
    return fresh_pair(FB_REAL(socketpair)(domain, type, protocol, fds), fds);
}

FB_EXPORT FILE *tmpfile(void)
{
    FILE *file = FB_REAL(tmpfile)();

    if (file)
        (void)fresh(FB_REAL(fileno)(file));
    return file;
}

/* ---- from another process ---- */

static void fresh_in_message(struct msghdr *msg)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            (void)fresh(fd);
        }
    }
}

FB_EXPORT ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    ssize_t n = FB_REAL(recvmsg)(fd, msg, flags);

    if (n >= 0 && fb_unlikely(msg->msg_controllen > 0))
        fresh_in_message(msg);
    return n;
}
