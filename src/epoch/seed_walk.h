/*
 * epoch/seed_walk.h - many seeds of MT19937 at once: at which positions does each put two files?
 *
 * A worker that is not its loader's first begins anywhere in the epoch, where most of what stands
 * was displaced by swaps before: the tests of seed_scan.h say nothing there. But one file can be
 * followed through torch's shuffle without making the rest of it. Step p gives position p what
 * stands at place p + u_p % (n - p), and leaves there what stood at p. So a file stands at its own
 * place until a step picks that place, which is the file's position for good; or until the step of
 * its place comes, which moves it to the place that this step picks:
 *
 *     for p = 0, 1, ...:  to = p + u_p % (n - p)
 *                         place == to: the position is p     place == p: place = to
 *
 * One word a file and seed. Vectors of seeds ask the first question by a multiplication, a rotation
 * and a comparison, as seed_scan.h does, and the second by a comparison; they take CHUNK steps at a
 * time. Where the answer may be yes the steps are repeated one by one, which is exact.
 *
 * All outputs up to the position are drawn: with AVX-512 some 0.3 ns a seed and position.
 */
#ifndef FB_EPOCH_SEED_WALK_H
#define FB_EPOCH_SEED_WALK_H

#include "base/attr.h"
#include "epoch/seed_scan.h"

#define FB_WALK_BLOCK   16 /* seeds at a time */
#define FB_WALK_FILES   2
#define FB_WALK_CHUNK   16u
#define FB_WALK_NOWHERE UINT32_MAX

/* What the vectors want to know of a step: see struct fb_scan_test; limit is most + 1, 2^31 at
 * most. */
struct fb_walk_step {
    uint32_t inverse;
    uint32_t turn;
    uint32_t limit;
};

struct fb_walk {
    uint32_t n;
    uint32_t steps;  /* positions that are looked at */
    uint32_t offset; /* outputs that are drawn before the first */
    bool is_nested;  /* as struct fb_scan's */
    uint32_t apart;  /* where the first file was found the second is looked for so far behind it */
    uint32_t files[FB_WALK_FILES];
    struct fb_walk_step *table;
};

/* Positions of each seed's files, FB_WALK_NOWHERE: not within the steps. */
struct fb_walked {
    uint32_t positions[FB_WALK_FILES][FB_WALK_BLOCK];
};

/* Of n files, the first `steps` positions; is_nested, files and apart are left to the caller.
 * -ENOMEM. */
FB_MUST_CHECK int fb_walk_open(struct fb_walk *w, uint32_t n, uint32_t steps, uint32_t offset);
void fb_walk_close(struct fb_walk *w);

/* Seeds from `seed` on. */
void fb_walk_run(const struct fb_walk *w, enum fb_scan_level level, uint32_t seed,
                 struct fb_walked *ret_walked);

#endif
