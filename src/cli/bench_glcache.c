/*
 * forebay bench glcache: what GL-Cache's settings are worth on traces, as in its paper (figures 2
 * and 9 to 13).
 *
 * A trace is replayed through a cache of each setting at the same time, with three seeds, since
 * which groups are sampled is luck: all results are means. One setting is varied at a time, from
 * those of GL-Cache-E. Hits are told as the paper does: how much the hit ratio is above FIFO's, as
 * a share of FIFO's; speed as a share of FIFO's requests a second.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "cli/bench.h"
#include "cli/cli.h"
#include "core/mem.h"
#include "sim/alike.h"
#include "sim/plot.h"
#include "sim/spec.h"

#define TRACES_MAX   16
#define SEEDS        3
#define SETTINGS_MAX 16
#define MEANS_MAX    60
#define MEANS_GROUP  100 /* objects, as in the paper's figure 2b */

/* ---- what is tried ---- */

enum {
    SWEEP_OTHERS, /* FIFO first: all is told in parts of it */
    SWEEP_GROUP,
    SWEEP_EVICT,
    SWEEP_MERGE,
    SWEEP_INTERVAL,
    SWEEP_FEATURES,
    SWEEP_GROUPING,
    SWEEPS,
};

struct setting {
    const char *name;
    const char *policy;
    double x; /* in figures; 0: it is in none */
};

static const struct sweep {
    const char *name;
    const char *title;
    const char *x_label; /* NULL: bars */
    struct setting setting[SETTINGS_MAX];
} sweeps[SWEEPS] = {
    [SWEEP_OTHERS] = {"others",
                      "Policies",
                      NULL,
                      {{"FIFO", "fifo", 0},
                       {"LRU", "lru", 0},
                       {"Segcache", "segcache", 0},
                       {"S3-FIFO", "s3fifo", 0},
                       {"LeCaR", "lecar", 0},
                       {"Cacheus", "cacheus", 0},
                       {"LHD", "lhd", 0},
                       {"LRB", "lrb", 0},
                       {"GL-Cache-E", "glcache-e", 0},
                       {"GL-Cache-T", "glcache-t", 0},
                       {"learned", "learned", 0},
                       {"oracle", "glcache-oracle", 0}}},
    [SWEEP_GROUP] = {"group",
                     "Group size",
                     "objects in a group",
                     {{"1", "glcache-e:group=1", 1},
                      {"5", "glcache-e:group=5", 5},
                      {"20", "glcache-e:group=20", 20},
                      {"60", "glcache-e:group=60", 60},
                      {"200", "glcache-e:group=200", 200},
                      {"600", "glcache-e:group=600", 600},
                      {"1600", "glcache-e:group=1600", 1600}}},
    [SWEEP_EVICT] = {"evict",
                     "Share of groups evicted by one ranking",
                     "share of groups",
                     {{"0.005", "glcache-e:evict=0.005", 0.005},
                      {"0.01", "glcache-e:evict=0.01", 0.01},
                      {"0.02", "glcache-e:evict=0.02", 0.02},
                      {"0.05", "glcache-e:evict=0.05", 0.05},
                      {"0.1", "glcache-e:evict=0.1", 0.1},
                      {"0.2", "glcache-e:evict=0.2", 0.2},
                      {"0.4", "glcache-e:evict=0.4", 0.4}}},
    [SWEEP_MERGE] = {"merge",
                     "Groups that become one",
                     "groups merged",
                     {{"2", "glcache-e:merge=2", 2},
                      {"3", "glcache-e:merge=3", 3},
                      {"5", "glcache-e:merge=5", 5},
                      {"10", "glcache-e:merge=10", 10},
                      {"20", "glcache-e:merge=20", 20}}},
    [SWEEP_INTERVAL] = {"interval",
                        "Interval of training",
                        "turnovers of the cache",
                        {{"0.125", "glcache-e:interval=0.125", 0.125},
                         {"0.25", "glcache-e:interval=0.25", 0.25},
                         {"0.5", "glcache-e:interval=0.5", 0.5},
                         {"1", "glcache-e:interval=1", 1},
                         {"2", "glcache-e:interval=2", 2},
                         {"4", "glcache-e:interval=4", 4},
                         {"8", "glcache-e:interval=8", 8},
                         {"never", "glcache-e:interval=1000", 0}}},
    [SWEEP_FEATURES] = {"features",
                        "Features",
                        NULL,
                        {{"requests alone", "glcache-e:features=32", 0},
                         {"requests, age", "glcache-e:features=48", 0},
                         {"requests, age, size", "glcache-e:features=56", 0},
                         {"all", "glcache-e:features=127", 0},
                         {"without request rate", "glcache-e:features=126", 0},
                         {"without write rate", "glcache-e:features=125", 0},
                         {"without miss ratio", "glcache-e:features=123", 0},
                         {"without size", "glcache-e:features=119", 0},
                         {"without age", "glcache-e:features=111", 0},
                         {"without requests", "glcache-e:features=95", 0},
                         {"without objects requested", "glcache-e:features=63", 0}}},
    [SWEEP_GROUPING] = {"grouping",
                        "Groups by",
                        NULL,
                        {{"time of writing", "glcache-e:grouping=0", 0},
                         {"lot", "glcache-e:grouping=1", 0},
                         {"size", "glcache-e:grouping=2", 0}}},
};

