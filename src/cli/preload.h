/*
 * cli/preload.h - programs that run with the preload library, which serves their reads of the
 * sources from the cache; this program is never one of them.
 */
#ifndef FB_CLI_PRELOAD_H
#define FB_CLI_PRELOAD_H

#include <jansson.h>

#include "base/attr.h"
#include "core/error.h"

/* Where the library is: FOREBAY_PRELOAD_LIB; in the build tree, or where it was installed, as seen
 * from this program's file, so that either may be moved. Free *ret_path. */
FB_MUST_CHECK int cli_preload_find(char **ret_path, struct fb_error *err);

/* Changes the environment so that what is executed next has the library, and finds the daemon:
 * `reply` is the daemon's to "attach". What was preloaded before stays. */
FB_MUST_CHECK int cli_preload_set(const char *library, const json_t *reply, struct fb_error *err);

/* In a shell under `forebay run` this program has the library, too. A daemon that reads its sources
 * through another's cache, or through its own, is not what anybody meant: so it is executed anew
 * without. Returns when there is nothing to do (or no way to do it). */
void cli_preload_shed(char **argv);

/* Where a bucket's path is mounted that programs of this environment see at `path`; NULL: it is
 * below none of them, or there is no memory. */
char *cli_preload_point(const char *path);

#endif
