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
 * daemon is no child of the caller. `others` (ended by NULL; may be NULL) are words of argv that
 * have nothing to do with it: ps(1) does not show them as its own, and pkill(1) does not take it
 * for the program that they name. On failure it has ended, and nothing of it is left, when this
 * returns. */
FB_MUST_CHECK int cli_start_daemon(const struct fb_daemon_options *options, char **others,
                                   int64_t until_ns, struct fb_error *err);

#endif
