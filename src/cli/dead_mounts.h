/*
 * cli/dead_mounts.h - mounts that a daemon left behind when it was killed.
 */
#ifndef FB_CLI_DEAD_MOUNTS_H
#define FB_CLI_DEAD_MOUNTS_H

#include <stdbool.h>

/* Calls `found` for every dead Forebay mount that this user may see, in bounded time. Those that
 * `alive` knows to be served are not touched. */
void cli_dead_mounts(bool (*alive)(void *arg, const char *mountpoint),
                     void (*found)(void *arg, const char *mountpoint), void *arg);

#endif
