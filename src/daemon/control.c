#include "daemon/control.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"
#include "daemon/control_priv.h"
#include "daemon/wire.h"

#define BACKLOG         64
#define ACCEPT_PAUSE_NS (100 * FB_NS_PER_MS) /* after a failure that would come again at once */
#define POLL_LISTENER   0
#define POLL_WAKE       1
#define POLL_FIRST      2

void fb_control_wake(struct fb_control *c)
{
    uint64_t one = 1;
    ssize_t ignored = write(c->wake, &one, sizeof one);

    (void)ignored;
}

/* ---- the thread ---- */

static bool is_welcome(int fd, struct ucred *ret_peer)
{
    socklen_t len = sizeof *ret_peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_peer, &len) != 0)
        return false;
    return ret_peer->uid == 0 || ret_peer->uid == geteuid();
}

static struct fb_conn *unused_connection(struct fb_control *c)
{
    for (unsigned i = 0; i < FB_CONTROL_CONNECTIONS_MAX; i++) {
        if (c->conns[i].state == FB_CONN_UNUSED)
            return &c->conns[i];
    }
    return NULL;
}

/* The caller saw poll() say that somebody is there. */
static void accept_one(struct fb_control *c)
{
    int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct fb_conn *conn = unused_connection(c);
    struct ucred peer;

    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            c->accept_after_ns = fb_now_ns() + ACCEPT_PAUSE_NS;
        return;
    }
    if (!conn || !is_welcome(fd, &peer)) {
        if (fb_log_limited(&c->warned_ns))
            fb_log_warn("control socket: refused a connection (%s)",
                        conn ? "another user" : "too many");
        close(fd);
        return;
    }
    fb_conn_open(c, conn, fd, &peer);
}

/* Fills in what to wait for; returns until when. */
static int64_t prepare_poll(struct fb_control *c, struct pollfd *polls)
{
    int64_t until_ns = FB_NEVER_NS;
    bool paused = fb_now_ns() < c->accept_after_ns;

    if (paused)
        until_ns = c->accept_after_ns;
    polls[POLL_LISTENER] = (struct pollfd){.fd = paused ? -1 : c->listener, .events = POLLIN};
    polls[POLL_WAKE] = (struct pollfd){.fd = c->wake, .events = POLLIN};
    for (unsigned i = 0; i < FB_CONTROL_CONNECTIONS_MAX; i++) {
        const struct fb_conn *conn = &c->conns[i];
        bool used = conn->state != FB_CONN_UNUSED;

        polls[POLL_FIRST + i] =
            (struct pollfd){.fd = used ? conn->fd : -1, .events = fb_conn_events(conn)};
        if (used && conn->deadline_ns < until_ns)
            until_ns = conn->deadline_ns;
    }
    return until_ns;
}

static void *control_run(void *arg)
{
    struct fb_control *c = arg;
    struct pollfd polls[POLL_FIRST + FB_CONTROL_CONNECTIONS_MAX];

    /* Acquire pairs with the release in stop(). */
    while (!atomic_load_explicit(&c->stop, memory_order_acquire)) {
        int64_t until_ns = prepare_poll(c, polls);
        uint64_t ignored;

        if (poll(polls, FB_ARRAY_SIZE(polls), fb_wire_poll_ms(until_ns)) < 0)
            continue;
        if (polls[POLL_WAKE].revents && read(c->wake, &ignored, sizeof ignored) < 0)
            continue;
        for (unsigned i = 0; i < FB_CONTROL_CONNECTIONS_MAX; i++) {
            if (c->conns[i].state != FB_CONN_UNUSED)
                fb_conn_serve(c, &c->conns[i], polls[POLL_FIRST + i].revents);
        }
        if (polls[POLL_LISTENER].revents)
            accept_one(c);
    }
    for (unsigned i = 0; i < FB_CONTROL_CONNECTIONS_MAX; i++)
        fb_conn_last_words(c, &c->conns[i]);
    return NULL;
}

/* ---- life ---- */

