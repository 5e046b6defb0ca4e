/*
 * The engine's life between two kills: see engine_state.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "base/rand.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/mem.h"
#include "core/thread.h"
#include "engine_state.h"
#include "rig.h"

#define READERS    4
#define PUBLISH_NS FB_NS_PER_MS
#define TTL_NS     (60 * FB_NS_PER_S)

/* Prime: all files come, in an order that is not always the same, in which LRU would keep none. */
#define VERIFY_STRIDE 61u

struct worker {
    struct rig rig;
    struct engine_state *state;
    uint64_t seed;
    _Atomic unsigned next; /* file to verify */
    bool verify;
};

static struct engine_state *map_state(const char *home)
{
    char path[PATH_MAX];
    struct engine_state *state;
    FB_AUTO_CLOSE int fd = -1;

    snprintf(path, sizeof path, "%s/state", home);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        die("open %s: %s", path, fb_strerror(-errno));
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (state == MAP_FAILED)
        die("mmap: %s", fb_strerror(-errno));
    return state;
}

static void publish(struct worker *w)
{
    static const struct {
        enum engine_count count;
        enum fb_cache_metric metric;
    } cache[] = {{ENGINE_DEMOTED, FB_CM_DEMOTED},      {ENGINE_PROMOTED, FB_CM_PROMOTED},
                 {ENGINE_HITS_DRAM, FB_CM_HITS_DRAM},  {ENGINE_HITS_PMEM, FB_CM_HITS_PMEM},
                 {ENGINE_HITS_NVME, FB_CM_HITS_NVME},  {ENGINE_MISSES, FB_CM_MISSES},
                 {ENGINE_DROPPED, FB_CM_ADMIT_DROPPED}};

    static const struct {
        enum engine_count count;
        enum fb_store_metric metric;
    } store[] = {{ENGINE_RECOVERED, FB_SM_RECOVERED},
                 {ENGINE_DAMAGED_ITEMS, FB_SM_DAMAGED},
                 {ENGINE_DAMAGED_SEGMENTS, FB_SM_DAMAGED_SEGMENTS},
                 {ENGINE_SEALED, FB_SM_SEALED},
                 {ENGINE_EVICTED, FB_SM_EVICTED}};
    struct fb_metrics *cm = fb_cache_metrics(w->rig.cache);
    struct fb_metrics *sm = fb_store_metrics(fb_cache_store(w->rig.cache));

    for (unsigned i = 0; i < FB_ARRAY_SIZE(cache); i++)
        atomic_store_explicit(&w->state->count[cache[i].count], fb_metric_get(cm, cache[i].metric),
                              memory_order_relaxed);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(store); i++)
        atomic_store_explicit(&w->state->count[store[i].count], fb_metric_get(sm, store[i].metric),
                              memory_order_relaxed);
}

static void expect(struct worker *w, unsigned file, int rc, uint32_t version)
{
    if (rc < 0)
        die("file %u: %s", file, fb_strerror(rc));
    if (version != w->state->version[file])
        die("file %u: version %u, but the source has %u", file, version, w->state->version[file]);
    atomic_fetch_add_explicit(&w->state->count[ENGINE_VERIFIED], 1, memory_order_relaxed);
}

static void read_some(struct worker *w, struct fb_rand *dice, void *buffer)
{
    /* Squaring prefers low numbers: some files are read often enough to be worth keeping. */
    double skew = fb_rand_unit(dice);
    unsigned file = (unsigned)(skew * skew * w->state->files);
    uint64_t size = dataset_size(file, w->state->version[file]);
    uint32_t version;
    int rc;

    if (size < RIG_READ_BYTES || fb_rand_below(dice, 4) == 0)
        rc = rig_read_whole(&w->rig, file, buffer, &version);
    else
        rc = rig_read(&w->rig, file, fb_rand_below(dice, size),
                      (uint32_t)fb_rand_below(dice, RIG_READ_BYTES), buffer, &version);
    expect(w, file, rc, version);
}

static void *reader(void *arg)
{
    struct worker *w = arg;
    struct fb_rand dice = {.state = w->seed + fb_thread_index() * 7919};
    FB_AUTO_FREE void *buffer = fb_alloc(RIG_READ_BYTES);
    uint32_t version;

    if (!buffer)
        die("no memory");
    while (!w->verify)
        read_some(w, &dice, buffer);
    for (;;) {
        unsigned step = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed);
        unsigned file = (unsigned)((step * VERIFY_STRIDE + w->seed) % w->state->files);
        int rc;

        if (step >= w->state->files)
            return NULL;
        rc = rig_read_whole(&w->rig, file, buffer, &version);
        expect(w, file, rc, version);
    }
}

static void work(struct worker *w)
{
    pthread_t threads[READERS];

    for (unsigned i = 0; i < READERS; i++)
        if (fb_thread_start(&threads[i], "reader", reader, w) < 0)
            die("cannot start a thread");
    while (!w->verify) {
        fb_sleep_ns(PUBLISH_NS);
        publish(w);
    }
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    struct dataset set = {.files = ENGINE_FILES};
    struct rig_config config = {.set = &set, .metadata_ttl_ns = TTL_NS};
    struct worker w = {0};
    char source[PATH_MAX], evicted[DATASET_NAME_MAX];

    if (argc != 4)
        die("usage: %s HOME load|verify SEED", argv[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(source, sizeof source, "%s/source", argv[1]);
    set.root = source;
    w.verify = strcmp(argv[2], "verify") == 0;
    w.seed = strtoull(argv[3], NULL, 10);
    w.state = map_state(argv[1]);
    config.home = argv[1];
    config.evict = w.seed % 2 ? "lru" : "fifo";
    config.engine = w.seed % 3 ? FB_ENGINE_AUTO : FB_ENGINE_THREADS;
    rig_open(&w.rig, &config);
    publish(&w);
    atomic_store_explicit(&w.state->count[ENGINE_READY], 1, memory_order_release);
    work(&w);
    publish(&w);
    /* Leaves a note on disk that must not come back to life, nor harm when damaged. */
    fb_cache_evict(w.rig.volume, dataset_name((unsigned)(w.seed % w.state->files), evicted));
    rig_close(&w.rig);
    munmap(w.state, sizeof *w.state);
    return 0;
}
