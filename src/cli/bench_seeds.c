/*
 * forebay bench seeds: is the seed found, is none found where there is none, and how fast.
 *
 * A trial makes a shuffle of random size, seed and readers, and picks a worker of the rank's
 * loader: is the seed known, and where that worker is in the epoch, by its first 64 accesses? As in
 * the daemon, which sees all processes of a loader, what the first worker reads is searched, an
 * access at a time, and the other is placed by what was found. The data set has two orders, of
 * which the search is not told which is right.
 *
 * The other streams are of seven kinds: random draws with replacement; a permutation by a generator
 * that is not torch's; in order; strided; from a shuffle buffer; skewed; and the torch shuffle of a
 * seed beyond those searched. Each is searched to the end, and the first seeds once more for any
 * worker.
 *
 * Trials "alone" are such that one worker is all that is seen, whichever it is.
 */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/rand.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "core/clock.h"
#include "core/mem.h"
#include "epoch/seed_search.h"

#define ACCESSES    64
#define FILES_MIN   10000.0
#define FILES_MAX   1300000.0
#define STEP_SEEDS  (UINT64_C(1) << 16)
#define SPEED_SEEDS (UINT64_C(1) << 20)
#define SPEED_FILES 1281167
#define ALONE_SEEDS 256 /* tried for any worker, of streams that are no shuffle */

struct job {
    struct fb_shuffle_spec spec;
    struct fb_split split;
    uint32_t *order; /* of the first epoch */
};

struct tally {
    uint64_t found;
    uint64_t at_once; /* with the fewest accesses that can be enough */
    uint64_t wrong;
    uint64_t missed;
};

static uint32_t between(struct fb_rand *rand, uint32_t low, uint32_t high)
{
    return low + (uint32_t)fb_rand_below(rand, high - low + 1);
}

/* As many of each size's tenfold as of the next. */
static uint32_t some_files(struct fb_rand *rand)
{
    return (uint32_t)(FILES_MIN * pow(FILES_MAX / FILES_MIN, fb_rand_unit(rand)));
}

static int shuffle_once(const struct fb_shuffle_spec *spec, uint32_t **ret_order)
{
    struct fb_shuffle shuffle;

    *ret_order = fb_alloc_array(spec->count, sizeof **ret_order);
    if (!*ret_order || fb_shuffle_init(&shuffle, spec, NULL) != 0)
        return cli_fail(CLI_FAILED, "out of memory for an order of %u files", spec->count);
    fb_shuffle_next(&shuffle, *ret_order);
    return 0;
}

static int make_job(struct fb_rand *rand, struct job *job)
{
    uint32_t count = some_files(rand);

    job->spec = (struct fb_shuffle_spec){.sampler = fb_sampler_find("torch-distributed"),
                                         .seed = fb_rand_below(rand, FB_SEED_SMALL),
                                         .count = count};
    job->split = (struct fb_split){.count = count,
                                   .world = between(rand, 1, 64),
                                   .batch = between(rand, 16, 512),
                                   .workers = between(rand, 1, 16)};
    job->split.rank = (uint32_t)fb_rand_below(rand, job->split.world);
    return shuffle_once(&job->spec, &job->order);
}

/* seed_limit 0: the usual one. */
static struct fb_seed_search *open_search(uint32_t count, unsigned orders, bool any_worker,
                                          uint64_t seed_limit)
{
    struct fb_seed_config config = {.order_count = orders,
                                    .counts = {count, count},
                                    .level = fb_scan_best(),
                                    .any_worker = any_worker,
                                    .seed_limit = seed_limit};
    struct fb_seed_search *s = fb_seed_search_new(&config);

    if (!s)
        cli_fail(CLI_FAILED, "out of memory for a search");
    return s;
}

