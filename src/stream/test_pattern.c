#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "core/mem.h"
#include "stream/synth.h"

#define WINDOW 100

static struct fb_streams *new_streams(void)
{
    struct fb_streams_config config = {.window = WINDOW, .nodes_max = 2000};
    struct fb_streams *s;

    assert_int_equal(fb_streams_new(&config, &s), 0);
    return s;
}

static struct fb_fed last_fed;

static void feed_fact(struct fb_streams *s, struct fb_fact *fact)
{
    static int64_t now_ns;

    fact->time_ns = now_ns += 1000000;
    fb_streams_feed(s, fact, &last_fed);
}

/* File `index` of `items` in the directory. */
static void feed_file(struct fb_streams *s, const char *dir, uint32_t index, uint32_t items,
                      uint32_t pid)
{
    char path[128];
    struct fb_fact fact = {.path = path, .pid = pid, .position = index, .siblings = items};

    if (!items)
        fact.position = FB_POSITION_UNKNOWN;
    fact.path_len = (uint32_t)snprintf(path, sizeof path, "%s/%06u.jpg", dir, index);
    feed_fact(s, &fact);
}

static void feed_block(struct fb_streams *s, const char *path, uint32_t block, uint32_t blocks,
                       uint32_t pid)
{
    struct fb_fact fact = {.path = path,
                           .path_len = (uint32_t)strlen(path),
                           .pid = pid,
                           .block = block,
                           .blocks = blocks,
                           .position = FB_POSITION_UNKNOWN};

    feed_fact(s, &fact);
}

/* Of the node `up` levels above the one fed last. */
static struct fb_stream_info info_of(const struct fb_streams *s, unsigned up)
{
    struct fb_stream_info info;

    assert_true(fb_streams_get(s, last_fed.steps[last_fed.depth - 1 - up].id, &info));
    return info;
}

static enum fb_pattern pattern_of(const struct fb_streams *s, unsigned up)
{
    return info_of(s, up).verdict.pattern;
}

static void shuffle(uint32_t *a, uint32_t n, struct fb_rand *rand)
{
    for (uint32_t i = 0; i < n; i++)
        a[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)fb_rand_below(rand, i), t = a[j];

        a[j] = a[i - 1];
        a[i - 1] = t;
    }
}

/* ---- generated streams ---- */

#define STREAMS 60

static unsigned count_right(enum fb_synth_kind kind, enum fb_synth_form form, unsigned workers,
                            uint32_t more)
{
    unsigned right = 0;

    for (uint64_t seed = 1; seed <= STREAMS; seed++) {
        struct fb_stream_info info = {0};
        struct fb_streams *s = new_streams();
        struct fb_synth *synth;
        uint32_t goal;

        assert_int_equal(fb_synth_new(kind, seed, workers, &synth), 0);
        goal = fb_synth_patience(synth, WINDOW) + more;
        while (info.visits < goal) {
            char path[FB_SYNTH_PATH_MAX];
            struct fb_fact fact;

            fb_synth_fact(synth, form, 1, path, &fact);
            feed_fact(s, &fact);
            info = info_of(s, 0);
        }
        right += info.verdict.pattern == fb_synth_pattern(kind);
        fb_synth_free(synth);
        fb_streams_free(s);
    }
    return right;
}

static void every_kind_is_recognised(void **state)
{
    (void)state;
    for (int kind = 0; kind < FB_SYNTH_WEAK; kind++) {
        assert_in_range(count_right((enum fb_synth_kind)kind, FB_SYNTH_BLOCKS, 1, 0), STREAMS - 2,
                        STREAMS);
        assert_in_range(count_right((enum fb_synth_kind)kind, FB_SYNTH_LISTED, 1, 0), STREAMS - 2,
                        STREAMS);
        /* One window shows a scan in the wrong numbering, two more in the right one. */
        assert_in_range(count_right((enum fb_synth_kind)kind, FB_SYNTH_UNSORTED, 1, 2 * WINDOW),
                        STREAMS - 2, STREAMS);
        assert_in_range(count_right((enum fb_synth_kind)kind, FB_SYNTH_LISTED, 8, 0), STREAMS - 4,
                        STREAMS);
    }
}

static void scans_and_shuffles_need_no_listing(void **state)
{
    static const enum fb_synth_kind kinds[] = {FB_SYNTH_SEQUENTIAL, FB_SYNTH_STRIDED,
                                               FB_SYNTH_RANDOM, FB_SYNTH_CYCLIC};

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(kinds); i++)
        assert_in_range(count_right(kinds[i], FB_SYNTH_NAMED, 1, 0), STREAMS - 2, STREAMS);
    assert_in_range(count_right(FB_SYNTH_SCATTERED, FB_SYNTH_NAMED, 1, 10 * WINDOW), STREAMS - 4,
                    STREAMS);
}

