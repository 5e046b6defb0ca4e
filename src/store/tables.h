/*
 * store/tables.h - the memory of the shared tables: one memfd, laid out as proto/layout.h says.
 *
 * Sealed against shrinking and growing, so that a process that maps it cannot be killed by a
 * SIGBUS. Pages are touched, and so taken, only as the tables fill.
 */
#ifndef FB_STORE_TABLES_H
#define FB_STORE_TABLES_H

#include <stdint.h>

#include "base/attr.h"
#include "proto/layout.h"

struct fb_tables_shape {
    uint64_t items;
    uint64_t segments;
    uint64_t files_bytes;
    uint64_t dram_segments;
    uint64_t dram_segment_bytes;
    uint32_t block_bytes;
};

uint64_t fb_tables_bytes(const struct fb_tables_shape *shape);

FB_MUST_CHECK int fb_tables_create(const struct fb_tables_shape *shape,
                                   struct fb_layout *ret_layout, int *ret_memfd);
/* Takes what create() left, also after a failure. */
void fb_tables_destroy(struct fb_layout *layout, int memfd);

#endif
