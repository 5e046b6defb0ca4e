/*
 * forebay bench figures: IGTCache's smaller cases (sections 5.2 to 5.5), each a table and a plot.
 *
 *     figure-9   fetching ahead by itself: jobs alone, everything kept as LRU
 *     figure-10  keeping by itself: jobs alone, a cache of half of their data
 *     figure-11  a job is stopped: when another gets its space
 *     figure-12  four jobs share a cache; 13: their shares and what more of it would save
 *     figure-17  nodes of the tree against what it costs
 *     icoads     one file of each of 2,000 directories, with and without the vertical filter
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/rand.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/mem.h"
#include "sim/jobs_systems.h"
#include "sim/plot.h"

#define LINES_MAX   8
#define POINTS_MAX  200
#define SMALL_CACHE 750000000ULL /* a tenth of the paper's 7.5 GB */
#define FEEDS       200000

struct bench {
    struct fb_jobs_world *world; /* of the 18 jobs */
    struct fb_jobs_world *small; /* of the four */
    const char *dir;             /* NULL: no plots */
    uint64_t seed;
};

/* A plot in the making: some lines over the same x. */
struct figure {
    const char *name;
    const char *title;
    const char *x_label;
    const char *y_label;
    bool x_log;
    const char *line[LINES_MAX];
    size_t lines;
    size_t points;
    double x[POINTS_MAX];
    double y[LINES_MAX][POINTS_MAX];
};

static int draw(const struct bench *b, const struct figure *f)
{
    struct fb_plot_series series[LINES_MAX];
    struct fb_plot plot = {
        .title = f->title,
        .x_label = f->x_label,
        .y_label = f->y_label,
        .x_log = f->x_log,
        .y_from_0 = true,
        .series = series,
        .count = f->lines,
    };

    for (size_t i = 0; i < f->lines; i++)
        series[i] = (struct fb_plot_series){f->line[i], f->x, f->y[i], f->points};
    return b->dir ? cli_bench_plot(b->dir, f->name, &plot) : 0;
}

static size_t job_at(const struct fb_job_mix *mix, unsigned number)
{
    size_t i = 0;

    while (i + 1 < mix->job_count && mix->jobs[i].number != number)
        i++;
    return i;
}

/* The one job of the 18, from the start. */
static int run_alone(const struct bench *b, unsigned number, const struct fb_jobs_system *system,
                     uint64_t cache_bytes, double *ret_s, double *ret_hits)
{
    const struct fb_job_mix *mix = b->world->mix;
    FB_AUTO_FREE double *start_s = fb_alloc_array(mix->job_count, sizeof *start_s);
    struct fb_jobs_case the = {
        .world = b->world, .start_s = start_s, .cache_bytes = cache_bytes, .seed = b->seed};
    struct fb_jobs_outcome o;
    int rc;

    if (!start_s)
        return -ENOMEM;
    for (size_t i = 0; i < mix->job_count; i++)
        start_s[i] = mix->jobs[i].number == number ? 0 : -1;
    rc = fb_jobs_try(system, &the, &o);
    if (rc < 0)
        return rc;
    *ret_s = o.mean_s;
    *ret_hits = o.hit_ratio;
    fb_jobs_outcome_free(&o);
    return 0;
}

/* ---- one job, several systems ---- */

struct comparison {
    const char *name; /* of the figure */
    const char *title;
    const struct fb_jobs_system *systems; /* ended by a NULL name; ours is the last */
    const unsigned *jobs;
    size_t job_count;
    double share; /* of the job's data that the cache holds; 0: of all, as usual */
};

static int compare(const struct bench *b, const struct comparison *c)
{
    FB_AUTO_FREE struct figure *f = fb_alloc(sizeof *f);
    double hits = 0;
    int rc = f ? 0 : -ENOMEM;

    if (rc < 0)
        return rc;
    f->name = c->name;
    f->title = c->title;
    f->x_label = "job";
    f->y_label = "seconds";
    f->points = c->job_count;
    printf("%s\n%-26s", c->title, "job");
    for (; c->systems[f->lines].name; f->lines++) {
        f->line[f->lines] = c->systems[f->lines].name;
        printf(" %17s", c->systems[f->lines].name);
    }
    for (size_t j = 0; rc == 0 && j < c->job_count; j++) {
        const struct fb_job *job = &b->world->mix->jobs[job_at(b->world->mix, c->jobs[j])];
        uint64_t data = fb_jobs_set_bytes(b->world, job->phase[0].set);
        uint64_t cache =
            (uint64_t)(c->share > 0 ? c->share * (double)data : 0.35 * (double)b->world->bytes);

        f->x[j] = c->jobs[j];
        printf("\n%2u %-23.23s", job->number, job->name);
        for (size_t i = 0; rc == 0 && i < f->lines; i++) {
            rc = run_alone(b, job->number, &c->systems[i], cache, &f->y[i][j], &hits);
            printf(" %9.1f s %4.0f%%", f->y[i][j], hits * 100);
        }
    }
    printf("\n\n");
    return rc < 0 ? rc : draw(b, f);
}

