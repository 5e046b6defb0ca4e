/*
 * policy/brain.h - the tree and the policies put together: what a cache asks, and gets told.
 *
 * A cache (the daemon's, the simulator's) holds items and tells the brain of every access, every
 * item that comes and every one that goes. The brain says which stream an item belongs to, whether
 * to keep it, who gives when room is needed, and what to fetch ahead. It holds no items and no
 * bytes, does no I/O, and may be late: a cache that does not ask goes on with what it was told.
 *
 *     fb_brain_access     an access: whose item, and what to fetch ahead
 *     fb_brain_admits     a fetched item: keep it?
 *     fb_brain_came/went  an item was kept; it left (and why)
 *     fb_brain_giver      room is needed: which stream gives; which of its items: fb_keep_victim
 *     fb_brain_tick       now and then: streams that have ended, rounds of space
 *
 * Streams have small numbers for as long as they live, to be kept with items. 0 is everything that
 * no stream owns, kept as LRU. Quotas add up to the cache; a stream may hold more while others hold
 * less (space is never left empty for a quota's sake), and is the first to give when it is needed.
 * An ended stream has a quota of 0: its items stay only until somebody needs the room.
 *
 * Each part can be switched off, to see what it is worth. One thread.
 */
#ifndef FB_POLICY_BRAIN_H
#define FB_POLICY_BRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/alloc.h"
#include "policy/keep.h"
#include "policy/prefetch.h"
#include "stream/streams.h"

#define FB_BRAIN_STREAMS 256
#define FB_BRAIN_WANTS   4
#define FB_BRAIN_READS   65536

struct fb_brain;

struct fb_brain_config {
    struct fb_streams_config streams;
    struct fb_prefetch_config prefetch;
    struct fb_alloc_config alloc;
    uint64_t reads_max; /* items whose reads are counted (policy/reads.h); 0: FB_BRAIN_READS */
    int64_t round_ns;
    int64_t ttl_base_ns;
    /* Parts switched off: everything is LRU; nothing is fetched ahead, or not filled; streams never
     * end; space is not divided. */
    bool no_keep;
    bool no_prefetch;
    bool no_fill;
    bool no_ttl;
    bool no_alloc;
    bool no_turns; /* shuffled items are not exchanged for those whose turn it is */
};

struct fb_brain_config fb_brain_defaults(uint64_t cache_bytes);

struct fb_brain_access {
    struct fb_fact fact;
    uint64_t key;  /* of the item; not 0 */
    uint64_t name; /* also of the item, but its own for ever: fb_brain_name(), or what will do */
    uint64_t item_bytes;
    struct fb_prefetch_pipe pipe; /* of its source */
};

/* Children of a node to fetch ahead: those at positions first, first + stride, ...; by_name: those
 * that follow the child just read in the order of names, from the first-th to the count-th. What
 * of each: fb_prefetch_wants_name, fb_prefetch_wants_block. */
struct fb_want {
    uint64_t node;
    bool by_name;
    uint16_t origin; /* to be told with items that came of it */
    struct fb_prefetch_range range;
};

struct fb_brain_answer {
    uint32_t stream;
    enum fb_keep keep;
    unsigned wants;
    struct fb_want want[FB_BRAIN_WANTS];
};

enum fb_went {
    FB_WENT_EVICTED, /* for room */
    FB_WENT_DROPPED, /* used up, changed, forgotten by the user */
    FB_WENT_MOVED,   /* to another stream, which it came to */
};

struct fb_brain_stream {
    uint64_t node; /* 0: none any more, or stream 0 */
    bool has_ended;
    enum fb_keep keep;
    uint64_t quota_bytes;
    uint64_t used_bytes;
    uint64_t data_bytes; /* all it reads, about; 0: unknown */
    uint64_t told_bytes; /* the same, as told by fb_brain_size() */
    uint64_t fill_bytes; /* worth loading now, beyond what it has */
    /* Items of its data set that were read less often than `due` (fb_brain_reads) are worth loading
     * even when its share is full, each in place of one that was not; 0: none are. */
    double due;
    int64_t ttl_ns; /* INT64_MAX: none */
    double benefit;
    double accuracy; /* of prefetch; 1 when there was none */
};

FB_MUST_CHECK int fb_brain_new(const struct fb_brain_config *config, struct fb_brain **ret_brain);
void fb_brain_free(struct fb_brain *brain);

/* The tree, to ask. */
struct fb_streams *fb_brain_streams(struct fb_brain *brain);

void fb_brain_access(struct fb_brain *brain, const struct fb_brain_access *access,
                     struct fb_brain_answer *ret_answer);

/* How large the stream's data set is, by whoever has listed it. Until then it is taken to be what
 * was read of it. */
void fb_brain_size(struct fb_brain *brain, uint32_t stream, uint64_t bytes);

uint64_t fb_brain_name(uint16_t source, const char *path, size_t len, uint32_t block);

/* How often an item was read, as far as is known. */
uint32_t fb_brain_reads(const struct fb_brain *brain, uint64_t name);

/* free_bytes: what of the cache is empty. is_ahead: it comes of a want. */
bool fb_brain_admits(const struct fb_brain *brain, uint32_t stream, bool is_ahead,
                     uint64_t item_bytes, uint64_t free_bytes);
void fb_brain_came(struct fb_brain *brain, uint32_t stream, uint64_t item_bytes);
void fb_brain_went(struct fb_brain *brain, uint32_t stream, uint64_t key, uint64_t item_bytes,
                   enum fb_went why);

/* An item that came of a want was read for the first time, or went unread. */
void fb_brain_prefetched(struct fb_brain *brain, uint16_t origin, bool was_used);

/* Which stream gives when `stream` (which may be the one) needs room. FB_BRAIN_ANYONE when space is
 * not divided: the least recently used item of all goes. */
#define FB_BRAIN_ANYONE UINT32_MAX
uint32_t fb_brain_giver(const struct fb_brain *brain, uint32_t stream);

void fb_brain_tick(struct fb_brain *brain, int64_t now_ns);

/* False when there is no such stream. */
bool fb_brain_get(const struct fb_brain *brain, uint32_t stream,
                  struct fb_brain_stream *ret_stream);

#endif