static void control_free(struct fb_control *c)
{
    for (unsigned i = 0; i < FB_CONTROL_CONNECTIONS_MAX; i++)
        fb_conn_close(c, &c->conns[i]);
    fb_closep(&c->listener);
    fb_closep(&c->wake);
    fb_cond_destroy(&c->job_ended);
    fb_mutex_destroy(&c->mutex);
    free(c->path);
    free(c);
}

static int bind_socket(struct fb_control *c, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path) + 1);
    c->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->listener < 0)
        return -errno;
    if (unlink(path) != 0 && errno != ENOENT)
        return -errno;
    if (bind(c->listener, (struct sockaddr *)&address, sizeof address) != 0)
        return -errno;
    c->path = fb_strdup(path);
    if (!c->path)
        return -ENOMEM;
    if (chmod(path, 0600) != 0 || stat(path, &c->socket_stat) != 0)
        return -errno;
    return listen(c->listener, BACKLOG) == 0 ? 0 : -errno;
}

/* Not one that somebody else has put there since. */
static void remove_socket(const struct fb_control *c)
{
    struct stat st;

    if (c->path && stat(c->path, &st) == 0 && st.st_ino == c->socket_stat.st_ino &&
        st.st_dev == c->socket_stat.st_dev)
        unlink(c->path);
}

int fb_control_listen(const char *path, struct fb_control **ret_control, struct fb_error *err)
{
    struct fb_control *c = fb_alloc(sizeof *c);
    int rc;

    if (!c)
        return fb_error_set(err, -ENOMEM, "out of memory");
    fb_mutex_init(&c->mutex, FB_RANK_DAEMON);
    fb_cond_init(&c->job_ended);
    for (unsigned i = 0; i < FB_CONTROL_CONNECTIONS_MAX; i++)
        c->conns[i].fd = -1;
    c->listener = -1;
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    rc = c->wake >= 0 ? bind_socket(c, path) : -errno;
    if (rc) {
        remove_socket(c);
        control_free(c);
        return fb_error_set(err, rc, "cannot listen at %s: %s", path, fb_strerror(rc));
    }
    *ret_control = c;
    return 0;
}

static int64_t time_or(int64_t given_ns, int64_t fallback_ns)
{
    return given_ns ? given_ns : fallback_ns;
}

int fb_control_start(struct fb_control *control, const struct fb_control_op *ops, size_t count,
                     void *arg, const struct fb_control_times *times)
{
    struct fb_control_times t = times ? *times : (struct fb_control_times){0};
    int rc;

    FB_ASSERT(!control->started);
    control->times = (struct fb_control_times){
        .idle_ns = time_or(t.idle_ns, 120 * FB_NS_PER_S),
        .request_ns = time_or(t.request_ns, 10 * FB_NS_PER_S),
        .work_ns = time_or(t.work_ns, FB_CONTROL_WORK_NS),
        .write_ns = time_or(t.write_ns, 10 * FB_NS_PER_S),
        .stop_ns = time_or(t.stop_ns, 10 * FB_NS_PER_S),
    };
    control->ops = ops;
    control->op_count = count;
    control->arg = arg;
    rc = fb_thread_start(&control->thread, "fb-control", control_run, control);
    control->started = rc == 0;
    return rc;
}

static bool wait_for_jobs(struct fb_control *c)
{
    int64_t until_ns = fb_now_ns() + c->times.stop_ns;
    bool in_time = true;
    bool none;

    fb_mutex_lock(&c->mutex);
    while (c->jobs > 0 && in_time)
        in_time = fb_cond_wait(&c->job_ended, &c->mutex, until_ns);
    none = c->jobs == 0;
    fb_mutex_unlock(&c->mutex);
    return none;
}

bool fb_control_stop(struct fb_control *control)
{
    bool idle = true;

    if (!control)
        return true;
    remove_socket(control);
    if (control->started) {
        idle = wait_for_jobs(control);
        /* Release pairs with the acquire in the loop. */
        atomic_store_explicit(&control->stop, true, memory_order_release);
        fb_control_wake(control);
        pthread_join(control->thread, NULL);
        control->started = false;
    }
    if (!idle || !wait_for_jobs(control))
        return false;
    control_free(control);
    return true;
}
