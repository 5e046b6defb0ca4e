/*
 * The local door against clients that do not keep the rules: it lives on, serves the others, and
 * keeps nothing of theirs. (Clients that do keep them are tested in src/client and tests/.)
 */
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rand.h"
#include "core/clock.h"
#include "doors/local/local_priv.h"
#include "source/source_posix.h"

#define MEMORY      (64ULL << 20)
#define PATIENCE_NS (60 * FB_NS_PER_S)
#define ROUNDS      3000

struct world {
    char dir[64];
    char data[1024];
    char socket[80];
    struct fb_cache *cache;
    struct fb_volume *volume;
    struct fb_local *local;
};

static void write_file(const struct world *w, const char *name, const char *bytes)
{
    struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    char path[2048];
    int fd;

    snprintf(path, sizeof path, "%s/%s", w->data, name);
    fd = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, strlen(bytes)), strlen(bytes));
    assert_int_equal(futimens(fd, old), 0);
    close(fd);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    char real[PATH_MAX];
    struct fb_cache_config config;
    struct fb_volume_config volume = {.metadata_ttl_ns = 60 * FB_NS_PER_S,
                                      .timeout_ns = 10 * FB_NS_PER_S};
    struct fb_local_config local = {.threads = 2};
    struct fb_posix_config posix = {.threads = 2};
    struct fb_source *source;
    struct fb_error err = {""};

    assert_non_null(w);
    signal(SIGPIPE, SIG_IGN);
    snprintf(w->dir, sizeof w->dir, "forebay-test-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    assert_non_null(realpath(w->dir, real));
    snprintf(w->socket, sizeof w->socket, "%s/socket", w->dir);
    assert_true(snprintf(w->data, sizeof w->data, "%s/data", real) < (int)sizeof w->data);
    assert_int_equal(mkdir(w->data, 0700), 0);
    write_file(w, "a", "the bytes of a");
    fb_cache_config_defaults(&config);
    config.memory_bytes = MEMORY;
    config.evict = "lru";
    config.no_watch = true; /* the test is the background thread */
    assert_int_equal(fb_cache_open(&config, &w->cache, &err), 0);
    posix.root = w->data;
    assert_int_equal(fb_source_posix_open(&posix, &source, &err), 0);
    assert_int_equal(fb_volume_attach(w->cache, source, &volume, &w->volume, &err), 0);
    local.socket_path = w->socket;
    assert_int_equal(fb_local_start(w->cache, &local, &w->local, &err), 0);
    assert_int_equal(fb_local_add(w->local, w->volume, w->data, &err), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    char command[128];

    fb_local_remove(w->local, w->volume);
    fb_local_stop(w->local);
    fb_volume_detach(w->volume);
    fb_cache_close(w->cache);
    snprintf(command, sizeof command, "rm -rf %s", w->dir);
    assert_int_equal(system(command), 0); /* NOLINT(concurrency-mt-unsafe) */
    free(w);
    return 0;
}

/* ---- a client by hand ---- */

static int dial(const struct world *w)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = 10};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", w->socket);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
    return fd;
}