static const char *const orders[FB_SIM_ORDERS] = {"time of writing", "lot", "size"};
static const double alike_groups[] = {10, 30, 100, 300, 1000, 3000};
#define N_ALIKE FB_ARRAY_SIZE(alike_groups)

static size_t settings_of(const struct sweep *sweep)
{
    size_t n = 0;

    while (n < SETTINGS_MAX && sweep->setting[n].name)
        n++;
    return n;
}

/* ---- what comes of it ---- */

struct result {
    double miss_ratio;
    double gain;  /* of the hit ratio, over FIFO's */
    double speed; /* of FIFO's */
};

struct outcome {
    char name[64];
    struct fb_sim_facts facts;
    uint64_t capacity;
    struct result result[SWEEPS][SETTINGS_MAX];
    double
        importance[FB_SIM_FIGURES_MAX]; /* of GL-Cache-E's features, in the order of its figures */
    double spread[FB_SIM_ORDERS][N_ALIKE];
    double mean[MEANS_MAX]; /* of groups in turn, over the mean of all */
    size_t means;
};

struct bench {
    const struct cli_bench_options *options;
    size_t traces;
    struct outcome outcome[TRACES_MAX];
    struct fb_sim_figure figure[FB_SIM_FIGURES_MAX]; /* their names */
    size_t figures;
};

/* ---- one trace ---- */

static void name_trace(const char *path, char ret_name[64])
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;

    snprintf(ret_name, 64, "%.*s", (int)strcspn(base, "."), base);
}

/* All settings of all sweeps, one after the other. */
static int make_runs(struct fb_sim_run **ret_runs, size_t *ret_count)
{
    struct fb_sim_run *runs = fb_alloc_array((size_t)SWEEPS * SETTINGS_MAX, sizeof *runs);
    size_t count = 0;

    if (!runs)
        return -ENOMEM;
    for (size_t s = 0; s < SWEEPS; s++) {
        for (size_t i = 0; i < settings_of(&sweeps[s]); i++) {
            struct fb_sim_choice *choice;
            struct fb_error err;
            size_t one;
            int rc = fb_sim_parse_policies(sweeps[s].setting[i].policy, &choice, &one, &err);

            if (rc) {
                free(runs);
                return rc;
            }
            runs[count].policy = choice->policy;
            memcpy(runs[count++].param, choice->param, sizeof choice->param);
            fb_sim_free_policies(choice, one);
        }
    }
    *ret_runs = runs;
    *ret_count = count;
    return 0;
}

/* Adds one seed's share to the means. */
static void take_results(struct bench *b, struct outcome *o, const struct fb_sim_run *run,
                         double map_s)
{
    const struct fb_sim_run *fifo = run;

    for (size_t s = 0; s < SWEEPS; s++) {
        for (size_t i = 0; i < settings_of(&sweeps[s]); i++, run++) {
            struct result *r = &o->result[s][i];
            double gain = (fifo->miss_ratio - run->miss_ratio) / (1 - fifo->miss_ratio);

            r->miss_ratio += run->miss_ratio / SEEDS;
            r->gain += gain / SEEDS;
            r->speed += (fifo->replay_s + map_s) / (run->replay_s + map_s) / SEEDS;
            if (strcmp(sweeps[s].setting[i].policy, "glcache-e") != 0)
                continue;
            memcpy(b->figure, run->figure, sizeof b->figure);
            b->figures = run->figures;
            for (size_t k = 0; k < run->figures; k++)
                o->importance[k] += run->figure[k].value / SEEDS;
        }
    }
}

