/* The dispatcher over a backend that answers, holds or swallows jobs as told. */
#include <pthread.h>

#include "base/assert.h"
#include "base/rand.h"
#include "core/lock.h"
#include "core/thread.h"
#include "source/test_jobs.h"

#define HELD_MAX (FB_SOURCE_JOBS_MAX + 64)

enum fake_mode {
    ANSWER,
    HOLD,          /* everything */
    HOLD_ORDINARY, /* but answer probes */
};

struct fake {
    struct fb_mutex lock;
    enum fake_mode mode;
    int result;
    bool stuck; /* close does not get jobs back */
    unsigned started[FB_SOURCE_OPS];
    unsigned probes;
    int64_t probe_deadline_ns; /* of the last one */
    unsigned held_count;
    struct fb_source_job *held[HELD_MAX];
    struct fb_source_handle dir;
    _Atomic unsigned expired;
    _Atomic unsigned done;
    bool destroyed;
};

static void fake_start(void *backend, struct fb_source_job *job)
{
    struct fake *fake = backend;
    bool hold;
    int result;

    fb_mutex_lock(&fake->lock);
    fake->started[job->op]++;
    fake->probes += job->urgent;
    if (job->urgent)
        fake->probe_deadline_ns = job->deadline_ns;
    hold = fake->mode == HOLD || (fake->mode == HOLD_ORDINARY && !job->urgent);
    result = fake->result;
    if (hold) {
        FB_ASSERT(fake->held_count < HELD_MAX);
        fake->held[fake->held_count++] = job;
    }
    fb_mutex_unlock(&fake->lock);
    if (hold)
        return;
    if (job->op == FB_SOURCE_OPENDIR)
        job->handle = &fake->dir;
    fb_source_job_finish(job, result);
}

static void fake_expired(void *backend, struct fb_source_job *job)
{
    (void)job;
    atomic_fetch_add(&((struct fake *)backend)->expired, 1);
}

/* Finishes the jobs held, and from now on answers. */
static void fake_release(struct fake *fake, int result)
{
    struct fb_source_job *job;

    fb_mutex_lock(&fake->lock);
    fake->mode = ANSWER;
    fake->result = result;
    fb_mutex_unlock(&fake->lock);
    do {
        fb_mutex_lock(&fake->lock);
        job = fake->held_count > 0 ? fake->held[--fake->held_count] : NULL;
        fb_mutex_unlock(&fake->lock);
        if (job && job->op == FB_SOURCE_OPENDIR)
            job->handle = &fake->dir;
        if (job)
            fb_source_job_finish(job, result);
    } while (job);
}

static bool fake_close(void *backend, int64_t until_ns)
{
    struct fake *fake = backend;

    (void)until_ns;
    if (fake->stuck)
        return false;
    fake_release(fake, -ESHUTDOWN);
    return true;
}

static void fake_destroy(void *backend)
{
    ((struct fake *)backend)->destroyed = true;
}

static const struct fb_source_ops fake_ops = {
    .name = "fake",
    .start = fake_start,
    .expired = fake_expired,
    .close = fake_close,
    .destroy = fake_destroy,
};

static void fake_init(struct fake *fake, enum fake_mode mode)
{
    memset(fake, 0, sizeof *fake);
    fb_mutex_init(&fake->lock, FB_RANK_SOURCE);
    fake->mode = mode;
}

static struct fb_source *fake_open(struct fake *fake, enum fake_mode mode)
{
    struct fb_source *source;

    fake_init(fake, mode);
    assert_int_equal(fb_source_create(&fake_ops, fake, "fake://x", &source), 0);
    assert_string_equal(fb_source_uri(source), "fake://x");
    return source;
}

static void fake_end(struct fake *fake, struct fb_source *source)
{
    fb_source_close(source);
    assert_true(fake->destroyed);
    assert_int_equal(fake->held_count, 0);
    fb_mutex_destroy(&fake->lock);
}

static unsigned fake_count(struct fake *fake, const unsigned *what)
{
    unsigned n;

    fb_mutex_lock(&fake->lock);
    n = *what;
    fb_mutex_unlock(&fake->lock);
    return n;
}

static int run_soon(struct fb_source *source, const char *path)
{
    struct fb_source_job *job = fb_test_job(FB_SOURCE_STAT, path);
    int r;

    job->deadline_ns = fb_now_ns() + FB_TEST_SOON_NS;
    r = fb_source_wait(source, job);
    fb_source_job_put(job);
    return r;
}

