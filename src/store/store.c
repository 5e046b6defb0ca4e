/*
 * Opening, closing, and the small questions; see store_priv.h for the other files of the store.
 */
#include "store/store.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/mem.h"
#include "store/store_priv.h"
#include "store/tables.h"

#define FLUSH_PATIENCE_NS (60 * FB_NS_PER_S)

static const struct fb_metric_info metric_infos[] = {FB_STORE_METRICS(FB_METRIC_INFO)};

/* ---- what the index tells (under its lock) ---- */

static void on_location(void *arg, uint64_t loc, uint32_t length, int delta)
{
    struct fb_store *store = arg;
    struct fb_segment *seg = &store->segments[fb_loc_segment(loc)];
    uint32_t size = (uint32_t)fb_record_size(length);

    if (delta > 0) {
        atomic_fetch_add_explicit(&seg->live_items, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&seg->live_bytes, size, memory_order_relaxed);
    } else {
        atomic_fetch_sub_explicit(&seg->live_items, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&seg->live_bytes, size, memory_order_relaxed);
    }
}

static void on_entry(void *arg, uint64_t key, int delta)
{
    fb_files_items_add(((struct fb_store *)arg)->files, (uint32_t)(key >> 32), delta);
}

static void on_hold(void *arg, uint64_t key)
{
    fb_files_ref(((struct fb_store *)arg)->files, (uint32_t)(key >> 32), 1);
}

/* ---- opening ---- */

static struct fb_tables_shape shape_of(const struct fb_store_config *config)
{
    struct fb_tables_shape shape = {.items = config->max_items,
                                    .files_bytes = config->files_bytes,
                                    .block_bytes = config->block_bytes};

    for (unsigned i = 0; i < config->tier_count; i++)
        shape.segments += config->tiers[i].budget_bytes / config->tiers[i].segment_bytes;
    return shape;
}

uint64_t fb_store_tables_bytes(const struct fb_store_config *config)
{
    struct fb_tables_shape shape = shape_of(config);

    return fb_tables_bytes(&shape);
}

static int check_config(const struct fb_store_config *config, struct fb_error *err)
{
    bool seen[FB_TIER_NVME + 1] = {false};

    if (config->tier_count == 0 || config->tier_count > FB_TIERS_MAX || config->block_bytes == 0 ||
        config->block_bytes >= 1u << 24)
        return fb_error_set(err, -EINVAL, "a store needs one to three tiers, and blocks below 16M");
    for (unsigned i = 0; i < config->tier_count; i++) {
        const struct fb_tier_config *t = &config->tiers[i];

        if (seen[t->kind] || t->segment_bytes > FB_SEGMENT_SIZE_MAX ||
            t->segment_bytes % FB_DISK_PAGE != 0)
            return fb_error_set(
                err, -EINVAL, "tiers are of different kinds, segments a multiple of 4K, up to 1G");
        seen[t->kind] = true;
    }
    return 0;
}

static int open_tier(struct fb_store *store, unsigned i, const struct fb_tier_config *config,
                     struct fb_error *err)
{
    struct fb_store_tier *t = &store->tiers[i];
    int rc = fb_tier_open(config, &t->tier, err);

    if (rc < 0)
        return rc;
    t->slots = fb_tier_slots(t->tier);
    t->segment_bytes = fb_tier_segment_bytes(t->tier);
    t->which = fb_tier_persistent(t->tier) ? 1 : 0;
    t->first_offset = t->which == 1 ? FB_DISK_DATA_OFFSET : 0;
    if (!fb_segment_fits_empty(t, fb_record_size(store->block_bytes), FB_PATH_MAX - 1))
        return fb_error_set(err, -EINVAL, "segments of %llu bytes are too small for blocks of %u",
                            (unsigned long long)t->segment_bytes, store->block_bytes);
    return 0;
}

/* DRAM's segments have the first numbers, since clients find them by number in the DRAM memfd. */
static int number_segments(struct fb_store *store)
{
    uint64_t count = 0;

    for (unsigned which = 0; which < 2; which++)
        for (unsigned i = 0; i < store->tier_count; i++) {
            if (store->tiers[i].which != which)
                continue;
            store->tiers[i].base = (uint32_t)count;
            count += store->tiers[i].slots;
        }
    if (count >= FB_SEGMENT_MAX)
        return -EINVAL;
    store->segment_count = (uint32_t)count;
    store->segments = fb_alloc_array(count + 1, sizeof *store->segments);
    if (store->segments == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i < store->tier_count; i++) {
        struct fb_store_tier *t = &store->tiers[i];

        t->segments = store->segments + t->base;
        for (uint32_t slot = 0; slot < t->slots; slot++) {
            t->segments[slot].no = t->base + slot;
            t->segments[slot].tier = (uint8_t)i;
        }
    }
    return 0;
}

