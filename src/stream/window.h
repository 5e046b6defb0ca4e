/*
 * stream/window.h - what a node of the tree remembers of its visits.
 *
 *     entries   the last visits, up to `size`; judged when full, then begun anew, so that one
 *               window's mistake is independent of the next one's
 *     samples   up to 24 items chosen by hash, with the visit they were last seen at: they show
 *               what the window is too short for: how many items there are, and after how many
 *               visits one returns. When more are seen than fit, every second one goes, so the
 *               sample stays an even one of whatever is read
 *     below     which children of the children are read, for prefetch that goes down (f_p)
 *     times     mean and variance of the time between visits, for the TTL
 *
 * A scan that comes round again brings each sampled item back after the same number of visits; a
 * shuffled epoch after anything from 1 to 2c. How far intervals are off their mean, as a share of
 * it, is 0 in a clean cycle, 0.08 with a quarter of it in the hands of a loader's workers, 0.33 in
 * shuffled epochs and about 1 in skewed streams; the limit is 0.15.
 *
 * Two verdicts in a row must agree before a stream changes its pattern; the first one counts at
 * once. After four that agree, only every fourth window is judged until one disagrees: so a change
 * is seen within 100 visits of a stream at first, and within 500 of one long settled. 0.83 KB at a
 * size of 100.
 *
 * A scan is guessed at before the first window is full: who made 16 visits in order will make the
 * next one, and directories of 50 files are read to their end before anything is known. A guess is
 * enough to fetch ahead by; it is no verdict, and the first one takes its place.
 */
#ifndef FB_STREAM_WINDOW_H
#define FB_STREAM_WINDOW_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/attr.h"
#include "stream/pattern.h"

#define FB_SAMPLES     24
#define FB_VISIT_BYTES 5
#define FB_BELOW       6
#define FB_GUESS_AT    16       /* visits */
#define FB_BELOW_ROUND 64       /* visits after which counts are halved */
#define FB_GAP_MAX_S   86400.0F /* a pause of days must not outweigh everything else for good */

enum fb_numbering {
    FB_NUMBER_NAME,     /* order from the name alone */
    FB_NUMBER_POSITION, /* position in the listing, as the feeder says; block number in a file */
};

struct fb_below {
    uint32_t key;  /* fb_name_hash of a child's child, or fb_below_block */
    uint8_t count; /* visits of children in which it was read, of the last `below_visits` */
    uint8_t unused;
    uint16_t visit; /* low bits of the visit in which it was counted last */
};

struct fb_sample {
    uint32_t tag;   /* of the item's hash */
    uint32_t visit; /* it was last seen at */
};

/* What every visit touches comes first. */
struct fb_window {
    uint16_t size;
    uint16_t count; /* entries in use */
    uint8_t shift;
    uint8_t numbering; /* enum fb_numbering */
    uint8_t candidate; /* the pattern that must be seen once more; UNKNOWN: none */
    uint8_t trials;    /* windows judged, saturating */

    uint8_t sample_level; /* one item in 2^level is sampled */
    uint8_t sample_count;
    uint8_t again; /* returns seen; halved now and then, as is `irregular` */
    uint8_t below_visits;
    uint8_t agreed; /* verdicts in a row that said the same, saturating */
    uint8_t rested; /* windows since that were not judged */
    float gap_mean_s;
    float gap_var_s2;
    uint8_t sample_mark[FB_SAMPLES]; /* the highest bits of tags, to look there first */

    float irregular;   /* the sum of how far returns were off, in intervals */
    uint32_t interval; /* of returns, a moving mean */
    float below_whole; /* sum over below_visits of the share of the child that was read */
    struct fb_repeats repeats;
    struct fb_verdict verdict;

    struct fb_below below[FB_BELOW];
    struct fb_sample sample[FB_SAMPLES];
    uint8_t visits[]; /* five bytes each: an entry, and `back` (stream/pattern.h) */
};

static inline size_t fb_window_bytes(uint32_t size)
{
    return fb_align_up(offsetof(struct fb_window, visits) + (size_t)size * FB_VISIT_BYTES,
                       FB_CACHELINE);
}

/* A visit is near. */
static inline void fb_window_prefetch(const struct fb_window *w)
{
    __builtin_prefetch(w);
}

/* `w`: zeroed memory of fb_window_bytes(size). */
void fb_window_init(struct fb_window *w, uint32_t size, enum fb_numbering numbering, uint8_t shift);

static inline bool fb_window_is_sampled(uint32_t tag, uint8_t level)
{
    return (tag & ((1U << level) - 1)) == 0;
}

/* Of a sampled item. */
void fb_window_sample(struct fb_window *w, uint32_t tag, uint32_t visit);

/* A visit, the `visit`-th of the node, of the item with this hash. True when the window is full and
 * wants to be judged. */
static inline bool fb_window_add(struct fb_window *w, uint32_t entry, uint8_t back, uint64_t hash,
                                 uint32_t visit)
{
    uint32_t tag = (uint32_t)(hash >> 32);
    uint8_t *at = &w->visits[w->count * FB_VISIT_BYTES];

    if (fb_window_is_sampled(tag, w->sample_level))
        fb_window_sample(w, tag, visit);
    memcpy(at, &entry, sizeof entry);
    at[sizeof entry] = back;
    return ++w->count == w->size;
}

/* The time since the access before. `weight`: of one gap in the means. */
static inline void fb_window_gap(struct fb_window *w, int64_t gap_ns, float weight)
{
    float raw = (float)gap_ns * 1e-9F;
    float gap = raw < 0 ? 0 : raw > FB_GAP_MAX_S ? FB_GAP_MAX_S : raw;
    float off = gap - w->gap_mean_s;

    w->gap_mean_s += weight * off;
    w->gap_var_s2 = (1 - weight) * (w->gap_var_s2 + weight * off * off);
}

/* Judges the full window and begins the next. `items`: how many there are, 0 when unknown.
 * True when the stream's pattern changed. */
bool fb_window_judge(struct fb_window *w, uint64_t items, double alpha);

/* Of a window that was never judged, at FB_GUESS_AT visits: whether it begins as a scan. True when
 * the pattern is sequential from now on. */
bool fb_window_guess(struct fb_window *w);

/* How many different items were seen, about. */
uint64_t fb_window_items(const struct fb_window *w);

/* ---- below ---- */

/* Blocks are counted from the front, but the last two of a longer file from its end. */
uint32_t fb_below_block(uint32_t block, uint32_t blocks);

void fb_window_below_halve(struct fb_window *w);

/* A visit of a child begins. */
static inline void fb_window_below_begin(struct fb_window *w)
{
    if (w->below_visits >= FB_BELOW_ROUND)
        fb_window_below_halve(w);
    w->below_visits++;
}

/* In the child's visit `visit` this was read, a `share` of the child. */
void fb_window_below_add(struct fb_window *w, uint32_t key, uint32_t visit, float share);

/* The relative frequency of what is read below; 0 when it is not among the remembered. */
double fb_window_below_share(const struct fb_window *w, uint32_t key);
double fb_window_below_whole(const struct fb_window *w);

#endif