static int replay_once(struct bench *b, struct fb_trace *trace, uint64_t seed,
                       const struct fb_sim_size *size, struct outcome *o, struct fb_error *err)
{
    const struct fb_sim_options options = {.seed = seed};
    FB_AUTO_FREE struct fb_sim_run *runs = NULL;
    struct fb_sim *sim;
    size_t count;
    int rc = make_runs(&runs, &count);

    if (!rc)
        rc = fb_sim_create(trace, &options, &sim);
    if (rc)
        return rc;
    rc = fb_sim_scan(sim, true, err);
    o->facts = *fb_sim_facts(sim);
    o->capacity = fb_sim_size_of(size, o->facts.footprint);
    for (size_t i = 0; i < count; i++)
        runs[i].capacity = o->capacity;
    if (!rc)
        rc = fb_sim_replay(sim, runs, count, 0, err);
    if (!rc)
        take_results(b, o, runs, fb_sim_map_s(sim));
    fb_sim_destroy(sim);
    return rc ? rc : fb_trace_rewind(trace, err);
}

static int replay_settings(struct bench *b, struct fb_trace *trace, const struct fb_sim_size *size,
                           struct outcome *o, struct fb_error *err)
{
    int rc = 0;

    for (unsigned i = 0; i < SEEDS && !rc; i++)
        rc = replay_once(b, trace, b->options->random + i, size, o, err);
    return rc;
}

static int compare_objects(struct bench *b, struct fb_trace *trace, struct outcome *o,
                           struct fb_error *err)
{
    struct fb_sim_alike *alike;
    int rc = fb_sim_alike_create(trace, b->options->random, &alike, err);

    if (rc)
        return rc;
    for (unsigned order = 0; order < FB_SIM_ORDERS; order++) {
        for (size_t i = 0; i < N_ALIKE; i++)
            o->spread[order][i] =
                fb_sim_alike_spread(alike, (enum fb_sim_order)order, (size_t)alike_groups[i]);
    }
    o->means = fb_sim_alike_means(alike, MEANS_GROUP, o->mean, MEANS_MAX);
    fb_sim_alike_destroy(alike);
    return 0;
}

static int try_trace(struct bench *b, const char *path, const struct fb_sim_size *size,
                     struct fb_error *err)
{
    const struct fb_trace_options options = {.again = true};
    struct outcome *o = &b->outcome[b->traces];
    struct fb_trace *trace;
    int rc = fb_trace_open(path, &options, &trace, err);

    if (rc)
        return rc;
    name_trace(path, o->name);
    rc = compare_objects(b, trace, o, err);
    if (!rc)
        rc = replay_settings(b, trace, size, o, err);
    fb_trace_close(trace);
    if (!rc)
        b->traces++;
    return rc;
}

/* ---- tables ---- */

static void table_head(const struct bench *b, const char *title, bool speed)
{
    printf("\n| %s |", title);
    for (size_t t = 0; t < b->traces; t++)
        printf(" %s |", b->outcome[t].name);
    printf(" mean |%s\n| --- |", speed ? " speed |" : "");
    for (size_t t = 0; t < b->traces + 1 + speed; t++)
        printf(" --- |");
    putchar('\n');
}

/* Means over the traces: of gains, and of the logarithm of speeds. */
static struct result mean_of(const struct bench *b, size_t s, size_t i)
{
    struct result mean = {0};

    for (size_t t = 0; t < b->traces; t++) {
        const struct result *r = &b->outcome[t].result[s][i];

        mean.miss_ratio += r->miss_ratio / (double)b->traces;
        mean.gain += r->gain / (double)b->traces;
        mean.speed += log(r->speed) / (double)b->traces;
    }
    mean.speed = exp(mean.speed);
    return mean;
}