static int make_tables(struct fb_store *store, const struct fb_store_config *config)
{
    struct fb_index_watch watch = {
        .location = on_location, .entry = on_entry, .hold = on_hold, .arg = store};
    struct fb_tables_shape shape = shape_of(config);
    const uint8_t *dram = NULL;
    int rc;

    shape.segments = store->segment_count;
    for (unsigned i = 0; i < store->tier_count; i++)
        if (store->tiers[i].which == 0) {
            dram = fb_tier_map(store->tiers[i].tier);
            shape.dram_segments = store->tiers[i].slots;
            shape.dram_segment_bytes = store->tiers[i].segment_bytes;
        }
    rc = fb_tables_create(&shape, &store->layout, &store->tables_memfd);
    if (rc < 0)
        return rc;
    store->layout.dram = dram;
    store->dram_segment_bytes = shape.dram_segment_bytes;
    for (uint32_t no = 0; no < store->segment_count; no++)
        fb_layout_segment(&store->layout, no)->tier = store->segments[no].tier;
    rc = fb_files_create(&store->layout, &store->files);
    return rc < 0 ? rc : fb_index_create(&store->layout, &watch, &store->index);
}

static int open_notes(struct fb_store *store)
{
    int dir_fd = -1, rc;

    for (unsigned i = store->tier_count; i-- > 0;)
        if (store->tiers[i].which == 1)
            dir_fd = fb_tier_dir_fd(store->tiers[i].tier);
    rc = fb_sources_open(dir_fd, &store->sources);
    return rc < 0 ? rc : fb_evictions_open(dir_fd, &store->evictions);
}

int fb_store_open(const struct fb_store_config *config, struct fb_store **ret_store,
                  struct fb_error *err)
{
    struct fb_store *store;
    int rc = check_config(config, err);

    if (rc < 0)
        return rc;
    store = fb_alloc(sizeof *store);
    if (store == NULL)
        return -ENOMEM;
    store->tables_memfd = -1;
    store->block_bytes = config->block_bytes;
    fb_metrics_init(&store->metrics, metric_infos, FB_ARRAY_SIZE(metric_infos));
    fb_mutex_init(&store->writes_lock, FB_RANK_SEGMENT);
    fb_mutex_init(&store->guard_lock, FB_RANK_GUARD);
    fb_cond_init(&store->writes_cond);
    fb_mutex_init(&store->evictions_lock, FB_RANK_SEGMENT);
    for (; rc == 0 && store->tier_count < config->tier_count; store->tier_count++) {
        struct fb_store_tier *t = &store->tiers[store->tier_count];

        fb_mutex_init(&t->lock, FB_RANK_SEGMENT);
        fb_cond_init(&t->cond);
        rc = open_tier(store, store->tier_count, &config->tiers[store->tier_count], err);
    }
    if (rc == 0)
        rc = number_segments(store);
    if (rc == 0)
        rc = make_tables(store, config);
    if (rc == 0)
        rc = open_notes(store);
    if (rc == 0)
        rc = fb_store_recover(store, err);
    if (rc < 0) {
        fb_store_close(store, true);
        return fb_error_set(err, rc, "the cache's store cannot be opened: %s", fb_strerror(rc));
    }
    *ret_store = store;
    return 0;
}

/* ---- closing ---- */

/* False: the time is up. */
static bool wait_sealed(struct fb_store_tier *t, int64_t until_ns)
{
    bool in_time = true;

    fb_mutex_lock(&t->lock);
    while (t->unsealed > 0 && in_time)
        in_time = fb_cond_wait(&t->cond, &t->lock, until_ns);
    in_time = t->unsealed == 0;
    fb_mutex_unlock(&t->lock);
    return in_time;
}

static uint64_t failures_of(struct fb_store *store)
{
    uint64_t failures = 0;

    for (unsigned i = 0; i < store->tier_count; i++) {
        fb_mutex_lock(&store->tiers[i].lock);
        failures += store->tiers[i].failures;
        fb_mutex_unlock(&store->tiers[i].lock);
    }
    return failures;
}

int fb_store_flush(struct fb_store *store)
{
    int64_t until_ns = fb_now_ns() + FLUSH_PATIENCE_NS;
    uint64_t failures = failures_of(store);

    for (unsigned i = 0; i < store->tier_count; i++)
        fb_segment_close_open(store, &store->tiers[i]);
    for (unsigned i = 0; i < store->tier_count; i++)
        if (!wait_sealed(&store->tiers[i], until_ns))
            return -ETIMEDOUT;
    return failures_of(store) == failures ? 0 : -EIO;
}

