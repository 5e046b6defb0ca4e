/*
 * GL-Cache (Yang, Mao, Yue, Rashmi, FAST 2023): learned eviction of groups; policy/glcache.h has
 * the learning, sim/groups.h the groups.
 *
 *   on a hit:  note it for its group
 *   on a miss: append to the open group; it is full? open another
 *              no room? take the group that is ranked the least useful (until there is a model, the
 *                  groups in turn, from the oldest to the newest and round again) and the merge - 1
 *                  groups written next; keep one group's worth of objects, the best by
 *                  1 / (size * time since the last access); evict the others
 *
 * Groups are counted in objects, as in the paper: 60 (E) or 200 (T), fewer in a cache of less than
 * 20 such groups. They can be made by lot or by size instead, to see what time of writing is worth.
 */
#include <errno.h>

#include "base/hash.h"
#include "base/rand.h"
#include "core/mem.h"
#include "sim/groups.h"
#include "sim/policies.h"

#define NONE FB_SIM_NONE

enum grouping {
    BY_TIME,
    BY_LOT,
    BY_SIZE,
};

struct glcache {
    struct fb_sim_groups groups; /* first */
    struct fb_gl *gl;
    unsigned merge;
    enum grouping grouping;
    struct fb_rand lot;
};

enum {
    PARAM_GROUP,
    PARAM_MERGE,
    PARAM_EVICT,
    PARAM_INTERVAL,
    PARAM_FEATURES,
    PARAM_GROUPING,
};

#define GROUP_HELP    "objects in a group"
#define MERGE_HELP    "groups that become one"
#define EVICT_HELP    "share of groups that are evicted by one ranking"
#define INTERVAL_HELP "of training, in turnovers; 0: a half, later up to 8"
#define FEATURES_HELP \
 "sum of 1 request rate, 2 write rate, 4 miss ratio, 8 size, 16 age, 32 requests, 64 objects"
#define GROUPING_HELP "0 by time of writing, 1 by lot, 2 by size"

static const struct fb_sim_param params_e[] = {
    {"group", 60, 1, FB_SIM_GROUP_MAX, GROUP_HELP},
    {"merge", 2, 2, FB_SIM_MERGE_MAX, MERGE_HELP},
    {"evict", 0.02, 0, 1, EVICT_HELP},
    {"interval", 0, 0, 1000, INTERVAL_HELP},
    {"features", FB_GL_FEATURES_ALL, 0, FB_GL_FEATURES_ALL, FEATURES_HELP},
    {"grouping", BY_TIME, BY_TIME, BY_SIZE, GROUPING_HELP},
    {0},
};

static const struct fb_sim_param params_t[] = {
    {"group", 200, 1, FB_SIM_GROUP_MAX, GROUP_HELP},
    {"merge", 5, 2, FB_SIM_MERGE_MAX, MERGE_HELP},
    {"evict", 0.1, 0, 1, EVICT_HELP},
    {"interval", 0, 0, 1000, INTERVAL_HELP},
    {"features", FB_GL_FEATURES_ALL, 0, FB_GL_FEATURES_ALL, FEATURES_HELP},
    {"grouping", BY_TIME, BY_TIME, BY_SIZE, GROUPING_HELP},
    {0},
};

/* ---- eviction ---- */

static int merge(struct glcache *c, uint32_t victim)
{
    struct fb_sim_groups *g = &c->groups;
    uint32_t chosen[FB_SIM_MERGE_MAX];
    unsigned count = fb_sim_groups_neighbours(g, victim, c->merge, chosen);
    size_t keep;
    int rc = fb_sim_groups_gather(g, chosen, count);

    if (rc)
        return rc;
    for (size_t i = 0; i < g->candidates; i++) {
        const struct fb_sim_member *o = &g->object[g->candidate[i].id];

        g->candidate[i].cost = (double)(c->gl->now - o->meta.last + 1) * o->size;
    }
    keep = fb_sim_groups_choose(g, count);
    for (size_t i = keep; i < g->candidates; i++) {
        uint32_t id = g->candidate[i].id;
        struct fb_sim_member *o = &g->object[id];

        fb_gl_evicted(c->gl, o->group - 1, fb_mix64(id + 1), &o->meta);
    }
    fb_gl_merge(c->gl, chosen, count, victim);
    fb_sim_groups_merge(g, chosen, count, keep);
    for (size_t i = 0; i < keep; i++) {
        struct fb_sim_member *o = &g->object[g->candidate[i].id];

        fb_gl_add(c->gl, victim, o->size, &o->meta);
    }
    if (keep == 0)
        c->gl->group[victim].used = false;
    return 0;
}

static void close_group(struct glcache *c, unsigned lane)
{
    uint32_t group = fb_sim_groups_close(&c->groups, lane);

    if (group != NONE)
        fb_gl_close(c->gl, group);
}

