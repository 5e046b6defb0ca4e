/*
 * core/hist.h - a histogram of latencies: 16 linear steps in each power of two, so any quantile is
 * within 6.25% of the truth, in 8 KiB. Adding is one relaxed atomic increment.
 */
#ifndef FB_CORE_HIST_H
#define FB_CORE_HIST_H

#include <stdatomic.h>
#include <stdint.h>

#define FB_HIST_STEPS   16
#define FB_HIST_BUCKETS (64 * FB_HIST_STEPS)

struct fb_hist {
    _Atomic uint64_t bucket[FB_HIST_BUCKETS];
};

void fb_hist_add(struct fb_hist *h, uint64_t value);
uint64_t fb_hist_count(const struct fb_hist *h);

/* The largest value of the bucket that holds quantile q (0 to 1); 0 when empty. */
uint64_t fb_hist_quantile(const struct fb_hist *h, double q);

#endif