static void count_done(struct fb_source_job *job)
{
    atomic_fetch_add((_Atomic unsigned *)job->arg, 1);
    fb_source_job_put(job);
}

static void submit(struct fb_source *source, struct fb_source_job *job, _Atomic unsigned *done)
{
    job->done = count_done;
    job->arg = done;
    fb_source_submit(source, job);
}

static void test_answers(void **state)
{
    struct fb_source_stats stats;
    struct fake fake;
    struct fb_source *source = fake_open(&fake, ANSWER);

    (void)state;
    assert_int_equal(fb_test_stat(source, "a"), 0);
    fake.result = -ENOENT;
    assert_int_equal(fb_test_stat(source, "a"), -ENOENT);
    fake.result = -EIO;
    assert_int_equal(fb_test_stat(source, "a"), -EIO);
    fb_source_stats(source, &stats);
    assert_int_equal(stats.jobs, 3);
    assert_int_equal(stats.errors, 1);
    assert_int_equal(stats.in_flight, 0);
    assert_int_equal(stats.health, FB_SOURCE_UP);
    assert_ptr_equal(fb_source_backend(source, &fake_ops), &fake);
    assert_null(fb_source_backend(source, NULL));
    fake_end(&fake, source);
}

static void test_expiry_then_late_finish(void **state)
{
    struct fb_buffer_pool *pool;
    struct fb_source_stats stats;
    struct fake fake;
    struct fb_source *source = fake_open(&fake, HOLD_ORDINARY);
    struct fb_source_job *job;

    (void)state;
    assert_int_equal(fb_buffer_pool_create(2, 4096, &pool), 0);
    job = fb_test_read_job(pool, "a", 0, 100);
    job->deadline_ns = fb_now_ns() + FB_TEST_SOON_NS;
    assert_int_equal(fb_source_wait(source, job), -ETIMEDOUT);
    assert_true(fb_source_job_expired(job));
    fb_source_job_put(job);

    /* The backend still has the job and its buffer. */
    fb_source_stats(source, &stats);
    assert_int_equal(stats.timeouts, 1);
    assert_int_equal(stats.stuck, 1);
    FB_TEST_EVENTUALLY(atomic_load(&fake.expired) == 1);
    assert_int_equal(fb_buffer_pool_free(pool), 1);
    fake.held[0]->bytes = 100;
    fake_release(&fake, 0);
    assert_int_equal(fb_buffer_pool_free(pool), 2);
    FB_TEST_EVENTUALLY(fb_test_health(source) == FB_SOURCE_UP);
    fb_source_stats(source, &stats);
    assert_int_equal(stats.stuck, 0);
    assert_int_equal(stats.in_flight, 0);
    assert_int_equal(stats.bytes_read, 0);
    fake_end(&fake, source);
    fb_buffer_pool_destroy(pool);
}

static void test_deadlines_in_any_order(void **state)
{
    struct fb_rand rand = {.state = 3};
    _Atomic unsigned done = 0;
    struct fake fake;
    struct fb_source *source = fake_open(&fake, HOLD_ORDINARY);

    (void)state;
    for (int i = 0; i < 1000; i++) {
        struct fb_source_job *job = fb_test_job(FB_SOURCE_STAT, "a");

        /* Some have passed already. */
        job->deadline_ns =
            fb_now_ns() + (int64_t)fb_rand_below(&rand, 50) * FB_NS_PER_MS - 5 * FB_NS_PER_MS;
        submit(source, job, &done);
    }
    FB_TEST_EVENTUALLY(atomic_load(&done) == 1000);
    FB_TEST_EVENTUALLY(atomic_load(&fake.expired) == 1000);
    fake_release(&fake, 0);
    assert_int_equal(atomic_load(&done), 1000);
    fake_end(&fake, source);
}

#define NOBODY  0x7fffffffu /* larger than any pid: as good as dead */
#define SIGNALS 100         /* more than are looked at in one go */

