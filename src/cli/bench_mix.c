/*
 * forebay bench mix: the 18 jobs through each kind of cache (sim/jobs_systems.h).
 *
 * Every system runs the same jobs, arriving at the same times, reading in the same orders. A job's
 * time is from its arrival to its end. The hit ratio is the share of reads that found their item
 * in the cache, complete; one that is still on its way counts as a miss.
 */
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "core/error.h"
#include "core/mem.h"
#include "core/thread.h"
#include "sim/jobs_systems.h"
#include "sim/plot.h"

#define SYSTEMS_MAX 24
#define SIZES       10 /* 10% to 100% */
#define THREADS     4

static const struct {
    const char *name;
    double share;
} paper[] = {{"mean time against block LRU", -0.522}, {"hit ratio against block LRU", 0.556}};

struct mix {
    struct fb_jobs_world *world;
    double *start_s;
    double size;
    uint64_t seed;
    size_t systems;
    struct fb_jobs_outcome outcome[SYSTEMS_MAX];
    size_t base;    /* block LRU's place */
    size_t forebay; /* Forebay's */
};

static void free_mix(struct mix *m)
{
    for (size_t i = 0; i < m->systems; i++)
        fb_jobs_outcome_free(&m->outcome[i]);
    fb_jobs_world_free(m->world);
    free(m->start_s);
}

/* Jobs that are not in the list do not come. */
static int choose_jobs(struct mix *m, const char *list)
{
    const struct fb_job_mix *mix = m->world->mix;
    unsigned found = 0, asked = 1;

    for (const char *c = list; *c; c++)
        asked += *c == ',';
    for (size_t i = 0; i < mix->job_count; i++) {
        bool is_in = false;
        const char *at = list;

        while (at) {
            char *end;

            is_in = is_in || strtoul(at, &end, 10) == mix->jobs[i].number;
            at = strchr(at, ',');
            at = at ? at + 1 : NULL;
        }
        found += is_in;
        if (!is_in)
            m->start_s[i] = -1;
    }
    return found == asked ? 0 : -EINVAL;
}

/* ---- runs, several at a time ---- */

struct run {
    const struct fb_jobs_system *system;
    double size;
    struct fb_jobs_outcome outcome; /* job is NULL when it did not succeed */
};

struct runs {
    const struct mix *mix;
    struct run *run;
    size_t count;
    atomic_size_t next;
    atomic_int error;
};

static void *work(void *arg)
{
    struct runs *r = arg;

    for (;;) {
        /* Relaxed: runs share only the mix, which nobody changes; joining orders the rest. */
        size_t i = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed);
        struct fb_jobs_case the = {
            .world = r->mix->world, .start_s = r->mix->start_s, .seed = r->mix->seed};
        int rc;

        if (i >= r->count)
            return NULL;
        the.cache_bytes = (uint64_t)(r->run[i].size * (double)r->mix->world->bytes);
        rc = fb_jobs_try(r->run[i].system, &the, &r->run[i].outcome);
        if (rc < 0)
            atomic_store_explicit(&r->error, rc, memory_order_relaxed);
    }
}

