/*
 * What every source that can be written promises, checked on each. What a source cannot do it must
 * refuse; a row of `kinds` says what that is, and a further source is one more row.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "core/thread.h"
#include "source/source_fault.h"
#include "source/source_posix.h"
#include "source/test_jobs.h"

#define BUFFERS      64
#define BUFFER_BYTES 65536
#define LARGE        (3u << 20)
#define APPENDERS    4
#define APPENDS      50

struct kind {
    const char *name;
    struct fb_source *(*open)(const char *root);
    bool in_place; /* a byte in the middle of a file that stands can be written */
    bool modes;    /* owner, mode and times are kept */
    bool links;    /* hard and symbolic, FIFOs */
    bool xattrs;
};

struct fixture {
    const struct kind *kind;
    struct fb_test_dir dir;
    struct fb_buffer_pool *pool;
    struct fb_source *source;
};

static struct fb_source *open_posix(const char *root)
{
    struct fb_posix_config config = {.root = root};
    struct fb_source *source;

    assert_int_equal(fb_source_posix_open(&config, &source, NULL), 0);
    return source;
}

static struct fb_source *open_fault(const char *root)
{
    struct fb_fault_config config = {
        .jitter_ns = 200 * FB_NS_PER_US, .bandwidth = 4ull << 30, .seed = 1};
    struct fb_source *source;

    assert_int_equal(fb_source_fault_open(open_posix(root), &config, &source), 0);
    return source;
}

static const struct kind kinds[] = {
    {"posix", open_posix, .in_place = true, .modes = true, .links = true, .xattrs = true},
    {"fault", open_fault, .in_place = true, .modes = true, .links = true, .xattrs = true},
};

static const struct kind *kind_now; /* of the group that runs */

static int set_up(void **state)
{
    struct fixture *f = fb_alloc(sizeof *f);

    assert_non_null(f);
    f->kind = kind_now;
    fb_test_dir_make(&f->dir);
    assert_int_equal(fb_buffer_pool_create(BUFFERS, BUFFER_BYTES, &f->pool), 0);
    f->source = f->kind->open(f->dir.path);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    fb_source_close(f->source);
    assert_int_equal(fb_buffer_pool_free(f->pool), BUFFERS);
    fb_buffer_pool_destroy(f->pool);
    fb_test_dir_remove(&f->dir);
    free(f);
    return 0;
}

/* ---- one line each ----------------------------------------------------------------------------
 * */

static int run(struct fixture *f, struct fb_source_job *job)
{
    int r;

    job->caller = (struct fb_caller){.uid = geteuid(), .gid = getegid(), .pid = (uint32_t)getpid()};
    r = fb_source_wait(f->source, job);
    fb_source_job_put(job);
    return r;
}

static int open_file(struct fixture *f, const char *path, int flags, uint32_t mode,
                     struct fb_source_handle **ret_handle)
{
    struct fb_source_job *job = fb_test_job(FB_SOURCE_OPEN, path);
    int r;

    job->flags = (uint32_t)flags;
    job->mode = S_IFREG | mode;
    job->caller = (struct fb_caller){.uid = geteuid(), .gid = getegid(), .pid = (uint32_t)getpid()};
    r = fb_source_wait(f->source, job);
    *ret_handle = r == 0 ? job->handle : NULL;
    if (r == 0) {
        assert_non_null(job->handle);
        assert_true(S_ISREG(job->attr.mode));
        assert_int_equal(job->direct, !f->kind->in_place);
        assert_int_equal(fb_source_is_direct(f->source), job->direct);
    }
    fb_source_job_put(job);
    return r;
}

