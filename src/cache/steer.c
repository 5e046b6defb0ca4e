/*
 * The table of places maps the hash of a directory's path, or of the path of a file of many blocks,
 * to the number of the stream that owns what is there, as the brain said when it was last read.
 * Hashes may collide and numbers change hands: then an item is judged by another stream's rule,
 * which costs a hit at most.
 *
 * What a stream holds is counted by going through the file table, more seldom the larger that is,
 * and in between by what was admitted. A stream whose quota shrank, and that would not give way by
 * itself (uniform, cycle), is cut on the way.
 */
#include "cache/steer.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "cache/steer_priv.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

#define NODE_BYTES     1024u /* of the tree, about */
#define NODES_MAX      10000u
#define LOOK_EVERY_NS  (200 * FB_NS_PER_MS) /* at what the brain thinks of its streams */
#define COUNT_EVERY_NS (2 * FB_NS_PER_S)
#define COUNT_SHARE    50                 /* of the time at most in counting: one part in so many */
#define LATE_NS        (10 * FB_NS_PER_S) /* accesses are known that long after they happened */
#define OWN_SHARE      0.9                /* of a tier: who has that much finds its own there */
#define MEASURE_NS     (600 * FB_NS_PER_S)
#define FILL_LEAST     (1ULL << 20)
#define FILL_EVERY_NS  (10 * FB_NS_PER_S)
#define FILL_VAIN_NS   (600 * FB_NS_PER_S) /* after one of which little stayed */
#define TURNS_EVERY_NS (1 * FB_NS_PER_S)
#define TURNS_VAIN_NS  (60 * FB_NS_PER_S) /* or a little more, after walks that found nothing */
#define DUE_MORE       0.25               /* of reads of each: then there is more to find */
#define GIVE_MOST      4                  /* files go for one that is due */
#define UNDER_WAY      32                 /* that many may be */
#define READS_SHARE    8192 /* an item whose reads are counted (4 bytes) for so much memory */

uint64_t fb_steer_bytes(uint64_t memory_bytes)
{
    /* Counts of reads take 4 bytes each, in up to twice as many as are asked for. */
    return sizeof(struct fb_steer) + fb_min_u64(memory_bytes / 64, NODES_MAX * NODE_BYTES) +
           fb_max_u64(memory_bytes / READS_SHARE, FB_BRAIN_READS) * 8;
}

static uint64_t total_bytes(const struct fb_cache *cache)
{
    uint64_t total = 0;

    for (unsigned t = 0; t < fb_store_tiers(cache->store); t++) {
        struct fb_tier_stats stats;

        fb_store_tier_stats(cache->store, t, &stats);
        total += stats.budget_bytes;
    }
    return total;
}

static void set_config(struct fb_brain_config *config, const struct fb_cache_config *c,
                       uint64_t total)
{
    if (c->stream_ttl_ns)
        config->ttl_base_ns = c->stream_ttl_ns;
    if (c->share_round_ns)
        config->round_ns = c->share_round_ns;
    if (c->share_step_bytes)
        config->alloc.step_bytes = c->share_step_bytes;
    if (c->share_min_bytes)
        config->alloc.minimum_bytes = c->share_min_bytes;
    /* Shares as large as the paper's would be all of a small cache. */
    config->alloc.minimum_bytes = fb_min_u64(config->alloc.minimum_bytes, total / 16);
    config->alloc.step_bytes = fb_min_u64(config->alloc.step_bytes, total / 8);
    config->prefetch.depth = c->prefetch_depth;
    config->no_prefetch = c->no_prefetch;
}

