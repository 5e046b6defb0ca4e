/*
 * Placement: which tier an item enters, what leaves to make room, what moves.
 *
 *     admit(item):                                                       FitCache's order
 *         the fastest tier with room takes it
 *         no tier has room: the fastest tier evicts a segment (its policy chooses), then takes it
 *         what a reader is about to use goes to DRAM in any case, and waits for no disk: what has
 *         to go from there and does not get to the tier below at once is lost
 *     evict(tier):
 *         learned: the two worst segments of the ranking go, and the better half of their bytes
 *         stays in this tier, in another segment (cache/learn.h); without a ranking, and with other
 *         policies: one segment goes
 *         of what goes, items that are current and without another copy move to the next tier,
 *         which evicts in turn when it is full; the rest is forgotten
 *     promote(item): a copy in DRAM when there is room without evicting; its place below is kept
 *     save():        at the end of the daemon, DRAM's items move into free room below
 *
 * The admit lock serialises the choice of victims, not the copying of admitted items. Waits for
 * disk writes are bounded: an item that finds no room within FB_ADMIT_PATIENCE_NS is not admitted,
 * and counted.
 */
#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "cache/cache_priv.h"
#include "cache/place_priv.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"

#define ADMIT_TRIES     16
#define COMPACT_BELOW   0.7 /* of a segment: what is fuller is not worth writing again */
#define EXCESS_PER_TICK 64  /* segments given up in one round when the disk runs out of space */
#define STAY_SAMPLE     64u /* items by which a segment is judged */
#define STAY_LOOKS      64u /* segments that stay, of either choice, until it is given up, */
#define STUCK_NS        FB_NS_PER_S /* for so long */

int fb_place_open(struct fb_cache *cache)
{
    fb_mutex_init(&cache->admit_lock, FB_RANK_ADMIT);
    for (unsigned t = 0; t < fb_store_tiers(cache->store); t++) {
        struct fb_tier_place *p = &cache->places[t];

        p->infos_max = fb_tier_slots(fb_store_tier(cache->store, t));
        p->infos = fb_alloc_array(p->infos_max ? p->infos_max : 1, sizeof *p->infos);
        p->policy_state = fb_alloc(cache->evict->state_bytes ? cache->evict->state_bytes : 1);
        if (!p->infos || !p->policy_state)
            return -ENOMEM;
    }
    return 0;
}

void fb_place_close(struct fb_cache *cache)
{
    for (unsigned t = 0; t < FB_TIERS_MAX; t++) {
        free(cache->places[t].infos);
        free(cache->places[t].policy_state);
    }
    fb_mutex_destroy(&cache->admit_lock);
}

static int make_room(struct fb_cache *cache, unsigned tier, int64_t until_ns)
    FB_REQUIRES(&cache->admit_lock);

/* An item was put into the index, and may have been evicted by hand since it was read: then it must
 * go again. Which file was evicted is not remembered: others lose an item now and then. */
bool fb_place_take_back(struct fb_cache *cache, const struct fb_item *item, uint64_t evictions)
{
    if (atomic_load(&cache->evictions) == evictions)
        return false;
    fb_store_drop(cache->store, fb_item_key(item->file, item->block));
    return true;
}

/* Appends to `tier`, evicting there when needed. Under the admit lock. */
int fb_place_append(struct fb_cache *cache, unsigned tier, const struct fb_item *item,
                    int64_t until_ns) FB_REQUIRES(&cache->admit_lock)
{
    for (int emptied = 0; emptied < ADMIT_TRIES;) {
        int rc = fb_store_append(cache->store, tier, item);

        if (rc == FB_STORE_BUSY) {
            if (fb_now_ns() >= until_ns)
                return -EBUSY;
            fb_store_wait_writes(cache->store, until_ns);
        } else if (rc == FB_STORE_FULL) {
            /* A disk that has failed may still be read: nothing is gained by emptying it. */
            if (fb_tier_broken(fb_store_tier(cache->store, tier)))
                return -EIO;
            if (emptied++ > 0 && until_ns != FB_NO_PATIENCE_NS && fb_now_ns() >= until_ns)
                return -EBUSY;
            rc = make_room(cache, tier, until_ns);
            if (rc < 0)
                return rc;
        } else {
            return rc;
        }
    }
    return -ENOSPC;
}

