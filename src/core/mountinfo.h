/*
 * core/mountinfo.h - what /proc/self/mountinfo knows of the mount at, or above, a path, and where
 * mounts of one type stand.
 */
#ifndef FB_CORE_MOUNTINFO_H
#define FB_CORE_MOUNTINFO_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/attr.h"

#define FB_MOUNT_TYPE "fuse.forebay"

struct fb_mountinfo {
    char *mountpoint;
    char *type;
    char *source;
    dev_t dev;
    int64_t user; /* who mounted it, as FUSE has it; -1: not told */
};

/* The mount whose mount point is the longest that `path` (canonical) lies at or below; of several
 * on one point the topmost. -ENOENT: no line matched. */
FB_MUST_CHECK int fb_mountinfo_find(const char *path, struct fb_mountinfo *ret_info);

/* The same from any text in that format: for tests. */
FB_MUST_CHECK int fb_mountinfo_parse(FILE *file, const char *path, struct fb_mountinfo *ret_info);

/* The mount that stands exactly there, the topmost. -ENOENT: none does. */
FB_MUST_CHECK int fb_mountinfo_at(const char *mountpoint, struct fb_mountinfo *ret_info);

/* Whether a Forebay mount stands exactly there. False when that cannot be told. */
bool fb_mountinfo_is_forebay(const char *path);
/* The path is on one, at its root or below. */
bool fb_mountinfo_is_below_forebay(const char *path);

#define FB_MOUNTINFO_POINTS_MAX 256

/* Where mounts of that type stand, each place once, at most FB_MOUNTINFO_POINTS_MAX; ended by
 * NULL. */
FB_MUST_CHECK int fb_mountinfo_points(const char *type, char ***ret_points);
FB_MUST_CHECK int fb_mountinfo_points_parse(FILE *file, const char *type, char ***ret_points);
void fb_mountinfo_points_free(char **points);

void fb_mountinfo_free(struct fb_mountinfo *info);

#endif
