/*
 * libforebay with a daemon in trouble, and with files that change: reads go on, acquired bytes
 * stay, two versions are never mixed.
 */
#include <cmocka.h>
#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/mem.h"
#include "lib_files.h"

#define SESSIONS 16 /* that one client has room for */

enum {
    PATIENCE_MS = 20000, /* half of what a wait for each of 20 questions would take */
};

static struct files files;
static struct server server;

static int start(void **state)
{
    (void)state;
    files_init(&files);
    files_write(&files, "large", LARGE, 1);
    files_write(&files, "cold", LARGE, 1);
    files_settle();
    return 0;
}

/* Each test has a server of its own. */
static int set_up(void **state)
{
    (void)state;
    server_start(&server, files.root, files.socket);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (server.pid > 0)
        server_signal(&server, SIGCONT);
    server_end(&server);
    return 0;
}

static struct forebay_file *opened(struct forebay *fb, const char *name)
{
    char path[256];
    struct forebay_file *file = files_open_cached(fb, files_path(&files, name, path), 60);

    assert_true(forebay_is_cached(file));
    return file;
}

static void expect_all(struct forebay_file *file, const char *name, size_t size, unsigned version)
{
    FB_AUTO_FREE uint8_t *buffer = malloc(size);

    assert_non_null(buffer);
    assert_int_equal(forebay_pread(file, buffer, size, 0), size);
    assert_true(files_good(name, version, buffer, size, 0));
}

static bool served_by_cache(struct forebay_file *file, const char *name, size_t size)
{
    uint64_t before = server_ask(&server, SERVER_HITS, NULL);

    for (int i = 0; i < 1200; i++, usleep(50000)) {
        expect_all(file, name, size, 1);
        if (server_ask(&server, SERVER_HITS, NULL) > before)
            return true;
    }
    return false;
}

/* ---- it goes ---- */

static void killed(void **state)
{
    struct forebay *fb = forebay_connect(files.socket);
    struct forebay_file *small = opened(fb, "small"), *cold = opened(fb, "cold");
    struct forebay_pin *pin;
    const void *data = files_acquire_shared(small, SMALL, &pin);
    int64_t begin_ms;

    (void)state;
    assert_non_null(data);
    server_signal(&server, SIGKILL);
    begin_ms = files_now_ms();
    expect_all(cold, "cold", LARGE, 1);
    expect_all(small, "small", SMALL, 1);
    assert_true(files_now_ms() - begin_ms < PATIENCE_MS);
    assert_true(files_good("small", 1, data, SMALL, 0));
    /* Longer than it is taken for alive; new files are opened directly. */
    usleep(2500000);
    for (int i = 0; i < 3; i++, usleep(600000)) {
        char path[256];
        struct forebay_file *file = forebay_open(fb, files_path(&files, "small", path));

        assert_non_null(file);
        assert_false(forebay_is_cached(file));
        expect_all(file, "small", SMALL, 1);
        forebay_close(file);
    }
    assert_true(files_good("small", 1, data, SMALL, 0));
    expect_all(cold, "cold", LARGE, 1);
    /* Another comes: also files that were open before are served by it. */
    server_start(&server, files.root, files.socket);
    forebay_close(opened(fb, "large"));
    assert_true(served_by_cache(cold, "cold", LARGE));
    assert_true(files_good("small", 1, data, SMALL, 0));
    forebay_release(pin);
    assert_true(served_by_cache(small, "small", SMALL));
    forebay_close(small);
    forebay_close(cold);
    forebay_disconnect(fb);
}

static void ended(void **state)
{
    struct forebay *fb = forebay_connect(files.socket);
    struct forebay_file *small = opened(fb, "small");
    struct forebay_pin *pin;
    const void *data = files_acquire_shared(small, SMALL, &pin);

    (void)state;
    assert_non_null(data);
    server_end(&server);
    expect_all(small, "small", SMALL, 1);
    assert_true(files_good("small", 1, data, SMALL, 0));
    server_start(&server, files.root, files.socket);
    /* Hits in what the old one left are as good; who opens a file notices. */
    forebay_close(opened(fb, "large"));
    assert_true(served_by_cache(small, "small", SMALL));
    assert_true(files_good("small", 1, data, SMALL, 0));
    for (int i = 0; i < 2; i++)
        files_churn(&server);
    assert_true(files_good("small", 1, data, SMALL, 0));
    forebay_close(small);
    forebay_disconnect(fb);
    assert_true(files_good("small", 1, data, SMALL, 0));
    forebay_release(pin);
}

