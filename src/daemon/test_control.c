/*
 * The control socket against clients that behave, that do not, and that mean harm. The operations
 * are those of a made-up daemon.
 */
#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "daemon/control.h"
#include "daemon/wire.h"

#define WAIT_NS (60 * FB_NS_PER_S)

static struct fb_test_dir dir;
static char path[PATH_MAX + 16];
static struct fb_control *control;
static _Atomic bool gate_open;
static _Atomic unsigned hanging;

static json_t *op_echo(void *arg, const json_t *request, const struct ucred *peer)
{
    json_t *reply = fb_wire_ok();

    (void)arg;
    (void)peer;
    json_object_set(reply, "echo", json_object_get(request, "text"));
    return reply;
}

/* Waits for the test, as for a source that hangs. */
static json_t *op_hang(void *arg, const json_t *request, const struct ucred *peer)
{
    (void)arg;
    (void)request;
    (void)peer;
    atomic_fetch_add(&hanging, 1);
    while (!atomic_load(&gate_open))
        fb_sleep_ns(FB_NS_PER_MS);
    atomic_fetch_sub(&hanging, 1);
    return fb_wire_ok();
}

static json_t *op_large(void *arg, const json_t *request, const struct ucred *peer)
{
    FB_AUTO_FREE char *text = fb_alloc(1 << 20);

    (void)arg;
    (void)request;
    (void)peer;
    memset(text, 'x', (1 << 20) - 1);
    return json_pack("{s:b, s:s}", "ok", 1, "text", text);
}

static json_t *op_none(void *arg, const json_t *request, const struct ucred *peer)
{
    (void)arg;
    (void)request;
    (void)peer;
    return NULL;
}

static json_t *op_who(void *arg, const json_t *request, const struct ucred *peer)
{
    (void)arg;
    (void)request;
    return json_pack("{s:b, s:i, s:i}", "ok", 1, "pid", (int)peer->pid, "uid", (int)peer->uid);
}

static const struct fb_control_op ops[] = {
    {"echo", false, op_echo},   {"slow-echo", true, op_echo}, {"hang", true, op_hang},
    {"large", false, op_large}, {"none", false, op_none},     {"who", false, op_who},
    {"slow-who", true, op_who},
};

static void start(const struct fb_control_times *times)
{
    struct fb_error err = {""};

    assert_int_equal(fb_control_listen(path, &control, &err), 0);
    assert_int_equal(fb_control_start(control, ops, FB_ARRAY_SIZE(ops), NULL, times), 0);
}

static int setup(void **state)
{
    (void)state;
    fb_test_dir_make(&dir);
    snprintf(path, sizeof path, "%s/c.sock", dir.path);
    atomic_store(&gate_open, false);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    atomic_store(&gate_open, true);
    assert_true(fb_control_stop(control));
    control = NULL;
    assert_int_not_equal(access(path, F_OK), 0);
    fb_test_dir_remove(&dir);
    return 0;
}

