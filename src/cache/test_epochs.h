/*
 * cache/test_epochs.h - for tests of plans: a data set of 600 files over a real directory, others'
 * files beside it, a cache, and a plan of which the test knows the truth.
 */
#ifndef FB_CACHE_TEST_EPOCHS_H
#define FB_CACHE_TEST_EPOCHS_H

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/cache.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "source/source_posix.h"

#define FILES  600u
#define BYTES  (48u << 10)
#define BATCH  8u
#define WAIT_S 60

/* Others' files, of holes: enough to fill a small cache. */
#define OTHERS      96u
#define OTHER_BYTES (1u << 20)

static struct fb_test_dir shared_dir;

struct fixture {
    struct fb_test_dir dir;
    char cache_path[PATH_MAX + 16];
    struct fb_cache_config config;
    struct fb_cache *cache;
    struct fb_volume *volume;
};

static inline void name_of(uint32_t number, char name[64])
{
    snprintf(name, 64, "set/c%u/f%u", number % 5, number);
}

static inline int group_setup(void **state)
{
    static uint8_t data[BYTES];

    (void)state;
    fb_test_dir_make(&shared_dir);
    for (uint32_t i = 0; i < FILES; i++) {
        char name[64], path[PATH_MAX + 80];
        FB_AUTO_CLOSE int fd = -1;

        name_of(i, name);
        snprintf(path, sizeof path, "%s/set", shared_dir.path);
        (void)mkdir(path, 0755);
        snprintf(path, sizeof path, "%s/set/c%u", shared_dir.path, i % 5);
        (void)mkdir(path, 0755);
        snprintf(path, sizeof path, "%s/%s", shared_dir.path, name);
        memset(data, (int)(i % 251), sizeof data);
        memcpy(data, &i, sizeof i);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, data, sizeof data), (ssize_t)sizeof data);
    }
    for (uint32_t i = 0; i < OTHERS; i++) {
        char path[PATH_MAX + 80];
        FB_AUTO_CLOSE int fd = -1;

        snprintf(path, sizeof path, "%s/other%u", shared_dir.path, i);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, OTHER_BYTES), 0);
    }
    fb_sleep_ns(FB_SETTLE_TIME_NS + 50 * FB_NS_PER_MS);
    return 0;
}

static inline int group_teardown(void **state)
{
    (void)state;
    fb_test_dir_remove(&shared_dir);
    return 0;
}

