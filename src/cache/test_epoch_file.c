/*
 * Plans from before a restart: one goes on where it was, a damaged one is dropped, and what a file
 * says is held to what a user may say.
 */
#include <errno.h>

#include "cache/epoch_file.h"
#include "cache/test_epochs.h"

static void goes_on_after_restart(void **state)
{
    struct fixture *f = *state;
    struct fb_names *names = make_names();
    struct fb_plan *truth = make_truth(names);
    struct fb_error err = {""};

    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    read_some(f, truth, 0, FILES);
    assert_int_equal(fb_plan_advance(truth), 0);
    read_some(f, truth, 0, 100);
    wait_metric(f, FB_CM_PLAN_READS, FILES + 100 - FB_FOLLOW_SURE);
    close_cache(f);
    open_cache(f);
    /* It knows the epoch; the place in it shows in the first accesses. */
    wait_ready(f, 1, 0, 32);
    read_some(f, truth, 100, 400);
    wait_metric(f, FB_CM_PLAN_READS, 300 - FB_FOLLOW_SURE);
    fb_plan_free(truth);
    fb_names_free(names);
}

static void damaged_files(void **state)
{
    struct fixture *f = *state;
    struct fb_error err = {""};
    struct fb_saved_plan saved;
    int dir_fd = open(f->cache_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
    char byte;

    assert_true(dir_fd >= 0);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    assert_int_equal(fb_plan_load(dir_fd, 0, UINT64_MAX, &saved), 0);
    assert_int_equal(fb_names_count(saved.names), FILES);
    assert_string_equal(saved.dir, "set");
    fb_saved_plan_clear(&saved);
    for (off_t at = 3; at < 4000; at += 397) {
        fd = openat(dir_fd, "plan.0", O_RDWR | O_CLOEXEC);
        assert_true(fd >= 0);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x20;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        assert_int_equal(fb_plan_load(dir_fd, 0, UINT64_MAX, &saved), -EBADMSG);
        byte ^= 0x20;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
    }
    assert_int_equal(fb_plan_load(dir_fd, 0, UINT64_MAX, &saved), 0);
    fb_saved_plan_clear(&saved);
    close(dir_fd);
}

static void wait_for_plan(const struct fixture *f)
{
    int64_t until_ns = fb_now_ns() + WAIT_S * FB_NS_PER_S;
    struct fb_plan_view view = {0};

    while (!view.dir) {
        assert_true(fb_now_ns() < until_ns);
        fb_sleep_ns(FB_NS_PER_MS);
        fb_cache_plans(f->cache, note_view, &view);
    }
    assert_string_equal(view.dir, "set");
}

/* What a file says is held to what a user may say: one plan is too large, one is at an epoch that
 * nobody gets to. The third goes on. */
static void saved_plans_are_checked(void **state)
{
    struct fixture *f = *state;
    int dir_fd = open(f->cache_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct fb_names *many = many_names(), *few = make_names();
    struct fb_error err = {""};
    struct fb_saved_plan saved, plan;

    assert_true(dir_fd >= 0);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    close_cache(f);
    assert_int_equal(fb_plan_load(dir_fd, 0, 1000, &saved), -E2BIG);
    assert_int_equal(fb_plan_load(dir_fd, 0, 0, &saved), 0);
    plan = saved;
    plan.names = few;
    assert_int_equal(fb_plan_save(dir_fd, 2, &plan), 0);
    plan.dir = (char *)"all";
    plan.names = many;
    assert_int_equal(fb_plan_save(dir_fd, 0, &plan), 0);
    plan.dir = (char *)"far";
    plan.names = few;
    plan.order.spec.shuffle.sampler = fb_sampler_find("numpy");
    assert_int_equal(fb_plan_save(dir_fd, 1, &plan), 0);
    assert_int_equal(fb_plan_save_epoch(dir_fd, 1, UINT64_C(1) << 60), 0);
    open_cache(f);
    wait_for_plan(f); /* which is the last */
    assert_int_equal(fb_cache_unplan(f->volume, "all"), 0);
    assert_int_equal(fb_cache_unplan(f->volume, "far"), 0);
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
    /* With more memory the large one could go on; the other never. */
    assert_int_equal(faccessat(dir_fd, "plan.0", F_OK, 0), 0);
    assert_int_equal(faccessat(dir_fd, "plan.1", F_OK, 0), -1);
    fb_saved_plan_clear(&saved);
    fb_names_free(many);
    fb_names_free(few);
    close(dir_fd);
}

/* Somebody tells a plan while one from before the restart is being looked at, which takes as long
 * as a pipe has no writer: it stays, and so does its file. */
static void told_while_another_comes_back(void **state)
{
    struct fixture *f = *state;
    int dir_fd = open(f->cache_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), pipe_fd;
    int64_t until_ns = fb_now_ns() + WAIT_S * FB_NS_PER_S;
    struct fb_error err = {""};

    assert_true(dir_fd >= 0);
    close_cache(f);
    assert_int_equal(mkfifoat(dir_fd, "plan.0", 0600), 0);
    assert_int_equal(linkat(dir_fd, "plan.0", dir_fd, "pipe", 0), 0);
    open_cache(f);
    /* It can be opened without waiting once somebody reads. */
    while ((pipe_fd = openat(dir_fd, "pipe", O_WRONLY | O_NONBLOCK | O_CLOEXEC)) < 0) {
        assert_true(fb_now_ns() < until_ns);
        fb_sleep_ns(FB_NS_PER_MS);
    }
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    close(pipe_fd); /* nothing was in it: a damaged plan */
    while (faccessat(dir_fd, "plan.0", F_OK, 0) == 0) {
        assert_true(fb_now_ns() < until_ns);
        fb_sleep_ns(FB_NS_PER_MS);
    }
    wait_for_plan(f);
    assert_int_equal(faccessat(dir_fd, "plan.1", F_OK, 0), 0);
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
    close(dir_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(goes_on_after_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_files, setup, teardown),
        cmocka_unit_test_setup_teardown(saved_plans_are_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(told_while_another_comes_back, setup, teardown),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
