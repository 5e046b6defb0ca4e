/*
 * Plans at work over a real directory: what is read next is in DRAM, what was read leaves it, the
 * source is read once; a plan goes on after a restart, and a damaged one is dropped.
 */
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rand.h"
#include "cache/cache.h"
#include "cache/epoch_file.h"
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

static void name_of(uint32_t number, char name[64])
{
    snprintf(name, 64, "set/c%u/f%u", number % 5, number);
}

static int group_setup(void **state)
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

static int group_teardown(void **state)
{
    (void)state;
    fb_test_dir_remove(&shared_dir);
    return 0;
}

static void open_cache(struct fixture *f)
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

static void close_cache(struct fixture *f)
{
    fb_volume_detach(fb_steal(f->volume));
    fb_cache_close(fb_steal(f->cache));
}

static int setup(void **state)
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
static int setup_log(void **state)
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

static int teardown(void **state)
{
    struct fixture *f = *state;

    if (f->cache)
        close_cache(f);
    fb_test_dir_remove(&f->dir);
    free(f);
    return 0;
}

static struct fb_names *make_names(void)
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

static const struct fb_plan_order *order(void)
{
    static struct fb_plan_order o = {
        .spec = {.split = {.world = 1, .batch = BATCH}, .shuffle = {.seed = 11}}};

    o.spec.shuffle.sampler = fb_sampler_find("torch-distributed");
    return &o;
}

static uint64_t metric(const struct fixture *f, enum fb_cache_metric which)
{
    return fb_metric_get(fb_cache_metrics(f->cache), which);
}

static void note_view(void *arg, const struct fb_plan_view *view)
{
    *(struct fb_plan_view *)arg = *view;
}

/* Waits until the plan knows where the reader is, and so many files wait for it. */
static void wait_ready(const struct fixture *f, uint64_t epoch, uint64_t turn, uint64_t ready)
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

static void wait_metric(const struct fixture *f, enum fb_cache_metric which, uint64_t least)
{
    int64_t until_ns = fb_now_ns() + WAIT_S * FB_NS_PER_S;

    while (metric(f, which) < least && fb_now_ns() < until_ns)
        fb_sleep_ns(FB_NS_PER_MS);
    assert_true(metric(f, which) >= least);
}

static void read_file(const struct fixture *f, uint32_t number)
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
static void read_slowly(const struct fixture *f, const struct fb_plan *truth, uint64_t first,
                        uint64_t last, uint64_t ready)
{
    const struct fb_epoch *epoch = fb_plan_current(truth);

    for (uint64_t k = first; k < last; k++) {
        if (k % 32 == 0 && k > first)
            wait_ready(f, epoch->number, k, ready);
        read_file(f, fb_plan_file(truth, epoch, k));
    }
}

static void read_some(const struct fixture *f, const struct fb_plan *truth, uint64_t first,
                      uint64_t last)
{
    read_slowly(f, truth, first, last, 32);
}

static struct fb_plan *make_truth(const struct fb_names *names)
{
    struct fb_error err = {""};
    struct fb_plan *truth;

    assert_int_equal(fb_plan_new(&order()->spec, names, &truth, &err), 0);
    return truth;
}

/* An epoch from DRAM, of which nothing is fetched again, comes after a while: what had to leave
 * DRAM while the disk was busy is fetched once more. */
