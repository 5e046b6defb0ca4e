/*
 * Life of a cache and of the volumes attached to it.
 *
 * Building order: buffers and engine, store (which recovers what the media hold), policies, rings,
 * the background thread; closing runs it backwards. A volume may be detached while its source
 * hangs: the source ends every job it still owes, and detach waits only for our own callbacks to
 * return.
 */
#include "cache/cache.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/cache_priv.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

static const struct fb_metric_info metric_infos[] = {FB_CACHE_METRICS(FB_METRIC_INFO)};

#define ENGINE_DEPTH     128
#define SAVE_PATIENCE_NS (20 * FB_NS_PER_S)
/* Smaller caches are not worth the measuring. */
#define MEASURED_MIN  (4ULL << 30)
#define MEASURE_BYTES (32ULL << 20)
/* From here on deep queues of reads at random cost less than a data set written every epoch. */
#define RANDOM_GOOD 0.6
/* Logs, plans, journals and the measuring of the disk need a part of the budget, too. */
#define NVME_FILL_MAX 0.95

void fb_cache_config_defaults(struct fb_cache_config *config)
{
    *config = (struct fb_cache_config){
        .memory_bytes = 1ULL << 30,
        .nvme_fill = 0.8,
        .pmem_fill = 1.0,
        .dram_fill = 1.0,
        .free_space_ratio = 0.1,
        .block_bytes = 256u << 10,
        .max_fetches = 64,
        .engine = FB_ENGINE_AUTO,
        .evict = "learned",
    };
}

static int check_config(const struct fb_cache_config *c, struct fb_error *err)
{
    if (c->block_bytes < FB_BLOCK_MIN || c->block_bytes > FB_BLOCK_MAX || c->block_bytes % 4096)
        return fb_error_set(err, -EINVAL, "block size %u: use a multiple of 4K between 64K and 8M",
                            c->block_bytes);
    if (c->segment_bytes % 4096 || c->segment_bytes > FB_SEGMENT_SIZE_MAX)
        return fb_error_set(err, -EINVAL, "segment size: use a multiple of 4K of at most 1G");
    if (!fb_evict_find(c->evict))
        return fb_error_set(err, -EINVAL, "there is no eviction policy '%s'; choose one of %s",
                            c->evict, FB_EVICT_NAMES);
    if (c->cache_bytes && c->cache_dir_count == 0)
        return fb_error_set(err, -EINVAL, "a cache size is given but no cache directory");
    if (c->max_fetches == 0)
        return fb_error_set(err, -EINVAL, "max-fetches must be at least 1");
    return 0;
}

/* From fast to slow; a tier that has no bytes is left out. */
static void plan_tiers(struct fb_cache *cache, struct fb_store_config *s)
{
    const struct fb_cache_config *c = &cache->config;
    const struct fb_budget *b = &cache->budget;

    if (b->dram_bytes)
        s->tiers[s->tier_count++] = (struct fb_tier_config){.kind = FB_TIER_DRAM,
                                                            .budget_bytes = b->dram_bytes,
                                                            .fill = c->dram_fill,
                                                            .segment_bytes = b->dram_segment_bytes,
                                                            .huge_pages = 1};
    if (c->pmem_bytes)
        s->tiers[s->tier_count++] = (struct fb_tier_config){.kind = FB_TIER_PMEM,
                                                            .budget_bytes = c->pmem_bytes,
                                                            .fill = c->pmem_fill,
                                                            .free_space_ratio = c->free_space_ratio,
                                                            .segment_bytes = b->pmem_segment_bytes,
                                                            .dir_count = 1,
                                                            .dirs = {c->pmem_dir},
                                                            .staging = 4,
                                                            .engine = cache->engine};
    if (c->cache_bytes) {
        struct fb_tier_config *t = &s->tiers[s->tier_count++];

        *t = (struct fb_tier_config){.kind = FB_TIER_NVME,
                                     .budget_bytes = c->cache_bytes,
                                     .fill = fmin(c->nvme_fill, NVME_FILL_MAX),
                                     .free_space_ratio = c->free_space_ratio,
                                     .segment_bytes = b->nvme_segment_bytes,
                                     .dir_count = c->cache_dir_count,
                                     .staging = b->nvme_staging,
                                     .engine = cache->engine,
                                     .timeout_ns = c->cache_timeout_ns};
        memcpy(t->dirs, c->cache_dirs, sizeof t->dirs);
    }
}