/* A signal that ends the program ends its wait; one that it handles does not. */
static void test_cancelled(void **state)
{
    _Atomic unsigned living = 0, dying = 0, later = 0;
    _Atomic bool now = true, then = false;
    struct fb_source_stats stats;
    struct fake fake;
    struct fb_source *source = fake_open(&fake, HOLD_ORDINARY);
    struct fb_source_job *job;

    (void)state;
    for (unsigned i = 0; i < 3 * SIGNALS; i++) {
        job = fb_test_job(FB_SOURCE_STAT, "a");
        job->cancel = i % 3 == 2 ? &then : &now;
        job->caller.pid = i % 3 == 0 ? (uint32_t)getpid() : NOBODY;
        submit(source, job, i % 3 == 0 ? &living : i % 3 == 1 ? &dying : &later);
    }
    FB_TEST_EVENTUALLY(atomic_load(&dying) == SIGNALS);
    job = fb_test_job(FB_SOURCE_OPENDIR, "a");
    job->cancel = &now;
    job->caller.pid = NOBODY;
    assert_int_equal(fb_source_wait(source, job), -EINTR);
    fb_source_job_put(job);
    assert_int_equal(atomic_load(&living) + atomic_load(&later), 0);
    atomic_store(&then, true);
    FB_TEST_EVENTUALLY(atomic_load(&later) == SIGNALS);
    FB_TEST_EVENTUALLY(atomic_load(&fake.expired) == 2 * SIGNALS + 1);

    /* That says nothing about the source. */
    fb_source_stats(source, &stats);
    assert_int_equal(stats.health, FB_SOURCE_UP);
    assert_int_equal(stats.timeouts, 0);
    assert_int_equal(stats.stuck, 2 * SIGNALS + 1);
    assert_int_equal(atomic_load(&living), 0);
    fake_release(&fake, 0);
    assert_int_equal(atomic_load(&living), SIGNALS);
    /* The directory that nobody took is closed. */
    assert_int_equal(fake_count(&fake, &fake.started[FB_SOURCE_CLOSE]), 1);
    fake_end(&fake, source);
}

static void test_slow_file_harms_nobody(void **state)
{
    struct fake fake;
    struct fb_source *source = fake_open(&fake, HOLD_ORDINARY);

    (void)state;
    assert_int_equal(run_soon(source, "slow"), -ETIMEDOUT);
    FB_TEST_EVENTUALLY(fb_test_health(source) == FB_SOURCE_UP && fake_count(&fake, &fake.probes));
    assert_int_equal(fake_count(&fake, &fake.probes), 1);
    fake_release(&fake, 0);
    assert_int_equal(fb_test_stat(source, "quick"), 0);
    fake_end(&fake, source);
}

static void test_down_and_back(void **state)
{
    struct fake fake;
    struct fb_source *source = fake_open(&fake, HOLD);
    unsigned started;

    (void)state;
    assert_int_equal(run_soon(source, "a"), -ETIMEDOUT);
    FB_TEST_EVENTUALLY(fb_test_health(source) == FB_SOURCE_DOWN);
    started = fake_count(&fake, &fake.started[FB_SOURCE_READLINK]);
    assert_int_equal(fb_test_run(source, FB_SOURCE_READLINK, "a", NULL), -EIO);
    assert_int_equal(fake_count(&fake, &fake.started[FB_SOURCE_READLINK]), started);

    /* Probes that hang are bounded in number. */
    FB_TEST_EVENTUALLY(fake_count(&fake, &fake.probes) == FB_SOURCE_PROBES_MAX);
    fb_sleep_ns(FB_SOURCE_PROBE_NS * 3 / 2);
    assert_int_equal(fake_count(&fake, &fake.probes), FB_SOURCE_PROBES_MAX);

    /* An outage as an answer to the probes is none. */
    fake_release(&fake, -EIO);
    assert_int_equal(fb_test_health(source), FB_SOURCE_DOWN);
    FB_TEST_EVENTUALLY(fake_count(&fake, &fake.probes) > FB_SOURCE_PROBES_MAX);
    assert_int_equal(fb_test_health(source), FB_SOURCE_DOWN);
    fake_release(&fake, 0);
    FB_TEST_EVENTUALLY(fb_test_health(source) == FB_SOURCE_UP);
    assert_int_equal(fb_test_stat(source, "a"), 0);
    fake_end(&fake, source);
}

/* Of a job that may take long. */
static int run_long(struct fb_source *source)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_READLINK, "a");
    int result;

    assert_non_null(job);
    job->deadline_ns = FB_NEVER_NS;
    job->doubt_ns = FB_TEST_SOON_NS;
    result = fb_source_wait(source, job);
    fb_source_job_put(job);
    return result;
}

