#include <cmocka.h>
#include <errno.h>

#include "base/rand.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/settings.h"
#include "core/test_dir.h"

#define GIB (UINT64_C(1) << 30)

struct config {
    bool verify;
    bool quiet;
    uint64_t threads;
    uint64_t memory;
    int64_t timeout_ns;
    double free_ratio;
    char *cache_dir;
    char *name;
    unsigned policy;
};

#define ROW(member) .offset = offsetof(struct config, member)

static const struct fb_setting table[] = {
    {"memory", 'm', FB_SETTING_SIZE, ROW(memory), .fallback = "10G", .argument = "SIZE",
     .help = "Memory for cached data.", .group = "Cache"},
    {"verify", 0, FB_SETTING_BOOL, ROW(verify), .fallback = "on",
     .help = "Check the checksum of everything that comes back from a tier that can rot, "
             "from a peer or from the network, before anyone sees it.",
     .group = "Cache"},
    {"quiet", 'q', FB_SETTING_BOOL, ROW(quiet), .help = "Say less."},
    {"threads", 't', FB_SETTING_UINT, ROW(threads), .fallback = "8", .argument = "N",
     .help = "Threads that read from the source.", .group = "Cache"},
    {"timeout", 0, FB_SETTING_DURATION, ROW(timeout_ns), .fallback = "60s", .argument = "TIME",
     .help = "Give up after this time."},
    {"free-space-ratio", 0, FB_SETTING_RATIO, ROW(free_ratio), .fallback = "10%",
     .argument = "RATIO", .help = "What to leave free on the disk."},
    {"cache-dir", 'd', FB_SETTING_STRING, ROW(cache_dir), .fallback = "/var/cache/forebay",
     .argument = "DIR", .help = "Where the disk tier lives.", .group = "Cache"},
    {"name", 0, FB_SETTING_STRING, ROW(name), .help = "A name for this cache."},
    {"policy", 'p', FB_SETTING_CHOICE, ROW(policy), .fallback = "fifo",
     .choices = "lru|fifo|s3-fifo", .help = "How to choose victims.", .group = "Cache"},
};

#define COUNT FB_ARRAY_SIZE(table)

static struct config config;
static struct fb_error err;
static struct fb_test_dir dir;
static int positional;

static int setup(void **state)
{
    (void)state;
    memset(&config, 0xa5, sizeof config);
    memset(&err, 0, sizeof err);
    fb_settings_defaults(table, COUNT, &config);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fb_settings_free(table, COUNT, &config);
    return 0;
}

static void test_defaults(void **state)
{
    (void)state;
    assert_true(config.verify);
    assert_false(config.quiet);
    assert_int_equal(config.threads, 8);
    assert_int_equal(config.memory, 10 * GIB);
    assert_int_equal(config.timeout_ns, 60 * FB_NS_PER_S);
    assert_true(config.free_ratio > 0.0999 && config.free_ratio < 0.1001);
    assert_string_equal(config.cache_dir, "/var/cache/forebay");
    assert_null(config.name);
    assert_int_equal(config.policy, 1);
    fb_settings_free(table, COUNT, &config);
    assert_null(config.cache_dir);
    fb_settings_free(table, COUNT, NULL);
}

static int set(const char *name, const char *value)
{
    err.text[0] = 0;
    return fb_settings_set(table, COUNT, &config, name, value, &err);
}

static void test_set(void **state)
{
    (void)state;
    assert_int_equal(set("memory", "1.5G"), 0);
    assert_int_equal(config.memory, GIB + GIB / 2);
    assert_int_equal(set("verify", "No"), 0);
    assert_false(config.verify);
    assert_int_equal(set("threads", "18446744073709551615"), 0);
    assert_true(config.threads == UINT64_MAX);
    assert_int_equal(set("policy", "s3-fifo"), 0);
    assert_int_equal(config.policy, 2);
    assert_int_equal(set("policy", "LRU"), 0);
    assert_int_equal(config.policy, 0);
    assert_int_equal(set("name", "a"), 0);
    assert_int_equal(set("name", ""), 0);
    assert_string_equal(config.name, "");
    assert_int_equal(set("timeout", "250ms"), 0);
    assert_int_equal(config.timeout_ns, 250 * FB_NS_PER_MS);
    assert_string_equal(err.text, "");
}

