/*
 * The table of places maps the hash of a directory's path, or of the path of a file of many blocks,
 * to the stream that owns what is there, as the tree said when it was last read. Hashes may collide
 * and streams may have changed hands since: then an item is judged by another stream's rule, which
 * costs a hit at most.
 *
 * What a stream holds is counted by going through the file table, more seldom the larger it is, and
 * in between by what was admitted. A stream whose quota shrank, and that would not give way by
 * itself (uniform, cycle), is cut on the way.
 */
#include "cache/brain.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "cache/cache_priv.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "policy/alloc.h"
#include "policy/keep.h"
#include "policy/ttl.h"
#include "stream/streams.h"

#define STREAMS_MAX    256u /* numbers fit a byte; 0 is none */
#define PLACES         16384u
#define NODE_BYTES     1024u /* of the tree, about */
#define NODES_MAX      10000u
#define COUNT_EVERY_NS (2 * FB_NS_PER_S)
#define COUNT_SHARE    50 /* of the time at most, in counting: one part in so many */
#define IDLE_NS        (600 * FB_NS_PER_S)

struct stream {
    uint64_t node; /* 0: free */
    uint16_t source;
    bool ended;
    int64_t used_ns;      /* last access */
    _Atomic uint8_t keep; /* enum fb_keep; these three are read by request threads */
    _Atomic uint64_t quota_bytes;
    _Atomic uint64_t held_bytes;
    uint64_t counted_bytes; /* in the count under way */
    uint64_t requests, request_bytes, requests_before;
    double benefit;
};

/* What a user has ordered for a path and all below it. */
struct order {
    struct fb_list link;
    uint16_t source;
    enum fb_keep keep;
    bool pinned;
    char *path;
};

struct fb_brain {
    struct fb_cache *cache;
    struct fb_mutex lock;
    struct fb_streams *tree;
    struct stream streams[STREAMS_MAX];
    _Atomic uint64_t places[PLACES]; /* hash, with the stream's number in its low byte */
    struct fb_mutex orders_lock;     /* FB_RANK_ORDERS: */
    struct fb_list orders;
    _Atomic uint32_t order_count;
    int64_t count_ns, round_ns; /* when next */
    bool changed;               /* streams came, went or changed: space is to be shared anew */
};

uint64_t fb_brain_bytes(uint64_t memory_bytes)
{
    return sizeof(struct fb_brain) + fb_min_u64(memory_bytes / 64, NODES_MAX * NODE_BYTES);
}

int fb_brain_create(struct fb_cache *cache, struct fb_brain **ret_brain)
{
    struct fb_brain *brain = fb_alloc(sizeof *brain);
    struct fb_streams_config config = {
        .nodes_max = (uint32_t)fb_max_u64(
            fb_min_u64(cache->config.memory_bytes / 64 / NODE_BYTES, NODES_MAX),
            FB_STREAM_NODES_MIN)};
    int rc = brain ? fb_streams_new(&config, &brain->tree) : -ENOMEM;

    if (rc < 0) {
        free(brain);
        return rc;
    }
    brain->cache = cache;
    fb_mutex_init(&brain->lock, FB_RANK_BRAIN);
    fb_mutex_init(&brain->orders_lock, FB_RANK_ORDERS);
    fb_list_init(&brain->orders);
    *ret_brain = brain;
    return 0;
}

void fb_brain_destroy(struct fb_brain *brain)
{
    struct fb_list *it, *tmp;

    if (!brain)
        return;
    FB_LIST_FOREACH (it, tmp, &brain->orders) {
        struct order *order = FB_LIST_ENTRY(it, struct order, link);

        free(order->path);
        free(order);
    }
    fb_streams_free(brain->tree);
    fb_mutex_destroy(&brain->orders_lock);
    fb_mutex_destroy(&brain->lock);
    free(brain);
}

/* ---- places ---------------------------------------------------------------------------------- */