int fb_steer_create(struct fb_cache *cache, struct fb_steer **ret_steer)
{
    struct fb_steer *steer = fb_alloc(sizeof *steer);
    /* Not all of it holds items: segments are open, and others have dead ones among the living. A
     * stream that may have more than fits would exchange its own items for ever. */
    uint64_t total = total_bytes(cache) / 8 * 7;
    struct fb_brain_config config = fb_brain_defaults(total);
    int rc;

    set_config(&config, &cache->config, total);
    config.reads_max = fb_max_u64(cache->config.memory_bytes / READS_SHARE, FB_BRAIN_READS);
    config.streams.nodes_max = (uint32_t)fb_max_u64(
        fb_min_u64(cache->config.memory_bytes / 64 / NODE_BYTES, NODES_MAX), FB_STREAM_NODES_MIN);
    rc = steer ? fb_brain_new(&config, &steer->brain) : -ENOMEM;
    if (rc == 0)
        rc = fb_wants_create(cache, &config.prefetch, &steer->wants);
    if (rc < 0) {
        if (steer)
            fb_brain_free(steer->brain);
        free(steer);
        return rc;
    }
    steer->cache = cache;
    steer->prefetch = config.prefetch;
    steer->round_ns = config.round_ns;
    atomic_init(&steer->planned.keep, FB_KEEP_UNIFORM);
    fb_mutex_init(&steer->lock, FB_RANK_BRAIN);
    fb_mutex_init(&steer->gone_lock, FB_RANK_GONE);
    *ret_steer = steer;
    return 0;
}

void fb_steer_destroy(struct fb_steer *steer)
{
    if (!steer)
        return;
    fb_wants_destroy(steer->wants);
    fb_brain_free(steer->brain);
    fb_mutex_destroy(&steer->gone_lock);
    fb_mutex_destroy(&steer->lock);
    free(steer);
}

/* ---- places ---------------------------------------------------------------------------------- */

static uint64_t place_hash(const struct fb_steer *steer, uint16_t source, const char *path,
                           size_t len, uint64_t size)
{
    if (size <= steer->cache->config.block_bytes)
        while (len > 0 && path[--len] != '/')
            ;
    return fb_hash64_seed(path, len, source);
}

static void publish(struct fb_steer *steer, uint64_t hash, uint32_t stream)
{
    /* Relaxed: the word is all there is. */
    atomic_store_explicit(&steer->places[hash % FB_STEER_PLACES], (hash & ~0xffULL) | stream,
                          memory_order_relaxed);
}

/* Of a data set that a plan is read of. The caller holds a reference. */
static bool is_planned(struct fb_steer *steer, uint32_t file)
{
    struct fb_files *files = steer->cache->files;
    size_t len;
    const char *path = fb_files_path(files, file, &len);

    return fb_epochs_own(steer->cache->epochs, fb_files_source(files, file), path, len);
}

struct fb_steer_stream *fb_steer_stream_of(struct fb_steer *steer, uint32_t file)
{
    struct fb_files *files = steer->cache->files;
    size_t len;
    const char *path = fb_files_path(files, file, &len);
    uint64_t hash = place_hash(steer, fb_files_source(files, file), path, len,
                               fb_files_version(files, file)->size);
    uint64_t word =
        atomic_load_explicit(&steer->places[hash % FB_STEER_PLACES], memory_order_relaxed);

    if (is_planned(steer, file))
        return &steer->planned;

    return (word ^ hash) >> 8 == 0 && (word & 0xff) != 0 ? &steer->streams[word & 0xff] : NULL;
}

/* ---- orders ---------------------------------------------------------------------------------- */

bool fb_steer_order_of(struct fb_steer *steer, uint32_t file, struct fb_order *ret_order)
{
    struct fb_files *files = steer->cache->files;
    size_t len;
    const char *path = fb_files_path(files, file, &len);

    return fb_orders_find(steer->cache->orders, fb_files_source(files, file), path, len, ret_order);
}

bool fb_steer_is_pinned(struct fb_steer *steer, uint32_t file)
{
    struct fb_order order;

    return fb_orders_any(steer->cache->orders) && fb_steer_order_of(steer, file, &order) &&
           order.pinned;
}

int fb_cache_set_policy(struct fb_volume *volume, const char *path, const char *policy)
{
    return fb_orders_set(volume->cache->orders, volume->id, path, policy);
}

/* ---- accesses -------------------------------------------------------------------------------- */