static void test_long_job_ends_with_the_source(void **state)
{
    struct fake fake;
    struct fb_source *source = fake_open(&fake, HOLD);

    (void)state;
    assert_int_equal(run_long(source), -ETIMEDOUT);
    assert_int_equal(fb_test_health(source), FB_SOURCE_DOWN);
    fake_release(&fake, 0);
    fake_end(&fake, source);
}

static void *release_later(void *arg)
{
    struct fake *fake = arg;

    /* By then it was doubted several times. */
    FB_TEST_EVENTUALLY(fake_count(fake, &fake->probes) > 2);
    fake_release(fake, 0);
    return NULL;
}

static void test_long_job_goes_on_while_the_source_is_there(void **state)
{
    struct fake fake;
    struct fb_source *source = fake_open(&fake, HOLD_ORDINARY);
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, release_later, &fake), 0);
    assert_int_equal(run_long(source), 0);
    pthread_join(thread, NULL);
    fake_end(&fake, source);
}

/* That a long job takes long says little: a probe for its sake has half of the time after which it
 * was doubted, not only that of other probes. */
static void test_long_jobs_probe_has_longer(void **state)
{
    struct fake fake;
    struct fb_source *source = fake_open(&fake, HOLD);
    struct fb_source_job *job = fb_test_job(FB_SOURCE_STAT, "long");
    int64_t doubt_ns = 3 * FB_SOURCE_PROBE_NS;
    int64_t earliest_ns = fb_now_ns() + doubt_ns + doubt_ns / 2;
    _Atomic unsigned done = 0;
    int64_t probe_ns;

    (void)state;
    assert_non_null(job);
    job->deadline_ns = FB_NEVER_NS;
    job->doubt_ns = doubt_ns;
    submit(source, job, &done);
    FB_TEST_EVENTUALLY(fake_count(&fake, &fake.probes) > 0);
    fb_mutex_lock(&fake.lock);
    probe_ns = fake.probe_deadline_ns;
    fb_mutex_unlock(&fake.lock);
    assert_true(probe_ns >= earliest_ns);
    fake_release(&fake, 0);
    FB_TEST_EVENTUALLY(done == 1);
    fake_end(&fake, source);
}

static void test_late_probe_counts(void **state)
{
    struct fake fake;
    struct fb_source *source = fake_open(&fake, HOLD);

    (void)state;
    assert_int_equal(run_soon(source, "a"), -ETIMEDOUT);
    FB_TEST_EVENTUALLY(fb_test_health(source) == FB_SOURCE_DOWN);
    fake_release(&fake, 0);
    assert_int_equal(fb_test_health(source), FB_SOURCE_UP);
    fake_end(&fake, source);
}

static void test_too_many_jobs(void **state)
{
    struct fb_source_stats stats;
    _Atomic unsigned done = 0;
    struct fake fake;
    struct fb_source *source = fake_open(&fake, HOLD);

    (void)state;
    for (int i = 0; i < FB_SOURCE_JOBS_MAX; i++)
        submit(source, fb_test_job(FB_SOURCE_STAT, "a"), &done);
    assert_int_equal(fb_test_stat(source, "a"), -EAGAIN);
    fb_source_stats(source, &stats);
    assert_int_equal(stats.in_flight, FB_SOURCE_JOBS_MAX);
    assert_int_equal(atomic_load(&done), 0);
    fake_release(&fake, 0);
    assert_int_equal(atomic_load(&done), FB_SOURCE_JOBS_MAX);
    assert_int_equal(fb_test_stat(source, "a"), 0);
    fake_end(&fake, source);
}

static void expect_shutdown(struct fb_source_job *job)
{
    if (job->result == -ESHUTDOWN)
        atomic_fetch_add((_Atomic unsigned *)job->arg, 1);
    fb_source_job_put(job);
}

static void test_close_in_flight(void **state)
{
    _Atomic unsigned done = 0;
    struct fake fake;
    struct fb_source *source = fake_open(&fake, HOLD);

    (void)state;
    for (int i = 0; i < 100; i++) {
        struct fb_source_job *job = fb_test_job(FB_SOURCE_STAT, "a");

        job->done = expect_shutdown;
        job->arg = &done;
        fb_source_submit(source, job);
    }
    fake_end(&fake, source);
    assert_int_equal(atomic_load(&done), 100);
}