/* ---- more than one reader ---- */

static void readers_at_several_places_are_sequential(void **state)
{
    struct fb_streams *s = new_streams();
    struct fb_rand rand = {3};
    uint32_t at[8];

    (void)state;
    for (uint32_t i = 0; i < 8; i++)
        at[i] = i * 1000;
    for (unsigned i = 0; i < 150; i++) {
        uint32_t who = (uint32_t)fb_rand_below(&rand, 8);

        feed_file(s, "d", at[who]++, 10000, who);
    }
    assert_int_equal(pattern_of(s, 0), FB_PATTERN_SEQUENTIAL);
    assert_int_equal(info_of(s, 0).verdict.stride, 1);
    fb_streams_free(s);
}

static void a_process_for_each_file_is_sequential(void **state)
{
    struct fb_streams *s = new_streams();

    (void)state;
    for (uint32_t i = 0; i < 150; i++)
        feed_file(s, "d", i, 0, 5000 + i);
    assert_int_equal(pattern_of(s, 0), FB_PATTERN_SEQUENTIAL);
    fb_streams_free(s);
}

/* Two jobs read the same shuffled order side by side: each item comes up twice. */
static void jobs_in_lockstep_are_random(void **state)
{
    static uint32_t order[20000];
    struct fb_rand rand = {5};

    (void)state;
    for (unsigned workers = 1; workers <= 8; workers *= 8) {
        struct fb_streams *s = new_streams();

        shuffle(order, FB_ARRAY_SIZE(order), &rand);
        for (uint32_t i = 0; i < 500; i++) {
            feed_file(s, "d", order[i], FB_ARRAY_SIZE(order), 1 + i % workers);
            if (i >= 5)
                feed_file(s, "d", order[i - 5], FB_ARRAY_SIZE(order), 100 + i % workers);
        }
        assert_int_equal(pattern_of(s, 0), FB_PATTERN_RANDOM);
        fb_streams_free(s);
    }
}

static void two_shuffled_jobs_are_random(void **state)
{
    static uint32_t order[2][500];
    struct fb_streams *s = new_streams();
    struct fb_rand rand = {6};

    (void)state;
    for (unsigned i = 0; i < 3000; i++) {
        if (i % 500 == 0) {
            shuffle(order[0], 500, &rand);
            shuffle(order[1], 500, &rand);
        }
        feed_file(s, "d", order[i % 2][i % 500], 500, 1 + i % 2);
    }
    assert_int_equal(pattern_of(s, 0), FB_PATTERN_RANDOM);
    fb_streams_free(s);
}

/* ---- shapes ---- */

static void tiny_directories(void **state)
{
    uint32_t order[20];
    struct fb_rand rand = {7};
    struct fb_streams *s = new_streams();

    (void)state;
    /* Five files, whatever the order: nothing to say. */
    for (unsigned i = 0; i < 400; i++)
        feed_file(s, "five", (uint32_t)fb_rand_below(&rand, 5), 5, 1);
    assert_int_equal(pattern_of(s, 0), FB_PATTERN_UNKNOWN);
    /* Twenty, shuffled each epoch; then in order each epoch; then a few of them most of the time.*/
    for (unsigned i = 0; i < 1000; i++) {
        if (i % 20 == 0)
            shuffle(order, 20, &rand);
        feed_file(s, "shuffled", order[i % 20], 20, 1);
    }
    assert_int_equal(pattern_of(s, 0), FB_PATTERN_RANDOM);
    for (unsigned i = 0; i < 1000; i++)
        feed_file(s, "again", i % 20, 20, 1);
    assert_int_equal(pattern_of(s, 0), FB_PATTERN_CYCLIC);
    assert_int_equal(info_of(s, 0).verdict.period, 20);
    for (unsigned i = 0; i < 1000; i++)
        feed_file(s, "hot", (uint32_t)fb_rand_below(&rand, fb_rand_below(&rand, 5) ? 3 : 20), 20,
                  1);
    assert_int_equal(pattern_of(s, 0), FB_PATTERN_SKEWED);
    fb_streams_free(s);
}

