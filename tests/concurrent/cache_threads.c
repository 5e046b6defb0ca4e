/*
 * Sixteen threads on one cache with all tiers, doing everything a cache can be asked.
 *
 *     cache_threads READS SECONDS
 *
 * Readers share READS reads at least, and go on for SECONDS: random stretches, synchronously, by
 * copy from DRAM, or several at a time and asynchronously; meanwhile others replace files of the
 * source, append to and truncate some, evict paths, look names up anew, and tick. Every byte is
 * checked against the version that the look-up told. A read may fail in one way only: the version
 * that it was opened for is gone (ESTALE).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rand.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/lock.h"
#include "core/mem.h"
#include "core/thread.h"
#include "rig.h"

#define FILES       384u
#define READERS     10u
#define TTL_NS      (20 * FB_NS_PER_MS)
#define BATCH       4u
#define CHANGE_NS   (2 * FB_NS_PER_MS)
#define EVICT_NS    (10 * FB_NS_PER_MS)
#define TICK_NS     (5 * FB_NS_PER_MS)
#define GROWING     "growing" /* a file that is appended to and cut; its bytes are file 0's */
#define GROWING_MAX (1u << 20)
#define STALE_PART  2 /* at most one read in so many may find its version gone */

struct test {
    struct rig rig;
    struct dataset set;
    _Atomic int64_t reads_left;
    int64_t until_ns;
    _Atomic uint64_t reads, stale, copies;
    _Atomic unsigned readers;
    uint32_t version[FILES]; /* each file has one thread that changes it */
};

static void count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static bool over(struct test *t)
{
    return atomic_load_explicit(&t->readers, memory_order_acquire) == 0;
}

static unsigned pick(struct fb_rand *dice)
{
    double skew = fb_rand_unit(dice);

    return (unsigned)(skew * skew * FILES);
}

/* Counts a result that may be, ends the program on one that may not. */
static bool fine(struct test *t, const char *what, unsigned file, int rc)
{
    if (rc == -ESTALE)
        count(&t->stale);
    else if (rc < 0)
        die("%s of file %u: %s", what, file, fb_strerror(rc));
    return rc == 0;
}

/* ---- readers ---- */

static void read_sync(struct test *t, struct fb_rand *dice, void *buffer)
{
    unsigned file = pick(dice);
    uint32_t version;
    int rc;

    if (fb_rand_below(dice, 4) == 0)
        rc = rig_read_whole(&t->rig, file, buffer, &version);
    else
        rc = rig_read(&t->rig, file, fb_rand_below(dice, dataset_size(file, 1) + 1),
                      (uint32_t)fb_rand_below(dice, RIG_READ_BYTES), buffer, &version);
    fine(t, "read", file, rc);
}

/* Only what is in DRAM can be copied; what is, must be right. */
static void read_copy(struct test *t, struct fb_rand *dice, void *buffer)
{
    struct fb_files *files = fb_cache_files(t->rig.cache);
    struct fb_caller caller = {.pid = (uint32_t)getpid()};
    unsigned file = pick(dice);
    char name[DATASET_NAME_MAX];
    struct fb_attr attr;
    uint32_t id, version;
    uint64_t offset;
    int64_t n;
    int rc = fb_cache_stat(t->rig.volume, dataset_name(file, name), &id, &attr);

    if (!fine(t, "look-up", file, rc))
        return;
    version = (uint32_t)(attr.version.mtime_ns % FB_NS_PER_S);
    offset = fb_rand_below(dice, attr.version.size + 1);
    n = fb_cache_copy(t->rig.volume, &caller, id, offset, (uint32_t)fb_rand_below(dice, 32768),
                      buffer);
    fb_files_unref(files, id, 1);
    if (n == -ENOENT)
        return;
    if (n < 0)
        die("copy of file %u: %s", file, fb_strerror((int)n));
    if (dataset_check(file, version, offset, buffer, (size_t)n) >= 0)
        die("copy of file %u, version %u, offset %llu: wrong bytes", file, version,
            (unsigned long long)offset);
    count(&t->copies);
}

