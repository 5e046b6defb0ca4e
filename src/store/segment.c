/*
 * Segments, from FREE to FREE (see store.h for the states, store_priv.h for the rules).
 *
 * A slot is taken, and a segment sealed, without the tier's lock: both may touch the file system.
 * `opening` keeps two threads from taking a slot each; who comes second waits for the first.
 *
 * While OPEN a segment has lists with room for as many items as could ever fit. They are not
 * zeroed, so they cost the pages that are used of them; sealing keeps 8 bytes an item.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/mem.h"
#include "store/store_priv.h"

#define OPENING_NS (2 * FB_NS_PER_S) /* for another thread that opens a segment */

/* ---- DYING, FREE ---- */

/* Odd from now on, if it is not yet. Pairs with the load after a pin was added (rule 4), and with
 * readers that look twice (fb_layout_loc_good). */
static void turn_odd(struct fb_store *store, struct fb_segment *seg)
{
    _Atomic uint32_t *gen = fb_segment_gen(store, seg);

    if ((atomic_load_explicit(gen, memory_order_relaxed) & 1) == 0)
        atomic_fetch_add(gen, 1);
}

bool fb_segment_retire(struct fb_store *store, struct fb_segment *seg, enum fb_segment_state from)
{
    struct fb_store_tier *t = fb_segment_tier(store, seg);
    bool retired;

    fb_mutex_lock(&t->lock);
    retired = seg->state == from;
    if (retired) {
        seg->state = FB_SEGMENT_DYING;
        seg->emptied = false;
        atomic_store(&seg->leaving, true);
    }
    fb_mutex_unlock(&t->lock);
    return retired;
}

bool fb_segment_kill(struct fb_store *store, struct fb_segment *seg, enum fb_segment_state from)
{
    bool killed = fb_segment_retire(store, seg, from);

    if (killed)
        turn_odd(store, seg);
    return killed;
}

bool fb_store_is_held(struct fb_store *store, uint32_t segment)
{
    bool held = false;

    if (fb_segment_tier(store, &store->segments[segment])->which != 0)
        return false;
    fb_mutex_lock(&store->guard_lock);
    if (store->held)
        held = store->held(store->held_arg, segment);
    fb_mutex_unlock(&store->guard_lock);
    return held;
}

/* The generation turned odd, sequentially consistent, before this looks at what readers outside
 * have marked; they mark, then look at the generation. */
static bool must_wait(struct fb_store *store, const struct fb_segment *seg)
{
    bool held = fb_store_is_held(store, seg->no);

    if (held)
        atomic_store(&store->held_some, true);
    return held;
}

void fb_segment_settle(struct fb_store *store, struct fb_segment *seg)
{
    struct fb_store_tier *t = fb_segment_tier(store, seg);
    uint64_t *keys = NULL;
    bool freed;

    fb_mutex_lock(&t->lock);
    freed = seg->state == FB_SEGMENT_DYING && seg->emptied && atomic_load(&seg->pins) == 0 &&
            !must_wait(store, seg);
    if (freed) {
        FB_ASSERT(atomic_load_explicit(&seg->live_items, memory_order_relaxed) == 0);
        seg->state = FB_SEGMENT_FREE;
        atomic_store(&seg->leaving, false);
        t->lanes[fb_segment_lane(seg)]--;
        atomic_store_explicit(&seg->lane, FB_STORE_NEW, memory_order_relaxed);
        keys = fb_steal(seg->keys);
        seg->items = 0;
        seg->used = 0;
        atomic_store(&seg->mem, NULL);
        atomic_fetch_add(fb_segment_gen(store, seg), 1);
    }
    fb_mutex_unlock(&t->lock);
    if (!freed)
        return;
    free(keys);
    fb_tier_give(t->tier, fb_segment_slot(store, seg));
}

