/*
 * forebay sim: what would caches of these policies and sizes have done with this trace?
 */
#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/sim_job.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/units.h"

#define PROGRESS_STEP_NS (100 * FB_NS_PER_MS)
#define BAR_WIDTH        40

static const struct fb_setting table[] = {
    {.name = "policy",
     .letter = 'p',
     .type = FB_SETTING_STRING,
     .offset = offsetof(struct sim_options, policy),
     .fallback = "lru",
     .argument = "NAME,...",
     .help = "Policies, with parameters as NAME:KEY=VALUE",
     .group = "What is simulated"},
    {.name = "size",
     .letter = 's',
     .type = FB_SETTING_STRING,
     .offset = offsetof(struct sim_options, size),
     .fallback = "1%,10%",
     .argument = "SIZE,...",
     .help = "Cache sizes: 1% of the bytes of all objects in the trace, or 1G",
     .group = "What is simulated"},
    {.name = "ignore-size",
     .type = FB_SETTING_BOOL,
     .offset = offsetof(struct sim_options, ignore_size),
     .help = "Every object has size 1, and cache sizes count objects",
     .group = "What is simulated"},
    {.name = "warmup",
     .type = FB_SETTING_STRING,
     .offset = offsetof(struct sim_options, warmup),
     .fallback = "0",
     .argument = "N|N%",
     .help = "Requests at the start that fill the caches and are not counted",
     .group = "What is simulated"},
    {.name = "sample",
     .type = FB_SETTING_RATIO,
     .offset = offsetof(struct sim_options, sample),
     .fallback = "1",
     .argument = "SHARE",
     .help = "Replay this share of the objects only, through caches as much smaller",
     .group = "What is simulated"},
    {.name = "seed",
     .type = FB_SETTING_UINT,
     .offset = offsetof(struct sim_options, seed),
     .fallback = "1",
     .argument = "N",
     .help = "For what draws lots: samples, and policies that do",
     .group = "What is simulated"},
    {.name = "format",
     .letter = 'f',
     .type = FB_SETTING_STRING,
     .offset = offsetof(struct sim_options, format),
     .fallback = "auto",
     .argument = "NAME",
     .help = "The trace's format",
     .group = "The trace"},
    {.name = "columns",
     .type = FB_SETTING_STRING,
     .offset = offsetof(struct sim_options, columns),
     .argument = "time=A,id=B,size=C",
     .help = "Names or numbers (from 1) of a CSV's columns",
     .group = "The trace"},
    {.name = "jobs",
     .letter = 'J',
     .type = FB_SETTING_UINT,
     .offset = offsetof(struct sim_options, jobs),
     .fallback = "1",
     .argument = "N",
     .help = "Replay so many caches at the same time",
     .group = "Output"},
    {.name = "json",
     .letter = 'j',
     .type = FB_SETTING_BOOL,
     .offset = offsetof(struct sim_options, json),
     .help = "Print one JSON object: {\"results\": [...]}",
     .group = "Output"},
    {.name = "plot",
     .type = FB_SETTING_STRING,
     .offset = offsetof(struct sim_options, plot),
     .argument = "FILE.svg",
     .help = "Draw the miss ratio over the cache size",
     .group = "Output"},
    {.name = "html",
     .type = FB_SETTING_STRING,
     .offset = offsetof(struct sim_options, html),
     .argument = "FILE.html",
     .help = "Write a page with the curves and the table",
     .group = "Output"},
};

static const struct fb_setting *flags(size_t *ret_count)
{
    *ret_count = FB_ARRAY_SIZE(table);
    return table;
}

/* ---- progress ---- */

static void draw(void *arg, double share)
{
    struct sim_job *job = arg;
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

static void wipe(const struct sim_job *job)
{
    if (job->drawn_ns)
        fputs("\r\033[K", stderr);
}

/* ---- what is asked for ---- */

static int parse_warmup(struct sim_job *job, struct fb_error *err)
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

static int parse(struct sim_job *job, struct fb_error *err)
{
    int rc = fb_sim_parse_policies(job->options.policy, &job->choice, &job->choices, err);

    if (rc == 0)
        rc = fb_sim_parse_sizes(job->options.size, &job->size, &job->sizes, err);
    if (rc == 0)
        rc = parse_warmup(job, err);
    if (rc)
        return rc;
    if (job->options.plot && job->options.html && strcmp(job->options.plot, job->options.html) == 0)
        return fb_error_set(err, -EINVAL, "--plot and --html name the same file");
    if (job->options.sample <= 0)
        return fb_error_set(err, -EINVAL, "sample: write a share above 0");
    job->runs = job->choices * job->sizes;
    if (job->runs > FB_SIM_RUNS_MAX)
        return fb_error_set(err, -EINVAL, "policies times sizes are %zu caches; at most %d fit",
                            job->runs, FB_SIM_RUNS_MAX);
    job->run = fb_alloc_array(job->runs, sizeof *job->run);
    return job->run ? 0 : -ENOMEM;
}

static bool needs_future(const struct sim_job *job)
{
    for (size_t i = 0; i < job->choices; i++) {
        if (job->choice[i].policy->needs_future)
            return true;
    }
    return false;
}

static bool needs_scan(const struct sim_job *job)
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

static int open_trace(struct sim_job *job, struct fb_error *err)
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
    int rc = fb_trace_open(job->path, &trace_options, &job->trace, err);

    return rc ? rc : fb_sim_create(job->trace, &sim_options, &job->sim);
}