static void epochs_from_dram(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    int64_t until_ns = fb_now_ns() + 4 * WAIT_S * FB_NS_PER_S;
    struct fb_error err = {""};
    uint64_t hits = 0, fetched = 0;
    struct fb_tier_stats dram;

    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    wait_ready(f, 0, 0, 64);
    for (uint64_t e = 0; e < 3 || hits < FILES * 9 / 10 || fetched > 0; e++) {
        assert_true(fb_now_ns() < until_ns);
        hits = metric(f, FB_CM_HITS_DRAM);
        fetched = metric(f, FB_CM_FETCH_BYTES);
        read_some(f, truth, 0, FILES);
        wait_metric(f, FB_CM_PLAN_READS, (e + 1) * FILES - e * FB_FOLLOW_SURE);
        hits = metric(f, FB_CM_HITS_DRAM) - hits;
        fetched = metric(f, FB_CM_FETCH_BYTES) - fetched;
        assert_int_equal(fb_plan_advance(truth), 0);
    }
    assert_true(metric(f, FB_CM_FETCH_BYTES) >= (uint64_t)FILES * BYTES);
    /* What was read does not fill DRAM: the rest is what comes next. */
    fb_store_tier_stats(fb_cache_store(f->cache), 0, &dram);
    assert_true(dram.items <= FILES);
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 0);
    fb_plan_free(truth);
    fb_names_free(names);
}

static uint64_t segment_bytes(const struct fixture *f)
{
    struct fb_tier_stats dram;

    fb_store_tier_stats(fb_cache_store(f->cache), 0, &dram);
    return dram.budget_bytes / dram.slots;
}

/* Files that have a copy in DRAM, in segments that are sealed. */
static uint32_t copied_files(const struct fixture *f)
{
    static struct fb_segment_info infos[256];
    uint32_t count = fb_store_sealed(fb_cache_store(f->cache), 0, infos, 256), files = 0;

    for (uint32_t i = 0; i < count; i++)
        files += infos[i].lane == FB_STORE_COPY ? infos[i].live_items : 0;
    return files;
}

static void wait_copied(const struct fixture *f, uint32_t least, uint32_t most)
{
    int64_t until_ns = fb_now_ns() + WAIT_S * FB_NS_PER_S;
    uint32_t files;

    for (files = copied_files(f); files < least || files > most; files = copied_files(f)) {
        assert_true(fb_now_ns() < until_ns);
        fb_sleep_ns(FB_NS_PER_MS);
    }
}

/* A plan ends, and another job reads the set by another one: what the first has kept in DRAM is the
 * second's from its beginning, also what comes before the place where it begins to read. */
static void next_job(const struct fixture *f, const struct fb_names *names)
{
    struct fb_plan *truth = make_truth(names);
    uint32_t copied = copied_files(f);
    struct fb_error err = {""};

    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
    /* But for a segment that is just being sealed. */
    wait_copied(f, 0, (uint32_t)(segment_bytes(f) / BYTES));
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    wait_copied(f, copied * 3 / 4, FILES);
    read_slowly(f, truth, FILES / 2, FILES, 1);
    wait_copied(f, copied * 3 / 4, FILES);
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
    fb_plan_free(truth);
}

/* All of it has a place on the disk, and a part a copy in DRAM besides, which stays: epochs promote
 * the others only. */
static void copies_stay(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    int64_t until_ns = fb_now_ns() + 2 * WAIT_S * FB_NS_PER_S;
    struct fb_error err = {""};
    uint64_t promoted, copies;

    close_cache(f);
    f->config.block_bytes = 64u << 10;
    open_cache(f);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    /* The first epoch comes from the source. */
    read_slowly(f, truth, 0, FILES, 1);
    assert_int_equal(fb_plan_advance(truth), 0);
    do {
        assert_true(fb_now_ns() < until_ns);
        promoted = metric(f, FB_CM_PROMOTED);
        read_slowly(f, truth, 0, FILES, 1);
        assert_int_equal(fb_plan_advance(truth), 0);
        promoted = metric(f, FB_CM_PROMOTED) - promoted;
        copies = fb_store_lane_bytes(fb_cache_store(f->cache), 0, FB_STORE_COPY);
    } while (copies < (uint64_t)FILES * BYTES / 4 || promoted > FILES * 3 / 4);
    fb_plan_free(truth);
    next_job(f, names);
    fb_names_free(names);
}

/* Disk and memory together hold all of it, either alone half: it comes to lie there, and next to
 * nothing is fetched again. */
