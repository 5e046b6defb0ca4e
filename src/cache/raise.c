#include "cache/raise.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cache/cache_priv.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"

#define DEPTH       4u  /* stretches under way at most, and with what others read one more */
#define SPARE_SHARE 16u /* of DRAM is left free, */
#define SPARE_LEAST 2u  /* and so many segments */
#define IDLE_NS     (2 * FB_NS_PER_S)
#define WAIT_NS     FB_NS_PER_MS /* for others */

struct fb_raise {
    struct fb_cache *cache;
    unsigned tier; /* that is raised from */
    uint32_t base; /* number of its first segment */
    uint32_t slots;
    _Atomic bool stopping;
    struct fb_mutex lock; /* FB_RANK_RAISE: what follows */
    struct fb_cond wanted_cond;
    bool wanted;
    bool paid; /* the last one */
    uint16_t source;
    uint32_t slot;
    char path[FB_PATH_MAX];
    pthread_t thread;
};

/* The work at hand. */
struct work {
    struct fb_raise *raise;
    uint16_t source;
    bool paid;
    bool learns;           /* its files' attributes are asked for */
    uint32_t slot;         /* of the segment to look at, */
    uint32_t slots_left;   /* of so many, */
    uint32_t item;         /* from this item on */
    unsigned first, count; /* under way */
    uint64_t items, bytes;
    struct fb_stretch stretches[DEPTH];
    char path[FB_PATH_MAX];
};

static uint64_t spare_bytes(const struct fb_cache *cache)
{
    return fb_max_u64(cache->budget.dram_bytes / SPARE_SHARE,
                      (uint64_t)SPARE_LEAST * cache->budget.dram_segment_bytes);
}

bool fb_raise_has_room(struct fb_raise *raise)
{
    return fb_place_dram_free(raise->cache) > spare_bytes(raise->cache);
}

/* ---- one stretch ---- */

static bool is_wanted(void *arg, const struct fb_item *item)
{
    const struct work *w = arg;

    return fb_steer_raises(w->raise->cache->steer, w->source, w->path, item->file);
}

static void come_up(void *arg, const struct fb_item *item)
{
    struct work *w = arg;
    struct fb_cache *cache = w->raise->cache;
    struct fb_item raised = *item;

    raised.far = true; /* much comes at once: huge pages may wait (store/huge.h) */
    if (!fb_place_promote(cache, &raised))
        return;
    w->items++;
    w->bytes += item->length;
    fb_metric_add(&cache->metrics, FB_CM_RAISED, 1);
    fb_metric_add(&cache->metrics, FB_CM_RAISED_BYTES, item->length);
    if (!w->learns && fb_files_valid_until(cache->files, item->file) <= fb_now_ns())
        w->learns = fb_fill_learn(cache->fill, w->source, w->path);
}

/* Of what the disk has. */
static double share_raised(const struct work *w)
{
    struct fb_tier_stats stats;

    fb_store_tier_stats(w->raise->cache->store, w->raise->tier, &stats);
    return (double)w->bytes / (double)fb_max_u64(stats.live_bytes, w->bytes + 1);
}

static bool may_go_on(struct work *w)
{
    struct fb_cache *cache = w->raise->cache;

    w->paid = fb_steer_raise_pays(cache->steer, share_raised(w));
    return w->paid && !atomic_load_explicit(&w->raise->stopping, memory_order_relaxed) &&
           fb_steer_raise_read_ns(cache->steer) + IDLE_NS > fb_now_ns() &&
           fb_raise_has_room(w->raise) && !fb_epochs_foretell(cache->epochs, w->source);
}

/* The next stretch that has something. False: there is none, or no buffer. */
static bool begin(struct work *w)
{
    struct fb_raise *r = w->raise;
    struct fb_stretch *s = &w->stretches[(w->first + w->count) % DEPTH];
    struct fb_buffer *buffer = fb_buffer_get(r->cache->medium_pool);

    while (buffer && w->slots_left > 0) {
        *s = (struct fb_stretch){.segment = r->base + w->slot, .first = w->item, .buffer = buffer};
        if (fb_store_stretch_begin(r->cache->store, s, is_wanted, w) == 0) {
            w->item = s->end;
            w->count++;
            return true;
        }
        w->item = 0;
        w->slot = (w->slot + 1) % r->slots;
        w->slots_left--;
        /* A tier may have many segments, with nothing of the stream. */
        if (atomic_load_explicit(&r->stopping, memory_order_relaxed))
            break;
    }
    fb_buffer_put(buffer);
    return false;
}

/* How many may be under way. Readers who keep the disk busy by themselves would only wait longer.
 * Each of their reads has a buffer, as has each stretch. */
