/*
 * doors/fuse/mount.h - the FUSE door: a source as a file system.
 *
 * A node is a file record (the node id is the record's id plus one; 1 is the root), so a changed
 * file is a new inode and the kernel can never mix pages of two versions. Requests are answered
 * from whichever thread finishes them; the session's few threads only take requests in and never
 * wait for disk or source.
 *
 *   close-to-open  OPEN looks the file up again once its record has outlived the TTL; a changed
 *                  file answers ESTALE, upon which the kernel looks the name up anew and opens the
 *                  new inode, unseen by the program. The page cache is kept while the version
 *                  holds.
 *   static         OPEN and FLUSH are answered ENOSYS once, after which the kernel opens and closes
 *                  without asking. Names and attributes are cached for as long as the kernel likes;
 *                  `forebay evict` invalidates. Nothing can be written.
 *
 * What programs change goes to the source at once, and is answered when the source has done it; see
 * live.c for what that means for nodes.
 */
#ifndef FB_DOORS_FUSE_MOUNT_H
#define FB_DOORS_FUSE_MOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "cache/cache.h"
#include "core/error.h"

enum fb_consistency {
    FB_CLOSE_TO_OPEN,
    FB_STATIC,
};

#define FB_CONSISTENCY_NAMES "close-to-open|static"

struct fb_mount_config {
    const char *mountpoint; /* absolute */
    const char *fs_name;    /* first column of /proc/mounts; the type is fuse.forebay */
    enum fb_consistency consistency;
    int64_t metadata_ttl_ns;
    int64_t timeout_ns;
    bool bypass; /* no caching, neither here nor in the kernel's page cache */
    bool allow_other;
    bool read_only;
    bool no_exec;
    unsigned threads;        /* 0: one per CPU */
    unsigned max_background; /* requests the kernel keeps in flight */
    /* The file system was unmounted by someone else: fb_mount_stop() is due. Called once, by a
     * thread that fb_mount_stop() waits for: it may neither call it nor wait for it. */
    void (*ended)(void *arg);
    void *arg;
};

struct fb_mount;

enum {
    /* The mount is gone, but requests never ended: it is left in memory, with its volume attached,
     * as they may come back to both. The cache must not be closed any more. */
    FB_MOUNT_STUCK = 1,
};

/* Attaches the source to the cache (takes the source over, also on failure), mounts and serves.
 * When it returns 0 the mount is live. A stale mount of a dead daemon in that place is removed
 * first. FB_MOUNT_STUCK: it failed, and did not come apart; with a sentence, as any failure. */
FB_MUST_CHECK int fb_mount_start(struct fb_cache *cache, struct fb_source *source,
                                 const struct fb_mount_config *config, struct fb_mount **ret_mount,
                                 struct fb_error *err);

/* Unmounts (lazily when busy and `force`; -EBUSY when busy and not) and ends the threads. Bounded
 * in time. The mount may not be used any more after 0 and FB_MOUNT_STUCK. */
FB_MUST_CHECK int fb_mount_stop(struct fb_mount *mount, bool force);

/* True when a mount stands there whose daemon is dead, ours or another's. stat() does not tell: the
 * kernel may still know the answer. Asks a living daemon, which answers within its deadlines. */
bool fb_mount_is_dead(const char *mountpoint);

/* Removes the mount that a dead daemon has left there, if there is one. */
FB_MUST_CHECK int fb_mount_clear(const char *mountpoint, struct fb_error *err);

/* Removes the mount that stands there, whoever serves it: the kernel's way for those who may, else
 * fusermount3's. None there is fine. -EBUSY when it is in use and not `lazy`. */
FB_MUST_CHECK int fb_mount_remove(const char *mountpoint, bool lazy);

/* After fb_cache_evict(): waits, a few seconds at most, until the kernel has forgotten it, too. */
void fb_mount_flush(struct fb_mount *mount);

struct fb_volume *fb_mount_volume(struct fb_mount *mount);
const char *fb_mount_point(const struct fb_mount *mount);

#endif
