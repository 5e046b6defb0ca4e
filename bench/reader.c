/*
 * bench/reader.c - reads a directory as a data loader does: every file once, in a shuffled order.
 *
 *     reader DIR [--seed N] [--order own|torch] [--threads N] [--list FILE] [--passes N]
 *            [--checksum] [--progress]
 *
 * Each file costs what a loader pays: open, fstat, read to the end, close. The names come from a
 * walk of DIR, or, relative to DIR, from the lines of FILE, so that the walk's own look-ups need
 * not warm anything up; neither is part of the time. The same seed gives the same order for the
 * same set of names, wherever they lie: an order of our own, which nobody can foretell, or torch's,
 * the first epoch of a DataLoader after torch.manual_seed(). Threads take the next file from one
 * list.
 *
 * With --passes the set is read so often, and the last time counts. Prints one JSON object. The
 * checksum is over names and bytes and does not depend on the order. With --progress a line
 * `progress DONE TOTAL` comes first, ten times a second.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "core/clock.h"
#include "core/mem.h"
#include "epoch/shuffle.h"
#include "order.h"

#define THREADS_MAX 256u
#define OPEN_DIRS   64 /* of the walk, at once */
#define PROGRESS_NS (100 * FB_NS_PER_MS)

struct names {
    char **paths; /* relative to the directory */
    size_t count;
    size_t room;
};

struct epoch {
    const struct names *names;
    bool checksum;
    _Atomic size_t next;
    _Atomic size_t done;
    _Atomic uint64_t bytes;
    _Atomic uint64_t sum;
    _Atomic int failed;
};

static struct names walked; /* nftw() has no argument for its visitor */

static void die(const char *what, const char *name)
{
    fprintf(stderr, "reader: %s %s: %s\n", what, name, strerrordesc_np(errno));
    _exit(1);
}

static void add_name(struct names *names, const char *path)
{
    if (names->count == names->room) {
        names->room = names->room ? 2 * names->room : 1024;
        names->paths = realloc(names->paths, names->room * sizeof *names->paths);
    }
    if (!names->paths || !(names->paths[names->count] = strdup(path)))
        die("cannot remember", path);
    names->count++;
}

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)ftw;
    if (type == FTW_F && S_ISREG(st->st_mode))
        add_name(&walked, path + strlen("./"));
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void walk(const char *dir)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread so far */
    if (nftw(".", visit, OPEN_DIRS, FTW_PHYS) != 0)
        die("cannot list", dir);
    if (walked.count)
        qsort(walked.paths, walked.count, sizeof *walked.paths, by_name);
}

static void load_list(const char *file)
{
    FILE *f = fopen(file, "re");
    char *line = NULL;
    size_t size = 0;
    ssize_t len;

    if (!f)
        die("cannot read", file);
    while ((len = getline(&line, &size, f)) > 0) {
        if (line[len - 1] == '\n')
            line[len - 1] = '\0';
        add_name(&walked, line);
    }
    free(line);
    fclose(f);
}

/* As `for batch in DataLoader(files, shuffle=True)` reads them. */
static bool shuffle_as_torch(struct names *names, uint64_t seed)
{
    const struct fb_shuffle_spec spec = {.sampler = fb_sampler_find("torch-random"),
                                         .seed = seed,
                                         .count = (uint32_t)names->count,
                                         .generator = FB_TORCH_GLOBAL};
    FB_AUTO_FREE uint32_t *order = fb_alloc_array(names->count, sizeof *order);
    char **paths = calloc(names->count, sizeof *paths);
    struct fb_error err = {0};
    struct fb_shuffle s;

    if (!order || !paths || fb_shuffle_init(&s, &spec, &err) < 0) {
        free(paths);
        return false;
    }
    fb_shuffle_next(&s, order);
    for (size_t i = 0; i < names->count; i++)
        paths[i] = names->paths[order[i]];
    free(names->paths);
    names->paths = paths;
    return fb_bench_pack(paths, names->count);
}

struct room {
    uint8_t *data;
    size_t size;
};

/* Bytes read, or -1 with errno. */
static int64_t read_file(const char *path, struct room *room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    size_t got = 0;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) != 0)
        goto fail;
    if ((size_t)st.st_size > room->size) {
        room->size = (size_t)st.st_size + (1u << 16);
        free(room->data);
        room->data = malloc(room->size);
        if (!room->data)
            goto fail;
    }
    while (got < (size_t)st.st_size) {
        ssize_t n = read(fd, room->data + got, (size_t)st.st_size - got);

        if (n < 0)
            goto fail;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    close(fd);
    return (int64_t)got;
fail:
    close(fd);
    return -1;
}

