/*
 * Jobs small enough to be computed by hand: latency 150 ms, 125 MB/s, files of 1 ms.
 */
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "sim/jobs_cache.h"
#include "sim/jobs_systems.h"

#define FILE_BYTES 125000
#define HIT_S      (FB_JOBS_HIT_S + FILE_BYTES / FB_JOBS_HIT_RATE)

static const struct fb_job_set sets[] = {
    {.path = "a",
     .files = 4,
     .file_name = {.prefix = "f", .suffix = "", .width = 1},
     .mean_bytes = FILE_BYTES},
    {.path = "b/c",
     .dirs = 24,
     .files = 3,
     .dir_name = {.prefix = "", .suffix = "", .are_months = true},
     .file_name = {.prefix = "t", .suffix = ".csv", .width = 2},
     .mean_bytes = FILE_BYTES},
    {.path = "big",
     .files = 1,
     .file_name = {.prefix = "f", .suffix = "", .width = 1},
     .mean_bytes = 20ULL * FB_JOB_BLOCK + 1},
};

#define IN_ORDER(the_set, the_rounds) \
 .set = (the_set), .order = FB_JOB_IN_ORDER, .rounds = (the_rounds), .batch = 1

static const struct fb_job alone = {.number = 1, .phases = 1, .phase = {{IN_ORDER(0, 1)}}};
static const struct fb_job twice = {.number = 2, .phases = 1, .phase = {{IN_ORDER(0, 2)}}};
static const struct fb_job two_workers = {
    .number = 3, .phases = 1, .phase = {{IN_ORDER(0, 1), .workers = 2}}};
static const struct fb_job computes = {
    .number = 4, .phases = 1, .phase = {{IN_ORDER(0, 1), .workers = 1, .compute_s = 0.2}}};
static const struct fb_job decodes = {
    .number = 5,
    .phases = 2,
    .phase = {{IN_ORDER(0, 1), .decode_s = 0.01, .compute_s = 0.02}, {IN_ORDER(0, 1)}},
    .tail_s = 7};
static const struct fb_job large = {.number = 6, .phases = 1, .phase = {{IN_ORDER(2, 1)}}};
static const struct fb_job months = {
    .number = 7,
    .phases = 1,
    .phase = {{.set = 1, .order = FB_JOB_ONE_EACH, .rounds = 1, .batch = 1}}};

struct outcome {
    struct fb_jobs_result job[2];
    struct fb_jobs_totals totals;
};

/* One or two jobs that begin at 0; policy NULL: no cache. */
static struct outcome run(const struct fb_job *a, const struct fb_job *b, const char *policy,
                          uint32_t connections, double stop_s)
{
    struct fb_job jobs[2] = {*a, b ? *b : *a};
    struct fb_job_mix mix = {
        .sets = sets, .set_count = FB_ARRAY_SIZE(sets), .jobs = jobs, .job_count = b ? 2 : 1};
    double start[2] = {0, 0}, stop[2] = {stop_s, -1};
    struct fb_jobs_setup setup = {
        .start_s = start, .stop_s = stop, .source = fb_jobs_source_default(), .seed = 1};
    struct fb_jobs_world *world;
    struct outcome o;

    assert_int_equal(fb_jobs_world_new(&mix, &world), 0);
    setup.world = world;
    setup.source.connections = connections;
    if (policy) {
        setup.ops = &fb_jobs_plain;
        assert_int_equal(fb_jobs_plain_new(world, fb_sim_policy_find(policy, strlen(policy)),
                                           1 << 30, FB_JOBS_AHEAD_READAHEAD, &setup.cache),
                         0);
    }
    assert_int_equal(fb_jobs_go(&setup, o.job, &o.totals), 0);
    if (policy)
        setup.ops->destroy(setup.cache);
    fb_jobs_world_free(world);
    return o;
}

static void assert_near(double a, double b)
{
    if (fabs(a - b) > 1e-6)
        fail_msg("%.9f is not %.9f", a, b);
}