static bool get(int fd, void *to, size_t bytes)
{
    return recv(fd, to, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* False: the connection was closed instead. */
static bool ask(int fd, struct fb_client_request request, const char *path,
                struct fb_client_reply *reply, void *data, size_t max)
{
    request.magic = FB_CLIENT_MAGIC;
    request.path_len = (uint32_t)strlen(path);
    if (send(fd, &request, sizeof request, 0) != (ssize_t)sizeof request ||
        send(fd, path, request.path_len, 0) != (ssize_t)request.path_len)
        return false;
    if (!get(fd, reply, sizeof *reply))
        return false;
    assert_true(reply->bytes <= max);
    return reply->bytes == 0 || get(fd, data, reply->bytes);
}

static bool hello(int fd)
{
    struct fb_client_request request = {.op = FB_CLIENT_HELLO, .length = FB_CLIENT_VERSION};
    struct fb_client_reply reply = {0};
    char welcome[4096];

    return ask(fd, request, "", &reply, welcome, sizeof welcome) && reply.result == 0;
}

/* HELLO with memory: the area, mapped. */
static struct fb_client_area *hello_area(int fd)
{
    struct fb_client_request request = {.magic = FB_CLIENT_MAGIC,
                                        .op = FB_CLIENT_HELLO,
                                        .length = FB_CLIENT_VERSION,
                                        .flags = FB_CLIENT_WANT_MEMORY};
    struct fb_client_reply reply = {0};

    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(3 * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = &reply, .iov_len = sizeof reply};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof control.bytes};
    char welcome[4096];
    struct cmsghdr *c;
    int fds[3] = {-1, -1, -1};
    void *area;

    assert_int_equal(send(fd, &request, sizeof request, 0), sizeof request);
    assert_int_equal(recvmsg(fd, &msg, MSG_WAITALL), sizeof reply);
    c = CMSG_FIRSTHDR(&msg);
    assert_non_null(c);
    if (!c || c->cmsg_len != CMSG_LEN(sizeof fds))
        fail();
    else
        memcpy(fds, CMSG_DATA(c), sizeof fds);
    assert_true(get(fd, welcome, reply.bytes));
    /* Neither index nor DRAM can be written, mapped for writing or cut off. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fds[i], 0), MAP_FAILED);
        assert_true(write(fds[i], "x", 1) < 0);
        assert_int_not_equal(ftruncate(fds[i], 0), 0);
    }
    assert_int_not_equal(ftruncate(fds[2], 0), 0);
    area = mmap(NULL, fb_client_area_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fds[2], 0);
    assert_int_not_equal(area, MAP_FAILED);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    return area;
}

/* The door still answers an honest client. */
static void assert_serves(const struct world *w)
{
    struct fb_client_request request = {.op = FB_CLIENT_OPEN, .source = fb_volume_id(w->volume)};
    struct fb_client_reply reply = {0};
    char bytes[64] = "";
    int fd = dial(w);

    assert_true(hello(fd));
    assert_true(ask(fd, request, "a", &reply, NULL, 0));
    assert_int_equal(reply.result, 0);
    assert_int_equal(reply.attr.version.size, 14);
    request = (struct fb_client_request){.op = FB_CLIENT_READ,
                                         .source = request.source,
                                         .length = 64,
                                         .version = reply.attr.version};
    assert_true(ask(fd, request, "a", &reply, bytes, sizeof bytes));
    assert_int_equal(reply.bytes, 14);
    assert_memory_equal(bytes, "the bytes of a", 14);
    close(fd);
}

/* ---- tests ---- */

static void rules_are_kept(void **state)
{
    struct world *w = *state;
    uint16_t source = fb_volume_id(w->volume);
    struct fb_client_reply reply = {0};
    int fd = dial(w);

    assert_serves(w);
    /* Nothing before HELLO. */
    assert_true(ask(fd, (struct fb_client_request){.op = FB_CLIENT_OPEN, .source = source}, "a",
                    &reply, NULL, 0));
    assert_int_equal(reply.result, -EPROTO);
    assert_true(ask(fd, (struct fb_client_request){.op = FB_CLIENT_HELLO, .length = 99}, "", &reply,
                    NULL, 0));
    assert_int_equal(reply.result, -EPROTONOSUPPORT);
    assert_true(hello(fd));
    assert_true(ask(fd, (struct fb_client_request){.op = FB_CLIENT_OPEN, .source = 999}, "a",
                    &reply, NULL, 0));
    assert_int_equal(reply.result, -ENODEV);
    assert_true(ask(fd, (struct fb_client_request){.op = FB_CLIENT_OPEN, .source = source},
                    "../data/a", &reply, NULL, 0));
    assert_true(reply.result < 0);
    assert_true(ask(fd, (struct fb_client_request){.op = FB_CLIENT_OPEN, .source = source}, "none",
                    &reply, NULL, 0));
    assert_int_equal(reply.result, -ENOENT);
    /* A version that never was. */
    assert_true(
        ask(fd,
            (struct fb_client_request){
                .op = FB_CLIENT_READ, .source = source, .length = 10, .version = {.size = 9}},
            "a", &reply, NULL, 0));
    assert_int_equal(reply.result, -ESTALE);
    close(fd);
    assert_serves(w);
}

static uint64_t size_of(const struct world *w, int fd)
{
    struct fb_client_request request = {.op = FB_CLIENT_OPEN, .source = fb_volume_id(w->volume)};
    struct fb_client_reply reply = {0};

    assert_true(ask(fd, request, "b", &reply, NULL, 0));
    assert_int_equal(reply.result, 0);
    return reply.attr.version.size;
}

/* Who no longer knows what it has changed says so without a path. */
static void all_is_doubted(void **state)
{
    struct world *w = *state;
    struct fb_client_request request = {.op = FB_CLIENT_FORGET, .source = fb_volume_id(w->volume)};
    struct fb_client_reply reply = {0};
    int fd = dial(w);

    assert_true(hello(fd));
    write_file(w, "b", "short");
    fb_sleep_ns(FB_SETTLE_TIME_NS + 100 * FB_NS_PER_MS);
    assert_int_equal(size_of(w, fd), 5);
    write_file(w, "b", "longer than that");
    assert_int_equal(size_of(w, fd), 5);
    assert_true(ask(fd, request, "", &reply, NULL, 0));
    assert_int_equal(reply.result, 0);
    assert_int_equal(size_of(w, fd), 16);
    close(fd);
}

static void garbage_is_survived(void **state)
{
    struct world *w = *state;
    struct fb_rand r = {.state = 7};

    for (int i = 0; i < ROUNDS; i++) {
        struct fb_client_request request;
        uint8_t *bytes = (uint8_t *)&request;
        size_t send_bytes;
        int fd = dial(w);

        if (fb_rand_below(&r, 2))
            assert_true(hello(fd));
        for (size_t k = 0; k < sizeof request; k++)
            bytes[k] = (uint8_t)fb_rand_u64(&r);
        if (fb_rand_below(&r, 4) > 0) {
            request.magic = FB_CLIENT_MAGIC;
            request.op = (uint16_t)fb_rand_below(&r, 7);
            request.path_len = (uint32_t)fb_rand_below(&r, 5000);
            request.length &= 0xfffff;
            request.source = (uint16_t)fb_rand_below(&r, 3);
        }
        send_bytes = fb_rand_below(&r, 3) ? sizeof request : (size_t)fb_rand_below(&r, 72);
        (void)!send(fd, &request, send_bytes, MSG_NOSIGNAL);
        if (fb_rand_below(&r, 2)) {
            char path[5000];

            memset(path, 'x', sizeof path);
            (void)!send(fd, path, (size_t)fb_rand_below(&r, sizeof path),
                        MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        close(fd);
    }
    assert_serves(w);
}

static bool eventually(bool (*is)(struct world *w), struct world *w)
{
    int64_t until_ns = fb_now_ns() + PATIENCE_NS;

    while (!is(w) && fb_now_ns() < until_ns)
        fb_sleep_ns(10 * FB_NS_PER_MS);
    return is(w);
}

static bool nobody_there(struct world *w)
{
    return fb_local_clients(w->local) == 0;
}

/* The area is the client's to write: whatever it holds, nothing else is touched. */
static void scribbled_areas_are_survived(void **state)
{
    struct world *w = *state;
    struct fb_rand r = {.state = 11};

    for (int i = 0; i < 20; i++) {
        int fd = dial(w);
        struct fb_client_area *area = hello_area(fd);
        uint64_t *words = (uint64_t *)area;

        for (size_t k = 0; k < fb_client_area_bytes() / 8; k++)
            words[k] = i % 2 ? fb_rand_u64(&r) : fb_rand_below(&r, 3);
        /* Records that are ready, with any content. */
        for (uint64_t k = 0; k < FB_CLIENT_RING_SLOTS; k++)
            atomic_store(&area->ring.slots[k].sequence, k + 1);
        fb_cache_tick(w->cache);
        fb_cache_tick(w->cache);
        munmap(area, fb_client_area_bytes());
        close(fd);
    }
    assert_true(eventually(nobody_there, w));
    assert_serves(w);
}

/* A quarter of DRAM in all; what a client had comes back when it goes. */
static void pins_are_limited(void **state)
{
    struct world *w = *state;
    struct fb_client_request request = {.op = FB_CLIENT_PIN, .length = 1u << 19};
    uint32_t quarter = (uint32_t)(fb_store_layout(fb_cache_store(w->cache))->h.dram_segments / 4);
    struct fb_client_reply reply = {0};
    int a = dial(w), b = dial(w), c = dial(w);
    struct fb_client_area *area_a = hello_area(a);
    struct fb_client_area *area_b;

    assert_true(quarter > 0 && quarter < FB_CLIENT_HAZARDS);
    assert_true(ask(a, request, "", &reply, NULL, 0));
    assert_int_equal(reply.result, quarter);
    area_b = hello_area(b);
    assert_true(ask(b, request, "", &reply, NULL, 0));
    assert_int_equal(reply.result, 0);
    assert_false(fb_local_held(w->local, 0));
    atomic_store(&area_a->hazards[3], 1);
    atomic_store(&area_b->hazards[3], 2);
    assert_true(fb_local_held(w->local, 0));
    assert_false(fb_local_held(w->local, 1)); /* without credits nothing is held */
    close(a);
    assert_true(hello(c)); /* after a's end was seen, or before: both are fine */
    for (int64_t until_ns = fb_now_ns() + PATIENCE_NS;
         fb_local_held(w->local, 0) && fb_now_ns() < until_ns;)
        fb_sleep_ns(FB_NS_PER_MS);
    assert_false(fb_local_held(w->local, 0));
    assert_true(ask(b, request, "", &reply, NULL, 0));
    assert_int_equal(reply.result, quarter);
    munmap(area_a, fb_client_area_bytes());
    munmap(area_b, fb_client_area_bytes());
    close(b);
    close(c);
}

/* ---- strangers ---- */

static bool as_it_is(void)
{
    return true;
}

static bool become_another_user(void)
{
    return setresuid(65534, 65534, 65534) == 0;
}

static bool leave_the_groups(void)
{
    gid_t other = 54321;

    return setgroups(1, &other) == 0;
}

static bool change_the_group(void)
{
    return setresgid(54321, 54321, 54321) == 0;
}

/* Still root, but files of others that are closed to it stay closed. */
static bool give_up_reading(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3] = {{0}};

    if (syscall(SYS_capget, &head, caps) != 0)
        return false;
    caps[0].effective &= ~(1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH);
    return syscall(SYS_capset, &head, caps) == 0;
}

/* All capabilities, over nobody. */
static bool enter_a_namespace(void)
{
    return unshare(CLONE_NEWUSER) == 0;
}

/* Machines forbid it, or have none. */
static bool has_namespaces(void)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(enter_a_namespace() ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

/* A process that changes who it is, then says HELLO: what the door answers. */
static bool is_welcome(const struct world *w, bool (*change)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        int fd = change() ? dial(w) : -1;

        _exit(fd < 0 ? 2 : hello(fd));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 1;
}

/* Whoever cannot read what the daemon reads gets nothing of it. */
static void strangers_are_refused(void **state)
{
    struct world *w = *state;

    assert_true(is_welcome(w, as_it_is));
    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(w->dir, 0755), 0);
    assert_int_equal(chmod(w->socket, 0777), 0);
    assert_false(is_welcome(w, become_another_user));
    assert_false(is_welcome(w, leave_the_groups));
    assert_false(is_welcome(w, change_the_group));
    assert_false(is_welcome(w, give_up_reading));
    if (has_namespaces())
        assert_false(is_welcome(w, enter_a_namespace));
    assert_true(is_welcome(w, as_it_is));
    assert_serves(w);
}

/* One who asks and never listens holds nothing for long; here, until it goes. */
static void deaf_clients_hold_nobody_up(void **state)
{
    struct world *w = *state;
    int deaf[64];

    for (int i = 0; i < 64; i++) {
        struct fb_client_request request = {.magic = FB_CLIENT_MAGIC,
                                            .op = FB_CLIENT_OPEN,
                                            .source = fb_volume_id(w->volume),
                                            .path_len = 1};

        deaf[i] = dial(w);
        assert_true(hello(deaf[i]));
        for (int k = 0; k < 50; k++) {
            (void)!send(deaf[i], &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT);
            (void)!send(deaf[i], "a", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
    }
    assert_serves(w);
    for (int i = 0; i < 64; i++)
        close(deaf[i]);
    assert_true(eventually(nobody_there, w));
}

/* ---- memory ---- */

static void expect_unwritable(int fd)
{
    char path[64];
    void *map;
    int again;

    assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_int_equal(~fcntl(fd, F_GET_SEALS) &
                         (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL),
                     0);
    assert_true(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    /* Whoever has it may open it anew for writing, and has nothing of it. */
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    again = open(path, O_RDWR | O_CLOEXEC);
    assert_true(again >= 0);
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0);
    assert_true(map == MAP_FAILED);
    assert_int_equal(pwrite(again, "x", 1, 0), -1);
    assert_int_equal(ftruncate(again, 0), -1);
    close(again);
    map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map, 4096, PROT_READ | PROT_WRITE), -1);
    munmap(map, 4096);
}

static void memory_cannot_be_written_to(void **state)
{
    struct world *w = *state;

    expect_unwritable(w->local->tables_fd);
    assert_true(w->local->dram_fd >= 0);
    expect_unwritable(w->local->dram_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_cannot_be_written_to, setup, teardown),
        cmocka_unit_test_setup_teardown(rules_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(all_is_doubted, setup, teardown),
        cmocka_unit_test_setup_teardown(garbage_is_survived, setup, teardown),
        cmocka_unit_test_setup_teardown(scribbled_areas_are_survived, setup, teardown),
        cmocka_unit_test_setup_teardown(pins_are_limited, setup, teardown),
        cmocka_unit_test_setup_teardown(strangers_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(deaf_clients_hold_nobody_up, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