static int open_parts(struct fb_cache *cache, struct fb_error *err)
{
    uint32_t buffer_bytes = fb_store_buffer_bytes(cache->config.block_bytes);
    struct fb_store_config s = {.block_bytes = cache->config.block_bytes,
                                .max_items = cache->budget.max_items,
                                .files_bytes = cache->budget.files_bytes};
    int rc, logged;

    rc = fb_buffer_pool_create(cache->budget.fetch_buffers, buffer_bytes, &cache->fetch_pool);
    if (rc == 0)
        rc = fb_buffer_pool_create(cache->budget.medium_buffers, buffer_bytes, &cache->medium_pool);
    if (rc < 0)
        return fb_error_set(err, rc, "cannot set up buffers: %s", fb_strerror(rc));
    plan_tiers(cache, &s);
    rc = fb_store_open(&s, &cache->store, err);
    if (rc < 0)
        return rc;
    cache->files = fb_store_files(cache->store);
    rc = fb_place_open(cache);
    for (unsigned i = 0; i < FB_ACCESS_RINGS && rc == 0; i++) {
        cache->rings[i] = aligned_alloc(
            FB_CACHELINE, fb_align_up(fb_access_ring_bytes(FB_ACCESS_SLOTS), FB_CACHELINE));
        if (!cache->rings[i]) {
            rc = -ENOMEM;
            break;
        }
        fb_access_ring_init(cache->rings[i], FB_ACCESS_SLOTS);
        fb_access_reader_init(&cache->readers[i], cache->rings[i], FB_ACCESS_SLOTS);
    }
    if (rc == 0)
        rc = fb_dirs_create(cache, &cache->dirs);
    if (rc == 0)
        rc = fb_bring_create(cache, &cache->bring);
    if (rc == 0)
        rc = fb_near_create(cache, &cache->near);
    if (rc == 0)
        rc = fb_orders_create(&cache->orders);
    if (rc == 0)
        rc = fb_exchange_create(cache, &cache->exchange);
    if (rc == 0)
        rc = fb_steer_create(cache, &cache->steer);
    if (rc == 0 && !cache->config.no_watch)
        rc = fb_fill_create(cache, &cache->fill);
    if (rc == 0)
        rc = fb_epochs_create(cache, &cache->epochs);
    if (rc == 0)
        rc = fb_learn_create(cache, cache->evict->learns, &cache->learn);
    if (rc == 0 && cache->config.access_log &&
        (logged = fb_learn_log(cache->learn, cache->config.access_log, err)) < 0)
        return logged;
    if (rc == 0 && !cache->config.no_watch && !cache->config.no_prefetch)
        rc = fb_raise_create(cache, &cache->raise);
    if (rc == 0 && !cache->config.no_watch)
        rc = fb_learn_start(cache->learn);
    if (rc == 0)
        rc = fb_watch_start(cache);
    return rc < 0 ? fb_error_set(err, rc, "cannot start the cache: %s", fb_strerror(rc)) : 0;
}

/* Turns FB_EPOCH_LOG_AUTO into what the disks say: one that is bad at random reads is enough, as
 * items are spread over all. A disk that cannot be measured is taken for a good one. */
static int choose_log(struct fb_cache *cache, struct fb_error *err)
{
    struct fb_cache_config *c = &cache->config;
    bool slow = false;
    unsigned lanes = (unsigned)fb_max_u64(1, c->cache_dir_count);
    int rc = fb_engine_create(c->engine, 0, ENGINE_DEPTH, lanes, &cache->engine);

    if (rc < 0)
        return fb_error_set(err, rc, "cannot start the I/O engine: %s", fb_strerror(rc));
    for (unsigned i = 0; i < c->cache_dir_count && c->cache_bytes >= MEASURED_MIN; i++) {
        struct fb_disk_speed *s = &cache->speeds[i];

        if (fb_disk_speed(cache->engine, c->cache_dirs[i], MEASURE_BYTES, c->free_space_ratio, s) ==
            0)
            slow = slow || (double)s->random < RANDOM_GOOD * (double)s->sequential;
    }
    if (c->epoch_log == FB_EPOCH_LOG_AUTO)
        c->epoch_log = slow ? FB_EPOCH_LOG_ON : FB_EPOCH_LOG_OFF;
    return 0;
}

bool fb_cache_disk_speed(const struct fb_cache *cache, unsigned dir,
                         struct fb_disk_speed *ret_speed)
{
    *ret_speed = cache->speeds[dir];
    return ret_speed->sequential > 0;
}

