/*
 * What every source promises, checked on each: a directory, and the same behind the fault wrapper
 * with small delays. A further source is one more row in `kinds`.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/xattr.h>

#include "base/rand.h"
#include "core/thread.h"
#include "source/source_fault.h"
#include "source/source_posix.h"
#include "source/test_jobs.h"

#define BUFFERS      64
#define BUFFER_BYTES 65536

struct fixture {
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
        .latency_ns = 10 * FB_NS_PER_US,
        .jitter_ns = 200 * FB_NS_PER_US,
        .bandwidth = 4ull << 30,
        .seed = 1,
    };
    struct fb_source *source;

    assert_int_equal(fb_source_fault_open(open_posix(root), &config, &source), 0);
    return source;
}

static int set_up(void **state, struct fb_source *(*open_kind)(const char *root))
{
    struct fixture *f = fb_alloc(sizeof *f);

    assert_non_null(f);
    fb_test_dir_make(&f->dir);
    assert_int_equal(fb_buffer_pool_create(BUFFERS, BUFFER_BYTES, &f->pool), 0);
    f->source = open_kind(f->dir.path);
    *state = f;
    return 0;
}

static int set_up_posix(void **state)
{
    return set_up(state, open_posix);
}

static int set_up_fault(void **state)
{
    return set_up(state, open_fault);
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

static uint8_t pattern(uint64_t i)
{
    return (uint8_t)(i * 7 + (i >> 9));
}

static void write_pattern(struct fixture *f, const char *name, size_t size)
{
    FB_AUTO_CLOSE int fd =
        open(fb_test_dir_path(&f->dir, name), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    FB_AUTO_FREE uint8_t *data = malloc(size + 1);

    assert_true(fd >= 0 && data);
    for (size_t i = 0; i < size; i++)
        data[i] = pattern(i);
    assert_int_equal(write(fd, data, size), size);
}

static void test_stat(void **state)
{
    struct fixture *f = *state;
    struct timespec times[2] = {{.tv_sec = 11, .tv_nsec = 5}, {.tv_sec = 12, .tv_nsec = 123456789}};
    struct fb_attr attr;
    struct stat st;
    const char *path;

    fb_test_dir_write(&f->dir, "dir/file", "hello");
    path = fb_test_dir_path(&f->dir, "dir/file");
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "dir/file", &attr), 0);
    assert_int_equal(attr.version.size, 5);
    assert_int_equal(attr.version.mtime_ns, 12 * FB_NS_PER_S + 123456789);
    assert_int_equal(attr.version.ctime_ns, fb_timespec_ns(&st.st_ctim));
    assert_int_equal(attr.version.tag[0], st.st_ino);
    assert_int_equal(attr.atime_ns, 11 * FB_NS_PER_S + 5);
    assert_int_equal(attr.ino, st.st_ino);
    assert_int_equal(attr.mode, st.st_mode);
    assert_int_equal(attr.nlink, 1);
    assert_int_equal(attr.uid, st.st_uid);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "", &attr), 0);
    assert_true(S_ISDIR(attr.mode));
    assert_int_equal(symlink("nowhere", fb_test_dir_path(&f->dir, "link")), 0);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "link", &attr), 0);
    assert_true(S_ISLNK(attr.mode));
    assert_int_equal(attr.version.size, strlen("nowhere"));
}

static void test_absences(void **state)
{
    struct fixture *f = *state;
    char name[FB_NAME_MAX + 2];

    fb_test_dir_write(&f->dir, "file", "x");
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(fb_test_stat(f->source, "missing"), -ENOENT);
    assert_int_equal(fb_test_stat(f->source, "missing/below"), -ENOENT);
    assert_int_equal(fb_test_stat(f->source, "file/below"), -ENOTDIR);
    assert_int_equal(fb_test_stat(f->source, name), -ENAMETOOLONG);
    assert_int_equal(fb_test_read(f->source, f->pool, "missing"), -ENOENT);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_OPENDIR, "missing", NULL), -ENOENT);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_OPENDIR, "file", NULL), -ENOTDIR);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_READLINK, "file", NULL), -EINVAL);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_READLINK, "missing", NULL), -ENOENT);
}

static void check_read(struct fixture *f, const char *name, uint64_t size, uint64_t offset,
                       size_t len)
{
    struct fb_source_job *job = fb_test_read_job(f->pool, name, offset, len);
    uint64_t want = offset < size ? fb_min_u64(len, size - offset) : 0;

    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_int_equal(job->bytes, want);
    assert_int_equal(job->attr.version.size, size);
    for (uint64_t i = 0; i < want; i++) {
        if (fb_test_byte(job, i) != pattern(offset + i))
            fail_msg("byte %llu is wrong", (unsigned long long)(offset + i));
    }
    fb_source_job_put(job);
}

static void test_read(void **state)
{
    struct fixture *f = *state;
    const uint64_t size = 1000003;
    struct fb_rand rand = {.state = 4};

    write_pattern(f, "file", size);
    check_read(f, "file", size, 0, size);
    check_read(f, "file", size, 0, size + 5);
    check_read(f, "file", size, size - 1, 100);
    check_read(f, "file", size, size, 100);
    check_read(f, "file", size, size + 1000, 100);
    check_read(f, "file", size, UINT64_MAX - 5, 100);
    check_read(f, "file", size, 17, 0);
    for (int i = 0; i < 100; i++)
        check_read(f, "file", size, fb_rand_below(&rand, size),
                   fb_rand_below(&rand, (uint64_t)BUFFER_BYTES * 4));
}

static void test_read_scattered(void **state)
{
    struct fixture *f = *state;
    struct fb_source_job *job = fb_test_job(FB_SOURCE_READ, "file");

    write_pattern(f, "file", 10000);
    job->buffers[0] = fb_buffer_get(f->pool);
    job->buffer_count = 1;
    assert_non_null(job->buffers[0]);
    job->iov_count = FB_SOURCE_IOV_MAX;
    /* Lengths of 0 and more, with a gap behind each. */
    for (unsigned i = 0; i < FB_SOURCE_IOV_MAX; i++)
        job->iov[i] = (struct iovec){job->buffers[0]->data + (size_t)i * 200, i};
    memset(job->buffers[0]->data, 0xee, BUFFER_BYTES);
    job->offset = 3;
    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_int_equal(job->bytes, FB_SOURCE_IOV_MAX * (FB_SOURCE_IOV_MAX - 1) / 2);
    for (uint64_t i = 0; i < job->bytes; i++)
        assert_int_equal(fb_test_byte(job, i), pattern(3 + i));
    for (unsigned i = 0; i < FB_SOURCE_IOV_MAX; i++)
        assert_int_equal(job->buffers[0]->data[i * 200 + i], 0xee);
    fb_source_job_put(job);
}

