#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench.h"
#include "cli/cli.h"
#include "core/mem.h"

#define FIELD(f) offsetof(struct cli_bench_options, f)

static const struct fb_setting table[] = {
    {"random", 0, FB_SETTING_UINT, FIELD(random), "1", NULL, "N",
     "Seed of the bench's own choices; the same number gives the same trials", "All"},
    {"trials", 0, FB_SETTING_UINT, FIELD(trials), "1000", NULL, "N",
     "Shuffles whose seed is to be found", "seeds"},
    {"alone", 0, FB_SETTING_UINT, FIELD(alone), "0", NULL, "N",
     "Shuffles whose seed is to be found in what one worker reads, whichever it is; each takes "
     "half a minute or more, and up to five",
     "seeds"},
    {"streams", 0, FB_SETTING_UINT, FIELD(streams), "1000", NULL, "N",
     "Streams that are no such shuffle, in which none must be found; each takes the whole search",
     "seeds"},
    {"each", 0, FB_SETTING_UINT, FIELD(each), "1000", NULL, "N", "Generated streams of each kind",
     "patterns"},
    {"figures", 0, FB_SETTING_STRING, FIELD(figures), NULL, NULL, "DIR",
     "Write figures into this directory", "patterns, mix, figures, glcache"},
    {"size", 0, FB_SETTING_RATIO, FIELD(size), "35%", NULL, "SHARE",
     "The cache, as a share of the data of all jobs", "mix"},
    {"jobs", 0, FB_SETTING_STRING, FIELD(jobs), NULL, NULL, "N,...",
     "Only these of the 18 jobs take part", "mix"},
    {"cache", 0, FB_SETTING_STRING, FIELD(cache), "10%", NULL, "SIZE",
     "Its size: a share of the bytes of all objects, or bytes", "glcache"},
    {"json", 'j', FB_SETTING_BOOL, FIELD(json), NULL, NULL, NULL, "Print one JSON object", "All"},
};

static const struct {
    const char *name;
    int (*run)(const struct cli_bench_options *options);
    bool takes_names;
} benches[] = {
    {"seeds", cli_bench_seeds, false},    {"patterns", cli_bench_patterns, false},
    {"mix", cli_bench_mix, false},        {"figures", cli_bench_figures, false},
    {"glcache", cli_bench_glcache, true},
};

static const struct fb_setting *flags(size_t *ret_count)
{
    *ret_count = FB_ARRAY_SIZE(table);
    return table;
}

/* Before minutes of work, whether figures can be written. */
static int check_figures(const char *dir)
{
    FB_AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
        return cli_fail(CLI_FAILED, "cannot write figures into %s: %s", dir, fb_strerror(-errno));
    return CLI_OK;
}

static int start(const char *name, const struct cli_bench_options *options)
{
    int status;

    for (size_t i = 0; i < FB_ARRAY_SIZE(benches); i++) {
        if (strcmp(name, benches[i].name) != 0)
            continue;
        if (options->names > 0 && !benches[i].takes_names)
            return cli_usage(&cli_bench, "%s takes no files", name);
        if (options->figures && (status = check_figures(options->figures)) != CLI_OK)
            return status;
        return benches[i].run(options);
    }
    return cli_usage(&cli_bench, "there is no bench '%.64s'", name);
}

static int run(int argc, char **argv)
{
    struct fb_error error = {""};
    struct cli_bench_options options;
    int positional = 0;
    int status;
    int rc;

    fb_settings_defaults(table, FB_ARRAY_SIZE(table), &options);
    rc = fb_settings_from_args(table, FB_ARRAY_SIZE(table), &options, argc, argv, &positional,
                               &error);
    if (rc || positional < 1) {
        status = cli_usage(&cli_bench, "%s", rc ? error.text : "write the name of one bench");
    } else {
        options.name = argv + 2;
        options.names = (size_t)positional - 1;
        status = start(argv[1], &options);
    }
    fb_settings_free(table, FB_ARRAY_SIZE(table), &options);
    return status;
}

const struct cli_command cli_bench = {
    .name = "bench",
    .synopsis = "NAME [TRACE...] [FLAGS]",
    .summary = "Measure parts of the cache on this machine, without a daemon",
    .about = "seeds: the search for a shuffle's seed in what a process reads. Trials have seeds "
             "below 2^20, 10,000 to 1.3 million files, a world of 1 to 64, batches of 16 to 512 "
             "and 1 to 16 workers; a seed must be found, and where any of them is, within 64 "
             "accesses of the rank's first worker and that one; with --alone, of that one only. "
             "Then how many seeds a second it tries with each kind of vectors.\n\n"
             "patterns: how many generated streams of accesses of each kind are recognised, for "
             "several windows and levels of significance, and what recognising costs.\n\n"
             "mix: the 18 jobs of IGTCache's Table 3, a tenth of the size, in simulated time, "
             "through caches of several kinds from a source of 150 ms and 1 Gbit/s; with figures, "
             "for caches of 10 to 100% of the data, too.\n\n"
             "figures: smaller cases of that paper: prefetch and eviction by themselves, a job "
             "that ends, four jobs that share a cache, nodes against overhead, one file of each "
             "of 2,000 directories.\n\n"
             "glcache TRACE...: what GL-Cache's settings (group size, groups merged, share evicted "
             "by a ranking, interval of training, features, grouping) do for hits and speed on "
             "these traces, beside other policies. Traces are as for `forebay sim`.",
    .example = "  forebay bench seeds --trials 100 --streams 10\n"
               "  forebay bench patterns --each 100 --figures .\n"
               "  forebay bench mix --size 35%\n"
               "  forebay bench glcache trace.oracleGeneral.zst --cache 5% --figures .\n",
    .table = flags,
    .run = run,
};