static void test_close_stuck(void **state)
{
    static struct fake fake; /* a stuck thread's memory is never given back */
    struct fb_source *source = fake_open(&fake, HOLD);
    _Atomic unsigned done = 0;

    (void)state;
    fake.stuck = true;
    for (int i = 0; i < 10; i++)
        submit(source, fb_test_job(FB_SOURCE_STAT, "a"), &done);
    fb_source_close(source);
    assert_int_equal(atomic_load(&done), 10);
    assert_false(fake.destroyed);
    fake_release(&fake, 0);
    assert_int_equal(atomic_load(&done), 10);
    assert_false(fake.destroyed);
}

static void test_closedir_waits_for_readers(void **state)
{
    _Atomic unsigned done = 0;
    struct fake fake;
    struct fb_source *source = fake_open(&fake, ANSWER);
    struct fb_source_handle *dir = fb_test_opendir(source, "");

    (void)state;
    fake.mode = HOLD_ORDINARY;
    for (int i = 0; i < 2; i++) {
        struct fb_source_job *job = fb_test_job(FB_SOURCE_READDIR, NULL);

        job->handle = dir;
        job->deadline_ns = fb_now_ns() + FB_TEST_SOON_NS;
        submit(source, job, &done);
    }
    FB_TEST_EVENTUALLY(atomic_load(&done) == 2);
    fb_test_closedir(source, dir);
    assert_int_equal(fake_count(&fake, &fake.started[FB_SOURCE_CLOSE]), 0);
    fake_release(&fake, 0);
    assert_int_equal(fake_count(&fake, &fake.started[FB_SOURCE_CLOSE]), 1);
    fake_end(&fake, source);
}

static void test_late_opendir_is_closed(void **state)
{
    _Atomic unsigned done = 0;
    struct fake fake;
    struct fb_source *source = fake_open(&fake, HOLD_ORDINARY);
    struct fb_source_job *job = fb_test_job(FB_SOURCE_OPENDIR, "");

    (void)state;
    job->deadline_ns = fb_now_ns() + FB_TEST_SOON_NS;
    submit(source, job, &done);
    FB_TEST_EVENTUALLY(atomic_load(&done) == 1);
    assert_int_equal(fake_count(&fake, &fake.started[FB_SOURCE_CLOSE]), 0);
    fake_release(&fake, 0);
    assert_int_equal(fake_count(&fake, &fake.started[FB_SOURCE_CLOSE]), 1);
    fake_end(&fake, source);
}

static void test_closedir_while_down(void **state)
{
    struct fake fake;
    struct fb_source *source = fake_open(&fake, ANSWER);
    struct fb_source_handle *dir = fb_test_opendir(source, "");

    (void)state;
    fake.mode = HOLD;
    assert_int_equal(run_soon(source, "a"), -ETIMEDOUT);
    FB_TEST_EVENTUALLY(fb_test_health(source) == FB_SOURCE_DOWN);
    fb_test_closedir(source, dir);
    assert_int_equal(fake_count(&fake, &fake.started[FB_SOURCE_CLOSE]), 1);
    fake_end(&fake, source);
}

static void test_outages(void **state)
{
    static const int answers[] = {0,     ENOENT, ENOTDIR,      EACCES, EPERM,   EINVAL,
                                  ELOOP, EISDIR, ENAMETOOLONG, ESTALE, ENODATA, ENOTSUP};
    static const int outages[] = {EIO,    ETIMEDOUT, ESHUTDOWN, ENOMEM,     EAGAIN,    ENOTCONN,
                                  ENODEV, EMFILE,    ENFILE,    ECONNRESET, EREMOTEIO, 4000};

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(answers); i++)
        assert_false(fb_source_is_outage(-answers[i]));
    for (size_t i = 0; i < FB_ARRAY_SIZE(outages); i++)
        assert_true(fb_source_is_outage(-outages[i]));
}

/* ---- expiry against finish ------------------------------------------------------------------- */

#define RACERS    8
#define RACE_JOBS 1250

struct race {
    struct fake *fake;
    struct fb_source *source;
    _Atomic unsigned done;
    _Atomic unsigned number;
    _Atomic bool over;
};

static void *race_submit(void *arg)
{
    struct race *race = arg;
    struct fb_rand rand = {.state = atomic_fetch_add(&race->number, 1)};

    for (int i = 0; i < RACE_JOBS; i++) {
        struct fb_source_job *job = fb_test_job(FB_SOURCE_STAT, "a");

        job->deadline_ns = fb_now_ns() + (int64_t)fb_rand_below(&rand, 200 * FB_NS_PER_US);
        submit(race->source, job, &race->done);
    }
    return NULL;
}

