/* The pool under jobs that block, as calls to a dead server do. */
#include <pthread.h>

#include "core/lock.h"
#include "core/thread.h"
#include "source/posix_pool.h"
#include "source/source_posix.h"
#include "source/test_jobs.h"

/* Jobs whose path is "block" do, until the gate is open. */
struct gate {
    struct fb_mutex lock;
    struct fb_cond cond;
    bool open;
    unsigned blocked;            /* threads at the gate */
    unsigned run[FB_SOURCE_OPS]; /* jobs that got to run at all */
    struct fb_posix_pool *pool;
    bool destroyed;
};

static int run(void *arg, struct fb_source_job *job)
{
    struct gate *gate = arg;

    fb_mutex_lock(&gate->lock);
    gate->run[job->op]++;
    if (!strcmp(job->path, "slow"))
        fb_sleep_ns(2 * FB_POSIX_FAR_NS);
    if (!strcmp(job->path, "block")) {
        gate->blocked++;
        while (!gate->open)
            fb_cond_wait(&gate->cond, &gate->lock, FB_NEVER_NS);
        gate->blocked--;
    }
    fb_mutex_unlock(&gate->lock);
    return 0;
}

static void gate_start(void *backend, struct fb_source_job *job)
{
    fb_posix_pool_start(((struct gate *)backend)->pool, job);
}

static void gate_expired(void *backend, struct fb_source_job *job)
{
    fb_posix_pool_expired(((struct gate *)backend)->pool, job);
}

static bool gate_close(void *backend, int64_t until_ns)
{
    return fb_posix_pool_close(((struct gate *)backend)->pool, until_ns);
}

static void gate_destroy(void *backend)
{
    struct gate *gate = backend;

    fb_posix_pool_destroy(gate->pool);
    gate->destroyed = true;
}

static struct fb_source *gate_source_far(struct gate *gate, unsigned near, unsigned far)
{
    static const struct fb_source_ops ops = {
        .name = "gate",
        .start = gate_start,
        .expired = gate_expired,
        .close = gate_close,
        .destroy = gate_destroy,
    };
    struct fb_source *source;

    memset(gate, 0, sizeof *gate);
    /* Lower than all: it is held by nobody who calls the pool. */
    fb_mutex_init(&gate->lock, FB_RANK_DAEMON);
    fb_cond_init(&gate->cond);
    assert_int_equal(fb_posix_pool_create(near, far, run, gate, &gate->pool), 0);
    assert_int_equal(fb_source_create(&ops, gate, "gate://", &source), 0);
    return source;
}

static struct fb_source *gate_source(struct gate *gate, unsigned threads)
{
    return gate_source_far(gate, threads, threads);
}

static void gate_open(struct gate *gate)
{
    fb_mutex_lock(&gate->lock);
    gate->open = true;
    fb_cond_broadcast(&gate->cond);
    fb_mutex_unlock(&gate->lock);
}

static void gate_end(struct gate *gate, struct fb_source *source)
{
    gate_open(gate);
    fb_source_close(source);
    assert_true(gate->destroyed);
    fb_cond_destroy(&gate->cond);
    fb_mutex_destroy(&gate->lock);
}

static unsigned gate_count(struct gate *gate, const unsigned *what)
{
    unsigned n;

    fb_mutex_lock(&gate->lock);
    n = *what;
    fb_mutex_unlock(&gate->lock);
    return n;
}

static struct fb_posix_pool_stats pool_stats(struct gate *gate)
{
    struct fb_posix_pool_stats stats;

    fb_posix_pool_stats(gate->pool, &stats);
    return stats;
}

/* A job that blocks and expires; returns when it has a thread stuck. */
static void block_one(struct gate *gate, struct fb_source *source)
{
    struct fb_source_job *job = fb_test_job(FB_SOURCE_STAT, "block");
    unsigned before = pool_stats(gate).stuck;

    job->deadline_ns = fb_now_ns() + 2 * FB_TEST_SOON_NS;
    assert_int_equal(fb_source_wait(source, job), -ETIMEDOUT);
    fb_source_job_put(job);
    /* On a busy machine it may expire before a thread gets to it: then nothing is stuck. */
    FB_TEST_EVENTUALLY(pool_stats(gate).stuck == gate_count(gate, &gate->blocked));
    assert_true(pool_stats(gate).stuck <= before + 1);
}

static void block_many(struct gate *gate, struct fb_source *source, unsigned count)
{
    for (int tries = 0; tries < 1000 && gate_count(gate, &gate->blocked) < count; tries++)
        block_one(gate, source);
    assert_int_equal(gate_count(gate, &gate->blocked), count);
}

static void put_job(struct fb_source_job *job)
{
    fb_source_job_put(job);
}

