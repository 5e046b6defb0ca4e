/*
 * core/metrics.h - counters that many threads add to and few read.
 *
 * A module declares its counters once, as an X-macro table `X(id, name, kind, unit, help)`:
 *
 *     #define FB_CACHE_METRICS(X) \
 *         X(FB_M_READS, "reads", COUNTER, "", "Reads that doors asked for") ...
 *
 * and gets an enum, a struct fb_metrics to add to, and through the table the lines of /metrics and
 * of `forebay status`. Every thread has a shard of its own to add to, without a locked instruction;
 * only beyond FB_METRICS_SHARDS threads they share the last one. Reading sums the shards and is
 * exact when nobody adds. Gauges are set by one owner and live in shard 0.
 */
#ifndef FB_CORE_METRICS_H
#define FB_CORE_METRICS_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/thread.h"

#define FB_METRICS_SHARDS 64
#define FB_METRICS_MAX    64 /* counters in one table */

enum fb_metric_kind {
    FB_METRIC_COUNTER,
    FB_METRIC_GAUGE,
};

struct fb_metric_info {
    const char *name; /* without the forebay_ prefix; counters get _total in /metrics */
    enum fb_metric_kind kind;
    const char *unit; /* "" or "bytes", "seconds" */
    const char *help;
};

#define FB_METRIC_ENUM(id, name, kind, unit, help) id,
#define FB_METRIC_INFO(id, name, kind, unit, help) {name, FB_METRIC_##kind, unit, help},

/* A whole number of cache lines, though not aligned to one, so that a struct fb_metrics may live in
 * any memory: two shards share a line only where a table uses the last seven of its counters. */
struct fb_metrics_shard {
    _Atomic uint64_t value[FB_METRICS_MAX];
};

static_assert(sizeof(struct fb_metrics_shard) % FB_CACHELINE == 0, "shards are whole lines");

struct fb_metrics {
    const struct fb_metric_info *info;
    unsigned count;
    struct fb_metrics_shard shards[FB_METRICS_SHARDS];
};

/* Zeroes `m`; `info` must outlive it, count <= FB_METRICS_MAX. */
void fb_metrics_init(struct fb_metrics *m, const struct fb_metric_info *info, unsigned count);

/* `thread` is fb_thread_index(): for those who add several at once. */
static inline void fb_metric_add_at(struct fb_metrics *m, unsigned thread, unsigned id, uint64_t n)
{
    _Atomic uint64_t *v;

    if (fb_unlikely(thread >= FB_METRICS_SHARDS - 1)) {
        v = &m->shards[FB_METRICS_SHARDS - 1].value[id];
        atomic_fetch_add_explicit(v, n, memory_order_relaxed);
        return;
    }
    v = &m->shards[thread].value[id];
    atomic_store_explicit(v, atomic_load_explicit(v, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static inline void fb_metric_add(struct fb_metrics *m, unsigned id, uint64_t n)
{
    fb_metric_add_at(m, fb_thread_index(), id, n);
}

static inline void fb_metric_set(struct fb_metrics *m, unsigned id, uint64_t n)
{
    atomic_store_explicit(&m->shards[0].value[id], n, memory_order_relaxed);
}

uint64_t fb_metric_get(const struct fb_metrics *m, unsigned id);

#endif