/* Appends to `tier` if that needs no eviction. A tier that is busy and has no room is full: what is
 * waited for there is of no use without an eviction. */
int fb_place_append_into_room(struct fb_cache *cache, unsigned tier, const struct fb_item *item,
                              int64_t until_ns)
{
    struct fb_tier *t = fb_store_tier(cache->store, tier);
    int rc;

    while ((rc = fb_store_append(cache->store, tier, item)) == FB_STORE_BUSY) {
        if (!fb_tier_has_room(t))
            return FB_STORE_FULL;
        if (fb_now_ns() >= until_ns)
            break;
        fb_store_wait_writes(cache->store, until_ns);
    }
    return rc;
}

/* An item goes for good. */
static void leave(struct fb_cache *cache, const struct fb_item *item)
{
    fb_steer_gone(cache->steer, item);
    fb_near_gone(cache->near);
    if (cache->evict->learns)
        fb_learn_gone(cache->learn, item);
}

/* Into the first tier below that needs no eviction for it. */
static int append_below(const struct fb_demotion *d, const struct fb_item *item)
{
    int rc = FB_TIER_FULL;

    for (unsigned t = d->tier + 1; t < fb_store_tiers(d->cache->store) && rc != 0; t++)
        rc = fb_place_append_into_room(d->cache, t, item, d->until_ns);
    return rc;
}

/* Whether the item has a place below now. With the admit lock held. */
static bool send_down(struct fb_demotion *d, const struct fb_victim *victim) FB_NO_TSA
{
    struct fb_cache *cache = d->cache;
    const struct fb_evict_ops *evict = cache->evict;
    struct fb_item item = victim->item;
    int rc;

    if (evict->keep && !evict->keep(cache->places[d->tier].policy_state, victim, d->now_ns))
        return false;
    if (!item.data)
        item.data = fb_victim_data(victim);
    if (!item.data)
        return false;
    rc = d->only_into_room ? append_below(d, &item)
                           : fb_place_append(cache, d->tier + 1, &item, d->until_ns);
    d->was_busy = rc == FB_STORE_BUSY || rc == -EBUSY;
    /* Lost for want of patience. */
    if (rc != 0 && d->until_ns == FB_NO_PATIENCE_NS)
        fb_metric_add(&cache->metrics, FB_CM_ADMIT_DROPPED, 1);
    if (rc == 0 && !fb_place_take_back(cache, &item, d->evictions))
        fb_metric_add(&cache->metrics, FB_CM_DEMOTED, 1);
    return rc == 0;
}

/* Called by the store, from fb_store_evict(), with the admit lock held. */
void fb_place_demote(void *arg, const struct fb_victim *victim) FB_NO_TSA
{
    struct fb_demotion *d = arg;

    if (victim->other_copy || !victim->current)
        return;
    if (!send_down(d, victim))
        leave(d->cache, &victim->item);
}

/* ---- what stays ---- */

struct kept {
    struct fb_list link;
    struct fb_item item;
    bool other_copy;
    uint8_t data[];
};

