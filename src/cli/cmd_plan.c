/*
 * forebay plan: the order in which a training job will read its files, worked out from its seed.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/mman.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/find_seed.h"
#include "cli/listing.h"
#include "core/mem.h"
#include "core/units.h"
#include "daemon/mountinfo.h"
#include "daemon/paths.h"
#include "daemon/wire.h"
#include "epoch/plan.h"
#include "epoch/seed_search.h"

struct options {
    unsigned sampler;
    uint64_t seed;
    uint64_t epochs;
    uint64_t first_epoch;
    unsigned rule;
    unsigned generator;
    bool persistent_workers;
    unsigned randperm;
    uint64_t batch;
    uint64_t world;
    uint64_t rank;
    uint64_t workers;
    char *worker;
    bool drop_last;
    bool sampler_drop_last;
    char *order;
    char *extensions;
    char *find;
    uint64_t seed_limit;
    bool sizes;
    bool summary;
    bool end;
    bool print;
};

/* What is printed: all that the rank reads, or one worker's part. */
struct view {
    const struct fb_names *names;
    struct fb_plan *plan;
    bool one_worker;
    uint32_t worker;
};

#define FIELD(f) offsetof(struct options, f)

static const struct fb_setting table[] = {
    {"sampler", 0, FB_SETTING_CHOICE, FIELD(sampler), "torch-distributed", FB_SAMPLER_NAMES, NULL,
     "Who shuffles: torch's DistributedSampler with set_epoch(); DataLoader(shuffle=True) or "
     "RandomSampler; numpy's RandomState.permutation(n); numpy's default_rng().permutation(n); "
     "Python's random.shuffle(); nobody",
     "Order"},
    {"seed", 0, FB_SETTING_UINT, FIELD(seed), "0", NULL, "N", "The seed the program gives to it",
     "Order"},
    {"order", 0, FB_SETTING_STRING, FIELD(order), "imagefolder", NULL,
     "imagefolder|sorted|list:FILE",
     "How the data set numbers its files: as torchvision's ImageFolder; sorted by path; as the "
     "lines of FILE",
     "Order"},
    {"extensions", 0, FB_SETTING_STRING, FIELD(extensions), NULL, NULL, ".A,.B",
     "Files the data set takes, in any case; by default, with the order imagefolder those of "
     "images, else all",
     "Order"},
    {"rule", 0, FB_SETTING_CHOICE, FIELD(rule), "usual", FB_EPOCH_RULE_NAMES, NULL,
     "What the next epoch does: seeds anew with seed + epoch (usual for torch-distributed); goes "
     "on drawing (usual for the others); goes on and shuffles the last order again; the same again",
     "Order"},
    {"generator", 0, FB_SETTING_CHOICE, FIELD(generator), "global", FB_TORCH_GENERATOR_NAMES, NULL,
     "With torch-random: what was seeded: torch itself, just before the first epoch; the generator "
     "given to the loader; the one given to the sampler",
     "Order"},
    {"persistent-workers", 0, FB_SETTING_BOOL, FIELD(persistent_workers), "no", NULL, NULL,
     "With torch-random: the loader keeps its workers, and draws their base seed once", "Order"},
    {"randperm", 0, FB_SETTING_CHOICE, FIELD(randperm), "new", "new|old", NULL,
     "With torch and over 214 million files: that of torch 2.6 and later, or the one before",
     "Order"},
    {"world", 0, FB_SETTING_UINT, FIELD(world), "1", NULL, "N", "Processes that share each epoch",
     "Readers"},
    {"rank", 0, FB_SETTING_UINT, FIELD(rank), "0", NULL, "N", "Which of them", "Readers"},
    {"batch", 0, FB_SETTING_UINT, FIELD(batch), "1", NULL, "N", "Samples in a batch of one rank",
     "Readers"},
    {"workers", 0, FB_SETTING_UINT, FIELD(workers), "0", NULL, "N",
     "Workers of the rank's loader; 0: it reads itself", "Readers"},
    {"worker", 0, FB_SETTING_STRING, FIELD(worker), NULL, NULL, "N",
     "Print only what this one reads, counted from 0", "Readers"},
    {"drop-last", 0, FB_SETTING_BOOL, FIELD(drop_last), "no", NULL, NULL,
     "DataLoader(drop_last=True): a batch that is not full is not read", "Readers"},
    {"sampler-drop-last", 0, FB_SETTING_BOOL, FIELD(sampler_drop_last), "no", NULL, NULL,
     "DistributedSampler(drop_last=True): what does not come out even is not read", "Readers"},
    {"epochs", 0, FB_SETTING_UINT, FIELD(epochs), "0", NULL, "N",
     "How many there are; 0: one to print, or no end", "Output"},
    {"first-epoch", 0, FB_SETTING_UINT, FIELD(first_epoch), "0", NULL, "N", "The first of them",
     "Output"},
    {"find", 0, FB_SETTING_STRING, FIELD(find), NULL, NULL, "FILE",
     "Do not take the flags, find them: FILE has the paths that a process has read, one a line, "
     "from the beginning of an epoch on: a worker of a loader, or a process that reads itself. A "
     "loader's first worker is understood in a second, another takes minutes",
     "Search"},
    {"seed-limit", 0, FB_SETTING_UINT, FIELD(seed_limit), "1048576", NULL, "N",
     "With --find: seeds below that are tried, up to 4294967296", "Search"},
    {"sizes", 0, FB_SETTING_BOOL, FIELD(sizes), "no", NULL, NULL,
     "With --summary: ask for the size of every file", "Output"},
    {"summary", 0, FB_SETTING_BOOL, FIELD(summary), "no", NULL, NULL,
     "Only tell how much there is to read", "Output"},
    {"end", 0, FB_SETTING_BOOL, FIELD(end), "no", NULL, NULL,
     "End the plans that a daemon has for DIR", "Output"},
    {"print", 0, FB_SETTING_BOOL, FIELD(print), "no", NULL, NULL,
     "Write a line `epoch path` for each access, paths relative to DIR", "Output"},
};

