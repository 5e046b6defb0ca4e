/*
 * sim/pool.h - the cached objects as an array, so that one can be drawn by lot.
 */
#ifndef FB_SIM_POOL_H
#define FB_SIM_POOL_H

#include <errno.h>

#include "base/rand.h"
#include "core/mem.h"
#include "sim/cache.h"

struct fb_sim_pool {
    uint32_t *member;
    size_t count;
    size_t room;
    uint32_t *place; /* of an object: 1 + its position; 0: it is not in */
    size_t objects;
};

FB_MUST_CHECK static inline int fb_sim_pool_reserve(struct fb_sim_pool *pool, size_t objects)
{
    int rc = fb_sim_grow(&pool->place, &pool->objects, objects, sizeof *pool->place);

    return rc ? rc : fb_sim_grow(&pool->member, &pool->room, objects, sizeof *pool->member);
}

static inline void fb_sim_pool_free(struct fb_sim_pool *pool)
{
    free(pool->member);
    free(pool->place);
}

static inline bool fb_sim_pool_has(const struct fb_sim_pool *pool, uint32_t id)
{
    return pool->place[id] != 0;
}

static inline void fb_sim_pool_add(struct fb_sim_pool *pool, uint32_t id)
{
    pool->member[pool->count++] = id;
    pool->place[id] = (uint32_t)pool->count;
}

static inline void fb_sim_pool_remove(struct fb_sim_pool *pool, uint32_t id)
{
    uint32_t last = pool->member[--pool->count];
    uint32_t place = pool->place[id];

    pool->member[place - 1] = last;
    pool->place[last] = place;
    pool->place[id] = 0;
}

/* Not when it is empty. */
static inline uint32_t fb_sim_pool_draw(const struct fb_sim_pool *pool, struct fb_rand *lot)
{
    return pool->member[fb_rand_below(lot, pool->count)];
}

#endif