static void drop_if_read(struct fb_steer *steer, const struct fb_rule *rule,
                         const struct fb_access *access, const struct fb_brain_access *told)
{
    struct fb_cache *cache = steer->cache;
    uint32_t file = (uint32_t)(access->key >> 32);
    bool last = told->fact.block + 1 == told->fact.blocks;

    /* While there is room for all, what was read once may stay, unless a user says otherwise: then
     * each block goes when it was read, or a file that is read ahead turns DRAM over. */
    if ((!last && (rule->stream != 0 || rule->keep != FB_KEEP_NEVER)) ||
        !fb_keep_drops(rule->keep, (uint64_t)access->offset + access->length, told->item_bytes) ||
        (rule->stream != 0 && !fb_place_is_full(cache)) ||
        !fb_files_hold(cache->files, file, access->source, told->fact.path))
        return;
    if (last)
        fb_store_forget(cache->store, file);
    else
        fb_store_drop(cache->store, access->key);
    fb_files_unref(cache->files, file, 1);
}

/* Where the file stands in its directory, if that is known. */
static void add_position(struct fb_steer *steer, struct fb_fact *fact)
{
    const char *slash = memrchr(fact->path, '/', fact->path_len);
    size_t dir_len = slash ? (size_t)(slash - fact->path) : 0, at = slash ? dir_len + 1 : 0;
    struct fb_dir *dir = fb_dirs_visited(steer->cache->dirs, fact->source, fact->path, dir_len);
    uint32_t position, rank;

    if (!dir)
        return;
    fact->siblings = fb_dir_count(dir);
    if (!fb_dir_is_unstable(dir) &&
        fb_dir_find(dir, fact->path + at, fact->path_len - at, &position, &rank))
        fact->position = position;
    fb_dir_put(dir);
}

/* Clients write their records themselves: what they say of time must not end or mend a stream. */
static int64_t believable(int64_t time_ns, int64_t now_ns)
{
    return time_ns > now_ns ? now_ns : time_ns < now_ns - LATE_NS ? now_ns - LATE_NS : time_ns;
}

/* What was brought before anybody asked has been read, or was gone before that. */
static void judge_prefetch(struct fb_steer *steer, uint64_t key, bool was_used)
    FB_REQUIRES(&steer->lock)
{
    uint16_t origin;

    if (!fb_bring_forget(steer->cache->bring, key, &origin))
        return;
    fb_brain_prefetched(steer->brain, origin, was_used);
    fb_metric_add(&steer->cache->metrics, was_used ? FB_CM_PREFETCH_USED : FB_CM_PREFETCH_WASTED,
                  1);
}

/* It was read, and where items take turns others come first now. */
static void note_spent(struct fb_steer *steer, const struct fb_brain_access *told, uint32_t stream)
    FB_REQUIRES(&steer->lock)
{
    double due = steer->streams[stream].due;
    struct fb_spent spent = {.name = told->name,
                             .file = (uint32_t)(told->key >> 32),
                             .bytes = (uint32_t)told->item_bytes,
                             .stream = stream,
                             .source = told->fact.source};

    if (due > 0 && told->fact.blocks == 1 && fb_brain_reads(steer->brain, told->name) >= due)
        fb_exchange_spent(steer->cache->exchange, &spent);
}

/* The brain is told, and what it wants is asked for. What a plan foretells it only looks at. */
static struct fb_brain_answer tell(struct fb_steer *steer, const struct fb_brain_access *told,
                                   bool was_there, bool planned)
{
    struct fb_brain_answer answer;

    fb_mutex_lock(&steer->lock);
    judge_prefetch(steer, told->key, was_there);
    fb_brain_access(steer->brain, told, &answer);
    if (!planned)
        note_spent(steer, told, answer.stream);
    for (unsigned i = 0; i < answer.wants && !planned; i++)
        fb_wants_take(steer->wants, fb_brain_streams(steer->brain), &told->fact, answer.stream,
                      &answer.want[i]);
    fb_mutex_unlock(&steer->lock);
    steer->streams[answer.stream].source = told->fact.source;
    steer->streams[answer.stream].known = true;
    atomic_store_explicit(&steer->streams[answer.stream].keep, answer.keep, memory_order_relaxed);
    return answer;
}

void fb_steer_begin(struct fb_steer *steer, int64_t now_ns)
{
    steer->now_ns = now_ns;
}