static int write_some(struct fixture *f, struct fb_source_handle *h, uint64_t offset,
                      uint32_t flags, const void *data, size_t len, uint64_t *ret_bytes)
{
    struct fb_source_job *job = fb_test_job(FB_SOURCE_WRITE, NULL);
    int r;

    job->handle = h;
    job->offset = offset;
    job->flags = flags;
    job->memory = malloc(len);
    assert_non_null(job->memory);
    memcpy(job->memory, data, len);
    /* In two stretches where there are two. */
    job->iov[0] = (struct iovec){.iov_base = job->memory, .iov_len = len / 2};
    job->iov[1] =
        (struct iovec){.iov_base = (char *)job->memory + len / 2, .iov_len = len - len / 2};
    job->iov_count = 2;
    r = fb_source_wait(f->source, job);
    *ret_bytes = job->bytes;
    fb_source_job_put(job);
    return r;
}

static int write_at(struct fixture *f, struct fb_source_handle *h, uint64_t offset, uint32_t flags,
                    const void *data, size_t len)
{
    uint64_t bytes;
    int r = write_some(f, h, offset, flags, data, len, &bytes);

    if (r == 0)
        assert_int_equal(bytes, len);
    return r;
}

static int commit(struct fixture *f, struct fb_source_handle *h, uint32_t flags,
                  struct fb_attr *ret_attr)
{
    struct fb_source_job *job = fb_test_job(FB_SOURCE_COMMIT, NULL);
    int r;

    job->handle = h;
    job->flags = flags;
    r = fb_source_wait(f->source, job);
    if (ret_attr)
        *ret_attr = job->attr;
    fb_source_job_put(job);
    return r;
}

static int commit_dir(struct fixture *f, const char *path)
{
    struct fb_source_job *job = fb_test_job(FB_SOURCE_COMMIT, path);
    int r;

    job->flags = FB_COMMIT_SYNC;
    r = fb_source_wait(f->source, job);
    fb_source_job_put(job);
    return r;
}

static void finish_file(struct fixture *f, struct fb_source_handle *h)
{
    assert_int_equal(commit(f, h, FB_COMMIT_FLUSH, NULL), 0);
    assert_int_equal(commit(f, h, FB_COMMIT_LAST, NULL), 0);
    fb_test_closedir(f->source, h);
}

static int put_file(struct fixture *f, const char *path, const char *text)
{
    struct fb_source_handle *h;
    int r = open_file(f, path, O_WRONLY | O_CREAT | O_TRUNC, 0644, &h);

    if (r < 0)
        return r;
    if (*text)
        assert_int_equal(write_at(f, h, 0, 0, text, strlen(text)), 0);
    finish_file(f, h);
    return 0;
}

static int two_paths(struct fixture *f, enum fb_source_op op, const char *path, const char *path2,
                     uint32_t flags)
{
    struct fb_source_job *job = fb_test_job(op, path);

    job->path2 = fb_strdup(path2);
    assert_non_null(job->path2);
    job->flags = flags;
    return run(f, job);
}

static int make_node(struct fixture *f, const char *path, uint32_t mode)
{
    struct fb_source_job *job = fb_test_job(FB_SOURCE_MKNOD, path);

    job->mode = mode;
    return run(f, job);
}

static int set_attr(struct fixture *f, const char *path, struct fb_source_handle *h, uint32_t set,
                    const struct fb_attr *attr)
{
    struct fb_source_job *job = fb_test_job(FB_SOURCE_SETATTR, path);

    job->handle = h;
    job->set = set;
    job->attr = *attr;
    return run(f, job);
}

static void expect_text(struct fixture *f, const char *path, const char *text)
{
    struct fb_source_job *job = fb_test_read_job(f->pool, path, 0, strlen(text) + 1);

    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_int_equal(job->bytes, strlen(text));
    for (size_t i = 0; i < strlen(text); i++)
        assert_int_equal(fb_test_byte(job, i), (uint8_t)text[i]);
    fb_source_job_put(job);
}

/* ---- files ------------------------------------------------------------------------------------
 * */