static void assert_refuses(const char *name, const char *value, int code, const char *sentence)
{
    assert_int_equal(set(name, value), code);
    assert_string_equal(err.text, sentence);
}

static void test_sentences(void **state)
{
    (void)state;
    assert_refuses("memory", "12Q", -EINVAL,
                   "memory: '12Q' is not a size; write a number with K, M, G or T, such as 10G");
    assert_refuses("memory", "99999P", -EINVAL,
                   "memory: '99999P' is too large for a size; write a number with K, M, G or T, "
                   "such as 10G");
    assert_refuses("verify", "maybe", -EINVAL,
                   "verify: 'maybe' is not a yes or no; write yes or no (or on, off, true, false, "
                   "1, 0)");
    assert_refuses("threads", "-1", -EINVAL,
                   "threads: '-1' is not a whole number; write digits only, such as 8");
    assert_refuses("threads", "18446744073709551616", -EINVAL,
                   "threads: '18446744073709551616' is too large for a whole number; write digits "
                   "only, such as 8");
    assert_refuses("timeout", "soon", -EINVAL,
                   "timeout: 'soon' is not a duration; write a number with ms, s, m, h or d, such "
                   "as 60s");
    assert_refuses("free-space-ratio", "", -EINVAL,
                   "free-space-ratio: '' is not a ratio; write a number from 0 to 1 or a "
                   "percentage, such as 80%");
    assert_refuses("policy", "fif", -EINVAL,
                   "policy: 'fif' is not among the choices; write lru, fifo or s3-fifo");
    assert_refuses("memroy", "1G", -ENOENT, "memroy: no such setting; did you mean memory?");
    assert_refuses("zzzzzzzz", "1", -ENOENT,
                   "zzzzzzzz: no such setting; --help lists those there are");
    assert_int_equal(config.memory, 10 * GIB);
    assert_int_equal(config.threads, 8);
    assert_int_equal(config.policy, 1);
}

/* A sentence about a huge value still says what is expected; and none is needed. */
static void test_huge_values(void **state)
{
    static char huge[100000];

    (void)state;
    memset(huge, '9', sizeof huge - 1);
    assert_int_equal(set("memory", huge), -EINVAL);
    assert_non_null(strstr(err.text, "such as 10G"));
    assert_int_equal(set("policy", huge), -EINVAL);
    assert_non_null(strstr(err.text, "lru, fifo or s3-fifo"));
    assert_int_equal(set(huge, huge), -ENOENT);
    assert_int_equal(set("name", huge), 0);
    assert_string_equal(config.name, huge);
    assert_int_equal(fb_settings_set(table, COUNT, &config, "memory", "x", NULL), -EINVAL);
}

/* What is formatted sets the same value again. */
static void test_format_round_trip(void **state)
{
    struct fb_rand r = {11};
    struct config back;
    char buf[64];

    (void)state;
    fb_settings_defaults(table, COUNT, &back);
    for (int i = 0; i < 5000; i++) {
        config.verify = fb_rand_below(&r, 2);
        config.threads = fb_rand_u64(&r) >> fb_rand_below(&r, 64);
        config.memory = (fb_rand_u64(&r) >> (1 + fb_rand_below(&r, 20))) << fb_rand_below(&r, 20);
        config.memory &= INT64_MAX;
        config.timeout_ns = (int64_t)(fb_rand_below(&r, 1000) * FB_NS_PER_MS);
        config.free_ratio = (double)fb_rand_below(&r, 10001) / 10000;
        config.policy = (unsigned)fb_rand_below(&r, 3);
        for (size_t s = 0; s < COUNT; s++) {
            fb_settings_format(&table[s], &config, buf, sizeof buf);
            if (table[s].type != FB_SETTING_STRING)
                assert_int_equal(fb_settings_set(table, COUNT, &back, table[s].name, buf, &err), 0);
        }
        assert_int_equal(back.verify, config.verify);
        assert_true(back.threads == config.threads);
        assert_true(back.memory == config.memory);
        assert_int_equal(back.timeout_ns, config.timeout_ns);
        assert_memory_equal(&back.free_ratio, &config.free_ratio, sizeof(double));
        assert_int_equal(back.policy, config.policy);
    }
    fb_settings_free(table, COUNT, &back);
}

