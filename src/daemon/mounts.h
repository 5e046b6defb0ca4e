/*
 * daemon/mounts.h - the daemon's mounts: each a source (behind a fault source when asked) and a
 * door. Their life: roster.h.
 */
#ifndef FB_DAEMON_MOUNTS_H
#define FB_DAEMON_MOUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "cache/cache.h"
#include "core/error.h"
#include "daemon/config.h"
#include "daemon/source_dir.h"
#include "source/source.h"

struct fb_mounts;

/* Refuses, with a sentence, what cannot work: a source or mount point that is not there, one inside
 * the other, the cache inside either. On success both paths are canonical; free them. Touches
 * source and mount point and may hang with them. */
FB_MUST_CHECK int fb_mount_check(const char *source, const char *mountpoint,
                                 const struct fb_own_dirs *own, char **ret_source,
                                 char **ret_mountpoint, struct fb_error *err);

/* `changed` is called, on any thread, when a mount has ended by itself or has been removed. */
FB_MUST_CHECK int fb_mounts_create(struct fb_cache *cache, const struct fb_own_dirs *own,
                                   void (*changed)(void *arg), void *arg,
                                   struct fb_mounts **ret_mounts);

/* All mounts are gone. Takes NULL. */
void fb_mounts_destroy(struct fb_mounts *mounts);

/* Checks, opens the source and mounts. -EBUSY: that mount point is taken. What is odd about a mount
 * that succeeds is a sentence in `note`, for who asked; it is in the log already. */
FB_MUST_CHECK int fb_mounts_add(struct fb_mounts *mounts, const struct fb_mount_request *request,
                                struct fb_error *note, struct fb_error *err);

/* -ENOENT: no such mount here; -EBUSY: somebody uses it, and not `force`. */
FB_MUST_CHECK int fb_mounts_remove(struct fb_mounts *mounts, const char *mountpoint, bool force,
                                   struct fb_error *err);

/* Removes those that were unmounted by someone else. */
void fb_mounts_reap(struct fb_mounts *mounts);

/* Tries to remove every mount; returns how many are left. */
unsigned fb_mounts_remove_all(struct fb_mounts *mounts, bool force);

unsigned fb_mounts_count(struct fb_mounts *mounts);

/* Whether requests of a mount that is gone never ended: the cache must not be closed then. */
bool fb_mounts_stuck(struct fb_mounts *mounts);

/* Forgets what is cached below an absolute path at or below one of the mounts. -ENOENT: it is
 * below none. */
FB_MUST_CHECK int fb_mounts_evict(struct fb_mounts *mounts, const char *path, uint64_t *ret_files);

/* Calls `use` with the volume of the mount that holds the path, what of the path lies below it, and
 * the mount point; the mount stays meanwhile. Its result, or -ENOENT: no mount of ours holds it. */
typedef int fb_volume_use_fn(void *arg, struct fb_volume *volume, const char *below,
                             const char *root);
FB_MUST_CHECK int fb_mounts_use(struct fb_mounts *mounts, const char *path, fb_volume_use_fn *use,
                                void *arg);

struct fb_mount_view {
    const char *source;
    const char *mountpoint;
    const struct fb_mount_settings *settings;
    uint16_t volume_id; /* of live ones */
    bool live;          /* else it is starting or stopping, and there are no statistics */
    int64_t age_ns;
    struct fb_source_stats stats;
};

/* Calls `visit` for every mount, under the lock: it must not wait. */
void fb_mounts_visit(struct fb_mounts *mounts,
                     void (*visit)(void *arg, const struct fb_mount_view *view), void *arg);

#endif
