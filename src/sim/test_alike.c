/*
 * How alike the objects of a group are: in a trace where they are so by the time of their first
 * request alone, and in one where size alone decides.
 */
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "sim/alike.h"

#define GROUP  8
#define GROUPS 6

/* Group after group: its objects in turn, three times over, with g other requests between the
 * rounds. Sizes are i % 2 + 1, so that groups by size mix all times. */
static char *make_trace(size_t *ret_len)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    unsigned seq = 0;
    unsigned filler = 1000;

    assert_non_null(out);
    for (unsigned g = 0; g < GROUPS; g++) {
        for (unsigned round = 0; round < 3; round++) {
            for (unsigned i = 0; i < GROUP; i++)
                fprintf(out, "%u %u %u\n", seq++, g * GROUP + i, 1 + i % 2);
            for (unsigned k = 0; round < 2 && k < g * GROUP; k++)
                fprintf(out, "%u %u 9\n", seq++, filler);
        }
    }
    assert_int_equal(fclose(out), 0);
    *ret_len = len;
    return text;
}

static void test_spread(void **state)
{
    const struct fb_trace_options options = {.format = "seq-id-size", .again = true};
    struct fb_error err = {""};
    struct fb_sim_alike *alike;
    struct fb_trace *trace;
    size_t len;
    FB_AUTO_FREE char *text = make_trace(&len);
    double means[GROUPS];

    (void)state;
    assert_int_equal(fb_trace_open_memory("t", text, len, &options, &trace, &err), 0);
    assert_int_equal(fb_sim_alike_create(trace, 1, &alike, &err), 0);
    /* The one object that fills the pauses comes after the second group, and is in the third. */
    assert_true(fb_sim_alike_spread(alike, FB_SIM_BY_TIME, GROUP) < 0.3);
    assert_true(fb_sim_alike_spread(alike, FB_SIM_BY_LOT, GROUP) > 0.3);
    assert_true(fb_sim_alike_spread(alike, FB_SIM_BY_SIZE, GROUP) > 0.3);
    assert_true(isnan(fb_sim_alike_spread(alike, FB_SIM_BY_TIME, 1000)));
    assert_int_equal(fb_sim_alike_means(alike, GROUP, means, GROUPS), GROUPS);
    assert_true(means[0] < means[1] && means[1] < means[GROUPS - 1]);
    assert_int_equal(fb_sim_alike_means(alike, GROUP, means, 3), 3);
    fb_sim_alike_destroy(alike);
    fb_sim_alike_destroy(NULL);
    fb_trace_close(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spread)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
