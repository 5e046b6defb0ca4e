/*
 * Control groups: /proc/self/cgroup names our group in each hierarchy, and the limits of a group
 * and of all above it hold together, so we walk from it up to the mount point. In a container the
 * named path may not exist below its /sys: the walk then meets only the directories that do, the
 * mount point last, whose files are the container's own limits.
 */
#include "core/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/attr.h"
#include "core/mem.h"

#define TASK_EXITING    4u /* PF_EXITING, of the kernel */
#define CPUS_MAX        (1 << 16)
#define CGROUP_LINES    256
#define CGROUP_DEPTH    128
#define CGROUP_LINE_MAX (PATH_MAX + 256)

static void fclosep(FILE **f)
{
    if (*f)
        fclose(*f);
}

#define AUTO_FCLOSE FB_CLEANUP(fclosep)

static FILE *open_below(const char *root, const char *path)
{
    FB_AUTO_FREE char *full = fb_asprintf("%s%s", root, path);

    return full ? fopen(full, "re") : NULL;
}

/* The number in a limit file; no limit where there is no file, or no number, as in "max". */
static uint64_t read_limit(const char *directory, const char *name)
{
    FB_AUTO_FREE char *path = fb_asprintf("%s/%s", directory, name);
    AUTO_FCLOSE FILE *f = path ? fopen(path, "re") : NULL;
    char text[64];
    char *end;
    unsigned long long value;

    if (!f || !fgets(text, sizeof text, f) || text[0] < '0' || text[0] > '9')
        return UINT64_MAX;
    errno = 0;
    value = strtoull(text, &end, 10);
    return errno || (*end && *end != '\n') ? UINT64_MAX : value;
}

static uint64_t physical_memory(const char *root)
{
    AUTO_FCLOSE FILE *f = open_below(root, "/proc/meminfo");
    char line[256];
    unsigned long long kib;
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);

    while (f && fgets(line, sizeof line, f)) {
        if (strncmp(line, "MemTotal:", 9) != 0)
            continue;
        kib = strtoull(line + 9, NULL, 10);
        if (kib > 0 && kib <= UINT64_MAX / 1024)
            return kib * 1024;
    }
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : UINT64_MAX;
}

/* A group outside our namespace shows as /../x, which must not lead us out of the mount. */
static bool leads_up(const char *path)
{
    for (const char *p = path; (p = strstr(p, "/..")); p += 3) {
        if (p[3] == 0 || p[3] == '/')
            return true;
    }
    return false;
}

static uint64_t walk_limit(const char *root, const char *mount, const char *group,
                           const char *const *files, size_t count)
{
    FB_AUTO_FREE char *path = fb_asprintf("%s%s%s", root, mount, leads_up(group) ? "" : group);
    size_t top = strlen(root) + strlen(mount);
    uint64_t limit = UINT64_MAX;

    for (unsigned depth = 0; path && depth < CGROUP_DEPTH; depth++) {
        char *slash;

        for (size_t i = 0; i < count; i++)
            limit = fb_min_u64(limit, read_limit(path, files[i]));
        slash = strrchr(path + top, '/');
        if (!slash)
            break;
        *slash = 0;
    }
    return limit;
}

/* `list` is "memory" or as in "cpu,memory,io". */
static bool has_memory(const char *list)
{
    static const char word[] = "memory";

    for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL) {
        size_t len = strcspn(list, ",");

        if (len == sizeof word - 1 && memcmp(list, word, len) == 0)
            return true;
    }
    return false;
}

/* A line is `number:controllers:/group`; version 2 is number 0 with no controllers. */
static uint64_t line_limit(const char *root, char *line)
{
    static const char *const v1[] = {"memory.limit_in_bytes"};
    static const char *const v2[] = {"memory.max", "memory.high"};
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;

    if (!group)
        return UINT64_MAX;
    *controllers++ = 0;
    *group++ = 0;
    group[strcspn(group, "\n")] = 0;
    if (strcmp(line, "0") == 0 && !*controllers)
        return walk_limit(root, "/sys/fs/cgroup", group, v2, FB_ARRAY_SIZE(v2));
    if (has_memory(controllers))
        return walk_limit(root, "/sys/fs/cgroup/memory", group, v1, FB_ARRAY_SIZE(v1));
    return UINT64_MAX;
}

uint64_t fb_memory_limit(const char *root)
{
    const char *prefix = strcmp(root, "/") == 0 ? "" : root;
    AUTO_FCLOSE FILE *f = open_below(prefix, "/proc/self/cgroup");
    uint64_t limit = physical_memory(prefix);
    char line[CGROUP_LINE_MAX];

    for (unsigned i = 0; f && i < CGROUP_LINES && fgets(line, sizeof line, f); i++)
        limit = fb_min_u64(limit, line_limit(prefix, line));
    return limit;
}

