/*
 * A cache as policy/brain.h wants it: items in lists of their streams, wants turned into items.
 *
 *     read:    tell the brain; the item moves to its stream's list of read ones, or is dropped;
 *              fetch what the brain wants, and what the read-ahead of files wants
 *     arrived: the brain admits it? then streams that must give make room
 *     idle:    one more item of a stream that is worth loading whole, or that takes turns
 *
 * As in the daemon, what was read to its end by a stream that will not come back stays while there
 * is room for all, and directories are known from their 32nd visit on, or when something of them is
 * wanted. Unlike there, the brain is told of accesses at once.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "core/mem.h"
#include "sim/jobs_cache.h"

#define NO_ORIGIN  UINT16_MAX
#define FULL_SHARE 64   /* of the cache that is free when it counts as full */
#define FILL_LOOK  4096 /* items looked at for one to load */
#define LISTERS    8
#define LISTED_AT  32 /* visits of a directory (cache/dirs.h) */
#define PATH_BYTES 256

enum list {
    UNREAD, /* fetched ahead */
    READ,
    LISTS,
};

struct item {
    uint32_t prev; /* towards the head, which is the newest */
    uint32_t next;
    uint16_t stream; /* it is in, or will be when it arrives */
    uint16_t origin; /* the prefetch it came of, until it is read */
    bool is_here;
    uint8_t list;
    double time_s; /* of its place in the list: last use, or coming */
};

struct ends {
    uint32_t head;
    uint32_t tail;
};

struct fill {
    uint32_t first; /* items of the stream's data set */
    uint32_t end;
    uint32_t next;
    uint64_t node;   /* whose data set was listed */
    double listed_s; /* when that is, or was, done */
    uint64_t bytes;  /* still to ask for */
    double due;      /* beyond that, what was read less often than so */
    uint32_t looked; /* at so many in vain since the last tick */
};

struct cache {
    const struct fb_jobs_world *world;
    struct fb_brain *brain;
    struct fb_brain_config config;
    struct fb_jobs_ahead *readahead;
    struct item *items;
    uint64_t capacity;
    uint64_t used;
    struct ends ends[FB_BRAIN_STREAMS][LISTS];
    struct fill fill[FB_BRAIN_STREAMS];
    bool fills;      /* any of them */
    uint8_t *visits; /* of each directory, by its first file; LISTED_AT: it is known */
};

struct fb_brain_config fb_jobs_brain_config(uint64_t bytes)
{
    struct fb_brain_config config = fb_brain_defaults(bytes);

    config.alloc.minimum_bytes = fb_min_u64(config.alloc.minimum_bytes, bytes / 16);
    config.alloc.step_bytes = fb_min_u64(config.alloc.step_bytes, bytes / 8);
    return config;
}

struct fb_brain *fb_jobs_brain_of(void *cache)
{
    return ((struct cache *)cache)->brain;
}

static void destroy(void *cache)
{
    struct cache *c = cache;

    if (!c)
        return;
    fb_brain_free(c->brain);
    fb_jobs_ahead_free(c->readahead);
    free(c->items);
    free(c->visits);
    free(c);
}

int fb_jobs_brain_new(const struct fb_jobs_world *world, const struct fb_brain_config *config,
                      bool no_readahead, void **ret_cache)
{
    struct cache *c = fb_alloc(sizeof *c);
    int rc = c ? 0 : -ENOMEM;

    if (rc == 0) {
        c->world = world;
        c->config = *config;
        c->config.reads_max = world->item_count + world->item_count / 2ULL;
        c->capacity = config->alloc.total_bytes;
        memset(c->ends, 0xff, sizeof c->ends);
        c->items = fb_alloc_array(world->item_count, sizeof *c->items);
        c->visits = fb_alloc_array(world->file_count, 1);
        rc = c->items && c->visits ? fb_brain_new(&c->config, &c->brain) : -ENOMEM;
    }
    if (rc == 0)
        rc = fb_jobs_ahead_new(world, no_readahead ? FB_JOBS_AHEAD_NONE : FB_JOBS_AHEAD_READAHEAD,
                               &c->readahead);
    if (rc < 0) {
        destroy(c);
        return rc;
    }
    for (uint32_t i = 0; i < world->item_count; i++)
        c->items[i].origin = NO_ORIGIN;
    *ret_cache = c;
    return 0;
}

