/*
 * The data set of tests/concurrent/dataset.h for scripts.
 *
 *     dataset_tool make ROOT FILES                 all files in version 1
 *     dataset_tool change ROOT FILES COUNT         new versions of COUNT random files
 *     dataset_tool churn ROOT FILES                new versions until SIGTERM
 *     dataset_tool verify ROOT SOURCE FROM TO [direct]
 *                                                  files FROM to TO-1 are as the source has them
 *     dataset_tool read ROOT FILES THREADS ERRNOS  random files until SIGTERM; each open file must
 *                                                  show bytes of one version, or one of the errors
 *                                                  (numbers with commas between them); prints how
 *                                                  often each came
 *     dataset_tool expect ROOT FROM TO ERRNO       reading each of these files, all at once, must
 *                                                  fail with that error, of several one
 *
 * `direct` reads past the kernel's page cache. Wrong bytes end the program with status 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/rand.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/mem.h"
#include "core/thread.h"
#include "dataset.h"

#define PIECE_BYTES (256u << 10)
#define ERRNO_MAX   200
#define CHANGE_NS   (3 * FB_NS_PER_MS)
#define THREADS_MAX 256u

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

struct readers {
    struct dataset set;
    bool allowed[ERRNO_MAX];
    _Atomic uint64_t good, bytes, failed[ERRNO_MAX];
    _Atomic unsigned next;
    unsigned to;
};

/* ---- reading ---- */

/* Reads an open file to its end in pieces, checking that all are of one version, which is `wanted`
 * unless that is -1. Returns 0, or the (positive) error. */
static int read_open(int fd, unsigned file, int64_t wanted, uint8_t *buffer, uint64_t *ret_bytes)
{
    uint64_t at = 0;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return errno;
    if (wanted < 0)
        wanted = st.st_mtim.tv_nsec;
    for (;;) {
        ssize_t n = pread(fd, buffer, PIECE_BYTES, (off_t)at);
        int64_t wrong;

        if (n < 0)
            return errno;
        if (n == 0)
            break;
        wrong = dataset_check(file, (uint32_t)wanted, at, buffer, (size_t)n);
        if (wrong >= 0)
            die("file %u, version %lld: wrong byte at %lld; size %lld, the piece claims %lld", file,
                (long long)wanted, (long long)wrong, (long long)st.st_size,
                (long long)dataset_claims(at, buffer, (size_t)n));
        at += (uint64_t)n;
    }
    if (at != dataset_size(file, (uint32_t)wanted))
        die("file %u, version %lld: %llu bytes of %llu, size %lld", file, (long long)wanted,
            (unsigned long long)at, (unsigned long long)dataset_size(file, (uint32_t)wanted),
            (long long)st.st_size);
    *ret_bytes = at;
    return 0;
}

static int read_file(const char *root, unsigned file, int flags, int64_t wanted, uint8_t *buffer,
                     uint64_t *ret_bytes)
{
    char name[DATASET_NAME_MAX], path[PATH_MAX];
    FB_AUTO_CLOSE int fd = -1;

    snprintf(path, sizeof path, "%s/%s", root, dataset_name(file, name));
    fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0)
        return errno;
    return read_open(fd, file, wanted, buffer, ret_bytes);
}

static uint8_t *new_buffer(void)
{
    uint8_t *buffer = aligned_alloc(4096, PIECE_BYTES);

    if (!buffer)
        die("no memory");
    return buffer;
}

static void note(struct readers *r, unsigned file, int error, uint64_t bytes)
{
    if (error == 0) {
        atomic_fetch_add(&r->good, 1);
        atomic_fetch_add(&r->bytes, bytes);
        return;
    }
    if (error >= ERRNO_MAX || !r->allowed[error])
        die("file %u: %s (%d)", file, fb_strerror(error), error);
    atomic_fetch_add(&r->failed[error], 1);
}

static void *reader(void *arg)
{
    struct readers *r = arg;
    struct fb_rand dice = {.state = (uint64_t)fb_now_ns() + fb_thread_index()};
    FB_AUTO_FREE uint8_t *buffer = new_buffer();

    while (!stopped) {
        unsigned file = (unsigned)fb_rand_below(&dice, r->set.files);
        uint64_t bytes = 0;
        int error = read_file(r->set.root, file, fb_rand_below(&dice, 2) ? O_DIRECT : 0, -1, buffer,
                              &bytes);

        note(r, file, error, bytes);
        if (error)
            fb_sleep_ns(5 * FB_NS_PER_MS);
    }
    return NULL;
}