unsigned fb_cpu_count(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);

    /* The kernel refuses a set smaller than its own, so try until one is large enough. */
    for (size_t cpus = CPU_SETSIZE; cpus <= CPUS_MAX; cpus *= 2) {
        size_t size = CPU_ALLOC_SIZE(cpus);
        FB_AUTO_FREE cpu_set_t *set = fb_alloc(size);

        if (set && sched_getaffinity(0, size, set) == 0)
            return (unsigned)CPU_COUNT_S(size, set);
    }
    return online > 0 ? (unsigned)online : 1;
}

uint64_t fb_raise_nofile(void)
{
    struct rlimit limit;
    struct rlimit raised;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 0;
    raised = limit;
    raised.rlim_cur = raised.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

bool fb_task_is_dying(uint32_t tid)
{
    static const char *const fields[] = {"\nSigPnd:", "\nShdPnd:"};
    char path[32], text[4096];
    FB_AUTO_CLOSE int fd = -1;
    ssize_t n;

    if (tid == 0) /* of another pid namespace: nothing is known of it */
        return false;
    snprintf(path, sizeof path, "/proc/%u/status", tid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    /* There may be no /proc, or it may hide the processes of others (hidepid). */
    if (fd < 0)
        return (errno == ENOENT || errno == ESRCH) &&
               (tid > INT32_MAX || (kill((pid_t)tid, 0) < 0 && errno == ESRCH));
    n = read(fd, text, sizeof text - 1);
    if (n <= 0)
        return true;
    text[n] = '\0';
    for (size_t i = 0; i < FB_ARRAY_SIZE(fields); i++) {
        const char *at = strstr(text, fields[i]);

        if (at && (strtoull(at + strlen(fields[i]), NULL, 16) >> (SIGKILL - 1) & 1))
            return true;
    }
    return false;
}

static ssize_t read_of_task(uint32_t tid, const char *name, char *text, size_t size)
{
    char path[64];
    FB_AUTO_CLOSE int fd = -1;
    ssize_t n;

    snprintf(path, sizeof path, "/proc/%u/%s", tid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read(fd, text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    return n;
}

bool fb_task_is_exiting(uint32_t tid)
{
    unsigned flags = 0;
    char text[1024];
    const char *at;

    if (read_of_task(tid, "stat", text, sizeof text) <= 0)
        return true;
    /* After the name: state, parent, group, session, terminal, its group, flags. */
    at = strrchr(text, ')');
    if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1) /* NOLINT */
        return false;
    return flags & TASK_EXITING;
}

uint32_t fb_task_process(uint32_t tid)
{
    char text[4096];
    const char *at;

    if (read_of_task(tid, "status", text, sizeof text) <= 0)
        return tid;
    at = strstr(text, "\nTgid:");
    return at ? (uint32_t)strtoul(at + strlen("\nTgid:"), NULL, 10) : tid;
}

bool fb_task_is_killed(uint32_t tid)
{
    char text[4096];
    const char *last;

    if (read_of_task(tid, "stat", text, sizeof text) <= 0)
        return false;
    /* The last field is the exit code as wait(2) shows it: its low 7 bits are a signal's number. */
    last = strrchr(text, ' ');
    return last && (strtoul(last, NULL, 10) & 0x7f) != 0;
}

/* ---- who has a file open ---- */

#define OPEN_FILES_MAX 100000u
#define DELETED        " (deleted)"

static bool names_file(const char *link, size_t len, const char *name)
{
    size_t name_len = strlen(name), gone = strlen(DELETED);

    if (len > gone && memcmp(link + len - gone, DELETED, gone) == 0 &&
        names_file(link, len - gone, name))
        return true;
    return len > name_len && link[len - name_len - 1] == '/' &&
           memcmp(link + len - name_len, name, name_len) == 0;
}

/* Of the process whose directory below /proc is `task`. */
static bool has_open(int proc_fd, const char *task, const char *name, unsigned *left)
{
    char path[32], link[PATH_MAX];
    const struct dirent *entry;
    bool found = false;
    DIR *dir;
    int fd;

    snprintf(path, sizeof path, "%.16s/fd", task);
    fd = openat(proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): this stream is ours */
    while (!found && *left > 0 && (entry = readdir(dir))) {
        ssize_t len = readlinkat(dirfd(dir), entry->d_name, link, sizeof link);

        found = len > 0 && names_file(link, (size_t)len, name);
        (*left)--;
    }
    closedir(dir);
    return found;
}

bool fb_tasks_have_open(const char *name)
{
    unsigned left = OPEN_FILES_MAX;
    const struct dirent *entry;
    bool found = false;
    DIR *proc = opendir("/proc");

    if (!proc)
        return true;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): this stream is ours */
    while (!found && left > 0 && (entry = readdir(proc))) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            found = has_open(dirfd(proc), entry->d_name, name, &left);
    }
    closedir(proc);
    return found || left == 0;
}