static int nothing_counted(const struct fb_sim_facts *facts, struct fb_error *err)
{
    if (facts->requests == 0)
        return fb_error_set(err, -EBADMSG, "the trace has no requests");
    if (facts->replayed == 0)
        return fb_error_set(err, -EBADMSG,
                            "none of the trace's %llu requests is in the sample; take a larger one",
                            (unsigned long long)facts->requests);
    return fb_error_set(err, -EBADMSG,
                        "the warm-up is longer than what is replayed, %llu requests, and nothing "
                        "is left to count",
                        (unsigned long long)facts->replayed);
}

static int simulate(struct sim_job *job, struct fb_error *err)
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
    if (rc == 0 && job->run[0].requests == 0)
        return nothing_counted(facts, err);
    return rc;
}

static int tell(struct sim_job *job)
{
    const struct fb_sim_facts *facts = fb_sim_facts(job->sim);
    int status = job->options.json ? sim_print_json(job) : sim_print_table(job);
    int written;

    if (facts->next_max > facts->requests)
        fprintf(stderr,
                "forebay: note: the trace was cut: it has %llu requests and speaks of number "
                "%llu\n",
                (unsigned long long)facts->requests, (unsigned long long)facts->next_max);
    if (job->plot.file) {
        written = sim_write_plot(job);
        status = status ? status : written;
    }
    if (job->html.file) {
        written = sim_write_html(job);
        status = status ? status : written;
    }
    return status;
}

static int work(struct sim_job *job)
{
    struct fb_error error = {""};
    int rc = parse(job, &error);
    int status;

    if (rc == 0)
        rc = open_trace(job, &error);
    if (rc == -EINVAL || rc == -ERANGE)
        return cli_usage(&cli_sim, "%s", error.text);
    status = rc == 0 ? sim_open_outputs(job) : CLI_OK;
    if (status)
        return status;
    if (rc == 0)
        rc = simulate(job, &error);
    wipe(job);
    if (rc == -ENOMEM)
        fb_error_set(&error, rc,
                     "there is not enough memory for all objects of the trace; replay a "
                     "sample of them, as --sample 10%%");
    if (rc)
        return cli_fail(CLI_FAILED, "%s", *error.text ? error.text : fb_strerror(rc));
    return tell(job);
}

static int run(int argc, char **argv)
{
    struct sim_job job = {0};
    struct fb_error error = {""};
    int positional = 0;
    int status;
    int rc;

    fb_settings_defaults(table, FB_ARRAY_SIZE(table), &job.options);
    rc = fb_settings_from_args(table, FB_ARRAY_SIZE(table), &job.options, argc, argv, &positional,
                               &error);
    job.path = argv[1];
    if (rc)
        status = cli_usage(&cli_sim, "%s", error.text);
    else if (positional != 1)
        status = cli_usage(&cli_sim, "name one trace, or - for standard input");
    else
        status = work(&job);
    sim_close_outputs(&job);
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
        fprintf(out, "  %-14s %s%s%s\n", (*p)->name, (*p)->summary, (*p)->alias ? "; also: " : "",
                (*p)->alias ? (*p)->alias : "");
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
    .summary = "Replay a trace through caches of any policy and size",
    .about =
        "What would a cache do for you? This reads a trace of requests, replays it through caches "
        "of every policy and size you name, all at once, and says how many requests, and how many "
        "bytes, each would have missed.\n\n"
        "TRACE is in one of the formats below, as it is or compressed with gzip or zstd; - is "
        "standard input. Its format is found by its name or its first bytes. Sizes in percent are "
        "of the bytes of all objects in the trace (of their number with --ignore-size); 0.1%..100% "
        "is a whole curve. belady, belady-size and glcache-oracle know the future: no cache "
        "can.\n\n"
        "The trace is never held in memory: that grows with the number of objects, by less than "
        "64 bytes each for fifo, lru, clock, sieve and s3fifo. For a trace of billions, --sample "
        "1% replays one object in a hundred, and says how far off that may be; the footprint, and "
        "so a size in percent, is then estimated from the sample as well. requests/s is for "
        "one core and one cache, with finding the objects but without reading the file.",
    .example =
        "  forebay sim trace.oracleGeneral.zst --policy fifo,lru --size 1%,10%,1G\n"
        "  forebay sim requests.csv.gz -p lru,arc,s3fifo,belady -s 0.1%..100% --html curves.html\n"
        "  zcat keys.gz | forebay sim - -p sieve -s 10000 --ignore-size --format keys\n",
    .table = flags,
    .more = more,
    .run = run,
};
