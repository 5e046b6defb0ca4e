/*
 * bench/storm.c - what a library in LD_PRELOAD costs a program that has nothing to do with it.
 *
 *     storm FILE COUNT       open+close and stat of FILE, an absolute path, by that, by its name in
 *                            the current directory and by a directory's descriptor; nanoseconds
 *                            each, the best of ten turns
 *     storm --exec COUNT     runs this program COUNT times, which ends at once; microseconds each,
 *                            the median. The library is in FB_BENCH_PRELOAD, for the child alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"

#define TURNS 10

static int64_t best_open(int dir, const char *file, long count)
{
    int64_t best = INT64_MAX;

    for (int turn = 0; turn < TURNS; turn++) {
        int64_t start = fb_now_ns();

        for (long i = 0; i < count; i++)
            close(dir == AT_FDCWD ? open(file, O_RDONLY | O_CLOEXEC)
                                  : openat(dir, file, O_RDONLY | O_CLOEXEC));
        if (fb_now_ns() - start < best)
            best = fb_now_ns() - start;
    }
    return best / count;
}

static int64_t best_stat(int dir, const char *file, long count)
{
    int64_t best = INT64_MAX;
    struct stat st;

    for (int turn = 0; turn < TURNS; turn++) {
        int64_t start = fb_now_ns();

        for (long i = 0; i < count; i++)
            if ((dir == AT_FDCWD ? stat(file, &st) : fstatat(dir, file, &st, 0)) != 0)
                return -1;
        if (fb_now_ns() - start < best)
            best = fb_now_ns() - start;
    }
    return best / count;
}

static int by_time(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static int64_t median_exec(const char *self, long count)
{
    const char *library = getenv("FB_BENCH_PRELOAD"); /* NOLINT: one thread */
    char preload[4096] = "LD_PRELOAD=";
    char *argv[] = {(char *)(uintptr_t)self, (char *)(uintptr_t) "--nothing", NULL};
    char *envp[] = {preload, (char *)(uintptr_t) "FOREBAY_SOCKET=/nonexistent/socket",
                    (char *)(uintptr_t) "FOREBAY_ROOTS=/nonexistent/data", NULL};
    int64_t *times = calloc((size_t)count, sizeof *times);
    int64_t median;

    if (!times)
        return -1;
    if (library)
        strncat(preload, library, sizeof preload - sizeof "LD_PRELOAD=");
    for (long i = 0; i < count; i++) {
        int64_t start = fb_now_ns();
        int status;
        pid_t pid;

        if (posix_spawn(&pid, self, NULL, NULL, argv, envp) != 0 || waitpid(pid, &status, 0) < 0) {
            free(times);
            return -1;
        }
        times[i] = fb_now_ns() - start;
    }
    qsort(times, (size_t)count, sizeof *times, by_time);
    median = times[count / 2];
    free(times);
    return median;
}

/* The directory that FILE is in becomes the current one. */
static int storm(const char *file, long count)
{
    const char *slash = strrchr(file, '/');
    char folder[4096] = "";
    int dir;

    if (!slash || (size_t)(slash - file) >= sizeof folder)
        return 2;
    memcpy(folder, file, (size_t)(slash - file));
    dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || chdir(folder) != 0)
        return 1;
    printf("{\"open_ns\": %lld, \"stat_ns\": %lld, ", (long long)best_open(AT_FDCWD, file, count),
           (long long)best_stat(AT_FDCWD, file, count));
    printf("\"open_here_ns\": %lld, \"stat_here_ns\": %lld, ",
           (long long)best_open(AT_FDCWD, slash + 1, count),
           (long long)best_stat(AT_FDCWD, slash + 1, count));
    printf("\"open_at_ns\": %lld, \"stat_at_ns\": %lld}\n",
           (long long)best_open(dir, slash + 1, count),
           (long long)best_stat(dir, slash + 1, count));
    close(dir);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--nothing") == 0)
        return 0;
    if (argc != 3)
        return 2;
    if (strcmp(argv[1], "--exec") == 0) {
        printf("{\"exec_us\": %.2f}\n",
               (double)median_exec("/proc/self/exe", strtol(argv[2], NULL, 0)) / 1e3);
        return 0;
    }
    return storm(argv[1], strtol(argv[2], NULL, 0));
}
