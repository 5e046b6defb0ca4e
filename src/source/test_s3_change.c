/*
 * Changes of a bucket that meet each other: jobs are submitted to a source whose server answers
 * when it is told to.
 */
#include "source/test_s3_bucket.h"

/* A write that waits for room, and a commit that comes meanwhile: it is part of it. */
static void commit_after_write(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "file");
    struct ask first, commit, second;

    begin(b, &first, write_job(handle, 0, 2 * PART_BYTES));
    begin(b, &commit, commit_job(handle));
    begin(b, &second, write_job(handle, 2 * PART_BYTES, 1));
    assert_int_equal(end(&first), 0);
    assert_int_equal(end(&commit), 0);
    /* What comes after the commit of an upload cannot be added to it. */
    assert_int_equal(end(&second), -EIO);
    check_seen(b, "POST file,PUT file,PUT file,POST file,");
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* Writes that wait behind a commit, and behind the next one. */
static void write_after_commit(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "file");
    struct ask commit, write, again;

    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    hold(b, "PUT", "file");
    begin(b, &commit, commit_job(handle));
    wait_for(&b->held);
    begin(b, &write, write_job(handle, 10, 10));
    atomic_store(&b->released, true);
    assert_int_equal(end(&commit), 0);
    assert_int_equal(end(&write), 0);
    begin(b, &again, commit_job(handle));
    assert_int_equal(end(&again), 0);
    check_size(b, "file", 20);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* The end of a commit ends the writes that wait for it, all of them when the source is closed. */
static void closed_meanwhile(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "file");
    struct ask commit, writes[3];

    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    hold(b, "PUT", "file");
    begin(b, &commit, commit_job(handle));
    wait_for(&b->held);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(writes); i++)
        begin(b, &writes[i], write_job(handle, 10, 10));
    fb_source_close(fb_steal(b->source));
    assert_int_equal(end(&commit), -ESHUTDOWN);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(writes); i++)
        assert_int_equal(end(&writes[i]), -ESHUTDOWN);
}

/* What was written to a name does not appear while a rename takes the name's object away. */
static void commit_while_renamed(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle;
    struct ask rename, commit;

    put_object(b, "from", 5);
    handle = open_new(b, "from");
    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    hold(b, "PUT", "to");
    begin(b, &rename, rename_job("from", "to"));
    wait_for(&b->held);
    begin(b, &commit, commit_job(handle));
    atomic_store(&b->released, true);
    assert_int_equal(end(&rename), 0);
    assert_int_equal(end(&commit), 0);
    check_seen(b, "PUT to,DELETE from,PUT from,");
    check_size(b, "to", 5);
    check_size(b, "from", 10);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* And what is appearing is not taken away, nor a directory with it. */
static void rename_while_committed(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle;
    struct ask commit;

    put_object(b, "dir/file", 5);
    handle = open_new(b, "dir/file");
    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    hold(b, "PUT", "dir/file");
    begin(b, &commit, commit_job(handle));
    wait_for(&b->held);
    assert_int_equal(now(b, rename_job("dir/file", "to")), -EBUSY);
    assert_int_equal(now(b, rename_job("dir", "to")), -EBUSY);
    atomic_store(&b->released, true);
    assert_int_equal(end(&commit), 0);
    check_seen(b, "PUT dir/file,");
    check_size(b, "dir/file", 10);
    assert_int_equal(now(b, close_job(handle)), 0);
    assert_int_equal(now(b, rename_job("dir", "to")), 0);
    check_size(b, "to/file", 10);
    check_size(b, "dir/file", -1);
}

static struct fb_source_job *open_job(const char *path, uint32_t flags)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_OPEN, path);

    job->flags = flags;
    return job;
}

