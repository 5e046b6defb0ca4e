#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/rand.h"
#include "core/clock.h"
#include "core/units.h"

#define K (UINT64_C(1) << 10)
#define M (UINT64_C(1) << 20)
#define G (UINT64_C(1) << 30)
#define T (UINT64_C(1) << 40)
#define P (UINT64_C(1) << 50)

static void assert_size(const char *text, uint64_t expected)
{
    uint64_t bytes = 1;

    assert_int_equal(fb_parse_size(text, &bytes), 0);
    assert_true(bytes == expected);
}

static void assert_duration(const char *text, int64_t expected_ns)
{
    int64_t ns = 1;

    assert_int_equal(fb_parse_duration(text, &ns), 0);
    assert_true(ns == expected_ns);
}

static void assert_ratio(const char *text, double expected)
{
    double ratio = -1;

    assert_int_equal(fb_parse_ratio(text, &ratio), 0);
    assert_memory_equal(&ratio, &expected, sizeof ratio);
}

static void test_size(void **state)
{
    (void)state;
    assert_size("0", 0);
    assert_size("17", 17);
    assert_size("007", 7);
    assert_size("10G", 10 * G);
    assert_size("10GiB", 10 * G);
    assert_size("10GB", 10 * G);
    assert_size("1k", K);
    assert_size("1K", K);
    assert_size("1m", M);
    assert_size("3t", 3 * T);
    assert_size("2P", 2 * P);
    assert_size("1.5G", G + G / 2);
    assert_size("0.5K", 512);
    assert_size("1.9", 1);
    assert_size("1.1G", 1181116006);
    assert_size("0.1000000000000000000000000000000001K", 102);
    assert_size("9223372036854775807", INT64_MAX);
    assert_size("8191P", 8191 * P);
}

static void test_size_refuses(void **state)
{
    static const char *const bad[] = {
        "",     "G",   " 1",    "1 ",   "1 G",        "-1",   "+1",
        "1.",   ".5",  "1.G",   "1..2", "1.2.3",      "12Q",  "1GG",
        "1Gib", "1gb", "1GiBs", "1B",   "1iB",        "0x10", "1e3",
        "nan",  "inf", "1,5G",  "1G\n", "1\xc2\xa0G", "1[",   "99999999999999999999999Q",
    };
    static const char *const large[] = {
        "9223372036854775808", "8192P", "8192.0P", "18446744073709551616", "99999999999999999999T",
    };
    uint64_t bytes = 42;

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(bad); i++)
        assert_int_equal(fb_parse_size(bad[i], &bytes), -EINVAL);
    for (size_t i = 0; i < FB_ARRAY_SIZE(large); i++)
        assert_int_equal(fb_parse_size(large[i], &bytes), -ERANGE);
    assert_int_equal(bytes, 42);
}

static void test_duration(void **state)
{
    (void)state;
    assert_duration("0", 0);
    assert_duration("60", 60 * FB_NS_PER_S);
    assert_duration("1.5", 1500 * FB_NS_PER_MS);
    assert_duration("7ns", 7);
    assert_duration("2us", 2 * FB_NS_PER_US);
    assert_duration("250ms", 250 * FB_NS_PER_MS);
    assert_duration("60s", 60 * FB_NS_PER_S);
    assert_duration("2m", 120 * FB_NS_PER_S);
    assert_duration("0.5h", 1800 * FB_NS_PER_S);
    assert_duration("1d", 86400 * FB_NS_PER_S);
    assert_duration("9223372036854775807ns", INT64_MAX);
}

static void test_duration_refuses(void **state)
{
    static const char *const bad[] = {"",   "s",   "-1s", "1S",    "1M",  "1min", "1 s",
                                      "1w", "1ss", "1.s", "1m30s", "1s ", "1e3s"};
    int64_t ns = 42;

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(bad); i++)
        assert_int_equal(fb_parse_duration(bad[i], &ns), -EINVAL);
    assert_int_equal(fb_parse_duration("9223372036854775808ns", &ns), -ERANGE);
    assert_int_equal(fb_parse_duration("106752d", &ns), -ERANGE);
    assert_int_equal(ns, 42);
}

