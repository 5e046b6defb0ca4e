/*
 * cache/epoch_file.h - plans over a restart: files `plan.N` in the first cache directory.
 *
 *     head      magic, version, the order (what shuffles, who reads), lengths, checksums
 *     text      the source's URI, the directory below it, the paths of all files, each ended by a
 *               zero; in the data set's order, so the source need not be listed again
 *
 * `plan.N.epoch` is small and written anew each epoch. Both are replaced as a whole; one that is
 * damaged is as if it were not there.
 */
#ifndef FB_CACHE_EPOCH_FILE_H
#define FB_CACHE_EPOCH_FILE_H

#include "base/attr.h"
#include "cache/cache.h"

struct fb_saved_plan {
    char *uri; /* malloc'd, as the next */
    char *dir;
    struct fb_plan_order order; /* spec.first_epoch is where it was */
    uint64_t first_epoch;       /* where it began */
    bool found;
    struct fb_names *names; /* NULL unless asked for */
};

void fb_saved_plan_clear(struct fb_saved_plan *saved);

/* Negative errno. */
FB_MUST_CHECK int fb_plan_save(int dir_fd, unsigned number, const struct fb_saved_plan *plan);
FB_MUST_CHECK int fb_plan_save_epoch(int dir_fd, unsigned number, uint64_t epoch);
void fb_plan_unsave(int dir_fd, unsigned number);

/* With names of so many bytes of memory at most; 0: without them. -ENOENT: there is none; -EBADMSG:
 * it is damaged; -E2BIG: its names take more. */
FB_MUST_CHECK int fb_plan_load(int dir_fd, unsigned number, uint64_t names_bytes,
                               struct fb_saved_plan *ret_plan);

#endif