/* ---- lists ---- */

static void push(struct cache *c, uint32_t at, enum list list, double now_s)
{
    struct item *it = &c->items[at];
    struct ends *e = &c->ends[it->stream][list];

    it->list = (uint8_t)list;
    it->time_s = now_s;
    it->prev = FB_JOBS_NONE;
    it->next = e->head;
    *(e->head == FB_JOBS_NONE ? &e->tail : &c->items[e->head].prev) = at;
    e->head = at;
}

static void take(struct cache *c, uint32_t at)
{
    const struct item *it = &c->items[at];
    struct ends *e = &c->ends[it->stream][it->list];

    *(it->prev == FB_JOBS_NONE ? &e->head : &c->items[it->prev].next) = it->next;
    *(it->next == FB_JOBS_NONE ? &e->tail : &c->items[it->next].prev) = it->prev;
}

static void count_origin(struct cache *c, struct item *it, bool was_used)
{
    if (it->origin != NO_ORIGIN)
        fb_brain_prefetched(c->brain, it->origin, was_used);
    it->origin = NO_ORIGIN;
}

static void remove_item(struct cache *c, uint32_t at, enum fb_went why)
{
    struct item *it = &c->items[at];
    uint32_t bytes = fb_jobs_item_bytes(c->world, at);

    take(c, at);
    count_origin(c, it, false);
    fb_brain_went(c->brain, it->stream, at + 1ULL, bytes, why);
    it->is_here = false;
    c->used -= bytes;
}

static bool is_full(const struct cache *c)
{
    return c->capacity - c->used < c->capacity / FULL_SHARE;
}

/* Of the ends of a stream's lists the one that keep.h would choose. */
static uint32_t victim_of(const struct cache *c, uint32_t stream, enum fb_keep keep)
{
    const struct ends *unread = &c->ends[stream][UNREAD], *read = &c->ends[stream][READ];
    bool newest = fb_keep_holds(keep);
    uint32_t a = newest ? unread->head : unread->tail, b = newest ? read->head : read->tail;

    if (a == FB_JOBS_NONE || b == FB_JOBS_NONE)
        return a == FB_JOBS_NONE ? b : a;
    if (keep == FB_KEEP_EAGER || keep == FB_KEEP_NEVER || keep == FB_KEEP_CYCLE)
        return b;
    return (c->items[a].time_s < c->items[b].time_s) == newest ? b : a;
}

/* The least recently used of all streams. */
static uint32_t oldest(const struct cache *c)
{
    uint32_t best = FB_JOBS_NONE;

    for (uint32_t s = 0; s < FB_BRAIN_STREAMS; s++) {
        uint32_t at = victim_of(c, s, FB_KEEP_LRU);

        if (at != FB_JOBS_NONE &&
            (best == FB_JOBS_NONE || c->items[at].time_s < c->items[best].time_s))
            best = at;
    }
    return best;
}

static void evict_one(struct cache *c, uint32_t stream)
{
    uint32_t giver = fb_brain_giver(c->brain, stream);
    struct fb_brain_stream info;
    uint32_t at;

    if (giver == FB_BRAIN_ANYONE) {
        at = oldest(c);
    } else {
        FB_ASSERT(fb_brain_get(c->brain, giver, &info));
        at = victim_of(c, giver, info.keep);
    }
    FB_ASSERT(at != FB_JOBS_NONE);
    remove_item(c, at, FB_WENT_EVICTED);
}

/* ---- fetching ahead ---- */

static void want_item(struct cache *c, struct fb_jobs_run *run, uint32_t at, uint32_t stream,
                      uint16_t origin)
{
    struct item *it = &c->items[at];

    if (it->is_here || !fb_jobs_may_fetch_ahead(run, at) ||
        !fb_brain_admits(c->brain, stream, true, fb_jobs_item_bytes(c->world, at),
                         c->capacity - c->used))
        return;
    it->stream = (uint16_t)stream;
    it->origin = origin;
    fb_jobs_fetch_ahead(run, at, origin != NO_ORIGIN);
}