static void test_empty_and_sparse(void **state)
{
    struct fixture *f = *state;
    const uint64_t size = 5ull << 30;
    struct fb_source_job *job;

    write_pattern(f, "empty", 0);
    check_read(f, "empty", 0, 0, 100);
    write_pattern(f, "sparse", 1);
    assert_int_equal(truncate(fb_test_dir_path(&f->dir, "sparse"), (off_t)size), 0);
    job = fb_test_read_job(f->pool, "sparse", size - 1000, 2000);
    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_int_equal(job->bytes, 1000);
    assert_int_equal(job->attr.version.size, size);
    for (uint64_t i = 0; i < job->bytes; i++)
        assert_int_equal(fb_test_byte(job, i), 0);
    fb_source_job_put(job);
}

static void test_expected_version(void **state)
{
    struct fixture *f = *state;
    struct fb_source_job *job;
    struct fb_attr attr;

    write_pattern(f, "file", 100);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_STAT, "file", &attr), 0);
    for (int wrong = 0; wrong < 2; wrong++) {
        job = fb_test_read_job(f->pool, "file", 0, 100);
        job->expected = attr.version;
        job->expected.mtime_ns += wrong;
        job->expect = &job->expected;
        assert_int_equal(fb_source_wait(f->source, job), wrong ? -ESTALE : 0);
        assert_true(fb_version_equal(&job->attr.version, &attr.version));
        fb_source_job_put(job);
    }
}

