/*
 * libforebay with a daemon that is well: the same bytes as read(2) finds, pointers that stay good
 * whatever the cache does, processes and threads.
 */
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/attr.h"
#include "core/mem.h"
#include "lib_files.h"

#define PINS    200 /* of PIN_SIZE: more than half of it */
#define THREADS 8
#define WAITS   1200 /* of 50 ms */
#define STEPS   (FB_TSAN ? 300 : 1500)

enum {
    PIN_SIZE = 50000,
};

static struct files files;
static struct server server;

static int start(void **state)
{
    char path[256], target[256];

    (void)state;
    files_init(&files);
    files_write(&files, "large", LARGE, 1);
    files_write(&files, "empty", 0, 1);
    files_write_many(&files, "dir", 2, SMALL);
    files_write_many(&files, "pin", PINS, PIN_SIZE);
    if (symlink("small", files_path(&files, "link", path)) != 0 ||
        symlink("dir", files_path(&files, "dirlink", path)) != 0 ||
        mkfifo(files_path(&files, "fifo", path), 0600) != 0)
        return -1;
    snprintf(target, sizeof target, "%s/outside", files.home);
    if (symlink(files_path(&files, "small", path), target) != 0)
        return -1;
    files_settle();
    server_start(&server, files.root, files.socket);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    server_end(&server);
    return 0;
}

/* ---- helpers ---- */

static struct forebay *connected(void)
{
    struct forebay *fb = forebay_connect(files.socket);

    assert_non_null(fb);
    return fb;
}

static struct forebay_file *opened(struct forebay *fb, const char *name)
{
    char path[256];
    struct forebay_file *file = forebay_open(fb, files_path(&files, name, path));

    assert_non_null(file);
    return file;
}

static void expect_all(struct forebay_file *file, const char *name, size_t size)
{
    FB_AUTO_FREE uint8_t *buffer = malloc(size + 100);

    assert_non_null(buffer);
    assert_int_equal(forebay_size(file), size);
    assert_int_equal(forebay_pread(file, buffer, size + 100, 0), size);
    assert_true(files_good(name, 1, buffer, size, 0));
}

static void expect_error(struct forebay *fb, const char *name, int error)
{
    char path[256];

    errno = 0;
    assert_null(forebay_open(fb, files_path(&files, name, path)));
    assert_int_equal(errno, error);
}

/* ---- without a daemon ---- */

static void reads_directly(struct forebay *fb)
{
    struct forebay_file *file = opened(fb, "small");
    struct forebay_pin *pin;
    size_t length = SIZE_MAX;
    uint8_t buffer[16];
    const void *data;

    assert_false(forebay_is_cached(file));
    assert_int_equal(forebay_block_size(file), 0);
    expect_all(file, "small", SMALL);
    assert_int_equal(forebay_pread(file, buffer, sizeof buffer, SMALL - 6), 6);
    assert_int_equal(forebay_pread(file, buffer, sizeof buffer, SMALL), 0);
    assert_int_equal(forebay_pread(file, buffer, sizeof buffer, -1), -1);
    assert_int_equal(errno, EINVAL);
    data = forebay_acquire(file, 5, &length, &pin);
    assert_non_null(data);
    assert_int_equal(length, SMALL - 5);
    assert_false(forebay_pin_is_shared(pin));
    assert_true(files_good("small", 1, data, length, 5));
    forebay_close(file);
    assert_true(files_good("small", 1, data, length, 5));
    forebay_release(pin);
    expect_error(fb, "none", ENOENT);
    expect_error(fb, "dir", EISDIR);
    expect_error(fb, "fifo", EINVAL);
    expect_error(fb, "small/x", ENOTDIR);
}

static void without_daemon(void **state)
{
    char longer[300];
    struct forebay *fb;

    (void)state;
    unsetenv("FOREBAY_SOCKET"); /* NOLINT(concurrency-mt-unsafe): one thread */
    fb = forebay_connect(NULL);
    assert_non_null(fb);
    reads_directly(fb);
    forebay_disconnect(fb);
    snprintf(longer, sizeof longer, "%s.none", files.socket);
    fb = forebay_connect(longer);
    assert_non_null(fb);
    reads_directly(fb);
    forebay_disconnect(fb);
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_null(forebay_connect(longer));
    assert_int_equal(errno, ENAMETOOLONG);
    forebay_disconnect(NULL);
    forebay_close(NULL);
    forebay_release(NULL);
    assert_string_equal(forebay_version(), "0.1.0");
}

