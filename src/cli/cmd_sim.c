/*
 * forebay sim: what would caches of these policies and sizes have done with this trace?
 */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "cli/cli.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/units.h"
#include "sim/spec.h"

#define PROGRESS_STEP_NS (100 * FB_NS_PER_MS)
#define BAR_WIDTH        40

struct options {
    char *policy;
    char *size;
    char *format;
    char *columns;
    bool ignore_size;
    char *warmup;
    double sample;
    uint64_t jobs;
    uint64_t seed;
    bool json;
};

static const struct fb_setting table[] = {
    {.name = "policy",
     .letter = 'p',
     .type = FB_SETTING_STRING,
     .offset = offsetof(struct options, policy),
     .fallback = "lru",
     .argument = "NAME,...",
     .help = "Policies, with parameters as NAME:KEY=VALUE",
     .group = "What is simulated"},
    {.name = "size",
     .letter = 's',
     .type = FB_SETTING_STRING,
     .offset = offsetof(struct options, size),
     .fallback = "1%,10%",
     .argument = "SIZE,...",
     .help = "Cache sizes: 1% of the bytes of all objects in the trace, or 1G",
     .group = "What is simulated"},
    {.name = "ignore-size",
     .type = FB_SETTING_BOOL,
     .offset = offsetof(struct options, ignore_size),
     .help = "Every object has size 1, and cache sizes count objects",
     .group = "What is simulated"},
    {.name = "warmup",
     .type = FB_SETTING_STRING,
     .offset = offsetof(struct options, warmup),
     .fallback = "0",
     .argument = "N|N%",
     .help = "Requests at the start that fill the caches and are not counted",
     .group = "What is simulated"},
    {.name = "sample",
     .type = FB_SETTING_RATIO,
     .offset = offsetof(struct options, sample),
     .fallback = "1",
     .argument = "SHARE",
     .help = "Replay this share of the objects only, through caches as much smaller",
     .group = "What is simulated"},
    {.name = "seed",
     .type = FB_SETTING_UINT,
     .offset = offsetof(struct options, seed),
     .fallback = "1",
     .argument = "N",
     .help = "For what draws lots: samples, and policies that do",
     .group = "What is simulated"},
    {.name = "format",
     .letter = 'f',
     .type = FB_SETTING_STRING,
     .offset = offsetof(struct options, format),
     .fallback = "auto",
     .argument = "NAME",
     .help = "The trace's format",
     .group = "The trace"},
    {.name = "columns",
     .type = FB_SETTING_STRING,
     .offset = offsetof(struct options, columns),
     .argument = "time=A,id=B,size=C",
     .help = "Names or numbers (from 1) of a CSV's columns",
     .group = "The trace"},
    {.name = "jobs",
     .letter = 'J',
     .type = FB_SETTING_UINT,
     .offset = offsetof(struct options, jobs),
     .fallback = "1",
     .argument = "N",
     .help = "Replay so many caches at the same time",
     .group = "Output"},
    {.name = "json",
     .letter = 'j',
     .type = FB_SETTING_BOOL,
     .offset = offsetof(struct options, json),
     .help = "Print one JSON object: {\"results\": [...]}",
     .group = "Output"},
};

static const struct fb_setting *flags(size_t *ret_count)
{
    *ret_count = FB_ARRAY_SIZE(table);
    return table;
}

/* Everything that one invocation holds. */
struct job {
    struct options options;
    struct fb_sim_choice *choice;
    size_t choices;
    struct fb_sim_size *size;
    size_t sizes;
    double warmup_share; /* of the trace's requests; negative: `warmup` instead */
    uint64_t warmup;
    struct fb_trace *trace;
    struct fb_sim *sim;
    struct fb_sim_run *run; /* [choice][size] */
    size_t runs;
    int64_t drawn_ns; /* when the progress bar was */
    const char *doing;
};

/* ---- progress ---- */

static void draw(void *arg, double share)
{
    struct job *job = arg;
    int64_t now = fb_now_ns();
    char bar[BAR_WIDTH + 1];
    int full = (int)(share * BAR_WIDTH);

    if (now - job->drawn_ns < PROGRESS_STEP_NS)
        return;
    job->drawn_ns = now;
    if (share < 0) {
        fprintf(stderr, "\r%s ...\033[K", job->doing);
        return;
    }
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '#', (size_t)(full < BAR_WIDTH ? full : BAR_WIDTH));
    bar[BAR_WIDTH] = 0;
    fprintf(stderr, "\r%-9s [%s] %3.0f%%\033[K", job->doing, bar, share * 100);
}

static void wipe(const struct job *job)
{
    if (job->drawn_ns)
        fputs("\r\033[K", stderr);
}

/* ---- what is asked for ---- */

static int parse_warmup(struct job *job, struct fb_error *err)
{
    const char *text = job->options.warmup;
    int rc;

    job->warmup_share = -1;
    if (*text && text[strlen(text) - 1] == '%')
        rc = fb_parse_ratio(text, &job->warmup_share);
    else
        rc = fb_parse_size(text, &job->warmup);
    if (rc)
        return fb_error_set(err, rc,
                            "warmup '%.64s': write a number of requests, or a share of "
                            "them like 30%%",
                            text);
    return 0;
}

