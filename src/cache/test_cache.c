/*
 * The cache over a real directory: what every read must give, how often the source is asked, and
 * what happens when it fails or hangs.
 */
#include <pthread.h>

#include "cache/test_rig.h"

static const uint64_t sizes[] = {
    0, 1, 4095, 4096, 100 << 10, 256 << 10, (256 << 10) + 1, 3 * MIB + 17, 9 * MIB + 1};

static int make_source(void **state)
{
    char name[16];

    (void)state;
    make_source_dir();
    for (unsigned i = 0; i < FB_ARRAY_SIZE(sizes); i++) {
        snprintf(name, sizeof name, "f%u", i);
        put_file(name, sizes[i], i);
    }
    put_file("a", 10000, 1);
    put_file("b", 10000, 2);
    put_file("hundred", 100 << 10, 5);
    put_file("large", 40 * MIB, 3);
    put_file("changes", 600 << 10, 1);
    settle();
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

/* Here and there in a file, near the last read now and then: what is asked for, and no more. */
static void small_reads_fetch_their_blocks(void **state)
{
    struct fixture *f = *state;
    bool seen[160] = {false};
    uint64_t random = 1, blocks = 0;
    uint8_t data[4096];
    uint32_t file;

    open_cache(f);
    file = look_up(f, "large");
    for (unsigned i = 0; i < 200; i++) {
        uint64_t at;

        random = fb_mix64(random);
        at = random % (i % 2 ? 40 * MIB / 4096 : 6 * MIB / 4096) * 4096;
        blocks += !seen[at >> 18];
        seen[at >> 18] = true;
        assert_int_equal(fb_cache_pread(f->volume, file, at, sizeof data, data), sizeof data);
    }
    assert_int_equal(metric(f, FB_CM_FETCH_BYTES), blocks << 18);
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

/* Blocks larger than one read. */
static void large_blocks(void **state)
{
    struct fixture *f = *state;
    struct fb_warm warm = {.until_ns = INT64_MAX};
    uint32_t file;

    f->config.block_bytes = 2 * MIB;
    f->config.memory_bytes = 400 * MIB;
    open_cache(f);
    assert_int_equal(fb_cache_warm(f->volume, "large", false, &warm), 0);
    assert_int_equal(warm.bytes, 40 * MIB);
    assert_true(warm.fetched_bytes >= 2 * MIB); /* the rest may have come ahead of it */
    file = look_up(f, "large");
    for (uint64_t at = 0; at < 40 * MIB; at += 13 * MIB)
        expect_range(f, file, 40 * MIB, 3, at, MIB);
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

/* Far more bytes wanted at once than there are buffers: all are served, nobody waits in a circle,
 * and what has come while somebody waited is not fetched again. */
static void more_readers_than_buffers(void **state)
{
    struct fixture *f = *state;
    struct reader readers[128];
    uint32_t file;

    f->config.memory_bytes = 256 * MIB;
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
    assert_true(metric(f, FB_CM_FETCH_BYTES) <= 40 * MIB);
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

/* Somebody has changed it, as the daemon was told: only the source can say what it is now. */
static void an_outage_makes_nothing_true_again(void **state)
{
    struct fixture *f = *state;
    struct fb_attr attr;
    uint32_t file;

    open_cache(f);
    expect_file(f, "a", 10000, 1);
    wait_until_kept(f);
    fb_cache_forget(f->volume, "a");
    fb_source_fault_set(f->fault, &(struct fb_fault_config){.error = 1, .error_code = EIO});
    assert_int_equal(fb_cache_stat(f->volume, "a", &file, &attr), -EIO);
    assert_int_equal(metric(f, FB_CM_OUTAGE_ANSWERS), 0);
    fb_source_fault_set(f->fault, &(struct fb_fault_config){0});
    expect_file(f, "a", 10000, 1);
    assert_int_equal(metric(f, FB_CM_FETCHES), 1); /* it was not changed after all */
}

static void a_hung_source_ends_at_the_deadline(void **state)
{
    struct fixture *f = *state;
    struct reader readers[64];
    uint32_t a, b;

    f->volume_config.timeout_ns = 3 * FB_NS_PER_S;
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

    f->volume_config.timeout_ns = 3 * FB_NS_PER_S;
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
        .timeout_ns = 120 * FB_NS_PER_S, .retired = count_retired, .arg = &told_strict};
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

    f->volume_config.timeout_ns = 2 * FB_NS_PER_S;
    open_cache(f);
    file = look_up(f, "a");
    fb_source_fault_set(f->fault, &(struct fb_fault_config){.hang = 1});
    assert_int_equal(fb_cache_pread(f->volume, file, 0, sizeof data, data), -ETIMEDOUT);
    let_go(f, file);
    close_cache(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(bytes_are_the_sources),
        CASE(a_small_read_fetches_one_block),
        CASE(small_reads_fetch_their_blocks),
        CASE(neighbours_share_a_request),
        CASE(large_blocks),
        CASE(one_fetch_however_many_wait),
        CASE(more_readers_than_buffers),
        CASE(a_changed_file_is_a_new_one),
        CASE(young_files_are_not_kept),
        CASE(failures_are_not_remembered),
        CASE(an_outage_is_not_a_deletion),
        CASE(an_outage_makes_nothing_true_again),
        CASE(a_hung_source_ends_at_the_deadline),
        CASE(a_hung_source_leaves_others_alone),
        CASE(two_volumes_of_one_source),
        CASE(bypass_fetches_what_is_asked),
        CASE(files_too_large),
        CASE(cancelled_requests_end),
        CASE(closing_with_a_hung_source),
    };

    return cmocka_run_group_tests(tests, make_source, remove_source);
}
