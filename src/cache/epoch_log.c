#include "cache/epoch_log.h"

#include <errno.h>
#include <stdlib.h>

#include "cache/epoch_log_priv.h"
#include "cache/epochs_priv.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

#define ROOM_SHARE   4u /* of what plans may fill: a bucket, and what waits */
#define BUCKETS_MAX  4096u
#define WAITING_MIN  64u
#define SPARE_PAGES  4u /* of a segment: header, and where records and table end */
#define BATCHES_MIN  2u
#define SPARE_SLOTS  8u
#define SPARE_PART   8u /* of the slots at most */
#define COVERS_WIDTH 3u /* half buckets */

struct bucket {
    struct fb_logged *items;
    uint32_t count;
    uint32_t room;
    uint64_t bytes; /* of records and their entries in the table */
};

/* How the next epoch of a plan is laid out. */
struct fb_layout_next {
    struct fb_epoch_log *log;
    uint64_t turns;
    uint32_t count;  /* 0: not at all */
    uint32_t spared; /* buckets that count in log->buckets */
    bool is_known;   /* for the epoch that is read now */
    bool is_told;    /* that there is too little memory */
    struct bucket *buckets;
};

/* ---- buckets ---- */

static uint64_t capacity(const struct fb_epoch_log *log)
{
    return log->segment_bytes - SPARE_PAGES * FB_DISK_PAGE;
}

static void drop_buckets(struct fb_layout_next *l)
{
    for (uint32_t b = 0; b < l->count; b++) {
        for (uint32_t i = 0; i < l->buckets[b].count; i++)
            fb_files_unref(l->log->cache->files, (uint32_t)(l->buckets[b].items[i].key >> 32), 1);
        free(l->buckets[b].items);
    }
    free(fb_steal(l->buckets));
    l->count = 0;
}

/* What waits for its bucket holds on to segments that are read already, for as long as it takes to
 * fill all buckets once: of every plan that is laid out. */
static void set_spare(struct fb_layout_next *l, uint32_t buckets)
{
    struct fb_epoch_log *log = l->log;
    uint32_t slots = fb_tier_slots(fb_store_tier(log->cache->store, log->tier));
    uint32_t spare;

    log->buckets = log->buckets - l->spared + buckets;
    l->spared = buckets;
    spare =
        (uint32_t)fb_min_u64(log->buckets ? 2 * log->buckets + SPARE_SLOTS : 0, slots / SPARE_PART);
    atomic_store_explicit(&log->spare, spare, memory_order_relaxed);
    fb_store_set_spare(log->cache->store, log->tier, spare);
}

void fb_epoch_log_forget(struct fb_planned *p)
{
    if (!p->layout)
        return;
    drop_buckets(p->layout);
    set_spare(p->layout, 0);
    free(fb_steal(p->layout));
}

uint32_t fb_epoch_log_buckets(const struct fb_planned *p)
{
    return p->layout ? p->layout->count : 0;
}

/* As many that one is a quarter of the room; none where what waits would take more than another. */
static uint32_t count_buckets(const struct fb_epoch_log *log, const struct fb_planned *p,
                              uint64_t samples)
{
    uint64_t share = fb_epochs_room(log->cache) / ROOM_SHARE;
    uint64_t count = fb_div_up(samples * fb_planned_mean_bytes(p), fb_max_u64(share, 1));

    count = fb_max_u64(count, 1);
    if (count > BUCKETS_MAX || count * log->segment_bytes / 2 > share)
        return 0;
    return (uint32_t)count;
}

/* Decides how the next epoch is laid out, once an epoch. NULL: it is not. */
static struct fb_layout_next *layout_of(struct fb_epoch_log *log, struct fb_planned *p)
{
    struct fb_layout_next *l = p->layout;
    struct fb_follow_stats stats;

    if (!l)
        l = p->layout = fb_alloc(sizeof *l);
    if (!l)
        return NULL;
    if (!l->is_known) {
        fb_follow_stats(p->follow, &stats);
        *l = (struct fb_layout_next){.log = log,
                                     .turns = stats.turns,
                                     .spared = l->spared,
                                     .is_known = true,
                                     .is_told = l->is_told,
                                     .count = count_buckets(log, p, stats.samples)};
        if (l->count > 0)
            l->buckets = fb_alloc_array(l->count, sizeof *l->buckets);
        if (l->count == 0 && !l->is_told)
            fb_log_info("the epochs of /%s are not laid out on disk: that would take more memory; "
                        "use --memory or a smaller --segment-size",
                        p->dir);
        l->is_told = l->is_told || l->count == 0;
        if (!l->buckets)
            l->count = 0;
        set_spare(l, l->count);
    }
    return l->count ? l : NULL;
}