static void print_sweep(const struct bench *b, size_t s)
{
    table_head(b, sweeps[s].title, true);
    for (size_t i = 0; i < settings_of(&sweeps[s]); i++) {
        struct result mean = mean_of(b, s, i);

        printf("| %s |", sweeps[s].setting[i].name);
        for (size_t t = 0; t < b->traces; t++)
            printf(" %+.1f%% |", 100 * b->outcome[t].result[s][i].gain);
        printf(" %+.1f%% | %.2f |\n", 100 * mean.gain, mean.speed);
    }
}

static void print_importance(const struct bench *b)
{
    table_head(b, "Importance", false);
    for (size_t k = 0; k < b->figures; k++) {
        double mean = 0;

        printf("| %s |", b->figure[k].name);
        for (size_t t = 0; t < b->traces; t++) {
            printf(" %.2f |", b->outcome[t].importance[k]);
            mean += b->outcome[t].importance[k] / (double)b->traces;
        }
        printf(" %.2f |\n", mean);
    }
}

static void print_spread(const struct bench *b)
{
    table_head(b, "Spread of a group's reuse times, by group size and grouping", false);
    for (size_t i = 0; i < N_ALIKE; i++) {
        for (unsigned order = 0; order < FB_SIM_ORDERS; order++) {
            double mean = 0;

            printf("| %g by %s |", alike_groups[i], orders[order]);
            for (size_t t = 0; t < b->traces; t++) {
                printf(" %.2f |", b->outcome[t].spread[order][i]);
                mean += b->outcome[t].spread[order][i] / (double)b->traces;
            }
            printf(" %.2f |\n", mean);
        }
    }
}

static void print_tables(const struct bench *b)
{
    for (size_t t = 0; t < b->traces; t++) {
        const struct outcome *o = &b->outcome[t];

        printf("%s: %llu requests, %llu objects, cache of %llu bytes, FIFO misses %.4f\n", o->name,
               (unsigned long long)o->facts.requests, (unsigned long long)o->facts.objects,
               (unsigned long long)o->capacity, o->result[SWEEP_OTHERS][0].miss_ratio);
    }
    for (size_t s = 0; s < SWEEPS; s++)
        print_sweep(b, s);
    print_importance(b);
    print_spread(b);
}

/* ---- JSON ---- */

static json_t *sweep_json(const struct outcome *o, size_t s)
{
    json_t *array = json_array();

    for (size_t i = 0; i < settings_of(&sweeps[s]); i++) {
        const struct result *r = &o->result[s][i];

        json_array_append_new(
            array, json_pack("{s:s, s:s, s:f, s:f, s:f}", "setting", sweeps[s].setting[i].name,
                             "policy", sweeps[s].setting[i].policy, "miss_ratio", r->miss_ratio,
                             "hit_gain_over_fifo", r->gain, "speed_of_fifo", r->speed));
    }
    return array;
}

static json_t *trace_json(const struct bench *b, const struct outcome *o)
{
    json_t *object = json_pack("{s:s, s:I, s:I, s:I}", "trace", o->name, "requests",
                               (json_int_t)o->facts.requests, "objects",
                               (json_int_t)o->facts.objects, "size_bytes", (json_int_t)o->capacity);
    json_t *importance = json_object();
    json_t *spread = json_object();

    for (size_t s = 0; s < SWEEPS; s++)
        json_object_set_new(object, sweeps[s].name, sweep_json(o, s));
    for (size_t k = 0; k < b->figures; k++)
        json_object_set_new(importance, b->figure[k].name, json_real(o->importance[k]));
    for (unsigned order = 0; order < FB_SIM_ORDERS; order++) {
        json_t *array = json_array();

        for (size_t i = 0; i < N_ALIKE; i++)
            json_array_append_new(
                array, isnan(o->spread[order][i]) ? json_null() : json_real(o->spread[order][i]));
        json_object_set_new(spread, orders[order], array);
    }
    json_object_set_new(object, "figures", importance);
    json_object_set_new(object, "reuse_spread_by", spread);
    return object;
}

static int print_json(const struct bench *b)
{
    json_t *traces = json_array();
    json_t *object = json_pack("{s:o}", "traces", traces);

    if (!object)
        return cli_fail(CLI_FAILED, "the results cannot be written as JSON");
    for (size_t t = 0; t < b->traces; t++)
        json_array_append_new(traces, trace_json(b, &b->outcome[t]));
    json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    fputc('\n', stdout);
    json_decref(object);
    return CLI_OK;
}

