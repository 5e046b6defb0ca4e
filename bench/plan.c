/*
 * bench/plan.c - what the plan of a large data set costs in time and memory.
 *
 *     plan [--files N] [--dirs N]
 *
 * Names are like those of ImageNet-21k, the largest data set LCache was measured with (14.1 million
 * files; there under 15 s, about 10 GB). Names are taken in, paths made findable, this epoch and
 * the next worked out with the files of a chunk; then random paths are looked up to their chunk in
 * the next epoch, and the epoch is advanced.
 */
#include "epoch/plan.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/rand.h"
#include "common.h"
#include "core/clock.h"

#define LOOKUPS     1000000
#define CHUNK_BYTES (13300u << 10) /* the paper's mean */

/* Seconds of the clock, and of this process alone: other programs on the machine cost the first. */
struct spent {
    double wall_s;
    double cpu_s;
};

static double cpu_now_s(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* Since the last call. */
static struct spent lap(struct spent *last)
{
    struct spent now = {.wall_s = (double)fb_now_ns() / 1e9, .cpu_s = cpu_now_s()};
    struct spent lap = {now.wall_s - last->wall_s, now.cpu_s - last->cpu_s};

    *last = now;
    return lap;
}

static void print_spent(const char *name, struct spent s)
{
    printf("\"%s_s\": %.3f, \"%s_cpu_s\": %.3f, ", name, s.wall_s, name, s.cpu_s);
}

/* Faster than printf, which would cost more than what is measured. */
static char *put_number(char *end, uint32_t value, unsigned digits)
{
    for (; value || digits; value /= 10, digits -= digits > 0)
        *--end = (char)('0' + value % 10);
    return end;
}

static size_t file_name(char text[64], uint32_t dir, uint32_t number)
{
    static const char ending[] = ".JPEG";
    char *end = text + 64 - sizeof ending;
    char *begin = put_number(end, number, 1);

    memcpy(end, ending, sizeof ending);
    *--begin = '_';
    begin = put_number(begin, dir, 8);
    *--begin = 'n';
    memmove(text, begin, (size_t)(text + 64 - begin));
    return (size_t)(text + 64 - begin) - 1;
}

static struct fb_names *take_names(uint32_t files, uint32_t dirs)
{
    struct fb_names *names = fb_names_new();
    struct fb_rand rand = {1};
    char text[64];
    int rc = names ? 0 : -1;

    for (uint32_t i = 0, dir = 0; rc == 0 && i < files; i++) {
        if (i == (uint64_t)dir * files / dirs) {
            int len = snprintf(text, sizeof text, "n%08u", dir++ * 37);

            rc = fb_names_enter(names, text, (size_t)len);
        }
        if (rc == 0)
            rc = fb_names_add(names, text, file_name(text, (dir - 1) * 37, i % 40000),
                              10000 + fb_rand_below(&rand, 200000));
    }
    if (rc)
        fb_bench_die("out of memory for %u names", files);
    return names;
}

static double look_up(const struct fb_names *names, const struct fb_plan *plan)
{
    int64_t spent_ns = 0;
    struct fb_rand rand = {2};
    char path[FB_NAMES_PATH_SIZE];
    uint32_t wrong = 0;

    for (uint32_t i = 0; i < LOOKUPS; i++) {
        uint32_t file = (uint32_t)fb_rand_below(&rand, fb_names_count(names));
        size_t len = fb_names_path(names, file, path);
        int64_t start_ns = fb_now_ns();
        uint32_t found;
        uint64_t k;

        if (!fb_names_find(names, path, len, &found) || found != file ||
            !fb_plan_access(plan, fb_plan_next(plan), found, &k) ||
            fb_plan_chunk(fb_plan_next(plan), k) >= fb_plan_next(plan)->chunk_count)
            wrong++;
        spent_ns += fb_now_ns() - start_ns;
    }
    if (wrong)
        fb_bench_die("%u of %u paths were not found", wrong, LOOKUPS);
    return (double)spent_ns / LOOKUPS;
}

int main(int argc, char **argv)
{
    uint32_t files = (uint32_t)fb_bench_number(argc, argv, "files", 14100000);
    uint32_t dirs = (uint32_t)fb_bench_number(argc, argv, "dirs", 21841);
    struct fb_plan_spec spec = {.shuffle = {.sampler = fb_sampler_find("torch-distributed")},
                                .split = {.world = 1, .batch = 128, .workers = 16},
                                .chunk_bytes = CHUNK_BYTES};
    struct fb_error error = {""};
    struct spent last = {0}, taken, indexed, shuffled, advanced, all;
    struct fb_names *names;
    struct fb_plan *plan;
    struct rusage usage;
    double lookup_ns;

    lap(&last);
    names = take_names(files, dirs);
    taken = lap(&last);
    if (fb_names_index(names) != 0)
        fb_bench_die("out of memory for an index of %u names", files);
    indexed = lap(&last);
    if (fb_plan_new(&spec, names, &plan, &error) != 0)
        fb_bench_die("%s", error.text);
    shuffled = lap(&last);
    lookup_ns = look_up(names, plan);
    lap(&last);
    if (fb_plan_advance(plan) != 0)
        fb_bench_die("out of memory for the next epoch");
    advanced = lap(&last);
    all.wall_s = taken.wall_s + indexed.wall_s + shuffled.wall_s;
    all.cpu_s = taken.cpu_s + indexed.cpu_s + shuffled.cpu_s;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"files\": %u, \"chunks\": %u, ", files, fb_plan_next(plan)->chunk_count);
    print_spent("all", all);
    print_spent("names", taken);
    print_spent("index", indexed);
    print_spent("two_epochs", shuffled);
    print_spent("advance", advanced);
    printf("\"lookup_ns\": %.0f, \"peak_bytes\": %ld}\n", lookup_ns, usage.ru_maxrss * 1024L);
    fb_plan_free(plan);
    fb_names_free(names);
    return 0;
}