static void test_format(void **state)
{
    static const char *const expected[] = {
        "10G", "yes", "no", "8", "1m", "0.1", "/var/cache/forebay", "", "fifo"};
    char buf[64];
    char tiny[4];

    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        assert_string_equal(fb_settings_format(&table[i], &config, buf, sizeof buf), expected[i]);
    assert_string_equal(fb_settings_format(&table[6], &config, tiny, sizeof tiny), "/va");
    config.policy = 77;
    assert_string_equal(fb_settings_format(&table[8], &config, buf, sizeof buf), "");
    config.timeout_ns = 0;
    assert_string_equal(fb_settings_format(&table[4], &config, buf, sizeof buf), "0s");
}

/* argv as a program gets it: ends in NULL. */
#define PARSE(...)                                                                         \
 char *argv[] = {"forebay", __VA_ARGS__, NULL};                                            \
 int rc = fb_settings_from_args(table, COUNT, &config, (int)FB_ARRAY_SIZE(argv) - 1, argv, \
                                &positional, &err)

static void test_args_forms(void **state)
{
    (void)state;
    PARSE("src", "--memory=1G", "-t", "4", "mnt", "--cache-dir", "/x=y", "-pLRU", "-", "--quiet",
          "--no-verify", "--name=", "--timeout=5");
    assert_int_equal(rc, 0);
    assert_int_equal(positional, 3);
    assert_string_equal(argv[0], "forebay");
    assert_string_equal(argv[1], "src");
    assert_string_equal(argv[2], "mnt");
    assert_string_equal(argv[3], "-");
    assert_null(argv[4]);
    assert_int_equal(config.memory, GIB);
    assert_int_equal(config.threads, 4);
    assert_string_equal(config.cache_dir, "/x=y");
    assert_int_equal(config.policy, 0);
    assert_true(config.quiet);
    assert_false(config.verify);
    assert_string_equal(config.name, "");
    assert_int_equal(config.timeout_ns, 5 * FB_NS_PER_S);
}

static void test_args_switches(void **state)
{
    (void)state;
    PARSE("--verify=no", "-qt3", "--quiet", "x");
    assert_int_equal(rc, 0);
    assert_int_equal(positional, 1);
    assert_string_equal(argv[1], "x");
    assert_false(config.verify);
    assert_true(config.quiet);
    assert_int_equal(config.threads, 3);
}

static void test_args_none(void **state)
{
    char *argv[] = {"forebay", NULL};

    (void)state;
    assert_int_equal(fb_settings_from_args(table, COUNT, &config, 1, argv, &positional, &err), 0);
    assert_int_equal(positional, 0);
    assert_int_equal(fb_settings_from_args(table, COUNT, &config, 0, argv, &positional, &err), 0);
    assert_int_equal(positional, 0);
}

static void test_args_after_dashes(void **state)
{
    (void)state;
    PARSE("-t", "2", "--", "python", "train.py", "--memory=1G", "--nonsense", "--", "-m");
    assert_int_equal(rc, 0);
    assert_int_equal(positional, 6);
    assert_string_equal(argv[1], "python");
    assert_string_equal(argv[3], "--memory=1G");
    assert_string_equal(argv[4], "--nonsense");
    assert_string_equal(argv[5], "--");
    assert_string_equal(argv[6], "-m");
    assert_null(argv[7]);
    assert_int_equal(config.memory, 10 * GIB);
    assert_int_equal(config.threads, 2);
}