static unsigned depth(const struct work *w)
{
    struct fb_buffer_pool *pool = w->raise->cache->medium_pool;
    uint32_t out = fb_buffer_pool_count(pool) - fb_buffer_pool_free(pool);
    uint32_t others = out > w->count ? out - w->count : 0;

    return others == 0 ? DEPTH : others > DEPTH ? 0 : DEPTH + 1 - others;
}

/* The oldest. Negative: the disk has failed. */
static int finish(struct work *w)
{
    struct fb_stretch *s = &w->stretches[w->first];
    int rc;

    w->first = (w->first + 1) % DEPTH;
    w->count--;
    rc = fb_store_stretch_end(w->raise->cache->store, s, come_up, w);
    fb_buffer_put(s->buffer);
    return rc;
}

static void raise_all(struct work *w)
{
    int rc = 0;

    while (rc == 0 && w->slots_left > 0 && may_go_on(w)) {
        while (w->count < depth(w) && begin(w))
            ;
        if (w->count > 0)
            rc = finish(w);
        else if (w->slots_left > 0)
            fb_sleep_ns(WAIT_NS);
    }
    while (w->count > 0)
        if (finish(w) < 0)
            continue; /* what was read stays below */
    fb_log_info("/%s: %llu items were raised into DRAM%s", w->path, (unsigned long long)w->items,
                w->slots_left > 0 ? ", not all" : "");
}

/* ---- life ---- */

static void *raise_run(void *arg)
{
    struct fb_raise *r = arg;
    struct work *w = fb_alloc(sizeof *w);

    fb_mutex_lock(&r->lock);
    while (w && !atomic_load_explicit(&r->stopping, memory_order_relaxed)) {
        if (!r->wanted) {
            fb_cond_wait(&r->wanted_cond, &r->lock, FB_NEVER_NS);
            continue;
        }
        *w =
            (struct work){.raise = r, .source = r->source, .slot = r->slot, .slots_left = r->slots};
        memcpy(w->path, r->path, sizeof w->path);
        fb_mutex_unlock(&r->lock);
        raise_all(w);
        fb_mutex_lock(&r->lock);
        r->paid = w->paid;
        r->wanted = false;
    }
    fb_mutex_unlock(&r->lock);
    free(w);
    return NULL;
}

void fb_raise_start(struct fb_raise *raise, uint16_t source, const char *path, uint32_t segment)
{
    fb_mutex_lock(&raise->lock);
    raise->wanted = true;
    raise->source = source;
    raise->slot = (segment - raise->base) % raise->slots;
    (void)snprintf(raise->path, sizeof raise->path, "%s", path);
    fb_cond_signal(&raise->wanted_cond);
    fb_mutex_unlock(&raise->lock);
}

bool fb_raise_is_busy(struct fb_raise *raise, bool *ret_paid)
{
    bool busy;

    fb_mutex_lock(&raise->lock);
    busy = raise->wanted;
    *ret_paid = raise->paid;
    fb_mutex_unlock(&raise->lock);
    return busy;
}

int fb_raise_create(struct fb_cache *cache, struct fb_raise **ret_raise)
{
    unsigned last = fb_store_tiers(cache->store) - 1;
    struct fb_store_medium medium;
    struct fb_raise *r;
    int rc;

    *ret_raise = NULL;
    if (fb_tier_kind(fb_store_tier(cache->store, 0)) != FB_TIER_DRAM ||
        fb_tier_kind(fb_store_tier(cache->store, last)) != FB_TIER_NVME)
        return 0;
    r = fb_alloc(sizeof *r);
    if (!r)
        return -ENOMEM;
    fb_store_medium(cache->store, &medium);
    r->cache = cache;
    r->tier = last;
    r->base = medium.base;
    r->slots = medium.slots;
    fb_mutex_init(&r->lock, FB_RANK_RAISE);
    fb_cond_init(&r->wanted_cond);
    rc = fb_thread_start(&r->thread, "fb-raise", raise_run, r);
    if (rc < 0) {
        fb_cond_destroy(&r->wanted_cond);
        fb_mutex_destroy(&r->lock);
        free(r);
        return rc;
    }
    *ret_raise = r;
    return 0;
}

void fb_raise_destroy(struct fb_raise *raise)
{
    if (!raise)
        return;
    atomic_store_explicit(&raise->stopping, true, memory_order_relaxed);
    fb_mutex_lock(&raise->lock);
    fb_cond_broadcast(&raise->wanted_cond);
    fb_mutex_unlock(&raise->lock);
    pthread_join(raise->thread, NULL);
    fb_cond_destroy(&raise->wanted_cond);
    fb_mutex_destroy(&raise->lock);
    free(raise);
}
