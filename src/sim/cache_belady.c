/*
 * Belady's MIN: the limit for objects of equal size. It knows the future.
 *
 *   on a hit:  note when it is asked for next
 *   on a miss: while there is no room: evict the one that is asked for last (or never)
 *              insert
 */
#include "sim/policies.h"
#include "sim/ranked.h"

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct fb_sim_ranked *c = cache;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];
        int rc;

        ret_hit[i] = c->base.node[id].tag != 0;
        if (!fb_sim_ranked_ask(c, id, batch->size[i]))
            continue;
        rc = fb_sim_heap_set(&c->heap, id, -(double)batch->next[i], id);
        if (rc)
            return rc;
    }
    return 0;
}

const struct fb_sim_policy fb_sim_belady = {
    .name = "belady",
    .alias = "min",
    .summary = "the limit for objects of equal size; knows the future",
    .needs_future = true,
    .create = fb_sim_ranked_create,
    .reserve = fb_sim_ranked_reserve,
    .replay = replay,
    .destroy = fb_sim_ranked_destroy,
};
