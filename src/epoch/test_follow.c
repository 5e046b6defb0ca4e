#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/rand.h"
#include "core/mem.h"
#include "epoch/follow.h"

#define FILES 4001

struct fixture {
    struct fb_names *names;
    struct fb_follow *follow;
};

static int setup(void **state)
{
    struct fixture *f = fb_alloc(sizeof *f);
    char name[16];

    assert_non_null(f);
    f->names = fb_names_new();
    assert_non_null(f->names);
    for (uint32_t i = 0; i < FILES; i++) {
        int len = snprintf(name, sizeof name, "%u", i);

        assert_int_equal(fb_names_add(f->names, name, (size_t)len, FB_NAMES_NO_SIZE), 0);
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    fb_follow_free(f->follow);
    fb_names_free(f->names);
    free(f);
    return 0;
}

static struct fb_plan *make_plan(const struct fixture *f, uint32_t batch, uint32_t workers)
{
    struct fb_plan_spec spec = {
        .shuffle = {.sampler = fb_sampler_find("torch-distributed"), .seed = 3},
        .split = {.world = 2, .rank = 1, .batch = batch, .workers = workers},
    };
    struct fb_error err = {""};
    struct fb_plan *plan;

    assert_int_equal(fb_plan_new(&spec, f->names, &plan, &err), 0);
    return plan;
}

static void begin(struct fixture *f, uint32_t batch, uint32_t workers)
{
    assert_int_equal(fb_follow_new(make_plan(f, batch, workers), &f->follow), 0);
}

static struct fb_follow_stats stats_of(const struct fixture *f)
{
    struct fb_follow_stats stats;

    fb_follow_stats(f->follow, &stats);
    return stats;
}

/* The order in which `workers` that keep pace read an epoch. */
static uint32_t *lockstep(const struct fb_plan *plan, const struct fb_epoch *e, uint64_t *ret_count)
{
    const struct fb_split *split = fb_plan_split(plan);
    uint64_t samples = fb_split_samples(split), workers = split->workers ? split->workers : 1, k;
    uint32_t *files = fb_alloc_array(samples, sizeof *files);

    assert_non_null(files);
    *ret_count = 0;
    for (uint64_t j = 0; *ret_count < samples; j++) {
        for (uint32_t w = 0; w < workers; w++) {
            if (fb_split_worker_sample(split, w, j, &k))
                files[(*ret_count)++] = fb_plan_file(plan, e, k);
        }
    }
    return files;
}

/* What next() hands out is what workers that keep pace read, epoch after epoch. */
static void test_in_order(void **state)
{
    static const struct {
        uint32_t batch, workers;
    } loaders[] = {{1, 0}, {16, 1}, {16, 4}, {100, 16}, {1000000000, 64}};
    struct fixture *f = *state;

    for (size_t l = 0; l < FB_ARRAY_SIZE(loaders); l++) {
        struct fb_plan *truth = make_plan(f, loaders[l].batch, loaders[l].workers);

        begin(f, loaders[l].batch, loaders[l].workers);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            uint64_t count;
            FB_AUTO_FREE uint32_t *files = lockstep(truth, fb_plan_current(truth), &count);
            uint32_t brought;

            for (uint64_t i = 0; i < count; i++) {
                int fate;

                assert_true(fb_follow_next(f->follow, &brought));
                assert_int_equal(brought, files[i]);
                fate = fb_follow_access(f->follow, files[i]);
                assert_int_equal(fate, epoch > 0 && i == 0 ? FB_FOLLOW_EPOCH : FB_FOLLOW_READ);
                if (i + 1 < count)
                    assert_int_equal(fb_follow_access(f->follow, files[i]), FB_FOLLOW_AGAIN);
            }
            assert_int_equal(stats_of(f).epoch, epoch);
            assert_int_equal(stats_of(f).read, count);
            assert_int_equal(stats_of(f).unread, 0);
            assert_true(stats_of(f).turns < 4 * count);
            assert_int_equal(fb_plan_advance(truth), 0);
        }
        fb_plan_free(truth);
        fb_follow_free(fb_steal(f->follow));
    }
}

