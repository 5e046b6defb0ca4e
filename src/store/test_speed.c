/*
 * The disk is measured once, and remembered until the note is damaged.
 */
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/test_dir.h"
#include "store/speed.h"

#define BYTES (16ULL << 20)

static void measured_once(void **state)
{
    struct fb_test_dir dir;
    struct fb_engine *engine;
    struct fb_disk_speed first, second;
    char path[PATH_MAX + 16];
    int fd, rc;

    (void)state;
    fb_test_dir_make(&dir);
    assert_int_equal(fb_engine_create(FB_ENGINE_AUTO, 0, 64, 1, &engine), 0);
    /* No room but what has to stay free: nothing is written, nothing remembered. */
    rc = fb_disk_speed(engine, dir.path, BYTES, 1, &first);
    assert_true(rc == -ENOSPC || rc == -EINVAL);
    assert_int_equal(first.sequential, 0);
    rc = fb_disk_speed(engine, dir.path, BYTES, 0, &first);
    if (rc == -EINVAL) { /* no O_DIRECT here */
        assert_int_equal(first.sequential, 0);
        goto out;
    }
    assert_int_equal(rc, 0);
    assert_true(first.sequential > 0 && first.random > 0);
    assert_int_equal(fb_disk_speed(engine, dir.path, BYTES, 0, &second), 0);
    assert_memory_equal(&first, &second, sizeof first);

    snprintf(path, sizeof path, "%s/speed.tmp", dir.path);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/speed", dir.path);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "damage", 6, 8), 6);
    close(fd);
    assert_int_equal(fb_disk_speed(engine, dir.path, BYTES, 0, &second), 0);
    assert_true(second.measured_wall_ns > first.measured_wall_ns);
out:
    fb_engine_destroy(engine);
    fb_test_dir_remove(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(measured_once)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
