/*
 * stream/synth.h - generated streams whose pattern is known: what `forebay bench patterns` and the
 * tests measure recognition with.
 *
 * A stream is an endless sequence of indices below `items`, with the caller of each. Its parameters
 * are drawn from the seed, within the bounds written beside each kind. With W workers, indices are
 * dealt out as a data loader does: worker w reads batches w, w + W, w + 2W ... of the sequence, and
 * workers take turns at random.
 */
#ifndef FB_STREAM_SYNTH_H
#define FB_STREAM_SYNTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/rand.h"
#include "stream/streams.h"

#define FB_SYNTH_WORKERS_MAX 16
#define FB_SYNTH_BATCH_MAX   32

enum fb_synth_kind {
    FB_SYNTH_SEQUENTIAL, /* up to 30% left out, order off by up to 4 places; 1,000-100,000 items */
    FB_SYNTH_STRIDED,    /* stride 2-64 */
    FB_SYNTH_RANDOM,     /* epochs without replacement, from anywhere in one; 500-100,000 items */
    FB_SYNTH_SCATTERED,  /* Zipf 0.9-1.2, hot items anywhere; 500-100,000 items */
    FB_SYNTH_CLUSTERED,  /* Zipf 0.9-1.2, hot items first in the listing */
    FB_SYNTH_HOT_SET,    /* 80-95% of accesses to 10-100 items of 1,000-10,000, anywhere */
    FB_SYNTH_CYCLIC,     /* 20-2,000 items, half of them subsets, half in a shuffled order */
    FB_SYNTH_WEAK,       /* Zipf 0.6-0.8, hot items anywhere */
    FB_SYNTH_KINDS,
};

/* What the indices are, and what the feeder knows of them. */
enum fb_synth_form {
    FB_SYNTH_BLOCKS,   /* blocks of one file */
    FB_SYNTH_LISTED,   /* files with positions; their names are hashes */
    FB_SYNTH_NAMED,    /* numbered names, and no listing */
    FB_SYNTH_UNSORTED, /* numbered names, and positions that have nothing to do with them */
    FB_SYNTH_FORMS,
};

#define FB_SYNTH_PATH_MAX 64

struct fb_synth;

const char *fb_synth_name(enum fb_synth_kind kind);
enum fb_pattern fb_synth_pattern(enum fb_synth_kind kind);

/* workers: 1 to FB_SYNTH_WORKERS_MAX. */
FB_MUST_CHECK int fb_synth_new(enum fb_synth_kind kind, uint64_t seed, unsigned workers,
                               struct fb_synth **ret_synth);
void fb_synth_free(struct fb_synth *synth);

uint32_t fb_synth_items(const struct fb_synth *synth);

/* Accesses after which the pattern may be asked for: a cycle must come round first. */
uint32_t fb_synth_patience(const struct fb_synth *synth, uint32_t window);

/* The next index, and which worker reads it. */
uint32_t fb_synth_next(struct fb_synth *synth, uint32_t *ret_worker);

/* The next access as a fact, in a directory (or a file) of the name d<number>. `path` backs it. */
void fb_synth_fact(struct fb_synth *synth, enum fb_synth_form form, uint32_t number,
                   char path[FB_SYNTH_PATH_MAX], struct fb_fact *ret_fact);

#endif
