/*
 * daemon/control_priv.h - what the control socket's two files share: the thread and the life of the
 * whole (control.c), and a single connection with the job it waits for (control_conn.c).
 */
#ifndef FB_DAEMON_CONTROL_PRIV_H
#define FB_DAEMON_CONTROL_PRIV_H

#include <pthread.h>
#include <stddef.h>
#include <sys/stat.h>

#include "core/lock.h"
#include "daemon/control.h"

struct fb_job;

enum fb_conn_state {
    FB_CONN_UNUSED,
    FB_CONN_READING,
    FB_CONN_WORKING,
    FB_CONN_WRITING,
    FB_CONN_CLOSING, /* as WRITING, and then it is closed */
};

/* Belongs to the socket's thread. Zeroed, with fd -1, it is unused. */
struct fb_conn {
    enum fb_conn_state state;
    int fd;
    struct ucred peer;
    int64_t deadline_ns;
    char *in; /* FB_WIRE_REQUEST_MAX bytes */
    size_t in_len;
    char *out;
    size_t out_len;
    size_t out_sent;
    struct fb_job *job;
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
    struct fb_conn conns[FB_CONTROL_CONNECTIONS_MAX];
    struct fb_mutex mutex; /* FB_RANK_DAEMON, never with another of that rank: jobs */
    struct fb_cond job_ended;
    unsigned jobs;
};

/* Wakes the socket's thread. */
void fb_control_wake(struct fb_control *c);

/* Takes the descriptor over. */
void fb_conn_open(struct fb_control *c, struct fb_conn *conn, int fd, const struct ucred *peer);

/* Takes one that is unused, too. A job under way goes on without it. */
void fb_conn_close(struct fb_control *c, struct fb_conn *conn);

/* What poll(2) is to wait for. */
short fb_conn_events(const struct fb_conn *conn);

/* After poll(2); also when nothing happened: a job may have ended, the deadline may have passed. */
void fb_conn_serve(struct fb_control *c, struct fb_conn *conn, short events);

/* The reply that is at hand goes out, as far as the socket takes it at once. */
void fb_conn_last_words(struct fb_control *c, struct fb_conn *conn);

#endif
