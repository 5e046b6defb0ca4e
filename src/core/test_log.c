#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <regex.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "core/thread.h"

#define THREADS    4
#define PER_THREAD 300
#define LINE_REGEX \
 "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z (ERROR|WARN|INFO|DEBUG) "

static struct fb_test_dir dir;
static char content[1 << 20];

static int setup(void **state)
{
    (void)state;
    fb_test_dir_make(&dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fb_log_close();
    fb_test_dir_remove(&dir);
    return 0;
}

static void open_log(enum fb_log_level level, uint64_t max_bytes, unsigned keep)
{
    assert_int_equal(fb_log_open(fb_test_dir_path(&dir, "log"), level, max_bytes, keep), 0);
}

static bool exists(const char *name)
{
    return access(fb_test_dir_path(&dir, name), F_OK) == 0;
}

static void assert_file_contains(const char *name, const char *text)
{
    char *all = fb_test_dir_read(&dir, name, content, sizeof content);

    assert_non_null(all);
    assert_non_null(strstr(all, text));
}

/* Every line is one of ours; returns how many there are. */
static unsigned count_lines(const char *name)
{
    char *all = fb_test_dir_read(&dir, name, content, sizeof content);
    unsigned count = 0;
    regex_t regex;
    char *end;

    if (!all)
        return 0;
    assert_int_equal(regcomp(&regex, LINE_REGEX, REG_EXTENDED | REG_NOSUB), 0);
    for (char *line = all; *line; line = end + 1, count++) {
        end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0;
        assert_int_equal(regexec(&regex, line, 0, NULL, 0), 0);
    }
    regfree(&regex);
    return count;
}

static void test_levels(void **state)
{
    (void)state;
    open_log(FB_LOG_WARN, 0, 0);
    fb_log_error("one %d", 1);
    fb_log_warn("two %s", "2");
    fb_log_info("three");
    fb_log_debug("four");
    assert_int_equal(count_lines("log"), 2);
    assert_file_contains("log", "Z ERROR one 1\n");
    assert_file_contains("log", "Z WARN two 2\n");
}

static void test_level_names(void **state)
{
    enum fb_log_level level = FB_LOG_ERROR;

    (void)state;
    assert_int_equal(fb_log_level_parse("debug", &level), 0);
    assert_int_equal(level, FB_LOG_DEBUG);
    assert_int_equal(fb_log_level_parse("warn", &level), 0);
    assert_int_equal(level, FB_LOG_WARN);
    assert_int_equal(fb_log_level_parse("", &level), -EINVAL);
    assert_int_equal(fb_log_level_parse("WARN", &level), -EINVAL);
    assert_int_equal(fb_log_level_parse("warning", &level), -EINVAL);
    assert_int_equal(level, FB_LOG_WARN);
}

static void test_one_event_is_one_line(void **state)
{
    (void)state;
    open_log(FB_LOG_INFO, 0, 0);
    fb_log_info("a\nb\r\tc\x01\x7f"
                "d caf\xc3\xa9 \\ %%");
    fb_log_info("%s", "");
    assert_int_equal(count_lines("log"), 2);
    assert_file_contains("log", "a\\nb\\r\\tc\\x01\\x7fd caf\xc3\xa9 \\ %\n");
}

static void test_long_lines_are_cut(void **state)
{
    static const char fillers[] = {'x', '\n', '\x01'};
    static char text[20000];

    (void)state;
    open_log(FB_LOG_INFO, 0, 0);
    for (size_t f = 0; f < sizeof fillers; f++) {
        memset(text, fillers[f], sizeof text - 1);
        fb_log_info("%s", text);
    }
    for (size_t len = 4080; len < 4110; len++)
        fb_log_info("%.*s", (int)len, text);
    assert_int_equal(count_lines("log"), 33);
    assert_file_contains("log", "xxx...\n");
    assert_file_contains("log", "\\n\\n...\n");
    assert_file_contains("log", "\\x01\\x01...\n");
}

/* 4093 bytes are the most that are written whole. */
static void test_longest_whole_line(void **state)
{
    char text[4095];

    (void)state;
    open_log(FB_LOG_INFO, 0, 0);
    memset(text, 'y', sizeof text);
    text[4093] = 0;
    fb_log_info("%s", text);
    assert_file_contains("log", "yyyy\n");
    text[4093] = 'y';
    text[4094] = 0;
    fb_log_info("%s", text);
    assert_file_contains("log", "yyyy...\n");
}

static void test_mode_and_append(void **state)
{
    struct stat st;

    (void)state;
    fb_test_dir_write(&dir, "log", "2026-01-31T12:00:00.000Z INFO before\n");
    assert_int_equal(chmod(fb_test_dir_path(&dir, "log"), 0644), 0);
    open_log(FB_LOG_INFO, 0, 0);
    fb_log_info("after");
    assert_int_equal(count_lines("log"), 2);
    assert_int_equal(stat(fb_test_dir_path(&dir, "log"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

static void test_rotation(void **state)
{
    struct stat st;

    (void)state;
    open_log(FB_LOG_INFO, 100, 2);
    for (int i = 1; i <= 8; i++) {
        fb_log_info("line %d of thirty characters...", i);
        assert_int_equal(stat(fb_test_dir_path(&dir, "log"), &st), 0);
        assert_true(st.st_size <= 100);
        assert_int_equal(st.st_mode & 07777, 0600);
    }
    assert_file_contains("log", "line 8 ");
    assert_file_contains("log.1", "line 7 ");
    assert_file_contains("log.2", "line 6 ");
    assert_false(exists("log.3"));
    assert_false(exists("log.new"));
}

/* The size that counts is the file's, not only what this process wrote. */
static void test_rotation_after_reopening(void **state)
{
    (void)state;
    open_log(FB_LOG_INFO, 100, 1);
    fb_log_info("the first of two lines that do not fit together");
    fb_log_close();
    open_log(FB_LOG_INFO, 100, 1);
    fb_log_info("the second of two lines that do not fit together");
    assert_file_contains("log.1", "the first");
    assert_file_contains("log", "the second");
    assert_int_equal(count_lines("log"), 1);
}

static void test_rotation_keeping_none(void **state)
{
    (void)state;
    open_log(FB_LOG_INFO, 60, 0);
    fb_log_info("a line that fills the file, or nearly so");
    fb_log_info("another line that fills the file");
    assert_int_equal(count_lines("log"), 1);
    assert_file_contains("log", "another");
    assert_false(exists("log.1"));
}

/* A line longer than the limit still goes out, in a file of its own. */
static void test_line_above_the_limit(void **state)
{
    (void)state;
    open_log(FB_LOG_INFO, 10, 3);
    fb_log_info("much longer than ten bytes: 1");
    assert_false(exists("log.1"));
    fb_log_info("much longer than ten bytes: 2");
    assert_file_contains("log.1", "bytes: 1");
    assert_file_contains("log", "bytes: 2");
}

/* A directory in the way of the new file: logging goes on in the old one, and loses nothing. */
static void test_rotation_fails(void **state)
{
    (void)state;
    fb_test_dir_write(&dir, "log.1", "2026-01-31T12:00:00.000Z INFO old\n");
    assert_int_equal(mkdir(fb_test_dir_path(&dir, "log.new"), 0700), 0);
    open_log(FB_LOG_INFO, 50, 2);
    for (int i = 0; i < 5; i++)
        fb_log_info("a line of some length, number %d", i);
    assert_int_equal(count_lines("log"), 5);
    assert_file_contains("log.1", "old");
    assert_false(exists("log.2"));
}

static void test_open_fails(void **state)
{
    (void)state;
    open_log(FB_LOG_INFO, 0, 0);
    assert_int_equal(fb_log_open(fb_test_dir_path(&dir, "no/log"), FB_LOG_INFO, 0, 0), -ENOENT);
    assert_int_equal(fb_log_open(dir.path, FB_LOG_INFO, 0, 0), -EISDIR);
    assert_int_equal(
        fb_log_open(fb_test_dir_path(&dir, "log2"), FB_LOG_INFO, 0, FB_LOG_KEEP_MAX + 1), -EINVAL);
    assert_int_equal(fb_log_open(fb_test_dir_path(&dir, "log2"), (enum fb_log_level)9, 0, 0),
                     -EINVAL);
    assert_false(exists("log2"));
    fb_log_info("still here");
    assert_file_contains("log", "still here");
}

static void test_full_disk(void **state)
{
    struct stat before;
    struct stat after;

    (void)state;
    assert_int_equal(stat("/dev/full", &before), 0);
    assert_int_equal(fb_log_open("/dev/full", FB_LOG_INFO, 10, 2), 0);
    errno = EXDEV;
    for (int i = 0; i < 10; i++)
        fb_log_info("nobody will read this");
    assert_int_equal(errno, EXDEV);
    assert_int_equal(stat("/dev/full", &after), 0);
    assert_int_equal(before.st_mode, after.st_mode);
}

/* A disk that fills in the middle of a line, then has room again: in a child, for the limit. */
static int write_torn(void)
{
    struct rlimit limit = {60, RLIM_INFINITY};

    signal(SIGXFSZ, SIG_IGN);
    if (fb_log_open(fb_test_dir_path(&dir, "log"), FB_LOG_INFO, 0, 0) != 0)
        return 1;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 2;
    fb_log_info("this line is written, but only %s", "in part, as sixty bytes are the limit");
    fb_log_info("this line is dropped");
    limit.rlim_cur = RLIM_INFINITY;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        return 3;
    fb_log_info("this line is whole");
    fb_log_info("and so is this");
    return 0;
}

static void test_torn_line(void **state)
{
    int status;
    pid_t child = fork();

    (void)state;
    assert_true(child >= 0);
    if (child == 0)
        _exit(write_torn());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(count_lines("log"), 3);
    assert_file_contains("log", "Z INFO this line is whole\n");
    assert_file_contains("log", "Z INFO and so is this\n");
}

static void test_standard_error(void **state)
{
    int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    FB_AUTO_CLOSE int fd = open(fb_test_dir_path(&dir, "err"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    (void)state;
    assert_true(saved >= 0 && fd >= 0);
    assert_int_equal(fb_log_open(NULL, FB_LOG_DEBUG, 10, 1), 0);
    dup2(fd, STDERR_FILENO);
    fb_log_error("e\nf");
    fb_log_warn("w");
    fb_log_info("i");
    fb_log_debug("d");
    fb_log_close();
    fb_log_debug("not by default");
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_non_null(fb_test_dir_read(&dir, "err", content, sizeof content));
    assert_string_equal(content, "forebay: error: e\\nf\nforebay: warning: w\nforebay: i\n"
                                 "forebay: debug: d\n");
}

static void test_errno_is_kept(void **state)
{
    (void)state;
    open_log(FB_LOG_INFO, 0, 0);
    errno = ENOTDIR;
    fb_log_info("%m");
    assert_int_equal(errno, ENOTDIR);
    assert_file_contains("log", "INFO Not a directory\n");
}

static void *log_many(void *arg)
{
    for (int i = 0; i < PER_THREAD; i++)
        fb_log_info("thread %p line %d", arg, i);
    return NULL;
}

/* Lines of several threads neither mix nor get lost, over rotations and a change of the file. */
static void test_threads(void **state)
{
    pthread_t threads[THREADS];
    unsigned lines = 0;
    char name[32];

    (void)state;
    open_log(FB_LOG_INFO, 4000, FB_LOG_KEEP_MAX);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(fb_thread_start(&threads[i], "logger", log_many, &threads[i]), 0);
    assert_int_equal(fb_log_open(fb_test_dir_path(&dir, "other"), FB_LOG_INFO, 0, 0), 0);
    open_log(FB_LOG_INFO, 4000, FB_LOG_KEEP_MAX);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    lines = count_lines("log") + count_lines("other");
    for (unsigned i = 1; i <= FB_LOG_KEEP_MAX; i++) {
        snprintf(name, sizeof name, "log.%u", i);
        lines += count_lines(name);
    }
    assert_int_equal(lines, THREADS * PER_THREAD);
    assert_true(exists("log.5"));
}

/* All that threads said before the end is written, each thread's lines in their order. */
static void test_thread_writes(void **state)
{
    pthread_t threads[THREADS];
    char line[64];
    char *at;

    (void)state;
    open_log(FB_LOG_INFO, 0, 0);
    assert_int_equal(fb_log_start(), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(fb_thread_start(&threads[i], "logger", log_many, &threads[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    fb_log_close();
    assert_int_equal(count_lines("log"), THREADS * PER_THREAD);
    assert_non_null(fb_test_dir_read(&dir, "log", content, sizeof content));
    for (int t = 0; t < THREADS; t++) {
        at = content;
        for (int i = 0; i < PER_THREAD; i++) {
            snprintf(line, sizeof line, "thread %p line %d\n", (void *)&threads[t], i);
            at = strstr(at, line);
            assert_non_null(at);
        }
    }
}

/* The same file, a second time: the thread can be started anew. */
static void test_thread_rotates(void **state)
{
    (void)state;
    for (int round = 0; round < 2; round++) {
        open_log(FB_LOG_INFO, 100, 2);
        assert_int_equal(fb_log_start(), 0);
        for (int i = 1; i <= 8; i++)
            fb_log_info("line %d%d of thirty characters...", round, i);
        assert_true(fb_log_flush(FB_NEVER_NS));
        assert_file_contains("log", round ? "line 18 " : "line 08 ");
        fb_log_close();
    }
    assert_file_contains("log.1", "line 17 ");
    assert_file_contains("log.2", "line 16 ");
    assert_false(exists("log.3"));
}

static void move_and_reopen(void)
{
    char from[2 * PATH_MAX];

    snprintf(from, sizeof from, "%s", fb_test_dir_path(&dir, "log"));
    fb_log_info("before");
    assert_true(fb_log_flush(FB_NEVER_NS));
    assert_int_equal(rename(from, fb_test_dir_path(&dir, "moved")), 0);
    fb_log_reopen();
}

static void test_reopen(void **state)
{
    (void)state;
    for (int threaded = 0; threaded < 2; threaded++) {
        open_log(FB_LOG_INFO, 0, 0);
        if (threaded)
            assert_int_equal(fb_log_start(), 0);
        move_and_reopen();
        fb_log_close();
        assert_file_contains("moved", "INFO before\n");
        assert_int_equal(count_lines("log"), 1);
        assert_file_contains("log", "INFO log opened anew\n");
        assert_int_equal(unlink(fb_test_dir_path(&dir, "log")), 0);
    }
}

#define HUNG_LINES 4000

/* Reads lines up to the last; returns how many were lost, as the lines in their place say. */
static unsigned read_pipe(FILE *in)
{
    unsigned all_lost = 0, next = 0, number, lost;
    char line[8192];
    char *text;

    while (next < HUNG_LINES && fgets(line, sizeof line, in)) {
        text = strchr(line, 'Z');
        assert_non_null(text);
        if (sscanf(text, "Z WARN %u lines are lost", &lost) == 1) {
            next += lost;
            all_lost += lost;
        } else if (!strstr(text, "log opened anew")) {
            assert_int_equal(sscanf(text, "Z INFO number %u ", &number), 1);
            assert_int_equal(number, next++);
        }
    }
    assert_int_equal(next, HUNG_LINES);
    return all_lost;
}

static void *say_last(void *arg)
{
    assert_true(fb_log_flush(FB_NEVER_NS));
    fb_log_info("number %d is the last", HUNG_LINES - 1);
    return arg;
}

/* A log that takes nothing more (a pipe that nobody reads) holds nobody up, whatever is said; when
 * it does again, all comes in its order, with a word about what is missing, where it is missing. */
static void test_hung_log(void **state)
{
    char filler[200];
    pthread_t last;
    FILE *in;
    int fd;

    (void)state;
    memset(filler, 'f', sizeof filler);
    assert_int_equal(mkfifo(fb_test_dir_path(&dir, "log"), 0600), 0);
    fd = open(fb_test_dir_path(&dir, "log"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
    in = fdopen(fd, "r");
    assert_non_null(in);
    open_log(FB_LOG_INFO, 0, 0);
    assert_int_equal(fb_log_start(), 0);
    for (int i = 0; i < HUNG_LINES - 1; i++)
        fb_log_info("number %d %.*s", i, (int)sizeof filler, filler);
    assert_false(fb_log_flush(fb_now_ns() + FB_NS_PER_MS));
    fb_log_reopen();
    assert_int_equal(fb_thread_start(&last, "last", say_last, NULL), 0);
    assert_in_range(read_pipe(in), 1, HUNG_LINES - 2);
    assert_int_equal(pthread_join(last, NULL), 0);
    fb_log_close();
    fclose(in);
}

/* A child has the log, but not the thread, nor what waits for it. */
static void test_fork(void **state)
{
    pid_t child;
    int status;

    (void)state;
    open_log(FB_LOG_INFO, 0, 0);
    assert_int_equal(fb_log_start(), 0);
    fb_log_info("before");
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fb_log_info("in the child");
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    fb_log_info("after");
    fb_log_close();
    assert_int_equal(count_lines("log"), 3);
    assert_file_contains("log", "INFO in the child\n");
}

static _Atomic int64_t limited_last_ns;

static void *ask_many(void *arg)
{
    for (int i = 0; i < PER_THREAD; i++) {
        if (fb_log_limited(&limited_last_ns))
            atomic_fetch_add((_Atomic int *)arg, 1);
    }
    return NULL;
}

static void test_limited(void **state)
{
    _Atomic int64_t last_ns = 0;

    (void)state;
    assert_true(fb_log_limited(&last_ns));
    assert_true(last_ns != 0);
    last_ns = fb_now_ns() + 1000 * FB_NS_PER_S;
    assert_false(fb_log_limited(&last_ns));
    last_ns = fb_now_ns() - FB_NS_PER_S;
    assert_true(fb_log_limited(&last_ns));
}

/* Of threads that ask at once, one is told yes, and one more for each second they took. */
static void test_limited_threads(void **state)
{
    int64_t start_ns = fb_now_ns();
    pthread_t threads[THREADS];
    _Atomic int yes = 0;

    (void)state;
    limited_last_ns = 0;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(fb_thread_start(&threads[i], "asker", ask_many, &yes), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_in_range(yes, 1, 1 + (fb_now_ns() - start_ns) / FB_NS_PER_S);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    static const struct CMUnitTest tests[] = {
        TEST(test_levels),
        TEST(test_level_names),
        TEST(test_one_event_is_one_line),
        TEST(test_long_lines_are_cut),
        TEST(test_longest_whole_line),
        TEST(test_mode_and_append),
        TEST(test_rotation),
        TEST(test_rotation_after_reopening),
        TEST(test_rotation_keeping_none),
        TEST(test_line_above_the_limit),
        TEST(test_rotation_fails),
        TEST(test_open_fails),
        TEST(test_full_disk),
        TEST(test_torn_line),
        TEST(test_standard_error),
        TEST(test_errno_is_kept),
        TEST(test_threads),
        TEST(test_thread_writes),
        TEST(test_thread_rotates),
        TEST(test_reopen),
        TEST(test_hung_log),
        TEST(test_fork),
        TEST(test_limited),
        TEST(test_limited_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
