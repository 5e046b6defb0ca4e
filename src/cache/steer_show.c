/*
 * Streams as a user sees them: the tree of what is read, and what is decided for each.
 */
#include <string.h>

#include "cache/steer_priv.h"

static bool stream_of_node(struct fb_steer *steer, uint64_t node,
                           struct fb_brain_stream *ret_stream) FB_REQUIRES(&steer->lock)
{
    for (unsigned i = 1; i < FB_BRAIN_STREAMS; i++) {
        if (fb_brain_get(steer->brain, i, ret_stream) && ret_stream->node == node)
            return true;
    }
    return false;
}

static void show(struct fb_steer *steer, uint64_t node, unsigned depth, fb_stream_visit_fn *visit,
                 void *arg) FB_REQUIRES(&steer->lock)
{
    struct fb_streams *tree = fb_brain_streams(steer->brain);
    struct fb_stream_view view = {.depth = depth, .policy = "-", .accuracy = 1};
    struct fb_brain_stream stream;
    struct fb_order order;
    char path[FB_PATH_MAX];

    if (!fb_streams_get(tree, node, &view.info) || depth > FB_STREAM_DEPTH_MAX ||
        fb_streams_path(tree, node, path, sizeof path) >= sizeof path)
        return;
    view.path = path;
    view.owns = stream_of_node(steer, node, &stream);
    view.ttl_ns = INT64_MAX;
    if (view.owns) {
        view.ended = stream.has_ended;
        view.policy =
            stream.keep == FB_KEEP_LRU ? steer->cache->evict->name : fb_keep_name(stream.keep);
        view.quota_bytes = stream.quota_bytes;
        view.held_bytes = stream.used_bytes;
        view.benefit = stream.benefit;
        view.ttl_ns = stream.ttl_ns;
        view.accuracy = stream.accuracy;
    }
    if (fb_orders_find(steer->cache->orders, view.info.source, path, strlen(path), &order))
        view.policy = fb_order_name(&order);
    visit(arg, &view);
    for (uint64_t child = fb_streams_child(tree, node); child; child = fb_streams_next(tree, child))
        show(steer, child, depth + 1, visit, arg);
}

void fb_cache_streams(struct fb_cache *cache, fb_stream_visit_fn *visit, void *arg)
{
    struct fb_steer *steer = cache->steer;
    struct fb_streams *tree = fb_brain_streams(steer->brain);

    fb_mutex_lock(&steer->lock);
    for (uint64_t root = fb_streams_child(tree, 0); root; root = fb_streams_next(tree, root))
        show(steer, root, 0, visit, arg);
    fb_mutex_unlock(&steer->lock);
}
