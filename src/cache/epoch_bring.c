/*
 * Files on their way into DRAM: look-up, then early reads, many files at a time.
 *
 *     next file of the plan ─► look-up ─► read ─► read ... ─► done
 *                                 └─ all of it is in DRAM already ─┘
 *
 * Where a source is far its attributes are a trip of their own, and take no buffer: they are asked
 * for further ahead, FB_PLAN_LOOKS files at most.
 *
 * A look-up is answered from memory while the record is valid, and makes it valid for the reader
 * where it is not. What a disk has is copied into DRAM by the read path, when there is room: so
 * room is made first, here, where nobody waits. Depth: half of the buffers that reads of media, or
 * fetches of one source, have; the other half is for those who are in a hurry.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cache/epochs_priv.h"
#include "core/clock.h"
#include "core/mem.h"

#define WINDOW_NS      FB_NS_PER_S
#define WINDOW_MIN     (32ULL << 20)
#define RATE_NS        (50 * FB_NS_PER_MS)
#define RATE_KEPT      0.9 /* of it, each RATE_NS, when readers slow down */
#define DEPTH_MAX      128u
#define DEPTH_MIN      2u
#define FILE_BYTES     (100u << 10) /* a guess, until some have come */
#define FILE_BYTES_MAX (64u << 20)  /* of a file that is brought */
#define SPARE_SEGMENTS 2
#define GIVE_SHARE     16 /* of DRAM: so much beyond what may be kept, copies go */
#define WAY_SHARE      8  /* of DRAM: what is kept leaves so much as the way through, at least, */
#define COPY_SHARE     4  /* and a wide way so much to copies */

/* One file on its way. */
struct bringing {
    struct fb_epochs *epochs;
    struct fb_planned *plan;
    struct fb_volume *volume; /* entered */
    bool is_fetch;
    bool is_look;    /* its attributes alone */
    bool is_covered; /* the epoch log reads its segment */
    uint32_t file;
    uint64_t at, size;
    struct fb_lookup lookup;
    struct fb_read read;
    char path[FB_PATH_MAX];
};

bool fb_planned_path(const struct fb_planned *p, uint32_t file, char path[FB_PATH_MAX])
{
    char name[FB_NAMES_PATH_SIZE];
    size_t len = fb_names_path(p->names, file, name);

    if (p->dir_len + len + 2 > FB_PATH_MAX)
        return false;
    if (p->dir_len == 0) {
        memcpy(path, name, len + 1);
        return true;
    }
    memcpy(path, p->dir, p->dir_len);
    path[p->dir_len] = '/';
    memcpy(path + p->dir_len + 1, name, len + 1);
    return true;
}

bool fb_planned_number(const struct fb_planned *p, const char *path, size_t len,
                       uint32_t *ret_number)
{
    if (p->dir_len > 0) {
        if (len <= p->dir_len || memcmp(path, p->dir, p->dir_len) != 0 || path[p->dir_len] != '/')
            return false;
        path += p->dir_len + 1;
        len -= p->dir_len + 1;
    }
    return fb_names_find(p->names, path, len, ret_number);
}

/* ---- one file ---- */

static unsigned depth_of(const struct fb_epochs *e, const struct fb_volume *volume, bool is_fetch)
{
    const struct fb_cache *cache = e->cache;
    uint64_t depth = is_fetch ? fb_min_u64(volume->account->limit / 2, cache->config.max_fetches)
                              : cache->budget.medium_buffers / 2;

    return (unsigned)fb_max_u64(DEPTH_MIN, fb_min_u64(depth, DEPTH_MAX));
}

