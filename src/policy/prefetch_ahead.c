/*
 * Ahead of a reader that goes through children in order.
 *
 *     ahead(position):
 *         depth = 2 * latency / gap + 1, at least 4, at most bandwidth * latency / item
 *         front = the one between position and twice the depth beyond it, if any
 *         ask for what lies between max(front, position + stride) and position + depth * stride
 *
 * So a reader that goes on costs one item a visit, and readers at several places have fronts of
 * their own.
 */
#include <math.h>

#include "policy/prefetch.h"
#include "stream/name.h"
#include "stream/window.h"

/* Directories that are read whole, but by several workers in parts, or before it is known how many
 * there are in them, look as if some were left out. */
#define WHOLE 0.75

struct fb_prefetch_config fb_prefetch_defaults(void)
{
    return (struct fb_prefetch_config){
        .depth_max = FB_PREFETCH_DEPTH_MAX,
        .share = FB_PREFETCH_SHARE,
        .fill_ratio = 0.5,
        .turns_ratio = 0.1,
        .worth = 0.5,
    };
}

uint32_t fb_prefetch_depth(const struct fb_prefetch_config *config,
                           const struct fb_prefetch_pipe *pipe, double gap_s)
{
    uint32_t most = config->depth_max ? config->depth_max : FB_PREFETCH_DEPTH_MAX;
    double need, full;

    if (config->depth)
        return config->depth < most ? config->depth : most;
    need = gap_s > 0 ? 2 * pipe->latency_s / gap_s + 1 : most;
    full = pipe->bytes_per_s > 0 && pipe->item_bytes
               ? pipe->bytes_per_s * pipe->latency_s / (double)pipe->item_bytes + 1
               : most;
    need = fmax(fmin(ceil(need), ceil(full)), FB_PREFETCH_DEPTH);
    return (uint32_t)fmin(need, most);
}

/* Of the reader at `position`: a new one takes the place of any. */
static uint32_t *front_of(struct fb_prefetch *p, uint32_t position, uint64_t reach)
{
    for (unsigned i = 0; i < FB_PREFETCH_FRONTS; i++) {
        if (p->front[i] > position && p->front[i] - position <= reach)
            return &p->front[i];
    }
    p->turn = (p->turn + 1) % FB_PREFETCH_FRONTS;
    p->front[p->turn] = 0;
    return &p->front[p->turn];
}

struct fb_prefetch_range fb_prefetch_ahead(struct fb_prefetch *p,
                                           const struct fb_prefetch_config *config,
                                           const struct fb_stream_info *stream,
                                           const struct fb_prefetch_pipe *pipe, uint32_t position,
                                           uint32_t children)
{
    const struct fb_verdict *v = &stream->verdict;
    struct fb_prefetch_range range = {0};
    uint64_t depth, first, end;
    uint32_t *front;

    if ((v->pattern != FB_PATTERN_SEQUENTIAL && v->pattern != FB_PATTERN_CYCLIC) ||
        v->stride <= 0 || fb_prefetch_is_paused(p, stream->visits))
        return range;
    range.stride = (uint32_t)v->stride;
    depth = fb_prefetch_depth(config, pipe, stream->gap_mean_s);
    front = front_of(p, position, 2 * (depth + 1) * range.stride);
    first = (uint64_t)position + range.stride;
    while (first < *front)
        first += range.stride;
    end = position + depth * range.stride + 1;
    if (children && end > children)
        end = children;
    if (first < end && first <= UINT32_MAX) {
        range.first = (uint32_t)first;
        range.count = (uint32_t)((end - first + range.stride - 1) / range.stride);
        first += (uint64_t)range.count * range.stride;
    }
    if (first > *front)
        *front = first < UINT32_MAX ? (uint32_t)first : UINT32_MAX;
    return range;
}

bool fb_prefetch_wants_name(const struct fb_prefetch_config *config,
                            const struct fb_streams *streams, uint64_t node, const char *name,
                            size_t len)
{
    return fb_streams_below(streams, node, fb_name_hash(name, len)) >= config->share ||
           fb_streams_below_whole(streams, node) >= WHOLE * config->share;
}

bool fb_prefetch_wants_block(const struct fb_prefetch_config *config,
                             const struct fb_streams *streams, uint64_t node, uint32_t block,
                             uint32_t blocks)
{
    if (blocks <= 1)
        return true;
    return fb_streams_below(streams, node, fb_below_block(block, blocks)) >= config->share ||
           fb_streams_below_whole(streams, node) >= WHOLE * config->share;
}