static int by_key(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

static bool must_stay(const struct fb_parting *p, const struct fb_item *item)
{
    uint64_t key = fb_item_key(item->file, item->block);
    struct fb_steer *steer = p->down.cache->steer;

    if (p->stay_count > 0 && bsearch(&key, p->stays, p->stay_count, sizeof key, by_key))
        return true;
    if (p->yielding && !fb_steer_yields(steer, item->file))
        return true;
    /* The last tier has nowhere to send what a user has pinned. */
    return !p->lower && fb_steer_is_pinned(steer, item->file);
}

/* Into room that there is already: so it is found all the while. */
static bool stay_at_once(struct fb_parting *p, const struct fb_victim *victim, const uint8_t *data)
{
    struct fb_cache *cache = p->down.cache;
    struct fb_item item = victim->item;

    item.lane = FB_STORE_KEPT;
    item.data = data;
    if (fb_place_append_into_room(cache, p->down.tier, &item, FB_NO_PATIENCE_NS) != 0)
        return false;
    if (!fb_place_take_back(cache, &item, p->down.evictions))
        fb_metric_add(&cache->metrics, FB_CM_KEPT, 1);
    return true;
}

bool fb_place_stay(struct fb_parting *p, const struct fb_victim *victim)
{
    const uint8_t *data = victim->item.data ? victim->item.data : fb_victim_data(victim);
    struct kept *kept;

    if (!data)
        return false;
    if (stay_at_once(p, victim, data))
        return true;
    kept = malloc(sizeof *kept + victim->item.length);
    if (!kept)
        return false;
    kept->item = victim->item;
    kept->item.lane = FB_STORE_KEPT;
    kept->other_copy = victim->other_copy;
    memcpy(kept->data, data, victim->item.length);
    kept->item.data = kept->data;
    fb_files_ref(p->down.cache->files, kept->item.file, 1);
    fb_list_push_back(&p->kept, &kept->link);
    return true;
}

void fb_place_part(void *arg, const struct fb_victim *victim) FB_NO_TSA
{
    struct fb_parting *p = arg;

    if (!victim->current)
        return;
    if (must_stay(p, &victim->item) && fb_place_stay(p, victim))
        return;
    p->down.was_busy = false;
    if (victim->other_copy || (p->lower && send_down(&p->down, victim)))
        return;
    if (p->busy_stays && p->down.was_busy && fb_place_stay(p, victim))
        return;
    /* Nor does what a user has pinned go because a disk is busy, for which put_back waits. */
    if (fb_steer_is_pinned(p->down.cache->steer, victim->item.file) && fb_place_stay(p, victim))
        return;
    leave(p->down.cache, &victim->item);
}

void fb_place_put_back(struct fb_parting *p)
{
    struct fb_cache *cache = p->down.cache;
    /* What a user has pinned is worth waiting for, whoever makes the room. */
    int64_t pinned_ns = fb_now_ns() + FB_ADMIT_PATIENCE_NS;
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &p->kept) {
        struct kept *kept = FB_LIST_ENTRY(it, struct kept, link);
        int64_t until_ns = p->down.until_ns;

        if (until_ns < pinned_ns && fb_steer_is_pinned(cache->steer, kept->item.file))
            until_ns = pinned_ns;
        if (fb_place_append_into_room(cache, p->down.tier, &kept->item, until_ns) != 0) {
            fb_metric_add(&cache->metrics, FB_CM_ADMIT_DROPPED, 1);
            if (!kept->other_copy)
                leave(cache, &kept->item);
        } else if (!fb_place_take_back(cache, &kept->item, p->down.evictions)) {
            fb_metric_add(&cache->metrics, FB_CM_KEPT, 1);
        }
        fb_files_unref(cache->files, kept->item.file, 1);
        free(kept);
    }
}

static bool is_pinned(void *arg, uint32_t file)
{
    return fb_steer_is_pinned(arg, file);
}

/* Whether most of it would stay where it is, for a user has pinned it: to write that again gains
 * next to nothing. */
static bool would_stay(struct fb_cache *cache, unsigned tier, uint32_t segment)
{
    return tier + 1 == fb_store_tiers(cache->store) && fb_orders_any(cache->orders) &&
           fb_store_share(cache->store, segment, STAY_SAMPLE, is_pinned, cache->steer) >
               COMPACT_BELOW;
}

/* ---- merging ---- */

struct gathering {
    struct fb_merge_item *items;
    struct fb_use *uses;
    uint64_t *keys;
    size_t count;
    size_t room;
    bool failed;
};

static void gather(void *arg, uint64_t key, uint32_t length, const struct fb_use *use)
{
    struct gathering *g = arg;

    if (g->count == g->room) {
        size_t room = 2 * g->room + 256;
        void *items = realloc(g->items, room * sizeof *g->items);
        void *uses = realloc(g->uses, room * sizeof *g->uses);
        void *keys = realloc(g->keys, room * sizeof *g->keys);

        g->items = items ? items : g->items;
        g->uses = uses ? uses : g->uses;
        g->keys = keys ? keys : g->keys;
        g->failed = g->failed || !items || !uses || !keys;
        if (g->failed)
            return;
        g->room = room;
    }
    g->items[g->count] = (struct fb_merge_item){.size = length, .no = (uint32_t)g->count};
    g->uses[g->count] = *use;
    g->keys[g->count++] = key;
}

