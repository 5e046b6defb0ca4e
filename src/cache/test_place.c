/*
 * What need not go does not: what stays in DRAM when its segment is emptied is found all the while,
 * or who asked for it in between would go to the source; and nothing goes for what is due while
 * there is room for both.
 */
#include "cache/cache_priv.h"
#include "cache/test_rig.h"
#include "policy/brain.h"

#define FILES      60u
#define FILE_BYTES (100u << 10)

static const char *name_of(unsigned i)
{
    static char name[16];

    snprintf(name, sizeof name, "f%u", i);
    return name;
}

static int make_source(void **state)
{
    (void)state;
    make_source_dir();
    for (unsigned i = 0; i < FILES; i++)
        put_file(name_of(i), FILE_BYTES, i + 1);
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

    open_cache(f);
    expect_file(f, "f0", FILE_BYTES, 1);
    wait_admitted(f, 1);
    spent.file = look_up(f, "f0");
    spent.source = fb_volume_id(f->volume);
    spent.name = fb_brain_name(spent.source, "f0", 2, 0);
    fb_exchange_spent(f->cache->exchange, &spent);
    assert_true(fb_steer_gives_way(f->cache->steer, spent.stream, FILE_BYTES));
    assert_int_equal(fb_files_items(f->cache->files, spent.file), 1);
    /* It is what would go. */
    assert_int_equal(fb_exchange_take(f->cache->exchange, spent.stream, FILE_BYTES), FILE_BYTES);
    assert_int_equal(fb_files_items(f->cache->files, spent.file), 0);
    let_go(f, spent.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_stays_is_found_all_the_while),
        CASE(nothing_goes_while_there_is_room),
    };

    return cmocka_run_group_tests_name("place", tests, make_source, remove_source);
}
