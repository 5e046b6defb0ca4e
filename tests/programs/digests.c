/*
 * tests/programs/digests - digests BYTES[,END] FILE...: reads each file to its end, so many bytes
 * at a time, and says what it holds, or what went wrong. With END it goes on, for so many seconds
 * or until there is a file of that name, and fails when a file ever reads otherwise than at first.
 */
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "transcript.h"

#define FILES_MAX 4096

static char *buffer;
static size_t step;

/* 0: it could not be read, and errno says why. */
static uint64_t read_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t h = 1;
    ssize_t n = fd;

    while (fd >= 0 && (n = read(fd, buffer, step)) > 0)
        h = (h ^ digest(buffer, (size_t)n)) * 0x9e3779b97f4a7c15ULL | 1;
    if (fd >= 0)
        close(fd);
    return n < 0 ? 0 : h;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int repeat(int count, char **paths, const uint64_t *first, double start, const char *end)
{
    char *rest;
    double until = start + strtod(end, &rest);

    while (rest == end ? access(end, F_OK) != 0 : now() < until) {
        for (int i = 0; i < count; i++) {
            uint64_t h = read_file(paths[i]);

            if (h != first[i]) {
                fprintf(stderr, "%s: %s\n", paths[i], h ? "other bytes" : strerrorname_np(errno));
                return 1;
            }
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static uint64_t first[FILES_MAX];
    double start = now();
    char *comma = NULL;
    int status = 0;

    step = argc < 2 ? 0 : (size_t)strtoul(argv[1], &comma, 10);
    buffer = malloc(step + 1);
    if (step == 0 || !buffer || argc - 2 > FILES_MAX)
        return 2;
    for (int i = 2; i < argc; i++) {
        first[i - 2] = read_file(argv[i]);
        if (first[i - 2] == 0) {
            printf("%s  %s\n", strerrorname_np(errno), argv[i]);
            status = 1;
        } else {
            printf("%016llx  %s\n", (unsigned long long)first[i - 2], argv[i]);
        }
    }
    fflush(stdout);
    if (status == 0 && *comma == ',')
        status = repeat(argc - 2, argv + 2, first, start, comma + 1);
    free(buffer);
    return status;
}
