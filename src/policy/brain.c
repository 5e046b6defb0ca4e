#include "policy/brain.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "core/mem.h"
#include "policy/distinct.h"
#include "policy/reads.h"
#include "policy/shadow.h"
#include "policy/ttl.h"
#include "policy/turns.h"

#define PREFETCHERS    64   /* nodes that are prefetched for at a time */
#define RECALL         1024 /* owners last seen; a power of two */
#define BYTES_ROUND    4096 /* visits after which sums of bytes are halved */
#define SHARES_A_ROUND 6    /* times that what is free is handed out */
#define IDLE_ROUNDS    10   /* without a request: a stream of any pattern has ended */
#define SOURCES        64u
#define FAIR_MORE      10 /* one part in so many beyond what LRU would give */
/* Weights of the last read in the shares of misses; few are in the shadow's sample. */
#define MISS_WEIGHT     0.002
#define LRU_MISS_WEIGHT 0.016
#define COMPUTES        0.3          /* of the time that a miss takes, a read takes without one */
#define FETCHES_NS      1000000000LL /* who waited for the source so lately uses it */

struct stream {
    uint64_t node;
    bool lives;
    bool has_ended;
    bool tried; /* something of it was evicted */
    uint32_t idle_rounds;
    int64_t fetched_ns; /* when it last read what was not there, or had been fetched ahead */
    uint16_t source;
    uint64_t quota;
    uint64_t used;
    uint64_t visit_bytes; /* read in `visits` visits of the node */
    uint64_t visits;
    struct fb_distinct seen;
    uint64_t told_bytes; /* of its data set; 0: not told */
    struct fb_prefetch_pipe pipe;
    struct fb_turns turns;
    struct fb_ghost ghost;
    double rate;
    double ghost_share;
    double benefit;
    double misses;     /* share of its reads lately, */
    double lru_misses; /* and what it would be in one LRU */
};

struct prefetcher {
    uint64_t node;
    struct fb_prefetch state;
    bool was_used; /* what came of it was read */
};

struct fb_brain {
    struct fb_brain_config config;
    struct fb_streams *streams;
    struct fb_shadow *shadow;
    struct fb_reads *reads;
    struct stream stream[FB_BRAIN_STREAMS];
    uint16_t recall[RECALL];
    struct prefetcher prefetcher[PREFETCHERS];
    int64_t round_ns;  /* when the last one began */
    int64_t shared_ns; /* when what is free was last handed out */
    int64_t counted_ns;
    uint32_t fetchers[SOURCES]; /* streams that used a source then */
};

struct fb_brain_config fb_brain_defaults(uint64_t cache_bytes)
{
    return (struct fb_brain_config){
        .prefetch = fb_prefetch_defaults(),
        .alloc = {.total_bytes = cache_bytes,
                  .step_bytes = FB_ALLOC_STEP,
                  .minimum_bytes = FB_ALLOC_MINIMUM},
        .round_ns = FB_ALLOC_ROUND_NS,
        .ttl_base_ns = FB_TTL_BASE_NS,
    };
}

int fb_brain_new(const struct fb_brain_config *config, struct fb_brain **ret_brain)
{
    struct fb_brain *b = fb_alloc(sizeof *b);
    int rc = b ? fb_streams_new(&config->streams, &b->streams) : -ENOMEM;

    if (rc == 0)
        rc = fb_shadow_new(config->alloc.total_bytes, &b->shadow);
    if (rc == 0)
        rc = fb_reads_new(config->reads_max ? config->reads_max : FB_BRAIN_READS, &b->reads);
    if (rc < 0) {
        fb_brain_free(b);
        return rc;
    }
    b->config = *config;
    b->stream[0].lives = true;
    b->stream[0].quota = config->alloc.total_bytes;
    *ret_brain = b;
    return 0;
}

void fb_brain_free(struct fb_brain *b)
{
    if (!b)
        return;
    fb_streams_free(b->streams);
    fb_shadow_free(b->shadow);
    fb_reads_free(b->reads);
    free(b);
}

struct fb_streams *fb_brain_streams(struct fb_brain *b)
{
    return b->streams;
}

/* ---- streams ---- */

static bool info_of(const struct fb_brain *b, const struct stream *s, struct fb_stream_info *info)
{
    return s->node && fb_streams_get(b->streams, s->node, info);
}

static uint64_t data_bytes(const struct stream *s)
{
    uint64_t seen = fb_distinct_bytes(&s->seen);

    return s->told_bytes > seen ? s->told_bytes : seen;
}

