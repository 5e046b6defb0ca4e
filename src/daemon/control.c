#include "daemon/control.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/lock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"
#include "daemon/wire.h"

#define BACKLOG         64
#define ACCEPT_PAUSE_NS (100 * FB_NS_PER_MS) /* after a failure that would come again at once */
#define POLL_LISTENER   0
#define POLL_WAKE       1
#define POLL_FIRST      2

enum state {
    UNUSED,
    READING,
    WORKING,
    WRITING,
    CLOSING, /* as WRITING, and then it is closed */
};

/* An operation on a thread of its own. Belongs to the thread until `done`, and is then freed by the
 * connection; when that is gone, by the thread. Fields are guarded by the control's mutex. */
struct job {
    struct fb_control *control;
    const struct fb_control_op *op;
    json_t *request;
    json_t *reply;
    bool done;
    bool orphaned;
};

struct connection {
    enum state state;
    int fd;
    int64_t deadline_ns;
    char *in; /* FB_WIRE_REQUEST_MAX bytes */
    size_t in_len;
    char *out;
    size_t out_len;
    size_t out_sent;
    struct job *job;
};

struct fb_control {
    int listener;
    int wake; /* eventfd */
    char *path;
    struct stat socket_stat;
    const struct fb_control_op *ops;
    size_t op_count;
    void *arg;
    struct fb_control_times times;
    pthread_t thread;
    bool started;
    _Atomic bool stop; /* release by stop(), acquire by the thread */
    int64_t accept_after_ns;
    _Atomic int64_t warned_ns;
    struct connection connections[FB_CONTROL_CONNECTIONS_MAX];
    /* FB_RANK_DAEMON, and never together with another of that rank. */
    struct fb_mutex mutex;
    struct fb_cond job_ended;
    unsigned jobs;
};

static void wake_up(struct fb_control *c)
{
    uint64_t one = 1;
    ssize_t ignored = write(c->wake, &one, sizeof one);

    (void)ignored;
}

/* ---- jobs ---- */

static void job_free(struct job *job)
{
    json_decref(job->request);
    json_decref(job->reply);
    free(job);
}

static void *job_run(void *arg)
{
    struct job *job = arg;
    struct fb_control *c = job->control;
    json_t *reply = job->op->run(c->arg, job->request);
    bool orphaned;

    fb_mutex_lock(&c->mutex);
    job->reply = reply;
    job->done = true;
    orphaned = job->orphaned;
    c->jobs--;
    /* Under the lock: once stop() sees no more jobs, `c` may be gone. */
    fb_cond_broadcast(&c->job_ended);
    wake_up(c);
    fb_mutex_unlock(&c->mutex);
    if (orphaned)
        job_free(job);
    return NULL;
}

static bool job_admit(struct fb_control *c)
{
    bool room;

    fb_mutex_lock(&c->mutex);
    room = c->jobs < FB_CONTROL_JOBS_MAX;
    if (room)
        c->jobs++;
    fb_mutex_unlock(&c->mutex);
    return room;
}

/* Takes the request over. NULL: too many, or no thread to be had. */
static struct job *job_start(struct fb_control *c, const struct fb_control_op *op, json_t *request)
{
    struct job *job = fb_alloc(sizeof *job);

    if (!job || !job_admit(c)) {
        json_decref(request);
        free(job);
        return NULL;
    }
    job->control = c;
    job->op = op;
    job->request = request;
    if (fb_thread_start_detached("fb-request", job_run, job) != 0) {
        fb_mutex_lock(&c->mutex);
        c->jobs--;
        fb_mutex_unlock(&c->mutex);
        job_free(job);
        return NULL;
    }
    return job;
}

static void job_abandon(struct fb_control *c, struct job *job)
{
    bool done;

    fb_mutex_lock(&c->mutex);
    done = job->done;
    job->orphaned = true;
    fb_mutex_unlock(&c->mutex);
    if (done)
        job_free(job);
}

/* ---- connections ---- */

static void close_connection(struct fb_control *c, struct connection *conn)
{
    if (conn->job)
        job_abandon(c, conn->job);
    if (conn->state != UNUSED)
        close(conn->fd);
    free(conn->in);
    free(conn->out);
    memset(conn, 0, sizeof *conn);
    conn->fd = -1;
}

