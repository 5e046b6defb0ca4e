/*
 * Belady with sizes: large objects that are asked for late leave first. It knows the future, and is
 * close to the limit for objects of different sizes (which is NP-hard to find).
 *
 *   on a hit:  not asked for again? evict it; else note when
 *   on a miss: while there is no room: of the next 128 candidates, evict the one with the largest
 *                  size * (requests until it is asked for)
 *              insert, if it is asked for again
 *
 * Candidates are met by a hand that goes round a hash table and sees the newest object of each
 * bucket: an even choice without lots, and the one that the reference (libCacheSim) comes to make.
 * Drawing each candidate by lot finds up to 0.2 points fewer misses on the same traces.
 */
#include <errno.h>
#include <math.h>

#include "base/hash.h"
#include "core/mem.h"
#include "sim/node.h"
#include "sim/policies.h"

/* Few objects share a bucket, so that all are seen; a very large cache has fewer buckets. */
#define BUCKETS_START 256
#define BUCKETS_SPARE 65536 /* up to so many: 32 for an object */
#define SPARE_FACTOR  32
#define LOAD_MAX      2 /* objects a bucket, beyond that */

struct belady_size {
    struct fb_sim_base base; /* tag 1: cached */
    int64_t *next;           /* of each object */
    size_t next_objects;
    struct fb_sim_list *bucket;
    size_t buckets;
    size_t hand;
    uint64_t count;
    uint64_t size;
    unsigned draws;
    uint64_t seed;
};

static const struct fb_sim_param params[] = {
    {"draws", 128, 1, 4096, "candidates for eviction"},
    {0},
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct belady_size *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    c->draws = (unsigned)setup->param[0];
    c->seed = fb_mix64(setup->seed);
    *ret_cache = c;
    return 0;
}

static struct fb_sim_list *bucket_of(struct belady_size *c, uint32_t id)
{
    return &c->bucket[fb_mix64(id + c->seed) & (c->buckets - 1)];
}

static bool needs_buckets(const struct belady_size *c)
{
    if (c->buckets < BUCKETS_SPARE)
        return (c->count + 1) * SPARE_FACTOR > c->buckets;
    return c->count >= c->buckets * LOAD_MAX;
}

/* Twice as many buckets, or the first. */
static int grow_buckets(struct belady_size *c)
{
    size_t count = c->buckets ? c->buckets * 2 : BUCKETS_START;
    struct fb_sim_list *bucket = fb_alloc_array(count, sizeof *bucket);

    if (!bucket)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        fb_sim_list_init(&bucket[i]);
    free(c->bucket);
    c->bucket = bucket;
    c->buckets = count;
    for (size_t id = 0; id < c->base.objects; id++) {
        if (c->base.node[id].tag)
            fb_sim_push_head(c->base.node, bucket_of(c, (uint32_t)id), (uint32_t)id);
    }
    return 0;
}

static int reserve(void *cache, size_t objects)
{
    struct belady_size *c = cache;
    int rc = fb_sim_base_reserve(cache, objects);

    return rc ? rc : fb_sim_grow(&c->next, &c->next_objects, objects, sizeof *c->next);
}

static void leave(struct belady_size *c, uint32_t id)
{
    fb_sim_remove(c->base.node, bucket_of(c, id), id);
    c->base.node[id].tag = 0;
    c->size -= c->base.node[id].size;
    c->count--;
}

static void evict(struct belady_size *c, uint64_t now)
{
    double worst = -INFINITY; /* a trace that is wrong about the future has negative scores */
    uint32_t victim = 0;

    for (unsigned i = 0; i < c->draws;) {
        uint32_t id = c->bucket[c->hand++ & (c->buckets - 1)].head;
        double score;

        if (id == FB_SIM_NONE)
            continue;
        i++;
        score = (double)c->base.node[id].size * (double)(c->next[id] - (int64_t)now);
        if (score > worst) {
            worst = score;
            victim = id;
        }
    }
    leave(c, victim);
}

static int insert(struct belady_size *c, uint32_t id, uint32_t size, int64_t next, uint64_t now)
{
    int rc = 0;

    if (size > c->base.capacity)
        return 0;
    while (c->size + size > c->base.capacity)
        evict(c, now);
    if (next == FB_SIM_NEVER)
        return 0;
    while (rc == 0 && needs_buckets(c))
        rc = grow_buckets(c);
    if (rc)
        return rc;
    c->base.node[id].tag = 1;
    c->base.node[id].size = size;
    c->next[id] = next;
    c->size += size;
    c->count++;
    fb_sim_push_head(c->base.node, bucket_of(c, id), id);
    return 0;
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct belady_size *c = cache;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];
        int rc = 0;

        ret_hit[i] = c->base.node[id].tag != 0;
        if (!ret_hit[i])
            rc = insert(c, id, batch->size[i], batch->next[i], batch->first + i);
        else if (batch->next[i] == FB_SIM_NEVER)
            leave(c, id);
        else
            c->next[id] = batch->next[i];
        if (rc)
            return rc;
    }
    return 0;
}

static void destroy(void *cache)
{
    struct belady_size *c = cache;

    if (c) {
        free(c->next);
        free(c->bucket);
    }
    fb_sim_base_destroy(c);
}

const struct fb_sim_policy fb_sim_belady_size = {
    .name = "belady-size",
    .alias = "beladySize",
    .summary = "close to the limit for objects of different sizes; knows the future",
    .needs_future = true,
    .params = params,
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .destroy = destroy,
};