/* What a byte costs (policy/alloc.h). */
static double cost_of(const struct stream *s)
{
    uint64_t items = fb_distinct_items(&s->seen);
    double item_bytes = items ? (double)fb_distinct_bytes(&s->seen) / (double)items : 0;

    return item_bytes > 0 ? 1 + s->pipe.latency_s * s->pipe.bytes_per_s / item_bytes : 1;
}

/* n of the benefit: visits that it takes to read all of the data. */
static uint64_t visits_for_all(const struct stream *s)
{
    return s->visit_bytes
               ? (uint64_t)((double)data_bytes(s) * (double)s->visits / (double)s->visit_bytes)
               : 0;
}

/* Whether its items take turns, which pays when enough of them fit. */
static bool takes_turns(const struct fb_brain *b, const struct stream *s, enum fb_pattern pattern)
{
    uint64_t items = fb_distinct_items(&s->seen), seen = fb_distinct_bytes(&s->seen);

    if (pattern != FB_PATTERN_RANDOM || b->config.no_turns || b->config.no_prefetch ||
        b->config.no_fill || s->told_bytes == 0 || seen == 0)
        return false;
    items = (uint64_t)((double)items * (double)data_bytes(s) / (double)seen);
    return fb_turns_taken(&s->turns, items);
}

uint64_t fb_brain_name(uint16_t source, const char *path, size_t len, uint32_t block)
{
    return fb_hash64_seed(path, len, (uint64_t)source << 32 | block);
}

uint32_t fb_brain_reads(const struct fb_brain *b, uint64_t name)
{
    return fb_reads_of(b->reads, name);
}

static enum fb_keep keep_of(const struct fb_brain *b, const struct stream *s)
{
    struct fb_stream_info info;

    if (b->config.no_keep || !info_of(b, s, &info))
        return FB_KEEP_LRU;
    if (takes_turns(b, s, (enum fb_pattern)info.verdict.pattern))
        return FB_KEEP_CYCLE;
    return fb_keep_for((enum fb_pattern)info.verdict.pattern);
}

/* What LRU would give it, and some more, for what the shadow does not know: it samples. But no more
 * than it is about to use. */
static uint64_t fair_bytes(const struct fb_brain *b, uint32_t stream)
{
    uint64_t held = fb_shadow_holds(b->shadow, stream);

    return fb_min_u64(held + held / FAIR_MORE,
                      b->stream[stream].used + b->config.alloc.minimum_bytes / 4);
}

/* What the round of space needs to know, of all that live; their numbers in `number`. */
static uint32_t describe(const struct fb_brain *b, struct fb_alloc_stream *out, uint32_t *number)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < FB_BRAIN_STREAMS; i++) {
        const struct stream *s = &b->stream[i];
        struct fb_stream_info info = {0};

        if (!s->lives)
            continue;
        info_of(b, s, &info);
        number[count] = i;
        out[count++] = (struct fb_alloc_stream){
            .pattern = (enum fb_pattern)info.verdict.pattern,
            .has_ended = s->has_ended,
            .data_bytes = data_bytes(s),
            .items = visits_for_all(s),
            .gap_s = info.gap_mean_s,
            .rate = s->rate,
            .ghost_share = s->ghost_share,
            .cost = cost_of(s),
            .is_untried = !s->tried,
            .fair_bytes = keep_of(b, s) == FB_KEEP_LRU ? fair_bytes(b, i) : 0,
            .used_bytes = s->used,
            .quota_bytes = s->quota,
        };
    }
    return count;
}

static void share_out(struct fb_brain *b, uint64_t step)
{
    struct fb_alloc_stream streams[FB_BRAIN_STREAMS];
    uint32_t number[FB_BRAIN_STREAMS];
    struct fb_alloc_config config = b->config.alloc;
    uint32_t count = describe(b, streams, number);

    if (b->config.no_alloc)
        return;
    config.step_bytes = step;
    fb_alloc_round(&config, streams, count);
    for (uint32_t i = 0; i < count; i++) {
        b->stream[number[i]].quota = streams[i].quota_bytes;
        b->stream[number[i]].benefit = streams[i].benefit;
    }
}

/* What an ended stream holds may stay while there is room for all, but not keep its number from a
 * new one. The one that was silent for longest; 0: none has ended. */
static uint32_t take_ended(struct fb_brain *b)
{
    uint32_t oldest = 0;

    for (uint32_t i = 1; i < FB_BRAIN_STREAMS; i++) {
        const struct stream *s = &b->stream[i];

        if (s->has_ended && (!oldest || s->idle_rounds > b->stream[oldest].idle_rounds))
            oldest = i;
    }
    if (oldest)
        fb_shadow_forget(b->shadow, oldest);
    return oldest;
}

