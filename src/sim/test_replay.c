#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rand.h"
#include "core/mem.h"
#include "sim/map.h"
#include "sim/replay.h"
#include "sim/spec.h"

/* ---- the map ---- */

static void test_map(void **state)
{
    static struct fb_trace_request r[10000];
    static uint32_t id[10000];
    static uint32_t size[10000];
    struct fb_rand lot = {3};
    struct fb_sim_map *map;
    uint64_t footprint = 0;
    uint32_t seen = 0;

    (void)state;
    assert_int_equal(fb_sim_map_create(&map), 0);
    for (size_t i = 0; i < FB_ARRAY_SIZE(r); i++)
        r[i] = (struct fb_trace_request){.id = fb_rand_below(&lot, 3000) << 40,
                                         .size = (uint32_t)fb_rand_below(&lot, 100)};
    for (size_t i = 0; i < FB_ARRAY_SIZE(r); i += 1250)
        assert_int_equal(fb_sim_map_batch(map, r + i, 1250, id + i, size + i), 0);
    for (size_t i = 0; i < FB_ARRAY_SIZE(r); i++) {
        size_t k = 0;

        while (r[k].id != r[i].id)
            k++;
        if (k == i) { /* new ids are numbered in order, and have their first size */
            assert_int_equal(id[i], seen);
            assert_int_equal(size[i], r[i].size ? r[i].size : 1);
            footprint += size[i];
            seen++;
        }
        assert_int_equal(id[i], id[k]);
        assert_int_equal(size[i], size[k]);
    }
    assert_int_equal(fb_sim_map_objects(map), seen);
    assert_int_equal(fb_sim_map_footprint(map), footprint);
    fb_sim_map_destroy(map);
}

/* ---- what people write ---- */

static void bad_size(const char *text)
{
    struct fb_sim_size *sizes;
    struct fb_error err = {""};
    size_t count;

    assert_int_equal(fb_sim_parse_sizes(text, &sizes, &count, &err), -EINVAL);
    assert_non_null(strstr(err.text, "size '"));
}

static void test_sizes(void **state)
{
    struct fb_sim_size *sizes;
    struct fb_error err = {""};
    size_t count;

    (void)state;
    assert_int_equal(fb_sim_parse_sizes("1%,29%,1K,12", &sizes, &count, &err), 0);
    assert_int_equal(count, 4);
    assert_int_equal(fb_sim_size_of(&sizes[0], 304213576), 3042135);
    assert_int_equal(fb_sim_size_of(&sizes[0], 7), 1);
    assert_int_equal(fb_sim_size_of(&sizes[1], 100), 29);
    assert_int_equal(fb_sim_size_of(&sizes[2], 5), 1024);
    assert_int_equal(fb_sim_size_of(&sizes[3], 5), 12);
    fb_sim_free_sizes(sizes, count);
    assert_int_equal(fb_sim_parse_sizes("0.1%..100%", &sizes, &count, &err), 0);
    assert_int_equal(count, 16);
    assert_int_equal(fb_sim_size_of(&sizes[0], 100000), 100);
    assert_int_equal(fb_sim_size_of(&sizes[5], 100000), 1000);
    assert_int_equal(fb_sim_size_of(&sizes[15], 100000), 100000);
    fb_sim_free_sizes(sizes, count);
    bad_size("");
    bad_size("1%,,2%");
    bad_size("0");
    bad_size("0%");
    bad_size("101%");
    bad_size("-1");
    bad_size("10%..1%");
    bad_size("1%..1G");
}

static void bad_policy(const char *text, const char *sentence)
{
    struct fb_sim_choice *choices;
    struct fb_error err = {""};
    size_t count;

    assert_int_equal(fb_sim_parse_policies(text, &choices, &count, &err), -EINVAL);
    if (!strstr(err.text, sentence))
        fail_msg("'%s' does not say '%s'", err.text, sentence);
}

static void test_policies(void **state)
{
    struct fb_sim_choice *choices;
    struct fb_error err = {""};
    size_t count;

    (void)state;
    assert_int_equal(
        fb_sim_parse_policies("lru,s3fifo:small=0.5:hits=1,s3fifo", &choices, &count, &err), 0);
    assert_int_equal(count, 3);
    assert_string_equal(choices[0].policy->name, "lru");
    assert_true(choices[1].param[0] == 0.5 && choices[1].param[1] == 0.9);
    assert_true(choices[1].param[2] == 1);
    assert_true(choices[2].param[0] == 0.1);
    fb_sim_free_policies(choices, count);
    bad_policy("lru,", "there is no policy ''");
    bad_policy("lur", "there is no policy 'lur'");
    bad_policy("lru:x=1", "'x=1' is no parameter");
    bad_policy("s3fifo:small", "'small' is no parameter");
    bad_policy("s3fifo:small=2", "must be a number from 0.001 to 0.999");
    bad_policy("s3fifo:small=", "must be a number");
    bad_policy("s3fifo:small=nan", "must be a number");
}

/* ---- the engine ---- */

#define LINES_MAX 200000

static char *text;
static size_t text_len;

/* Keys of which few are popular. */
static int make_text(void **state)
{
    struct fb_rand lot = {11};

    (void)state;
    text = fb_alloc(LINES_MAX * 8);
    assert_non_null(text);
    for (size_t i = 0; i < LINES_MAX; i++) {
        double u = fb_rand_unit(&lot);

        text_len += (size_t)sprintf(text + text_len, "%u\n", (unsigned)(pow(u, 4) * 50000));
    }
    return 0;
}