static void test_readlink(void **state)
{
    static const char target[] = "../some where/\xc3\xa9\n";
    struct fixture *f = *state;
    struct fb_source_job *job = fb_test_job(FB_SOURCE_READLINK, "link");

    assert_int_equal(symlink(target, fb_test_dir_path(&f->dir, "link")), 0);
    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_string_equal(job->data, target);
    assert_int_equal(job->data_len, strlen(target));
    fb_source_job_put(job);
}

static void test_statfs(void **state)
{
    struct fixture *f = *state;
    struct fb_source_job *job = fb_test_job(FB_SOURCE_STATFS, NULL);
    struct statvfs st;

    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_int_equal(statvfs(f->dir.path, &st), 0);
    assert_int_equal(job->statfs.f_bsize, st.f_bsize);
    assert_int_equal(job->statfs.f_blocks, st.f_blocks);
    fb_source_job_put(job);
}

static void test_xattrs(void **state)
{
    struct fixture *f = *state;
    struct fb_source_job *job;
    char value[3000];

    fb_test_dir_write(&f->dir, "file", "x");
    memset(value, 'v', sizeof value);
    if (setxattr(fb_test_dir_path(&f->dir, "file"), "user.test", value, sizeof value, 0) < 0) {
        print_message("no user attributes here\n");
        return;
    }
    job = fb_test_job(FB_SOURCE_GETXATTR, "file");
    strcpy(job->name, "user.test"); /* NOLINT: it fits */
    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_int_equal(job->data_len, sizeof value);
    assert_memory_equal(job->data, value, sizeof value);
    fb_source_job_put(job);
    job = fb_test_job(FB_SOURCE_GETXATTR, "file");
    strcpy(job->name, "user.none"); /* NOLINT: it fits */
    assert_int_equal(fb_source_wait(f->source, job), -ENODATA);
    fb_source_job_put(job);
    job = fb_test_job(FB_SOURCE_LISTXATTR, "file");
    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_non_null(memmem(job->data, job->data_len, "user.test", sizeof "user.test"));
    fb_source_job_put(job);
    assert_int_equal(fb_test_run(f->source, FB_SOURCE_LISTXATTR, "missing", NULL), -ENOENT);
}

/* ---- names and listings ---------------------------------------------------------------------- */

typedef void entry_fn(void *arg, const struct fb_source_dirent *entry);

/* One batch from `cookie`; false at the end. The last entry's cookie is left there. */
static bool list_batch(struct fixture *f, struct fb_source_handle *dir, bool attrs,
                       uint64_t *cookie, entry_fn *each, void *arg)
{
    struct fb_source_job *job = fb_test_job(FB_SOURCE_READDIR, NULL);
    bool more;

    job->handle = dir;
    job->cookie = *cookie;
    job->want_attrs = attrs;
    assert_int_equal(fb_source_wait(f->source, job), 0);
    assert_true(job->data_len <= FB_SOURCE_LIST_BYTES);
    for (size_t at = 0; at < job->data_len;) {
        const struct fb_source_dirent *entry = (const void *)(job->data + at);

        assert_int_equal(entry->length % 8, 0);
        assert_int_equal(strlen(entry->name), entry->name_len);
        assert_int_equal(entry->has_attr, attrs);
        each(arg, entry);
        *cookie = entry->cookie;
        at += entry->length;
    }
    more = job->data_len > 0;
    fb_source_job_put(job);
    return more;
}

static void list_all(struct fixture *f, const char *path, bool attrs, entry_fn *each, void *arg)
{
    struct fb_source_handle *dir = fb_test_opendir(f->source, path);
    uint64_t cookie = 0;

    while (list_batch(f, dir, attrs, &cookie, each, arg))
        continue;
    fb_test_closedir(f->source, dir);
}

static void see_xattrs(void *arg, const struct fb_source_dirent *entry)
{
    unsigned *none = arg;

    if (strcmp(entry->name, "file") == 0)
        assert_false(entry->no_xattrs);
    *none += entry->no_xattrs;
}

