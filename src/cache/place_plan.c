/*
 * Places of what plans read: DRAM is the way through, for what comes next; what was read leaves it.
 *
 *     leave(item):  its stream keeps nothing: it goes
 *                   there is room below: it moves there
 *                   there is none: it stays in DRAM, in segments of what plans keep, while those
 *                   are few, and copies go for it; else it goes
 *                   it has a place below: a copy stays in DRAM, in segments of copies, while both
 *                   are few; else its place below is all that it has
 *
 *     clear(bytes): segments are emptied, in the order of their making; what is due stays, and so
 *                   does what has no place below and the disk does not take in time
 *
 * All files of an epoch are worth the same, once each. So none goes for another of them: whatever
 * came first stays, in any tier, and as much as there is room for; only what spares the source a
 * read goes before what spares the disk one. What only passes through would leave holes beside what
 * stays, hence segments of their own.
 */
#include <errno.h>

#include "cache/place_priv.h"

#define CLEAR_PATIENCE_NS (100 * FB_NS_PER_MS)
#define VAIN_MAX          4u                 /* segments emptied in a row, and no room by it */
#define SAMPLE            4u                 /* items that a segment is judged by */
#define DISPLACE_AGAIN_NS (10 * FB_NS_PER_S) /* after others had nothing that goes */

static bool has_dram(const struct fb_cache *cache)
{
    return fb_tier_kind(fb_store_tier(cache->store, 0)) == FB_TIER_DRAM;
}

uint64_t fb_place_dram_free(struct fb_cache *cache)
{
    struct fb_tier_stats stats;

    if (!has_dram(cache))
        return 0;
    fb_store_tier_stats(cache->store, 0, &stats);
    return stats.budget_bytes / fb_max_u64(stats.slots, 1) * (stats.slots - stats.segments);
}

uint64_t fb_place_free(struct fb_cache *cache)
{
    uint64_t bytes = 0;

    for (unsigned t = 0; t < fb_store_tiers(cache->store); t++) {
        uint64_t way = t == 0 && has_dram(cache) ? fb_epochs_way(cache) : 0;
        uint64_t room = fb_store_room(cache->store, t);

        bytes += room - fb_min_u64(room, way);
    }
    return bytes;
}

/* What plans have kept goes last, and of that copies first. */
static int last_ones(const struct fb_segment_info *info)
{
    return info->lane == FB_STORE_PLAN ? 2 : info->lane == FB_STORE_COPY;
}