static inline void open_cache(struct fixture *f)
{
    struct fb_posix_config posix = {.root = shared_dir.path, .threads = 4};
    struct fb_volume_config volume = {.metadata_ttl_ns = 3600 * FB_NS_PER_S,
                                      .timeout_ns = WAIT_S * FB_NS_PER_S};
    struct fb_error err = {""};
    struct fb_source *source;

    if (fb_cache_open(&f->config, &f->cache, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(fb_source_posix_open(&posix, &source, &err), 0);
    assert_int_equal(fb_volume_attach(f->cache, source, &volume, &f->volume, &err), 0);
}

static inline void close_cache(struct fixture *f)
{
    fb_volume_detach(fb_steal(f->volume));
    fb_cache_close(fb_steal(f->cache));
}

static inline int setup(void **state)
{
    struct fixture *f = fb_alloc(sizeof *f);

    assert_non_null(f);
    fb_test_dir_make(&f->dir);
    snprintf(f->cache_path, sizeof f->cache_path, "%s/cache", f->dir.path);
    fb_cache_config_defaults(&f->config);
    f->config.memory_bytes = 64u << 20;
    f->config.cache_bytes = 512u << 20;
    f->config.cache_dir_count = 1;
    f->config.cache_dirs[0] = f->cache_path;
    f->config.free_space_ratio = 0;
    open_cache(f);
    *state = f;
    return 0;
}

/* Small segments, so that the data set has many. */
static inline int setup_log(void **state)
{
    struct fixture *f;

    (void)setup(state);
    f = *state;
    close_cache(f);
    f->config.memory_bytes = 128u << 20;
    f->config.block_bytes = 64u << 10;
    f->config.segment_bytes = 256u << 10;
    f->config.epoch_log = FB_EPOCH_LOG_ON;
    open_cache(f);
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

static inline struct fb_names *make_names(void)
{
    struct fb_names *names = fb_names_new();
    char name[64];

    assert_non_null(names);
    for (uint32_t i = 0; i < FILES; i++) {
        name_of(i, name);
        assert_int_equal(fb_names_add_path(names, name + 4, strlen(name + 4), FB_NAMES_NO_SIZE), 0);
    }
    assert_int_equal(fb_names_index(names), 0);
    return names;
}

static inline const struct fb_plan_order *order(void)
{
    static struct fb_plan_order o = {
        .spec = {.split = {.world = 1, .batch = BATCH}, .shuffle = {.seed = 11}}};

    o.spec.shuffle.sampler = fb_sampler_find("torch-distributed");
    return &o;
}

static inline uint64_t metric(const struct fixture *f, enum fb_cache_metric which)
{
    return fb_metric_get(fb_cache_metrics(f->cache), which);
}

static inline void note_view(void *arg, const struct fb_plan_view *view)
{
    *(struct fb_plan_view *)arg = *view;
}

/* Waits until the plan knows where the reader is, and so many files wait for it. */
static inline void wait_ready(const struct fixture *f, uint64_t epoch, uint64_t turn,
                              uint64_t ready)
{
    int64_t until_ns = fb_now_ns() + WAIT_S * FB_NS_PER_S;
    struct fb_plan_view view = {0};

    do {
        fb_cache_plans(f->cache, note_view, &view);
        if (view.dir && view.follow.epoch == epoch && view.ready >= ready &&
            view.follow.turn + 8 >= turn)
            return;
        fb_sleep_ns(FB_NS_PER_MS);
    } while (fb_now_ns() < until_ns);
    fail_msg("%llu files ready in epoch %llu", (unsigned long long)view.ready,
             (unsigned long long)view.follow.epoch);
}

static inline void wait_metric(const struct fixture *f, enum fb_cache_metric which, uint64_t least)
{
    int64_t until_ns = fb_now_ns() + WAIT_S * FB_NS_PER_S;

    while (metric(f, which) < least && fb_now_ns() < until_ns)
        fb_sleep_ns(FB_NS_PER_MS);
    assert_true(metric(f, which) >= least);
}

static inline void read_file(const struct fixture *f, uint32_t number)
{
    static uint8_t data[BYTES];
    struct fb_attr attr;
    char name[64];
    uint32_t file;

    name_of(number, name);
    assert_int_equal(fb_cache_stat(f->volume, name, &file, &attr), 0);
    assert_int_equal(fb_cache_pread(f->volume, file, 0, BYTES, data), BYTES);
    assert_memory_equal(data, &number, sizeof number);
    assert_int_equal(data[BYTES - 1], number % 251);
    fb_files_unref(fb_cache_files(f->cache), file, 1);
}

/* Reads accesses first to last of the truth's epoch, waiting now and then, as a GPU would, until so
 * many are ready. */
static inline void read_slowly(const struct fixture *f, const struct fb_plan *truth, uint64_t first,
                               uint64_t last, uint64_t ready)
{
    const struct fb_epoch *epoch = fb_plan_current(truth);

    for (uint64_t k = first; k < last; k++) {
        if (k % 32 == 0 && k > first)
            wait_ready(f, epoch->number, k, ready);
        read_file(f, fb_plan_file(truth, epoch, k));
    }
}

static inline void read_some(const struct fixture *f, const struct fb_plan *truth, uint64_t first,
                             uint64_t last)
{
    read_slowly(f, truth, first, last, 32);
}

static inline struct fb_plan *make_truth(const struct fb_names *names)
{
    struct fb_error err = {""};
    struct fb_plan *truth;

    assert_int_equal(fb_plan_new(&order()->spec, names, &truth, &err), 0);
    return truth;
}

static inline struct fb_names *many_names(void)
{
    struct fb_names *names = fb_names_new();
    char name[64];

    assert_non_null(names);
    for (uint32_t i = 0; i < 50000; i++) {
        int len = snprintf(name, sizeof name, "c%u/f%u", i % 5, i);

        assert_int_equal(fb_names_add_path(names, name, (size_t)len, FB_NAMES_NO_SIZE), 0);
    }
    assert_int_equal(fb_names_index(names), 0);
    return names;
}

#endif