/* Feeds one access and searches to the end. Returns whether something is believed. */
static bool read_one(struct fb_seed_search *s, const uint32_t *files)
{
    int rc = fb_seed_search_feed(s, files);

    while (rc >= 0 && fb_seed_search_state(s) == FB_SEED_SEARCH)
        rc = fb_seed_search_step(s, STEP_SEEDS);
    return fb_seed_search_state(s) == FB_SEED_BELIEVED;
}

/* What a worker reads; after how many accesses something is believed, 0 when nothing is. */
static unsigned search_worker(const struct job *job, uint32_t worker, struct fb_seed_search *s)
{
    uint32_t right = job->spec.seed % 2; /* the right order; the other one is backwards */
    uint64_t k;

    for (unsigned j = 0; j < ACCESSES; j++) {
        uint32_t files[2];

        if (!fb_split_worker_sample(&job->split, worker, j, &k))
            return 0;
        files[right] = job->order[fb_split_position(&job->split, k)];
        files[!right] = job->spec.count - 1 - files[right];
        if (read_one(s, files))
            return j + 1;
    }
    return 0;
}

static bool is_right(const struct job *job, const struct fb_seed_belief *b)
{
    return b->shuffle.seed + b->epoch == job->spec.seed && b->world == job->split.world &&
           b->rank == job->split.rank && b->order == job->spec.seed % 2;
}

/* A worker that reads enough to be judged by. */
static uint32_t some_worker(const struct job *job, struct fb_rand *rand)
{
    uint32_t worker = (uint32_t)fb_rand_below(rand, job->split.workers);
    uint64_t k;

    return fb_split_worker_sample(&job->split, worker, FB_SEED_ENOUGH, &k) ? worker : 0;
}

/* A worker placed by what is believed of the first. Returns its accesses, 0: in vain. */
static unsigned place_worker(const struct job *job, uint32_t worker, struct fb_seed_search *s)
{
    struct fb_seed_belief first = *fb_seed_search_belief(s);
    unsigned accesses;

    fb_seed_search_restart(s, &first);
    accesses = search_worker(job, worker, s);
    return accesses && fb_seed_search_belief(s)->start == (uint64_t)worker * job->split.batch
               ? accesses
               : 0;
}

static int run_trial(struct fb_rand *rand, bool alone, struct tally *t)
{
    struct job job;
    struct fb_seed_search *s;
    uint32_t worker;
    unsigned accesses;

    if (make_job(rand, &job) != 0)
        return -1;
    s = open_search(job.spec.count, 2, alone, 0);
    if (!s)
        return -1;
    worker = some_worker(&job, rand);
    accesses = search_worker(&job, alone ? worker : 0, s);
    if (accesses && !alone && worker > 0 && is_right(&job, fb_seed_search_belief(s)))
        accesses = place_worker(&job, worker, s);
    if (!accesses)
        t->missed++;
    else if (is_right(&job, fb_seed_search_belief(s)))
        t->found++;
    else
        t->wrong++;
    t->at_once += accesses == FB_SEED_ENOUGH;
    fb_seed_search_free(s);
    free(job.order);
    return 0;
}

static int run_trials(struct fb_rand *rand, uint64_t count, bool alone, struct tally *t,
                      double *ret_seconds)
{
    int64_t start_ns = fb_now_ns();
    int rc = 0;

    for (uint64_t i = 0; rc == 0 && i < count; i++)
        rc = run_trial(rand, alone, t);
    *ret_seconds = (double)(fb_now_ns() - start_ns) / 1e9;
    return rc;
}

/* ---- streams that are no such shuffle ---- */

enum kind {
    REPLACED,
    NUMPY,
    SEQUENTIAL,
    STRIDED,
    BUFFERED,
    SKEWED,
    BEYOND,
    KINDS,
};

#define BUFFER 1000

struct stream {
    enum kind kind;
    uint32_t count;
    uint32_t at;
    uint32_t stride;
    uint32_t *order;         /* NUMPY, BEYOND */
    uint32_t buffer[BUFFER]; /* BUFFERED */
};

