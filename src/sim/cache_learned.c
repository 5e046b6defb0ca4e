/*
 * Forebay's learned policy, as the daemon has it: segments, ranked by what is learned about when
 * objects come back (policy/groups.h, policy/reuse.h).
 *
 *   on a hit:  note it
 *   on a miss: append to the open segment
 *              no room? take the 2 segments of the lowest mean utility of their bytes; keep the
 *                  better half of their bytes, by utility per byte of each object, in another
 *                  open segment; evict the others
 *   Segments are ranked once for every 5% of them that are taken, by 16 objects each. The cache has
 *   1,024 segments. An object larger than a segment has one of its own.
 */
#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "core/mem.h"
#include "policy/groups.h"
#include "sim/node.h"
#include "sim/policies.h"

#define SEGMENTS_MAX 100000
#define MERGE_MAX    64

struct object {
    struct fb_reuse_meta meta;
    bool cached;
    uint32_t size;
};

struct segment {
    uint32_t *id;
    size_t count;
    size_t room;
    uint64_t size;
    bool used;
};

struct learned {
    struct fb_reuse *reuse;
    struct object *object;
    size_t objects;
    uint64_t capacity;
    uint64_t size;   /* of what is cached */
    uint64_t cached; /* objects */
    uint64_t copied; /* size of what was kept in merges */
    uint64_t written;
    uint64_t segment_size;
    unsigned merge;
    unsigned keep;
    double rerank; /* share of segments */
    struct segment *segment;
    size_t segments;
    uint32_t *unused; /* segments */
    size_t unused_count;
    size_t unused_room;
    uint32_t open; /* for what is new */
    uint32_t kept; /* for what stays in a merge */
    struct fb_ranking ranking;
    size_t ranking_room;
    struct fb_merge_item *item; /* objects of a merge */
    size_t item_room;
};

static const struct fb_sim_param params[] = {
    {"segments", 1024, 8, SEGMENTS_MAX, "that the cache is made of"},
    {"merge", FB_GROUPS_MERGE, 2, MERGE_MAX, "segments that become one less"},
    {"keep", FB_GROUPS_KEEP, 0, MERGE_MAX, "of these, so many segments' worth stay"},
    {"rerank", FB_GROUPS_RERANK, 0, 1, "share of segments that are evicted by one ranking"},
    {0},
};

/* ---- segments ---- */

static int new_segment(struct learned *c, uint32_t *ret)
{
    size_t old = c->segments;
    int rc;

    if (c->unused_count == 0) {
        size_t wanted = old * 2 + 16;

        rc = fb_sim_grow(&c->segment, &c->segments, wanted, sizeof *c->segment);
        if (!rc)
            rc = fb_sim_grow(&c->unused, &c->unused_room, wanted, sizeof *c->unused);
        if (rc)
            return rc;
        for (size_t i = wanted; i > old; i--)
            c->unused[c->unused_count++] = (uint32_t)(i - 1);
    }
    *ret = c->unused[--c->unused_count];
    c->segment[*ret].used = true;
    return 0;
}

static void free_segment(struct learned *c, uint32_t no)
{
    c->segment[no].used = false;
    c->segment[no].count = 0;
    c->segment[no].size = 0;
    c->unused[c->unused_count++] = no;
}

/* *at is the segment that is written to, and is another one when that is full. */
static int append(struct learned *c, uint32_t *at, uint32_t id)
{
    struct segment *s = &c->segment[*at];
    uint32_t size = c->object[id].size;
    int rc;

    if (s->count > 0 && s->size + size > c->segment_size) {
        rc = new_segment(c, at);
        if (rc)
            return rc;
        s = &c->segment[*at];
    }
    if (s->count == s->room) {
        rc = fb_sim_grow(&s->id, &s->room, s->room * 2 + 16, sizeof *s->id);
        if (rc)
            return rc;
    }
    s->id[s->count++] = id;
    s->size += size;
    return 0;
}

/* ---- eviction ---- */

static float segment_utility(const struct learned *c, const struct segment *s)
{
    size_t stride = fb_groups_stride(s->count, FB_GROUPS_SAMPLE);
    struct fb_group_sum sum = {0};

    for (size_t i = 0; i < s->count; i += stride) {
        const struct object *o = &c->object[s->id[i]];

        fb_group_add(&sum, c->reuse, &o->meta, o->size);
    }
    return fb_group_score(&sum, s->size, s->size);
}

static int rank_segments(struct learned *c)
{
    struct fb_ranking *r = &c->ranking;
    int rc = fb_sim_grow(&r->group, &c->ranking_room, c->segments, sizeof *r->group);

    if (rc)
        return rc;
    r->count = 0;
    for (uint32_t i = 0; i < c->segments; i++) {
        struct segment *s = &c->segment[i];

        if (s->used && i != c->open && i != c->kept && s->count > 0)
            r->group[r->count++] =
                (struct fb_ranked_group){.score = segment_utility(c, s), .no = i};
    }
    fb_ranking_sort(r, c->rerank, c->merge);
    return 0;
}

/* The objects of the next victims, and their size; the segments are free. */
static int take_victims(struct learned *c, size_t *ret_count, uint64_t *ret_size)
{
    size_t count = 0;

    *ret_size = 0;
    for (unsigned k = 0; k < c->merge && c->ranking.next < c->ranking.end; k++) {
        uint32_t no = c->ranking.group[c->ranking.next++].no;
        struct segment *s = &c->segment[no];
        int rc = fb_sim_grow(&c->item, &c->item_room, count + s->count, sizeof *c->item);

        if (rc)
            return rc;
        for (size_t i = 0; i < s->count; i++) {
            const struct object *o = &c->object[s->id[i]];

            c->item[count++] = (struct fb_merge_item){
                .score = fb_reuse_score(c->reuse, &o->meta, o->size),
                .size = o->size,
                .no = s->id[i],
            };
        }
        *ret_size += s->size;
        free_segment(c, no);
    }
    *ret_count = count;
    return 0;
}

