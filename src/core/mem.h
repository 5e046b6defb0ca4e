/*
 * core/mem.h - allocation and scope-bound release.
 *
 * fb_alloc returns zeroed memory or NULL; sizes are checked for overflow. The FB_AUTO_* forms
 * release at the end of the scope; fb_steal() hands a pointer on.
 */
#ifndef FB_CORE_MEM_H
#define FB_CORE_MEM_H

#include <stdlib.h>
#include <unistd.h>

#include "base/attr.h"

FB_MUST_CHECK void *fb_alloc(size_t size);
FB_MUST_CHECK void *fb_alloc_array(size_t count, size_t size);
/* For arrays of many megabytes that are read or written at random: on huge pages where the kernel
 * gives them. Not zeroed; freed like the rest. */
FB_MUST_CHECK void *fb_alloc_large(size_t count, size_t size);
/* Addresses where huge pages fit, with nothing mapped there: to be mapped over, and unmapped. NULL
 * and errno. */
FB_MUST_CHECK void *fb_reserve_large(size_t bytes);
/* For what disks read into and write from: zeroed, of huge pages where the kernel gives them, and
 * taken only as it is used. A page of 4 KiB is a piece of a request of its own, which halves the
 * speed of some virtual disks. */
FB_MUST_CHECK void *fb_map_large(size_t bytes);
void fb_unmap_large(void *p, size_t bytes);
/* What that takes: whole huge pages, unless that is an eighth more. */
size_t fb_map_large_bytes(size_t bytes);
FB_MUST_CHECK char *fb_strdup(const char *s);
FB_MUST_CHECK char *fb_asprintf(const char *format, ...) FB_PRINTF(1, 2);

static inline void fb_freep(void *p)
{
    free(*(void **)p);
}

static inline void fb_closep(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

#define FB_AUTO_FREE  FB_CLEANUP(fb_freep)
#define FB_AUTO_CLOSE FB_CLEANUP(fb_closep)

#define fb_steal(p)      \
 ({                      \
__typeof__(p) stolen_ = (p); \
(p) = NULL;                  \
stolen_;                     \
 })

static inline int fb_steal_fd(int *fd)
{
    int stolen = *fd;
    *fd = -1;
    return stolen;
}

#endif