struct batch_read {
    struct fb_read read;
    struct fb_event done;
    unsigned file;
    uint32_t version;
};

static void batch_done(struct fb_read *read)
{
    struct batch_read *b = FB_CONTAINER_OF(read, struct batch_read, read);

    fb_event_set(&b->done);
}

static void batch_start(struct test *t, struct batch_read *b, struct fb_rand *dice)
{
    char name[DATASET_NAME_MAX];
    struct fb_attr attr;
    uint32_t id;
    int rc;

    b->file = pick(dice);
    rc = fb_cache_stat(t->rig.volume, dataset_name(b->file, name), &id, &attr);
    b->read.file = FB_FILE_NONE;
    if (!fine(t, "look-up", b->file, rc))
        return;
    b->version = (uint32_t)(attr.version.mtime_ns % FB_NS_PER_S);
    b->read.volume = t->rig.volume;
    b->read.caller = (struct fb_caller){.pid = (uint32_t)getpid()};
    b->read.deadline_ns = 0;
    b->read.file = id;
    b->read.offset = fb_rand_below(dice, attr.version.size + 1);
    b->read.length = (uint32_t)fb_rand_below(dice, FB_READ_MAX);
    b->read.door = 0;
    b->read.meanwhile = NULL;
    b->read.cancel = NULL;
    b->read.done = batch_done;
    b->read.arg = NULL;
    fb_event_init(&b->done);
    fb_cache_read(&b->read);
}

static void batch_end(struct test *t, struct batch_read *b)
{
    uint64_t at = b->read.offset;

    if (b->read.file == FB_FILE_NONE)
        return;
    fb_event_wait(&b->done);
    if (fine(t, "read", b->file, b->read.result)) {
        for (unsigned i = 0; i < b->read.piece_count; i++) {
            const struct fb_piece *p = &b->read.pieces[i];

            if (dataset_check(b->file, b->version, at, p->data, p->length) >= 0)
                die("file %u, version %u, offset %llu: wrong bytes", b->file, b->version,
                    (unsigned long long)at);
            at += p->length;
        }
        if (at - b->read.offset != b->read.bytes)
            die("file %u: %u bytes in pieces of other length", b->file, b->read.bytes);
        fb_read_release(&b->read);
    }
    fb_files_unref(fb_cache_files(t->rig.cache), b->read.file, 1);
}

static void read_batch(struct test *t, struct fb_rand *dice, struct batch_read *batch)
{
    for (unsigned i = 0; i < BATCH; i++)
        batch_start(t, &batch[i], dice);
    for (unsigned i = 0; i < BATCH; i++)
        batch_end(t, &batch[i]);
}

/* Bytes of a file that is written to in place: a prefix of what it could ever become. */
static void read_growing(struct test *t, void *buffer)
{
    struct fb_attr attr;
    uint32_t id, length;
    uint64_t offset;
    int64_t n;
    int rc = fb_cache_stat(t->rig.volume, GROWING, &id, &attr);

    if (rc < 0)
        die("look-up of the growing file: %s", fb_strerror(rc));
    offset = attr.version.size / 2;
    length = (uint32_t)fb_min_u64(RIG_READ_BYTES, attr.version.size - offset);
    n = fb_cache_pread(t->rig.volume, id, offset, length, buffer);
    if (n >= 0 && (n != length || dataset_check(0, 0, offset, buffer, (size_t)n) >= 0))
        die("the growing file: wrong bytes, %lld of %u at %llu", (long long)n, length,
            (unsigned long long)offset);
    if (n < 0 && n != -ESTALE)
        die("the growing file: %s", fb_strerror((int)n));
    fb_files_unref(fb_cache_files(t->rig.cache), id, 1);
}

