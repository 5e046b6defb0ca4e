/*
 * cache/exchange.h - what was read makes room for what is due (policy/turns.h), in this cache.
 *
 *     read, and not due again ──► remembered here ──► a fill (fill.c) comes to a file of the same
 *                                                     stream that is due: the one goes, the other
 *                                                     is brought
 *
 * Room is made by forgetting files: their bytes stay dead in their segments until those are merged
 * (place.c), which takes segments with many of them first. Only files of one block are exchanged:
 * forgetting takes a file as a whole.
 *
 * The last FB_EXCHANGE_ITEMS that were read are remembered, of all streams together; which of them
 * goes does not matter, since all return in the next epoch at the earliest. The newest does, it is
 * the likeliest to be still there. Lock: FB_RANK_SPENT. Any thread.
 */
#ifndef FB_CACHE_EXCHANGE_H
#define FB_CACHE_EXCHANGE_H

#include <stdint.h>

#include "base/attr.h"
#include "cache/cache.h"

#define FB_EXCHANGE_ITEMS 4096u

struct fb_exchange;

FB_MUST_CHECK int fb_exchange_create(struct fb_cache *cache, struct fb_exchange **ret_exchange);
void fb_exchange_destroy(struct fb_exchange *exchange); /* takes NULL */

/* A file that may go for another one. */
struct fb_spent {
    uint64_t name; /* fb_brain_name() of it */
    uint32_t file;
    uint32_t bytes;
    uint32_t stream; /* 0: nothing */
    uint16_t source;
};

void fb_exchange_spent(struct fb_exchange *exchange, const struct fb_spent *spent);

/* Forgets files of the stream until `bytes` of it are gone. Returns how many are: fewer when there
 * are none left. */
uint64_t fb_exchange_take(struct fb_exchange *exchange, uint32_t stream, uint64_t bytes);

#endif