static void start_reading(struct fb_control *c, struct connection *conn)
{
    conn->state = READING;
    conn->deadline_ns = fb_now_ns() + (conn->in_len ? c->times.request_ns : c->times.idle_ns);
}

/* Takes the reply over; NULL stands for one that could not be made. */
static void start_writing(struct fb_control *c, struct connection *conn, json_t *reply,
                          enum state state)
{
    char *line = reply ? fb_wire_line(reply) : NULL;

    json_decref(reply);
    if (!line) {
        close_connection(c, conn);
        return;
    }
    free(conn->out);
    conn->out = line;
    conn->out_len = strlen(line);
    conn->out_sent = 0;
    conn->state = state;
    conn->deadline_ns = fb_now_ns() + c->times.write_ns;
}

static const struct fb_control_op *find_op(const struct fb_control *c, const json_t *request)
{
    const char *name = json_string_value(json_object_get(request, "op"));

    for (size_t i = 0; name && i < c->op_count; i++) {
        if (strcmp(c->ops[i].name, name) == 0)
            return &c->ops[i];
    }
    return NULL;
}

static void handle_line(struct fb_control *c, struct connection *conn, const char *line, size_t len)
{
    json_t *request = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    const struct fb_control_op *op = find_op(c, request);

    if (!json_is_object(request)) {
        json_decref(request);
        start_writing(c, conn, fb_wire_error(FB_WIRE_INVALID, "the request is no JSON object"),
                      CLOSING);
    } else if (!op) {
        json_decref(request);
        start_writing(c, conn, fb_wire_error(FB_WIRE_INVALID, "the daemon knows no such request"),
                      WRITING);
    } else if (!op->slow) {
        json_t *reply = op->run(c->arg, request);

        json_decref(request);
        start_writing(c, conn, reply, WRITING);
    } else {
        conn->job = job_start(c, op, request);
        conn->state = WORKING;
        conn->deadline_ns = fb_now_ns() + c->times.work_ns;
        if (!conn->job)
            start_writing(c, conn,
                          fb_wire_error(FB_WIRE_BUSY, "too many requests are under way; try again"),
                          WRITING);
    }
}

/* Works on the first complete line, if there is one, and keeps the rest. */
static void take_line(struct fb_control *c, struct connection *conn)
{
    char *newline = conn->in_len ? memchr(conn->in, '\n', conn->in_len) : NULL;
    char *line;
    size_t len;

    if (!newline) {
        if (conn->in_len == FB_WIRE_REQUEST_MAX)
            start_writing(c, conn, fb_wire_error(FB_WIRE_INVALID, "the request is too long"),
                          CLOSING);
        return;
    }
    len = (size_t)(newline - conn->in);
    line = fb_alloc(len + 1);
    if (!line) {
        close_connection(c, conn);
        return;
    }
    memcpy(line, conn->in, len);
    conn->in_len -= len + 1;
    memmove(conn->in, newline + 1, conn->in_len);
    handle_line(c, conn, line, len);
    free(line);
}

static void read_some(struct fb_control *c, struct connection *conn)
{
    bool fresh = conn->in_len == 0;
    ssize_t n = recv(conn->fd, conn->in + conn->in_len, FB_WIRE_REQUEST_MAX - conn->in_len, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        close_connection(c, conn);
        return;
    }
    conn->in_len += (size_t)n;
    if (fresh)
        conn->deadline_ns = fb_now_ns() + c->times.request_ns;
    take_line(c, conn);
}

static void write_some(struct fb_control *c, struct connection *conn)
{
    ssize_t n =
        send(conn->fd, conn->out + conn->out_sent, conn->out_len - conn->out_sent, MSG_NOSIGNAL);

    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            close_connection(c, conn);
        return;
    }
    conn->out_sent += (size_t)n;
    if (conn->out_sent < conn->out_len)
        return;
    if (conn->state == CLOSING) {
        close_connection(c, conn);
        return;
    }
    start_reading(c, conn);
    take_line(c, conn);
}

static void collect_reply(struct fb_control *c, struct connection *conn)
{
    struct job *job = conn->job;
    bool done;

    fb_mutex_lock(&c->mutex);
    done = job->done;
    fb_mutex_unlock(&c->mutex);
    if (!done)
        return;
    conn->job = NULL;
    start_writing(c, conn, job->reply, WRITING);
    job->reply = NULL;
    job_free(job);
}

