/*
 * Hyperbolic caching (Blankstein, Sen, Freedman, ATC 2017): what was asked for least often per time
 * in the cache leaves first; candidates are drawn by lot.
 *
 *   on a hit:  count + 1
 *   on a miss: while there is no room: of 64 drawn by lot, evict the one with the least
 *                  count / (requests since it came)
 *              insert with a count of 1
 */
#include "sim/policies.h"
#include "sim/pool.h"

struct object {
    uint64_t since;
    uint32_t count;
    uint32_t size;
};

struct hyperbolic {
    struct fb_sim_pool pool;
    struct object *object;
    size_t objects;
    uint64_t capacity;
    uint64_t size;
    unsigned draws;
    struct fb_rand lot;
};

static const struct fb_sim_param params[] = {
    {"draws", 64, 1, 4096, "candidates for eviction"},
    {0},
};

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct hyperbolic *c = fb_alloc(sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    c->capacity = setup->capacity;
    c->draws = (unsigned)setup->param[0];
    c->lot.state = setup->seed;
    *ret_cache = c;
    return 0;
}

static int reserve(void *cache, size_t objects)
{
    struct hyperbolic *c = cache;
    int rc = fb_sim_grow(&c->object, &c->objects, objects, sizeof *c->object);

    return rc ? rc : fb_sim_pool_reserve(&c->pool, objects);
}

static void evict(struct hyperbolic *c, uint64_t now)
{
    double least = 0;
    uint32_t victim = 0;

    for (unsigned i = 0; i < c->draws; i++) {
        uint32_t id = fb_sim_pool_draw(&c->pool, &c->lot);
        double score = c->object[id].count / (double)(now - c->object[id].since);

        if (i == 0 || score < least) {
            least = score;
            victim = id;
        }
    }
    fb_sim_pool_remove(&c->pool, victim);
    c->size -= c->object[victim].size;
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct hyperbolic *c = cache;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];
        uint64_t now = batch->first + i;

        ret_hit[i] = fb_sim_pool_has(&c->pool, id);
        if (ret_hit[i]) {
            c->object[id].count++;
            continue;
        }
        if (batch->size[i] > c->capacity)
            continue;
        while (c->size + batch->size[i] > c->capacity)
            evict(c, now);
        c->object[id] = (struct object){now, 1, batch->size[i]};
        c->size += batch->size[i];
        fb_sim_pool_add(&c->pool, id);
    }
    return 0;
}

static void destroy(void *cache)
{
    struct hyperbolic *c = cache;

    if (c) {
        fb_sim_pool_free(&c->pool);
        free(c->object);
    }
    free(c);
}

const struct fb_sim_policy fb_sim_hyperbolic = {
    .name = "hyperbolic",
    .summary = "what was asked for least often per time in the cache leaves first",
    .params = params,
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .destroy = destroy,
};