static void test_threads_on_demand(void **state)
{
    struct gate gate;
    struct fb_source *source = gate_source(&gate, 4);

    (void)state;
    assert_int_equal(pool_stats(&gate).threads, 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(fb_test_stat(source, "quick"), 0);
    assert_in_range(pool_stats(&gate).threads, 1, 4);
    for (int i = 0; i < 20; i++) {
        struct fb_source_job *job = fb_test_job(FB_SOURCE_STAT, "block");

        job->done = put_job;
        fb_source_submit(source, job);
    }
    FB_TEST_EVENTUALLY(gate_count(&gate, &gate.blocked) == 4);
    assert_int_equal(pool_stats(&gate).threads, 4);
    assert_int_equal(pool_stats(&gate).queued, 16);
    gate_end(&gate, source);
}

/* A source that takes its time gets more threads: for those that come, and for those that wait. */
static void test_more_threads_where_it_is_far(void **state)
{
    struct gate gate;
    struct fb_source *source = gate_source_far(&gate, 2, 8);

    (void)state;
    for (int i = 0; i < 20; i++) {
        struct fb_source_job *job = fb_test_job(FB_SOURCE_STAT, i == 0 ? "slow" : "block");

        job->done = put_job;
        fb_source_submit(source, job);
    }
    FB_TEST_EVENTUALLY(gate_count(&gate, &gate.blocked) == 8);
    assert_int_equal(pool_stats(&gate).threads, 8);
    assert_int_equal(pool_stats(&gate).queued, 11);
    gate_end(&gate, source);
}

static void test_stuck_threads_are_replaced(void **state)
{
    struct gate gate;
    struct fb_source *source = gate_source(&gate, 2);

    (void)state;
    block_many(&gate, source, 10);
    assert_int_equal(fb_test_stat(source, "quick"), 0);
    assert_int_equal(pool_stats(&gate).stuck, 10);
    assert_in_range(pool_stats(&gate).threads, 11, 13);
    gate_open(&gate);
    FB_TEST_EVENTUALLY(pool_stats(&gate).stuck == 0 && pool_stats(&gate).threads <= 2);
    assert_int_equal(fb_test_stat(source, "quick"), 0);
    gate_end(&gate, source);
}

/* Those behind a stuck thread are served without anybody submitting anything more. */
static void test_queue_behind_stuck_thread(void **state)
{
    struct gate gate;
    struct fb_source *source = gate_source(&gate, 1);
    struct fb_source_job *job = fb_test_job(FB_SOURCE_STAT, "block");

    (void)state;
    job->deadline_ns = fb_now_ns() + 20 * FB_TEST_SOON_NS;
    job->done = put_job;
    fb_source_submit(source, job);
    assert_int_equal(fb_test_stat(source, "quick"), 0);
    gate_end(&gate, source);
}

static void test_expired_in_queue_is_not_run(void **state)
{
    struct gate gate;
    struct fb_source *source = gate_source(&gate, 1);
    struct fb_source_job *job = fb_test_job(FB_SOURCE_STAT, "block");

    (void)state;
    job->done = put_job;
    fb_source_submit(source, job);
    FB_TEST_EVENTUALLY(gate_count(&gate, &gate.blocked) == 1);
    job = fb_test_job(FB_SOURCE_READLINK, "quick");
    job->deadline_ns = fb_now_ns() + FB_TEST_SOON_NS;
    assert_int_equal(fb_source_wait(source, job), -ETIMEDOUT);
    fb_source_job_put(job);
    FB_TEST_EVENTUALLY(pool_stats(&gate).queued == 0);
    /* The probe that followed went past the busy thread, and found the source well. */
    FB_TEST_EVENTUALLY(gate_count(&gate, &gate.run[FB_SOURCE_STAT]) >= 2);
    FB_TEST_EVENTUALLY(fb_test_health(source) == FB_SOURCE_UP);
    assert_int_equal(gate_count(&gate, &gate.run[FB_SOURCE_READLINK]), 0);
    gate_end(&gate, source);
}

static void test_all_stuck(void **state)
{
    struct gate gate;
    struct fb_source *source = gate_source(&gate, 1);

    (void)state;
    block_many(&gate, source, FB_POSIX_STUCK_MAX + 1);
    assert_int_equal(pool_stats(&gate).threads, FB_POSIX_STUCK_MAX + 1);
    assert_int_equal(fb_test_stat(source, "quick"), -EIO);
    gate_open(&gate);
    FB_TEST_EVENTUALLY(pool_stats(&gate).stuck == 0);
    FB_TEST_EVENTUALLY(fb_test_stat(source, "quick") == 0);
    gate_end(&gate, source);
}

static void test_close_with_stuck_thread(void **state)
{
    static struct gate gate; /* a stuck thread's memory is never given back */
    struct fb_source *source = gate_source(&gate, 2);

    (void)state;
    block_many(&gate, source, 1);
    fb_source_close(source);
    assert_false(gate.destroyed);
    gate_open(&gate);
    FB_TEST_EVENTUALLY(pool_stats(&gate).threads == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_on_demand),
        cmocka_unit_test(test_more_threads_where_it_is_far),
        cmocka_unit_test(test_stuck_threads_are_replaced),
        cmocka_unit_test(test_queue_behind_stuck_thread),
        cmocka_unit_test(test_expired_in_queue_is_not_run),
        cmocka_unit_test(test_all_stuck),
        cmocka_unit_test(test_close_with_stuck_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
