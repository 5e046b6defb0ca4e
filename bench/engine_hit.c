/*
 * bench/engine_hit.c - a hit in DRAM, in process: look-up and copy, random items.
 *
 *     engine_hit [--items N] [--item BYTES] [--copy BYTES] [--rounds N] [--ms N] [--pairs N]
 *
 * Each round measures one thread, then two together, in batches small enough that a median of
 * batches shrugs off what else the machine does, and large enough that the clock costs nothing.
 * Scaling is the work of two threads over that of one in equal time.
 *
 * With pairs, two caches in one process take turns instead, of so many milliseconds each: one that
 * recognises patterns and one that does not. What the machine does from second to second, and where
 * memory happens to lie from process to process, is several times what is asked about; neighbours
 * in time have most of the first in common, and the median of their ratios is free of the rest of
 * it. A turn's time is its mean, not a median of batches: what the brain takes it takes all at
 * once.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rand.h"
#include "common.h"
#include "core/clock.h"
#include "core/mem.h"

#define BATCH       256u
#define BATCHES_MAX (1u << 16)
#define THREADS     2u
#define PAIRS_MAX   1024u
#define PAUSE_NS    (10 * FB_NS_PER_MS) /* in which the brain ends what a turn left it */

struct worker {
    struct fb_bench *bench;
    uint32_t copy_bytes;
    int64_t until_ns;
    uint64_t seed;
    uint64_t copies;
    double *batch_ns; /* per copy */
    unsigned batches;
    uint8_t *data;
};

static void *copy_hits(void *arg)
{
    struct worker *w = arg;
    struct fb_bench *b = w->bench;
    struct fb_rand r = {.state = w->seed};
    struct fb_caller caller = {.pid = 1};
    uint64_t starts = (b->file_bytes - w->copy_bytes) / 4096 + 1;
    int64_t start_ns = fb_now_ns(), end_ns;

    w->copies = 0;
    w->batches = 0;
    do {
        for (unsigned i = 0; i < BATCH; i++) {
            uint64_t pick = fb_rand_u64(&r);
            uint32_t file = b->files[(pick & 0xffffffff) * b->count >> 32];
            uint64_t offset = 4096 * ((pick >> 32) % starts);

            if (fb_cache_copy(b->volume, &caller, file, offset, w->copy_bytes, w->data) !=
                w->copy_bytes)
                fb_bench_die("an item is not in DRAM");
        }
        end_ns = fb_now_ns();
        if (w->batches < BATCHES_MAX)
            w->batch_ns[w->batches++] = (double)(end_ns - start_ns) / BATCH;
        w->copies += BATCH;
        start_ns = end_ns;
    } while (end_ns < w->until_ns);
    return NULL;
}

/* Copies of all threads together; *ret_ns is the median over the batches of the first. */
static uint64_t measure(struct worker *workers, unsigned threads, int64_t duration_ns,
                        double *ret_ns)
{
    pthread_t ids[THREADS];
    int64_t until_ns = fb_now_ns() + duration_ns;
    uint64_t copies = 0;

    for (unsigned i = 0; i < threads; i++) {
        workers[i].until_ns = until_ns;
        workers[i].seed++;
        if (pthread_create(&ids[i], NULL, copy_hits, &workers[i]) != 0)
            fb_bench_die("cannot start a thread");
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        copies += workers[i].copies;
    }
    *ret_ns = fb_bench_median(workers[0].batch_ns, workers[0].batches);
    return copies;
}

static void measure_rounds(struct worker *workers, uint64_t rounds, int64_t duration_ns)
{
    for (uint64_t round = 0; round < rounds; round++) {
        double one_ns, two_ns;
        uint64_t one = measure(workers, 1, duration_ns, &one_ns);
        uint64_t two = measure(workers, 2, duration_ns, &two_ns);

        printf("{\"ns\": %.1f, \"ns_of_two\": %.1f, \"scaling\": %.3f}\n", one_ns, two_ns,
               (double)two / (double)one);
        fflush(stdout);
    }
}

/* bench[1] recognises patterns, bench[0] does not. */
static void measure_pairs(struct worker *workers, struct fb_bench *bench, unsigned pairs,
                          int64_t duration_ns)
{
    static double ns[2][PAIRS_MAX], ratio[PAIRS_MAX];

    printf("{");
    for (unsigned threads = 1; threads <= THREADS; threads++) {
        for (unsigned pair = 0; pair < pairs; pair++) {
            for (unsigned turn = 0; turn < 2; turn++) {
                unsigned on = (pair + turn) % 2;
                uint64_t copies;
                double ignored;

                for (unsigned i = 0; i < threads; i++)
                    workers[i].bench = &bench[on];
                copies = measure(workers, threads, duration_ns, &ignored);
                ns[on][pair] = (double)duration_ns * threads / (double)copies;
                fb_sleep_ns(PAUSE_NS);
            }
            ratio[pair] = ns[1][pair] / ns[0][pair];
        }
        printf("%s\"ratio_%u\": %.4f, \"on_ns_%u\": %.1f, \"off_ns_%u\": %.1f",
               threads > 1 ? ", " : "", threads, fb_bench_median(ratio, pairs), threads,
               fb_bench_median(ns[1], pairs), threads, fb_bench_median(ns[0], pairs));
    }
    printf("}\n");
}

int main(int argc, char **argv)
{
    uint32_t items = (uint32_t)fb_bench_number(argc, argv, "items", 32768);
    uint64_t item_bytes = fb_bench_number(argc, argv, "item", 16384);
    uint32_t copy_bytes = (uint32_t)fb_bench_number(argc, argv, "copy", 4096);
    uint64_t rounds = fb_bench_number(argc, argv, "rounds", 1);
    int64_t duration_ns = (int64_t)fb_bench_number(argc, argv, "ms", 500) * FB_NS_PER_MS;
    unsigned pairs = (unsigned)fb_bench_number(argc, argv, "pairs", 0);
    struct worker workers[THREADS] = {0};
    struct fb_cache_config config;
    struct fb_bench bench[2];

    if (copy_bytes > item_bytes || items == 0 || pairs > PAIRS_MAX)
        fb_bench_die("an item must hold what is copied from it; at most %u pairs", PAIRS_MAX);
    fb_cache_config_defaults(&config);
    config.memory_bytes = 2 * items * (item_bytes + 4096) + (256u << 20);
    for (unsigned on = pairs ? 0 : 1; on < 2; on++) {
        config.no_patterns = on == 0;
        fb_bench_open(&bench[on], &config, item_bytes, 0);
        fb_bench_learn(&bench[on], items);
        fb_bench_read(&bench[on], 1, fb_bench_each, &bench[on]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.bench = &bench[1], .copy_bytes = copy_bytes};
        workers[i].seed = 1000 * i;
        workers[i].data = aligned_alloc(FB_IO_ALIGN, fb_align_up(copy_bytes, FB_IO_ALIGN));
        workers[i].batch_ns = fb_alloc_array(BATCHES_MAX, sizeof(double));
        if (!workers[i].data || !workers[i].batch_ns)
            fb_bench_die("out of memory");
    }
    if (pairs)
        measure_pairs(workers, bench, pairs, duration_ns);
    else
        measure_rounds(workers, rounds, duration_ns);
    for (unsigned i = 0; i < THREADS; i++) {
        free(workers[i].data);
        free(workers[i].batch_ns);
    }
    for (unsigned on = pairs ? 0 : 1; on < 2; on++)
        fb_bench_close(&bench[on]);
    return 0;
}
