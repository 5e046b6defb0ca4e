/*
 * cache/learn.h - learned eviction (policy/groups.h, policy/reuse.h) at work in this cache.
 *
 *     access records ──► requests ──► model ──► ranking of segments ──► place.c: merge
 *                           └──► access log, for the simulator
 *
 * A request is one look at an item: reading on where the last read of it ended is none. Requests of
 * streams that keep by a rule of their own (uniform, cycle) do not teach the model anything; what
 * they read is marked as held by them, and goes last for as long as they do: one window of a skewed
 * stream that looks random must not fill the cache for good. So do pinned items. What the model
 * remembers of an item is 3 of the 5 bytes that its entry in the index has anyway (struct fb_use).
 *
 * Threads: watch() is the background thread's. Training and ranking run on a thread of their own,
 * of low priority (without one, in tick()). Those who make room, whom no reader waits for, use the
 * last ranking that was finished; only where it was used for twice its share, the thread being
 * late, they rank themselves. The lock (FB_RANK_LEARN) is held for some milliseconds at most, when
 * a training is prepared.
 *
 * The model is kept in the file `model` of the first tier's directory, of a cache in DRAM alone in
 * its home, at most once a minute and when the cache is closed. One that is damaged, or of another
 * version or size of cache, is forgotten: learning begins anew.
 */
#ifndef FB_CACHE_LEARN_H
#define FB_CACHE_LEARN_H

#include "base/attr.h"
#include "cache/cache.h"
#include "cache/steer.h"
#include "policy/groups.h"

struct fb_learn;

/* Memory that it takes, beside 2 bytes of ghosts for each item: these are within the 64 that are
 * planned for an item of the index, which takes 51 of them. */
uint64_t fb_learn_bytes(void);

/* Not `learns`: there is only the log. */
FB_MUST_CHECK int fb_learn_create(struct fb_cache *cache, bool learns, struct fb_learn **ret_learn);
/* Before start: requests are written to an access log (trace/access_log.h) in this file. */
FB_MUST_CHECK int fb_learn_log(struct fb_learn *learn, const char *path, struct fb_error *err);
FB_MUST_CHECK int fb_learn_start(struct fb_learn *learn);
/* Keeps the model, while the store is still open. Takes NULL. */
void fb_learn_stop(struct fb_learn *learn);
void fb_learn_destroy(struct fb_learn *learn); /* takes NULL */

/* Background thread: one access, and the rule that keeps what was read. */
void fb_learn_watch(struct fb_learn *learn, const struct fb_access *access,
                    const struct fb_rule *rule);
/* Writes out the log. */
void fb_learn_flush(struct fb_learn *learn);
/* Ten times a second. */
void fb_learn_tick(struct fb_learn *learn);

/* ---- for those who make room; any thread ---- */

/* For an item that is admitted. */
struct fb_use fb_learn_fresh(struct fb_learn *learn);

/* The next segment to go from a tier, by the ranking; false: there is none. After `until_ns` an old
 * one will do. */
FB_MUST_CHECK bool fb_learn_victim(struct fb_learn *learn, unsigned tier, int64_t until_ns,
                                   uint32_t *ret_segment);

/* Scores and splits the items of a merge (fb_groups_split); uses[items[i].no] belongs to item i. */
void fb_learn_split(struct fb_learn *learn, struct fb_merge_item *items, const struct fb_use *uses,
                    size_t count, uint64_t room);

/* An item has left the cache. The caller holds a reference to its file. */
void fb_learn_gone(struct fb_learn *learn, const struct fb_item *item);

#endif
