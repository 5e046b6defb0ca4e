/*
 * First in, first out, over segments.
 *
 *     victim(segments):
 *         a segment without live items, if any        (it costs nothing)
 *         else the one opened first
 *     keep(item): always
 *
 * FitCache's order: what came first leaves the fast tier first and goes down whole.
 */
#include "policy/evict.h"

static uint32_t fifo_victim(void *state, const struct fb_segment_info *segments, uint32_t count,
                            int64_t now_ns)
{
    uint32_t best = 0;

    (void)state;
    (void)now_ns;
    for (uint32_t i = 0; i < count; i++) {
        if (segments[i].live_items == 0)
            return i;
        if (segments[i].sequence < segments[best].sequence)
            best = i;
    }
    return best;
}

const struct fb_evict_ops fb_evict_fifo = {
    .name = "fifo",
    .help = "first in, first out",
    .victim = fifo_victim,
};