static void drop(struct learned *c, uint32_t id)
{
    struct object *o = &c->object[id];

    o->cached = false;
    c->size -= o->size;
    c->cached--;
    fb_reuse_evicted(c->reuse, c->cached, fb_mix64(id + 1), &o->meta);
}

static int merge(struct learned *c)
{
    size_t count = 0;
    uint64_t size = 0;
    int rc = take_victims(c, &count, &size);

    if (!rc)
        c->copied += fb_groups_split(c->item, count, size * c->keep / c->merge);
    for (size_t i = 0; i < count && !rc; i++) {
        if (c->item[i].stays)
            rc = append(c, &c->kept, c->item[i].no);
        else
            drop(c, c->item[i].no);
    }
    return rc;
}

static int make_room(struct learned *c, uint32_t size)
{
    int rc = 0;

    if (c->size + size <= c->capacity)
        return 0;
    if (fb_reuse_due(c->reuse))
        rc = fb_reuse_train(c->reuse, c->cached);
    while (!rc && c->size + size > c->capacity) {
        if (c->ranking.next == c->ranking.end)
            rc = rank_segments(c);
        if (!rc && c->ranking.end == 0) { /* all is in the two that are written to */
            rc = new_segment(c, c->segment[c->kept].count > 0 ? &c->kept : &c->open);
            continue;
        }
        if (!rc)
            rc = merge(c);
    }
    return rc;
}

/* ---- requests ---- */

static int insert(struct learned *c, uint32_t id, uint32_t size)
{
    struct object *o = &c->object[id];
    int rc;

    o->size = size;
    fb_reuse_miss(c->reuse, fb_mix64(id + 1), size, &o->meta);
    if (size > c->capacity)
        return 0;
    rc = make_room(c, size);
    if (rc)
        return rc;
    o->cached = true;
    c->size += size;
    c->written += size;
    c->cached++;
    return append(c, &c->open, id);
}

static int replay(void *cache, const struct fb_sim_batch *batch, uint8_t *ret_hit)
{
    struct learned *c = cache;

    for (size_t i = 0; i < batch->count; i++) {
        uint32_t id = batch->id[i];
        struct object *o = &c->object[id];
        int rc;

        if (i + FB_SIM_PREFETCH < batch->count)
            __builtin_prefetch(&c->object[batch->id[i + FB_SIM_PREFETCH]], 1);
        ret_hit[i] = o->cached;
        if (o->cached) {
            fb_reuse_hit(c->reuse, fb_mix64(id + 1), o->size, &o->meta);
            continue;
        }
        rc = insert(c, id, batch->size[i]);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- life ---- */

static int create(const struct fb_sim_setup *setup, void **ret_cache, struct fb_error *err)
{
    struct learned *c = fb_alloc(sizeof *c);

    (void)err;
    if (!c)
        return -ENOMEM;
    *ret_cache = c;
    c->capacity = setup->capacity;
    c->segment_size = fb_max_u64(setup->capacity / (uint64_t)setup->param[0], 1);
    c->merge = (unsigned)setup->param[1];
    c->keep = (unsigned)setup->param[2] < c->merge ? (unsigned)setup->param[2] : c->merge - 1;
    c->rerank = setup->param[3];
    if (fb_reuse_create(setup->capacity, &c->reuse))
        return -ENOMEM;
    if (new_segment(c, &c->open) || new_segment(c, &c->kept))
        return -ENOMEM;
    return 0;
}

static int reserve(void *cache, size_t objects)
{
    struct learned *c = cache;

    return fb_sim_grow(&c->object, &c->objects, objects, sizeof *c->object);
}

/* What the policy keeps for an object in the cache: its meta, and ghosts. */
static double object_bytes(const struct learned *c)
{
    double ghosts = (double)fb_reuse_ghost_bytes(c->reuse);

    return (double)sizeof c->object->meta + (c->cached ? ghosts / (double)c->cached : 0);
}

static void figures(void *cache, fb_sim_figure_fn *tell, void *arg)
{
    static const char *const names[FB_REUSE_FEATURES] = {
        "importance_count", "importance_gap", "importance_gap_before",
        "importance_size",  "importance_age",
    };
    struct learned *c = cache;
    double shares[FB_REUSE_FEATURES];

    tell(arg, "trainings", fb_reuse_trainings(c->reuse));
    tell(arg, "copied_per_written", c->written ? (double)c->copied / (double)c->written : 0);
    tell(arg, "object_bytes", object_bytes(c));
    tell(arg, "model_bytes", (double)fb_reuse_bytes(c->reuse));
    fb_reuse_importance(c->reuse, shares);
    for (unsigned i = 0; i < FB_REUSE_FEATURES; i++)
        tell(arg, names[i], shares[i]);
}

static void destroy(void *cache)
{
    struct learned *c = cache;

    if (!c)
        return;
    for (size_t i = 0; i < c->segments; i++)
        free(c->segment[i].id);
    fb_reuse_destroy(c->reuse);
    free(c->object);
    free(c->segment);
    free(c->unused);
    free(c->ranking.group);
    free(c->item);
    free(c);
}

const struct fb_sim_policy fb_sim_learned = {
    .name = "learned",
    .summary = "segments ranked by a learned hazard of reuse: Forebay's own",
    .params = params,
    .create = create,
    .reserve = reserve,
    .replay = replay,
    .figures = figures,
    .destroy = destroy,
};
