/*
 * cache/bring.h - brings files that nobody has asked for yet: what prefetch and fills want.
 *
 *     queued ──► looked up ──► what is missing is read, a stretch at a time ──► gone
 *                   (so the file table knows it: a program's own look-up and open ask nobody)
 *
 * A file is brought once, however often it is wanted meanwhile. Programs come first: at a source no
 * more is under way than fb_prefetch_room() leaves, and never more than a quarter of the buffers;
 * and nothing begins while programs fill the way to it (fb_prefetch_yields()).
 * While the cache is full, what a reader wants next waits for it in buffers (fetch.c), and no more
 * is brought than fit. What finds the queue full, or is old when its turn comes, is not brought.
 *
 * Worth. Items that came of a want are remembered with its origin until they are read, or are gone,
 * or their reader has passed them by, or the same origin has brought FB_BROUGHT_BACK further ones:
 * then it was in vain.
 *
 * All callbacks; no thread of its own. Lock: FB_RANK_BRING. Any thread.
 */
#ifndef FB_CACHE_BRING_H
#define FB_CACHE_BRING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "cache/cache.h"
#include "policy/prefetch.h"

#define FB_BRING_QUEUE  1024u
#define FB_BROUGHT_BACK (2 * FB_PREFETCH_DEPTH_MAX)
#define FB_BRING_PASSED 64u              /* places behind a reader that it will not return to */
#define FB_BRING_FILL   UINT16_MAX       /* origin of what a fill wants: judged otherwise */
#define FB_BRING_NEAR   (UINT16_MAX - 1) /* of what near.c wants: it judges by itself */

struct fb_bring;

FB_MUST_CHECK int fb_bring_create(struct fb_cache *cache, struct fb_bring **ret_bring);
void fb_bring_destroy(struct fb_bring *bring); /* all volumes are detached; takes NULL */

struct fb_bring_order {
    uint16_t source;
    uint16_t origin;
    const char *path;
    uint32_t place; /* among the node's children, by position or rank; UNKNOWN: none */
    uint64_t node;  /* whose children show which blocks are read of a file; 0: all */
    struct fb_prefetch_range blocks; /* count not 0: these, whatever the node says */
};

enum fb_brought {
    FB_BROUGHT_QUEUED = 1,
    FB_BROUGHT_ALREADY = 2, /* it is being brought */
    FB_BROUGHT_FULL = 3,
};

/* One of enum fb_brought, or -ENOMEM. */
FB_MUST_CHECK int fb_bring(struct fb_bring *bring, const struct fb_bring_order *order);

/* Memory it takes. */
uint64_t fb_bring_bytes(void);

/* Lets go of what readers have passed by, and begins what there is room for by now. No lock may be
 * held: reads may end in here. */
void fb_bring_tick(struct fb_bring *bring);

/* Readers have been followed lately: it is worth looking often where they are. */
bool fb_bring_is_active(const struct fb_bring *bring);

/* Waits until less than half of the queue is taken, or `until_ns`. */
void fb_bring_wait(struct fb_bring *bring, int64_t until_ns);

/* A reader for whom an origin wants things is at that place: what was wanted of those just before
 * it, and is not there or was not read, will not be. The tick after this lets it go. */
void fb_bring_passed(struct fb_bring *bring, uint16_t origin, uint32_t place);

/* An item was read, or has left. True when it had been brought and was not read before; then
 * *ret_origin says for whom. */
bool fb_bring_forget(struct fb_bring *bring, uint64_t key, uint16_t *ret_origin);

/* The next that was brought in vain; false: no more. */
bool fb_bring_wasted(struct fb_bring *bring, uint16_t *ret_origin);

#endif
