#include <cmocka.h>
#include <errno.h>

#include "policy/keep.h"
#include "policy/ttl.h"

static void a_pattern_has_its_policy(void **state)
{
    enum fb_keep keep;

    (void)state;
    assert_string_equal(fb_keep_name(fb_keep_for(FB_PATTERN_SEQUENTIAL)), "eager");
    assert_string_equal(fb_keep_name(fb_keep_for(FB_PATTERN_RANDOM)), "uniform");
    assert_string_equal(fb_keep_name(fb_keep_for(FB_PATTERN_CYCLIC)), "cycle");
    assert_string_equal(fb_keep_name(fb_keep_for(FB_PATTERN_SKEWED)), "lru");
    assert_string_equal(fb_keep_name(fb_keep_for(FB_PATTERN_UNKNOWN)), "lru");
    assert_int_equal(fb_keep_parse("never", &keep), 0);
    assert_int_equal(keep, FB_KEEP_NEVER);
    assert_int_equal(fb_keep_parse("auto", &keep), -EINVAL);
    assert_int_equal(fb_keep_parse("", &keep), -EINVAL);
}

static void what_is_admitted_and_dropped(void **state)
{
    (void)state;
    for (int keep = 0; keep < FB_KEEPS; keep++) {
        bool full = keep == FB_KEEP_UNIFORM || keep == FB_KEEP_CYCLE;

        /* Room for it; a full quota; larger than the quota. */
        assert_int_equal(fb_keep_admits((enum fb_keep)keep, false, 0, 100, 10),
                         keep != FB_KEEP_NEVER);
        assert_int_equal(fb_keep_admits((enum fb_keep)keep, false, 95, 100, 10),
                         keep != FB_KEEP_NEVER && !full);
        assert_false(fb_keep_admits((enum fb_keep)keep, false, 0, 100, 101));
        assert_int_equal(fb_keep_admits((enum fb_keep)keep, true, 95, 100, 10),
                         keep != FB_KEEP_NEVER && keep != FB_KEEP_UNIFORM);
        /* Read in part, read to its end. */
        assert_false(fb_keep_drops((enum fb_keep)keep, 5, 10));
        assert_int_equal(fb_keep_drops((enum fb_keep)keep, 10, 10),
                         keep == FB_KEEP_EAGER || keep == FB_KEEP_NEVER);
    }
}

static void who_goes_first(void **state)
{
    static const struct fb_kept kept[] = {
        {.admitted_ns = 10, .used_ns = 50},
        {.admitted_ns = 20, .used_ns = 30},
        {.admitted_ns = 60, .used_ns = 0},
        {.admitted_ns = 40, .used_ns = 70},
    };

    (void)state;
    assert_int_equal(fb_keep_victim(FB_KEEP_LRU, kept, 4), 1);
    assert_int_equal(fb_keep_victim(FB_KEEP_UNIFORM, kept, 4), 2); /* the newest */
    assert_int_equal(fb_keep_victim(FB_KEEP_CYCLE, kept, 4), 3);   /* read last, returns last */
    assert_int_equal(fb_keep_victim(FB_KEEP_EAGER, kept, 4), 1);   /* read, for longest */
    assert_int_equal(fb_keep_victim(FB_KEEP_EAGER, kept + 2, 1), 0);
}

/* The paper's example: 86 s with a base of 60 s. */
static void a_silent_job_has_ended(void **state)
{
    struct fb_stream_info info = {
        .verdict.pattern = FB_PATTERN_RANDOM,
        .gap_mean_s = 2.7,
        .gap_sigma_s = 10,
        .last_ns = 1000000000LL,
    };

    (void)state;
    assert_int_equal(fb_ttl_ns(&info, FB_TTL_BASE_NS), 86000000000LL);
    assert_false(fb_ttl_is_over(&info, FB_TTL_BASE_NS, 87000000000LL));
    assert_true(fb_ttl_is_over(&info, FB_TTL_BASE_NS, 87000000001LL));
    info.verdict.pattern = FB_PATTERN_CYCLIC;
    assert_true(fb_ttl_is_over(&info, FB_TTL_BASE_NS, 88000000000LL));
    info.verdict.pattern = FB_PATTERN_SKEWED;
    assert_true(fb_ttl_is_over(&info, FB_TTL_BASE_NS, 88000000000LL));
    info.verdict.pattern = FB_PATTERN_UNKNOWN;
    assert_false(fb_ttl_is_over(&info, FB_TTL_BASE_NS, INT64_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pattern_has_its_policy),
        cmocka_unit_test(what_is_admitted_and_dropped),
        cmocka_unit_test(who_goes_first),
        cmocka_unit_test(a_silent_job_has_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
