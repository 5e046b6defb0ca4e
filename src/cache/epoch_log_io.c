/*
 * The epoch log's threads. Who reads has memory for one segment, and two of them keep the disk busy
 * while one copies. Who writes fills a segment with one batch, and waits for the disk.
 */
#include <errno.h>
#include <stdlib.h>

#include "cache/epoch_log_priv.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"

#define SLOTS_LOW   4u
#define COMPACT_MAX 8u /* segments, for one that is written */

/* ---- reading ---- */

struct loaded {
    struct fb_cache *cache;
    uint64_t bytes;
};

static void promote(void *arg, const struct fb_item *item)
{
    struct loaded *l = arg;

    (void)fb_place_promote(l->cache, item);
    l->bytes += item->length;
}

static void load(struct fb_epoch_log *log, uint32_t segment, uint8_t *memory)
{
    struct fb_cache *cache = log->cache;
    struct loaded l = {.cache = cache};
    uint64_t want = log->segment_bytes + 2 * cache->budget.dram_segment_bytes;

    if (fb_place_dram_free(cache) < want)
        fb_place_clear(cache, want, NULL, NULL);
    if (fb_store_load(cache->store, segment, memory, promote, &l) < 0)
        return; /* its readers fetch what they need themselves */
    fb_metric_add(&cache->metrics, FB_CM_LOG_LOADS, 1);
    fb_metric_add(&cache->metrics, FB_CM_LOG_LOAD_BYTES, l.bytes);
}

static void *load_run(void *arg)
{
    struct fb_epoch_log *log = arg;
    uint8_t *memory = aligned_alloc(FB_IO_ALIGN, log->segment_bytes);

    fb_mutex_lock(&log->lock);
    while (!log->stop && memory) {
        uint32_t segment;

        if (log->load_count == 0) {
            fb_cond_wait(&log->cond, &log->lock, FB_NEVER_NS);
            continue;
        }
        segment = log->loads[log->load_first];
        log->load_first = (log->load_first + 1) % FB_EPOCH_LOG_LOADS;
        log->load_count--;
        fb_mutex_unlock(&log->lock);
        load(log, segment, memory);
        fb_mutex_lock(&log->lock);
    }
    fb_mutex_unlock(&log->lock);
    free(memory);
    return NULL;
}

bool fb_epoch_log_load(struct fb_epoch_log *log, uint32_t segment)
{
    bool taken;

    fb_mutex_lock(&log->lock);
    taken = log->load_count < FB_EPOCH_LOG_LOADS;
    if (taken) {
        log->loads[(log->load_first + log->load_count) % FB_EPOCH_LOG_LOADS] = segment;
        log->load_count++;
        fb_cond_broadcast(&log->cond);
    }
    fb_mutex_unlock(&log->lock);
    return taken;
}

/* ---- writing ---- */

void fb_epoch_log_leave(struct fb_cache *cache, struct fb_log_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        if (!batch->items[i].stays)
            fb_place_leave(cache, batch->items[i].key, 0, 0);
        fb_files_unref(cache->files, (uint32_t)(batch->items[i].key >> 32), 1);
    }
    fb_metric_add(&cache->metrics, FB_CM_LOG_LEFT, batch->count);
    free(batch);
}

static void write_item(struct fb_epoch_log *log, const struct fb_logged *item)
{
    struct fb_cache *cache = log->cache;
    uint64_t evictions = atomic_load(&cache->evictions);
    uint32_t bytes = 0;

    if (fb_place_relocate(cache, item->key, evictions, &bytes) == 0) {
        fb_metric_add(&cache->metrics, FB_CM_LOG_ITEMS, 1);
        fb_metric_add(&cache->metrics, FB_CM_LOG_BYTES, bytes);
        if (!item->stays)
            fb_store_drop_dram(cache->store, item->key);
    } else {
        fb_metric_add(&cache->metrics, FB_CM_LOG_LEFT, 1);
        if (!item->stays)
            fb_place_leave(cache, item->key, 0, 0);
    }
    fb_files_unref(cache->files, (uint32_t)(item->key >> 32), 1);
}

