#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "policy/prefetch.h"

static const struct fb_prefetch_pipe slow = {
    .latency_s = 0.15, .bytes_per_s = 125e6, .item_bytes = 256 << 10};

static void depth_follows_the_pipe(void **state)
{
    struct fb_prefetch_config config = fb_prefetch_defaults();
    struct fb_prefetch_pipe disk = {.latency_s = 0.0001};

    (void)state;
    /* A reader that takes its time needs little; one that waits for us, all the pipe holds: 72. */
    assert_int_equal(fb_prefetch_depth(&config, &slow, 1), FB_PREFETCH_DEPTH);
    assert_int_equal(fb_prefetch_depth(&config, &slow, 0.02), 16);
    assert_in_range(fb_prefetch_depth(&config, &slow, 0.001), 72, 74);
    assert_int_equal(fb_prefetch_depth(&config, &disk, 0.001), FB_PREFETCH_DEPTH);
    assert_int_equal(fb_prefetch_depth(&config, &disk, 0), FB_PREFETCH_DEPTH_MAX);
    config.depth = 4;
    assert_int_equal(fb_prefetch_depth(&config, &slow, 0.001), 4);
}

static struct fb_stream_info scan(int32_t stride)
{
    return (struct fb_stream_info){.verdict = {.pattern = FB_PATTERN_SEQUENTIAL, .stride = stride},
                                   .gap_mean_s = 0.02};
}

/* Whatever the readers do, nothing is asked for twice, and what comes next was asked for. */
static void two_readers_go_through_in_order(void **state)
{
    static uint8_t asked[2000];
    struct fb_prefetch_config config = fb_prefetch_defaults();

    (void)state;
    for (int32_t stride = 1; stride <= 3; stride++) {
        struct fb_stream_info info = scan(stride);
        struct fb_prefetch p = {0};

        memset(asked, 0, sizeof asked);
        for (uint32_t i = 0; i < 900; i += (uint32_t)stride) {
            for (uint32_t reader = 0; reader < 2; reader++) {
                struct fb_prefetch_range r =
                    fb_prefetch_ahead(&p, &config, &info, &slow, i + reader * 999, 2000);

                for (uint32_t k = 0; k < r.count; k++) {
                    assert_in_range(r.first + k * r.stride, 0, 1999);
                    asked[r.first + k * r.stride]++;
                }
                if (i > 0)
                    assert_int_equal(asked[i + reader * 999], 1);
            }
        }
        for (uint32_t i = 0; i < 2000; i++)
            assert_in_range(asked[i], 0, 1);
    }
}

static void only_scans_have_a_next(void **state)
{
    struct fb_prefetch_config config = fb_prefetch_defaults();
    struct fb_stream_info info = scan(1);
    struct fb_prefetch p = {0};

    (void)state;
    for (int pattern = 0; pattern < FB_PATTERNS; pattern++) {
        bool goes_on = pattern == FB_PATTERN_SEQUENTIAL || pattern == FB_PATTERN_CYCLIC;
        struct fb_prefetch_range r;

        info.verdict.pattern = (uint8_t)pattern;
        memset(&p, 0, sizeof p);
        r = fb_prefetch_ahead(&p, &config, &info, &slow, 10, 0);
        assert_int_equal(r.count != 0, goes_on);
    }
    /* A cycle in a shuffled order. */
    info.verdict.stride = 0;
    assert_int_equal(fb_prefetch_ahead(&p, &config, &info, &slow, 10, 0).count, 0);
    /* The end of the directory. */
    info = scan(1);
    memset(&p, 0, sizeof p);
    assert_int_equal(fb_prefetch_ahead(&p, &config, &info, &slow, 97, 100).count, 2);
    assert_int_equal(fb_prefetch_ahead(&p, &config, &info, &slow, 99, 100).count, 0);
    /* Jumps about: never past the end of numbers. */
    assert_int_equal(fb_prefetch_ahead(&p, &config, &info, &slow, UINT32_MAX, 0).count, 0);
}

static void what_does_not_pay_pauses(void **state)
{
    struct fb_prefetch_config config = fb_prefetch_defaults();
    struct fb_stream_info info = scan(1);
    struct fb_prefetch p = {0};
    uint64_t visits = 100, first;

    (void)state;
    for (unsigned i = 0; i < 100; i++)
        fb_prefetch_count(&p, &config, true, visits);
    assert_true(fb_prefetch_accuracy(&p) == 1);
    while (!fb_prefetch_is_paused(&p, visits))
        fb_prefetch_count(&p, &config, false, visits);
    info.visits = visits;
    assert_int_equal(fb_prefetch_ahead(&p, &config, &info, &slow, 10, 0).count, 0);
    first = p.paused_until - visits;
    info.visits = visits = p.paused_until;
    assert_true(fb_prefetch_ahead(&p, &config, &info, &slow, 10, 0).count > 0);
    /* Still no use: a longer pause. */
    while (!fb_prefetch_is_paused(&p, visits))
        fb_prefetch_count(&p, &config, false, visits);
    assert_true(p.paused_until - visits > first);
}

