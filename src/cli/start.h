/*
 * cli/start.h - a daemon in the background: started by a parent that waits until it is ready.
 */
#ifndef FB_CLI_START_H
#define FB_CLI_START_H

#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"
#include "daemon/config.h"

enum {
    START_OWNED = 1,       /* another process owns the cache directory */
    START_CHILD = 2,       /* this is the daemon's process, and it has ended: exit */
    START_INTERRUPTED = 3, /* a signal came; the daemon was ended */
};

/* Forks a daemon with that one mount and waits until the mount is live. On failure the daemon has
 * ended, and nothing of it is left, when this returns. */
FB_MUST_CHECK int cli_start_daemon(const struct fb_config *config,
                                   const struct fb_mount_request *mount, int64_t until_ns,
                                   struct fb_error *err);

#endif