/* Of a child of the node: a file, or what is wanted of a directory. */
static void want_child(struct cache *c, struct fb_jobs_run *run, const struct fb_want *want,
                       uint32_t first, uint32_t end, size_t dir_len, uint32_t stream)
{
    const struct fb_streams *streams = fb_brain_streams(c->brain);
    uint32_t dir;

    fb_jobs_dir_of(c->world, first, &dir);
    c->visits[dir] = LISTED_AT;
    for (uint32_t f = first; f < end; f++) {
        const struct fb_jobs_file *file = &c->world->files[f];
        const char *child = file->path + (dir_len ? dir_len + 1 : 0);
        const char *slash = memchr(child, '/', file->path_len - (size_t)(child - file->path));

        if (slash && !fb_prefetch_wants_name(&c->config.prefetch, streams, want->node, slash + 1,
                                             file->path_len - (size_t)(slash + 1 - file->path)))
            continue;
        for (uint32_t b = 0; b < file->blocks; b++) {
            if (slash ||
                fb_prefetch_wants_block(&c->config.prefetch, streams, want->node, b, file->blocks))
                want_item(c, run, file->first_item + b, stream, want->origin);
        }
    }
}

static void want_by_name(struct cache *c, struct fb_jobs_run *run, const struct fb_want *want,
                         uint32_t file, uint32_t stream)
{
    char path[PATH_BYTES];
    size_t len = fb_streams_path(fb_brain_streams(c->brain), want->node, path, sizeof path);
    uint32_t first, end, at;

    if (len >= sizeof path || !fb_jobs_below(c->world, path, len, &first, &end))
        return;
    at = fb_jobs_child_end(c->world, file, len);
    for (uint32_t i = 1; i <= want->range.count && at < end; i++) {
        uint32_t next = fb_jobs_child_end(c->world, at, len);

        if (i >= want->range.first)
            want_child(c, run, want, at, next, len, stream);
        at = next;
    }
}

static void want_blocks(struct cache *c, struct fb_jobs_run *run, const struct fb_want *want,
                        uint32_t file, uint32_t stream)
{
    const struct fb_jobs_file *f = &c->world->files[file];

    for (uint32_t i = 0; i < want->range.count; i++) {
        uint64_t block = want->range.first + (uint64_t)i * want->range.stride;

        if (block < f->blocks)
            want_item(c, run, f->first_item + (uint32_t)block, stream, want->origin);
    }
}

/* Files of the directory by their places. */
static void want_positions(struct cache *c, struct fb_jobs_run *run, const struct fb_want *want,
                           uint32_t file, uint32_t stream)
{
    uint32_t first, count = fb_jobs_dir_of(c->world, file, &first);

    for (uint32_t i = 0; i < want->range.count; i++) {
        uint64_t at = want->range.first + (uint64_t)i * want->range.stride;
        const struct fb_jobs_file *f = &c->world->files[first + at];

        for (uint32_t b = 0; at < count && b < f->blocks; b++) {
            if (fb_prefetch_wants_block(&c->config.prefetch, fb_brain_streams(c->brain), want->node,
                                        b, f->blocks))
                want_item(c, run, f->first_item + b, stream, want->origin);
        }
    }
}

static void look_ahead(struct cache *c, struct fb_jobs_run *run, const struct fb_jobs_read *read,
                       const struct fb_brain_answer *answer)
{
    uint32_t file = c->world->item_file[read->item];
    uint32_t items[FB_JOBS_AHEAD_MAX];
    unsigned n = fb_jobs_ahead_of(c->readahead, read, items);

    for (unsigned i = 0; i < n; i++)
        want_item(c, run, items[i], answer->stream, NO_ORIGIN);
    for (unsigned i = 0; i < answer->wants; i++) {
        const struct fb_want *want = &answer->want[i];
        struct fb_stream_info info;

        if (!fb_streams_get(fb_brain_streams(c->brain), want->node, &info))
            continue;
        if (info.is_file)
            want_blocks(c, run, want, file, answer->stream);
        else if (want->by_name)
            want_by_name(c, run, want, file, answer->stream);
        else
            want_positions(c, run, want, file, answer->stream);
    }
}

/* ---- reads ---- */

