/*
 * cache/want.h - what the brain wants fetched ahead, as names.
 *
 * The brain speaks of children of a node, by place; directories that are known (cache/dirs.h) say
 * which names these are, and bring.c brings them. A child that is itself a directory is listed, and
 * of it come the names that are read in nearly all of its siblings (the vertical filter), a few at
 * most: once a reader is there, the directory's own node wants what follows.
 *
 * Inside of files that are read from front to back ahead.c is quicker: it sees each read, and at
 * once. What is wanted here of blocks is what it does not see, strides.
 *
 * Background thread, under the brain's lock.
 */
#ifndef FB_CACHE_WANT_H
#define FB_CACHE_WANT_H

#include "cache/cache.h"
#include "policy/brain.h"

struct fb_wants;

FB_MUST_CHECK int fb_wants_create(struct fb_cache *cache, const struct fb_prefetch_config *config,
                                  struct fb_wants **ret_wants);
void fb_wants_destroy(struct fb_wants *wants); /* takes NULL */

/* `fact` led to the want; `stream` owns its item. */
void fb_wants_take(struct fb_wants *wants, const struct fb_streams *tree,
                   const struct fb_fact *fact, uint32_t stream, const struct fb_want *want);

/* Goes on with directories that have been listed meanwhile. */
void fb_wants_tick(struct fb_wants *wants, const struct fb_streams *tree, int64_t now_ns);

#endif
