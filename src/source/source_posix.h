/*
 * source/source_posix.h - a directory as a source, served by a pool of blocking threads.
 *
 * Every path is resolved from the root with openat2(RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS |
 * RESOLVE_NO_SYMLINKS). Doors hand over paths that the kernel walked component by component, so no
 * symbolic link in the middle ever has to be followed; one that a change of the source puts there
 * gives -ELOOP, and so cannot lead around the permissions of a directory either. `..` that leaves
 * the root, and absolute paths, give -EACCES. The last component is never followed: READ of a
 * symbolic link gives -ELOOP, of a directory -EISDIR, of anything else but a regular file -EINVAL,
 * and a FIFO or device is never opened. Where the kernel has no openat2 the source refuses to open.
 *
 * A READ opens, checks the version, reads, checks the version again, closes. Bytes missing although
 * the version held are -EIO.
 *
 * Stuck threads. A thread that has been in one job for longer than that job's deadline counts as
 * stuck, and another takes its place, up to FB_POSIX_STUCK_MAX; when the pool cannot grow any more
 * and all its threads are stuck, jobs fail with -EIO until threads come back.
 *
 * The root. Its path, device and file-system type are remembered, and whether a file system is
 * mounted right there. When the path is gone, or leads to another device, or no longer to a mount
 * point (an unmounted disk shows the empty directory below), every answer is an outage (-EIO). When
 * it comes back on the same device - or, for file systems without a fixed device number, with the
 * same type - it is opened anew and work goes on. This is looked at once a second while all is
 * well, and always before a name is said not to exist.
 */
#ifndef FB_SOURCE_SOURCE_POSIX_H
#define FB_SOURCE_SOURCE_POSIX_H

#include "source/source.h"

#define FB_POSIX_THREADS_NEAR 16
#define FB_POSIX_THREADS_FAR  64
#define FB_POSIX_FAR_NS       2000000LL /* takes a request, where it is far */
#define FB_POSIX_STUCK_MAX    64
#define FB_POSIX_OPEN_NS      10000000000LL /* a root that does not answer by then: -ETIMEDOUT */

struct fb_posix_config {
    const char *root; /* absolute or relative; made canonical */
    unsigned threads; /* 0: by how far it is */
};

/* Sentences for: no such directory, not a directory, no permission, no answer. Not before a fork:
 * the threads would stay behind. */
FB_MUST_CHECK int fb_source_posix_open(const struct fb_posix_config *config,
                                       struct fb_source **ret_source, struct fb_error *err);

#endif
