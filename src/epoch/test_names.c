#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/rand.h"
#include "epoch/names.h"

#define FILES 5000
#define DIRS  40

/* The path of a file: in runs of a directory, or in a new one each time. */
static void path_of(uint32_t i, bool shuffled, char path[64])
{
    uint32_t dir = (shuffled ? (uint32_t)fb_rand_u64(&(struct fb_rand){i}) : i / 100) % DIRS;

    if (dir == 0)
        snprintf(path, 64, "f%u", i);
    else
        snprintf(path, 64, "d%u/e/f%u.jpg", dir, i);
}

static void fill_and_check(bool shuffled, uint64_t size)
{
    struct fb_names *n = fb_names_new();
    char expected[64];
    char path[FB_NAMES_PATH_SIZE];

    assert_non_null(n);
    for (uint32_t i = 0; i < FILES; i++) {
        path_of(i, shuffled, path);
        assert_int_equal(
            fb_names_add_path(n, path, strlen(path), size ? size + i : FB_NAMES_NO_SIZE), 0);
    }
    assert_int_equal(fb_names_index(n), 0);
    assert_int_equal(fb_names_count(n), FILES);
    assert_int_equal(fb_names_have_sizes(n), size != 0);
    for (uint32_t i = 0; i < FILES; i++) {
        uint32_t file;

        path_of(i, shuffled, expected);
        assert_int_equal(fb_names_path(n, i, path), strlen(expected));
        assert_string_equal(path, expected);
        assert_true(fb_names_size(n, i) == (size ? size + i : 0));
        assert_true(fb_names_find(n, expected, strlen(expected), &file));
        assert_int_equal(file, i);
        expected[0] = 'x';
        assert_false(fb_names_find(n, expected, strlen(expected), &file));
    }
    fb_names_free(n);
}

static void test_round_trip(void **state)
{
    (void)state;
    fill_and_check(false, 0);
    fill_and_check(true, 0);
    fill_and_check(false, 100);
    fill_and_check(true, UINT64_C(0xffffffff) - FILES / 2); /* some do not fit into 32 bits */
    fill_and_check(false, UINT64_C(1) << 40);
}

static void test_memory(void **state)
{
    struct fb_names *n = fb_names_new();
    char name[32];

    (void)state;
    assert_non_null(n);
    for (uint32_t dir = 0; dir < 100; dir++) {
        assert_int_equal(fb_names_enter(n, "n01440764", 9), 0);
        for (uint32_t i = 0; i < 1000; i++) {
            int len = snprintf(name, sizeof name, "n01440764_%04u.JPEG", i);

            assert_int_equal(fb_names_add(n, name, (size_t)len, 100), 0);
        }
    }
    assert_int_equal(fb_names_index(n), 0);
    /* The name and its NUL, an offset, a size, a slot and a half. */
    assert_true(fb_names_memory(n) < 100000 * (20 + 4 + 4 + 6) + 10000);
    fb_names_free(n);
}

static void test_twice_and_none(void **state)
{
    struct fb_names *n = fb_names_new();
    char long_name[FB_NAMES_PATH_SIZE];
    uint32_t file;

    (void)state;
    assert_non_null(n);
    assert_int_equal(fb_names_index(n), 0);
    assert_false(fb_names_find(n, "a", 1, &file));
    assert_int_equal(fb_names_add_path(n, "b/a", 3, 1), 0);
    assert_int_equal(fb_names_add_path(n, "a", 1, 1), 0);
    assert_int_equal(fb_names_add_path(n, "b/a", 3, 1), 0);
    memset(long_name, 'a', sizeof long_name);
    assert_int_equal(fb_names_add_path(n, long_name, sizeof long_name, 1), -ENAMETOOLONG);
    assert_int_equal(fb_names_index(n), 0);
    assert_true(fb_names_find(n, "b/a", 3, &file));
    assert_int_equal(file, 0);
    assert_true(fb_names_find(n, "a", 1, &file));
    assert_int_equal(file, 1);
    fb_names_free(n);
    fb_names_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_twice_and_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