static void *reader(void *arg)
{
    struct test *t = arg;
    struct fb_rand dice = {.state = fb_thread_index() * 7919u};
    FB_AUTO_FREE void *buffer = fb_alloc(RIG_READ_BYTES);
    FB_AUTO_FREE struct batch_read *batch = fb_alloc(BATCH * sizeof *batch);

    if (!buffer || !batch)
        die("no memory");
    while (atomic_fetch_sub_explicit(&t->reads_left, 1, memory_order_relaxed) > 0 ||
           fb_now_ns() < t->until_ns) {
        uint64_t what = fb_rand_below(&dice, 100);

        if (what < 50)
            read_sync(t, &dice, buffer);
        else if (what < 75)
            read_copy(t, &dice, buffer);
        else if (what < 97)
            read_batch(t, &dice, batch);
        else
            read_growing(t, buffer);
        count(&t->reads);
    }
    atomic_fetch_sub_explicit(&t->readers, 1, memory_order_release);
    return NULL;
}

/* ---- the others ---- */

static void *changer(void *arg)
{
    struct test *t = arg;
    struct fb_rand dice = {.state = 1};

    while (!over(t)) {
        unsigned file = (unsigned)fb_rand_below(&dice, FILES);

        dataset_write(&t->set, file, ++t->version[file]);
        fb_sleep_ns(CHANGE_NS);
    }
    return NULL;
}

static void *grower(void *arg)
{
    struct test *t = arg;
    struct fb_rand dice = {.state = 2};
    FB_AUTO_FREE uint8_t *data = fb_alloc(GROWING_MAX);
    char path[PATH_MAX];
    FB_AUTO_CLOSE int fd = -1;
    size_t size = 0;

    snprintf(path, sizeof path, "%s/%s", t->set.root, GROWING);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || !data)
        die("%s: %s", path, fb_strerror(-errno));
    dataset_fill(0, 0, 0, data, GROWING_MAX);
    while (!over(t)) {
        size_t more = fb_rand_below(&dice, 65536);

        if (size + more > GROWING_MAX) {
            size = fb_rand_below(&dice, size);
            if (ftruncate(fd, (off_t)size) < 0)
                die("truncate: %s", fb_strerror(-errno));
        } else if (pwrite(fd, data + size, more, (off_t)size) == (ssize_t)more) {
            size += more;
        } else {
            die("append: %s", fb_strerror(-errno));
        }
        fb_sleep_ns(CHANGE_NS);
    }
    return NULL;
}

static void *evictor(void *arg)
{
    struct test *t = arg;
    struct fb_rand dice = {.state = 3};
    char name[DATASET_NAME_MAX];

    while (!over(t)) {
        dataset_name(pick(&dice), name);
        if (fb_rand_below(&dice, 8) == 0)
            *strchr(name, '/') = 0; /* a whole folder */
        fb_cache_evict(t->rig.volume, name);
        fb_sleep_ns(EVICT_NS);
    }
    return NULL;
}

static void looked_up(struct fb_lookup *lookup)
{
    fb_event_set(lookup->arg);
}

static void *looker(void *arg)
{
    struct test *t = arg;
    struct fb_rand dice = {.state = 4 + fb_thread_index()};
    char name[DATASET_NAME_MAX];

    while (!over(t)) {
        unsigned file = pick(&dice);
        bool absent = fb_rand_below(&dice, 4) == 0;
        struct fb_event done;
        struct fb_lookup l = {.volume = t->rig.volume,
                              .path = absent ? "d000/absent" : dataset_name(file, name),
                              .revalidate = true,
                              .done = looked_up,
                              .arg = &done};

        fb_event_init(&done);
        fb_cache_lookup(&l);
        fb_event_wait(&done);
        if (l.result != (absent ? -ENOENT : 0))
            die("look-up of %s: %s", l.path, fb_strerror(l.result));
        if (l.result == 0)
            fb_files_unref(fb_cache_files(t->rig.cache), l.file, 1);
        fb_sleep_ns(FB_NS_PER_MS);
    }
    return NULL;
}

static void *ticker(void *arg)
{
    struct test *t = arg;
    struct fb_store *store = fb_cache_store(t->rig.cache);
    struct fb_tier_stats stats;

    while (!over(t)) {
        fb_cache_tick(t->rig.cache);
        for (unsigned i = 0; i < fb_store_tiers(store); i++) {
            fb_store_tier_stats(store, i, &stats);
            if (stats.used_bytes > stats.budget_bytes || stats.segments > stats.slots)
                die("tier %s is beyond its budget", stats.name);
        }
        fb_sleep_ns(TICK_NS);
    }
    return NULL;
}