static void finish(struct bringing *b)
{
    struct fb_epochs *e = b->epochs;
    struct fb_planned *p = b->plan;
    struct fb_volume *volume = b->volume;
    unsigned left, half = depth_of(e, volume, b->is_fetch) / 2;

    if (b->file != FB_FILE_NONE)
        fb_files_unref(e->cache->files, b->file, 1);
    fb_metric_add(&e->cache->metrics, FB_CM_PLAN_BROUGHT, !b->is_look);
    fb_metric_add(&e->cache->metrics, FB_CM_PLAN_BROUGHT_BYTES, b->at);
    if (b->size > 0) {
        atomic_fetch_add_explicit(&p->brought_files, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&p->brought_bytes, b->size, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&p->fetching, b->is_fetch, memory_order_relaxed);
    atomic_fetch_sub_explicit(&p->looking, b->is_look, memory_order_relaxed);
    free(b);
    fb_mutex_lock(&e->lock);
    /* Under the lock: once it is 0 the plan may go. Release pairs with the acquire in under_way(),
     * which sees its parts no larger than it. */
    left = atomic_fetch_sub_explicit(&p->in_flight, 1, memory_order_release) - 1;
    if (left <= half && !e->woken) {
        e->woken = true;
        fb_cond_signal(&e->cond);
    }
    fb_mutex_unlock(&e->lock);
    fb_volume_leave(volume);
}

static bool is_in_dram(struct fb_cache *cache, uint32_t file, uint64_t size)
{
    uint64_t block_bytes = cache->config.block_bytes;
    struct fb_whereabouts where;

    for (uint64_t at = 0; at < size; at += block_bytes) {
        fb_store_where(cache->store, fb_item_key(file, (uint32_t)(at / block_bytes)), &where);
        if (!where.in_dram)
            return false;
    }
    return true;
}

static void read_on(struct bringing *b);

static void read_done(struct fb_read *read)
{
    struct bringing *b = read->arg;
    bool failed = read->result < 0 || read->bytes == 0;

    b->at += read->bytes;
    fb_read_release(read);
    if (failed)
        finish(b);
    else
        read_on(b);
}

static void read_on(struct bringing *b)
{
    if (b->at >= b->size) {
        finish(b);
        return;
    }
    b->read = (struct fb_read){
        .volume = b->volume,
        .file = b->file,
        .offset = b->at,
        .length = (uint32_t)fb_min_u64(FB_READ_MAX, b->size - b->at),
        .early = true,
        .soon = true,
        .done = read_done,
        .arg = b,
    };
    fb_read_submit(&b->read);
}

static void looked_up(struct fb_lookup *lookup)
{
    struct bringing *b = lookup->arg;

    if (lookup->result < 0) {
        finish(b);
        return;
    }
    b->file = lookup->file;
    b->size = fb_min_u64(lookup->attr.version.size, FILE_BYTES_MAX);
    if (b->is_look || !S_ISREG(lookup->attr.mode) || b->is_covered ||
        is_in_dram(b->epochs->cache, b->file, lookup->attr.version.size))
        finish(b);
    else
        read_on(b);
}

static struct bringing *new_bringing(struct fb_epochs *e, struct fb_planned *p,
                                     struct fb_volume *volume, uint32_t file)
{
    struct bringing *b = malloc(sizeof *b);

    if (!b)
        return NULL;
    b->epochs = e;
    b->plan = p;
    b->volume = volume;
    b->is_fetch = b->is_look = b->is_covered = false;
    b->file = FB_FILE_NONE;
    b->at = b->size = 0;
    if (!fb_planned_path(p, file, b->path))
        free(fb_steal(b));
    return b;
}

static void submit(struct bringing *b)
{
    struct fb_planned *p = b->plan;

    fb_volume_enter(b->volume);
    atomic_fetch_add_explicit(&p->in_flight, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->fetching, b->is_fetch, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->looking, b->is_look, memory_order_relaxed);
    b->lookup =
        (struct fb_lookup){.volume = b->volume, .path = b->path, .done = looked_up, .arg = b};
    fb_cache_lookup(&b->lookup);
}

/* How many files are under way of the kind that this one is. */
static unsigned under_way(const struct fb_planned *p, bool is_fetch)
{
    /* The whole first, which its parts never exceed: they end meanwhile, and begin on this
     * thread. */
    unsigned all = atomic_load_explicit(&p->in_flight, memory_order_acquire);
    unsigned fetching = atomic_load_explicit(&p->fetching, memory_order_relaxed);
    unsigned looking = atomic_load_explicit(&p->looking, memory_order_relaxed);

    return is_fetch ? fetching : all - fetching - looking;
}

/* False: not now. */
static bool begin(struct fb_epochs *e, struct fb_planned *p, struct fb_volume *volume,
                  uint32_t file)
{
    struct fb_cache *cache = e->cache;
    struct fb_whereabouts where = {0};
    struct bringing *b = new_bringing(e, p, volume, file);
    uint32_t known;

    if (!b)
        return true; /* its reader will fetch it */
    known = fb_files_find(cache->files, p->source, b->path);
    if (known) {
        fb_store_where(cache->store, fb_item_key(known, 0), &where);
        fb_files_unref(cache->files, known, 1);
    }
    b->is_fetch = !where.in_dram && !where.below;
    if (under_way(p, b->is_fetch) >= depth_of(e, volume, b->is_fetch)) {
        free(b);
        return false;
    }
    b->is_covered = where.below && !where.in_dram && fb_epoch_log_covers(e->log, p, where.segment);
    submit(b);
    return true;
}

/* ---- attributes ---- */

static void look(struct fb_epochs *e, struct fb_planned *p, struct fb_volume *volume, uint32_t file)
{
    struct fb_files *files = e->cache->files;
    struct bringing *b = new_bringing(e, p, volume, file);
    uint32_t known = b ? fb_files_find(files, p->source, b->path) : FB_FILE_NONE;
    bool is_valid = known && fb_files_valid_until(files, known) > fb_now_ns();

    if (known)
        fb_files_unref(files, known, 1);
    if (is_valid)
        free(fb_steal(b));
    if (!b)
        return;
    b->is_look = true;
    submit(b);
}

/* Takes the next files from the plan: one that waits to be begun, or many where a source is far. */
static void look_ahead(struct fb_epochs *e, struct fb_planned *p, struct fb_volume *volume,
                       uint64_t window)
{
    bool is_far = fb_pipe_is_far(e->cache, p->source);
    unsigned most = is_far ? (unsigned)fb_min_u64(FB_PLAN_LOOKS, e->cache->config.max_fetches) : 1;
    struct fb_follow_stats stats;
    uint32_t file;

    fb_follow_stats(p->follow, &stats);
    for (; stats.unread < window && p->file_count < most; stats.unread++) {
        if (!fb_follow_next(p->follow, &file))
            return;
        p->files[(p->file_first + p->file_count++) % FB_PLAN_LOOKS] = file;
        if (is_far)
            look(e, p, volume, file);
    }
}

/* ---- how far ---- */

uint64_t fb_planned_mean_bytes(const struct fb_planned *p)
{
    uint64_t files = atomic_load_explicit(&p->brought_files, memory_order_relaxed);
    uint64_t bytes = atomic_load_explicit(&p->brought_bytes, memory_order_relaxed);

    return fb_max_u64(1, (bytes + FILE_BYTES) / (files + 1));
}

uint64_t fb_epochs_room(const struct fb_cache *cache)
{
    return cache->budget.dram_bytes / (fb_store_tiers(cache->store) > 1 ? 2 : 4);
}

static uint64_t way_bytes(const struct fb_cache *cache)
{
    return fb_max_u64(cache->budget.dram_bytes / WAY_SHARE,
                      2ULL * SPARE_SEGMENTS * cache->budget.dram_segment_bytes);
}

/* Readers side by side come to be a batch or two apart, and what waits for the last of them must
 * not keep out what the first one wants: many need a wide way. It is worth copies, which spare the
 * disk, not what spares the source. */
static uint64_t wide_way_bytes(const struct fb_cache *cache, const struct fb_planned *p)
{
    uint64_t dram = cache->budget.dram_bytes;
    struct fb_follow_stats stats;

    fb_follow_stats(p->follow, &stats);
    return fb_max_u64(way_bytes(cache),
                      fb_min_u64(stats.apart * fb_planned_mean_bytes(p), dram - dram / COPY_SHARE));
}

/* What stays takes nothing from others, nor all of the way through. */
static uint64_t keepable(struct fb_epochs *e, const struct fb_planned *p, uint64_t unread,
                         uint64_t way)
{
    struct fb_cache *cache = e->cache;
    uint64_t dram = cache->budget.dram_bytes;
    uint64_t used = dram - fb_min_u64(fb_place_dram_free(cache), dram);
    uint64_t ours = fb_place_kept(cache) + unread * fb_planned_mean_bytes(p);

    if (fb_epoch_log_buckets(p) > 0)
        way = fb_max_u64(way, fb_epochs_room(cache));
    return dram - fb_min_u64(dram, way + used - fb_min_u64(used, ours));
}

/* What DRAM has beside what is kept there, by other plans perhaps. */
static uint64_t left_bytes(const struct fb_epochs *e)
{
    const struct fb_cache *cache = e->cache;
    uint64_t dram = cache->budget.dram_bytes;
    uint64_t kept = fb_place_kept(e->cache) + SPARE_SEGMENTS * cache->budget.dram_segment_bytes;

    return fb_max_u64(dram / WAY_SHARE, dram - fb_min_u64(kept, dram));
}

/* What is to be free, for files under way. */
static uint64_t free_bytes(const struct fb_epochs *e, const struct fb_planned *p)
{
    const struct fb_cache *cache = e->cache;
    uint64_t most = fb_min_u64(fb_epochs_room(cache), left_bytes(e)) / 2;

    return fb_min_u64(most, fb_planned_mean_bytes(p) * DEPTH_MAX +
                                SPARE_SEGMENTS * cache->budget.dram_segment_bytes);
}

/* What free_bytes() may be, and what is free beside it as segments are emptied one by one. */
uint64_t fb_epochs_way(const struct fb_cache *cache)
{
    return fb_epochs_are_followed(cache->epochs)
               ? fb_epochs_room(cache) / 2 + SPARE_SEGMENTS * cache->budget.dram_segment_bytes
               : 0;
}

/* Most that may wait for its readers. With what is kept and what is to be free it fits into DRAM:
 * else room would be made for what comes later by what is wanted next. */
static uint64_t ahead_bytes(const struct fb_epochs *e, const struct fb_planned *p)
{
    uint64_t most = fb_max_u64(fb_epochs_room(e->cache), wide_way_bytes(e->cache, p));

    return fb_min_u64(most, left_bytes(e) - free_bytes(e, p));
}

static void set_rate(struct fb_planned *p, int64_t now_ns)
{
    double seen;

    if (now_ns - p->rate_ns < RATE_NS)
        return;
    seen = (double)p->reads * FB_NS_PER_S / (double)(now_ns - p->rate_ns);
    p->rate = seen > p->rate ? seen : p->rate * RATE_KEPT + seen * (1 - RATE_KEPT);
    p->reads = 0;
    p->rate_ns = now_ns;
}

static uint64_t window_of(const struct fb_epochs *e, const struct fb_planned *p, unsigned share)
{
    uint64_t mean = fb_planned_mean_bytes(p);
    uint64_t most = ahead_bytes(e, p) / share / mean;
    uint64_t window = (uint64_t)(p->rate * (double)WINDOW_NS / FB_NS_PER_S);
    uint32_t buckets = fb_epoch_log_buckets(p);

    /* A bucket comes as a whole, and is ahead by one at least; what waits takes room, too. */
    if (buckets > 0) {
        most /= 2;
        window = fb_max_u64(window, fb_names_count(p->names) / buckets);
    }
    return fb_max_u64(1, fb_min_u64(most, fb_max_u64(window, WINDOW_MIN / mean)));
}

/* It was brought for one of the plans, and nobody has read it yet. */
static bool is_due(void *arg, const struct fb_item *item)
{
    const struct fb_epochs *e = arg;
    uint16_t source = fb_files_source(e->cache->files, item->file);
    size_t len;
    const char *path = fb_files_path(e->cache->files, item->file, &len);
    uint32_t number;

    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        const struct fb_planned *p = e->working[i];

        if (p && p->source == source && fb_planned_number(p, path, len, &number) &&
            fb_follow_is_due(p->follow, number, 0))
            return true;
    }
    return false;
}

