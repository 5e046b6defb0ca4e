#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "core/mem.h"
#include "core/test_dir.h"
#include "daemon/mounts.h"
#include "daemon/paths.h"
#include "daemon/runtime.h"

static struct fb_test_dir dir;
static char top[PATH_MAX]; /* canonical */

static int setup(void **state)
{
    (void)state;
    fb_test_dir_make(&dir);
    assert_non_null(realpath(dir.path, top));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fb_test_dir_remove(&dir);
    return 0;
}

static void make(const char *name)
{
    assert_int_equal(fb_path_mkdirs(fb_test_dir_path(&dir, name), 0700), 0);
}

static void link_to(const char *target, const char *name)
{
    assert_int_equal(symlink(target, fb_test_dir_path(&dir, name)), 0);
}

/* `name` below the test's directory has the canonical path `expected`, seen from there. */
static void expect_canonical(const char *name, const char *expected)
{
    FB_AUTO_FREE char *path = NULL;
    char full[2 * PATH_MAX];

    snprintf(full, sizeof full, "%s%s%s", top, *expected ? "/" : "", expected);
    assert_int_equal(fb_path_canonical(fb_test_dir_path(&dir, name), &path), 0);
    assert_string_equal(path, full);
}

static void test_absolute(void **state)
{
    FB_AUTO_FREE char *a = NULL;
    FB_AUTO_FREE char *b = NULL;
    FB_AUTO_FREE char *c = NULL;
    FB_AUTO_FREE char *cwd = getcwd(NULL, 0);
    FB_AUTO_FREE char *expected = fb_asprintf("%s/x/../y", cwd);
    char *none;

    (void)state;
    assert_int_equal(fb_path_absolute("/a//b///", &a), 0);
    assert_string_equal(a, "/a//b");
    assert_int_equal(fb_path_absolute("///", &b), 0);
    assert_string_equal(b, "/");
    assert_int_equal(fb_path_absolute("x/../y", &c), 0);
    assert_string_equal(c, expected);
    assert_int_equal(fb_path_absolute("", &none), -ENOENT);
}

static void test_canonical(void **state)
{
    (void)state;
    make("real/inner");
    link_to("real", "link");
    expect_canonical("", "");
    expect_canonical("link/inner/", "real/inner");
    expect_canonical("link/inner/..", "real");
    expect_canonical("link/new/deep", "real/new/deep");
    expect_canonical("link/new/../other/./x", "real/other/x");
}

static void test_canonical_of_root(void **state)
{
    FB_AUTO_FREE char *path = NULL;
    FB_AUTO_FREE char *up = NULL;

    (void)state;
    assert_int_equal(fb_path_canonical("/", &path), 0);
    assert_string_equal(path, "/");
    assert_int_equal(fb_path_canonical("/no-such-name/../..", &up), 0);
    assert_string_equal(up, "/");
}

static void test_canonical_parent_keeps_links(void **state)
{
    FB_AUTO_FREE char *path = NULL;
    FB_AUTO_FREE char *expected = fb_asprintf("%s/real/to", top);

    (void)state;
    make("real");
    link_to("real", "link");
    link_to("/etc", "real/to");
    assert_int_equal(fb_path_canonical_parent(fb_test_dir_path(&dir, "link/to"), &path), 0);
    assert_string_equal(path, expected);
}

static void test_below(void **state)
{
    (void)state;
    assert_true(fb_path_below("/", "/"));
    assert_true(fb_path_below("/", "/a"));
    assert_true(fb_path_below("/a", "/a"));
    assert_true(fb_path_below("/a", "/a/b"));
    assert_false(fb_path_below("/a", "/ab"));
    assert_false(fb_path_below("/a/b", "/a"));
    assert_false(fb_path_below("/a", "/"));
}

static void expect_tidy(const char *path, const char *tidy, bool plain)
{
    char buf[64];

    snprintf(buf, sizeof buf, "%s", path);
    fb_path_tidy(buf);
    assert_string_equal(buf, tidy);
    assert_int_equal(fb_path_is_plain(buf), plain);
}

static void test_tidy(void **state)
{
    (void)state;
    expect_tidy("/a/b", "/a/b", true);
    expect_tidy("//a/./b/.//", "/a/b", true);
    expect_tidy("/.a/..b/c.", "/.a/..b/c.", true);
    expect_tidy("/a/../b", "/a/../b", false);
    expect_tidy("/./", "/", false);
    expect_tidy("a/./b", "a/b", false);
    expect_tidy("./.", ".", false);
    assert_false(fb_path_is_plain("/a/"));
    assert_false(fb_path_is_plain("/a//b"));
    assert_false(fb_path_is_plain("/a/."));
    assert_false(fb_path_is_plain(""));
}