static uint64_t place_hash(const struct fb_brain *brain, uint16_t source, const char *path,
                           size_t len, uint64_t size)
{
    if (size <= brain->cache->config.block_bytes)
        while (len > 0 && path[--len] != '/')
            ;
    return fb_hash64_seed(path, len, source);
}

static void publish(struct fb_brain *brain, uint64_t hash, unsigned stream)
{
    /* Relaxed: the word is all there is. */
    atomic_store_explicit(&brain->places[hash % PLACES], (hash & ~0xffULL) | stream,
                          memory_order_relaxed);
}

static struct stream *stream_at(struct fb_brain *brain, uint64_t hash)
{
    uint64_t word = atomic_load_explicit(&brain->places[hash % PLACES], memory_order_relaxed);

    return (word ^ hash) >> 8 == 0 && (word & 0xff) != 0 ? &brain->streams[word & 0xff] : NULL;
}

/* The caller holds a reference. */
static struct stream *stream_of(struct fb_brain *brain, uint32_t file)
{
    struct fb_files *files = brain->cache->files;
    size_t len;
    const char *path = fb_files_path(files, file, &len);

    return stream_at(brain, place_hash(brain, fb_files_source(files, file), path, len,
                                       fb_files_version(files, file)->size));
}

/* ---- orders ---------------------------------------------------------------------------------- */

static bool lies_below(const char *path, size_t len, const char *dir)
{
    size_t n = strlen(dir);

    return n == 0 || (len >= n && memcmp(path, dir, n) == 0 && (len == n || path[n] == '/'));
}

/* The order for the longest path that this one lies at or below; false without one. */
static bool order_for(struct fb_brain *brain, uint16_t source, const char *path, size_t len,
                      struct order *ret_order)
{
    const struct order *best = NULL;
    struct fb_list *it, *tmp;

    /* Relaxed: an order counts from some moment on. */
    if (atomic_load_explicit(&brain->order_count, memory_order_relaxed) == 0)
        return false;
    fb_mutex_lock(&brain->orders_lock);
    FB_LIST_FOREACH (it, tmp, &brain->orders) {
        const struct order *order = FB_LIST_ENTRY(it, struct order, link);

        if (order->source == source && lies_below(path, len, order->path) &&
            (!best || strlen(order->path) > strlen(best->path)))
            best = order;
    }
    if (best)
        *ret_order = *best;
    fb_mutex_unlock(&brain->orders_lock);
    return best != NULL;
}

bool fb_brain_is_pinned(struct fb_brain *brain, uint32_t file)
{
    struct fb_files *files = brain->cache->files;
    struct order order;
    size_t len;
    const char *path = fb_files_path(files, file, &len);

    return order_for(brain, fb_files_source(files, file), path, len, &order) && order.pinned;
}

bool fb_brain_has_orders(const struct fb_brain *brain)
{
    return atomic_load_explicit(&brain->order_count, memory_order_relaxed) > 0;
}

static void forget_order(struct fb_brain *brain, uint16_t source, const char *path)
    FB_REQUIRES(&brain->orders_lock)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &brain->orders) {
        struct order *order = FB_LIST_ENTRY(it, struct order, link);

        if (order->source != source || strcmp(order->path, path) != 0)
            continue;
        fb_list_remove(it);
        atomic_fetch_sub_explicit(&brain->order_count, 1, memory_order_relaxed);
        free(order->path);
        free(order);
    }
}

