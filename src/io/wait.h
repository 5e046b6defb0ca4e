/*
 * io/wait.h - a read in the calling thread, which stays awake for a fast disk.
 */
#ifndef FB_IO_WAIT_H
#define FB_IO_WAIT_H

#include <stdint.h>

#include "base/attr.h"

/* As pread(): bytes, fewer than asked for perhaps, or negative errno. Any thread. */
FB_MUST_CHECK int64_t fb_wait_read(int fd, void *data, uint32_t length, uint64_t offset);

#endif
