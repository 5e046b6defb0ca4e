/*
 * Groups: the worst come first, dead bytes count against a group, a merge keeps the best items and
 * always makes room.
 */
#include <cmocka.h>
#include <stdlib.h>

#include "base/rand.h"
#include "core/mem.h"
#include "policy/groups.h"

static void test_score(void **state)
{
    struct fb_group_sum young = {0}, old = {0}, nothing = {0};
    struct fb_reuse_meta first = {0}, later = {0};
    struct fb_reuse *reuse;

    (void)state;
    assert_int_equal(fb_reuse_create(1000, &reuse), 0);
    fb_reuse_miss(reuse, 1, 10, &first);
    for (unsigned i = 2; i < 100; i++)
        fb_reuse_miss(reuse, i, 10, &later);
    fb_group_add(&young, reuse, &later, 10);
    fb_group_add(&old, reuse, &first, 10);
    assert_true(fb_group_score(&young, 100, 100) > fb_group_score(&old, 100, 100));
    /* Half of it is dead: half as good. What has nothing in it is worth nothing. */
    assert_float_equal(fb_group_score(&young, 50, 100), fb_group_score(&young, 100, 100) / 2, 1e-9);
    assert_float_equal(fb_group_score(&nothing, 0, 100), 0, 0);
    assert_float_equal(fb_group_score(&young, 0, 0), 0, 0);
    fb_reuse_destroy(reuse);
}

static void test_stride(void **state)
{
    (void)state;
    assert_int_equal(fb_groups_stride(0, 64), 1);
    assert_int_equal(fb_groups_stride(64, 64), 1);
    assert_int_equal(fb_groups_stride(65, 64), 2);
    for (size_t items = 1; items < 1000; items++) {
        size_t stride = fb_groups_stride(items, 64);

        assert_true((items + stride - 1) / stride <= 64);
    }
}

static void test_ranking(void **state)
{
    struct fb_ranked_group groups[100];
    struct fb_ranking r = {.group = groups};

    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        groups[i] = (struct fb_ranked_group){.score = (float)(i * 37 % 100), .no = i};
    r.count = 100;
    fb_ranking_sort(&r, 0.05, 2);
    assert_int_equal(r.next, 0);
    assert_int_equal(r.end, 5);
    for (uint32_t i = 1; i < 100; i++)
        assert_true(groups[i - 1].score < groups[i].score);
    /* A merge has its groups, where there are so many. */
    r.count = 10;
    fb_ranking_sort(&r, 0.05, 2);
    assert_int_equal(r.end, 2);
    r.count = 1;
    fb_ranking_sort(&r, 0.05, 2);
    assert_int_equal(r.end, 1);
    r.count = 0;
    fb_ranking_sort(&r, 0.05, 2);
    assert_int_equal(r.end, 0);
}

static void test_split(void **state)
{
    struct fb_rand lot = {4};

    (void)state;
    for (unsigned round = 0; round < 300; round++) {
        struct fb_merge_item items[50];
        size_t count = 1 + fb_rand_below(&lot, 50);
        uint64_t total = 0, kept = 0, said;

        for (size_t i = 0; i < count; i++) {
            items[i] = (struct fb_merge_item){.score = (float)fb_rand_below(&lot, 20),
                                              .size = 1 + (uint32_t)fb_rand_below(&lot, 100),
                                              .no = (uint32_t)i};
            total += items[i].size;
        }
        said = fb_groups_split(items, count, total / 2);
        for (size_t i = 0; i < count; i++) {
            kept += items[i].stays ? items[i].size : 0;
            /* Who goes did not fit, or is the last. */
            if (!items[i].stays && i + 1 < count)
                assert_true(kept + items[i].size > total / 2);
            if (i > 0)
                assert_true(items[i - 1].score >= items[i].score);
        }
        assert_int_equal(said, kept);
        assert_true(kept <= total / 2);
        assert_false(items[count - 1].stays);
    }
    assert_int_equal(fb_groups_split(NULL, 0, 100), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_score),
        cmocka_unit_test(test_stride),
        cmocka_unit_test(test_ranking),
        cmocka_unit_test(test_split),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