static void test_create(void **state)
{
    struct fixture *f = *state;
    struct fb_source_handle *h;
    struct fb_attr attr, again;

    assert_int_equal(open_file(f, "new", O_WRONLY, 0644, &h), -ENOENT);
    assert_int_equal(open_file(f, "none/new", O_WRONLY | O_CREAT, 0644, &h), -ENOENT);
    assert_int_equal(open_file(f, "new", O_WRONLY | O_CREAT | O_EXCL, 0640, &h), 0);
    assert_int_equal(write_at(f, h, 0, 0, "hello ", 6), 0);
    assert_int_equal(write_at(f, h, 6, 0, "world", 5), 0);
    assert_int_equal(commit(f, h, FB_COMMIT_FLUSH, &attr), 0);
    assert_int_equal(attr.version.size, 11);
    assert_int_equal(commit(f, h, FB_COMMIT_LAST, NULL), 0);
    fb_test_closedir(f->source, h);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "new", &again), 0);
    assert_true(fb_version_equal(&attr.version, &again.version));
    if (f->kind->modes)
        assert_int_equal(again.mode, S_IFREG | 0640);
    expect_text(f, "new", "hello world");
    assert_int_equal(open_file(f, "new", O_WRONLY | O_CREAT | O_EXCL, 0640, &h), -EEXIST);
}

static void test_replace(void **state)
{
    struct fixture *f = *state;
    struct fb_attr before, after;

    assert_int_equal(put_file(f, "file", "first and long"), 0);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "file", &before), 0);
    assert_int_equal(put_file(f, "file", "second"), 0);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "file", &after), 0);
    assert_false(fb_version_equal(&before.version, &after.version));
    expect_text(f, "file", "second");
    assert_int_equal(put_file(f, "file", ""), 0);
    expect_text(f, "file", "");
}

/* A handle tells the size so far, also to who asks by another job. */
static void test_stat_by_handle(void **state)
{
    struct fixture *f = *state;
    struct fb_source_job *job;
    struct fb_source_handle *h;

    assert_int_equal(open_file(f, "file", O_WRONLY | O_CREAT, 0644, &h), 0);
    assert_int_equal(write_at(f, h, 0, 0, "12345", 5), 0);
    job = fb_test_job(FB_SOURCE_STAT, NULL);
    job->handle = h;
    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_int_equal(job->attr.version.size, 5);
    assert_true(S_ISREG(job->attr.mode));
    fb_source_job_put(job);
    finish_file(f, h);
}

static void test_large(void **state)
{
    struct fixture *f = *state;
    FB_AUTO_FREE uint8_t *data = malloc(LARGE);
    struct fb_source_handle *h;
    struct fb_source_job *job;

    assert_non_null(data);
    for (size_t i = 0; i < LARGE; i++)
        data[i] = (uint8_t)(i * 7 + (i >> 9));
    assert_int_equal(open_file(f, "large", O_WRONLY | O_CREAT, 0644, &h), 0);
    for (size_t at = 0; at < LARGE; at += 1u << 20)
        assert_int_equal(write_at(f, h, at, 0, data + at, 1u << 20), 0);
    assert_int_equal(commit(f, h, FB_COMMIT_SYNC, NULL), 0);
    finish_file(f, h);
    job = fb_test_read_job(f->pool, "large", 0, LARGE);
    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_int_equal(job->bytes, LARGE);
    for (size_t i = 0; i < LARGE; i++)
        assert_int_equal(fb_test_byte(job, i), data[i]);
    fb_source_job_put(job);
}

