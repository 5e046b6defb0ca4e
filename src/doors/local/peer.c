/*
 * Who is at the other end of a connection: what the kernel says of the process that made it.
 *
 * Whoever has the shared memory sees every byte in it. So it is handed only to a process that could
 * have opened all the files itself: of the daemon's user and groups and, when the daemon reads
 * whatever the permissions say, with the same right over the same users.
 *
 * A process is held by a pidfd: its number may be another's by the time it is looked at.
 */
#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/mem.h"
#include "doors/local/local_priv.h"

#define GROUPS_MAX     1024 /* as many as clients compare */
#define PROC_PATH_SIZE 40

#ifndef SO_PEERPIDFD
# define SO_PEERPIDFD 77 /* since Linux 6.5 */
#endif

int fb_local_peer_pidfd(const struct fb_local_conn *conn)
{
    socklen_t len = sizeof(int);
    int fd;

    if (getsockopt(conn->fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0)
        return fd;
    return conn->pid > 0 ? (int)syscall(SYS_pidfd_open, conn->pid, 0) : -1;
}

bool fb_local_peer_gone(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};

    return poll(&p, 1, 0) > 0;
}

/* The supplementary groups that it had when it connected. */
static bool same_groups(const struct fb_local_conn *conn)
{
    gid_t groups[GROUPS_MAX];
    socklen_t len = sizeof groups;

    return getsockopt(conn->fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len) == 0 &&
           fb_client_groups_hash(groups, (int)(len / sizeof *groups)) == conn->local->groups_hash;
}

static ino_t user_namespace(uint32_t pid)
{
    char path[PROC_PATH_SIZE];
    struct stat st;

    snprintf(path, sizeof path, "/proc/%u/ns/user", pid);
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

/* Capabilities are those of a namespace: in one of its own every user has them all. */
static bool reads_anything(uint32_t pid)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3,
                                            .pid = (int)pid};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {{0}};
    ino_t own = user_namespace((uint32_t)getpid());

    return syscall(SYS_capget, &head, caps) == 0 &&
           (caps[0].effective & (1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH)) != 0 &&
           own != 0 && user_namespace(pid) == own;
}

bool fb_local_peer_fits(const struct fb_local_conn *conn)
{
    FB_AUTO_CLOSE int pidfd = -1;

    if (conn->gid != getegid() || !same_groups(conn))
        return false;
    if (!conn->local->reads_anything)
        return true;
    pidfd = fb_local_peer_pidfd(conn);
    /* It is still there, so the number was its own all the time. */
    return pidfd >= 0 && reads_anything(conn->pid) && !fb_local_peer_gone(pidfd);
}
