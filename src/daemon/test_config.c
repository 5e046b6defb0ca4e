#include <cmocka.h>
#include <errno.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "daemon/config.h"
#include "daemon/http.h"
#include "doors/fuse/mount.h"

#define GIB       (UINT64_C(1) << 30)
#define WORDS_MAX 16

static struct fb_test_dir dir;
static struct fb_list mounts;
static struct fb_config config;
static struct fb_error err;

static void variable_name(const char *name, char *ret_variable, size_t size)
{
    snprintf(ret_variable, size, "FOREBAY_%s", name);
    for (char *c = ret_variable + strlen("FOREBAY_"); *c; c++)
        *c = *c == '-' ? '_' : (char)(*c & ~0x20);
}

/* The machine of these tests has 1 GiB. */
/* Tests are run with variables of ours. */
static void unset_all(void)
{
    size_t rows;
    const struct fb_setting *table = fb_config_table(&rows);

    for (size_t i = 0; i < rows; i++) {
        char name[64];

        variable_name(table[i].name, name, sizeof name);
        unsetenv(name); /* NOLINT(concurrency-mt-unsafe) */
    }
}

static int setup(void **state)
{
    (void)state;
    unset_all();
    fb_test_dir_make(&dir);
    fb_test_dir_write(&dir, "proc/meminfo", "MemTotal:       1048576 kB\n");
    fb_list_init(&mounts);
    memset(&config, 0, sizeof config);
    memset(&err, 0, sizeof err);
    return 0;
}

static void clean(void)
{
    fb_config_free(&config);
    fb_mount_requests_free(&mounts);
    memset(&err, 0, sizeof err);
}

static int teardown(void **state)
{
    (void)state;
    clean();
    unset_all();
    fb_test_dir_remove(&dir);
    return 0;
}

static void set_env(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0); /* NOLINT(concurrency-mt-unsafe) */
}

