/*
 * Paths made absolute and clean: what is worked out eight bytes at a time, and what name by name,
 * against names in a list.
 */
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/rand.h"
#include "client/client.h"

#define ROUNDS   100000
#define PATH_LEN 40

/* As fb_client_append(), by the book. */
static bool append(char to[FB_CLIENT_FILE_PATH], const char *path)
{
    char names[FB_CLIENT_FILE_PATH], *rest = names, *name;
    size_t len = strlen(path);
    bool named = false;

    if (strcmp(to, "/") == 0)
        to[0] = '\0';
    if (len > 0 && path[len - 1] == '/')
        return false;
    memcpy(names, path, len + 1);
    while ((name = strsep(&rest, "/"))) {
        if (!rest && named && strcmp(name, ".") == 0)
            return false;
        if (name[0] == '\0' || strcmp(name, ".") == 0)
            continue;
        if (strcmp(name, "..") == 0) {
            char *last = strrchr(to, '/');

            if (named)
                return false;
            if (last)
                *last = '\0';
            continue;
        }
        named = true;
        len = strlen(to);
        snprintf(to + len, FB_CLIENT_FILE_PATH - len, "/%s", name);
    }
    return to[0] != '\0';
}

static void test_like_a_list(void **state)
{
    static const char *const dirs[] = {"", "/", "/x", "/some/where"};
    static const char letters[] = "abcdefghi.//";
    struct fb_rand r = {.state = 7};
    int good = 0;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        char ours[FB_CLIENT_FILE_PATH], theirs[FB_CLIENT_FILE_PATH], path[PATH_LEN + 1];
        size_t len = (size_t)fb_rand_below(&r, PATH_LEN + 1);
        const char *dir = dirs[fb_rand_below(&r, FB_ARRAY_SIZE(dirs))];
        bool is;

        for (size_t i = 0; i < len; i++)
            path[i] = letters[fb_rand_below(&r, sizeof letters - 1)];
        path[len] = '\0';
        snprintf(ours, sizeof ours, "%s", dir);
        snprintf(theirs, sizeof theirs, "%s", dir);
        is = append(theirs, path);
        if (fb_client_append(ours, path) != is || (is && strcmp(ours, theirs) != 0))
            fail_msg("\"%s\" after \"%s\": \"%s\", not \"%s\"", path, dir, ours, theirs);
        good += is;
    }
    assert_in_range(good, ROUNDS / 4, ROUNDS - 1);
}

/* However it is worked out, the longest path is as long. */
static void test_longest(void **state)
{
    for (size_t len = FB_CLIENT_FILE_PATH - 12; len < FB_CLIENT_FILE_PATH + 12; len++) {
        char plain[2 * FB_CLIENT_FILE_PATH], odd[2 * FB_CLIENT_FILE_PATH + 2];
        char to[FB_CLIENT_FILE_PATH] = "", other[FB_CLIENT_FILE_PATH] = "";
        bool fits = len < FB_CLIENT_FILE_PATH - 1;

        (void)state;
        memset(plain, 'n', len);
        plain[0] = '/';
        plain[len] = '\0';
        snprintf(odd, sizeof odd, "/.%s", plain);
        assert_int_equal(fb_client_append(to, plain), fits);
        assert_int_equal(fb_client_append(other, odd), fits);
        if (fits)
            assert_string_equal(to, plain);
        if (fits)
            assert_string_equal(other, plain);
    }
}

static void test_clean(void **state)
{
    static const char plain[] = "/data/class01/sample.bin";
    char room[FB_CLIENT_FILE_PATH], want[2 * FB_CLIENT_FILE_PATH], cwd[FB_CLIENT_FILE_PATH];

    (void)state;
    assert_ptr_equal(fb_client_clean(plain, room), plain);
    assert_ptr_equal(fb_client_clean("/data//class01/./sample.bin", room), room);
    assert_string_equal(room, plain);
    assert_ptr_equal(fb_client_clean("/data/.hidden/sample.bin", room), room);
    assert_string_equal(room, "/data/.hidden/sample.bin");
    assert_null(fb_client_clean("/data/class01/../sample.bin", room));
    assert_null(fb_client_clean("/data/class01/", room));
    assert_null(fb_client_clean("/data/class01/.", room));
    assert_null(fb_client_clean("/", room));
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(want, sizeof want, "%s/%s", strcmp(cwd, "/") == 0 ? "" : cwd, "class01/sample.bin");
    assert_ptr_equal(fb_client_clean("class01/sample.bin", room), room);
    assert_string_equal(room, want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_like_a_list),
        cmocka_unit_test(test_longest),
        cmocka_unit_test(test_clean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
