/*
 * What lies beside files that are read from far away: it comes before anybody asks, in bounds, not
 * when something would have to go for it, and not for long when nobody reads it.
 */
#include "base/rand.h"
#include "cache/test_folders.h"

#define FEW         60u
#define MANY        400u
#define FILE_BYTES  4096u
#define LARGE       150u /* files of LARGE_BYTES: more than the cache holds */
#define LARGE_BYTES (512u << 10)
#define TRIES       6000
#define PAUSE_NS    (10 * FB_NS_PER_MS)

static int make_source(void **state)
{
    (void)state;
    fb_test_dir_make(&dir);
    make_folder("few", FEW, FILE_BYTES);
    make_folder("many", MANY, FILE_BYTES);
    make_folder("large", LARGE, LARGE_BYTES);
    fb_sleep_ns(FB_SETTLE_TIME_NS + 50 * FB_NS_PER_MS);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    open_cache(true, 3 * FB_NS_PER_MS);
    return 0;
}

/* In an order that nobody can follow. */
static void read_some(const char *folder, unsigned files, unsigned count)
{
    struct fb_rand r = {.state = 5};
    unsigned order[MANY];

    for (unsigned i = 0; i < files; i++)
        order[i] = i;
    for (unsigned i = 0; i < count; i++) {
        unsigned j = i + (unsigned)fb_rand_below(&r, files - i), next = order[j];

        order[j] = order[i];
        read_file(name_of(folder, next), next, FILE_BYTES);
        fb_cache_tick(cache);
    }
}

static bool is_there(const char *name)
{
    uint32_t file = fb_files_find(cache->files, fb_volume_id(volume), name);
    bool there = file != FB_FILE_NONE && fb_item_is_there(cache, file, 0);

    if (file != FB_FILE_NONE)
        fb_files_unref(cache->files, file, 1);
    return there;
}

static unsigned count_there(const char *folder, unsigned files)
{
    unsigned count = 0;

    for (unsigned i = 0; i < files; i++)
        count += is_there(name_of(folder, i));
    return count;
}

static void wait_brought(uint64_t bytes)
{
    for (int tries = 0; tries < TRIES && metric(FB_CM_PREFETCH_BYTES) < bytes; tries++) {
        fb_cache_tick(cache);
        fb_sleep_ns(PAUSE_NS);
    }
    assert_true(metric(FB_CM_PREFETCH_BYTES) >= bytes);
}

static void files_beside_are_brought(void **state)
{
    uint64_t misses;

    (void)state;
    read_some("few", FEW, 30);
    for (int tries = 0; tries < TRIES && count_there("few", FEW) < FEW; tries++) {
        fb_cache_tick(cache);
        fb_sleep_ns(PAUSE_NS);
    }
    assert_int_equal(count_there("few", FEW), FEW);
    misses = metric(FB_CM_MISSES);
    for (unsigned i = 0; i < FEW; i++)
        read_file(name_of("few", i), i, FILE_BYTES);
    fb_cache_tick(cache);
    assert_int_equal(metric(FB_CM_MISSES), misses);
    assert_true(metric(FB_CM_PREFETCH_USED) > 0);
    assert_int_equal(metric(FB_CM_PREFETCH_WASTED), 0);
}

/* What waits to be read is a bounded part of what was. */
static void it_costs_what_was_read_times_so_much(void **state)
{
    /* The first ones only show how far it is. */
    const unsigned reads = 20, shown = 8;
    uint64_t most = FB_PREFETCH_BESIDE_FILES + 4 * reads;

    (void)state;
    read_some("many", MANY, reads);
    wait_brought(4ULL * (reads - shown) * FILE_BYTES);
    for (int i = 0; i < 50; i++) {
        fb_cache_tick(cache);
        fb_sleep_ns(PAUSE_NS);
    }
    assert_true(count_there("many", MANY) <= reads + most);
}

static void nothing_goes_for_it(void **state)
{
    (void)state;
    for (unsigned i = 0; i < LARGE; i++)
        read_file(name_of("large", i), i, LARGE_BYTES);
    for (int tries = 0; tries < TRIES && !fb_place_is_full(cache); tries++)
        fb_sleep_ns(PAUSE_NS);
    assert_true(fb_place_is_full(cache));
    read_some("few", FEW, 20);
    for (int i = 0; i < 20; i++) {
        fb_cache_tick(cache);
        fb_sleep_ns(PAUSE_NS);
    }
    /* Of the large ones some may come again: those are a stream's. */
    assert_true(count_there("few", FEW) <= 20);
}

static void it_pauses_when_nobody_reads_it(void **state)
{
    int64_t later_ns;
    uint64_t bytes;

    (void)state;
    read_some("many", MANY, 40);
    wait_brought(64ULL * FILE_BYTES);
    later_ns = fb_now_ns() + FB_NEAR_WAIT_NS + 60 * FB_NS_PER_S;
    for (int i = 0; i < 1000; i++)
        fb_near_tick(cache->near, later_ns);
    assert_true(metric(FB_CM_PREFETCH_WASTED) >= 32);
    /* Those that are under way come yet. */
    do {
        bytes = metric(FB_CM_PREFETCH_BYTES);
        for (int i = 0; i < 50; i++) {
            fb_cache_tick(cache);
            fb_sleep_ns(PAUSE_NS);
        }
    } while (metric(FB_CM_PREFETCH_BYTES) != bytes);
    read_some("many", MANY, 80);
    assert_int_equal(metric(FB_CM_PREFETCH_BYTES), bytes);
}

/* Files are on their way, from a source that hangs, when the volume goes. */
static void it_ends_with_the_volume(void **state)
{
    (void)state;
    read_some("many", MANY, 16);
    fb_source_fault_set(fault, &(struct fb_fault_config){.hang = 1});
    fb_cache_tick(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_beside_are_brought, setup, teardown),
        cmocka_unit_test_setup_teardown(it_costs_what_was_read_times_so_much, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_goes_for_it, setup, teardown),
        cmocka_unit_test_setup_teardown(it_pauses_when_nobody_reads_it, setup, teardown),
        cmocka_unit_test_setup_teardown(it_ends_with_the_volume, setup, teardown),
    };

    return cmocka_run_group_tests(tests, make_source, remove_source);
}
