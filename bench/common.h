/*
 * bench/common.h - what the programs of make bench share: options, a source that costs nothing, a
 * cache over it, and reads kept at a depth.
 *
 * The source holds any number of files of one size, named by number. Its bytes are a piece of one
 * random pattern, so a READ costs one copy and a STAT nothing; a file's version never changes, so a
 * cache directory can be used again by a later run.
 */
#ifndef FB_BENCH_COMMON_H
#define FB_BENCH_COMMON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"

/* The value of `--name VALUE` (a size or a number), or `fallback`. Says so and exits when it is
 * not one. */
uint64_t fb_bench_number(int argc, char **argv, const char *name, uint64_t fallback);
const char *fb_bench_text(int argc, char **argv, const char *name, const char *fallback);

/* Prints a sentence and ends the program. */
void fb_bench_die(const char *format, ...) FB_PRINTF(1, 2) FB_NORETURN;

double fb_bench_median(double *values, unsigned count); /* sorts */

/* ---- the source ---- */

/* `threads` workers answer READs; 0: the thread that submits does. */
struct fb_source *fb_bench_source(uint64_t file_bytes, unsigned threads);

/* The path of a file by its number. */
void fb_bench_path(uint32_t no, char ret_path[FB_NAME_MAX]);

/* ---- the cache ---- */

struct fb_bench {
    struct fb_cache *cache;
    struct fb_volume *volume;
    uint64_t file_bytes;
    uint32_t count;
    uint32_t *files; /* ids, each with a reference */
};

/* Opens the cache; the volume comes with the source above. */
void fb_bench_open(struct fb_bench *b, const struct fb_cache_config *config, uint64_t file_bytes,
                   unsigned source_threads);
/* Makes `count` files known, as a listing would have. */
void fb_bench_learn(struct fb_bench *b, uint32_t count);
void fb_bench_close(struct fb_bench *b);

/* Reads are answered before what they brought is kept: waits until the cache has decided about
 * `items` of them, seals what is open and waits until it is durable. */
void fb_bench_flush(struct fb_bench *b, uint64_t items);

/* ---- reads at a depth ---- */

/* Reads whole files, file next(arg, n) as the n-th, `depth` at a time, until it says
 * FB_BENCH_END; pieces are given back at once. Returns how many. */
#define FB_BENCH_END UINT32_MAX
uint64_t fb_bench_read(struct fb_bench *b, unsigned depth, uint32_t (*next)(void *arg, uint64_t n),
                       void *arg);

/* A `next` for each file once, in order: arg is the struct fb_bench. */
uint32_t fb_bench_each(void *arg, uint64_t n);

#endif
