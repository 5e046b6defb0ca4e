/*
 * What the cache no longer believes or holds: files that are deleted, evicted, or changed through a
 * door, at rest, during a fetch and over a restart.
 */
#include "cache/cache_priv.h"
#include "cache/place_priv.h"
#include "cache/test_rig.h"

static int make_source(void **state)
{
    (void)state;
    make_source_dir();
    put_file("a", 10000, 1);
    put_file("b", 10000, 2);
    put_file("goes", 10000, 1);
    put_file("becomes", 10000, 1);
    put_file("large", 8 * 256 * 1024, 7);
    settle();
    return 0;
}

static void deleted_files_go(void **state)
{
    struct fixture *f = *state;
    char path[PATH_MAX + 300];
    uint32_t file;

    f->volume_config.metadata_ttl_ns = 0;
    open_cache(f);
    expect_file(f, "goes", 10000, 1);
    snprintf(path, sizeof path, "%s/goes", source_path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(fb_cache_stat(f->volume, "goes", &file, NULL), -ENOENT);
    assert_int_equal(fb_cache_stat(f->volume, "goes/b", &file, NULL), -ENOENT);
}

static void evicted_by_hand(void **state)
{
    struct fixture *f = *state;

    open_cache(f);
    expect_file(f, "a", 10000, 1);
    expect_file(f, "b", 10000, 2);
    wait_admitted(f, 2);
    assert_int_equal(fb_cache_evict(f->volume, "a"), 1);
    expect_file(f, "b", 10000, 2);
    assert_int_equal(metric(f, FB_CM_FETCHES), 2);
    expect_file(f, "a", 10000, 1);
    assert_int_equal(metric(f, FB_CM_FETCHES), 3);
    wait_admitted(f, 3);
    assert_int_equal(fb_cache_evict(f->volume, ""), 2);
    expect_file(f, "b", 10000, 2);
    assert_int_equal(metric(f, FB_CM_FETCHES), 4);
}

/* Changed through a door: bytes and names are asked for anew, at once, here and by other volumes.
 * */
static void changed_through_a_door(void **state)
{
    struct fixture *f = *state;

    open_cache(f);
    expect_file(f, "a", 10000, 1);
    expect_file(f, "b", 10000, 2);
    wait_admitted(f, 2);
    fb_cache_changed(f->volume, "a", NULL);
    expect_file(f, "b", 10000, 2);
    assert_int_equal(metric(f, FB_CM_FETCHES), 2);
    assert_int_equal(metric(f, FB_CM_STATS), 2);
    expect_file(f, "a", 10000, 1);
    assert_int_equal(metric(f, FB_CM_FETCHES), 3);
    assert_int_equal(metric(f, FB_CM_STATS), 3);
    fb_cache_changed_below(f->volume, "");
    expect_file(f, "b", 10000, 2);
    assert_int_equal(metric(f, FB_CM_FETCHES), 4);
    assert_int_equal(metric(f, FB_CM_STATS), 4);
}

/* What was asked before a change of that very path is believed once only. */
static void learned_after_a_change(void **state)
{
    struct fixture *f = *state;
    struct fb_files *files;
    uint64_t one, any;
    struct fb_attr attr;
    uint32_t file;

    open_cache(f);
    files = fb_cache_files(f->cache);
    assert_int_equal(fb_cache_stat(f->volume, "a", &file, &attr), 0);
    let_go(f, file);
    one = fb_cache_moment(f->volume, "a");
    any = fb_cache_moment(f->volume, NULL);
    fb_cache_changed(f->volume, "b", NULL);
    assert_int_equal(fb_cache_learn(f->volume, "a", &attr, one, &file), 0);
    assert_true(fb_files_valid_until(files, file) > fb_now_ns());
    let_go(f, file);
    assert_int_equal(fb_cache_learn(f->volume, "a", &attr, any, &file), 0);
    assert_int_equal(fb_files_valid_until(files, file), FB_FILES_OUTDATED_NS);
    let_go(f, file);
    fb_cache_forget(f->volume, "a");
    assert_int_equal(fb_cache_learn(f->volume, "a", &attr, one, &file), 0);
    assert_int_equal(fb_files_valid_until(files, file), FB_FILES_OUTDATED_NS);
    let_go(f, file);
    one = fb_cache_moment(f->volume, "a");
    fb_cache_changed_below(f->volume, "elsewhere");
    assert_int_equal(fb_cache_learn(f->volume, "a", &attr, one, &file), 0);
    assert_int_equal(fb_files_valid_until(files, file), FB_FILES_OUTDATED_NS);
    let_go(f, file);
}

static int hear(struct fixture *f, const char *path, const struct fb_attr *attr, int64_t seen_ns,
                uint32_t *ret_file)
{
    struct fb_heard heard = {.asked = fb_cache_moment(f->volume, NULL), .seen_ns = seen_ns};

    return fb_cache_hear(f->volume, path, attr, &heard, ret_file);
}

/* What a listing told is believed from when it was made, and never against what was asked since. */
static void heard_of_late(void **state)
{
    struct fixture *f = *state;
    int64_t ttl_ns = f->volume_config.metadata_ttl_ns, before_ns = fb_now_ns(), seen_ns;
    struct fb_attr attr, old;
    struct fb_files *files;
    uint32_t file, other;

    open_cache(f);
    files = fb_cache_files(f->cache);
    assert_int_equal(fb_cache_stat(f->volume, "a", &file, &attr), 0);
    old = attr;
    old.version.mtime_ns -= FB_NS_PER_S;
    assert_int_equal(hear(f, "a", &attr, before_ns, &other), 0);
    assert_int_equal(other, file);
    assert_true(fb_files_valid_until(files, file) > before_ns + ttl_ns);
    let_go(f, other);
    /* Another version of before the question: one of the two is wrong. */
    assert_int_equal(hear(f, "a", &old, before_ns, &other), -ESTALE);
    assert_int_equal(fb_files_valid_until(files, file), 0);
    let_go(f, file);
    assert_int_equal(fb_cache_stat(f->volume, "a", &file, NULL), 0);
    assert_int_equal(metric(f, FB_CM_STATS), 2);
    let_go(f, file);
    /* One of after it. */
    seen_ns = fb_now_ns();
    assert_int_equal(hear(f, "a", &old, seen_ns, &other), 0);
    assert_int_not_equal(other, file);
    assert_int_equal(fb_files_valid_until(files, other), seen_ns + ttl_ns);
    let_go(f, other);
    assert_int_equal(hear(f, "b", &attr, fb_now_ns() - ttl_ns - 3 * FB_NS_PER_S, &other), -ESTALE);
}

/* Nor against what is too young to be believed for longer than once. */
static void heard_of_the_unsettled(void **state)
{
    struct fixture *f = *state;
    int64_t before_ns = fb_now_ns();
    struct fb_attr attr;
    uint32_t file, other;

    open_cache(f);
    put_file("young", 100, 1);
    assert_int_equal(fb_cache_stat(f->volume, "young", &file, &attr), 0);
    attr.version.mtime_ns -= 10 * FB_NS_PER_S;
    attr.version.ctime_ns -= 10 * FB_NS_PER_S;
    assert_int_equal(hear(f, "young", &attr, before_ns, &other), -ESTALE);
    assert_int_equal(fb_files_find(fb_cache_files(f->cache), fb_volume_id(f->volume), "young"),
                     file);
    let_go(f, file);
    let_go(f, file);
}

/* A file that is another kind of thing by now: who looks again is told so. */
static void no_longer_a_file(void **state)
{
    struct fixture *f = *state;
    struct fb_event over;
    struct fb_read read = {.length = 10000, .done = answered, .arg = &over};
    char path[PATH_MAX + 300];
    struct fb_attr attr;
    uint32_t file;

    open_cache(f);
    read.file = look_up(f, "becomes");
    read.volume = f->volume;
    snprintf(path, sizeof path, "%s/becomes", source_path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("a", path), 0);
    fb_event_init(&over);
    fb_cache_read(&read);
    fb_event_wait(&over);
    assert_int_equal(read.result, -ESTALE);
    assert_int_equal(fb_cache_stat(f->volume, "becomes", &file, &attr), 0);
    assert_true(S_ISLNK(attr.mode));
    let_go(f, file);
    let_go(f, read.file);
}

/* What was read before an eviction is answered, but not kept after it. */
static void evicted_during_a_fetch(void **state)
{
    struct fixture *f = *state;
    struct fb_event over;
    struct fb_read read = {.length = 10000, .done = answered, .arg = &over};

    open_cache(f);
    read.file = look_up(f, "a");
    read.volume = f->volume;
    fb_event_init(&over);
    fb_source_fault_set(f->fault, &(struct fb_fault_config){.hang = 1});
    fb_cache_read(&read);
    assert_int_equal(metric(f, FB_CM_FETCHES), 1);
    assert_int_equal(fb_cache_evict(f->volume, "a"), 1);
    fb_source_fault_set(f->fault, &(struct fb_fault_config){0});
    fb_event_wait(&over);
    assert_int_equal(read.result, 0);
    fb_read_release(&read);

    /* The fetch is out of the way once its item has been kept, or not. */
    for (int i = 0; i < 50 && metric(f, FB_CM_ADMITTED) == 0; i++)
        fb_sleep_ns(10 * FB_NS_PER_MS);
    assert_int_equal(metric(f, FB_CM_ADMITTED), 0);
    expect_range(f, read.file, 10000, 1, 0, 10000);
    assert_int_equal(metric(f, FB_CM_FETCHES), 2);
    wait_admitted(f, 1);
    expect_range(f, read.file, 10000, 1, 0, 10000);
    assert_int_equal(metric(f, FB_CM_FETCHES), 2);
    let_go(f, read.file);
}

/* What comes too late is one item, and the rest of its file is none of its business. */
static void one_item_is_taken_back(void **state)
{
    struct fixture *f = *state;
    struct fb_item item = {.block = 3, .length = 256 * 1024};

    open_cache(f);
    item.file = look_up(f, "large");
    expect_range(f, item.file, 8 * 256 * 1024, 7, 0, 8 * 256 * 1024);
    wait_admitted(f, 8);
    assert_int_equal(fb_files_items(f->cache->files, item.file), 8);
    /* Somebody has evicted something else since the item was read. */
    assert_true(fb_place_take_back(f->cache, &item, atomic_load(&f->cache->evictions) - 1));
    assert_int_equal(fb_files_items(f->cache->files, item.file), 7);
    let_go(f, item.file);
}

static void evicted_over_a_restart(void **state)
{
    struct fixture *f = *state;

    f->config.cache_bytes = 64 * MIB;
    f->config.cache_dir_count = 1;
    f->config.cache_dirs[0] = f->cache_path;
    open_cache(f);
    expect_file(f, "a", 10000, 1);
    expect_file(f, "b", 10000, 2);
    wait_admitted(f, 2);
    close_cache(f);
    open_cache(f);
    assert_true(fb_cache_evict(f->volume, "a") >= 1);
    close_cache(f);
    open_cache(f);
    expect_file(f, "b", 10000, 2);
    assert_int_equal(metric(f, FB_CM_FETCHES), 0);
    expect_file(f, "a", 10000, 1);
    assert_int_equal(metric(f, FB_CM_FETCHES), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(deleted_files_go),       CASE(changed_through_a_door), CASE(learned_after_a_change),
        CASE(evicted_by_hand),        CASE(evicted_during_a_fetch), CASE(evicted_over_a_restart),
        CASE(one_item_is_taken_back), CASE(heard_of_late),          CASE(heard_of_the_unsettled),
        CASE(no_longer_a_file),
    };

    return cmocka_run_group_tests(tests, make_source, remove_source);
}
