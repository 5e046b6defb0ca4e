/*
 * More data than the tiers hold: all that is read is right, budgets hold, and what went down to a
 * lower tier is found there, after a restart too.
 */
#include "cache/place_priv.h"
#include "cache/test_rig.h"
#include "core/thread.h"

#define MANY     600u
#define SEGMENTS 64u

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

/* ---- a disk that is busy ---- */

/* Staging memory in the place of segments that are being written, for longer than usual. */
struct writing {
    struct fb_tier *tier;
    uint32_t slots[SEGMENTS];
    uint8_t *memory[SEGMENTS];
    unsigned count;
};

static void fill_and_wait(struct fixture *f)
{
    uint64_t before, now = 0;

    f->config.no_watch = true;
    f->config.cache_bytes = 32 * MIB;
    f->config.cache_dir_count = 1;
    f->config.cache_dirs[0] = f->cache_path;
    open_cache(f);
    expect_many(f, 1);
    do {
        before = now;
        fb_sleep_ns(100 * FB_NS_PER_MS);
        now = metric(f, FB_CM_ADMITTED) + metric(f, FB_CM_ADMIT_DROPPED);
    } while (now != before);
    assert_int_equal(fb_store_flush(f->cache->store), 0);
}

/* No slot is free, and no memory to build a segment in. */
static void make_busy(struct fixture *f, struct writing *w)
{
    struct fb_store *store = f->cache->store;
    struct fb_segment_info info;
    uint8_t *memory;
    uint32_t slot;

    *w = (struct writing){.tier = fb_store_tier(store, 1)};
    while (fb_tier_take(w->tier, &slot, &memory) == 0)
        fb_tier_release_memory(w->tier, slot, memory);
    while (!fb_tier_busy(w->tier)) {
        assert_int_equal(fb_store_sealed(store, 1, &info, 1), 1);
        assert_int_equal(fb_store_evict(store, info.no, false, NULL, NULL), 0);
        assert_int_equal(fb_tier_take(w->tier, &w->slots[w->count], &w->memory[w->count]), 0);
        w->count++;
    }
    assert_false(fb_tier_has_room(w->tier));
}

static void *write_one(void *arg)
{
    struct writing *w = arg;

    fb_sleep_ns(100 * FB_NS_PER_MS);
    w->count--;
    fb_tier_release_memory(w->tier, w->slots[w->count], w->memory[w->count]);
    return NULL;
}

/* Who cannot wait for the disk pushes nothing out there, for it would gain nothing by it. */
static void busy_disk_keeps_what_it_has(void **state)
{
    struct fixture *f = *state;
    static struct fb_segment_info infos[SEGMENTS];
    uint8_t byte = 0;
    struct fb_item item = {.length = 1, .data = &byte, .anew = true};
    int64_t start_ns;
    struct writing w;
    uint32_t count;

    fill_and_wait(f);
    make_busy(f, &w);
    item.file = look_up(f, "m0");
    count = fb_store_sealed(f->cache->store, 1, infos, SEGMENTS);
    assert_true(count > 4);
    fb_mutex_lock(&f->cache->admit_lock);
    assert_int_equal(fb_place_append(f->cache, 1, &item, FB_NO_PATIENCE_NS), -EBUSY);
    fb_mutex_unlock(&f->cache->admit_lock);
    assert_int_equal(fb_store_sealed(f->cache->store, 1, infos, SEGMENTS), count);
    /* And who wants room without an eviction need not wait to hear that there is none. */
    start_ns = fb_now_ns();
    assert_int_equal(fb_place_append_into_room(f->cache, 1, &item, start_ns + 60 * FB_NS_PER_S),
                     FB_STORE_FULL);
    assert_true(fb_now_ns() - start_ns < 30 * FB_NS_PER_S);
    let_go(f, item.file);
}

static int append_below(struct fixture *f, const struct fb_item *item)
{
    int rc;

    fb_mutex_lock(&f->cache->admit_lock);
    rc = fb_place_append(f->cache, 1, item, fb_now_ns() + 60 * FB_NS_PER_S);
    fb_mutex_unlock(&f->cache->admit_lock);
    return rc;
}

/* What a user has pinned is put back, also where whoever empties its segment would not wait. */
static void busy_disk_keeps_what_is_pinned(void **state)
{
    struct fixture *f = *state;
    uint64_t kept, dropped;
    struct fb_segment_info info;
    struct writing w;
    pthread_t thread;

    fill_and_wait(f);
    make_busy(f, &w);
    assert_int_equal(fb_cache_set_policy(f->volume, "", FB_POLICY_PINNED), 0);
    assert_int_equal(fb_store_sealed(f->cache->store, 1, &info, 1), 1);
    kept = metric(f, FB_CM_KEPT);
    dropped = metric(f, FB_CM_ADMIT_DROPPED);
    assert_int_equal(fb_thread_start(&thread, "writer", write_one, &w), 0);
    fb_mutex_lock(&f->cache->admit_lock);
    assert_int_equal(fb_place_empty(f->cache, 1, info.no, false, FB_NO_PATIENCE_NS), 0);
    fb_mutex_unlock(&f->cache->admit_lock);
    pthread_join(thread, NULL);
    assert_true(info.live_items > 0);
    assert_int_equal(metric(f, FB_CM_KEPT) - kept, info.live_items);
    assert_int_equal(metric(f, FB_CM_ADMIT_DROPPED), dropped);
}

/* Nothing can go where a user has pinned all: nothing is written again for it, nor tried for each
 * item anew; and once it may go, it goes. */
static void nothing_goes_of_what_is_pinned(void **state)
{
    struct fixture *f = *state;
    uint8_t byte = 0;
    struct fb_item item = {.length = 1, .data = &byte, .anew = true};
    uint64_t kept, evicted;
    int64_t until_ns;

    fill_and_wait(f);
    item.file = look_up(f, "m0");
    assert_int_equal(fb_cache_set_policy(f->volume, "", FB_POLICY_PINNED), 0);
    while (fb_place_append_into_room(f->cache, 1, &item, fb_now_ns() + 60 * FB_NS_PER_S) == 0)
        ;
    kept = metric(f, FB_CM_KEPT);
    evicted = fb_metric_get(fb_store_metrics(f->cache->store), FB_SM_EVICTED);
    for (int i = 0; i < 100; i++)
        assert_int_equal(append_below(f, &item), -ENOSPC);
    assert_int_equal(metric(f, FB_CM_KEPT), kept);
    assert_int_equal(fb_metric_get(fb_store_metrics(f->cache->store), FB_SM_EVICTED), evicted);
    assert_int_equal(fb_cache_set_policy(f->volume, "", FB_POLICY_AUTO), 0);
    until_ns = fb_now_ns() + 60 * FB_NS_PER_S;
    while (append_below(f, &item) != 0)
        assert_true(fb_now_ns() < until_ns);
    let_go(f, item.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(overflow_dram),
        CASE(overflow_into_nvme),
        CASE(overflow_all_tiers),
        CASE(busy_disk_keeps_what_it_has),
        CASE(busy_disk_keeps_what_is_pinned),
        CASE(nothing_goes_of_what_is_pinned),
    };

    return cmocka_run_group_tests(tests, make_source, remove_source);
}
