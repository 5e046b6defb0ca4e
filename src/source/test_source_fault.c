/* The wrapper's own promises: settings, delays, errors, short reads and hangs as told. */
#include "source/source_fault.h"
#include "source/source_posix.h"
#include "source/test_jobs.h"

#define BUFFERS 8

struct fixture {
    struct fb_test_dir dir;
    struct fb_buffer_pool *pool;
    struct fb_source *source;
};

static struct fb_source *open_source(struct fixture *f, const struct fb_fault_config *config)
{
    struct fb_posix_config posix = {.root = f->dir.path, .threads = 4};
    struct fb_source *inner, *source;

    assert_int_equal(fb_source_posix_open(&posix, &inner, NULL), 0);
    assert_int_equal(fb_source_fault_open(inner, config, &source), 0);
    return source;
}

static int set_up(void **state)
{
    struct fixture *f = fb_alloc(sizeof *f);

    assert_non_null(f);
    fb_test_dir_make(&f->dir);
    fb_test_dir_write(&f->dir, "file", "0123456789");
    assert_int_equal(fb_buffer_pool_create(BUFFERS, 4096, &f->pool), 0);
    f->source = open_source(f, &(struct fb_fault_config){0});
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    fb_source_close(f->source);
    assert_int_equal(fb_buffer_pool_free(f->pool), BUFFERS);
    fb_buffer_pool_destroy(f->pool);
    fb_test_dir_remove(&f->dir);
    free(f);
    return 0;
}

static void set(struct fixture *f, const char *text)
{
    struct fb_fault_config config;

    assert_int_equal(fb_fault_parse(text, &config, NULL), 0);
    fb_source_fault_set(f->source, &config);
}

static void test_parse(void **state)
{
    static const char *const wrong[] = {"latency",    "latency=",  "latency=5x", "speed=1",
                                        "error=2",    "errno=x",   "errno=5000", "seed=-1",
                                        "error=1%,,", "=5",        "hang=-1",    ",",
                                        "seed=1x",    "errno=1,a", "bandwidth=x"};
    struct fb_fault_config config;
    struct fb_error err;

    (void)state;
    assert_int_equal(fb_fault_parse("latency=5ms,jitter=1ms,bandwidth=200M,error=1%,errno=5,"
                                    "short=1%,hang=0.1%,seed=7",
                                    &config, NULL),
                     0);
    assert_int_equal(config.latency_ns, 5 * FB_NS_PER_MS);
    assert_int_equal(config.jitter_ns, FB_NS_PER_MS);
    assert_int_equal(config.bandwidth, 200u << 20);
    assert_true(config.error > 0.009 && config.error < 0.011);
    assert_int_equal(config.error_code, 5);
    assert_true(config.short_read > 0.009 && config.short_read < 0.011);
    assert_true(config.hang > 0.0009 && config.hang < 0.0011);
    assert_int_equal(config.seed, 7);
    assert_int_equal(fb_fault_parse("", &config, NULL), 0);
    assert_int_equal(config.latency_ns, 0);
    for (size_t i = 0; i < FB_ARRAY_SIZE(wrong); i++) {
        err.text[0] = '\0';
        assert_int_equal(fb_fault_parse(wrong[i], &config, &err), -EINVAL);
        assert_true(strlen(err.text) > 0);
    }
}

static void test_errors(void **state)
{
    struct fixture *f = *state;
    unsigned failed = 0;

    set(f, "error=100%");
    assert_int_equal(fb_test_stat(f->source, "file"), -EIO);
    set(f, "error=100%,errno=13");
    assert_int_equal(fb_test_stat(f->source, "file"), -EACCES);
    set(f, "error=50%,seed=5");
    for (int i = 0; i < 1000; i++)
        failed += fb_test_stat(f->source, "file") == -EIO;
    assert_in_range(failed, 400, 600);
    set(f, "");
    assert_int_equal(fb_test_stat(f->source, "file"), 0);
}

static void test_same_seed_same_fate(void **state)
{
    struct fixture *f = *state;
    int first[200];

    set(f, "seed=1");
    set(f, "error=30%,seed=9");
    for (size_t i = 0; i < FB_ARRAY_SIZE(first); i++)
        first[i] = fb_test_stat(f->source, "file");
    set(f, "seed=1");
    set(f, "error=30%,seed=9");
    for (size_t i = 0; i < FB_ARRAY_SIZE(first); i++)
        assert_int_equal(fb_test_stat(f->source, "file"), first[i]);
}

static void test_short_reads(void **state)
{
    struct fixture *f = *state;
    struct fb_source_job *job;

    set(f, "short=100%,seed=1");
    for (int i = 0; i < 100; i++) {
        job = fb_test_read_job(f->pool, "file", 0, 10);
        assert_int_equal(fb_source_wait(f->source, job), 0);
        assert_true(job->bytes < 10);
        fb_source_job_put(job);
    }
}

