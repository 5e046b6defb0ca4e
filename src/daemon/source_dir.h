/*
 * daemon/source_dir.h - a source before it is a volume: whether it can be one at all, and how it is
 * opened. Mounts and shares do both in this one way.
 */
#ifndef FB_DAEMON_SOURCE_DIR_H
#define FB_DAEMON_SOURCE_DIR_H

#include "base/attr.h"
#include "core/error.h"
#include "daemon/config.h"
#include "doors/fuse/mount.h"
#include "source/source.h"

/* What is the daemon's own: the directories of its cache, and what sources write down there. */
struct fb_own_dirs {
    struct fb_s3_journal *journal; /* of uploads; NULL: none */
    unsigned count;
    char *const *dirs;
    const char *pmem_dir; /* NULL: none */
};

/* Refuses, with a sentence, what cannot be a source: what is not there, is no directory, or holds
 * the cache or lies in it. On success the path is canonical; free it. Touches the source and may
 * hang with it. */
FB_MUST_CHECK int fb_source_dir_check(const char *source, const struct fb_own_dirs *own,
                                      char **ret_source, struct fb_error *err);

/* Refuses, with a sentence, an address of another kind than Forebay reads (gs://, https://), which
 * would else pass for the name of a directory. Before the text is made a path. */
FB_MUST_CHECK int fb_source_dir_check_url(const char *text, struct fb_error *err);

/* Opens what is checked, behind a fault source when the settings ask for one. */
FB_MUST_CHECK int fb_source_dir_open(const char *source, const struct fb_mount_settings *settings,
                                     const struct fb_own_dirs *own, struct fb_source **ret_source,
                                     struct fb_error *err);

/* Opens a source (canonical) and mounts it, as the settings say; `ended` is that of a mount's
 * configuration, and may be NULL. FB_MOUNT_STUCK: see fb_mount_start(). */
FB_MUST_CHECK int fb_source_dir_mount(struct fb_cache *cache, const char *source,
                                      const char *mountpoint,
                                      const struct fb_mount_settings *settings,
                                      const struct fb_own_dirs *own, void (*ended)(void *arg),
                                      void *arg, struct fb_mount **ret_mount, struct fb_error *err);

const char *fb_source_health_name(enum fb_source_health health);

#endif
