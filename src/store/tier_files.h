/*
 * store/tier_files.h - the files behind a persistent tier: one file `segments` a directory.
 *
 * Slot s lies in directory s % n at (s / n) * segment_bytes, so that the place of a slot does not
 * change when the budget does.
 */
#ifndef FB_STORE_TIER_FILES_H
#define FB_STORE_TIER_FILES_H

#include "store/cachedir.h"
#include "store/tier_priv.h"

struct fb_tier_file {
    struct fb_cachedir dir;
    int fd;
    uint32_t slots; /* of this directory */
};

struct fb_tier_files {
    uint64_t id[2];
    double free_space_ratio;
    unsigned count;
    struct fb_tier_file file[];
};

/* Locks the directories, checks their superblocks (or starts anew), opens the files (with
 * `open_flags`; O_DIRECT is dropped where the file system refuses it) and cuts them to the budget.
 * Sets tier->files; close() also after a failure. */
FB_MUST_CHECK int fb_tier_files_open(struct fb_tier *tier, const struct fb_tier_config *config,
                                     int open_flags, struct fb_error *err);
void fb_tier_files_close(struct fb_tier *tier);

static inline struct fb_tier_file *fb_tier_file_of(const struct fb_tier *tier, uint32_t slot)
{
    return &tier->files->file[slot % tier->files->count];
}

static inline uint64_t fb_tier_file_offset(const struct fb_tier *tier, uint32_t slot)
{
    return slot / tier->files->count * tier->segment_bytes;
}

/* Gives a slot its space. 0; FB_TIER_FULL: floor, disk or quota; negative errno: the medium fails.
 * By one thread alone, since the floor is looked at first. */
FB_MUST_CHECK int fb_tier_files_allocate(struct fb_tier *tier, uint32_t slot);

/* Takes its space away again. False: the file system cannot. */
FB_MUST_CHECK bool fb_tier_files_discard(struct fb_tier *tier, uint32_t slot);

/* Whether anything was written to the slot since it last got its space. */
bool fb_tier_files_has_data(struct fb_tier *tier, uint32_t slot);

/* Bytes by which the file system of a directory is under its floor, or 0. */
uint64_t fb_tier_files_shortage(const struct fb_tier *tier, unsigned stripe);

/* Directory or file of a stripe was removed. */
bool fb_tier_files_gone(const struct fb_tier *tier, unsigned stripe);

#endif