static int figure_9(const struct bench *b)
{
    static const unsigned jobs[] = {1, 2, 3, 4, 5, 6, 8, 11};
    static const struct fb_jobs_system systems[] = {
        {.name = "none", .policy = "lru"},
        {.name = "stride", .policy = "lru", .ahead = FB_JOBS_AHEAD_STRIDE},
        {.name = "enhanced stride", .policy = "lru", .ahead = FB_JOBS_AHEAD_READAHEAD},
        {.name = "Markov", .policy = "lru", .ahead = FB_JOBS_AHEAD_MARKOV},
        {.name = "Forebay, depth 4",
         .is_brain = true,
         .no_keep = true,
         .no_ttl = true,
         .no_alloc = true,
         .depth = 4},
        {.name = "Forebay", .is_brain = true, .no_keep = true, .no_ttl = true, .no_alloc = true},
        {0},
    };
    static const struct comparison c = {.name = "figure-9",
                                        .title = "Fetching ahead by itself (paper: figure 9)",
                                        .systems = systems,
                                        .jobs = jobs,
                                        .job_count = FB_ARRAY_SIZE(jobs)};

    return compare(b, &c);
}

static int figure_10(const struct bench *b)
{
    static const unsigned jobs[] = {9, 13, 14, 16};
    static const struct fb_jobs_system systems[] = {
        {.name = "LRU", .policy = "lru"},
        {.name = "FIFO", .policy = "fifo"},
        {.name = "ARC", .policy = "arc"},
        {.name = "uniform", .policy = "uniform"},
        {.name = "Forebay",
         .is_brain = true,
         .no_prefetch = true,
         .no_ttl = true,
         .no_alloc = true,
         .no_readahead = true},
        {0},
    };
    static const struct comparison c = {
        .name = "figure-10",
        .title = "Keeping by itself, half of the data (paper: figure 10)",
        .systems = systems,
        .jobs = jobs,
        .job_count = FB_ARRAY_SIZE(jobs),
        .share = 0.5};

    return compare(b, &c);
}

static int icoads(const struct bench *b)
{
    static const unsigned jobs[] = {4};
    static const struct fb_jobs_system systems[] = {
        {.name = "none", .policy = "lru"},
        {.name = "no filter", .is_brain = true, .share = -1},
        {.name = "Forebay", .is_brain = true},
        {0},
    };
    static const struct comparison c = {
        .name = "icoads",
        .title = "One file of each directory (paper: -64.4%, 15.7 times as long unfiltered)",
        .systems = systems,
        .jobs = jobs,
        .job_count = FB_ARRAY_SIZE(jobs)};

    return compare(b, &c);
}

/* ---- a job ends ---- */

#define STOP_S   60
#define END_S    1000
#define STEP_S   20
#define OTHERS_S 600 /* JuiceFS's TTL in the paper */

struct pace {
    struct figure *figure;
    size_t line;
    uint64_t reads[2];
};

static void watch_pace(void *arg, struct fb_jobs_run *run, double now_s)
{
    struct pace *p = arg;
    struct figure *f = p->figure;
    size_t at = (size_t)(now_s / STEP_S);

    if (now_s < STEP_S || (uint64_t)now_s % STEP_S != 0 || at > POINTS_MAX)
        return;
    f->x[at - 1] = now_s;
    if (f->points < at)
        f->points = at;
    for (size_t j = 0; j < 2; j++) {
        uint64_t reads = fb_jobs_so_far(run, j)->reads;

        f->y[p->line + j][at - 1] = (double)(reads - p->reads[j]) / STEP_S;
        p->reads[j] = reads;
    }
}