/* Workers drift, a tenth of the accesses is never seen: the epochs are followed all the same, and
 * what is skipped is given up. */
static void test_drift_and_loss(void **state)
{
    struct fixture *f = *state;
    struct fb_plan *truth = make_plan(f, 32, 4);
    struct fb_rand r = {.state = 1};
    uint64_t strange = 0, given_up = 0, lost = 0;
    uint32_t ignored;

    begin(f, 32, 4);
    for (uint64_t epoch = 0; epoch < 4; epoch++) {
        const struct fb_split *split = fb_plan_split(truth);
        uint64_t j[4] = {0}, k, left = fb_split_samples(split);

        while (left > 0) {
            uint32_t w = (uint32_t)(fb_rand_u64(&r) % 4);
            bool behind = true;

            for (uint32_t other = 0; other < 4; other++)
                behind = behind && (j[w] <= j[other] + 16 ||
                                    !fb_split_worker_sample(split, other, j[other], &k));
            if (!behind || !fb_split_worker_sample(split, w, j[w], &k))
                continue;
            j[w]++;
            left--;
            if (fb_rand_u64(&r) % 10 == 0) {
                lost++;
                continue;
            }
            strange += fb_follow_access(f->follow, fb_plan_file(truth, fb_plan_current(truth),
                                                                k)) == FB_FOLLOW_STRANGE;
            while (stats_of(f).unread < 64 && fb_follow_next(f->follow, &ignored))
                ;
            while (fb_follow_given_up(f->follow, &ignored))
                given_up++;
            assert_true(stats_of(f).unread <= 64 + 2 * 4 * 32);
        }
        assert_int_equal(stats_of(f).epoch, epoch);
        assert_int_equal(fb_plan_advance(truth), 0);
    }
    assert_true(strange <= 4 * FB_FOLLOW_SURE);
    assert_in_range(given_up, lost / 2, lost);
    fb_plan_free(truth);
}

/* A loader hands out two batches a worker, so a quick one runs ahead and then waits: what others
 * read meanwhile hits upon the first of a short next epoch, which has not begun for that. */
static void test_running_ahead(void **state)
{
    enum {
        WORKERS = 4,
        BATCH = 32
    };
    struct fixture *f = *state;
    struct fb_plan *truth = make_plan(f, BATCH, WORKERS);
    const struct fb_split *split = fb_plan_split(truth);
    uint64_t samples = fb_split_samples(split), k;
    struct fb_rand r = {.state = 2};

    begin(f, BATCH, WORKERS);
    for (uint64_t epoch = 0; epoch < 100; epoch++) {
        uint64_t j[WORKERS] = {0}, left = samples;

        while (left > 0) {
            uint32_t w = (uint32_t)(fb_rand_u64(&r) % WORKERS);
            uint64_t oldest = UINT64_MAX;

            for (uint32_t other = 0; other < WORKERS; other++) {
                if (fb_split_worker_sample(split, other, j[other], &k))
                    oldest = fb_min_u64(oldest, k / BATCH);
            }
            while (fb_split_worker_sample(split, w, j[w], &k) && k / BATCH < oldest + 2 * WORKERS &&
                   fb_rand_u64(&r) % 200 != 0) {
                int fate =
                    fb_follow_access(f->follow, fb_plan_file(truth, fb_plan_current(truth), k));

                assert_true(fate != FB_FOLLOW_EPOCH || left + FB_FOLLOW_SURE * 8 > samples);
                j[w]++;
                left--;
            }
        }
        assert_int_equal(stats_of(f).epoch, epoch);
        assert_int_equal(fb_plan_advance(truth), 0);
    }
    fb_plan_free(truth);
}