static void *work(void *arg)
{
    struct epoch *e = arg;
    struct room room = {0};
    uint64_t bytes = 0, sum = 0;
    size_t i;

    while ((i = atomic_fetch_add_explicit(&e->next, 1, memory_order_relaxed)) < e->names->count) {
        const char *path = e->names->paths[i];
        int64_t got = read_file(path, &room);

        if (got < 0) {
            int expected = 0;

            if (atomic_compare_exchange_strong(&e->failed, &expected, errno))
                fprintf(stderr, "reader: cannot read %s: %s\n", path, strerrordesc_np(errno));
            break;
        }
        bytes += (uint64_t)got;
        if (e->checksum)
            sum += fb_hash64_seed(room.data, (size_t)got, fb_hash64(path, strlen(path)));
        atomic_fetch_add_explicit(&e->done, 1, memory_order_relaxed);
    }
    free(room.data);
    atomic_fetch_add_explicit(&e->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->sum, sum, memory_order_relaxed);
    return NULL;
}

static void *show_progress(void *arg)
{
    struct epoch *e = arg;
    size_t done;

    do {
        struct timespec pause = {.tv_nsec = PROGRESS_NS};

        nanosleep(&pause, NULL);
        done = atomic_load_explicit(&e->done, memory_order_relaxed);
        printf("progress %zu %zu\n", done, e->names->count);
        fflush(stdout);
    } while (done < e->names->count && atomic_load_explicit(&e->failed, memory_order_relaxed) == 0);
    return NULL;
}

static int run_epoch(struct epoch *e, unsigned threads, bool progress, bool last)
{
    pthread_t workers[THREADS_MAX], watcher;
    int64_t start_ns, spent_ns;
    double seconds;

    if (progress && pthread_create(&watcher, NULL, show_progress, e) != 0)
        progress = false;
    start_ns = fb_now_ns();
    for (unsigned i = 1; i < threads; i++)
        if (pthread_create(&workers[i], NULL, work, e) != 0)
            die("cannot start", "threads");
    work(e);
    for (unsigned i = 1; i < threads; i++)
        pthread_join(workers[i], NULL);
    spent_ns = fb_now_ns() - start_ns;
    if (progress)
        pthread_join(watcher, NULL);
    if (atomic_load(&e->failed))
        return 1;
    if (!last)
        return 0;
    seconds = (double)spent_ns / 1e9;
    printf("{\"files\": %zu, \"bytes\": %llu, \"seconds\": %.6f, \"files_per_s\": %.1f, "
           "\"us_per_file\": %.3f",
           e->names->count, (unsigned long long)atomic_load(&e->bytes), seconds,
           (double)e->names->count / seconds, 1e6 * seconds / (double)e->names->count);
    if (e->checksum)
        printf(", \"checksum\": \"%016llx\"", (unsigned long long)atomic_load(&e->sum));
    printf("}\n");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"seed", required_argument, NULL, 's'},    {"order", required_argument, NULL, 'o'},
        {"threads", required_argument, NULL, 't'}, {"list", required_argument, NULL, 'l'},
        {"checksum", no_argument, NULL, 'c'},      {"progress", no_argument, NULL, 'p'},
        {"passes", required_argument, NULL, 'n'},  {0},
    };
    struct epoch e = {.names = &walked};
    unsigned long long seed = 1;
    unsigned long threads = 1, passes = 1;
    const char *list = NULL;
    bool progress = false, torch = false;
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) { /* NOLINT: one thread so far */
        switch (c) {
        case 's':
            seed = strtoull(optarg, NULL, 0);
            break;
        case 'o':
            torch = strcmp(optarg, "torch") == 0;
            if (!torch && strcmp(optarg, "own") != 0)
                return 2;
            break;
        case 't':
            threads = strtoul(optarg, NULL, 0);
            break;
        case 'l':
            list = optarg;
            break;
        case 'c':
            e.checksum = true;
            break;
        case 'p':
            progress = true;
            break;
        case 'n':
            passes = strtoul(optarg, NULL, 0);
            break;
        default:
            return 2;
        }
    }
    if (optind != argc - 1 || threads < 1 || threads > THREADS_MAX) {
        fprintf(stderr, "usage: reader DIR [--seed N] [--order own|torch] [--threads N] "
                        "[--list FILE] [--passes N] [--checksum] [--progress]\n");
        return 2;
    }
    if (list)
        load_list(list);
    if (chdir(argv[optind]) != 0)
        die("cannot enter", argv[optind]);
    if (!list)
        walk(argv[optind]);
    if (walked.count == 0) {
        fprintf(stderr, "reader: no files in %s\n", argv[optind]);
        return 1;
    }
    if (!(torch ? shuffle_as_torch(&walked, seed)
                : fb_bench_shuffle(walked.paths, walked.count, seed)))
        die("cannot remember", "the order");
    for (unsigned long i = 1; i < passes; i++) {
        if (run_epoch(&e, (unsigned)threads, false, false) != 0)
            return 1;
        atomic_store(&e.next, 0);
        atomic_store(&e.done, 0);
        atomic_store(&e.bytes, 0);
        atomic_store(&e.sum, 0);
    }
    return run_epoch(&e, (unsigned)threads, progress, true);
}
