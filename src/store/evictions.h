/*
 * store/evictions.h - what was evicted by hand stays evicted over a restart.
 *
 * Recovery finds items by their segments' tables, and a table cannot be unwritten. So `forebay
 * evict PATH` also notes the path and the sequence number that segments had reached; recovery
 * passes over items below that path in segments up to that number. A note is of no use once all
 * those segments are gone, and is dropped then.
 *
 * The file `evictions` is replaced whole at each change (io/durable.h). At most FB_EVICTIONS_MAX
 * notes: one more turns a source's notes into one for the whole source, which forgets too much and
 * never too little.
 */
#ifndef FB_STORE_EVICTIONS_H
#define FB_STORE_EVICTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

#define FB_EVICTIONS_MAX 256

struct fb_evictions;

/* Reads the notes in `dir_fd` (kept, not owned); a damaged file hides everything written so far:
 * when in doubt, forget. dir_fd -1: nothing is persistent. */
FB_MUST_CHECK int fb_evictions_open(int dir_fd, struct fb_evictions **ret_evictions);
void fb_evictions_close(struct fb_evictions *evictions);

/* Durable when it returns 0. */
FB_MUST_CHECK int fb_evictions_add(struct fb_evictions *evictions, uint64_t sequence,
                                   uint16_t source, const char *path);

/* Whether an item of this path, in a segment of this sequence number, was evicted. */
bool fb_evictions_hide(const struct fb_evictions *evictions, uint64_t sequence, uint16_t source,
                       const char *path);

/* The highest sequence number noted: new segments must start above it. */
uint64_t fb_evictions_sequence(const struct fb_evictions *evictions);

/* No header older than `oldest` is left on a medium, nor one newer than `newest`. */
FB_MUST_CHECK int fb_evictions_trim(struct fb_evictions *evictions, uint64_t oldest,
                                    uint64_t newest);

#endif
