/*
 * The cache over a real directory: what every read must give, how often the source is asked, and
 * what happens when it changes, fails or hangs. Contents of a test file follow from its name and
 * version, so that any wrong byte shows.
 */
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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

static void fill(uint8_t *data, uint64_t length, uint64_t seed)
{
    struct fb_rand r = {.state = seed};

    for (uint64_t i = 0; i < length; i += 8) {
        uint64_t word = fb_rand_u64(&r);

        memcpy(data + i, &word, fb_min_u64(8, length - i));
    }
}

/* Writes a file of `seed`'s content. */
static void put_file(const char *name, uint64_t length, uint64_t seed)
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

static void open_cache(struct fixture *f)
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

static void close_cache(struct fixture *f)
{
    fb_volume_detach(f->volume);
    fb_cache_close(f->cache);
    f->volume = NULL;
    f->cache = NULL;
}

static int setup(void **state)
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
    f->volume_config.timeout_ns = 20 * FB_NS_PER_S;
    *state = f;
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

/* A ctime cannot be set: a file settles by waiting. */
static void settle(void)
{
    fb_sleep_ns(FB_SETTLE_TIME_NS + 50 * FB_NS_PER_MS);
}

static uint64_t metric(struct fixture *f, unsigned id)
{
    return fb_metric_get(fb_cache_metrics(f->cache), id);
}

/* Items are kept after they were answered, by the thread that fetched them. */
static void wait_admitted(struct fixture *f, uint64_t count)
{
    for (int i = 0; i < 1000 && metric(f, FB_CM_ADMITTED) < count; i++)
        fb_sleep_ns(10 * FB_NS_PER_MS);
    assert_int_equal(metric(f, FB_CM_ADMITTED), count);
}

static uint32_t look_up(struct fixture *f, const char *name)
{
    uint32_t file;

    assert_int_equal(fb_cache_stat(f->volume, name, &file, NULL), 0);
    return file;
}

static void let_go(struct fixture *f, uint32_t file)
{
    fb_files_unref(fb_cache_files(f->cache), file, 1);
}

/* Reads a range and compares it with what the file must hold. */
static void expect_range(struct fixture *f, uint32_t file, uint64_t size, uint64_t seed,
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

static void expect_file(struct fixture *f, const char *name, uint64_t size, uint64_t seed)
{
    uint32_t file = look_up(f, name);

    expect_range(f, file, size, seed, 0, (uint32_t)size + 1);
    let_go(f, file);
}

#define MANY 600u

static const uint64_t sizes[] = {
    0, 1, 4095, 4096, 100 << 10, 256 << 10, (256 << 10) + 1, 3 * MIB + 17, 9 * MIB + 1};

static int make_source(void **state)
{
    char name[16];

    (void)state;
    fb_test_dir_make(&shared_dir);
    snprintf(source_path, sizeof source_path, "%s/source", shared_dir.path);
    assert_int_equal(mkdir(source_path, 0755), 0);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(sizes); i++) {
        snprintf(name, sizeof name, "f%u", i);
        put_file(name, sizes[i], i);
    }
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "m%u", i);
        put_file(name, (200 << 10) + i, i);
    }
    put_file("a", 10000, 1);
    put_file("b", 10000, 2);
    put_file("hundred", 100 << 10, 5);
    put_file("large", 40 * MIB, 3);
    put_file("changes", 600 << 10, 1);
    put_file("goes", 10000, 1);
    settle();
    return 0;
}

static int remove_source(void **state)
{
    (void)state;
    fb_test_dir_remove(&shared_dir);
    return 0;
}

static void bytes_are_the_sources(void **state)
{
    struct fixture *f = *state;
    struct fb_rand r = {.state = 1};

    open_cache(f);
    for (int round = 0; round < 3; round++) {
        for (unsigned i = 0; i < FB_ARRAY_SIZE(sizes); i++) {
            char name[16];
            uint32_t file;

            snprintf(name, sizeof name, "f%u", i);
            file = look_up(f, name);
            for (int k = 0; k < 8; k++)
                expect_range(f, file, sizes[i], i, fb_rand_below(&r, sizes[i] + 10),
                             (uint32_t)fb_rand_below(&r, 2 * MIB));
            expect_range(f, file, sizes[i], i, 0, (uint32_t)sizes[i] + 1);
            let_go(f, file);
        }
    }
    assert_true(metric(f, FB_CM_HITS_DRAM) > 100);
    assert_int_equal(metric(f, FB_CM_FETCH_ERRORS), 0);
}