static int open_stream(struct stream *st, struct fb_rand *rand)
{
    struct fb_shuffle_spec spec = {.count = st->count};

    st->at = (uint32_t)fb_rand_below(rand, st->count / 2);
    st->stride = between(rand, 2, 100);
    for (uint32_t i = 0; i < BUFFER; i++)
        st->buffer[i] = i;
    if (st->kind == NUMPY)
        spec.sampler = fb_sampler_find("numpy");
    else if (st->kind == BEYOND)
        spec.sampler = fb_sampler_find("torch-distributed");
    else
        return 0;
    spec.seed = st->kind == BEYOND ? FB_SEED_SMALL + fb_rand_below(rand, FB_SEED_ALL / 2)
                                   : fb_rand_below(rand, FB_SEED_SMALL);
    st->at = 0;
    return shuffle_once(&spec, &st->order);
}

static uint32_t from_buffer(struct stream *st, struct fb_rand *rand, uint32_t i)
{
    uint32_t slot = (uint32_t)fb_rand_below(rand, BUFFER);
    uint32_t file = st->buffer[slot];

    st->buffer[slot] = BUFFER + i;
    return file;
}

static uint32_t next_of(struct stream *st, struct fb_rand *rand, uint32_t i)
{
    double u;

    switch (st->kind) {
    case REPLACED:
        return (uint32_t)fb_rand_below(rand, st->count);
    case SEQUENTIAL:
        return st->at + i;
    case STRIDED:
        return (uint32_t)(((uint64_t)st->at + (uint64_t)i * st->stride) % st->count);
    case BUFFERED:
        return from_buffer(st, rand, i);
    case SKEWED:
        u = fb_rand_unit(rand);
        return (uint32_t)(u * u * u * st->count);
    default:
        return st->order[i];
    }
}

/* Returns whether something is believed of it, by either search. */
static bool feed_stream(struct stream *st, struct fb_rand *rand, struct fb_seed_search *first,
                        struct fb_seed_search *any)
{
    for (uint32_t i = 0; i < ACCESSES; i++) {
        uint32_t file = next_of(st, rand, i);

        if (read_one(first, &file) || read_one(any, &file))
            return true;
    }
    return false;
}

static int run_stream(struct fb_rand *rand, uint64_t number, uint64_t *believed)
{
    struct stream st = {.kind = (enum kind)(number % KINDS), .count = some_files(rand)};
    struct fb_seed_search *first = open_search(st.count, 1, false, 0);
    struct fb_seed_search *any = open_search(st.count, 1, true, ALONE_SEEDS);
    int rc = first && any ? open_stream(&st, rand) : -1;

    if (rc == 0)
        *believed += feed_stream(&st, rand, first, any);
    free(st.order);
    fb_seed_search_free(first);
    fb_seed_search_free(any);
    return rc;
}

/* ---- speed ---- */

/* Of this process alone, so that a busy machine does not count. */
static double cpu_now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Of the pass that comes first: is the first access at one of 64 positions? */
static double seeds_per_second(enum fb_scan_level level)
{
    struct fb_scan scan = {0};
    uint32_t hits[1024];
    double start_s = cpu_now_s();
    size_t count;

    for (uint32_t p = 0; p < 64; p++)
        fb_scan_add(&scan, SPEED_FILES, 1000000, p, 0);
    for (uint64_t seed = 0; seed < SPEED_SEEDS;)
        seed += fb_scan_run(&scan, level, (uint32_t)seed, SPEED_SEEDS - seed, hits, 1024, &count);
    return (double)SPEED_SEEDS / (cpu_now_s() - start_s);
}

/* The best of a few: 0 when this CPU cannot. */
static double best_speed(enum fb_scan_level level)
{
    double best = 0;

    for (unsigned i = 0; level <= fb_scan_best() && i < 5; i++)
        best = fmax(best, seeds_per_second(level));
    return best;
}

/* ---- all ---- */

