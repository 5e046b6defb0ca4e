/*
 * Connections: bytes in, bytes out, one request at a time.
 *
 *     READING ── head, path ──► (request) ── answer ──► WRITING ── all sent ──► READING
 *
 * In epoll one-shot: whoever is woken owns the connection until he arms it again. An answer is sent
 * by the thread that has it; what the socket does not take waits for epoll.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "doors/local/local_priv.h"

#define SOCKET_BUFFER (1 << 20) /* asked for: a whole item goes out in one call */

static void conn_close(struct fb_local_conn *conn)
{
    struct fb_local *local = conn->local;
    bool last;

    if (conn->request)
        fb_local_request_end(conn);
    fb_local_end_writers(conn);
    fb_closep(&conn->area_fd);
    free(conn->payload);
    fb_local_client_put(local, conn->client);
    fb_mutex_lock(&local->lock);
    fb_list_remove(&conn->link);
    close(conn->fd);
    last = --local->conn_count == 0;
    /* Under the lock: whoever ends the door waits for the last connection to go. */
    if (last && local->config.changed)
        local->config.changed(local->config.arg);
    fb_cond_broadcast(&local->idle);
    fb_mutex_unlock(&local->lock);
    free(conn);
}

static void arm(struct fb_local_conn *conn, uint32_t events)
{
    struct epoll_event event = {.events = events | EPOLLONESHOT, .data.ptr = conn};

    /* From here on it belongs to whoever is woken. Failure (no memory) would leave it unserved:
     * closing is the answer a client understands. */
    if (epoll_ctl(conn->epoll, EPOLL_CTL_MOD, conn->fd, &event) != 0)
        conn_close(conn);
}

/* ---- in ---- */

/* Bytes into [at, at + want): 1 when all are there, 0: later, negative: gone. */
static int take(struct fb_local_conn *conn, void *to, size_t have, size_t want)
{
    while (have < want) {
        ssize_t n = recv(conn->fd, (uint8_t *)to + have, want - have, MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0)
            return -EPIPE;
        have += (size_t)n;
        conn->got += (size_t)n;
    }
    return 1;
}

static bool head_is_sane(const struct fb_client_request *head)
{
    return head->magic == FB_CLIENT_MAGIC && head->path_len < FB_PATH_MAX &&
           head->op >= FB_CLIENT_HELLO && head->op <= FB_CLIENT_PIN &&
           head->length <= FB_CLIENT_READ_MAX;
}

/* 1: a whole request is there. */
static int read_request(struct fb_local_conn *conn)
{
    size_t head = sizeof conn->head;
    int rc = take(conn, &conn->head, conn->got, head);

    if (rc <= 0)
        return rc;
    if (!conn->request) {
        if (!head_is_sane(&conn->head))
            return -EPROTO;
        conn->request = malloc(sizeof *conn->request + conn->head.path_len + 1);
        if (!conn->request)
            return -ENOMEM;
        memset(conn->request, 0, sizeof *conn->request);
        conn->request->conn = conn;
        conn->request->path[conn->head.path_len] = '\0';
    }
    return take(conn, conn->request->path, conn->got - head, conn->head.path_len);
}

/* ---- out ---- */

static void pass_fds(struct fb_local_conn *conn, struct msghdr *msg, void *control)
{
    struct cmsghdr *c;

    msg->msg_control = control;
    msg->msg_controllen = CMSG_SPACE(conn->fd_count * sizeof(int));
    c = CMSG_FIRSTHDR(msg);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(conn->fd_count * sizeof(int));
    memcpy(CMSG_DATA(c), conn->fds, conn->fd_count * sizeof(int));
}

static void consume(struct fb_local_conn *conn, size_t n)
{
    while (n > 0) {
        struct iovec *v = &conn->iov[conn->iov_at];
        size_t part = fb_min_u64(n, v->iov_len);

        v->iov_base = (uint8_t *)v->iov_base + part;
        v->iov_len -= part;
        n -= part;
        if (v->iov_len == 0)
            conn->iov_at++;
    }
    while (conn->iov_at < conn->iov_count && conn->iov[conn->iov_at].iov_len == 0)
        conn->iov_at++;
}