/* Layouts that are half taken over leave segments half empty. What is new finds room only as long
 * as there is more than the spare, and would push out what is needed. */
static void make_room(struct fb_epoch_log *log, uint8_t *memory)
{
    struct fb_tier *tier = fb_store_tier(log->cache->store, log->tier);
    uint32_t want = atomic_load_explicit(&log->spare, memory_order_relaxed) + SLOTS_LOW;

    for (unsigned i = 0; i < COMPACT_MAX && fb_tier_free(tier) < want; i++) {
        uint64_t bytes = fb_place_compact(log->cache, memory);

        fb_metric_add(&log->cache->metrics, FB_CM_LOG_MOVED, bytes);
        if (bytes == 0 || !fb_epoch_writes_take(&log->writes, bytes, fb_wall_ns()))
            break;
    }
}

static void write_batch(struct fb_epoch_log *log, struct fb_log_batch *batch, uint8_t *memory)
{
    if (!fb_epoch_writes_take(&log->writes, batch->bytes, fb_wall_ns())) {
        if (fb_log_limited(&log->refused_ns))
            fb_log_info("the epoch log has written what it may today: the next epoch is read from "
                        "where it lies; see --epoch-log-writes");
        fb_epoch_log_leave(log->cache, batch);
        return;
    }
    make_room(log, memory);
    for (uint32_t i = 0; i < batch->count; i++)
        write_item(log, &batch->items[i]);
    fb_store_end_segment(log->cache->store, log->tier, FB_STORE_PLAN);
    fb_metric_add(&log->cache->metrics, FB_CM_LOG_SEGMENTS, 1);
    free(batch);
}

static void *write_run(void *arg)
{
    struct fb_epoch_log *log = arg;
    uint8_t *memory = aligned_alloc(FB_IO_ALIGN, log->segment_bytes);

    fb_mutex_lock(&log->lock);
    while (!log->stop && memory) {
        struct fb_log_batch *batch;

        if (fb_list_empty(&log->batches)) {
            fb_cond_wait(&log->cond, &log->lock, FB_NEVER_NS);
            continue;
        }
        batch = FB_LIST_ENTRY(log->batches.next, struct fb_log_batch, link);
        fb_list_remove(&batch->link);
        log->batch_count--;
        fb_mutex_unlock(&log->lock);
        write_batch(log, batch, memory);
        fb_mutex_lock(&log->lock);
    }
    fb_mutex_unlock(&log->lock);
    free(memory);
    return NULL;
}

void fb_epoch_log_write(struct fb_epoch_log *log, struct fb_log_batch *batch)
{
    bool taken;

    fb_mutex_lock(&log->lock);
    taken = log->batch_count < log->batch_max;
    if (taken) {
        fb_list_push_back(&log->batches, &batch->link);
        log->batch_count++;
        fb_cond_broadcast(&log->cond);
    }
    fb_mutex_unlock(&log->lock);
    if (!taken)
        fb_epoch_log_leave(log->cache, batch);
}

/* ---- life ---- */

int fb_epoch_log_start(struct fb_epoch_log *log)
{
    int rc = 0;

    for (unsigned i = 0; i <= FB_EPOCH_LOG_READERS && rc == 0; i++) {
        rc = fb_thread_start(&log->threads[i], i == 0 ? "fb-log-write" : "fb-log-read",
                             i == 0 ? write_run : load_run, log);
        log->thread_count += rc == 0;
    }
    return rc;
}

void fb_epoch_log_stop(struct fb_epoch_log *log)
{
    struct fb_list *it, *tmp;

    fb_mutex_lock(&log->lock);
    log->stop = true;
    fb_cond_broadcast(&log->cond);
    fb_mutex_unlock(&log->lock);
    for (unsigned i = 0; i < log->thread_count; i++)
        pthread_join(log->threads[i], NULL);
    FB_LIST_FOREACH (it, tmp, &log->batches)
        fb_epoch_log_leave(log->cache, FB_LIST_ENTRY(it, struct fb_log_batch, link));
}