static void test_ratio(void **state)
{
    double ratio = 42;

    (void)state;
    assert_ratio("0", 0);
    assert_ratio("1", 1);
    assert_ratio("1.000", 1);
    assert_ratio("0.8", 0.8);
    assert_ratio("80%", 0.8);
    assert_ratio("12.5%", 0.125);
    assert_ratio("0%", 0);
    assert_ratio("100%", 1);
    assert_ratio("100.0%", 1);
    assert_int_equal(fb_parse_ratio("1.001", &ratio), -ERANGE);
    assert_int_equal(fb_parse_ratio("80", &ratio), -ERANGE);
    assert_int_equal(fb_parse_ratio("100.5%", &ratio), -ERANGE);
    assert_int_equal(fb_parse_ratio("99999999999999999999999", &ratio), -ERANGE);
    assert_int_equal(fb_parse_ratio("", &ratio), -EINVAL);
    assert_int_equal(fb_parse_ratio("%", &ratio), -EINVAL);
    assert_int_equal(fb_parse_ratio("-0.1", &ratio), -EINVAL);
    assert_int_equal(fb_parse_ratio("50%%", &ratio), -EINVAL);
    assert_int_equal(fb_parse_ratio("50 %", &ratio), -EINVAL);
    assert_int_equal(fb_parse_ratio("1/2", &ratio), -EINVAL);
    assert_true(ratio > 41);
}

static void test_format_size(void **state)
{
    char buf[FB_UNITS_TEXT_MAX];

    (void)state;
    assert_string_equal(fb_format_size(buf, 0), "0");
    assert_string_equal(fb_format_size(buf, 17), "17");
    assert_string_equal(fb_format_size(buf, 999), "999");
    assert_string_equal(fb_format_size(buf, 1000), "0.98K");
    assert_string_equal(fb_format_size(buf, 1024), "1K");
    assert_string_equal(fb_format_size(buf, 100 * K), "100K");
    assert_string_equal(fb_format_size(buf, G + G / 2), "1.5G");
    assert_string_equal(fb_format_size(buf, 1023 * M), "1G");
    assert_string_equal(fb_format_size(buf, 10 * G + 51 * M), "10G");
    assert_string_equal(fb_format_size(buf, UINT64_MAX), "16384P");
}

static void test_format_duration(void **state)
{
    char buf[FB_UNITS_TEXT_MAX];

    (void)state;
    assert_string_equal(fb_format_duration(buf, 0), "0ns");
    assert_string_equal(fb_format_duration(buf, 999), "999ns");
    assert_string_equal(fb_format_duration(buf, 1234), "1.23us");
    assert_string_equal(fb_format_duration(buf, 999999), "1ms");
    assert_string_equal(fb_format_duration(buf, 250 * FB_NS_PER_MS), "250ms");
    assert_string_equal(fb_format_duration(buf, 60 * FB_NS_PER_S), "1m");
    assert_string_equal(fb_format_duration(buf, 90 * FB_NS_PER_S), "1.5m");
    assert_string_equal(fb_format_duration(buf, -1500 * FB_NS_PER_MS), "-1.5s");
    assert_string_equal(fb_format_duration(buf, INT64_MAX), "106752d");
    assert_string_equal(fb_format_duration(buf, INT64_MIN), "-106752d");
}

/* What is formatted can be read, and is right to the three digits it shows. */
static void test_format_reads_back(void **state)
{
    struct fb_rand r = {3};
    char buf[FB_UNITS_TEXT_MAX];

    (void)state;
    for (int i = 0; i < 20000; i++) {
        uint64_t v = (fb_rand_u64(&r) >> 1) >> fb_rand_below(&r, 63);
        uint64_t bytes;
        int64_t ns;

        assert_int_equal(fb_parse_size(fb_format_size(buf, v), &bytes), 0);
        assert_true((bytes > v ? bytes - v : v - bytes) <= v / 150 + 1);
        /* The last day before the end of the range may round up past it. */
        v /= 2;
        assert_int_equal(fb_parse_duration(fb_format_duration(buf, (int64_t)v), &ns), 0);
        assert_true((uint64_t)(ns > (int64_t)v ? ns - (int64_t)v : (int64_t)v - ns) <= v / 150 + 1);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_size_refuses),
        cmocka_unit_test(test_duration),
        cmocka_unit_test(test_duration_refuses),
        cmocka_unit_test(test_ratio),
        cmocka_unit_test(test_format_size),
        cmocka_unit_test(test_format_duration),
        cmocka_unit_test(test_format_reads_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