static void test_in_place(void **state)
{
    struct fixture *f = *state;
    struct fb_source_handle *h;
    struct fb_source_job *job;
    struct fb_attr attr = {.version = {.size = 4}};

    if (!f->kind->in_place)
        skip();
    assert_int_equal(put_file(f, "file", "0123456789"), 0);
    assert_int_equal(open_file(f, "file", O_RDWR, 0, &h), 0);
    assert_int_equal(write_at(f, h, 3, 0, "xy", 2), 0);
    expect_text(f, "file", "012xy56789");
    job = fb_test_read_job(f->pool, NULL, 2, 100);
    job->op = FB_SOURCE_PREAD;
    job->handle = h;
    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_int_equal(job->bytes, 8);
    assert_int_equal(fb_test_byte(job, 1), 'x');
    fb_source_job_put(job);
    assert_int_equal(set_attr(f, NULL, h, FB_SET_SIZE, &attr), 0);
    expect_text(f, "file", "012x");
    attr.version.size = 6;
    assert_int_equal(set_attr(f, "file", NULL, FB_SET_SIZE, &attr), 0);
    assert_int_equal(write_at(f, h, 0, FB_WRITE_APPEND, "end", 3), 0);
    job = fb_test_job(FB_SOURCE_FALLOCATE, NULL);
    job->handle = h;
    job->length = 12;
    assert_int_equal(run(f, job), 0);
    finish_file(f, h);
    job = fb_test_read_job(f->pool, "file", 0, 100);
    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_int_equal(job->bytes, 12);
    assert_int_equal(fb_test_byte(job, 5), 0);
    assert_int_equal(fb_test_byte(job, 6), 'e');
    fb_source_job_put(job);
}

struct appender {
    struct fixture *fixture;
    pthread_t thread;
    char letter;
};

static void *append_main(void *arg)
{
    struct appender *a = arg;
    struct fb_source_handle *h;

    assert_int_equal(open_file(a->fixture, "log", O_WRONLY | O_CREAT | O_APPEND, 0644, &h), 0);
    for (int i = 0; i < APPENDS; i++)
        assert_int_equal(write_at(a->fixture, h, 0, FB_WRITE_APPEND, &a->letter, 1), 0);
    finish_file(a->fixture, h);
    return NULL;
}

/* Several at a time lose nothing. */
static void test_append(void **state)
{
    struct fixture *f = *state;
    struct appender appenders[APPENDERS];
    unsigned counts[APPENDERS] = {0};
    struct fb_source_job *job;

    if (!f->kind->in_place)
        skip();
    for (int i = 0; i < APPENDERS; i++) {
        appenders[i] = (struct appender){.fixture = f, .letter = (char)('a' + i)};
        assert_int_equal(
            fb_thread_start(&appenders[i].thread, "append", append_main, &appenders[i]), 0);
    }
    for (int i = 0; i < APPENDERS; i++)
        pthread_join(appenders[i].thread, NULL);
    job = fb_test_read_job(f->pool, "log", 0, APPENDERS * APPENDS + 1);
    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_int_equal(job->bytes, APPENDERS * APPENDS);
    for (uint64_t i = 0; i < job->bytes; i++)
        counts[fb_test_byte(job, i) - 'a']++;
    fb_source_job_put(job);
    for (int i = 0; i < APPENDERS; i++)
        assert_int_equal(counts[i], APPENDS);
}

/* ---- names ------------------------------------------------------------------------------------
 * */

static void test_directories(void **state)
{
    struct fixture *f = *state;
    struct fb_attr attr;

    assert_int_equal(make_node(f, "dir", S_IFDIR | 0750), 0);
    assert_int_equal(make_node(f, "dir", S_IFDIR | 0750), -EEXIST);
    assert_int_equal(make_node(f, "none/dir", S_IFDIR | 0750), -ENOENT);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "dir", &attr), 0);
    assert_true(S_ISDIR(attr.mode));
    if (f->kind->modes)
        assert_int_equal(attr.mode, S_IFDIR | 0750);
    assert_int_equal(put_file(f, "dir/file", "x"), 0);
    assert_int_equal(commit_dir(f, ""), 0);
    assert_int_equal(commit_dir(f, "dir"), 0);
    assert_int_equal(commit_dir(f, "dir/file"), -ENOTDIR);
    assert_int_equal(commit_dir(f, "none"), -ENOENT);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_RMDIR, "dir", NULL), -ENOTEMPTY);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_UNLINK, "dir", NULL), -EISDIR);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_RMDIR, "dir/file", NULL), -ENOTDIR);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_UNLINK, "dir/file", NULL), 0);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_UNLINK, "dir/file", NULL), -ENOENT);
    assert_int_equal(fb_test_stat(f->source, "dir"), 0);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_RMDIR, "dir", NULL), 0);
    assert_int_equal(fb_test_stat(f->source, "dir"), -ENOENT);
}

