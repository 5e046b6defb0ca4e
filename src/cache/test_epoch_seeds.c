/*
 * The search for seeds at work: it takes little of the processors from who reads.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "base/rand.h"
#include "cache/test_epochs.h"

struct waited {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool is_done;
};

static void read_done(struct fb_read *read)
{
    struct waited *w = read->arg;

    pthread_mutex_lock(&w->lock);
    w->is_done = true;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->lock);
}

/* As a program's. */
static void read_as(const struct fixture *f, uint32_t pid, const char *name)
{
    struct waited w = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
    struct fb_attr attr;
    struct fb_read read = {
        .volume = f->volume, .caller = {.pid = pid}, .length = BYTES, .done = read_done, .arg = &w};

    assert_int_equal(fb_cache_stat(f->volume, name, &read.file, &attr), 0);
    fb_cache_read(&read);
    pthread_mutex_lock(&w.lock);
    while (!w.is_done)
        pthread_cond_wait(&w.cond, &w.lock);
    pthread_mutex_unlock(&w.lock);
    assert_int_equal(read.result, 0);
    fb_read_release(&read);
    fb_files_unref(fb_cache_files(f->cache), read.file, 1);
}

/* What the thread that searches has had of a processor, in ticks; and which thread it is. */
static uint64_t searched(pid_t *ret_tid)
{
    unsigned long user = 0, system = 0;
    struct dirent **tasks;
    int count = scandir("/proc/self/task", &tasks, NULL, NULL);

    assert_true(count > 0);
    *ret_tid = 0;
    for (int i = 0; i < count; i++) {
        char path[320], line[512] = "";
        FB_AUTO_CLOSE int fd = -1;

        snprintf(path, sizeof path, "/proc/self/task/%s/stat", tasks[i]->d_name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read(fd, line, sizeof line - 1) > 0 && strstr(line, "(fb-seeds)")) {
            const char *rest = strchr(line, ')');

            *ret_tid = (pid_t)strtol(tasks[i]->d_name, NULL, 10);
            for (int field = 0; field < 12; field++)
                rest = strchr(rest + 1, ' ');
            user = strtoul(rest, NULL, 10);
            system = strtoul(strchr(rest + 1, ' '), NULL, 10);
        }
        free(tasks[i]);
    }
    free(tasks);
    assert_int_not_equal(*ret_tid, 0);
    return user + system;
}

/* Somebody waits for files, in their order: for him the search may go on. */
static void keep_waiting(const struct fixture *f, uint32_t *next)
{
    char name[64];

    snprintf(name, sizeof name, "other%u", (*next)++ % OTHERS);
    read_as(f, 77, name);
}

/* A second of waiting; returns which share of a processor the search had meanwhile. */
static double share_searched(const struct fixture *f, uint32_t *next, pid_t *ret_tid)
{
    int64_t start_ns = fb_now_ns();
    uint64_t ticks = searched(ret_tid);

    while (fb_now_ns() - start_ns < FB_NS_PER_S) {
        keep_waiting(f, next);
        fb_sleep_ns(10 * FB_NS_PER_MS);
    }
    ticks = searched(ret_tid) - ticks;
    return (double)ticks / (double)sysconf(_SC_CLK_TCK) * (double)FB_NS_PER_S /
           (double)(fb_now_ns() - start_ns);
}

/* An order that no seed explains is searched for minutes, of idle time, of which it takes a
 * quarter; and not when somebody tells the plan. Where nothing is idle there is little to see. */
static void search_is_modest(void **state)
{
    struct fixture *f = *state;
    int64_t until_ns = fb_now_ns() + 4 * WAIT_S * FB_NS_PER_S;
    struct sched_param param = {0};
    struct fb_rand rand = {5};
    struct fb_error err = {""};
    uint32_t next = 0;
    double share;
    pid_t tid;

    if (geteuid() != 0)
        skip(); /* who may not come back from idle time does not take it */
    for (uint32_t i = 0; i < 80; i++) {
        char name[64];

        name_of((uint32_t)fb_rand_below(&rand, FILES), name);
        read_as(f, 76, name);
    }
    /* A short search goes before, which has all that is idle. */
    do {
        assert_true(fb_now_ns() < until_ns);
        share = share_searched(f, &next, &tid);
    } while (share > 0.3 || sched_getscheduler(tid) != SCHED_IDLE);
    assert_int_equal(fb_cache_plan(f->volume, "set", make_names(), order(), &err), 0);
    /* That it ends is not to depend on idle time. */
    assert_int_equal(sched_setscheduler(tid, SCHED_OTHER, &param), 0);
    do {
        assert_true(fb_now_ns() < until_ns);
        share = share_searched(f, &next, &tid);
    } while (share > 0);
    assert_int_equal(fb_cache_unplan(f->volume, "set"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(search_is_modest, setup, teardown),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