static const struct fb_setting *flags(size_t *ret_count)
{
    *ret_count = FB_ARRAY_SIZE(table);
    return table;
}

/* ---- what was asked for ---- */

/* The library's numbers are narrower than what can be written. */
static uint32_t narrow(uint64_t value)
{
    return (uint32_t)fb_min_u64(value, UINT32_MAX);
}

static int take_worker(const struct options *o, struct view *v, struct fb_error *err)
{
    uint64_t workers = fb_max_u64(o->workers, 1);
    char *end;
    unsigned long number;

    if (!o->worker)
        return 0;
    number = strtoul(o->worker, &end, 10);
    if (*o->worker < '0' || *o->worker > '9' || *end || number >= workers)
        return fb_error_set(err, -EINVAL,
                            "--worker: '%s' is none of the %" PRIu64 ", counted from 0", o->worker,
                            workers);
    v->one_worker = true;
    v->worker = (uint32_t)number;
    return 0;
}

static int make_plan(const struct options *o, struct view *v, struct fb_error *err)
{
    struct fb_plan_spec spec = {
        .shuffle =
            {
                .sampler = fb_samplers[o->sampler],
                .seed = o->seed,
                .rule = (enum fb_epoch_rule)o->rule,
                .generator = (enum fb_torch_generator)o->generator,
                .persistent_workers = o->persistent_workers,
                .old_randperm = o->randperm == 1,
            },
        .split =
            {
                .world = narrow(o->world),
                .rank = narrow(o->rank),
                .batch = narrow(o->batch),
                .workers = narrow(o->workers),
                .drop_last = o->drop_last,
                .drop_uneven = o->sampler_drop_last,
            },
        .first_epoch = o->first_epoch,
    };
    int rc = take_worker(o, v, err);

    return rc ? rc : fb_plan_new(&spec, v->names, &v->plan, err);
}

