/*
 * cache/budget.h - how --memory is split, and how large segments are. Pure arithmetic.
 *
 *     memory = rest + tables + slots + buffers + staging + clients + learning + DRAM segments
 *
 * rest     14 MiB and 2%: code, stacks, requests with the bytes that are written (a 128th, 2 MiB at
 *          least), what the kernel was told of
 * tables   index, segment and file table: an eighth, or less when the tiers could never hold that
 *          many items
 * slots    300 bytes for each segment that there is room for in any tier, but for a 1024th that is
 *          part of the rest; where that is much, as on a disk of tens of terabytes, segments are
 *          larger
 * buffers  a sixteenth within bounds for what comes from sources, half as much for media
 * clients  a 256th: areas shared with client processes, about 230 KiB each, four at least
 * staging  four segments of each persistent tier, where segments are built: two that are filled,
 *          and two on their way
 * learning 4 MiB for the model, and a segment of each tier for what merges keep; what is remembered
 *          of items that have left, 2 bytes each, is spared in the index
 *
 * What remains is the DRAM tier; too little for four segments means that there is none.
 */
#ifndef FB_CACHE_BUDGET_H
#define FB_CACHE_BUDGET_H

#include "cache/cache.h"

#define FB_MEMORY_MIN (64ULL << 20)

struct fb_budget {
    uint64_t max_items;
    uint64_t files_bytes;
    uint64_t learn_bytes;
    uint64_t door_bytes; /* of requests that pass the cache by; a part of the rest */
    uint64_t dram_bytes; /* 0: no DRAM tier */
    uint64_t dram_segment_bytes;
    uint64_t pmem_segment_bytes;
    uint64_t nvme_segment_bytes;
    unsigned nvme_staging;
    uint32_t clients;        /* processes that can have an area */
    uint32_t fetch_buffers;  /* hold what comes from the source */
    uint32_t medium_buffers; /* hold what comes from a medium: a hung source cannot use them up */
};

/* -EINVAL with a sentence when the memory is too small for what is asked. */
FB_MUST_CHECK int fb_budget_plan(const struct fb_cache_config *config, struct fb_budget *ret_budget,
                                 struct fb_error *err);

#endif
