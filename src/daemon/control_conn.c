#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/thread.h"
#include "daemon/control_priv.h"
#include "daemon/wire.h"

/* An operation on a thread of its own. Belongs to the thread until `done`, and is then freed by the
 * connection; when that is gone, by the thread. Fields are guarded by the control's mutex. */
struct fb_job {
    struct fb_control *control;
    const struct fb_control_op *op;
    json_t *request;
    struct ucred peer;
    json_t *reply;
    bool done;
    bool orphaned;
};

/* ---- jobs ---- */

static void job_free(struct fb_job *job)
{
    json_decref(job->request);
    json_decref(job->reply);
    free(job);
}

static void *job_run(void *arg)
{
    struct fb_job *job = arg;
    struct fb_control *c = job->control;
    json_t *reply = job->op->run(c->arg, job->request, &job->peer);
    bool orphaned;

    fb_mutex_lock(&c->mutex);
    job->reply = reply;
    job->done = true;
    orphaned = job->orphaned;
    c->jobs--;
    /* Under the lock: once stop() sees no more jobs, `c` may be gone. */
    fb_cond_broadcast(&c->job_ended);
    fb_control_wake(c);
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
static struct fb_job *job_start(struct fb_control *c, const struct fb_control_op *op,
                                json_t *request, const struct ucred *peer)
{
    struct fb_job *job = fb_alloc(sizeof *job);

    if (!job || !job_admit(c)) {
        json_decref(request);
        free(job);
        return NULL;
    }
    job->control = c;
    job->op = op;
    job->request = request;
    job->peer = *peer;
    if (fb_thread_start_detached("fb-request", job_run, job) != 0) {
        fb_mutex_lock(&c->mutex);
        c->jobs--;
        fb_mutex_unlock(&c->mutex);
        job_free(job);
        return NULL;
    }
    return job;
}

static void job_abandon(struct fb_control *c, struct fb_job *job)
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

void fb_conn_close(struct fb_control *c, struct fb_conn *conn)
{
    if (conn->job)
        job_abandon(c, conn->job);
    if (conn->state != FB_CONN_UNUSED)
        close(conn->fd);
    free(conn->in);
    free(conn->out);
    memset(conn, 0, sizeof *conn);
    conn->fd = -1;
}

static void start_reading(struct fb_control *c, struct fb_conn *conn)
{
    conn->state = FB_CONN_READING;
    conn->deadline_ns = fb_now_ns() + (conn->in_len ? c->times.request_ns : c->times.idle_ns);
}

/* Takes the reply over; NULL stands for one that could not be made. */
static void start_writing(struct fb_control *c, struct fb_conn *conn, json_t *reply,
                          enum fb_conn_state state)
{
    char *line = reply ? fb_wire_line(reply) : NULL;

    json_decref(reply);
    if (!line) {
        fb_conn_close(c, conn);
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

static void handle_line(struct fb_control *c, struct fb_conn *conn, const char *line, size_t len)
{
    json_t *request = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    const struct fb_control_op *op = find_op(c, request);

    if (!json_is_object(request)) {
        json_decref(request);
        start_writing(c, conn, fb_wire_error(FB_WIRE_INVALID, "the request is no JSON object"),
                      FB_CONN_CLOSING);
    } else if (!op) {
        json_decref(request);
        start_writing(c, conn, fb_wire_error(FB_WIRE_INVALID, "the daemon knows no such request"),
                      FB_CONN_WRITING);
    } else if (!op->slow) {
        json_t *reply = op->run(c->arg, request, &conn->peer);

        json_decref(request);
        start_writing(c, conn, reply, FB_CONN_WRITING);
    } else {
        conn->job = job_start(c, op, request, &conn->peer);
        conn->state = FB_CONN_WORKING;
        conn->deadline_ns = fb_now_ns() + c->times.work_ns;
        if (!conn->job)
            start_writing(c, conn,
                          fb_wire_error(FB_WIRE_BUSY, "too many requests are under way; try again"),
                          FB_CONN_WRITING);
    }
}

/* Works on the first complete line, if there is one, and keeps the rest. */
static void take_line(struct fb_control *c, struct fb_conn *conn)
{
    char *newline = conn->in_len ? memchr(conn->in, '\n', conn->in_len) : NULL;
    char *line;
    size_t len;

    if (!newline) {
        if (conn->in_len == FB_WIRE_REQUEST_MAX)
            start_writing(c, conn, fb_wire_error(FB_WIRE_INVALID, "the request is too long"),
                          FB_CONN_CLOSING);
        return;
    }
    len = (size_t)(newline - conn->in);
    line = fb_alloc(len + 1);
    if (!line) {
        fb_conn_close(c, conn);
        return;
    }
    memcpy(line, conn->in, len);
    conn->in_len -= len + 1;
    memmove(conn->in, newline + 1, conn->in_len);
    handle_line(c, conn, line, len);
    free(line);
}

static void read_some(struct fb_control *c, struct fb_conn *conn)
{
    bool fresh = conn->in_len == 0;
    ssize_t n = recv(conn->fd, conn->in + conn->in_len, FB_WIRE_REQUEST_MAX - conn->in_len, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        fb_conn_close(c, conn);
        return;
    }
    conn->in_len += (size_t)n;
    if (fresh)
        conn->deadline_ns = fb_now_ns() + c->times.request_ns;
    take_line(c, conn);
}

static void write_some(struct fb_control *c, struct fb_conn *conn)
{
    ssize_t n =
        send(conn->fd, conn->out + conn->out_sent, conn->out_len - conn->out_sent, MSG_NOSIGNAL);

    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            fb_conn_close(c, conn);
        return;
    }
    conn->out_sent += (size_t)n;
    if (conn->out_sent < conn->out_len)
        return;
    if (conn->state == FB_CONN_CLOSING) {
        fb_conn_close(c, conn);
        return;
    }
    start_reading(c, conn);
    take_line(c, conn);
}

static void collect_reply(struct fb_control *c, struct fb_conn *conn)
{
    struct fb_job *job = conn->job;
    bool done;

    fb_mutex_lock(&c->mutex);
    done = job->done;
    fb_mutex_unlock(&c->mutex);
    if (!done)
        return;
    conn->job = NULL;
    start_writing(c, conn, job->reply, FB_CONN_WRITING);
    job->reply = NULL;
    job_free(job);
}

static void connection_expired(struct fb_control *c, struct fb_conn *conn)
{
    if (conn->state != FB_CONN_WORKING) {
        fb_conn_close(c, conn);
        return;
    }
    job_abandon(c, conn->job);
    conn->job = NULL;
    start_writing(c, conn,
                  fb_wire_error(FB_WIRE_FAILED, "it takes too long; see the daemon's log and "
                                                "`forebay status`"),
                  FB_CONN_CLOSING);
}

void fb_conn_open(struct fb_control *c, struct fb_conn *conn, int fd, const struct ucred *peer)
{
    conn->fd = fd;
    conn->peer = *peer;
    conn->state = FB_CONN_CLOSING;
    conn->in = fb_alloc(FB_WIRE_REQUEST_MAX);
    if (conn->in)
        start_reading(c, conn);
    else
        fb_conn_close(c, conn);
}

short fb_conn_events(const struct fb_conn *conn)
{
    switch (conn->state) {
    case FB_CONN_READING:
        return POLLIN;
    case FB_CONN_WRITING:
    case FB_CONN_CLOSING:
        return POLLOUT;
    case FB_CONN_WORKING: /* poll() says by itself when the other side is gone */
    case FB_CONN_UNUSED:
        break;
    }
    return 0;
}

void fb_conn_serve(struct fb_control *c, struct fb_conn *conn, short events)
{
    if (conn->state == FB_CONN_WORKING)
        collect_reply(c, conn);
    if (conn->state == FB_CONN_UNUSED)
        return;
    if (conn->state == FB_CONN_WORKING && (events & (POLLHUP | POLLERR)))
        fb_conn_close(c, conn);
    else if (conn->state == FB_CONN_READING && (events & (POLLIN | POLLHUP | POLLERR)))
        read_some(c, conn);
    else if ((conn->state == FB_CONN_WRITING || conn->state == FB_CONN_CLOSING) && events)
        write_some(c, conn);
    if (conn->state != FB_CONN_UNUSED && fb_now_ns() >= conn->deadline_ns)
        connection_expired(c, conn);
}

void fb_conn_last_words(struct fb_control *c, struct fb_conn *conn)
{
    if (conn->state == FB_CONN_WORKING)
        collect_reply(c, conn);
    if (conn->state == FB_CONN_WRITING || conn->state == FB_CONN_CLOSING) {
        conn->state = FB_CONN_CLOSING;
        write_some(c, conn);
    }
}