/* What is said to be without extended attributes is. */
static void test_listed_xattrs(void **state)
{
    struct fixture *f = *state;
    unsigned none = 0;

    fb_test_dir_write(&f->dir, "file", "x");
    fb_test_dir_write(&f->dir, "plain", "x");
    if (setxattr(fb_test_dir_path(&f->dir, "file"), "user.test", "v", 1, 0) < 0) {
        print_message("no user attributes here\n");
        return;
    }
    list_all(f, "", false, see_xattrs, &none);
    assert_int_equal(none, 0);
    list_all(f, "", true, see_xattrs, &none);
    assert_true(none <= 1);
}

static const char *const odd_names[] = {
    "new\nline",
    "\xc3\xa9t\xc3\xa9 \xe6\xb0\xb4",
    "\xff\xfe not UTF-8",
    " ",
    "-rf",
    "...",
    ".hidden",
    "back\\slash",
    "%s%n",
};

struct seen {
    unsigned odd[FB_ARRAY_SIZE(odd_names)];
    unsigned longest;
    unsigned total;
};

static void see_odd(void *arg, const struct fb_source_dirent *entry)
{
    struct seen *seen = arg;

    seen->total++;
    seen->longest += entry->name_len == FB_NAME_MAX;
    for (size_t i = 0; i < FB_ARRAY_SIZE(odd_names); i++)
        seen->odd[i] += !strcmp(entry->name, odd_names[i]);
}

static void test_names(void **state)
{
    struct fixture *f = *state;
    char longest[FB_NAME_MAX + 1];
    struct seen seen = {0};

    memset(longest, 'l', FB_NAME_MAX);
    longest[FB_NAME_MAX] = '\0';
    fb_test_dir_write(&f->dir, longest, "hello");
    assert_int_equal(fb_test_read(f->source, f->pool, longest), 0);
    for (size_t i = 0; i < FB_ARRAY_SIZE(odd_names); i++) {
        fb_test_dir_write(&f->dir, odd_names[i], "hello");
        assert_int_equal(fb_test_stat(f->source, odd_names[i]), 0);
        assert_int_equal(fb_test_read(f->source, f->pool, odd_names[i]), 0);
    }
    list_all(f, "", true, see_odd, &seen);
    assert_int_equal(seen.total, FB_ARRAY_SIZE(odd_names) + 1);
    assert_int_equal(seen.longest, 1);
    for (size_t i = 0; i < FB_ARRAY_SIZE(odd_names); i++)
        assert_int_equal(seen.odd[i], 1);
}

static void see_types(void *arg, const struct fb_source_dirent *entry)
{
    unsigned *types = arg;

    types[entry->type]++;
    if (entry->has_attr) {
        assert_int_equal(entry->type, IFTODT(entry->attr.mode));
        assert_int_equal(entry->ino, entry->attr.ino);
    }
}

static void test_types(void **state)
{
    struct fixture *f = *state;

    fb_test_dir_write(&f->dir, "d/file", "x");
    fb_test_dir_write(&f->dir, "d/dir/file", "x");
    assert_int_equal(symlink("file", fb_test_dir_path(&f->dir, "d/link")), 0);
    assert_int_equal(mkfifo(fb_test_dir_path(&f->dir, "d/fifo"), 0600), 0);
    for (int attrs = 0; attrs < 2; attrs++) {
        unsigned types[256] = {0};

        list_all(f, "d", attrs, see_types, types);
        assert_int_equal(
            types[DT_REG] + types[DT_DIR] + types[DT_LNK] + types[DT_FIFO] + types[DT_UNKNOWN], 4);
        if (attrs)
            assert_int_equal(types[DT_UNKNOWN], 0);
    }
}

static void test_empty_dir(void **state)
{
    struct fixture *f = *state;
    unsigned types[256] = {0};

    assert_int_equal(mkdir(fb_test_dir_path(&f->dir, "empty"), 0700), 0);
    list_all(f, "empty", false, see_types, types);
    for (int i = 0; i < 256; i++)
        assert_int_equal(types[i], 0);
}