static void a_small_read_fetches_one_block(void **state)
{
    struct fixture *f = *state;
    uint32_t file;

    open_cache(f);
    file = look_up(f, "large");
    expect_range(f, file, 40 * MIB, 3, 2 * MIB + 12345, 4096);
    assert_int_equal(metric(f, FB_CM_FETCH_BYTES), 256 << 10);
    assert_int_equal(metric(f, FB_CM_FETCHES), 1);
    expect_range(f, file, 40 * MIB, 3, 2 * MIB + 99, 4096);
    assert_int_equal(metric(f, FB_CM_FETCHES), 1);
    let_go(f, file);
}

static void neighbours_share_a_request(void **state)
{
    struct fixture *f = *state;
    uint32_t file;

    open_cache(f);
    file = look_up(f, "large");
    expect_range(f, file, 40 * MIB, 3, 0, MIB);
    assert_int_equal(metric(f, FB_CM_FETCHES), 1);
    assert_int_equal(metric(f, FB_CM_FETCH_BYTES), MIB);
    let_go(f, file);
}

struct reader {
    struct fixture *f;
    uint64_t size;
    uint64_t seed;
    uint64_t offset;
    uint32_t file;
    uint32_t length;
    int64_t result;
};

static void *read_one(void *arg)
{
    struct reader *r = arg;
    FB_AUTO_FREE uint8_t *want = fb_alloc(r->size + 8);
    FB_AUTO_FREE uint8_t *got = fb_alloc(r->length + 8);

    fill(want, r->size, r->seed);
    r->result = fb_cache_pread(r->f->volume, r->file, r->offset, r->length, got);
    if (r->result > 0 && memcmp(got, want + r->offset, (size_t)r->result) != 0)
        r->result = -EBADMSG;
    return NULL;
}

static void run_readers(struct reader *readers, unsigned count)
{
    pthread_t threads[256];

    assert_true(count <= FB_ARRAY_SIZE(threads));
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_one, &readers[i]), 0);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void one_fetch_however_many_wait(void **state)
{
    struct fixture *f = *state;
    struct reader readers[32];
    uint32_t file;

    open_cache(f);
    file = look_up(f, "hundred");
    fb_source_fault_set(f->fault, &(struct fb_fault_config){.latency_ns = 200 * FB_NS_PER_MS});
    for (unsigned i = 0; i < FB_ARRAY_SIZE(readers); i++)
        readers[i] = (struct reader){
            .f = f, .file = file, .size = 100 << 10, .seed = 5, .offset = i, .length = 1000};
    run_readers(readers, FB_ARRAY_SIZE(readers));
    for (unsigned i = 0; i < FB_ARRAY_SIZE(readers); i++)
        assert_int_equal(readers[i].result, 1000);
    assert_int_equal(metric(f, FB_CM_FETCHES), 1);
    assert_int_equal(metric(f, FB_CM_MISSES), metric(f, FB_CM_JOINED) + 1);
    let_go(f, file);
}

/* Far more bytes wanted at once than there are buffers: all are served, nobody waits in a circle.
 */
static void more_readers_than_buffers(void **state)
{
    struct fixture *f = *state;
    struct reader readers[128];
    uint32_t file;

    open_cache(f);
    file = look_up(f, "large");
    fb_source_fault_set(f->fault, &(struct fb_fault_config){.latency_ns = 2 * FB_NS_PER_MS});
    for (unsigned i = 0; i < FB_ARRAY_SIZE(readers); i++)
        readers[i] = (struct reader){.f = f,
                                     .file = file,
                                     .size = 40 * MIB,
                                     .seed = 3,
                                     .offset = i * 7919ULL * 37 % (39 * MIB),
                                     .length = MIB};
    run_readers(readers, FB_ARRAY_SIZE(readers));
    for (unsigned i = 0; i < FB_ARRAY_SIZE(readers); i++)
        assert_int_equal(readers[i].result, MIB);
    let_go(f, file);
}

static void a_changed_file_is_a_new_one(void **state)
{
    struct fixture *f = *state;
    uint8_t data[16];
    uint32_t old, new;

    f->volume_config.metadata_ttl_ns = 0;
    open_cache(f);
    old = look_up(f, "changes");
    expect_range(f, old, 600 << 10, 1, 0, 1000);
    put_file("changes", 600 << 10, 2);
    /* A block not cached yet: the old version cannot be had any more, and the new one is not
     * served. */
    assert_int_equal(fb_cache_pread(f->volume, old, 300 << 10, sizeof data, data), -ESTALE);
    new = look_up(f, "changes");
    assert_int_not_equal(new, old);
    expect_range(f, new, 600 << 10, 2, 0, 600 << 10);
    let_go(f, old);
    let_go(f, new);
    expect_file(f, "changes", 600 << 10, 2);
}

