/*
 * io/wait.h - a read in the calling thread, which stays awake for a fast disk.
 */
#ifndef FB_IO_WAIT_H
#define FB_IO_WAIT_H

#include <stdint.h>

#include "base/attr.h"

/* Who has one lets its thread wait, and says what the thread does first: while the disk works,
 * where the disk can be made to. */
struct fb_meanwhile {
    void (*run)(struct fb_meanwhile *self); /* NULL: nothing */
};

/* As pread(): bytes, fewer than asked for perhaps, or negative errno. Any thread. */
FB_MUST_CHECK int64_t fb_wait_read(int fd, void *data, uint32_t length, uint64_t offset,
                                   struct fb_meanwhile *meanwhile);

#endif
