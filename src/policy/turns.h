/*
 * policy/turns.h - whether items of a shuffled stream take turns, and whose turn it is.
 *
 * A training job reads each item once an epoch: what was read is of no use until the epoch ends,
 * what was not is certain to be read before. So once a stream's share is full, what was read less
 * often is worth fetching in place of what was read more often; and since each comes but once, what
 * fits need not be hits of chance: with half of a set 85% of reads can be hits instead of 50%.
 * Who draws anew each time has no turns, and would be served no better.
 *
 * The cache says how often an item was read before it is read again: r. Over the last thousand or
 * so reads, with m reads an item so far in all:
 *
 *     drawn anew    r has the mean m and the variance m
 *     k jobs, each in turns    at first r is far below m, since nobody reads an item twice; later
 *                   its variance is k/4 at most, however large m has become
 *
 * It is an item's turn when it was read no more often than those that are being read now. Pure.
 */
#ifndef FB_POLICY_TURNS_H
#define FB_POLICY_TURNS_H

#include <stdbool.h>
#include <stdint.h>

/* Zeroed at first. */
struct fb_turns {
    uint64_t reads;
    double mean; /* of r */
    double square;
};

/* An item that had been read `reads` times was read. */
void fb_turns_read(struct fb_turns *turns, uint32_t reads);

/* Whether a stream of so many items takes turns. */
bool fb_turns_taken(const struct fb_turns *turns, uint64_t items);

/* Items that were read less often than this are due. */
double fb_turns_due(const struct fb_turns *turns);

#endif
