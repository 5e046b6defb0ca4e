/*
 * Learned eviction in a cache of two tiers: it trains, ranks and merges; what it has learned
 * survives a restart and a kill, and damage to it does no harm; what another rule keeps stays, for
 * as long as it does.
 */
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rand.h"
#include "cache/cache.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "source/source_posix.h"

#define FILES      5000u
#define HELD       100u /* more of them, in a directory with a rule of its own */
#define FILE_BYTES 16384u
#define MIB        (1u << 20)
#define REQUESTS   14000u
#define BATCH      100u /* requests between two ticks */
#define FLIPS      12u
#define SKEWED     1000u /* reads of what is held, */
#define HOT        10u   /* half of them of these */

static struct fb_test_dir dir;
static char source_path[PATH_MAX + 16], cache_path[PATH_MAX + 16], model_path[PATH_MAX + 32];
static struct fb_cache *cache;
static struct fb_volume *volume;

static void make_file(const char *name)
{
    char path[2 * PATH_MAX];
    FB_AUTO_CLOSE int fd = -1;

    snprintf(path, sizeof path, "%s/%s", source_path, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, FILE_BYTES), 0);
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
    assert_string_equal(c.evict, "learned");
    c.memory_bytes = 64 * MIB;
    c.block_bytes = 64u << 10;
    c.free_space_ratio = 0;
    c.cache_dir_count = 1;
    c.cache_dirs[0] = cache_path;
    c.cache_bytes = 16 * MIB;
    c.no_watch = true;
    c.stream_ttl_ns = 3600 * FB_NS_PER_S; /* none ends meanwhile */
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

static void read_file(const char *name)
{
    uint8_t byte;
    uint32_t file;

    assert_int_equal(fb_cache_stat(volume, name, &file, NULL), 0);
    assert_int_equal(fb_cache_pread(volume, file, 0, 1, &byte), 1);
    fb_files_unref(fb_cache_files(cache), file, 1);
}

static void read_number(unsigned i)
{
    char name[16];

    snprintf(name, sizeof name, "%u", i);
    read_file(name);
}

static void read_held(unsigned i)
{
    char name[16];

    snprintf(name, sizeof name, "held/%u", i);
    read_file(name);
}

static struct fb_model_view view(void)
{
    struct fb_model_view v;

    assert_true(fb_cache_model(cache, &v));
    return v;
}

/* Some files much more often than others, and a scan of the other half. */
static void use_cache(unsigned requests)
{
    struct fb_rand lot = {7};

    for (unsigned i = 0; i < requests; i++) {
        double u = fb_rand_unit(&lot);

        if (i % 4 == 0)
            read_number(FILES / 2 + i / 4 % (FILES / 2));
        else
            read_number((unsigned)(0.5 * FILES * u * u * u * u));
        if (i % BATCH == 0)
            fb_cache_tick(cache);
    }
}

static int setup(void **state)
{
    char name[16];

    (void)state;
    fb_test_dir_make(&dir);
    snprintf(source_path, sizeof source_path, "%s/source", dir.path);
    snprintf(cache_path, sizeof cache_path, "%s/cache", dir.path);
    snprintf(model_path, sizeof model_path, "%s/model", cache_path);
    assert_int_equal(mkdir(source_path, 0755), 0);
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%u", i);
        make_file(name);
    }
    snprintf(model_path, sizeof model_path, "%s/held", source_path);
    assert_int_equal(mkdir(model_path, 0755), 0);
    for (unsigned i = 0; i < HELD; i++) {
        snprintf(name, sizeof name, "held/%u", i);
        make_file(name);
    }
    snprintf(model_path, sizeof model_path, "%s/model", cache_path);
    fb_sleep_ns(FB_SETTLE_TIME_NS + 50 * FB_NS_PER_MS);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fb_test_dir_remove(&dir);
    return 0;
}

/* ---- learning ---- */

static uint64_t hits(void)
{
    return metric(FB_CM_HITS_DRAM) + metric(FB_CM_HITS_NVME);
}

static void test_learns(void **state)
{
    struct fb_model_view v;
    uint64_t before;
    double sum = 0;

    (void)state;
    open_cache();
    assert_int_equal(view().trainings, 0);
    assert_int_equal(fb_cache_set_policy(volume, "held", "uniform"), 0);
    /* The second time they are there; the brain has seen that it is theirs to stay. */
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < HELD; i++)
            read_held(i);
        fb_cache_tick(cache);
    }
    use_cache(REQUESTS);
    v = view();
    assert_true(v.trainings > 2);
    assert_int_equal(metric(FB_CM_TRAININGS), v.trainings);
    assert_true(metric(FB_CM_RANKINGS) > 10);
    assert_true(metric(FB_CM_KEPT) > 500);
    assert_true(metric(FB_CM_DEMOTED) > 500);
    /* Reads of what is held do not count as requests, nor do others while the brain is not sure. */
    assert_true(v.requests > REQUESTS / 2 && v.requests <= REQUESTS);
    assert_true(v.trained_at > 0 && v.trained_at <= v.requests);
    for (unsigned i = 0; i < FB_REUSE_FEATURES; i++)
        sum += v.importance[i];
    assert_float_equal(sum, 1, 1e-6);
    assert_true(v.quality.observations > 100 && v.quality.loss < v.quality.loss_by_age);
    /* All the time something had to go, and none of these has. */
    before = hits();
    for (unsigned i = 0; i < HELD; i++)
        read_held(i);
    assert_int_equal(hits() - before, HELD);
    close_cache();
}

