/*
 * A batch of files to warm, some at a time: each worker takes the next one.
 */
#include "daemon/warm.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "core/mem.h"
#include "core/thread.h"
#include "daemon/paths.h"
#include "daemon/wire.h"

#define WORKERS_MAX 16u
#define BATCH_MAX   1024u

struct batch {
    struct fb_volume *volume;
    const char *root; /* what the paths begin with */
    char **paths;
    size_t count;
    bool check;
    _Atomic size_t next;
    _Atomic uint64_t bytes, cached_bytes, fetched_bytes, failed;
    _Atomic int error; /* of the first that failed */
};

static void warm_one(struct batch *b, const char *path)
{
    const char *below = path + (strcmp(b->root, "/") == 0 ? 0 : strlen(b->root));
    struct fb_warm warm;
    int none = 0, rc;

    below += strspn(below, "/");
    rc = fb_cache_warm(b->volume, below, b->check, &warm);
    /* Relaxed: sums; the join orders them. */
    atomic_fetch_add_explicit(&b->bytes, warm.bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&b->cached_bytes, warm.cached_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&b->fetched_bytes, warm.fetched_bytes, memory_order_relaxed);
    if (rc < 0) {
        atomic_fetch_add_explicit(&b->failed, 1, memory_order_relaxed);
        atomic_compare_exchange_strong(&b->error, &none, rc);
    }
}

static void *work(void *arg)
{
    struct batch *b = arg;
    size_t i;

    while ((i = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed)) < b->count)
        warm_one(b, b->paths[i]);
    return NULL;
}

static void run(struct batch *b)
{
    pthread_t workers[WORKERS_MAX];
    unsigned started = 0;

    while (started + 1 < WORKERS_MAX && started + 1 < b->count &&
           fb_thread_start(&workers[started], "fb-warm", work, b) == 0)
        started++;
    work(b);
    for (unsigned i = 0; i < started; i++)
        pthread_join(workers[i], NULL);
}

static json_t *result(const struct batch *b)
{
    int error = atomic_load(&b->error);

    return json_pack(
        "{s:b, s:I, s:I, s:I, s:I, s:s*}", "ok", 1, "bytes", (json_int_t)atomic_load(&b->bytes),
        "cached_bytes", (json_int_t)atomic_load(&b->cached_bytes), "fetched_bytes",
        (json_int_t)atomic_load(&b->fetched_bytes), "failed", (json_int_t)atomic_load(&b->failed),
        "error", error ? fb_strerror(error) : NULL);
}

json_t *fb_warm_batch(struct fb_volume *volume, const char *root, const json_t *request)
{
    const json_t *list = json_object_get(request, "paths");
    struct batch b = {
        .volume = volume, .root = root, .check = json_is_true(json_object_get(request, "check"))};
    size_t count = json_array_size(list);
    json_t *reply = NULL;
    bool good = count > 0 && count <= BATCH_MAX;

    b.paths = good ? fb_alloc_array(count, sizeof *b.paths) : NULL;
    for (; b.paths && good && b.count < count; b.count++)
        good = fb_wire_path_text(json_array_get(list, b.count), &b.paths[b.count]) == 0 &&
               fb_path_below(root, b.paths[b.count]);
    if (!b.paths || !good) {
        reply = fb_wire_error(FB_WIRE_INVALID, "paths must be a list of at most %u paths below %s",
                              BATCH_MAX, root);
    } else {
        run(&b);
        reply = result(&b);
    }
    for (size_t i = 0; b.paths && i < b.count; i++)
        free(b.paths[i]);
    free(b.paths);
    return reply;
}