static int earlier(const void *a, const void *b)
{
    const struct fb_segment_info *x = a, *y = b;

    if (last_ones(x) != last_ones(y))
        return last_ones(x) - last_ones(y);
    return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

/* What leaves DRAM may push something out below, but for a plan's files: those are worth the same,
 * and none goes for another. */
static bool displaces_below(struct fb_cache *cache, uint32_t file, uint32_t bytes)
{
    struct fb_tier *below = fb_store_tier(cache->store, 1);

    return fb_steer_displaces(cache->steer, file, bytes,
                              fb_tier_slots(below) * fb_tier_segment_bytes(below));
}

/* Called by the store as fb_place_demote() is. */
static void let_go(void *arg, const struct fb_victim *victim)
{
    struct fb_parting *p = arg;
    struct fb_demotion *d = &p->down;

    if (!victim->current ||
        (p->is_due && p->is_due(p->due_arg, &victim->item) && fb_place_stay(p, victim)))
        return;
    /* What a user has pinned is worth waiting for. */
    d->until_ns =
        d->now_ns + (fb_steer_is_pinned(d->cache->steer, victim->item.file) ? FB_ADMIT_PATIENCE_NS
                                                                            : CLEAR_PATIENCE_NS);
    d->only_into_room =
        p->lower && !displaces_below(d->cache, victim->item.file, victim->item.length);
    fb_place_part(p, victim);
    p->is_late = p->is_late || d->was_busy;
}

/* -EAGAIN: the disk is busy, and what it did not take is in DRAM as before: no room there for a
 * moment is better than fetching from the source again what there is room for below. */
static int clear_one(struct fb_cache *cache, uint32_t segment, fb_place_due_fn *is_due, void *arg)
    FB_REQUIRES(&cache->admit_lock)
{
    struct fb_parting p = {.down = {.cache = cache,
                                    .now_ns = fb_now_ns(),
                                    .evictions = atomic_load(&cache->evictions)},
                           .lower = fb_store_tiers(cache->store) > 1,
                           .busy_stays = true,
                           .is_due = is_due,
                           .due_arg = arg};
    int rc;

    fb_list_init(&p.kept);
    fb_store_set_aside(cache->store, 0, true);
    rc = fb_store_evict(cache->store, segment, true, let_go, &p);
    fb_place_put_back(&p);
    fb_store_set_aside(cache->store, 0, false);
    return rc == 0 && p.is_late ? -EAGAIN : rc;
}

struct unplaced {
    struct fb_store *store;
    unsigned items; /* that have no place below */
};

static void look_below(void *arg, uint64_t key, uint32_t length, const struct fb_use *use)
{
    struct unplaced *u = arg;
    struct fb_whereabouts where;

    (void)length;
    (void)use;
    fb_store_where(u->store, key, &where);
    u->items += !where.below;
}

static bool has_room_below(const struct fb_cache *cache)
{
    for (unsigned t = 1; t < fb_store_tiers(cache->store); t++)
        if (fb_store_has_room(cache->store, t))
            return true;
    return false;
}

/* What came as a copy because the disk had room for it then (fb_place_adopt), and has no place
 * there when it is full, is no copy: it is all that there is. True: the segment is kept as such
 * from now on. */
static bool keep_after_all(struct fb_cache *cache, struct fb_segment_info *info)
{
    struct unplaced u = {.store = cache->store};

    if (info->lane != FB_STORE_COPY || has_room_below(cache) ||
        (fb_store_visit(cache->store, info->no, UINT32_MAX, look_below, &u) == 0 && u.items == 0))
        return false;
    (void)fb_store_set_lane(cache->store, info->no, FB_STORE_PLAN);
    info->lane = FB_STORE_PLAN;
    return true;
}

void fb_place_clear(struct fb_cache *cache, uint64_t bytes, fb_place_due_fn *is_due, void *arg)
{
    struct fb_tier_place *p = &cache->places[0];
    bool lower = fb_store_tiers(cache->store) > 1;
    unsigned vain = 0;
    uint32_t count;

    if (!has_dram(cache))
        return;
    fb_mutex_lock(&cache->admit_lock);
    count = fb_store_sealed(cache->store, 0, p->infos, p->infos_max);
    for (uint32_t i = 0; i < count; i++) {
        if (p->infos[i].live_items == 0 && !p->infos[i].pinned &&
            fb_store_evict(cache->store, p->infos[i].no, false, NULL, NULL) == 0)
            p->infos[i--] = p->infos[--count];
    }
    if (fb_place_dram_free(cache) < bytes)
        qsort(p->infos, count, sizeof *p->infos, earlier);
    for (uint32_t i = 0; i < count && vain < VAIN_MAX && fb_place_dram_free(cache) < bytes; i++) {
        uint64_t before = fb_place_dram_free(cache);
        uint32_t no = p->infos[i].no;

        /* With nothing below, what plans have kept is all there is of it. */
        if (p->infos[i].lane == FB_STORE_PLAN && !lower)
            break;
        if (p->infos[i].pinned || fb_store_is_held(cache->store, no) ||
            keep_after_all(cache, &p->infos[i]))
            continue;
        if (clear_one(cache, no, is_due, arg) < 0)
            break;
        vain = fb_place_dram_free(cache) > before ? 0 : vain + 1;
    }
    fb_mutex_unlock(&cache->admit_lock);
}

/* ---- what others have below ---- */

/* Items of a segment: how many were looked at, and are of the source's plans. */
struct sample {
    struct fb_cache *cache;
    uint16_t source;
    unsigned items, planned;
};

static void look_at(void *arg, uint64_t key, uint32_t length, const struct fb_use *use)
{
    struct sample *s = arg;
    struct fb_version version;
    char path[FB_PATH_MAX];
    size_t len;

    (void)length;
    (void)use;
    s->items++;
    s->planned +=
        fb_files_peek(s->cache->files, (uint32_t)(key >> 32), s->source, path, &len, &version) &&
        fb_epochs_own(s->cache->epochs, s->source, path, len);
}

static int longer_unused(const void *a, const void *b)
{
    const struct fb_segment_info *x = a, *y = b;

    return (x->last_access_ns > y->last_access_ns) - (x->last_access_ns < y->last_access_ns);
}

/* Empties a segment of the last tier that is mostly others', so that a plan's items get room.
 * False: there is none. */
static bool displace(struct fb_cache *cache, unsigned tier, uint16_t source)
    FB_REQUIRES(&cache->admit_lock)
{
    struct fb_tier_place *p = &cache->places[tier];
    int64_t now_ns = fb_now_ns(), until_ns = now_ns + FB_ADMIT_PATIENCE_NS;
    uint32_t count;

    /* A disk that is busy now would not take back what stays. */
    if (now_ns < cache->displace_ns || fb_tier_busy(fb_store_tier(cache->store, tier)))
        return false;
    count = fb_store_sealed(cache->store, tier, p->infos, p->infos_max);
    qsort(p->infos, count, sizeof *p->infos, longer_unused);
    for (uint32_t i = 0; i < count && fb_now_ns() < until_ns; i++) {
        struct sample s = {.cache = cache, .source = source};
        uint32_t no = p->infos[i].no;

        if (p->infos[i].pinned || fb_store_is_held(cache->store, no) ||
            fb_store_visit(cache->store, no, SAMPLE, look_at, &s) < 0 || 2 * s.planned > s.items)
            continue;
        if (fb_place_empty(cache, tier, no, true, until_ns) == 0 &&
            fb_store_has_room(cache->store, tier))
            return true;
    }
    cache->displace_ns = fb_now_ns() + DISPLACE_AGAIN_NS;
    return false;
}

static int append_below(struct fb_cache *cache, const struct fb_item *item)
    FB_REQUIRES(&cache->admit_lock)
{
    unsigned last = fb_store_tiers(cache->store) - 1;
    int64_t until_ns = fb_now_ns();
    int rc = FB_STORE_FULL;

    for (unsigned t = 1; t <= last && rc == FB_STORE_FULL; t++)
        rc = fb_place_append_into_room(cache, t, item, until_ns);
    if (rc == FB_STORE_FULL && displace(cache, last, fb_files_source(cache->files, item->file)))
        rc = fb_place_append_into_room(cache, last, item, until_ns);
    if (rc == FB_STORE_FULL && fb_steer_is_pinned(cache->steer, item->file))
        rc = fb_place_append(cache, 1, item, until_ns);
    return rc;
}

/* ---- leaving ---- */

/* 0: it has a place below now, or should have none. FB_STORE_FULL: there is none for it. */
static int move_down(struct fb_cache *cache, uint64_t key)
{
    uint64_t evictions = atomic_load(&cache->evictions);
    struct fb_item item = {.file = (uint32_t)(key >> 32), .block = (uint32_t)key};
    struct fb_pin pin;
    int rc = fb_store_pin(cache->store, key, &pin);

    if (rc == FB_STORE_MISS)
        return 0;
    if (rc == 0 && fb_files_current(cache->files, item.file)) {
        item.length = pin.length;
        item.data = pin.data;
        fb_mutex_lock(&cache->admit_lock);
        rc = append_below(cache, &item);
        fb_mutex_unlock(&cache->admit_lock);
        if (rc == 0)
            (void)fb_place_take_back(cache, &item, evictions);
    }
    fb_store_unpin(cache->store, &pin);
    return rc == FB_STORE_MEDIUM ? 0 : rc;
}

/* Writes what DRAM has of an item into a lane of a tier that has room; its place of that kind is
 * dead then. 0; positive or negative: it stays as it is. */
static int rewrite(struct fb_cache *cache, struct fb_item item, unsigned tier, int64_t until_ns,
                   uint64_t evictions, uint32_t *ret_bytes)
{
    uint64_t key = fb_item_key(item.file, item.block);
    struct fb_pin pin;
    int rc = fb_store_pin(cache->store, key, &pin);

    if (rc == FB_STORE_MISS)
        return rc;
    if (rc == 0 && (pin.tier != 0 || !fb_files_current(cache->files, item.file)))
        rc = FB_STORE_FULL;
    if (rc == 0) {
        item.anew = true;
        item.length = pin.length;
        item.data = pin.data;
        (void)fb_store_use(cache->store, key, &item.use);
        rc = fb_place_append_into_room(cache, tier, &item, until_ns);
        *ret_bytes = pin.length;
    }
    fb_store_unpin(cache->store, &pin);
    if (rc == 0 && fb_place_take_back(cache, &item, evictions))
        rc = FB_STORE_MISS;
    return rc;
}

uint64_t fb_place_kept(struct fb_cache *cache)
{
    return has_dram(cache) ? fb_store_lane_bytes(cache->store, 0, FB_STORE_PLAN) +
                                 fb_store_lane_bytes(cache->store, 0, FB_STORE_COPY)
                           : 0;
}

/* The oldest segment of copies that may go; NULL: there is none. */
static struct fb_segment_info *oldest_copies(struct fb_cache *cache, struct fb_segment_info *infos,
                                             uint32_t count)
{
    struct fb_segment_info *oldest = NULL;

    for (uint32_t i = 0; i < count; i++)
        if (infos[i].lane == FB_STORE_COPY && !infos[i].pinned &&
            !fb_store_is_held(cache->store, infos[i].no) &&
            (!oldest || infos[i].sequence < oldest->sequence))
            oldest = &infos[i];
    return oldest;
}

bool fb_place_give_copies(struct fb_cache *cache, fb_place_due_fn *is_due, void *arg)
{
    struct fb_tier_place *p = &cache->places[0];
    struct fb_segment_info *oldest;
    uint32_t count;
    bool given;

    fb_mutex_lock(&cache->admit_lock);
    count = fb_store_sealed(cache->store, 0, p->infos, p->infos_max);
    do
        oldest = oldest_copies(cache, p->infos, count);
    while (oldest && keep_after_all(cache, oldest));
    given = oldest && clear_one(cache, oldest->no, is_due, arg) == 0;
    fb_mutex_unlock(&cache->admit_lock);
    return given;
}

/* Gives an item a place among what is kept in DRAM, where what only passes through leaves no holes.
 * False: there is no room. */
static bool keep_in_dram(struct fb_cache *cache, uint64_t key, uint64_t kept_bytes,
                         enum fb_store_lane lane)
{
    struct fb_item item = {.file = (uint32_t)(key >> 32), .block = (uint32_t)key, .lane = lane};
    uint32_t bytes;

    if (fb_place_kept(cache) >= kept_bytes &&
        (lane == FB_STORE_COPY || !fb_place_give_copies(cache, NULL, NULL)))
        return false;
    return rewrite(cache, item, 0, FB_NO_PATIENCE_NS, atomic_load(&cache->evictions), &bytes) == 0;
}

/* Whether an item without a place below may not lose its place in DRAM. */
static bool needs_dram(struct fb_cache *cache, uint64_t key, uint64_t kept_bytes,
                       enum fb_store_lane lane, bool *ret_below)
{
    int rc = fb_store_tiers(cache->store) > 1 ? move_down(cache, key) : FB_STORE_FULL;

    *ret_below = rc == 0;
    /* What a user has pinned stays where it is, and what is kept already. */
    if (rc == FB_STORE_FULL)
        return lane == FB_STORE_PLAN || lane == FB_STORE_COPY ||
               keep_in_dram(cache, key, kept_bytes, FB_STORE_PLAN) ||
               fb_steer_is_pinned(cache->steer, (uint32_t)(key >> 32));
    /* A disk that is busy now gets it when its segment goes. */
    return rc != 0;
}

void fb_place_leave(struct fb_cache *cache, uint64_t key, uint64_t kept_bytes,
                    uint64_t copied_bytes)
{
    uint32_t file = (uint32_t)(key >> 32);
    struct fb_whereabouts where;
    bool worth, has_place;

    fb_store_where(cache->store, key, &where);
    if (!where.in_dram || !has_dram(cache))
        return;
    worth =
        fb_files_current(cache->files, file) && fb_steer_would_admit(cache->steer, file, 0, false);
    if (!where.below && worth && needs_dram(cache, key, kept_bytes, where.lane, &where.below))
        return;
    /* A copy that is there already would leave a hole among the others. */
    if (where.below &&
        (where.lane == FB_STORE_COPY || keep_in_dram(cache, key, copied_bytes, FB_STORE_COPY)))
        return;
    /* What was on its way from one segment to another when it was to be moved down has none, and
     * stays. */
    has_place = where.below;
    fb_store_where(cache->store, key, &where);
    if (where.below || !has_place || !worth)
        fb_store_drop_dram(cache->store, key);
}

/* ---- a plan comes ---- */

/* Items of a segment of DRAM: how many were looked at, are of plans, and have a place below. */
struct belonging {
    struct fb_cache *cache;
    fb_place_planned_fn *is_planned;
    void *arg;
    unsigned items, planned, below;
};

static void whose(void *arg, uint64_t key, uint32_t length, const struct fb_use *use)
{
    struct belonging *b = arg;
    struct fb_whereabouts where;

    (void)length;
    (void)use;
    b->items++;
    if (!b->is_planned(b->arg, (uint32_t)(key >> 32)))
        return;
    fb_store_where(b->cache->store, key, &where);
    b->planned++;
    b->below += where.below;
}

static int fuller(const void *a, const void *b)
{
    const struct fb_segment_info *x = a, *y = b;

    return (x->live_bytes < y->live_bytes) - (x->live_bytes > y->live_bytes);
}

static bool is_kept(const struct fb_segment_info *info)
{
    return info->lane == FB_STORE_PLAN || info->lane == FB_STORE_COPY;
}

void fb_place_adopt(struct fb_cache *cache, uint64_t most_bytes, fb_place_planned_fn *is_planned,
                    void *arg)
{
    struct fb_tier_place *p = &cache->places[0];
    uint64_t least = cache->budget.dram_segment_bytes / 4 * 3;
    unsigned last = fb_store_tiers(cache->store) - 1;
    bool is_roomy = last > 0 && fb_store_room(cache->store, last) >= most_bytes;
    uint32_t count;

    if (!has_dram(cache))
        return;
    fb_mutex_lock(&cache->admit_lock);
    count = fb_store_sealed(cache->store, 0, p->infos, p->infos_max);
    qsort(p->infos, count, sizeof *p->infos, fuller);
    for (uint32_t i = 0; i < count; i++) {
        struct belonging b = {.cache = cache, .is_planned = is_planned, .arg = arg};
        const struct fb_segment_info *info = &p->infos[i];
        bool planned;

        if (fb_store_visit(cache->store, info->no, SAMPLE, whose, &b) < 0 || b.items == 0)
            continue;
        planned = 2 * b.planned > b.items;
        if (is_kept(info) && !planned)
            (void)fb_store_set_lane(cache->store, info->no, FB_STORE_NEW);
        else if (!is_kept(info) && planned && info->live_bytes >= least &&
                 fb_place_kept(cache) < most_bytes)
            (void)fb_store_set_lane(cache->store, info->no,
                                    is_roomy || b.below == b.planned ? FB_STORE_COPY
                                                                     : FB_STORE_PLAN);
    }
    fb_mutex_unlock(&cache->admit_lock);
}

int fb_place_relocate(struct fb_cache *cache, uint64_t key, uint64_t evictions, uint32_t *ret_bytes)
{
    unsigned last = fb_store_tiers(cache->store) - 1;
    struct fb_item item = {
        .file = (uint32_t)(key >> 32), .block = (uint32_t)key, .lane = FB_STORE_PLAN};
    struct fb_whereabouts where;

    fb_store_where(cache->store, key, &where);
    /* What has no place below yet is no better than what has. */
    if (!where.below && !fb_store_has_room(cache->store, last))
        return FB_STORE_FULL;
    return rewrite(cache, item, last, fb_now_ns() + FB_ADMIT_PATIENCE_NS, evictions, ret_bytes);
}
