#include <cmocka.h>
#include <string.h>

#include "epoch/split.h"

/* Every sample of every rank, by the definition: the list is padded or cut, then sliced. */
static void check_against_definition(const struct fb_split *s)
{
    uint64_t even =
        s->drop_uneven ? s->count / s->world * s->world : fb_div_up(s->count, s->world) * s->world;
    uint64_t k = 0;
    uint64_t last_full = even / s->world / s->batch * s->batch;

    for (uint64_t at = s->rank; at < even; at += s->world, k++) {
        uint64_t found;

        if (s->drop_last && k >= last_full)
            break;
        assert_int_equal(fb_split_position(s, k), at % s->count);
        assert_true(fb_split_sample_at(s, (uint32_t)(at % s->count), &found));
        assert_true(found <= k);
        assert_int_equal(fb_split_position(s, found), at % s->count);
    }
    assert_int_equal(fb_split_samples(s), k);
    assert_int_equal(fb_split_batches(s), fb_div_up(k, s->batch));
}

static void test_ranks(void **state)
{
    (void)state;
    for (uint32_t count = 1; count < 40; count++) {
        for (uint32_t world = 1; world < 12; world++) {
            for (uint32_t rank = 0; rank < world; rank++) {
                for (unsigned drop = 0; drop < 4; drop++) {
                    struct fb_split s = {.count = count,
                                         .world = world,
                                         .rank = rank,
                                         .batch = 3,
                                         .drop_last = drop & 1,
                                         .drop_uneven = drop & 2};

                    check_against_definition(&s);
                }
            }
        }
    }
}

/* The workers together read each sample once, each reads its batches in order. */
static void test_workers(void **state)
{
    struct fb_split s = {.count = 103, .world = 1, .batch = 4, .workers = 3};
    unsigned seen[103] = {0};
    uint64_t k;

    (void)state;
    for (uint32_t w = 0; w < s.workers; w++) {
        uint64_t before = 0;

        for (uint64_t j = 0; fb_split_worker_sample(&s, w, j, &k); j++) {
            assert_int_equal(fb_split_worker(&s, k), w);
            assert_true(j == 0 || k > before);
            assert_int_equal(k / s.batch, w + j / s.batch * s.workers);
            before = k;
            seen[k]++;
        }
    }
    for (k = 0; k < 103; k++)
        assert_int_equal(seen[k], 1);
}

static void test_limits(void **state)
{
    const struct fb_split good = {.count = 10, .world = 4, .rank = 3, .batch = 1};
    struct fb_split s = good;
    struct fb_error error = {""};
    uint64_t k;

    (void)state;
    assert_int_equal(fb_split_check(&s, &error), 0);
    s.rank = 4;
    assert_true(fb_split_check(&s, &error) < 0);
    assert_non_null(strstr(error.text, "rank 4"));
    s = good;
    s.batch = 0;
    assert_true(fb_split_check(&s, NULL) < 0);
    s = good;
    s.world = 0;
    assert_true(fb_split_check(&s, NULL) < 0);

    /* Positions 0, 4, 8 are rank 0's, 10 and 11 are 0 and 1 once more. */
    assert_false(fb_split_sample_at(&good, 0, &k));
    assert_true(fb_split_sample_at(&good, 1, &k));
    assert_int_equal(k, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
