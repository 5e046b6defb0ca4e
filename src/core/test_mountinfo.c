#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "core/mountinfo.h"

static int find_in(const char *text, const char *path, struct fb_mountinfo *ret)
{
    FILE *f = fmemopen((char *)text, strlen(text), "r");
    int rc;

    assert_non_null(f);
    rc = fb_mountinfo_parse(f, path, ret);
    fclose(f);
    return rc;
}

static const char mounts[] =
    "22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "30 22 0:30 / /mnt rw - tmpfs none rw\n"
    "31 22 0:31 / /mnt/a\\040b\\012c ro,nosuid shared:2 master:1 - fuse.forebay /sr\\134c ro\n"
    "32 22 0:32 / /top ro - fuse.forebay /old ro\n"
    "33 32 0:33 / /top ro - fuse.forebay /new ro,user_id=1234,group_id=5\n"
    "garbage\n"
    "34 22 0:34 / /cut ro -\n";

static void test_mountinfo(void **state)
{
    struct fb_mountinfo info;

    (void)state;
    assert_int_equal(find_in(mounts, "/mnt/a b\nc/d", &info), 0);
    assert_string_equal(info.mountpoint, "/mnt/a b\nc");
    assert_string_equal(info.type, FB_MOUNT_TYPE);
    assert_string_equal(info.source, "/sr\\c");
    fb_mountinfo_free(&info);

    assert_int_equal(find_in(mounts, "/mnt/a", &info), 0);
    assert_string_equal(info.type, "tmpfs");
    assert_int_equal(info.user, -1);
    fb_mountinfo_free(&info);

    assert_int_equal(find_in(mounts, "/top", &info), 0);
    assert_string_equal(info.source, "/new");
    assert_int_equal(info.dev, makedev(0, 33));
    assert_int_equal(info.user, 1234);
    fb_mountinfo_free(&info);

    assert_int_equal(find_in(mounts, "/cut", &info), 0);
    assert_string_equal(info.mountpoint, "/");
    fb_mountinfo_free(&info);

    assert_int_equal(find_in("garbage\n\n - \n1 2 3 4\n", "/x", &info), -ENOENT);
}

static void test_mountinfo_points(void **state)
{
    FILE *f = fmemopen((char *)mounts, strlen(mounts), "r");
    char **points;

    (void)state;
    assert_non_null(f);
    assert_int_equal(fb_mountinfo_points_parse(f, FB_MOUNT_TYPE, &points), 0);
    assert_string_equal(points[0], "/mnt/a b\nc");
    assert_string_equal(points[1], "/top");
    assert_null(points[2]);
    fb_mountinfo_points_free(points);

    rewind(f);
    assert_int_equal(fb_mountinfo_points_parse(f, "fuse.other", &points), 0);
    assert_null(points[0]);
    fb_mountinfo_points_free(points);
    fclose(f);
}

static void test_here(void **state)
{
    struct fb_mountinfo info;
    struct stat st;

    (void)state;
    assert_int_equal(stat("/proc", &st), 0);
    assert_int_equal(fb_mountinfo_at("/proc", &info), 0);
    assert_string_equal(info.type, "proc");
    assert_int_equal(info.dev, st.st_dev);
    fb_mountinfo_free(&info);
    assert_int_equal(fb_mountinfo_find("/proc/self", &info), 0);
    assert_string_equal(info.mountpoint, "/proc");
    fb_mountinfo_free(&info);
    assert_int_equal(fb_mountinfo_at("/proc/self", &info), -ENOENT);
    assert_false(fb_mountinfo_is_forebay("/proc"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mountinfo),
        cmocka_unit_test(test_mountinfo_points),
        cmocka_unit_test(test_here),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
