/*
 * tests/programs/raw - raw FILE: reads it with system calls of its own, as a program that is linked
 * statically does, and mixes them with libc's. What reaches a cached descriptor past the library
 * must fail: it never reads as empty.
 */
#include "raw.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transcript.h"

static char buffer[1 << 20];

/* 0: it failed, or said what the file holds. */
static void honest(const char *what, long n, const char *want, long size)
{
    if (n >= 0 && (n != size || memcmp(buffer, want, (size_t)size) != 0)) {
        printf("%s: %ld bytes that are not the file's\n", what, n);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static char want[1000];
    char proc[64];
    long fd, n;
    int cached;
    void *p;

    if (argc < 2)
        return 2;
    fd = raw(SYS_openat, AT_FDCWD, argv[1], O_RDONLY | O_CLOEXEC, 0);
    say_bytes("raw", buffer, raw(SYS_read, fd, buffer, sizeof buffer, 0));
    say_bytes("libc's on a raw one", want, pread((int)fd, want, sizeof want, 0));
    say("fstat", fstat((int)fd, &(struct stat){0}));
    raw(SYS_close, fd, 0, 0, 0);

    cached = open(argv[1], O_RDONLY | O_CLOEXEC);
    honest("read", raw(SYS_read, cached, buffer, sizeof want, 0), want, sizeof want);
    honest("pread64", raw(SYS_pread64, cached, buffer, sizeof want, 0), want, sizeof want);
    p = (void *)raw6(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, cached, 0);
    if (p != MAP_FAILED)
        memcpy(buffer, p, sizeof want);
    honest("mmap", p == MAP_FAILED ? -1 : (long)sizeof want, want, sizeof want);
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", cached);
    fd = open(proc, O_RDONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : read((int)fd, buffer, sizeof want);
    honest("/proc/self/fd", n, want, sizeof want);
    say_bytes("libc's", buffer, pread(cached, buffer, sizeof buffer, 0));
    close(cached);
    return 0;
}