/* Words are separated by blanks. */
static int load(const char *line, struct fb_list *requests)
{
    static char text[4096];
    static char *argv[WORDS_MAX + 1];
    char *save = NULL;
    int argc = 0;
    int positional;

    clean();
    snprintf(text, sizeof text, "mount %s", line);
    for (char *w = strtok_r(text, " ", &save); w && argc < WORDS_MAX;
         w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    argv[argc] = NULL;
    return fb_config_load(&config, argc, argv, &positional, requests, &err);
}

static int load_resolved(const char *line)
{
    char full[8192];

    snprintf(full, sizeof full, "%s --cache-dir=%s/cache", line, dir.path);
    return load(full, NULL) ? -EINVAL : fb_config_resolve(&config, dir.path, &err);
}

static void expect_refused(const char *line, const char *sentence)
{
    assert_int_not_equal(load_resolved(line), 0);
    if (!strstr(err.text, sentence))
        fail_msg("'%s': '%s' does not say '%s'", line, err.text, sentence);
}

static void test_defaults(void **state)
{
    (void)state;
    assert_int_equal(load("", NULL), 0);
    assert_int_equal(config.mount.consistency, FB_CLOSE_TO_OPEN);
    assert_int_equal(config.mount.metadata_ttl_ns, 60 * FB_NS_PER_S);
    assert_int_equal(config.mount.source_timeout_ns, 30 * FB_NS_PER_S);
    assert_int_equal(config.cache_timeout_ns, 2 * FB_NS_PER_S);
    assert_true(config.mount.cache);
    assert_false(config.mount.read_only);
    assert_false(config.mount.allow_other);
    assert_int_equal(config.cache_bytes, 100 * GIB);
    assert_int_equal(config.block_bytes, 256 << 10);
    assert_string_equal(config.metrics, "127.0.0.1:9567");
    assert_int_equal(config.memory_bytes, 0);
}

/* The rows of a mount are first, all together, and fit struct fb_mount_settings. */
static void test_mount_rows(void **state)
{
    size_t rows;
    const struct fb_setting *table = fb_config_table(&rows);

    (void)state;
    for (size_t i = 0; i < rows; i++) {
        bool inside = table[i].offset < sizeof(struct fb_mount_settings);

        assert_int_equal(inside, i < fb_config_mount_rows());
        assert_true(strlen(table[i].help) > 10);
    }
}

/* Every value that a row shows is read back as the same. */
static void test_every_row_round_trips(void **state)
{
    size_t rows;
    const struct fb_setting *table = fb_config_table(&rows);

    (void)state;
    assert_int_equal(load_resolved(""), 0);
    for (size_t i = 0; i < rows; i++) {
        char value[1024];
        char again[1024];

        fb_settings_format(&table[i], &config, value, sizeof value);
        assert_int_equal(fb_settings_set(table, rows, &config, table[i].name, value, &err), 0);
        assert_string_equal(fb_settings_format(&table[i], &config, again, sizeof again), value);
    }
}

/* A value that is not the default. */
static const char *other_value(const struct fb_setting *s)
{
    const char *fallback = s->fallback ? s->fallback : "";
    const char *last;

    switch (s->type) {
    case FB_SETTING_BOOL:
        return strcmp(fallback, "yes") == 0 ? "no" : "yes";
    case FB_SETTING_UINT:
        return "7";
    case FB_SETTING_SIZE:
        return "48M";
    case FB_SETTING_DURATION:
        return "7s";
    case FB_SETTING_RATIO:
        return "0.625";
    case FB_SETTING_CHOICE:
        last = strrchr(s->choices, '|') + 1;
        assert_string_not_equal(last, fallback);
        return last;
    case FB_SETTING_STRING:
        break;
    }
    return "something";
}

static void expect_row(const struct fb_setting *s, const char *line, const char *want,
                       const char *by)
{
    char got[1024];

    if (load(line, NULL) != 0)
        fail_msg("%s by %s: %s", s->name, by, err.text);
    fb_settings_format(s, &config, got, sizeof got);
    if (strcmp(got, want) != 0)
        fail_msg("%s by %s: '%s', not '%s'", s->name, by, got, want);
}

/* Each setting is a flag, a variable and a key of the file, all with one meaning, and is in the
 * help. */
static void test_every_row_everywhere(void **state)
{
    size_t rows, help_bytes;
    const struct fb_setting *table = fb_config_table(&rows);
    FB_AUTO_FREE char *help = NULL;
    FILE *out = open_memstream(&help, &help_bytes);

    (void)state;
    assert_non_null(out);
    fb_settings_help(table, rows, out);
    fclose(out);
    for (size_t i = 0; i < rows; i++) {
        const char *value = other_value(&table[i]);
        char line[3 * PATH_MAX], variable[64], before[1024], want[1024];

        snprintf(line, sizeof line, "--%s", table[i].name);
        /* A boolean that is on by default is listed as the flag that turns it off. */
        if (!strstr(help, line)) {
            snprintf(line, sizeof line, "--no-%s", table[i].name);
            assert_non_null(strstr(help, line));
        }
        if (strcmp(table[i].name, "config") == 0)
            continue; /* names the file itself: test_precedence */
        assert_int_equal(load("", NULL), 0);
        fb_settings_format(&table[i], &config, before, sizeof before);
        assert_int_equal(fb_settings_set(table, rows, &config, table[i].name, value, &err), 0);
        fb_settings_format(&table[i], &config, want, sizeof want);
        assert_string_not_equal(want, before);
        snprintf(line, sizeof line, "--%s=%s", table[i].name, value);
        expect_row(&table[i], line, want, "flag");
        variable_name(table[i].name, variable, sizeof variable);
        set_env(variable, value);
        expect_row(&table[i], "", want, "variable");
        unsetenv(variable); /* NOLINT(concurrency-mt-unsafe) */
        snprintf(line, sizeof line, "%s = %s\n", table[i].name, value);
        fb_test_dir_write(&dir, "one.ini", line);
        snprintf(line, sizeof line, "--config %s", fb_test_dir_path(&dir, "one.ini"));
        expect_row(&table[i], line, want, "file");
    }
}

static void test_precedence(void **state)
{
    char flags[3 * PATH_MAX];

    (void)state;
    fb_test_dir_write(&dir, "f.ini", "memory = 100M\ncache-size = 1G\nblock-size = 1M\n");
    snprintf(flags, sizeof flags, "--config %s --block-size 2M", fb_test_dir_path(&dir, "f.ini"));
    assert_int_equal(load(flags, NULL), 0);
    assert_int_equal(config.memory_bytes, 100 << 20);
    set_env("FOREBAY_CACHE_SIZE", "2G");
    set_env("FOREBAY_BLOCK_SIZE", "4M");
    assert_int_equal(load(flags, NULL), 0);
    assert_int_equal(config.memory_bytes, 100 << 20); /* file over default */
    assert_int_equal(config.cache_bytes, 2 * GIB);    /* variable over file */
    assert_int_equal(config.block_bytes, 2 << 20);    /* flag over variable */
    set_env("FOREBAY_CONFIG", fb_test_dir_path(&dir, "f.ini"));
    assert_int_equal(load("", NULL), 0);
    assert_int_equal(config.memory_bytes, 100 << 20);
}

static void test_positional_words_survive(void **state)
{
    char words[][16] = {"mount", "--memory", "1G", "/src", "--no-cache", "/mnt"};
    char *argv[] = {words[0], words[1], words[2], words[3], words[4], words[5], NULL};
    int positional;

    (void)state;
    assert_int_equal(fb_config_load(&config, 6, argv, &positional, NULL, &err), 0);
    assert_int_equal(positional, 2);
    assert_string_equal(argv[1], "/src");
    assert_string_equal(argv[2], "/mnt");
    assert_int_equal(config.memory_bytes, GIB);
    assert_false(config.mount.cache);
}

static void test_file_errors(void **state)
{
    char flags[3 * PATH_MAX];

    (void)state;
    assert_int_not_equal(load("--config /no/such/file", NULL), 0);
    assert_non_null(strstr(err.text, "/no/such/file"));
    fb_test_dir_write(&dir, "f.ini", "memory = 1G\nmemroy = 2G\n");
    snprintf(flags, sizeof flags, "--config %s", fb_test_dir_path(&dir, "f.ini"));
    assert_int_equal(load(flags, NULL), -EINVAL);
    assert_non_null(strstr(err.text, "f.ini:2:"));
    assert_non_null(strstr(err.text, "memory"));
}

/* ---- sections ---- */

static int load_sections(const char *text)
{
    char flags[3 * PATH_MAX];

    fb_test_dir_write(&dir, "f.ini", text);
    snprintf(flags, sizeof flags, "--config %s", fb_test_dir_path(&dir, "f.ini"));
    return load(flags, &mounts);
}

static void test_sections(void **state)
{
    const struct fb_mount_request *a;
    const struct fb_mount_request *b;

    (void)state;
    set_env("FOREBAY_METADATA_TTL", "5s");
    assert_int_equal(load_sections("consistency = static\n"
                                   "fault = latency=1ms\n"
                                   "[mount a]\nsource = /a\nmountpoint = /mnt/a\n"
                                   "[mount b]\nsource=/b\nmountpoint=/mnt/b\n"
                                   "consistency = close-to-open\nmetadata-ttl = 7s\n"
                                   "[mount a]\nallow-other = yes\n"),
                     0);
    a = FB_LIST_ENTRY(mounts.next, struct fb_mount_request, link);
    b = FB_LIST_ENTRY(mounts.next->next, struct fb_mount_request, link);
    assert_ptr_equal(b->link.next, &mounts);
    assert_string_equal(a->name, "a");
    assert_string_equal(a->source, "/a");
    assert_string_equal(a->mountpoint, "/mnt/a");
    assert_int_equal(a->settings.consistency, FB_STATIC);
    assert_int_equal(a->settings.metadata_ttl_ns, 5 * FB_NS_PER_S);
    assert_true(a->settings.allow_other);
    assert_string_equal(a->settings.fault, "latency=1ms");
    assert_int_equal(b->settings.consistency, FB_CLOSE_TO_OPEN);
    assert_int_equal(b->settings.metadata_ttl_ns, 7 * FB_NS_PER_S);
    assert_false(b->settings.allow_other);
}

static void expect_section_error(const char *text, const char *sentence)
{
    assert_int_not_equal(load_sections(text), 0);
    if (!strstr(err.text, sentence))
        fail_msg("'%s' does not say '%s'", err.text, sentence);
}

static void test_section_errors(void **state)
{
    (void)state;
    expect_section_error("[mount a]\nsource = /a\n", "mountpoint");
    expect_section_error("[mount a]\nmountpoint = /a\n", "source");
    expect_section_error("[mount]\nsource = /a\n", "[mount NAME]");
    expect_section_error("[volume a]\nsource = /a\n", "no such section");
    expect_section_error("[mount a]\nmemory = 1G\n", ":2:");
    expect_section_error("[mount a]\nmetadata-ttl = soon\n", "a duration");
    expect_section_error("[mount a]\nsource =\n", "empty");
    expect_section_error("[mount a]\nsource = /a\nmountpoint = /b\n[mount a]\nsource = /c\n",
                         ":5: [mount a] has a source already");
}

static void test_too_many_sections(void **state)
{
    FB_AUTO_FREE char *text = fb_alloc(65536);
    size_t len = 0;

    (void)state;
    for (int i = 0; i <= FB_CONFIG_MOUNTS_MAX; i++)
        len += (size_t)snprintf(text + len, 65536 - len,
                                "[mount m%d]\nsource=/s\nmountpoint=/m%d\n", i, i);
    expect_section_error(text, "more than");
}

/* ---- what it means on this machine ---- */

static void test_memory(void **state)
{
    (void)state;
    assert_int_equal(load_resolved(""), 0);
    assert_int_equal(config.memory_bytes, GIB / 4);
    assert_int_equal(load_resolved("--memory 512M"), 0);
    assert_int_equal(config.memory_bytes, 512 << 20);
    assert_int_equal(load_resolved("--memory 10G"), 0);
    assert_int_equal(config.memory_bytes, (uint64_t)((double)GIB * 0.8));
    fb_test_dir_write(&dir, "proc/meminfo", "MemTotal:       104857600 kB\n");
    assert_int_equal(load_resolved(""), 0);
    assert_int_equal(config.memory_bytes, 4 * GIB);
    /* Of 4 GiB four tenths of a gibibyte are left to others, and of 100 GiB five and a little. */
    fb_test_dir_write(&dir, "proc/meminfo", "MemTotal:        4194304 kB\n");
    assert_int_equal(load_resolved("--memory 3698M"), 0);
    assert_int_equal(config.memory_bytes, 3698ULL << 20);
    assert_int_equal(load_resolved("--memory 4G"), 0);
    assert_int_equal(config.memory_bytes >> 20, 3699);
    fb_test_dir_write(&dir, "proc/meminfo", "MemTotal:      104857600 kB\n");
    assert_int_equal(load_resolved("--memory 200G"), 0);
    assert_int_equal(config.memory_bytes >> 30, 94);
    /* Less than the least: refused, whatever is asked for. */
    fb_test_dir_write(&dir, "proc/meminfo", "MemTotal:       73728 kB\n");
    assert_int_equal(load_resolved(""), -ENOMEM);
    assert_int_equal(load_resolved("--memory 128M"), -ENOMEM);
    assert_non_null(strstr(err.text, "raise the limit to 80M"));
}

/* Logs beside the cached data do not use its budget up; others are their owner's business. */
static void test_log_size(void **state)
{
    (void)state;
    assert_int_equal(load_resolved("--cache-size 100G"), 0);
    assert_int_equal(fb_config_log_bytes(&config), 16 << 20);
    assert_int_equal(load_resolved("--cache-size 200M"), 0);
    assert_int_equal(fb_config_log_bytes(&config), 1 << 20); /* and four before it: 5 MiB */
    assert_int_equal(load_resolved("--cache-size 200M --log-size 2K"), 0);
    assert_int_equal(fb_config_log_bytes(&config), 2 << 10);
    assert_int_equal(load_resolved("--cache-size 200M --log-file /var/log/x"), 0);
    assert_int_equal(fb_config_log_bytes(&config), 16 << 20);
}

static void test_directories(void **state)
{
    char text[4 * PATH_MAX];
    char real[PATH_MAX];

    (void)state;
    assert_non_null(realpath(dir.path, real));
    snprintf(text, sizeof text, "--cache-dir %s/a:%s/b/../c", dir.path, dir.path);
    assert_int_equal(load(text, NULL), 0);
    assert_int_equal(fb_config_resolve(&config, dir.path, &err), 0);
    assert_int_equal(config.dir_count, 2);
    assert_string_equal(fb_config_home(&config), config.dirs[0]);
    snprintf(text, sizeof text, "%s/c", real);
    assert_string_equal(config.dirs[1], text);
    snprintf(text, sizeof text, "%s/a/forebay.log", real);
    assert_string_equal(config.log_file, text);
    snprintf(text, sizeof text, "%s/a:%s/c", real, real);
    assert_string_equal(config.cache_dir, text);
}

static void test_bad_directories(void **state)
{
    static const char *const bad[] = {"--cache-dir=/x:", "--cache-dir=:/x",
                                      "--cache-dir=", "--cache-dir=/x:/x", "--cache-dir=/x:/x/y"};

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(bad); i++) {
        assert_int_equal(load(bad[i], NULL), 0);
        assert_int_equal(fb_config_resolve(&config, dir.path, &err), -EINVAL);
        assert_non_null(strstr(err.text, "cache-dir"));
    }
}

