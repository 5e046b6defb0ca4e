/*
 * The directories of a tier: what is recognised, what is dropped, and whose they are.
 */
#include <sys/wait.h>

#include "store/test_tier.h"

static void assert_starts_empty(struct fixture *f)
{
    assert_int_equal(try_open(f), 0);
    assert_int_equal(scan_all(f), 0);
    assert_int_equal(disk_bytes(f), 0);
    fill_one(f, 1);
    close_tier(f);
}

static void test_starts_empty(void **state)
{
    struct fixture *f = *state;
    char superblock[PATH_SIZE + 16];
    unsigned last = f->config.dir_count - 1;

    open_empty(f);
    fill_one(f, 1);
    close_tier(f);
    snprintf(superblock, sizeof superblock, "%s/superblock", f->paths[last]);
    for (off_t i = 0; i < 72; i += 7) {
        flip(superblock, i);
        assert_starts_empty(f);
    }
    assert_int_equal(truncate(superblock, 71), 0);
    assert_starts_empty(f);
    assert_int_equal(truncate(superblock, 0), 0);
    assert_starts_empty(f);
    assert_int_equal(unlink(superblock), 0);
    assert_starts_empty(f);
    f->config.segment_bytes = SEGMENT / 2;
    assert_int_equal(try_open(f), 0);
    assert_int_equal(scan_all(f), 0);
    close_tier(f);
    f->config.segment_bytes = SEGMENT;
    assert_starts_empty(f);
    /* And what is not damaged stays. */
    assert_int_equal(try_open(f), 0);
    assert_int_not_equal(scan_all(f), 0);
}

static void test_order_of_directories(void **state)
{
    struct fixture *f = *state;
    unsigned count = f->config.dir_count;
    const char *first = f->config.dirs[0];

    open_empty(f);
    fill_one(f, 1);
    close_tier(f);
    if (count == 1)
        return;
    f->config.dirs[0] = f->config.dirs[count - 1];
    f->config.dirs[count - 1] = first;
    assert_starts_empty(f);
    f->config.dir_count--;
    assert_starts_empty(f);
    f->config.dirs[1] = f->config.dirs[0];
    f->config.dir_count = 2;
    assert_int_equal(try_open(f), -EBUSY);
    assert_non_null(strstr(f->err.text, "twice"));
}

static void test_modes(void **state)
{
    struct fixture *f = *state;
    struct stat st;

    open_empty(f);
    close_tier(f);
    assert_int_equal(chmod(f->paths[0], 0755), 0);
    assert_int_equal(chmod(segments_path(f, 0), 0644), 0);
    assert_int_equal(try_open(f), 0);
    assert_int_equal(stat(f->paths[0], &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(segments_path(f, 0), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

static void test_foreign_owner(void **state)
{
    struct fixture *f = *state;
    struct stat st;

    open_empty(f);
    close_tier(f);
    if (chown(f->paths[0], 12345, 12345) < 0)
        skip(); /* not root: nobody else to give it to */
    assert_int_equal(try_open(f), -EPERM);
    assert_non_null(strstr(f->err.text, f->paths[0]));
    assert_non_null(strstr(f->err.text, "12345"));
    assert_int_equal(stat(f->paths[0], &st), 0);
    assert_int_equal(st.st_uid, 12345);
}

static void test_not_a_directory(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(mkdir(fb_test_dir_path(&f->dir, "n0"), 0700), 0);
    fb_test_dir_write(&f->dir, "n0/cache", "a file");
    assert_int_equal(try_open(f), -ENOTDIR);
    assert_non_null(strstr(f->err.text, f->paths[0]));
}

/* The other process: it needs no engine to be refused. */
static int open_in_child(struct fixture *f)
{
    char pid[32];
    pid_t parent = getpid();
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        snprintf(pid, sizeof pid, "process %d:", parent);
        if (try_open(f) != -EBUSY)
            _exit(1);
        _exit(strstr(f->err.text, pid) && strstr(f->err.text, f->paths[0]) ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_second_opener(void **state)
{
    struct fixture *f = *state;
    struct fb_tier *first;

    open_empty(f);
    fill_one(f, 1);
    first = f->tier;
    assert_int_equal(open_in_child(f), 0);
    assert_int_equal(try_open(f), -EBUSY);
    f->tier = first;
    assert_true(fb_tier_has_room(f->tier));
    close_tier(f);
    assert_int_equal(try_open(f), 0);
    assert_int_not_equal(scan_all(f), 0);
}

static void test_read_only(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(mkdir(fb_test_dir_path(&f->dir, "n0"), 0700), 0);
    mount_tmpfs(fb_test_dir_path(&f->dir, "n0"), FS_BYTES, MS_RDONLY);
    assert_int_equal(try_open(f), -EROFS);
    assert_non_null(strstr(f->err.text, f->paths[0]));
    assert_non_null(strstr(f->err.text, "Read-only"));
    assert_int_equal(umount(fb_test_dir_path(&f->dir, "n0")), 0);
}

/* ---- all of it ---- */

static const struct tier_case cases[] = {
    {"starts empty", test_starts_empty, ON_FILES},
    {"order of directories", test_order_of_directories, ON_FILES},
    {"modes", test_modes, ON_FILES},
    {"foreign owner", test_foreign_owner, ON_FILES},
    {"not a directory", test_not_a_directory, ON_FILES},
    {"second opener", test_second_opener, ON_FILES},
    {"read-only", test_read_only, ON_FILES},
};

int main(void)
{
    return run_cases("tier_dirs", cases, FB_ARRAY_SIZE(cases));
}