static void times_are_right(void **state)
{
    (void)state;
    assert_near(run(&alone, NULL, NULL, 64, -1).job[0].end_s, 4 * 0.151);
    /* Two answers share the pipe. */
    assert_near(run(&two_workers, NULL, NULL, 64, -1).job[0].end_s, 2 * 0.152);
    /* Reading goes on while it computes. */
    assert_near(run(&computes, NULL, NULL, 64, -1).job[0].end_s, 0.151 + 4 * 0.2);
    assert_near(run(&decodes, NULL, NULL, 64, -1).job[0].end_s,
                4 * (0.151 + 0.01 + 0.02) + 4 * 0.151 + 7);
    /* One connection: one after the other. */
    assert_near(run(&two_workers, NULL, NULL, 1, -1).job[0].end_s, 4 * 0.151);
    /* Stopped at the first tick from 0.5 s on. */
    assert_near(run(&decodes, NULL, NULL, 64, 0.5).job[0].end_s, 1);
}

static void what_is_there_is_not_fetched(void **state)
{
    struct outcome o = run(&twice, NULL, "lru", 64, -1);

    (void)state;
    assert_near(o.job[0].end_s, 4 * 0.151 + 4 * HIT_S);
    assert_int_equal(o.job[0].reads, 8);
    assert_int_equal(o.job[0].hits, 4);
    assert_int_equal(o.totals.fetches, 4);
    /* Two jobs in step wait for the same answers. */
    o = run(&alone, &alone, "lru", 64, -1);
    assert_near(o.job[0].end_s, 4 * 0.151);
    assert_near(o.job[1].end_s, 4 * 0.151);
    assert_int_equal(o.totals.fetches, 4);
    /* Without a cache each has its own. */
    o = run(&alone, &alone, NULL, 64, -1);
    assert_near(o.job[1].end_s, 4 * 0.152);
    assert_int_equal(o.totals.fetches, 8);
}

/* Block 0 alone; 1 was asked for with it, so both share the pipe; ... In all the pipe is never idle
 * after the first answers: not much more than the bytes take. */
static void large_files_are_read_ahead(void **state)
{
    double bytes_s = 20.0 * FB_JOB_BLOCK / 125e6;
    struct outcome o = run(&large, NULL, "lru", 64, -1);

    (void)state;
    assert_int_equal(o.job[0].reads, 21);
    assert_int_equal(o.totals.fetches, 21);
    assert_int_equal(o.totals.ahead, 20);
    assert_true(o.job[0].end_s > bytes_s + 0.15 && o.job[0].end_s < bytes_s + 0.65);
    o = run(&large, NULL, NULL, 64, -1);
    assert_near(o.job[0].end_s, 21 * 0.15 + bytes_s + 1 / 125e6);
}

static void windows_double(void **state)
{
    struct fb_job_mix mix = {.sets = sets, .set_count = FB_ARRAY_SIZE(sets)};
    struct fb_jobs_world *world;
    struct fb_jobs_ahead *ahead;
    uint32_t items[FB_JOBS_AHEAD_MAX], first;

    (void)state;
    assert_int_equal(fb_jobs_world_new(&mix, &world), 0);
    first = world->files[world->set_file[2]].first_item;
    assert_int_equal(fb_jobs_ahead_new(world, FB_JOBS_AHEAD_READAHEAD, &ahead), 0);
    for (uint32_t block = 0, window = 1; block < 6;
         block++, window = window < 16 ? 2 * window : 16) {
        struct fb_jobs_read read = {.item = first + block, .pid = 1};
        unsigned n = fb_jobs_ahead_of(ahead, &read, items);

        assert_int_equal(n, window < 20 - block ? window : 20 - block);
        assert_int_equal(items[0], first + block + 1);
    }
    assert_int_equal(
        fb_jobs_ahead_of(ahead, &(struct fb_jobs_read){.item = first + 9, .pid = 1}, items), 0);
    fb_jobs_ahead_free(ahead);
    /* Once a file was seen after another, it is fetched after it. */
    assert_int_equal(fb_jobs_ahead_new(world, FB_JOBS_AHEAD_MARKOV, &ahead), 0);
    for (unsigned round = 0; round < 2; round++) {
        assert_int_equal(
            fb_jobs_ahead_of(ahead, &(struct fb_jobs_read){.item = 2, .pid = 1}, items),
            round ? 2 : 0);
        if (round)
            assert_int_equal(items[0], 0);
        fb_jobs_ahead_of(ahead, &(struct fb_jobs_read){.item = 0, .pid = 1}, items);
    }
    fb_jobs_ahead_free(ahead);
    fb_jobs_world_free(world);
}