static int connect_client(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    assert_true(strlen(path) < sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

static json_t *hear(int fd)
{
    json_t *reply = NULL;

    assert_int_equal(fb_wire_receive(fd, FB_WIRE_REPLY_MAX, fb_now_ns() + WAIT_NS, &reply), 0);
    return reply;
}

static void expect_closed(int fd)
{
    json_t *reply = NULL;

    assert_int_equal(fb_wire_receive(fd, FB_WIRE_REPLY_MAX, fb_now_ns() + WAIT_NS, &reply), -EPIPE);
}

static void expect_code(int fd, const char *code)
{
    json_t *reply = hear(fd);

    assert_true(json_is_false(json_object_get(reply, "ok")));
    assert_string_equal(json_string_value(json_object_get(reply, "code")), code);
    assert_true(strlen(json_string_value(json_object_get(reply, "error"))) > 0);
    json_decref(reply);
}

static void expect_echo(int fd, const char *text)
{
    json_t *reply = hear(fd);

    assert_true(json_is_true(json_object_get(reply, "ok")));
    assert_string_equal(json_string_value(json_object_get(reply, "echo")), text);
    json_decref(reply);
}

static void test_requests(void **state)
{
    FB_AUTO_CLOSE int fd = -1;

    (void)state;
    start(NULL);
    fd = connect_client();
    say(fd, "{\"op\":\"echo\",\"text\":\"a\\nb\"}\n");
    expect_echo(fd, "a\nb");
    say(fd, "{\"op\":\"slow-echo\",\"text\":\"c\"}\n");
    expect_echo(fd, "c");
    say(fd, "{\"op\":");
    say(fd, "\"echo\",\"text\":\"in pieces\"}");
    say(fd, "\n");
    expect_echo(fd, "in pieces");
}

static void expect_me(int fd)
{
    json_t *reply = hear(fd);

    assert_int_equal(json_integer_value(json_object_get(reply, "pid")), getpid());
    assert_int_equal(json_integer_value(json_object_get(reply, "uid")), geteuid());
    json_decref(reply);
}

static void test_who_asks(void **state)
{
    FB_AUTO_CLOSE int fd = -1;

    (void)state;
    start(NULL);
    fd = connect_client();
    say(fd, "{\"op\":\"who\"}\n");
    expect_me(fd);
    say(fd, "{\"op\":\"slow-who\"}\n");
    expect_me(fd);
}

static void test_requests_before_start_wait(void **state)
{
    FB_AUTO_CLOSE int fd = -1;
    struct fb_error err = {""};

    (void)state;
    assert_int_equal(fb_control_listen(path, &control, &err), 0);
    fd = connect_client();
    say(fd, "{\"op\":\"echo\",\"text\":\"early\"}\n");
    assert_int_equal(fb_control_start(control, ops, FB_ARRAY_SIZE(ops), NULL, NULL), 0);
    expect_echo(fd, "early");
}

static void test_never_started(void **state)
{
    struct fb_error err = {""};

    (void)state;
    assert_int_equal(fb_control_listen(path, &control, &err), 0);
}

static void test_replaces_a_dead_socket(void **state)
{
    FB_AUTO_CLOSE int fd = -1;

    (void)state;
    fb_test_dir_write(&dir, "c.sock", "left behind");
    start(NULL);
    fd = connect_client();
    say(fd, "{\"op\":\"echo\",\"text\":\"x\"}\n");
    expect_echo(fd, "x");
}

/* Several lines at once are answered in order. */
static void test_pipelined(void **state)
{
    FB_AUTO_CLOSE int fd = -1;
    char text[64];

    (void)state;
    start(NULL);
    fd = connect_client();
    for (int i = 0; i < 3; i++)
        say(fd, "{\"op\":\"slow-echo\",\"text\":\"1\"}\n{\"op\":\"nonsense\"}\n");
    for (int i = 0; i < 6; i++) {
        size_t len = 0;

        /* One reply at a time: read to its newline only. */
        while (len == 0 || text[len - 1] != '\n') {
            struct pollfd p = {.fd = fd, .events = POLLIN};
            char c;

            assert_true(poll(&p, 1, 10000) > 0);
            assert_int_equal(recv(fd, &c, 1, 0), 1);
            if (len < sizeof text)
                text[len++] = c;
            else
                text[sizeof text - 1] = c;
        }
        assert_non_null(memmem(text, len, i % 2 ? "invalid" : "echo", i % 2 ? 7 : 4));
    }
}

static void test_nonsense(void **state)
{
    static const char *const closing[] = {
        "\n",
        "hello\n",
        "[]\n",
        "[1,2]\n",
        "\"op\"\n",
        "{\"op\":\"echo\"\n",
        "{} {}\n",
        "{\"op\":\"echo\",\"op\":\"hang\"}\n",
        "\xff\xfe\n",
        "nul\n",
        "{\"op\":\"\\u0000\"}\n",
    };
    static const char *const staying[] = {
        "{}\n",
        "{\"op\":1}\n",
        "{\"op\":null}\n",
        "{\"op\":[\"echo\"]}\n",
        "{\"op\":\"ECHO\"}\n",
        "{\"op\":\"\"}\n",
    };
    FB_AUTO_CLOSE int fd = -1;

    (void)state;
    start(NULL);
    for (size_t i = 0; i < FB_ARRAY_SIZE(closing); i++) {
        FB_AUTO_CLOSE int once = connect_client();

        say(once, closing[i]);
        expect_code(once, FB_WIRE_INVALID);
        expect_closed(once);
    }
    fd = connect_client();
    for (size_t i = 0; i < FB_ARRAY_SIZE(staying); i++) {
        say(fd, staying[i]);
        expect_code(fd, FB_WIRE_INVALID);
    }
    say(fd, "{\"op\":\"echo\",\"text\":\"still there\"}\n");
    expect_echo(fd, "still there");
}

/* Brackets within brackets must not use up the stack. */
static void test_deep_nesting(void **state)
{
    FB_AUTO_CLOSE int fd = -1;
    FB_AUTO_FREE char *text = fb_alloc(60000);

    (void)state;
    memset(text, '[', 59998);
    text[59998] = '\n';
    start(NULL);
    fd = connect_client();
    say(fd, text);
    expect_code(fd, FB_WIRE_INVALID);
}

static void test_too_long(void **state)
{
    FB_AUTO_CLOSE int fd = -1;
    FB_AUTO_FREE char *text = fb_alloc(FB_WIRE_REQUEST_MAX + 1);

    (void)state;
    memset(text, ' ', FB_WIRE_REQUEST_MAX);
    start(NULL);
    fd = connect_client();
    say(fd, text);
    expect_code(fd, FB_WIRE_INVALID);
    expect_closed(fd);
}

static void test_slow_writer_is_cut_off(void **state)
{
    FB_AUTO_CLOSE int fd = -1;
    FB_AUTO_CLOSE int idle = -1;

    (void)state;
    start(&(struct fb_control_times){.request_ns = 100 * FB_NS_PER_MS,
                                     .idle_ns = 300 * FB_NS_PER_MS});
    fd = connect_client();
    idle = connect_client();
    say(fd, "{\"op\":");
    expect_closed(fd);
    expect_closed(idle);
}

/* Drops of bytes do not put the deadline off. */
static void test_dripping_writer_is_cut_off(void **state)
{
    FB_AUTO_CLOSE int fd = -1;
    int64_t begin_ns = fb_now_ns();

    (void)state;
    start(&(struct fb_control_times){.request_ns = 200 * FB_NS_PER_MS});
    fd = connect_client();
    while (send(fd, " ", 1, MSG_NOSIGNAL) == 1) {
        assert_true(fb_now_ns() - begin_ns < WAIT_NS);
        fb_sleep_ns(10 * FB_NS_PER_MS);
    }
}

static void test_reader_that_does_not_read(void **state)
{
    FB_AUTO_CLOSE int fd = -1;
    FB_AUTO_CLOSE int other = -1;

    (void)state;
    start(&(struct fb_control_times){.write_ns = 200 * FB_NS_PER_MS});
    fd = connect_client();
    for (int i = 0; i < 8; i++)
        say(fd, "{\"op\":\"large\"}\n");
    other = connect_client();
    say(other, "{\"op\":\"echo\",\"text\":\"me too\"}\n");
    expect_echo(other, "me too");
    fb_sleep_ns(400 * FB_NS_PER_MS);
    /* Closed by then: after what is buffered comes the end. */
    for (;;) {
        char buf[65536];
        ssize_t n = recv(fd, buf, sizeof buf, 0);

        if (n > 0)
            continue;
        assert_true(n == 0 || errno == ECONNRESET);
        break;
    }
}

static void test_large_reply(void **state)
{
    FB_AUTO_CLOSE int fd = -1;
    json_t *reply;

    (void)state;
    start(NULL);
    fd = connect_client();
    say(fd, "{\"op\":\"large\"}\n");
    reply = hear(fd);
    assert_int_equal(json_string_length(json_object_get(reply, "text")), (1 << 20) - 1);
    json_decref(reply);
}

static void test_no_reply_closes(void **state)
{
    FB_AUTO_CLOSE int fd = -1;

    (void)state;
    start(NULL);
    fd = connect_client();
    say(fd, "{\"op\":\"none\"}\n");
    expect_closed(fd);
}

/* A request that hangs holds up nobody else; its own connection gets an answer in time. */
static void test_hanging_request(void **state)
{
    FB_AUTO_CLOSE int fd = -1;
    FB_AUTO_CLOSE int other = -1;

    (void)state;
    start(&(struct fb_control_times){.work_ns = 300 * FB_NS_PER_MS});
    fd = connect_client();
    other = connect_client();
    say(fd, "{\"op\":\"hang\"}\n");
    say(other, "{\"op\":\"echo\",\"text\":\"free\"}\n");
    expect_echo(other, "free");
    expect_code(fd, FB_WIRE_FAILED);
    expect_closed(fd);
}

static void test_client_gone_while_working(void **state)
{
    FB_AUTO_CLOSE int fd = -1;

    (void)state;
    start(NULL);
    for (int i = 0; i < 4; i++) {
        int gone = connect_client();

        say(gone, "{\"op\":\"hang\"}\n");
        close(gone);
    }
    fd = connect_client();
    say(fd, "{\"op\":\"echo\",\"text\":\"x\"}\n");
    expect_echo(fd, "x");
    atomic_store(&gate_open, true);
    say(fd, "{\"op\":\"slow-echo\",\"text\":\"y\"}\n");
    expect_echo(fd, "y");
}

/* Clients that leave hanging requests behind one after the other do not pile up threads. */
static void test_jobs_are_bounded(void **state)
{
    FB_AUTO_CLOSE int fd = -1;
    int64_t begin_ns;

    (void)state;
    start(&(struct fb_control_times){.work_ns = 50 * FB_NS_PER_MS});
    for (int i = 0; i < FB_CONTROL_JOBS_MAX; i++) {
        FB_AUTO_CLOSE int once = connect_client();

        say(once, "{\"op\":\"hang\"}\n");
        expect_code(once, FB_WIRE_FAILED);
    }
    fd = connect_client();
    say(fd, "{\"op\":\"hang\"}\n");
    expect_code(fd, FB_WIRE_BUSY);
    atomic_store(&gate_open, true);
    begin_ns = fb_now_ns();
    do { /* one that does not come to its turn in time costs the connection */
        FB_AUTO_CLOSE int again = connect_client();
        json_t *reply;

        say(again, "{\"op\":\"slow-echo\",\"text\":\"room\"}\n");
        reply = hear(again);
        if (json_is_true(json_object_get(reply, "ok")))
            begin_ns = 0;
        json_decref(reply);
        assert_true(begin_ns == 0 || fb_now_ns() - begin_ns < WAIT_NS);
    } while (begin_ns);
}

static void test_connections_are_bounded(void **state)
{
    static const char request[] = "{\"op\":\"echo\",\"text\":\"in\"}\n";
    int fds[FB_CONTROL_CONNECTIONS_MAX];
    FB_AUTO_CLOSE int fd = -1;

    (void)state;
    start(NULL);
    for (int i = 0; i < FB_CONTROL_CONNECTIONS_MAX; i++) {
        fds[i] = connect_client();
        say(fds[i], request);
        expect_echo(fds[i], "in");
    }
    for (int i = 0; i < 10; i++) {
        FB_AUTO_CLOSE int more = connect_client();

        expect_closed(more);
    }
    for (int i = 0; i < FB_CONTROL_CONNECTIONS_MAX; i++)
        close(fds[i]);
    for (int tries = 0;; tries++) {
        json_t *reply = NULL;

        assert_true(tries < 1000);
        fd = connect_client();
        if (send(fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request) &&
            fb_wire_receive(fd, FB_WIRE_REPLY_MAX, fb_now_ns() + WAIT_NS, &reply) == 0) {
            json_decref(reply);
            break;
        }
        close(fb_steal_fd(&fd));
        fb_sleep_ns(FB_NS_PER_MS);
    }
}

static void *client_run(void *arg)
{
    uintptr_t *good = arg;

    for (int i = 0; i < 50; i++) {
        FB_AUTO_CLOSE int fd = connect_client();
        const char *text =
            i % 5 == 4 ? "{\"op\":\"slow-ec" : "{\"op\":\"slow-echo\",\"text\":\"t\"}\n";
        json_t *reply = NULL;

        if (send(fd, text, strlen(text), MSG_NOSIGNAL) != (ssize_t)strlen(text) || i % 5 == 4)
            continue;
        if (fb_wire_receive(fd, FB_WIRE_REPLY_MAX, fb_now_ns() + WAIT_NS, &reply) == 0)
            ++*good;
        json_decref(reply);
    }
    return NULL;
}

static void test_many_clients(void **state)
{
    pthread_t threads[8];
    uintptr_t good[8] = {0};

    (void)state;
    start(NULL);
    for (size_t i = 0; i < FB_ARRAY_SIZE(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, client_run, &good[i]), 0);
    for (size_t i = 0; i < FB_ARRAY_SIZE(threads); i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(good[i], 40);
    }
}

/* Requests under way are answered before it stops. */
static void test_stop_answers(void **state)
{
    FB_AUTO_CLOSE int fd = -1;
    FB_AUTO_CLOSE int done = -1;

    (void)state;
    start(NULL);
    fd = connect_client();
    done = connect_client();
    say(fd, "{\"op\":\"hang\"}\n");
    say(done, "{\"op\":\"echo\",\"text\":\"x\"}\n");
    expect_echo(done, "x");
    atomic_store(&gate_open, true);
    assert_true(fb_control_stop(control));
    control = NULL;
    json_decref(hear(fd));
    expect_closed(done);
}

static void test_stop_gives_up(void **state)
{
    FB_AUTO_CLOSE int fd = -1;

    (void)state;
    start(&(struct fb_control_times){.stop_ns = 50 * FB_NS_PER_MS});
    fd = connect_client();
    say(fd, "{\"op\":\"hang\"}\n");
    say(fd, "{\"op\":\"echo\"}\n");
    while (atomic_load(&hanging) == 0)
        fb_sleep_ns(FB_NS_PER_MS);
    assert_false(fb_control_stop(control));
    atomic_store(&gate_open, true);
    while (!fb_control_stop(control))
        fb_sleep_ns(FB_NS_PER_MS);
    control = NULL;
}

/* ---- messages ---- */

static void test_paths_of_any_bytes(void **state)
{
    static const char *const paths[] = {"/plain", "/gr\xc3\xbc\xc3\x9f", "/latin-\xfc\xff",
                                        "/a\nb\"c"};

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(paths); i++) {
        json_t *object = json_pack("{s:o}", "p", fb_wire_path(paths[i]));
        FB_AUTO_FREE char *line = fb_wire_line(object);
        json_t *back = json_loads(line, 0, NULL);
        FB_AUTO_FREE char *got = NULL;

        assert_int_equal(fb_wire_get_path(back, "p", &got), 0);
        assert_string_equal(got, paths[i]);
        json_decref(object);
        json_decref(back);
    }
}

static void test_bad_paths(void **state)
{
    static const char *const bad[] = {
        "{}",
        "{\"p\":1}",
        "{\"p\":\"\"}",
        "{\"p\":{}}",
        "{\"p\":{\"hex\":\"\"}}",
        "{\"p\":{\"hex\":\"2\"}}",
        "{\"p\":{\"hex\":\"2g\"}}",
        "{\"p\":{\"hex\":\"2f00\"}}",
        "{\"p\":{\"hex\":5}}",
        "{\"p\":[\"/x\"]}",
    };

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(bad); i++) {
        json_t *object = json_loads(bad[i], 0, NULL);
        char *got;

        assert_non_null(object);
        assert_int_equal(fb_wire_get_path(object, "p", &got), -EINVAL);
        json_decref(object);
    }
}

