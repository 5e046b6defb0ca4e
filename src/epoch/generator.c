#include "epoch/generator.h"

#include "base/attr.h"

#define WORDS FB_MT19937_WORDS
#define SHIFT FB_MT19937_SHIFT

/* ---- MT19937 ---- */

void fb_mt19937_seed(struct fb_mt19937 *g, uint32_t seed)
{
    g->state[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++) {
        seed = 1812433253u * (seed ^ seed >> 30) + i;
        g->state[i] = seed;
    }
    g->next = WORDS;
}

/* One word of the state folded into the next: both rounds of seeding with a key. */
static uint32_t fold(uint32_t word, uint32_t before, uint32_t factor)
{
    return word ^ (before ^ before >> 30) * factor;
}

void fb_mt19937_seed_python(struct fb_mt19937 *g, uint64_t seed)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t digits = key[1] ? 2 : 1;
    uint32_t *s = g->state;
    uint32_t at = 1;

    fb_mt19937_seed(g, 19650218u);
    for (uint32_t k = 0; k < WORDS; k++) {
        s[at] = fold(s[at], s[at - 1], 1664525u) + key[k % digits] + k % digits;
        if (++at == WORDS) {
            s[0] = s[WORDS - 1];
            at = 1;
        }
    }
    for (uint32_t k = 1; k < WORDS; k++) {
        s[at] = fold(s[at], s[at - 1], 1566083941u) - at;
        if (++at == WORDS) {
            s[0] = s[WORDS - 1];
            at = 1;
        }
    }
    s[0] = 0x80000000u;
}

static uint32_t twist(uint32_t word, uint32_t after, uint32_t far)
{
    uint32_t mixed = (word & 0x80000000u) | (after & 0x7fffffffu);

    return far ^ mixed >> 1 ^ (-(after & 1) & 0x9908b0dfu);
}

static uint32_t temper(uint32_t y)
{
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

void fb_mt19937_refill(struct fb_mt19937 *g)
{
    uint32_t *s = g->state;

    for (uint32_t i = 0; i < WORDS - SHIFT; i++)
        s[i] = twist(s[i], s[i + 1], s[i + SHIFT]);
    for (uint32_t i = WORDS - SHIFT; i < WORDS - 1; i++)
        s[i] = twist(s[i], s[i + 1], s[i + SHIFT - WORDS]);
    s[WORDS - 1] = twist(s[WORDS - 1], s[0], s[SHIFT - 1]);
    for (uint32_t i = 0; i < WORDS; i++)
        g->out[i] = temper(s[i]);
    g->next = 0;
}

void fb_mt19937_skip(struct fb_mt19937 *g, uint64_t count)
{
    while (count > WORDS - g->next) {
        count -= WORDS - g->next;
        fb_mt19937_refill(g);
    }
    g->next += (uint32_t)count;
}

/* ---- numpy's SeedSequence and PCG64 ---- */

#define POOL_WORDS 4

/* A multiplicative hash whose factor changes with every use. */
struct mixer {
    uint32_t factor;
    uint32_t change;
};

static uint32_t mix_in(struct mixer *m, uint32_t value)
{
    value ^= m->factor;
    m->factor *= m->change;
    value *= m->factor;
    return value ^ value >> 16;
}

static uint32_t combine(uint32_t x, uint32_t y)
{
    uint32_t z = x * 0xca01f9ddu - y * 0x4973f715u;

    return z ^ z >> 16;
}

static void pool_seed(uint32_t pool[POOL_WORDS], uint64_t seed)
{
    struct mixer m = {.factor = 0x43b0d7e5u, .change = 0x931e8875u};

    for (uint32_t i = 0; i < POOL_WORDS; i++)
        pool[i] = mix_in(&m, i < 2 ? (uint32_t)(seed >> 32 * i) : 0);
    for (uint32_t from = 0; from < POOL_WORDS; from++) {
        for (uint32_t to = 0; to < POOL_WORDS; to++) {
            if (from != to)
                pool[to] = combine(pool[to], mix_in(&m, pool[from]));
        }
    }
}

static void pcg64_step(struct fb_pcg64 *g)
{
    const unsigned __int128 factor =
        (unsigned __int128)2549297995355413924ULL << 64 | 4865540595714422341ULL;

    g->state = g->state * factor + g->step;
}

void fb_pcg64_seed(struct fb_pcg64 *g, uint64_t seed)
{
    struct mixer m = {.factor = 0x8b51f9ddu, .change = 0x58f38dedu};
    uint32_t pool[POOL_WORDS];
    uint64_t words[4] = {0};

    pool_seed(pool, seed);
    for (uint32_t i = 0; i < 2 * FB_ARRAY_SIZE(words); i++)
        words[i / 2] |= (uint64_t)mix_in(&m, pool[i % POOL_WORDS]) << 32 * (i % 2);
    *g = (struct fb_pcg64){.step = ((unsigned __int128)words[2] << 64 | words[3]) << 1 | 1};
    pcg64_step(g);
    g->state += (unsigned __int128)words[0] << 64 | words[1];
    pcg64_step(g);
}

uint64_t fb_pcg64_u64(struct fb_pcg64 *g)
{
    uint64_t folded;
    unsigned turn;

    pcg64_step(g);
    folded = (uint64_t)(g->state >> 64) ^ (uint64_t)g->state;
    turn = (unsigned)(g->state >> 122);
    return folded >> turn | folded << (-turn & 63);
}

uint32_t fb_pcg64_u32(struct fb_pcg64 *g)
{
    uint64_t both;

    if (g->has_half) {
        g->has_half = 0;
        return g->half;
    }
    both = fb_pcg64_u64(g);
    g->half = (uint32_t)(both >> 32);
    g->has_half = 1;
    return (uint32_t)both;
}
