#include <cmocka.h>

#include "policy/reads.h"

#define ITEMS 50000u

static void reads_are_counted(void **state)
{
    struct fb_reads *r;
    uint32_t wrong = 0;

    (void)state;
    assert_int_equal(fb_reads_new(2 * ITEMS, &r), 0);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 1; i <= ITEMS; i++)
            wrong += fb_reads_add(r, i) != round;
    }
    for (uint32_t i = 1; i <= ITEMS; i++)
        wrong += fb_reads_of(r, i) != 3;
    /* Few buckets of 16 overflow at half of the room, and few tags are alike. */
    assert_true(wrong < ITEMS / 200);
    assert_int_equal(fb_reads_of(r, ITEMS + 7), 0);
    fb_reads_free(r);
}

static void counts_end(void **state)
{
    struct fb_reads *r;

    (void)state;
    assert_int_equal(fb_reads_new(1, &r), 0);
    for (uint32_t i = 0; i < 2 * FB_READS_MAX; i++)
        assert_int_equal(fb_reads_add(r, 5), i < FB_READS_MAX ? i : FB_READS_MAX);
    assert_int_equal(fb_reads_of(r, 5), FB_READS_MAX);
    fb_reads_free(r);
}

/* Who was read least goes. */
static void the_least_read_make_room(void **state)
{
    struct fb_reads *r;

    (void)state;
    assert_int_equal(fb_reads_new(16, &r), 0);
    for (uint32_t i = 1; i <= 16; i++) {
        fb_reads_add(r, i);
        if (i != 9)
            fb_reads_add(r, i);
    }
    assert_int_equal(fb_reads_add(r, 100), 0);
    assert_int_equal(fb_reads_of(r, 100), 1);
    assert_int_equal(fb_reads_of(r, 9), 0);
    for (uint32_t i = 1; i <= 16; i++) {
        if (i != 9)
            assert_int_equal(fb_reads_of(r, i), 2);
    }
    fb_reads_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_are_counted),
        cmocka_unit_test(counts_end),
        cmocka_unit_test(the_least_read_make_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
