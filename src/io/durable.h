/*
 * io/durable.h - small files that must be whole after a power cut.
 */
#ifndef FB_IO_DURABLE_H
#define FB_IO_DURABLE_H

#include <stddef.h>

#include "base/attr.h"

/* Writes name.tmp, flushes it, renames it over `name`, flushes the directory: after a crash there
 * is the old content or the new, never a mixture. Mode 0600. */
FB_MUST_CHECK int fb_durable_write(int dir_fd, const char *name, const void *data, size_t size);

/* Reads a whole file of at most `max` bytes; *ret_data is malloc'd and zero-terminated. -EFBIG
 * beyond. */
FB_MUST_CHECK int fb_durable_read(int dir_fd, const char *name, size_t max, char **ret_data,
                                  size_t *ret_size);

#endif