void fb_segment_emptied(struct fb_store *store, struct fb_segment *seg)
{
    struct fb_store_tier *t = fb_segment_tier(store, seg);

    turn_odd(store, seg);
    fb_mutex_lock(&t->lock);
    seg->emptied = true;
    fb_mutex_unlock(&t->lock);
    fb_segment_settle(store, seg);
}

/* ---- OPEN ---- */

static bool fits(const struct fb_store_tier *t, uint64_t used, uint64_t toc_room, uint64_t size,
                 uint64_t toc_size)
{
    if (t->which == 0)
        return used + size <= t->segment_bytes;
    return fb_align_up(used + size, FB_DISK_PAGE) +
               fb_align_up(toc_room + toc_size, FB_DISK_PAGE) <=
           t->segment_bytes;
}

bool fb_segment_fits_empty(const struct fb_store_tier *t, uint64_t size, size_t path_len)
{
    return fits(t, t->first_offset, 0, size, fb_disk_toc_room(path_len, false));
}

bool fb_segment_open_has_room(struct fb_store *store, struct fb_store_tier *t)
{
    bool room;

    fb_mutex_lock(&t->lock);
    room = t->open[FB_STORE_NEW] != NULL &&
           fits(t, t->open[FB_STORE_NEW]->used, t->open[FB_STORE_NEW]->toc_room,
                fb_record_size(store->block_bytes), fb_disk_toc_room(FB_PATH_MAX - 1, false));
    fb_mutex_unlock(&t->lock);
    return room;
}

/* FREE -> OPEN, but for its state. Under no lock: `opening` is ours. */
static int open_segment(struct fb_store *store, struct fb_store_tier *t, const struct fb_item *item,
                        struct fb_segment **ret_segment)
{
    size_t items_max = (t->segment_bytes - t->first_offset) / sizeof(struct fb_record);
    struct fb_segment *seg;
    uint8_t *memory;
    uint32_t slot;
    int rc = fb_tier_take(t->tier, &slot, &memory);

    if (rc != 0)
        return rc == FB_TIER_FULL ? FB_STORE_FULL : rc == FB_TIER_BUSY ? FB_STORE_BUSY : rc;
    seg = &t->segments[slot];
    FB_ASSERT(seg->state == FB_SEGMENT_FREE);
    seg->keys = malloc(items_max * sizeof *seg->keys);
    seg->building = t->which == 1 ? malloc(items_max * sizeof *seg->building) : NULL;
    if (seg->keys == NULL || (t->which == 1 && seg->building == NULL)) {
        free(fb_steal(seg->keys));
        free(fb_steal(seg->building));
        fb_tier_release_memory(t->tier, slot, memory);
        fb_tier_give(t->tier, slot);
        return -ENOMEM;
    }
    /* Items as long as a block are copied from end to end, which needs no help. */
    if (item->length < store->block_bytes)
        fb_tier_smooth(t->tier, slot, item->far);
    seg->memory = memory;
    seg->full = false;
    seg->items = 0;
    seg->used = t->first_offset;
    seg->copies = 0;
    seg->last_file = 0;
    seg->toc_room = 0;
    seg->sequence = fb_store_next_sequence(store);
    seg->opened_ns = fb_now_coarse_ns();
    atomic_store_explicit(&seg->hits, 0, memory_order_relaxed);
    atomic_store_explicit(&seg->last_access_ns, seg->opened_ns, memory_order_relaxed);
    atomic_store(&seg->mem, memory);
    *ret_segment = seg;
    return 0;
}

static bool take_room(struct fb_store_tier *t, struct fb_segment *seg, uint64_t key,
                      uint32_t length, size_t path_len, uint32_t *ret_offset) FB_REQUIRES(&t->lock)
{
    uint32_t file = (uint32_t)(key >> 32);
    uint64_t size = fb_record_size(length);
    uint64_t toc_size = fb_disk_toc_room(path_len, seg->last_file == file);

    if (!fits(t, seg->used, seg->toc_room, size, toc_size))
        return false;
    *ret_offset = seg->used;
    seg->keys[seg->items] = key;
    if (seg->building != NULL)
        seg->building[seg->items] = (struct fb_building){seg->used / FB_UNIT, length};
    seg->items++;
    seg->used += (uint32_t)size;
    seg->toc_room += toc_size;
    seg->last_file = file;
    seg->copies++;
    return true;
}