static void young_files_are_not_kept(void **state)
{
    struct fixture *f = *state;

    open_cache(f);
    put_file("young", 10000, 1);
    expect_file(f, "young", 10000, 1);
    expect_file(f, "young", 10000, 1);
    assert_int_equal(metric(f, FB_CM_HITS_DRAM), 0);
    assert_true(metric(f, FB_CM_UNSETTLED) > 0);
    assert_int_equal(metric(f, FB_CM_ADMITTED), 0);
    settle();
    expect_file(f, "young", 10000, 1);
    wait_admitted(f, 1);
    expect_file(f, "young", 10000, 1);
    assert_true(metric(f, FB_CM_HITS_DRAM) > 0);
}

static void failures_are_not_remembered(void **state)
{
    struct fixture *f = *state;
    uint8_t data[100];
    uint32_t file;

    open_cache(f);
    file = look_up(f, "a");
    fb_source_fault_set(f->fault, &(struct fb_fault_config){.error = 1, .error_code = EIO});
    assert_int_equal(fb_cache_pread(f->volume, file, 0, sizeof data, data), -EIO);
    fb_source_fault_set(f->fault, &(struct fb_fault_config){.short_read = 1});
    assert_int_equal(fb_cache_pread(f->volume, file, 0, sizeof data, data), -EIO);
    fb_source_fault_set(f->fault, &(struct fb_fault_config){0});
    expect_range(f, file, 10000, 1, 0, 10000);
    let_go(f, file);
}

/* What was read is kept only after the reader has it. */
static void wait_until_kept(struct fixture *f)
{
    for (int i = 0; i < 10000 && metric(f, FB_CM_ADMITTED) == 0; i++)
        fb_sleep_ns(FB_NS_PER_MS);
    assert_true(metric(f, FB_CM_ADMITTED) > 0);
}

static void an_outage_is_not_a_deletion(void **state)
{
    struct fixture *f = *state;
    struct fb_attr attr;
    uint32_t file;

    f->volume_config.metadata_ttl_ns = 0;
    open_cache(f);
    expect_file(f, "a", 10000, 1);
    wait_until_kept(f);
    fb_source_fault_set(f->fault, &(struct fb_fault_config){.error = 1, .error_code = EIO});
    expect_file(f, "a", 10000, 1); /* known and cached: served */
    assert_int_equal(fb_cache_stat(f->volume, "nothing", &file, &attr),
                     -EIO); /* unknown: an error */
    assert_true(metric(f, FB_CM_OUTAGE_ANSWERS) > 0);
    fb_source_fault_set(f->fault, &(struct fb_fault_config){0});
    assert_int_equal(fb_cache_stat(f->volume, "nothing", &file, &attr), -ENOENT);
}

static void a_hung_source_ends_at_the_deadline(void **state)
{
    struct fixture *f = *state;
    struct reader readers[64];
    uint32_t a, b;

    f->volume_config.timeout_ns = FB_NS_PER_S;
    open_cache(f);
    expect_file(f, "a", 10000, 1);
    wait_until_kept(f);
    a = look_up(f, "a");
    b = look_up(f, "large");
    fb_source_fault_set(f->fault, &(struct fb_fault_config){.hang = 1});
    for (unsigned i = 0; i < FB_ARRAY_SIZE(readers); i++)
        readers[i] = (struct reader){.f = f,
                                     .file = b,
                                     .size = 40 * MIB,
                                     .seed = 3,
                                     .offset = (uint64_t)i * MIB / 2,
                                     .length = MIB};
    run_readers(readers, FB_ARRAY_SIZE(readers));
    for (unsigned i = 0; i < FB_ARRAY_SIZE(readers); i++)
        assert_true(readers[i].result == -ETIMEDOUT || readers[i].result == -EIO);
    expect_range(f, a, 10000, 1, 0, 10000);
    fb_source_fault_set(f->fault, &(struct fb_fault_config){0});
    for (int i = 0; i < 100; i++) { /* until a probe has been answered */
        run_readers(readers, 1);
        if (readers[0].result == MIB)
            break;
        fb_sleep_ns(100 * FB_NS_PER_MS);
    }
    assert_int_equal(readers[0].result, MIB);
    let_go(f, a);
    let_go(f, b);
}

