/*
 * store/late.h - reads of a disk that are given up when the disk does not answer.
 *
 * A disk that hangs must not hang who reads: the bytes are on the source as well. A read that is
 * unanswered after the tier's timeout ends with -ETIMEDOUT. The kernel still has it, and nothing
 * can take it back: so the memory it may yet write to stays here until the disk answers, and the
 * buffer gets other memory instead (io/buffer.h). Until then reads of that directory end at once
 * with -ETIMEDOUT: the disk is left alone for as long as it owes an answer, which also bounds the
 * memory kept here by what was under way when it stopped answering.
 *
 *     read ──► engine ──► done(bytes)
 *               │ timeout
 *               └──────► done(-ETIMEDOUT), stuck ──► the disk answers: memory freed, not stuck
 *
 * Cost: an allocation and two short critical sections a read. One thread looks after the oldest
 * read; it sleeps while there are none, and it writes no log, which may lie on that very disk.
 * Lock: FB_RANK_TIER, held while nothing is called.
 */
#ifndef FB_STORE_LATE_H
#define FB_STORE_LATE_H

#include "store/tier.h"

#define FB_LATE_PARTS 2u /* reads into one buffer */

struct fb_late;

/* timeout_ns 0: never. */
FB_MUST_CHECK int fb_late_create(struct fb_engine *engine, int64_t timeout_ns,
                                 struct fb_late **ret_late);
/* Nothing may be under way but what was given up: that ends by itself. Takes NULL. */
void fb_late_close(struct fb_late *late);

/* Where a slot lies. */
struct fb_late_place {
    unsigned stripe;
    int fd;
    uint64_t offset;
};

/* Reads parts of one slot into one buffer. False: it cannot be done here (they have no buffer, or
 * there is no memory), and none was begun. */
FB_MUST_CHECK bool fb_late_read(struct fb_late *late, const struct fb_late_place *place,
                                struct fb_tier_read *const *reads, unsigned count);

/* The directory owes an answer to a read that was given up. */
bool fb_late_is_stuck(const struct fb_late *late, unsigned stripe);

#endif
