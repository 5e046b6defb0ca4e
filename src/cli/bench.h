/*
 * cli/bench.h - `forebay bench NAME`: measurements that need no daemon.
 *
 * A bench is a row of a table in cmd_bench.c; its flags are rows of another there, in a group of
 * its own.
 */
#ifndef FB_CLI_BENCH_H
#define FB_CLI_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cli_bench_options {
    uint64_t random;
    uint64_t trials;
    uint64_t alone;
    uint64_t streams;
    uint64_t each;
    char *figures;
    double size;
    char *jobs;
    char *cache;
    bool json;
    char **name; /* what follows the bench's own name */
    size_t names;
};

struct fb_plot;

/* Each writes what it finds to standard output and returns an exit status. */
int cli_bench_seeds(const struct cli_bench_options *options);
int cli_bench_patterns(const struct cli_bench_options *options);
int cli_bench_glcache(const struct cli_bench_options *options);
int cli_bench_mix(const struct cli_bench_options *options);
int cli_bench_figures(const struct cli_bench_options *options);

/* DIR/NAME.svg; a sentence on standard error when it cannot be written. */
int cli_bench_plot(const char *dir, const char *name, const struct fb_plot *plot);

#endif