/* ---- bytes ---- */

static void same_bytes(void **state)
{
    struct forebay *fb = connected();
    struct forebay_file *file = opened(fb, "large");
    uint8_t buffer[70000];
    unsigned seed = 7;

    (void)state;
    assert_true(forebay_is_cached(file));
    assert_int_equal(forebay_block_size(file), SERVER_BLOCK);
    expect_all(file, "large", LARGE);
    for (int i = 0; i < 500; i++) {
        off_t offset = rand_r(&seed) % (LARGE + 1000);
        size_t length = (size_t)rand_r(&seed) % sizeof buffer;
        ssize_t n = forebay_pread(file, buffer, length, offset);
        ssize_t expected = offset >= LARGE ? 0 : LARGE - offset;

        assert_int_equal(n, expected < (ssize_t)length ? expected : (ssize_t)length);
        assert_true(files_good("large", 1, buffer, (size_t)n, (uint64_t)offset));
    }
    forebay_close(file);
    file = opened(fb, "empty");
    assert_int_equal(forebay_pread(file, buffer, 10, 0), 0);
    forebay_close(file);
    expect_error(fb, "none", ENOENT);
    expect_error(fb, "dir", EISDIR);
    expect_error(fb, "fifo", EINVAL);
    forebay_disconnect(fb);
}

static void same_attributes(void **state)
{
    struct forebay *fb = connected();
    struct forebay_file *file = opened(fb, "small");
    struct stat is, expected;
    char path[256];

    (void)state;
    assert_true(forebay_is_cached(file));
    assert_int_equal(forebay_stat(file, &is), 0);
    assert_int_equal(stat(files_path(&files, "small", path), &expected), 0);
    assert_int_equal(is.st_size, expected.st_size);
    assert_int_equal(is.st_mode, expected.st_mode);
    assert_int_equal(is.st_ino, expected.st_ino);
    assert_int_equal(is.st_dev, expected.st_dev);
    assert_int_equal(is.st_uid, expected.st_uid);
    assert_int_equal(is.st_nlink, expected.st_nlink);
    assert_memory_equal(&is.st_mtim, &expected.st_mtim, sizeof is.st_mtim);
    assert_memory_equal(&is.st_ctim, &expected.st_ctim, sizeof is.st_ctim);
    forebay_close(file);
    forebay_disconnect(fb);
}

static void expect_path(struct forebay *fb, const char *path, const char *name)
{
    struct forebay_file *file = forebay_open(fb, path);

    assert_non_null(file);
    assert_true(forebay_is_cached(file));
    expect_all(file, name, SMALL);
    forebay_close(file);
}

static void all_paths(void **state)
{
    struct forebay *fb = connected();
    char path[256], here[256];

    (void)state;
    assert_non_null(getcwd(here, sizeof here));
    expect_path(fb, files_path(&files, "link", path), "small");
    expect_path(fb, files_path(&files, "dirlink/1", path), "dir/1");
    expect_path(fb, files_path(&files, "dir/../small", path), "small");
    expect_path(fb, files_path(&files, "dirlink/../small", path), "small");
    expect_path(fb, files_path(&files, "./dir//./1", path), "dir/1");
    snprintf(path, sizeof path, "%s/outside", files.home);
    expect_path(fb, path, "small");
    assert_int_equal(chdir(files_path(&files, "dir", path)), 0);
    expect_path(fb, "1", "dir/1");
    expect_path(fb, "./1", "dir/1");
    expect_path(fb, "../small", "small");
    expect_path(fb, "../dirlink/0", "dir/0");
    assert_int_equal(chdir(here), 0);
    forebay_disconnect(fb);
}

static bool hits_rise(struct forebay_file *file, uint64_t from)
{
    for (int i = 0; i < WAITS; i++, usleep(50000)) {
        expect_all(file, "small", SMALL);
        if (server_ask(&server, SERVER_HITS, NULL) > from)
            return true;
    }
    return false;
}

static void from_shared_memory(void **state)
{
    struct forebay *fb = connected();
    struct forebay_file *file = opened(fb, "small");
    uint64_t before;

    (void)state;
    expect_all(file, "small", SMALL);
    usleep(200000);
    before = server_ask(&server, SERVER_HITS, NULL);
    assert_true(hits_rise(file, before));
    forebay_close(file);
    forebay_disconnect(fb);
}