int fb_cache_set_policy(struct fb_volume *volume, const char *path, const char *policy)
{
    struct fb_brain *brain = volume->cache->brain;
    bool automatic = strcmp(policy, "auto") == 0, pinned = strcmp(policy, "pinned") == 0;
    struct order *order = automatic ? NULL : fb_alloc(sizeof *order);
    int rc = 0;

    if (order) {
        order->source = volume->id;
        order->pinned = pinned;
        order->path = fb_strdup(path);
        rc = pinned ? 0 : fb_keep_parse(policy, &order->keep);
        if (rc == 0 && !order->path)
            rc = -ENOMEM;
    } else if (!automatic) {
        return -ENOMEM;
    }
    if (rc < 0) {
        free(order->path);
        free(order);
        return rc;
    }
    fb_mutex_lock(&brain->orders_lock);
    forget_order(brain, volume->id, path);
    if (order) {
        fb_list_push_back(&brain->orders, &order->link);
        atomic_fetch_add_explicit(&brain->order_count, 1, memory_order_relaxed);
    }
    fb_mutex_unlock(&brain->orders_lock);
    return 0;
}

/* ---- streams --------------------------------------------------------------------------------- */

static unsigned find_stream(struct fb_brain *brain, uint64_t node) FB_REQUIRES(&brain->lock)
{
    for (unsigned i = 1; i < STREAMS_MAX; i++) {
        if (brain->streams[i].node == node)
            return i;
    }
    return 0;
}

/* A free number, else that of the stream that was silent for longest and holds nothing. */
static unsigned take_number(struct fb_brain *brain) FB_REQUIRES(&brain->lock)
{
    unsigned best = 0;

    for (unsigned i = 1; i < STREAMS_MAX; i++) {
        const struct stream *s = &brain->streams[i];

        if (s->node == 0)
            return i;
        if (atomic_load_explicit(&s->held_bytes, memory_order_relaxed) == 0 &&
            (!best || s->used_ns < brain->streams[best].used_ns))
            best = i;
    }
    return best;
}

static unsigned stream_for(struct fb_brain *brain, uint64_t node, uint16_t source, int64_t now_ns)
    FB_REQUIRES(&brain->lock)
{
    unsigned number = node ? find_stream(brain, node) : 0;
    struct stream *s;

    if (number == 0 && node)
        number = take_number(brain);
    if (number == 0)
        return 0;
    s = &brain->streams[number];
    if (s->node != node) {
        memset(s, 0, sizeof *s);
        s->node = node;
        s->source = source;
        /* Until space is shared it may have what it finds. */
        atomic_store_explicit(&s->quota_bytes, UINT64_MAX, memory_order_relaxed);
        brain->changed = true;
    }
    s->used_ns = now_ns;
    s->ended = false;
    return number;
}

static enum fb_keep keep_of(struct fb_brain *brain, const struct stream *s,
                            const struct fb_stream_info *info) FB_REQUIRES(&brain->lock)
{
    char path[FB_PATH_MAX];
    size_t len = fb_streams_path(brain->tree, s->node, path, sizeof path);
    struct order order;

    if (order_for(brain, s->source, path, fb_min_u64(len, sizeof path - 1), &order))
        return order.pinned ? FB_KEEP_UNIFORM : order.keep;
    return fb_keep_for((enum fb_pattern)info->verdict.pattern);
}

static void judge(struct fb_brain *brain, struct stream *s) FB_REQUIRES(&brain->lock)
{
    struct fb_stream_info info;
    enum fb_keep keep;

    if (!fb_streams_get(brain->tree, s->node, &info)) {
        s->node = 0;
        brain->changed = true;
        return;
    }
    keep = keep_of(brain, s, &info);
    if (atomic_exchange_explicit(&s->keep, keep, memory_order_relaxed) != keep)
        brain->changed = true;
}

static void drop_if_read(struct fb_brain *brain, const struct stream *s,
                         const struct fb_access *access, uint32_t file, uint32_t blocks)
{
    enum fb_keep keep = atomic_load_explicit(&s->keep, memory_order_relaxed);
    uint32_t block = (uint32_t)access->key;

    /* While there is room for all, what was read once may stay. */
    if (block + 1 == blocks &&
        fb_keep_drops(keep, access->offset + access->length, access->item_length) &&
        fb_place_is_full(brain->cache))
        fb_store_forget(brain->cache->store, file);
}

