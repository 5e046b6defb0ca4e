/*
 * A batch of files to warm, some at a time: each worker takes the next one.
 *
 * Whoever warms holds the mount, and a batch may be a file of any size from a source of any speed:
 * so it ends after a while, says how far each file is, and is asked again from there. That keeps
 * nobody waiting who unmounts or ends the daemon.
 */
#include "daemon/warm.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "core/thread.h"
#include "daemon/paths.h"
#include "daemon/wire.h"

#define WORKERS_MAX 16u
#define BATCH_MAX   1024u
#define SLICE_NS    (5 * FB_NS_PER_S)
#define OVER        (-1)

struct batch {
    struct fb_volume *volume;
    const char *root; /* what the paths begin with */
    char **paths;
    int64_t *places; /* how far each is; OVER: done, or failed */
    size_t count;
    bool check;
    int64_t until_ns;
    _Atomic size_t next;
    _Atomic uint64_t bytes, cached_bytes, fetched_bytes, failed, unfinished;
    _Atomic int error; /* of the first that failed */
};

static void warm_one(struct batch *b, size_t i)
{
    const char *path = b->paths[i];
    const char *below = path + (strcmp(b->root, "/") == 0 ? 0 : strlen(b->root));
    struct fb_warm warm = {.place = (uint64_t)b->places[i], .until_ns = b->until_ns};
    int none = 0, rc;

    below += strspn(below, "/");
    rc = fb_cache_warm(b->volume, below, b->check, &warm);
    b->places[i] = rc == -EINPROGRESS ? (int64_t)warm.place : OVER;
    /* Relaxed: sums; the join orders them. */
    atomic_fetch_add_explicit(&b->bytes, warm.bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&b->cached_bytes, warm.cached_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&b->fetched_bytes, warm.fetched_bytes, memory_order_relaxed);
    if (rc == -EINPROGRESS) {
        atomic_fetch_add_explicit(&b->unfinished, 1, memory_order_relaxed);
    } else if (rc < 0) {
        atomic_fetch_add_explicit(&b->failed, 1, memory_order_relaxed);
        atomic_compare_exchange_strong(&b->error, &none, rc);
    }
}

static void *work(void *arg)
{
    struct batch *b = arg;
    size_t i;

    while ((i = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed)) < b->count)
        if (b->places[i] != OVER) {
            if (fb_now_ns() < b->until_ns)
                warm_one(b, i);
            else
                atomic_fetch_add_explicit(&b->unfinished, 1, memory_order_relaxed);
        }
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

/* Of a batch that is not over: how far each file is. */
static json_t *places(const struct batch *b)
{
    json_t *list = json_array();

    for (size_t i = 0; list && i < b->count; i++)
        json_array_append_new(list, json_integer(b->places[i]));
    return list;
}

static json_t *result(const struct batch *b)
{
    int error = atomic_load(&b->error);

    return json_pack("{s:b, s:I, s:I, s:I, s:I, s:s*, s:o*}", "ok", 1, "bytes",
                     (json_int_t)atomic_load(&b->bytes), "cached_bytes",
                     (json_int_t)atomic_load(&b->cached_bytes), "fetched_bytes",
                     (json_int_t)atomic_load(&b->fetched_bytes), "failed",
                     (json_int_t)atomic_load(&b->failed), "error",
                     error ? fb_strerror(error) : NULL, "places",
                     atomic_load(&b->unfinished) ? places(b) : NULL);
}

json_t *fb_warm_batch(struct fb_volume *volume, const char *root, const json_t *request)
{
    const json_t *list = json_object_get(request, "paths");
    const json_t *from = json_object_get(request, "places");
    struct batch b = {
        .volume = volume, .root = root, .check = json_is_true(json_object_get(request, "check"))};
    size_t count = json_array_size(list);
    json_t *reply = NULL;
    bool good = count > 0 && count <= BATCH_MAX;

    b.paths = good ? fb_alloc_array(count, sizeof *b.paths) : NULL;
    b.places = good ? fb_alloc_array(count, sizeof *b.places) : NULL;
    b.until_ns = fb_now_ns() + SLICE_NS;
    for (; b.paths && b.places && good && b.count < count; b.count++) {
        good = fb_wire_path_text(json_array_get(list, b.count), &b.paths[b.count]) == 0 &&
               fb_path_below(root, b.paths[b.count]);
        b.places[b.count] = json_integer_value(json_array_get(from, b.count));
        good = good && b.places[b.count] >= OVER;
    }
    if (!b.paths || !b.places || !good) {
        reply = fb_wire_error(FB_WIRE_INVALID, "paths must be a list of at most %u paths below %s",
                              BATCH_MAX, root);
    } else {
        run(&b);
        reply = result(&b);
    }
    for (size_t i = 0; b.paths && i < b.count; i++)
        free(b.paths[i]);
    free(b.paths);
    free(b.places);
    return reply;
}