/* Whether it is the item's turn, where a stream has turns. */
static bool is_due(const struct cache *c, uint32_t at)
{
    return fb_brain_reads(c->brain, at + 1ULL) < c->fill[c->items[at].stream].due;
}

static void used(struct cache *c, uint32_t at, const struct fb_brain_answer *answer, double now_s)
{
    struct item *it = &c->items[at];
    uint32_t bytes = fb_jobs_item_bytes(c->world, at);
    bool moves = it->stream != answer->stream;

    if (fb_keep_drops(answer->keep, bytes, bytes) && is_full(c)) {
        count_origin(c, it, true);
        remove_item(c, at, FB_WENT_DROPPED);
        return;
    }
    count_origin(c, it, true);
    if (moves) {
        fb_brain_went(c->brain, it->stream, at + 1ULL, bytes, FB_WENT_MOVED);
        fb_brain_came(c->brain, answer->stream, bytes);
    }
    /* What is kept uniformly lies in the order in which it came; who is due for another job's turn
     * counts as not yet read. */
    if (moves || it->list == UNREAD || answer->keep != FB_KEEP_UNIFORM) {
        take(c, at);
        it->stream = (uint16_t)answer->stream;
        push(c, at, is_due(c, at) ? UNREAD : READ, now_s);
    }
}

/* How many files there are beside this one, if that is known. */
static uint32_t siblings_of(struct cache *c, uint32_t file, uint32_t *ret_position)
{
    uint32_t first, count = fb_jobs_dir_of(c->world, file, &first);

    if (c->visits[first] < LISTED_AT) {
        c->visits[first]++;
        *ret_position = FB_POSITION_UNKNOWN;
        return 0;
    }
    *ret_position = file - first;
    return count;
}

static bool on_read(void *cache, struct fb_jobs_run *run, const struct fb_jobs_read *read)
{
    struct cache *c = cache;
    struct item *it = &c->items[read->item];
    uint32_t number = c->world->item_file[read->item];
    const struct fb_jobs_file *file = &c->world->files[number];
    bool hit = it->is_here;
    struct fb_brain_answer answer;
    struct fb_brain_access access = {
        .fact = {.time_ns = (int64_t)(read->now_s * 1e9) + 1,
                 .path = file->path,
                 .path_len = file->path_len,
                 .pid = read->pid,
                 .block = read->item - file->first_item,
                 .blocks = file->blocks,
                 .hit = hit},
        .key = read->item + 1ULL,
        .item_bytes = read->bytes,
        .name = read->item + 1ULL,
        .pipe = {.latency_s = fb_jobs_fetch_time(run),
                 .bytes_per_s = fb_jobs_bytes_per_s(run),
                 .item_bytes = read->bytes},
    };

    access.fact.siblings = siblings_of(c, number, &access.fact.position);
    fb_brain_access(c->brain, &access, &answer);
    if (hit) {
        used(c, read->item, &answer, read->now_s);
    } else {
        count_origin(c, it, true);
        it->stream = (uint16_t)answer.stream;
    }
    look_ahead(c, run, read, &answer);
    return hit;
}

static void arrived(void *cache, uint32_t at, bool is_ahead, double now_s)
{
    struct cache *c = cache;
    struct item *it = &c->items[at];
    uint32_t bytes = fb_jobs_item_bytes(c->world, at);
    struct fb_brain_stream info;

    if (!fb_brain_get(c->brain, it->stream, &info)) {
        it->stream = 0;
        FB_ASSERT(fb_brain_get(c->brain, 0, &info));
    }
    if ((!is_ahead && fb_keep_drops(info.keep, bytes, bytes) && is_full(c)) ||
        !fb_brain_admits(c->brain, it->stream, is_ahead, bytes, c->capacity - c->used)) {
        count_origin(c, it, false);
        return;
    }
    while (c->capacity - c->used < bytes)
        evict_one(c, it->stream);
    fb_brain_came(c->brain, it->stream, bytes);
    c->used += bytes;
    it->is_here = true;
    push(c, at, is_ahead ? UNREAD : READ, now_s);
}

/* ---- loading what is worth it ---- */

