#include <cmocka.h>

#include "base/rand.h"
#include "epoch/generator.h"
#include "epoch/seed_prefix.h"
#include "epoch/seed_scan.h"
#include "epoch/shuffle.h"

#define SEEDS 2048
#define TESTS 7

/* What the scan says of a seed, by drawing. */
static bool holds(uint32_t seed, bool is_nested, uint32_t n, const uint32_t *files,
                  const uint32_t *positions, const uint32_t *offsets)
{
    struct fb_mt19937 mt;
    bool any = false;

    for (unsigned t = 0; t < TESTS; t++) {
        uint32_t p = positions[t];

        fb_mt19937_seed(&mt, seed);
        if (is_nested) {
            fb_mt19937_skip(&mt, 3);
            fb_mt19937_seed(&mt, fb_mt19937_u32(&mt));
        }
        fb_mt19937_skip(&mt, p + offsets[t]);
        any = any || (files[t] >= p && p + fb_mt19937_u32(&mt) % (n - p) == files[t]);
    }
    return any;
}

static void check_scan(enum fb_scan_level level, uint32_t n, bool is_nested, uint32_t first)
{
    static const uint32_t positions[TESTS] = {0, 1, 2, 2, 63, 224, 226};
    static const uint32_t offsets[TESTS] = {0, 0, 0, 1, 0, 2, 0};
    struct fb_rand rand = {n};
    struct fb_scan scan = {.is_nested = is_nested};
    uint32_t files[TESTS];
    uint32_t hits[SEEDS];
    size_t count, hit = 0;

    for (unsigned t = 0; t < TESTS; t++) {
        files[t] = (uint32_t)fb_rand_below(&rand, n);
        fb_scan_add(&scan, n, files[t], positions[t], offsets[t]);
    }
    assert_int_equal(fb_scan_run(&scan, level, first, SEEDS, hits, SEEDS, &count), SEEDS);
    for (uint32_t i = 0; i < SEEDS; i++) {
        bool is_hit = hit < count && hits[hit] == first + i;

        assert_int_equal(is_hit, holds(first + i, is_nested, n, files, positions, offsets));
        hit += is_hit;
    }
    assert_int_equal(hit, count);
    assert_true(count > 0);
}

static void test_levels(void **state)
{
    (void)state;
    for (unsigned level = 0; level <= fb_scan_best(); level++) {
        /* Few files, so that there are hits; odd, even and a power of two. */
        check_scan((enum fb_scan_level)level, 1001, false, 0);
        check_scan((enum fb_scan_level)level, 1024, false, 5);
        check_scan((enum fb_scan_level)level, 1500, true, 1u << 31);
        check_scan((enum fb_scan_level)level, 999, false, UINT32_MAX - SEEDS + 1);
    }
}

static void test_stops_early(void **state)
{
    struct fb_scan scan = {0};
    uint32_t hits[2 * FB_SCAN_BLOCK];
    size_t count;

    (void)state;
    /* Modulo 1 everything is 0: all seeds are hits. */
    fb_scan_add(&scan, 11, 10, 10, 0);
    assert_int_equal(scan.count, 1);
    assert_int_equal(fb_scan_run(&scan, fb_scan_best(), 0, 1000, hits, 2 * FB_SCAN_BLOCK, &count),
                     2 * FB_SCAN_BLOCK);
    assert_int_equal(count, 2 * FB_SCAN_BLOCK);
    assert_int_equal(hits[FB_SCAN_BLOCK + 3], FB_SCAN_BLOCK + 3);
}

static void test_limits(void **state)
{
    struct fb_scan scan = {0};

    (void)state;
    fb_scan_add(&scan, 100, 3, 4, 0);   /* only a displaced file can be there */
    fb_scan_add(&scan, 100, 100, 4, 0); /* no such file */
    fb_scan_add(&scan, 1000, 500, FB_SCAN_OUTPUTS_MAX, 0);
    assert_int_equal(scan.count, 0);
    for (unsigned i = 0; i < 2 * FB_SCAN_TESTS_MAX; i++)
        fb_scan_add(&scan, 1000, 500, 3, 0);
    assert_int_equal(scan.count, FB_SCAN_TESTS_MAX);
}

/* The first positions are those of the whole permutation. */
static void test_prefix(void **state)
{
    static const uint32_t counts[] = {1, 2, 50, FB_PREFIX_MAX, FB_PREFIX_MAX + 1, 20000};
    static struct fb_prefix prefix;
    static uint32_t whole[20000];

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(counts); i++) {
        struct fb_shuffle_spec spec = {
            .sampler = fb_sampler_find("torch-distributed"), .seed = 100 + i, .count = counts[i]};
        struct fb_mt19937 mt;
        struct fb_shuffle s;

        assert_int_equal(fb_shuffle_init(&s, &spec, NULL), 0);
        fb_shuffle_next(&s, whole);
        fb_mt19937_seed(&mt, (uint32_t)spec.seed);
        fb_prefix_begin(&prefix, spec.count);
        fb_prefix_draw(&prefix, &mt, 3);
        fb_prefix_draw(&prefix, &mt, FB_PREFIX_MAX);
        assert_int_equal(prefix.count, fb_min_u64(spec.count, FB_PREFIX_MAX));
        assert_memory_equal(prefix.order, whole, prefix.count * sizeof *whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_stops_early),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_prefix),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