/* A source that hangs must not use up what the others need. */
static void a_hung_source_leaves_others_alone(void **state)
{
    struct fixture *f = *state;
    struct fb_posix_config posix = {.root = source_path, .threads = 8};
    struct fb_volume_config patient = f->volume_config;
    struct reader readers[64];
    struct fb_volume *healthy;
    struct fb_source *source;
    uint8_t data[1000];
    uint32_t large, file;

    f->volume_config.timeout_ns = FB_NS_PER_S;
    open_cache(f);
    assert_int_equal(fb_source_posix_open(&posix, &source, NULL), 0);
    assert_int_equal(fb_volume_attach(f->cache, source, &patient, &healthy, NULL), 0);
    large = look_up(f, "large");
    fb_source_fault_set(f->fault, &(struct fb_fault_config){.hang = 1});
    for (unsigned i = 0; i < FB_ARRAY_SIZE(readers); i++)
        readers[i] = (struct reader){.f = f,
                                     .file = large,
                                     .size = 40 * MIB,
                                     .seed = 3,
                                     .offset = (uint64_t)i * MIB / 2,
                                     .length = MIB};
    run_readers(readers, FB_ARRAY_SIZE(readers));
    assert_int_equal(fb_cache_stat(healthy, "b", &file, NULL), 0);
    assert_int_equal(fb_cache_pread(healthy, file, 0, sizeof data, data), sizeof data);
    let_go(f, file);
    let_go(f, large);
    fb_volume_detach(healthy);
}

/* Several mounts of one source share its records: the shortest TTL counts, and all are told. */
static void count_retired(void *arg, uint32_t file)
{
    (void)file;
    ++*(_Atomic unsigned *)arg;
}

static void two_volumes_of_one_source(void **state)
{
    struct fixture *f = *state;
    struct fb_posix_config posix = {.root = source_path, .threads = 4};
    _Atomic unsigned told = 0, told_strict = 0;
    struct fb_volume_config strict = {
        .timeout_ns = 20 * FB_NS_PER_S, .retired = count_retired, .arg = &told_strict};
    struct fb_volume *other;
    struct fb_source *source;
    struct fb_attr attr;
    uint32_t old, new;

    put_file("two", 10000, 1);
    settle();
    f->volume_config.retired = count_retired;
    f->volume_config.arg = &told;
    open_cache(f); /* believes for an hour */
    expect_file(f, "two", 10000, 1);
    assert_int_equal(fb_source_posix_open(&posix, &source, NULL), 0);
    assert_int_equal(fb_volume_attach(f->cache, source, &strict, &other, NULL), 0);
    old = look_up(f, "two");
    put_file("two", 10000, 2);
    assert_int_equal(fb_cache_stat(other, "two", &new, &attr), 0);
    assert_int_not_equal(new, old);
    assert_int_equal(atomic_load(&told), 1);
    assert_int_equal(atomic_load(&told_strict), 1);
    let_go(f, old);
    let_go(f, new);
    fb_volume_detach(other);
    expect_file(f, "two", 10000, 2);
}

/* Without a cache nothing is kept, and no more is fetched than is asked for. */
static void bypass_fetches_what_is_asked(void **state)
{
    struct fixture *f = *state;
    uint32_t file;

    f->volume_config.bypass = true;
    open_cache(f);
    file = look_up(f, "large");
    for (int i = 0; i < 4; i++)
        expect_range(f, file, 40 * MIB, 3, 3 * MIB + 5, 1000);
    assert_int_equal(metric(f, FB_CM_FETCHES), 4);
    assert_int_equal(metric(f, FB_CM_FETCH_BYTES), 4 * 4096);
    assert_int_equal(metric(f, FB_CM_ADMITTED), 0);
    expect_range(f, file, 40 * MIB, 3, 255 << 10, 600 << 10);
    let_go(f, file);
}

/* Blocks have 32-bit numbers: beyond them an error, never other bytes. */
static void files_too_large(void **state)
{
    struct fixture *f = *state;
    struct fb_attr attr = {.mode = S_IFREG | 0644, .version.size = 1ULL << 62};
    uint8_t data[10];
    uint32_t file;

    open_cache(f);
    assert_int_equal(
        fb_cache_learn(f->volume, "a/sparse", &attr, fb_cache_moment(f->volume, "a/sparse"), &file),
        0);
    assert_int_equal(fb_cache_pread(f->volume, file, (256ULL << 10) << 32, sizeof data, data),
                     -EFBIG);
    assert_int_equal(fb_cache_copy(f->volume, &(struct fb_caller){0}, file, (256ULL << 10) << 32,
                                   sizeof data, data),
                     -EFBIG);
    let_go(f, file);
}

