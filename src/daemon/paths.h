/*
 * daemon/paths.h - absolute and canonical paths, and whether one lies inside the other.
 */
#ifndef FB_DAEMON_PATHS_H
#define FB_DAEMON_PATHS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/attr.h"

/* The path from the root, no symbolic link followed and nothing else looked at: cannot hang.
 * Trailing slashes are dropped. */
FB_MUST_CHECK int fb_path_absolute(const char *path, char **ret_path);

/* Without symbolic links, `.` and `..`, as far as the path exists; the rest is taken as written. A
 * dead mount counts as a name that exists. May hang where the file system does. */
FB_MUST_CHECK int fb_path_canonical(const char *path, char **ret_path);

/* As fb_path_canonical(), but the last component is kept as it is, even a symbolic link. */
FB_MUST_CHECK int fb_path_canonical_parent(const char *path, char **ret_path);

/* Whether canonical `inner` is `outer` or lies below it, be it through another mount of the same
 * directory. Only names that exist are compared by inode. */
bool fb_path_within(const char *outer, const char *inner);

/* The same, by the names alone. */
bool fb_path_below(const char *outer, const char *inner);

/* Takes out `.` and slashes too many, in place: it leads to where it led. */
void fb_path_tidy(char *path);

/* Whether it is absolute, not the root, and has neither `.` nor `..` nor a slash too many: a path
 * that other paths may simply begin with. */
bool fb_path_is_plain(const char *path);

/* Makes a directory and those above it that are missing, all with `mode`. Present is fine. */
FB_MUST_CHECK int fb_path_mkdirs(const char *path, mode_t mode);

#endif
