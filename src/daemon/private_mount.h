/*
 * daemon/private_mount.h - a mount that only programs under the preload library see, for a source
 * that has no directory on this machine: a bucket.
 *
 * What the library serves in the program's own process needs none. Whatever else a program does
 * below the path it was promised (list, write, map) needs a file system, and the library leads it
 * here: DIR/HASH, below the daemon's runtime directory, which nobody else may enter.
 *
 *     life:   directory made ► mounted ► (programs) ► unmounted, lazily if busy ► directory gone
 *
 * The name is made of the source and of where it is, so that a program that outlives its daemon
 * finds the next one's mount in the same place. What a killed daemon has left is cleared by the
 * next one, which holds the lock of the same cache directory.
 */
#ifndef FB_DAEMON_PRIVATE_MOUNT_H
#define FB_DAEMON_PRIVATE_MOUNT_H

#include "base/attr.h"
#include "cache/cache.h"
#include "core/error.h"
#include "daemon/config.h"
#include "daemon/source_dir.h"

struct fb_private_mount;

/* What tells one source of that kind from another: its name, and where it answers. NULL without
 * memory; free it. */
FB_MUST_CHECK char *fb_private_mount_key(const char *source,
                                         const struct fb_mount_settings *settings);

/* `source` is canonical. FB_MOUNT_STUCK (see fb_mount_start): it failed, and with a sentence. */
FB_MUST_CHECK int fb_private_mount_start(struct fb_cache *cache, const char *dir,
                                         const char *source, const char *key,
                                         const struct fb_mount_settings *settings,
                                         const struct fb_own_dirs *own,
                                         struct fb_private_mount **ret_mount, struct fb_error *err);

/* 0, or FB_MOUNT_STUCK. */
FB_MUST_CHECK int fb_private_mount_stop(struct fb_private_mount *mount);

struct fb_volume *fb_private_mount_volume(const struct fb_private_mount *mount);
const char *fb_private_mount_point(const struct fb_private_mount *mount);

/* Removes all that a dead daemon has left in `dir`, and `dir`. What cannot be removed is logged. */
void fb_private_mounts_clear(const char *dir);

#endif