struct result {
    uint64_t trials;
    double seconds; /* of all trials */
    struct tally tally;
    uint64_t alone;
    double alone_seconds;
    struct tally alone_tally;
    uint64_t streams;
    uint64_t believed;
    double speeds[FB_SCAN_LEVELS];
};

static void print_tally(const char *name, const struct tally *t, uint64_t trials, double seconds)
{
    if (trials == 0)
        return;
    printf("%-8s  %" PRIu64 " of %" PRIu64 " found (%.1f%%) within %d accesses, %" PRIu64
           " of them after %d; %" PRIu64 " missed, %" PRIu64 " wrong; %.0f ms each\n",
           name, t->found, trials, 100.0 * (double)t->found / (double)trials, ACCESSES, t->at_once,
           FB_SEED_ENOUGH, t->missed, t->wrong, seconds * 1e3 / (double)trials);
}

static void print_text(const struct result *r)
{
    print_tally("workers", &r->tally, r->trials, r->seconds);
    print_tally("alone", &r->alone_tally, r->alone, r->alone_seconds);
    if (r->streams)
        printf("believed  %" PRIu64 " of %" PRIu64 " streams that are no such shuffle\n",
               r->believed, r->streams);
    for (unsigned level = 0; level < FB_SCAN_LEVELS; level++) {
        double speed = r->speeds[level];

        if (speed > 0)
            printf("%-8s  %.1f million seeds a second of CPU: 2^20 in %.0f ms, 2^32 in %.0f s\n",
                   fb_scan_level_names[level], speed / 1e6, (double)SPEED_SEEDS * 1e3 / speed,
                   (double)FB_SEED_ALL / speed);
        else
            printf("%-8s  not on this CPU\n", fb_scan_level_names[level]);
    }
}

static int print_json(const struct result *r)
{
    const struct tally *t = &r->tally, *a = &r->alone_tally;
    json_t *speeds = json_object();
    json_t *all = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:o}", "trials",
        (json_int_t)r->trials, "found", (json_int_t)t->found, "at_once", (json_int_t)t->at_once,
        "missed", (json_int_t)t->missed, "wrong", (json_int_t)t->wrong, "seconds", r->seconds,
        "alone", (json_int_t)r->alone, "alone_found", (json_int_t)a->found, "alone_at_once",
        (json_int_t)a->at_once, "alone_missed", (json_int_t)a->missed, "alone_wrong",
        (json_int_t)a->wrong, "alone_seconds", r->alone_seconds, "streams", (json_int_t)r->streams,
        "believed", (json_int_t)r->believed, "seeds_per_cpu_second", speeds);

    for (unsigned level = 0; all && level < FB_SCAN_LEVELS; level++)
        json_object_set_new(speeds, fb_scan_level_names[level], json_real(r->speeds[level]));
    if (!all)
        return cli_fail(CLI_FAILED, "out of memory for the result");
    json_dumpf(all, stdout, 0);
    fputc('\n', stdout);
    json_decref(all);
    return CLI_OK;
}

int cli_bench_seeds(const struct cli_bench_options *options)
{
    struct fb_rand rand = {options->random};
    struct result r = {
        .trials = options->trials, .alone = options->alone, .streams = options->streams};
    int status = CLI_OK;
    int rc = run_trials(&rand, r.trials, false, &r.tally, &r.seconds);

    if (rc == 0)
        rc = run_trials(&rand, r.alone, true, &r.alone_tally, &r.alone_seconds);
    for (uint64_t i = 0; rc == 0 && i < r.streams; i++)
        rc = run_stream(&rand, i, &r.believed);
    if (rc)
        return CLI_FAILED;
    for (unsigned level = 0; level < FB_SCAN_LEVELS; level++)
        r.speeds[level] = best_speed((enum fb_scan_level)level);
    if (options->json)
        status = print_json(&r);
    else
        print_text(&r);
    return r.tally.wrong || r.alone_tally.wrong || r.believed ? CLI_FAILED : status;
}