static void test_rename(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(put_file(f, "a", "of a"), 0);
    assert_int_equal(put_file(f, "b", "of b"), 0);
    assert_int_equal(two_paths(f, FB_SOURCE_RENAME, "none", "c", 0), -ENOENT);
    assert_int_equal(two_paths(f, FB_SOURCE_RENAME, "a", "b", RENAME_NOREPLACE), -EEXIST);
    expect_text(f, "a", "of a");
    assert_int_equal(two_paths(f, FB_SOURCE_RENAME, "a", "b", 0), 0);
    assert_int_equal(fb_test_stat(f->source, "a"), -ENOENT);
    expect_text(f, "b", "of a");
    assert_int_equal(make_node(f, "dir", S_IFDIR | 0755), 0);
    assert_int_equal(make_node(f, "dir/below", S_IFDIR | 0755), 0);
    assert_int_equal(two_paths(f, FB_SOURCE_RENAME, "b", "dir/below/c", 0), 0);
    assert_int_equal(two_paths(f, FB_SOURCE_RENAME, "dir", "moved", 0), 0);
    expect_text(f, "moved/below/c", "of a");
    assert_int_equal(fb_test_stat(f->source, "dir/below/c"), -ENOENT);
    assert_int_equal(two_paths(f, FB_SOURCE_RENAME, "moved", "moved/below/x", 0), -EINVAL);
}

static void test_escapes(void **state)
{
    struct fixture *f = *state;
    struct fb_source_handle *h;

    assert_true(open_file(f, "../outside", O_WRONLY | O_CREAT, 0644, &h) < 0);
    assert_true(make_node(f, "../outside", S_IFDIR | 0755) < 0);
    assert_true(fb_test_run(f->source, FB_SOURCE_RMDIR, "", NULL) < 0);
    assert_true(make_node(f, "..", S_IFDIR | 0755) < 0);
    assert_int_equal(put_file(f, "file", "x"), 0);
    assert_true(two_paths(f, FB_SOURCE_RENAME, "file", "../outside", 0) < 0);
    expect_text(f, "file", "x");
    if (!f->kind->links)
        return;
    assert_int_equal(two_paths(f, FB_SOURCE_SYMLINK, "out", "..", 0), 0);
    assert_int_equal(open_file(f, "out/x", O_WRONLY | O_CREAT, 0644, &h), -ELOOP);
    assert_int_equal(open_file(f, "out", O_WRONLY, 0, &h), -ELOOP);
}

static void test_links(void **state)
{
    struct fixture *f = *state;
    struct fb_source_handle *h;
    struct fb_attr attr;

    if (!f->kind->links)
        skip();
    assert_int_equal(two_paths(f, FB_SOURCE_SYMLINK, "link", "to nowhere", 0), 0);
    assert_int_equal(two_paths(f, FB_SOURCE_SYMLINK, "link", "x", 0), -EEXIST);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "link", &attr), 0);
    assert_true(S_ISLNK(attr.mode));
    attr.version.mtime_ns = 5 * FB_NS_PER_S;
    assert_int_equal(set_attr(f, "link", NULL, FB_SET_MTIME, &attr), 0);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "link", &attr), 0);
    assert_int_equal(attr.version.mtime_ns, 5 * FB_NS_PER_S);
    assert_int_equal(put_file(f, "file", "x"), 0);
    assert_int_equal(two_paths(f, FB_SOURCE_LINK, "file", "other", 0), 0);
    assert_int_equal(two_paths(f, FB_SOURCE_LINK, "file", "other", 0), -EEXIST);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "other", &attr), 0);
    assert_int_equal(attr.nlink, 2);
    assert_int_equal(make_node(f, "fifo", S_IFIFO | 0600), 0);
    assert_int_equal(open_file(f, "fifo", O_WRONLY, 0, &h), -EINVAL);
    assert_int_equal(make_node(f, "device", S_IFCHR | 0600), -EPERM);
}