/* Turns the keys of all items into those of the items that stay, in order. */
static size_t choose(struct fb_cache *cache, struct gathering *g, uint64_t room)
{
    uint64_t *stays = g->failed ? NULL : fb_alloc_array(g->count + 1, sizeof *stays);
    size_t count = 0;

    if (!stays)
        return 0;
    fb_learn_split(cache->learn, g->items, g->uses, g->count, room);
    for (size_t i = 0; i < g->count; i++)
        if (g->items[i].stays)
            stays[count++] = g->keys[g->items[i].no];
    qsort(stays, count, sizeof *stays, by_key);
    free(g->keys);
    g->keys = stays;
    return count;
}

/* The worst segments by the ranking become one less. -EAGAIN: there is no ranking. */
static int merge(struct fb_cache *cache, struct fb_parting *p) FB_REQUIRES(&cache->admit_lock)
{
    unsigned tier = p->down.tier, count = 0, stays = 0;
    uint32_t victims[FB_GROUPS_MERGE];
    struct gathering g = {.count = 0};
    uint64_t bytes = 0;
    int rc = -EAGAIN;

    while (count < FB_GROUPS_MERGE && stays < STAY_LOOKS &&
           fb_learn_victim(cache->learn, tier, p->down.until_ns, &victims[count])) {
        size_t before = g.count;

        if (would_stay(cache, tier, victims[count])) {
            stays++;
            continue;
        }
        if (fb_store_visit(cache->store, victims[count], UINT32_MAX, gather, &g) != 0)
            continue;
        for (size_t i = before; i < g.count; i++)
            bytes += g.items[i].size;
        count++;
    }
    p->stay_count = choose(cache, &g, bytes * FB_GROUPS_KEEP / FB_GROUPS_MERGE);
    p->stays = g.keys;
    for (unsigned i = 0; i < count; i++) {
        int one = fb_store_evict(cache->store, victims[i], false, fb_place_part, p);

        rc = one == 0 || rc == 0 ? 0 : one;
    }
    free(g.items);
    free(g.uses);
    free(g.keys);
    return rc;
}

/* ---- segments half empty ---- */

/* Segments of which nothing is left: what was dropped makes room, and a tier full of it is none. */
static void free_dead(struct fb_cache *cache, unsigned tier) FB_REQUIRES(&cache->admit_lock)
{
    struct fb_tier_place *p = &cache->places[tier];
    uint32_t count;

    count = fb_store_sealed(cache->store, tier, p->infos, p->infos_max);
    for (uint32_t i = 0; i < count; i++) {
        if (p->infos[i].live_items > 0 || p->infos[i].pinned ||
            fb_store_is_held(cache->store, p->infos[i].no))
            continue;
        /* -EBUSY: somebody else was quicker. */
        if (fb_store_evict(cache->store, p->infos[i].no, false, NULL, NULL) < 0)
            continue;
    }
}

struct compaction {
    struct fb_cache *cache;
    unsigned tier;
    uint64_t evictions;
    uint64_t bytes;
};

static void move_over(void *arg, const struct fb_item *item)
{
    struct compaction *c = arg;
    struct fb_item moved = *item;

    moved.lane = FB_STORE_KEPT;
    moved.anew = true;
    if (fb_place_append_into_room(c->cache, c->tier, &moved, fb_now_ns() + FB_ADMIT_PATIENCE_NS) !=
        0)
        return; /* it stays where it is */
    (void)fb_place_take_back(c->cache, &moved, c->evictions);
    c->bytes += item->length;
}