static int parse(struct job *job, struct fb_error *err)
{
    int rc = fb_sim_parse_policies(job->options.policy, &job->choice, &job->choices, err);

    if (rc == 0)
        rc = fb_sim_parse_sizes(job->options.size, &job->size, &job->sizes, err);
    if (rc == 0)
        rc = parse_warmup(job, err);
    if (rc)
        return rc;
    if (job->options.sample <= 0)
        return fb_error_set(err, -EINVAL, "sample: write a share above 0");
    job->runs = job->choices * job->sizes;
    if (job->runs > FB_SIM_RUNS_MAX)
        return fb_error_set(err, -EINVAL, "policies times sizes are %zu caches; at most %d fit",
                            job->runs, FB_SIM_RUNS_MAX);
    job->run = fb_alloc_array(job->runs, sizeof *job->run);
    return job->run ? 0 : -ENOMEM;
}

static bool needs_future(const struct job *job)
{
    for (size_t i = 0; i < job->choices; i++) {
        if (job->choice[i].policy->needs_future)
            return true;
    }
    return false;
}

static bool needs_scan(const struct job *job)
{
    if (job->warmup_share >= 0 || needs_future(job))
        return true;
    for (size_t i = 0; i < job->sizes; i++) {
        if (job->size[i].share >= 0)
            return true;
    }
    return false;
}

/* ---- the work ---- */

static int open_trace(struct job *job, const char *path, struct fb_error *err)
{
    struct fb_trace_options trace_options = {
        .format = job->options.format,
        .columns = job->options.columns,
        .again = needs_scan(job),
    };
    struct fb_sim_options sim_options = {
        .jobs = (unsigned)fb_min_u64(job->options.jobs, FB_SIM_JOBS_MAX),
        .ignore_size = job->options.ignore_size,
        .sample = job->options.sample,
        .seed = job->options.seed,
        .progress = isatty(STDERR_FILENO) ? draw : NULL,
        .arg = job,
    };
    int rc = fb_trace_open(path, &trace_options, &job->trace, err);

    return rc ? rc : fb_sim_create(job->trace, &sim_options, &job->sim);
}

static int simulate(struct job *job, struct fb_error *err)
{
    const struct fb_sim_facts *facts = fb_sim_facts(job->sim);
    int rc = 0;

    job->doing = "counting";
    if (needs_scan(job))
        rc = fb_sim_scan(job->sim, needs_future(job), err);
    if (rc)
        return rc;
    for (size_t i = 0; i < job->runs; i++) {
        const struct fb_sim_choice *choice = &job->choice[i / job->sizes];

        job->run[i].policy = choice->policy;
        memcpy(job->run[i].param, choice->param, sizeof choice->param);
        job->run[i].capacity = fb_sim_size_of(&job->size[i % job->sizes], facts->footprint);
    }
    if (job->warmup_share >= 0)
        job->warmup = (uint64_t)(job->warmup_share * (double)facts->requests);
    job->doing = "replaying";
    rc = fb_sim_replay(job->sim, job->run, job->runs, job->warmup, err);
    if (rc == 0 && facts->requests == 0)
        return fb_error_set(err, -EBADMSG, "the trace has no requests");
    return rc;
}

/* ---- output ---- */

static double requests_per_s(const struct job *job, const struct fb_sim_run *run)
{
    double seconds = run->replay_s + fb_sim_map_s(job->sim);

    return seconds > 0 ? (double)fb_sim_facts(job->sim)->requests / seconds : 0;
}

static json_t *run_json(const struct job *job, size_t i)
{
    const struct fb_sim_run *run = &job->run[i];
    json_t *figures = json_object();
    json_t *object = json_pack(
        "{s:s, s:s, s:I, s:s, s:f, s:f, s:I, s:I, s:I, s:I, s:f, s:f, s:o}", "policy",
        job->choice[i / job->sizes].text, "size", job->size[i % job->sizes].text, "size_bytes",
        (json_int_t)run->capacity, "unit", job->options.ignore_size ? "objects" : "bytes",
        "miss_ratio", run->miss_ratio, "byte_miss_ratio", run->byte_miss_ratio, "requests",
        (json_int_t)run->requests, "misses", (json_int_t)run->misses, "bytes",
        (json_int_t)run->bytes, "missed_bytes", (json_int_t)run->missed_bytes, "requests_per_s",
        requests_per_s(job, run), "replay_s", run->replay_s, "figures", figures);

    if (job->options.sample < 1 && object)
        json_object_set_new(object, "miss_ratio_error", json_real(run->error));
    for (size_t k = 0; object && k < run->figures; k++)
        json_object_set_new(figures, run->figure[k].name, json_real(run->figure[k].value));
    return object;
}

