#include <cmocka.h>

#include "base/rand.h"
#include "policy/alloc.h"

#define MB (1ULL << 20)

static const struct fb_alloc_config config = {
    .total_bytes = 7680 * MB, .step_bytes = FB_ALLOC_STEP, .minimum_bytes = FB_ALLOC_MINIMUM};

static void benefits(void **state)
{
    struct fb_alloc_stream random = {.pattern = FB_PATTERN_RANDOM,
                                     .gap_s = 0.01,
                                     .items = 10000,
                                     .data_bytes = 1000 * MB,
                                     .quota_bytes = 500 * MB};
    struct fb_alloc_stream skewed = {
        .pattern = FB_PATTERN_SKEWED, .rate = 50, .ghost_share = 0.1, .quota_bytes = 500 * MB};
    struct fb_alloc_stream scan = {.pattern = FB_PATTERN_SEQUENTIAL, .rate = 1000, .gap_s = 0.001};

    (void)state;
    assert_true(fb_alloc_benefit(&random) > 0.0099 && fb_alloc_benefit(&random) < 0.0101);
    assert_true(fb_alloc_benefit(&skewed) > 0.049 && fb_alloc_benefit(&skewed) < 0.051);
    assert_true(fb_alloc_benefit(&scan) == 0);
    random.pattern = FB_PATTERN_CYCLIC;
    assert_true(fb_alloc_benefit(&random) > 0.0099);
    random.quota_bytes = random.data_bytes;
    assert_true(fb_alloc_benefit(&random) == 0);
    /* Twice the readers of a data set, twice the benefit. */
    random.quota_bytes = 0;
    random.gap_s /= 2;
    assert_true(fb_alloc_benefit(&random) > 0.0199);
}

static void space_goes_where_it_saves_most(void **state)
{
    struct fb_alloc_stream s[] = {
        {.pattern = FB_PATTERN_RANDOM, .gap_s = 0.01, .items = 50000, .data_bytes = 20000 * MB},
        {.pattern = FB_PATTERN_RANDOM, .gap_s = 0.02, .items = 50000, .data_bytes = 20000 * MB},
        {.pattern = FB_PATTERN_SEQUENTIAL},
    };

    (void)state;
    fb_alloc_round(&config, s, 3);
    /* All that is free at once: the minimum to each, the rest to the highest. */
    assert_int_equal(s[0].quota_bytes, 7680 * MB - 2 * FB_ALLOC_MINIMUM);
    assert_int_equal(s[1].quota_bytes, FB_ALLOC_MINIMUM);
    assert_int_equal(s[2].quota_bytes, FB_ALLOC_MINIMUM);
    /* Now the other one is the busier: a step a round. */
    s[1].gap_s = 0.002;
    fb_alloc_round(&config, s, 3);
    assert_int_equal(s[1].quota_bytes, FB_ALLOC_MINIMUM + FB_ALLOC_STEP);
    fb_alloc_round(&config, s, 3);
    assert_int_equal(s[1].quota_bytes, FB_ALLOC_MINIMUM + 2 * FB_ALLOC_STEP);
    /* Benefits that hardly differ move nothing. */
    s[1].gap_s = 0.0095;
    fb_alloc_round(&config, s, 3);
    assert_int_equal(s[1].quota_bytes, FB_ALLOC_MINIMUM + 2 * FB_ALLOC_STEP);
    /* It ends: all it had is free again, and goes to the first. */
    s[1].has_ended = true;
    fb_alloc_round(&config, s, 3);
    assert_int_equal(s[1].quota_bytes, 0);
    assert_int_equal(s[0].quota_bytes, 7680 * MB - FB_ALLOC_MINIMUM);
}

static void a_newcomer_gets_the_minimum(void **state)
{
    struct fb_alloc_stream s[] = {
        {.pattern = FB_PATTERN_SKEWED, .rate = 10, .ghost_share = 0.1, .quota_bytes = 5000 * MB},
        {.pattern = FB_PATTERN_SKEWED, .rate = 10, .ghost_share = 0.2, .quota_bytes = 2680 * MB},
        {.pattern = FB_PATTERN_UNKNOWN},
    };

    (void)state;
    fb_alloc_round(&config, s, 3);
    assert_int_equal(s[2].quota_bytes, FB_ALLOC_MINIMUM);
    /* From the lowest benefit, which gives the step, too. */
    assert_int_equal(s[0].quota_bytes, 5000 * MB - FB_ALLOC_MINIMUM - FB_ALLOC_STEP);
    assert_int_equal(s[1].quota_bytes, 2680 * MB + FB_ALLOC_STEP);
}

static void what_covers_its_data_takes_no_more(void **state)
{
    struct fb_alloc_stream s[] = {
        {.pattern = FB_PATTERN_RANDOM, .gap_s = 0.001, .items = 1000, .data_bytes = 1000 * MB},
        {.pattern = FB_PATTERN_SKEWED},
        {.pattern = FB_PATTERN_SKEWED},
    };

    (void)state;
    fb_alloc_round(&config, s, 3);
    assert_int_equal(s[0].quota_bytes, 1000 * MB);
    assert_int_equal(s[1].quota_bytes, 3340 * MB);
    assert_int_equal(s[2].quota_bytes, 3340 * MB);
}