static int free_text(void **state)
{
    (void)state;
    free(text);
    return 0;
}

static void simulate(const struct fb_sim_options *options, const char *policies, const char *sizes,
                     uint64_t warmup, bool scan, struct fb_sim_run *run, struct fb_sim_facts *facts)
{
    struct fb_trace_options trace_options = {.format = "keys"};
    struct fb_error err = {""};
    struct fb_sim_choice *choice;
    struct fb_sim_size *size;
    struct fb_trace *trace;
    struct fb_sim *sim;
    size_t choice_count;
    size_t size_count;

    assert_int_equal(fb_sim_parse_policies(policies, &choice, &choice_count, &err), 0);
    assert_int_equal(fb_sim_parse_sizes(sizes, &size, &size_count, &err), 0);
    assert_int_equal(fb_trace_open_memory("x", text, text_len, &trace_options, &trace, &err), 0);
    assert_int_equal(fb_sim_create(trace, options, &sim), 0);
    if (scan)
        assert_int_equal(fb_sim_scan(sim, true, &err), 0);
    for (size_t i = 0; i < choice_count * size_count; i++) {
        run[i] = (struct fb_sim_run){.policy = choice[i / size_count].policy};
        memcpy(run[i].param, choice[i / size_count].param, sizeof run[i].param);
        run[i].capacity = fb_sim_size_of(&size[i % size_count], fb_sim_facts(sim)->footprint);
    }
    assert_int_equal(fb_sim_replay(sim, run, choice_count * size_count, warmup, &err), 0);
    *facts = *fb_sim_facts(sim);
    fb_sim_destroy(sim);
    fb_trace_close(trace);
    fb_sim_free_policies(choice, choice_count);
    fb_sim_free_sizes(size, size_count);
}

/* One thread or several, a scan or none: the same. */
static void test_jobs(void **state)
{
    static const char policies[] = "fifo,lru,arc,gdsf,lhd,belady";
    struct fb_sim_options options = {.ignore_size = true, .seed = 1};
    struct fb_sim_run first[12];
    struct fb_sim_run again[12];
    struct fb_sim_facts facts;

    (void)state;
    simulate(&options, policies, "1%,10%", 0, true, first, &facts);
    assert_int_equal(facts.requests, LINES_MAX);
    for (options.jobs = 2; options.jobs <= 16; options.jobs *= 2) {
        simulate(&options, policies, "1%,10%", 0, true, again, &facts);
        for (size_t i = 0; i < 12; i++)
            assert_int_equal(first[i].misses, again[i].misses);
    }
    options.jobs = 2;
    simulate(&options, "lru,arc,lhd", "10", 0, true, first, &facts);
    simulate(&options, "lru,arc,lhd", "10", 0, false, again, &facts);
    assert_int_equal(facts.requests, LINES_MAX);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(first[i].misses, again[i].misses);
}

static void test_warmup(void **state)
{
    struct fb_sim_options options = {.ignore_size = true, .seed = 1};
    struct fb_sim_run cold;
    struct fb_sim_run warm;
    struct fb_sim_facts facts;

    (void)state;
    simulate(&options, "lru", "100%", 0, true, &cold, &facts);
    assert_int_equal(cold.misses, facts.objects);
    simulate(&options, "lru", "100%", LINES_MAX / 2 + 3, true, &warm, &facts);
    assert_int_equal(warm.requests, LINES_MAX / 2 - 3);
    assert_true(warm.misses < cold.misses);
    simulate(&options, "lru", "100%", LINES_MAX + 5, true, &warm, &facts);
    assert_int_equal(warm.requests, 0);
    assert_true(warm.miss_ratio == 0);
}

/* A sample comes as close as it says; 95% is no promise for each, twice as far is. */
static void test_sample(void **state)
{
    struct fb_sim_options options = {.ignore_size = true, .seed = 1};
    struct fb_sim_run whole[4];
    struct fb_sim_run sample[4];
    struct fb_sim_facts facts;
    struct fb_sim_facts guess;

    (void)state;
    simulate(&options, "lru,s3fifo", "5%,20%", 0, true, whole, &facts);
    for (options.seed = 1; options.seed <= 4; options.seed++) {
        options.sample = 0.1;
        simulate(&options, "lru,s3fifo", "5%,20%", 0, true, sample, &guess);
        assert_int_equal(guess.requests, facts.requests);
        assert_true(fabs((double)guess.objects / (double)facts.objects - 1) < 0.1);
        for (size_t i = 0; i < 4; i++) {
            assert_true(sample[i].error > 0 && sample[i].error < 0.2);
            /* All sizes are equal, and so are the two ratios and their errors. */
            assert_true(fabs(sample[i].byte_miss_ratio - sample[i].miss_ratio) < 1e-9);
            assert_true(fabs(sample[i].byte_error - sample[i].error) < 1e-9);
            if (fabs(sample[i].miss_ratio - whole[i].miss_ratio) > 2 * sample[i].error)
                fail_msg("%.4f is not %.4f +- %.4f", sample[i].miss_ratio, whole[i].miss_ratio,
                         sample[i].error);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map),  cmocka_unit_test(test_sizes),  cmocka_unit_test(test_policies),
        cmocka_unit_test(test_jobs), cmocka_unit_test(test_warmup), cmocka_unit_test(test_sample),
    };

    return cmocka_run_group_tests(tests, make_text, free_text);
}