/* ---- figures ---- */

/* A line for each trace, and their mean; or bars, where settings have names only. */
static int draw_sweep(const struct bench *b, size_t s, bool speed)
{
    const struct sweep *sweep = &sweeps[s];
    bool bars = !sweep->x_label;
    size_t count = 0;
    double x[SETTINGS_MAX];
    double y[TRACES_MAX + 1][SETTINGS_MAX];
    const char *names[SETTINGS_MAX];
    struct fb_plot_series series[TRACES_MAX + 1];
    FB_AUTO_FREE char *name = fb_asprintf("glcache-%s%s", sweep->name, speed ? "-speed" : "");
    const struct fb_plot plot = {
        .title = sweep->title,
        .x_label = sweep->x_label,
        .y_label = speed ? "requests a second, of FIFO's" : "hit ratio above FIFO's, percent",
        .x_log = !bars,
        .y_from_0 = speed,
        .bars = bars ? names : NULL,
        .bar_count = settings_of(sweep),
        .series = series,
        .count = b->traces + 1,
    };

    if (!name)
        return -ENOMEM;
    while (count < settings_of(sweep) && (bars || sweep->setting[count].x > 0))
        count++;
    for (size_t i = 0; i < count; i++) {
        struct result mean = mean_of(b, s, i);

        names[i] = sweep->setting[i].name;
        x[i] = bars ? (double)i : sweep->setting[i].x;
        for (size_t t = 0; t <= b->traces; t++) {
            const struct result *r = t < b->traces ? &b->outcome[t].result[s][i] : &mean;

            y[t][i] = speed ? r->speed : 100 * r->gain;
        }
    }
    for (size_t t = 0; t <= b->traces; t++)
        series[t] =
            (struct fb_plot_series){t < b->traces ? b->outcome[t].name : "mean", x, y[t], count};
    return cli_bench_plot(b->options->figures, name, &plot);
}

static int by_speed(const void *a, const void *b)
{
    const struct result *x = a;
    const struct result *y = b;

    return x->speed > y->speed ? -1 : x->speed < y->speed;
}

/* Of GL-Cache's settings those that no other beats in both hits and speed. */
static size_t find_front(const struct bench *b, double *ret_speed, double *ret_gain)
{
    static const size_t tried[] = {SWEEP_GROUP, SWEEP_EVICT, SWEEP_MERGE};
    struct result all[FB_ARRAY_SIZE(tried) * SETTINGS_MAX];
    size_t count = 0;
    size_t front = 0;
    double best = -INFINITY;

    for (size_t k = 0; k < FB_ARRAY_SIZE(tried); k++) {
        for (size_t i = 0; i < settings_of(&sweeps[tried[k]]); i++)
            all[count++] = mean_of(b, tried[k], i);
    }
    qsort(all, count, sizeof *all, by_speed);
    for (size_t i = 0; i < count; i++) {
        if (all[i].gain <= best)
            continue;
        best = all[i].gain;
        ret_speed[front] = all[i].speed;
        ret_gain[front++] = 100 * best;
    }
    return front;
}

/* Figure 13: hits over speed, means of the traces. */
static int draw_spectrum(const struct bench *b)
{
    size_t others = settings_of(&sweeps[SWEEP_OTHERS]) - 1; /* no cache can be the oracle */
    double x[SETTINGS_MAX];
    double y[SETTINGS_MAX];
    double front_x[SWEEPS * SETTINGS_MAX];
    double front_y[SWEEPS * SETTINGS_MAX];
    struct fb_plot_series series[SETTINGS_MAX + 1];
    const struct fb_plot plot = {
        .title = "Hits and speed",
        .x_label = "requests a second, of FIFO's",
        .y_label = "hit ratio above FIFO's, percent",
        .x_log = true,
        .series = series,
        .count = others + 1,
    };

    for (size_t i = 0; i < others; i++) {
        struct result mean = mean_of(b, SWEEP_OTHERS, i);

        x[i] = mean.speed;
        y[i] = 100 * mean.gain;
        series[i] = (struct fb_plot_series){sweeps[SWEEP_OTHERS].setting[i].name, &x[i], &y[i], 1};
    }
    series[others] = (struct fb_plot_series){"GL-Cache's settings", front_x, front_y,
                                             find_front(b, front_x, front_y)};
    return cli_bench_plot(b->options->figures, "glcache-spectrum", &plot);
}

