/*
 * epoch/seed_walk_priv.h - the walk itself, in vectors of LANES words, as seed_scan_priv.h, after
 * which it is included: by a file that defines WALK_BLOCK, the name of the function.
 */
#ifndef FB_EPOCH_SEED_WALK_PRIV_H
#define FB_EPOCH_SEED_WALK_PRIV_H

#include "epoch/seed_walk.h"

void fb_walk_block_plain(const struct fb_walk *w, uint32_t seed, struct fb_walked *out);
void fb_walk_block_avx2(const struct fb_walk *w, uint32_t seed, struct fb_walked *out);
void fb_walk_block_avx512(const struct fb_walk *w, uint32_t seed, struct fb_walked *out);

#if defined(LANES)

# define WIDTH (FB_WALK_BLOCK / LANES)

/* One word of each seed. */
union wide {
    vec v[WIDTH];
    uint32_t words[FB_WALK_BLOCK];
};

struct walking {
    union wide state[FB_MT19937_WORDS];
    union wide outputs[FB_WALK_CHUNK];
    union wide places[FB_WALK_FILES];
    union wide hits;
};

/* The whole state, from its first word. */
static void seed_state(union wide state[FB_MT19937_WORDS])
{
    for (uint32_t i = 1; i < FB_MT19937_WORDS; i++) {
        for (uint32_t j = 0; j < WIDTH; j++) {
            vec last = state[i - 1].v[j];

            state[i].v[j] = (last ^ last >> 30) * 1812433253u + i;
        }
    }
}

static void walk_begin(struct walking *x, const struct fb_walk *w, uint32_t seed,
                       struct fb_walked *out)
{
    for (uint32_t lane = 0; lane < FB_WALK_BLOCK; lane++) {
        x->state[0].words[lane] = seed + lane;
        for (uint32_t f = 0; f < FB_WALK_FILES; f++) {
            x->places[f].words[lane] = w->files[f];
            out->positions[f][lane] = FB_WALK_NOWHERE;
        }
    }
    seed_state(x->state);
    if (!w->is_nested)
        return;
    for (uint32_t j = 0; j < WIDTH; j++)
        x->state[0].v[j] = output(x->state[3].v[j], x->state[4].v[j], x->state[3 + SHIFT].v[j]);
    seed_state(x->state);
}

/* The outputs from `first` on. The highest bit of a lane's hits: one of them may concern a file. */
static inline __attribute__((always_inline)) void
walk_chunk(struct walking *x, const struct fb_walk *w, uint32_t first)
{
    uint32_t at = first % FB_MT19937_WORDS;
    union wide hits = {0};

    /* A place that one of the steps moves. */
    for (uint32_t j = 0; j < WIDTH; j++) {
        for (uint32_t f = 0; f < FB_WALK_FILES; f++) {
            vec ahead = x->places[f].v[j] - (first - w->offset);

            hits.v[j] |= (ahead - FB_WALK_CHUNK) & ~ahead;
        }
    }
    for (uint32_t k = 0; k < FB_WALK_CHUNK; k++, at++) {
        const struct fb_walk_step *step = &w->table[first + k];
        uint32_t position = first + k - w->offset;
        uint32_t after = at + 1 < FB_MT19937_WORDS ? at + 1 : 0;
        uint32_t far = at < FB_MT19937_WORDS - SHIFT ? at + SHIFT : at + SHIFT - FB_MT19937_WORDS;

        for (uint32_t j = 0; j < WIDTH; j++) {
            vec word = twist(x->state[at].v[j], x->state[after].v[j], x->state[far].v[j]);
            vec u = temper(word);

            x->state[at].v[j] = word;
            x->outputs[k].v[j] = u;
            u += position;
            for (uint32_t f = 0; f < FB_WALK_FILES; f++) {
                vec q = (u - x->places[f].v[j]) * step->inverse;

                if (step->turn) /* every other step */
                    q = q >> step->turn | q << (-step->turn & 31);
                hits.v[j] |= (q - step->limit) & ~q; /* q < limit */
            }
        }
    }
    x->hits = hits;
}

/* The same steps for one file of one seed, exactly. */
static void walk_again(struct walking *x, const struct fb_walk *w, uint32_t first, uint32_t lane,
                       uint32_t file, uint32_t *position)
{
    uint32_t *place = &x->places[file].words[lane];

    for (uint32_t k = 0; k < FB_WALK_CHUNK && *position == FB_WALK_NOWHERE; k++) {
        uint32_t p = first + k - w->offset;
        uint32_t to;

        if (first + k < w->offset || p >= w->steps)
            continue;
        to = p + x->outputs[k].words[lane] % (w->n - p);
        if (*place == to)
            *position = p;
        else if (*place == p)
            *place = to;
    }
}

/* Behind which output nothing is to be found any more. */
static uint32_t walk_end(const struct fb_walk *w, const struct fb_walked *out)
{
    uint32_t end = w->steps, last = 0;

    for (uint32_t lane = 0; lane < FB_WALK_BLOCK; lane++) {
        if (out->positions[0][lane] == FB_WALK_NOWHERE)
            return end + w->offset;
        last = out->positions[0][lane] > last ? out->positions[0][lane] : last;
    }
    return (w->apart < end - last ? last + w->apart + 1 : end) + w->offset;
}

static uint32_t any_of(const union wide *w)
{
    uint32_t any = 0;

    for (uint32_t lane = 0; lane < FB_WALK_BLOCK; lane++)
        any |= w->words[lane];
    return any >> 31;
}

void WALK_BLOCK(const struct fb_walk *w, uint32_t seed, struct fb_walked *out)
{
    struct walking x;
    uint32_t end = w->steps + w->offset;

    walk_begin(&x, w, seed, out);
    for (uint32_t first = 0; first < end; first += FB_WALK_CHUNK) {
        walk_chunk(&x, w, first);
        if (!any_of(&x.hits))
            continue;
        for (uint32_t lane = 0; lane < FB_WALK_BLOCK; lane++) {
            for (uint32_t f = 0; x.hits.words[lane] >> 31 && f < FB_WALK_FILES; f++)
                walk_again(&x, w, first, lane, f, &out->positions[f][lane]);
        }
        end = walk_end(w, out);
    }
}

#endif
#endif