/* ---- the whole ---- */

static void make_growing(const struct dataset *set)
{
    char path[PATH_MAX];
    int fd;

    snprintf(path, sizeof path, "%s/%s", set->root, GROWING);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || close(fd) < 0)
        die("%s: %s", path, fb_strerror(-errno));
}

static void run_threads(struct test *t)
{
    static void *(*const others[])(void *) = {changer, grower, evictor, looker, looker, ticker};
    pthread_t threads[READERS + FB_ARRAY_SIZE(others)];
    unsigned n = 0;
    int rc = 0;

    while (rc == 0 && n < READERS)
        rc = fb_thread_start(&threads[n++], "reader", reader, t);
    for (unsigned i = 0; rc == 0 && i < FB_ARRAY_SIZE(others); i++)
        rc = fb_thread_start(&threads[n++], "other", others[i], t);
    if (rc < 0)
        die("cannot start a thread");
    while (n > 0)
        pthread_join(threads[--n], NULL);
}

/* What all tiers hold in the end is what the source has. */
static void check_all(struct test *t)
{
    FB_AUTO_FREE void *buffer = fb_alloc(RIG_READ_BYTES);
    uint32_t version;

    if (!buffer)
        die("no memory");
    fb_sleep_ns(2 * TTL_NS);
    for (unsigned file = 0; file < FILES; file++) {
        int rc = rig_read_whole(&t->rig, file, buffer, &version);

        if (rc < 0 || version != t->version[file])
            die("file %u in the end: %s, version %u, not %u", file, fb_strerror(rc), version,
                t->version[file]);
    }
}

static void report(struct test *t)
{
    static const enum fb_cache_metric wanted[] = {FB_CM_HITS_DRAM, FB_CM_HITS_PMEM, FB_CM_HITS_NVME,
                                                  FB_CM_MISSES,    FB_CM_JOINED,    FB_CM_CHANGED,
                                                  FB_CM_DEMOTED,   FB_CM_PROMOTED};
    struct fb_metrics *m = fb_cache_metrics(t->rig.cache);
    uint64_t reads = atomic_load(&t->reads), stale = atomic_load(&t->stale);

    printf("%llu reads, %llu stale, %llu copies\n", (unsigned long long)reads,
           (unsigned long long)stale, (unsigned long long)atomic_load(&t->copies));
    for (unsigned i = 0; i < m->count; i++)
        printf("%s %llu\n", m->info[i].name, (unsigned long long)fb_metric_get(m, i));
    if (stale > reads / STALE_PART)
        die("%llu of %llu reads found their version gone", (unsigned long long)stale,
            (unsigned long long)reads);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(wanted); i++)
        if (fb_metric_get(m, wanted[i]) == 0)
            die("nothing was counted as %s: the test does not test", m->info[wanted[i]].name);
}

int main(int argc, char **argv)
{
    static struct test t;
    const char *place = secure_getenv("T");
    char source[PATH_MAX];
    struct rig_config config = {
        .home = place, .set = &t.set, .evict = "lru", .metadata_ttl_ns = TTL_NS, .no_watch = true};

    if (argc != 3 || !place)
        die("usage: T=DIR %s READS SECONDS", argv[0]);
    snprintf(source, sizeof source, "%s/source", place);
    t.set = (struct dataset){.root = source, .files = FILES};
    atomic_store(&t.reads_left, strtoll(argv[1], NULL, 10));
    atomic_store(&t.readers, READERS);
    dataset_make(&t.set);
    make_growing(&t.set);
    for (unsigned i = 0; i < FILES; i++)
        t.version[i] = 1;
    rig_open(&t.rig, &config);
    t.until_ns = fb_now_ns() + strtoll(argv[2], NULL, 10) * FB_NS_PER_S;
    run_threads(&t);
    check_all(&t);
    report(&t);
    rig_close(&t.rig);
    return 0;
}