/* Figure 2a: the mean spread over the traces. */
static int draw_spread(const struct bench *b)
{
    double y[FB_SIM_ORDERS][N_ALIKE] = {0};
    struct fb_plot_series series[FB_SIM_ORDERS];
    const struct fb_plot plot = {
        .title = "How alike are the objects of a group",
        .x_label = "objects in a group",
        .y_label = "deviation of reuse times over their mean",
        .x_log = true,
        .y_from_0 = true,
        .series = series,
        .count = FB_SIM_ORDERS,
    };

    for (unsigned order = 0; order < FB_SIM_ORDERS; order++) {
        for (size_t i = 0; i < N_ALIKE; i++) {
            for (size_t t = 0; t < b->traces; t++)
                y[order][i] += b->outcome[t].spread[order][i] / (double)b->traces;
        }
        series[order] = (struct fb_plot_series){orders[order], alike_groups, y[order], N_ALIKE};
    }
    return cli_bench_plot(b->options->figures, "glcache-alike", &plot);
}

/* Figure 2b: the mean reuse times of groups, in the order of writing. */
static int draw_means(const struct bench *b)
{
    double x[TRACES_MAX][MEANS_MAX];
    struct fb_plot_series series[TRACES_MAX];
    const struct fb_plot plot = {
        .title = "Mean reuse time of groups of 100",
        .x_label = "groups in the order of writing, from the first to the last",
        .y_label = "mean reuse time, of all groups' mean",
        .y_from_0 = true,
        .series = series,
        .count = b->traces,
    };

    for (size_t t = 0; t < b->traces; t++) {
        const struct outcome *o = &b->outcome[t];

        for (size_t i = 0; i < o->means; i++)
            x[t][i] = (double)i / (double)o->means;
        series[t] = (struct fb_plot_series){o->name, x[t], o->mean, o->means};
    }
    return cli_bench_plot(b->options->figures, "glcache-means", &plot);
}

static int draw(const struct bench *b)
{
    int rc = draw_spread(b);

    if (!rc)
        rc = draw_means(b);
    for (size_t s = SWEEP_GROUP; s < SWEEPS && !rc; s++) {
        rc = draw_sweep(b, s, false);
        if (!rc && s != SWEEP_INTERVAL && sweeps[s].x_label)
            rc = draw_sweep(b, s, true);
    }
    return rc ? rc : draw_spectrum(b);
}

/* ---- all of it ---- */

static int work(struct bench *b, const struct fb_sim_size *size)
{
    struct fb_error err = {""};
    int rc = 0;

    for (size_t t = 0; t < b->options->names && !rc; t++)
        rc = try_trace(b, b->options->name[t], size, &err);
    if (rc)
        return cli_fail(CLI_FAILED, "%s", *err.text ? err.text : fb_strerror(rc));
    rc = b->options->figures ? draw(b) : 0;
    if (rc)
        return cli_fail(CLI_FAILED, "cannot write figures into %s: %s", b->options->figures,
                        fb_strerror(rc));
    if (b->options->json)
        return print_json(b);
    print_tables(b);
    return CLI_OK;
}

int cli_bench_glcache(const struct cli_bench_options *options)
{
    struct fb_sim_size *size = NULL;
    struct fb_error err = {""};
    struct bench *b = NULL;
    size_t sizes = 0;
    int status;
    int rc = fb_sim_parse_sizes(options->cache, &size, &sizes, &err);

    if (rc == 0)
        b = fb_alloc(sizeof *b);
    if (rc)
        status = cli_usage(&cli_bench, "%s", err.text);
    else if (options->names == 0 || options->names > TRACES_MAX || sizes != 1)
        status = cli_usage(&cli_bench, "name 1 to %d traces, and one size", TRACES_MAX);
    else if (!b)
        status = cli_fail(CLI_FAILED, "%s", fb_strerror(-ENOMEM));
    else {
        b->options = options;
        status = work(b, size);
    }
    free(b);
    fb_sim_free_sizes(size, sizes);
    return status;
}
