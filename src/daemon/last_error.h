/*
 * daemon/last_error.h - errno as a result.
 */
#ifndef FB_DAEMON_LAST_ERROR_H
#define FB_DAEMON_LAST_ERROR_H

#include <errno.h>

/* Of the system call that just failed; never 0, which would pass for success. */
static inline int fb_last_error(void)
{
    int code = 0 - errno;

    return code < 0 ? code : -EIO;
}

#endif