#define MANY 20000

static void make_many(struct fixture *f)
{
    char name[64];

    for (int i = 0; i < MANY; i++) {
        /* Short and long ones, so that batches end at all kinds of places. */
        snprintf(name, sizeof name, "%.*s%d", i % 40, "a-name-of-many-different-lengths-as-they-go",
                 i);
        assert_int_equal(
            close(open(fb_test_dir_path(&f->dir, name), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
    }
}

struct many {
    uint8_t seen[MANY];
    uint64_t cookie[MANY]; /* where to go on after the entry */
    unsigned order[MANY];  /* the entries as listed */
    unsigned count;
};

static unsigned number(const struct fb_source_dirent *entry)
{
    const char *digits = entry->name + entry->name_len;

    while (digits > entry->name && digits[-1] >= '0' && digits[-1] <= '9')
        digits--;
    return (unsigned)strtoul(digits, NULL, 10);
}

static void see_many(void *arg, const struct fb_source_dirent *entry)
{
    struct many *many = arg;
    unsigned i = number(entry);

    assert_true(i < MANY && many->count < MANY);
    many->seen[i]++;
    many->cookie[i] = entry->cookie;
    many->order[many->count++] = i;
}

static void see_first(void *arg, const struct fb_source_dirent *entry)
{
    unsigned *first = arg;

    if (*first == MANY)
        *first = number(entry);
}

static void test_many_entries(void **state)
{
    struct fixture *f = *state;
    FB_AUTO_FREE struct many *many = fb_alloc(sizeof *many);
    struct fb_rand rand = {.state = 5};
    struct fb_source_handle *dir;

    make_many(f);
    assert_non_null(many);
    for (int attrs = 0; attrs < 2; attrs++) {
        memset(many, 0, sizeof *many);
        list_all(f, "", attrs, see_many, many);
        for (int i = 0; i < MANY; i++)
            assert_int_equal(many->seen[i], 1);
    }
    /* Any cookie, in any order, also of another opening, leads to the entry behind it. */
    dir = fb_test_opendir(f->source, "");
    for (int i = 0; i < 50; i++) {
        unsigned at = (unsigned)fb_rand_below(&rand, MANY - 1), first = MANY;
        uint64_t cookie = many->cookie[many->order[at]];

        assert_true(list_batch(f, dir, false, &cookie, see_first, &first));
        assert_int_equal(first, many->order[at + 1]);
    }
    fb_test_closedir(f->source, dir);
}

/* ---- many at once ---------------------------------------------------------------------------- */

#define THREADS     8
#define THREAD_JOBS 10000
#define WINDOW      32 /* of a thread's jobs in flight */
#define FILES       16

struct storm {
    struct fixture *f;
    _Atomic unsigned number;
    _Atomic unsigned done;
    _Atomic unsigned wrong;
};

struct thread_jobs {
    struct storm *storm;
    struct fb_rand rand;
    _Atomic unsigned in_flight;
};

static void storm_done(struct fb_source_job *job)
{
    struct thread_jobs *jobs = job->arg;
    bool missing = !strcmp(job->path, "missing");
    bool right = job->result == (missing ? -ENOENT : 0);

    if (right && job->op == FB_SOURCE_READ)
        right = job->bytes == 100 && fb_test_byte(job, 99) == pattern(99);
    atomic_fetch_add(&jobs->storm->wrong, !right);
    atomic_fetch_add(&jobs->storm->done, 1);
    fb_source_job_put(job);
    atomic_fetch_sub(&jobs->in_flight, 1);
}

static void submit_one(struct thread_jobs *jobs)
{
    struct fixture *f = jobs->storm->f;
    uint64_t dice = fb_rand_below(&jobs->rand, 4);
    struct fb_buffer *buffer = dice == 0 ? fb_buffer_get(f->pool) : NULL;
    struct fb_source_job *job;
    char name[16];

    snprintf(name, sizeof name, "f%u", (unsigned)fb_rand_below(&jobs->rand, FILES));
    job = fb_test_job(buffer ? FB_SOURCE_READ : FB_SOURCE_STAT, dice == 1 ? "missing" : name);
    if (buffer) {
        job->buffers[job->buffer_count++] = buffer;
        job->iov[job->iov_count++] = (struct iovec){buffer->data, 100};
    }
    job->done = storm_done;
    job->arg = jobs;
    atomic_fetch_add(&jobs->in_flight, 1);
    fb_source_submit(f->source, job);
}

static void *storm_main(void *arg)
{
    struct storm *storm = arg;
    struct thread_jobs jobs = {.storm = storm, .rand.state = atomic_fetch_add(&storm->number, 1)};

    for (int i = 0; i < THREAD_JOBS; i++) {
        while (atomic_load(&jobs.in_flight) >= WINDOW)
            fb_sleep_ns(20 * FB_NS_PER_US);
        submit_one(&jobs);
    }
    while (atomic_load(&jobs.in_flight) > 0)
        fb_sleep_ns(20 * FB_NS_PER_US);
    return NULL;
}

static void test_many_threads(void **state)
{
    struct storm storm = {.f = *state};
    pthread_t threads[THREADS];
    char name[16];

    for (unsigned i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "f%u", i);
        write_pattern(*state, name, 1000);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(fb_thread_start(&threads[i], "storm", storm_main, &storm), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&storm.done), THREADS * THREAD_JOBS);
    assert_int_equal(atomic_load(&storm.wrong), 0);
}

static void closing_done(struct fb_source_job *job)
{
    _Atomic unsigned *count = job->arg;

    if (job->result == 0 || job->result == -ESHUTDOWN)
        atomic_fetch_add(count, 1);
    fb_source_job_put(job);
}

static void test_close_in_flight(void **state)
{
    struct fixture *f = *state;
    _Atomic unsigned count = 0;

    write_pattern(f, "file", 1000);
    for (int i = 0; i < 500; i++) {
        struct fb_source_job *job = i < BUFFERS ? fb_test_read_job(f->pool, "file", 0, 100)
                                                : fb_test_job(FB_SOURCE_STAT, "");

        job->done = closing_done;
        job->arg = &count;
        fb_source_submit(f->source, job);
    }
    fb_source_close(f->source);
    f->source = NULL;
    assert_int_equal(atomic_load(&count), 500);
}

static void test_statistics(void **state)
{
    struct fixture *f = *state;
    struct fb_source_stats stats;

    write_pattern(f, "file", 1000);
    check_read(f, "file", 1000, 0, 1000);
    assert_int_equal(fb_test_stat(f->source, "missing"), -ENOENT);
    fb_source_stats(f->source, &stats);
    assert_int_equal(stats.jobs, 2);
    assert_int_equal(stats.bytes_read, 1000);
    assert_int_equal(stats.errors, 0);
    assert_int_equal(stats.timeouts, 0);
    assert_int_equal(stats.in_flight, 0);
    assert_int_equal(stats.health, FB_SOURCE_UP);
}

static int run_kind(const char *kind, CMFixtureFunction set_up_kind)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_kind, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_stat),
        TEST(test_absences),
        TEST(test_read),
        TEST(test_read_scattered),
        TEST(test_empty_and_sparse),
        TEST(test_expected_version),
        TEST(test_readlink),
        TEST(test_statfs),
        TEST(test_xattrs),
        TEST(test_names),
        TEST(test_listed_xattrs),
        TEST(test_types),
        TEST(test_empty_dir),
        TEST(test_many_entries),
        TEST(test_many_threads),
        TEST(test_close_in_flight),
        TEST(test_statistics),
    };

    return cmocka_run_group_tests_name(kind, tests, NULL, NULL);
}

int main(void)
{
    static const struct {
        const char *name;
        CMFixtureFunction set_up;
    } kinds[] = {
        {"posix", set_up_posix},
        {"fault", set_up_fault},
    };

    int failed = 0;

    for (size_t i = 0; i < FB_ARRAY_SIZE(kinds); i++)
        failed += run_kind(kinds[i].name, kinds[i].set_up);
    return failed;
}