static void test_cache_size_is_bounded_by_the_disk(void **state)
{
    (void)state;
    assert_int_equal(load_resolved("--cache-size 1000P"), 0);
    assert_true(config.cache_bytes < 1000 * (GIB << 20));
    assert_true(config.cache_bytes > 0);
    assert_int_equal(load_resolved("--cache-size 10M"), 0);
    assert_int_equal(config.cache_bytes, 10 << 20);
    assert_int_equal(load_resolved("--cache-size 0"), 0);
    assert_int_equal(config.cache_bytes, 0);
}

static void test_ranges(void **state)
{
    (void)state;
    expect_refused("--source-timeout 0s", "source-timeout");
    expect_refused("--source-timeout 2h", "source-timeout");
    expect_refused("--cache-timeout 0s", "cache-timeout");
    expect_refused("--part-size 4M", "part-size: 4M is out of range; write 5M to 64M");
    expect_refused("--part-size 65M", "part-size");
    expect_refused("--part-size 16E", "part-size");
    assert_int_equal(load_resolved("--part-size 64M"), 0);
    expect_refused("--block-size 4K", "block-size");
    expect_refused("--block-size 16M", "block-size");
    expect_refused("--block-size 192K", "power of two");
    expect_refused("--segment-size 1K", "segment-size");
    expect_refused("--segment-size 1048577", "4K");
    expect_refused("--max-fetches 0", "max-fetches");
    expect_refused("--max-background 0", "max-background");
    expect_refused("--memory 1M", "memory: 1M is too little; write 64M or more");
    expect_refused("--fuse-threads 1000", "fuse-threads");
    expect_refused("--source-threads 100000", "source-threads");
    expect_refused("--log-keep 1000", "log-keep");
    expect_refused("--pmem-size 1G", "pmem-dir");
    expect_refused("--fault nonsense", "nonsense");
    expect_refused("--metrics nonsense", "metrics");
    expect_refused("--evict random", "fifo");
    expect_refused("--engine steam", "uring");
    expect_refused("--memroy 1G", "--memory");
    assert_int_equal(load_resolved("--fault latency=5ms,bandwidth=200M"), 0);
}

