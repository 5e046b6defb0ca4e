#include "policy/reads.h"

#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"
#include "core/mem.h"

#define WAYS       16
#define COUNT_BITS 10
#define COUNT_MASK ((1u << COUNT_BITS) - 1)

static_assert(FB_READS_MAX == COUNT_MASK, "a count has these bits");

struct bucket {
    uint32_t word[WAYS];
};

struct fb_reads {
    struct bucket *bucket;
    uint64_t mask;
};

int fb_reads_new(uint64_t items, struct fb_reads **ret_reads)
{
    struct fb_reads *r = fb_alloc(sizeof *r);
    uint64_t buckets = 1;

    while (buckets * WAYS < items)
        buckets *= 2;
    if (r)
        r->bucket = fb_alloc_array(buckets, sizeof *r->bucket);
    if (!r || !r->bucket) {
        fb_reads_free(r);
        return -ENOMEM;
    }
    r->mask = buckets - 1;
    *ret_reads = r;
    return 0;
}

void fb_reads_free(struct fb_reads *r)
{
    if (!r)
        return;
    free(r->bucket);
    free(r);
}

/* The word of an item, or of the one that goes for it. */
static uint32_t *find(const struct fb_reads *r, uint64_t name, uint32_t *ret_tag)
{
    uint64_t hash = fb_mix64(name);
    uint32_t *word = r->bucket[hash & r->mask].word, *least = word;
    uint32_t tag = (uint32_t)(hash >> 32) & ~COUNT_MASK;

    *ret_tag = tag;
    for (unsigned i = 0; i < WAYS; i++) {
        if ((word[i] & ~COUNT_MASK) == tag && (word[i] & COUNT_MASK) != 0)
            return &word[i];
        if ((word[i] & COUNT_MASK) < (*least & COUNT_MASK))
            least = &word[i];
    }
    return least;
}

uint32_t fb_reads_of(const struct fb_reads *r, uint64_t name)
{
    uint32_t tag;
    const uint32_t *word = find(r, name, &tag);

    return (*word & ~COUNT_MASK) == tag ? *word & COUNT_MASK : 0;
}

uint32_t fb_reads_add(struct fb_reads *r, uint64_t name)
{
    uint32_t tag;
    uint32_t *word = find(r, name, &tag);
    uint32_t count = (*word & ~COUNT_MASK) == tag ? *word & COUNT_MASK : 0;

    *word = tag | (count < FB_READS_MAX ? count + 1 : count);
    return count;
}
