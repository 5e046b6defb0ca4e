/*
 * Uniform: keep what came first, never churn. Right for data that is read at random and in full, as
 * a training set is: every object is as good as any other, so each eviction would be wasted work.
 *
 *   on a hit:  nothing
 *   on a miss: insert if there is room
 */
#include <errno.h>

#include "sim/node.h"
#include "sim/policies.h"

struct uniform {
    struct fb_sim_base base; /* tag 1: cached */
    uint64_t size;
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct uniform *c = fb_sim_base_new(setup, sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    *ret_cache = c;
    return 0;
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct uniform *c = cache;
    struct fb_sim_node *node = c->base.node;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];

        fb_sim_prefetch(node, batch, i);
        ret_hit[i] = node[id].tag != 0;
        if (!ret_hit[i] && c->size + batch->size[i] <= c->base.capacity) {
            node[id].tag = 1;
            c->size += batch->size[i];
        }
    }
    return 0;
}

const struct fb_sim_policy fb_sim_uniform = {
    .name = "uniform",
    .summary = "keeps what came first, never evicts",
    .create = create,
    .reserve = fb_sim_base_reserve,
    .replay = replay,
    .destroy = fb_sim_base_destroy,
};