/* More daemons than one client has room for. */
static void many_daemons(void **state)
{
    struct forebay *fb = forebay_connect(files.socket);
    struct forebay_file *first = opened(fb, "small");

    (void)state;
    for (int i = 0; i < SESSIONS + 2; i++) {
        struct forebay_file *file;

        server_end(&server);
        server_start(&server, files.root, files.socket);
        file = opened(fb, "small");
        expect_all(file, "small", SMALL, 1);
        forebay_close(file);
    }
    expect_all(first, "small", SMALL, 1);
    forebay_close(first);
    forebay_disconnect(fb);
}

/* ---- it hangs ---- */

static void stopped(void **state)
{
    struct forebay *fb = forebay_connect(files.socket);
    struct forebay_file *small = opened(fb, "small"), *cold = opened(fb, "cold");
    struct forebay_pin *pin;
    const void *data = files_acquire_shared(small, SMALL, &pin);
    int64_t begin_ms, waited_ms = 0;

    (void)state;
    assert_non_null(data);
    server_signal(&server, SIGSTOP);
    begin_ms = files_now_ms();
    expect_all(cold, "cold", LARGE, 1);
    assert_true(files_now_ms() - begin_ms < PATIENCE_MS);
    /* Once is enough: nobody waits again and again. */
    for (int i = 0; i < 20; i++) {
        uint8_t byte;

        begin_ms = files_now_ms();
        assert_int_equal(forebay_pread(cold, &byte, 1, LARGE - 1 - i), 1);
        waited_ms += files_now_ms() - begin_ms;
    }
    assert_true(waited_ms < PATIENCE_MS);
    assert_true(files_good("small", 1, data, SMALL, 0));
    server_signal(&server, SIGCONT);
    /* It goes on, and still knows what we hold. */
    assert_true(served_by_cache(cold, "cold", LARGE));
    for (int i = 0; i < 2; i++)
        files_churn(&server);
    assert_true(files_good("small", 1, data, SMALL, 0));
    forebay_release(pin);
    forebay_close(small);
    forebay_close(cold);
    forebay_disconnect(fb);
}

/* A daemon that hangs from the beginning costs one wait, not one a file. */
static void stopped_before(void **state)
{
    struct forebay *fb = forebay_connect(files.socket);
    int64_t waited_ms = 0;
    char path[256];

    (void)state;
    server_signal(&server, SIGSTOP);
    for (int i = 0; i < 20; i++, usleep(100000)) {
        int64_t begin_ms = files_now_ms();
        struct forebay_file *file = forebay_open(fb, files_path(&files, "small", path));

        waited_ms += files_now_ms() - begin_ms;
        assert_non_null(file);
        expect_all(file, "small", SMALL, 1);
        forebay_close(file);
    }
    assert_true(waited_ms < PATIENCE_MS);
    server_signal(&server, SIGCONT);
    forebay_disconnect(fb);
}

/* ---- it may not read all ---- */

/* With or without root's power to read whatever the permissions say. */
static void read_anything(bool may)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {{0}};
    uint32_t wide = 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH;

    assert_int_equal(syscall(SYS_capget, &head, caps), 0);
    caps[0].effective = may ? caps[0].permitted : caps[0].effective & ~wide;
    assert_int_equal(syscall(SYS_capset, &head, caps), 0);
}

static int set_up_humble(void **state)
{
    char path[256];

    files_write(&files, "closed", SMALL, 1);
    files_settle();
    read_anything(false);
    return chmod(files_path(&files, "closed", path), 0) != 0 || set_up(state) != 0;
}

static int tear_down_humble(void **state)
{
    int rc = tear_down(state);

    read_anything(true);
    return rc;
}