static void *expecter(void *arg)
{
    struct readers *r = arg;
    FB_AUTO_FREE uint8_t *buffer = new_buffer();
    uint64_t bytes = 0;

    for (;;) {
        unsigned file = atomic_fetch_add(&r->next, 1);

        if (file >= r->to)
            return NULL;
        if (dataset_size(file, 1) == 0)
            continue; /* nothing to ask the source for */
        note(r, file, read_file(r->set.root, file, O_DIRECT, -1, buffer, &bytes), bytes);
    }
}

static void run_readers(struct readers *r, unsigned threads, void *(*run)(void *))
{
    pthread_t handles[THREADS_MAX];

    if (threads > THREADS_MAX)
        die("%u threads are too many", threads);
    for (unsigned i = 0; i < threads; i++)
        if (fb_thread_start(&handles[i], "reader", run, r) < 0)
            die("cannot start a thread");
    for (unsigned i = 0; i < threads; i++)
        pthread_join(handles[i], NULL);
    printf("%llu files, %llu bytes", (unsigned long long)atomic_load(&r->good),
           (unsigned long long)atomic_load(&r->bytes));
    for (int i = 0; i < ERRNO_MAX; i++)
        if (atomic_load(&r->failed[i]))
            printf(", %llu %s", (unsigned long long)atomic_load(&r->failed[i]), strerrorname_np(i));
    printf("\n");
}

static void allow(struct readers *r, const char *list)
{
    for (char *end; *list; list = *end ? end + 1 : end) {
        unsigned long number = strtoul(list, &end, 10);

        if (end == list || number >= ERRNO_MAX)
            die("bad list of errors: %s", list);
        r->allowed[number] = true;
    }
}

/* ---- commands ---- */

static void change(const struct dataset *set, struct fb_rand *dice)
{
    unsigned file = (unsigned)fb_rand_below(dice, set->files);

    dataset_write(set, file, dataset_current(set, file) + 1);
}

static void verify(const char *root, const struct dataset *source, unsigned from, unsigned to,
                   int flags)
{
    FB_AUTO_FREE uint8_t *buffer = new_buffer();
    uint64_t bytes = 0;

    for (unsigned file = from; file < to; file++) {
        int error = read_file(root, file, flags, dataset_current(source, file), buffer, &bytes);

        if (error)
            die("file %u: %s", file, fb_strerror(error));
    }
}

static unsigned number(const char *text)
{
    return (unsigned)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
    static struct readers r;
    struct fb_rand dice = {.state = (uint64_t)fb_now_ns()};
    const char *what = argc > 3 ? argv[1] : "";
    struct dataset set;

    if (argc <= 3)
        die("usage: see the head of dataset_tool.c");
    set = (struct dataset){.root = argv[2], .files = number(argv[3])};
    r.set = set;
    signal(SIGTERM, stop);
    if (strcmp(what, "make") == 0) {
        dataset_make(&set);
    } else if (strcmp(what, "change") == 0 && argc == 5) {
        for (unsigned i = number(argv[4]); i > 0; i--)
            change(&set, &dice);
    } else if (strcmp(what, "churn") == 0) {
        for (; !stopped; fb_sleep_ns(CHANGE_NS))
            change(&set, &dice);
    } else if (strcmp(what, "verify") == 0 && argc >= 6) {
        set = (struct dataset){.root = argv[3], .files = number(argv[5])};
        verify(argv[2], &set, number(argv[4]), set.files, argc > 6 ? O_DIRECT : 0);
    } else if (strcmp(what, "read") == 0 && argc == 6) {
        allow(&r, argv[5]);
        run_readers(&r, number(argv[4]), reader);
    } else if (strcmp(what, "expect") == 0 && argc == 6) {
        allow(&r, argv[5]);
        atomic_store(&r.next, number(argv[3]));
        r.to = number(argv[4]);
        run_readers(&r, r.to - number(argv[3]), expecter);
        if (atomic_load(&r.good))
            die("%llu files could be read", (unsigned long long)atomic_load(&r.good));
    } else {
        die("no such command: %s", what);
    }
    return 0;
}
