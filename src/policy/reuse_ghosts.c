#include "policy/reuse_ghosts.h"

#include "core/mem.h"

#define WAYS       8
#define SHARE      3 /* ghosts for each object in the cache */
#define FIELD      12
#define FIELD_MASK ((1u << FIELD) - 1)
#define GHOSTS_MAX (1u << 30)

static uint32_t *bucket_of(const struct fb_reuse_ghosts *g, uint64_t hash, uint32_t *ret_tag)
{
    *ret_tag = (uint32_t)hash & FIELD_MASK;
    return &g->ghost[(hash >> FIELD) % g->buckets * WAYS];
}

static uint32_t age_of(const struct fb_reuse_ghosts *g, uint32_t now, uint32_t ghost)
{
    return ((now >> g->shift) - (ghost >> 20)) & FIELD_MASK;
}

void fb_reuse_ghosts_add(struct fb_reuse_ghosts *g, uint32_t now, uint64_t hash,
                         const struct fb_reuse_meta *meta)
{
    uint32_t tag;
    uint32_t *bucket;
    unsigned oldest = 0;

    if (!g->ghost)
        return;
    bucket = bucket_of(g, hash, &tag);
    for (unsigned i = 1; i < WAYS; i++) {
        if (age_of(g, now, bucket[i]) > age_of(g, now, bucket[oldest]))
            oldest = i;
    }
    bucket[oldest] = meta->last >> g->shift << 20 | tag << 8 | meta->history;
}

bool fb_reuse_ghosts_take(struct fb_reuse_ghosts *g, uint32_t now, uint64_t hash,
                          struct fb_reuse_meta *ret_meta)
{
    uint32_t tag;
    uint32_t *bucket;

    if (!g->ghost)
        return false;
    bucket = bucket_of(g, hash, &tag);
    for (unsigned i = 0; i < WAYS; i++) {
        if ((bucket[i] >> 8 & FIELD_MASK) == tag && bucket[i] != 0) {
            ret_meta->history = (uint8_t)bucket[i];
            ret_meta->last = now - (age_of(g, now, bucket[i]) << g->shift);
            bucket[i] = 0;
            return true;
        }
    }
    return false;
}

void fb_reuse_ghosts_make(struct fb_reuse_ghosts *g, uint64_t cached)
{
    uint64_t wanted = SHARE * cached < GHOSTS_MAX ? SHARE * cached : GHOSTS_MAX;

    g->buckets = wanted / WAYS + 1;
    g->ghost = fb_alloc_array(g->buckets, WAYS * sizeof *g->ghost);
    g->shift = 0;
    while (cached >> g->shift > 16)
        g->shift++;
}

void fb_reuse_ghosts_free(struct fb_reuse_ghosts *g)
{
    free(g->ghost);
}

size_t fb_reuse_ghosts_bytes(const struct fb_reuse_ghosts *g)
{
    return g->ghost ? g->buckets * WAYS * sizeof *g->ghost : 0;
}
