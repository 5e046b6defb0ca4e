/*
 * daemon/runtime.h - where daemons are found, and what keeps two of them from one cache directory.
 *
 * A daemon is named by its first cache directory, its *home*. It holds a lock on the file
 * `daemon.lock` there for as long as it lives, and listens on two sockets in the runtime directory
 * that carry the hash of the home's canonical path: HASH.sock for requests, HASH.client for
 * programs that read through it. Whoever holds the lock may replace them, and what is left of
 * HASH.mounts, where sources without a directory of their own are mounted for programs.
 *
 * The runtime directory: $FOREBAY_RUNTIME_DIR, else /run/forebay for root, else
 * $XDG_RUNTIME_DIR/forebay, else /tmp/forebay-UID. It is ours, no link, and nobody else writes
 * there.
 */
#ifndef FB_DAEMON_RUNTIME_H
#define FB_DAEMON_RUNTIME_H

#include <stdbool.h>

#include "base/attr.h"
#include "core/error.h"

#define FB_RUNTIME_SOCKETS_MAX 256 /* of one user */

/* `make` creates it where it is missing; else a missing one is -ENOENT. */
FB_MUST_CHECK int fb_runtime_dir(bool make, char **ret_dir, struct fb_error *err);

/* The path of the socket of that home. */
FB_MUST_CHECK int fb_runtime_socket(const char *home, bool make, char **ret_path,
                                    struct fb_error *err);

/* The path of the socket on which that daemon serves programs: the same, with another ending. */
FB_MUST_CHECK int fb_runtime_client_socket(const char *home, bool make, char **ret_path,
                                           struct fb_error *err);

/* The directory of that daemon's private mounts: nothing is made. */
FB_MUST_CHECK int fb_runtime_mounts(const char *home, char **ret_path, struct fb_error *err);

/* All control sockets in the runtime directory, in the order of their names: an array ended by
 * NULL. No directory is no sockets. */
FB_MUST_CHECK int fb_runtime_sockets(char ***ret_paths, struct fb_error *err);
void fb_runtime_sockets_free(char **paths); /* takes NULL */

/* Makes the home (0700) and locks it. -EBUSY: another process holds it. The lock goes with the
 * descriptor. */
FB_MUST_CHECK int fb_runtime_lock(const char *home, int *ret_fd, struct fb_error *err);

#endif