static uint32_t find_emptiest(struct fb_cache *cache, unsigned tier) FB_REQUIRES(&cache->admit_lock)
{
    uint64_t segment_bytes = fb_tier_segment_bytes(fb_store_tier(cache->store, tier));
    uint64_t least = (uint64_t)(COMPACT_BELOW * (double)segment_bytes);
    struct fb_tier_place *p = &cache->places[tier];
    uint32_t count = fb_store_sealed(cache->store, tier, p->infos, p->infos_max);
    uint32_t emptiest = UINT32_MAX;

    for (uint32_t i = 0; i < count; i++) {
        if (p->infos[i].live_bytes < least && !p->infos[i].pinned) {
            least = p->infos[i].live_bytes;
            emptiest = p->infos[i].no;
        }
    }
    return emptiest;
}

uint64_t fb_place_compact(struct fb_cache *cache, uint8_t *memory)
{
    struct compaction c = {.cache = cache,
                           .tier = fb_store_tiers(cache->store) - 1,
                           .evictions = atomic_load(&cache->evictions)};
    uint32_t emptiest;

    fb_mutex_lock(&cache->admit_lock);
    free_dead(cache, c.tier);
    emptiest = find_emptiest(cache, c.tier);
    fb_mutex_unlock(&cache->admit_lock);
    if (emptiest == UINT32_MAX || fb_store_load(cache->store, emptiest, memory, move_over, &c) < 0)
        return 0;
    fb_mutex_lock(&cache->admit_lock);
    free_dead(cache, c.tier);
    fb_mutex_unlock(&cache->admit_lock);
    return c.bytes;
}

/* ---- going ---- */

/* The policy's choice among those that can go. -ENOSPC: none can. */
static int choose_one(struct fb_cache *cache, unsigned tier, int64_t now_ns, uint32_t *ret_segment)
{
    struct fb_tier_place *p = &cache->places[tier];
    uint32_t count = fb_store_sealed(cache->store, tier, p->infos, p->infos_max);
    uint32_t free_to_go = 0, stays = 0, pick;

    for (uint32_t i = 0; i < count; i++)
        if (!p->infos[i].pinned)
            p->infos[free_to_go++] = p->infos[i];
    while (free_to_go > 0 && stays < 2 * STAY_LOOKS) {
        /* What was pinned long ago is what a policy lets go first: then any other will do. */
        pick = stays < STAY_LOOKS
                   ? cache->evict->victim(p->policy_state, p->infos, free_to_go, now_ns)
                   : (uint32_t)(fb_mix64((uint64_t)now_ns + stays) % free_to_go);
        *ret_segment = p->infos[pick].no;
        p->infos[pick] = p->infos[--free_to_go];
        /* What a client looks at could not be reused. */
        if (fb_store_is_held(cache->store, *ret_segment))
            continue;
        if (!would_stay(cache, tier, *ret_segment))
            return 0;
        stays++;
    }
    if (stays > 0)
        p->stuck_until_ns = now_ns + STUCK_NS;
    return -ENOSPC;
}

/* Empties a segment of a tier, or merges some. -ENOSPC: none can go now; -EBUSY: because of disks
 * that hang, as could be said without a look at each segment, for each item that comes down. */
static int make_room(struct fb_cache *cache, unsigned tier, int64_t until_ns)
{
    struct fb_parting p = {.down = {.cache = cache,
                                    .tier = tier,
                                    .until_ns = until_ns,
                                    .now_ns = fb_now_ns(),
                                    .evictions = atomic_load(&cache->evictions)},
                           .lower = tier + 1 < fb_store_tiers(cache->store)};
    uint32_t victim;
    int rc = -EAGAIN;

    if (p.down.now_ns < cache->places[tier].stuck_until_ns)
        return -ENOSPC;
    if (fb_tier_is_all_out(fb_store_tier(cache->store, tier)))
        return -EBUSY;
    fb_list_init(&p.kept);
    fb_store_set_aside(cache->store, tier, true);
    if (cache->evict->learns)
        rc = merge(cache, &p);
    if (rc == -EAGAIN) {
        rc = choose_one(cache, tier, p.down.now_ns, &victim);
        if (rc == 0)
            rc = fb_store_evict(cache->store, victim, false, fb_place_part, &p);
    } else if (rc == -EBUSY) {
        rc = 0; /* somebody else has emptied it */
    }
    fb_place_put_back(&p);
    fb_store_set_aside(cache->store, tier, false);
    return rc;
}