static void files_have_places(void **state)
{
    struct fb_job_mix mix = {.sets = sets, .set_count = FB_ARRAY_SIZE(sets)};
    struct fb_jobs_world *w;
    uint32_t first, end;

    (void)state;
    assert_int_equal(fb_jobs_world_new(&mix, &w), 0);
    assert_int_equal(w->file_count, 4 + 72 + 1);
    assert_int_equal(w->item_count, 4 + 72 + 21);
    assert_string_equal(w->files[2].path, "a/f2");
    assert_string_equal(w->files[4 + 3 * 12 + 1].path, "b/c/185101/t01.csv");
    assert_true(fb_jobs_below(w, "b", 1, &first, &end));
    assert_int_equal(first, 4);
    assert_int_equal(end, 76);
    assert_true(fb_jobs_below(w, "b/c/185101", 10, &first, &end));
    assert_int_equal(first, 4 + 36);
    assert_int_equal(end, 4 + 39);
    assert_true(fb_jobs_below(w, "a/f3", 4, &first, &end));
    assert_int_equal(first, 3);
    assert_int_equal(end, 4);
    assert_false(fb_jobs_below(w, "b/c/1851", 8, &first, &end));
    assert_false(fb_jobs_below(w, "c", 1, &first, &end));
    assert_int_equal(fb_jobs_child_end(w, 4 + 37, 3), 4 + 39);
    assert_int_equal(fb_jobs_child_end(w, 4 + 37, 10), 4 + 38);
    assert_int_equal(fb_jobs_dir_of(w, 4 + 37, &first), 3);
    assert_int_equal(first, 4 + 36);
    assert_int_equal(fb_jobs_item_bytes(w, 4 + 72 + 20), 1);
    assert_int_equal(fb_jobs_set_bytes(w, 0), 4 * FILE_BYTES);
    fb_jobs_world_free(w);
}

static void jobs_arrive_by_lot(void **state)
{
    double at[18], sum = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        double last = 0;

        fb_job_arrivals(&fb_job_mix_18, seed, at);
        for (size_t i = 0; i < 18; i++) {
            assert_true(at[i] >= 0);
            last = fmax(last, at[i]);
        }
        sum += last;
    }
    /* 17 gaps of 60 s; the mean of 1,000 such sums is off by 8 s. */
    assert_true(fabs(sum / 1000 - 17 * 60) < 32);
}

/* All of the brain in one small run: nothing is read twice from the source, what comes is asked
 * for before. */
static void the_brain_goes_ahead(void **state)
{
    struct fb_job jobs[1] = {months};
    struct fb_job_set many[3] = {sets[0], sets[1], sets[2]};
    struct fb_job_mix mix = {.sets = many, .set_count = 3, .jobs = jobs, .job_count = 1};
    double start = 0;
    struct fb_jobs_case the = {.start_s = &start, .cache_bytes = 1 << 30, .seed = 1};
    struct fb_jobs_outcome o;
    struct fb_jobs_world *w;

    (void)state;
    many[1].dirs = 400;
    assert_int_equal(fb_jobs_world_new(&mix, &w), 0);
    the.world = w;
    assert_int_equal(fb_jobs_try(&fb_jobs_forebay, &the, &o), 0);
    assert_int_equal(o.job[0].reads, 400);
    assert_true(o.job[0].hits + o.job[0].late > 360);
    assert_true(o.totals.fetches < 400 + 40);
    assert_true(o.job[0].end_s < 400 * 0.151 / 4);
    fb_jobs_outcome_free(&o);
    assert_int_equal(fb_jobs_try(&fb_jobs_block_lru, &the, &o), 0);
    assert_near(o.job[0].end_s, 400 * 0.151);
    fb_jobs_outcome_free(&o);
    fb_jobs_world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_right),
        cmocka_unit_test(what_is_there_is_not_fetched),
        cmocka_unit_test(large_files_are_read_ahead),
        cmocka_unit_test(windows_double),
        cmocka_unit_test(files_have_places),
        cmocka_unit_test(jobs_arrive_by_lot),
        cmocka_unit_test(the_brain_goes_ahead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
