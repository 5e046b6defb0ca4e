/*
 * Who counts as a lone reader, who is parked and for how long; and which look-ups are worth reading
 * early.
 */
#include <cmocka.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/mem.h"
#include "doors/fuse/fuse_priv.h"

#define MANY 20000 /* requests after which a streak must have come, however busy the machine is */

static int setup(void **state)
{
    struct fb_mount *mount = fb_alloc(sizeof *mount);

    assert_non_null(mount);
    fb_lone_init(mount, 2);
    fb_crowd_init(mount);
    mount->lone.able = true;
    *state = mount;
    return 0;
}

static int teardown(void **state)
{
    struct fb_mount *mount = *state;

    fb_crowd_destroy(mount);
    fb_lone_destroy(mount);
    free(mount);
    return 0;
}

static void request(struct fb_mount *mount, uint32_t opcode, uint32_t pid)
{
    struct fuse_in_header in = {.len = sizeof in, .opcode = opcode, .pid = pid};
    struct fuse_buf buf = {.mem = &in, .size = sizeof in};

    fb_lone_request(mount, &buf);
    fb_lone_answered(mount);
}

static void turn_on(struct fb_mount *mount)
{
    for (int i = 0; i < MANY && !fb_lone_is_on(mount); i++)
        request(mount, FUSE_READ, 7);
    assert_true(fb_lone_is_on(mount));
}

static void one_task_turns_it_on(void **state)
{
    struct fb_mount *mount = *state;

    for (int i = 0; i < 20; i++)
        request(mount, FUSE_READ, 7);
    assert_false(fb_lone_is_on(mount));
    turn_on(mount);
    /* What the kernel forgets or releases is nobody's request. */
    request(mount, FUSE_RELEASE, 0);
    request(mount, FUSE_RELEASEDIR, 0);
    request(mount, FUSE_BATCH_FORGET, 0);
    request(mount, FUSE_FORGET, 0);
    request(mount, FUSE_INTERRUPT, 0);
    assert_true(fb_lone_is_on(mount));
    request(mount, FUSE_LOOKUP, 8);
    assert_false(fb_lone_is_on(mount));
}

/* In close-to-open each file is released. */
static void files_that_are_released_do_too(void **state)
{
    struct fb_mount *mount = *state;

    for (int i = 0; i < MANY && !fb_lone_is_on(mount); i++) {
        request(mount, FUSE_OPEN, 7);
        request(mount, FUSE_RELEASE, 0);
    }
    assert_true(fb_lone_is_on(mount));
}

static void two_tasks_do_not(void **state)
{
    struct fb_mount *mount = *state;

    for (uint32_t i = 0; i < MANY; i++)
        request(mount, FUSE_READ, 7 + i % 2);
    assert_false(fb_lone_is_on(mount));
}

static void nor_two_requests(void **state)
{
    struct fb_mount *mount = *state;

    turn_on(mount);
    fb_request_begin(mount);
    request(mount, FUSE_READ, 7);
    assert_false(fb_lone_is_on(mount));
    for (int i = 0; i < MANY; i++)
        request(mount, FUSE_READ, 7);
    assert_false(fb_lone_is_on(mount));
    fb_request_end(mount);
}

static void nor_slow_ones(void **state)
{
    struct fb_mount *mount = *state;

    for (int i = 0; i < 100; i++) {
        request(mount, FUSE_READ, 7);
        fb_sleep_ns(FB_NS_PER_MS);
    }
    assert_false(fb_lone_is_on(mount));
}

static void *wait_for_turn(void *arg)
{
    fb_lone_wait(arg);
    return NULL;
}

static unsigned parked(struct fb_mount *mount)
{
    unsigned count;

    fb_mutex_lock(&mount->lone.lock);
    count = mount->lone.parked;
    fb_mutex_unlock(&mount->lone.lock);
    return count;
}

/* One parks, the last does not; nobody for long once no request comes. */
static void the_last_one_serves(void **state)
{
    struct fb_mount *mount = *state;
    pthread_t thread;

    turn_on(mount);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_turn, mount), 0);
    while (fb_lone_is_on(mount) && parked(mount) == 0)
        request(mount, FUSE_READ, 7);
    if (fb_lone_is_on(mount)) {
        mount->lone.skip = 1; /* there is no session to poll */
        fb_lone_wait(mount);
    }
    pthread_join(thread, NULL);
    assert_false(fb_lone_is_on(mount));
    assert_int_equal(parked(mount), 0);
    fb_lone_wait(mount);
}

static void closing_lets_all_go(void **state)
{
    struct fb_mount *mount = *state;
    pthread_t threads[5];

    mount->lone.threads = 6;
    turn_on(mount);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_turn, mount), 0);
    for (int i = 0; i < 1000; i++)
        request(mount, FUSE_READ, 7);
    fb_lone_close(mount);
    for (unsigned i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(parked(mount), 0);
    for (int i = 0; i < MANY; i++)
        request(mount, FUSE_READ, 7);
    assert_false(fb_lone_is_on(mount));
}

/* Look-ups that no read follows never pay. */
static void look_ups_score(void **state)
{
    struct fb_mount *mount = *state;
    struct fb_caller caller = {.pid = 7};
    struct fb_meanwhile nothing_else = {NULL};
    struct fb_wanted wanted = {.size = 100};
    struct fb_early_task *place = &mount->early.tasks[7];
    int best;

    for (uint32_t file = 1; file < 1000; file++)
        fb_early_lookup(mount, file, &caller, &nothing_else);
    assert_int_equal(place->score, 0);
    /* As far as the score at which a file would be read: there is no cache here. */
    for (uint32_t file = 1; file < 4; file++) {
        fb_early_lookup(mount, file, &caller, &nothing_else);
        assert_false(fb_early_read(mount, 7, file, &wanted));
        assert_false(fb_early_read(mount, 7, file, &wanted));
    }
    best = place->score;
    assert_in_range(best, 1, 100);
    /* Others' reads neither score nor cost anything. */
    for (uint32_t file = 1; file < 1000; file++)
        assert_false(fb_early_read(mount, 8, file, &wanted));
    assert_int_equal(place->score, best);
    /* Each of these is one too many: few are needed. */
    for (uint32_t file = 1; file < 4; file++)
        fb_early_lookup(mount, file, &caller, &nothing_else);
    assert_int_equal(place->score, 0);
    /* Who takes another's place begins with nothing. */
    place->score = best;
    place->last = FB_FILE_NONE;
    caller.pid = 7 + FB_EARLY_TASKS;
    fb_early_lookup(mount, 1, &caller, &nothing_else);
    assert_int_equal(place->score, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_task_turns_it_on, setup, teardown),
        cmocka_unit_test_setup_teardown(files_that_are_released_do_too, setup, teardown),
        cmocka_unit_test_setup_teardown(two_tasks_do_not, setup, teardown),
        cmocka_unit_test_setup_teardown(nor_two_requests, setup, teardown),
        cmocka_unit_test_setup_teardown(nor_slow_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(the_last_one_serves, setup, teardown),
        cmocka_unit_test_setup_teardown(closing_lets_all_go, setup, teardown),
        cmocka_unit_test_setup_teardown(look_ups_score, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