struct fb_rule fb_steer_watch(struct fb_steer *steer, const struct fb_access *access)
{
    uint32_t file = (uint32_t)(access->key >> 32), block = (uint32_t)access->key;
    uint64_t block_bytes = steer->cache->config.block_bytes, at = block * block_bytes;
    char path[FB_PATH_MAX];
    struct fb_version version;
    struct fb_brain_answer answer = {.keep = FB_KEEP_LRU};
    struct fb_rule rule = {.keep = FB_KEEP_LRU};
    struct fb_brain_access told = {.key = access->key};
    struct fb_order order;
    bool planned;
    size_t len;

    if (access->outcome == FB_ACCESS_FAILED ||
        !fb_files_peek(steer->cache->files, file, access->source, path, &len, &version) ||
        at >= version.size)
        return rule;
    planned = fb_epochs_own(steer->cache->epochs, access->source, path, len);
    told.item_bytes = fb_min_u64(version.size - at, block_bytes);
    told.fact = (struct fb_fact){
        .time_ns = believable(access->time_ns, steer->now_ns),
        .path = path,
        .path_len = (uint32_t)len,
        .pid = access->pid,
        .block = block,
        .blocks = (uint32_t)fb_min_u64((version.size + block_bytes - 1) / block_bytes, UINT32_MAX),
        .position = FB_POSITION_UNKNOWN,
        .source = access->source,
        .hit = access->outcome == FB_ACCESS_MEMORY || access->outcome == FB_ACCESS_MEDIUM,
    };
    told.name = fb_brain_name(access->source, path, len, block);
    if (!steer->cache->config.no_patterns) {
        add_position(steer, &told.fact);
        told.pipe = fb_pipe_of(steer->cache, access->source, told.item_bytes);
        answer = tell(steer, &told, access->outcome != FB_ACCESS_FETCHED, planned);
        fb_steer_raise_watch(steer, access, path, len);
    }
    publish(steer, place_hash(steer, access->source, path, len, version.size), answer.stream);
    if (fb_orders_find(steer->cache->orders, access->source, path, len, &order))
        rule = (struct fb_rule){.keep = order.keep, .is_pinned = order.pinned};
    else
        rule = (struct fb_rule){.keep = planned && answer.stream ? FB_KEEP_UNIFORM : answer.keep,
                                .stream = (uint8_t)answer.stream};
    drop_if_read(steer, &rule, access, &told);
    return rule;
}

bool fb_steer_holds(const struct fb_steer *steer, uint8_t stream)
{
    /* Relaxed: each word counts by itself. */
    return stream == 0 ||
           fb_keep_holds(atomic_load_explicit(&steer->streams[stream].keep, memory_order_relaxed));
}

void fb_steer_claim(struct fb_steer *steer, uint16_t source, const char *dir, size_t len,
                    uint32_t stream)
{
    publish(steer, fb_hash64_seed(dir, len, source), stream);
}

bool fb_steer_wants_block(struct fb_steer *steer, uint64_t node, uint32_t block, uint32_t blocks)
{
    bool wants;

    fb_mutex_lock(&steer->lock);
    wants = fb_prefetch_wants_block(&steer->prefetch, fb_brain_streams(steer->brain), node, block,
                                    blocks);
    fb_mutex_unlock(&steer->lock);
    return wants;
}

bool fb_steer_is_due(struct fb_steer *steer, uint32_t stream, uint16_t source, const char *path)
{
    uint64_t name = fb_brain_name(source, path, strlen(path), 0);
    bool is_due;

    fb_mutex_lock(&steer->lock);
    is_due = fb_brain_reads(steer->brain, name) < steer->streams[stream].due;
    fb_mutex_unlock(&steer->lock);
    return is_due;
}

bool fb_steer_gives_way(struct fb_steer *steer, uint32_t stream, uint64_t bytes, uint64_t *ret_gone)
{
    struct fb_steer_stream *s = &steer->streams[stream];
    uint64_t quota = atomic_load_explicit(&s->quota_bytes, memory_order_relaxed);
    uint64_t held = atomic_load_explicit(&s->held_bytes, memory_order_relaxed), now_held, gone;

    *ret_gone = 0;
    /* Quotas divide what is full. What is on its way is not counted yet, so near the end each needs
     * a place of its own. */
    if (held + UNDER_WAY * bytes <= quota || fb_place_free(steer->cache) >= UNDER_WAY * bytes)
        return true;
    /* It may hold more than its share, from a time when there was room for all. */
    gone = fb_exchange_take(steer->cache->exchange, stream,
                            held > quota ? fb_min_u64(held + bytes - quota, GIVE_MOST * bytes)
                                         : bytes);
    /* Counted anew soon, or just now; it must not go below nothing. */
    now_held = atomic_load_explicit(&s->held_bytes, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&s->held_bytes, &now_held,
                                                  now_held - fb_min_u64(gone, now_held),
                                                  memory_order_relaxed, memory_order_relaxed))
        continue;
    *ret_gone = gone;
    return gone > 0 && held + bytes <= quota + gone;
}