static int run_all(const struct mix *m, struct run *run, size_t count)
{
    struct runs r = {.mix = m, .run = run, .count = count};
    pthread_t thread[THREADS];
    unsigned started = 0;
    int rc = 0;

    while (rc == 0 && started < THREADS) {
        rc = fb_thread_start(&thread[started], "forebay-mix", work, &r);
        started += rc == 0;
    }
    for (unsigned i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    return rc < 0 ? rc : atomic_load_explicit(&r.error, memory_order_relaxed);
}

/* All systems at one size. */
static int run_systems(struct mix *m)
{
    struct run run[SYSTEMS_MAX] = {0};
    int rc;

    for (; fb_jobs_systems[m->systems].name; m->systems++) {
        const struct fb_jobs_system *system = &fb_jobs_systems[m->systems];

        FB_ASSERT(m->systems < SYSTEMS_MAX);
        run[m->systems] = (struct run){.system = system, .size = m->size};
        if (strcmp(system->name, fb_jobs_block_lru.name) == 0)
            m->base = m->systems;
        if (strcmp(system->name, fb_jobs_forebay.name) == 0)
            m->forebay = m->systems;
    }
    rc = run_all(m, run, m->systems);
    for (size_t i = 0; i < m->systems; i++)
        m->outcome[i] = run[i].outcome;
    return rc;
}

static double took(const struct mix *m, size_t system, size_t job)
{
    const struct fb_jobs_result *r = &m->outcome[system].job[job];

    return r->end_s - r->start_s;
}

static double hits(const struct mix *m, size_t system, size_t job)
{
    const struct fb_jobs_result *r = &m->outcome[system].job[job];

    return r->reads ? (double)r->hits / (double)r->reads : 0;
}

/* How much longer the job that suffers most takes than with block LRU. */
static double worst(const struct mix *m, size_t system, size_t *ret_job)
{
    double most = -1;

    *ret_job = 0;
    for (size_t j = 0; j < m->world->mix->job_count; j++) {
        double more = m->start_s[j] < 0 ? -1 : took(m, system, j) / took(m, m->base, j) - 1;

        if (more > most) {
            most = more;
            *ret_job = j;
        }
    }
    return most;
}

static double against(double value, double base)
{
    return base > 0 ? 100 * (value / base - 1) : 0;
}

static void print_tables(const struct mix *m)
{
    const struct fb_job_mix *mix = m->world->mix;
    const struct fb_jobs_outcome *base = &m->outcome[m->base], *ours = &m->outcome[m->forebay];

    printf("%.1f GB in %u files; a cache of %.0f%%\n\n", (double)m->world->bytes / 1e9,
           m->world->file_count, m->size * 100);
    printf("%-18s %10s %9s %9s %10s  %s\n", "", "mean s", "", "hits", "fetched GB",
           "slowest against block LRU");
    for (size_t i = 0; i < m->systems; i++) {
        const struct fb_jobs_outcome *o = &m->outcome[i];
        size_t job;
        double more = worst(m, i, &job);

        printf("%-18s %10.1f %+8.1f%% %8.1f%% %10.1f  %+.1f%%, job %u\n", fb_jobs_systems[i].name,
               o->mean_s, against(o->mean_s, base->mean_s), o->hit_ratio * 100,
               (double)o->totals.fetched_bytes / 1e9, more * 100, mix->jobs[job].number);
    }
    printf("\n%-34s %8s %8s %9s %9s %8s %8s\n", "job", "arrives", "no cache", "block LRU",
           "Forebay", "", "hits");
    for (size_t j = 0; j < mix->job_count; j++) {
        if (m->start_s[j] < 0)
            continue;
        printf("%2u %-31s %8.0f %8.1f %9.1f %9.1f %+7.1f%% %3.0f%% %3.0f%%\n", mix->jobs[j].number,
               mix->jobs[j].name, m->start_s[j], took(m, 0, j), took(m, m->base, j),
               took(m, m->forebay, j), against(took(m, m->forebay, j), took(m, m->base, j)),
               hits(m, m->base, j) * 100, hits(m, m->forebay, j) * 100);
    }
    printf("\n%-34s %8s %8s\n", "", "paper", "here");
    printf("%-34s %+7.1f%% %+7.1f%%\n", paper[0].name, paper[0].share * 100,
           against(ours->mean_s, base->mean_s));
    printf("%-34s %+7.1f%% %+7.1f%%\n", paper[1].name, paper[1].share * 100,
           against(ours->hit_ratio, base->hit_ratio));
}

static json_t *system_json(const struct mix *m, size_t i)
{
    const struct fb_jobs_outcome *o = &m->outcome[i];
    json_t *jobs = json_array();
    size_t job;
    double more = worst(m, i, &job);

    for (size_t j = 0; j < m->world->mix->job_count; j++) {
        if (m->start_s[j] >= 0)
            json_array_append_new(
                jobs, json_pack("{s:i, s:s, s:f, s:f, s:f, s:I, s:I}", "job",
                                (int)m->world->mix->jobs[j].number, "name",
                                m->world->mix->jobs[j].name, "arrives_s", m->start_s[j],
                                "completion_s", took(m, i, j), "hit_ratio", hits(m, i, j), "reads",
                                (json_int_t)o->job[j].reads, "late", (json_int_t)o->job[j].late));
    }
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:I, s:I, s:o}", "system", fb_jobs_systems[i].name,
                     "summary", fb_jobs_systems[i].summary, "mean_completion_s", o->mean_s,
                     "hit_ratio", o->hit_ratio, "worst_against_block_lru", more, "fetched_bytes",
                     (json_int_t)o->totals.fetched_bytes, "ahead_bytes",
                     (json_int_t)o->totals.ahead_bytes, "jobs", jobs);
}