/* ---- pointers ---- */

static void acquires(void **state)
{
    struct forebay *fb = connected();
    struct forebay_file *file = opened(fb, "large");
    struct forebay_pin *pin, *other;
    size_t length = SERVER_BLOCK;
    const uint8_t *data, *second;

    (void)state;
    data = files_acquire_shared(file, SERVER_BLOCK, &pin);
    assert_non_null(data);
    assert_int_equal((uintptr_t)data % 64, 0);
    assert_true(files_good("large", 1, data, SERVER_BLOCK, 0));
    /* The same bytes are at the same place, and each pin counts. */
    second = forebay_acquire(file, 0, &length, &other);
    assert_ptr_equal(data, second);
    forebay_release(other);
    assert_true(files_good("large", 1, data, SERVER_BLOCK, 0));
    /* Across blocks: a copy. */
    length = 1000;
    second = forebay_acquire(file, SERVER_BLOCK - 500, &length, &other);
    assert_non_null(second);
    assert_false(forebay_pin_is_shared(other));
    assert_int_equal(length, 1000);
    assert_true(files_good("large", 1, second, 1000, SERVER_BLOCK - 500));
    forebay_release(other);
    /* At the end, and beyond. */
    length = SIZE_MAX;
    second = forebay_acquire(file, LARGE - 10, &length, &other);
    assert_int_equal(length, 10);
    assert_true(files_good("large", 1, second, 10, LARGE - 10));
    forebay_release(other);
    length = 10;
    assert_non_null(forebay_acquire(file, LARGE, &length, &other));
    assert_int_equal(length, 0);
    forebay_release(other);
    assert_null(forebay_acquire(file, -1, &length, &other));
    assert_int_equal(errno, EINVAL);
    assert_null(other);
    /* The last to go is the pin. */
    forebay_disconnect(fb);
    forebay_close(file);
    assert_true(files_good("large", 1, data, SERVER_BLOCK, 0));
    forebay_release(pin);
}

/* So much is read that at least `count` marked segments get other contents. */
static bool churn_moves(uint64_t count)
{
    int64_t end_ms = files_now_ms() + WAITS * 50;

    do
        for (int i = 0; i < 3; i++)
            files_churn(&server);
    while (server_ask(&server, SERVER_MOVED, NULL) < count && files_now_ms() < end_ms);
    return server_ask(&server, SERVER_MOVED, NULL) >= count;
}

static void stays_while_all_is_evicted(void **state)
{
    struct forebay *fb = connected();
    struct forebay_file *file = opened(fb, "small");
    uint64_t segments = server_ask(&server, SERVER_SEGMENTS, NULL);
    struct forebay_pin *pin;
    const void *data = files_acquire_shared(file, SMALL, &pin);
    char path[256];

    (void)state;
    assert_non_null(data);
    server_ask(&server, SERVER_MARK, NULL);
    assert_true(churn_moves(segments - 1));
    assert_true(files_good("small", 1, data, SMALL, 0));
    server_ask(&server, SERVER_EVICT, "");
    files_churn(&server);
    assert_true(files_good("small", 1, data, SMALL, 0));
    /* The file changes, too; what is held does not. */
    files_write(&files, "small", SMALL, 2);
    assert_true(files_good("small", 1, data, SMALL, 0));
    files_write(&files, "small", SMALL, 1);
    assert_int_equal(access(files_path(&files, "small", path), R_OK), 0);
    forebay_release(pin);
    forebay_close(file);
    /* Released, it moves as all others do. */
    server_ask(&server, SERVER_MARK, NULL);
    usleep(300000);
    assert_true(churn_moves(segments));
    forebay_disconnect(fb);
    files_settle();
}

/* All files of `pin`, acquired; how many without a copy. */
static unsigned pin_all(struct forebay *fb, struct forebay_pin *pins[PINS], const void *data[PINS])
{
    unsigned shared = 0;
    char name[64];

    files_read_many(&server, "pin", PINS);
    for (unsigned i = 0; i < PINS; i++) {
        struct forebay_file *file;
        size_t length = SIZE_MAX;

        snprintf(name, sizeof name, "pin/%u", i);
        file = opened(fb, name);
        data[i] = forebay_acquire(file, 0, &length, &pins[i]);
        assert_non_null(data[i]);
        assert_int_equal(length, PIN_SIZE);
        shared += (unsigned)forebay_pin_is_shared(pins[i]);
        forebay_close(file);
    }
    return shared;
}

