#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/lock.h"
#include "core/thread.h"

#define THREADS    4
#define PER_THREAD 20000

struct shared {
    struct fb_mutex mutex;
    struct fb_cond cond;
    uint64_t count;
    bool ready;
};

static void *add_many(void *arg)
{
    struct shared *s = arg;

    for (int i = 0; i < PER_THREAD; i++) {
        fb_mutex_lock(&s->mutex);
        s->count++;
        fb_mutex_unlock(&s->mutex);
    }
    return NULL;
}

static void test_excludes(void **state)
{
    struct shared s = {.count = 0};
    pthread_t threads[THREADS];

    (void)state;
    fb_mutex_init(&s.mutex, FB_RANK_FETCH);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(fb_thread_start(&threads[i], "adder", add_many, &s), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(s.count, THREADS * PER_THREAD);
    if (fb_mutex_try(&s.mutex))
        fb_mutex_unlock(&s.mutex);
    else
        fail_msg("nobody has it");
    fb_mutex_destroy(&s.mutex);
}

static void *announce(void *arg)
{
    struct shared *s = arg;

    fb_mutex_lock(&s->mutex);
    s->ready = true;
    fb_cond_broadcast(&s->cond);
    fb_mutex_unlock(&s->mutex);
    return NULL;
}

static void test_cond_wakes(void **state)
{
    static const int64_t deadlines[] = {FB_NEVER_NS, FB_NEVER_NS - 1};

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(deadlines); i++) {
        struct shared s = {.ready = false};
        pthread_t thread;

        fb_mutex_init(&s.mutex, FB_RANK_FETCH);
        fb_cond_init(&s.cond);
        fb_mutex_lock(&s.mutex);
        assert_int_equal(fb_thread_start(&thread, "announcer", announce, &s), 0);
        while (!s.ready)
            assert_true(fb_cond_wait(&s.cond, &s.mutex, deadlines[i]));
        fb_mutex_unlock(&s.mutex);
        assert_int_equal(pthread_join(thread, NULL), 0);
        fb_cond_destroy(&s.cond);
        fb_mutex_destroy(&s.mutex);
    }
}

/* The deadline is on the monotonic clock: reached by it, and never early. */
static void test_cond_times_out(void **state)
{
    struct shared s;
    int64_t until_ns;

    (void)state;
    fb_mutex_init(&s.mutex, FB_RANK_FETCH);
    fb_cond_init(&s.cond);
    fb_mutex_lock(&s.mutex);
    assert_false(fb_cond_wait(&s.cond, &s.mutex, fb_now_ns() - 1));
    assert_false(fb_cond_wait(&s.cond, &s.mutex, 0));
    assert_false(fb_cond_wait(&s.cond, &s.mutex, INT64_MIN));
    until_ns = fb_now_ns() + 20 * FB_NS_PER_MS;
    while (fb_cond_wait(&s.cond, &s.mutex, until_ns))
        continue;
    assert_true(fb_now_ns() >= until_ns);
    fb_mutex_unlock(&s.mutex);
    fb_cond_destroy(&s.cond);
    fb_mutex_destroy(&s.mutex);
}

/* A signal wakes one of those who wait, each of which takes one of `count`. */
static void *take_one(void *arg)
{
    struct shared *s = arg;

    fb_mutex_lock(&s->mutex);
    while (s->count == 0)
        fb_cond_wait(&s->cond, &s->mutex, FB_NEVER_NS);
    s->count--;
    fb_mutex_unlock(&s->mutex);
    return NULL;
}