static int print_json(const struct job *job, const char *path)
{
    const struct fb_sim_facts *facts = fb_sim_facts(job->sim);
    json_t *results = json_array();
    json_t *object;

    for (size_t i = 0; i < job->runs; i++)
        json_array_append_new(results, run_json(job, i));
    object = json_pack("{s:{s:s, s:s, s:I, s:I, s:I, s:I}, s:I, s:f, s:f, s:o}", "trace", "path",
                       path, "format", fb_trace_format_name(job->trace), "requests",
                       (json_int_t)facts->requests, "objects", (json_int_t)facts->objects,
                       "footprint", (json_int_t)facts->footprint, "bytes", (json_int_t)facts->bytes,
                       "warmup_requests", (json_int_t)job->warmup, "sample", job->options.sample,
                       "map_s", fb_sim_map_s(job->sim), "results", results);
    if (!object)
        return cli_fail(CLI_FAILED, "the results cannot be written as JSON");
    json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    fputc('\n', stdout);
    json_decref(object);
    return CLI_OK;
}

static const char *amount(const struct job *job, char buf[FB_UNITS_TEXT_MAX], uint64_t value)
{
    if (!job->options.ignore_size)
        return fb_format_size(buf, value);
    snprintf(buf, FB_UNITS_TEXT_MAX, "%llu", (unsigned long long)value);
    return buf;
}

static int print_table(const struct job *job)
{
    const struct fb_sim_facts *facts = fb_sim_facts(job->sim);
    char buf[FB_UNITS_TEXT_MAX];

    printf("%llu requests, %llu objects, footprint %s%s (%s)\n",
           (unsigned long long)facts->requests, (unsigned long long)facts->objects,
           amount(job, buf, facts->footprint), job->options.ignore_size ? " objects" : "",
           fb_trace_format_name(job->trace));
    printf("\n%-20s %8s %10s %11s %11s %12s\n", "policy", "size", "", "miss ratio", "byte misses",
           "requests/s");
    for (size_t i = 0; i < job->runs; i++) {
        const struct fb_sim_run *run = &job->run[i];

        printf("%-20s %8s %10s %11.4f %11.4f %11.2fM", job->choice[i / job->sizes].text,
               job->size[i % job->sizes].text, amount(job, buf, run->capacity), run->miss_ratio,
               run->byte_miss_ratio, requests_per_s(job, run) / 1e6);
        if (job->options.sample < 1)
            printf("  +- %.4f", run->error);
        putchar('\n');
    }
    return CLI_OK;
}

static int work(struct job *job, const char *path)
{
    struct fb_error error = {""};
    int rc = parse(job, &error);

    if (rc == -EINVAL || rc == -ERANGE)
        return cli_usage(&cli_sim, "%s", error.text);
    if (rc == 0)
        rc = open_trace(job, path, &error);
    if (rc == 0)
        rc = simulate(job, &error);
    wipe(job);
    if (rc)
        return cli_fail(CLI_FAILED, "%s", *error.text ? error.text : fb_strerror(rc));
    return job->options.json ? print_json(job, path) : print_table(job);
}

static int run(int argc, char **argv)
{
    struct job job = {0};
    struct fb_error error = {""};
    int positional = 0;
    int status;
    int rc;

    fb_settings_defaults(table, FB_ARRAY_SIZE(table), &job.options);
    rc = fb_settings_from_args(table, FB_ARRAY_SIZE(table), &job.options, argc, argv, &positional,
                               &error);
    if (rc)
        status = cli_usage(&cli_sim, "%s", error.text);
    else if (positional != 1)
        status = cli_usage(&cli_sim, "name one trace, or - for standard input");
    else
        status = work(&job, argv[1]);
    fb_sim_destroy(job.sim);
    fb_trace_close(job.trace);
    free(job.run);
    fb_sim_free_policies(job.choice, job.choices);
    fb_sim_free_sizes(job.size, job.sizes);
    fb_settings_free(table, FB_ARRAY_SIZE(table), &job.options);
    return status;
}

/* ---- help ---- */

static void more(FILE *out)
{
    const char *summary;
    const char *name;

    fputs("\nPolicies:\n", out);
    for (const struct fb_sim_policy *const *p = fb_sim_policies(); *p; p++) {
        fprintf(out, "  %-14s %s\n", (*p)->name, (*p)->summary);
        for (const struct fb_sim_param *k = (*p)->params; k && k->key; k++)
            fprintf(out, "      :%s=%g  %s (%g to %g)\n", k->key, k->fallback, k->help, k->min,
                    k->max);
    }
    fputs("\nFormats:\n", out);
    for (size_t i = 0; (name = fb_trace_format_at(i, &summary)); i++)
        fprintf(out, "  %-14s %s\n", name, summary);
}

const struct cli_command cli_sim = {
    .name = "sim",
    .synopsis = "TRACE [--policy NAME,...] [--size SIZE,...] [flags]",
    .summary = "replay a trace through caches of any policy and size",
    .about = "Reads a trace of requests once or twice and says what caches would have done with "
             "it: how many requests, and how many bytes, each would have missed. TRACE may be "
             "compressed with gzip or zstd, and may be - for standard input.",
    .example = "  forebay sim trace.oracleGeneral.zst --policy fifo,lru --size 1%,10%,1G\n",
    .table = flags,
    .more = more,
    .run = run,
};