static void kept_where_there_is_room(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    int64_t until_ns = fb_now_ns() + 2 * WAIT_S * FB_NS_PER_S;
    struct fb_error err = {""};
    uint64_t fetched;

    close_cache(f);
    f->config.cache_bytes = 20u << 20;
    f->config.block_bytes = 64u << 10;
    open_cache(f);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    do {
        assert_true(fb_now_ns() < until_ns);
        fetched = metric(f, FB_CM_FETCH_BYTES);
        read_slowly(f, truth, 0, FILES, 1);
        assert_int_equal(fb_plan_advance(truth), 0);
        fetched = metric(f, FB_CM_FETCH_BYTES) - fetched;
    } while (fetched > (uint64_t)FILES * BYTES / 8);
    assert_true(fb_store_lane_bytes(fb_cache_store(f->cache), 0, FB_STORE_PLAN) >
                2 * segment_bytes(f));
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
    /* What it has kept there is not held any longer; one segment is still open. */
    until_ns = fb_now_ns() + WAIT_S * FB_NS_PER_S;
    while (fb_store_lane_bytes(fb_cache_store(f->cache), 0, FB_STORE_PLAN) > segment_bytes(f)) {
        assert_true(fb_now_ns() < until_ns);
        fb_sleep_ns(FB_NS_PER_MS);
    }
    fb_plan_free(truth);
    fb_names_free(names);
}

static void fill_with_others(const struct fixture *f)
{
    FB_AUTO_FREE uint8_t *data = fb_alloc_array(OTHER_BYTES, 1);
    struct fb_attr attr;
    uint32_t file;
    char name[64];

    assert_non_null(data);
    for (uint32_t i = 0; i < OTHERS; i++) {
        snprintf(name, sizeof name, "other%u", i * 37 % OTHERS);
        assert_int_equal(fb_cache_stat(f->volume, name, &file, &attr), 0);
        assert_int_equal(fb_cache_pread(f->volume, file, 0, OTHER_BYTES, data), OTHER_BYTES);
        fb_files_unref(fb_cache_files(f->cache), file, 1);
    }
}

static bool is_full_of_others(const struct fixture *f)
{
    struct fb_tier_stats tier;
    bool full = true;

    for (unsigned t = 0; t < 2; t++) {
        fb_store_tier_stats(fb_cache_store(f->cache), t, &tier);
        full = full && tier.segments >= tier.slots * (t == 0 ? 9 : 5) / 10;
    }
    return full;
}

/* What others have left goes for what a plan brings and keeps; none of the plan's own does, which
 * would have to be fetched twice. */
static void begins_in_a_full_cache(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    struct fb_error err = {""};
    uint64_t fetched, hits;

    close_cache(f);
    f->config.cache_bytes = 40u << 20;
    f->config.block_bytes = 64u << 10;
    open_cache(f);
    /* A slow disk does not take all that could go there. */
    for (int tries = 0; tries < 20 && !is_full_of_others(f); tries++)
        fill_with_others(f);
    assert_true(is_full_of_others(f));
    fetched = metric(f, FB_CM_FETCH_BYTES);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    wait_ready(f, 0, 0, 64);
    for (uint64_t e = 0; e < 2; e++) {
        hits = metric(f, FB_CM_HITS_DRAM);
        read_slowly(f, truth, 0, FILES, 16);
        wait_metric(f, FB_CM_PLAN_READS, (e + 1) * FILES - e * FB_FOLLOW_SURE);
        hits = metric(f, FB_CM_HITS_DRAM) - hits;
        assert_true(hits >= FILES / 2);
        assert_true(e > 0 ||
                    metric(f, FB_CM_FETCH_BYTES) - fetched <= (uint64_t)FILES * BYTES * 3 / 2);
        assert_int_equal(fb_plan_advance(truth), 0);
    }
    fb_plan_free(truth);
    fb_names_free(names);
}

