#include "policy/reuse_ghosts.h"

#include <string.h>

#include "core/mem.h"

#define WAYS       8
#define TAGS       255 /* 1 to so many; 0: no ghost */
#define TAG_SHIFT  8
#define AGE_SHIFT  5
#define AGE_MASK   7u
#define GHOSTS_MAX (1u << 30)

static uint16_t *bucket_of(const struct fb_reuse_ghosts *g, uint64_t hash, unsigned *ret_tag)
{
    *ret_tag = (unsigned)(hash % TAGS) + 1;
    return &g->ghost[(hash >> 12) % g->buckets * WAYS];
}

void fb_reuse_ghosts_add(struct fb_reuse_ghosts *g, uint64_t hash, const struct fb_reuse_ghost *add)
{
    unsigned tag;
    uint16_t *bucket;

    if (!g->ghost)
        return;
    bucket = bucket_of(g, hash, &tag);
    memmove(bucket + 1, bucket, (WAYS - 1) * sizeof *bucket);
    bucket[0] = (uint16_t)(tag << TAG_SHIFT | (unsigned)add->age << AGE_SHIFT | add->history);
}

bool fb_reuse_ghosts_take(struct fb_reuse_ghosts *g, uint64_t hash, struct fb_reuse_ghost *ret)
{
    unsigned tag;
    uint16_t *bucket;

    if (!g->ghost)
        return false;
    bucket = bucket_of(g, hash, &tag);
    for (unsigned i = 0; i < WAYS; i++) {
        if (bucket[i] >> TAG_SHIFT != tag)
            continue;
        ret->history = bucket[i] & ((1u << AGE_SHIFT) - 1);
        ret->age = bucket[i] >> AGE_SHIFT & AGE_MASK;
        ret->since = ((float)i + 0.5f) / WAYS;
        bucket[i] = 0;
        return true;
    }
    return false;
}

void fb_reuse_ghosts_make(struct fb_reuse_ghosts *g, uint64_t cached)
{
    g->buckets = fb_max_u64(fb_min_u64(cached, GHOSTS_MAX) / WAYS, 1);
    g->ghost = fb_alloc_array(g->buckets, WAYS * sizeof *g->ghost);
}

void fb_reuse_ghosts_free(struct fb_reuse_ghosts *g)
{
    free(g->ghost);
}

size_t fb_reuse_ghosts_bytes(const struct fb_reuse_ghosts *g)
{
    return g->ghost ? g->buckets * WAYS * sizeof *g->ghost : 0;
}