/* ---- attributes -------------------------------------------------------------------------------
 * */

static void test_attributes(void **state)
{
    struct fixture *f = *state;
    struct fb_attr attr = {.mode = 0604, .atime_ns = 7, .version = {.mtime_ns = -3}};
    struct fb_attr after;

    if (!f->kind->modes)
        skip();
    assert_int_equal(put_file(f, "file", "x"), 0);
    assert_int_equal(set_attr(f, "none", NULL, FB_SET_MODE, &attr), -ENOENT);
    assert_int_equal(set_attr(f, "file", NULL, FB_SET_MODE | FB_SET_ATIME | FB_SET_MTIME, &attr),
                     0);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "file", &after), 0);
    assert_int_equal(after.mode, S_IFREG | 0604);
    assert_int_equal(after.atime_ns, 7);
    assert_int_equal(after.version.mtime_ns, -3);
    assert_int_equal(set_attr(f, "file", NULL, FB_SET_MTIME_NOW, &attr), 0);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "file", &after), 0);
    assert_true(after.version.mtime_ns > fb_wall_ns() - FB_TEST_PATIENCE_NS);
    assert_int_equal(after.atime_ns, 7);
    if (geteuid() == 0) {
        attr.uid = 1234;
        attr.gid = 4321;
        attr.mode = 04755;
        assert_int_equal(set_attr(f, "file", NULL, FB_SET_UID | FB_SET_GID | FB_SET_MODE, &attr),
                         0);
        assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "file", &after), 0);
        assert_int_equal(after.uid, 1234);
        assert_int_equal(after.gid, 4321);
        assert_int_equal(after.mode, S_IFREG | 04755);
    }
}

/* Whatever the daemon's umask, and for whomever it is made. */
static void test_owner_and_mode(void **state)
{
    struct fixture *f = *state;
    struct fb_source_job *job;
    struct fb_attr attr;
    mode_t umask_before;

    if (!f->kind->modes)
        skip();
    umask_before = umask(077);
    job = fb_test_job(FB_SOURCE_OPEN, "file");
    job->flags = O_RDWR | O_CREAT;
    job->mode = S_IFREG | 0664;
    job->caller = (struct fb_caller){.uid = 1234, .gid = 4321};
    assert_int_equal(fb_source_wait(f->source, job), 0);
    fb_test_closedir(f->source, job->handle);
    fb_source_job_put(job);
    assert_int_equal(make_node(f, "dir", S_IFDIR | 0775), 0);
    umask(umask_before);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "file", &attr), 0);
    assert_int_equal(attr.mode, S_IFREG | 0664);
    assert_int_equal(attr.uid, geteuid() == 0 ? 1234 : geteuid());
    assert_int_equal(attr.gid, geteuid() == 0 ? 4321 : getegid());
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "dir", &attr), 0);
    assert_int_equal(attr.mode, S_IFDIR | 0775);
    if (geteuid() != 0)
        return;
    /* The group of a directory with the set-group-id bit goes to what is made in it. */
    attr.gid = 99;
    attr.mode = 02775;
    assert_int_equal(set_attr(f, "dir", NULL, FB_SET_GID | FB_SET_MODE, &attr), 0);
    assert_int_equal(put_file(f, "dir/file", "x"), 0);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "dir/file", &attr), 0);
    assert_int_equal(attr.gid, 99);
    assert_int_equal(make_node(f, "dir/dir", S_IFDIR | 0755), 0);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "dir/dir", &attr), 0);
    assert_int_equal(attr.gid, 99);
    assert_int_equal(attr.mode, S_IFDIR | 02755);
}

