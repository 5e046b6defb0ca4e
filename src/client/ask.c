/*
 * Questions to the daemon. A process has several connections, each used by one thread for one
 * question at a time; they are claimed without a lock, so that a signal handler that asks while its
 * thread was asking simply takes another.
 *
 *     FREE ── connect ──► BUSY ── answered ──► IDLE ── claim ──► BUSY ...
 *                           └── failed ──► FREE
 *
 * Our descriptors live in the program's table. A program that closes what it does not know may
 * close them, and the number may come back as something else: before each use the socket's inode is
 * compared.
 */
#include <string.h>
#include <sys/un.h>

#include "base/hash.h"
#include "client/client_priv.h"

#define POLL_US         100000 /* a receive returns so often to look for signs of life */
#define CLAIM_TRIES     64
#define BUSY_STEP_NS    1000000L
#define BUSY_STEPS      500
#define ANCHOR_RETRY_NS 1000000000LL

enum {
    FREE,
    BUSY,
    IDLE
};

/* ---- sockets ---- */

/* A daemon serves its own user only. Where its directory was another user may make one of the same
 * name and listen there: who that is the kernel says, not the welcome. */
static bool is_our_user(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;

    return fb_sys6(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, (long)&peer, (long)&len, 0) == 0 &&
           peer.uid == (uid_t)fb_sys(SYS_geteuid, 0, 0, 0, 0);
}

int fb_client_connect(struct fb_client *client)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_usec = POLL_US};
    int fd = (int)fb_sys(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, 0);

    if (fd < 0)
        return fd;
    fd = fb_sys_lift(fd);
    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): there is always a client */
    memcpy(address.sun_path, client->socket, sizeof client->socket);
    (void)fb_sys6(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, (long)&limit, sizeof limit, 0);
    (void)fb_sys6(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, (long)&limit, sizeof limit, 0);
    /* A full backlog is a daemon that does not accept: as good as none. */
    if (fb_sys(SYS_connect, fd, &address, sizeof address, 0) < 0) {
        fb_sys_close(fd);
        return -ECONNREFUSED;
    }
    if (!is_our_user(fd)) {
        fb_sys_close(fd);
        return -EACCES;
    }
    return fd;
}

int fb_client_send(int fd, struct fb_client_request *request, const char *path)
{
    struct iovec iov[2];
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    size_t bytes;

    request->magic = FB_CLIENT_MAGIC;
    request->path_len = (uint32_t)strlen(path);
    bytes = sizeof *request + request->path_len;
    iov[0] = (struct iovec){.iov_base = request, .iov_len = sizeof *request};
    iov[1] = (struct iovec){.iov_base = (void *)(uintptr_t)path, .iov_len = request->path_len};
    for (;;) {
        int64_t n = fb_sys(SYS_sendmsg, fd, &msg, MSG_NOSIGNAL, 0);

        if (n == -EINTR)
            continue;
        /* So little fits into any socket's buffer at once, or the daemon does not read. */
        return n == (int64_t)bytes ? 0 : -EPIPE;
    }
}

static void take_fds(struct msghdr *msg, int *fds, unsigned *fd_count)
{
    unsigned room = *fd_count;

    *fd_count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
            if (*fd_count < room)
                fds[(*fd_count)++] = fd;
            else
                fb_sys_close(fd);
        }
    }
}

int fb_client_receive(const struct fb_session *session, int fd, void *ret_data, size_t bytes,
                      int *fds, unsigned *fd_count)
{
    int64_t until_ns = fb_client_now_ns() + FB_CLIENT_BEAT_LATE_NS;
    size_t got = 0;

    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FB_CLIENT_FDS_MAX * sizeof(int))];
    } control;

    while (got < bytes) {
        struct iovec iov = {.iov_base = (uint8_t *)ret_data + got, .iov_len = bytes - got};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        bool want_fds = fds && got == 0;
        int64_t n;

        if (want_fds) {
            msg.msg_control = control.bytes;
            msg.msg_controllen = sizeof control.bytes;
        }
        n = fb_sys(SYS_recvmsg, fd, &msg, MSG_CMSG_CLOEXEC, 0);
        if (n == -EINTR || n == -EAGAIN) {
            int64_t now_ns = fb_client_now_ns();

            if (session ? !fb_client_alive(session, now_ns) : now_ns > until_ns)
                return -ETIMEDOUT;
            continue;
        }
        if (want_fds && n > 0)
            take_fds(&msg, fds, fd_count);
        if (n <= 0) {
            if (want_fds)
                *fd_count = 0;
            return -EPIPE;
        }
        got += (size_t)n;
    }
    return 0;
}

