#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/rand.h"
#include "core/hist.h"
#include "core/mem.h"

#define THREADS    4
#define PER_THREAD 20000
#define SAMPLES    5000

static void test_empty(void **state)
{
    struct fb_hist h = {0};

    (void)state;
    assert_int_equal(fb_hist_count(&h), 0);
    assert_int_equal(fb_hist_quantile(&h, 0), 0);
    assert_int_equal(fb_hist_quantile(&h, 1), 0);
}

static void test_small_values_are_exact(void **state)
{
    struct fb_hist h = {0};

    (void)state;
    for (uint64_t v = 0; v < FB_HIST_STEPS; v++)
        fb_hist_add(&h, v);
    for (uint64_t v = 0; v < FB_HIST_STEPS; v++)
        assert_int_equal(fb_hist_quantile(&h, (double)(v + 1) / FB_HIST_STEPS), v);
}

/* The edge is never below the value, and at most a sixteenth above it. */
static void test_edge_is_close(void **state)
{
    struct fb_rand r = {1};

    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint64_t v = fb_rand_u64(&r) >> fb_rand_below(&r, 64);
        struct fb_hist h = {0};
        uint64_t edge;

        fb_hist_add(&h, v);
        edge = fb_hist_quantile(&h, 0.5);
        assert_true(edge >= v);
        assert_true(edge - v <= v / FB_HIST_STEPS);
    }
}

static void test_powers_of_two_and_ends(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 64; bit++) {
        for (int delta = -1; delta <= 1; delta++) {
            uint64_t v = (UINT64_C(1) << bit) + (uint64_t)delta;
            struct fb_hist h = {0};

            fb_hist_add(&h, v);
            assert_int_equal(fb_hist_count(&h), 1);
            assert_true(fb_hist_quantile(&h, 1) >= v);
        }
    }
    struct fb_hist h = {0};
    fb_hist_add(&h, UINT64_MAX);
    assert_true(fb_hist_quantile(&h, 1) == UINT64_MAX);
}

static void test_odd_quantiles(void **state)
{
    struct fb_hist h = {0};

    (void)state;
    fb_hist_add(&h, 3);
    fb_hist_add(&h, 9);
    assert_int_equal(fb_hist_quantile(&h, -1), 3);
    assert_int_equal(fb_hist_quantile(&h, 0.5), 3);
    assert_int_equal(fb_hist_quantile(&h, 0.5000001), 9);
    assert_int_equal(fb_hist_quantile(&h, 7), 9);
    assert_int_equal(fb_hist_quantile(&h, (double)NAN), 3);
    assert_int_equal(fb_hist_quantile(&h, (double)INFINITY), 9);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Against the sorted values themselves. */
static void test_model(void **state)
{
    FB_AUTO_FREE uint64_t *values = fb_alloc_array(SAMPLES, sizeof *values);
    struct fb_rand r = {7};
    struct fb_hist h = {0};

    (void)state;
    assert_non_null(values);
    for (size_t i = 0; i < SAMPLES; i++) {
        values[i] = fb_rand_u64(&r) >> (20 + fb_rand_below(&r, 40));
        fb_hist_add(&h, values[i]);
    }
    qsort(values, SAMPLES, sizeof *values, compare_u64);
    assert_int_equal(fb_hist_count(&h), SAMPLES);
    for (size_t i = 0; i < SAMPLES; i++) {
        uint64_t got = fb_hist_quantile(&h, ((double)i + 0.5) / SAMPLES);

        assert_true(got >= values[i]);
        assert_true(got - values[i] <= values[i] / FB_HIST_STEPS);
    }
}

static void *add_many(void *arg)
{
    for (uint64_t i = 0; i < PER_THREAD; i++)
        fb_hist_add(arg, i % 3);
    return NULL;
}

static void test_threads_lose_nothing(void **state)
{
    struct fb_hist h = {0};
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, &h), 0);
    for (int i = 0; i < 100; i++)
        assert_true(fb_hist_quantile(&h, 1) <= 2);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(fb_hist_count(&h), (uint64_t)THREADS * PER_THREAD);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_small_values_are_exact),
        cmocka_unit_test(test_edge_is_close),
        cmocka_unit_test(test_powers_of_two_and_ends),
        cmocka_unit_test(test_odd_quantiles),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_threads_lose_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
