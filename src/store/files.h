/*
 * store/files.h - the file table: every path the cache knows, in shared memory, within a fixed
 * budget.
 *
 * A record stands for one version of one path and has an id for as long as anything refers to it:
 * the kernel (look-ups), open handles, requests under way (all counted as references), or items in
 * the index. The record found by path is the *current* one. When a regular file changes, a new
 * record becomes current and the old one lives on, unfindable, until it is let go: so an open file
 * keeps its version, and the kernel, which knows records as inodes, can never mix the pages of two.
 * Directories, links and others have no bytes here; their record is refreshed in place.
 *
 * States: free -> current (put) -> [refreshed ...] -> retired (replaced or removed) -> free. A
 * current record that nothing holds is on an LRU list, from which room is made when the table is
 * full.
 *
 * Ids are 2 and up: a door may use them as node ids with 1 for its root. An id together with
 * fb_files_generation() is never given out twice (in 2^31 records).
 *
 * Readers find by path without a lock (proto/layout.h); writers take FB_RANK_FILES.
 * Memory: records are 144 bytes plus the path, in size classes; no allocation outside the table.
 */
#ifndef FB_STORE_FILES_H
#define FB_STORE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "proto/layout.h"

struct fb_files;

/* The tables' memory, zeroed, belongs to the store. -EINVAL: too small for a single page. */
FB_MUST_CHECK int fb_files_create(struct fb_layout *layout, struct fb_files **ret_files);
void fb_files_destroy(struct fb_files *files);

/* The current record of a path with a reference added, or 0. Lock-free search, then a lock to take
 * the reference. */
uint32_t fb_files_find(struct fb_files *files, uint16_t source, const char *path);

/* A reference to the current record of a path, if that is `id`: what was noted some time ago may be
 * of a file that is no longer, and its number another's. */
FB_MUST_CHECK bool fb_files_hold(struct fb_files *files, uint32_t id, uint16_t source,
                                 const char *path);

enum fb_files_outcome {
    FB_FILES_SAME = 1, /* the version is as before: attributes and validity were refreshed */
    FB_FILES_NEW = 2,  /* the path was unknown */
    /* A new record; *ret_old is the retired one, with a reference for the caller (forget its items,
     * then unref). */
    FB_FILES_CHANGED = 3,
};

/* What the source said of a path just now. *ret_id gets a reference. -ENOMEM: no room even after
 * reclaiming (a record of another version stays, but is no longer valid); -ENAMETOOLONG. */
FB_MUST_CHECK int fb_files_put(struct fb_files *files, uint16_t source, const char *path,
                               const struct fb_attr *attr, int64_t valid_until_ns, uint32_t *ret_id,
                               uint32_t *ret_old);

/* What it said at `seen_ns`, valid for `ttl_ns` from then: what was learned since then is left
 * alone. -ESTALE: that is another version, which is no longer valid either. */
FB_MUST_CHECK int fb_files_hear(struct fb_files *files, uint16_t source, const char *path,
                                const struct fb_attr *attr, int64_t seen_ns, int64_t ttl_ns,
                                uint32_t *ret_id, uint32_t *ret_old);

/* A record of the path that nobody finds, beside the current one, which stays: it is there to have
 * an id. *ret_id gets a reference. -ENOMEM, -ENAMETOOLONG. */
FB_MUST_CHECK int fb_files_put_aside(struct fb_files *files, uint16_t source, const char *path,
                                     const struct fb_attr *attr, uint32_t *ret_id);

/* For recovery, which sees the newest version first: as put() with validity 0, but a path that is
 * known with another version is left alone: FB_FILES_CHANGED and *ret_id 0. */
FB_MUST_CHECK int fb_files_adopt(struct fb_files *files, uint16_t source, const char *path,
                                 const struct fb_attr *attr, uint32_t *ret_id);

/* The source says there is no such path: retires the current record; returns it with a reference,
 * or 0. */
uint32_t fb_files_remove(struct fb_files *files, uint16_t source, const char *path);

/* More references for somebody who has one, and fewer. */
void fb_files_ref(struct fb_files *files, uint32_t id, uint32_t count);
void fb_files_unref(struct fb_files *files, uint32_t id, uint32_t count);

/* For holders of a reference: the file's first item lies there in DRAM. A hint to readers. */
void fb_files_near(struct fb_files *files, uint32_t id, uint64_t dram_offset);

/* For holders of a reference. path and source never change while the reference is held, nor does
 * the version of a regular file. */
const struct fb_version *fb_files_version(const struct fb_files *files, uint32_t id);
const char *fb_files_path(const struct fb_files *files, uint32_t id, size_t *ret_len);
uint16_t fb_files_source(const struct fb_files *files, uint32_t id);
uint64_t fb_files_path_hash(const struct fb_files *files, uint32_t id);
/* A number of source, path and version: the same after a restart. */
uint64_t fb_files_identity(const struct fb_files *files, uint32_t id);
void fb_files_attr(struct fb_files *files, uint32_t id, struct fb_attr *ret_attr);
/* When it has to be asked about again; FB_FILES_OUTDATED_NS: it has changed since it was learned,
 * or may have, so that it must not be believed when nobody can be asked. */
#define FB_FILES_OUTDATED_NS (-1)
int64_t fb_files_valid_until(const struct fb_files *files, uint32_t id);
void fb_files_set_valid_until(struct fb_files *files, uint32_t id, int64_t until_ns);
/* It has to be asked about before it is used again; what is outdated stays so. */
void fb_files_doubt(struct fb_files *files, uint32_t id);
bool fb_files_current(const struct fb_files *files, uint32_t id);
uint32_t fb_files_generation(const struct fb_files *files, uint32_t id);

/* What stands at an id that may be no longer, or somebody else's; false when nothing of that source
 * does. ret_path has FB_PATH_MAX bytes. */
bool fb_files_peek(struct fb_files *files, uint32_t id, uint16_t source, char *ret_path,
                   size_t *ret_len, struct fb_version *ret_version);

/* As peek(), the identity alone. */
bool fb_files_peek_identity(struct fb_files *files, uint32_t id, uint16_t source,
                            uint64_t *ret_identity);

/* Items that came into (1) or left (-1) the index. Called under the index's lock, whose rank is
 * above FILES: these are atomic adds. Coming needs a reference, or another item. A record whose
 * last item leaves it unheld is let go by the next writer of the table. */
void fb_files_items_add(struct fb_files *files, uint32_t id, int delta);
uint32_t fb_files_items(const struct fb_files *files, uint32_t id);

/* All current records of `source` whose path is `path` or lies below it ("" = all); ids come with a
 * reference for the visitor to drop. The table may change meanwhile, also by the visitor. Returns
 * how many were visited. */
typedef void fb_files_visit_fn(void *arg, uint32_t id);
uint64_t fb_files_visit(struct fb_files *files, uint16_t source, const char *path,
                        fb_files_visit_fn *visit, void *arg);

struct fb_files_stats {
    uint64_t records;
    uint64_t bytes_used;
    uint64_t bytes_total;
    uint64_t reclaimed;
};

void fb_files_stats(struct fb_files *files, struct fb_files_stats *ret_stats);

#endif