static void test_within(void **state)
{
    char outer[2 * PATH_MAX];
    char inner[2 * PATH_MAX];

    (void)state;
    make("a/b/c");
    link_to("a", "alias");
    snprintf(outer, sizeof outer, "%s/a", top);
    /* Another name of the same directory: what a bind mount looks like. */
    snprintf(inner, sizeof inner, "%s/alias/b/not-yet", top);
    assert_true(fb_path_within(outer, inner));
    snprintf(inner, sizeof inner, "%s/a/b", top);
    assert_true(fb_path_within(outer, inner));
    assert_false(fb_path_within(inner, outer));
    snprintf(inner, sizeof inner, "%s/ab", top);
    assert_false(fb_path_within(outer, inner));
}

static void test_mkdirs(void **state)
{
    (void)state;
    make("x/y/z");
    make("x/y/z");
    fb_test_dir_write(&dir, "file", "");
    assert_int_equal(fb_path_mkdirs(fb_test_dir_path(&dir, "file"), 0700), -ENOTDIR);
    assert_int_equal(fb_path_mkdirs(fb_test_dir_path(&dir, "file/x"), 0700), -ENOTDIR);
}

/* ---- what may be mounted where ---- */

/* Paths are below the test's directory. `sentence` NULL: accepted. */
static void check(const char *source, const char *mountpoint, const char *cache, int rc,
                  const char *sentence)
{
    char from[2 * PATH_MAX];
    char at[2 * PATH_MAX];
    char own_dir[2 * PATH_MAX];
    char *dirs[] = {own_dir};
    struct fb_own_dirs own = {.count = 1, .dirs = dirs};
    struct fb_error err = {""};
    char *ret_source = NULL;
    char *ret_mountpoint = NULL;

    snprintf(from, sizeof from, "%s/%s", top, source);
    snprintf(at, sizeof at, "%s/%s", top, mountpoint);
    snprintf(own_dir, sizeof own_dir, "%s/%s", top, cache);
    assert_int_equal(fb_mount_check(from, at, &own, &ret_source, &ret_mountpoint, &err), rc);
    if (sentence && !strstr(err.text, sentence))
        fail_msg("'%s' does not say '%s'", err.text, sentence);
    if (!sentence)
        assert_string_equal(err.text, "");
    free(ret_source);
    free(ret_mountpoint);
}

static void test_mount_check(void **state)
{
    (void)state;
    make("src/inner");
    make("mnt/inner");
    make("cache/inner");
    fb_test_dir_write(&dir, "file", "");
    check("src", "mnt", "cache", 0, NULL);
    check("src/", "mnt//", "cache", 0, NULL);
    check("none", "mnt", "cache", -ENOENT, "does not exist");
    check("file", "mnt", "cache", -ENOTDIR, "the source");
    check("file", "mnt", "cache", -ENOTDIR, "is not a directory");
    check("src", "none", "cache", -ENOENT, "mkdir");
    check("src", "file", "cache", -ENOTDIR, "the mount point");
    check("src", "src", "cache", -EINVAL, "on itself");
    check("src", "src/inner", "cache", -EINVAL, "lies inside the source");
    check("mnt/inner", "mnt", "cache", -EINVAL, "would hide it");
    check("src", "mnt", "src/cache", -EINVAL, "would cache itself");
    check("src", "mnt", "src", -EINVAL, "would cache itself");
    check("cache/inner", "mnt", "cache", -EINVAL, "inside the cache directory");
    check("src", "mnt", "mnt/cache", -EINVAL, "would hide it");
    check("src", "cache/inner", "cache", -EINVAL, "inside the cache directory");
}

static void test_mount_check_sees_through_links(void **state)
{
    (void)state;
    make("src/inner");
    make("mnt");
    link_to("src", "alias");
    link_to("src/inner", "way-in");
    check("alias", "src", "cache", -EINVAL, "on itself");
    check("src", "alias/inner", "cache", -EINVAL, "lies inside the source");
    check("alias", "way-in", "cache", -EINVAL, "lies inside the source");
    check("src", "mnt", "alias/cache", -EINVAL, "would cache itself");
}

/* ---- the runtime directory ---- */

static void test_lock(void **state)
{
    FB_AUTO_CLOSE int first = -1;
    FB_AUTO_CLOSE int again = -1;
    struct fb_error err = {""};
    char home[2 * PATH_MAX];
    char pid[32];
    int second = -1;
    struct stat st;

    (void)state;
    snprintf(home, sizeof home, "%s/home/deep", top);
    assert_int_equal(fb_runtime_lock(home, &first, &err), 0);
    assert_int_equal(stat(home, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(fb_runtime_lock(home, &second, &err), -EBUSY);
    snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    assert_non_null(strstr(err.text, pid));
    close(fb_steal_fd(&first));
    assert_int_equal(fb_runtime_lock(home, &again, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_absolute, setup, teardown),
        cmocka_unit_test_setup_teardown(test_canonical, setup, teardown),
        cmocka_unit_test(test_canonical_of_root),
        cmocka_unit_test_setup_teardown(test_canonical_parent_keeps_links, setup, teardown),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_tidy),
        cmocka_unit_test_setup_teardown(test_within, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mkdirs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mount_check, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mount_check_sees_through_links, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lock, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