void fb_steer_gone(struct fb_steer *steer, const struct fb_item *item)
{
    const struct fb_steer_stream *s = fb_steer_stream_of(steer, item->file);
    struct fb_steer_gone gone = {
        .key = fb_item_key(item->file, item->block),
        .stream = s && s != &steer->planned ? (uint32_t)(s - steer->streams) : 0};

    fb_mutex_lock(&steer->gone_lock);
    if (steer->gone_count < FB_STEER_GONE_MAX)
        steer->gone[steer->gone_count++] = gone;
    fb_mutex_unlock(&steer->gone_lock);
}

/* Keys alone: what streams hold is counted. */
static void tell_gone(struct fb_steer *steer)
{
    struct fb_steer_gone gone[256];
    unsigned count;
    uint16_t origin;

    do {
        fb_mutex_lock(&steer->gone_lock);
        count = (unsigned)fb_min_u64(steer->gone_count, FB_ARRAY_SIZE(gone));
        steer->gone_count -= count;
        memcpy(gone, steer->gone + steer->gone_count, count * sizeof *gone);
        fb_mutex_unlock(&steer->gone_lock);
        fb_mutex_lock(&steer->lock);
        for (unsigned i = 0; i < count; i++) {
            fb_brain_went(steer->brain, gone[i].stream, gone[i].key, 0, FB_WENT_EVICTED);
            judge_prefetch(steer, gone[i].key, false);
        }
        while (fb_bring_wasted(steer->cache->bring, &origin)) {
            fb_brain_prefetched(steer->brain, origin, false);
            fb_metric_add(&steer->cache->metrics, FB_CM_PREFETCH_WASTED, 1);
        }
        fb_mutex_unlock(&steer->lock);
    } while (count == FB_ARRAY_SIZE(gone));
}

/* ---- admission ------------------------------------------------------------------------------- */

/* Segments leave as a whole here, so a cycle cannot exchange one item for another, as the brain
 * would have it: what it fetches ahead while there is no room waits in a buffer (fetch.c). */
static bool is_worth_it(struct fb_steer *steer, uint32_t file, struct fb_steer_stream *s,
                        uint32_t bytes, bool full)
{
    uint64_t quota = s ? atomic_load_explicit(&s->quota_bytes, memory_order_relaxed) : 0;
    struct fb_order order;
    enum fb_keep keep;

    if (fb_steer_order_of(steer, file, &order)) {
        if (order.pinned)
            return true;
        keep = order.keep;
    } else if (s) {
        /* Relaxed: each word counts by itself, and all are estimates. */
        keep = atomic_load_explicit(&s->keep, memory_order_relaxed);
    } else {
        return true;
    }
    if (keep == FB_KEEP_NEVER)
        return false;
    /* A stream that makes room for itself need not wait until it has a quota. */
    if (!full || !s || (quota == 0 && keep == FB_KEEP_LRU))
        return true;
    return fb_keep_admits(keep, false, atomic_load_explicit(&s->held_bytes, memory_order_relaxed),
                          quota, bytes);
}

bool fb_steer_would_admit(struct fb_steer *steer, uint32_t file, uint32_t bytes, bool full)
{
    return is_worth_it(steer, file, fb_steer_stream_of(steer, file), bytes, full);
}