static void *race_finish(void *arg)
{
    struct race *race = arg;
    struct fake *fake = race->fake;

    while (!atomic_load(&race->over)) {
        struct fb_source_job *job;

        fb_mutex_lock(&fake->lock);
        job = fake->held_count > 0 ? fake->held[--fake->held_count] : NULL;
        fb_mutex_unlock(&fake->lock);
        if (job)
            fb_source_job_finish(job, 0);
    }
    return NULL;
}

static void test_race_of_finish_and_expiry(void **state)
{
    pthread_t submitters[RACERS], finishers[2];
    struct fake fake;
    struct race race = {.fake = &fake, .source = fake_open(&fake, HOLD_ORDINARY)};

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(fb_thread_start(&finishers[i], "finish", race_finish, &race), 0);
    for (int i = 0; i < RACERS; i++)
        assert_int_equal(fb_thread_start(&submitters[i], "submit", race_submit, &race), 0);
    for (int i = 0; i < RACERS; i++)
        pthread_join(submitters[i], NULL);
    FB_TEST_EVENTUALLY(atomic_load(&race.done) == RACERS * RACE_JOBS);
    atomic_store(&race.over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(finishers[i], NULL);
    fake_end(&fake, race.source);
    assert_int_equal(atomic_load(&race.done), RACERS * RACE_JOBS);
}

/* Jobs submitted while the source is being closed are answered, too. */
static void *submit_until_shutdown(void *arg)
{
    struct race *race = arg;
    int r;

    do {
        struct fb_source_job *job = fb_test_job(FB_SOURCE_STAT, "a");

        r = fb_source_wait(race->source, job);
        fb_source_job_put(job);
        atomic_fetch_add(&race->number, 1);
    } while (r != -ESHUTDOWN);
    atomic_fetch_add(&race->done, 1);
    return NULL;
}

static bool patient_close(void *backend, int64_t until_ns)
{
    struct race *race = backend;

    /* Submitters must be gone before the source is freed; they see -ESHUTDOWN by now. */
    while (atomic_load(&race->done) < RACERS)
        fb_sleep_ns(FB_NS_PER_MS);
    return fake_close(race->fake, until_ns);
}

static void patient_start(void *backend, struct fb_source_job *job)
{
    fake_start(((struct race *)backend)->fake, job);
}

static void patient_destroy(void *backend)
{
    fake_destroy(((struct race *)backend)->fake);
}

static void test_submit_while_closing(void **state)
{
    static const struct fb_source_ops ops = {
        .name = "patient",
        .start = patient_start,
        .close = patient_close,
        .destroy = patient_destroy,
    };
    pthread_t submitters[RACERS];
    struct fake fake;
    struct race race = {.fake = &fake};

    (void)state;
    fake_init(&fake, ANSWER);
    assert_int_equal(fb_source_create(&ops, &race, "fake://y", &race.source), 0);
    for (int i = 0; i < RACERS; i++)
        assert_int_equal(fb_thread_start(&submitters[i], "submit", submit_until_shutdown, &race),
                         0);
    FB_TEST_EVENTUALLY(atomic_load(&race.number) > 100);
    fake_end(&fake, race.source);
    for (int i = 0; i < RACERS; i++)
        pthread_join(submitters[i], NULL);
    assert_int_equal(atomic_load(&race.done), RACERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_expiry_then_late_finish),
        cmocka_unit_test(test_deadlines_in_any_order),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_slow_file_harms_nobody),
        cmocka_unit_test(test_down_and_back),
        cmocka_unit_test(test_long_jobs_probe_has_longer),
        cmocka_unit_test(test_late_probe_counts),
        cmocka_unit_test(test_long_job_ends_with_the_source),
        cmocka_unit_test(test_long_job_goes_on_while_the_source_is_there),
        cmocka_unit_test(test_too_many_jobs),
        cmocka_unit_test(test_close_in_flight),
        cmocka_unit_test(test_close_stuck),
        cmocka_unit_test(test_closedir_waits_for_readers),
        cmocka_unit_test(test_late_opendir_is_closed),
        cmocka_unit_test(test_closedir_while_down),
        cmocka_unit_test(test_outages),
        cmocka_unit_test(test_race_of_finish_and_expiry),
        cmocka_unit_test(test_submit_while_closing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