/* ---- the connections of a process ---- */

/* A number of ours that the program has taken for something else is the program's. */
static bool is_still(int fd, uint64_t mark)
{
    return mark != 0 && fb_client_mark_of(fd) == mark;
}

static bool is_of_medium(const struct fb_client_medium *medium, int fd)
{
    for (uint32_t i = 0; i < medium->count; i++)
        if (atomic_load_explicit(&medium->fds[i], memory_order_relaxed) == fd)
            return is_still(fd, medium->marks[i]);
    return false;
}

/* Sessions that may have descriptors: one may just be opened, and is not counted yet. */
static uint32_t session_end(struct fb_client *client)
{
    return (uint32_t)fb_min_u64(atomic_load(&client->session_count) + 1ull, FB_CLIENT_SESSIONS);
}

/* Apart, so that a close() of what is not ours needs no stack for it. */
__attribute__((noinline)) static bool owns(struct fb_client *client, int fd)
{
    /* Acquire: its mark was there before it. */
    for (int i = 0; i < FB_CLIENT_CONNECTIONS; i++)
        if (atomic_load_explicit(&client->connections[i].fd, memory_order_acquire) == fd)
            return is_still(fd, client->connections[i].mark);
    for (uint32_t i = 0; i < session_end(client); i++) {
        const struct fb_session *s = &client->sessions[i];

        if (atomic_load_explicit(&s->anchor.fd, memory_order_acquire) == fd)
            return is_still(fd, s->anchor.mark);
        if (is_of_medium(&s->medium, fd))
            return true;
    }
    return false;
}

bool fb_client_owns(struct fb_client *client, int fd)
{
    uint32_t low = atomic_load_explicit(&client->low_fd, memory_order_relaxed);

    return fb_unlikely(low != 0 && (uint32_t)fd >= low) && owns(client, fd);
}

uint64_t fb_client_mark_of(int fd)
{
    struct stat st;

    if (fb_sys_fstat(fd, &st) != 0)
        return 0;
    return fb_mix64(st.st_ino ^ (uint64_t)st.st_dev << 40) | 1;
}

void fb_client_note_fd(struct fb_client *client, int fd)
{
    uint32_t low = atomic_load(&client->low_fd);

    while ((low == 0 || (uint32_t)fd < low) &&
           !atomic_compare_exchange_weak(&client->low_fd, &low, (uint32_t)fd))
        continue;
}

/* A number that has become something else is not ours to close. */
void fb_client_close_ours(int fd, uint64_t mark)
{
    if (fd >= 0 && is_still(fd, mark))
        fb_sys_close(fd);
}

/* The connection is ours (BUSY). */
static void adopt(struct fb_client *client, struct fb_client_connection *c, int fd)
{
    c->mark = fb_client_mark_of(fd);
    atomic_store(&c->fd, fd);
    fb_client_note_fd(client, fd);
}

static struct fb_client_connection *claim(struct fb_client *client, int state)
{
    for (int i = 0; i < FB_CLIENT_CONNECTIONS; i++) {
        struct fb_client_connection *c = &client->connections[i];
        int was = state;

        if (atomic_load_explicit(&c->state, memory_order_relaxed) == state &&
            atomic_compare_exchange_strong(&c->state, &was, BUSY))
            return c;
    }
    return NULL;
}

