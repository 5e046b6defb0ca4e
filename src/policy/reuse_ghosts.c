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
    return &g->ghost[((hash >> 32) * g->buckets >> 32) * WAYS];
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

/* Fills bucket `to` of `buckets` from those of `was` that had its hashes; it may be one of them.
 * What had not its hashes comes along, and goes as the others do. */
static void refill(struct fb_reuse_ghosts *g, uint64_t to, uint64_t buckets, uint64_t was)
{
    uint16_t filled[WAYS] = {0};
    uint64_t first = to * was / buckets;
    uint64_t end = ((to + 1) * was + buckets - 1) / buckets;
    unsigned n = 0;

    for (unsigned way = 0; way < WAYS; way++) {
        for (uint64_t from = first; from < end && n < WAYS; from++) {
            uint16_t ghost = g->ghost[from * WAYS + way];

            if (ghost != 0)
                filled[n++] = ghost;
        }
    }
    memcpy(&g->ghost[to * WAYS], filled, sizeof filled);
}

/* In place: a bucket's hashes lie further on in a larger table, and further back in a smaller. */
void fb_reuse_ghosts_resize(struct fb_reuse_ghosts *g, uint64_t ghosts)
{
    uint64_t buckets = fb_min_u64(ghosts, GHOSTS_MAX) / WAYS;
    uint64_t was = g->ghost ? g->buckets : 0;
    uint16_t *table;

    if (buckets == 0) {
        free(g->ghost);
        g->ghost = NULL;
        return;
    }
    for (uint64_t to = 0; to < buckets && buckets < was; to++)
        refill(g, to, buckets, was);
    table = realloc(g->ghost, buckets * WAYS * sizeof *g->ghost);
    if (!table && buckets < was)
        table = g->ghost;
    if (!table)
        return;
    g->ghost = table;
    g->buckets = buckets;
    if (was == 0)
        memset(table, 0, buckets * WAYS * sizeof *table);
    for (uint64_t to = buckets; to > 0 && was > 0 && was < buckets; to--)
        refill(g, to - 1, buckets, was);
}

void fb_reuse_ghosts_free(struct fb_reuse_ghosts *g)
{
    free(g->ghost);
}

size_t fb_reuse_ghosts_bytes(const struct fb_reuse_ghosts *g)
{
    return g->ghost ? g->buckets * WAYS * sizeof *g->ghost : 0;
}