static void a_random_set_is_loaded_if_enough_fits(void **state)
{
    struct fb_prefetch_config config = fb_prefetch_defaults();
    struct fb_stream_info info = {.verdict.pattern = FB_PATTERN_RANDOM};

    (void)state;
    assert_int_equal(fb_prefetch_fill(&config, &info, 1000, 0, 1500), 1000);
    assert_int_equal(fb_prefetch_fill(&config, &info, 1000, 400, 900), 500);
    assert_int_equal(fb_prefetch_fill(&config, &info, 1000, 900, 900), 0);
    assert_int_equal(fb_prefetch_fill(&config, &info, 1000, 0, 2001), 0);
    assert_int_equal(fb_prefetch_fill(&config, &info, 1000, 0, 0), 0);
    info.verdict.pattern = FB_PATTERN_SKEWED;
    assert_int_equal(fb_prefetch_fill(&config, &info, 1000, 0, 900), 0);
}

/* Job 4 of the paper: one region's table in each month, other tables beside it. */
static void beside_what_is_read_a_few_times_as_much(void **state)
{
    (void)state;
    assert_int_equal(fb_prefetch_beside(8, 0, 0), 8);
    assert_int_equal(fb_prefetch_beside(8, 0, 8), 0);
    assert_int_equal(fb_prefetch_beside(8, 10, 8), 40);
    assert_int_equal(fb_prefetch_beside(8, 10, 100), 0);
}

static void only_what_siblings_were_read_for(void **state)
{
    struct fb_prefetch_config config = fb_prefetch_defaults();
    struct fb_streams_config streams_config = {0};
    struct fb_streams *s;
    struct fb_fed fed;
    uint64_t months, heads;

    (void)state;
    assert_int_equal(fb_streams_new(&streams_config, &s), 0);
    for (uint32_t i = 0; i < 150; i++) {
        char path[64];
        struct fb_fact fact = {.path = path, .pid = 1, .blocks = 20, .position = 3, .siblings = 10};

        fact.path_len =
            (uint32_t)snprintf(path, sizeof path, "icoads/%06u/10_100_00_110.csv", 201000 + i);
        for (fact.block = 0; fact.block < 2; fact.block++)
            fb_streams_feed(s, &fact, &fed);
    }
    months = fed.steps[fed.depth - 3].id;
    assert_true(fb_prefetch_wants_name(&config, s, months, "10_100_00_110.csv", 17));
    assert_false(fb_prefetch_wants_name(&config, s, months, "20_200_00_110.csv", 17));
    fb_streams_free(s);

    /* The same for blocks: the heads of files in one directory. */
    assert_int_equal(fb_streams_new(&streams_config, &s), 0);
    for (uint32_t i = 0; i < 150; i++) {
        char path[64];
        struct fb_fact fact = {
            .path = path, .pid = 1, .blocks = 20, .position = i, .siblings = 1000};

        fact.path_len = (uint32_t)snprintf(path, sizeof path, "heads/%06u.csv", i);
        for (fact.block = 0; fact.block < 2; fact.block++)
            fb_streams_feed(s, &fact, &fed);
    }
    heads = fed.steps[fed.depth - 2].id;
    assert_true(fb_prefetch_wants_block(&config, s, heads, 0, 20));
    assert_true(fb_prefetch_wants_block(&config, s, heads, 1, 20));
    assert_false(fb_prefetch_wants_block(&config, s, heads, 2, 20));
    assert_true(fb_prefetch_wants_block(&config, s, heads, 0, 1));
    fb_streams_free(s);
}

static void demand_goes_first(void **state)
{
    (void)state;
    assert_int_equal(fb_prefetch_room(64, 0, 0), 60);
    assert_int_equal(fb_prefetch_room(64, 0, 60), 0);
    assert_int_equal(fb_prefetch_room(64, 40, 5), 15);
    assert_int_equal(fb_prefetch_room(64, 60, 0), 0);
    assert_int_equal(fb_prefetch_room(64, 400, 0), 0);
    assert_int_equal(fb_prefetch_room(1, 1, 0), 0);
    assert_int_equal(fb_prefetch_room(1, 0, 0), 1);
}

static void it_yields_to_a_full_pipe(void **state)
{
    struct fb_prefetch_pipe pipe = {.latency_s = 0.15, .bytes_per_s = 125e6};

    (void)state;
    assert_false(fb_prefetch_yields(&pipe, 0));
    assert_false(fb_prefetch_yields(&pipe, 9374999));
    assert_true(fb_prefetch_yields(&pipe, 9375000));
    /* Nothing is known of the source; or so little is under way that it is no matter. */
    pipe.bytes_per_s = 0;
    assert_false(fb_prefetch_yields(&pipe, 1ULL << 40));
    pipe = (struct fb_prefetch_pipe){.latency_s = 0.001, .bytes_per_s = 1e6};
    assert_false(fb_prefetch_yields(&pipe, FB_PREFETCH_YIELD_BYTES - 1));
    assert_true(fb_prefetch_yields(&pipe, FB_PREFETCH_YIELD_BYTES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depth_follows_the_pipe),
        cmocka_unit_test(two_readers_go_through_in_order),
        cmocka_unit_test(only_scans_have_a_next),
        cmocka_unit_test(what_does_not_pay_pauses),
        cmocka_unit_test(a_random_set_is_loaded_if_enough_fits),
        cmocka_unit_test(beside_what_is_read_a_few_times_as_much),
        cmocka_unit_test(only_what_siblings_were_read_for),
        cmocka_unit_test(demand_goes_first),
        cmocka_unit_test(it_yields_to_a_full_pipe),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
