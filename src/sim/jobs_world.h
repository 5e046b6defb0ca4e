/*
 * sim/jobs_world.h - the files of a mix's data sets, named and numbered.
 *
 * Files are numbered set by set, in order of their names; items (blocks of large files, small
 * files) likewise, so that what lies below a directory is one range of files and one of items.
 * Made once, then only read: many runs share it. About 70 bytes a file.
 */
#ifndef FB_SIM_JOBS_WORLD_H
#define FB_SIM_JOBS_WORLD_H

#include "sim/jobs.h"

#define FB_JOBS_NONE UINT32_MAX

struct fb_jobs_file {
    const char *path;
    uint64_t bytes;
    uint32_t first_item;
    uint32_t blocks;
    uint16_t path_len;
    uint16_t set;
};

struct fb_jobs_world {
    const struct fb_job_mix *mix;
    struct fb_jobs_file *files; /* one more than there are, where items end */
    uint32_t file_count;
    uint32_t *item_file;
    uint32_t *item_bytes;
    uint32_t item_count;
    uint32_t *set_file; /* first of each set, and the end */
    uint64_t bytes;
    char *names;
};

FB_MUST_CHECK int fb_jobs_world_new(const struct fb_job_mix *mix, struct fb_jobs_world **ret_world);
void fb_jobs_world_free(struct fb_jobs_world *world);

static inline uint32_t fb_jobs_item_bytes(const struct fb_jobs_world *world, uint32_t item)
{
    return world->item_bytes[item];
}

/* Bytes of all files of a set. */
uint64_t fb_jobs_set_bytes(const struct fb_jobs_world *world, uint32_t set);

/* The directory that a file lies in: its first file, and how many there are. */
uint32_t fb_jobs_dir_of(const struct fb_jobs_world *world, uint32_t file, uint32_t *ret_first);

/* The files at and below a path (a directory or a file), as a range; false when there are none. */
bool fb_jobs_below(const struct fb_jobs_world *world, const char *path, size_t len,
                   uint32_t *ret_first, uint32_t *ret_end);

/* The end of the run of files that share with `file` the first `len` bytes of its path and the name
 * that follows them: the last file of a child of the directory of that length. */
uint32_t fb_jobs_child_end(const struct fb_jobs_world *world, uint32_t file, size_t len);

#endif