static void answered(struct fb_read *read)
{
    fb_event_set(read->arg);
}

static void looked_up(struct fb_lookup *lookup)
{
    fb_event_set(lookup->arg);
}

/* Whoever is interrupted is let go long before the deadline; the fetch itself goes on. */
static void cancelled_requests_end(void **state)
{
    struct fixture *f = *state;
    _Atomic bool cancel = false;
    struct fb_event read_over, lookup_over;
    /* A thread that does not exist has been killed. */
    struct fb_caller killed = {.pid = UINT32_MAX};
    struct fb_read read = {
        .length = 1000, .caller = killed, .done = answered, .arg = &read_over, .cancel = &cancel};
    struct fb_lookup lookup = {
        .path = "b", .caller = killed, .done = looked_up, .arg = &lookup_over, .cancel = &cancel};

    f->volume_config.timeout_ns = 3600 * FB_NS_PER_S;
    open_cache(f);
    read.file = look_up(f, "a");
    read.volume = lookup.volume = f->volume;
    fb_event_init(&read_over);
    fb_event_init(&lookup_over);
    fb_source_fault_set(f->fault, &(struct fb_fault_config){.hang = 1});
    fb_cache_read(&read);
    fb_cache_lookup(&lookup);
    atomic_store(&cancel, true);
    fb_event_wait(&read_over);
    fb_event_wait(&lookup_over);
    assert_int_equal(read.result, -EINTR);
    assert_int_equal(lookup.result, -EINTR);
    fb_source_fault_set(f->fault, &(struct fb_fault_config){0});
    expect_range(f, read.file, 10000, 1, 0, 10000);
    assert_int_equal(metric(f, FB_CM_FETCHES), 1);
    let_go(f, read.file);
}

/* Closing while the source hangs must end, and leave nothing behind but what the source holds. */
static void closing_with_a_hung_source(void **state)
{
    struct fixture *f = *state;
    uint8_t data[10];
    uint32_t file;

    f->volume_config.timeout_ns = FB_NS_PER_S / 2;
    open_cache(f);
    file = look_up(f, "a");
    fb_source_fault_set(f->fault, &(struct fb_fault_config){.hang = 1});
    assert_int_equal(fb_cache_pread(f->volume, file, 0, sizeof data, data), -ETIMEDOUT);
    let_go(f, file);
    close_cache(f);
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
    assert_true(fb_cache_evict(f->volume, "") >= 2);
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
    assert_int_equal(fb_files_valid_until(files, file), 0);
    let_go(f, file);
    fb_cache_forget(f->volume, "a");
    assert_int_equal(fb_cache_learn(f->volume, "a", &attr, one, &file), 0);
    assert_int_equal(fb_files_valid_until(files, file), 0);
    let_go(f, file);
    one = fb_cache_moment(f->volume, "a");
    fb_cache_changed_below(f->volume, "elsewhere");
    assert_int_equal(fb_cache_learn(f->volume, "a", &attr, one, &file), 0);
    assert_int_equal(fb_files_valid_until(files, file), 0);
    let_go(f, file);
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
    assert_int_equal(metric(f, FB_CM_ADMIT_DROPPED), 0);
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

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(bytes_are_the_sources),
        CASE(a_small_read_fetches_one_block),
        CASE(neighbours_share_a_request),
        CASE(one_fetch_however_many_wait),
        CASE(more_readers_than_buffers),
        CASE(a_changed_file_is_a_new_one),
        CASE(young_files_are_not_kept),
        CASE(failures_are_not_remembered),
        CASE(an_outage_is_not_a_deletion),
        CASE(a_hung_source_ends_at_the_deadline),
        CASE(a_hung_source_leaves_others_alone),
        CASE(two_volumes_of_one_source),
        CASE(bypass_fetches_what_is_asked),
        CASE(files_too_large),
        CASE(cancelled_requests_end),
        CASE(closing_with_a_hung_source),
        CASE(deleted_files_go),
        CASE(changed_through_a_door),
        CASE(learned_after_a_change),
        CASE(evicted_by_hand),
        CASE(evicted_during_a_fetch),
        CASE(evicted_over_a_restart),
        CASE(overflow_dram),
        CASE(overflow_into_nvme),
        CASE(overflow_all_tiers),
    };

    return cmocka_run_group_tests(tests, make_source, remove_source);
}
