/*
 * Segcache's eviction (Yang, Yue, Vinayak, NSDI 2021): objects are written to segments, and whole
 * segments are evicted by merging a few that were written one after the other.
 *
 *   on a hit:  count, up to 127
 *   on a miss: append to the open segment
 *              it is full? open another; if the cache has no free one:
 *                  from the oldest segment on, or from where the last merge ended, take 4 in a row;
 *                  keep those objects with the largest count / size that fill one segment, with
 *                  half their count; evict the others
 *   The cache has 100 segments; a larger object than a segment is not admitted.
 */
#include <errno.h>
#include <string.h>

#include "core/mem.h"
#include "sim/node.h"
#include "sim/policies.h"

#define COUNT_MAX    127
#define SEGMENTS_MIN 8 /* a smaller cache than that admits nothing */
#define SEGMENTS_MAX 100000
#define MERGE_MAX    64

struct segment {
    struct fb_sim_list objects;
    uint32_t prev; /* written before; among all in use, by the time of writing */
    uint32_t next;
};

struct ranked {
    double score;
    uint32_t id;
};

struct segcache {
    struct fb_sim_base base; /* tag: 1 + count */
    struct segment *segment;
    unsigned segments;
    uint64_t segment_size;
    uint32_t free; /* a list through next */
    uint32_t oldest;
    uint32_t newest; /* the open one */
    uint32_t hand;   /* where the next merge begins; NONE: at the oldest */
    unsigned merge;
    struct ranked *ranked; /* of a merge */
    size_t ranked_room;
};

static const struct fb_sim_param params[] = {
    {"segments", 100, SEGMENTS_MIN, SEGMENTS_MAX, "that the cache is made of"},
    {"merge", 4, 2, MERGE_MAX, "segments that become one"},
    {0},
};

static uint32_t open_segment(struct segcache *c)
{
    uint32_t s = c->free;

    c->free = c->segment[s].next;
    fb_sim_list_init(&c->segment[s].objects);
    c->segment[s].prev = c->newest;
    c->segment[s].next = FB_SIM_NONE;
    if (c->newest == FB_SIM_NONE)
        c->oldest = s;
    else
        c->segment[c->newest].next = s;
    c->newest = s;
    return s;
}

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct segcache *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    *ret_cache = c;
    c->segments =
        (unsigned)fb_min_u64((uint64_t)setup->param[0], fb_max_u64(setup->capacity, SEGMENTS_MIN));
    c->merge = (unsigned)setup->param[1];
    if (c->merge > c->segments / 2)
        c->merge = c->segments / 2;
    c->segment_size = setup->capacity / c->segments;
    c->segment = fb_alloc_array(c->segments, sizeof *c->segment);
    if (!c->segment)
        return -ENOMEM;
    for (unsigned i = 0; i < c->segments; i++)
        c->segment[i].next = i + 1 < c->segments ? i + 1 : FB_SIM_NONE;
    c->oldest = c->newest = c->hand = FB_SIM_NONE;
    open_segment(c);
    return 0;
}

/* ---- merging ---- */

static int by_score(const void *a, const void *b)
{
    const struct ranked *x = a;
    const struct ranked *y = b;

    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* All objects of the segments, the best first; they are taken out of their lists. */
static int rank(struct segcache *c, const uint32_t *chosen, unsigned count, size_t *ret_count)
{
    struct fb_sim_node *node = c->base.node;
    size_t total = 0;
    size_t n = 0;
    int rc;

    for (unsigned i = 0; i < count; i++)
        total += c->segment[chosen[i]].objects.count;
    rc = fb_sim_grow(&c->ranked, &c->ranked_room, total, sizeof *c->ranked);
    if (rc)
        return rc;
    for (unsigned i = 0; i < count; i++) {
        struct fb_sim_list *objects = &c->segment[chosen[i]].objects;

        for (uint32_t id = objects->tail; id != FB_SIM_NONE; id = node[id].prev)
            c->ranked[n++] = (struct ranked){(double)(node[id].tag - 1) / node[id].size, id};
        fb_sim_list_init(objects);
    }
    if (n > 1)
        qsort(c->ranked, n, sizeof *c->ranked, by_score);
    *ret_count = n;
    return 0;
}

static void free_segment(struct segcache *c, uint32_t s)
{
    struct segment *seg = &c->segment[s];

    if (seg->prev == FB_SIM_NONE)
        c->oldest = seg->next;
    else
        c->segment[seg->prev].next = seg->next;
    c->segment[seg->next].prev = seg->prev; /* the open one comes after all others */
    seg->next = c->free;
    c->free = s;
}

static int merge(struct segcache *c)
{
    struct fb_sim_node *node = c->base.node;
    uint32_t chosen[MERGE_MAX];
    unsigned count = 0;
    size_t ranked;
    uint32_t s = c->hand == FB_SIM_NONE ? c->oldest : c->hand;
    int rc;

    for (; count < c->merge && s != c->newest; s = c->segment[s].next)
        chosen[count++] = s;
    c->hand = s == c->newest ? FB_SIM_NONE : s;
    if (count < 2) /* too few before the open one: begin again at the oldest */
        return 0;
    rc = rank(c, chosen, count, &ranked);
    if (rc)
        return rc;
    for (size_t i = 0; i < ranked; i++) {
        uint32_t id = c->ranked[i].id;
        struct fb_sim_list *kept = &c->segment[chosen[0]].objects;

        if (kept->size + node[id].size <= c->segment_size) {
            node[id].tag = 1 + (node[id].tag - 1) / 2;
            fb_sim_push_head(node, kept, id);
        } else {
            node[id].tag = 0;
        }
    }
    for (unsigned i = 1; i < count; i++)
        free_segment(c, chosen[i]);
    return 0;
}

/* ---- requests ---- */

static int insert(struct segcache *c, uint32_t id, uint32_t size)
{
    struct fb_sim_node *node = c->base.node;

    if (size > c->segment_size)
        return 0;
    if (c->segment[c->newest].objects.size + size > c->segment_size) {
        while (c->free == FB_SIM_NONE) {
            int rc = merge(c);

            if (rc)
                return rc;
        }
        open_segment(c);
    }
    node[id].size = size;
    node[id].tag = 1;
    fb_sim_push_head(node, &c->segment[c->newest].objects, id);
    return 0;
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct segcache *c = cache;
    struct fb_sim_node *node = c->base.node;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];
        int rc = 0;

        fb_sim_prefetch(node, batch, i);
        ret_hit[i] = node[id].tag != 0;
        if (!ret_hit[i])
            rc = insert(c, id, batch->size[i]);
        else if (node[id].tag <= COUNT_MAX)
            node[id].tag++;
        if (rc)
            return rc;
    }
    return 0;
}

static void destroy(void *cache)
{
    struct segcache *c = cache;

    if (c) {
        free(c->segment);
        free(c->ranked);
    }
    fb_sim_base_destroy(c);
}

const struct fb_sim_policy fb_sim_segcache = {
    .name = "segcache",
    .alias = "fifo-merge",
    .summary = "evicts whole segments, merging neighbours in time of writing",
    .params = params,
    .create = create,
    .reserve = fb_sim_base_reserve,
    .replay = replay,
    .destroy = destroy,
};
