/*
 * epoch/generator.h - the random generators behind the frameworks' shuffles, bit for bit.
 *
 * MT19937 (Matsumoto and Nishimura) serves torch, numpy's RandomState and Python's random; they
 * differ in how a seed becomes the state and in what is made of the outputs. PCG64 (O'Neill) behind
 * a SeedSequence is numpy's default_rng. State is the caller's; nothing fails.
 */
#ifndef FB_EPOCH_GENERATOR_H
#define FB_EPOCH_GENERATOR_H

#include <stdint.h>

#define FB_MT19937_WORDS 624
#define FB_MT19937_SHIFT 397

struct fb_mt19937 {
    uint32_t state[FB_MT19937_WORDS];
    uint32_t out[FB_MT19937_WORDS]; /* the state's outputs, made all at once */
    uint32_t next;                  /* of out */
};

/* The state that one 32-bit seed gives: torch's manual_seed() and numpy's RandomState(). */
void fb_mt19937_seed(struct fb_mt19937 *g, uint32_t seed);

/* Python's random.seed(): the seed's 32-bit digits as a key. */
void fb_mt19937_seed_python(struct fb_mt19937 *g, uint64_t seed);

void fb_mt19937_refill(struct fb_mt19937 *g);

static inline uint32_t fb_mt19937_u32(struct fb_mt19937 *g)
{
    if (g->next == FB_MT19937_WORDS)
        fb_mt19937_refill(g);
    return g->out[g->next++];
}

/* As if `count` numbers had been drawn. */
void fb_mt19937_skip(struct fb_mt19937 *g, uint64_t count);

/* How torch makes 64 bits of two draws. */
static inline uint64_t fb_mt19937_u64(struct fb_mt19937 *g)
{
    uint64_t high = fb_mt19937_u32(g);

    return high << 32 | fb_mt19937_u32(g);
}

struct fb_pcg64 {
    unsigned __int128 state;
    unsigned __int128 step;
    uint32_t half; /* the high half of the last output, when has_half */
    uint32_t has_half;
};

/* numpy's PCG64(SeedSequence(seed)), which is default_rng(seed). */
void fb_pcg64_seed(struct fb_pcg64 *g, uint64_t seed);

uint64_t fb_pcg64_u64(struct fb_pcg64 *g);

/* The low half of an output, then its high half. */
uint32_t fb_pcg64_u32(struct fb_pcg64 *g);

#endif