static int print_json(const struct mix *m)
{
    json_t *systems = json_array(), *object;

    for (size_t i = 0; i < m->systems; i++)
        json_array_append_new(systems, system_json(m, i));
    object = json_pack("{s:I, s:f, s:o}", "data_bytes", (json_int_t)m->world->bytes, "cache_share",
                       m->size, "systems", systems);
    if (!object)
        return cli_fail(CLI_FAILED, "the results cannot be written as JSON");
    json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    fputc('\n', stdout);
    json_decref(object);
    return CLI_OK;
}

/* ---- figures ---- */

int cli_bench_plot(const char *dir, const char *name, const struct fb_plot *plot)
{
    FB_AUTO_FREE char *path = fb_asprintf("%s/%s.svg", dir, name);
    FILE *out = path ? fopen(path, "we") : NULL;
    int rc = 0;

    if (!out)
        return path ? -errno : -ENOMEM;
    fb_plot_svg(out, plot);
    if (ferror(out))
        rc = -EIO;
    if (fclose(out) != 0 && rc == 0)
        rc = -errno;
    return rc;
}

static int sweep(const struct mix *m, const char *dir)
{
    static const char *const names[] = {"block LRU", "uniform", "Forebay"};

    enum {
        LINES = FB_ARRAY_SIZE(names)
    };

    double x[SIZES], time[LINES][SIZES], ratio[LINES][SIZES];
    struct fb_plot_series times[LINES], ratios[LINES];
    struct fb_plot plot = {.title = "The 18 jobs: mean completion time by cache size",
                           .x_label = "cache, % of the data",
                           .y_label = "seconds",
                           .y_from_0 = true,
                           .series = times,
                           .count = LINES};
    struct run run[LINES * SIZES];
    int rc;

    for (size_t k = 0; k < LINES; k++) {
        const struct fb_jobs_system *system = fb_jobs_systems;

        while (strcmp(system->name, names[k]) != 0)
            system++;
        for (size_t i = 0; i < SIZES; i++)
            run[k * SIZES + i] = (struct run){.system = system, .size = (double)(i + 1) / SIZES};
    }
    rc = run_all(m, run, LINES * SIZES);
    for (size_t i = 0; i < LINES * SIZES; i++) {
        x[i % SIZES] = run[i].size * 100;
        time[i / SIZES][i % SIZES] = run[i].outcome.mean_s;
        ratio[i / SIZES][i % SIZES] = run[i].outcome.hit_ratio * 100;
        fb_jobs_outcome_free(&run[i].outcome);
    }
    if (rc < 0)
        return rc;
    for (size_t k = 0; k < LINES; k++) {
        times[k] = (struct fb_plot_series){names[k], x, time[k], SIZES};
        ratios[k] = (struct fb_plot_series){names[k], x, ratio[k], SIZES};
    }
    rc = cli_bench_plot(dir, "mix-time", &plot);
    plot.title = "The 18 jobs: hit ratio by cache size";
    plot.y_label = "% of reads";
    plot.series = ratios;
    printf("\n%-12s", "cache");
    for (size_t i = 0; i < SIZES; i++)
        printf(" %13.0f%%", x[i]);
    for (size_t k = 0; k < LINES; k++) {
        printf("\n%-12s", names[k]);
        for (size_t i = 0; i < SIZES; i++)
            printf(" %7.0f %5.1f%%", time[k][i], ratio[k][i]);
    }
    putchar('\n');
    return rc ? rc : cli_bench_plot(dir, "mix-hits", &plot);
}

int cli_bench_mix(const struct cli_bench_options *options)
{
    struct mix m = {.size = options->size, .seed = options->random};
    int rc = fb_jobs_world_new(&fb_job_mix_18, &m.world);
    int status = CLI_OK;

    if (rc == 0) {
        m.start_s = fb_alloc_array(fb_job_mix_18.job_count, sizeof *m.start_s);
        rc = m.start_s ? 0 : -ENOMEM;
    }
    if (rc == 0) {
        fb_job_arrivals(&fb_job_mix_18, m.seed, m.start_s);
        if (options->jobs && choose_jobs(&m, options->jobs) < 0) {
            free_mix(&m);
            return cli_usage(&cli_bench, "--jobs: write numbers from 1 to 18, such as 2,4");
        }
        rc = run_systems(&m);
    }
    if (rc == 0 && options->json)
        status = print_json(&m);
    else if (rc == 0)
        print_tables(&m);
    if (rc == 0 && options->figures)
        rc = sweep(&m, options->figures);
    free_mix(&m);
    return rc < 0 ? cli_fail(CLI_FAILED, "%s", fb_strerror(rc)) : status;
}
