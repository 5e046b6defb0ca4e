/* What is special about a directory: staying inside it, its root, permissions, odd files. */
#include <linux/capability.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "core/thread.h"
#include "source/source_posix.h"
#include "source/test_jobs.h"

#define BUFFERS      4
#define BUFFER_BYTES (1u << 20)
#define SWAPS        200u

struct fixture {
    struct fb_test_dir dir; /* root/ is the source, outside/ is beside it */
    struct fb_buffer_pool *pool;
    struct fb_source *source;
};

static struct fb_source *open_source(const char *root)
{
    struct fb_posix_config config = {.root = root, .threads = 4};
    struct fb_error err = {0};
    struct fb_source *source = NULL;

    if (fb_source_posix_open(&config, &source, &err) < 0)
        fail_msg("%s", err.text);
    return source;
}

static int set_up(void **state)
{
    struct fixture *f = fb_alloc(sizeof *f);

    assert_non_null(f);
    fb_test_dir_make(&f->dir);
    fb_test_dir_write(&f->dir, "root/file", "inside");
    fb_test_dir_write(&f->dir, "root/sub/file", "deeper");
    fb_test_dir_write(&f->dir, "outside/secret", "secret");
    assert_int_equal(fb_buffer_pool_create(BUFFERS, BUFFER_BYTES, &f->pool), 0);
    f->source = open_source(fb_test_dir_path(&f->dir, "root"));
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

static int read_path(struct fixture *f, const char *path)
{
    return fb_test_read(f->source, f->pool, path);
}

static void make_link(struct fixture *f, const char *target, const char *name)
{
    assert_int_equal(symlink(target, fb_test_dir_path(&f->dir, name)), 0);
}

static void rename_in(struct fixture *f, const char *from, const char *to)
{
    FB_AUTO_FREE char *old = fb_strdup(fb_test_dir_path(&f->dir, from));

    assert_int_equal(rename(old, fb_test_dir_path(&f->dir, to)), 0);
}

static void test_sentences(void **state)
{
    struct fixture *f = *state;
    struct fb_posix_config config = {.root = "/no/such/directory"};
    struct fb_source *source;
    struct fb_error err = {0};

    assert_int_equal(fb_source_posix_open(&config, &source, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/no/such/directory"));
    config.root = fb_test_dir_path(&f->dir, "root/file");
    err.text[0] = '\0';
    assert_int_equal(fb_source_posix_open(&config, &source, &err), -ENOTDIR);
    assert_non_null(strstr(err.text, "is not a directory"));
    assert_int_equal(fb_source_posix_open(&config, &source, NULL), -ENOTDIR);
}

static void test_uri_is_canonical(void **state)
{
    struct fixture *f = *state;
    FB_AUTO_FREE char *real = realpath(fb_test_dir_path(&f->dir, "root"), NULL);
    struct fb_source *source;

    make_link(f, "root/sub/..", "alias");
    source = open_source(fb_test_dir_path(&f->dir, "alias"));
    assert_string_equal(fb_source_uri(source), fb_source_uri(f->source));
    assert_non_null(strstr(fb_source_uri(source), real));
    fb_source_close(source);
}

static void test_no_escape(void **state)
{
    struct fixture *f = *state;
    FB_AUTO_FREE char *absolute = fb_strdup(fb_test_dir_path(&f->dir, "outside"));

    make_link(f, absolute, "root/absolute");
    make_link(f, "../outside", "root/relative");
    make_link(f, "../outside/secret", "root/last");
    make_link(f, "sub", "root/within");
    make_link(f, "/proc/self/root", "root/magic");
    assert_int_equal(read_path(f, "../outside/secret"), -EACCES);
    assert_int_equal(read_path(f, ".."), -EACCES);
    assert_int_equal(read_path(f, "sub/../../outside/secret"), -EACCES);
    assert_int_equal(read_path(f, "/etc/passwd"), -EACCES);
    assert_int_equal(fb_test_stat(f->source, "/"), -EACCES);
    assert_int_equal(read_path(f, "absolute/secret"), -ELOOP);
    assert_int_equal(read_path(f, "relative/secret"), -ELOOP);
    assert_int_equal(read_path(f, "magic/etc/passwd"), -ELOOP);
    assert_int_equal(read_path(f, "last"), -ELOOP);
    assert_int_equal(fb_test_stat(f->source, "relative/"), -ELOOP);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_OPENDIR, "../outside", NULL), -EACCES);
    assert_true(fb_test_run(f->source, FB_SOURCE_OPENDIR, "relative", NULL) < 0);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_LISTXATTR, "relative/secret", NULL), -ELOOP);

    /* Even a link that stays inside is for the door to resolve. */
    assert_int_equal(read_path(f, "within/file"), -ELOOP);
    assert_int_equal(read_path(f, "sub/../file"), 0);
    assert_int_equal(fb_test_stat(f->source, "last"), 0);
}