/* The number of the stream of a node; 0 when there is no room for another. */
static uint32_t stream_of(struct fb_brain *b, uint64_t node)
{
    uint16_t *recall = &b->recall[node & (RECALL - 1)];
    uint32_t empty = 0;

    if (node == 0)
        return 0;
    if (b->stream[*recall].node == node && b->stream[*recall].lives)
        return *recall;
    for (uint32_t i = FB_BRAIN_STREAMS - 1; i > 0; i--) {
        const struct stream *s = &b->stream[i];

        if (s->lives && s->node == node) {
            *recall = (uint16_t)i;
            return i;
        }
        if (!s->lives)
            empty = i;
    }
    if (!empty)
        empty = take_ended(b);
    if (empty) {
        b->stream[empty] = (struct stream){.lives = true, .node = node};
        *recall = (uint16_t)empty;
        share_out(b, 0); /* it gets its minimum at once */
    }
    return empty;
}

/* ---- fetching ahead ---- */

static struct prefetcher *prefetcher_of(struct fb_brain *b, uint64_t node)
{
    struct prefetcher *p = &b->prefetcher[(node ^ node >> 32) % PREFETCHERS];

    if (p->node != node)
        *p = (struct prefetcher){.node = node};
    return p;
}

/* What this stream may have of its source: as much as each of the others that use it. One that
 * fills the pipe by itself would have short readers of large items wait behind it. */
static struct fb_prefetch_pipe share_of(struct fb_brain *b, const struct fb_brain_access *access)
{
    struct fb_prefetch_pipe pipe = access->pipe;
    int64_t now_ns = access->fact.time_ns;
    unsigned users;

    if (now_ns - b->counted_ns > FETCHES_NS / 4 || now_ns < b->counted_ns) {
        b->counted_ns = now_ns;
        memset(b->fetchers, 0, sizeof b->fetchers);
        for (uint32_t i = 0; i < FB_BRAIN_STREAMS; i++)
            b->fetchers[b->stream[i].source % SOURCES] +=
                b->stream[i].fetched_ns > 0 && now_ns - b->stream[i].fetched_ns < FETCHES_NS;
    }
    users = b->fetchers[access->fact.source % SOURCES];
    if (users > 1)
        pipe.bytes_per_s /= users;
    return pipe;
}

static void want_ahead(struct fb_brain *b, const struct fb_stream_info *info,
                       const struct fb_brain_access *access, struct fb_brain_answer *answer)
{
    struct fb_prefetch_pipe pipe = share_of(b, access);
    struct prefetcher *p = prefetcher_of(b, info->id);
    bool is_parent = !info->is_file;
    uint32_t position = is_parent ? access->fact.position : access->fact.block;
    struct fb_want want = {
        .node = info->id,
        .by_name = info->by_name,
        .origin = (uint16_t)(p - b->prefetcher),
    };

    if (info->by_name || position == FB_POSITION_UNKNOWN) {
        /* Nobody knows how far ahead it is; whoever looks names up sees what is there already. */
        if (info->verdict.stride <= 0 || fb_prefetch_is_paused(&p->state, info->visits))
            return;
        want.by_name = true;
        want.range = (struct fb_prefetch_range){
            .first = 1,
            .stride = 1,
            .count = fb_prefetch_depth(&b->config.prefetch, &pipe, info->gap_mean_s)};
    } else {
        want.range = fb_prefetch_ahead(&p->state, &b->config.prefetch, info, &pipe, position,
                                       is_parent ? access->fact.siblings : access->fact.blocks);
    }
    if (want.range.count && answer->wants < FB_BRAIN_WANTS)
        answer->want[answer->wants++] = want;
    if (p->was_used)
        b->stream[answer->stream].fetched_ns = access->fact.time_ns;
    p->was_used = false;
}

/* Every node that a caller stepped in, and that goes in order, is fetched ahead for, whoever owns
 * its items: files of a random data set are read from front to back, too. */
static void look_ahead(struct fb_brain *b, const struct fb_brain_access *access,
                       const struct fb_fed *fed, struct fb_brain_answer *answer)
{
    for (unsigned i = 0; i < fed->depth; i++) {
        struct fb_stream_info info;

        if (!fed->steps[i].visit || !fb_streams_get(b->streams, fed->steps[i].id, &info))
            continue;
        if (info.verdict.pattern == FB_PATTERN_SEQUENTIAL ||
            info.verdict.pattern == FB_PATTERN_CYCLIC)
            want_ahead(b, &info, access, answer);
    }
}