static void expect_pins(const void *const data[PINS])
{
    char name[64];

    for (unsigned i = 0; i < PINS; i++) {
        snprintf(name, sizeof name, "pin/%u", i);
        assert_true(files_good(name, 1, data[i], PIN_SIZE, 0));
    }
}

static void a_quarter_at_most(void **state)
{
    static struct forebay_pin *pins[PINS];
    static const void *data[PINS];
    struct forebay *fb = connected();
    uint64_t segments = server_ask(&server, SERVER_SEGMENTS, NULL);
    uint64_t moved;
    unsigned shared;

    (void)state;
    shared = pin_all(fb, pins, data);
    assert_in_range(shared, 8, PINS - 1);
    server_ask(&server, SERVER_MARK, NULL);
    for (int i = 0; i < 3; i++)
        files_churn(&server);
    moved = server_ask(&server, SERVER_MOVED, NULL);
    assert_true(moved >= segments - segments / 4);
    expect_pins(data);
    for (unsigned i = 0; i < PINS; i++)
        forebay_release(pins[i]);
    /* And again. */
    assert_in_range(pin_all(fb, pins, data), 8, PINS - 1);
    expect_pins(data);
    for (unsigned i = 0; i < PINS; i++)
        forebay_release(pins[i]);
    forebay_disconnect(fb);
}

/* ---- processes ---- */

static void wait_for(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Pins all that may be, says so, and waits; with a child of its own that never does anything, but
 * has all of its descriptors. The child's number, or its own. */
static void pin_and_wait(int out, bool with_child)
{
    static struct forebay_pin *pins[PINS];
    static const void *data[PINS];
    pid_t who = getpid();

    pin_all(connected(), pins, data);
    if (with_child)
        who = fork();
    if (who > 0 && write(out, &who, sizeof who) != sizeof who)
        _exit(1);
    for (;;)
        pause();
}

static void expect_dead_pin_nothing(bool with_child)
{
    static struct forebay_pin *pins[PINS];
    static const void *data[PINS];
    struct forebay *fb;
    unsigned shared = 0;
    int status, fds[2];
    pid_t pid, silent;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        pin_and_wait(fds[1], with_child);
    assert_int_equal(read(fds[0], &silent, sizeof silent), sizeof silent);
    /* Everything that may be pinned is. */
    fb = connected();
    assert_int_equal(pin_all(fb, pins, data), 0);
    for (unsigned i = 0; i < PINS; i++)
        forebay_release(pins[i]);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    for (int i = 0; i < WAITS && shared == 0; i++) {
        usleep(100000);
        shared = pin_all(fb, pins, data);
        expect_pins(data);
        for (unsigned k = 0; k < PINS; k++)
            forebay_release(pins[k]);
    }
    assert_true(shared > 0);
    if (with_child)
        assert_int_equal(kill(silent, SIGKILL), 0); /* it was there all the time */
    forebay_disconnect(fb);
    close(fds[0]);
    close(fds[1]);
}

static void the_dead_pin_nothing(void **state)
{
    (void)state;
    expect_dead_pin_nothing(false);
}

static void nor_do_their_children(void **state)
{
    (void)state;
    expect_dead_pin_nothing(true);
}

/* In a child: what it inherits works, and nothing it does takes anything from its parent. */
static void child(struct forebay *fb, struct forebay_file *file, struct forebay_pin *parents)
{
    struct forebay_pin *pin;
    struct forebay_file *own;
    const void *data;

    forebay_release(parents);
    expect_all(file, "large", LARGE);
    own = opened(fb, "dir/1");
    assert_true(forebay_is_cached(own));
    data = files_acquire_shared(own, SMALL, &pin);
    assert_non_null(data);
    forebay_close(own);
    forebay_close(file);
    forebay_disconnect(fb);
    files_churn(&server);
    assert_true(files_good("dir/1", 1, data, SMALL, 0));
    forebay_release(pin);
}

static void forks(void **state)
{
    struct forebay *fb = connected();
    struct forebay_file *file = opened(fb, "large");
    struct forebay_pin *pin;
    const void *data = files_acquire_shared(file, SERVER_BLOCK, &pin);

    (void)state;
    assert_non_null(data);
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
            child(fb, file, pin);
            _exit(0);
        }
        wait_for(pid);
    }
    server_ask(&server, SERVER_MARK, NULL);
    for (int i = 0; i < 2; i++)
        files_churn(&server);
    assert_true(server_ask(&server, SERVER_MOVED, NULL) > 0);
    assert_true(files_good("large", 1, data, SERVER_BLOCK, 0));
    expect_all(file, "large", LARGE);
    forebay_release(pin);
    forebay_close(file);
    forebay_disconnect(fb);
}