int fb_place_empty(struct fb_cache *cache, unsigned tier, uint32_t segment, bool yielding,
                   int64_t until_ns)
{
    struct fb_parting p = {.down = {.cache = cache,
                                    .tier = tier,
                                    .until_ns = until_ns,
                                    .now_ns = fb_now_ns(),
                                    .evictions = atomic_load(&cache->evictions)},
                           .yielding = yielding};
    int rc;

    fb_list_init(&p.kept);
    fb_store_set_aside(cache->store, tier, true);
    rc = fb_store_evict(cache->store, segment, false, fb_place_part, &p);
    fb_place_put_back(&p);
    fb_store_set_aside(cache->store, tier, false);
    return rc;
}

static int admit_full(struct fb_cache *cache, const struct fb_item *item, int64_t until_ns)
{
    int rc;

    fb_mutex_lock(&cache->admit_lock);
    rc = fb_place_append(cache, 0, item, until_ns);
    fb_mutex_unlock(&cache->admit_lock);
    return rc;
}

bool fb_place_is_full(const struct fb_cache *cache)
{
    for (unsigned t = 0; t < fb_store_tiers(cache->store); t++) {
        if (fb_store_has_room(cache->store, t))
            return false;
    }
    return true;
}

void fb_cache_fill(struct fb_volume *volume, uint32_t file, const uint8_t *data, uint64_t length)
{
    struct fb_cache *cache = volume->cache;
    uint64_t evictions = atomic_load(&cache->evictions), at = 0;

    if (volume->config.bypass || fb_files_version(cache->files, file)->size != length)
        return;
    for (uint32_t block = 0; at < length; block++) {
        struct fb_item item = {
            .file = file,
            .block = block,
            .length = (uint32_t)fb_min_u64(cache->config.block_bytes, length - at),
            .data = data + at,
        };

        fb_place_admit(cache, &item, evictions, false);
        at += item.length;
    }
}

/* All items of a request wait for a disk that hangs as long as one does. */
static int64_t patient_until(struct fb_cache *cache)
{
    int64_t now_ns = fb_now_ns();

    if (now_ns < atomic_load_explicit(&cache->busy_until_ns, memory_order_relaxed))
        return FB_NO_PATIENCE_NS;
    return now_ns + FB_ADMIT_PATIENCE_NS;
}

/* -ENOSPC is ours, not a disk's, of which its tier speaks (store/tier.c). */
static const char *why_not_kept(int rc)
{
    if (rc == -ENOSPC)
        return "all that could go for it is in use or pinned";
    return rc < 0 ? fb_strerror(rc) : "disk is busy";
}

void fb_place_admit(struct fb_cache *cache, const struct fb_item *item, uint64_t evictions,
                    bool soon)
{
    bool memory = fb_tier_kind(fb_store_tier(cache->store, 0)) == FB_TIER_DRAM;
    int64_t until_ns = soon && memory ? FB_NO_PATIENCE_NS : patient_until(cache);
    unsigned tiers = soon && memory ? 1 : fb_store_tiers(cache->store);
    struct fb_item fresh = *item;
    int rc = FB_STORE_FULL;

    if (atomic_load(&cache->evictions) != evictions)
        return;
    if (cache->evict->learns)
        fresh.use = fb_learn_fresh(cache->learn);
    if (!soon &&
        !fb_steer_admits(cache->steer, item->file, item->length, fb_place_is_full(cache))) {
        fb_metric_add(&cache->metrics, FB_CM_DECLINED, 1);
        return;
    }
    for (unsigned t = 0; t < tiers && rc == FB_STORE_FULL; t++) {
        if (fb_store_has_room(cache->store, t))
            rc = fb_place_append_into_room(cache, t, &fresh, until_ns);
    }
    if (rc == FB_STORE_FULL)
        rc = admit_full(cache, &fresh, until_ns);
    if (rc == 0) {
        if (!fb_place_take_back(cache, item, evictions))
            fb_metric_add(&cache->metrics, FB_CM_ADMITTED, 1);
        return;
    }
    if (until_ns != FB_NO_PATIENCE_NS && (rc == FB_STORE_BUSY || rc == -EBUSY))
        atomic_store_explicit(&cache->busy_until_ns, fb_now_ns() + FB_ADMIT_PATIENCE_NS,
                              memory_order_relaxed);
    fb_metric_add(&cache->metrics, FB_CM_ADMIT_DROPPED, 1);
    if (fb_log_limited(&cache->drop_logged_ns))
        fb_log_warn("an item could not be kept: %s", why_not_kept(rc));
}

