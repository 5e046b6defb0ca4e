/*
 * epoch/plan.h - what a training job will read, this epoch and the next: LCache's MetaIndex.
 *
 * An epoch is its order and the inverse of it, so a file's turn is one look away, and the list of
 * chunks: stretches of the rank's accesses that are stored and read together, with their places one
 * behind the other. With two epochs that is 16 bytes a file, and 24 a chunk; paths are looked up in
 * names.h, which both share.
 *
 *     path ─ names ─► file ─ place ─► position ─ split ─► access k ─► chunk
 *     access k ─ split ─► position ─ order ─► file
 *
 * Pure: one caller at a time for fb_plan_advance(), any number of them to read.
 */
#ifndef FB_EPOCH_PLAN_H
#define FB_EPOCH_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"
#include "epoch/names.h"
#include "epoch/shuffle.h"
#include "epoch/split.h"

struct fb_plan_spec {
    struct fb_shuffle_spec shuffle;
    struct fb_split split;
    uint64_t first_epoch;
    uint64_t chunk_bytes; /* as many files as fit, at least one; 0: those of a batch */
};

struct fb_chunk {
    uint64_t offset; /* behind all chunks before it */
    uint64_t bytes;
    uint32_t first; /* access of the rank */
    uint32_t count;
};

struct fb_epoch {
    uint64_t number;
    uint32_t *order; /* position -> file */
    uint32_t *place; /* file -> position */
    struct fb_chunk *chunks;
    uint32_t chunk_count;
    uint32_t chunk_room;
};

struct fb_plan;

/* `names` must outlive the plan; shuffle.count and split.count are taken from it. -EINVAL or
 * -ENOMEM, with a sentence. */
FB_MUST_CHECK int fb_plan_new(const struct fb_plan_spec *spec, const struct fb_names *names,
                              struct fb_plan **ret_plan, struct fb_error *err);
void fb_plan_free(struct fb_plan *p);

/* The next epoch becomes the current one, and the one behind it is worked out. -ENOMEM: there is no
 * next one any more; free the plan. */
FB_MUST_CHECK int fb_plan_advance(struct fb_plan *p);

const struct fb_epoch *fb_plan_current(const struct fb_plan *p);
const struct fb_epoch *fb_plan_next(const struct fb_plan *p);
const struct fb_split *fb_plan_split(const struct fb_plan *p);

/* The file of the rank's access k < fb_split_samples(). */
uint32_t fb_plan_file(const struct fb_plan *p, const struct fb_epoch *e, uint64_t k);

/* When the rank reads a file in that epoch, first; false: it does not. */
FB_MUST_CHECK bool fb_plan_access(const struct fb_plan *p, const struct fb_epoch *e, uint32_t file,
                                  uint64_t *ret_k);

/* The chunk that access k is in. */
uint32_t fb_plan_chunk(const struct fb_epoch *e, uint64_t k);

#endif