void fb_store_close(struct fb_store *store, bool abandon)
{
    if (store == NULL)
        return;
    /* Release: whoever sees it reads nothing later than what is there now. */
    if (store->layout.base != NULL)
        atomic_store_explicit(&fb_layout_live(&store->layout)->closed, 1, memory_order_release);
    for (unsigned i = 0; i < store->tier_count; i++) {
        struct fb_store_tier *t = &store->tiers[i];

        if (!abandon)
            fb_segment_close_open(store, t);
        /* Without a limit: what is being written belongs to the kernel until it says so. */
        (void)wait_sealed(t, FB_NEVER_NS);
    }
    for (uint32_t no = 0; store->segments != NULL && no < store->segment_count; no++) {
        free(store->segments[no].keys);
        free(store->segments[no].building);
    }
    for (unsigned i = 0; i < store->tier_count; i++) {
        fb_tier_close(store->tiers[i].tier);
        fb_mutex_destroy(&store->tiers[i].lock);
        fb_cond_destroy(&store->tiers[i].cond);
    }
    fb_sources_close(store->sources);
    fb_evictions_close(store->evictions);
    fb_index_destroy(store->index);
    fb_files_destroy(store->files);
    fb_tables_destroy(&store->layout, store->tables_memfd);
    fb_mutex_destroy(&store->writes_lock);
    fb_mutex_destroy(&store->guard_lock);
    fb_cond_destroy(&store->writes_cond);
    fb_mutex_destroy(&store->evictions_lock);
    free(store->segments);
    free(store);
}

/* ---- questions ---- */

struct fb_files *fb_store_files(struct fb_store *store)
{
    return store->files;
}

struct fb_metrics *fb_store_metrics(struct fb_store *store)
{
    return &store->metrics;
}

const struct fb_layout *fb_store_layout(const struct fb_store *store)
{
    return &store->layout;
}

int fb_store_tables_memfd(const struct fb_store *store)
{
    return store->tables_memfd;
}

int fb_store_dram_memfd(const struct fb_store *store)
{
    return store->layout.h.dram_segments > 0 ? fb_tier_memfd(store->tiers[0].tier) : -1;
}

void fb_store_set_guard(struct fb_store *store, fb_store_held_fn *held, void *arg)
{
    fb_mutex_lock(&store->guard_lock);
    store->held = held;
    store->held_arg = arg;
    fb_mutex_unlock(&store->guard_lock);
}

static struct fb_store_tier *medium_of(struct fb_store *store)
{
    struct fb_store_tier *last = &store->tiers[store->tier_count - 1];

    return fb_tier_kind(last->tier) == FB_TIER_NVME ? last : NULL;
}

void fb_store_medium(struct fb_store *store, struct fb_store_medium *ret_medium)
{
    const struct fb_store_tier *t = medium_of(store);

    *ret_medium = (struct fb_store_medium){0};
    if (!t)
        return;
    ret_medium->base = t->base;
    ret_medium->slots = t->slots;
    ret_medium->segment_bytes = t->segment_bytes;
    ret_medium->count = fb_tier_fds(t->tier, ret_medium->fds);
}

/* What is read from a slow tier gets a copy in DRAM while there is room: only we can make it. And a
 * disk that hangs is given up on here. */
static bool wants_to_be_asked(struct fb_store *store)
{
    struct fb_store_tier *t = medium_of(store);

    return (store->tiers[0].which == 0 && fb_store_has_room(store, 0)) ||
           (t && fb_tier_stuck(t->tier));
}

void fb_store_beat(struct fb_store *store)
{
    /* Relaxed: clients only compare it with their clock. */
    atomic_store_explicit(&fb_layout_live(&store->layout)->beat_ns, fb_now_ns(),
                          memory_order_relaxed);
    atomic_store_explicit(&fb_layout_live(&store->layout)->ask, wants_to_be_asked(store),
                          memory_order_relaxed);
    if (!atomic_exchange(&store->held_some, false))
        return;
    for (uint32_t no = 0; no < store->layout.h.dram_segments; no++)
        fb_segment_settle(store, &store->segments[no]);
}

unsigned fb_store_tiers(const struct fb_store *store)
{
    return store->tier_count;
}

struct fb_tier *fb_store_tier(struct fb_store *store, unsigned tier)
{
    return store->tiers[tier].tier;
}

void fb_store_wait_writes(struct fb_store *store, int64_t until_ns)
{
    uint64_t done;

    fb_mutex_lock(&store->writes_lock);
    done = store->writes_done;
    while (store->writes_done == done && store->memory_lent > 0 &&
           fb_cond_wait(&store->writes_cond, &store->writes_lock, until_ns))
        continue;
    fb_mutex_unlock(&store->writes_lock);
}

