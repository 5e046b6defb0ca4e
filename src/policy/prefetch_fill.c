/*
 * All of a random data set, and whether prefetching is worth while.
 */
#include "policy/prefetch.h"

#define COUNTED_MIN 32   /* before a judgement */
#define COUNTED_MAX 256  /* then counts are halved */
#define PAUSE       1000 /* visits, doubled each time */
#define PAUSES_MAX  6
#define BESIDE      4  /* for each that is read */
#define SPARED      16 /* one in so many fetches that may be under way is for demand alone */

uint64_t fb_prefetch_fill(const struct fb_prefetch_config *config,
                          const struct fb_stream_info *stream, uint64_t quota_bytes,
                          uint64_t used_bytes, uint64_t data_bytes)
{
    uint64_t goal = fb_min_u64(quota_bytes, data_bytes);

    if (stream->verdict.pattern != FB_PATTERN_RANDOM || data_bytes == 0 ||
        (double)quota_bytes < config->fill_ratio * (double)data_bytes)
        return 0;
    return goal > used_bytes ? goal - used_bytes : 0;
}

uint64_t fb_prefetch_beside(uint64_t first, uint64_t read, uint64_t unread)
{
    uint64_t most = first + BESIDE * read;

    return most > unread ? most - unread : 0;
}

void fb_prefetch_count(struct fb_prefetch *p, const struct fb_prefetch_config *config,
                       bool was_used, uint64_t visits)
{
    *(was_used ? &p->used : &p->wasted) += 1;
    if (p->used + p->wasted < COUNTED_MIN || fb_prefetch_is_paused(p, visits))
        return;
    if (fb_prefetch_accuracy(p) < config->worth) {
        p->paused_until = visits + ((uint64_t)PAUSE << p->pauses);
        if (p->pauses < PAUSES_MAX)
            p->pauses++;
        p->used = p->wasted = 0;
    } else if (p->used + p->wasted >= COUNTED_MAX) {
        p->used /= 2;
        p->wasted /= 2;
        p->pauses = 0;
    }
}

bool fb_prefetch_is_paused(const struct fb_prefetch *p, uint64_t visits)
{
    return visits < p->paused_until;
}

double fb_prefetch_accuracy(const struct fb_prefetch *p)
{
    uint64_t all = (uint64_t)p->used + p->wasted;

    return all ? (double)p->used / (double)all : 1;
}

uint32_t fb_prefetch_room(uint32_t most, uint32_t demand, uint32_t prefetching)
{
    uint32_t spared = (most + SPARED - 1) / SPARED;
    uint32_t left = demand + spared < most ? most - demand - spared : 0;

    if (left == 0 && demand == 0)
        left = 1;
    return left > prefetching ? left - prefetching : 0;
}

bool fb_prefetch_yields(const struct fb_prefetch_pipe *pipe, uint64_t demand_bytes)
{
    double half = FB_PREFETCH_YIELD * pipe->bytes_per_s * pipe->latency_s;

    return pipe->bytes_per_s > 0 && demand_bytes >= FB_PREFETCH_YIELD_BYTES &&
           (double)demand_bytes >= half;
}
