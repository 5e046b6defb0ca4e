#include "common.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/rand.h"
#include "core/clock.h"
#include "core/lock.h"
#include "core/mem.h"
#include "core/thread.h"
#include "core/units.h"

#define PATTERN_BYTES  (2u << 20)
#define PATTERN_STARTS 16384u /* where a file's bytes may start: cache lines of the first half */
#define WORKERS_MAX    64u
#define LONG_AGO_NS    (1000000000LL * FB_NS_PER_S)
#define TIMEOUT_NS     (60 * FB_NS_PER_S)
#define FLUSH_PAUSE_NS (FB_NS_PER_MS / 10)

void fb_bench_die(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, ap);
    fputc('\n', stderr);
    va_end(ap);
    _exit(1);
}

const char *fb_bench_text(int argc, char **argv, const char *name, const char *fallback)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strncmp(argv[i], "--", 2) == 0 && strcmp(argv[i] + 2, name) == 0)
            return argv[i + 1];
    return fallback;
}

uint64_t fb_bench_number(int argc, char **argv, const char *name, uint64_t fallback)
{
    const char *text = fb_bench_text(argc, argv, name, NULL);
    uint64_t value = fallback;

    if (text && fb_parse_size(text, &value) < 0)
        fb_bench_die("--%s %s: not a number", name, text);
    return value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double fb_bench_median(double *values, unsigned count)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

/* ---- the source: a queue, and workers that copy from the pattern ---- */

struct memory {
    uint64_t file_bytes;
    uint8_t *pattern;
    struct fb_mutex lock;
    struct fb_cond work;
    struct fb_list queue;
    bool stop;
    unsigned threads;
    pthread_t workers[WORKERS_MAX];
};

static void file_attr(uint64_t file_bytes, uint64_t ino, struct fb_attr *ret_attr)
{
    *ret_attr = (struct fb_attr){
        .version = {.size = file_bytes,
                    .mtime_ns = LONG_AGO_NS,
                    .ctime_ns = LONG_AGO_NS,
                    .tag = {ino}},
        .ino = ino,
        .blocks = file_bytes / 512,
        .mode = S_IFREG | 0444,
        .nlink = 1,
    };
}

void fb_bench_path(uint32_t no, char ret_path[FB_NAME_MAX])
{
    snprintf(ret_path, FB_NAME_MAX, "train/n%08u/n%08u_%07u.jpeg", no / 1300, no / 1300, no);
}

static uint64_t path_ino(const char *path)
{
    return fb_hash64(path, strlen(path)) | 1;
}

static void answer_read(struct memory *m, struct fb_source_job *job)
{
    uint64_t ino = path_ino(job->path), at = job->offset;
    const uint8_t *bytes = m->pattern + FB_CACHELINE * (ino % PATTERN_STARTS);

    job->bytes = 0;
    for (unsigned i = 0; i < job->iov_count && at < m->file_bytes; i++) {
        size_t left = fb_min_u64(job->iov[i].iov_len, m->file_bytes - at), done = 0;

        while (done < left) {
            size_t run = fb_min_u64(left - done, PATTERN_BYTES / 2);

            memcpy((uint8_t *)job->iov[i].iov_base + done, bytes, run);
            done += run;
        }
        at += left;
        job->bytes += left;
    }
    file_attr(m->file_bytes, ino, &job->attr);
}

static void answer(struct memory *m, struct fb_source_job *job)
{
    int result = 0;

    if (job->op == FB_SOURCE_READ) {
        answer_read(m, job);
    } else if (job->op == FB_SOURCE_STAT) {
        file_attr(m->file_bytes, path_ino(job->path), &job->attr);
        if (job->path[0] == '\0')
            job->attr.mode = S_IFDIR | 0555;
    } else {
        result = -ENOTSUP;
    }
    fb_source_job_finish(job, result);
}

static void *serve(void *arg)
{
    struct memory *m = arg;

    fb_mutex_lock(&m->lock);
    for (;;) {
        struct fb_list *first = m->queue.next;

        if (fb_list_empty(&m->queue)) {
            if (m->stop)
                break;
            fb_cond_wait(&m->work, &m->lock, FB_NEVER_NS);
            continue;
        }
        fb_list_remove(first);
        fb_mutex_unlock(&m->lock);
        answer(m, FB_LIST_ENTRY(first, struct fb_source_job, backend_link));
        fb_mutex_lock(&m->lock);
    }
    fb_mutex_unlock(&m->lock);
    return NULL;
}

static void memory_start(void *backend, struct fb_source_job *job)
{
    struct memory *m = backend;

    if (m->threads == 0) {
        answer(m, job);
        return;
    }
    fb_mutex_lock(&m->lock);
    fb_list_push_back(&m->queue, &job->backend_link);
    fb_cond_signal(&m->work);
    fb_mutex_unlock(&m->lock);
}

static bool memory_close(void *backend, int64_t until_ns)
{
    struct memory *m = backend;

    (void)until_ns;
    fb_mutex_lock(&m->lock);
    m->stop = true;
    fb_cond_broadcast(&m->work);
    fb_mutex_unlock(&m->lock);
    for (unsigned i = 0; i < m->threads; i++)
        pthread_join(m->workers[i], NULL);
    return true;
}

static void memory_destroy(void *backend)
{
    struct memory *m = backend;

    fb_cond_destroy(&m->work);
    fb_mutex_destroy(&m->lock);
    free(m->pattern);
    free(m);
}

static const struct fb_source_ops memory_ops = {
    .name = "memory", .start = memory_start, .close = memory_close, .destroy = memory_destroy};

struct fb_source *fb_bench_source(uint64_t file_bytes, unsigned threads)
{
    struct memory *m = fb_alloc(sizeof *m);
    struct fb_rand r = {.state = 1};
    struct fb_source *source;

    if (!m || !(m->pattern = fb_alloc(PATTERN_BYTES)))
        fb_bench_die("out of memory");
    for (uint32_t i = 0; i < PATTERN_BYTES; i += sizeof(uint64_t)) {
        uint64_t word = fb_rand_u64(&r);

        memcpy(m->pattern + i, &word, sizeof word);
    }
    m->file_bytes = file_bytes;
    fb_mutex_init(&m->lock, FB_RANK_SOURCE);
    fb_cond_init(&m->work);
    fb_list_init(&m->queue);
    while (m->threads < threads && m->threads < WORKERS_MAX) {
        if (fb_thread_start(&m->workers[m->threads], "bench-source", serve, m) < 0)
            fb_bench_die("cannot start a thread");
        m->threads++;
    }
    if (fb_source_create(&memory_ops, m, "memory://bench", &source) < 0)
        fb_bench_die("cannot make the source");
    return source;
}

/* ---- the cache ---- */

void fb_bench_open(struct fb_bench *b, const struct fb_cache_config *config, uint64_t file_bytes,
                   unsigned source_threads)
{
    struct fb_volume_config volume = {.metadata_ttl_ns = 3600 * FB_NS_PER_S,
                                      .timeout_ns = TIMEOUT_NS};
    struct fb_error err = {0};

    *b = (struct fb_bench){.file_bytes = file_bytes};
    if (fb_cache_open(config, &b->cache, &err) < 0 ||
        fb_volume_attach(b->cache, fb_bench_source(file_bytes, source_threads), &volume, &b->volume,
                         &err) < 0)
        fb_bench_die("%s", err.text);
}

void fb_bench_learn(struct fb_bench *b, uint32_t count)
{
    char path[FB_NAME_MAX];
    struct fb_attr attr;

    b->files = fb_alloc_array(count, sizeof *b->files);
    if (!b->files)
        fb_bench_die("out of memory");
    for (b->count = 0; b->count < count; b->count++) {
        int rc;

        fb_bench_path(b->count, path);
        file_attr(b->file_bytes, path_ino(path), &attr);
        rc = fb_cache_learn(b->volume, path, &attr, fb_cache_moment(b->volume, path),
                            &b->files[b->count]);
        if (rc < 0)
            fb_bench_die("file %u cannot be made known: %s", b->count, fb_strerror(rc));
    }
}

void fb_bench_flush(struct fb_bench *b, uint64_t items)
{
    const struct fb_metrics *m = fb_cache_metrics(b->cache);
    int64_t until_ns = fb_now_ns() + TIMEOUT_NS;
    int rc;

    while (fb_metric_get(m, FB_CM_ADMITTED) + fb_metric_get(m, FB_CM_ADMIT_DROPPED) < items) {
        if (fb_now_ns() > until_ns)
            fb_bench_die("the cache does not take in what was read");
        fb_sleep_ns(FLUSH_PAUSE_NS);
    }
    rc = fb_store_flush(fb_cache_store(b->cache));
    if (rc < 0)
        fb_bench_die("cannot make the cache durable: %s", fb_strerror(rc));
}

void fb_bench_close(struct fb_bench *b)
{
    for (uint32_t i = 0; i < b->count; i++)
        fb_files_unref(fb_cache_files(b->cache), b->files[i], 1);
    free(b->files);
    fb_volume_detach(b->volume);
    fb_cache_close(b->cache);
}

/* ---- reads at a depth ----
 *
 * A slot has one read under way. The answer may come before fb_cache_read() returns or after:
 * whichever of the two is second goes on with the slot, so that answers never nest. */

enum slot_phase {
    SLOT_SUBMITTING,
    SLOT_SUBMITTED,
    SLOT_ANSWERED,
};

struct loader {
    struct fb_bench *bench;
    uint32_t (*next)(void *arg, uint64_t n);
    void *arg;
    _Atomic uint64_t taken;
    _Atomic uint64_t finished;
    _Atomic unsigned slots; /* at work */
    struct fb_event over;
};

struct slot {
    struct loader *loader;
    _Atomic int phase;
    struct fb_read read;
};

static void slot_answered(struct fb_read *read);

static void slot_run(struct slot *slot)
{
    struct loader *l = slot->loader;

    for (;;) {
        uint64_t n = atomic_fetch_add_explicit(&l->taken, 1, memory_order_relaxed);
        uint32_t i = l->next(l->arg, n);

        if (i == FB_BENCH_END)
            break;
        slot->read.volume = l->bench->volume;
        slot->read.caller = (struct fb_caller){.pid = 1};
        slot->read.deadline_ns = 0;
        slot->read.file = l->bench->files[i];
        slot->read.offset = 0;
        slot->read.length = (uint32_t)fb_min_u64(l->bench->file_bytes, FB_READ_MAX);
        slot->read.door = 0;
        slot->read.meanwhile = NULL;
        slot->read.cancel = NULL;
        slot->read.done = slot_answered;
        slot->read.arg = slot;
        atomic_store_explicit(&slot->phase, SLOT_SUBMITTING, memory_order_relaxed);
        fb_cache_read(&slot->read);
        if (atomic_exchange_explicit(&slot->phase, SLOT_SUBMITTED, memory_order_acq_rel) !=
            SLOT_ANSWERED)
            return;
    }
    if (atomic_fetch_sub_explicit(&l->slots, 1, memory_order_acq_rel) == 1)
        fb_event_set(&l->over);
}

static void slot_answered(struct fb_read *read)
{
    struct slot *slot = read->arg;

    if (read->result < 0)
        fb_bench_die("a read failed: %s", fb_strerror(read->result));
    if (read->bytes != read->length)
        fb_bench_die("a read came back short: %u of %u bytes", read->bytes, read->length);
    fb_read_release(read);
    atomic_fetch_add_explicit(&slot->loader->finished, 1, memory_order_relaxed);
    if (atomic_exchange_explicit(&slot->phase, SLOT_ANSWERED, memory_order_acq_rel) ==
        SLOT_SUBMITTED)
        slot_run(slot);
}

uint64_t fb_bench_read(struct fb_bench *b, unsigned depth, uint32_t (*next)(void *arg, uint64_t n),
                       void *arg)
{
    struct loader l = {.bench = b, .next = next, .arg = arg, .slots = depth};
    struct slot *slots = fb_alloc_array(depth, sizeof *slots);

    if (!slots)
        fb_bench_die("out of memory");
    fb_event_init(&l.over);
    for (unsigned i = 0; i < depth; i++) {
        slots[i].loader = &l;
        slot_run(&slots[i]);
    }
    fb_event_wait(&l.over);
    free(slots);
    return atomic_load_explicit(&l.finished, memory_order_relaxed);
}

uint32_t fb_bench_each(void *arg, uint64_t n)
{
    const struct fb_bench *b = arg;

    return n < b->count ? (uint32_t)n : FB_BENCH_END;
}