static void assert_flag_refused(char *first, char *second, int code, const char *sentence)
{
    char *argv[] = {"forebay", first, second, NULL};

    err.text[0] = 0;
    assert_int_equal(
        fb_settings_from_args(table, COUNT, &config, second ? 3 : 2, argv, &positional, &err),
        code);
    assert_string_equal(err.text, sentence);
}

static void test_args_refused(void **state)
{
    (void)state;
    assert_flag_refused(
        "--memory", "12Q", -EINVAL,
        "--memory: '12Q' is not a size; write a number with K, M, G or T, such as 10G");
    assert_flag_refused("-m", "12Q", -EINVAL,
                        "-m: '12Q' is not a size; write a number with K, M, G or T, such as 10G");
    assert_flag_refused("--memory", NULL, -EINVAL, "--memory: needs a value; write --memory=SIZE");
    assert_flag_refused("--memory", "-5G", -EINVAL, "--memory: '-5G': may not be negative");
    assert_flag_refused("-m", "--quiet", -EINVAL, "-m: needs a value; write --memory=SIZE");
    assert_flag_refused("--policy", NULL, -EINVAL,
                        "--policy: needs a value; write --policy=lru|fifo|s3-fifo");
    assert_flag_refused("--no-memory", NULL, -EINVAL,
                        "--no-memory: memory is not a yes or no; write --memory=SIZE");
    assert_flag_refused("--no-quiet=1", NULL, -EINVAL,
                        "--no-quiet: '1' is not expected here; write --no-quiet alone");
    assert_flag_refused("--=x", NULL, -ENOENT, "--: no such flag; --help lists those there are");
    assert_flag_refused("-x", NULL, -ENOENT, "-x: no such flag; --help lists those there are");
    assert_flag_refused("-qx", NULL, -ENOENT, "-x: no such flag; --help lists those there are");
}

static void test_args_suggestions(void **state)
{
    static char huge[5000];

    (void)state;
    assert_flag_refused("--memroy", "1G", -ENOENT,
                        "--memroy: no such flag; did you mean --memory?");
    assert_flag_refused("--mem", "1G", -ENOENT, "--mem: no such flag; did you mean --memory?");
    assert_flag_refused("--cache_dir=/x", NULL, -ENOENT,
                        "--cache_dir: no such flag; did you mean --cache-dir?");
    assert_flag_refused("--freespace-ratio=1", NULL, -ENOENT,
                        "--freespace-ratio: no such flag; did you mean --free-space-ratio?");
    assert_flag_refused("--no-verfy", NULL, -ENOENT,
                        "--no-verfy: no such flag; did you mean --no-verify?");
    assert_flag_refused("--wibble", NULL, -ENOENT,
                        "--wibble: no such flag; --help lists those there are");
    memset(huge, 'm', sizeof huge - 1);
    memcpy(huge, "--", 2);
    err.text[0] = 0;
    {
        char *argv[] = {"forebay", huge, NULL};

        assert_int_equal(fb_settings_from_args(table, COUNT, &config, 2, argv, &positional, &err),
                         -ENOENT);
    }
    assert_non_null(strstr(err.text, "no such flag"));
}

/* The tests run in one thread, so the environment is ours to change. */
static void env_set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0); /* NOLINT(concurrency-mt-unsafe) */
}

static void env_unset(const char *name)
{
    assert_int_equal(unsetenv(name), 0); /* NOLINT(concurrency-mt-unsafe) */
}