static void test_odd_files(void **state)
{
    struct fixture *f = *state;
    struct fb_attr attr;

    assert_int_equal(mkfifo(fb_test_dir_path(&f->dir, "root/fifo"), 0600), 0);
    assert_int_equal(read_path(f, "fifo"), -EINVAL);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "fifo", &attr), 0);
    assert_true(S_ISFIFO(attr.mode));
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_OPENDIR, "fifo", NULL), -ENOTDIR);
    assert_int_equal(read_path(f, "sub"), -EISDIR);
    assert_int_equal(read_path(f, ""), -EISDIR);
    if (mknod(fb_test_dir_path(&f->dir, "root/zero"), S_IFCHR | 0600, makedev(1, 5)) == 0) {
        assert_int_equal(read_path(f, "zero"), -EINVAL);
        assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "zero", &attr), 0);
        assert_int_equal(attr.rdev, makedev(1, 5));
    }
}

/* Run by a process of its own, which gives up its privileges: what it may not read, it cannot. */
static int denied(const char *root)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    struct fb_posix_config config = {.root = root};
    struct fb_buffer_pool *pool;
    struct fb_source *source;

    if (syscall(SYS_capset, &header, none) < 0 || fb_buffer_pool_create(1, 4096, &pool) < 0 ||
        fb_source_posix_open(&config, &source, NULL) < 0)
        return 1;
    if (fb_test_read(source, pool, "closed") != -EACCES)
        return 2;
    if (fb_test_read(source, pool, "sealed/file") != -EACCES)
        return 3;
    if (fb_test_stat(source, "closed") != 0 || fb_test_stat(source, "sealed/file") != -EACCES)
        return 4;
    if (fb_test_read(source, pool, "file") != 0)
        return 5;
    if (fb_test_run(source, FB_SOURCE_OPENDIR, "sealed", NULL) != -EACCES)
        return 6;
    fb_source_close(source);
    fb_buffer_pool_destroy(pool);
    return 0;
}