int fb_cache_open(const struct fb_cache_config *config, struct fb_cache **ret_cache,
                  struct fb_error *err)
{
    struct fb_cache *cache;
    int rc = check_config(config, err);

    if (rc < 0)
        return rc;
    cache = fb_alloc(sizeof *cache);
    if (!cache)
        return fb_error_set(err, -ENOMEM, "out of memory");
    cache->config = *config;
    cache->evict = fb_evict_find(config->evict);
    fb_metrics_init(&cache->metrics, metric_infos, FB_ARRAY_SIZE(metric_infos));
    fb_mutex_init(&cache->fetch_lock, FB_RANK_FETCH);
    fb_mutex_init(&cache->meta_lock, FB_RANK_META);
    fb_mutex_init(&cache->hook_lock, FB_RANK_HOOK);
    fb_list_init(&cache->waiting);
    fb_list_init(&cache->volumes);
    for (unsigned i = 0; i < FB_FETCH_BUCKETS; i++)
        fb_list_init(&cache->fetches[i]);
    for (unsigned i = 0; i < FB_LOOKUP_BUCKETS; i++)
        fb_list_init(&cache->lookups[i]);
    rc = choose_log(cache, err);
    if (rc == 0)
        rc = fb_budget_plan(&cache->config, &cache->budget, err);
    if (rc == 0)
        rc = open_parts(cache, err);
    if (rc < 0) {
        fb_cache_close(cache);
        return rc;
    }
    *ret_cache = cache;
    return 0;
}

void fb_cache_close(struct fb_cache *cache)
{
    if (!cache)
        return;
    fb_watch_stop(cache);
    fb_learn_stop(cache->learn);
    fb_raise_destroy(cache->raise); /* it asks for fills */
    fb_fill_destroy(cache->fill);
    fb_epochs_stop(cache->epochs);
    if (cache->store && cache->rings[FB_ACCESS_RINGS - 1])
        fb_place_save(cache, fb_now_ns() + SAVE_PATIENCE_NS);
    fb_store_close(cache->store, false);
    fb_place_close(cache);
    fb_learn_destroy(cache->learn);
    fb_steer_destroy(cache->steer);
    fb_epochs_destroy(cache->epochs);
    fb_orders_destroy(cache->orders);
    fb_exchange_destroy(cache->exchange);
    fb_bring_destroy(cache->bring);
    fb_near_destroy(cache->near);
    fb_dirs_destroy(cache->dirs);
    for (unsigned i = 0; i < FB_ACCESS_RINGS; i++)
        free(cache->rings[i]);
    fb_engine_destroy(cache->engine); /* it may have memory of the pools yet */
    fb_buffer_pool_destroy(cache->medium_pool);
    fb_buffer_pool_destroy(cache->fetch_pool);
    fb_mutex_destroy(&cache->meta_lock);
    fb_mutex_destroy(&cache->hook_lock);
    fb_mutex_destroy(&cache->fetch_lock);
    free(cache);
}

struct fb_store *fb_cache_store(struct fb_cache *cache)
{
    return cache->store;
}

struct fb_files *fb_cache_files(struct fb_cache *cache)
{
    return cache->files;
}

struct fb_dirs *fb_cache_dirs(struct fb_cache *cache)
{
    return cache->dirs;
}

struct fb_metrics *fb_cache_metrics(struct fb_cache *cache)
{
    return &cache->metrics;
}

/* Relaxed, all three: a limit; a few more do no harm. */
void fb_cache_door_take(struct fb_cache *cache, uint64_t bytes)
{
    atomic_fetch_add_explicit(&cache->door_bytes, bytes, memory_order_relaxed);
}

void fb_cache_door_give(struct fb_cache *cache, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&cache->door_bytes, bytes, memory_order_relaxed);
}

bool fb_cache_door_full(struct fb_cache *cache)
{
    return atomic_load_explicit(&cache->door_bytes, memory_order_relaxed) >=
           cache->budget.door_bytes;
}

unsigned fb_cache_clients_max(const struct fb_cache *cache)
{
    return cache->budget.clients;
}

/* As if the cache had answered them: those are reads of doors as well. */
void fb_cache_count_client_hits(struct fb_cache *cache, enum fb_tier_kind tier, uint64_t reads,
                                uint64_t bytes)
{
    fb_metric_add(&cache->metrics, FB_CM_READS, reads);
    fb_metric_add(&cache->metrics, FB_CM_READ_BYTES, bytes);
    fb_metric_add(&cache->metrics, FB_CM_HITS_DRAM + 2 * (unsigned)tier, reads);
    fb_metric_add(&cache->metrics, FB_CM_HIT_BYTES_DRAM + 2 * (unsigned)tier, bytes);
}

