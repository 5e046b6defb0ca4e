/*
 * GreedyDual-Size-Frequency (Cherkasova, 1998): small and popular objects stay, and all age.
 *
 *   priority = L + count / size, L the priority of the last one evicted
 *   on a hit:  count + 1, new priority
 *   on a miss: while there is no room: evict the one with the least priority; of equals, the least
 *                  recent
 *              insert with a count of 1
 */
#include <errno.h>

#include "core/mem.h"
#include "sim/heap.h"
#include "sim/node.h"
#include "sim/policies.h"

struct gdsf {
    struct fb_sim_base base; /* tag: the count */
    struct fb_sim_heap heap;
    uint64_t size;
    double inflation; /* L */
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct gdsf *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    *ret_cache = c;
    return 0;
}

static int reserve(void *cache, size_t objects)
{
    struct gdsf *c = cache;
    int rc = fb_sim_base_reserve(cache, objects);

    return rc ? rc : fb_sim_heap_reserve(&c->heap, objects);
}

static void evict(struct gdsf *c)
{
    const struct fb_sim_heap_entry *first = fb_sim_heap_first(&c->heap);
    uint32_t id = first->id;

    c->inflation = first->priority;
    fb_sim_heap_remove(&c->heap, id);
    c->size -= c->base.node[id].size;
    c->base.node[id].tag = 0;
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct gdsf *c = cache;
    struct fb_sim_node *node = c->base.node;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];
        int rc;

        ret_hit[i] = node[id].tag != 0;
        if (!ret_hit[i] && batch->size[i] > c->base.capacity)
            continue;
        while (!ret_hit[i] && c->size + batch->size[i] > c->base.capacity)
            evict(c);
        if (!ret_hit[i]) {
            node[id].size = batch->size[i];
            c->size += batch->size[i];
        }
        node[id].tag++;
        rc = fb_sim_heap_set(&c->heap, id, c->inflation + (double)node[id].tag / node[id].size,
                             batch->first + i);
        if (rc)
            return rc;
    }
    return 0;
}

static void destroy(void *cache)
{
    struct gdsf *c = cache;

    if (c)
        fb_sim_heap_free(&c->heap);
    fb_sim_base_destroy(c);
}

const struct fb_sim_policy fb_sim_gdsf = {
    .name = "gdsf",
    .summary = "small and popular objects stay (GreedyDual-Size-Frequency)",
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .destroy = destroy,
};
