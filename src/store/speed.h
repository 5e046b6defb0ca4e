/*
 * store/speed.h - how fast the disk under a cache directory reads, in sequence and at random.
 *
 * Measured once, with a file of our own in the directory, through the engine, around the kernel's
 * cache: written, then read twice each way, in large pieces one after the other and in small ones
 * anywhere, as many bytes at a time. The better of two counts, for others use the disk, too. Both
 * the bytes and the time are bounded. The result is remembered in the directory (file `speed`) for
 * a month. A disk with a large cache of its own is flattered in both.
 */
#ifndef FB_STORE_SPEED_H
#define FB_STORE_SPEED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "io/engine.h"

#define FB_SPEED_ITEM_BYTES (128u << 10) /* read at random */

struct fb_disk_speed {
    uint64_t sequential; /* bytes a second; 0: not known */
    uint64_t random;
    int64_t measured_wall_ns;
};

/* Takes the directory for as long as it lasts. `bytes` to write at most, and so that as much of the
 * file system stays free as segments leave. Negative: it could not be measured; who opens the
 * directory next is told why. */
FB_MUST_CHECK int fb_disk_speed(struct fb_engine *engine, const char *dir, uint64_t bytes,
                                double free_space_ratio, struct fb_disk_speed *ret_speed);

#endif