void fb_brain_prefetched(struct fb_brain *b, uint16_t origin, bool was_used)
{
    struct prefetcher *p = &b->prefetcher[origin % PREFETCHERS];
    struct fb_stream_info info = {0};

    fb_streams_get(b->streams, p->node, &info);
    fb_prefetch_count(&p->state, &b->config.prefetch, was_used, info.visits);
    p->was_used = p->was_used || was_used;
}

/* ---- accesses and items ---- */

static void count_bytes(struct stream *s, const struct fb_fed *fed, uint64_t bytes)
{
    if (fed->depth && fed->steps[fed->depth - 1].visit)
        s->visit_bytes += bytes;
    for (unsigned i = 0; i < fed->depth; i++) {
        if (fed->steps[i].id == s->node && fed->steps[i].visit)
            s->visits++;
    }
    if (s->visits >= BYTES_ROUND) {
        s->visits /= 2;
        s->visit_bytes /= 2;
    }
}

/* How much slower the stream would read in one LRU: what it waits for decides, but for a rest that
 * it computes in any case. Only those whose items are held gain by us. */
static double speed_in_lru(const struct stream *s, enum fb_keep keep)
{
    if (!fb_keep_holds(keep) || s->lru_misses <= s->misses)
        return 1;
    return (COMPUTES + s->misses) / (COMPUTES + s->lru_misses);
}

/* Shows the access to the shadow of one LRU, where the stream would read at its speed of there. */
static void shadow(struct fb_brain *b, struct stream *s, const struct fb_brain_answer *answer,
                   const struct fb_brain_access *access)
{
    enum fb_shadowed seen;

    s->misses += MISS_WEIGHT * (!access->fact.hit - s->misses);
    seen = fb_shadow_access(b->shadow, answer->stream, access->key, access->item_bytes,
                            speed_in_lru(s, answer->keep));
    if (seen != FB_SHADOW_UNSEEN)
        s->lru_misses += LRU_MISS_WEIGHT * ((seen == FB_SHADOW_MISS) - s->lru_misses);
}

void fb_brain_access(struct fb_brain *b, const struct fb_brain_access *access,
                     struct fb_brain_answer *answer)
{
    struct fb_fed fed;
    struct stream *s;

    fb_streams_feed(b->streams, &access->fact, &fed);
    *answer =
        (struct fb_brain_answer){.stream = stream_of(b, fb_streams_fed_owner(b->streams, &fed))};
    s = &b->stream[answer->stream];
    if (s->has_ended) {
        s->has_ended = false;
        share_out(b, 0);
    }
    s->idle_rounds = 0;
    s->pipe = access->pipe;
    if (!b->config.no_turns)
        fb_turns_read(&s->turns, fb_reads_add(b->reads, access->name));
    answer->keep = keep_of(b, s);
    fb_ghost_request(&s->ghost, access->key, !access->fact.hit);
    fb_distinct_add(&s->seen, access->key, access->item_bytes);
    shadow(b, s, answer, access);
    count_bytes(s, &fed, access->item_bytes);
    if (!b->config.no_prefetch)
        look_ahead(b, access, &fed, answer);
    if (!access->fact.hit)
        s->fetched_ns = access->fact.time_ns;
    s->source = access->fact.source;
}

void fb_brain_size(struct fb_brain *b, uint32_t stream, uint64_t bytes)
{
    bool is_new = b->stream[stream].told_bytes != bytes;

    b->stream[stream].told_bytes = bytes;
    if (is_new)
        share_out(b, 0); /* what is free goes to it now */
}

bool fb_brain_admits(const struct fb_brain *b, uint32_t stream, bool is_ahead, uint64_t item_bytes,
                     uint64_t free_bytes)
{
    const struct stream *s = &b->stream[stream];
    enum fb_keep keep = keep_of(b, s);
    /* Without quotas, what is kept uniformly is kept while there is room at all. */
    uint64_t quota = b->config.no_alloc ? s->used + free_bytes : s->quota;

    return (keep != FB_KEEP_NEVER && item_bytes <= free_bytes) ||
           fb_keep_admits(keep, is_ahead, s->used, quota, item_bytes);
}

void fb_brain_came(struct fb_brain *b, uint32_t stream, uint64_t item_bytes)
{
    b->stream[stream].used += item_bytes;
}

void fb_brain_went(struct fb_brain *b, uint32_t stream, uint64_t key, uint64_t item_bytes,
                   enum fb_went why)
{
    struct stream *s = &b->stream[stream];

