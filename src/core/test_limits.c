#include <cmocka.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/limits.h"
#include "core/test_dir.h"

#define MEMINFO "MemFree:  1 kB\nMemTotal:       1048576 kB\nMemAvailable: 5 kB\n"
#define GIB     (UINT64_C(1) << 30)

static struct fb_test_dir dir;

static int setup(void **state)
{
    (void)state;
    fb_test_dir_make(&dir);
    fb_test_dir_write(&dir, "proc/meminfo", MEMINFO);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fb_test_dir_remove(&dir);
    return 0;
}

static void test_physical(void **state)
{
    (void)state;
    assert_int_equal(fb_memory_limit(dir.path), GIB);
}

static void test_v2_smallest_of_ancestors(void **state)
{
    (void)state;
    fb_test_dir_write(&dir, "proc/self/cgroup", "0::/job/step\n");
    fb_test_dir_write(&dir, "sys/fs/cgroup/job/step/memory.max", "max\n");
    assert_int_equal(fb_memory_limit(dir.path), GIB);
    fb_test_dir_write(&dir, "sys/fs/cgroup/job/memory.max", "4096000\n");
    assert_int_equal(fb_memory_limit(dir.path), 4096000);
    fb_test_dir_write(&dir, "sys/fs/cgroup/memory.max", "2048000\n");
    assert_int_equal(fb_memory_limit(dir.path), 2048000);
    fb_test_dir_write(&dir, "sys/fs/cgroup/job/step/memory.high", "1024000\n");
    assert_int_equal(fb_memory_limit(dir.path), 1024000);
}

static void test_v2_root_group(void **state)
{
    (void)state;
    fb_test_dir_write(&dir, "proc/self/cgroup", "0::/\n");
    fb_test_dir_write(&dir, "sys/fs/cgroup/memory.max", "777\n");
    assert_int_equal(fb_memory_limit(dir.path), 777);
}

static void test_v1(void **state)
{
    (void)state;
    fb_test_dir_write(&dir, "proc/self/cgroup",
                      "12:cpu,cpuacct:/x\n11:memoryless:/y\n5:hugetlb,memory:/job\n0::/job\n");
    fb_test_dir_write(&dir, "sys/fs/cgroup/memory/job/memory.limit_in_bytes",
                      "9223372036854771712\n");
    fb_test_dir_write(&dir, "sys/fs/cgroup/memory/y/memory.limit_in_bytes", "1\n");
    assert_int_equal(fb_memory_limit(dir.path), GIB);
    fb_test_dir_write(&dir, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "5000\n");
    assert_int_equal(fb_memory_limit(dir.path), 5000);
}

/* In a container, the group's path is the host's; its limit is at the mount point. */
static void test_container_path(void **state)
{
    (void)state;
    fb_test_dir_write(&dir, "proc/self/cgroup", "4:memory:/docker/0123456789abcdef\n");
    fb_test_dir_write(&dir, "sys/fs/cgroup/memory/memory.limit_in_bytes", "6000\n");
    assert_int_equal(fb_memory_limit(dir.path), 6000);
}

static void test_path_out_of_namespace(void **state)
{
    (void)state;
    fb_test_dir_write(&dir, "proc/self/cgroup", "0::/../../../evil\n");
    fb_test_dir_write(&dir, "evil/memory.max", "1\n");
    fb_test_dir_write(&dir, "sys/fs/cgroup/memory.max", "7000\n");
    assert_int_equal(fb_memory_limit(dir.path), 7000);
    fb_test_dir_write(&dir, "proc/self/cgroup", "0::/a..b/..c\n");
    fb_test_dir_write(&dir, "sys/fs/cgroup/a..b/..c/memory.max", "600\n");
    assert_int_equal(fb_memory_limit(dir.path), 600);
}

static void test_nonsense(void **state)
{
    static const char *const lines[] = {
        "", "\n", ":", "::", "0:", "0:memory", "x:y:z", "0::", "\xff"};
    static const char *const values[] = {"",      "\n",  "-1\n",
                                         "12x\n", "nan", "99999999999999999999\n"};

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(lines); i++) {
        fb_test_dir_write(&dir, "proc/self/cgroup", lines[i]);
        assert_int_equal(fb_memory_limit(dir.path), GIB);
    }
    fb_test_dir_write(&dir, "proc/self/cgroup", "0::/g\n");
    for (size_t i = 0; i < FB_ARRAY_SIZE(values); i++) {
        fb_test_dir_write(&dir, "sys/fs/cgroup/g/memory.max", values[i]);
        assert_int_equal(fb_memory_limit(dir.path), GIB);
    }
}

static void test_this_machine(void **state)
{
    (void)state;
    assert_in_range(fb_memory_limit("/"), 1, INT64_MAX);
    fb_test_dir_write(&dir, "proc/meminfo", "nothing of use\n");
    assert_in_range(fb_memory_limit(dir.path), 1, INT64_MAX);
}

static void test_cpus_follow_affinity(void **state)
{
    cpu_set_t before;
    cpu_set_t one;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(fb_cpu_count(), CPU_COUNT(&before));
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &before)) {
            CPU_SET(i, &one);
            break;
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(fb_cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

/* In a child, as a limit cannot be taken back. */
static void test_nofile(void **state)
{
    int status;
    pid_t child = fork();

    (void)state;
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit lowered = {32, 64};
        struct rlimit now;

        if (setrlimit(RLIMIT_NOFILE, &lowered) < 0 || fb_raise_nofile() != 64)
            _exit(1);
        _exit(getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == 64 ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* By its last name, also after that was removed, and until the last descriptor is closed. */
static void test_tasks_have_open(void **state)
{
    const char *name = strrchr(dir.path, '/') + 1; /* of nobody else */
    const char *path = fb_test_dir_path(&dir, name);
    int fd, copy;

    (void)state;
    assert_false(fb_tasks_have_open(name));
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    assert_true(fb_tasks_have_open(name));
    assert_false(fb_tasks_have_open(name + 1));
    assert_int_equal(unlink(path), 0);
    assert_true(fb_tasks_have_open(name));
    close(fd);
    assert_true(fb_tasks_have_open(name));
    close(copy);
    assert_false(fb_tasks_have_open(name));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_physical, setup, teardown),
        cmocka_unit_test_setup_teardown(test_v2_smallest_of_ancestors, setup, teardown),
        cmocka_unit_test_setup_teardown(test_v2_root_group, setup, teardown),
        cmocka_unit_test_setup_teardown(test_v1, setup, teardown),
        cmocka_unit_test_setup_teardown(test_container_path, setup, teardown),
        cmocka_unit_test_setup_teardown(test_path_out_of_namespace, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nonsense, setup, teardown),
        cmocka_unit_test_setup_teardown(test_this_machine, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tasks_have_open, setup, teardown),
        cmocka_unit_test(test_cpus_follow_affinity),
        cmocka_unit_test(test_nofile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
