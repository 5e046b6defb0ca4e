/*
 * GL-Cache with an oracle instead of a model (its paper, section 4.2): how far evicting groups can
 * get when every group's utility is known. Same groups, same merging.
 *
 *   on a hit:  note when it is asked for next
 *   on a miss: append to the open group; it is full? open another
 *              no room? rank the groups by the sum of 1 / (size * time until the next access) of
 *                  their objects, per byte; take the worst and the merge - 1 groups written next;
 *                  keep one group's worth of objects, the best by the same measure; evict the rest
 *
 * A ranking serves for a share of the groups, as there. With keep=0 what a merge keeps is chosen by
 * the last access, as GL-Cache does, so that only the ranking knows the future.
 */
#include <errno.h>

#include "core/mem.h"
#include "sim/groups.h"
#include "sim/policies.h"

#define NONE FB_SIM_NONE
#define LANE 0

struct ranked {
    double utility; /* per byte */
    uint32_t group;
};

struct oracle {
    struct fb_sim_groups groups;
    int64_t *next; /* of each object */
    size_t nexts;
    unsigned merge;
    double evict;
    bool keep_by_future;
    int64_t now;
    uint32_t stamp; /* of the ranking */
    struct ranked *ranked;
    size_t ranked_room;
    size_t victim;
    size_t victims;
};

static const struct fb_sim_param params[] = {
    {"group", 60, 1, FB_SIM_GROUP_MAX, "objects in a group"},
    {"merge", 2, 2, FB_SIM_MERGE_MAX, "groups that become one"},
    {"evict", 0.02, 0, 1, "share of groups that are evicted by one ranking"},
    {"keep", 1, 0, 1, "what a merge keeps is chosen by 1 the future, 0 the last access"},
    {0},
};

/* ---- ranking ---- */

static double utility_of(const struct oracle *c, uint32_t id)
{
    if (c->next[id] == FB_SIM_NEVER)
        return 0;
    return 1.0 / ((double)c->groups.object[id].size * (double)(c->next[id] - c->now));
}

static double utility_of_group(const struct oracle *c, const struct fb_sim_group *group)
{
    const struct fb_sim_member *object = c->groups.object;
    double sum = 0;
    double size = 0;

    for (uint32_t id = group->first; id != NONE; id = object[id].next) {
        sum += utility_of(c, id);
        size += object[id].size;
    }
    return sum / size;
}

static int by_utility(const void *a, const void *b)
{
    const struct ranked *x = a;
    const struct ranked *y = b;

    if (x->utility != y->utility)
        return x->utility < y->utility ? -1 : 1;
    return x->group < y->group ? -1 : x->group > y->group;
}

static int rank(struct oracle *c)
{
    struct fb_sim_groups *g = &c->groups;
    size_t count = 0;
    int rc = fb_sim_grow(&c->ranked, &c->ranked_room, g->groups, sizeof *c->ranked);

    if (rc)
        return rc;
    c->stamp++;
    for (uint32_t n = g->oldest; n != NONE; n = g->group[n].next) {
        if (g->group[n].open)
            continue;
        g->group[n].stamp = c->stamp;
        c->ranked[count++] = (struct ranked){utility_of_group(c, &g->group[n]), n};
    }
    if (count > 1)
        qsort(c->ranked, count, sizeof *c->ranked, by_utility);
    c->victim = 0;
    c->victims = fb_max_u64((uint64_t)(c->evict * (double)count), 1);
    return 0;
}

/* There is a closed group. */
static int find_victim(struct oracle *c, uint32_t *ret_group)
{
    for (;;) {
        int rc;

        while (c->victim < c->victims) {
            uint32_t n = c->ranked[c->victim++].group;

            if (c->groups.group[n].stamp == c->stamp) {
                *ret_group = n;
                return 0;
            }
        }
        rc = rank(c);
        if (rc)
            return rc;
    }
}

/* ---- eviction ---- */

static double cost_of(const struct oracle *c, uint32_t id)
{
    const struct fb_sim_member *o = &c->groups.object[id];

    if (c->keep_by_future)
        return -utility_of(c, id);
    return ((double)((uint32_t)c->now - o->meta.last) + 1) * o->size;
}

static int merge(struct oracle *c, uint32_t victim)
{
    struct fb_sim_groups *g = &c->groups;
    uint32_t chosen[FB_SIM_MERGE_MAX];
    unsigned count = fb_sim_groups_neighbours(g, victim, c->merge, chosen);
    int rc = fb_sim_groups_gather(g, chosen, count);

    if (rc)
        return rc;
    for (size_t i = 0; i < g->candidates; i++)
        g->candidate[i].cost = cost_of(c, g->candidate[i].id);
    fb_sim_groups_merge(g, chosen, count, fb_sim_groups_choose(g, count));
    return 0;
}

static int make_room(struct oracle *c, uint32_t size)
{
    struct fb_sim_groups *g = &c->groups;
    int rc = 0;

    while (!rc && g->size + size > g->capacity) {
        uint32_t victim;

        if (g->closed == 0)
            fb_sim_groups_close(g, LANE);
        rc = find_victim(c, &victim);
        if (!rc)
            rc = merge(c, victim);
    }
    return rc;
}

/* ---- requests ---- */

static int insert(struct oracle *c, uint32_t id, uint32_t size)
{
    struct fb_sim_groups *g = &c->groups;
    int rc;

    if (size > g->capacity)
        return 0;
    g->object[id].size = size;
    rc = make_room(c, size);
    if (!rc && fb_sim_groups_full(g, LANE)) {
        fb_sim_groups_close(g, LANE);
        rc = fb_sim_groups_open(g, LANE);
    }
    if (!rc)
        fb_sim_groups_write(g, LANE, id);
    return rc;
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct oracle *c = cache;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];
        struct fb_sim_member *o = &c->groups.object[id];
        int rc;

        fb_sim_groups_prefetch(&c->groups, batch, i);
        c->now = (int64_t)(batch->first + i);
        o->meta.last = (uint32_t)c->now;
        c->next[id] = batch->next[i];
        ret_hit[i] = o->group != 0;
        rc = ret_hit[i] ? 0 : insert(c, id, batch->size[i]);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- life ---- */

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct oracle *c = fb_alloc(sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    fb_sim_groups_init(&c->groups, setup->capacity, (uint32_t)setup->param[0]);
    c->merge = (unsigned)setup->param[1];
    c->evict = setup->param[2];
    c->keep_by_future = setup->param[3] > 0;
    *ret_cache = c;
    return 0;
}

static int reserve(void *cache, size_t objects)
{
    struct oracle *c = cache;
    int rc = fb_sim_groups_reserve(&c->groups, objects);

    return rc ? rc : fb_sim_grow(&c->next, &c->nexts, objects, sizeof *c->next);
}

static void destroy(void *cache)
{
    struct oracle *c = cache;

    if (!c)
        return;
    fb_sim_groups_free(&c->groups);
    free(c->next);
    free(c->ranked);
    free(c);
}

const struct fb_sim_policy fb_sim_glcache_oracle = {
    .name = "glcache-oracle",
    .summary = "GL-Cache with groups ranked by what they will be worth; knows the future",
    .needs_future = true,
    .params = params,
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .destroy = destroy,
};