static void abandon(struct fb_client_connection *c)
{
    fb_client_close_ours(atomic_exchange(&c->fd, -1), c->mark);
    atomic_store(&c->state, FREE);
}

/* ---- the area's connection ---- */

void fb_client_set_anchor(struct fb_client *client, struct fb_session *session, int fd)
{
    session->anchor.mark = fb_client_mark_of(fd);
    session->anchor.asked = false;
    session->anchor.got = 0;
    session->anchor.retry_ns = 0;
    atomic_store(&session->anchor.fd, fd);
    fb_client_note_fd(client, fd);
}

void fb_client_cut_anchor(struct fb_session *session)
{
    fb_client_close_ours(atomic_exchange(&session->anchor.fd, -1), session->anchor.mark);
}

void fb_client_disconnect(struct fb_client *client)
{
    for (int i = 0; i < FB_CLIENT_CONNECTIONS; i++)
        abandon(&client->connections[i]);
    for (uint32_t i = 0; i < session_end(client); i++)
        fb_client_cut_anchor(&client->sessions[i]);
}

/* In a forked child, or when there was none: an area of its own. The old one stays mapped: others
 * may just be writing to it. True: it has one. */
static bool take_area(struct fb_session *s, const struct fb_client_welcome *w, const int *fds,
                      unsigned fd_count)
{
    unsigned at = 1u + (w->dram_bytes > 0);
    void *area;

    if (w->area_bytes != fb_client_area_bytes() || fd_count != at + 1 + w->medium_files)
        return false;
    area = fb_sys_mmap(NULL, w->area_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[at], 0);
    if (area == MAP_FAILED)
        return false;
    atomic_store(&s->area, area);
    return true;
}

/* Says hello on a new connection. 1: it is the session's anchor now, not one to ask on. */
static int greet(struct fb_client *client, struct fb_session *s, int fd, bool memory)
{
    struct fb_client_welcome welcome;
    char ignored[4096];
    int fds[FB_CLIENT_FDS_MAX];
    unsigned fd_count = FB_ARRAY_SIZE(fds);
    size_t rest = 0;
    int rc = fb_client_hello(s, fd, memory, &welcome, &rest, fds, &fd_count);

    while (rc == 0 && rest > 0) {
        size_t part = fb_min_u64(rest, sizeof ignored);

        rc = fb_client_receive(s, fd, ignored, part, NULL, NULL);
        rest -= part;
    }
    /* Killed and started anew before we noticed: file ids of the one mean nothing in the tables of
     * the other. */
    if (rc == 0 && welcome.instance != s->layout.h.instance) {
        fb_client_drop_session(client, s);
        atomic_store_explicit(&client->retry_ns, 0, memory_order_relaxed);
        rc = -ESTALE;
    }
    if (rc == 0 && memory && take_area(s, &welcome, fds, fd_count)) {
        fb_client_cut_anchor(s);
        fb_client_set_anchor(client, s, fd);
        atomic_store(&client->area_lost, false);
        rc = 1;
    }
    for (unsigned i = 0; i < fd_count; i++)
        fb_sys_close(fds[i]);
    return rc;
}

/* While the daemon has no area to spare, this process does without. */
void fb_client_anchor(struct fb_client *client, struct fb_session *session)
{
    int fd;

    if (fb_likely(!atomic_load_explicit(&client->area_lost, memory_order_relaxed)) ||
        fb_client_now_ns() < atomic_load(&client->anchor_retry_ns) ||
        atomic_exchange(&client->anchoring, true))
        return;
    fd = atomic_load(&client->area_lost) ? fb_client_connect(client) : -1;
    if (fd >= 0 && greet(client, session, fd, true) != 1)
        fb_sys_close(fd);
    atomic_store(&client->anchor_retry_ns, fb_client_now_ns() + ANCHOR_RETRY_NS);
    atomic_store(&client->anchoring, false);
}

/* A connection that works, BUSY; NULL: none can be had. */
static struct fb_client_connection *obtain(struct fb_client *client, struct fb_session *session)
{
    struct fb_client_connection *c;
    int fd;

