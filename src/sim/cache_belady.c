/*
 * Belady's MIN: the limit for objects of equal size. It knows the future.
 *
 *   on a hit:  note when it is asked for next
 *   on a miss: while there is no room: evict the one that is asked for last (or never)
 *              insert
 */
#include <errno.h>

#include "core/mem.h"
#include "sim/heap.h"
#include "sim/node.h"
#include "sim/policies.h"

struct belady {
    struct fb_sim_base base; /* tag 1: cached */
    struct fb_sim_heap heap;
    uint64_t size;
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct belady *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    *ret_cache = c;
    return 0;
}

static int reserve(void *cache, size_t objects)
{
    struct belady *c = cache;
    int rc = fb_sim_base_reserve(cache, objects);

    return rc ? rc : fb_sim_heap_reserve(&c->heap, objects);
}

static void evict(struct belady *c)
{
    uint32_t id = fb_sim_heap_first(&c->heap)->id;

    fb_sim_heap_remove(&c->heap, id);
    c->size -= c->base.node[id].size;
    c->base.node[id].tag = 0;
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct belady *c = cache;
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
            node[id].tag = 1;
            c->size += batch->size[i];
        }
        rc = fb_sim_heap_set(&c->heap, id, -(double)batch->next[i], id);
        if (rc)
            return rc;
    }
    return 0;
}

static void destroy(void *cache)
{
    struct belady *c = cache;

    if (c)
        fb_sim_heap_free(&c->heap);
    fb_sim_base_destroy(c);
}

const struct fb_sim_policy fb_sim_belady = {
    .name = "belady",
    .alias = "min",
    .summary = "the limit for objects of equal size; knows the future",
    .needs_future = true,
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .destroy = destroy,
};