/* Somebody resumes in the middle of an epoch: after a few accesses the plan is there, too. */
static void test_leap(void **state)
{
    struct fixture *f = *state;
    struct fb_plan *truth = make_plan(f, 8, 1);
    uint32_t file;

    begin(f, 8, 1);
    for (uint64_t k = 1000; k < 1000 + FB_FOLLOW_SURE - 1; k++)
        assert_int_equal(
            fb_follow_access(f->follow, fb_plan_file(truth, fb_plan_current(truth), k)),
            FB_FOLLOW_STRANGE);
    assert_int_equal(fb_follow_access(f->follow, fb_plan_file(truth, fb_plan_current(truth),
                                                              1000 + FB_FOLLOW_SURE - 1)),
                     FB_FOLLOW_READ);
    assert_true(fb_follow_next(f->follow, &file));
    assert_int_equal(file, fb_plan_file(truth, fb_plan_current(truth), 1000 + FB_FOLLOW_SURE));
    assert_true(stats_of(f).unread <= 64);
    fb_plan_free(truth);
}

/* An epoch that is broken off: the next one is recognised by its first accesses. What another rank
 * reads is no such sign. */
static void test_broken_off(void **state)
{
    struct fixture *f = *state;
    struct fb_plan *truth = make_plan(f, 8, 0);
    uint64_t k;
    int fate = FB_FOLLOW_STRANGE;

    begin(f, 8, 0);
    for (k = 0; k < 500; k++) {
        uint32_t others = fb_plan_current(truth)->order[2 * k]; /* rank 0 */

        assert_int_equal(
            fb_follow_access(f->follow, fb_plan_file(truth, fb_plan_current(truth), k)),
            FB_FOLLOW_READ);
        assert_int_not_equal(fb_follow_access(f->follow, others), FB_FOLLOW_EPOCH);
    }
    assert_int_equal(stats_of(f).epoch, 0);
    for (k = 0; k < 16 && fate != FB_FOLLOW_EPOCH; k++)
        fate = fb_follow_access(f->follow, fb_plan_file(truth, fb_plan_next(truth), k));
    assert_int_equal(fate, FB_FOLLOW_EPOCH);
    assert_int_equal(stats_of(f).epoch, 1);
    fb_plan_free(truth);
}

/* A job begins anew: what it reads was read before, or given up. */
static void test_anew(void **state)
{
    struct fixture *f = *state;
    struct fb_plan *truth = make_plan(f, 8, 0);

    begin(f, 8, 0);
    for (uint64_t k = 500; k < 1000; k++)
        assert_int_equal(
            fb_follow_access(f->follow, fb_plan_file(truth, fb_plan_current(truth), k)),
            k < 500 + FB_FOLLOW_SURE - 1 ? FB_FOLLOW_STRANGE : FB_FOLLOW_READ);
    for (uint64_t k = 0; k < 100; k++) {
        assert_int_equal(
            fb_follow_access(f->follow, fb_plan_file(truth, fb_plan_current(truth), k)),
            FB_FOLLOW_LATE);
        assert_int_equal(
            fb_follow_access(f->follow, fb_plan_file(truth, fb_plan_current(truth), 600 + k)),
            FB_FOLLOW_BACK);
    }
    assert_int_equal(stats_of(f).epoch, 0);
    fb_plan_free(truth);
}

/* Near the end of an epoch what is handed out is of the next one, and known as wanted. */
static void test_over_the_end(void **state)
{
    struct fixture *f = *state;
    struct fb_plan *truth = make_plan(f, 8, 0);
    uint64_t samples = fb_split_samples(fb_plan_split(truth));
    uint32_t file;

    begin(f, 8, 0);
    for (uint64_t k = 0; k < samples; k++)
        assert_true(fb_follow_next(f->follow, &file));
    for (uint64_t k = 0; k < 10; k++) {
        uint32_t next = fb_plan_file(truth, fb_plan_next(truth), k);

        assert_false(fb_follow_is_wanted(f->follow, next));
        assert_true(fb_follow_next(f->follow, &file));
        assert_int_equal(file, next);
        assert_true(fb_follow_is_wanted(f->follow, next));
    }
    fb_plan_free(truth);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drift_and_loss, setup, teardown),
        cmocka_unit_test_setup_teardown(test_running_ahead, setup, teardown),
        cmocka_unit_test_setup_teardown(test_leap, setup, teardown),
        cmocka_unit_test_setup_teardown(test_broken_off, setup, teardown),
        cmocka_unit_test_setup_teardown(test_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(test_over_the_end, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