static void feed(struct fb_brain *brain, const struct fb_access *access, uint32_t file,
                 const char *path, size_t len, uint64_t size) FB_REQUIRES(&brain->lock)
{
    uint32_t block_bytes = brain->cache->config.block_bytes;
    uint32_t blocks = (uint32_t)fb_min_u64((size + block_bytes - 1) / block_bytes, UINT32_MAX);
    struct fb_fact fact = {
        .time_ns = access->time_ns,
        .path = path,
        .path_len = (uint32_t)len,
        .pid = access->pid,
        .block = (uint32_t)access->key,
        .blocks = blocks,
        .position = FB_POSITION_UNKNOWN,
        .source = access->source,
        .hit = access->outcome == FB_ACCESS_MEMORY || access->outcome == FB_ACCESS_MEDIUM,
    };
    struct fb_fed fed;
    struct stream *s;
    unsigned number;

    fb_streams_feed(brain->tree, &fact, &fed);
    number =
        stream_for(brain, fb_streams_fed_owner(brain->tree, &fed), access->source, access->time_ns);
    publish(brain, place_hash(brain, access->source, path, len, size), number);
    if (number == 0)
        return;
    s = &brain->streams[number];
    if (s->requests++ == 0 || fed.steps[0].changed)
        judge(brain, s);
    for (unsigned i = 0; i < fed.depth; i++) {
        if (fed.steps[i].changed)
            judge(brain, s);
    }
    s->request_bytes += access->item_length;
    drop_if_read(brain, s, access, file, blocks);
}

void fb_brain_watch(struct fb_brain *brain, const struct fb_access *access)
{
    struct fb_files *files = brain->cache->files;
    uint32_t file = (uint32_t)(access->key >> 32);
    char path[FB_PATH_MAX];
    struct fb_version version;
    size_t len;

    if (access->outcome == FB_ACCESS_FAILED ||
        !fb_files_peek(files, file, access->source, path, &len, &version))
        return;
    fb_mutex_lock(&brain->lock);
    feed(brain, access, file, path, len, version.size);
    fb_mutex_unlock(&brain->lock);
}

/* By order, whatever stream it belongs to. */
static bool is_unwanted(struct fb_brain *brain, uint32_t file)
{
    struct fb_files *files = brain->cache->files;
    struct order order;
    size_t len;
    const char *path = fb_files_path(files, file, &len);

    return order_for(brain, fb_files_source(files, file), path, len, &order) && !order.pinned &&
           order.keep == FB_KEEP_NEVER;
}

bool fb_brain_admits(struct fb_brain *brain, uint32_t file, uint32_t bytes, bool full)
{
    struct stream *s = stream_of(brain, file);
    enum fb_keep keep;
    bool admits;

    if (is_unwanted(brain, file))
        return false;
    if (!s)
        return true;
    /* Relaxed: each word counts by itself, and all are estimates. */
    keep = atomic_load_explicit(&s->keep, memory_order_relaxed);
    admits = !full ||
             fb_keep_admits(keep, false, atomic_load_explicit(&s->held_bytes, memory_order_relaxed),
                            atomic_load_explicit(&s->quota_bytes, memory_order_relaxed), bytes);
    if (admits)
        atomic_fetch_add_explicit(&s->held_bytes, bytes, memory_order_relaxed);
    return admits;
}

/* ---- what streams hold ----------------------------------------------------------------------- */

struct counting {
    struct fb_brain *brain;
    uint64_t files;
};

