#include "policy/shadow.h"

#include <errno.h>
#include <stdbool.h>

#include "base/hash.h"
#include "core/mem.h"

#define BUCKETS   (2 * FB_SHADOW_ITEMS)
#define LEVEL_MAX 32
#define SHARES    65536 /* parts that a share is counted in */

/* Place 0 is the list's head: next is the newest, prev the oldest. */
struct entry {
    uint64_t key; /* 0: free */
    uint64_t bytes;
    uint32_t prev;
    uint32_t next; /* also of free ones */
    uint32_t chain;
    uint32_t stream;
};

struct fb_shadow {
    uint64_t total;
    uint64_t used;  /* of the sample */
    unsigned level; /* one item in 2^level is sampled */
    uint32_t free;
    uint64_t holds[FB_SHADOW_STREAMS]; /* of the sample */
    uint32_t bucket[BUCKETS];
    struct entry entry[FB_SHADOW_ITEMS + 1];
};

int fb_shadow_new(uint64_t total_bytes, struct fb_shadow **ret_shadow)
{
    struct fb_shadow *s = fb_alloc(sizeof *s);

    if (!s)
        return -ENOMEM;
    s->total = total_bytes;
    for (uint32_t i = 1; i <= FB_SHADOW_ITEMS; i++)
        s->entry[i].next = i < FB_SHADOW_ITEMS ? i + 1 : 0;
    s->free = 1;
    *ret_shadow = s;
    return 0;
}

void fb_shadow_free(struct fb_shadow *s)
{
    free(s);
}

/* The low bits choose the sample, the high ones the bucket. */
static uint64_t hash_of(uint64_t key)
{
    return fb_mix64(key ^ 0x5ad0eULL);
}

static bool is_sampled(const struct fb_shadow *s, uint64_t hash)
{
    return (hash & ((1ULL << s->level) - 1)) == 0;
}

static uint32_t *bucket_of(struct fb_shadow *s, uint64_t hash)
{
    return &s->bucket[(hash >> 32) % BUCKETS];
}

static void link_first(struct fb_shadow *s, uint32_t at)
{
    struct entry *e = &s->entry[at];

    e->prev = 0;
    e->next = s->entry[0].next;
    s->entry[e->next].prev = at;
    s->entry[0].next = at;
}

static void unlink_entry(struct fb_shadow *s, uint32_t at)
{
    const struct entry *e = &s->entry[at];

    s->entry[e->prev].next = e->next;
    s->entry[e->next].prev = e->prev;
}

static void drop(struct fb_shadow *s, uint32_t at)
{
    struct entry *e = &s->entry[at];
    uint32_t *link = bucket_of(s, hash_of(e->key));

    while (*link != at)
        link = &s->entry[*link].chain;
    *link = e->chain;
    unlink_entry(s, at);
    s->used -= e->bytes;
    s->holds[e->stream] -= e->bytes;
    *e = (struct entry){.next = s->free};
    s->free = at;
}

static void thin_out(struct fb_shadow *s)
{
    s->level++;
    for (uint32_t i = 1; i <= FB_SHADOW_ITEMS; i++) {
        if (s->entry[i].key && !is_sampled(s, hash_of(s->entry[i].key)))
            drop(s, i);
    }
}

static uint32_t find(struct fb_shadow *s, uint64_t key, uint64_t hash)
{
    uint32_t at = *bucket_of(s, hash);

    while (at && s->entry[at].key != key)
        at = s->entry[at].chain;
    return at;
}

static void insert(struct fb_shadow *s, uint32_t stream, uint64_t key, uint64_t bytes,
                   uint64_t hash)
{
    uint32_t at = s->free;

    s->free = s->entry[at].next;
    s->entry[at] =
        (struct entry){.key = key, .bytes = bytes, .chain = *bucket_of(s, hash), .stream = stream};
    *bucket_of(s, hash) = at;
    link_first(s, at);
    s->used += bytes;
    s->holds[stream] += bytes;
    while (s->used > s->total >> s->level)
        drop(s, s->entry[0].prev);
}

static bool is_in_share(uint64_t hash, double share)
{
    return (double)(fb_mix64(hash) & (SHARES - 1)) < share * SHARES;
}

enum fb_shadowed fb_shadow_access(struct fb_shadow *s, uint32_t stream, uint64_t key,
                                  uint64_t bytes, double share)
{
    uint64_t hash = hash_of(key);
    uint32_t at;

    if (!is_sampled(s, hash) || !is_in_share(hash, share))
        return FB_SHADOW_UNSEEN;
    at = find(s, key, hash);
    if (at) {
        struct entry *e = &s->entry[at];

        s->holds[e->stream] -= e->bytes;
        s->holds[stream] += e->bytes;
        e->stream = stream;
        unlink_entry(s, at);
        link_first(s, at);
        return FB_SHADOW_HIT;
    }
    while (!s->free && s->level < LEVEL_MAX)
        thin_out(s);
    if (s->free && is_sampled(s, hash))
        insert(s, stream, key, bytes, hash);
    return FB_SHADOW_MISS;
}

uint64_t fb_shadow_holds(const struct fb_shadow *s, uint32_t stream)
{
    return s->holds[stream] << s->level;
}

void fb_shadow_forget(struct fb_shadow *s, uint32_t stream)
{
    for (uint32_t i = 1; s->holds[stream] && i <= FB_SHADOW_ITEMS; i++) {
        if (s->entry[i].key && s->entry[i].stream == stream)
            drop(s, i);
    }
}
