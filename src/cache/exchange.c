#include "cache/exchange.h"

#include <errno.h>
#include <stdlib.h>

#include "cache/cache_priv.h"
#include "core/mem.h"
#include "policy/brain.h"

struct fb_exchange {
    struct fb_cache *cache;
    struct fb_mutex lock; /* FB_RANK_SPENT: what follows */
    uint32_t next;
    struct fb_spent spent[FB_EXCHANGE_ITEMS];
};

int fb_exchange_create(struct fb_cache *cache, struct fb_exchange **ret_exchange)
{
    struct fb_exchange *e = fb_alloc(sizeof *e);

    if (!e)
        return -ENOMEM;
    e->cache = cache;
    fb_mutex_init(&e->lock, FB_RANK_SPENT);
    *ret_exchange = e;
    return 0;
}

void fb_exchange_destroy(struct fb_exchange *e)
{
    if (!e)
        return;
    fb_mutex_destroy(&e->lock);
    free(e);
}

void fb_exchange_spent(struct fb_exchange *e, const struct fb_spent *spent)
{
    fb_mutex_lock(&e->lock);
    e->spent[e->next] = *spent;
    e->next = (e->next + 1) % FB_EXCHANGE_ITEMS;
    fb_mutex_unlock(&e->lock);
}

/* The newest of the stream. */
static bool take_newest(struct fb_exchange *e, uint32_t stream, struct fb_spent *ret_spent)
{
    bool found = false;

    fb_mutex_lock(&e->lock);
    for (uint32_t i = 1; i <= FB_EXCHANGE_ITEMS && !found; i++) {
        struct fb_spent *s = &e->spent[(e->next + FB_EXCHANGE_ITEMS - i) % FB_EXCHANGE_ITEMS];

        if (s->stream == stream) {
            *ret_spent = *s;
            *s = (struct fb_spent){0};
            found = true;
        }
    }
    fb_mutex_unlock(&e->lock);
    return found;
}

/* Bytes that went: 0 when it has gone already, or its number is somebody else's by now. */
static uint64_t forget(struct fb_cache *cache, const struct fb_spent *spent)
{
    char path[FB_PATH_MAX];
    struct fb_version version;
    uint64_t bytes = 0;
    size_t len;

    if (!fb_files_peek(cache->files, spent->file, spent->source, path, &len, &version) ||
        fb_brain_name(spent->source, path, len, 0) != spent->name ||
        !fb_files_hold(cache->files, spent->file, spent->source, path))
        return 0;
    if (fb_files_items(cache->files, spent->file) > 0 &&
        !fb_steer_is_pinned(cache->steer, spent->file)) {
        fb_store_forget(cache->store, spent->file);
        fb_metric_add(&cache->metrics, FB_CM_EXCHANGED, 1);
        bytes = spent->bytes;
    }
    fb_files_unref(cache->files, spent->file, 1);
    return bytes;
}

uint64_t fb_exchange_take(struct fb_exchange *e, uint32_t stream, uint64_t bytes)
{
    struct fb_spent spent;
    uint64_t gone = 0;

    while (gone < bytes && take_newest(e, stream, &spent))
        gone += forget(e->cache, &spent);
    return gone;
}
