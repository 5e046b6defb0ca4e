#include "core/metrics.h"

#include "base/assert.h"

void fb_metrics_init(struct fb_metrics *m, const struct fb_metric_info *info, unsigned count)
{
    FB_ASSERT(count <= FB_METRICS_MAX);
    m->info = info;
    m->count = count;
    for (unsigned s = 0; s < FB_METRICS_SHARDS; s++) {
        for (unsigned id = 0; id < FB_METRICS_MAX; id++)
            atomic_init(&m->shards[s].value[id], 0);
    }
}

uint64_t fb_metric_get(const struct fb_metrics *m, unsigned id)
{
    uint64_t sum = 0;

    FB_ASSERT(id < m->count);
    for (unsigned s = 0; s < FB_METRICS_SHARDS; s++)
        sum += atomic_load_explicit(&m->shards[s].value[id], memory_order_relaxed);
    return sum;
}
