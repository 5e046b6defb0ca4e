/*
 * A client is killed after each of some hundred instructions on its way through open, acquire,
 * pread and release, one process each: stepped by ptrace, so that no place is missed for being
 * short. Others read right bytes meanwhile, and of the dead no pin stays.
 */
#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/mem.h"
#include "lib_files.h"

#define VICTIMS   300    /* at most, and so many that all their steps together are */
#define STEPS_MAX 200000 /* about this many: each is two switches between processes */
#define FEWEST    40
#define LOOK_EACH 20

enum {
    PART = 1000,
    PATIENCE_MS = 60000,
};

static struct files files;
static struct server server;

static int start(void **state)
{
    (void)state;
    files_init(&files);
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

/* ---- the victim ---- */

/* What is stepped through lies between two stops. */
static _Noreturn void victim(void)
{
    struct forebay *fb = forebay_connect(files.socket);
    struct forebay_file *file;
    struct forebay_pin *pin;
    size_t length = SMALL;
    uint8_t part[PART];
    const uint8_t *data;
    char path[256];

    files_path(&files, "small", path);
    forebay_close(files_open_cached(fb, path, 60));
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || raise(SIGSTOP) != 0)
        _exit(1);
    file = forebay_open(fb, path);
    data = file ? forebay_acquire(file, 0, &length, &pin) : NULL;
    if (!data || data[PART] + forebay_pread(file, part, PART, PART) < PART)
        _exit(1);
    forebay_release(pin);
    forebay_close(file);
    raise(SIGSTOP);
    _exit(0);
}

/* A victim at its first stop. */
static pid_t raise_victim(void)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0)
        victim();
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    return pid;
}

/* Instructions done: as many as asked for, or all up to its second stop. No two ways are quite the
 * same: one has to ask the daemon where the other has not. */
static long step(pid_t pid, long most)
{
    long done = 0;
    int status;

    while (done < most) {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSTOPPED(status));
        if (WSTOPSIG(status) == SIGSTOP)
            break;
        assert_int_equal(WSTOPSIG(status), SIGTRAP);
        done++;
    }
    return done;
}

static void end_victim(pid_t pid)
{
    int status;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

/* ---- the others ---- */

static void expect_right(struct forebay *fb)
{
    struct forebay_pin *pin;
    uint8_t buffer[SMALL];
    struct forebay_file *file;
    const void *data;
    char path[256];

    file = files_open_cached(fb, files_path(&files, "small", path), 60);
    data = files_acquire_shared(file, SMALL, &pin);
    assert_non_null(data);
    assert_true(files_good("small", 1, data, SMALL, 0));
    forebay_release(pin);
    assert_int_equal(forebay_pread(file, buffer, SMALL, 0), SMALL);
    assert_true(files_good("small", 1, buffer, SMALL, 0));
    forebay_close(file);
}

/* Every segment gets other contents: nobody holds one. */
static void expect_nothing_held(void)
{
    uint64_t segments = server_ask(&server, SERVER_SEGMENTS, NULL);
    int64_t end_ms = files_now_ms() + PATIENCE_MS;

    server_ask(&server, SERVER_MARK, NULL);
    do
        files_churn(&server);
    while (server_ask(&server, SERVER_MOVED, NULL) < segments && files_now_ms() < end_ms);
    assert_int_equal(server_ask(&server, SERVER_MOVED, NULL), segments);
}

/* The server's own connections apart. */
static void expect_clients(uint64_t count)
{
    int64_t end_ms = files_now_ms() + PATIENCE_MS;

    while (server_ask(&server, SERVER_CLIENTS, NULL) != count && files_now_ms() < end_ms)
        usleep(10000);
    assert_int_equal(server_ask(&server, SERVER_CLIENTS, NULL), count);
}

static void killed_at_any_instruction(void **state)
{
    struct forebay *fb = forebay_connect(files.socket);
    long all, victims, reached = 0;
    pid_t pid;

    (void)state;
    expect_right(fb);
    pid = raise_victim();
    all = step(pid, 100L * STEPS_MAX);
    end_victim(pid);
    assert_true(all > 1000);
    victims = 2L * STEPS_MAX / (all + 1);
    victims = victims > VICTIMS ? VICTIMS : victims;
    victims = victims < FEWEST ? FEWEST : victims;
    for (long i = 0; i < victims; i++) {
        long most = all * (2 * i + 1) / (2 * victims);

        pid = raise_victim();
        reached += step(pid, most) == most;
        end_victim(pid);
        if (i % LOOK_EACH == 0)
            expect_right(fb);
    }
    print_message("%ld instructions, %ld killed, %ld on their way\n", all, victims, reached);
    assert_true(reached > 0);
    expect_right(fb);
    forebay_disconnect(fb);
    expect_clients(0);
    expect_nothing_held();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_any_instruction),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
