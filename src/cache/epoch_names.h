/*
 * cache/epoch_names.h - the files below a directory, in the orders in which data sets number them:
 * ImageFolder's, by path, as they are listed, by name alone. What a search for seeds begins with.
 */
#ifndef FB_CACHE_EPOCH_NAMES_H
#define FB_CACHE_EPOCH_NAMES_H

#include "base/attr.h"
#include "cache/cache.h"
#include "epoch/names.h"
#include "epoch/seed_search.h"

/* Lists the directory of a source once. Orders in which there are too few files are left out, and
 * unusual ones where memory is short. -ENODATA: all of them; -E2BIG: more than plans may take;
 * -ESHUTDOWN: `stop` was set. */
FB_MUST_CHECK int fb_epoch_names(struct fb_cache *cache, uint16_t source, const char *dir,
                                 const _Atomic bool *stop, struct fb_names *names[FB_SEED_ORDERS],
                                 unsigned *ret_orders);

#endif