static void describe(const struct fb_store_tier *t, struct fb_segment *seg,
                     struct fb_segment_info *ret)
{
    *ret = (struct fb_segment_info){
        .no = seg->no,
        .items = seg->items,
        .live_items = atomic_load_explicit(&seg->live_items, memory_order_relaxed),
        .live_bytes = atomic_load_explicit(&seg->live_bytes, memory_order_relaxed),
        .used_bytes = seg->used,
        .hits = atomic_load_explicit(&seg->hits, memory_order_relaxed),
        .sequence = seg->sequence,
        .opened_ns = seg->opened_ns,
        .last_access_ns = atomic_load_explicit(&seg->last_access_ns, memory_order_relaxed),
        .pinned = atomic_load_explicit(&seg->pins, memory_order_relaxed) != 0 ||
                  fb_tier_is_out(t->tier, seg->no - t->base),
        .lane = fb_segment_lane(seg),
    };
}

uint32_t fb_store_sealed(struct fb_store *store, unsigned tier, struct fb_segment_info *ret_infos,
                         uint32_t max)
{
    struct fb_store_tier *t = &store->tiers[tier];
    uint32_t count = 0;

    fb_mutex_lock(&t->lock);
    for (uint32_t slot = 0; slot < t->slots && count < max; slot++) {
        if (t->segments[slot].state != FB_SEGMENT_SEALED)
            continue;
        describe(t, &t->segments[slot], &ret_infos[count]);
        ret_infos[count++].used_bytes -= t->first_offset;
    }
    fb_mutex_unlock(&t->lock);
    return count;
}

bool fb_store_segment(struct fb_store *store, uint32_t segment, struct fb_segment_info *ret_info)
{
    struct fb_segment *seg = &store->segments[segment];
    struct fb_store_tier *t = fb_segment_tier(store, seg);
    bool sealed;

    FB_ASSERT(segment < store->segment_count);
    fb_mutex_lock(&t->lock);
    sealed = seg->state == FB_SEGMENT_SEALED;
    if (sealed) {
        describe(t, seg, ret_info);
        ret_info->used_bytes -= t->first_offset;
    }
    fb_mutex_unlock(&t->lock);
    return sealed;
}

void fb_store_tier_stats(struct fb_store *store, unsigned tier, struct fb_tier_stats *ret_stats)
{
    struct fb_store_tier *t = &store->tiers[tier];
    struct fb_tier_stats s = {.name = fb_tier_name(t->tier),
                              .slots = t->slots,
                              .is_short = fb_tier_is_short(t->tier),
                              .budget_bytes = t->slots * t->segment_bytes};

    fb_mutex_lock(&t->lock);
    for (uint32_t slot = 0; slot < t->slots; slot++) {
        struct fb_segment_info info;

        if (t->segments[slot].state == FB_SEGMENT_FREE)
            continue;
        describe(t, &t->segments[slot], &info);
        s.segments++;
        s.used_bytes += info.used_bytes - t->first_offset;
        s.live_bytes += info.live_bytes;
        s.items += info.live_items;
    }
    fb_mutex_unlock(&t->lock);
    *ret_stats = s;
}

void fb_store_touch(struct fb_store *store, uint64_t key, uint64_t loc, int64_t now_ns,
                    const struct fb_use *use)
{
    struct fb_segment *seg;
    struct fb_found found;

    if (use)
        fb_index_use(store->index, key, use);
    else
        fb_index_touch(store->index, key, fb_store_now_s(now_ns));
    if (loc == FB_LOC_NONE && fb_layout_find(&store->layout, key, &found))
        loc = found.loc[0] != FB_LOC_NONE ? found.loc[0] : found.loc[1];
    if (!fb_layout_loc_good(&store->layout, loc))
        return;
    seg = &store->segments[fb_loc_segment(loc)];
    atomic_fetch_add_explicit(&seg->hits, 1, memory_order_relaxed);
    atomic_store_explicit(&seg->last_access_ns, now_ns, memory_order_relaxed);
}

bool fb_store_use(struct fb_store *store, uint64_t key, struct fb_use *ret_use)
{
    struct fb_index_entry e;

    if (!fb_index_get(store->index, key, &e))
        return false;
    *ret_use = e.use;
    return true;
}

uint64_t fb_store_items(const struct fb_store *store)
{
    return fb_index_count(store->index);
}

int fb_store_source_id(struct fb_store *store, const char *uri, uint16_t *ret_id)
{
    return fb_sources_id(store->sources, uri, ret_id);
}

int fb_store_hide(struct fb_store *store, uint16_t source, const char *path)
{
    int rc;

    fb_mutex_lock(&store->evictions_lock);
    rc = fb_evictions_add(store->evictions, atomic_load(&store->last_sequence), source, path);
    fb_mutex_unlock(&store->evictions_lock);
    return rc;
}