    FB_ASSERT(s->used >= item_bytes);
    s->used -= item_bytes;
    if (why == FB_WENT_EVICTED) {
        fb_ghost_add(&s->ghost, key);
        s->tried = true;
    }
}

/* Who holds most beyond its quota; else who asks; if that has nothing, who has most. */
uint32_t fb_brain_giver(const struct fb_brain *b, uint32_t stream)
{
    uint32_t over = stream, rich = 0;
    uint64_t most = 0;

    if (b->config.no_alloc)
        return FB_BRAIN_ANYONE;
    for (uint32_t i = 0; i < FB_BRAIN_STREAMS; i++) {
        const struct stream *s = &b->stream[i];

        if (!s->lives)
            continue;
        if (s->used > s->quota && s->used - s->quota > most) {
            most = s->used - s->quota;
            over = i;
        }
        if (s->used > b->stream[rich].used)
            rich = i;
    }
    return b->stream[over].used ? over : rich;
}

/* ---- time ---- */

static void end_streams(struct fb_brain *b, int64_t now_ns)
{
    for (uint32_t i = 1; i < FB_BRAIN_STREAMS; i++) {
        struct stream *s = &b->stream[i];
        struct fb_stream_info info;

        if (!s->lives)
            continue;
        if (!info_of(b, s, &info)) {
            s->has_ended = true;
            s->node = 0;
        } else if (!b->config.no_ttl && fb_ttl_is_over(&info, b->config.ttl_base_ns, now_ns)) {
            s->has_ended = true;
        }
        if (s->has_ended && s->used == 0) {
            *s = (struct stream){0};
            fb_shadow_forget(b->shadow, i);
        }
    }
}

static void begin_round(struct fb_brain *b, int64_t now_ns)
{
    double seconds = (double)(now_ns - b->round_ns) / 1e9;

    b->round_ns = now_ns;
    for (uint32_t i = 0; i < FB_BRAIN_STREAMS; i++) {
        struct stream *s = &b->stream[i];

        if (!s->lives)
            continue;
        s->idle_rounds = s->ghost.requests ? 0 : s->idle_rounds + 1;
        if (i > 0 && s->idle_rounds > IDLE_ROUNDS && !b->config.no_ttl)
            s->has_ended = true;
        s->rate = s->ghost.requests / seconds;
        s->ghost_share = fb_ghost_round(&s->ghost);
    }
    b->shared_ns = now_ns;
    share_out(b, b->config.alloc.step_bytes);
}

void fb_brain_tick(struct fb_brain *b, int64_t now_ns)
{
    end_streams(b, now_ns);
    if (b->round_ns == 0)
        b->round_ns = now_ns;
    if (now_ns - b->round_ns >= b->config.round_ns) {
        begin_round(b, now_ns);
    } else if (now_ns - b->shared_ns >= b->config.round_ns / SHARES_A_ROUND) {
        b->shared_ns = now_ns;
        share_out(b, 0);
    }
}

bool fb_brain_get(const struct fb_brain *b, uint32_t stream, struct fb_brain_stream *ret_stream)
{
    const struct stream *s = &b->stream[stream < FB_BRAIN_STREAMS ? stream : 0];
    struct fb_stream_info info = {0};
    const struct prefetcher *p;

    if (stream >= FB_BRAIN_STREAMS || !s->lives)
        return false;
    info_of(b, s, &info);
    p = &b->prefetcher[(s->node ^ s->node >> 32) % PREFETCHERS];
    *ret_stream = (struct fb_brain_stream){
        .node = s->node,
        .has_ended = s->has_ended,
        .keep = keep_of(b, s),
        .quota_bytes = s->quota,
        .used_bytes = s->used,
        .data_bytes = data_bytes(s),
        .told_bytes = s->told_bytes,
        .ttl_ns = fb_ttl_ns(&info, b->config.ttl_base_ns),
        .benefit = s->benefit,
        .accuracy = p->node == s->node ? fb_prefetch_accuracy(&p->state) : 1,
    };
    if (!s->has_ended && takes_turns(b, s, (enum fb_pattern)info.verdict.pattern) &&
        (double)s->quota >= b->config.prefetch.turns_ratio * (double)data_bytes(s))
        ret_stream->due = fb_turns_due(&s->turns);
    if (!b->config.no_prefetch && !b->config.no_fill && !s->has_ended)
        ret_stream->fill_bytes =
            fb_prefetch_fill(&b->config.prefetch, &info, s->quota, s->used, ret_stream->data_bytes);
    return true;
}
