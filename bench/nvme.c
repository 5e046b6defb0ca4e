/*
 * bench/nvme.c - whole items read from the NVMe tier, `depth` at a time.
 *
 *     nvme --dir DIR [--items N] [--item BYTES] [--depth N] [--ms N]
 *
 * There is no DRAM tier: memory is what buffers and tables need. The first run in a directory fills
 * it; later ones find it filled. Every read is checked to have come from the disk.
 */
#include <stdio.h>

#include "base/hash.h"
#include "common.h"
#include "core/clock.h"

#define MEMORY_BYTES  (176u << 20) /* leaves less than four segments: no DRAM tier */
#define SEGMENT_BYTES (16u << 20)
#define FILL_DEPTH    32

struct picks {
    const struct fb_bench *bench;
    uint64_t seed;
    int64_t until_ns;
};

static uint32_t pick(void *arg, uint64_t n)
{
    struct picks *p = arg;

    if (fb_now_ns() >= p->until_ns)
        return FB_BENCH_END;
    return (uint32_t)((fb_mix64(p->seed + n) >> 32) * p->bench->count >> 32);
}

static void check_tiers(struct fb_bench *b)
{
    struct fb_store *store = fb_cache_store(b->cache);

    if (fb_store_tiers(store) != 1 || fb_tier_kind(fb_store_tier(store, 0)) != FB_TIER_NVME)
        fb_bench_die("this bench needs a cache that has an NVMe tier only");
}

int main(int argc, char **argv)
{
    const char *dir = fb_bench_text(argc, argv, "dir", NULL);
    uint64_t item_bytes = fb_bench_number(argc, argv, "item", 102400);
    uint32_t items = (uint32_t)fb_bench_number(argc, argv, "items", 10000);
    unsigned depth = (unsigned)fb_bench_number(argc, argv, "depth", 16);
    int64_t duration_ns = (int64_t)fb_bench_number(argc, argv, "ms", 2000) * FB_NS_PER_MS;
    struct fb_cache_config config;
    struct fb_metrics *metrics;
    struct fb_bench b;
    struct picks picks;
    int64_t start_ns, spent_ns;
    uint64_t hits, reads;

    if (!dir)
        fb_bench_die("usage: nvme --dir DIR [--items N] [--item BYTES] [--depth N] [--ms N]");
    fb_cache_config_defaults(&config);
    config.memory_bytes = MEMORY_BYTES;
    config.segment_bytes = SEGMENT_BYTES;
    config.cache_bytes = 2 * items * (item_bytes + 4096) + (256u << 20);
    config.cache_dir_count = 1;
    config.cache_dirs[0] = dir;
    config.free_space_ratio = 0.01;
    fb_bench_open(&b, &config, item_bytes, 2);
    check_tiers(&b);
    fb_bench_learn(&b, items);
    fb_bench_read(&b, FILL_DEPTH, fb_bench_each, &b);
    metrics = fb_cache_metrics(b.cache);
    fb_bench_flush(&b, fb_metric_get(metrics, FB_CM_MISSES));
    hits = fb_metric_get(metrics, FB_CM_HITS_NVME);
    start_ns = fb_now_ns();
    picks =
        (struct picks){.bench = &b, .seed = (uint64_t)start_ns, .until_ns = start_ns + duration_ns};
    reads = fb_bench_read(&b, depth, pick, &picks);
    spent_ns = fb_now_ns() - start_ns;
    hits = fb_metric_get(metrics, FB_CM_HITS_NVME) - hits;
    if (hits != reads)
        fb_bench_die("only %llu of %llu reads came from the disk", (unsigned long long)hits,
                     (unsigned long long)reads);
    printf("{\"reads\": %llu, \"bytes_per_s\": %.0f, \"us\": %.2f}\n", (unsigned long long)reads,
           (double)(reads * item_bytes) * 1e9 / (double)spent_ns,
           (double)spent_ns / 1e3 / (double)reads);
    fb_bench_close(&b);
    return 0;
}