/* A stream that may be worth loading has its data set listed: a request for each directory and each
 * thousand files, LISTERS at a time. */
static void list_set(struct cache *c, struct fb_jobs_run *run, struct fill *fill, uint64_t node,
                     double now_s)
{
    char path[PATH_BYTES];
    size_t len = fb_streams_path(fb_brain_streams(c->brain), node, path, sizeof path);
    uint32_t first, end, requests, dirs = 0;

    *fill = (struct fill){.node = node, .listed_s = INFINITY};
    if (len >= sizeof path || !fb_jobs_below(c->world, path, len, &first, &end))
        return;
    for (uint32_t f = first; f < end; f = fb_jobs_child_end(c->world, f, len))
        dirs++;
    if (dirs == end - first)
        dirs = 1;
    fill->first = fill->next = c->world->files[first].first_item;
    fill->end = c->world->files[end].first_item;
    requests = 1 + dirs + (end - first) / 1000;
    fill->listed_s = now_s + fb_jobs_fetch_time(run) * ceil((double)requests / LISTERS);
}

static void plan_fill(struct cache *c, struct fb_jobs_run *run, uint32_t stream, double now_s)
{
    struct fill *fill = &c->fill[stream];
    struct fb_brain_stream info;
    uint64_t bytes = 0;

    fill->bytes = 0;
    fill->due = 0;
    fill->looked = 0;
    if (!fb_brain_get(c->brain, stream, &info) || !info.node || !fb_keep_holds(info.keep))
        return;
    if (fill->node != info.node)
        list_set(c, run, fill, info.node, now_s);
    if (now_s < fill->listed_s)
        return;
    if (info.told_bytes == 0) {
        for (uint32_t i = fill->first; i < fill->end; i++)
            bytes += fb_jobs_item_bytes(c->world, i);
        fb_brain_size(c->brain, stream, bytes);
    }
    fill->bytes = info.fill_bytes;
    fill->due = info.due;
    c->fills = c->fills || fill->bytes || fill->due > 0;
}

static void tick(void *cache, struct fb_jobs_run *run, double now_s)
{
    struct cache *c = cache;

    fb_brain_tick(c->brain, (int64_t)(now_s * 1e9) + 1);
    c->fills = false;
    for (uint32_t s = 1; s < FB_BRAIN_STREAMS; s++)
        plan_fill(c, run, s, now_s);
}

/* Round and round the data set: what is not there, nor on its way; of a stream that takes turns
 * what is due, in place of something that is not. */
static uint32_t next_to_fill(struct cache *c, struct fb_jobs_run *run, uint32_t stream)
{
    struct fill *fill = &c->fill[stream];
    uint32_t last = c->ends[stream][READ].head;
    bool may = fill->bytes || (fill->due > 0 && last != FB_JOBS_NONE && !is_due(c, last));

    for (unsigned i = 0; may && i < FILL_LOOK && fill->looked < fill->end - fill->first; i++) {
        uint32_t at = fill->next;
        uint32_t bytes = fb_jobs_item_bytes(c->world, at);

        fill->next = at + 1 < fill->end ? at + 1 : fill->first;
        fill->looked++;
        if (c->items[at].is_here || !fb_jobs_may_fetch_ahead(run, at) ||
            (fill->due > 0 && fb_brain_reads(c->brain, at + 1ULL) >= fill->due))
            continue;
        fill->looked = 0;
        fill->bytes -= fb_min_u64(bytes, fill->bytes);
        c->items[at].stream = (uint16_t)stream;
        return at;
    }
    return FB_JOBS_NONE;
}

static uint32_t idle(void *cache, struct fb_jobs_run *run)
{
    struct cache *c = cache;

    for (uint32_t s = 1; c->fills && s < FB_BRAIN_STREAMS; s++) {
        uint32_t at =
            c->fill[s].bytes || c->fill[s].due > 0 ? next_to_fill(c, run, s) : FB_JOBS_NONE;

        if (at != FB_JOBS_NONE)
            return at;
    }
    return FB_JOBS_NONE;
}

const struct fb_jobs_cache_ops fb_jobs_brain = {
    .read = on_read,
    .arrived = arrived,
    .tick = tick,
    .idle = idle,
    .destroy = destroy,
};
