/*
 * policy/alloc.h - space for each stream, by what a little more of it would save (IGTCache, 3.3).
 *
 * Marginal benefit B: bytes of transfer saved per second and byte of space, so 1/s; times what a
 * byte costs. The paper leaves that out: then space goes to large items, which a far source brings
 * as quickly as small ones. An item of s bytes takes latency + s / bandwidth, so a byte of it
 * costs 1 + latency * bandwidth / s times what one of an endless item does.
 *
 *     sequential  0: nothing is read twice
 *     random      1 / (g n): an item held saves one transfer an epoch of n items, g seconds apart;
 *                 0 once the quota holds the data set
 *     cyclic      the same
 *     skewed      lambda * f / w: requests per second, the share of them found in the
 *                 BufferWindow, a ghost of the last w = 100 items the stream evicted
 *
 * Who gives loses what its last bit of space saves, which for a stream that holds all its data is
 * not 0 as B is: else the two ends of a move would change places every round.
 *
 * A round, every 60 s:
 *
 *     1 what a stream cannot use is free: an ended one's all, what is beyond a stream's data, of
 *       those with no benefit what they do not use, of sequential ones all but the minimum
 *     2 who has less than the minimum share gets it: from what is free, else from who loses least
 *     3 what is free goes to the highest B, as far as it can use it
 *     4 up to 640 MB go from who loses least to the highest B, if that is higher by a tenth
 *
 * Of a skewed stream that never had to evict f is not known: while it is read, it keeps what it
 * uses. Nobody goes below the minimum share, or all of its data if that is less; minima are half of
 * the cache at most. A skewed stream, which no policy serves better than LRU does, does not go
 * below what it would have if all of the cache were one LRU (policy/shadow.h). Free space is
 * nobody's loss and moves at once; what is moved from one to another moves in steps, since B is an
 * estimate and evicting is not undone. Streams over their quota evict by themselves
 * (policy/keep.h). Pure.
 */
#ifndef FB_POLICY_ALLOC_H
#define FB_POLICY_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "stream/pattern.h"

#define FB_ALLOC_ROUND_NS (60 * 1000000000LL)
#define FB_ALLOC_STEP     (640ULL << 20)
#define FB_ALLOC_MINIMUM  (640ULL << 20)
#define FB_GHOST_ITEMS    100

struct fb_alloc_config {
    uint64_t total_bytes;
    uint64_t step_bytes;    /* moved between streams in one round */
    uint64_t minimum_bytes; /* of each stream; less when there is not enough for all */
};

struct fb_alloc_stream {
    enum fb_pattern pattern;
    bool has_ended;
    bool is_untried;     /* nothing of it was evicted yet, so f says nothing */
    uint64_t data_bytes; /* all it reads; 0: unknown */
    uint64_t items;      /* n; 0: unknown */
    double gap_s;        /* g */
    double rate;         /* lambda, requests per second */
    double ghost_share;  /* f */
    double cost;         /* of a byte; 0 counts as 1 */
    uint64_t fair_bytes; /* what it would have if all of the cache were one LRU */
    uint64_t used_bytes;
    uint64_t quota_bytes; /* in and out */
    double benefit;       /* out */
};

double fb_alloc_benefit(const struct fb_alloc_stream *stream);

/* One round over all streams. The sum of quotas never exceeds the total. */
void fb_alloc_round(const struct fb_alloc_config *config, struct fb_alloc_stream *streams,
                    uint32_t count);

/* ---- BufferWindow ---- */

/* The last evicted items of one stream. An item that is asked for again would have been a hit with
 * so many items more. Zeroed at first; key 0 is no item. */
struct fb_ghost {
    uint64_t key[FB_GHOST_ITEMS];
    uint32_t next;
    uint32_t hits;     /* since the last round */
    uint32_t requests; /* since the last round */
};

void fb_ghost_add(struct fb_ghost *ghost, uint64_t key);

/* A request of the stream. `missed`: it was not in the cache; true when it was in the ghost. */
bool fb_ghost_request(struct fb_ghost *ghost, uint64_t key, bool missed);

/* f of the round that ends, and a new one begins. */
double fb_ghost_round(struct fb_ghost *ghost);

#endif
