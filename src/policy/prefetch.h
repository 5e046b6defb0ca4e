/*
 * policy/prefetch.h - what to fetch before it is asked for (IGTCache, section 3.3).
 *
 *     sequential  the next children, as many as it takes for none to be late: depth (below). Of a
 *                 child that is a directory or a large file only what is read in nearly all of its
 *                 siblings: the vertical filter, relative frequency of at least f_p = 0.8
 *     cyclic      the same, for what is not there: the resident part stays, the rest comes just
 *                 ahead of the reader. A cycle in a shuffled order has no next child
 *     random      the whole data set, when the quota holds enough of it: fill
 *     skewed      nothing
 *
 * Depth. The paper fetches 4 items ahead. What is needed is the time a fetch takes over the time
 * between visits; when the reader waits for us that time shrinks as depth grows, so depth doubles
 * until the reader is satisfied or the pipe is full (bandwidth times latency, in items).
 *
 * Worth. Each stream counts what of its prefetches was read before it left. Less than half: it
 * pauses, longer each time, and tries again.
 *
 * What is asked for is a range of positions of children of a node; whoever carries it out (daemon,
 * simulator) knows names, skips what is there, and charges the stream's own quota, so that
 * prefetch never displaces what others hold. Pure.
 */
#ifndef FB_POLICY_PREFETCH_H
#define FB_POLICY_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "stream/streams.h"

#define FB_PREFETCH_DEPTH     4 /* the paper's */
#define FB_PREFETCH_DEPTH_MAX 256
#define FB_PREFETCH_SHARE     0.8 /* f_p */
#define FB_PREFETCH_FRONTS    4   /* readers of one node that are told apart */

struct fb_prefetch_config {
    uint32_t depth;     /* 0: as deep as it takes; else that many */
    uint32_t depth_max; /* 0: FB_PREFETCH_DEPTH_MAX */
    double share;       /* f_p */
    double fill_ratio;  /* a random data set is loaded when the quota holds this share of it */
    double turns_ratio; /* ... and exchanged for what is due (policy/turns.h) from this share on */
    double worth;       /* share of prefetches that must be of use */
};

/* f_p 0.8, fill from 0.5 on, turns from 0.1 on, worth 0.5, depth as it takes. */
struct fb_prefetch_config fb_prefetch_defaults(void);

/* What the source takes for one item. */
struct fb_prefetch_pipe {
    double latency_s;    /* from asking to having it */
    double bytes_per_s;  /* of the source, in all; 0: unknown */
    uint64_t item_bytes; /* typical */
};

/* How far one node is ahead of its readers, and whether it pays. Zeroed at first. */
struct fb_prefetch {
    uint32_t front[FB_PREFETCH_FRONTS]; /* first position not yet asked for; 0: none */
    uint32_t turn;
    uint32_t used; /* prefetched items that were read, that left unread; halved now and then */
    uint32_t wasted;
    uint64_t paused_until; /* visits */
    uint32_t pauses;
};

/* Positions first, first + stride, ... of children; count may be 0. */
struct fb_prefetch_range {
    uint32_t first;
    uint32_t stride;
    uint32_t count;
};

uint32_t fb_prefetch_depth(const struct fb_prefetch_config *config,
                           const struct fb_prefetch_pipe *pipe, double gap_s);

/* A caller stepped to the child at `position` of the node: which further ones to ask for now.
 * `children`: how many there are; 0: unknown. */
struct fb_prefetch_range fb_prefetch_ahead(struct fb_prefetch *prefetch,
                                           const struct fb_prefetch_config *config,
                                           const struct fb_stream_info *stream,
                                           const struct fb_prefetch_pipe *pipe, uint32_t position,
                                           uint32_t children);

/* Down from there: whether to fetch, of a child of `node`, its child of that name; or that block of
 * its so many. */
bool fb_prefetch_wants_name(const struct fb_prefetch_config *config,
                            const struct fb_streams *streams, uint64_t node, const char *name,
                            size_t len);
bool fb_prefetch_wants_block(const struct fb_prefetch_config *config,
                             const struct fb_streams *streams, uint64_t node, uint32_t block,
                             uint32_t blocks);

/* How many bytes of a random data set to load beyond those it has. data_bytes 0: unknown. */
uint64_t fb_prefetch_fill(const struct fb_prefetch_config *config,
                          const struct fb_stream_info *stream, uint64_t quota_bytes,
                          uint64_t used_bytes, uint64_t data_bytes);

/* Beside what is read, before a pattern is known: how much more may be brought, when programs have
 * read so much of their own, and so much that was brought waits for them. In files and in bytes. */
#define FB_PREFETCH_BESIDE_FILES 8
#define FB_PREFETCH_BESIDE_BYTES (1ULL << 20)
uint64_t fb_prefetch_beside(uint64_t first, uint64_t read, uint64_t unread);

/* A prefetched item was read for the first time, or left unread. */
void fb_prefetch_count(struct fb_prefetch *prefetch, const struct fb_prefetch_config *config,
                       bool was_used, uint64_t visits);
bool fb_prefetch_is_paused(const struct fb_prefetch *prefetch, uint64_t visits);

/* The share that was of use; 1 while nothing is known. */
double fb_prefetch_accuracy(const struct fb_prefetch *prefetch);

/* How many fetches may be begun for prefetch when `demand` and `prefetching` are under way and
 * `most` may be: what demand leaves, but for one in sixteen of all, so that a demand read that
 * comes now finds room at once. */
uint32_t fb_prefetch_room(uint32_t most, uint32_t demand, uint32_t prefetching);

/* Whether what programs have under way at a source, with the read-ahead of the files they read,
 * fills half of what the pipe holds (bandwidth times latency; a megabyte at least). Then nothing
 * else begins there: it would take its part of the bandwidth from those who wait. `pipe`: with the
 * latency of a source that has little to do. */
#define FB_PREFETCH_YIELD       0.5
#define FB_PREFETCH_YIELD_BYTES (1ULL << 20)
bool fb_prefetch_yields(const struct fb_prefetch_pipe *pipe, uint64_t demand_bytes);

#endif
