/*
 * cache/epoch_log.h - the epoch log: while an epoch is read, the next is laid out on NVMe.
 *
 * An external shuffle, in one pass. What was read is in DRAM, and the plan knows its turn in the
 * next epoch: the turns are cut into G buckets, and an item waits in DRAM in its bucket until that
 * has enough for a segment. Then the segment is written, and the places that its items had before
 * are dead; segments of which nothing is left are free for the next. When a bucket's turn comes its
 * segments are read whole, side by side, into DRAM, before the readers come.
 *
 *     read in epoch e ─► bucket g of epoch e + 1 ─► one segment ─► NVMe ─► whole into DRAM
 *      (from DRAM)        (waits in DRAM)           in one write            when g's turn comes
 *
 * G is such that a bucket takes a quarter of the DRAM that plans may fill; what waits takes half a
 * segment a bucket, which must be another quarter: a data set of at most room^2 / (8 segments).
 * Larger ones are read from where they lie, as everything is that was not laid out.
 *
 * Nothing is remembered of the log. Whether a segment is worth reading whole is seen by its items'
 * turns, when the first of them is wanted. So after a crash it is what the store recovers and the
 * saved plan says, and a segment that was not sealed is an older place, or a fetch.
 *
 * What the log writes is limited by the day (cache/epoch_writes.h). Threads: two that read and one
 * that writes; the plan's side belongs to the thread of epochs.c. Lock: FB_RANK_EPOCH_LOG.
 */
#ifndef FB_CACHE_EPOCH_LOG_H
#define FB_CACHE_EPOCH_LOG_H

#include "base/attr.h"
#include "cache/cache.h"

struct fb_epoch_log;
struct fb_planned;

/* Whether epochs are to be laid out, and there are a DRAM tier and an NVMe tier below it. */
bool fb_epoch_log_is_wanted(struct fb_cache *cache);

FB_MUST_CHECK int fb_epoch_log_create(struct fb_cache *cache, int dir_fd,
                                      struct fb_epoch_log **ret_log);
/* No plan lives any more. Takes NULL. */
void fb_epoch_log_destroy(struct fb_epoch_log *log);

/* Memory for reading, beside what the plans have. */
uint64_t fb_epoch_log_bytes(uint64_t segment_bytes);

/* ---- the thread of epochs.c; all of these take NULL for the log ---- */

/* An item of the plan was read to its end; the caller has a reference. True: it is the log's now,
 * which lets it go from DRAM. */
bool fb_epoch_log_keep(struct fb_epoch_log *log, struct fb_planned *p, uint64_t key,
                       uint32_t number);

/* Another epoch has begun: what still waits for it is written. */
void fb_epoch_log_turn(struct fb_epoch_log *log, struct fb_planned *p);

/* An item that is about to be wanted lies in this segment of NVMe. True: so do enough others, and
 * the segment is read whole. */
bool fb_epoch_log_covers(struct fb_epoch_log *log, struct fb_planned *p, uint32_t segment);

/* How many buckets the next epoch has; 0: it is not laid out. */
uint32_t fb_epoch_log_buckets(const struct fb_planned *p);

/* Lets go of what waits. */
void fb_epoch_log_forget(struct fb_planned *p);

#endif
