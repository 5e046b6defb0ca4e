#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "core/test_dir.h"
#include "store/disk.h"
#include "store/evictions.h"

struct fixture {
    struct fb_test_dir dir;
    int fd;
    struct fb_evictions *e;
};

static int setup(void **state)
{
    static struct fixture f;

    fb_test_dir_make(&f.dir);
    f.fd = open(f.dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(f.fd >= 0);
    assert_int_equal(fb_evictions_open(f.fd, &f.e), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    fb_evictions_close(f->e);
    close(f->fd);
    fb_test_dir_remove(&f->dir);
    return 0;
}

static void reopen(struct fixture *f)
{
    fb_evictions_close(f->e);
    assert_int_equal(fb_evictions_open(f->fd, &f->e), 0);
}

static void hides_what_was_there(void **state)
{
    struct fixture *f = *state;

    assert_false(fb_evictions_hide(f->e, 1, 0, "a"));
    assert_int_equal(fb_evictions_add(f->e, 10, 3, "a/b"), 0);
    reopen(f);
    assert_true(fb_evictions_hide(f->e, 10, 3, "a/b"));
    assert_true(fb_evictions_hide(f->e, 2, 3, "a/b/c"));
    assert_false(fb_evictions_hide(f->e, 11, 3, "a/b"));
    assert_false(fb_evictions_hide(f->e, 10, 3, "a/bc"));
    assert_false(fb_evictions_hide(f->e, 10, 3, "a"));
    assert_false(fb_evictions_hide(f->e, 10, 4, "a/b"));
    assert_int_equal(fb_evictions_sequence(f->e), 10);
    assert_int_equal(fb_evictions_add(f->e, 12, 3, ""), 0);
    assert_true(fb_evictions_hide(f->e, 12, 3, "z"));
    assert_int_equal(fb_evictions_trim(f->e, 13, 20), 0);
    reopen(f);
    assert_false(fb_evictions_hide(f->e, 12, 3, "z"));
}

/* Too many notes: more is hidden than was asked for, never less. */
static void overflows_to_the_safe_side(void **state)
{
    struct fixture *f = *state;
    char path[32];

    for (unsigned i = 0; i < 3 * FB_EVICTIONS_MAX; i++) {
        snprintf(path, sizeof path, "p%u", i);
        assert_int_equal(fb_evictions_add(f->e, i, 1, path), 0);
    }
    reopen(f);
    for (unsigned i = 0; i < 3 * FB_EVICTIONS_MAX; i++) {
        snprintf(path, sizeof path, "p%u", i);
        assert_true(fb_evictions_hide(f->e, i, 1, path));
    }
}

static void damage_hides_everything(void **state)
{
    struct fixture *f = *state;
    char byte;
    int fd;

    assert_int_equal(fb_evictions_add(f->e, 10, 3, "some/path"), 0);
    fd = openat(f->fd, "evictions", O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    for (off_t at = 0; pread(fd, &byte, 1, at) == 1; at++) {
        char bad = (char)(byte ^ 4);

        assert_int_equal(pwrite(fd, &bad, 1, at), 1);
        reopen(f);
        assert_true(fb_evictions_hide(f->e, 1, 9, "other"));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    assert_int_equal(ftruncate(fd, 20), 0);
    reopen(f);
    assert_true(fb_evictions_hide(f->e, 1, 9, "other"));
    assert_int_equal(fb_evictions_trim(f->e, 11, 20), 0);
    reopen(f);
    assert_true(fb_evictions_hide(f->e, 20, 9, "other"));
    assert_false(fb_evictions_hide(f->e, 21, 9, "other"));
    assert_int_equal(fb_evictions_trim(f->e, 21, 25), 0);
    reopen(f);
    assert_false(fb_evictions_hide(f->e, 1, 9, "other"));
    close(fd);
}

/* The file of one note (magic, count, note, path, sum), with bytes of it replaced and a sum that is
 * right again. */
static void forge(struct fixture *f, off_t at, const void *bytes, size_t count)
{
    int fd = openat(f->fd, "evictions", O_RDWR | O_CLOEXEC);
    char file[256];
    ssize_t size;
    uint64_t sum;

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, count, at), (ssize_t)count);
    size = pread(fd, file, sizeof file, 0);
    assert_true(size > (ssize_t)sizeof sum && size < (ssize_t)sizeof file);
    size -= (ssize_t)sizeof sum;
    sum = fb_hash64(file, (size_t)size);
    assert_int_equal(pwrite(fd, &sum, sizeof sum, size), (ssize_t)sizeof sum);
    close(fd);
    reopen(f);
}

/* Well-formed, and not written by us: as damaged as any. */
static void forged_notes(void **state)
{
    const uint64_t most = FB_DISK_SEQUENCE_MAX, more = most + 1;
    struct fixture *f = *state;

    assert_int_equal(fb_evictions_add(f->e, 10, 3, "a/b"), 0);
    forge(f, 2 * sizeof(uint64_t), &most, sizeof most);
    assert_false(fb_evictions_hide(f->e, 1, 9, "other"));
    assert_int_equal(fb_evictions_sequence(f->e), most);
    forge(f, 2 * sizeof(uint64_t), &more, sizeof more);
    assert_true(fb_evictions_hide(f->e, 1, 9, "other"));
    assert_int_equal(fb_evictions_sequence(f->e), 0);
    forge(f, 2 * sizeof(uint64_t), &most, sizeof most);
    assert_false(fb_evictions_hide(f->e, 1, 9, "other"));
    forge(f, 4 * sizeof(uint64_t) + 1, "", 1);
    assert_true(fb_evictions_hide(f->e, 1, 9, "other"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(hides_what_was_there, setup, teardown),
        cmocka_unit_test_setup_teardown(overflows_to_the_safe_side, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_hides_everything, setup, teardown),
        cmocka_unit_test_setup_teardown(forged_notes, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