/* Which buckets of the truth's next epoch the items of a segment belong to. */
struct order_on_disk {
    const struct fixture *f;
    const struct fb_plan *truth;
    const struct fb_names *names;
    uint16_t source;
    uint32_t buckets;
    uint32_t first, last, items;
};

static void look_at_item(void *arg, uint64_t key, uint32_t length, const struct fb_use *use)
{
    struct order_on_disk *o = arg;
    struct fb_version version;
    char path[FB_PATH_MAX];
    uint32_t number, bucket;
    uint64_t k;
    size_t len;

    (void)length;
    (void)use;
    if (!fb_files_peek(fb_cache_files(o->f->cache), (uint32_t)(key >> 32), o->source, path, &len,
                       &version))
        return;
    assert_true(fb_names_find(o->names, path + 4, len - 4, &number));
    assert_true(fb_plan_access(o->truth, fb_plan_next(o->truth), number, &k));
    bucket = (uint32_t)(k * o->buckets / FILES);
    o->first = o->items == 0 || bucket < o->first ? bucket : o->first;
    o->last = o->items == 0 || bucket > o->last ? bucket : o->last;
    o->items++;
}

/* Items on NVMe that lie together with those of their bucket only. */
static uint32_t items_in_order(struct order_on_disk *o)
{
    struct fb_store *store = fb_cache_store(o->f->cache);
    static struct fb_segment_info infos[4096];
    uint32_t count = fb_store_sealed(store, 1, infos, FB_ARRAY_SIZE(infos)), items = 0;

    for (uint32_t i = 0; i < count; i++) {
        o->items = 0;
        if (fb_store_visit(store, infos[i].no, UINT32_MAX, look_at_item, o) == 0 && o->items > 1 &&
            o->first == o->last)
            items += o->items;
    }
    return items;
}

/* How much is laid out in time depends on the machine; that it comes to be does not. */
static void laid_out_on_disk(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    struct order_on_disk o = {.f = f, .truth = truth, .names = names};
    int64_t until_ns = fb_now_ns() + 2 * WAIT_S * FB_NS_PER_S;
    struct fb_error err = {""};
    struct fb_plan_view view = {0};

    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    wait_ready(f, 0, 0, 64);
    for (;;) {
        read_some(f, truth, 0, FILES);
        fb_cache_plans(f->cache, note_view, &view);
        assert_non_null(view.dir);
        o.buckets = view.buckets;
        o.source = view.source;
        /* In any other order next to nothing lies so. */
        for (int i = 0; i < 100 && o.buckets > 1 && items_in_order(&o) < FILES / 3; i++)
            fb_sleep_ns(10 * FB_NS_PER_MS);
        if (o.buckets > 1 && items_in_order(&o) >= FILES / 3 && metric(f, FB_CM_LOG_LOADS) > 0)
            break;
        if (fb_now_ns() > until_ns)
            fail_msg("%u of %u items in order on disk, %u buckets", items_in_order(&o), FILES,
                     o.buckets);
        assert_int_equal(fb_plan_advance(truth), 0);
    }
    fb_plan_free(truth);
    fb_names_free(names);
}

static uint64_t written_by_log(const struct fixture *f)
{
    return metric(f, FB_CM_LOG_BYTES) + metric(f, FB_CM_LOG_MOVED);
}

/* Reads epochs until so many items were left. */
static void read_until_left(const struct fixture *f, struct fb_plan *truth, uint64_t left)
{
    int64_t until_ns = fb_now_ns() + 2 * WAIT_S * FB_NS_PER_S;

    do {
        assert_true(fb_now_ns() < until_ns);
        read_some(f, truth, 0, FILES);
        assert_int_equal(fb_plan_advance(truth), 0);
    } while (metric(f, FB_CM_LOG_LEFT) < left);
}

