/*
 * Shares and leases, with a cache and a door of their own. The processes that hold leases are
 * children that wait to be killed.
 */
#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "daemon/leases.h"
#include "daemon/shares.h"
#include "proto/client.h"

#define WAIT_NS  (60 * FB_NS_PER_S)
#define STEP_NS  (5 * FB_NS_PER_MS)
#define THREADS  4
#define TEXT_MAX 4096

struct fixture {
    struct fb_test_dir dir;
    char top[PATH_MAX];
    char socket[PATH_MAX + 16];
    char own[PATH_MAX + 16];
    char mounts[PATH_MAX + 16];
    char *own_list[1];
    struct fb_cache *cache;
    struct fb_local *local;
    struct fb_shares *shares;
    struct fb_mount_settings settings;
    _Atomic unsigned changes;
};

/* What an answer said: names and notes, a line each. */
struct heard {
    char roots[TEXT_MAX];
    char notes[TEXT_MAX];
};

static void hear_root(void *arg, const char *name)
{
    struct heard *h = arg;

    strcat(h->roots, name); /* NOLINT: a few short names */
    strcat(h->roots, "\n"); /* NOLINT */
}

static void hear_note(void *arg, const char *sentence)
{
    struct heard *h = arg;

    strcat(h->notes, sentence); /* NOLINT: a few short sentences */
    strcat(h->notes, "\n");     /* NOLINT */
}

static void count_change(void *arg)
{
    struct fixture *f = arg;

    atomic_fetch_add(&f->changes, 1);
}

static pid_t start_process(const char *name)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (name)
            prctl(PR_SET_NAME, name);
        for (;;)
            pause();
    }
    assert_true(pid > 0);
    return pid;
}