static void test_env(void **state)
{
    (void)state;
    env_set("FOREBAY_FREE_SPACE_RATIO", "25%");
    env_set("FOREBAY_MEMORY", "");
    env_set("FOREBAY_QUIET", "1");
    env_set("FOREBAY_OF_SOMEBODY_ELSE", "x");
    assert_int_equal(fb_settings_from_env(table, COUNT, &config, &err), 0);
    assert_true(config.free_ratio > 0.249 && config.free_ratio < 0.251);
    assert_int_equal(config.memory, 10 * GIB);
    assert_true(config.quiet);
    env_set("FOREBAY_FREE_SPACE_RATIO", "much");
    assert_int_equal(fb_settings_from_env(table, COUNT, &config, &err), -EINVAL);
    assert_string_equal(err.text, "FOREBAY_FREE_SPACE_RATIO: 'much' is not a ratio; write a number "
                                  "from 0 to 1 or a percentage, such as 80%");
    env_unset("FOREBAY_FREE_SPACE_RATIO");
    env_unset("FOREBAY_MEMORY");
    env_unset("FOREBAY_QUIET");
    env_unset("FOREBAY_OF_SOMEBODY_ELSE");
}

static int setup_dir(void **state)
{
    fb_test_dir_make(&dir);
    return setup(state);
}

static int teardown_dir(void **state)
{
    fb_test_dir_remove(&dir);
    return teardown(state);
}

static int other_section(void *arg, const char *section, const char *key, const char *value,
                         struct fb_error *error)
{
    char *log = arg;

    if (strcmp(key, "bad") == 0)
        return fb_error_set(error, -ENOENT, "%s: not here", key);
    strcat(log, section); /* NOLINT: a test's few bytes */
    strcat(log, key);     /* NOLINT: a test's few bytes */
    strcat(log, value);   /* NOLINT: a test's few bytes */
    return 0;
}

static int parse_ini(const char *text, char *log)
{
    err.text[0] = 0;
    fb_test_dir_write(&dir, "f.ini", text);
    return fb_settings_from_ini(table, COUNT, &config, fb_test_dir_path(&dir, "f.ini"), "cache",
                                log ? other_section : NULL, log, &err);
}

static void assert_ini_refused(const char *text, const char *sentence)
{
    char full[2 * PATH_MAX + 256];

    assert_int_equal(parse_ini(text, NULL), -EINVAL);
    snprintf(full, sizeof full, "%s/f.ini:%s", dir.path, sentence);
    assert_string_equal(err.text, full);
}

static void test_ini(void **state)
{
    char log[128] = "";

    (void)state;
    assert_int_equal(parse_ini("\xef\xbb\xbf# a comment\nthreads = 3\n\n[cache]\n"
                               "memory=2G ; as they say\n   timeout : 5m\n\tcache-dir = /a b/c \n"
                               "[source x]\npath = /data\n[cache]\nquiet = yes",
                               log),
                     0);
    assert_int_equal(config.threads, 3);
    assert_int_equal(config.memory, 2 * GIB);
    assert_int_equal(config.timeout_ns, 300 * FB_NS_PER_S);
    assert_string_equal(config.cache_dir, "/a b/c");
    assert_true(config.quiet);
    assert_string_equal(log, "source xpath/data");
    assert_int_equal(parse_ini("", NULL), 0);
}

static void test_ini_refused(void **state)
{
    char log[128] = "";

    (void)state;
    assert_ini_refused("\n[cache]\nmemory = 12Q\nthreads = x\n",
                       "3: memory: '12Q' is not a size; write a number with K, M, G or T, such as "
                       "10G");
    assert_ini_refused("memroy = 1G\n", "1: memroy: no such setting; did you mean memory?");
    assert_ini_refused("[cachet]\nmemory = 1G\n", "2: [cachet]: no such section");
    assert_ini_refused("quiet = yes\nwhat is this\nthreads = x\n",
                       "2: not understood; write name = value or [section]");
    assert_ini_refused("threads = x\nwhat is this\n",
                       "1: threads: 'x' is not a whole number; write digits only, such as 8");
    assert_ini_refused("[cache\nmemory = 1G\n",
                       "1: not understood; write name = value or [section]");
    assert_int_equal(parse_ini("[s]\nbad = 1\n", log), -EINVAL);
    assert_non_null(strstr(err.text, "f.ini:2: bad: not here"));
}

