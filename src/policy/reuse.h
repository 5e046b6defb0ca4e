/*
 * policy/reuse.h - how useful is it to keep an object? Learned on line, from few bytes an object.
 *
 * What is kept of an object is when it was last asked for and one byte of history: how often it was
 * asked for before (0 to 3 times), and how long its last two gaps were (8 classes each). With its
 * age and its size that is all the model sees.
 *
 * What is learned is the hazard: of all objects with this history and size that have been idle for
 * so long, which share is asked for before they are half as old again? Objects chosen by their hash
 * (at most 16,384) are watched whether they are cached or not, so what is learned does not depend
 * on what was evicted, and an object that has not come back yet counts for the ages it has passed:
 * nothing has to wait for the future. Gradient boosting over the counts gives a hazard to histories
 * that are rare; where there are many observations, they speak for themselves.
 *
 * The utility of an object is the sum over the future ages of P(asked for then) * s / (s + wait),
 * per byte. s is 0.3 of the time in which the cache turns over.
 *
 * Evicted objects leave a ghost of 4 bytes, so that history survives a while.
 *
 * Time is counted in requests. Pure: no I/O, no locks, no clock; calls come one at a time. train()
 * is slow (a few milliseconds) and can be called by anybody who keeps the others out.
 */
#ifndef FB_POLICY_REUSE_H
#define FB_POLICY_REUSE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

/* What the model sees of an object, in this order. */
enum fb_reuse_feature {
    FB_REUSE_COUNT,
    FB_REUSE_GAP,
    FB_REUSE_GAP_BEFORE,
    FB_REUSE_SIZE,
    FB_REUSE_AGE,
    FB_REUSE_FEATURES,
};

/* Kept by the owner of the object, all zero for a new one. */
struct fb_reuse_meta {
    uint32_t last; /* request number; it may wrap */
    uint8_t history;
} __attribute__((packed));

static_assert(sizeof(struct fb_reuse_meta) == 5, "per object");

struct fb_reuse;

/* For a cache of so many bytes (objects, when all sizes are 1). */
FB_MUST_CHECK int fb_reuse_create(uint64_t capacity, struct fb_reuse **ret_reuse);
void fb_reuse_destroy(struct fb_reuse *reuse);

/* A request for an object that is cached, or that is not: then meta is set to what is remembered
 * of it. `hash` is of its key. */
void fb_reuse_hit(struct fb_reuse *reuse, uint64_t hash, uint32_t size, struct fb_reuse_meta *meta);
void fb_reuse_miss(struct fb_reuse *reuse, uint64_t hash, uint32_t size,
                   struct fb_reuse_meta *meta);

void fb_reuse_evicted(struct fb_reuse *reuse, uint64_t hash, const struct fb_reuse_meta *meta);

/* The higher, the better to keep. Until the first training: (1 + count) / (age * size). */
float fb_reuse_score(struct fb_reuse *reuse, const struct fb_reuse_meta *meta, uint32_t size);

/* Whether it is time to train; the owner asks once its cache is full. */
bool fb_reuse_due(const struct fb_reuse *reuse);

/* `cached` is the number of objects in the cache. Too few observations: there is still no model. */
FB_MUST_CHECK int fb_reuse_train(struct fb_reuse *reuse, uint64_t cached);

/* How many there were; shares of 1 for each feature, 0 without a model. */
unsigned fb_reuse_trainings(const struct fb_reuse *reuse);
void fb_reuse_importance(const struct fb_reuse *reuse, double ret_shares[FB_REUSE_FEATURES]);

/* Everything it owns. */
size_t fb_reuse_bytes(const struct fb_reuse *reuse);

#endif