static void make_room(struct fb_epochs *e, const struct fb_planned *p)
{
    uint64_t want = free_bytes(e, p);

    if (fb_place_dram_free(e->cache) < want)
        fb_place_clear(e->cache, want, is_due, e);
}

static bool is_planned(void *arg, uint32_t file)
{
    const struct fb_epochs *e = arg;
    struct fb_version version;
    char path[FB_PATH_MAX];
    uint32_t number;
    size_t len;

    for (unsigned i = 0; i < FB_PLANS_MAX; i++) {
        const struct fb_planned *p = e->working[i];

        if (p && !p->ended &&
            fb_files_peek(e->cache->files, file, p->source, path, &len, &version) &&
            fb_planned_number(p, path, len, &number))
            return true;
    }
    return false;
}

/* A job's first accesses come before its plan, and often after another job's: without this all of
 * DRAM would be others', and every plan would begin with nothing kept. */
static void take_over(struct fb_epochs *e, struct fb_planned *p)
{
    uint64_t dram = e->cache->budget.dram_bytes;

    p->has_begun = true;
    if (!e->log)
        fb_place_adopt(e->cache, dram - fb_min_u64(dram, way_bytes(e->cache)), is_planned, e);
}

void fb_epochs_bring(struct fb_epochs *e, struct fb_planned *p, unsigned share)
{
    struct fb_volume *volume = fb_volume_hold_any(e->cache, p->source);
    struct fb_follow_stats stats;
    uint64_t window;

    if (!volume)
        return;
    if (!p->has_begun)
        take_over(e, p);
    set_rate(p, fb_now_ns());
    window = window_of(e, p, share);
    atomic_store_explicit(&p->window, window, memory_order_relaxed);
    fb_follow_stats(p->follow, &stats);
    p->kept_bytes = keepable(e, p, stats.unread, way_bytes(e->cache));
    p->copied_bytes = keepable(e, p, stats.unread, wide_way_bytes(e->cache, p));
    /* What others have come to need, and were given before copies were kept. */
    if (fb_place_kept(e->cache) > p->copied_bytes + e->cache->budget.dram_bytes / GIVE_SHARE)
        (void)fb_place_give_copies(e->cache, is_due, e);
    if (stats.unread < window || p->file_count > 0)
        make_room(e, p);
    for (look_ahead(e, p, volume, window); p->file_count > 0; look_ahead(e, p, volume, window)) {
        uint32_t file = p->files[p->file_first];

        /* What was read meanwhile needs nobody's help. */
        if (fb_follow_is_due(p->follow, file, 0) && !begin(e, p, volume, file))
            break;
        p->file_first = (p->file_first + 1) % FB_PLAN_LOOKS;
        p->file_count--;
    }
    fb_volume_let_go(volume);
}