static void test_permissions(void **state)
{
    struct fixture *f = *state;
    int status;
    pid_t pid;

    fb_test_dir_write(&f->dir, "root/closed", "");
    fb_test_dir_write(&f->dir, "root/sealed/file", "x");
    assert_int_equal(chmod(fb_test_dir_path(&f->dir, "root/closed"), 0), 0);
    assert_int_equal(chmod(fb_test_dir_path(&f->dir, "root/sealed"), 0), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", "test_source_posix", "denied", fb_test_dir_path(&f->dir, "root"),
              (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(chmod(fb_test_dir_path(&f->dir, "root/sealed"), 0700), 0);
}

static void test_reading_leaves_no_trace(void **state)
{
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct fixture *f = *state;
    struct stat st;

    assert_int_equal(utimensat(AT_FDCWD, fb_test_dir_path(&f->dir, "root/file"), old, 0), 0);
    assert_int_equal(read_path(f, "file"), 0);
    assert_int_equal(stat(fb_test_dir_path(&f->dir, "root/file"), &st), 0);
    assert_int_equal(st.st_atim.tv_sec, 1000);
}

/* ---- the root -------------------------------------------------------------------------------- */

static void test_root_renamed_away_and_back(void **state)
{
    struct fixture *f = *state;

    rename_in(f, "root", "elsewhere");
    assert_int_equal(fb_test_stat(f->source, "missing"), -EIO);
    /* Once that is known, nothing is answered, though the descriptor still works. */
    assert_int_equal(read_path(f, "file"), -EIO);
    assert_int_equal(fb_test_stat(f->source, ""), -EIO);
    rename_in(f, "elsewhere", "root");
    assert_int_equal(read_path(f, "file"), 0);
    assert_int_equal(fb_test_stat(f->source, "missing"), -ENOENT);
}

static void test_root_lost_is_noticed_by_itself(void **state)
{
    struct fixture *f = *state;

    rename_in(f, "root", "elsewhere");
    FB_TEST_EVENTUALLY(read_path(f, "file") == -EIO);
    rename_in(f, "elsewhere", "root");
    assert_int_equal(read_path(f, "file"), 0);
}

static void test_root_removed_and_made_anew(void **state)
{
    struct fixture *f = *state;
    struct fb_source_handle *dir = fb_test_opendir(f->source, "sub");

    assert_int_equal(unlink(fb_test_dir_path(&f->dir, "root/file")), 0);
    assert_int_equal(fb_test_stat(f->source, "file"), -ENOENT);
    assert_int_equal(unlink(fb_test_dir_path(&f->dir, "root/sub/file")), 0);
    assert_int_equal(rmdir(fb_test_dir_path(&f->dir, "root/sub")), 0);
    assert_int_equal(rmdir(fb_test_dir_path(&f->dir, "root")), 0);
    assert_int_equal(fb_test_stat(f->source, "file"), -EIO);
    assert_int_equal(fb_test_stat(f->source, "file"), -EIO);
    fb_test_dir_write(&f->dir, "root/file", "again");
    assert_int_equal(read_path(f, "file"), 0);
    assert_int_equal(fb_test_stat(f->source, "sub"), -ENOENT);
    fb_test_closedir(f->source, dir);
}

static void test_root_replaced(void **state)
{
    struct fixture *f = *state;

    fb_test_dir_write(&f->dir, "new/fresh", "x");
    rename_in(f, "root", "old");
    rename_in(f, "new", "root");
    assert_int_equal(read_path(f, "fresh"), 0);
    assert_int_equal(read_path(f, "file"), -ENOENT);
}

static void test_root_becomes_a_file(void **state)
{
    struct fixture *f = *state;

    rename_in(f, "root", "old");
    fb_test_dir_write(&f->dir, "root", "not a directory");
    assert_int_equal(fb_test_stat(f->source, "missing"), -EIO);
}

static void test_dirs_left_open(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 20; i++)
        assert_non_null(fb_test_opendir(f->source, "sub"));
}

/* ---- files that change while they are read --------------------------------------------------- */

#define VERSION_STEP 4096
#define VERSIONS     200 /* of different lengths, at most BUFFERS * BUFFER_BYTES */
#define CHANGES      2000

struct writer {
    struct fixture *f;
    _Atomic bool over;
    void (*change)(struct fixture *f, unsigned i);
};

static void *writer_main(void *arg)
{
    struct writer *w = arg;

    for (unsigned i = 0; i < CHANGES; i++)
        w->change(w->f, i);
    atomic_store(&w->over, true);
    return NULL;
}

/* Version k is k * VERSION_STEP bytes of k. */
static void replace_file(struct fixture *f, unsigned i)
{
    static uint8_t data[VERSIONS * VERSION_STEP];
    unsigned k = 1 + i % VERSIONS;
    int fd = open(fb_test_dir_path(&f->dir, "root/next"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    memset(data, (int)k, (size_t)k * VERSION_STEP);
    assert_int_equal(write(fd, data, (size_t)k * VERSION_STEP), k * VERSION_STEP);
    close(fd);
    rename_in(f, "root/next", "root/changing");
}

static void append_to_file(struct fixture *f, unsigned i)
{
    uint8_t page[VERSION_STEP];
    int fd = open(fb_test_dir_path(&f->dir, "root/changing"), O_WRONLY | O_APPEND | O_CLOEXEC);

    assert_true(fd >= 0);
    memset(page, (int)(i % 251), sizeof page);
    assert_int_equal(write(fd, page, 1 + i % 100), 1 + i % 100);
    close(fd);
}

/* Shorter and shorter, a byte at a time. */
static void truncate_file(struct fixture *f, unsigned i)
{
    assert_int_equal(truncate(fb_test_dir_path(&f->dir, "root/changing"),
                              (off_t)VERSIONS * VERSION_STEP - 1 - (off_t)i),
                     0);
}

/* Reads the file while it is changed; checks every answer; returns how many were not -ESTALE. */
static unsigned read_while(struct fixture *f, void (*change)(struct fixture *f, unsigned i),
                           void (*check)(const struct fb_source_job *job))
{
    struct writer w = {.f = f, .change = change};
    unsigned good = 0;
    pthread_t thread;
    bool over;

    assert_int_equal(fb_thread_start(&thread, "writer", writer_main, &w), 0);
    do {
        struct fb_source_job *job;
        int r;

        over = atomic_load(&w.over);
        job = fb_test_read_job(f->pool, "changing", 0, (size_t)BUFFERS * BUFFER_BYTES);
        r = fb_source_wait(f->source, job);
        if (r == 0) {
            assert_int_equal(job->bytes, job->attr.version.size);
            check(job);
            good++;
        } else {
            assert_int_equal(r, -ESTALE);
            assert_true(job->bytes > 0); /* for who wants the file as it is */
        }
        fb_source_job_put(job);
    } while (!over);
    pthread_join(thread, NULL);
    return good;
}

static void check_replaced(const struct fb_source_job *job)
{
    uint64_t k = job->attr.version.size / VERSION_STEP;

    for (uint64_t i = 0; i < job->bytes; i += 512)
        assert_int_equal(fb_test_byte(job, i), k);
    assert_int_equal(fb_test_byte(job, job->bytes - 1), k);
}

static void check_nothing(const struct fb_source_job *job)
{
    (void)job;
}

static void test_replaced_while_read(void **state)
{
    replace_file(*state, 0);
    assert_true(read_while(*state, replace_file, check_replaced) > 0);
}

static void test_appended_while_read(void **state)
{
    replace_file(*state, 0);
    assert_true(read_while(*state, append_to_file, check_nothing) > 0);
}

static void test_truncated_while_read(void **state)
{
    replace_file(*state, VERSIONS - 1);
    assert_true(read_while(*state, truncate_file, check_nothing) > 0);
}

/* Without a version to expect, any is fine, but the one told is the one read. */
static void test_expected_version(void **state)
{
    struct fixture *f = *state;
    struct fb_source_job *job;
    struct fb_attr before, after;

    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "file", &before), 0);
    fb_test_dir_write(&f->dir, "root/file", "inside, and longer");
    job = fb_test_read_job(f->pool, "file", 0, 100);
    job->expected = before.version;
    job->expect = &job->expected;
    assert_int_equal(fb_source_wait(f->source, job), -ESTALE);
    after = job->attr;
    fb_source_job_put(job);
    assert_int_equal(after.version.size, strlen("inside, and longer"));
    job = fb_test_read_job(f->pool, "file", 0, 100);
    job->expected = after.version;
    job->expect = &job->expected;
    assert_int_equal(fb_source_wait(f->source, job), 0);
    fb_source_job_put(job);
}

/* Somebody who may write to the directory puts another file in the place of what is made there. */
struct swapper {
    const char *mine, *name;
    _Atomic bool stop;
    _Atomic unsigned swaps;
};

static void *swap(void *arg)
{
    struct swapper *s = arg;

    while (!atomic_load(&s->stop)) {
        if (renameat2(AT_FDCWD, s->mine, AT_FDCWD, s->name, RENAME_EXCHANGE) == 0)
            atomic_fetch_add(&s->swaps, 1);
    }
    return NULL;
}

static void make_while_swapped(struct fixture *f, uint32_t type)
{
    FB_AUTO_FREE char *mine = fb_strdup(fb_test_dir_path(&f->dir, "root/mine"));
    FB_AUTO_FREE char *name = fb_strdup(fb_test_dir_path(&f->dir, "root/made"));
    FB_AUTO_FREE char *secret = fb_strdup(fb_test_dir_path(&f->dir, "outside/secret"));
    struct swapper s = {.mine = mine, .name = name};
    pthread_t thread;
    struct stat st;

    assert_int_equal(chmod(secret, 0600), 0);
    assert_int_equal(fb_thread_start(&thread, "swapper", swap, &s), 0);
    for (unsigned i = 0; i < SWAPS; i++) {
        struct fb_source_job *job = fb_test_job(FB_SOURCE_MKNOD, "made");
        unsigned before = atomic_load(&s.swaps);

        job->mode = type | 0666;
        job->caller = (struct fb_caller){.uid = geteuid(), .gid = getegid()};
        assert_int_equal(link(secret, mine), 0);
        assert_int_equal(fb_source_wait(f->source, job), 0);
        fb_source_job_put(job);
        FB_TEST_EVENTUALLY(atomic_load(&s.swaps) != before);
        assert_int_equal(stat(secret, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(unlink(mine), 0);
        assert_int_equal(unlink(name), 0);
    }
    atomic_store(&s.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void test_swapped_when_made(void **state)
{
    make_while_swapped(*state, S_IFREG);
    make_while_swapped(*state, S_IFIFO);
}

/* A change that is meant for one file is not made to another that has its name by now. */
static void test_own_file(void **state)
{
    struct fixture *f = *state;

    static const enum fb_source_op ops[] = {FB_SOURCE_OPEN, FB_SOURCE_SETATTR, FB_SOURCE_SETXATTR};
    struct fb_attr own, other;

    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "file", &own), 0);
    fb_test_dir_write(&f->dir, "root/other", "another");
    rename_in(f, "root/other", "root/file");
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "file", &other), 0);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(ops); i++) {
        struct fb_source_job *job = fb_test_job(ops[i], "file");

        job->own_dev = own.dev;
        job->own_ino = own.ino;
        job->flags = ops[i] == FB_SOURCE_OPEN ? O_WRONLY | O_TRUNC : 0;
        job->set = FB_SET_SIZE;
        strcpy(job->name, "user.mark");
        assert_int_equal(fb_source_wait(f->source, job), -ESTALE);
        fb_source_job_put(job);
    }
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "file", &own), 0);
    assert_true(fb_version_equal(&own.version, &other.version));
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_sentences),
        TEST(test_uri_is_canonical),
        TEST(test_no_escape),
        TEST(test_odd_files),
        TEST(test_permissions),
        TEST(test_reading_leaves_no_trace),
        TEST(test_root_renamed_away_and_back),
        TEST(test_root_lost_is_noticed_by_itself),
        TEST(test_root_removed_and_made_anew),
        TEST(test_root_replaced),
        TEST(test_root_becomes_a_file),
        TEST(test_dirs_left_open),
        TEST(test_replaced_while_read),
        TEST(test_appended_while_read),
        TEST(test_truncated_while_read),
        TEST(test_expected_version),
        TEST(test_swapped_when_made),
        TEST(test_own_file),
    };

    if (argc == 3 && !strcmp(argv[1], "denied"))
        return denied(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