/* Delays are lower bounds; how much longer a busy machine takes is not ours to say. */
static void test_delays(void **state)
{
    struct fixture *f = *state;
    int64_t before_ns = fb_now_ns();

    set(f, "latency=20ms,jitter=5ms");
    assert_int_equal(fb_test_stat(f->source, "file"), 0);
    assert_true(fb_now_ns() - before_ns >= 20 * FB_NS_PER_MS);
    set(f, "bandwidth=1K");
    before_ns = fb_now_ns();
    for (int i = 0; i < 5; i++)
        assert_int_equal(fb_test_read(f->source, f->pool, "file"), 0);
    /* 50 bytes at 1024 a second. */
    assert_true(fb_now_ns() - before_ns >= 48 * FB_NS_PER_MS);
}

static int read_soon(struct fixture *f)
{
    struct fb_source_job *job = fb_test_read_job(f->pool, "file", 0, 10);
    int r;

    job->deadline_ns = fb_now_ns() + FB_TEST_SOON_NS;
    r = fb_source_wait(f->source, job);
    fb_source_job_put(job);
    return r;
}

static void test_hang_down_and_back(void **state)
{
    struct fixture *f = *state;

    set(f, "hang=100%");
    assert_int_equal(read_soon(f), -ETIMEDOUT);
    assert_int_equal(fb_buffer_pool_free(f->pool), BUFFERS - 1);
    FB_TEST_EVENTUALLY(fb_test_health(f->source) == FB_SOURCE_DOWN);
    assert_int_equal(read_soon(f), -EIO);
    set(f, "");
    FB_TEST_EVENTUALLY(fb_test_health(f->source) == FB_SOURCE_UP);
    assert_int_equal(fb_test_read(f->source, f->pool, "file"), 0);
    FB_TEST_EVENTUALLY(fb_buffer_pool_free(f->pool) == BUFFERS);
}

struct outcome {
    _Atomic unsigned done;
    _Atomic int result;
};

static void note(struct fb_source_job *job)
{
    struct outcome *o = job->arg;

    atomic_store(&o->result, job->result);
    atomic_fetch_add(&o->done, 1);
    fb_source_job_put(job);
}

static void test_hung_job_is_let_go(void **state)
{
    struct fixture *f = *state;
    struct fb_source_job *job = fb_test_read_job(f->pool, "file", 0, 10);
    struct outcome o = {.result = 1};

    set(f, "hang=100%");
    job->done = note;
    job->arg = &o;
    fb_source_submit(f->source, job);
    assert_int_equal(atomic_load(&o.done), 0);
    set(f, "");
    FB_TEST_EVENTUALLY(atomic_load(&o.done) == 1);
    assert_int_equal(atomic_load(&o.result), 0);
}

static void test_close_while_hung_and_delayed(void **state)
{
    struct fixture *f = *state;
    struct outcome o = {.result = 1};

    for (int i = 0; i < 100; i++) {
        struct fb_source_job *job = fb_test_job(FB_SOURCE_STAT, "file");

        if (i == 0)
            set(f, "hang=100%");
        if (i == 50)
            set(f, "latency=1h,hang=0.0001%");
        job->done = note;
        job->arg = &o;
        fb_source_submit(f->source, job);
    }
    fb_source_close(f->source);
    f->source = NULL;
    assert_int_equal(atomic_load(&o.done), 100);
    assert_int_equal(atomic_load(&o.result), -ESHUTDOWN);
}

/* A directory whose OPENDIR expired is closed in the end, inside as well. */
static void test_dirs_through_delays(void **state)
{
    struct fixture *f = *state;
    struct fb_source_handle *dir;
    struct fb_source_job *job;
    struct fb_source_stats stats;

    dir = fb_test_opendir(f->source, "");
    set(f, "latency=500ms");
    job = fb_test_job(FB_SOURCE_READDIR, NULL);
    job->handle = dir;
    job->deadline_ns = fb_now_ns() + FB_TEST_SOON_NS;
    assert_int_equal(fb_source_wait(f->source, job), -ETIMEDOUT);
    fb_source_job_put(job);
    fb_test_closedir(f->source, dir);
    job = fb_test_job(FB_SOURCE_OPENDIR, "");
    job->deadline_ns = fb_now_ns() + FB_TEST_SOON_NS;
    assert_int_equal(fb_source_wait(f->source, job), -ETIMEDOUT);
    fb_source_job_put(job);
    do {
        fb_sleep_ns(FB_NS_PER_MS);
        fb_source_stats(f->source, &stats);
    } while (stats.in_flight > 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        TEST(test_errors),
        TEST(test_same_seed_same_fate),
        TEST(test_short_reads),
        TEST(test_delays),
        TEST(test_hang_down_and_back),
        TEST(test_hung_job_is_let_go),
        TEST(test_close_while_hung_and_delayed),
        TEST(test_dirs_through_delays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