/* What keeps what it has, within its quota, is worth a place; what is read once is not. */
bool fb_steer_parks(struct fb_steer *steer, uint32_t file, uint32_t bytes, bool soon)
{
    struct fb_steer_stream *s = fb_steer_stream_of(steer, file);
    enum fb_keep keep = s ? atomic_load_explicit(&s->keep, memory_order_relaxed) : FB_KEEP_LRU;
    struct fb_order order;

    if (fb_steer_order_of(steer, file, &order)) {
        if (order.pinned)
            return false;
        keep = order.keep;
    }
    if (!fb_keep_holds(keep))
        return !soon;
    return !is_worth_it(steer, file, s, bytes, true);
}

bool fb_steer_admits(struct fb_steer *steer, uint32_t file, uint32_t bytes, bool full)
{
    struct fb_steer_stream *s = fb_steer_stream_of(steer, file);
    bool admits = is_worth_it(steer, file, s, bytes, full);

    if (s && admits)
        atomic_fetch_add_explicit(&s->held_bytes, bytes, memory_order_relaxed);
    return admits;
}

bool fb_steer_displaces(struct fb_steer *steer, uint32_t file, uint32_t bytes, uint64_t tier_bytes)
{
    struct fb_steer_stream *s = fb_steer_stream_of(steer, file);
    uint64_t most = (uint64_t)(OWN_SHARE * (double)tier_bytes);

    if (fb_steer_is_pinned(steer, file))
        return true;
    return s && atomic_load_explicit(&s->held_bytes, memory_order_relaxed) + bytes <= most &&
           fb_steer_admits(steer, file, bytes, true);
}

bool fb_steer_yields(struct fb_steer *steer, uint32_t file)
{
    const struct fb_steer_stream *s = fb_steer_stream_of(steer, file);

    if (s == &steer->planned || fb_steer_is_pinned(steer, file))
        return false;
    return !s || !fb_keep_holds(atomic_load_explicit(&s->keep, memory_order_relaxed)) ||
           atomic_load_explicit(&s->held_bytes, memory_order_relaxed) >
               atomic_load_explicit(&s->quota_bytes, memory_order_relaxed);
}

/* ---- what streams hold ----------------------------------------------------------------------- */

static void count_file(void *arg, uint32_t file)
{
    struct fb_steer *steer = arg;
    struct fb_cache *cache = steer->cache;
    uint64_t bytes = (uint64_t)fb_files_items(cache->files, file) * cache->config.block_bytes;
    struct fb_steer_stream *s = bytes > 0 ? fb_steer_stream_of(steer, file) : NULL;
    enum fb_keep keep;

    if (s) {
        bytes = fb_min_u64(bytes, fb_files_version(cache->files, file)->size);
        keep = atomic_load_explicit(&s->keep, memory_order_relaxed);
        /* Uniform: any is as good as any other. */
        if (fb_keep_holds(keep) && s->node != 0 && steer->now_ns >= s->cut_ns &&
            fb_place_is_full(cache) &&
            s->counted_bytes + bytes >
                atomic_load_explicit(&s->quota_bytes, memory_order_relaxed) &&
            !fb_steer_is_pinned(steer, file))
            fb_store_forget(cache->store, file);
        else
            s->counted_bytes += bytes;
    }
    fb_files_unref(cache->files, file, 1);
}

/* Told to the brain as the difference to what it thinks. */
static void tell_held(struct fb_steer *steer, uint32_t number, uint64_t bytes)
    FB_REQUIRES(&steer->lock)
{
    struct fb_brain_stream view;

    if (!fb_brain_get(steer->brain, number, &view))
        return;
    if (bytes > view.used_bytes)
        fb_brain_came(steer->brain, number, bytes - view.used_bytes);
    else if (bytes < view.used_bytes)
        fb_brain_went(steer->brain, number, 0, view.used_bytes - bytes, FB_WENT_DROPPED);
}

static void count_held(struct fb_steer *steer)
{
    uint16_t sources[FB_BRAIN_STREAMS];
    unsigned count = 0;

    for (unsigned i = 1; i < FB_BRAIN_STREAMS; i++) {
        uint16_t source = steer->streams[i].source;
        bool seen = !steer->streams[i].known;

        steer->streams[i].counted_bytes = 0;
        for (unsigned j = 0; j < count; j++)
            seen = seen || sources[j] == source;
        if (!seen)
            sources[count++] = source;
    }
    for (unsigned i = 0; i < count; i++)
        fb_files_visit(steer->cache->files, sources[i], "", count_file, steer);
    fb_mutex_lock(&steer->lock);
    for (unsigned i = 1; i < FB_BRAIN_STREAMS; i++) {
        struct fb_steer_stream *s = &steer->streams[i];

        atomic_store_explicit(&s->held_bytes, s->counted_bytes, memory_order_relaxed);
        tell_held(steer, i, s->counted_bytes);
    }
    fb_mutex_unlock(&steer->lock);
}

