/*
 * Reads from a medium in the caller's own thread, and reads that nobody has asked for yet: the
 * right bytes, also of a damaged item; counted when they are wanted, and only then.
 */
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/cache.h"
#include "core/clock.h"
#include "core/lock.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "source/source_posix.h"

#define FILES      40u
#define FILE_BYTES 102400u
#define MIB        (1u << 20)

static struct fb_test_dir dir;
static char source_path[PATH_MAX + 16], cache_path[PATH_MAX + 16];
static struct fb_cache *cache;
static struct fb_volume *volume;
static struct fb_meanwhile nothing_else;

static const char *name_of(unsigned i)
{
    static _Thread_local char name[16];

    snprintf(name, sizeof name, "f%u", i);
    return name;
}

static uint8_t byte_of(unsigned i, uint64_t at)
{
    return (uint8_t)(at * 31 + at / 4096 + i);
}

static void open_cache(void)
{
    struct fb_posix_config posix = {.root = source_path, .threads = 2};
    struct fb_volume_config config = {.metadata_ttl_ns = 3600 * FB_NS_PER_S,
                                      .timeout_ns = 120 * FB_NS_PER_S};
    struct fb_cache_config c;
    struct fb_error err = {""};
    struct fb_source *source;

    fb_cache_config_defaults(&c);
    c.memory_bytes = 96 * MIB;
    c.free_space_ratio = 0;
    c.cache_dir_count = 1;
    c.cache_dirs[0] = cache_path;
    c.cache_bytes = 64 * MIB;
    if (fb_cache_open(&c, &cache, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(fb_source_posix_open(&posix, &source, &err), 0);
    assert_int_equal(fb_volume_attach(cache, source, &config, &volume, &err), 0);
}

static void close_cache(void)
{
    fb_volume_detach(volume);
    fb_cache_close(cache);
}

static uint64_t metric(unsigned id)
{
    return fb_metric_get(fb_cache_metrics(cache), id);
}

static uint32_t look_up(unsigned i)
{
    uint32_t file;

    assert_int_equal(fb_cache_stat(volume, name_of(i), &file, NULL), 0);
    return file;
}

static void let_go(uint32_t file)
{
    fb_files_unref(fb_cache_files(cache), file, 1);
}

/* All files are on the medium, and nowhere else. */
static int setup(void **state)
{
    FB_AUTO_FREE uint8_t *data = fb_alloc(FILE_BYTES);

    (void)state;
    assert_non_null(data);
    fb_test_dir_make(&dir);
    snprintf(source_path, sizeof source_path, "%s/source", dir.path);
    snprintf(cache_path, sizeof cache_path, "%s/cache", dir.path);
    assert_int_equal(mkdir(source_path, 0755), 0);
    for (unsigned i = 0; i < FILES; i++) {
        char path[PATH_MAX + 64];
        FB_AUTO_CLOSE int fd = -1;

        snprintf(path, sizeof path, "%s/%s", source_path, name_of(i));
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_true(fd >= 0);
        for (uint32_t at = 0; at < FILE_BYTES; at++)
            data[at] = byte_of(i, at);
        assert_int_equal(write(fd, data, FILE_BYTES), FILE_BYTES);
    }
    fb_sleep_ns(FB_SETTLE_TIME_NS + 50 * FB_NS_PER_MS);
    open_cache();
    for (unsigned i = 0; i < FILES; i++) {
        uint32_t file = look_up(i);

        assert_int_equal(fb_cache_pread(volume, file, 0, FILE_BYTES, data), FILE_BYTES);
        let_go(file);
    }
    for (int i = 0; i < 1000 && metric(FB_CM_ADMITTED) < FILES; i++)
        fb_sleep_ns(10 * FB_NS_PER_MS);
    close_cache();
    open_cache();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close_cache();
    fb_test_dir_remove(&dir);
    return 0;
}

static void wake(struct fb_read *read)
{
    fb_event_set(read->arg);
}

/* The read is to be released. */
static void read_here(unsigned i, uint32_t file, bool early, uint64_t offset, uint32_t length,
                      struct fb_read *read)
{
    struct fb_event over;

    *read = (struct fb_read){.volume = volume,
                             .file = file,
                             .offset = offset,
                             .length = length,
                             .meanwhile = &nothing_else,
                             .early = early,
                             .done = wake,
                             .arg = &over};
    fb_event_init(&over);
    fb_cache_read(read);
    fb_event_wait(&over);
    assert_int_equal(read->result, 0);
    assert_int_equal(read->bytes, fb_min_u64(length, FILE_BYTES - offset));
    assert_int_equal(read->piece_count, 1);
    for (uint32_t at = 0; at < read->bytes; at++)
        assert_int_equal(read->pieces[0].data[at], byte_of(i, offset + at));
}

static void counted_when_wanted(void **state)
{
    uint32_t file = look_up(0);
    struct fb_read read;

    (void)state;
    assert_true(fb_cache_on_medium(volume, file));
    read_here(0, file, true, 0, FB_READ_MAX, &read);
    fb_read_release(&read);
    assert_int_equal(metric(FB_CM_EARLY), 1);
    assert_int_equal(metric(FB_CM_EARLY_USED), 0);
    assert_int_equal(metric(FB_CM_READS), 0);
    /* It has a copy in DRAM by now. */
    assert_false(fb_cache_on_medium(volume, file));
    let_go(file);
    file = look_up(1);
    read_here(1, file, true, 0, FB_READ_MAX, &read);
    fb_read_wanted(&read);
    fb_read_release(&read);
    assert_int_equal(metric(FB_CM_EARLY), 2);
    assert_int_equal(metric(FB_CM_EARLY_USED), 1);
    assert_int_equal(metric(FB_CM_READS), 1);
    assert_int_equal(metric(FB_CM_HITS_NVME), 1);
    assert_int_equal(metric(FB_CM_HIT_BYTES_NVME), FILE_BYTES);
    assert_int_equal(metric(FB_CM_MISSES), 0);
    let_go(file);
}

static void *read_some(void *arg)
{
    unsigned first = *(unsigned *)arg;
    struct fb_read read;

    for (unsigned i = first; i < FILES; i += 4) {
        uint32_t file = look_up(i);

        read_here(i, file, false, 5000, 20000, &read);
        fb_read_release(&read);
        let_go(file);
    }
    return NULL;
}

/* Several at once, each in its own thread. */
static void threads_wait_themselves(void **state)
{
    pthread_t threads[4];
    unsigned first[4];

    (void)state;
    for (unsigned t = 0; t < 4; t++) {
        first[t] = t;
        assert_int_equal(pthread_create(&threads[t], NULL, read_some, &first[t]), 0);
    }
    for (unsigned t = 0; t < 4; t++)
        pthread_join(threads[t], NULL);
    assert_int_equal(metric(FB_CM_MISSES), 0);
    assert_int_equal(metric(FB_CM_HITS_NVME), FILES);
}

/* Damage is found as ever; the bytes then come from the source. */
static void damage_is_found(void **state)
{
    char path[PATH_MAX + 64];
    FB_AUTO_FREE uint8_t *junk = fb_alloc(MIB);
    FB_AUTO_CLOSE int fd = -1;
    struct fb_read read;
    struct stat st = {0};

    (void)state;
    snprintf(path, sizeof path, "%s/segments", cache_path);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0 && junk);
    memset(junk, 0x5a, MIB);
    for (off_t at = 0; at < st.st_size; at += MIB)
        assert_int_equal(pwrite(fd, junk, MIB, at), MIB);
    assert_int_equal(fsync(fd), 0);
    for (unsigned i = 0; i < FILES; i++) {
        uint32_t file = look_up(i);

        read_here(i, file, i % 2 == 0, 0, FILE_BYTES, &read);
        fb_read_release(&read);
        let_go(file);
    }
    assert_int_equal(metric(FB_CM_HITS_NVME), 0);
    assert_int_equal(metric(FB_CM_FETCHES), FILES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(counted_when_wanted, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_wait_themselves, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_is_found, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
