/*
 * cache/brain.h - watches accesses and decides what is kept (IGTCache).
 *
 *     access records ──► stream tree ──► pattern ──► what the stream keeps ──┐
 *                            │                                               ├──► admission
 *     file table ──► bytes each stream holds ──► space, every minute ──► quota
 *                            └──► a stream that fell silent: what it holds goes
 *
 * All of it happens on the background thread, ten times a second. What it decides it publishes in
 * words that request threads read without a lock: a table from directories (and files of many
 * blocks) to streams, and for each stream what it keeps, its quota and what it holds. The brain may
 * be late, wrong or absent: reads go on, and what no stream owns is kept as ever.
 *
 * The lock (FB_RANK_BRAIN) guards the tree and the streams for those who look at them (`forebay
 * streams`) or give orders (`forebay policy`).
 */
#ifndef FB_CACHE_BRAIN_H
#define FB_CACHE_BRAIN_H

#include "base/attr.h"
#include "cache/cache.h"

struct fb_brain;

FB_MUST_CHECK int fb_brain_create(struct fb_cache *cache, struct fb_brain **ret_brain);
void fb_brain_destroy(struct fb_brain *brain); /* takes NULL */

/* Memory that a brain may take, of so much in all. */
uint64_t fb_brain_bytes(uint64_t memory_bytes);

/* Background thread. */
void fb_brain_watch(struct fb_brain *brain, const struct fb_access *access);
void fb_brain_tick(struct fb_brain *brain, int64_t now_ns);

/* Any thread: whether an item that was fetched should get a place. `full`: something else would
 * have to go for it. The caller holds a reference. */
bool fb_brain_admits(struct fb_brain *brain, uint32_t file, uint32_t bytes, bool full);

/* Whether a user has ordered anything at all; whether a file is to stay. The caller holds a
 * reference. */
bool fb_brain_has_orders(const struct fb_brain *brain);
bool fb_brain_is_pinned(struct fb_brain *brain, uint32_t file);

#endif