/* ---- full ---- */

/* Returns the segment if the caller is to seal it. */
static struct fb_segment *close_open(struct fb_store_tier *t, enum fb_store_lane lane)
    FB_REQUIRES(&t->lock)
{
    struct fb_segment *seg = fb_steal(t->open[lane]);

    if (seg == NULL)
        return NULL;
    seg->full = true;
    t->unsealed++;
    if (seg->copies > 0)
        return NULL;
    seg->state = FB_SEGMENT_SEALING;
    return seg;
}

void fb_store_end_segment(struct fb_store *store, unsigned tier, enum fb_store_lane lane)
{
    struct fb_store_tier *t = &store->tiers[tier];
    struct fb_segment *seg;

    fb_mutex_lock(&t->lock);
    seg = close_open(t, lane);
    fb_mutex_unlock(&t->lock);
    if (seg != NULL)
        fb_segment_seal(store, seg);
}

void fb_segment_close_open(struct fb_store *store, struct fb_store_tier *t)
{
    for (enum fb_store_lane lane = 0; lane < FB_STORE_LANES; lane++)
        fb_store_end_segment(store, (unsigned)(t - store->tiers), lane);
}

void fb_segment_finish(struct fb_store *store, struct fb_segment *seg)
{
    struct fb_store_tier *t = fb_segment_tier(store, seg);
    bool last;

    fb_mutex_lock(&t->lock);
    seg->copies--;
    last = seg->full && seg->copies == 0;
    if (last)
        seg->state = FB_SEGMENT_SEALING;
    fb_mutex_unlock(&t->lock);
    if (last)
        fb_segment_seal(store, seg);
}

/* Makes t->open[lane] something; called and returns with the lock, which it gives up meanwhile. */
static int provide_open(struct fb_store *store, struct fb_store_tier *t, const struct fb_item *item)
    FB_REQUIRES(&t->lock)
{
    enum fb_store_lane lane = item->lane;
    struct fb_segment *seg = NULL;
    int rc;

    if (t->opening)
        return fb_cond_wait(&t->cond, &t->lock, fb_now_ns() + OPENING_NS) ? 0 : FB_STORE_BUSY;
    t->opening = true;
    fb_mutex_unlock(&t->lock);
    rc = open_segment(store, t, item, &seg);
    fb_mutex_lock(&t->lock);
    t->opening = false;
    if (rc == 0) {
        seg->state = FB_SEGMENT_OPEN;
        atomic_store_explicit(&seg->lane, lane, memory_order_relaxed);
        t->lanes[lane]++;
        t->open[lane] = seg;
    }
    fb_cond_broadcast(&t->cond);
    return rc;
}

static bool leaves_spare(struct fb_store_tier *t) FB_REQUIRES(&t->lock)
{
    return t->spare == 0 || fb_tier_free(t->tier) > t->spare;
}

bool fb_segment_may_open(struct fb_store_tier *t)
{
    bool may;

    fb_mutex_lock(&t->lock);
    may = leaves_spare(t);
    fb_mutex_unlock(&t->lock);
    return may && fb_tier_has_room(t->tier);
}

uint64_t fb_store_room(struct fb_store *store, unsigned tier)
{
    struct fb_store_tier *t = &store->tiers[tier];
    uint32_t room, spare;

    fb_mutex_lock(&t->lock);
    spare = t->spare;
    fb_mutex_unlock(&t->lock);
    room = fb_tier_room(t->tier);
    return (room - fb_min_u64(room, spare)) * t->segment_bytes;
}

