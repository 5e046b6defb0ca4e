/*
 * What need not go does not: what stays in DRAM when its segment is emptied is found all the while,
 * or who asked for it in between would go to the source; and nothing goes for what is due while
 * there is room for both.
 */
#include <unistd.h>

#include "cache/cache_priv.h"
#include "cache/test_rig.h"
#include "policy/brain.h"

#define FILES      60u
#define FILE_BYTES (100u << 10)
#define LARGE      (128ull << 20)

static const char *name_of(unsigned i)
{
    static char name[16];

    snprintf(name, sizeof name, "f%u", i);
    return name;
}

static int make_source(void **state)
{
    char path[PATH_MAX + 300];

    (void)state;
    make_source_dir();
    for (unsigned i = 0; i < FILES; i++)
        put_file(name_of(i), FILE_BYTES, i + 1);
    put_file("large", 0, 0);
    snprintf(path, sizeof path, "%s/large", source_path);
    assert_int_equal(truncate(path, LARGE), 0);
    settle();
    return 0;
}

struct watch {
    struct fb_cache *cache;
    unsigned asked;
    unsigned lost;
    uint64_t keys[FILES];
};

static bool is_in_dram(struct fb_cache *cache, uint64_t key)
{
    struct fb_whereabouts where;

    fb_store_where(fb_cache_store(cache), key, &where);
    return where.in_dram;
}

/* All stay, and those before are there. */
static bool stays(void *arg, const struct fb_item *item)
{
    struct watch *w = arg;

    for (unsigned i = 0; i < w->asked; i++)
        w->lost += !is_in_dram(w->cache, w->keys[i]);
    if (w->asked < FILES)
        w->keys[w->asked++] = fb_item_key(item->file, item->block);
    return true;
}

static void what_stays_is_found_all_the_while(void **state)
{
    struct fixture *f = *state;
    struct watch w = {.asked = 0};
    uint64_t misses;

    f->config.segment_bytes = MIB;
    open_cache(f);
    for (unsigned i = 0; i < FILES; i++)
        expect_file(f, name_of(i), FILE_BYTES, i + 1);
    wait_admitted(f, FILES);
    misses = metric(f, FB_CM_MISSES);
    w.cache = f->cache;
    fb_place_clear(f->cache, fb_place_dram_free(f->cache) + 4 * MIB, stays, &w);
    assert_true(w.asked > 1);
    assert_int_equal(w.lost, 0);
    assert_true(metric(f, FB_CM_KEPT) >= w.asked);
    for (unsigned i = 0; i < w.asked; i++)
        assert_true(is_in_dram(f->cache, w.keys[i]));
    for (unsigned i = 0; i < FILES; i++)
        expect_file(f, name_of(i), FILE_BYTES, i + 1);
    assert_int_equal(metric(f, FB_CM_MISSES), misses);
}

static void nothing_goes_while_there_is_room(void **state)
{
    struct fixture *f = *state;
    struct fb_spent spent = {.bytes = FILE_BYTES, .stream = 1};
    uint64_t gone;

    open_cache(f);
    expect_file(f, "f0", FILE_BYTES, 1);
    wait_admitted(f, 1);
    spent.file = look_up(f, "f0");
    spent.source = fb_volume_id(f->volume);
    spent.name = fb_brain_name(spent.source, "f0", 2, 0);
    fb_exchange_spent(f->cache->exchange, &spent);
    assert_true(fb_steer_gives_way(f->cache->steer, spent.stream, FILE_BYTES, &gone));
    assert_int_equal(fb_files_items(f->cache->files, spent.file), 1);
    /* It is what would go. */
    assert_int_equal(fb_exchange_take(f->cache->exchange, spent.stream, FILE_BYTES), FILE_BYTES);
    assert_int_equal(fb_files_items(f->cache->files, spent.file), 0);
    let_go(f, spent.file);
}

/* With blocks of a file that has as many as go into it. */
static void fill_tier(struct fixture *f, unsigned tier)
{
    struct fb_store *store = fb_cache_store(f->cache);
    FB_AUTO_FREE uint8_t *data = fb_alloc(f->config.block_bytes);
    struct fb_item item = {.length = f->config.block_bytes, .data = data};
    int rc;

    assert_non_null(data);
    item.file = look_up(f, "large");
    while ((rc = fb_store_append(store, tier, &item)) != FB_STORE_FULL) {
        item.block += rc == 0;
        if (rc != 0) {
            assert_int_equal(rc, FB_STORE_BUSY);
            fb_store_wait_writes(store, fb_now_ns() + FB_NS_PER_S);
        }
    }
    let_go(f, item.file);
}

