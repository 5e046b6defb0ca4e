/*
 * daemon/daemon_priv.h - what the daemon and the handlers of its requests share.
 */
#ifndef FB_DAEMON_DAEMON_PRIV_H
#define FB_DAEMON_DAEMON_PRIV_H

#include "core/lock.h"
#include "daemon/control.h"
#include "daemon/daemon.h"
#include "daemon/http.h"
#include "daemon/mounts.h"
#include "daemon/shares.h"
#include "daemon/status.h"

struct fb_daemon {
    const struct fb_daemon_options *options;
    struct fb_own_dirs own;
    int lock_fd;
    int signal_fd;
    int wake_fd; /* eventfd: look at mounts and shares again */
    struct fb_control *control;
    struct fb_cache *cache;
    struct fb_mounts *mounts;
    struct fb_local *local;        /* NULL: it could not be started, */
    struct fb_error local_error;   /* for this reason */
    struct fb_error metrics_error; /* why there are none; before the first request is answered */
    char *client_socket;
    bool log_is_file;
    char *mounts_dir;               /* of private mounts; NULL before the home is claimed */
    struct fb_shares *shares;       /* NULL without `local` */
    _Atomic(struct fb_http *) http; /* its own thread asks for it */
    int64_t started_ns;
    _Atomic bool shutdown; /* asked for by a request */

    struct fb_mutex mutex; /* FB_RANK_DAEMON: guards what is below */
    struct fb_cond idle;
    bool stopping;
    bool closed;     /* the cache is */
    unsigned users;  /* requests under way */
    uint64_t served; /* requests that have ended */
};

/* Requests bracket their work with these; enter() is false once the daemon is about to end. */
FB_MUST_CHECK bool fb_daemon_enter(struct fb_daemon *daemon);
void fb_daemon_leave(struct fb_daemon *daemon);

void fb_daemon_wake(struct fb_daemon *daemon);

/* Whether anything is mounted or shared, be it that it comes or goes just now. */
bool fb_daemon_in_use(struct fb_daemon *daemon);
/* In a request: whether the daemon ends with it, as nothing is in use any more, nor asked for. What
 * comes later is refused then. */
bool fb_daemon_begin_end(struct fb_daemon *daemon);

struct fb_status fb_daemon_status(const struct fb_daemon *daemon);

const struct fb_control_op *fb_daemon_ops(size_t *ret_count);

#endif
