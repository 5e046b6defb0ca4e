/*
 * bench/learn.c - what learned eviction costs: training, and ranking the segments of a cache.
 *
 *     learn [--segments N] [--requests N] [--trainings N]
 *
 * First the daemon's own way: a cache in DRAM of at least so many segments of 15 items, skewed
 * reads of half as many files again as it holds and scans in between, so that it trains and ranks
 * on its thread of low priority while reads go on. Times are the means of all trainings and
 * rankings after it was full, as `/metrics` has them.
 *
 * Then a training alone, with all the rows that one can have (8,192; the cache above has files of
 * one size, and so fewer): requests for objects of all sizes, and the median of several trainings.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/rand.h"
#include "common.h"
#include "core/clock.h"
#include "core/mem.h"

#define ITEM_BYTES     16384u
#define SEGMENT_BYTES  (4 * BLOCK_BYTES) /* the least that there is */
#define BLOCK_BYTES    (64u << 10)
#define FILES          25u /* for each segment: more than it holds, and as many as can be known */
#define DEPTH          16u
#define TRAININGS_MAX  64u
#define OBJECTS        30000u
#define OBJECTS_CACHED 10000u
#define STEP           20000u /* requests between trainings */

struct mix {
    struct fb_bench *bench;
    struct fb_rand lot;
    uint64_t requests;
};

/* The first files much more often than the last, and a file in four in turn. */
static uint32_t next_file(void *arg, uint64_t n)
{
    struct mix *m = arg;
    double u = fb_rand_unit(&m->lot);

    if (n >= m->requests)
        return FB_BENCH_END;
    if (n % 4 == 0)
        return (uint32_t)(n / 4 % m->bench->count);
    return (uint32_t)((double)m->bench->count * u * u * u * u);
}

static double mean_ms(struct fb_bench *b, unsigned times, unsigned us, const uint64_t before[2])
{
    struct fb_metrics *metrics = fb_cache_metrics(b->cache);
    uint64_t n = fb_metric_get(metrics, times) - before[0];

    return n ? (double)(fb_metric_get(metrics, us) - before[1]) / 1e3 / (double)n : 0;
}

static void measure_cache(uint32_t segments, uint64_t requests)
{
    static const unsigned ids[2][2] = {{FB_CM_TRAININGS, FB_CM_TRAIN_US},
                                       {FB_CM_RANKINGS, FB_CM_RANK_US}};
    struct fb_cache_config config;
    struct fb_bench b;
    struct mix mix = {.bench = &b, .lot = {1}};
    struct fb_model_view view;
    uint64_t before[2][2];
    int64_t begin_ns;
    double seconds;

    fb_cache_config_defaults(&config);
    config.memory_bytes = (uint64_t)segments * SEGMENT_BYTES * 5 / 4 + (64u << 20);
    config.segment_bytes = SEGMENT_BYTES;
    config.block_bytes = BLOCK_BYTES;
    config.no_patterns = true;
    fb_bench_open(&b, &config, ITEM_BYTES, 0);
    fb_bench_learn(&b, segments * FILES);
    mix.requests = (uint64_t)segments * FILES * 4; /* until it is full, and a while */
    fb_bench_read(&b, DEPTH, next_file, &mix);
    for (unsigned i = 0; i < 4; i++)
        before[i / 2][i % 2] = fb_metric_get(fb_cache_metrics(b.cache), ids[i / 2][i % 2]);
    mix.requests = requests;
    begin_ns = fb_now_ns();
    fb_bench_read(&b, DEPTH, next_file, &mix);
    seconds = (double)(fb_now_ns() - begin_ns) / (double)FB_NS_PER_S;
    if (!fb_cache_model(b.cache, &view) || view.ranked == 0)
        fb_bench_die("the cache has not learned");
    printf("\"segments\": %u, \"rank_ms\": %.3f, \"daemon_rows\": %llu, \"daemon_train_ms\": "
           "%.3f, \"share\": %.5f, ",
           view.ranked, mean_ms(&b, ids[1][0], ids[1][1], before[1]), (unsigned long long)view.rows,
           mean_ms(&b, ids[0][0], ids[0][1], before[0]),
           (double)(fb_metric_get(fb_cache_metrics(b.cache), FB_CM_TRAIN_US) - before[0][1] +
                    fb_metric_get(fb_cache_metrics(b.cache), FB_CM_RANK_US) - before[1][1]) /
               1e6 / seconds);
    fb_bench_close(&b);
}

/* Objects of every size, some much more often than others. */
static void ask_some(struct fb_reuse *reuse, struct fb_rand *lot, struct fb_reuse_meta *metas)
{
    for (uint32_t i = 0; i < STEP; i++) {
        double u = fb_rand_unit(lot);
        uint32_t id = (uint32_t)(OBJECTS * u * u * u);
        uint32_t size = 256u << id % 8 * 2;

        if (id < OBJECTS_CACHED)
            fb_reuse_hit(reuse, fb_mix64(id + 1), size, &metas[id]);
        else
            fb_reuse_miss(reuse, fb_mix64(id + 1), size, &metas[id]);
    }
}

static void measure_training(unsigned trainings)
{
    FB_AUTO_FREE struct fb_reuse_meta *metas = fb_alloc_array(OBJECTS, sizeof *metas);
    double ms[TRAININGS_MAX];
    struct fb_rand lot = {2};
    struct fb_reuse *reuse;

    if (!metas || fb_reuse_create((uint64_t)OBJECTS_CACHED << 18, &reuse) < 0)
        fb_bench_die("out of memory");
    for (unsigned i = 0; i < trainings; i++) {
        int64_t begin_ns;

        ask_some(reuse, &lot, metas);
        begin_ns = fb_now_ns();
        if (fb_reuse_train(reuse, OBJECTS_CACHED) < 0)
            fb_bench_die("out of memory");
        ms[i] = (double)(fb_now_ns() - begin_ns) / (double)FB_NS_PER_MS;
    }
    printf("\"rows\": %zu, \"train_ms\": %.3f", fb_reuse_rows(reuse),
           fb_bench_median(ms + trainings / 2, trainings - trainings / 2));
    fb_reuse_destroy(reuse);
}

int main(int argc, char **argv)
{
    uint64_t segments = fb_bench_number(argc, argv, "segments", 5000);
    uint64_t requests = fb_bench_number(argc, argv, "requests", 1000000);
    uint64_t trainings = fb_bench_number(argc, argv, "trainings", 20);

    if (segments == 0 || segments > 100000 || trainings == 0 || trainings > TRAININGS_MAX)
        fb_bench_die("segments are 1 to 100,000, trainings 1 to %u", TRAININGS_MAX);
    printf("{");
    measure_cache((uint32_t)segments, requests);
    measure_training((unsigned)trainings);
    printf("}\n");
    return 0;
}