static void no_room_on_a_full_disk(void **state)
{
    struct fixture *f = *state;
    struct fb_spent spent = {.bytes = FILE_BYTES, .stream = 1};
    uint64_t gone;
    struct fb_item item = {.length = 1, .data = (const uint8_t *)"1"};

    f->config.memory_bytes = 64 * MIB;
    f->config.segment_bytes = MIB;
    f->config.cache_bytes = 64 * MIB;
    f->config.cache_dir_count = 1;
    f->config.cache_dirs[0] = f->cache_path;
    f->config.free_space_ratio = 0.9999; /* others have the rest */
    f->config.no_watch = true;
    open_cache(f);
    expect_file(f, "f0", FILE_BYTES, 1);
    wait_admitted(f, 1);
    spent.file = item.file = look_up(f, "f0");
    item.block = 1;
    fill_tier(f, 0);
    /* Nobody knows before it is tried. */
    assert_true(fb_place_free(f->cache) > 0);
    assert_int_equal(fb_store_append(fb_cache_store(f->cache), 1, &item), FB_STORE_FULL);
    assert_int_equal(fb_place_free(f->cache), 0);
    fb_sleep_ns(FB_NS_PER_S + 100 * FB_NS_PER_MS); /* until it is tried again */
    assert_int_equal(fb_place_free(f->cache), 0);
    spent.source = fb_volume_id(f->volume);
    spent.name = fb_brain_name(spent.source, "f0", 2, 0);
    fb_exchange_spent(f->cache->exchange, &spent);
    assert_true(fb_steer_gives_way(f->cache->steer, spent.stream, FILE_BYTES, &gone));
    assert_int_equal(fb_files_items(f->cache->files, spent.file), 0);
    let_go(f, spent.file);
}

/* What a plan brings comes through DRAM, and what took that would be pushed out again. */
static void the_way_of_a_plan_is_no_room(void **state)
{
    struct fixture *f = *state;
    struct fb_plan_order order = {.spec = {.split = {.world = 1, .batch = 1}}};
    struct fb_names *names = fb_names_new();
    struct fb_error err = {""};
    uint64_t room;

    f->config.memory_bytes = 64 * MIB;
    f->config.segment_bytes = MIB;
    f->config.cache_bytes = 64 * MIB;
    f->config.cache_dir_count = 1;
    f->config.cache_dirs[0] = f->cache_path;
    open_cache(f);
    fill_tier(f, 1);
    room = fb_place_free(f->cache);
    assert_true(room > 0);
    assert_non_null(names);
    for (unsigned i = 0; i < FILES; i++)
        assert_int_equal(fb_names_add_path(names, name_of(i), strlen(name_of(i)), FB_NAMES_NO_SIZE),
                         0);
    assert_int_equal(fb_names_index(names), 0);
    order.spec.shuffle.sampler = fb_sampler_find("sequential");
    assert_int_equal(fb_cache_plan(f->volume, "", names, &order, &err), 0);
    /* A quarter of DRAM, and a little more; perhaps not before plans are looked through again. */
    room -= f->cache->budget.dram_bytes / 4;
    for (int tries = 0; fb_place_free(f->cache) > room && tries < 1000; tries++)
        fb_sleep_ns(10 * FB_NS_PER_MS);
    assert_true(fb_place_free(f->cache) <= room);
    assert_int_equal(fb_cache_unplan(f->volume, ""), 1);
}

/* An item of a version that is no more has no place below, and none in DRAM either. */
static void what_has_changed_leaves(void **state)
{
    struct fixture *f = *state;
    struct fb_item item = {.length = 4, .data = (const uint8_t *)"gone"};
    uint64_t key;

    f->config.cache_bytes = 64 * MIB;
    f->config.cache_dir_count = 1;
    f->config.cache_dirs[0] = f->cache_path;
    open_cache(f);
    item.file = look_up(f, "f0");
    key = fb_item_key(item.file, 0);
    let_go(f, fb_files_remove(f->cache->files, fb_volume_id(f->volume), "f0"));
    assert_int_equal(fb_store_append(f->cache->store, 0, &item), 0); /* it was on its way */
    fb_place_leave(f->cache, key, MIB, MIB);
    assert_false(is_in_dram(f->cache, key));
    let_go(f, item.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_stays_is_found_all_the_while),
        CASE(nothing_goes_while_there_is_room),
        CASE(no_room_on_a_full_disk),
        CASE(the_way_of_a_plan_is_no_room),
        CASE(what_has_changed_leaves),
    };

    return cmocka_run_group_tests_name("place", tests, make_source, remove_source);
}
