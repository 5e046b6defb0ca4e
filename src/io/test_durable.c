#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/mem.h"
#include "core/test_dir.h"
#include "io/durable.h"

struct place {
    struct fb_test_dir dir;
    int fd;
};

static int set_up(void **state)
{
    struct place *p = fb_alloc(sizeof *p);

    assert_non_null(p);
    fb_test_dir_make(&p->dir);
    p->fd = open(p->dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(p->fd >= 0);
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;

    close(p->fd);
    fb_test_dir_remove(&p->dir);
    free(p);
    return 0;
}

static void assert_content(const struct place *p, const char *name, const char *text)
{
    FB_AUTO_FREE char *data = NULL;
    size_t size = 0;

    assert_int_equal(fb_durable_read(p->fd, name, 1 << 20, &data, &size), 0);
    assert_int_equal(size, strlen(text));
    assert_string_equal(data, text);
}

static void test_new_replaces_old(void **state)
{
    struct place *p = *state;
    struct stat st;

    assert_int_equal(fb_durable_write(p->fd, "f", "old and longer", 14), 0);
    assert_content(p, "f", "old and longer");
    assert_int_equal(fb_durable_write(p->fd, "f", "new", 3), 0);
    assert_content(p, "f", "new");
    assert_int_equal(fb_durable_write(p->fd, "f", "", 0), 0);
    assert_content(p, "f", "");
    assert_int_equal(fstatat(p->fd, "f", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(faccessat(p->fd, "f.tmp", F_OK, 0), -1);
}

static void test_leftover_is_not_followed(void **state)
{
    struct place *p = *state;

    assert_int_equal(fb_durable_write(p->fd, "victim", "precious", 8), 0);
    assert_int_equal(symlinkat("victim", p->fd, "f.tmp"), 0);
    assert_int_equal(fb_durable_write(p->fd, "f", "x", 1), 0);
    assert_content(p, "victim", "precious");
    assert_content(p, "f", "x");
}

static void test_failure_keeps_old(void **state)
{
    struct place *p = *state;
    char name[256];

    memset(name, 'n', 255);
    name[255] = '\0';
    assert_int_equal(fb_durable_write(p->fd, name, "x", 1), -ENAMETOOLONG);
    /* A directory can be neither unlinked nor replaced by a file. */
    assert_int_equal(mkdirat(p->fd, "d", 0700), 0);
    assert_true(fb_durable_write(p->fd, "d", "x", 1) < 0);
    assert_int_equal(faccessat(p->fd, "d.tmp", F_OK, 0), -1);
}

static void test_refuses_to_read(void **state)
{
    struct place *p = *state;
    char *data = NULL;
    size_t size;

    assert_int_equal(fb_durable_read(p->fd, "none", 10, &data, &size), -ENOENT);
    assert_int_equal(fb_durable_write(p->fd, "f", "0123456789a", 11), 0);
    assert_int_equal(fb_durable_read(p->fd, "f", 10, &data, &size), -EFBIG);
    assert_int_equal(fb_durable_read(p->fd, ".", 10, &data, &size), -EINVAL);
    assert_int_equal(mkfifoat(p->fd, "fifo", 0600), 0);
    assert_int_equal(fb_durable_read(p->fd, "fifo", 10, &data, &size), -EINVAL);
    assert_int_equal(symlinkat("f", p->fd, "link"), 0);
    assert_int_equal(fb_durable_read(p->fd, "link", 100, &data, &size), -ELOOP);
    assert_null(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_new_replaces_old, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_leftover_is_not_followed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failure_keeps_old, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refuses_to_read, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