static void count_file(void *arg, uint32_t file)
{
    struct counting *c = arg;
    struct fb_cache *cache = c->brain->cache;
    uint64_t size = fb_files_version(cache->files, file)->size, bytes;
    struct stream *s = stream_of(c->brain, file);

    bytes =
        fb_min_u64((uint64_t)fb_files_items(cache->files, file) * cache->config.block_bytes, size);
    c->files++;
    if (s && bytes > 0) {
        enum fb_keep keep = atomic_load_explicit(&s->keep, memory_order_relaxed);

        /* Uniform: any is as good as any other. */
        if ((keep == FB_KEEP_UNIFORM || keep == FB_KEEP_CYCLE) &&
            s->counted_bytes + bytes > atomic_load_explicit(&s->quota_bytes, memory_order_relaxed))
            fb_store_forget(cache->store, file);
        else
            s->counted_bytes += bytes;
    }
    fb_files_unref(cache->files, file, 1);
}

static void count_held(struct fb_brain *brain)
{
    struct counting c = {.brain = brain};
    int64_t begun_ns = fb_now_ns(), took_ns;
    bool seen[UINT8_MAX + 1] = {false};

    for (unsigned i = 1; i < STREAMS_MAX; i++)
        brain->streams[i].counted_bytes = 0;
    for (unsigned i = 1; i < STREAMS_MAX; i++) {
        uint16_t source = brain->streams[i].source;

        if (brain->streams[i].node == 0 || seen[source % sizeof seen])
            continue;
        seen[source % sizeof seen] = true;
        fb_files_visit(brain->cache->files, source, "", count_file, &c);
    }
    for (unsigned i = 1; i < STREAMS_MAX; i++)
        atomic_store_explicit(&brain->streams[i].held_bytes, brain->streams[i].counted_bytes,
                              memory_order_relaxed);
    took_ns = fb_now_ns() - begun_ns;
    brain->count_ns = begun_ns + (took_ns * COUNT_SHARE > COUNT_EVERY_NS ? took_ns * COUNT_SHARE
                                                                         : COUNT_EVERY_NS);
}

/* ---- ends and space -------------------------------------------------------------------------- */

static void forget_file(void *arg, uint32_t file)
{
    struct fb_cache *cache = arg;

    fb_store_forget(cache->store, file);
    fb_files_unref(cache->files, file, 1);
}

