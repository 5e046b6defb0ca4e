/*
 * bench/door.c - epochs of a shuffled data set read at the door of the cache, with a plan or
 * without.
 *
 *     door --dir DIR [--items N] [--item BYTES] [--readers N] [--epochs N] [--memory BYTES]
 *          [--plan 0] [--log 1] [--step US]
 *
 * All items are on the NVMe tier, and DRAM holds a part of them only. Reader w of W is worker w of
 * a loader: it copies its batches, file by file, one at a time. Prints the time of the best epoch
 * after the first, and how much of it came from DRAM. The first run in a directory fills it. With
 * --log the next epoch is laid out on the disk meanwhile; the second epoch is the first that was.
 * With --step each batch is followed by so much time without reading, as a GPU's step is.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "core/clock.h"
#include "core/mem.h"

#define BATCH       128u
#define READERS_MAX 64u
#define FILL_DEPTH  32u

struct reader {
    const struct fb_bench *bench;
    const struct fb_plan *plan;
    uint32_t worker;
    uint64_t late; /* not in DRAM when it was wanted */
    int64_t step_ns;
};

static void *read_epoch(void *arg)
{
    struct reader *r = arg;
    const struct fb_bench *b = r->bench;
    const struct fb_split *split = fb_plan_split(r->plan);
    FB_AUTO_FREE uint8_t *data = fb_alloc(b->file_bytes);
    uint64_t k;

    if (!data)
        fb_bench_die("out of memory");
    for (uint64_t j = 0; fb_split_worker_sample(split, r->worker, j, &k); j++) {
        uint32_t file = b->files[fb_plan_file(r->plan, fb_plan_current(r->plan), k)];
        uint32_t length = (uint32_t)b->file_bytes;
        int64_t got = fb_cache_copy(b->volume, &(struct fb_caller){0}, file, 0, length, data);

        if (got < 0) {
            r->late++;
            got = fb_cache_pread(b->volume, file, 0, length, data);
        }
        if (got != (int64_t)b->file_bytes)
            fb_bench_die("a read failed");
        if (r->step_ns > 0 && j % BATCH == BATCH - 1)
            fb_sleep_ns(r->step_ns);
    }
    return NULL;
}

static double epoch(const struct fb_bench *b, const struct fb_plan *plan, uint32_t readers,
                    int64_t step_ns, uint64_t *ret_late)
{
    struct reader r[READERS_MAX];
    pthread_t threads[READERS_MAX];
    int64_t start_ns = fb_now_ns();

    *ret_late = 0;
    for (uint32_t w = 0; w < readers; w++) {
        r[w] = (struct reader){.bench = b, .plan = plan, .worker = w, .step_ns = step_ns};
        if (pthread_create(&threads[w], NULL, read_epoch, &r[w]) != 0)
            fb_bench_die("no thread");
    }
    for (uint32_t w = 0; w < readers; w++) {
        pthread_join(threads[w], NULL);
        *ret_late += r[w].late;
    }
    return (double)(fb_now_ns() - start_ns) / 1e9;
}

static struct fb_names *make_names(uint32_t items)
{
    struct fb_names *names = fb_names_new();
    char path[FB_NAME_MAX];
    int rc = names ? 0 : -1;

    for (uint32_t i = 0; rc == 0 && i < items; i++) {
        fb_bench_path(i, path);
        rc = fb_names_add_path(names, path, strlen(path), FB_NAMES_NO_SIZE);
    }
    if (rc < 0 || fb_names_index(names) < 0)
        fb_bench_die("out of memory");
    return names;
}

static unsigned long long count(const struct fb_bench *b, enum fb_cache_metric which)
{
    return fb_metric_get(fb_cache_metrics(b->cache), which);
}

int main(int argc, char **argv)
{
    const char *dir = fb_bench_text(argc, argv, "dir", NULL);
    uint64_t item_bytes = fb_bench_number(argc, argv, "item", 102400);
    uint32_t items = (uint32_t)fb_bench_number(argc, argv, "items", 10000);
    uint32_t readers = (uint32_t)fb_bench_number(argc, argv, "readers", 1);
    uint64_t epochs = fb_bench_number(argc, argv, "epochs", 4);
    int64_t step_ns = (int64_t)fb_bench_number(argc, argv, "step", 0) * 1000;
    struct fb_plan_order order = {
        .spec = {.shuffle = {.sampler = fb_sampler_find("torch-distributed"), .seed = 1},
                 .split = {.world = 1, .batch = BATCH, .workers = readers}}};
    struct fb_error err = {""};
    struct fb_cache_config config;
    struct fb_names *names = make_names(items);
    struct fb_plan *truth;
    struct fb_bench b;
    double best = 0;
    uint64_t late = 0;

    if (!dir || readers < 1 || readers > READERS_MAX)
        fb_bench_die("usage: door --dir DIR [--items N] [--item BYTES] [--readers N] [--epochs N] "
                     "[--memory BYTES] [--plan 0] [--log 1] [--step US]");
    fb_cache_config_defaults(&config);
    config.memory_bytes = fb_bench_number(argc, argv, "memory", 512u << 20);
    config.cache_bytes = 2 * items * (item_bytes + 4096) + (256u << 20);
    config.cache_dir_count = 1;
    config.cache_dirs[0] = dir;
    config.free_space_ratio = 0.01;
    config.epoch_log = fb_bench_number(argc, argv, "log", 0) ? FB_EPOCH_LOG_ON : FB_EPOCH_LOG_OFF;
    config.epoch_log_daily_bytes = UINT64_MAX / 2;
    fb_bench_open(&b, &config, item_bytes, 2);
    fb_bench_learn(&b, items);
    fb_bench_read(&b, FILL_DEPTH, fb_bench_each, &b);
    fb_bench_flush(&b, fb_metric_get(fb_cache_metrics(b.cache), FB_CM_MISSES));
    if (fb_plan_new(&order.spec, names, &truth, &err) < 0)
        fb_bench_die("%s", err.text);
    if (fb_bench_number(argc, argv, "plan", 1) &&
        fb_cache_plan(b.volume, "", make_names(items), &order, &err) < 0)
        fb_bench_die("%s", err.text);
    for (uint64_t e = 0; e < epochs; e++) {
        uint64_t missed;
        double seconds = epoch(&b, truth, readers, step_ns, &missed);

        if (e > 0 && (best == 0 || seconds < best)) {
            best = seconds;
            late = missed;
        }
        if (fb_plan_advance(truth) < 0)
            fb_bench_die("out of memory");
    }
    printf(
        "{\"seconds\": %.4f, \"bytes_per_s\": %.0f, \"from_dram\": %.4f, \"source_bytes\": %llu, "
        "\"log_written\": %llu, \"log_loaded\": %llu, \"log_left\": %llu}\n",
        best, (double)items * (double)item_bytes / best, 1 - (double)late / items,
        count(&b, FB_CM_FETCH_BYTES), count(&b, FB_CM_LOG_BYTES), count(&b, FB_CM_LOG_LOAD_BYTES),
        count(&b, FB_CM_LOG_LEFT));
    fb_plan_free(truth);
    fb_names_free(names);
    (void)fb_cache_unplan(b.volume, "");
    fb_bench_close(&b);
    return 0;
}
