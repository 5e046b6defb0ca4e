/*
 * cache/test_rig.h - for tests of the cache: a cache over a real directory, behind a source that
 * can be told to fail or hang. The bytes of a file follow from a seed, so that any wrong one shows.
 */
#ifndef FB_CACHE_TEST_RIG_H
#define FB_CACHE_TEST_RIG_H

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/rand.h"
#include "cache/cache.h"
#include "core/clock.h"
#include "core/lock.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "source/source_fault.h"
#include "source/source_posix.h"

#define MIB (1u << 20)

/* One source for all tests, as its files must have settled; each test has a cache of its own. */
static struct fb_test_dir shared_dir;
static char source_path[PATH_MAX + 16];

struct fixture {
    struct fb_test_dir dir;
    char cache_path[PATH_MAX + 16];
    char pmem_path[PATH_MAX + 16];
    struct fb_cache_config config;
    struct fb_volume_config volume_config;
    struct fb_cache *cache;
    struct fb_source *fault; /* belongs to the volume */
    struct fb_volume *volume;
};

static inline void fill(uint8_t *data, uint64_t length, uint64_t seed)
{
    struct fb_rand r = {.state = seed};

    for (uint64_t i = 0; i < length; i += 8) {
        uint64_t word = fb_rand_u64(&r);

        memcpy(data + i, &word, fb_min_u64(8, length - i));
    }
}

/* Writes a file of `seed`'s content. */
static inline void put_file(const char *name, uint64_t length, uint64_t seed)
{
    char path[PATH_MAX + 300];
    FB_AUTO_FREE uint8_t *data = fb_alloc(length + 8);
    FB_AUTO_CLOSE int fd = -1;

    assert_non_null(data);
    fill(data, length, seed);
    snprintf(path, sizeof path, "%s/%s", source_path, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, length), (ssize_t)length);
}

static inline void open_cache(struct fixture *f)
{
    struct fb_posix_config posix = {.root = source_path, .threads = 8};
    struct fb_error err = {""};
    struct fb_source *source;

    if (fb_cache_open(&f->config, &f->cache, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(fb_source_posix_open(&posix, &source, &err), 0);
    assert_int_equal(fb_source_fault_open(source, &(struct fb_fault_config){0}, &f->fault), 0);
    assert_int_equal(fb_volume_attach(f->cache, f->fault, &f->volume_config, &f->volume, &err), 0);
}

static inline void close_cache(struct fixture *f)
{
    fb_volume_detach(f->volume);
    fb_cache_close(f->cache);
    f->volume = NULL;
    f->cache = NULL;
}

static inline int setup(void **state)
{
    struct fixture *f = fb_alloc(sizeof *f);

    assert_non_null(f);
    fb_test_dir_make(&f->dir);
    snprintf(f->cache_path, sizeof f->cache_path, "%s/cache", f->dir.path);
    snprintf(f->pmem_path, sizeof f->pmem_path, "%s/pmem", f->dir.path);
    fb_cache_config_defaults(&f->config);
    f->config.memory_bytes = 96 * MIB;
    f->config.free_space_ratio = 0;
    f->volume_config.metadata_ttl_ns = 3600 * FB_NS_PER_S;
    f->volume_config.timeout_ns = 120 * FB_NS_PER_S;
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;

    if (f->cache)
        close_cache(f);
    fb_test_dir_remove(&f->dir);
    free(f);
    return 0;
}

/* A ctime cannot be set: a file settles by waiting. */
static inline void settle(void)
{
    fb_sleep_ns(FB_SETTLE_TIME_NS + 50 * FB_NS_PER_MS);
}

static inline uint64_t metric(struct fixture *f, unsigned id)
{
    return fb_metric_get(fb_cache_metrics(f->cache), id);
}

/* Items are kept after they were answered, by the thread that fetched them. */
static inline void wait_admitted(struct fixture *f, uint64_t count)
{
    for (int i = 0; i < 6000 && metric(f, FB_CM_ADMITTED) < count; i++)
        fb_sleep_ns(10 * FB_NS_PER_MS);
    assert_int_equal(metric(f, FB_CM_ADMITTED), count);
}

static inline uint32_t look_up(struct fixture *f, const char *name)
{
    uint32_t file;

    assert_int_equal(fb_cache_stat(f->volume, name, &file, NULL), 0);
    return file;
}

static inline void let_go(struct fixture *f, uint32_t file)
{
    fb_files_unref(fb_cache_files(f->cache), file, 1);
}

/* Reads a range and compares it with what the file must hold. */
static inline void expect_range(struct fixture *f, uint32_t file, uint64_t size, uint64_t seed,
                                uint64_t offset, uint32_t length)
{
    FB_AUTO_FREE uint8_t *want = fb_alloc(size + 8);
    FB_AUTO_FREE uint8_t *got = fb_alloc(length + 8);
    int64_t expected = offset >= size ? 0 : (int64_t)fb_min_u64(length, size - offset);

    assert_non_null(want);
    assert_non_null(got);
    fill(want, size, seed);
    assert_int_equal(fb_cache_pread(f->volume, file, offset, length, got), expected);
    if (expected > 0)
        assert_memory_equal(got, want + offset, (size_t)expected);
}

static inline void expect_file(struct fixture *f, const char *name, uint64_t size, uint64_t seed)
{
    uint32_t file = look_up(f, name);

    expect_range(f, file, size, seed, 0, (uint32_t)size + 1);
    let_go(f, file);
}

static inline void answered(struct fb_read *read)
{
    fb_event_set(read->arg);
}

static inline void make_source_dir(void)
{
    fb_test_dir_make(&shared_dir);
    snprintf(source_path, sizeof source_path, "%s/source", shared_dir.path);
    assert_int_equal(mkdir(source_path, 0755), 0);
}

static inline int remove_source(void **state)
{
    (void)state;
    fb_test_dir_remove(&shared_dir);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
