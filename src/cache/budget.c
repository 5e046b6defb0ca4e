#include "cache/budget.h"

#include <errno.h>

#include "cache/bring.h"
#include "cache/dirs.h"
#include "cache/epoch_log.h"
#include "cache/epochs.h"
#include "cache/learn.h"
#include "cache/near.h"
#include "cache/steer.h"
#include "core/mem.h"
#include "core/units.h"
#include "policy/evict.h"
#include "proto/client.h"
#include "proto/layout.h"

/* Code, stacks, libraries, small allocations, and the least for writers. */
#define REST_BYTES     (14ULL << 20)
#define DOOR_BYTES_MIN (2ULL << 20)
#define DOOR_BYTES_MAX (64ULL << 20)
/* Where items are smaller than this on average, the index fills first. */
#define ITEM_BYTES_GUESS (16ULL << 10)
/* An entry at 75% load, and its place in the segment's keys. */
#define ITEM_INDEX_BYTES 64ULL
#define FILE_BYTES_GUESS 256ULL
#define STAGING          4u
/* What is known of a segment: by the store 136, for evictions 72 and as much again while they are
 * ranked. */
#define SLOT_BYTES 300ULL
/* Segments held in memory for a tier: those being built, and what a merge keeps. */
#define SEGMENTS_HELD (STAGING + 1ULL)
/* A source may have half of the buffers out, and one read takes up to 18. */
#define BUFFERS_MIN       40u
#define BUFFERS_MAX       512u
#define SEGMENT_MAX       (16ULL << 20)
#define DRAM_SEGMENTS_MIN 4u
#define CLIENTS_MIN       4u
#define CLIENTS_MAX       256u

/* 16 MiB, or a 1024th of the tier if that is smaller, but never so small that three items fill it.
 * More where a tier is so large that fewer segments save more memory than larger ones take. */
static uint64_t segment_size(const struct fb_cache_config *c, uint64_t tier_bytes, uint64_t most)
{
    uint64_t floor = 4ULL * c->block_bytes;
    uint64_t size = fb_min_u64(SEGMENT_MAX, tier_bytes / 1024);

    while (size >= SEGMENT_MAX && 2 * size <= FB_SEGMENT_SIZE_MAX &&
           SEGMENTS_HELD * size < tier_bytes / size * SLOT_BYTES / 2)
        size *= 2;
    if (c->segment_bytes)
        size = c->segment_bytes;
    else
        size = fb_min_u64(size, most);
    return fb_align_up(fb_max_u64(size, floor), 4096);
}

/* Some of what is needed grows with the memory there is, by less than half of it. */
static int too_small(uint64_t memory, uint64_t missing, struct fb_error *err)
{
    uint64_t need = fb_max_u64(fb_align_up(memory + 2 * missing, 1 << 20), FB_MEMORY_MIN);
    char is[FB_UNITS_TEXT_MAX], should[FB_UNITS_TEXT_MAX];

    return fb_error_set(err, -EINVAL,
                        "%s of memory is too little for this block, segment and cache size; use "
                        "--memory %s or more, smaller blocks and segments, or a smaller cache",
                        fb_format_size(is, memory), fb_format_size(should, need));
}

/* Of all tiers, of DRAM as many as there could ever be; the rest has room for a few. */
static uint64_t slots_bytes(const struct fb_cache_config *c, const struct fb_budget *b)
{
    uint64_t slots = c->memory_bytes / b->dram_segment_bytes +
                     c->pmem_bytes / b->pmem_segment_bytes + c->cache_bytes / b->nvme_segment_bytes;
    uint64_t bytes = SLOT_BYTES * slots;

    return bytes - fb_min_u64(bytes, c->memory_bytes / 1024);
}

int fb_budget_plan(const struct fb_cache_config *c, struct fb_budget *ret_budget,
                   struct fb_error *err)
{
    struct fb_budget b = {0};
    uint64_t memory = c->memory_bytes;
    uint64_t rest = REST_BYTES + memory / 50 + fb_steer_bytes(memory) + fb_dirs_bytes(memory) +
                    fb_epochs_bytes(memory) + fb_bring_bytes() + fb_near_bytes();
    uint32_t buffer_bytes = fb_store_buffer_bytes(c->block_bytes);
    uint64_t buffers, tables, storable, used;

    if (memory < FB_MEMORY_MIN)
        return too_small(memory, 0, err);
    b.door_bytes = fb_max_u64(DOOR_BYTES_MIN, fb_min_u64(memory / 128, DOOR_BYTES_MAX));
    b.nvme_segment_bytes = segment_size(c, c->cache_bytes, memory / 16);
    b.pmem_segment_bytes = segment_size(c, c->pmem_bytes, memory / 16);
    b.dram_segment_bytes = segment_size(c, memory, memory / 16);
    b.nvme_staging = c->cache_bytes ? STAGING : 0;

    buffers = fb_max_u64(BUFFERS_MIN, fb_min_u64(memory / 16 / buffer_bytes, BUFFERS_MAX));
    b.fetch_buffers = (uint32_t)buffers;
    b.medium_buffers = (uint32_t)(c->cache_bytes || c->pmem_bytes ? buffers / 2 : FB_READ_PIECES);
    b.medium_buffers = (uint32_t)fb_max_u64(b.medium_buffers, FB_READ_PIECES);

    b.clients = (uint32_t)fb_max_u64(
        CLIENTS_MIN, fb_min_u64(memory / 256 / fb_client_area_bytes(), CLIENTS_MAX));
    storable = memory + c->cache_bytes + c->pmem_bytes;
    tables = fb_min_u64(memory / 8, fb_max_u64(storable / ITEM_BYTES_GUESS, 65536) *
                                        (ITEM_INDEX_BYTES + FILE_BYTES_GUESS));
    b.max_items = tables / (ITEM_INDEX_BYTES + FILE_BYTES_GUESS);
    b.files_bytes = b.max_items * FILE_BYTES_GUESS;

    /* What a merge keeps is copied, a segment of each tier at most. */
    b.learn_bytes = fb_learn_bytes() + b.dram_segment_bytes +
                    (c->pmem_bytes ? b.pmem_segment_bytes : 0) +
                    (c->cache_bytes ? b.nvme_segment_bytes : 0);
    b.learn_bytes *= fb_evict_find(c->evict)->learns;

    if (c->cache_bytes && c->epoch_log == FB_EPOCH_LOG_ON)
        rest += fb_epoch_log_bytes(b.nvme_segment_bytes);
    /* PMem segments are built in staging memory too, as the mapping may vanish under us. */
    used = rest + tables + slots_bytes(c, &b) + b.learn_bytes +
           fb_map_large_bytes((uint64_t)b.fetch_buffers * buffer_bytes) +
           fb_map_large_bytes((uint64_t)b.medium_buffers * buffer_bytes) +
           b.clients * fb_client_area_bytes() +
           fb_map_large_bytes(b.nvme_staging * b.nvme_segment_bytes) +
           (c->pmem_bytes ? fb_map_large_bytes(STAGING * b.pmem_segment_bytes) : 0);
    if (used > memory)
        return too_small(memory, used - memory, err);
    b.dram_bytes = memory - used;
    if (b.dram_bytes / b.dram_segment_bytes < DRAM_SEGMENTS_MIN)
        b.dram_bytes = 0;
    if (!b.dram_bytes && !c->cache_bytes && !c->pmem_bytes)
        return too_small(memory, DRAM_SEGMENTS_MIN * b.dram_segment_bytes, err);
    *ret_budget = b;
    return 0;
}
