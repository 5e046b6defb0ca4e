#include <cmocka.h>
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>

#include "core/thread.h"

#define THREADS 40
#define ROUNDS  50

struct seen {
    char name[32];
    sigset_t mask;
    unsigned index;
    unsigned again;
};

static void *look(void *arg)
{
    struct seen *seen = arg;

    pthread_getname_np(pthread_self(), seen->name, sizeof seen->name);
    pthread_sigmask(SIG_SETMASK, NULL, &seen->mask);
    seen->index = fb_thread_index();
    seen->again = fb_thread_index();
    return seen;
}

static void test_name_and_signals(void **state)
{
    struct seen seen = {0};
    sigset_t before;
    sigset_t after;
    pthread_t thread;
    void *result;

    (void)state;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(fb_thread_start(&thread, "fifteen-letters", look, &seen), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_ptr_equal(result, &seen);
    assert_string_equal(seen.name, "fifteen-letters");
    assert_int_equal(sigismember(&seen.mask, SIGTERM), 1);
    assert_int_equal(sigismember(&seen.mask, SIGINT), 1);
    assert_int_equal(sigismember(&seen.mask, SIGHUP), 1);
    assert_int_equal(sigismember(&seen.mask, SIGSEGV), 0);
    assert_int_equal(sigismember(&seen.mask, SIGBUS), 0);
    assert_int_equal(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
    assert_int_equal(sigismember(&after, SIGINT), sigismember(&before, SIGINT));
}

struct detached {
    sem_t done;
    char name[32];
};

static void *run_detached(void *arg)
{
    struct detached *d = arg;

    pthread_getname_np(pthread_self(), d->name, sizeof d->name);
    sem_post(&d->done);
    return NULL;
}

static void test_detached(void **state)
{
    struct detached d = {.name = ""};

    (void)state;
    assert_int_equal(sem_init(&d.done, 0, 0), 0);
    assert_int_equal(fb_thread_start_detached("loose", run_detached, &d), 0);
    while (sem_wait(&d.done) < 0)
        assert_int_equal(errno, EINTR);
    assert_string_equal(d.name, "loose");
    sem_destroy(&d.done);
}

struct held {
    pthread_barrier_t *barrier;
    unsigned index;
};

static void *hold_index(void *arg)
{
    struct held *h = arg;

    h->index = fb_thread_index();
    pthread_barrier_wait(h->barrier);
    return NULL;
}

/* Threads alive together have different numbers, and small ones. */
static void test_index_is_dense(void **state)
{
    struct held held[THREADS];
    bool used[THREADS + 2] = {false};
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;

    (void)state;
    used[fb_thread_index()] = true;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        held[i].barrier = &barrier;
        assert_int_equal(fb_thread_start(&threads[i], "holder", hold_index, &held[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_in_range(held[i].index, 0, THREADS + 1);
        assert_false(used[held[i].index]);
        used[held[i].index] = true;
    }
    pthread_barrier_destroy(&barrier);
}

static void test_index_is_reused(void **state)
{
    struct seen first;
    struct seen seen;
    pthread_t thread;

    (void)state;
    assert_int_equal(fb_thread_start(&thread, "first", look, &first), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(fb_thread_start(&thread, "next", look, &seen), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(seen.index, first.index);
        assert_int_equal(seen.index, seen.again);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name_and_signals),
        cmocka_unit_test(test_detached),
        cmocka_unit_test(test_index_is_dense),
        cmocka_unit_test(test_index_is_reused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
