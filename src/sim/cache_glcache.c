/*
 * GL-Cache (Yang, Mao, Yue, Rashmi, FAST 2023): learned eviction of groups; policy/glcache.h has
 * the learning.
 *
 *   on a hit:  note it for its group
 *   on a miss: append to the open group; it is full? open another
 *              no room? take the group that is ranked the least useful (the oldest until there is a
 *                  model) and the merge - 1 groups written next; keep one group's worth of objects,
 *                  the best by 1 / (size * time since the last access); evict the others
 *
 * Groups are counted in objects, as in the paper: 60 (E) or 200 (T), fewer in a cache of less than
 * 20 such groups.
 */
#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "core/mem.h"
#include "policy/glcache.h"
#include "sim/node.h"
#include "sim/policies.h"

#define GROUP_MAX  100000
#define MERGE_MAX  64
#define GROUPS_MIN 20
#define NONE       FB_SIM_NONE

struct object {
    uint32_t next; /* of its group */
    uint32_t size;
    uint32_t group; /* 1 + number; 0: not cached */
    struct fb_gl_meta meta;
};

struct group {
    uint32_t first; /* object */
    uint32_t count;
    uint32_t prev; /* in the order of writing */
    uint32_t next;
};

struct candidate {
    uint64_t cost; /* size * time since the last access */
    uint32_t id;
};

struct glcache {
    struct fb_gl *gl;
    struct object *object;
    size_t objects;
    uint64_t capacity;
    uint64_t size;
    uint64_t cached;
    uint64_t seen_size; /* of all inserted, for the mean */
    uint64_t seen;
    uint32_t group_max; /* objects */
    uint32_t group_now; /* the same, for a cache of this size */
    unsigned merge;
    struct group *group;
    size_t groups;
    uint32_t free; /* a list through next */
    uint32_t oldest;
    uint32_t newest; /* the open one */
    struct candidate *candidates;
    size_t candidates_room;
};

static const struct fb_sim_param params_e[] = {
    {"group", 60, 1, GROUP_MAX, "objects in a group"},
    {"merge", 2, 2, MERGE_MAX, "groups that become one"},
    {"evict", 0.02, 0, 1, "share of groups that are evicted by one ranking"},
    {0},
};

static const struct fb_sim_param params_t[] = {
    {"group", 200, 1, GROUP_MAX, "objects in a group"},
    {"merge", 5, 2, MERGE_MAX, "groups that become one"},
    {"evict", 0.1, 0, 1, "share of groups that are evicted by one ranking"},
    {0},
};

/* ---- groups ---- */

static int more_groups(struct glcache *c)
{
    size_t old = c->groups;
    size_t wanted = old * 2 + 2 * GROUPS_MIN;
    int rc = fb_sim_grow(&c->group, &c->groups, wanted, sizeof *c->group);

    if (!rc)
        rc = fb_gl_reserve(c->gl, wanted);
    if (rc)
        return rc;
    for (size_t i = old; i < wanted; i++)
        c->group[i].next = i + 1 < wanted ? (uint32_t)(i + 1) : NONE;
    c->free = (uint32_t)old;
    return 0;
}

static int open_group(struct glcache *c, uint32_t now_s)
{
    uint64_t fit;
    uint32_t g;
    int rc;

    if (c->free == NONE) {
        rc = more_groups(c);
        if (rc)
            return rc;
    }
    g = c->free;
    c->free = c->group[g].next;
    c->group[g] = (struct group){NONE, 0, c->newest, NONE};
    if (c->newest == NONE)
        c->oldest = g;
    else
        c->group[c->newest].next = g;
    c->newest = g;
    fb_gl_open(c->gl, g, now_s);
    fit = c->seen_size ? (uint64_t)((double)c->capacity * (double)c->seen / (double)c->seen_size)
                       : c->capacity;
    c->group_now = (uint32_t)fb_min_u64(c->group_max, fb_max_u64(fit / GROUPS_MIN, 1));
    return 0;
}

static void push(struct glcache *c, uint32_t g, uint32_t id)
{
    struct object *o = &c->object[id];

    o->next = c->group[g].first;
    o->group = g + 1;
    c->group[g].first = id;
    c->group[g].count++;
    fb_gl_add(c->gl, g, o->size, &o->meta);
}

static void free_group(struct glcache *c, uint32_t g)
{
    struct group *group = &c->group[g];

    if (group->prev == NONE)
        c->oldest = group->next;
    else
        c->group[group->prev].next = group->next;
    c->group[group->next].prev = group->prev; /* the open one comes after all others */
    group->next = c->free;
    c->free = g;
}

/* ---- merging ---- */

/* Puts the `keep` cheapest to the front, in any order. */
static void select_best(struct candidate *a, size_t count, size_t keep)
{
    size_t low = 0;
    size_t high = count;

    while (high - low > 1) {
        uint64_t pivot = a[low + (high - low) / 2].cost;
        size_t i = low;
        size_t j = high - 1;

        for (;;) {
            while (a[i].cost < pivot)
                i++;
            while (a[j].cost > pivot)
                j--;
            if (i >= j)
                break;
            struct candidate swap = a[i];

            a[i++] = a[j];
            a[j--] = swap;
        }
        /* low .. j are not above the pivot, j + 1 .. high - 1 not below. */
        if (j + 1 == high)
            j--;
        if (keep <= j + 1)
            high = j + 1;
        else
            low = j + 1;
    }
}