    fb_client_anchor(client, session);
    for (int i = 0; i < CLAIM_TRIES && (c = claim(client, IDLE)) != NULL; i++) {
        if (c->mark != 0 && fb_client_mark_of(atomic_load(&c->fd)) == c->mark)
            return c;
        abandon(c);
    }
    c = claim(client, FREE);
    if (!c)
        return NULL;
    fd = fb_client_connect(client);
    if (fd >= 0 && greet(client, session, fd, false) == 0) {
        adopt(client, c, fd);
        return c;
    }
    if (fd >= 0)
        fb_sys_close(fd);
    atomic_store(&c->state, FREE);
    return NULL;
}

/* ---- questions ---- */

static int exchange(const struct fb_session *session, int fd, struct fb_client_request *request,
                    const char *path, struct fb_client_reply *reply, void *data, size_t max)
{
    if (fb_client_send(fd, request, path) != 0 ||
        fb_client_receive(session, fd, reply, sizeof *reply, NULL, NULL) != 0)
        return -EPIPE;
    if (reply->magic != FB_CLIENT_MAGIC || reply->bytes > max)
        return -EPROTO;
    return reply->bytes > 0 ? fb_client_receive(session, fd, data, reply->bytes, NULL, NULL) : 0;
}

/* A fork that went past the library: neither connections nor area are this process's own. */
static void notice_fork(struct fb_client *client)
{
    if (fb_sys_getpid() != atomic_load_explicit(&client->pid, memory_order_relaxed))
        fb_client_forked(client);
}

static bool all_busy(const struct fb_client *client)
{
    for (int i = 0; i < FB_CLIENT_CONNECTIONS; i++)
        if (atomic_load_explicit(&client->connections[i].state, memory_order_relaxed) != BUSY)
            return false;
    return true;
}

/* The same, when one gets free: what is being written is told on one that stays, for its end tells
 * the daemon that the writer has gone. */
static struct fb_client_connection *await(struct fb_client *client, struct fb_session *session)
{
    struct timespec pause = {.tv_nsec = BUSY_STEP_NS};
    struct fb_client_connection *c = obtain(client, session);

    for (int i = 0; !c && i < BUSY_STEPS && all_busy(client); i++) {
        (void)fb_sys(SYS_nanosleep, &pause, NULL, 0, 0);
        c = obtain(client, session);
    }
    return c;
}

/* On a connection of its own, since none gets free or the one has died: what was changed must be
 * told, however busy we are. */
static int ask_apart(struct fb_client *client, struct fb_session *session,
                     struct fb_client_request *request, const char *path,
                     struct fb_client_reply *ret_reply)
{
    int fd = fb_client_connect(client), rc = -FB_CLIENT_GONE;

    if (fd < 0)
        return rc;
    if (greet(client, session, fd, false) == 0 &&
        exchange(session, fd, request, path, ret_reply, NULL, 0) == 0)
        rc = ret_reply->result;
    fb_sys_close(fd);
    return rc;
}

int fb_client_ask(struct fb_client *client, struct fb_client_request *request, const char *path,
                  struct fb_client_reply *ret_reply, void *data, size_t max, size_t *ret_bytes)
{
    bool must = request->op == FB_CLIENT_FORGET;
    struct fb_client_connection *c;
    struct fb_session *session;

    notice_fork(client);
    session = fb_client_session(client);
    if (!session)
        return -FB_CLIENT_GONE;
    c = request->flags & FB_CLIENT_WRITES ? await(client, session) : obtain(client, session);
    if (!c)
        return must ? ask_apart(client, session, request, path, ret_reply) : -FB_CLIENT_GONE;
    if (exchange(session, atomic_load(&c->fd), request, path, ret_reply, data, max) != 0) {
        abandon(c);
        return must ? ask_apart(client, session, request, path, ret_reply) : -FB_CLIENT_GONE;
    }
    atomic_store(&c->state, IDLE);
    if (ret_bytes)
        *ret_bytes = ret_reply->bytes;
    return ret_reply->result;
}
