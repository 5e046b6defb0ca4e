/*
 * daemon/daemon.h - one process that owns a cache directory, and its life:
 *
 *     1. what was asked for can work at all (paths), before anything is made
 *     2. lock of the cache directory, log, socket: now this is the daemon of that directory
 *     3. cache opened (and recovered), control socket answered, mounts and shares live, metrics
 *        served: ready
 *     4. until the last mount and the last share are gone (unless `keep`), a signal or a shutdown
 *        request
 *     5. no new requests; mounts removed, lazily when they stay busy; shares removed; cache closed;
 *        sockets and lock given up
 *
 * A failure in 1 to 3 undoes what was done. SIGTERM and SIGINT begin 5, a second one makes it lazy
 * at once; SIGHUP opens the log anew.
 */
#ifndef FB_DAEMON_DAEMON_H
#define FB_DAEMON_DAEMON_H

#include <stdbool.h>

#include "base/attr.h"
#include "base/list.h"
#include "core/error.h"
#include "daemon/config.h"
#include "daemon/shares.h"

struct fb_daemon_options {
    const struct fb_config *config;        /* resolved */
    const struct fb_list *mounts;          /* struct fb_mount_request */
    const struct fb_share_request *shares; /* NULL: none */
    bool keep;                             /* live on without mounts and shares */
    void (*ready)(void *arg);              /* may be NULL */
    /* Before that: something that is logged, too, but who waits for a mount should read. May be
     * NULL. */
    void (*note)(void *arg, const char *sentence);
    void *arg;
};

enum {
    FB_DAEMON_OWNED = 1, /* another process owns the cache directory */
    FB_DAEMON_STUCK = 2, /* it has ended, but threads hang for good: leave by _exit() */
};

/* Runs a daemon to its end, on the main thread of a process that does nothing else: it changes
 * signals, umask and the log. Anything but 0 comes with a sentence. */
FB_MUST_CHECK int fb_daemon_run(const struct fb_daemon_options *options, struct fb_error *err);

#endif
