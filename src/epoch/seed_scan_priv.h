/*
 * epoch/seed_scan_priv.h - the scan itself, in vectors of LANES words. Included once for each
 * level, by a file that defines LANES and SCAN_BLOCK, the name of the function, and is compiled for
 * CPUs that have such vectors.
 *
 * VECTORS of them are under way at a time, since each step of the seeding waits for the last.
 */
#ifndef FB_EPOCH_SEED_SCAN_PRIV_H
#define FB_EPOCH_SEED_SCAN_PRIV_H

#include "epoch/generator.h"
#include "epoch/seed_scan.h"

/* One block: bit i of the result says whether a test holds for seed first + i. */
uint64_t fb_scan_block_plain(const struct fb_scan *s, uint32_t first);
uint64_t fb_scan_block_avx2(const struct fb_scan *s, uint32_t first);
uint64_t fb_scan_block_avx512(const struct fb_scan *s, uint32_t first);

#if defined(LANES)

# define VECTORS (FB_SCAN_BLOCK / LANES)
# define SHIFT   FB_MT19937_SHIFT

typedef uint32_t vec __attribute__((vector_size(4 * LANES)));

struct block {
    vec v[VECTORS];
};

static inline __attribute__((always_inline)) void seed_step(struct block *b, uint32_t i)
{
    for (int j = 0; j < VECTORS; j++)
        b->v[j] = (b->v[j] ^ b->v[j] >> 30) * 1812433253u + i;
}

/* What the words of the state at q, q + 1 and q + SHIFT become, and which output that gives. */
static inline __attribute__((always_inline)) vec twist(vec word, vec after, vec far)
{
    vec mixed = (word & 0x80000000u) | (after & 0x7fffffffu);

    return far ^ mixed >> 1 ^ (-(after & 1) & 0x9908b0dfu);
}

static inline __attribute__((always_inline)) vec temper(vec y)
{
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

static inline __attribute__((always_inline)) vec output(vec word, vec after, vec far)
{
    return temper(twist(word, after, far));
}

static inline __attribute__((always_inline)) vec holds(vec u, const struct fb_scan_test *t)
{
    vec q = (u - t->subtract) * t->inverse;

    q = q >> t->turn | q << (-t->turn & 31);
    return (vec)(q <= t->most);
}

static inline __attribute__((always_inline)) void numbers_from(struct block *b, uint32_t first)
{
    for (uint32_t i = 0; i < FB_SCAN_BLOCK; i++)
        b->v[i / LANES][i % LANES] = first + i;
}

/* Seeds become output q of their generators. */
static inline __attribute__((always_inline)) void draw(struct block *b, uint32_t q)
{
    struct block word, after;

    for (uint32_t i = 1; i <= q; i++)
        seed_step(b, i);
    word = *b;
    seed_step(b, q + 1);
    after = *b;
    for (uint32_t i = q + 2; i <= q + SHIFT; i++)
        seed_step(b, i);
    for (int j = 0; j < VECTORS; j++)
        b->v[j] = output(word.v[j], after.v[j], b->v[j]);
}

uint64_t SCAN_BLOCK(const struct fb_scan *s, uint32_t first)
{
    struct block early[FB_SCAN_OUTPUTS_MAX + 1]; /* words 0 ... of the state */
    struct block hit = {0};
    struct block b;
    uint32_t outputs = s->count ? s->tests[s->count - 1].output + 1 : 0;
    uint32_t test = 0;
    uint64_t bits = 0;

    numbers_from(&b, first);
    if (s->is_nested)
        draw(&b, 3);
    early[0] = b;
    for (uint32_t i = 1; i < SHIFT; i++) {
        seed_step(&b, i);
        if (i <= outputs)
            early[i] = b;
    }
    for (uint32_t q = 0; q < outputs; q++) {
        uint32_t begin = test;

        seed_step(&b, q + SHIFT);
        while (test < s->count && s->tests[test].output == q)
            test++;
        if (begin == test)
            continue;
        for (int j = 0; j < VECTORS; j++) {
            vec u = output(early[q].v[j], early[q + 1].v[j], b.v[j]);

            for (uint32_t t = begin; t < test; t++)
                hit.v[j] |= holds(u, &s->tests[t]);
        }
    }
    for (uint32_t i = 0; i < FB_SCAN_BLOCK; i++)
        bits |= (uint64_t)(hit.v[i / LANES][i % LANES] & 1) << i;
    return bits;
}

#endif
#endif