/* Whoever opens an object to replace it has not made a new file: a rename takes the object. */
static void rename_while_opened(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle;
    struct ask open, rename;

    put_object(b, "from", 5);
    hold(b, "HEAD", "from");
    begin(b, &open, open_job("from", O_WRONLY | O_TRUNC));
    wait_for(&b->held);
    begin(b, &rename, rename_job("from", "to"));
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    assert_false(atomic_load(&rename.done));
    atomic_store(&b->released, true);
    assert_int_equal(end(&rename), 0);
    wait_for(&open.done);
    handle = open.job->handle;
    assert_int_equal(end(&open), 0);
    check_seen(b, "PUT to,DELETE from,");
    check_size(b, "to", 5);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* Nobody begins a file below a directory that is on its way to another name. */
static void open_while_moved(void **state)
{
    struct bucket *b = *state;
    struct ask rename;

    put_object(b, "dir/file", 5);
    hold(b, "PUT", "to/file");
    begin(b, &rename, rename_job("dir", "to"));
    wait_for(&b->held);
    assert_int_equal(now(b, open_job("dir/new", O_WRONLY | O_CREAT)), -EBUSY);
    atomic_store(&b->released, true);
    assert_int_equal(end(&rename), 0);
    check_size(b, "to/file", 5);
}

/* A commit that waits goes by the file as it was: it is not cut meanwhile. */
static void cut_while_committed(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle;
    struct fb_source_job *cut = fb_source_job_new(FB_SOURCE_SETATTR, "from");
    struct ask open, rename, commit;

    put_object(b, "from", 2 * PART_BYTES);
    begin(b, &open, open_job("from", O_WRONLY));
    wait_for(&open.done);
    handle = open.job->handle;
    assert_int_equal(end(&open), 0);
    assert_int_equal(now(b, write_job(handle, 2 * PART_BYTES, 10)), 0);
    hold(b, "PUT", "to");
    begin(b, &rename, rename_job("from", "to"));
    wait_for(&b->held);
    begin(b, &commit, commit_job(handle));
    cut->handle = handle;
    cut->set = FB_SET_SIZE;
    assert_int_equal(now(b, cut), -ENOTSUP);
    atomic_store(&b->released, true);
    assert_int_equal(end(&rename), 0);
    /* What it was to be added to is elsewhere now. */
    assert_true(end(&commit) < 0);
    check_size(b, "from", -1);
    check_size(b, "to", 2 * PART_BYTES);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* Who has opened a file to replace it, and written nothing, does not empty what another has written
 * since. Writing makes it count again. */
static void opened_while_written(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *idle = open_new(b, "file"), *busy = open_new(b, "file");
    struct ask commit;

    assert_int_equal(now(b, write_job(busy, 0, 10)), 0);
    assert_int_equal(now(b, commit_job(busy)), 0);
    begin(b, &commit, commit_job(idle));
    wait_for(&commit.done);
    assert_int_equal(commit.job->attr.mode, 0);
    assert_int_equal(end(&commit), 0);
    check_seen(b, "PUT file,");
    check_size(b, "file", 10);
    assert_int_equal(now(b, write_job(idle, 0, 3)), 0);
    assert_int_equal(now(b, commit_job(idle)), 0);
    check_size(b, "file", 3);
    assert_int_equal(now(b, close_job(idle)), 0);
    assert_int_equal(now(b, close_job(busy)), 0);
}

/* What nobody has written to is an empty file, and what was cut to nothing is, too. */
static void empty_files(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "empty"), *other = open_new(b, "cut");
    struct fb_source_job *cut = fb_source_job_new(FB_SOURCE_SETATTR, "cut");

    assert_int_equal(now(b, commit_job(handle)), 0);
    check_size(b, "empty", 0);
    assert_int_equal(now(b, close_job(handle)), 0);
    cut->handle = other;
    cut->set = FB_SET_SIZE;
    assert_int_equal(now(b, cut), 0);
    handle = open_new(b, "cut");
    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    assert_int_equal(now(b, commit_job(handle)), 0);
    assert_int_equal(now(b, commit_job(other)), 0);
    check_size(b, "cut", 0);
    assert_int_equal(now(b, close_job(handle)), 0);
    assert_int_equal(now(b, close_job(other)), 0);
}

/* A new file that was renamed to a name nobody had does not replace who has it by now. */
static void rename_to_taken(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "from");

    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    assert_int_equal(now(b, exclusive_rename_job("from", "to")), 0);
    put_object(b, "to", 5);
    assert_int_equal(now(b, commit_job(handle)), -EEXIST);
    check_size(b, "to", 5);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* An answer that tells no tag is none. */
static void put_without_tag(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "a");

    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    fault(b, "PUT", "a", 200);
    assert_int_equal(now(b, commit_job(handle)), 0);
    check_seen(b, "PUT a,PUT a,");
    check_size(b, "a", 10);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* What somebody else has put there since we looked is neither copied nor deleted. */
static void renamed_is_another(void **state)
{
    struct bucket *b = *state;
    struct ask rename;

    put_object(b, "from", 5);
    hold(b, "HEAD", "from");
    begin(b, &rename, rename_job("from", "to"));
    wait_for(&b->held);
    put_object(b, "from", 6);
    atomic_store(&b->released, true);
    assert_int_equal(end(&rename), -ESTALE);
    check_seen(b, "PUT to,");
    check_size(b, "from", 6);
    check_size(b, "to", -1);
}

/* What somebody else puts there once it was copied is not deleted; all else is moved. */
static void overtaken(struct bucket *b, enum conditions conditions, const char *method,
                      const char *key)
{
    struct ask rename;

    set_conditions(b, conditions);
    put_object(b, "dir/file", 5);
    put_object(b, "dir/other", 7);
    hold(b, method, key);
    begin(b, &rename, rename_job("dir", "to"));
    wait_for(&b->held);
    put_object(b, "dir/file", 6);
    atomic_store(&b->released, true);
    assert_int_equal(end(&rename), -ESTALE);
    check_size(b, "to/file", 5);
    check_size(b, "to/other", 7);
    check_size(b, "dir/file", 6);
    check_size(b, "dir/other", -1);
}

static void overtaken_after_copy(void **state)
{
    overtaken(*state, IGNORED, "PUT", "to/file");
}

static void overtaken_after_look(void **state)
{
    overtaken(*state, HEEDED, "HEAD", "dir/file");
}

/* A server that refuses the condition deletes without. */
static void rename_unconditional(void **state)
{
    struct bucket *b = *state;

    set_conditions(b, REFUSED);
    put_object(b, "from", 5);
    assert_int_equal(now(b, rename_job("from", "to")), 0);
    check_seen(b, "PUT to,DELETE from,DELETE from,");
    assert_int_equal(now(b, rename_job("to", "from")), 0);
    check_seen(b, "PUT from,DELETE to,");
    check_size(b, "from", 5);
    check_size(b, "to", -1);
}

/* A name that was new when it was opened: an object of another's is there by now. All who write it
 * hear that it is gone. */
static void unlink_of_written(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handles[2];

    for (unsigned i = 0; i < FB_ARRAY_SIZE(handles); i++) {
        handles[i] = open_new(b, "file");
        assert_int_equal(now(b, write_job(handles[i], 0, 10)), 0);
    }
    put_object(b, "file", 5);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_UNLINK, "file")), 0);
    check_seen(b, "DELETE file,");
    check_size(b, "file", -1);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(handles); i++) {
        assert_int_equal(now(b, commit_job(handles[i])), 0);
        assert_int_equal(now(b, close_job(handles[i])), 0);
    }
    check_seen(b, "");
}