static void npz_is_read_in_order(void **state)
{
    struct fb_streams *s = new_streams();

    (void)state;
    for (uint32_t file = 0; file < 120; file++) {
        char path[64];

        snprintf(path, sizeof path, "unet/case_%03u.npz", file);
        feed_block(s, path, 0, 150, 1);
        feed_block(s, path, 149, 150, 1);
        for (uint32_t block = 0; block < 150; block++)
            feed_block(s, path, block, 150, 1);
    }
    assert_int_equal(pattern_of(s, 0), FB_PATTERN_SEQUENTIAL);
    assert_int_equal(pattern_of(s, 1), FB_PATTERN_SEQUENTIAL);
    fb_streams_free(s);
}

static void a_directory_may_grow(void **state)
{
    struct fb_streams *s = new_streams();
    struct fb_rand rand = {8};

    (void)state;
    /* Uniform over all there is, of which there is more and more. */
    for (uint32_t i = 0; i < 3000; i++)
        feed_file(s, "d", (uint32_t)fb_rand_below(&rand, 200 + i), 200 + i, 1);
    assert_int_equal(pattern_of(s, 0), FB_PATTERN_RANDOM);
    fb_streams_free(s);
}

static void part_of_a_directory_is_random_too(void **state)
{
    static uint32_t order[3000];
    struct fb_streams *s = new_streams();
    struct fb_rand rand = {9};

    (void)state;
    shuffle(order, FB_ARRAY_SIZE(order), &rand);
    for (uint32_t i = 0; i < 300; i++)
        feed_file(s, "d", 40000 + order[i], 100000, 1);
    assert_int_equal(pattern_of(s, 0), FB_PATTERN_RANDOM);
    fb_streams_free(s);
}

/* Classes of very different size below one directory, all of it shuffled. */
static void a_data_set_of_directories_is_one(void **state)
{
    static uint32_t order[20000];
    static uint16_t dir_of[20000];
    struct fb_streams *s = new_streams();
    struct fb_rand rand = {10};
    struct fb_stream_info info;
    char path[64];
    uint64_t owner;

    (void)state;
    for (uint32_t i = 0; i < FB_ARRAY_SIZE(order); i++) {
        double u = fb_rand_unit(&rand);

        dir_of[i] = (uint16_t)(60 * u * u); /* the first has thirteen times the last's */
    }
    for (unsigned epoch = 0; epoch < 2; epoch++) {
        shuffle(order, FB_ARRAY_SIZE(order), &rand);
        for (uint32_t i = 0; i < FB_ARRAY_SIZE(order); i++) {
            char dir[64];

            snprintf(dir, sizeof dir, "set/train/class%02u", dir_of[order[i]]);
            feed_file(s, dir, order[i], 0, 1 + i % 4);
        }
    }
    assert_int_equal(pattern_of(s, 1), FB_PATTERN_RANDOM);
    owner = fb_streams_fed_owner(s, &last_fed);
    assert_true(fb_streams_get(s, owner, &info));
    fb_streams_path(s, owner, path, sizeof path);
    assert_string_equal(path, "set/train");
    assert_int_equal(fb_streams_owner(s, 0, "set/train/class07/x", 19), owner);
    assert_in_range(info.items, 10000, 40000);
    fb_streams_free(s);
}

/* A reader of many small directories, each in order. */
static void directories_in_order_are_one_scan(void **state)
{
    struct fb_streams *s = new_streams();
    char path[64];

    (void)state;
    for (uint32_t dir = 0; dir < 150; dir++) {
        snprintf(path, sizeof path, "val/%06u", 201000 + dir);
        for (uint32_t i = 0; i < 20; i++)
            feed_file(s, path, i, 0, 1);
    }
    assert_int_equal(pattern_of(s, 1), FB_PATTERN_SEQUENTIAL);
    fb_streams_path(s, fb_streams_fed_owner(s, &last_fed), path, sizeof path);
    assert_string_equal(path, "val");
    fb_streams_free(s);
}

/* Eight data sets behind one file server, by one process: the directory that holds them owns none
 * of them. */
static void a_shelf_owns_nothing(void **state)
{
    struct fb_streams *s = new_streams();
    struct fb_rand rand = {11};
    uint32_t at = 0;
    char path[64];

    (void)state;
    for (unsigned i = 0; i < 8000; i++) {
        uint32_t which = (uint32_t)fb_rand_below(&rand, 12);

        snprintf(path, sizeof path, "sets/s%u", which);
        feed_file(s, path, which == 0 ? at++ : (uint32_t)fb_rand_below(&rand, 50000), 50000, 1);
    }
    assert_int_equal(fb_streams_owner(s, 0, "sets/new/f", 10), 0);
    fb_streams_path(s, fb_streams_owner(s, 0, "sets/s0/f", 9), path, sizeof path);
    assert_string_equal(path, "sets/s0");
    fb_streams_path(s, fb_streams_owner(s, 0, "sets/s1/f", 9), path, sizeof path);
    assert_string_equal(path, "sets/s1");
    assert_int_equal(fb_streams_owner(s, 0, "elsewhere/f", 11), 0);
    assert_int_equal(fb_streams_owner(s, 3, "sets/s0/f", 9), 0);
    fb_streams_free(s);
}

