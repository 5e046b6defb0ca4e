#include "cache/orders.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "cache/cache.h"
#include "core/lock.h"
#include "core/mem.h"

struct entry {
    struct fb_list link;
    struct fb_order order;
    uint16_t source;
    size_t len;
    char *path;
};

struct fb_orders {
    struct fb_mutex lock;
    struct fb_list list;
    _Atomic uint32_t count;
};

int fb_orders_create(struct fb_orders **ret_orders)
{
    struct fb_orders *orders = fb_alloc(sizeof *orders);

    if (!orders)
        return -ENOMEM;
    fb_mutex_init(&orders->lock, FB_RANK_ORDERS);
    fb_list_init(&orders->list);
    *ret_orders = orders;
    return 0;
}

static void entry_free(struct entry *entry)
{
    if (!entry)
        return;
    free(entry->path);
    free(entry);
}

void fb_orders_destroy(struct fb_orders *orders)
{
    struct fb_list *it, *tmp;

    if (!orders)
        return;
    FB_LIST_FOREACH (it, tmp, &orders->list)
        entry_free(FB_LIST_ENTRY(it, struct entry, link));
    fb_mutex_destroy(&orders->lock);
    free(orders);
}

bool fb_orders_any(const struct fb_orders *orders)
{
    /* Relaxed: an order counts from some moment on. */
    return atomic_load_explicit(&orders->count, memory_order_relaxed) > 0;
}

const char *fb_order_name(const struct fb_order *order)
{
    return order->pinned ? FB_POLICY_PINNED : fb_keep_name(order->keep);
}

static bool lies_below(const char *path, size_t len, const struct entry *entry)
{
    size_t n = entry->len;

    return n == 0 ||
           (len >= n && memcmp(path, entry->path, n) == 0 && (len == n || path[n] == '/'));
}

bool fb_orders_find(struct fb_orders *orders, uint16_t source, const char *path, size_t len,
                    struct fb_order *ret_order)
{
    const struct entry *best = NULL;
    struct fb_list *it, *tmp;

    if (!fb_orders_any(orders))
        return false;
    fb_mutex_lock(&orders->lock);
    FB_LIST_FOREACH (it, tmp, &orders->list) {
        const struct entry *entry = FB_LIST_ENTRY(it, struct entry, link);

        if (entry->source == source && lies_below(path, len, entry) &&
            (!best || entry->len > best->len))
            best = entry;
    }
    if (best)
        *ret_order = best->order;
    fb_mutex_unlock(&orders->lock);
    return best != NULL;
}

static int entry_new(uint16_t source, const char *path, const char *policy,
                     struct entry **ret_entry)
{
    struct fb_order order = {.keep = FB_KEEP_UNIFORM,
                             .pinned = strcmp(policy, FB_POLICY_PINNED) == 0};
    struct entry *entry;
    int rc = order.pinned ? 0 : fb_keep_parse(policy, &order.keep);

    if (rc < 0)
        return rc;
    entry = fb_alloc(sizeof *entry);
    if (entry)
        entry->path = fb_strdup(path);
    if (!entry || !entry->path) {
        entry_free(entry);
        return -ENOMEM;
    }
    entry->order = order;
    entry->source = source;
    entry->len = strlen(path);
    *ret_entry = entry;
    return 0;
}

static void forget(struct fb_orders *orders, uint16_t source, const char *path)
    FB_REQUIRES(&orders->lock)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &orders->list) {
        struct entry *entry = FB_LIST_ENTRY(it, struct entry, link);

        if (entry->source != source || strcmp(entry->path, path) != 0)
            continue;
        fb_list_remove(it);
        atomic_fetch_sub_explicit(&orders->count, 1, memory_order_relaxed);
        entry_free(entry);
    }
}

int fb_orders_set(struct fb_orders *orders, uint16_t source, const char *path, const char *policy)
{
    struct entry *entry = NULL;
    int rc = strcmp(policy, FB_POLICY_AUTO) == 0 ? 0 : entry_new(source, path, policy, &entry);

    if (rc < 0)
        return rc;
    fb_mutex_lock(&orders->lock);
    forget(orders, source, path);
    if (entry) {
        fb_list_push_back(&orders->list, &entry->link);
        atomic_fetch_add_explicit(&orders->count, 1, memory_order_relaxed);
    }
    fb_mutex_unlock(&orders->lock);
    return 0;
}