static void test_metrics_addresses(void **state)
{
    static const char *const good[] = {"127.0.0.1:0", ":9567", "localhost:80",
                                       "[::1]:1",     "::1:1", "0.0.0.0:65535"};
    static const char *const bad[] = {
        "127.0.0.1", "127.0.0.1:",   "127.0.0.1:65536", "host:80", "127.0.0.1:-1",
        "[::1:80",   "127.0.0.1:8o", "1.2.3.4:99999",   ":",       "127.0.0.1:00000000080"};
    struct fb_http_address address;

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(good); i++) {
        assert_int_equal(fb_http_parse(good[i], &address, &err), 0);
        assert_false(address.off);
    }
    for (size_t i = 0; i < FB_ARRAY_SIZE(bad); i++)
        assert_int_equal(fb_http_parse(bad[i], &address, &err), -EINVAL);
    assert_int_equal(fb_http_parse("off", &address, &err), 0);
    assert_true(address.off);
    assert_int_equal(fb_http_parse("", &address, &err), 0);
    assert_true(address.off);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_defaults, setup, teardown),
        cmocka_unit_test(test_mount_rows),
        cmocka_unit_test_setup_teardown(test_every_row_round_trips, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_row_everywhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_precedence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_positional_words_survive, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sections, setup, teardown),
        cmocka_unit_test_setup_teardown(test_section_errors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_many_sections, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_log_size, setup, teardown),
        cmocka_unit_test_setup_teardown(test_directories, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_directories, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cache_size_is_bounded_by_the_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ranges, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics_addresses, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