/* ---- output ---- */

static void print_access(const struct view *v, uint64_t k)
{
    const struct fb_epoch *epoch = fb_plan_current(v->plan);
    char path[FB_NAMES_PATH_SIZE];
    size_t len = fb_names_path(v->names, fb_plan_file(v->plan, epoch, k), path);
    bool plain = true;

    for (size_t i = 0; i < len; i++)
        plain = plain && (unsigned char)path[i] >= 0x20 && path[i] != 0x7f;
    printf("%" PRIu64 " ", epoch->number);
    if (plain)
        fwrite(path, 1, len, stdout);
    else
        cli_print_text(stdout, path);
    fputc('\n', stdout);
}

static void print_epoch(const struct view *v)
{
    const struct fb_split *split = fb_plan_split(v->plan);
    uint64_t samples = fb_split_samples(split);
    uint64_t k;

    if (v->one_worker) {
        for (uint64_t j = 0; fb_split_worker_sample(split, v->worker, j, &k); j++)
            print_access(v, k);
        return;
    }
    for (k = 0; k < samples; k++)
        print_access(v, k);
}

static int print_epochs(const struct view *v, uint64_t epochs)
{
    int rc = 0;

    epochs = fb_max_u64(epochs, 1);
    for (uint64_t i = 0; rc == 0 && i < epochs && !ferror(stdout); i++) {
        print_epoch(v);
        if (i + 1 < epochs)
            rc = fb_plan_advance(v->plan);
    }
    return rc ? cli_fail(CLI_FAILED, "out of memory for the next epoch") : CLI_OK;
}

static uint64_t sum_sizes(const struct fb_names *names)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < fb_names_count(names); i++)
        bytes += fb_names_size(names, i);
    return bytes;
}

static int print_summary(const struct view *v, const struct options *o)
{
    const struct fb_epoch *epoch = fb_plan_current(v->plan);
    const struct fb_split *s = fb_plan_split(v->plan);
    char text[FB_UNITS_TEXT_MAX];

    printf("files     %u, in the order %s\n", s->count, o->order);
    if (o->sizes)
        printf("bytes     %s\n", fb_format_size(text, sum_sizes(v->names)));
    printf("sampler   %s, seed %" PRIu64 "\n", fb_samplers[o->sampler]->name, o->seed);
    printf("reader    rank %u of %u, batches of %u, workers: %u\n", s->rank, s->world, s->batch,
           s->workers);
    printf("an epoch  %" PRIu64 " accesses", fb_split_samples(s));
    if (o->sizes && epoch->chunk_count) {
        const struct fb_chunk *last = &epoch->chunks[epoch->chunk_count - 1];

        printf(", %s", fb_format_size(text, last->offset + last->bytes));
    }
    printf(", in %u chunks, a batch each\n", epoch->chunk_count);
    return CLI_OK;
}

/* ---- to the daemon ---- */

/* The paths of the data set in memory that the daemon finds through /proc, as long as we live. */
static int write_names(const struct fb_names *names)
{
    int fd = memfd_create("forebay-plan", MFD_CLOEXEC);
    int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *out = copy < 0 ? NULL : fdopen(copy, "w");
    char path[FB_NAMES_PATH_SIZE];
    bool good = out != NULL;

    for (uint32_t i = 0; good && i < fb_names_count(names); i++) {
        size_t len = fb_names_path(names, i, path) + 1;

        good = fwrite(path, 1, len, out) == len;
    }
    if (out && fclose(out) != 0)
        good = false;
    if (!good && fd >= 0)
        close(fb_steal_fd(&fd));
    return fd;
}