/* ---- what is held, and by whom ---- */

/* In random order, each once. */
static void read_shuffled(uint64_t seed)
{
    struct fb_rand lot = {seed};
    unsigned order[HELD] = {0};

    for (unsigned i = 0; i < HELD; i++) {
        unsigned j = (unsigned)fb_rand_below(&lot, i + 1);

        order[i] = order[j];
        order[j] = i;
    }
    for (unsigned i = 0; i < HELD; i++)
        read_held(order[i]);
    fb_cache_tick(cache);
}

static void look_at_held(void *arg, const struct fb_stream_view *v)
{
    if (strcmp(v->path, "held") == 0)
        *(uint8_t *)arg = v->info.verdict.pattern;
}

static void expect_held(enum fb_pattern expected)
{
    uint8_t pattern = FB_PATTERN_UNKNOWN;

    fb_cache_streams(cache, look_at_held, &pattern);
    assert_int_equal(pattern, expected);
}

/* A stream that was taken for random, and is not, has its items go like any others. */
static void test_lets_go(void **state)
{
    uint64_t before;

    (void)state;
    snprintf(cache_path, sizeof cache_path, "%s/other", dir.path);
    open_cache();
    for (unsigned round = 0; round < 4; round++)
        read_shuffled(round + 1);
    expect_held(FB_PATTERN_RANDOM);
    use_cache(REQUESTS / 2);
    before = hits();
    read_shuffled(5);
    assert_true(hits() - before > HELD / 4 * 3); /* all, unless so slow that shares shrink */
    expect_held(FB_PATTERN_RANDOM);
    for (unsigned i = 0; i < SKEWED; i++)
        read_held(i % 2 ? i / 2 % HOT : i / 4 % (HELD / 2));
    fb_cache_tick(cache);
    expect_held(FB_PATTERN_SKEWED);
    use_cache(REQUESTS);
    before = hits();
    for (unsigned i = HELD / 2; i < HELD; i++)
        read_held(i);
    assert_true(hits() - before < HELD / 4);
    close_cache();
}

/* ---- over a restart ---- */

static void test_restart(void **state)
{
    unsigned trainings;

    (void)state;
    open_cache();
    trainings = view().trainings;
    assert_true(trainings > 2);
    use_cache(REQUESTS / 2);
    assert_true(view().trainings > trainings);
    close_cache();
}

/* What was written down before it was killed is there afterwards. */
static void test_killed(void **state)
{
    unsigned trainings;
    int status;
    pid_t pid;

    (void)state;
    assert_int_equal(unlink(model_path), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        open_cache();
        if (view().trainings == 0)
            use_cache(REQUESTS);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    open_cache();
    trainings = view().trainings;
    assert_true(trainings > 0);
    close_cache();
}

static void flip(off_t at, uint8_t bit)
{
    FB_AUTO_CLOSE int fd = open(model_path, O_RDWR | O_CLOEXEC);
    uint8_t byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= (uint8_t)(1 << bit);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static void test_damaged(void **state)
{
    struct fb_rand lot = {3};
    struct stat st;

    (void)state;
    assert_int_equal(stat(model_path, &st), 0);
    for (unsigned i = 0; i < FLIPS; i++) {
        off_t at = (off_t)fb_rand_below(&lot, i % 2 ? 160 : (uint64_t)st.st_size);
        uint8_t bit = (uint8_t)fb_rand_below(&lot, 8);

        flip(at, bit);
        open_cache();
        assert_int_equal(view().trainings, 0);
        close_cache();
        flip(at, bit);
    }
    open_cache();
    assert_true(view().trainings > 0);
    close_cache();
    assert_int_equal(truncate(model_path, st.st_size / 2), 0);
    open_cache();
    assert_int_equal(view().trainings, 0);
    use_cache(BATCH);
    close_cache();
}

static void read_to_end(unsigned i)
{
    static uint8_t bytes[FILE_BYTES];
    char name[16];
    uint32_t file;

    snprintf(name, sizeof name, "held/%u", i);
    assert_int_equal(fb_cache_stat(volume, name, &file, NULL), 0);
    assert_int_equal(fb_cache_pread(volume, file, 0, sizeof bytes, bytes), sizeof bytes);
    fb_files_unref(fb_cache_files(cache), file, 1);
}

/* How many of the files in "held" are there right after they were read. */
static unsigned hit_again(const char *policy)
{
    uint64_t hit = 0;

    assert_int_equal(fb_cache_set_policy(volume, "held", policy), 0);
    for (unsigned i = 0; i < HELD; i++) {
        uint64_t before;

        read_to_end(i);
        fb_cache_tick(cache);
        before = hits();
        read_held(i);
        hit += hits() - before;
    }
    return (unsigned)hit;
}

/* By a user's order, what was read to its end goes, or stays. */
static void test_eager(void **state)
{
    unsigned kept;

    (void)state;
    open_cache();
    use_cache(REQUESTS / 2);
    kept = hit_again("lru");
    assert_true(kept > HELD / 10);
    /* One that is kept a moment after it was looked at stays. */
    assert_true(hit_again("eager") < kept / 2);
    close_cache();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),  cmocka_unit_test(test_restart),
        cmocka_unit_test(test_killed),  cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_lets_go), cmocka_unit_test(test_eager),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