/* It was read from below: when it is there no more, it has been evicted meanwhile. */
static bool has_place_below(struct fb_cache *cache, const struct fb_item *item)
{
    struct fb_found found;

    return fb_layout_find(fb_store_layout(cache->store), fb_item_key(item->file, item->block),
                          &found) &&
           found.loc[1] != FB_LOC_NONE;
}

bool fb_place_promote(struct fb_cache *cache, const struct fb_item *item)
{
    if (fb_store_append(cache->store, 0, item) != 0)
        return false;
    if (!has_place_below(cache, item)) {
        fb_store_drop(cache->store, fb_item_key(item->file, item->block));
        return false;
    }
    fb_metric_add(&cache->metrics, FB_CM_PROMOTED, 1);
    return true;
}

/* Frees what is dead, and gives space back where a file system has fallen under its floor. */
void fb_place_tick(struct fb_cache *cache)
{
    for (unsigned t = 0; t < fb_store_tiers(cache->store); t++) {
        struct fb_tier *tier = fb_store_tier(cache->store, t);
        int64_t excess = fb_tier_excess(tier);

        /* Whoever has it may be waiting for a disk: not for this thread to wait for. */
        if (!fb_mutex_try(&cache->admit_lock))
            continue;
        free_dead(cache, t);
        for (int i = 0; i < EXCESS_PER_TICK && excess > 0; i++) {
            if (make_room(cache, t, fb_now_ns() + FB_ADMIT_PATIENCE_NS) < 0)
                break;
            excess -= (int64_t)fb_tier_segment_bytes(tier);
        }
        fb_mutex_unlock(&cache->admit_lock);
    }
}

int fb_place_shed(struct fb_cache *cache)
{
    int rc = -ENOSPC;

    fb_mutex_lock(&cache->admit_lock);
    for (unsigned t = fb_store_tiers(cache->store); t-- > 0 && rc < 0;)
        rc = make_room(cache, t, fb_now_ns());
    fb_mutex_unlock(&cache->admit_lock);
    return rc;
}

static int later_use(const void *a, const void *b)
{
    const struct fb_segment_info *x = a, *y = b;

    return (x->last_access_ns < y->last_access_ns) - (x->last_access_ns > y->last_access_ns);
}

static bool is_room_below(struct fb_cache *cache)
{
    bool room = false;

    for (unsigned t = 1; t < fb_store_tiers(cache->store) && !room; t++)
        room = fb_store_has_room(cache->store, t);
    return room;
}

/* Moves what DRAM holds into free room of the tiers below, the latest used first. */
void fb_place_save(struct fb_cache *cache, int64_t until_ns)
{
    struct fb_demotion d = {.cache = cache,
                            .until_ns = until_ns,
                            .now_ns = fb_now_ns(),
                            .only_into_room = true,
                            .evictions = atomic_load(&cache->evictions)};
    struct fb_tier_place *p = &cache->places[0];
    uint32_t count;

    if (fb_store_tiers(cache->store) < 2 ||
        fb_tier_kind(fb_store_tier(cache->store, 0)) != FB_TIER_DRAM)
        return;
    if (fb_store_flush(cache->store) < 0)
        return;
    fb_mutex_lock(&cache->admit_lock);
    count = fb_store_sealed(cache->store, 0, p->infos, p->infos_max);
    qsort(p->infos, count, sizeof *p->infos, later_use);
    for (uint32_t i = 0; i < count && fb_now_ns() < until_ns; i++) {
        if (!is_room_below(cache) ||
            fb_store_evict(cache->store, p->infos[i].no, true, fb_place_demote, &d) < 0)
            break;
    }
    fb_mutex_unlock(&cache->admit_lock);
}
