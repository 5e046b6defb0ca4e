#include <cmocka.h>

#include "base/rand.h"
#include "policy/shadow.h"

static void small_ones_are_exact(void **state)
{
    struct fb_shadow *s;

    (void)state;
    assert_int_equal(fb_shadow_new(100, &s), 0);
    for (uint64_t key = 1; key <= 12; key++)
        fb_shadow_access(s, 1 + key % 2, key, 10, 1);
    /* 1 and 2 have gone; of the ten others five are of each. */
    assert_int_equal(fb_shadow_holds(s, 1), 50);
    assert_int_equal(fb_shadow_holds(s, 2), 50);
    /* 3 is used again, and by another; so 4 goes first. */
    fb_shadow_access(s, 3, 3, 10, 1);
    fb_shadow_access(s, 3, 13, 10, 1);
    assert_int_equal(fb_shadow_holds(s, 1), 40);
    assert_int_equal(fb_shadow_holds(s, 2), 40);
    assert_int_equal(fb_shadow_holds(s, 3), 20);
    fb_shadow_forget(s, 1);
    assert_int_equal(fb_shadow_holds(s, 1), 0);
    /* Larger than all of it. */
    fb_shadow_access(s, 1, 99, 1000, 1);
    assert_int_equal(fb_shadow_holds(s, 1) + fb_shadow_holds(s, 2) + fb_shadow_holds(s, 3), 0);
    fb_shadow_free(s);
}

/* A stream that reads twice as fast holds twice as much. */
static void large_ones_are_sampled(void **state)
{
    struct fb_rand rand = {1};
    struct fb_shadow *s;
    double a, b;

    (void)state;
    assert_int_equal(fb_shadow_new(300000ULL << 20, &s), 0);
    for (int i = 0; i < 2000000; i++) {
        uint32_t stream = i % 3 == 0 ? 1 : 2;

        fb_shadow_access(s, stream, (uint64_t)stream << 40 | (fb_rand_u64(&rand) >> 30), 1 << 20,
                         1);
    }
    a = (double)fb_shadow_holds(s, 1) / (1 << 20);
    b = (double)fb_shadow_holds(s, 2) / (1 << 20);
    assert_true(a > 93000 && a < 107000);
    assert_true(b > 190000 && b < 210000);
    fb_shadow_free(s);
}

/* Two read as fast, but a quarter of one's items take part: four of the other's come to each. */
static void a_share_presses_less(void **state)
{
    unsigned count[FB_SHADOW_MISS + 1] = {0};
    struct fb_rand rand = {2};
    struct fb_shadow *s;
    double a, b;

    (void)state;
    assert_int_equal(fb_shadow_new(10000, &s), 0);
    for (int i = 0; i < 200000; i++) {
        fb_shadow_access(s, 1, 1ULL << 40 | (fb_rand_u64(&rand) >> 30), 1, 1);
        count[fb_shadow_access(s, 2, 2ULL << 40 | fb_rand_below(&rand, 2000), 1, 0.25)]++;
    }
    a = (double)fb_shadow_holds(s, 1);
    b = (double)fb_shadow_holds(s, 2);
    assert_true(a + b == 10000);
    assert_true(b > 400 && b < 600); /* a quarter of its 2,000, all of them there */
    assert_true(count[FB_SHADOW_UNSEEN] > 140000 && count[FB_SHADOW_UNSEEN] < 160000);
    assert_true(count[FB_SHADOW_HIT] > 45000 && count[FB_SHADOW_MISS] < 5000);
    fb_shadow_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_ones_are_exact),
        cmocka_unit_test(large_ones_are_sampled),
        cmocka_unit_test(a_share_presses_less),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