/* ---- volumes ---- */

/* All volumes of a source believe a record for the shortest of their TTLs. Under fetch_lock. */
static void share_ttl(struct fb_cache *cache, uint16_t source)
{
    struct fb_list *it, *tmp;
    int64_t shortest = INT64_MAX;

    FB_LIST_FOREACH (it, tmp, &cache->volumes) {
        struct fb_volume *v = FB_LIST_ENTRY(it, struct fb_volume, link);

        if (v->id == source && v->config.metadata_ttl_ns < shortest)
            shortest = v->config.metadata_ttl_ns;
    }
    FB_LIST_FOREACH (it, tmp, &cache->volumes) {
        struct fb_volume *v = FB_LIST_ENTRY(it, struct fb_volume, link);

        if (v->id == source)
            atomic_store_explicit(&v->ttl_ns, shortest, memory_order_relaxed);
    }
}

static void shorten(void *arg, uint32_t file)
{
    struct fb_volume *volume = arg;
    struct fb_files *files = volume->cache->files;
    int64_t most = fb_now_ns() + volume->config.metadata_ttl_ns;

    if (fb_files_valid_until(files, file) > most)
        fb_files_set_valid_until(files, file, most);
    fb_files_unref(files, file, 1);
}

void fb_volumes_retired(struct fb_cache *cache, uint16_t source, uint32_t file)
{
    struct fb_volume *told[FB_VOLUMES_MAX];
    struct fb_list *it, *tmp;
    unsigned count = 0;

    fb_mutex_lock(&cache->fetch_lock);
    FB_LIST_FOREACH (it, tmp, &cache->volumes) {
        struct fb_volume *v = FB_LIST_ENTRY(it, struct fb_volume, link);

        if (v->id == source && v->config.retired && count < FB_VOLUMES_MAX) {
            v->busy++;
            told[count++] = v;
        }
    }
    fb_mutex_unlock(&cache->fetch_lock);
    for (unsigned i = 0; i < count; i++) {
        told[i]->config.retired(told[i]->config.arg, file);
        fb_volume_leave(told[i]);
    }
}

int fb_volume_attach(struct fb_cache *cache, struct fb_source *source,
                     const struct fb_volume_config *config, struct fb_volume **ret_volume,
                     struct fb_error *err)
{
    struct fb_volume *volume = fb_alloc(sizeof *volume);
    int rc =
        volume ? fb_store_source_id(cache->store, fb_source_uri(source), &volume->id) : -ENOMEM;

    if (rc == 0) {
        /* A source that hangs keeps its buffers: half of them at the most. */
        volume->account = fb_buffer_account_open(
            cache->fetch_pool,
            (uint32_t)fb_max_u64(cache->budget.fetch_buffers / 2, FB_READ_PIECES));
        rc = volume->account ? 0 : -EMFILE;
    }
    if (rc < 0) {
        fb_source_close(source);
        free(volume);
        return fb_error_set(err, rc, "cannot attach the source: %s", fb_strerror(rc));
    }
    volume->cache = cache;
    volume->source = source;
    volume->config = *config;
    fb_list_init(&volume->pending);
    fb_list_init(&volume->parked);
    fb_list_init(&volume->alone);
    fb_cond_init(&volume->idle);
    fb_mutex_lock(&cache->fetch_lock);
    fb_list_push_back(&cache->volumes, &volume->link);
    share_ttl(cache, volume->id);
    fb_mutex_unlock(&cache->fetch_lock);
    fb_epochs_attached(cache->epochs);
    /* What another mount of this source, or one before, believes for longer than we do. */
    fb_files_visit(cache->files, volume->id, "", shorten, volume);
    *ret_volume = volume;
    return 0;
}

void fb_volume_enter(struct fb_volume *volume)
{
    fb_mutex_lock(&volume->cache->fetch_lock);
    volume->busy++;
    fb_mutex_unlock(&volume->cache->fetch_lock);
}

void fb_volume_leave(struct fb_volume *volume)
{
    struct fb_cache *cache = volume->cache;

    fb_mutex_lock(&cache->fetch_lock);
    if (--volume->busy == 0)
        fb_cond_broadcast(&volume->idle);
    fb_mutex_unlock(&cache->fetch_lock);
}