static void connection_expired(struct fb_control *c, struct connection *conn)
{
    if (conn->state != WORKING) {
        close_connection(c, conn);
        return;
    }
    job_abandon(c, conn->job);
    conn->job = NULL;
    start_writing(c, conn,
                  fb_wire_error(FB_WIRE_FAILED, "it takes too long; see the daemon's log and "
                                                "`forebay status`"),
                  CLOSING);
}

static bool is_welcome(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
        return false;
    return peer.uid == 0 || peer.uid == geteuid();
}

static struct connection *unused_connection(struct fb_control *c)
{
    for (unsigned i = 0; i < FB_CONTROL_CONNECTIONS_MAX; i++) {
        if (c->connections[i].state == UNUSED)
            return &c->connections[i];
    }
    return NULL;
}

/* The caller saw poll() say that somebody is there. */
static void accept_one(struct fb_control *c)
{
    int fd = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct connection *conn = unused_connection(c);

    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            c->accept_after_ns = fb_now_ns() + ACCEPT_PAUSE_NS;
        return;
    }
    if (!conn || !is_welcome(fd)) {
        if (fb_log_limited(&c->warned_ns))
            fb_log_warn("control socket: refused a connection (%s)",
                        conn ? "another user" : "too many");
        close(fd);
        return;
    }
    conn->fd = fd;
    conn->state = CLOSING;
    conn->in = fb_alloc(FB_WIRE_REQUEST_MAX);
    if (conn->in)
        start_reading(c, conn);
    else
        close_connection(c, conn);
}

/* ---- the thread ---- */

static short wanted_events(const struct connection *conn)
{
    switch (conn->state) {
    case READING:
        return POLLIN;
    case WRITING:
    case CLOSING:
        return POLLOUT;
    case WORKING: /* poll() says by itself when the other side is gone */
    case UNUSED:
        break;
    }
    return 0;
}

static void serve_connection(struct fb_control *c, struct connection *conn, short events)
{
    if (conn->state == WORKING)
        collect_reply(c, conn);
    if (conn->state == UNUSED)
        return;
    if (conn->state == WORKING && (events & (POLLHUP | POLLERR)))
        close_connection(c, conn);
    else if (conn->state == READING && (events & (POLLIN | POLLHUP | POLLERR)))
        read_some(c, conn);
    else if ((conn->state == WRITING || conn->state == CLOSING) && events)
        write_some(c, conn);
    if (conn->state != UNUSED && fb_now_ns() >= conn->deadline_ns)
        connection_expired(c, conn);
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
        const struct connection *conn = &c->connections[i];
        bool used = conn->state != UNUSED;

        polls[POLL_FIRST + i] =
            (struct pollfd){.fd = used ? conn->fd : -1, .events = wanted_events(conn)};
        if (used && conn->deadline_ns < until_ns)
            until_ns = conn->deadline_ns;
    }
    return until_ns;
}

/* The reply that is at hand goes out, as far as the socket takes it at once. */
static void last_words(struct fb_control *c, struct connection *conn)
{
    if (conn->state == WORKING)
        collect_reply(c, conn);
    if (conn->state == WRITING || conn->state == CLOSING) {
        conn->state = CLOSING;
        write_some(c, conn);
    }
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
            if (c->connections[i].state != UNUSED)
                serve_connection(c, &c->connections[i], polls[POLL_FIRST + i].revents);
        }
        if (polls[POLL_LISTENER].revents)
            accept_one(c);
    }
    for (unsigned i = 0; i < FB_CONTROL_CONNECTIONS_MAX; i++)
        last_words(c, &c->connections[i]);
    return NULL;
}

/* ---- life ---- */

static void control_free(struct fb_control *c)
{
    for (unsigned i = 0; i < FB_CONTROL_CONNECTIONS_MAX; i++)
        close_connection(c, &c->connections[i]);
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
        c->connections[i].fd = -1;
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
        wake_up(control);
        pthread_join(control->thread, NULL);
        control->started = false;
    }
    if (!idle || !wait_for_jobs(control))
        return false;
    control_free(control);
    return true;
}
