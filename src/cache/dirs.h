/*
 * cache/dirs.h - directories that are known: which names, in which order, how large.
 *
 *     visited often ──► listed in the background ──► known ──► aged: listed again when asked for
 *                                   │                  └─ changed through a door: the same
 *                                   └─ too large, or failed ──► unknown for a while
 *
 * Prefetch must know what follows a file, and the tests of patterns how many there are. No listing
 * from here is ever shown to programs: one that is out of date costs a request for a name that is
 * gone. Attributes that come with the listing of a far directory are learned (fb_cache_hear).
 *
 * Two orders. The *position* of a name is its place in the source's listing, which is what a
 * program sees that takes a directory as it comes. Its *rank* is its place in the order of names
 * (stream/name.h), for programs that sort or count; names of one order go by their bytes. A listing
 * that comes in another order each time (`unstable`) has ranks that can be relied on and positions
 * that cannot.
 *
 * A struct fb_dir is one listing: it never changes, and lives while somebody has a reference. What
 * all of them take is bounded (fb_dirs_bytes); the least recently used is forgotten first.
 *
 * Lock: FB_RANK_DIRS, never held while a source is asked. Any thread.
 */
#ifndef FB_CACHE_DIRS_H
#define FB_CACHE_DIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "cache/cache.h"

#define FB_DIRS_VISITS    32u /* of a directory before it is worth a listing */
#define FB_DIR_SIZE_NONE  UINT64_MAX
#define FB_DIRS_WALK_DEEP 64u /* levels of directories that a walk goes down */

struct fb_dirs;
struct fb_dir;

FB_MUST_CHECK int fb_dirs_create(struct fb_cache *cache, struct fb_dirs **ret_dirs);
void fb_dirs_destroy(struct fb_dirs *dirs); /* all volumes are detached; takes NULL */
struct fb_dirs *fb_cache_dirs(struct fb_cache *cache);

/* Memory that listings may take, of so much in all. */
uint64_t fb_dirs_bytes(uint64_t memory_bytes);
/* Directories that may be listed at a time, here or ahead of a walk. */
unsigned fb_dirs_at_once(uint64_t memory_bytes);

/* What is known of a directory (path below the source, "" is the root), with a reference, or NULL:
 * then it is being listed, if a volume of the source is there, and known soon. */
struct fb_dir *fb_dirs_get(struct fb_dirs *dirs, uint16_t source, const char *path, size_t len);

/* The same for who has read a file in it: listed only after FB_DIRS_VISITS of these. */
struct fb_dir *fb_dirs_visited(struct fb_dirs *dirs, uint16_t source, const char *path, size_t len);

/* The directory of a path was changed through a door. */
void fb_dirs_changed(struct fb_dirs *dirs, uint16_t source, const char *path);

void fb_dir_put(struct fb_dir *dir); /* takes NULL */

struct fb_dir_entry {
    const char *name; /* lives as long as the reference */
    uint8_t name_len;
    uint8_t type;  /* DT_* */
    uint64_t size; /* FB_DIR_SIZE_NONE: unknown */
};

uint32_t fb_dir_count(const struct fb_dir *dir);
/* No other listing has the same. */
uint64_t fb_dir_serial(const struct fb_dir *dir);
bool fb_dir_is_unstable(const struct fb_dir *dir);
struct fb_dir_entry fb_dir_at(const struct fb_dir *dir, uint32_t position);

/* The position of the name of a rank. */
uint32_t fb_dir_ranked(const struct fb_dir *dir, uint32_t rank);

/* False: there is no such name in it. */
bool fb_dir_find(const struct fb_dir *dir, const char *name, size_t len, uint32_t *ret_position,
                 uint32_t *ret_rank);

/* ---- whole data sets ---- */

struct fb_walked {
    struct fb_volume *volume;   /* it is of; stays until the visit returns */
    const char *path;           /* below the source */
    uint8_t type;               /* DT_*; directories come before what is in them */
    const struct fb_attr *attr; /* NULL: the listing does not tell */
    struct fb_heard heard;      /* when */
};

/* 0: go on. Anything else ends the walk, and is its result. */
typedef int fb_walk_fn(void *arg, const struct fb_walked *walked);

/* Lists a directory and all below it, in the order of the listings, on the calling thread, which
 * waits for the source. A directory that cannot be listed is left out, the first one excepted.
 * `attrs`: they are wanted, where the source must be asked for each; without, a type may be
 * DT_UNKNOWN. -ENODEV: no volume of the source is there; -ESHUTDOWN: it was detached meanwhile,
 * which waits for the visit under way. */
FB_MUST_CHECK int fb_dirs_walk(struct fb_cache *cache, uint16_t source, const char *path,
                               bool attrs, fb_walk_fn *visit, void *arg);

#endif
