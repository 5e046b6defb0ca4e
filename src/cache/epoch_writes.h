/*
 * cache/epoch_writes.h - how much may be written in a day, over restarts.
 *
 * A bucket that fills evenly, a day's bytes in a day, and holds no more than that. What is taken
 * from it is written down first, a slice at a time: a crash loses the rest of a slice, and never
 * gives anything back. One thread.
 */
#ifndef FB_CACHE_EPOCH_WRITES_H
#define FB_CACHE_EPOCH_WRITES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

struct fb_epoch_writes {
    int dir_fd; /* -1: not remembered */
    uint64_t daily_bytes;
    uint64_t left_bytes;
    uint64_t slice_bytes; /* of what was written down as taken, not yet used */
    int64_t wall_ns;      /* when it was so */
};

void fb_epoch_writes_open(struct fb_epoch_writes *w, int dir_fd, uint64_t daily_bytes,
                          int64_t wall_ns);

/* Whether so much may be written now; then it counts as written. */
FB_MUST_CHECK bool fb_epoch_writes_take(struct fb_epoch_writes *w, uint64_t bytes, int64_t wall_ns);

#endif
