/*
 * A process that dies of a fault of its own says so, into the log that is open by then, and dies of
 * that signal all the same.
 */
#include <cmocka.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "core/clock.h"
#include "core/crash.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/test_dir.h"

static struct fb_test_dir dir;
static char content[1 << 16];

#define LINES 100 /* before the end, not all of which may be written when it comes */

static int setup(void **state)
{
    (void)state;
    fb_test_dir_make(&dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fb_test_dir_remove(&dir);
    return 0;
}

FB_NORETURN static void die(int number, uint64_t log_bytes)
{
    struct rlimit none = {0, 0};

    setrlimit(RLIMIT_CORE, &none);
    signal(number, SIG_DFL); /* not cmocka's */
    fb_crash_install();
    if (fb_log_open(fb_test_dir_path(&dir, "log"), FB_LOG_INFO, log_bytes, 1) < 0 ||
        !fb_log_take_stderr() || fb_log_start() < 0)
        _exit(1);
    for (int i = 0; i < LINES; i++)
        fb_log_info("line %d before the end", i);
    if (log_bytes > 0)
        (void)fb_log_flush(FB_NEVER_NS); /* it is rotated no more */
    raise(number);
    _exit(2);
}

static void dies_of(int number, const char *words, uint64_t log_bytes)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0)
        die(number, log_bytes);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), number);
    assert_non_null(fb_test_dir_read(&dir, "log", content, sizeof content));
    assert_non_null(strstr(content, words));
    assert_non_null(strstr(content, "test_crash(")); /* a frame of ours */
}

/* The thread that writes may have written one of them when it is written by who dies. */
static void last_words(void **state)
{
    char line[64];
    char *at;

    (void)state;
    dies_of(SIGSEGV, "died of SIGSEGV", 0);
    at = content;
    for (int i = 0; i < LINES; i++) {
        snprintf(line, sizeof line, "line %d before the end\n", i);
        at = strstr(at, line);
        assert_non_null(at);
    }
    assert_non_null(strstr(at, "died of SIGSEGV"));
    dies_of(SIGABRT, "died of SIGABRT", 0);
}

/* The log was rotated twice before. */
static void last_words_follow_the_log(void **state)
{
    (void)state;
    dies_of(SIGFPE, "died of SIGFPE", 64);
}

static void without_a_log(void **state)
{
    (void)state;
    assert_false(fb_log_take_stderr());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(last_words, setup, teardown),
        cmocka_unit_test_setup_teardown(last_words_follow_the_log, setup, teardown),
        cmocka_unit_test(without_a_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
