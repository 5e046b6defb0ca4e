/*
 * bench/fill.c - how fast an empty cache takes in what a source has, until all of it is durable.
 *
 *     fill --dir DIR [--items N] [--item BYTES] [--depth N] [--threads N]
 *
 * There is no DRAM tier, so every item goes to disk; the source is memory. DIR must be empty.
 */
#include <stdio.h>

#include "common.h"
#include "core/clock.h"

#define MEMORY_BYTES  (176u << 20)
#define SEGMENT_BYTES (16u << 20)

int main(int argc, char **argv)
{
    const char *dir = fb_bench_text(argc, argv, "dir", NULL);
    uint64_t item_bytes = fb_bench_number(argc, argv, "item", 102400);
    uint32_t items = (uint32_t)fb_bench_number(argc, argv, "items", 10000);
    unsigned depth = (unsigned)fb_bench_number(argc, argv, "depth", 64);
    unsigned threads = (unsigned)fb_bench_number(argc, argv, "threads", 2);
    struct fb_cache_config config;
    struct fb_bench b;
    int64_t start_ns, spent_ns;
    uint64_t kept;

    if (!dir)
        fb_bench_die("usage: fill --dir DIR [--items N] [--item BYTES] [--depth N] [--threads N]");
    fb_cache_config_defaults(&config);
    config.memory_bytes = MEMORY_BYTES;
    config.segment_bytes = SEGMENT_BYTES;
    config.cache_bytes = 2 * items * (item_bytes + 4096) + (256u << 20);
    config.cache_dir_count = 1;
    config.cache_dirs[0] = dir;
    config.free_space_ratio = 0.01;
    fb_bench_open(&b, &config, item_bytes, threads);
    fb_bench_learn(&b, items);

    start_ns = fb_now_ns();
    fb_bench_read(&b, depth, fb_bench_each, &b);
    fb_bench_flush(&b, items);
    spent_ns = fb_now_ns() - start_ns;
    kept = fb_metric_get(fb_cache_metrics(b.cache), FB_CM_ADMITTED);
    if (kept != items)
        fb_bench_die("only %llu of %u items were kept", (unsigned long long)kept, items);
    printf("{\"items\": %u, \"bytes_per_s\": %.0f, \"seconds\": %.4f}\n", items,
           (double)(items * item_bytes) * 1e9 / (double)spent_ns, (double)spent_ns / 1e9);
    fb_bench_close(&b);
    return 0;
}
