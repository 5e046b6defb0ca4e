/*
 * cache/orders.h - what users have ordered for paths: `forebay policy`, `pin`.
 *
 * An order says what is kept of a path and all below it, whatever the brain thinks of the streams
 * there; of several the one with the longest path counts. It is followed at admission, when an item
 * was read, when room is made (what is pinned stays) and before a data set is loaded. Streams and
 * their shares are as they were: an order is about items, the brain about streams.
 *
 * There are few of them, so a list will do. Lock: FB_RANK_ORDERS; who finds that there are none
 * takes none. Any thread.
 */
#ifndef FB_CACHE_ORDERS_H
#define FB_CACHE_ORDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "policy/keep.h"

struct fb_orders;

struct fb_order {
    enum fb_keep keep; /* UNIFORM for what is pinned */
    bool pinned;
};

FB_MUST_CHECK int fb_orders_create(struct fb_orders **ret_orders);
void fb_orders_destroy(struct fb_orders *orders); /* takes NULL */

/* `policy` as for fb_cache_set_policy(). -EINVAL, -ENOMEM. */
FB_MUST_CHECK int fb_orders_set(struct fb_orders *orders, uint16_t source, const char *path,
                                const char *policy);

/* Whether there are any at all. */
bool fb_orders_any(const struct fb_orders *orders);

/* The order for a path; false: there is none. */
bool fb_orders_find(struct fb_orders *orders, uint16_t source, const char *path, size_t len,
                    struct fb_order *ret_order);

/* As users write it. */
const char *fb_order_name(const struct fb_order *order);

#endif
