#include <cmocka.h>

#include "base/attr.h"
#include "source/s3_parts.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define TIB (1ull << 40)

static void test_default(void **state)
{
    (void)state;
    assert_int_equal(fb_s3_part_size(1, FB_S3_PART_FIRST, FB_S3_PART_CAP), 8 * MIB);
    assert_int_equal(fb_s3_part_size(1000, FB_S3_PART_FIRST, FB_S3_PART_CAP), 8 * MIB);
    assert_int_equal(fb_s3_part_size(1001, FB_S3_PART_FIRST, FB_S3_PART_CAP), 16 * MIB);
    assert_int_equal(fb_s3_part_size(3000, FB_S3_PART_FIRST, FB_S3_PART_CAP), 32 * MIB);
    assert_int_equal(fb_s3_part_size(3001, FB_S3_PART_FIRST, FB_S3_PART_CAP), 64 * MIB);
    assert_int_equal(fb_s3_part_size(10000, FB_S3_PART_FIRST, FB_S3_PART_CAP), 64 * MIB);
    assert_int_equal(fb_s3_object_max(FB_S3_PART_FIRST, FB_S3_PART_CAP),
                     (1000 * 8 + 1000 * 16 + 1000 * 32 + 7000 * 64) * MIB);
}

/* Part after part, to the last: no gap, never shorter than before, within all limits. */
static void check_parts(uint64_t first, uint64_t cap)
{
    uint64_t offset = 0, last = 0;

    for (unsigned number = 1; number <= FB_S3_PARTS_MAX; number++) {
        uint64_t size = fb_s3_part_size(number, first, cap);

        assert_true(size >= last && size >= first);
        assert_true(size <= cap && size <= FB_S3_PART_BYTES_MAX);
        assert_int_equal(fb_s3_part_offset(number, first, cap), offset);
        offset += size;
        last = size;
    }
    assert_int_equal(fb_s3_part_offset(FB_S3_PARTS_MAX + 1, first, cap), offset);
    assert_int_equal(fb_s3_object_max(first, cap),
                     offset < FB_S3_OBJECT_BYTES_MAX ? offset : FB_S3_OBJECT_BYTES_MAX);
}

static void test_every_part(void **state)
{
    (void)state;
    check_parts(FB_S3_PART_FIRST, FB_S3_PART_CAP);
    check_parts(5 * MIB, 5 * MIB);
    check_parts(5 * MIB, 7 * MIB);
    check_parts(1, 1);
    check_parts(1, UINT64_MAX);
    check_parts(8 * MIB, 5 * GIB);
    check_parts(5 * GIB, 5 * GIB);
    check_parts(4096, 100000);
}

static void test_limits(void **state)
{
    (void)state;
    assert_int_equal(fb_s3_object_max(8 * MIB, 2 * GIB), 5 * TIB);
    assert_true(fb_s3_object_max(8 * MIB, 1 * GIB) < 5 * TIB);
    assert_int_equal(fb_s3_object_max(5 * GIB, 5 * GIB), 5 * TIB);
    assert_int_equal(fb_s3_part_size(FB_S3_PARTS_MAX, 20 * MIB, UINT64_MAX), 5 * GIB);
    assert_int_equal(fb_s3_object_max(1, 1), 10000);
    assert_int_equal(fb_s3_part_size(FB_S3_PARTS_MAX + 1, 8 * MIB, 64 * MIB), 64 * MIB);
    assert_int_equal(fb_s3_part_size(UINT32_MAX, 1, UINT64_MAX), 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_every_part),
        cmocka_unit_test(test_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
