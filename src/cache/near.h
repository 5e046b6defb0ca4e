/*
 * cache/near.h - brings what lies beside the files that programs read.
 *
 * A program that reads small files from far away, one after the other, waits for each of them, and
 * the source has nothing to do meanwhile. Files of one directory are read together more often than
 * not. So those that lie beside what was read are brought, long before the brain has seen enough to
 * know a pattern, and whatever the order is:
 *
 *     a file had to be fetched ──► its directory is listed, from the second one on (dirs.c) ──►
 *     files behind it in the listing are brought (bring.c), from the front again after the last
 *
 *   - while nothing has to go for it: not in a cache that is full, or was a minute ago;
 *   - as many as programs have read, times four (fb_prefetch_beside()): what a wrong guess costs is
 *     a bounded part of what was needed anyway;
 *   - while it pays: what is not read within FB_NEAR_WAIT_NS was in vain, and when more than half
 *     is, there is a pause, longer each time;
 *   - from sources that are far (fb_pipe_is_far()), and files of at most FB_NEAR_FILE_MAX: large
 *     ones are read ahead (ahead.c).
 *
 * Programs come first, as with all that bring.c does.
 *
 * Lock: FB_RANK_NEAR, for fb_near_ended(); all else is the background thread's.
 */
#ifndef FB_CACHE_NEAR_H
#define FB_CACHE_NEAR_H

#include <stdint.h>

#include "base/attr.h"
#include "cache/cache.h"
#include "core/clock.h"

#define FB_NEAR_FILE_MAX (1ULL << 20)
#define FB_NEAR_WAIT_NS  (600 * FB_NS_PER_S)

struct fb_near;

FB_MUST_CHECK int fb_near_create(struct fb_cache *cache, struct fb_near **ret_near);
void fb_near_destroy(struct fb_near *near); /* takes NULL */

/* Memory it takes. */
uint64_t fb_near_bytes(void);

/* Background thread: each access; then, as often as it looks, what is brought now. */
void fb_near_watch(struct fb_near *near, const struct fb_access *access);
void fb_near_tick(struct fb_near *near, int64_t now_ns);

/* Any thread: an item had to go for good, for want of room. */
void fb_near_gone(struct fb_near *near);

/* Any thread: an order of ours has brought an item; it has ended. */
void fb_near_brought(struct fb_near *near, uint16_t source, uint64_t key, uint32_t bytes);
void fb_near_ended(struct fb_near *near);

#endif
