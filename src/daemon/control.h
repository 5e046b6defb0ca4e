/*
 * daemon/control.h - the control socket: who may ask, how much, and for how long.
 *
 * A Unix stream socket that speaks daemon/wire.h. Only the daemon's own user and root are heard
 * (SO_PEERCRED). One thread serves all connections and never waits for any of them; an operation
 * that may wait (a source that hangs, a busy mount) runs on a thread of its own, at most
 * FB_CONTROL_JOBS_MAX at once. Every state of a connection has a deadline, after which it is
 * closed:
 *
 *     READING ── a line ──► WORKING ── the reply ──► WRITING ── all sent ──► READING
 */
#ifndef FB_DAEMON_CONTROL_H
#define FB_DAEMON_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/attr.h"
#include "core/error.h"

#define FB_CONTROL_CONNECTIONS_MAX 32
#define FB_CONTROL_JOBS_MAX        32
#define FB_CONTROL_WORK_NS         50000000000LL /* for one operation; callers wait longer */

struct fb_control_op {
    const char *name;
    bool slow; /* may wait: runs on a thread of its own */
    /* Returns the reply (NULL: no memory). `peer` is who connected. Any thread when slow, else the
     * socket's thread. */
    json_t *(*run)(void *arg, const json_t *request, const struct ucred *peer);
};

/* Limits of time; zeros are replaced by the defaults of control.c. Tests shorten them. */
struct fb_control_times {
    int64_t idle_ns;    /* a connection that asks nothing */
    int64_t request_ns; /* from the first byte of a line to its end */
    int64_t work_ns;
    int64_t write_ns;
    int64_t stop_ns; /* fb_control_stop() waits so long for jobs */
};

struct fb_control;

/* Listens at `path`, replacing a socket that is there: the caller holds the lock that says nobody
 * else listens. Requests queue up until fb_control_start(). */
FB_MUST_CHECK int fb_control_listen(const char *path, struct fb_control **ret_control,
                                    struct fb_error *err);

/* `ops` and `arg` live until fb_control_stop() has returned. */
FB_MUST_CHECK int fb_control_start(struct fb_control *control, const struct fb_control_op *ops,
                                   size_t count, void *arg, const struct fb_control_times *times);

/* Removes the socket, closes all connections and waits for jobs. False: some are stuck; then what
 * they use must not be freed, and it may be called again. Takes NULL. */
bool fb_control_stop(struct fb_control *control);

#endif