/* What appears in this moment is deleted after it, not before. */
static void unlink_while_committed(void **state)
{
    struct bucket *b = *state;
    struct fb_source_handle *handle = open_new(b, "file");
    struct ask commit, unlink;

    assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
    hold(b, "PUT", "file");
    begin(b, &commit, commit_job(handle));
    wait_for(&b->held);
    begin(b, &unlink, fb_source_job_new(FB_SOURCE_UNLINK, "file"));
    atomic_store(&b->released, true);
    assert_int_equal(end(&commit), 0);
    assert_int_equal(end(&unlink), 0);
    check_seen(b, "PUT file,DELETE file,");
    check_size(b, "file", -1);
    assert_int_equal(now(b, close_job(handle)), 0);
}

/* What is closed meanwhile waits, and appears when the name is there after all. */
static void commit_while_unlinked(void **state)
{
    for (int status = 204; status <= 403; status += 403 - 204) {
        struct bucket *b = *state;
        struct fb_source_handle *handle = open_new(b, "file");
        struct ask commit, unlink;

        assert_int_equal(now(b, write_job(handle, 0, 10)), 0);
        atomic_store(&b->held, false);
        atomic_store(&b->released, false);
        fault(b, "DELETE", "file", status);
        hold(b, "DELETE", "file");
        begin(b, &unlink, fb_source_job_new(FB_SOURCE_UNLINK, "file"));
        wait_for(&b->held);
        begin(b, &commit, commit_job(handle));
        atomic_store(&b->released, true);
        assert_int_equal(end(&unlink), status == 403 ? -EACCES : 0);
        assert_int_equal(end(&commit), 0);
        check_seen(b, status == 403 ? "DELETE file,PUT file," : "DELETE file,");
        check_size(b, "file", status == 403 ? 10 : -1);
        assert_int_equal(now(b, close_job(handle)), 0);
    }
}

