/*
 * daemon/shares.h - sources that programs of this machine read through the cache without a mount:
 * each a volume that the local door serves, under the names by which people write its directory.
 * Their life: roster.h.
 *
 * A source without a directory of its own, a bucket, has a private mount (private_mount.h) in place
 * of names: where a program wants to see it is between that program and the library in it.
 *
 * An entry is there for processes: each that asked for it holds a *lease*, which lasts as long as
 * the process. Without leases the entry goes, unless programs are still connected to the door: what
 * outlives the command that it was started for keeps it. Whoever asks for a source that is just
 * being opened, or let go, waits for that.
 */
#ifndef FB_DAEMON_SHARES_H
#define FB_DAEMON_SHARES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/attr.h"
#include "cache/cache.h"
#include "core/error.h"
#include "daemon/config.h"
#include "daemon/mounts.h"
#include "daemon/source_dir.h"
#include "doors/local/local.h"

#define FB_SHARES_MAX      32 /* sources */
#define FB_SHARE_NAMES_MAX 8  /* of one source */

struct fb_shares;

struct fb_share_source {
    const char *path; /* absolute, as somebody wrote it; or s3://bucket/prefix */
    const char *name; /* another way to write it, NULL: none; of a bucket: where it is to be seen */
};

/* What a process asks for. */
struct fb_share_request {
    pid_t pid;                                /* it lasts as long as this one */
    const struct fb_mount_settings *settings; /* those of a mount that have to do with a source */
    unsigned count;
    struct fb_share_source sources[FB_SHARES_MAX];
};

/* What it comes to. Called with the lock held. */
struct fb_share_answer {
    void (*root)(void *arg, const char *name);
    void (*mounted)(void *arg, const char *name, const char *point); /* what is seen at `name` */
    void (*note)(void *arg, const char *sentence); /* a setting that is not as asked for */
    void *arg;
};

/* Refuses, with a sentence, what cannot work. May hang with a source. */
FB_MUST_CHECK int fb_shares_check(const struct fb_share_request *request,
                                  const struct fb_own_dirs *own, struct fb_error *err);

/* `changed` is called, on any thread, when it is time for fb_shares_reap(). `mounts_dir`: where
 * private mounts are made, and removed with the last. */
FB_MUST_CHECK int fb_shares_create(struct fb_cache *cache, struct fb_local *local,
                                   const struct fb_own_dirs *own, const char *mounts_dir,
                                   void (*changed)(void *arg), void *arg,
                                   struct fb_shares **ret_shares);

/* All are gone. Takes NULL. */
void fb_shares_destroy(struct fb_shares *shares);

/* Checks, opens and serves what is not served yet; all of it or nothing. A source that is served
 * with other settings stays so, and the answer says it. `answer` may be NULL. */
FB_MUST_CHECK int fb_shares_attach(struct fb_shares *shares, const struct fb_share_request *request,
                                   const struct fb_share_answer *answer, struct fb_error *err);

/* For poll(2): readable when a process with a lease has ended. And how often to look all the same,
 * in milliseconds; -1: never. */
int fb_shares_fd(const struct fb_shares *shares);
int fb_shares_poll_ms(struct fb_shares *shares);

/* Ends the leases of processes that have ended, and entries that nobody needs any more. */
void fb_shares_reap(struct fb_shares *shares);

/* Whoever uses them. Nobody may be attaching. */
void fb_shares_remove_all(struct fb_shares *shares);

unsigned fb_shares_count(struct fb_shares *shares);

/* As fb_mounts_stuck(). */
bool fb_shares_stuck(struct fb_shares *shares);

/* Forgets what is cached at an absolute path at or below one of the sources, by any of its names.
 * -ENOENT: it is below none. */
FB_MUST_CHECK int fb_shares_evict(struct fb_shares *shares, const char *path, uint64_t *ret_files);

/* The same for shares (see fb_mounts_use); the root is the name by which the path was found. */
FB_MUST_CHECK int fb_shares_use(struct fb_shares *shares, const char *path, fb_volume_use_fn *use,
                                void *arg);

struct fb_share_view {
    const char *source;
    unsigned name_count;
    char *const *names; /* the first is the source itself, or the private mount */
    const struct fb_mount_settings *settings;
    uint16_t volume_id; /* of live ones */
    unsigned programs;  /* leases */
    bool live;          /* else it is starting or stopping, and there are no statistics */
    int64_t age_ns;
    struct fb_source_stats stats;
};

/* Calls `visit` for every entry, under the lock: it must not wait. */
void fb_shares_visit(struct fb_shares *shares,
                     void (*visit)(void *arg, const struct fb_share_view *view), void *arg);

#endif
