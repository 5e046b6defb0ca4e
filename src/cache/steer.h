/*
 * cache/steer.h - the brain (policy/brain.h) at work in this cache.
 *
 *     access records ──► brain ──► what each stream keeps, its quota ──► published ──► admission
 *                          ▲                                                 │
 *     file table ──► what each stream holds ─────────────────────────────────┘
 *
 * The brain is fed and asked on the background thread, ten times a second. What it decides is
 * published in words that request threads read without a lock: a table from directories (and files
 * of many blocks) to streams, and for each stream what it keeps, its quota and what it holds. All
 * of it may be late, wrong or absent: reads go on, and what no stream owns is kept as ever.
 *
 * What users have ordered for paths (cache/orders.h) counts for more.
 *
 * Lock: FB_RANK_BRAIN guards the brain for those who look at it (`forebay streams`).
 */
#ifndef FB_CACHE_STEER_H
#define FB_CACHE_STEER_H

#include "base/attr.h"
#include "cache/cache.h"
#include "policy/keep.h"

struct fb_steer;

/* What keeps an item that was read. */
struct fb_rule {
    enum fb_keep keep;
    bool is_pinned;
    uint8_t stream; /* whose rule it is; 0: a user's, or the usual one */
};

FB_MUST_CHECK int fb_steer_create(struct fb_cache *cache, struct fb_steer **ret_steer);
void fb_steer_destroy(struct fb_steer *steer); /* takes NULL */

/* Memory that the brain may take, of so much in all. */
uint64_t fb_steer_bytes(uint64_t memory_bytes);

/* Background thread: a round begins; each access, with the rule that keeps what was read; the end
 * of the round. */
void fb_steer_begin(struct fb_steer *steer, int64_t now_ns);
struct fb_rule fb_steer_watch(struct fb_steer *steer, const struct fb_access *access);
void fb_steer_tick(struct fb_steer *steer, int64_t now_ns);

/* Background thread, after accesses: what is read from a disk may be raised (raise.h). */
void fb_steer_raise(struct fb_steer *steer, int64_t now_ns);
/* Any thread: whether a file is of those that are raised for readers of a directory. The caller
 * holds a reference. */
bool fb_steer_raises(struct fb_steer *steer, uint16_t source, const char *dir, uint32_t file);
/* When somebody last read of what is being raised; whether readers find in DRAM what they should,
 * once a share of the disk's bytes has been raised for them. */
int64_t fb_steer_raise_read_ns(const struct fb_steer *steer);
bool fb_steer_raise_pays(const struct fb_steer *steer, double share);

/* Any thread: whether that stream still keeps what it has, which it did when an item was read. A
 * user's rule (0) does. */
bool fb_steer_holds(const struct fb_steer *steer, uint8_t stream);

/* Any thread: an item was evicted for room. The caller has a reference to its file. */
void fb_steer_gone(struct fb_steer *steer, const struct fb_item *item);

/* Background thread, from want.c: what is in that directory belongs to a stream already. */
void fb_steer_claim(struct fb_steer *steer, uint16_t source, const char *dir, size_t len,
                    uint32_t stream);

/* Any thread, no lock held: whether it is the turn of a file of one block of the stream to be read;
 * whether there is room for it, in the cache or in the stream's share, or could be made
 * (exchange.h): of how many bytes of what was read, perhaps not yet enough. */
bool fb_steer_is_due(struct fb_steer *steer, uint32_t stream, uint16_t source, const char *path);
bool fb_steer_gives_way(struct fb_steer *steer, uint32_t stream, uint64_t bytes,
                        uint64_t *ret_gone);

/* Any thread, no lock held: whether a block of a file that is fetched ahead, a child of that node,
 * is worth fetching. */
bool fb_steer_wants_block(struct fb_steer *steer, uint64_t node, uint32_t block, uint32_t blocks);

/* Any thread: whether an item that was fetched should get a place. `full`: something else would
 * have to go for it. The caller holds a reference. */
bool fb_steer_admits(struct fb_steer *steer, uint32_t file, uint32_t bytes, bool full);
/* The same, before it is fetched. */
bool fb_steer_would_admit(struct fb_steer *steer, uint32_t file, uint32_t bytes, bool full);
/* Whether one that leaves DRAM for what a plan brings may push something out of a tier of so many
 * bytes: not where that would be of its own stream, or what a plan has there. */
bool fb_steer_displaces(struct fb_steer *steer, uint32_t file, uint32_t bytes, uint64_t tier_bytes);
/* Whether an item may go for one that a plan has read: not for one of the same data set, nor if it
 * is of those that its stream holds within its share. The caller holds a reference. */
bool fb_steer_yields(struct fb_steer *steer, uint32_t file);
/* While there is no room: whether one that its reader is about to ask for should rather wait in its
 * buffer than displace something. `soon`: it is of a large file, of which more is on its way than
 * buffers hold; so only those wait there that would do harm elsewhere. */
bool fb_steer_parks(struct fb_steer *steer, uint32_t file, uint32_t bytes, bool soon);

/* Whether a file is to stay, by a user's order. The caller holds a reference. */
bool fb_steer_is_pinned(struct fb_steer *steer, uint32_t file);

#endif