static int change_xattr(struct fixture *f, enum fb_source_op op, const char *name,
                        const char *value, uint32_t flags)
{
    struct fb_source_job *job = fb_test_job(op, "file");

    memcpy(job->name, name, strlen(name) + 1);
    job->flags = flags;
    if (value) {
        job->data = fb_strdup(value);
        job->data_len = strlen(value);
    }
    return run(f, job);
}

static void test_xattrs(void **state)
{
    struct fixture *f = *state;
    struct fb_source_job *job;
    int r;

    if (!f->kind->xattrs)
        skip();
    assert_int_equal(put_file(f, "file", "x"), 0);
    r = change_xattr(f, FB_SOURCE_SETXATTR, "user.name", "value", 0);
    if (r == -ENOTSUP)
        skip();
    assert_int_equal(r, 0);
    assert_int_equal(change_xattr(f, FB_SOURCE_SETXATTR, "user.name", "other", XATTR_CREATE),
                     -EEXIST);
    job = fb_test_job(FB_SOURCE_GETXATTR, "file");
    memcpy(job->name, "user.name", sizeof "user.name");
    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_int_equal(job->data_len, 5);
    assert_memory_equal(job->data, "value", 5);
    fb_source_job_put(job);
    assert_int_equal(change_xattr(f, FB_SOURCE_REMOVEXATTR, "user.name", NULL, 0), 0);
    assert_int_equal(change_xattr(f, FB_SOURCE_REMOVEXATTR, "user.name", NULL, 0), -ENODATA);
}

/* What fits is written and counted; the rest is an error the next time, or with it. */
static void test_partial(void **state)
{
    struct fixture *f = *state;
    struct fb_source_handle *h;
    struct rlimit old, tight;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    uint64_t bytes = 0;
    int r, r2, whole;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(open_file(f, "file", O_WRONLY | O_CREAT, 0644, &h), 0);
    tight = (struct rlimit){.rlim_cur = 6, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    r = write_some(f, h, 0, FB_WRITE_APPEND, "0123456789", 10, &bytes);
    r2 = write_at(f, h, 0, FB_WRITE_APPEND, "6789", 4);
    whole = write_at(f, h, 0, FB_WRITE_WHOLE, "abcdefghij", 10);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(r, 0);
    assert_int_equal(bytes, 6);
    assert_int_equal(r2, -EFBIG);
    assert_int_equal(whole, -EFBIG);
    finish_file(f, h);
    expect_text(f, "file", "abcdef");
}

/* What was left open is closed with the source, and jobs under way end. */
static void test_left_open(void **state)
{
    struct fixture *f = *state;
    struct fb_source_handle *h;

    for (int i = 0; i < 10; i++) {
        char name[16];

        snprintf(name, sizeof name, "file%d", i);
        assert_int_equal(open_file(f, name, O_WRONLY | O_CREAT, 0644, &h), 0);
        assert_int_equal(write_at(f, h, 0, 0, "x", 1), 0);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_create),      TEST(test_replace),    TEST(test_stat_by_handle),
        TEST(test_large),       TEST(test_in_place),   TEST(test_append),
        TEST(test_directories), TEST(test_rename),     TEST(test_escapes),
        TEST(test_links),       TEST(test_attributes), TEST(test_owner_and_mode),
        TEST(test_xattrs),      TEST(test_partial),    TEST(test_left_open),
    };
    int failed = 0;

    for (size_t i = 0; i < FB_ARRAY_SIZE(kinds); i++) {
        kind_now = &kinds[i];
        failed += cmocka_run_group_tests_name(kind_now->name, tests, NULL, NULL);
    }
    return failed;
}