bool fb_volume_hold(struct fb_volume *volume)
{
    bool held;

    fb_mutex_lock(&volume->cache->fetch_lock);
    held = !volume->leaving;
    volume->holds += held;
    fb_mutex_unlock(&volume->cache->fetch_lock);
    return held;
}

unsigned fb_volume_running(struct fb_volume *volume)
{
    unsigned running;

    fb_mutex_lock(&volume->cache->fetch_lock);
    running = volume->running;
    fb_mutex_unlock(&volume->cache->fetch_lock);
    return running;
}

struct fb_volume *fb_volume_hold_any(struct fb_cache *cache, uint16_t source)
{
    struct fb_volume *found = NULL;
    struct fb_list *it, *tmp;

    fb_mutex_lock(&cache->fetch_lock);
    FB_LIST_FOREACH (it, tmp, &cache->volumes) {
        struct fb_volume *volume = FB_LIST_ENTRY(it, struct fb_volume, link);

        if (!found && volume->id == source && !volume->leaving && !volume->config.bypass)
            found = volume;
    }
    if (found)
        found->holds++;
    fb_mutex_unlock(&cache->fetch_lock);
    return found;
}

void fb_volume_let_go(struct fb_volume *volume)
{
    struct fb_cache *cache = volume->cache;

    fb_mutex_lock(&cache->fetch_lock);
    if (--volume->holds == 0)
        fb_cond_broadcast(&volume->idle);
    fb_mutex_unlock(&cache->fetch_lock);
}

void fb_volume_detach(struct fb_volume *volume)
{
    struct fb_cache *cache;

    if (!volume)
        return;
    cache = volume->cache;
    fb_mutex_lock(&cache->fetch_lock);
    volume->leaving = true;
    /* Not for long: they look. */
    while (volume->holds > 0)
        fb_cond_wait(&volume->idle, &cache->fetch_lock, FB_NEVER_NS);
    fb_mutex_unlock(&cache->fetch_lock);
    fb_source_close(volume->source); /* every job it owed us has been answered now */
    fb_fetch_unpark(cache, volume, INT64_MAX);
    fb_mutex_lock(&cache->fetch_lock);
    while (volume->busy > 0 || volume->running > 0)
        fb_cond_wait(&volume->idle, &cache->fetch_lock, FB_NEVER_NS);
    fb_list_remove(&volume->link);
    share_ttl(cache, volume->id);
    fb_mutex_unlock(&cache->fetch_lock);
    fb_buffer_account_close(cache->fetch_pool, volume->account);
    fb_cond_destroy(&volume->idle);
    free(volume);
}

struct fb_source *fb_volume_source(struct fb_volume *volume)
{
    return volume->source;
}

struct fb_cache *fb_volume_cache(struct fb_volume *volume)
{
    return volume->cache;
}

uint16_t fb_volume_id(const struct fb_volume *volume)
{
    return volume->id;
}

int64_t fb_volume_timeout_ns(const struct fb_volume *volume)
{
    return volume->config.timeout_ns;
}

/* ---- evicting by hand ---- */

struct eviction {
    struct fb_volume *volume;
    uint64_t files;
};

static void evict_one(void *arg, uint32_t file)
{
    struct eviction *eviction = arg;
    struct fb_volume *volume = eviction->volume;
    struct fb_cache *cache = volume->cache;
    struct fb_attr attr;

    fb_files_attr(cache->files, file, &attr);
    if (S_ISREG(attr.mode))
        eviction->files++;
    fb_store_forget(cache->store, file);
    fb_files_doubt(cache->files, file);
    fb_volumes_retired(cache, volume->id, file);
    fb_files_unref(cache->files, file, 1);
}

uint64_t fb_cache_evict(struct fb_volume *volume, const char *path)
{
    struct fb_cache *cache = volume->cache;
    struct eviction eviction = {.volume = volume};
    int rc;

    /* First: what is being read or looked up must not come in behind us. */
    atomic_fetch_add(&cache->evictions, 1);
    fb_meta_forgetting(volume, NULL);
    (void)fb_files_visit(cache->files, volume->id, path, evict_one, &eviction);
    rc = fb_store_hide(cache->store, volume->id, path);
    if (rc < 0)
        fb_log_warn("%s is evicted, but may be back after a restart: %s", path, fb_strerror(rc));
    return eviction.files;
}