/* Two clients in one process, as under `forebay run`: the daemon knows them apart. */
static void two_connections(void **state)
{
    struct forebay *one = connected(), *two = connected();
    struct forebay_file *first = opened(one, "dir/0"), *second = opened(two, "dir/1");
    struct forebay_pin *pins[2];
    const void *data[2];

    (void)state;
    expect_all(first, "dir/0", SMALL);
    expect_all(second, "dir/1", SMALL);
    data[0] = files_acquire_shared(first, SMALL, &pins[0]);
    data[1] = files_acquire_shared(second, SMALL, &pins[1]);
    assert_non_null(data[0]);
    assert_non_null(data[1]);
    for (int i = 0; i < 2; i++)
        files_churn(&server);
    assert_true(files_good("dir/0", 1, data[0], SMALL, 0));
    assert_true(files_good("dir/1", 1, data[1], SMALL, 0));
    forebay_release(pins[1]);
    forebay_close(second);
    forebay_disconnect(two);
    files_churn(&server);
    assert_true(files_good("dir/0", 1, data[0], SMALL, 0));
    forebay_release(pins[0]);
    forebay_close(first);
    forebay_disconnect(one);
}

/* ---- threads ---- */

struct worker {
    pthread_t thread;
    struct forebay *fb;
    struct forebay_file *large;
    unsigned seed;
    const char *wrong;
};

static const char *one_pin(struct worker *w, struct forebay_file *file, const char *name)
{
    struct forebay_pin *pin;
    size_t length = SIZE_MAX;
    const void *data = forebay_acquire(file, 0, &length, &pin);
    const char *wrong = NULL;

    if (!data || length != PIN_SIZE || !files_good(name, 1, data, length, 0))
        wrong = "acquired";
    if (rand_r(&w->seed) % 4 == 0)
        usleep(1000);
    if (data && !files_good(name, 1, data, length, 0))
        wrong = "changed while held";
    forebay_release(pin);
    return wrong;
}

static const char *step(struct worker *w)
{
    uint8_t buffer[5000];
    off_t offset = rand_r(&w->seed) % (LARGE - (int)sizeof buffer);
    struct forebay_file *file;
    const char *wrong;
    char name[64], path[256];

    if (forebay_pread(w->large, buffer, sizeof buffer, offset) != (ssize_t)sizeof buffer ||
        !files_good("large", 1, buffer, sizeof buffer, (uint64_t)offset))
        return "read";
    snprintf(name, sizeof name, "pin/%d", rand_r(&w->seed) % PINS);
    file = forebay_open(w->fb, files_path(&files, name, path));
    if (!file)
        return "opened";
    wrong = one_pin(w, file, name);
    forebay_close(file);
    return wrong;
}

static void *work(void *arg)
{
    struct worker *w = arg;

    for (int i = 0; i < STEPS && !w->wrong; i++)
        w->wrong = step(w);
    return NULL;
}

static void threads(void **state)
{
    struct forebay *fb = connected();
    struct forebay_file *large = opened(fb, "large");
    struct worker workers[THREADS];

    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.fb = fb, .large = large, .seed = i + 1};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    files_churn(&server);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (unsigned i = 0; i < THREADS; i++)
        if (workers[i].wrong)
            fail_msg("wrong bytes: %s", workers[i].wrong);
    forebay_close(large);
    forebay_disconnect(fb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_daemon),
        cmocka_unit_test(same_bytes),
        cmocka_unit_test(same_attributes),
        cmocka_unit_test(all_paths),
        cmocka_unit_test(from_shared_memory),
        cmocka_unit_test(acquires),
        cmocka_unit_test(a_quarter_at_most),
        cmocka_unit_test(the_dead_pin_nothing),
        cmocka_unit_test(nor_do_their_children),
        cmocka_unit_test(forks),
        cmocka_unit_test(two_connections),
        cmocka_unit_test(threads),
        cmocka_unit_test(stays_while_all_is_evicted),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