/* ---- change ---- */

static void a_change_is_noticed(void **state)
{
    struct fb_streams *s = new_streams();
    struct fb_rand rand = {12};
    uint32_t at = 0;
    unsigned i;

    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        for (i = 0; i < 2000; i++)
            feed_file(s, "d", at++ % 100000, 100000, 1);
        assert_int_equal(pattern_of(s, 0), FB_PATTERN_SEQUENTIAL);
        for (i = 0; i < 700; i++)
            feed_file(s, "d", (uint32_t)fb_rand_below(&rand, 100000), 100000, 1);
        assert_int_equal(pattern_of(s, 0), FB_PATTERN_RANDOM);
        for (i = 0; i < 700; i++)
            feed_file(s, "d", (uint32_t)fb_rand_below(&rand, 100) * 997, 100000, 1);
        assert_int_equal(pattern_of(s, 0), FB_PATTERN_SKEWED);
    }
    fb_streams_free(s);
}

static void one_odd_window_changes_nothing(void **state)
{
    struct fb_streams *s = new_streams();
    struct fb_rand rand = {13};
    uint32_t at = 0;

    (void)state;
    for (unsigned i = 0; i < 301; i++)
        feed_file(s, "d", at++, 100000, 1);
    for (unsigned i = 0; i < 100; i++)
        feed_file(s, "d", (uint32_t)fb_rand_below(&rand, 100000), 100000, 1);
    assert_int_equal(pattern_of(s, 0), FB_PATTERN_SEQUENTIAL);
    for (unsigned i = 0; i < 100; i++)
        feed_file(s, "d", at++, 100000, 1);
    assert_int_equal(pattern_of(s, 0), FB_PATTERN_SEQUENTIAL);
    fb_streams_free(s);
}

/* A verdict can be shown with what it rests on. */
static void verdicts_carry_their_statistic(void **state)
{
    struct fb_streams *s = new_streams();
    struct fb_rand rand = {14};
    struct fb_verdict v;

    (void)state;
    for (unsigned i = 0; i < 101; i++)
        feed_file(s, "r", (uint32_t)fb_rand_below(&rand, 100000), 100000, 1);
    v = info_of(s, 0).verdict;
    assert_int_equal(v.test, FB_TEST_GAPS);
    assert_true(v.statistic > 0 && v.statistic < v.limit);
    assert_true(v.limit > 0.16 && v.limit < 0.17);
    for (unsigned i = 0; i < 101; i++)
        feed_file(s, "s", 3 * i, 100000, 1);
    v = info_of(s, 0).verdict;
    assert_int_equal(v.test, FB_TEST_STEPS);
    assert_int_equal(v.stride, 3);
    assert_true(v.statistic > 0.99);
    for (unsigned i = 0; i < 200; i++)
        feed_file(s, "z", (uint32_t)fb_rand_below(&rand, 30) * 1000, 100000, 1);
    v = info_of(s, 0).verdict;
    assert_int_equal(v.test, FB_TEST_REPEATS);
    assert_true(v.statistic > v.limit);
    assert_string_equal(fb_pattern_name((enum fb_pattern)v.pattern), "skewed");
    assert_string_equal(fb_pattern_test_name((enum fb_pattern_test)v.test), "repeats");
    fb_streams_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_recognised),
        cmocka_unit_test(scans_and_shuffles_need_no_listing),
        cmocka_unit_test(readers_at_several_places_are_sequential),
        cmocka_unit_test(a_process_for_each_file_is_sequential),
        cmocka_unit_test(jobs_in_lockstep_are_random),
        cmocka_unit_test(two_shuffled_jobs_are_random),
        cmocka_unit_test(tiny_directories),
        cmocka_unit_test(npz_is_read_in_order),
        cmocka_unit_test(a_directory_may_grow),
        cmocka_unit_test(part_of_a_directory_is_random_too),
        cmocka_unit_test(a_data_set_of_directories_is_one),
        cmocka_unit_test(directories_in_order_are_one_scan),
        cmocka_unit_test(a_shelf_owns_nothing),
        cmocka_unit_test(a_change_is_noticed),
        cmocka_unit_test(one_odd_window_changes_nothing),
        cmocka_unit_test(verdicts_carry_their_statistic),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
