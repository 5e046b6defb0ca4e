/*
 * epoch/follow.h - where the readers of a plan are, and what they will want next.
 *
 * The workers of a loader read their batches side by side, so the rank's accesses do not come in
 * the order of the plan but, as long as the workers keep pace, dealt out like cards: the first
 * sample of each worker's batch, the second of each ... A *turn* is a place in that order; with one
 * reader it is the access itself. Nobody keeps pace exactly, and some accesses are never seen (the
 * kernel had the pages, a record was lost), so:
 *
 *     low          high              ahead
 *     ..|xxx.x..x.x|                 |            x: read
 *       └ workers ─┘└── brought or ──┘            below low: read, or given up
 *         drift         being brought
 *
 * An access is believed to be of this epoch when it is unread and not far beyond `high`; to begin
 * the next one when it is among the first there, and a few others are, too; to be a leap (somebody
 * resumed in the middle) when a few come close together. Anything else is strange, and does no
 * harm. Costs four bits a sample. Pure; one thread.
 */
#ifndef FB_EPOCH_FOLLOW_H
#define FB_EPOCH_FOLLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "epoch/plan.h"

#define FB_FOLLOW_SURE 4 /* accesses that make a new epoch, or a leap, at least */

enum fb_follow_fate {
    FB_FOLLOW_READ = 0,    /* as planned */
    FB_FOLLOW_AGAIN = 1,   /* read a moment ago */
    FB_FOLLOW_STRANGE = 2, /* not what the plan has */
    FB_FOLLOW_EPOCH = 3,   /* as planned, and the next epoch has begun: its orders were made */
    FB_FOLLOW_BACK = 4,    /* read before in this epoch, and not lately: somebody begins anew */
    FB_FOLLOW_LATE = 5,    /* planned, and given up since: a straggler, or as above */
};

struct fb_follow_stats {
    uint64_t epoch;
    uint64_t samples; /* in an epoch */
    uint64_t read;    /* of this epoch, seen */
    uint64_t skipped; /* of this epoch, given up */
    uint64_t turn;    /* high */
    uint64_t unread;  /* handed out by next() and neither read nor given up */
    uint64_t strange; /* since the last access that was planned */
    uint64_t turns;   /* of an epoch, some of them of nobody */
    uint64_t apart;   /* turns by which readers side by side may be apart */
    uint64_t ahead;   /* the epoch that next() is in: this one or the next */
};

struct fb_follow;

/* Takes the plan over, also on failure. -ENOMEM. */
FB_MUST_CHECK int fb_follow_new(struct fb_plan *plan, struct fb_follow **ret_follow);
void fb_follow_free(struct fb_follow *f); /* takes NULL */

/* A file was read: enum fb_follow_fate; -ENOMEM: there is no next epoch; free it. */
FB_MUST_CHECK int fb_follow_access(struct fb_follow *f, uint32_t file);

/* The next file to bring, in the order in which it will be wanted, over the end of the epoch but
 * not over that of the next. Nobody has read it yet. False: there is none. */
FB_MUST_CHECK bool fb_follow_next(struct fb_follow *f, uint32_t *ret_file);

/* Files that were handed out and that nobody will read any more, one a call. */
FB_MUST_CHECK bool fb_follow_given_up(struct fb_follow *f, uint32_t *ret_file);

/* Whether a file was handed out for the next epoch already; whether it was read in this one. */
bool fb_follow_is_wanted(const struct fb_follow *f, uint32_t file);
bool fb_follow_is_read(const struct fb_follow *f, uint32_t file);

/* Whether a file is still to be read, and was handed out or is among the `more` turns that are
 * handed out next. */
bool fb_follow_is_due(const struct fb_follow *f, uint32_t file, uint64_t more);

/* The turn that a file has in the next epoch; false: it has none. */
FB_MUST_CHECK bool fb_follow_next_turn(const struct fb_follow *f, uint32_t file,
                                       uint64_t *ret_turn);

void fb_follow_stats(const struct fb_follow *f, struct fb_follow_stats *ret_stats);
const struct fb_plan *fb_follow_plan(const struct fb_follow *f);

#endif