/* ---- decisions ------------------------------------------------------------------------------- */

static void forget_file(void *arg, uint32_t file)
{
    struct fb_steer *steer = arg;

    if (!fb_steer_is_pinned(steer, file) && !is_planned(steer, file))
        fb_store_forget(steer->cache->store, file);
    fb_files_unref(steer->cache->files, file, 1);
}

/* Takes over what the brain thinks of a stream; false: there is none, or it has no path. */
static bool take_over(struct fb_steer *steer, unsigned number, struct fb_brain_stream *ret_view,
                      char path[FB_PATH_MAX]) FB_REQUIRES(&steer->lock)
{
    struct fb_steer_stream *s = &steer->streams[number];

    if (!fb_brain_get(steer->brain, number, ret_view))
        return false;
    s->due = ret_view->due;
    atomic_store_explicit(&s->keep, ret_view->keep, memory_order_relaxed);
    atomic_store_explicit(&s->quota_bytes, ret_view->quota_bytes, memory_order_relaxed);
    return ret_view->node != 0 && fb_streams_path(fb_brain_streams(steer->brain), ret_view->node,
                                                  path, FB_PATH_MAX) < FB_PATH_MAX;
}

/* A random data set is measured, and then loaded as far as its quota goes; once that has brought
 * little that stayed, not again for a while. When it is full, what was read makes way for what is
 * due. What a user wants kept otherwise is not loaded, nor where a plan says what comes. One is
 * served at a time, and whose turn it was waits for all others. */
static void fill(struct fb_steer *steer, unsigned number, const struct fb_brain_stream *view,
                 const char *path, int64_t now_ns)
{
    struct fb_steer_stream *s = &steer->streams[number];
    struct fb_fill *filler = steer->cache->fill;
    uint64_t held = atomic_load_explicit(&s->held_bytes, memory_order_relaxed);
    struct fb_order order;

    if ((view->keep != FB_KEEP_UNIFORM && view->due == 0) || view->has_ended || !filler ||
        now_ns < s->fill_ns || steer->cache->config.no_prefetch || fb_fill_is_busy(filler) ||
        fb_epochs_foretell(steer->cache->epochs, s->source) ||
        (fb_orders_find(steer->cache->orders, s->source, path, strlen(path), &order) &&
         order.keep != FB_KEEP_UNIFORM))
        return;
    if (now_ns >= s->measure_ns) {
        if (fb_fill_measure(filler, s->source, path, view->node)) {
            s->measure_ns = now_ns + MEASURE_NS;
            steer->filled = number;
        }
        return;
    }
    if (view->due > 0) {
        /* Where all of it is here none makes way, and to look for what is due is to ask the source
         * for every file. */
        if (view->due >= s->turns_due + DUE_MORE)
            s->turns_ns = s->turns_wait_ns = 0;
        if (held < view->told_bytes && now_ns >= s->turns_ns &&
            fb_fill_turns(filler, s->source, path, number)) {
            s->turns_ns = now_ns + TURNS_EVERY_NS;
            s->turns_due = view->due;
            steer->filled = number;
        }
        return;
    }
    if (view->told_bytes == 0 || view->fill_bytes < FILL_LEAST)
        return;
    if (s->fill_bytes > 0 && held < s->fill_held + s->fill_bytes / 2) {
        s->fill_bytes = 0;
        s->fill_ns = now_ns + FILL_VAIN_NS;
        return;
    }
    if (!fb_fill_want(filler, s->source, path, view->fill_bytes))
        return;
    fb_log_info("/%s is read in random order: what is missing is loaded", path);
    steer->filled = number;
    s->fill_bytes = view->fill_bytes;
    s->fill_held = held;
    s->fill_ns = now_ns + FILL_EVERY_NS;
}

