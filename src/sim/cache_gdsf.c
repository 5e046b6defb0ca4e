/*
 * GreedyDual-Size-Frequency (Cherkasova, 1998): small and popular objects stay, and all age.
 *
 *   priority = L + count / size, L the priority of the last one evicted
 *   on a hit:  count + 1, new priority
 *   on a miss: while there is no room: evict the one with the least priority; of equals, the least
 *                  recent
 *              insert with a count of 1
 */
#include "sim/policies.h"
#include "sim/ranked.h"

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct fb_sim_ranked *c = cache;
    struct fb_sim_node *node = c->base.node;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];
        int rc;

        ret_hit[i] = node[id].tag != 0;
        if (!fb_sim_ranked_ask(c, id, batch->size[i]))
            continue;
        rc = fb_sim_heap_set(&c->heap, id, c->evicted + (double)node[id].tag / node[id].size,
                             batch->first + i);
        if (rc)
            return rc;
    }
    return 0;
}

const struct fb_sim_policy fb_sim_gdsf = {
    .name = "gdsf",
    .summary = "small and popular objects stay (GreedyDual-Size-Frequency)",
    .create = fb_sim_ranked_create,
    .reserve = fb_sim_ranked_reserve,
    .replay = replay,
    .destroy = fb_sim_ranked_destroy,
};