/* Nobody reads it any more: all it has leaves. */
static void end_silent(struct fb_brain *brain, int64_t now_ns) FB_REQUIRES(&brain->lock)
{
    for (unsigned i = 1; i < STREAMS_MAX; i++) {
        struct stream *s = &brain->streams[i];
        struct fb_stream_info info;
        char path[FB_PATH_MAX];
        struct order order;

        if (s->node == 0 || s->ended || !fb_streams_get(brain->tree, s->node, &info) ||
            !fb_ttl_is_over(&info, FB_TTL_BASE_NS, now_ns) ||
            fb_streams_path(brain->tree, s->node, path, sizeof path) >= sizeof path ||
            order_for(brain, s->source, path, strlen(path), &order))
            continue;
        /* What nobody else wants may stay: the next job may be the same again. */
        if (!fb_place_is_full(brain->cache))
            continue;
        s->ended = true;
        brain->changed = true;
        fb_log_info("the job that read %s has ended: what is cached of it goes",
                    *path ? path : "everything");
        fb_files_visit(brain->cache->files, s->source, path, forget_file, brain->cache);
    }
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

static void share_space(struct fb_brain *brain, int64_t since_ns) FB_REQUIRES(&brain->lock)
{
    struct fb_alloc_stream shares[STREAMS_MAX];
    unsigned numbers[STREAMS_MAX];
    struct fb_alloc_config config = {.total_bytes = total_bytes(brain->cache),
                                     .step_bytes = FB_ALLOC_STEP,
                                     .minimum_bytes = FB_ALLOC_MINIMUM};
    uint32_t count = 0;

    for (unsigned i = 1; i < STREAMS_MAX; i++) {
        struct stream *s = &brain->streams[i];
        struct fb_stream_info info;
        uint64_t quota = atomic_load_explicit(&s->quota_bytes, memory_order_relaxed);

        if (s->node == 0 || !fb_streams_get(brain->tree, s->node, &info))
            continue;
        shares[count] = (struct fb_alloc_stream){
            .pattern = (enum fb_pattern)info.verdict.pattern,
            .has_ended = s->ended,
            .items = info.items,
            .data_bytes = s->requests ? info.items * (s->request_bytes / s->requests) : 0,
            .gap_s = info.gap_mean_s,
            .rate = since_ns > 0 ? (double)(s->requests - s->requests_before) /
                                       ((double)since_ns / (double)FB_NS_PER_S)
                                 : 0,
            .quota_bytes = quota == UINT64_MAX ? 0 : quota,
        };
        s->requests_before = s->requests;
        numbers[count++] = i;
    }
    if (count == 0)
        return;
    config.minimum_bytes = fb_min_u64(config.minimum_bytes, config.total_bytes / (2ULL * count));
    config.step_bytes = fb_min_u64(config.step_bytes, config.total_bytes / 4);
    fb_alloc_round(&config, shares, count);
    for (uint32_t i = 0; i < count; i++) {
        struct stream *s = &brain->streams[numbers[i]];

        s->benefit = shares[i].benefit;
        atomic_store_explicit(&s->quota_bytes, shares[i].quota_bytes, memory_order_relaxed);
    }
}

void fb_brain_tick(struct fb_brain *brain, int64_t now_ns)
{
    bool changed;

    if (now_ns < brain->count_ns)
        return;
    fb_mutex_lock(&brain->lock);
    for (unsigned i = 1; i < STREAMS_MAX; i++) {
        if (brain->streams[i].node != 0)
            judge(brain, &brain->streams[i]);
    }
    end_silent(brain, now_ns);
    changed = brain->changed;
    if (changed || now_ns >= brain->round_ns) {
        share_space(brain, now_ns - (brain->round_ns - FB_ALLOC_ROUND_NS));
        brain->changed = false;
        brain->round_ns = now_ns + FB_ALLOC_ROUND_NS;
    }
    fb_mutex_unlock(&brain->lock);
    count_held(brain);
}

/* ---- looking at it --------------------------------------------------------------------------- */

static void show(struct fb_brain *brain, uint64_t node, unsigned depth, fb_stream_visit_fn *visit,
                 void *arg) FB_REQUIRES(&brain->lock)
{
    struct fb_stream_view view = {.depth = depth};
    char path[FB_PATH_MAX];
    unsigned number;

    if (!fb_streams_get(brain->tree, node, &view.info) || depth > FB_STREAM_DEPTH_MAX)
        return;
    fb_streams_path(brain->tree, node, path, sizeof path);
    view.path = path;
    view.ttl_ns = fb_ttl_ns(&view.info, FB_TTL_BASE_NS);
    number = find_stream(brain, node);
    view.policy = "-";
    if (number != 0) {
        const struct stream *s = &brain->streams[number];

        view.owns = true;
        view.ended = s->ended;
        view.policy = fb_keep_name(atomic_load_explicit(&s->keep, memory_order_relaxed));
        view.quota_bytes = atomic_load_explicit(&s->quota_bytes, memory_order_relaxed);
        view.held_bytes = atomic_load_explicit(&s->held_bytes, memory_order_relaxed);
        view.benefit = s->benefit;
    }
    visit(arg, &view);
    for (uint64_t child = fb_streams_child(brain->tree, node); child;
         child = fb_streams_next(brain->tree, child))
        show(brain, child, depth + 1, visit, arg);
}

void fb_cache_streams(struct fb_cache *cache, fb_stream_visit_fn *visit, void *arg)
{
    struct fb_brain *brain = cache->brain;

    fb_mutex_lock(&brain->lock);
    for (uint64_t root = fb_streams_child(brain->tree, 0); root;
         root = fb_streams_next(brain->tree, root))
        show(brain, root, 0, visit, arg);
    fb_mutex_unlock(&brain->lock);
}
