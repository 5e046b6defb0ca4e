/*
 * bench/recover.c - opening a cache directory that holds many items.
 *
 *     recover --dir DIR [--items N] [--item BYTES] [--rounds N]
 *
 * Each item is a file of its own, the costliest case: every one has a path in the tables. The first
 * run in a directory fills it. A round opens and closes the cache; all items must be there again.
 */
#include <stdio.h>

#include "common.h"
#include "core/clock.h"

#define ITEM_TABLE_BYTES 512ULL   /* of memory for each item: index, path, attributes */
#define ITEM_GUESS_BYTES 16384ULL /* the budget expects items of this size */

static void fill(const struct fb_cache_config *config, uint32_t items, uint64_t item_bytes)
{
    struct fb_bench b;

    fb_bench_open(&b, config, item_bytes, 0);
    if (fb_metric_get(fb_store_metrics(fb_cache_store(b.cache)), FB_SM_RECOVERED) < items) {
        fb_bench_learn(&b, items);
        fb_bench_read(&b, 1, fb_bench_each, &b);
        fb_bench_flush(&b, items);
    }
    fb_bench_close(&b);
}

int main(int argc, char **argv)
{
    const char *dir = fb_bench_text(argc, argv, "dir", NULL);
    uint64_t item_bytes = fb_bench_number(argc, argv, "item", 1024);
    uint32_t items = (uint32_t)fb_bench_number(argc, argv, "items", 1000000);
    uint64_t rounds = fb_bench_number(argc, argv, "rounds", 1);
    struct fb_cache_config config;

    if (!dir)
        fb_bench_die("usage: recover --dir DIR [--items N] [--item BYTES] [--rounds N]");
    fb_cache_config_defaults(&config);
    /* An eighth of the memory is for tables. What is in DRAM at the end moves to the disk. */
    config.memory_bytes = 8 * items * ITEM_TABLE_BYTES + (256u << 20);
    config.segment_bytes = 16u << 20;
    config.cache_bytes = 2 * items * ITEM_GUESS_BYTES + (256u << 20);
    config.cache_dir_count = 1;
    config.cache_dirs[0] = dir;
    config.free_space_ratio = 0.01;
    fill(&config, items, item_bytes);
    for (uint64_t round = 0; round < rounds; round++) {
        struct fb_cache *cache;
        struct fb_error err = {0};
        int64_t start_ns = fb_now_ns(), spent_ns;
        uint64_t found;

        if (fb_cache_open(&config, &cache, &err) < 0)
            fb_bench_die("%s", err.text);
        spent_ns = fb_now_ns() - start_ns;
        found = fb_metric_get(fb_store_metrics(fb_cache_store(cache)), FB_SM_RECOVERED);
        if (found != items)
            fb_bench_die("%llu of %u items came back", (unsigned long long)found, items);
        printf("{\"items\": %u, \"seconds\": %.4f}\n", items, (double)spent_ns / 1e9);
        fflush(stdout);
        fb_cache_close(cache);
    }
    return 0;
}