static void writes_are_limited(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    struct fb_error err = {""};
    uint64_t limit = (uint64_t)FILES * BYTES, written;

    close_cache(f);
    f->config.epoch_log_daily_bytes = limit;
    open_cache(f);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    wait_ready(f, 0, 0, 64);
    read_until_left(f, truth, FILES);
    written = written_by_log(f);
    assert_true(written > 0);
    assert_true(written <= limit);
    /* Nor more after a restart, but for what a few minutes give. */
    close_cache(f);
    open_cache(f);
    read_until_left(f, truth, FILES / 2);
    assert_true(written + written_by_log(f) <= limit + limit / 16);
    fb_plan_free(truth);
    fb_names_free(names);
}

static void goes_on_after_restart(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    struct fb_error err = {""};

    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    read_some(f, truth, 0, FILES);
    assert_int_equal(fb_plan_advance(truth), 0);
    read_some(f, truth, 0, 100);
    wait_metric(f, FB_CM_PLAN_READS, FILES + 100 - FB_FOLLOW_SURE);
    close_cache(f);
    open_cache(f);
    /* It knows the epoch; the place in it shows in the first accesses. */
    wait_ready(f, 1, 0, 32);
    read_some(f, truth, 100, 400);
    wait_metric(f, FB_CM_PLAN_READS, 300 - FB_FOLLOW_SURE);
    fb_plan_free(truth);
    fb_names_free(names);
}