static struct fb_log_batch *new_batch(uint32_t room)
{
    struct fb_log_batch *batch = fb_alloc(sizeof *batch + room * sizeof batch->items[0]);

    return batch;
}

/* What is about to be read again stays in DRAM. */
static void move_items(const struct fb_planned *p, struct bucket *bucket,
                       struct fb_log_batch *batch)
{
    for (uint32_t i = 0; i < bucket->count; i++) {
        struct fb_logged item = bucket->items[i];

        item.stays = fb_follow_is_due(p->follow, item.number, 0);
        batch->items[batch->count++] = item;
    }
    batch->bytes += bucket->bytes;
    bucket->count = 0;
    bucket->bytes = 0;
}

static void hand_over(struct fb_epoch_log *log, struct fb_planned *p, struct bucket *bucket)
{
    struct fb_log_batch *batch = new_batch(bucket->count);

    if (!batch) {
        for (uint32_t i = 0; i < bucket->count; i++)
            fb_files_unref(log->cache->files, (uint32_t)(bucket->items[i].key >> 32), 1);
        bucket->count = 0;
        bucket->bytes = 0;
        return;
    }
    move_items(p, bucket, batch);
    fb_epoch_log_write(log, batch);
}

static uint32_t length_of(const struct fb_cache *cache, uint64_t key)
{
    uint64_t size = fb_files_version(cache->files, (uint32_t)(key >> 32))->size;
    uint64_t at = (uint64_t)(uint32_t)key * cache->config.block_bytes;

    return (uint32_t)fb_min_u64(cache->config.block_bytes, size - fb_min_u64(at, size));
}

bool fb_epoch_log_keep(struct fb_epoch_log *log, struct fb_planned *p, uint64_t key,
                       uint32_t number)
{
    struct fb_layout_next *l = log ? layout_of(log, p) : NULL;
    struct bucket *bucket;
    uint64_t turn, size;
    size_t path_len;

    if (!l || !fb_follow_next_turn(p->follow, number, &turn))
        return false;
    (void)fb_files_path(log->cache->files, (uint32_t)(key >> 32), &path_len);
    size = fb_record_size(length_of(log->cache, key)) + fb_disk_toc_room(path_len, false);
    bucket = &l->buckets[turn * l->count / l->turns];
    if (bucket->bytes + size > capacity(log) && bucket->count > 0)
        hand_over(log, p, bucket);
    if (bucket->count == bucket->room) {
        uint32_t room = 2 * bucket->room + WAITING_MIN;
        struct fb_logged *items = reallocarray(bucket->items, room, sizeof *items);

        if (!items)
            return false;
        bucket->items = items;
        bucket->room = room;
    }
    fb_files_ref(log->cache->files, (uint32_t)(key >> 32), 1);
    bucket->items[bucket->count++] = (struct fb_logged){.key = key, .number = number};
    bucket->bytes += size;
    return true;
}

/* Rests of buckets, in their order, go into common segments. */
void fb_epoch_log_turn(struct fb_epoch_log *log, struct fb_planned *p)
{
    struct fb_layout_next *l = p->layout;
    struct bucket rest = {0};

    if (!log || !l)
        return;
    for (uint32_t b = 0; b < l->count; b++) {
        struct bucket *bucket = &l->buckets[b];
        struct fb_logged *items;

        if (rest.bytes + bucket->bytes > capacity(log) && rest.count > 0)
            hand_over(log, p, &rest);
        items = reallocarray(rest.items, rest.count + bucket->count + 1, sizeof *items);
        if (!items)
            break;
        rest.items = items;
        for (uint32_t i = 0; i < bucket->count; i++)
            rest.items[rest.count++] = bucket->items[i];
        rest.bytes += bucket->bytes;
        bucket->count = 0;
        bucket->bytes = 0;
    }
    if (rest.count > 0)
        hand_over(log, p, &rest);
    free(rest.items);
    drop_buckets(l);
    l->is_known = false;
}

/* ---- segments to be read whole ---- */

struct judging {
    const struct fb_planned *plan;
    struct fb_files *files;
    uint64_t more;
    uint32_t items;
    uint32_t due;
};