static int make_room(struct glcache *c, uint32_t size)
{
    struct fb_sim_groups *g = &c->groups;
    int rc = fb_gl_step(c->gl, g->cached);

    while (!rc && g->size + size > g->capacity) {
        uint32_t victim;

        for (unsigned lane = 0; g->closed == 0 && lane < FB_SIM_LANES; lane++)
            close_group(c, lane);
        rc = fb_gl_victim(c->gl, &victim);
        if (!rc)
            rc = merge(c, victim == FB_GL_NONE ? fb_sim_groups_next(g, c->merge) : victim);
    }
    return rc;
}

/* ---- requests ---- */

static unsigned lane_of(struct glcache *c, uint32_t size)
{
    switch (c->grouping) {
    case BY_LOT:
        return (unsigned)fb_rand_below(&c->lot, FB_SIM_LANES);
    case BY_SIZE: /* octaves, of which real traces have more than lanes: the common ones count */
        return (unsigned)(31 - __builtin_clz(size)) % FB_SIM_LANES;
    default:
        return 0;
    }
}

static int open_group(struct glcache *c, unsigned lane)
{
    int rc;

    close_group(c, lane);
    rc = fb_sim_groups_open(&c->groups, lane);
    if (!rc)
        rc = fb_gl_reserve(c->gl, c->groups.groups);
    if (!rc)
        fb_gl_open(c->gl, c->groups.open[lane]);
    return rc;
}

static int insert(struct glcache *c, uint32_t id, uint32_t size, uint32_t now_s)
{
    struct fb_sim_groups *g = &c->groups;
    struct fb_sim_member *o = &g->object[id];
    unsigned lane = lane_of(c, size);
    int rc = 0;

    fb_gl_miss(c->gl, fb_mix64(id + 1), size, now_s, &o->meta);
    if (size > g->capacity)
        return 0;
    o->size = size;
    if (g->size + size > g->capacity)
        rc = make_room(c, size);
    if (!rc && fb_sim_groups_full(g, lane))
        rc = open_group(c, lane);
    if (rc)
        return rc;
    fb_sim_groups_write(g, lane, id);
    fb_gl_add(c->gl, g->open[lane], size, &o->meta);
    return 0;
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct glcache *c = cache;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];
        struct fb_sim_member *o = &c->groups.object[id];
        int rc;

        fb_sim_groups_prefetch(&c->groups, batch, i);
        ret_hit[i] = o->group != 0;
        if (o->group != 0) {
            fb_gl_hit(c->gl, o->group - 1, o->size, &o->meta);
            continue;
        }
        rc = insert(c, id, batch->size[i], batch->time_s[i]);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- life ---- */

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    const struct fb_gl_settings settings = {
        .evict = setup->param[PARAM_EVICT],
        .interval = setup->param[PARAM_INTERVAL],
        .features = (unsigned)setup->param[PARAM_FEATURES],
    };
    struct glcache *c = fb_alloc(sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    *ret_cache = c;
    fb_sim_groups_init(&c->groups, setup->capacity, (uint32_t)setup->param[PARAM_GROUP]);
    c->merge = (unsigned)setup->param[PARAM_MERGE];
    c->grouping = (enum grouping)setup->param[PARAM_GROUPING];
    c->lot.state = setup->seed;
    return fb_gl_create(&settings, setup->seed, &c->gl);
}

static int reserve(void *cache, size_t objects)
{
    struct glcache *c = cache;

    return fb_sim_groups_reserve(&c->groups, objects);
}

static void figures(void *cache, fb_sim_figure_fn *tell, void *arg)
{
    static const char *const names[FB_GL_FEATURES] = {
        "importance_request_rate", "importance_write_rate", "importance_miss_ratio",
        "importance_size",         "importance_age",        "importance_requests",
        "importance_active",
    };
    struct glcache *c = cache;
    double shares[FB_GL_FEATURES];

    tell(arg, "trainings", fb_gl_trainings(c->gl));
    tell(arg, "drifts", fb_gl_drifts(c->gl));
    fb_gl_importance(c->gl, shares);
    for (unsigned i = 0; i < FB_GL_FEATURES; i++)
        tell(arg, names[i], shares[i]);
}

static void destroy(void *cache)
{
    struct glcache *c = cache;

    if (!c)
        return;
    fb_gl_destroy(c->gl);
    fb_sim_groups_free(&c->groups);
    free(c);
}

const struct fb_sim_policy fb_sim_glcache_e = {
    .name = "glcache-e",
    .alias = "glcache",
    .summary = "GL-Cache for few misses: learned eviction of groups of 60",
    .params = params_e,
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .figures = figures,
    .destroy = destroy,
};

const struct fb_sim_policy fb_sim_glcache_t = {
    .name = "glcache-t",
    .summary = "GL-Cache for speed: groups of 200, five become one",
    .params = params_t,
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .figures = figures,
    .destroy = destroy,
};
