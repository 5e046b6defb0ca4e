#include <cmocka.h>
#include <stdlib.h>

#include "base/rand.h"
#include "policy/distinct.h"

/* Off by no more than four deviations, and the mean size by 15%. */
static void counts_what_is_different(void **state)
{
    static const uint64_t counts[] = {1, 10, 100, 1000, 2500, 3000, 10000, 100000, 1000000};

    (void)state;
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct fb_distinct *d = calloc(1, sizeof *d);
        struct fb_rand rand = {i};
        double items, bytes;

        assert_non_null(d);
        assert_int_equal(fb_distinct_items(d), 0);
        assert_int_equal(fb_distinct_bytes(d), 0);
        for (int again = 0; again < 2; again++) {
            for (uint64_t key = 1; key <= counts[i]; key++)
                fb_distinct_add(d, key, 1000 + key % 7 * 1000);
        }
        /* Some again and again. */
        for (int n = 0; n < 10000; n++)
            fb_distinct_add(d, 1 + fb_rand_below(&rand, counts[i]), 100000);
        items = (double)fb_distinct_items(d) / (double)counts[i];
        bytes = (double)fb_distinct_bytes(d) / (double)fb_distinct_items(d);
        assert_true(items > 0.87 && items < 1.13);
        if (counts[i] >= 100)
            assert_true(bytes > 3400 && bytes < 4600);
        free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts_what_is_different)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
