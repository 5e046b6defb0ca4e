#include "policy/alloc.h"

#define BETTER 1.1 /* as much higher B must be to take from another */

static bool holds_all(const struct fb_alloc_stream *s)
{
    return s->data_bytes && s->quota_bytes >= s->data_bytes;
}

/* What the last bit of space that it has saves. */
static double loss(const struct fb_alloc_stream *s)
{
    double cost = s->cost > 0 ? s->cost : 1;

    if (s->has_ended)
        return 0;
    switch (s->pattern) {
    case FB_PATTERN_RANDOM:
    case FB_PATTERN_CYCLIC:
        return s->gap_s > 0 && s->items ? cost / (s->gap_s * (double)s->items) : 0;
    case FB_PATTERN_SEQUENTIAL:
        return 0;
    default:
        return cost * s->rate * s->ghost_share / FB_GHOST_ITEMS;
    }
}

double fb_alloc_benefit(const struct fb_alloc_stream *s)
{
    return holds_all(s) ? 0 : loss(s);
}

/* How much it could use beyond what it has. */
static uint64_t need(const struct fb_alloc_stream *s)
{
    if (s->has_ended || s->pattern == FB_PATTERN_SEQUENTIAL)
        return 0;
    if (s->data_bytes == 0)
        return UINT64_MAX;
    return s->data_bytes > s->quota_bytes ? s->data_bytes - s->quota_bytes : 0;
}

/* What it never goes below: its share of the minimum, but nobody needs more than there is of its
 * data (a scan does: what is ahead of it was not seen yet); and what is fair. */
static uint64_t least(const struct fb_alloc_stream *s, uint64_t minimum)
{
    bool is_all = s->data_bytes && s->pattern != FB_PATTERN_SEQUENTIAL;
    uint64_t share = is_all ? fb_min_u64(minimum, s->data_bytes) : minimum;

    return fb_max_u64(share, s->fair_bytes);
}

static void update(struct fb_alloc_stream *s)
{
    s->benefit = fb_alloc_benefit(s);
}

/* Nothing is known of what it would lose. */
static bool is_spared(const struct fb_alloc_stream *s)
{
    return s->is_untried && s->rate > 0 && !s->has_ended &&
           (s->pattern == FB_PATTERN_SKEWED || s->pattern == FB_PATTERN_UNKNOWN);
}

/* The one that loses least by giving, of those that have more than the minimum; NULL: none. */
static struct fb_alloc_stream *giver(struct fb_alloc_stream *streams, uint32_t count,
                                     uint64_t minimum, const struct fb_alloc_stream *but,
                                     bool spare)
{
    struct fb_alloc_stream *best = NULL;

    for (uint32_t i = 0; i < count; i++) {
        struct fb_alloc_stream *s = &streams[i];

        if (s == but || s->quota_bytes <= least(s, minimum) || (spare && is_spared(s)))
            continue;
        if (!best || loss(s) < loss(best) ||
            (loss(s) == loss(best) && s->quota_bytes > best->quota_bytes))
            best = s;
    }
    return best;
}

/* The one with the highest B that can use more; NULL: none. */
static struct fb_alloc_stream *taker(struct fb_alloc_stream *streams, uint32_t count)
{
    struct fb_alloc_stream *best = NULL;

    for (uint32_t i = 0; i < count; i++) {
        if (need(&streams[i]) && (!best || streams[i].benefit > best->benefit))
            best = &streams[i];
    }
    return best;
}

static void give_back(struct fb_alloc_stream *s, uint64_t minimum)
{
    uint64_t most = s->quota_bytes;

    update(s);
    if (s->data_bytes)
        most = fb_min_u64(most, s->data_bytes);
    if (s->pattern == FB_PATTERN_SEQUENTIAL)
        most = 0;
    else if (s->benefit <= 0 && !holds_all(s))
        most = fb_min_u64(most, s->used_bytes);
    if (s->has_ended)
        s->quota_bytes = 0;
    else
        s->quota_bytes = fb_min_u64(s->quota_bytes, fb_max_u64(most, least(s, minimum)));
    update(s);
}

/* Streams that have less than the minimum come up to it. */
static void lift(struct fb_alloc_stream *streams, uint32_t count, uint64_t minimum, uint64_t *spare)
{
    for (uint32_t i = 0; i < count; i++) {
        struct fb_alloc_stream *s = &streams[i];

        while (!s->has_ended && s->quota_bytes < least(s, minimum)) {
            uint64_t lack = least(s, minimum) - s->quota_bytes;
            uint64_t part = fb_min_u64(lack, *spare);
            struct fb_alloc_stream *from;

            *spare -= part;
            if (part == 0) {
                from = giver(streams, count, minimum, s, false);
                if (!from)
                    break;
                part = fb_min_u64(lack, from->quota_bytes - least(from, minimum));
                from->quota_bytes -= part;
                update(from);
            }
            s->quota_bytes += part;
        }
        update(s);
    }
}

/* To those with a benefit, the highest first; then to the others in equal parts. */
static void hand_out(struct fb_alloc_stream *streams, uint32_t count, uint64_t *spare)
{
    struct fb_alloc_stream *to;
    uint32_t left = 0;

    while (*spare && (to = taker(streams, count)) && to->benefit > 0) {
        uint64_t part = fb_min_u64(*spare, need(to));

        to->quota_bytes += part;
        *spare -= part;
        update(to);
    }
    for (uint32_t i = 0; i < count; i++)
        left += need(&streams[i]) != 0;
    for (uint32_t i = 0; i < count && left; i++) {
        uint64_t part = fb_min_u64(*spare / left, need(&streams[i]));

        if (!need(&streams[i]))
            continue;
        streams[i].quota_bytes += part;
        *spare -= part;
        left--;
    }
}

static void move(struct fb_alloc_stream *streams, uint32_t count, uint64_t minimum, uint64_t step)
{
    while (step) {
        struct fb_alloc_stream *to = taker(streams, count);
        struct fb_alloc_stream *from = giver(streams, count, minimum, to, true);
        uint64_t part;

        if (!to || !from || to->benefit <= loss(from) * BETTER)
            return;
        part = fb_min_u64(fb_min_u64(step, need(to)), from->quota_bytes - least(from, minimum));
        from->quota_bytes -= part;
        to->quota_bytes += part;
        step -= part;
        update(from);
        update(to);
    }
}

void fb_alloc_round(const struct fb_alloc_config *config, struct fb_alloc_stream *streams,
                    uint32_t count)
{
    uint64_t minimum = config->minimum_bytes, held = 0, spare;
    uint32_t living = 0;

    for (uint32_t i = 0; i < count; i++)
        living += !streams[i].has_ended;
    /* At least half of the cache goes where it saves most. */
    if (living)
        minimum = fb_min_u64(minimum, config->total_bytes / living / 2);
    for (uint32_t i = 0; i < count; i++) {
        give_back(&streams[i], minimum);
        held += streams[i].quota_bytes;
    }
    /* The cache may have become smaller. */
    while (held > config->total_bytes) {
        struct fb_alloc_stream *from = giver(streams, count, 0, NULL, false);
        uint64_t part = fb_min_u64(held - config->total_bytes, from->quota_bytes);

        from->quota_bytes -= part;
        held -= part;
        update(from);
    }
    spare = config->total_bytes - held;
    lift(streams, count, minimum, &spare);
    hand_out(streams, count, &spare);
    move(streams, count, minimum, config->step_bytes);
}