static int figure_11(const struct bench *b)
{
    static const struct fb_jobs_system systems[] = {
        {.name = "adaptive", .is_brain = true},
        {.name = "600 s", .is_brain = true, .ttl_base_s = OTHERS_S},
    };
    FB_AUTO_FREE struct figure *f = fb_alloc(sizeof *f);
    double start_s[] = {0, 0, -1, -1}, stop_s[] = {STOP_S, END_S, -1, -1};
    int rc = f ? 0 : -ENOMEM;

    for (size_t i = 0; rc == 0 && i < FB_ARRAY_SIZE(systems); i++) {
        struct pace pace = {.figure = f, .line = 2 * i};
        struct fb_jobs_case the = {.world = b->small,
                                   .start_s = start_s,
                                   .stop_s = stop_s,
                                   .cache_bytes = SMALL_CACHE,
                                   .seed = b->seed,
                                   .watch = watch_pace,
                                   .watch_arg = &pace};
        struct fb_jobs_outcome o;

        rc = fb_jobs_try(&systems[i], &the, &o);
        if (rc == 0)
            fb_jobs_outcome_free(&o);
    }
    if (rc < 0)
        return rc;
    f->name = "figure-11";
    f->title = "Job 9 is stopped at 60 s (paper: figure 11)";
    f->x_label = "seconds";
    f->y_label = "reads a second";
    f->lines = 4;
    f->line[0] = "job 9, TTL adaptive";
    f->line[1] = "job 13, TTL adaptive";
    f->line[2] = "job 9, TTL 600 s";
    f->line[3] = "job 13, TTL 600 s";
    printf("%s\nreads a second of job 13:\n%8s %12s %12s\n", f->title, "s", "adaptive", "600 s");
    for (size_t i = 0; i < f->points; i += 2)
        printf("%8.0f %12.1f %12.1f\n", f->x[i], f->y[1][i], f->y[3][i]);
    putchar('\n');
    return draw(b, f);
}

/* ---- four jobs share ---- */

struct shares {
    struct fb_brain *brain;
    struct figure *quota;
    struct figure *benefit;
};

static void watch_shares(void *arg, struct fb_jobs_run *run, double now_s)
{
    struct shares *w = arg;
    const struct fb_job_mix *mix = fb_jobs_world_of(run)->mix;
    size_t at = (size_t)(now_s / STEP_S);

    if ((uint64_t)now_s % STEP_S != 0 || at >= POINTS_MAX || !w->brain)
        return;
    w->quota->x[at] = w->benefit->x[at] = now_s;
    w->quota->points = w->benefit->points = at + 1;
    for (uint32_t i = 1; i < FB_BRAIN_STREAMS; i++) {
        struct fb_brain_stream s;
        char path[64];

        if (!fb_brain_get(w->brain, i, &s) || !s.node)
            continue;
        fb_streams_path(fb_brain_streams(w->brain), s.node, path, sizeof path);
        for (size_t j = 0; j < mix->set_count; j++) {
            if (strcmp(path, mix->sets[j].path) == 0) {
                w->quota->y[j][at] = (double)s.quota_bytes / 1e6;
                w->benefit->y[j][at] = s.benefit;
            }
        }
    }
}

static void name_lines(struct figure *f, const char *name, const char *title, const char *y_label)
{
    static const char *const jobs[] = {"job 9", "job 13", "job 14", "job 16"};

    f->name = name;
    f->title = title;
    f->x_label = "seconds";
    f->y_label = y_label;
    f->lines = FB_ARRAY_SIZE(jobs);
    for (size_t i = 0; i < f->lines; i++)
        f->line[i] = jobs[i];
}

static int figure_12(const struct bench *b)
{
    static const struct fb_jobs_system systems[] = {
        {.name = "one LRU (JuiceFS)", .policy = "lru", .ahead = FB_JOBS_AHEAD_READAHEAD},
        {.name = "uniform", .policy = "uniform"},
        {.name = "Forebay, not divided", .is_brain = true, .no_alloc = true},
        {.name = "Forebay", .is_brain = true},
    };
    FB_AUTO_FREE struct figure *quota = fb_alloc(sizeof *quota);
    FB_AUTO_FREE struct figure *benefit = fb_alloc(sizeof *benefit);
    struct shares shares = {.quota = quota, .benefit = benefit};
    double start_s[4] = {0};
    int rc = quota && benefit ? 0 : -ENOMEM;

    printf("Four jobs share 0.75 GB (paper: figure 12, -7.5%% time, +10.1%% hits against the "
           "second best)\n%-22s %8s %8s %8s %8s %8s %7s\n",
           "", "job 9", "job 13", "job 14", "job 16", "mean s", "hits");
    for (size_t i = 0; rc == 0 && i < FB_ARRAY_SIZE(systems); i++) {
        bool is_last = i + 1 == FB_ARRAY_SIZE(systems);
        struct fb_jobs_case the = {.world = b->small,
                                   .start_s = start_s,
                                   .cache_bytes = SMALL_CACHE,
                                   .seed = b->seed,
                                   .watch = is_last ? watch_shares : NULL,
                                   .watch_arg = &shares,
                                   .ret_brain = is_last ? &shares.brain : NULL};
        struct fb_jobs_outcome o;

        rc = fb_jobs_try(&systems[i], &the, &o);
        if (rc < 0)
            break;
        printf("%-22s %8.0f %8.0f %8.0f %8.0f %8.1f %6.1f%%\n", systems[i].name, o.job[0].end_s,
               o.job[1].end_s, o.job[2].end_s, o.job[3].end_s, o.mean_s, o.hit_ratio * 100);
        fb_jobs_outcome_free(&o);
    }
    putchar('\n');
    if (rc < 0)
        return rc;
    name_lines(quota, "figure-13-shares", "Shares of four jobs (paper: figure 13)", "MB");
    name_lines(benefit, "figure-13-benefit", "What more space would save (paper: figure 13)",
               "benefit, 1/s, weighed");
    rc = draw(b, quota);
    return rc ? rc : draw(b, benefit);
}

