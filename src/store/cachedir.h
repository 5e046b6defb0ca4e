/*
 * store/cachedir.h - one directory of a persistent tier: ours alone, locked, with a superblock.
 *
 *     lock        held with flock() while open; contains the owner's process number
 *     superblock  whose cache this is and how it was made; written whole or not at all
 *     segments    the slots (tier_files.c)
 *
 * The directories of one tier carry the same random id. Segments repeat it, so that what is left of
 * an older cache, or was copied from another, is never taken for ours.
 */
#ifndef FB_STORE_CACHEDIR_H
#define FB_STORE_CACHEDIR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/attr.h"
#include "core/error.h"

/* How a directory was made; all of it must be the same for its segments to be used. */
struct fb_cachedir_format {
    uint32_t kind; /* enum fb_tier_kind */
    uint32_t dir_count;
    uint32_t dir_index;
    uint64_t segment_bytes;
};

struct fb_cachedir {
    char *path;
    int fd;
    int lock_fd;
    dev_t dev;
    ino_t ino;
};

/* Takes from others what they may do in a directory of ours, whose mode is given: one that is a
 * cache already, or empty. -EPERM: others use it as well. */
FB_MUST_CHECK int fb_cachedir_make_private(int fd, const char *path, mode_t mode,
                                           struct fb_error *err);

/* Makes the directory (and those above it) where there is none, takes it into possession and locks
 * it. -EBUSY: another process has it; -EPERM: another user's. On failure `d` may be closed all the
 * same. */
FB_MUST_CHECK int fb_cachedir_open(struct fb_cachedir *d, const char *path, struct fb_error *err);
void fb_cachedir_close(struct fb_cachedir *d);

/* True when the superblock is whole and says `format`: then ret_id is the cache's. Otherwise
 * ret_why is half a sentence: "is new", "was made with segments of 16M". */
FB_MUST_CHECK bool fb_cachedir_read_superblock(const struct fb_cachedir *d,
                                               const struct fb_cachedir_format *format,
                                               uint64_t ret_id[2], struct fb_error *ret_why);
FB_MUST_CHECK int fb_cachedir_write_superblock(const struct fb_cachedir *d,
                                               const struct fb_cachedir_format *format,
                                               const uint64_t id[2]);

/* What the file system under a file has free, and what of it is to stay free. False and errno. */
FB_MUST_CHECK bool fb_cachedir_space(int fd, double free_space_ratio, uint64_t *ret_free,
                                     uint64_t *ret_floor);

/* The path no longer leads to the directory we opened. */
bool fb_cachedir_gone(const struct fb_cachedir *d);

#endif