void fb_store_set_spare(struct fb_store *store, unsigned tier, uint32_t slots)
{
    struct fb_store_tier *t = &store->tiers[tier];

    fb_mutex_lock(&t->lock);
    t->spare = slots;
    fb_mutex_unlock(&t->lock);
}

uint64_t fb_store_lane_bytes(struct fb_store *store, unsigned tier, enum fb_store_lane lane)
{
    struct fb_store_tier *t = &store->tiers[tier];
    uint32_t segments;

    fb_mutex_lock(&t->lock);
    segments = t->lanes[lane];
    fb_mutex_unlock(&t->lock);
    return segments * t->segment_bytes;
}

/* A sealed one. */
static void set_lane(struct fb_store_tier *t, struct fb_segment *seg, enum fb_store_lane lane)
    FB_REQUIRES(&t->lock)
{
    t->lanes[fb_segment_lane(seg)]--;
    t->lanes[lane]++;
    atomic_store_explicit(&seg->lane, lane, memory_order_relaxed);
}

bool fb_store_set_lane(struct fb_store *store, uint32_t segment, enum fb_store_lane lane)
{
    struct fb_segment *seg = &store->segments[segment];
    struct fb_store_tier *t = fb_segment_tier(store, seg);
    bool sealed;

    FB_ASSERT(segment < store->segment_count);
    fb_mutex_lock(&t->lock);
    sealed = seg->state == FB_SEGMENT_SEALED;
    if (sealed)
        set_lane(t, seg, lane);
    fb_mutex_unlock(&t->lock);
    return sealed;
}

void fb_store_end_planned(struct fb_store *store, unsigned tier)
{
    struct fb_store_tier *t = &store->tiers[tier];

    fb_store_end_segment(store, tier, FB_STORE_PLAN);
    fb_store_end_segment(store, tier, FB_STORE_COPY);
    fb_mutex_lock(&t->lock);
    for (uint32_t slot = 0; slot < t->slots; slot++) {
        struct fb_segment *seg = &t->segments[slot];
        enum fb_store_lane lane = fb_segment_lane(seg);

        if (seg->state == FB_SEGMENT_SEALED && (lane == FB_STORE_PLAN || lane == FB_STORE_COPY))
            set_lane(t, seg, FB_STORE_NEW);
    }
    fb_mutex_unlock(&t->lock);
}

int fb_segment_reserve(struct fb_store *store, struct fb_store_tier *t, const struct fb_item *item,
                       size_t path_len, struct fb_segment **ret_segment, uint32_t *ret_offset)
{
    uint64_t key = fb_item_key(item->file, item->block);
    enum fb_store_lane lane = item->lane;
    int rc = 0;

    fb_mutex_lock(&t->lock);
    for (;;) {
        struct fb_segment *full;

        *ret_segment = t->open[lane];
        if (*ret_segment != NULL &&
            take_room(t, *ret_segment, key, item->length, path_len, ret_offset))
            break;
        full = close_open(t, lane);
        if (full != NULL) {
            fb_mutex_unlock(&t->lock);
            fb_segment_seal(store, full);
            fb_mutex_lock(&t->lock);
            continue;
        }
        if ((t->set_aside && lane != FB_STORE_KEPT) || (lane == FB_STORE_NEW && !leaves_spare(t)))
            rc = FB_STORE_FULL;
        else
            rc = provide_open(store, t, item);
        if (rc != 0)
            break;
    }
    fb_mutex_unlock(&t->lock);
    return rc;
}

void fb_store_set_aside(struct fb_store *store, unsigned tier, bool on)
{
    struct fb_store_tier *t = &store->tiers[tier];
    int64_t until_ns = fb_now_ns() + OPENING_NS;

    fb_mutex_lock(&t->lock);
    t->set_aside = on;
    while (on && t->opening && fb_cond_wait(&t->cond, &t->lock, until_ns))
        continue;
    fb_mutex_unlock(&t->lock);
}