/* The victim and those written after it; before it when there are too few after it. */
static unsigned choose(const struct glcache *c, uint32_t victim, uint32_t *ret_chosen)
{
    unsigned count = 0;
    uint32_t g = victim;

    for (; count < c->merge && g != c->newest; g = c->group[g].next)
        ret_chosen[count++] = g;
    for (g = c->group[victim].prev; count < c->merge && g != NONE; g = c->group[g].prev)
        ret_chosen[count++] = g;
    return count;
}

static int gather(struct glcache *c, const uint32_t *chosen, unsigned count, size_t *ret_count)
{
    size_t total = 0;
    size_t n = 0;
    int rc;

    for (unsigned i = 0; i < count; i++)
        total += c->group[chosen[i]].count;
    rc = fb_sim_grow(&c->candidates, &c->candidates_room, total, sizeof *c->candidates);
    if (rc)
        return rc;
    for (unsigned i = 0; i < count; i++) {
        for (uint32_t id = c->group[chosen[i]].first; id != NONE; id = c->object[id].next) {
            uint64_t age = c->gl->now - c->object[id].meta.last + 1;

            c->candidates[n++] = (struct candidate){age * c->object[id].size, id};
        }
    }
    *ret_count = n;
    return 0;
}

static int merge(struct glcache *c, uint32_t victim)
{
    uint32_t chosen[MERGE_MAX];
    unsigned count = choose(c, victim, chosen);
    size_t objects;
    size_t keep;
    int rc = gather(c, chosen, count, &objects);

    if (rc)
        return rc;
    keep = 0;
    if (count > 1) /* what earlier merges left can be less than a group */
        keep = fb_min_u64(c->group_now, objects / count);
    select_best(c->candidates, objects, keep);
    for (size_t i = keep; i < objects; i++) {
        uint32_t id = c->candidates[i].id;
        struct object *o = &c->object[id];

        fb_gl_evicted(c->gl, o->group - 1, fb_mix64(id + 1), &o->meta);
        o->group = 0;
        c->size -= o->size;
    }
    c->cached -= objects - keep;
    fb_gl_merge(c->gl, chosen, count, victim);
    c->group[victim].first = NONE;
    c->group[victim].count = 0;
    for (size_t i = 0; i < keep; i++)
        push(c, victim, c->candidates[i].id);
    for (unsigned i = 0; i < count; i++) {
        if (chosen[i] != victim || keep == 0)
            free_group(c, chosen[i]);
    }
    if (keep == 0)
        c->gl->group[victim].used = false;
    return 0;
}

static int make_room(struct glcache *c, uint32_t size, uint32_t now_s)
{
    int rc = fb_gl_step(c->gl, c->cached);

    while (!rc && c->size + size > c->capacity) {
        uint32_t victim;

        if (c->oldest == c->newest) {
            rc = open_group(c, now_s);
            continue;
        }
        rc = fb_gl_victim(c->gl, c->newest, &victim);
        if (!rc)
            rc = merge(c, victim == FB_GL_NONE ? c->oldest : victim);
    }
    return rc;
}

/* ---- requests ---- */

static int insert(struct glcache *c, uint32_t id, uint32_t size, uint32_t now_s)
{
    struct object *o = &c->object[id];
    int rc = 0;

    fb_gl_miss(c->gl, fb_mix64(id + 1), size, now_s, &o->meta);
    if (size > c->capacity)
        return 0;
    o->size = size;
    c->seen_size += size;
    c->seen++;
    if (c->size + size > c->capacity)
        rc = make_room(c, size, now_s);
    if (!rc && (c->newest == NONE || c->group[c->newest].count >= c->group_now))
        rc = open_group(c, now_s);
    if (rc)
        return rc;
    c->size += size;
    c->cached++;
    push(c, c->newest, id);
    return 0;
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct glcache *c = cache;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];
        struct object *o = &c->object[id];
        int rc;

        if (i + FB_SIM_PREFETCH < batch->count)
            __builtin_prefetch(&c->object[batch->id[i + FB_SIM_PREFETCH]], 1);
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
    const struct fb_gl_settings settings = {.evict = setup->param[2]};
    struct glcache *c = fb_alloc(sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    *ret_cache = c;
    c->capacity = setup->capacity;
    c->group_max = (uint32_t)setup->param[0];
    c->merge = (unsigned)setup->param[1];
    c->free = c->oldest = c->newest = NONE;
    return fb_gl_create(&settings, setup->seed, &c->gl);
}

static int reserve(void *cache, size_t objects)
{
    struct glcache *c = cache;

    return fb_sim_grow(&c->object, &c->objects, objects, sizeof *c->object);
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
    free(c->object);
    free(c->group);
    free(c->candidates);
    free(c);
}

const struct fb_sim_policy fb_sim_glcache_e = {
    .name = "glcache-e",
    .summary = "GL-Cache for few misses: learned eviction of groups of 60",
    .params = params_e,
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .figures = figures,
    .destroy = destroy,
};

const struct fb_sim_policy fb_sim_glcache = {
    .name = "glcache",
    .summary = "the same as glcache-e",
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