/* What may not be read is not opened; who reads it later would be surprised. */
static void not_for_us(void **state)
{
    struct forebay *fb = forebay_connect(files.socket);
    char path[256];

    (void)state;
    forebay_close(opened(fb, "small"));
    assert_null(forebay_open(fb, files_path(&files, "closed", path)));
    assert_int_equal(errno, EACCES);
    assert_int_equal(chmod(path, 0400), 0);
    forebay_close(opened(fb, "closed"));
    forebay_disconnect(fb);
}

/* ---- files change ---- */

static void changed(void **state)
{
    struct forebay *fb = forebay_connect(files.socket);
    struct forebay_file *old = opened(fb, "large"), *fresh;
    struct forebay_pin *pin;
    const void *data = files_acquire_shared(old, SERVER_BLOCK, &pin);
    uint8_t buffer[100];

    (void)state;
    assert_non_null(data);
    files_write(&files, "large", LARGE, 2);
    usleep(300000);
    fresh = opened(fb, "large");
    expect_all(fresh, "large", LARGE, 2);
    assert_true(files_good("large", 1, data, SERVER_BLOCK, 0));
    /* Of the old version what was cached, and nothing else. */
    for (off_t at = 0; at < LARGE; at += SERVER_BLOCK / 2) {
        ssize_t n = forebay_pread(old, buffer, sizeof buffer, at);

        if (n < 0)
            assert_int_equal(errno, ESTALE);
        else
            assert_true(files_good("large", 1, buffer, (size_t)n, (uint64_t)at));
    }
    assert_int_equal(forebay_pread(old, buffer, sizeof buffer, LARGE - 100), -1);
    assert_int_equal(errno, ESTALE);
    forebay_close(old);
    forebay_close(fresh);
    forebay_release(pin);
    forebay_disconnect(fb);
}

/* The daemon goes, then the file changes: what was open is stale, not new. */
static void changed_while_dead(void **state)
{
    struct forebay *fb = forebay_connect(files.socket);
    struct forebay_file *old = opened(fb, "cold");
    uint8_t buffer[100];

    (void)state;
    server_signal(&server, SIGKILL);
    assert_int_equal(forebay_pread(old, buffer, 100, LARGE - 100), 100);
    files_write(&files, "cold", LARGE, 2);
    assert_int_equal(forebay_pread(old, buffer, 100, 300000), -1);
    assert_int_equal(errno, ESTALE);
    server_start(&server, files.root, files.socket);
    usleep(1200000);
    assert_int_equal(forebay_pread(old, buffer, 100, 300000), -1);
    assert_int_equal(errno, ESTALE);
    forebay_close(old);
    files_write(&files, "cold", LARGE, 1);
    forebay_disconnect(fb);
    files_settle();
}

/* Killed and started again at once, and the file is another: ids of the new daemon must not be
 * looked up in the memory of the old. */
static void changed_at_once(void **state)
{
    struct forebay *fb = forebay_connect(files.socket);
    struct forebay_file *old = opened(fb, "small"), *fresh;
    char path[256];

    (void)state;
    assert_true(served_by_cache(old, "small", SMALL));
    server_signal(&server, SIGKILL);
    files_write(&files, "small", SMALL, 2);
    server_start(&server, files.root, files.socket);
    usleep(300000);
    fresh = forebay_open(fb, files_path(&files, "small", path));
    assert_non_null(fresh);
    expect_all(fresh, "small", SMALL, 2);
    forebay_close(fresh);
    forebay_close(old);
    fresh = opened(fb, "small");
    expect_all(fresh, "small", SMALL, 2);
    forebay_close(fresh);
    forebay_disconnect(fb);
    files_write(&files, "small", SMALL, 1);
    files_settle();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stopped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stopped_before, set_up, tear_down),
        cmocka_unit_test_setup_teardown(not_for_us, set_up_humble, tear_down_humble),
        cmocka_unit_test_setup_teardown(changed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(changed_while_dead, set_up, tear_down),
        cmocka_unit_test_setup_teardown(changed_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(many_daemons, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
