/*
 * tests/programs/threads - threads DIR THREADS ROUNDS [signals]: many threads open, read, duplicate
 * and close DIR/data, each its own and all of them shared descriptors, and check every byte. With
 * `signals`, a handler does the same, several hundred times a second, in whatever thread it hits.
 *
 * Byte i of the file must be hash(i): the file is made by "threads make FILE BYTES".
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "transcript.h"

#define SHARED 4
#define PIECE  20000u

static const char *path;
static int rounds;
static off_t size;
static int shared[SHARED];
static pthread_barrier_t barrier;
static _Atomic long in_handler;
static _Atomic long taken; /* bytes read from shared[0] by offset */

static unsigned char byte_at(uint64_t i)
{
    uint64_t h = (i / 8 + 1) * 0x9e3779b97f4a7c15ULL;

    return (unsigned char)(h >> (8 * (i % 8)));
}

static void fail(const char *what, long at)
{
    fprintf(stderr, "%s at %ld: %s\n", what, at, strerrorname_np(errno));
    _exit(1);
}

static void verify(const char *what, const unsigned char *bytes, ssize_t n, off_t at)
{
    for (ssize_t i = 0; i < n; i++)
        if (bytes[i] != byte_at((uint64_t)(at + i)))
            fail(what, (long)(at + i));
}

static int make(const char *to, long bytes)
{
    FILE *f = fopen(to, "we");

    for (long i = 0; f && i < bytes; i++)
        putc(byte_at((uint64_t)i), f);
    return f && fclose(f) == 0 ? 0 : 1;
}

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* A whole life of a descriptor. */
static void own(unsigned *seed, unsigned char *buffer)
{
    off_t at = next_random(seed) % (unsigned)size;
    int fd = open(path, O_RDONLY | O_CLOEXEC), copy, high;
    struct iovec iov[2] = {{buffer, 1000}, {buffer + 1000, PIECE - 1000}};
    struct stat st;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size != size)
        fail("open", 0);
    n = pread(fd, buffer, PIECE, at);
    if (n != (size - at < PIECE ? size - at : PIECE))
        fail("pread", (long)n);
    verify("pread", buffer, n, at);
    if (lseek(fd, at, SEEK_SET) != at)
        fail("lseek", (long)at);
    copy = dup(fd);
    high = fcntl(copy, F_DUPFD_CLOEXEC, 600);
    n = readv(copy, iov, 2);
    verify("readv", buffer, n, at);
    if (copy < 0 || high < 0 || close(fd) != 0)
        fail("dup", copy);
    verify("read on", buffer, read(high, buffer, 100), at + n);
    if (dup2(high, copy) != copy || close(high) != 0)
        fail("dup2", copy);
    verify("dup2", buffer, pread(copy, buffer, 500, 0), 0);
    if (close(copy) != 0)
        fail("close", copy);
}

static off_t place_of(const unsigned char *bytes)
{
    uint64_t word;

    memcpy(&word, bytes, sizeof word);
    return (off_t)((word * 0xf1de83e19937733dULL - 1) * 8);
}

static void common(unsigned *seed, unsigned char *buffer)
{
    struct iovec iov[3] = {{buffer, 40}, {buffer + 40, 8}, {buffer + 48, 1000}};
    int fd = shared[next_random(seed) % SHARED];
    off_t at = next_random(seed) % (unsigned)size;
    ssize_t n = pread(fd, buffer, PIECE, at);

    if (n < 0)
        fail("shared pread", fd);
    verify("shared pread", buffer, n, at);
    n = read(shared[0], buffer, 776);
    if (n < 0)
        fail("shared read", fd);
    atomic_fetch_add(&taken, n);
    /* Every read is of whole words, and a word tells where it lies. */
    n = readv(shared[0], iov, 3);
    if (n < 0)
        fail("shared readv", fd);
    atomic_fetch_add(&taken, n);
    if (n >= 8)
        verify("shared readv", buffer, n, place_of(buffer));
}

static void handler(int number)
{
    unsigned char part[300];
    int saved = errno, fd;

    (void)number;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail("open in a handler", 0);
    verify("in a handler", part, read(fd, part, sizeof part), 0);
    verify("in a handler", part, pread(fd, part, sizeof part, 70000), 70000);
    close(fd);
    atomic_fetch_add(&in_handler, 1);
    errno = saved;
}

static void *work(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    unsigned char *buffer = malloc(PIECE);

    pthread_barrier_wait(&barrier);
    for (int i = 0; i < rounds; i++) {
        errno = 4711;
        own(&seed, buffer);
        common(&seed, buffer);
        if (errno != 4711)
            fail("errno was touched", i);
        if (i % 8 == 0)
            sched_yield();
    }
    free(buffer);
    return NULL;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 1500}, {0, 1500}};
    static pthread_t threads[1024];
    char data[4096];
    struct stat st;
    int count;

    if (argc == 4 && strcmp(argv[1], "make") == 0)
        return make(argv[2], strtol(argv[3], NULL, 10));
    if (argc < 4)
        return 2;
    snprintf(data, sizeof data, "%s/counted", argv[1]);
    path = data;
    count = (int)strtol(argv[2], NULL, 10);
    rounds = (int)strtol(argv[3], NULL, 10);
    if (stat(path, &st) != 0 || count > 1024)
        die(path);
    size = st.st_size;
    for (int i = 0; i < SHARED; i++)
        shared[i] = open(path, O_RDONLY | O_CLOEXEC);
    pthread_barrier_init(&barrier, NULL, (unsigned)count);
    if (argc > 4 &&
        (sigaction(SIGALRM, &action, NULL) != 0 || setitimer(ITIMER_REAL, &every, NULL) != 0))
        die("timer");
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1)) != 0)
            die("thread");
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    /* Nobody got a byte twice, and none was lost. */
    if (lseek(shared[0], 0, SEEK_CUR) != taken)
        fail("the shared offset", (long)taken);
    if (argc > 4 && in_handler == 0)
        fail("no signal came", 0);
    printf("ok\n");
    return 0;
}
