/*
 * cli/start.h - a daemon in the background: started by a process that waits until it is ready.
 */
#ifndef FB_CLI_START_H
#define FB_CLI_START_H

#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"
#include "daemon/daemon.h"

enum {
    START_OWNED = 1,       /* another process owns the cache directory */
    START_CHILD = 2,       /* this is the daemon's process, and it has ended: exit */
    START_INTERRUPTED = 3, /* a signal came; the daemon was ended */
};

/* Starts a daemon and waits until it is ready; `ready` and `arg` of the options are not used. The
 * daemon is no child of the caller. On failure it has ended, and nothing of it is left, when this
 * returns. */
FB_MUST_CHECK int cli_start_daemon(const struct fb_daemon_options *options, int64_t until_ns,
                                   struct fb_error *err);

#endif