static void tell_sizes(struct fb_steer *steer) FB_REQUIRES(&steer->lock)
{
    struct fb_brain_stream view;
    uint64_t node, bytes;

    if (!steer->cache->fill || !fb_fill_measured(steer->cache->fill, &node, &bytes))
        return;
    for (unsigned i = 1; i < FB_BRAIN_STREAMS; i++) {
        if (fb_brain_get(steer->brain, i, &view) && view.node == node)
            fb_brain_size(steer->brain, i, bytes);
    }
}

/* A walk asks the source for all of its listings: where nothing came of it the next one waits, the
 * longer the more often that happens. */
static void space_turns(struct fb_steer *steer, int64_t now_ns)
{
    struct fb_steer_stream *s;
    uint32_t number;
    uint64_t count;

    if (!steer->cache->fill || !fb_fill_turned(steer->cache->fill, &number, &count))
        return;
    s = &steer->streams[number];
    if (count > 0 || s->turns_wait_ns == 0)
        s->turns_wait_ns = TURNS_EVERY_NS;
    else if (s->turns_wait_ns < TURNS_VAIN_NS)
        s->turns_wait_ns *= 2;
    s->turns_ns = now_ns + s->turns_wait_ns;
}

static void follow(struct fb_steer *steer, unsigned number, int64_t now_ns)
{
    struct fb_steer_stream *s = &steer->streams[number];
    struct fb_brain_stream view;
    char path[FB_PATH_MAX];
    bool is_there;

    fb_mutex_lock(&steer->lock);
    is_there = take_over(steer, number, &view, path);
    fb_mutex_unlock(&steer->lock);
    if (!is_there) {
        s->node = 0;
        return;
    }
    if (s->node != view.node) {
        s->node = view.node;
        s->cut_ns = now_ns + steer->round_ns; /* it has had its first share by then */
        s->measure_ns = s->fill_ns = s->turns_ns = s->turns_wait_ns = 0;
        s->turns_due = 0;
        s->fill_bytes = 0;
        s->ended = false;
    }
    s->ended = s->ended && view.has_ended;
    fill(steer, number, &view, path, now_ns);
    /* What nobody else wants the room of may stay: the next job may be the same again. */
    if (!view.has_ended || view.used_bytes == 0 || !fb_place_is_full(steer->cache))
        return;
    if (!s->ended)
        fb_log_info("the job that read /%s has ended: what is cached of it goes", path);
    /* All files are gone over for it: once for what was counted, which pins may keep there for
     * ever, and for one stream at a time. */
    if (steer->forgetting || (s->ended && s->forgot_bytes == view.used_bytes))
        return;
    steer->forgetting = true;
    s->ended = true;
    s->forgot_bytes = view.used_bytes;
    fb_files_visit(steer->cache->files, s->source, path, forget_file, steer);
}

void fb_steer_tick(struct fb_steer *steer, int64_t now_ns)
{
    int64_t took_ns;
    unsigned last;
    bool counts;

    tell_gone(steer);
    fb_mutex_lock(&steer->lock);
    fb_wants_tick(steer->wants, fb_brain_streams(steer->brain), now_ns);
    fb_mutex_unlock(&steer->lock);
    if (now_ns < steer->look_ns)
        return;
    /* A small data set is read to its end in a few seconds. */
    steer->look_ns = now_ns + LOOK_EVERY_NS;
    counts = now_ns >= steer->count_ns;
    if (counts)
        count_held(steer); /* first: a stream that ends with nothing is forgotten */
    took_ns = fb_now_ns() - now_ns;
    fb_mutex_lock(&steer->lock);
    tell_sizes(steer);
    if (counts)
        fb_brain_tick(steer->brain, now_ns);
    fb_mutex_unlock(&steer->lock);
    steer->forgetting = false;
    space_turns(steer, now_ns);
    last = steer->filled;
    for (unsigned i = 0; i < FB_BRAIN_STREAMS - 1; i++)
        follow(steer, 1 + (last + i) % (FB_BRAIN_STREAMS - 1), now_ns);
    if (counts)
        steer->count_ns = now_ns + (took_ns * COUNT_SHARE > COUNT_EVERY_NS ? took_ns * COUNT_SHARE
                                                                           : COUNT_EVERY_NS);
}
