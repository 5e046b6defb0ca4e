#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "core/metrics.h"

#define THREADS    6
#define PER_THREAD 20000

#define TEST_METRICS(X)                              \
 X(M_READS, "reads", COUNTER, "", "Reads")           \
 X(M_BYTES, "bytes", COUNTER, "bytes", "Bytes read") \
 X(M_OPEN, "open_files", GAUGE, "", "Files open")

enum {
    TEST_METRICS(FB_METRIC_ENUM) M_COUNT
};

static const struct fb_metric_info infos[] = {TEST_METRICS(FB_METRIC_INFO)};

static int setup(void **state)
{
    struct fb_metrics *m = fb_alloc(sizeof *m);

    if (!m)
        return -1;
    memset(m, 0xa5, sizeof *m);
    fb_metrics_init(m, infos, M_COUNT);
    *state = m;
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static void test_init_zeroes(void **state)
{
    struct fb_metrics *m = *state;

    for (unsigned id = 0; id < M_COUNT; id++)
        assert_int_equal(fb_metric_get(m, id), 0);
    assert_ptr_equal(m->info, infos);
    assert_int_equal(m->count, 3);
    assert_string_equal(m->info[M_BYTES].unit, "bytes");
    assert_int_equal(m->info[M_OPEN].kind, FB_METRIC_GAUGE);
}

static void test_gauge_goes_both_ways(void **state)
{
    struct fb_metrics *m = *state;

    fb_metric_set(m, M_OPEN, 7);
    assert_int_equal(fb_metric_get(m, M_OPEN), 7);
    fb_metric_set(m, M_OPEN, 2);
    assert_int_equal(fb_metric_get(m, M_OPEN), 2);
    assert_int_equal(fb_metric_get(m, M_READS), 0);
}

static void test_largest_values(void **state)
{
    struct fb_metrics *m = *state;

    fb_metric_add(m, M_BYTES, UINT64_MAX - 1);
    fb_metric_add(m, M_BYTES, 1);
    assert_true(fb_metric_get(m, M_BYTES) == UINT64_MAX);
}

static void *add_many(void *arg)
{
    struct fb_metrics *m = arg;

    for (uint64_t i = 0; i < PER_THREAD; i++) {
        fb_metric_add(m, M_READS, 1);
        fb_metric_add(m, M_BYTES, i);
    }
    return NULL;
}

/* A reader never sees a counter fall, and after the last join it is exact. */
static void test_threads(void **state)
{
    struct fb_metrics *m = *state;
    pthread_t threads[THREADS];
    uint64_t before = 0;

    for (int i = 0; i < THREADS; i++)
        assert_int_equal(fb_thread_start(&threads[i], "adder", add_many, m), 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t now = fb_metric_get(m, M_READS);

        assert_true(now >= before);
        before = now;
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(fb_metric_get(m, M_READS), (uint64_t)THREADS * PER_THREAD);
    assert_int_equal(fb_metric_get(m, M_BYTES),
                     (uint64_t)THREADS * PER_THREAD * (PER_THREAD - 1) / 2);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_init_zeroes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gauge_goes_both_ways, setup, teardown),
        cmocka_unit_test_setup_teardown(test_largest_values, setup, teardown),
        cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