static void test_error_with_odd_bytes(void **state)
{
    json_t *error = fb_wire_error(FB_WIRE_FAILED, "the source %s is odd", "/\xff\xfe");

    (void)state;
    assert_string_equal(json_string_value(json_object_get(error, "error")),
                        "the source /?? is odd");
    json_decref(error);
}

#define SOCKET_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SOCKET_TEST(test_requests),
        SOCKET_TEST(test_who_asks),
        SOCKET_TEST(test_requests_before_start_wait),
        SOCKET_TEST(test_never_started),
        SOCKET_TEST(test_replaces_a_dead_socket),
        SOCKET_TEST(test_pipelined),
        SOCKET_TEST(test_nonsense),
        SOCKET_TEST(test_deep_nesting),
        SOCKET_TEST(test_too_long),
        SOCKET_TEST(test_slow_writer_is_cut_off),
        SOCKET_TEST(test_dripping_writer_is_cut_off),
        SOCKET_TEST(test_reader_that_does_not_read),
        SOCKET_TEST(test_large_reply),
        SOCKET_TEST(test_no_reply_closes),
        SOCKET_TEST(test_hanging_request),
        SOCKET_TEST(test_client_gone_while_working),
        SOCKET_TEST(test_jobs_are_bounded),
        SOCKET_TEST(test_connections_are_bounded),
        SOCKET_TEST(test_many_clients),
        SOCKET_TEST(test_stop_answers),
        SOCKET_TEST(test_stop_gives_up),
        cmocka_unit_test(test_paths_of_any_bytes),
        cmocka_unit_test(test_bad_paths),
        cmocka_unit_test(test_error_with_odd_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
