/*
 * cache/epochs.h - plans at work: what a training job will read next is in DRAM when it does.
 *
 *     access records ─► watch.c ─► queue ─► thread: where the readers are (epoch/follow.h)
 *                                             │ next files, in the order they will be wanted
 *                        look-up ─► early read, many at a time ─► DRAM        (brought)
 *                        read by somebody: out of DRAM, but for a share that stays; its place
 *                        below stays (left)
 *
 * How far ahead: what the readers take in WINDOW_NS, at least WINDOW_MIN, at most half of DRAM (a
 * quarter where DRAM is all there is) shared by all plans. With a disk below, DRAM is the way
 * through, and has copies of a fixed share of the set beside that. What comes from the source stays
 * below while there is room, then in up to seven eighths of DRAM (place_plan.c); from then on the
 * same part of the data set is kept, epoch after epoch, which no choice of other files can better
 * in bytes (see docs/adr), and the rest is fetched ahead.
 *
 * Nothing here is relied on for an answer: a plan that is wrong, late or dropped costs time.
 *
 * One thread owns the plans; FB_RANK_EPOCHS guards the queue of accesses, the table of plans, and
 * what is shown of them. Memory: 51 bytes a file and 4 bits a sample, in all within
 * fb_epochs_bytes().
 */
#ifndef FB_CACHE_EPOCHS_H
#define FB_CACHE_EPOCHS_H

#include "base/attr.h"
#include "cache/cache.h"

#define FB_PLANS_MAX 16u

struct fb_epochs;

FB_MUST_CHECK int fb_epochs_create(struct fb_cache *cache, struct fb_epochs **ret_epochs);
/* All volumes are detached, and the store is still open: there are no plans any more, but it may be
 * asked about them. Takes NULL. */
void fb_epochs_stop(struct fb_epochs *epochs);
void fb_epochs_destroy(struct fb_epochs *epochs); /* takes NULL */

/* Memory that plans may take, of so much in all. */
uint64_t fb_epochs_bytes(uint64_t memory_bytes);

/* Background thread, which empties the rings: an access; when there are no more, and until when all
 * that were are known (0: as before). Take NULL. */
void fb_epochs_watch(struct fb_epochs *epochs, const struct fb_access *access);
void fb_epochs_wake(struct fb_epochs *epochs, int64_t all_until_ns);

/* Whether accesses should be told more often than ten times a second. */
bool fb_epochs_are_followed(const struct fb_epochs *epochs);

/* Any thread: bytes of DRAM that are free for what comes next while a plan is followed, and made
 * free when somebody takes them; at most. */
uint64_t fb_epochs_way(const struct fb_cache *cache);

/* Whether a plan for something of that source is read: there is nothing to guess. Now and then it
 * is one for another source. */
bool fb_epochs_foretell(const struct fb_epochs *epochs, uint16_t source);

/* Any thread, any lock held: whether a file below a source is of a data set that a plan was read of
 * lately. What is kept of it is the plan's affair, and no stream's. Now and then it is not. */
bool fb_epochs_own(const struct fb_epochs *epochs, uint16_t source, const char *path, size_t len);

/* The same of a plan that somebody has told: there is nothing to search for. */
bool fb_epochs_told(const struct fb_epochs *epochs, uint16_t source, const char *path, size_t len);

/* A volume has come: there may be plans for it from before a restart. */
void fb_epochs_attached(struct fb_epochs *epochs);

#endif
