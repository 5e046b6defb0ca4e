/*
 * policy/reuse.h - how useful is it to keep an object? Learned on line, from few bytes an object.
 *
 * What is kept of an object is when it was last asked for, in 16 bits, and one byte of history: how
 * often it was asked for before (0 to 3 times), and how long its last two gaps were (8 classes
 * each). With its age and its size that is all the model sees.
 *
 * What is learned is the hazard: of all objects with this history and size that have been idle for
 * so long, which share is asked for before they are half as old again? Objects chosen by their hash
 * (at most 16,384) are watched whether they are cached or not, so what is learned does not depend
 * on what was evicted, and an object that has not come back yet counts for the ages it has passed:
 * nothing has to wait for the future. Gradient boosting over the counts gives a hazard to histories
 * that are rare; where there are many observations, they speak for themselves.
 *
 * The utility of an object is the best rate of hits that its place can have from it: over all times
 * to hold on to it, the largest quotient of the chance that it is back by then and the time that it
 * takes its place until then; per byte. This is Gittins' index, of hits for space and time: it
 * knows no time scale, and what it compares is what a cache has to give.
 *
 * Evicted objects leave a ghost of 2 bytes, at most one for each object in the cache, so that
 * history survives a while: with the 3 bytes that its owner keeps, at most 5 for each of them.
 *
 * Time is counted in requests. Pure: no I/O, no locks, no clock; calls come one at a time, but for
 * the slow part of a training, fit(), during which all the others may be called.
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
    uint16_t last; /* of the model's time; it wraps after 256 times as many requests as objects */
    uint8_t history;
} __attribute__((packed));

static_assert(sizeof(struct fb_reuse_meta) == 3, "per object");

/* Marks: histories that no request leaves behind; the owner may set them. FRESH: it was not asked
 * for yet, the first request will begin its history. HELD: another rule keeps it; it is worth more
 * than anything that is learned. PINNED: a user does; it is worth more than that. */
#define FB_REUSE_PINNED 0x3d
#define FB_REUSE_FRESH  0x3e
#define FB_REUSE_HELD   0x3f

static inline bool fb_reuse_is_mark(uint8_t history)
{
    return history >= FB_REUSE_PINNED && history <= FB_REUSE_HELD;
}

struct fb_reuse;

/* For a cache of so many bytes (objects, when all sizes are 1). */
FB_MUST_CHECK int fb_reuse_create(uint64_t capacity, struct fb_reuse **ret_reuse);
void fb_reuse_destroy(struct fb_reuse *reuse);

/* A request for an object that is cached, or that is not: then meta is set to what is remembered
 * of it. `hash` is of its key. */
void fb_reuse_hit(struct fb_reuse *reuse, uint64_t hash, uint32_t size, struct fb_reuse_meta *meta);
void fb_reuse_miss(struct fb_reuse *reuse, uint64_t hash, uint32_t size,
                   struct fb_reuse_meta *meta);

/* `cached` objects are left in the cache; there are never more ghosts than that. */
void fb_reuse_evicted(struct fb_reuse *reuse, uint64_t cached, uint64_t hash,
                      const struct fb_reuse_meta *meta);

/* The higher, the better to keep. Until the first training: (1 + count) / (age * size). */
float fb_reuse_score(struct fb_reuse *reuse, const struct fb_reuse_meta *meta, uint32_t size);

/* Whether it is time to train; the owner asks once its cache is full. */
bool fb_reuse_due(const struct fb_reuse *reuse);

/* `cached` is the number of objects in the cache. Without observations there is still no model. */
FB_MUST_CHECK int fb_reuse_train(struct fb_reuse *reuse, uint64_t cached);

/* The same in three steps. prepare(): true when there is something to learn from; then fit(), which
 * takes some 10 ms, in one thread at a time; then adopt(), with its model. */
FB_MUST_CHECK bool fb_reuse_prepare(struct fb_reuse *reuse, uint64_t cached);
struct fb_boost;
FB_MUST_CHECK int fb_reuse_fit(struct fb_reuse *reuse, struct fb_boost **ret_model);
void fb_reuse_adopt(struct fb_reuse *reuse, struct fb_boost *model);

/* How many there were; shares of 1 for each feature, 0 without a model. */
unsigned fb_reuse_trainings(const struct fb_reuse *reuse);
void fb_reuse_importance(const struct fb_reuse *reuse, double ret_shares[FB_REUSE_FEATURES]);
const char *fb_reuse_feature_name(enum fb_reuse_feature feature);

/* How good it is, on what came after each training and was not part of it: of all objects that
 * were idle for so long, who comes back next? The mean loss in bits of what the model said, and of
 * what one would say who knows the age alone; observations fade as all do. */
struct fb_reuse_quality {
    double observations;
    double loss;
    double loss_by_age;
};

void fb_reuse_quality(const struct fb_reuse *reuse, struct fb_reuse_quality *ret_quality);

/* Requests so far, and when it was last trained, in the same count; over restarts. */
uint64_t fb_reuse_requests(const struct fb_reuse *reuse);
uint64_t fb_reuse_trained_at(const struct fb_reuse *reuse);
/* Rows of the last training: cells that were seen. */
size_t fb_reuse_rows(const struct fb_reuse *reuse);
/* The time that metas have. */
uint16_t fb_reuse_now(const struct fb_reuse *reuse);

/* What was learned, as bytes of this machine, to keep it over a restart. Time begins at 0 again
 * when it is loaded: a meta of all zeroes is then an object asked for at the start. Ghosts are not
 * kept. load() comes before anything else, and checks what it is given: -EINVAL for anything that
 * save() did not write, and nothing has changed. */
size_t fb_reuse_saved_bytes(const struct fb_reuse *reuse);
void fb_reuse_save(const struct fb_reuse *reuse, void *ret_bytes);
FB_MUST_CHECK int fb_reuse_load(struct fb_reuse *reuse, const void *bytes, size_t size);

/* Everything it owns, and of this the ghosts. */
size_t fb_reuse_bytes(const struct fb_reuse *reuse);
size_t fb_reuse_ghost_bytes(const struct fb_reuse *reuse);

#endif
