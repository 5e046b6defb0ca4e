/*
 * Uploads and the journal that they are written down in: its disk may be gone, hang, or take its
 * time.
 */
#include "source/test_s3_bucket.h"
#include "source/test_s3_disk.h"

/* With a journal whose directory is gone. */
static int setup_without_disk(void **state)
{
    char path[] = "/tmp/forebay-test-XXXXXX";
    struct fb_s3_journal *journal;
    int fd;

    assert_non_null(mkdtemp(path));
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fb_s3_journal_open(fd, "uploads", &journal, NULL), 0);
    close(fd);
    assert_int_equal(rmdir(path), 0);
    return setup_with(state, journal, 0);
}

static int setup_with_disk(void **state, int64_t journal_wait_ns)
{
    struct fb_s3_journal *journal;
    struct fb_test_dir dir;
    struct bucket *b;
    int fd;

    fb_test_dir_make(&dir);
    fd = open(dir.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fb_s3_journal_open(fd, "uploads", &journal, NULL), 0);
    close(fd);
    assert_int_equal(setup_with(state, journal, journal_wait_ns), 0);
    b = *state;
    b->dir = dir;
    return 0;
}

static int setup_patient(void **state)
{
    return setup_with_disk(state, PATIENCE_NS);
}

static int setup_impatient(void **state)
{
    return setup_with_disk(state, FB_NS_PER_MS);
}

static int teardown_disk(void **state)
{
    struct fb_test_dir dir = ((struct bucket *)*state)->dir;

    fb_test_disk_reset();
    assert_int_equal(teardown(state), 0);
    if (dir.path[0])
        fb_test_dir_remove(&dir);
    return 0;
}

/* A cache disk that fails is no reason not to write. */
static void journal_fails(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "file");

    assert_int_equal(now(b, write_job(handle, 0, 2 * PART_BYTES)), 0);
    assert_int_equal(now(b, commit_job(handle)), 0);
    check_seen(b, "POST file,PUT file,PUT file,POST file,");
    check_size(b, "file", 2 * PART_BYTES);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* One that hangs holds up an upload for a while, and nothing else. */
static void journal_hangs(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "file");
    struct ask write;

    put_object(b, "other", 5);
    fb_test_disk_hang(true, true);
    begin(b, &write, write_job(handle, 0, 2 * PART_BYTES));
    fb_test_disk_wait(&fb_test_disk.syncs);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_STAT, "other")), 0);
    assert_int_equal(end(&write), 0);
    assert_int_equal(now(b, commit_job(handle)), 0);
    check_seen(b, "POST file,PUT file,PUT file,POST file,");
    assert_int_equal(now(b, close_job(handle)), 0);
    /* Nor does it hold up the end. */
    fb_source_close(fb_steal(b->source));
    assert_false(fb_test_disk_trespassed());
}

/* An upload is asked for when that is written down, and has parts when its id is on the disk. */
static void journal_first(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "file");
    struct ask write;

    put_object(b, "other", 5);
    fb_test_disk_hang(true, true);
    begin(b, &write, write_job(handle, 0, 2 * PART_BYTES));
    fb_test_disk_wait(&fb_test_disk.syncs);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_STAT, "other")), 0);
    check_seen(b, "");
    fb_test_disk_hang(false, true);
    fb_test_disk_wait(&fb_test_disk.data_syncs);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_STAT, "other")), 0);
    check_seen(b, "POST file,");
    fb_test_disk_hang(false, false);
    assert_int_equal(end(&write), 0);
    assert_int_equal(now(b, commit_job(handle)), 0);
    check_seen(b, "PUT file,PUT file,POST file,");
    assert_int_equal(fb_s3_journal_count(b->journal), 0);
    assert_int_equal(now(b, close_job(handle)), 0);
    assert_false(fb_test_disk_trespassed());
}

/* An upload that waits for the disk is given up: before it was asked for, and when it has an id. */
static void closed_while_recorded(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *asked = open_new(b, "asked"), *begun = open_new(b, "begun");
    struct ask first, second;

    fb_test_disk_hang(false, true);
    begin(b, &first, write_job(begun, 0, 2 * PART_BYTES));
    fb_test_disk_wait(&fb_test_disk.data_syncs);
    begin(b, &second, write_job(asked, 0, 2 * PART_BYTES));
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_STAT, "other")), -ENOENT);
    fb_source_close(fb_steal(b->source));
    assert_int_equal(end(&first), -ESHUTDOWN);
    assert_int_equal(end(&second), -ESHUTDOWN);
    check_seen(b, "POST begun,DELETE begun,");
    assert_int_equal(fb_s3_journal_count(b->journal), 0);
    assert_false(fb_test_disk_trespassed());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(journal_fails, setup_without_disk, teardown_disk),
        cmocka_unit_test_setup_teardown(journal_hangs, setup_impatient, teardown_disk),
        cmocka_unit_test_setup_teardown(journal_first, setup_patient, teardown_disk),
        cmocka_unit_test_setup_teardown(closed_while_recorded, setup_patient, teardown_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
