/*
 * Least recently used, over segments.
 *
 *     victim(segments):
 *         a segment without live items, if any        (it costs nothing)
 *         else the one whose last access is oldest    (a tie: the one opened first)
 *     keep(item): always
 *
 * A segment that was never read since it was filled counts as read when it was opened, so a long
 * scan cannot hide behind its own writes. Scanning all segments costs a nanosecond or two each,
 * once per 16 MiB admitted: cheaper than keeping a list in order on every hit.
 */
#include "policy/evict.h"

static int64_t last_use(const struct fb_segment_info *s)
{
    return s->last_access_ns > s->opened_ns ? s->last_access_ns : s->opened_ns;
}

uint32_t fb_evict_lru_victim(void *state, const struct fb_segment_info *segments, uint32_t count,
                             int64_t now_ns)
{
    uint32_t best = 0;

    (void)state;
    (void)now_ns;
    for (uint32_t i = 0; i < count; i++) {
        const struct fb_segment_info *s = &segments[i];
        const struct fb_segment_info *b = &segments[best];

        if (s->live_items == 0)
            return i;
        if (last_use(s) < last_use(b) || (last_use(s) == last_use(b) && s->sequence < b->sequence))
            best = i;
    }
    return best;
}

const struct fb_evict_ops fb_evict_lru = {
    .name = "lru",
    .help = "least recently used",
    .victim = fb_evict_lru_victim,
};
