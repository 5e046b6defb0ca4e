/*
 * epoch/names.h - the files of a data set, in the data set's order, by number and by path.
 *
 * Built for tens of millions of files. Names stand one behind the other in one arena; a directory
 * is kept once, and a run says which directory a stretch of files is in:
 *
 *     arena    n01440764_10026.JPEG\0n01440764_10027.JPEG\0 ...      18 to 25 bytes a file
 *     offsets  of the name, from the beginning of its run             4
 *     runs     first file, where its name is, directory               16 a run
 *     sizes    4 (8 where a file has 4 GiB or more), if they are told
 *     slots    path -> number, a hash table without the paths         6
 *
 * A listing in order has a run for each directory; a shuffled list may have one for each file. Used
 * by one thread while it is built, by any number of them afterwards.
 */
#ifndef FB_EPOCH_NAMES_H
#define FB_EPOCH_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

#define FB_NAMES_MAX       UINT32_C(0xfffffff0) /* files */
#define FB_NAMES_PATH_SIZE 8192                 /* of a path, with its NUL */

struct fb_names;

FB_MUST_CHECK struct fb_names *fb_names_new(void);
void fb_names_free(struct fb_names *n);

/* The files added from now on are in `dir`, relative to the data set; "" is its top. -ENOMEM. */
FB_MUST_CHECK int fb_names_enter(struct fb_names *n, const char *dir, size_t len);

#define FB_NAMES_NO_SIZE UINT64_MAX

/* Sizes are told for all files or for none. -ENOMEM; -E2BIG: more than FB_NAMES_MAX;
 * -ENAMETOOLONG. */
FB_MUST_CHECK int fb_names_add(struct fb_names *n, const char *name, size_t len,
                               uint64_t size_bytes);

/* Enters a path's directory when it is another one, and adds its last part. */
FB_MUST_CHECK int fb_names_add_path(struct fb_names *n, const char *path, size_t len,
                                    uint64_t size_bytes);

/* Makes fb_names_find() possible; to be called once, after the last file. -ENOMEM. */
FB_MUST_CHECK int fb_names_index(struct fb_names *n);

uint32_t fb_names_count(const struct fb_names *n);
bool fb_names_have_sizes(const struct fb_names *n);
uint64_t fb_names_size(const struct fb_names *n, uint32_t file); /* 0 when sizes were not told */
uint64_t fb_names_memory(const struct fb_names *n);              /* bytes in use */

/* The path relative to the data set; returns its length. */
size_t fb_names_path(const struct fb_names *n, uint32_t file, char buf[FB_NAMES_PATH_SIZE]);

/* The first file of that path. */
FB_MUST_CHECK bool fb_names_find(const struct fb_names *n, const char *path, size_t len,
                                 uint32_t *ret_file);

#endif