/* A line is whole or refused; never cut. */
static void test_ini_long_lines(void **state)
{
    char text[4096];

    (void)state;
    for (int len = 150; len < 1000; len++) {
        int rc;

        snprintf(text, sizeof text, "name = %0*d\nthreads = 5\n", len, 7);
        rc = parse_ini(text, NULL);
        if (rc == 0)
            assert_int_equal(strlen(config.name), len);
        else
            assert_non_null(strstr(err.text, "f.ini:1: the line is too long"));
        assert_int_equal(rc, len <= 191 ? 0 : -EINVAL);
    }
    snprintf(text, sizeof text, "[%0*d]\nmemory = 1G\n", 60, 7);
    assert_ini_refused(text, "1: the section's name is too long");
}

static void test_ini_no_file(void **state)
{
    (void)state;
    assert_int_equal(fb_settings_from_ini(table, COUNT, &config, fb_test_dir_path(&dir, "none"),
                                          NULL, NULL, NULL, &err),
                     -ENOENT);
    assert_non_null(strstr(err.text, "/none: No such file or directory"));
    err.text[0] = 0;
    assert_int_equal(fb_settings_from_ini(table, COUNT, &config, dir.path, NULL, NULL, NULL, &err),
                     -EISDIR);
    assert_non_null(strstr(err.text, "Is a directory"));
}

static char *help_of(const struct fb_setting *rows, size_t count)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);

    assert_non_null(f);
    fb_settings_help(rows, count, f);
    assert_int_equal(fclose(f), 0);
    return text;
}

static void test_help(void **state)
{
    FB_AUTO_FREE char *text = help_of(table, COUNT);

    (void)state;
    assert_string_equal(
        text,
        "Cache:\n"
        "  -m, --memory SIZE             Memory for cached data. [default: 10G]\n"
        "      --[no-]verify             Check the checksum of everything that comes back from a "
        "tier that\n"
        "                                can rot, from a peer or from the network, before anyone "
        "sees it.\n"
        "                                [default: on]\n"
        "  -t, --threads N               Threads that read from the source. [default: 8]\n"
        "  -d, --cache-dir DIR           Where the disk tier lives. [default: /var/cache/forebay]\n"
        "  -p, --policy lru|fifo|s3-fifo\n"
        "                                How to choose victims. [default: fifo]\n"
        "\n"
        "Options:\n"
        "  -q, --quiet                   Say less.\n"
        "      --timeout TIME            Give up after this time. [default: 60s]\n"
        "      --free-space-ratio RATIO  What to leave free on the disk. [default: 10%]\n"
        "      --name VALUE              A name for this cache.\n");
}

static void test_help_width(void **state)
{
    char words[600];
    struct fb_setting row = {"a-name-that-is-much-too-long-for-the-column", 'x', FB_SETTING_STRING,
                             .argument = "SOMETHING", .help = words};

    (void)state;
    for (size_t step = 2; step < 40; step++) {
        FB_AUTO_FREE char *text = NULL;

        memset(words, 'w', sizeof words);
        for (size_t i = step; i < sizeof words; i += step)
            words[i] = ' ';
        words[sizeof words - 1] = 0;
        text = help_of(&row, 1);
        for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
            assert_true(end - line <= 100);
            assert_true(end == line || end[-1] != ' ');
        }
    }
}

int main(void)
{
#define TEST(name)     cmocka_unit_test_setup_teardown(name, setup, teardown)
#define DIR_TEST(name) cmocka_unit_test_setup_teardown(name, setup_dir, teardown_dir)
    static const struct CMUnitTest tests[] = {
        TEST(test_defaults),
        TEST(test_set),
        TEST(test_sentences),
        TEST(test_huge_values),
        TEST(test_format_round_trip),
        TEST(test_format),
        TEST(test_args_forms),
        TEST(test_args_switches),
        TEST(test_args_none),
        TEST(test_args_after_dashes),
        TEST(test_args_refused),
        TEST(test_args_suggestions),
        TEST(test_env),
        DIR_TEST(test_ini),
        DIR_TEST(test_ini_refused),
        DIR_TEST(test_ini_long_lines),
        DIR_TEST(test_ini_no_file),
        TEST(test_help),
        TEST(test_help_width),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
