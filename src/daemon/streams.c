/*
 * The tree of streams as JSON, and orders for paths in it.
 *
 * A node is an object with its children in it. Its path is that of the mount point, or of the
 * source where programs read it without one, and what follows it.
 */
#include "daemon/streams.h"

#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "daemon/plans.h"
#include "daemon/wire.h"

#define ROOTS_MAX 128
#define NODES_MAX 4096 /* shown: a reply has bounds; the newest children come first */

struct root {
    uint16_t source;
    char *path;
};

struct building {
    struct fb_cache *cache;
    struct root roots[ROOTS_MAX];
    unsigned root_count;
    unsigned nodes;
    json_t *levels[FB_STREAM_DEPTH_MAX + 2]; /* the children of the node last seen at each depth */
};

static void add_root(struct building *b, uint16_t source, const char *path)
{
    if (b->root_count == ROOTS_MAX)
        return;
    b->roots[b->root_count] = (struct root){.source = source, .path = fb_strdup(path)};
    b->root_count += b->roots[b->root_count].path != NULL;
}

static void add_mount(void *arg, const struct fb_mount_view *view)
{
    if (view->live)
        add_root(arg, view->volume_id, view->mountpoint);
}

static void add_share(void *arg, const struct fb_share_view *view)
{
    if (view->live)
        add_root(arg, view->volume_id, view->names[0]);
}

static char *full_path(const struct building *b, uint16_t source, const char *path)
{
    const char *root = NULL;

    for (unsigned i = 0; i < b->root_count && !root; i++)
        root = b->roots[i].source == source ? b->roots[i].path : NULL;
    if (!root)
        root = "?"; /* unmounted since */
    return *path ? fb_asprintf("%s/%s", root, path) : fb_strdup(root);
}

static json_t *node_json(const struct building *b, const struct fb_stream_view *v)
{
    FB_AUTO_FREE char *path = full_path(b, v->info.source, v->path);
    const struct fb_verdict *verdict = &v->info.verdict;
    char plan[FB_PLAN_TEXT_SIZE];

    return json_pack(
        "{s:o*, s:s*, s:s, s:s, s:f, s:f, s:s, s:b, s:b, "
        "s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:o, s:[]}",
        "path", path ? fb_wire_path(path) : NULL, "plan",
        fb_plans_text(b->cache, v->info.source, v->path, plan) ? plan : NULL, "pattern",
        fb_pattern_name((enum fb_pattern)verdict->pattern), "test",
        fb_pattern_test_name((enum fb_pattern_test)verdict->test), "statistic",
        (double)verdict->statistic, "limit", (double)verdict->limit, "policy", v->policy, "stream",
        v->owns, "ended", v->ended, "quota_bytes", (json_int_t)v->quota_bytes, "held_bytes",
        (json_int_t)v->held_bytes, "hit_ratio",
        v->info.accesses ? (double)v->info.hits / (double)v->info.accesses : 0.0,
        "marginal_benefit", v->benefit, "prefetch_accuracy", v->accuracy, "accesses",
        (json_int_t)v->info.accesses, "items", (json_int_t)v->info.items, "period",
        (json_int_t)verdict->period, "ttl_s",
        v->ttl_ns == INT64_MAX ? json_null() : json_real((double)v->ttl_ns / (double)FB_NS_PER_S),
        "children");
}

static void add_node(void *arg, const struct fb_stream_view *view)
{
    struct building *b = arg;
    json_t *node;

    if (view->depth > FB_STREAM_DEPTH_MAX || !b->levels[view->depth])
        return;
    b->levels[view->depth + 1] = NULL;
    if (b->nodes == NODES_MAX)
        return;
    b->nodes++;
    node = node_json(b, view);
    if (!node)
        return;
    b->levels[view->depth + 1] = json_object_get(node, "children");
    json_array_append_new(b->levels[view->depth], node);
}

static char *plan_path(const void *arg, uint16_t source, const char *dir)
{
    return full_path(arg, source, dir);
}

/* What was learned about reuse; NULL: nothing is. */
static json_t *model_json(struct fb_cache *cache)
{
    struct fb_model_view v;
    json_t *importance;

    if (!fb_cache_model(cache, &v))
        return NULL;
    importance = json_object();
    for (unsigned i = 0; i < FB_REUSE_FEATURES; i++)
        json_object_set_new(importance, fb_reuse_feature_name((enum fb_reuse_feature)i),
                            json_real(v.importance[i]));
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:f, s:I, s:f, s:f, s:f, s:o*}", "trainings",
        (json_int_t)v.trainings, "requests", (json_int_t)v.requests, "trained_at",
        (json_int_t)v.trained_at, "rows", (json_int_t)v.rows, "trained_ago_s",
        v.trained_wall_ns ? (double)(fb_wall_ns() - v.trained_wall_ns) / (double)FB_NS_PER_S : -1.0,
        "training_ms", (double)v.train_ns / (double)FB_NS_PER_MS, "ranked", (json_int_t)v.ranked,
        "ranking_ms", (double)v.rank_ns / (double)FB_NS_PER_MS, "bytes", (json_int_t)v.bytes,
        "observations", v.quality.observations, "loss_bits", v.quality.loss, "loss_by_age_bits",
        v.quality.loss_by_age, "importance", importance);
}

json_t *fb_streams_json(struct fb_cache *cache, struct fb_mounts *mounts, struct fb_shares *shares)
{
    struct building b = {.cache = cache};
    json_t *roots = json_array(), *plans;

    fb_mounts_visit(mounts, add_mount, &b);
    if (shares)
        fb_shares_visit(shares, add_share, &b);
    b.levels[0] = roots;
    fb_cache_streams(cache, add_node, &b);
    plans = fb_plans_json(cache, plan_path, &b);
    for (unsigned i = 0; i < b.root_count; i++)
        free(b.roots[i].path);
    return json_pack("{s:b, s:o*, s:o*, s:o*}", "ok", 1, "streams", roots, "plans", plans, "model",
                     model_json(cache));
}
