/*
 * More data than the tiers hold: all that is read is right, budgets hold, and what went down to a
 * lower tier is found there, after a restart too.
 */
#include "cache/test_rig.h"

#define MANY 600u

static int make_source(void **state)
{
    char name[16];

    (void)state;
    make_source_dir();
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "m%u", i);
        put_file(name, (200 << 10) + i, i);
    }
    settle();
    return 0;
}

static void expect_many(struct fixture *f, uint64_t seed)
{
    struct fb_rand r = {.state = seed};

    for (unsigned k = 0; k < MANY; k++) {
        unsigned i = (unsigned)fb_rand_below(&r, MANY);
        char name[16];

        snprintf(name, sizeof name, "m%u", i);
        expect_file(f, name, (200 << 10) + i, i);
        if (k % 50 == 0)
            fb_cache_tick(f->cache);
    }
}

/* 120 MB of files through 60 MB of DRAM and, below it, room for all or for a part. */
static void overflow(struct fixture *f, uint64_t nvme_bytes, uint64_t pmem_bytes)
{
    uint64_t before;

    f->config.no_watch = true;
    f->config.cache_bytes = nvme_bytes;
    f->config.cache_dir_count = 1;
    f->config.cache_dirs[0] = f->cache_path;
    f->config.pmem_bytes = pmem_bytes;
    f->config.pmem_dir = f->pmem_path;
    open_cache(f);
    for (uint64_t epoch = 0; epoch < 4; epoch++)
        expect_many(f, epoch);
    /* A disk that makes others wait for long may be passed by; memory never does. */
    assert_true(metric(f, FB_CM_ADMIT_DROPPED) <= (nvme_bytes + pmem_bytes > 0 ? MANY : 0));
    assert_int_equal(fb_metric_get(fb_store_metrics(fb_cache_store(f->cache)), FB_SM_DAMAGED), 0);
    for (unsigned t = 0; t < fb_store_tiers(fb_cache_store(f->cache)); t++) {
        struct fb_tier_stats s;

        fb_store_tier_stats(fb_cache_store(f->cache), t, &s);
        assert_true(s.used_bytes <= s.budget_bytes);
        assert_true(s.items > 0);
    }
    if (nvme_bytes + pmem_bytes == 0)
        return;
    close_cache(f);
    open_cache(f);
    before = metric(f, FB_CM_FETCHES);
    expect_many(f, 1);
    assert_true(metric(f, FB_CM_HITS_NVME) + metric(f, FB_CM_HITS_PMEM) > 50);
    assert_true(metric(f, FB_CM_FETCHES) - before < MANY);
}

static void overflow_dram(void **state)
{
    overflow(*state, 0, 0);
}

static void overflow_into_nvme(void **state)
{
    overflow(*state, 400 * MIB, 0);
    assert_true(metric(*state, FB_CM_DEMOTED) + metric(*state, FB_CM_HITS_NVME) > 0);
}

static void overflow_all_tiers(void **state)
{
    overflow(*state, 32 * MIB, 24 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(overflow_dram),
        CASE(overflow_into_nvme),
        CASE(overflow_all_tiers),
    };

    return cmocka_run_group_tests(tests, make_source, remove_source);
}