static json_t *order_json(const char *path, const struct view *v, const struct options *o, int fd)
{
    const struct fb_split *s = fb_plan_split(v->plan);
    FB_AUTO_FREE char *list = fb_asprintf("/proc/%d/fd/%d", (int)getpid(), fd);
    FB_AUTO_FREE char *seed = fb_asprintf("%" PRIu64, o->seed);

    if (!list || !seed)
        return NULL;
    return json_pack("{s:s, s:o*, s:s, s:s, s:s, s:i, s:i, s:b, s:b, s:I, s:I, s:I, s:I, s:b, s:b, "
                     "s:I, s:I}",
                     "op", "plan", "path", fb_wire_path(path), "list", list, "sampler",
                     fb_samplers[o->sampler]->name, "seed", seed, "rule", (int)o->rule, "generator",
                     (int)o->generator, "persistent_workers", o->persistent_workers, "old_randperm",
                     o->randperm == 1, "world", (json_int_t)s->world, "rank", (json_int_t)s->rank,
                     "batch", (json_int_t)s->batch, "workers", (json_int_t)s->workers, "drop_last",
                     o->drop_last, "drop_uneven", o->sampler_drop_last, "epochs",
                     (json_int_t)fb_min_u64(o->epochs, INT64_MAX), "first_epoch",
                     (json_int_t)fb_min_u64(o->first_epoch, INT64_MAX));
}

static int send_request(const char *path, json_t *request, json_t **ret_reply)
{
    struct fb_error error = {""};
    int rc =
        request ? cli_request_any(request, CLI_WORK_WAIT_NS, ret_reply, NULL, &error) : -ENOMEM;

    json_decref(request);
    if (rc)
        return cli_fail(CLI_FAILED, "%s", error.text[0] ? error.text : fb_strerror(rc));
    if (!*ret_reply && fb_mountinfo_is_below_forebay(path) && cli_nobody_serves(path, &error) != 0)
        return cli_fail(CLI_FAILED, "%s", error.text);
    if (!*ret_reply)
        return cli_fail(CLI_FAILED,
                        "no daemon serves %s: mount it, or start the program with `forebay run`; "
                        "--summary and --print need none",
                        path);
    if (!cli_reply_ok(*ret_reply))
        return cli_fail(CLI_FAILED, "%s", cli_reply_error(*ret_reply));
    return CLI_OK;
}

static int hand_over(const char *dir, const struct view *v, const struct options *o)
{
    const struct fb_split *split = fb_plan_split(v->plan);
    FB_AUTO_FREE char *path = NULL;
    json_t *reply = NULL;
    int fd, status;
    int rc = cli_path_meant(dir, &path);

    if (rc)
        return cli_fail(CLI_FAILED, "'%s': %s", dir, fb_strerror(rc));
    fd = write_names(v->names);
    if (fd < 0)
        return cli_fail(CLI_FAILED, "out of memory for the names of %s", dir);
    status = send_request(path, order_json(path, v, o, fd), &reply);
    close(fd);
    json_decref(reply);
    if (status == CLI_OK)
        printf("handed over: %u files, of which rank %u of %u reads %" PRIu64 " an epoch\n",
               split->count, split->rank, split->world, fb_split_samples(split));
    return status;
}

static int end_plans(const char *dir)
{
    FB_AUTO_FREE char *path = NULL;
    json_t *reply = NULL;
    json_int_t plans;
    int status;
    int rc = cli_path_meant(dir, &path);

    if (rc)
        return cli_fail(CLI_FAILED, "'%s': %s", dir, fb_strerror(rc));
    status = send_request(
        path, json_pack("{s:s, s:o*, s:b}", "op", "plan", "path", fb_wire_path(path), "end", 1),
        &reply);
    plans = json_integer_value(json_object_get(reply, "plans"));
    if (status == CLI_OK && plans == 0)
        status = cli_fail(CLI_FAILED, "there is no plan for %s", path);
    else if (status == CLI_OK)
        printf("%" JSON_INTEGER_FORMAT " plan%s ended\n", plans, plans == 1 ? "" : "s");
    json_decref(reply);
    return status;
}

/* ---- all ---- */

