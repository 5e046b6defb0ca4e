/*
 * How long a source takes, and how much it gives: what the depth of prefetch follows.
 *
 * Latencies are moving means over the requests that were made anyway. Bandwidth can only be seen
 * when the source is busy: a reader that waits for one file after the other gets little, and that
 * says nothing. So it is taken from the rounds of the background thread in which requests took
 * BUSY_TIMES as long as they do when there is little to do, and is unknown before.
 */
#include "cache/cache_priv.h"
#include "core/clock.h"

#define MEAN_OVER  8 /* requests */
#define BUSY_TIMES 3
#define LOOK_NS    (500 * FB_NS_PER_MS)
#define FAR_NS     (2 * FB_NS_PER_MS) /* takes a request at least */
#define FAR_AFTER  8                  /* requests */

/* Two at once may lose one of their samples. */
static void mean(_Atomic int64_t *value, int64_t sample)
{
    int64_t old = atomic_load_explicit(value, memory_order_relaxed);
    int64_t next = old == 0 ? sample : old + (sample - old) / MEAN_OVER;

    atomic_store_explicit(value, next > 0 ? next : 1, memory_order_relaxed);
}

void fb_pipe_read(struct fb_volume *volume, int64_t took_ns, uint64_t bytes)
{
    struct fb_pipe *p = &volume->pipe;
    int64_t idle_ns = atomic_load_explicit(&p->idle_ns, memory_order_relaxed);

    mean(&p->read_ns, took_ns);
    atomic_fetch_add_explicit(&p->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->reads, 1, memory_order_relaxed);
    /* It rises slowly, should the way get longer. */
    if (idle_ns == 0 || took_ns < idle_ns)
        atomic_store_explicit(&p->idle_ns, took_ns, memory_order_relaxed);
    else
        atomic_fetch_add_explicit(&p->idle_ns, (took_ns - idle_ns) / 1024, memory_order_relaxed);
}

void fb_pipe_stat(struct fb_volume *volume, int64_t took_ns)
{
    mean(&volume->pipe.stat_ns, took_ns);
}

static void look(struct fb_pipe *p, int64_t now_ns)
{
    uint64_t bytes = atomic_load_explicit(&p->bytes, memory_order_relaxed);
    int64_t read_ns = atomic_load_explicit(&p->read_ns, memory_order_relaxed);
    double rate;

    if (now_ns - p->looked_ns < LOOK_NS)
        return;
    rate = (double)(bytes - p->bytes_before) * 1e9 / (double)(now_ns - p->looked_ns);
    if (read_ns > BUSY_TIMES * atomic_load_explicit(&p->idle_ns, memory_order_relaxed))
        p->bytes_per_s = rate > p->bytes_per_s ? rate : (3 * p->bytes_per_s + rate) / 4;
    p->bytes_before = bytes;
    p->looked_ns = now_ns;
}

void fb_pipe_tick(struct fb_cache *cache, int64_t now_ns)
{
    struct fb_list *it, *tmp;

    fb_mutex_lock(&cache->fetch_lock);
    FB_LIST_FOREACH (it, tmp, &cache->volumes)
        look(&FB_LIST_ENTRY(it, struct fb_volume, link)->pipe, now_ns);
    fb_mutex_unlock(&cache->fetch_lock);
}

/* The first volume of a source that still has it; NULL: none. */
static struct fb_volume *find(struct fb_cache *cache, uint16_t source)
    FB_REQUIRES(&cache->fetch_lock)
{
    struct fb_volume *found = NULL;
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &cache->volumes) {
        struct fb_volume *volume = FB_LIST_ENTRY(it, struct fb_volume, link);

        if (!found && volume->id == source && !volume->leaving)
            found = volume;
    }
    return found;
}

struct fb_prefetch_pipe fb_pipe_of(struct fb_cache *cache, uint16_t source, uint64_t item_bytes)
{
    struct fb_prefetch_pipe pipe = {.item_bytes = item_bytes};
    struct fb_volume *volume;

    fb_mutex_lock(&cache->fetch_lock);
    volume = find(cache, source);
    if (volume) {
        struct fb_pipe *p = &volume->pipe;

        pipe.latency_s =
            (double)(atomic_load_explicit(&p->read_ns, memory_order_relaxed) +
                     atomic_load_explicit(&p->stat_ns, memory_order_relaxed) + FB_TICK_NS) /
            1e9;
        pipe.bytes_per_s = p->bytes_per_s;
    }
    fb_mutex_unlock(&cache->fetch_lock);
    return pipe;
}

static bool is_far(struct fb_volume *volume)
{
    struct fb_pipe *p = &volume->pipe;

    return fb_source_is_far(volume->source) ||
           (atomic_load_explicit(&p->reads, memory_order_relaxed) >= FAR_AFTER &&
            atomic_load_explicit(&p->idle_ns, memory_order_relaxed) >= FAR_NS);
}

bool fb_pipe_is_far(struct fb_cache *cache, uint16_t source)
{
    struct fb_volume *volume;
    bool far;

    fb_mutex_lock(&cache->fetch_lock);
    volume = find(cache, source);
    far = volume && is_far(volume);
    fb_mutex_unlock(&cache->fetch_lock);
    return far;
}

bool fb_pipe_yields(struct fb_volume *volume)
{
    struct fb_pipe *p = &volume->pipe;
    bool yields;

    fb_mutex_lock(&volume->cache->fetch_lock);
    yields =
        is_far(volume) &&
        fb_prefetch_yields(
            &(struct fb_prefetch_pipe){
                .latency_s = (double)atomic_load_explicit(&p->idle_ns, memory_order_relaxed) / 1e9,
                .bytes_per_s = p->bytes_per_s},
            volume->demand_bytes);
    fb_mutex_unlock(&volume->cache->fetch_lock);
    return yields;
}