/* 1: all is sent. */
static int send_some(struct fb_local_conn *conn)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FB_CLIENT_FDS_MAX * sizeof(int))];
    } control = {0};

    while (conn->iov_at < conn->iov_count) {
        struct msghdr msg = {.msg_iov = conn->iov + conn->iov_at,
                             .msg_iovlen = conn->iov_count - conn->iov_at};
        ssize_t n;

        if (conn->fd_count > 0)
            pass_fds(conn, &msg, &control);
        n = sendmsg(conn->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -errno;
        conn->fd_count = 0;
        consume(conn, (size_t)n);
    }
    return 1;
}

/* 1: sent, and the connection is ready for the next request; 0: epoll will tell; else closed. */
static int write_answer(struct fb_local_conn *conn)
{
    int rc = send_some(conn);

    if (rc == 0) {
        if (atomic_load_explicit(&conn->write_until_ns, memory_order_relaxed) == 0)
            atomic_store_explicit(&conn->write_until_ns, fb_now_ns() + FB_LOCAL_WRITE_NS,
                                  memory_order_relaxed);
        arm(conn, EPOLLOUT);
        return 0;
    }
    if (rc < 0) {
        conn_close(conn);
        return rc;
    }
    atomic_store_explicit(&conn->write_until_ns, 0, memory_order_relaxed);
    fb_local_request_end(conn);
    fb_closep(&conn->area_fd);
    conn->area_fd = -1;
    free(fb_steal(conn->payload));
    conn->got = 0;
    return 1;
}

void fb_local_conn_answer(struct fb_local_conn *conn, int32_t result, unsigned extra)
{
    uint32_t bytes = 0;

    for (unsigned i = 1; i <= extra; i++)
        bytes += (uint32_t)conn->iov[i].iov_len;
    conn->reply.magic = FB_CLIENT_MAGIC;
    conn->reply.result = result;
    conn->reply.bytes = bytes;
    conn->iov[0] = (struct iovec){.iov_base = &conn->reply, .iov_len = sizeof conn->reply};
    conn->iov_count = 1 + extra;
    conn->iov_at = 0;
    if (write_answer(conn) == 1)
        arm(conn, EPOLLIN);
}

/* ---- events ---- */

void fb_local_conn_serve(struct fb_local_conn *conn, uint32_t events)
{
    int rc;

    if (conn->iov_at < conn->iov_count) {
        if (write_answer(conn) == 1)
            arm(conn, EPOLLIN);
        return;
    }
    (void)events;
    rc = read_request(conn);
    if (rc < 0)
        conn_close(conn);
    else if (rc == 0)
        arm(conn, EPOLLIN);
    else
        fb_local_request_run(conn);
}

/* ---- beginning ---- */

static bool enlist(struct fb_local *local, struct fb_local_conn *conn)
{
    bool room;

    fb_mutex_lock(&local->lock);
    room = local->conn_count < FB_LOCAL_CONNECTIONS_MAX && !local->closing;
    if (room) {
        fb_list_push_back(&local->conns, &conn->link);
        local->conn_count++;
    }
    fb_mutex_unlock(&local->lock);
    return room;
}

static void conn_open(struct fb_local *local, int fd, const struct ucred *peer)
{
    struct fb_local_conn *conn = fb_alloc(sizeof *conn);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = conn};
    unsigned thread = atomic_fetch_add(&local->next_thread, 1) % local->thread_count;
    int size = SOCKET_BUFFER;

    if (!conn) {
        close(fd);
        return;
    }
    conn->local = local;
    conn->fd = fd;
    conn->area_fd = -1;
    conn->uid = peer->uid;
    conn->gid = peer->gid;
    conn->pid = (uint32_t)peer->pid;
    conn->epoll = local->epolls[thread];
    fb_list_init(&conn->link);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    if (!enlist(local, conn)) {
        close(fd);
        free(conn);
        return;
    }
    if (epoll_ctl(conn->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        conn_close(conn);
}

void fb_local_listen(struct fb_local *local)
{
    struct epoll_event come = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = &local->listener};

    (void)epoll_ctl(local->epolls[0], EPOLL_CTL_MOD, local->listener, &come);
}

void fb_local_accept(struct fb_local *local)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    int fd = accept4(local->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    /* What is missing now is missing at once again: not in a loop. */
    if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        atomic_store_explicit(&local->accept_later, true, memory_order_relaxed);
        return;
    }
    fb_local_listen(local);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0 || peer.uid != geteuid()) {
        if (fb_log_limited(&local->warned_ns))
            fb_log_warn("client socket: refused a connection of another user");
        close(fd);
        return;
    }
    conn_open(local, fd, &peer);
}