static int plan(const char *dir, const struct options *o)
{
    struct cli_listing how = {
        .dir = dir, .order = o->order, .extensions = o->extensions, .with_sizes = o->sizes};
    struct fb_error error = {""};
    struct fb_names *names = NULL;
    struct view v = {0};
    int status;
    int rc = cli_list(&how, &names, &error);

    if (rc)
        return cli_fail(rc == -EINVAL ? CLI_USAGE : CLI_FAILED, "%s", error.text);
    v.names = names;
    rc = make_plan(o, &v, &error);
    if (rc == -EINVAL)
        status = cli_usage(&cli_plan, "%s", error.text);
    else if (rc)
        status = cli_fail(CLI_FAILED, "%s", error.text);
    else
        status = o->print     ? print_epochs(&v, o->epochs)
                 : o->summary ? print_summary(&v, o)
                              : hand_over(dir, &v, o);
    fb_plan_free(v.plan);
    fb_names_free(names);
    return status;
}

static int find(const char *dir, const struct options *o)
{
    return cli_find_seed(&(struct cli_find){
        .dir = dir,
        .order = o->order,
        .extensions = o->extensions,
        .accesses = o->find,
        .seed_limit = fb_min_u64(o->seed_limit, FB_SEED_ALL),
    });
}

static int run(int argc, char **argv)
{
    struct fb_error error = {""};
    struct options options;
    int positional = 0;
    int status;
    int rc;

    fb_settings_defaults(table, FB_ARRAY_SIZE(table), &options);
    rc = fb_settings_from_args(table, FB_ARRAY_SIZE(table), &options, argc, argv, &positional,
                               &error);
    if (rc || positional != 1)
        status = cli_usage(&cli_plan, "%s", rc ? error.text : "write one directory");
    else if (options.print + options.summary + options.end + (options.find != NULL) > 1)
        status = cli_usage(&cli_plan, "write one of --print, --summary, --end and --find, no more");
    else if (options.end)
        status = end_plans(argv[1]);
    else if (options.find)
        status = find(argv[1], &options);
    else
        status = plan(argv[1], &options);
    fb_settings_free(table, FB_ARRAY_SIZE(table), &options);
    return status;
}

const struct cli_command cli_plan = {
    .name = "plan",
    .synopsis = "DIR [--sampler NAME] [--seed N] [--epochs N] [FLAGS] [--print|--summary|--end]",
    .summary = "Have the files of a training job ready in the order in which it will read them",
    .about =
        "A training job reads each file once an epoch, in an order that its seed fixes. This "
        "works the order out, as torch, numpy and Python do, bit for bit, without running them. "
        "Say how the program numbers its files (--order), who shuffles them with which seed, and "
        "how they are dealt out to ranks, batches and workers.\n\nThe plan is handed to the daemon "
        "that serves DIR: it brings the files into memory just ahead of the readers, epoch after "
        "epoch, also after a restart, until --end. From Python: forebay.torch.attach(loader).\n\n"
        "With --summary it tells how much there is to read, and with --print it writes one line "
        "for each access of the rank, in the order in which its loader asks for them. Workers read "
        "ahead side by side: worker w of W reads batches w, w + W, w + 2W ..., which --worker "
        "shows.\n\nThe order is that of "
        "the data set as it is now; a file more or less, and all is different.\n\nWith --find "
        "nothing needs to be known: the seed, and with it the other flags, is found in what a "
        "process has read, for both --order imagefolder and sorted. Sixteen accesses are enough.",
    .example =
        "  forebay plan /data/imagenet/train --seed 0 --world 8 --rank 0 --batch 128 "
        "--workers 4\n"
        "  forebay plan /data/imagenet/train --seed 0 --world 8 --rank 3 --epochs 2 --print\n"
        "  forebay plan /data/faces --sampler torch-random --generator loader --seed 42 "
        "--order sorted --print\n"
        "  forebay plan /data/imagenet/train --find reads-of-worker-0\n",
    .table = flags,
    .run = run,
};
