/*
 * stream/pattern.h - what a stream does, as its last `window` visits show it.
 *
 * A visit is a step of a caller from one child of a node to another: reading on in the same child
 * is none. Each entry holds where the child stands among its siblings (its order) and which item
 * was meant (its identity), and how many visits ago the same caller was here last, so that the
 * steps of each caller can be told apart: interleaved readers look sequential again.
 *
 *     cyclic      what returns does so after about the same number of visits (see window.h)
 *     sequential  one positive step holds a majority of the window, or steps are short and go on,
 *                 or the whole window moves forward
 *     skewed      more pairs of equal items than uniform draws give, or steps that are neither
 *     random      neither too many repeats nor steps unlike those between items drawn at random
 *
 * Tests, for n visits and c items:
 *
 *     steps    on ranks among the orders seen, so that holes, strides and unknown c do not matter
 *     repeats  pairs of equal items against Poisson(n(n-1)/2c), the law of draws with replacement:
 *              training within an epoch has fewer, across epochs or with several jobs as many.
 *              Pairs between callers that walk in lockstep do not count
 *     gaps     Kolmogorov-Smirnov of |step| against the triangular law of IGTCache (section 3.2)
 *              over the range seen where the numbering is known, else against the steps between
 *              visits of the same window that lie further apart (order carries no information)
 *
 * Pure arithmetic: no allocation; a window of 100 costs a few microseconds.
 */
#ifndef FB_STREAM_PATTERN_H
#define FB_STREAM_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

#define FB_WINDOW_MIN 8
#define FB_WINDOW_MAX 1024
#define FB_CHILDREN_MIN \
 8 /* with fewer distinct children in a window there is no pattern to speak of */

enum fb_pattern {
    FB_PATTERN_UNKNOWN,
    FB_PATTERN_SEQUENTIAL,
    FB_PATTERN_RANDOM,
    FB_PATTERN_SKEWED,
    FB_PATTERN_CYCLIC,
    FB_PATTERNS,
};

enum fb_pattern_test {
    FB_TEST_NONE,
    FB_TEST_STEPS,   /* statistic: share of steps that go on; over the limit: sequential */
    FB_TEST_TREND,   /* correlation of order with time; over the limit: sequential */
    FB_TEST_GAPS,    /* D of Kolmogorov and Smirnov; over the limit: not random */
    FB_TEST_REPEATS, /* pairs of equal items; over the limit: skewed */
    FB_TEST_RETURNS, /* how irregularly items return; under the limit: cyclic */
};

struct fb_verdict {
    uint8_t pattern; /* enum fb_pattern */
    uint8_t test;    /* the test that decided, enum fb_pattern_test */
    float statistic; /* of that test */
    float limit;
    int32_t stride;  /* of scans, cyclic ones too: the step with a majority, else 1; else 0 */
    uint32_t period; /* cyclic: visits until an item returns; else 0 */
    uint16_t spread; /* different children in the window */
};

/* One window of visits, oldest first. */
struct fb_visits {
    const uint32_t *entries; /* equal entries are equal items; entry >> shift is the order */
    const uint8_t *back;     /* visits since the same caller's last; 0: none known */
    uint32_t count;
    uint8_t shift;
    bool numbered;  /* orders are positions: differences mean distances */
    uint64_t items; /* c, how many there are to choose from, at least; 0: unknown */
};

/* Evidence of repeats carried from window to window: weak skew shows in the sum. */
struct fb_repeats {
    float excess; /* pairs beyond those expected */
    float spread; /* variance of that */
};

const char *fb_pattern_name(enum fb_pattern pattern);
const char *fb_pattern_test_name(enum fb_pattern_test test);

/* The verdict of the window alone, but for `repeats`, which is brought forward. Never cyclic.
 * alpha: significance of the gap test; the paper's is 0.01. */
void fb_pattern_judge(const struct fb_visits *visits, double alpha, struct fb_repeats *repeats,
                      struct fb_verdict *ret_verdict);

/* Of few visits: whether they are a scan, and then its verdict. */
bool fb_pattern_is_scan(const struct fb_visits *visits, struct fb_verdict *ret_verdict);

#endif
