#include <cmocka.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "policy/evict.h"

/* Every policy, whatever its idea, must pick an existing segment and prefer one that holds
 * nothing. */
static void contract(void **state)
{
    static const char *const names[] = {"fifo", "lru"};

    (void)state;
    for (size_t p = 0; p < FB_ARRAY_SIZE(names); p++) {
        const struct fb_evict_ops *ops = fb_evict_find(names[p]);
        struct fb_segment_info segs[64];

        assert_non_null(ops);
        assert_string_equal(ops->name, names[p]);
        for (uint32_t n = 1; n <= FB_ARRAY_SIZE(segs); n++) {
            for (uint32_t i = 0; i < n; i++)
                segs[i] = (struct fb_segment_info){.no = i,
                                                   .live_items = 1 + i % 3,
                                                   .sequence = 1000 - i * 7 % n,
                                                   .last_access_ns = i * 31 % 17,
                                                   .opened_ns = i};
            assert_in_range(ops->victim(NULL, segs, n, 100), 0, n - 1);
            segs[n / 2].live_items = 0;
            assert_int_equal(ops->victim(NULL, segs, n, 100), n / 2);
        }
    }
    assert_null(fb_evict_find("best"));
}

static void fifo_takes_the_oldest(void **state)
{
    struct fb_segment_info segs[] = {
        {.sequence = 9, .live_items = 1, .last_access_ns = 1},
        {.sequence = 3, .live_items = 1, .last_access_ns = 100},
        {.sequence = 5, .live_items = 1, .last_access_ns = 2},
    };

    (void)state;
    assert_int_equal(fb_evict_fifo.victim(NULL, segs, 3, 200), 1);
}

static void lru_takes_the_least_recent(void **state)
{
    struct fb_segment_info segs[] = {
        {.sequence = 1, .live_items = 1, .opened_ns = 10, .last_access_ns = 90},
        {.sequence = 2, .live_items = 1, .opened_ns = 20, .last_access_ns = 0},
        {.sequence = 3, .live_items = 1, .opened_ns = 80, .last_access_ns = 0},
        {.sequence = 4, .live_items = 1, .opened_ns = 20, .last_access_ns = 20},
    };

    (void)state;
    assert_int_equal(fb_evict_lru.victim(NULL, segs, 4, 200), 1);
    segs[1].last_access_ns = 95;
    assert_int_equal(fb_evict_lru.victim(NULL, segs, 4, 200), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract),
        cmocka_unit_test(fifo_takes_the_oldest),
        cmocka_unit_test(lru_takes_the_least_recent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