static void damaged_files(void **state)
{
    struct fixture *f = *state;
    struct fb_error err = {""};
    struct fb_saved_plan saved;
    int dir_fd = open(f->cache_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
    char byte;

    assert_true(dir_fd >= 0);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    assert_int_equal(fb_plan_load(dir_fd, 0, UINT64_MAX, &saved), 0);
    assert_int_equal(fb_names_count(saved.names), FILES);
    assert_string_equal(saved.dir, "set");
    fb_saved_plan_clear(&saved);
    for (off_t at = 3; at < 4000; at += 397) {
        fd = openat(dir_fd, "plan.0", O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x20;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        assert_int_equal(fb_plan_load(dir_fd, 0, UINT64_MAX, &saved), -EBADMSG);
        byte ^= 0x20;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
    }
    assert_int_equal(fb_plan_load(dir_fd, 0, UINT64_MAX, &saved), 0);
    fb_saved_plan_clear(&saved);
    close(dir_fd);
}

static struct fb_names *many_names(void)
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

static void wait_for_plan(const struct fixture *f)
{
    int64_t until_ns = fb_now_ns() + WAIT_S * FB_NS_PER_S;
    struct fb_plan_view view = {0};

    while (!view.dir) {
        assert_true(fb_now_ns() < until_ns);
        fb_sleep_ns(FB_NS_PER_MS);
        fb_cache_plans(f->cache, note_view, &view);
    }
    assert_string_equal(view.dir, "set");
}

/* What a file says is held to what a user may say: one plan is too large, one is at an epoch that
 * nobody gets to. The third goes on. */
static void saved_plans_are_checked(void **state)
{
    struct fixture *f = *state;
    int dir_fd = open(f->cache_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct fb_names *many = many_names(), *few = make_names();
    struct fb_error err = {""};
    struct fb_saved_plan saved, plan;

    assert_true(dir_fd >= 0);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    close_cache(f);
    assert_int_equal(fb_plan_load(dir_fd, 0, 1000, &saved), -E2BIG);
    assert_int_equal(fb_plan_load(dir_fd, 0, 0, &saved), 0);
    plan = saved;
    plan.names = few;
    assert_int_equal(fb_plan_save(dir_fd, 2, &plan), 0);
    plan.dir = (char *)"all";
    plan.names = many;
    assert_int_equal(fb_plan_save(dir_fd, 0, &plan), 0);
    plan.dir = (char *)"far";
    plan.names = few;
    plan.order.spec.shuffle.sampler = fb_sampler_find("numpy");
    assert_int_equal(fb_plan_save(dir_fd, 1, &plan), 0);
    assert_int_equal(fb_plan_save_epoch(dir_fd, 1, UINT64_C(1) << 60), 0);
    open_cache(f);
    wait_for_plan(f); /* which is the last */
    assert_int_equal(fb_cache_unplan(f->volume, "all"), 0);
    assert_int_equal(fb_cache_unplan(f->volume, "far"), 0);
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
    /* With more memory the large one could go on; the other never. */
    assert_int_equal(faccessat(dir_fd, "plan.0", F_OK, 0), 0);
    assert_int_equal(faccessat(dir_fd, "plan.1", F_OK, 0), -1);
    fb_saved_plan_clear(&saved);
    fb_names_free(many);
    fb_names_free(few);
    close(dir_fd);
}

/* Somebody tells a plan while one from before the restart is being looked at, which takes as long
 * as a pipe has no writer: it stays, and so does its file. */
static void told_while_another_comes_back(void **state)
{
    struct fixture *f = *state;
    int dir_fd = open(f->cache_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), pipe_fd;
    int64_t until_ns = fb_now_ns() + WAIT_S * FB_NS_PER_S;
    struct fb_error err = {""};

    assert_true(dir_fd >= 0);
    close_cache(f);
    assert_int_equal(mkfifoat(dir_fd, "plan.0", 0600), 0);
    assert_int_equal(linkat(dir_fd, "plan.0", dir_fd, "pipe", 0), 0);
    open_cache(f);
    /* It can be opened without waiting once somebody reads. */
    while ((pipe_fd = openat(dir_fd, "pipe", O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0) {
        assert_true(fb_now_ns() < until_ns);
        fb_sleep_ns(FB_NS_PER_MS);
    }
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    close(pipe_fd); /* nothing was in it: a damaged plan */
    while (faccessat(dir_fd, "plan.0", F_OK, 0) == 0) {
        assert_true(fb_now_ns() < until_ns);
        fb_sleep_ns(FB_NS_PER_MS);
    }
    wait_for_plan(f);
    assert_int_equal(faccessat(dir_fd, "plan.1", F_OK, 0), 0);
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
    close(dir_fd);
}

/* ---- the search for seeds ---- */

struct waited {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool is_done;
};

static void read_done(struct fb_read *read)
{
    struct waited *w = read->arg;

    pthread_mutex_lock(&w->lock);
    w->is_done = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

/* As a program's. */
static void read_as(const struct fixture *f, uint32_t pid, const char *name)
{
    struct waited w = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    struct fb_attr attr;
    struct fb_read read = {
        .volume = f->volume, .caller = {.pid = pid}, .length = BYTES, .done = read_done, .arg = &w};

    assert_int_equal(fb_cache_stat(f->volume, name, &read.file, &attr), 0);
    fb_cache_read(&read);
    pthread_mutex_lock(&w.lock);
    while (!w.is_done)
        pthread_cond_wait(&w.cond, &w.lock);
    pthread_mutex_unlock(&w.lock);
    assert_int_equal(read.result, 0);
    fb_read_release(&read);
    fb_files_unref(fb_cache_files(f->cache), read.file, 1);
}

/* What the thread that searches has had of a processor, in ticks; and which thread it is. */
static uint64_t searched(pid_t *ret_tid)
{
    unsigned long user = 0, system = 0;
    struct dirent **tasks;
    int count = scandir("/proc/self/task", &tasks, NULL, NULL);

    assert_true(count > 0);
    *ret_tid = 0;
    for (int i = 0; i < count; i++) {
        char path[320], line[512] = "";
        FB_AUTO_CLOSE int fd = -1;

        snprintf(path, sizeof path, "/proc/self/task/%s/stat", tasks[i]->d_name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read(fd, line, sizeof line - 1) > 0 && strstr(line, "(fb-seeds)")) {
            const char *rest = strchr(line, ')');

            *ret_tid = (pid_t)strtol(tasks[i]->d_name, NULL, 10);
            for (int field = 0; field < 12; field++)
                rest = strchr(rest + 1, ' ');
            user = strtoul(rest, NULL, 10);
            system = strtoul(strchr(rest + 1, ' '), NULL, 10);
        }
        free(tasks[i]);
    }
    free(tasks);
    assert_int_not_equal(*ret_tid, 0);
    return user + system;
}

/* Somebody waits for files, in their order: for him the search may go on. */
static void keep_waiting(const struct fixture *f, uint32_t *next)
{
    char name[64];

    snprintf(name, sizeof name, "other%u", (*next)++ % OTHERS);
    read_as(f, 77, name);
}

/* A second of waiting; returns which share of a processor the search had meanwhile. */
static double share_searched(const struct fixture *f, uint32_t *next, pid_t *ret_tid)
{
    int64_t start_ns = fb_now_ns();
    uint64_t ticks = searched(ret_tid);

    while (fb_now_ns() - start_ns < FB_NS_PER_S) {
        keep_waiting(f, next);
        fb_sleep_ns(10 * FB_NS_PER_MS);
    }
    ticks = searched(ret_tid) - ticks;
    return (double)ticks / (double)sysconf(_SC_CLK_TCK) * (double)FB_NS_PER_S /
           (double)(fb_now_ns() - start_ns);
}

/* An order that no seed explains is searched for minutes, of idle time, of which it takes a
 * quarter; and not when somebody tells the plan. Where nothing is idle there is little to see. */
static void search_is_modest(void **state)
{
    struct fixture *f = *state;
    int64_t until_ns = fb_now_ns() + 4 * WAIT_S * FB_NS_PER_S;
    struct sched_param param = {0};
    struct fb_rand rand = {5};
    struct fb_error err = {""};
    uint32_t next = 0;
    double share;
    pid_t tid;

    if (geteuid() != 0)
        skip(); /* who may not come back from idle time does not take it */
    for (uint32_t i = 0; i < 80; i++) {
        char name[64];

        name_of((uint32_t)fb_rand_below(&rand, FILES), name);
        read_as(f, 76, name);
    }
    /* A short search goes before, which has all that is idle. */
    do {
        assert_true(fb_now_ns() < until_ns);
        share = share_searched(f, &next, &tid);
    } while (share > 0.3 || sched_getscheduler(tid) != SCHED_IDLE);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    /* That it ends is not to depend on idle time. */
    assert_int_equal(sched_setscheduler(tid, SCHED_OTHER, &param), 0);
    do {
        assert_true(fb_now_ns() < until_ns);
        share = share_searched(f, &next, &tid);
    } while (share > 0);
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
}

/* Plans have a share of the memory: what takes more is refused in a sentence, and nothing else
 * changes. */
static void too_large_a_plan(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = many_names();
    struct fb_error err = {""};

    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    assert_int_equal(fb_cache_plan(f->volume, "all", names, order(), &err), -ENOMEM);
    assert_non_null(strstr(err.text, "a plan of 50000 files takes"));
    assert_non_null(strstr(err.text, "--memory"));
    assert_int_equal(fb_cache_unplan(f->volume, "all"), 0);
    wait_ready(f, 0, 0, 64);
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(epochs_from_dram, setup, teardown),
        cmocka_unit_test_setup_teardown(copies_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(kept_where_there_is_room, setup, teardown),
        cmocka_unit_test_setup_teardown(begins_in_a_full_cache, setup, teardown),
        cmocka_unit_test_setup_teardown(goes_on_after_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(laid_out_on_disk, setup_log, teardown),
        cmocka_unit_test_setup_teardown(writes_are_limited, setup_log, teardown),
        cmocka_unit_test_setup_teardown(damaged_files, setup, teardown),
        cmocka_unit_test_setup_teardown(saved_plans_are_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(told_while_another_comes_back, setup, teardown),
        cmocka_unit_test_setup_teardown(search_is_modest, setup, teardown),
        cmocka_unit_test_setup_teardown(too_large_a_plan, setup, teardown),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
