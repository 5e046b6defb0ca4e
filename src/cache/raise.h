/*
 * cache/raise.h - what programs are about to read from a disk comes up into DRAM before they ask.
 *
 *     a set is read from a disk in random order, or again and again, and DRAM has free room
 *         ──► steer.c asks ──► this thread goes over the disk's segments, in the order of the log
 *             from where readers are, and copies up what is of the set and not in DRAM
 *
 * It is the fill of a data set (fill.c) one tier up: typically after a restart, when all is on the
 * disk and DRAM is empty. Items that are read come up one by one anyway (place.c), but each only
 * when somebody has waited for it, at the speed of a disk that is asked for one file at a time.
 * Here a few stretches of segments are under way (store.h), which is as fast as the disk is.
 *
 * Of all orders the log's: any is as good as any other for who reads at random; who reads the same
 * again and again comes in the order in which it was once read, and the log was written; and
 * neighbours are read at once. It begins after the segment that was read last.
 *
 * What it may not do:
 *   - make anything go: it takes free DRAM only, and leaves a share of that (SPARE_SHARE) to what
 *     is fetched meanwhile. So quotas do not enter: those divide what is full;
 *   - keep readers waiting: its memory is that of reads from disks, which it gets when nobody
 *     stands in line for it; at most DEPTH stretches are under way, fewer with every reader who
 *     waits for the disk, and none where they keep it busy by themselves;
 *   - go on for nobody: it ends when readers of the set have stopped for IDLE_NS, or do not find
 *     in DRAM what they should by the share that was raised (fb_steer_raise_pays());
 *   - meddle with a plan (epochs.h), which knows better what comes next.
 *
 * What is raised has been verified as any read, has its place below still (or is forgotten again:
 * fb_place_promote()), and is of a version that is current. One set at a time. A disk that hangs
 * ends it (store/late.h). Lock: FB_RANK_RAISE.
 */
#ifndef FB_CACHE_RAISE_H
#define FB_CACHE_RAISE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"

struct fb_cache;
struct fb_raise;

FB_MUST_CHECK int fb_raise_create(struct fb_cache *cache, struct fb_raise **ret_raise);
void fb_raise_destroy(struct fb_raise *raise); /* takes NULL */

/* Whether it would find room now. */
bool fb_raise_has_room(struct fb_raise *raise);
/* Raises what lies below a path, from the segment of the number on. Nothing is under way. */
void fb_raise_start(struct fb_raise *raise, uint16_t source, const char *path, uint32_t segment);
/* False: it has ended, and did it pay? */
bool fb_raise_is_busy(struct fb_raise *raise, bool *ret_paid);

#endif