/* It has ended, but stays a zombie. */
static void end_process(pid_t pid)
{
    siginfo_t info;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

static void bury_process(pid_t pid)
{
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int setup(void **state)
{
    struct fixture *f = fb_alloc(sizeof *f);
    struct fb_cache_config config;
    struct fb_local_config local = {.changed = count_change, .arg = f};
    struct fb_own_dirs own = {.count = 1, .dirs = f->own_list};
    struct fb_error err = {""};

    fb_test_dir_make(&f->dir);
    assert_non_null(realpath(f->dir.path, f->top));
    snprintf(f->socket, sizeof f->socket, "%s/s.client", f->top);
    snprintf(f->own, sizeof f->own, "%s/own", f->top);
    snprintf(f->mounts, sizeof f->mounts, "%s/mounts", f->top);
    assert_int_equal(mkdir(f->own, 0700), 0);
    f->own_list[0] = f->own;
    fb_test_dir_write(&f->dir, "data/file", "hello");
    fb_test_dir_write(&f->dir, "more/file", "hello");
    fb_mount_settings_defaults(&f->settings);
    fb_cache_config_defaults(&config);
    config.memory_bytes = 64 << 20;
    config.cache_bytes = 0;
    config.cache_dir_count = 0;
    assert_int_equal(fb_cache_open(&config, &f->cache, &err), 0);
    local.socket_path = f->socket;
    assert_int_equal(fb_local_start(f->cache, &local, &f->local, &err), 0);
    assert_int_equal(
        fb_shares_create(f->cache, f->local, &own, f->mounts, count_change, f, &f->shares), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    fb_shares_remove_all(f->shares);
    assert_int_equal(fb_shares_count(f->shares), 0);
    fb_shares_destroy(f->shares);
    fb_local_stop(f->local);
    fb_cache_close(f->cache);
    fb_mount_settings_free(&f->settings);
    fb_test_dir_remove(&f->dir);
    free(f);
    return 0;
}

static int attach(struct fixture *f, pid_t pid, const char *path, const char *name,
                  struct heard *heard, struct fb_error *err)
{
    struct fb_share_request request = {
        .pid = pid, .settings = &f->settings, .count = 1, .sources = {{path, name}}};
    struct fb_share_answer answer = {.root = hear_root, .note = hear_note, .arg = heard};

    if (heard)
        *heard = (struct heard){{0}, {0}};
    return fb_shares_attach(f->shares, &request, heard ? &answer : NULL, err);
}

static void attach_well(struct fixture *f, pid_t pid, const char *path, const char *name,
                        struct heard *heard)
{
    struct fb_error err = {""};

    assert_int_equal(attach(f, pid, path, name, heard, &err), 0);
    assert_string_equal(err.text, "");
}

/* The text is valid for a while. */
static const char *below(const struct fixture *f, const char *name)
{
    static _Thread_local char paths[16][2 * PATH_MAX];
    static _Thread_local unsigned next;
    char *path = paths[next++ % FB_ARRAY_SIZE(paths)];

    snprintf(path, sizeof paths[0], "%s/%s", f->top, name);
    return path;
}

/* As the daemon's main loop does it. */
static bool wait_for_count(struct fixture *f, unsigned count)
{
    int64_t until_ns = fb_now_ns() + WAIT_NS;

    for (;;) {
        struct pollfd p = {.fd = fb_shares_fd(f->shares), .events = POLLIN};

        fb_shares_reap(f->shares);
        if (fb_shares_count(f->shares) == count)
            return true;
        if (fb_now_ns() >= until_ns)
            return false;
        poll(&p, 1, 10);
    }
}

struct seen {
    unsigned entries;
    unsigned programs;
};

static void look(void *arg, const struct fb_share_view *view)
{
    struct seen *seen = arg;

    seen->entries++;
    seen->programs += view->programs;
    assert_true(view->live);
    assert_true(view->name_count >= 1);
    assert_string_equal(view->names[0], view->source);
}

static struct seen see(struct fixture *f)
{
    struct seen seen = {0};

    fb_shares_visit(f->shares, look, &seen);
    return seen;
}

/* ---- processes ---- */

static void check_process(int (*open)(pid_t pid, struct fb_process *ret_process))
{
    pid_t pid = start_process("a) Z (b");
    struct fb_process process;
    struct fb_process again;

    assert_int_equal(open(pid, &process), 0);
    assert_true(fb_process_lives(&process));
    end_process(pid);
    assert_false(fb_process_lives(&process));
    assert_int_equal(open(pid, &again), -ESRCH);
    bury_process(pid);
    assert_false(fb_process_lives(&process));
    assert_int_equal(open(pid, &again), -ESRCH);
    fb_process_close(&process);
    fb_process_close(&process);
    assert_int_equal(open(0, &again), -ESRCH);
    assert_int_equal(open(-1, &again), -ESRCH);
    assert_int_equal(open(getpid(), &process), 0);
    assert_true(fb_process_lives(&process));
    fb_process_close(&process);
}

static void test_processes(void **state)
{
    (void)state;
    check_process(fb_process_open);
    check_process(fb_process_open_plain);
}

static void test_another_process_of_that_number(void **state)
{
    struct fb_process process;

    (void)state;
    assert_int_equal(fb_process_open_plain(getpid(), &process), 0);
    process.started--;
    assert_false(fb_process_lives(&process));
}

static void test_leases_without_a_descriptor(void **state)
{
    struct fb_list list = FB_LIST_INIT(list);
    struct fb_error err = {""};
    struct fb_leases leases;
    struct fb_lease *lease = NULL;
    pid_t pid = start_process(NULL);

    (void)state;
    assert_int_equal(fb_leases_open(&leases), 0);
    assert_int_equal(fb_lease_new(pid, 1, &lease, &err), 0);
    fb_process_close(&lease->process);
    assert_int_equal(fb_process_open_plain(pid, &lease->process), 0);
    fb_lease_grant(&leases, &list, lease);
    assert_int_equal(leases.unwatched, 1);
    assert_true(fb_lease_held(&list, pid));
    fb_leases_end_dead(&leases, &list);
    assert_int_equal(fb_lease_count(&list), 1);
    end_process(pid);
    assert_false(fb_lease_held(&list, pid));
    fb_leases_end_dead(&leases, &list);
    assert_int_equal(fb_lease_count(&list), 0);
    assert_int_equal(leases.unwatched, 0);
    bury_process(pid);
    fb_leases_close(&leases);
}

/* ---- shares ---- */

static void test_lasts_as_long_as_its_process(void **state)
{
    struct fixture *f = *state;
    pid_t pid = start_process(NULL);
    struct pollfd p = {.fd = fb_shares_fd(f->shares), .events = POLLIN};

    attach_well(f, pid, below(f, "data"), NULL, NULL);
    assert_int_equal(fb_shares_poll_ms(f->shares), -1);
    fb_shares_reap(f->shares);
    assert_int_equal(fb_shares_count(f->shares), 1);
    assert_int_equal(poll(&p, 1, 0), 0);
    end_process(pid);
    assert_int_equal(poll(&p, 1, 10000), 1);
    fb_shares_reap(f->shares);
    assert_int_equal(fb_shares_count(f->shares), 0);
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_true(atomic_load(&f->changes) > 0);
    bury_process(pid);
}

static void test_processes_share_an_entry(void **state)
{
    struct fixture *f = *state;
    pid_t one = start_process(NULL);
    pid_t two = start_process(NULL);

    attach_well(f, one, below(f, "data"), NULL, NULL);
    attach_well(f, two, below(f, "data/../data"), NULL, NULL);
    attach_well(f, two, below(f, "data"), NULL, NULL);
    attach_well(f, two, below(f, "more"), NULL, NULL);
    assert_int_equal(see(f).entries, 2);
    assert_int_equal(see(f).programs, 3);
    end_process(two);
    assert_true(wait_for_count(f, 1));
    assert_int_equal(see(f).programs, 1);
    end_process(one);
    assert_true(wait_for_count(f, 0));
    bury_process(one);
    bury_process(two);
}

static int connect_client(const struct fixture *f)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct fb_client_request hello = {
        .magic = FB_CLIENT_MAGIC, .op = FB_CLIENT_HELLO, .length = FB_CLIENT_VERSION};
    struct fb_client_reply reply;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_true(strlen(f->socket) < sizeof address.sun_path);
    memcpy(address.sun_path, f->socket, strlen(f->socket) + 1);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(send(fd, &hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    assert_int_equal(recv(fd, &reply, sizeof reply, MSG_WAITALL), sizeof reply);
    assert_int_equal(reply.result, 0);
    return fd;
}

static void test_connected_programs_keep_it(void **state)
{
    struct fixture *f = *state;
    pid_t pid = start_process(NULL);
    unsigned changes;
    int64_t until_ns;
    int fd;

    attach_well(f, pid, below(f, "data"), NULL, NULL);
    fd = connect_client(f);
    end_process(pid);
    fb_shares_reap(f->shares);
    assert_int_equal(fb_shares_count(f->shares), 1);
    assert_int_equal(see(f).programs, 0);
    changes = atomic_load(&f->changes);
    close(fd);
    until_ns = fb_now_ns() + WAIT_NS;
    while (atomic_load(&f->changes) == changes && fb_now_ns() < until_ns)
        fb_sleep_ns(STEP_NS);
    assert_true(atomic_load(&f->changes) > changes);
    assert_true(wait_for_count(f, 0));
    bury_process(pid);
}

static void test_names(void **state)
{
    struct fixture *f = *state;
    char expected[TEXT_MAX];
    struct heard heard;
    uint64_t files = 99;

    assert_int_equal(symlink("data", below(f, "link")), 0);
    assert_int_equal(symlink("more", below(f, "elsewhere")), 0);
    attach_well(f, getpid(), below(f, "link"), below(f, "elsewhere"), &heard);
    snprintf(expected, sizeof expected, "%s\n%s\n", below(f, "data"), below(f, "link"));
    assert_string_equal(heard.roots, expected);
    /* Those that were there, too; not those that programs do not write so. */
    attach_well(f, getpid(), below(f, "more/../data"), below(f, "./data"), &heard);
    assert_string_equal(heard.roots, expected);
    assert_string_equal(heard.notes, "");
    assert_int_equal(see(f).entries, 1);
    assert_int_equal(see(f).programs, 1);

    assert_int_equal(fb_shares_evict(f->shares, below(f, "link/file"), &files), 0);
    assert_int_equal(files, 0);
    assert_int_equal(fb_shares_evict(f->shares, below(f, "data"), &files), 0);
    assert_int_equal(fb_shares_evict(f->shares, below(f, "data2"), &files), -ENOENT);
    assert_int_equal(fb_shares_evict(f->shares, below(f, "more/file"), &files), -ENOENT);
}

static void test_more_names_than_are_kept(void **state)
{
    struct fixture *f = *state;
    struct heard heard;

    for (int i = 0; i < FB_SHARE_NAMES_MAX + 2; i++) {
        char name[16];

        snprintf(name, sizeof name, "link%d", i);
        assert_int_equal(symlink("data", below(f, name)), 0);
        attach_well(f, getpid(), below(f, name), NULL, &heard);
    }
    assert_int_equal(see(f).entries, 1);
}

static void expect_refused(struct fixture *f, pid_t pid, const char *path, int code,
                           const char *sentence)
{
    struct fb_error err = {""};

    assert_int_equal(attach(f, pid, path, NULL, NULL, &err), code);
    assert_non_null(strstr(err.text, sentence));
}

static void test_refusals(void **state)
{
    struct fixture *f = *state;
    struct fb_error err = {""};
    struct fb_share_request two = {.pid = getpid(),
                                   .settings = &f->settings,
                                   .count = 2,
                                   .sources = {{below(f, "data"), NULL}, {below(f, "none"), NULL}}};
    pid_t pid = start_process(NULL);

    end_process(pid);
    bury_process(pid);
    expect_refused(f, getpid(), below(f, "none"), -ENOENT, "does not exist");
    expect_refused(f, getpid(), below(f, "data/file"), -ENOTDIR, "is not a directory");
    expect_refused(f, getpid(), f->top, -EINVAL, "would cache itself");
    expect_refused(f, getpid(), f->own, -EINVAL, "would cache itself");
    expect_refused(f, pid, below(f, "data"), -ESRCH, "cannot see the process");
    assert_int_equal(fb_shares_count(f->shares), 0);
    /* All or nothing. */
    assert_int_equal(fb_shares_attach(f->shares, &two, NULL, &err), -ENOENT);
    assert_true(wait_for_count(f, 0));
    /* But what was there before stays. */
    attach_well(f, getpid(), below(f, "data"), NULL, NULL);
    assert_int_equal(fb_shares_attach(f->shares, &two, NULL, &err), -ENOENT);
    fb_shares_reap(f->shares);
    assert_int_equal(see(f).programs, 1);
}

static void test_other_settings_are_noted(void **state)
{
    struct fixture *f = *state;
    struct heard heard;

    attach_well(f, getpid(), below(f, "data"), NULL, &heard);
    assert_string_equal(heard.notes, "");
    f->settings.metadata_ttl_ns = FB_NS_PER_S;
    f->settings.max_background = 7; /* none of a share's business */
    attach_well(f, getpid(), below(f, "data"), NULL, &heard);
    assert_non_null(strstr(heard.notes, "metadata-ttl stays at 1m for "));
    assert_null(strchr(strchr(heard.notes, '\n') + 1, '\n'));
}

static void *attach_again(void *arg)
{
    struct fixture *f = arg;

    for (int i = 0; i < 10; i++) {
        struct fb_error err = {""};
        pid_t pid = getppid(); /* lives, whatever becomes of our children */

        if (attach(f, pid, below(f, i % 2 ? "data" : "more"), NULL, NULL, &err) != 0)
            return (void *)1;
        fb_shares_reap(f->shares);
    }
    return NULL;
}

static void test_all_at_once(void **state)
{
    struct fixture *f = *state;
    pthread_t threads[THREADS];
    pid_t pid = start_process(NULL);

    attach_well(f, pid, below(f, "data"), NULL, NULL);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, attach_again, f), 0);
    end_process(pid);
    for (int i = 0; i < THREADS; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    fb_shares_reap(f->shares);
    assert_int_equal(see(f).entries, 2);
    assert_int_equal(see(f).programs, 2);
    bury_process(pid);
}

#define SHARES_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_another_process_of_that_number),
        cmocka_unit_test(test_leases_without_a_descriptor),
        SHARES_TEST(test_lasts_as_long_as_its_process),
        SHARES_TEST(test_processes_share_an_entry),
        SHARES_TEST(test_connected_programs_keep_it),
        SHARES_TEST(test_names),
        SHARES_TEST(test_more_names_than_are_kept),
        SHARES_TEST(test_refusals),
        SHARES_TEST(test_other_settings_are_noted),
        SHARES_TEST(test_all_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