/* ---- nodes ---- */

/* Of CPU time: others may use the machine. */
static int64_t cpu_ns(void)
{
    struct timespec at;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return at.tv_sec * FB_NS_PER_S + at.tv_nsec;
}

/* Nanoseconds of a feed, files at random in as many directories as there are nodes, and bytes. */
static int feed_cost(uint32_t nodes, double *ret_ns, double *ret_bytes)
{
    struct fb_streams_config config = {.nodes_max = nodes};
    struct fb_rand rand = {nodes};
    struct fb_streams *streams;
    int rc = fb_streams_new(&config, &streams);
    int64_t begun_ns = 0;

    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < 2 * FEEDS; i++) {
        char path[64];
        int len =
            snprintf(path, sizeof path, "set/%05u/%03u", (uint32_t)fb_rand_below(&rand, nodes - 4),
                     (uint32_t)fb_rand_below(&rand, 1000));
        struct fb_fact fact = {.time_ns = i * 1000LL,
                               .path = path,
                               .path_len = (uint32_t)len,
                               .pid = 1,
                               .position = FB_POSITION_UNKNOWN};

        if (i == FEEDS)
            begun_ns = cpu_ns();
        fb_streams_feed(streams, &fact, NULL);
    }
    /* The printing of names is in it. */
    *ret_ns = (double)(cpu_ns() - begun_ns) / FEEDS;
    *ret_bytes = (double)fb_streams_bytes(streams);
    fb_streams_free(streams);
    return 0;
}

static int figure_17(const struct bench *b)
{
    static const uint32_t nodes[] = {64, 256, 1000, 4000, 10000};
    const struct fb_job_mix *mix = b->world->mix;
    FB_AUTO_FREE double *start_s = fb_alloc_array(mix->job_count, sizeof *start_s);
    FB_AUTO_FREE struct figure *f = fb_alloc(sizeof *f);
    int rc = f && start_s ? 0 : -ENOMEM;

    if (rc < 0)
        return rc;
    fb_job_arrivals(mix, b->seed, start_s);
    printf("Nodes of the tree (paper: figure 17; 47.6 us and 73.2 MB at 10,000)\n%8s %14s %14s "
           "%14s\n",
           "nodes", "ns an access", "MB", "mix, mean s");
    for (size_t i = 0; rc == 0 && i < FB_ARRAY_SIZE(nodes); i++) {
        struct fb_jobs_system system = fb_jobs_forebay;
        struct fb_jobs_case the = {.world = b->world,
                                   .start_s = start_s,
                                   .cache_bytes = (uint64_t)(0.35 * (double)b->world->bytes),
                                   .seed = b->seed};
        struct fb_jobs_outcome o = {0};
        double bytes = 0;

        system.nodes_max = nodes[i];
        rc = feed_cost(nodes[i], &f->y[0][i], &bytes);
        if (rc == 0)
            rc = fb_jobs_try(&system, &the, &o);
        if (rc < 0)
            break;
        f->x[i] = nodes[i];
        f->y[1][i] = o.mean_s;
        printf("%8u %14.0f %14.2f %14.1f\n", nodes[i], f->y[0][i], bytes / 1e6, o.mean_s);
        fb_jobs_outcome_free(&o);
    }
    f->name = "figure-17";
    f->title = "Nodes of the tree (paper: figure 17)";
    f->x_label = "nodes";
    f->y_label = "ns an access; seconds";
    f->x_log = true;
    f->points = FB_ARRAY_SIZE(nodes);
    f->lines = 2;
    f->line[0] = "ns an access";
    f->line[1] = "mean completion, s";
    putchar('\n');
    return rc < 0 ? rc : draw(b, f);
}

int cli_bench_figures(const struct cli_bench_options *options)
{
    static int (*const cases[])(const struct bench *) = {figure_9,  figure_10, figure_11,
                                                         figure_12, icoads,    figure_17};
    struct bench b = {.dir = options->figures, .seed = options->random};
    int rc = fb_jobs_world_new(&fb_job_mix_18, &b.world);

    if (rc == 0)
        rc = fb_jobs_world_new(&fb_job_mix_4, &b.small);
    for (size_t i = 0; rc == 0 && i < FB_ARRAY_SIZE(cases); i++) {
        rc = cases[i](&b);
        fflush(stdout);
    }
    fb_jobs_world_free(b.world);
    fb_jobs_world_free(b.small);
    return rc < 0 ? cli_fail(CLI_FAILED, "%s", fb_strerror(rc)) : CLI_OK;
}
