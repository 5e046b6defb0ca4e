/*
 * bench/order.h - the order in which the programs of make bench read files.
 *
 * Shuffled, by a generator that nobody else uses or as torch does, and the names lie in memory as
 * they will be used: a program has just made the path that it opens. Anywhere else each of them
 * would be a cache miss of the benchmark's own, 0.1 us.
 */
#ifndef FB_BENCH_ORDER_H
#define FB_BENCH_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"

/* Puts the names, which malloc made, one behind the other. False: no memory. */
static inline bool fb_bench_pack(char **names, size_t count)
{
    size_t bytes = 0;
    char *at;

    for (size_t i = 0; i < count; i++)
        bytes += strlen(names[i]) + 1;
    at = malloc(bytes);
    for (size_t i = 0; at && i < count; i++) {
        size_t len = strlen(names[i]) + 1;

        memcpy(at, names[i], len);
        free(names[i]);
        names[i] = at;
        at += len;
    }
    return count == 0 || at;
}

/* Takes the names, which malloc made. The same seed gives the same order. False: no memory. */
static inline bool fb_bench_shuffle(char **names, size_t count, uint64_t seed)
{
    struct fb_rand r = {.state = seed};

    for (size_t i = count; i > 1; i--) {
        size_t j = (size_t)fb_rand_below(&r, i);
        char *name = names[i - 1];

        names[i - 1] = names[j];
        names[j] = name;
    }
    return fb_bench_pack(names, count);
}

#endif
