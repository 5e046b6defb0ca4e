/*
 * Bucket of a value: values below 16 have one each; above, with e the position of the highest bit,
 * row e - 3 and in it the four bits below the highest one. Rows 61 to 63 stay empty, which keeps
 * the arithmetic plain.
 */
#include "core/hist.h"

#include <assert.h>

#define STEP_BITS 4

static_assert(FB_HIST_STEPS == 1 << STEP_BITS, "a row is STEP_BITS bits wide");

static unsigned bucket_of(uint64_t value)
{
    unsigned shift;

    if (value < FB_HIST_STEPS)
        return (unsigned)value;
    shift = 63 - (unsigned)__builtin_clzll(value) - STEP_BITS;
    return (shift + 1) * FB_HIST_STEPS + (unsigned)((value >> shift) & (FB_HIST_STEPS - 1));
}

/* The largest value of a bucket. The very last one wraps to UINT64_MAX, as it should. */
static uint64_t upper_edge(unsigned bucket)
{
    uint64_t step = bucket % FB_HIST_STEPS;
    unsigned row = bucket / FB_HIST_STEPS;

    if (row == 0)
        return step;
    return ((FB_HIST_STEPS + step + 1) << (row - 1)) - 1;
}

static uint64_t bucket_count(const struct fb_hist *h, unsigned bucket)
{
    return atomic_load_explicit(&h->bucket[bucket], memory_order_relaxed);
}

void fb_hist_add(struct fb_hist *h, uint64_t value)
{
    atomic_fetch_add_explicit(&h->bucket[bucket_of(value)], 1, memory_order_relaxed);
}

uint64_t fb_hist_count(const struct fb_hist *h)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < FB_HIST_BUCKETS; i++)
        sum += bucket_count(h, i);
    return sum;
}

/* Which of `count` sorted values is quantile q, from 1; a q that is no number is the smallest. */
static uint64_t rank_of(double q, uint64_t count)
{
    double exact = q * (double)count;
    uint64_t rank;

    if (!(exact > 1))
        return 1;
    if (exact >= (double)count)
        return count;
    rank = (uint64_t)exact;
    return (double)rank < exact ? rank + 1 : rank;
}

uint64_t fb_hist_quantile(const struct fb_hist *h, double q)
{
    uint64_t count = fb_hist_count(h);
    uint64_t rank;
    uint64_t seen = 0;

    if (count == 0)
        return 0;
    rank = rank_of(q, count);
    /* Values added meanwhile only make `seen` grow sooner, so the loop always finds its bucket. */
    for (unsigned i = 0; i < FB_HIST_BUCKETS; i++) {
        seen += bucket_count(h, i);
        if (seen >= rank)
            return upper_edge(i);
    }
    return UINT64_MAX;
}