static void judge_item(void *arg, uint64_t key, uint32_t length, const struct fb_use *use)
{
    struct judging *j = arg;
    char path[FB_PATH_MAX];
    struct fb_version version;
    uint32_t number;
    size_t len;

    (void)length;
    (void)use;
    j->items++;
    j->due +=
        fb_files_peek(j->files, (uint32_t)(key >> 32), j->plan->source, path, &len, &version) &&
        fb_planned_number(j->plan, path, len, &number) &&
        fb_follow_is_due(j->plan->follow, number, j->more);
}

bool fb_epoch_log_covers(struct fb_epoch_log *log, struct fb_planned *p, uint32_t segment)
{
    const struct fb_layout_next *l = log ? layout_of(log, p) : NULL;
    struct fb_log_seen *seen;
    struct fb_segment_info info;
    struct fb_follow_stats stats;
    struct judging j;

    if (!l || segment < log->base || !fb_store_segment(log->cache->store, segment, &info))
        return false;
    fb_follow_stats(p->follow, &stats);
    seen = &log->seen[segment - log->base];
    if (seen->sequence == info.sequence && seen->epoch == stats.ahead + 1)
        return seen->covers;
    j = (struct judging){.plan = p,
                         .files = log->cache->files,
                         .more = COVERS_WIDTH * fb_div_up(stats.turns, 2ULL * l->count)};
    if (fb_store_visit(log->cache->store, segment, UINT32_MAX, judge_item, &j) < 0)
        return false;
    *seen = (struct fb_log_seen){.sequence = info.sequence,
                                 .epoch = stats.ahead + 1,
                                 .covers = j.items > 0 && 4 * (uint64_t)j.due >= 3ULL * j.items};
    /* Where too many wait already, what is due is read by itself. */
    seen->covers = seen->covers && fb_epoch_log_load(log, segment);
    return seen->covers;
}

/* ---- life ---- */

uint64_t fb_epoch_log_bytes(uint64_t segment_bytes)
{
    return (FB_EPOCH_LOG_READERS + 1) * segment_bytes;
}

/* DRAM is where items wait, and what is read goes through. */
bool fb_epoch_log_is_wanted(struct fb_cache *cache)
{
    struct fb_store_medium medium;

    fb_store_medium(cache->store, &medium);
    return cache->config.epoch_log == FB_EPOCH_LOG_ON && medium.count > 0 &&
           fb_store_tiers(cache->store) > 1 &&
           fb_tier_kind(fb_store_tier(cache->store, 0)) == FB_TIER_DRAM;
}

bool fb_cache_lays_out(const struct fb_cache *cache)
{
    return cache->epochs->log != NULL;
}

int fb_epoch_log_create(struct fb_cache *cache, int dir_fd, struct fb_epoch_log **ret_log)
{
    struct fb_epoch_log *log = fb_alloc(sizeof *log);
    struct fb_store_medium medium;
    int rc;

    if (!log)
        return -ENOMEM;
    fb_store_medium(cache->store, &medium);
    log->cache = cache;
    log->tier = fb_store_tiers(cache->store) - 1;
    log->base = medium.base;
    log->segment_bytes = medium.segment_bytes;
    log->batch_max = (unsigned)fb_max_u64(BATCHES_MIN, fb_epochs_room(cache) / ROOM_SHARE /
                                                           medium.segment_bytes);
    fb_list_init(&log->batches);
    fb_mutex_init(&log->lock, FB_RANK_EPOCH_LOG);
    fb_cond_init(&log->cond);
    fb_epoch_writes_open(&log->writes, dir_fd,
                         cache->config.epoch_log_daily_bytes ? cache->config.epoch_log_daily_bytes
                                                             : cache->config.cache_bytes,
                         fb_wall_ns());
    log->seen = fb_alloc_array(medium.slots + 1, sizeof *log->seen);
    rc = log->seen ? fb_epoch_log_start(log) : -ENOMEM;
    if (rc < 0) {
        fb_epoch_log_destroy(log);
        return rc;
    }
    *ret_log = log;
    return 0;
}

void fb_epoch_log_destroy(struct fb_epoch_log *log)
{
    if (!log)
        return;
    fb_epoch_log_stop(log);
    fb_cond_destroy(&log->cond);
    fb_mutex_destroy(&log->lock);
    free(log->seen);
    free(log);
}