/* A server that lists all it has, whatever it was asked for: nothing of it is touched. */
static void foreign_keys(void **state)
{
    struct bucket *b = *state;

    put_object(b, "directory/file", 5);
    put_object(b, "e", 5);
    set_lists(b, ALL_WIDE);
    assert_int_equal(now(b, rename_job("directory", "to")), -EIO);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_RMDIR, "directory")), -EIO);
    set_lists(b, ALL);
    assert_int_equal(now(b, rename_job("directory", "to")), -EIO);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_STAT, "directory")), -EIO);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_OPENDIR, "directory")), -EIO);
    check_seen(b, "");
}

static struct fb_source_job *readdir_job(struct fb_source_handle *handle, uint64_t cookie)
{
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_READDIR, NULL);

    job->handle = handle;
    job->cookie = cookie;
    return job;
}

/* A page that cannot be used, and comes before anybody asks for it, is no end of the directory. */
static void broken_page(void **state)
{
    struct bucket *b = *state;
    struct fb_source_job *job = fb_source_job_new(FB_SOURCE_OPENDIR, "directory");
    struct fb_source_handle *handle;
    struct ask ask;
    unsigned pages = 0;

    put_object(b, "directory/file", 5);
    put_object(b, "directory/name", 5);
    put_object(b, "e", 5);
    set_lists(b, ALL_BEHIND);
    begin(b, &ask, job);
    wait_for(&ask.done);
    handle = job->handle;
    assert_int_equal(end(&ask), 0);
    assert_int_equal(now(b, readdir_job(handle, 0)), 0);
    while (pages == 0) {
        pthread_mutex_lock(&b->lock);
        pages = b->pages;
        pthread_mutex_unlock(&b->lock);
    }
    /* By now it has come, most likely. */
    set_lists(b, ASKED);
    assert_int_equal(now(b, fb_source_job_new(FB_SOURCE_STAT, "directory/file")), 0);
    assert_int_equal(now(b, readdir_job(handle, 1)), -EIO);
    assert_int_equal(now(b, readdir_job(handle, 1)), -EIO);
    job = fb_source_job_new(FB_SOURCE_CLOSE, NULL);
    job->handle = handle;
    assert_int_equal(now(b, job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(commit_after_write, setup, teardown),
        cmocka_unit_test_setup_teardown(write_after_commit, setup, teardown),
        cmocka_unit_test_setup_teardown(closed_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(commit_while_renamed, setup, teardown),
        cmocka_unit_test_setup_teardown(rename_while_committed, setup, teardown),
        cmocka_unit_test_setup_teardown(rename_while_opened, setup, teardown),
        cmocka_unit_test_setup_teardown(open_while_moved, setup, teardown),
        cmocka_unit_test_setup_teardown(cut_while_committed, setup, teardown),
        cmocka_unit_test_setup_teardown(put_without_tag, setup, teardown),
        cmocka_unit_test_setup_teardown(opened_while_written, setup, teardown),
        cmocka_unit_test_setup_teardown(empty_files, setup, teardown),
        cmocka_unit_test_setup_teardown(rename_to_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(renamed_is_another, setup, teardown),
        cmocka_unit_test_setup_teardown(overtaken_after_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(overtaken_after_look, setup, teardown),
        cmocka_unit_test_setup_teardown(rename_unconditional, setup, teardown),
        cmocka_unit_test_setup_teardown(unlink_of_written, setup, teardown),
        cmocka_unit_test_setup_teardown(unlink_while_committed, setup, teardown),
        cmocka_unit_test_setup_teardown(commit_while_unlinked, setup, teardown),
        cmocka_unit_test_setup_teardown(foreign_keys, setup, teardown),
        cmocka_unit_test_setup_teardown(broken_page, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