/* Nobody knows what a stream loses that never had to evict; it keeps what it uses while it is read,
 * but a newcomer's minimum may come from it. */
static void who_never_evicted_is_spared(void **state)
{
    struct fb_alloc_stream s[] = {
        {.pattern = FB_PATTERN_SKEWED,
         .rate = 10,
         .is_untried = true,
         .used_bytes = 4000 * MB,
         .quota_bytes = 5000 * MB},
        {.pattern = FB_PATTERN_RANDOM, .gap_s = 0.01, .items = 1000, .data_bytes = 9000 * MB},
        {.pattern = FB_PATTERN_RANDOM, .gap_s = 0.1, .items = 1000, .data_bytes = 9000 * MB},
    };

    (void)state;
    for (unsigned round = 0; round < 10; round++)
        fb_alloc_round(&config, s, 2);
    assert_int_equal(s[0].quota_bytes, 4000 * MB);
    assert_int_equal(s[1].quota_bytes, 3680 * MB);
    fb_alloc_round(&config, s, 3);
    assert_int_equal(s[2].quota_bytes, FB_ALLOC_MINIMUM);
    assert_true(s[0].quota_bytes < 4000 * MB);
    s[0].rate = 0;
    for (unsigned round = 0; round < 10; round++)
        fb_alloc_round(&config, s, 3);
    assert_int_equal(s[0].quota_bytes, FB_ALLOC_MINIMUM);
}

/* Whatever the streams are: never more than there is, nobody below its least, and once nothing
 * changes any more, space stops moving. */
static void any_streams(void **state)
{
    struct fb_rand rand = {1};

    (void)state;
    for (unsigned trial = 0; trial < 500; trial++) {
        struct fb_alloc_stream s[20] = {0};
        uint32_t count = 1 + (uint32_t)fb_rand_below(&rand, 20);
        uint64_t before[20];
        bool moved = true;

        for (uint32_t i = 0; i < count; i++)
            s[i] = (struct fb_alloc_stream){
                .pattern = (enum fb_pattern)fb_rand_below(&rand, FB_PATTERNS),
                .has_ended = fb_rand_below(&rand, 10) == 0,
                .data_bytes = fb_rand_below(&rand, 3) ? fb_rand_below(&rand, 9000) * MB : 0,
                .items = fb_rand_below(&rand, 100000),
                .gap_s = fb_rand_unit(&rand),
                .rate = 100 * fb_rand_unit(&rand),
                .ghost_share = fb_rand_unit(&rand),
                .is_untried = fb_rand_below(&rand, 2),
                .fair_bytes = fb_rand_below(&rand, config.total_bytes / count / 2),
                .quota_bytes = fb_rand_below(&rand, 2000) * MB,
            };
        for (unsigned round = 0; round < 100; round++) {
            uint64_t sum = 0, minimum = config.total_bytes / count / 2;

            moved = false;
            for (uint32_t i = 0; i < count; i++)
                before[i] = s[i].quota_bytes;
            fb_alloc_round(&config, s, count);
            for (uint32_t i = 0; i < count; i++) {
                sum += s[i].quota_bytes;
                moved = moved || before[i] != s[i].quota_bytes;
                if (s[i].has_ended) {
                    assert_int_equal(s[i].quota_bytes, 0);
                } else {
                    uint64_t least = fb_min_u64(config.minimum_bytes, minimum);

                    if (s[i].data_bytes && s[i].pattern != FB_PATTERN_SEQUENTIAL)
                        least = fb_min_u64(least, s[i].data_bytes);
                    assert_true(s[i].quota_bytes >= fb_max_u64(least, s[i].fair_bytes));
                }
            }
            assert_true(sum <= config.total_bytes);
        }
        assert_false(moved);
    }
}

static void a_ghost_remembers_what_was_evicted(void **state)
{
    struct fb_ghost ghost = {0};

    (void)state;
    for (uint64_t key = 1; key <= 150; key++)
        fb_ghost_add(&ghost, key);
    assert_false(fb_ghost_request(&ghost, 50, true)); /* too long ago */
    assert_true(fb_ghost_request(&ghost, 51, true));
    assert_false(fb_ghost_request(&ghost, 51, true)); /* counts once */
    assert_false(fb_ghost_request(&ghost, 150, false));
    assert_false(fb_ghost_request(&ghost, 0, true));
    assert_true(fb_ghost_round(&ghost) == 0.2);
    assert_true(fb_ghost_round(&ghost) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(benefits),
        cmocka_unit_test(space_goes_where_it_saves_most),
        cmocka_unit_test(a_newcomer_gets_the_minimum),
        cmocka_unit_test(what_covers_its_data_takes_no_more),
        cmocka_unit_test(who_never_evicted_is_spared),
        cmocka_unit_test(any_streams),
        cmocka_unit_test(a_ghost_remembers_what_was_evicted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