static void test_signals_are_not_lost(void **state)
{
    struct shared s = {.count = 0};
    pthread_t threads[THREADS];

    (void)state;
    fb_mutex_init(&s.mutex, FB_RANK_FETCH);
    fb_cond_init(&s.cond);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(fb_thread_start(&threads[i], "taker", take_one, &s), 0);
    for (int i = 0; i < THREADS; i++) {
        fb_mutex_lock(&s.mutex);
        s.count++;
        fb_cond_signal(&s.cond);
        fb_mutex_unlock(&s.mutex);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(s.count, 0);
    fb_cond_destroy(&s.cond);
    fb_mutex_destroy(&s.mutex);
}

#define JOBS 20000

/* A pool: workers wait for jobs; `ready` ends them. */
struct pool {
    struct shared jobs;
    struct fb_cond all_done;
    uint64_t done;
};

static void *work_off(void *arg)
{
    struct pool *p = arg;

    fb_mutex_lock(&p->jobs.mutex);
    for (;;) {
        while (p->jobs.count == 0 && !p->jobs.ready)
            fb_cond_wait(&p->jobs.cond, &p->jobs.mutex, FB_NEVER_NS);
        if (p->jobs.count == 0)
            break;
        p->jobs.count--;
        p->done++;
        if (p->jobs.count == 0)
            fb_cond_signal(&p->all_done);
    }
    fb_mutex_unlock(&p->jobs.mutex);
    return NULL;
}

static void test_pool_sleeps_through_nothing(void **state)
{
    struct pool p = {.done = 0};
    pthread_t threads[THREADS];

    (void)state;
    fb_mutex_init(&p.jobs.mutex, FB_RANK_FETCH);
    fb_cond_init(&p.jobs.cond);
    fb_cond_init(&p.all_done);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(fb_thread_start(&threads[i], "worker", work_off, &p), 0);
    fb_mutex_lock(&p.jobs.mutex);
    for (unsigned i = 0; i < JOBS; i++) {
        for (unsigned j = 0; j <= i % 3; j++) {
            p.jobs.count++;
            fb_cond_signal(&p.jobs.cond);
        }
        while (p.jobs.count > 0)
            assert_true(fb_cond_wait(&p.all_done, &p.jobs.mutex, fb_now_ns() + 60 * FB_NS_PER_S));
    }
    p.jobs.ready = true;
    fb_cond_broadcast(&p.jobs.cond);
    fb_mutex_unlock(&p.jobs.mutex);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(p.done, JOBS / 3 * 6 + (JOBS % 3 > 0) + 2 * (JOBS % 3 > 1));
    fb_cond_destroy(&p.all_done);
    fb_cond_destroy(&p.jobs.cond);
    fb_mutex_destroy(&p.jobs.mutex);
}

static void test_null(void **state)
{
    (void)state;
    fb_mutex_destroy(NULL);
    fb_cond_destroy(NULL);
}

/* Ranks ascend in the table, so that reading it from the top is reading the order. */
static void test_table_ascends(void **state)
{
    static const int ranks[] = {
#define X(name, rank, guards) rank,
        FB_LOCK_TABLE(X)
#undef X
    };

    (void)state;
    for (size_t i = 1; i < FB_ARRAY_SIZE(ranks); i++)
        assert_true(ranks[i - 1] < ranks[i]);
}

/* Unlocking in another order than that of locking is fine, and so is taking the same ranks anew. */
FB_NO_TSA static void test_order_is_accepted(void **state)
{
    struct fb_mutex low;
    struct fb_mutex middle;
    struct fb_mutex high;

    (void)state;
    fb_mutex_init(&low, FB_RANK_DAEMON);
    fb_mutex_init(&middle, FB_RANK_FETCH);
    fb_mutex_init(&high, FB_RANK_LOG);
    for (int i = 0; i < 3; i++) {
        fb_mutex_lock(&low);
        fb_mutex_lock(&middle);
        fb_mutex_unlock(&low);
        fb_mutex_lock(&high);
        fb_mutex_unlock(&middle);
        fb_mutex_unlock(&high);
    }
    fb_mutex_destroy(&low);
    fb_mutex_destroy(&middle);
    fb_mutex_destroy(&high);
}

#ifdef FB_DEBUG

FB_NO_TSA static void take_descending(void)
{
    struct fb_mutex low;
    struct fb_mutex high;

    fb_mutex_init(&low, FB_RANK_DAEMON);
    fb_mutex_init(&high, FB_RANK_LOG);
    fb_mutex_lock(&high);
    fb_mutex_lock(&low);
}

FB_NO_TSA static void take_equal(void)
{
    struct fb_mutex a;
    struct fb_mutex b;

    fb_mutex_init(&a, FB_RANK_INDEX);
    fb_mutex_init(&b, FB_RANK_INDEX);
    fb_mutex_lock(&a);
    fb_mutex_lock(&b);
}

FB_NO_TSA static void take_below_after_release(void)
{
    struct fb_mutex low;
    struct fb_mutex middle;
    struct fb_mutex high;

    fb_mutex_init(&low, FB_RANK_DAEMON);
    fb_mutex_init(&middle, FB_RANK_FETCH);
    fb_mutex_init(&high, FB_RANK_LOG);
    fb_mutex_lock(&low);
    fb_mutex_lock(&high);
    fb_mutex_unlock(&low);
    fb_mutex_lock(&middle);
}

FB_NO_TSA static void release_unheld(void)
{
    struct fb_mutex a;

    fb_mutex_init(&a, FB_RANK_INDEX);
    fb_mutex_unlock(&a);
}

FB_NO_TSA static void wait_unheld(void)
{
    struct shared s;

    fb_mutex_init(&s.mutex, FB_RANK_INDEX);
    fb_cond_init(&s.cond);
    fb_cond_wait(&s.cond, &s.mutex, 0);
}

/* In a child, silent and without a core file. */
static void assert_aborts(void (*body)(void))
{
    const struct rlimit none = {0, 0};
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        setrlimit(RLIMIT_CORE, &none);
        dup2(null, STDERR_FILENO);
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void test_disorder_aborts(void **state)
{
    (void)state;
    assert_aborts(take_descending);
    assert_aborts(take_equal);
    assert_aborts(take_below_after_release);
    assert_aborts(release_unheld);
    assert_aborts(wait_unheld);
}

#endif

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_excludes),
        cmocka_unit_test(test_cond_wakes),
        cmocka_unit_test(test_cond_times_out),
        cmocka_unit_test(test_signals_are_not_lost),
        cmocka_unit_test(test_pool_sleeps_through_nothing),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_table_ascends),
        cmocka_unit_test(test_order_is_accepted),
#ifdef FB_DEBUG
        cmocka_unit_test(test_disorder_aborts),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
