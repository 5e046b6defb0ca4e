/*
 * The writing side of the item table. Everything that changes it runs under one mutex; the stores
 * are ordered so that readers without it (fb_layout_find) never join the key of one item to the
 * locations of another without noticing:
 *
 *     insert:  loc[0], loc[1], meta (release) ... key (release)
 *     remove:  key = 0 ... later stores of loc and meta are releases, so who sees them sees the
 *              key gone
 *     move:    insert the copy in the other group, then remove the original
 *
 * A reader can miss an entry while it is being moved: a miss is always safe.
 */
#include "store/index.h"

#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "core/lock.h"
#include "core/mem.h"

#define META_LENGTH_SHIFT 32
#define META_USE_SHIFT    56
#define META_LENGTH_MAX   0xffffffu
#define WALK_GROUPS       256 /* under the lock at a time, some 10 us */

struct fb_index {
    struct fb_mutex lock;
    struct fb_layout *layout;
    struct fb_index_watch watch;
    _Atomic uint64_t count; /* written under the lock */
};

static uint64_t meta_make(uint32_t length, const struct fb_use *use)
{
    return (uint64_t)use->history << META_USE_SHIFT | (uint64_t)length << META_LENGTH_SHIFT |
           use->last;
}

static uint32_t length_of(uint64_t meta)
{
    return (uint32_t)(meta >> META_LENGTH_SHIFT) & META_LENGTH_MAX;
}

static struct fb_use use_of(uint64_t meta)
{
    return (struct fb_use){(uint32_t)meta, (uint8_t)(meta >> META_USE_SHIFT)};
}

static void entry_read(const struct fb_layout_item *it, struct fb_index_entry *ret)
{
    uint64_t meta = atomic_load_explicit(&it->meta, memory_order_relaxed);

    ret->key = atomic_load_explicit(&it->key, memory_order_relaxed);
    ret->loc[0] = atomic_load_explicit(&it->loc[0], memory_order_relaxed);
    ret->loc[1] = atomic_load_explicit(&it->loc[1], memory_order_relaxed);
    ret->length = length_of(meta);
    ret->use = use_of(meta);
}

static void entry_store(struct fb_layout_item *it, const struct fb_index_entry *e)
{
    uint64_t meta = meta_make(e->length, &e->use);

    atomic_store_explicit(&it->loc[0], e->loc[0], memory_order_release);
    atomic_store_explicit(&it->loc[1], e->loc[1], memory_order_release);
    atomic_store_explicit(&it->meta, meta, memory_order_release);
    /* Pairs with the acquire load of key in fb_layout_find. */
    atomic_store_explicit(&it->key, e->key, memory_order_release);
}

static void tell_location(struct fb_index *index, uint64_t loc, uint32_t length, int delta)
{
    if (loc != FB_LOC_NONE && index->watch.location != NULL)
        index->watch.location(index->watch.arg, loc, length, delta);
}

static void tell_entry(struct fb_index *index, uint64_t key, int delta)
{
    uint64_t count = atomic_load_explicit(&index->count, memory_order_relaxed);

    atomic_store_explicit(&index->count, delta > 0 ? count + 1 : count - 1, memory_order_relaxed);
    if (index->watch.entry != NULL)
        index->watch.entry(index->watch.arg, key, delta);
}

static struct fb_layout_item *locate(struct fb_index *index, uint64_t key) FB_REQUIRES(&index->lock)
{
    uint64_t groups[2];

    fb_layout_groups_of(index->layout, key, groups);
    for (int g = 0; g < 2; g++) {
        struct fb_layout_group *group = fb_layout_group(index->layout, groups[g]);

        for (int i = 0; i < FB_GROUP_ITEMS; i++)
            if (atomic_load_explicit(&group->items[i].key, memory_order_relaxed) == key)
                return &group->items[i];
    }
    return NULL;
}

static void drop(struct fb_index *index, struct fb_layout_item *it, struct fb_index_entry *ret_old)
    FB_REQUIRES(&index->lock)
{
    entry_read(it, ret_old);
    atomic_store_explicit(&it->key, 0, memory_order_relaxed);
    tell_location(index, ret_old->loc[0], ret_old->length, -1);
    tell_location(index, ret_old->loc[1], ret_old->length, -1);
    tell_entry(index, ret_old->key, -1);
}

/* A free entry of the group, and how many it has. */
static struct fb_layout_item *group_free(struct fb_layout_group *group, int *ret_free)
{
    struct fb_layout_item *it = NULL;

    *ret_free = 0;
    for (int i = FB_GROUP_ITEMS - 1; i >= 0; i--) {
        if (atomic_load_explicit(&group->items[i].key, memory_order_relaxed) != 0)
            continue;
        it = &group->items[i];
        ++*ret_free;
    }
    return it;
}

/* Moves an entry of the group to its other group, if that has room. */
static struct fb_layout_item *group_move_one(struct fb_index *index, uint64_t group_no)
    FB_REQUIRES(&index->lock)
{
    struct fb_layout_group *group = fb_layout_group(index->layout, group_no);

    for (int i = 0; i < FB_GROUP_ITEMS; i++) {
        struct fb_layout_item *it = &group->items[i];
        struct fb_layout_item *to;
        struct fb_index_entry e;
        uint64_t groups[2];
        int free_count;

        entry_read(it, &e);
        fb_layout_groups_of(index->layout, e.key, groups);
        to = group_free(
            fb_layout_group(index->layout, groups[0] == group_no ? groups[1] : groups[0]),
            &free_count);
        if (to == NULL)
            continue;
        entry_store(to, &e);
        atomic_store_explicit(&it->key, 0, memory_order_relaxed);
        return it;
    }
    return NULL;
}

static struct fb_layout_item *oldest_of(struct fb_index *index, const uint64_t groups[2])
    FB_REQUIRES(&index->lock)
{
    struct fb_layout_item *oldest = NULL;
    uint32_t oldest_at = 0;

    for (int n = 0; n < 2 * FB_GROUP_ITEMS; n++) {
        struct fb_layout_group *group = fb_layout_group(index->layout, groups[n / FB_GROUP_ITEMS]);
        struct fb_layout_item *it = &group->items[n % FB_GROUP_ITEMS];
        uint32_t at = (uint32_t)atomic_load_explicit(&it->meta, memory_order_relaxed);

        if (oldest == NULL || (int32_t)(at - oldest_at) < 0) {
            oldest = it;
            oldest_at = at;
        }
    }
    return oldest;
}

/* A free entry for a new key: in the first line of its first group, where readers look first, in
 * the emptier of its groups, by moving, or by displacing. (Before the emptier, it hardly costs
 * anything: at 75% load 83 in 10,000 find both groups full, 68 without.) */
static struct fb_layout_item *make_room(struct fb_index *index, uint64_t key,
                                        struct fb_index_entry *ret_displaced)
    FB_REQUIRES(&index->lock)
{
    struct fb_layout_item *free_item[2];
    struct fb_layout_item *it;
    uint64_t groups[2];
    int free_count[2];

    fb_layout_groups_of(index->layout, key, groups);
    for (int g = 0; g < 2; g++)
        free_item[g] = group_free(fb_layout_group(index->layout, groups[g]), &free_count[g]);
    it = free_count[0] >= free_count[1] || free_count[0] > FB_GROUP_ITEMS / 2 ? free_item[0]
                                                                              : free_item[1];
    for (int g = 0; it == NULL && g < 2; g++)
        it = group_move_one(index, groups[g]);
    if (it == NULL) {
        it = oldest_of(index, groups);
        drop(index, it, ret_displaced);
    }
    return it;
}

uint64_t fb_index_groups(uint64_t max_items)
{
    return fb_max_u64(1, fb_div_up(max_items, FB_INDEX_GROUP_LOAD));
}

int fb_index_create(struct fb_layout *layout, const struct fb_index_watch *watch,
                    struct fb_index **ret_index)
{
    struct fb_index *index;

    /* The choice of groups multiplies 32-bit halves. */
    if (layout->h.groups == 0 || layout->h.groups > UINT32_MAX)
        return -EINVAL;
    index = fb_alloc(sizeof *index);
    if (index == NULL)
        return -ENOMEM;
    fb_mutex_init(&index->lock, FB_RANK_INDEX);
    index->layout = layout;
    if (watch != NULL)
        index->watch = *watch;
    *ret_index = index;
    return 0;
}

void fb_index_destroy(struct fb_index *index)
{
    if (index == NULL)
        return;
    fb_mutex_destroy(&index->lock);
    free(index);
}

void fb_index_set(struct fb_index *index, uint64_t key, unsigned which, uint64_t loc,
                  uint32_t length, uint32_t now_s, struct fb_index_entry *ret_displaced)
{
    struct fb_index_entry e = {.key = key, .length = length, .use = {.last = now_s}};
    struct fb_index_entry old;
    struct fb_layout_item *it;

    FB_ASSERT(key != 0 && which < 2 && loc != FB_LOC_NONE && length <= META_LENGTH_MAX);
    ret_displaced->key = 0;
    fb_mutex_lock(&index->lock);
    it = locate(index, key);
    if (it != NULL) {
        entry_read(it, &old);
        if (old.length != length) {
            drop(index, it, &old);
            it = NULL;
        }
    }
    if (it != NULL) {
        atomic_store_explicit(&it->loc[which], loc, memory_order_release);
        tell_location(index, old.loc[which], length, -1);
    } else {
        it = make_room(index, key, ret_displaced);
        e.loc[which] = loc;
        entry_store(it, &e);
        tell_entry(index, key, 1);
    }
    tell_location(index, loc, length, 1);
    fb_mutex_unlock(&index->lock);
}

bool fb_index_clear(struct fb_index *index, uint64_t key, unsigned which, uint64_t loc)
{
    struct fb_layout_item *it;
    struct fb_index_entry e;
    bool cleared = false;

    fb_mutex_lock(&index->lock);
    it = locate(index, key);
    if (it != NULL) {
        entry_read(it, &e);
        cleared = e.loc[which] == loc;
    }
    if (cleared && e.loc[!which] == FB_LOC_NONE) {
        drop(index, it, &e);
    } else if (cleared) {
        atomic_store_explicit(&it->loc[which], FB_LOC_NONE, memory_order_release);
        tell_location(index, loc, e.length, -1);
    }
    fb_mutex_unlock(&index->lock);
    return cleared;
}

bool fb_index_remove(struct fb_index *index, uint64_t key, struct fb_index_entry *ret_old)
{
    struct fb_layout_item *it;

    fb_mutex_lock(&index->lock);
    it = locate(index, key);
    if (it != NULL)
        drop(index, it, ret_old);
    fb_mutex_unlock(&index->lock);
    return it != NULL;
}

static uint64_t remove_from_group(struct fb_index *index, struct fb_layout_group *group,
                                  uint32_t file) FB_REQUIRES(&index->lock)
{
    struct fb_index_entry old;
    uint64_t removed = 0;

    for (int i = 0; i < FB_GROUP_ITEMS; i++) {
        uint64_t key = atomic_load_explicit(&group->items[i].key, memory_order_relaxed);

        if (key == 0 || key >> 32 != file)
            continue;
        drop(index, &group->items[i], &old);
        removed++;
    }
    return removed;
}

uint64_t fb_index_remove_file(struct fb_index *index, uint32_t file, uint64_t count)
{
    uint64_t groups = index->layout->h.groups;
    uint64_t removed = 0;

    for (uint64_t first = 0; first < groups && removed < count; first += WALK_GROUPS) {
        uint64_t end = groups - first < WALK_GROUPS ? groups : first + WALK_GROUPS;

        fb_mutex_lock(&index->lock);
        for (uint64_t g = first; g < end; g++)
            removed += remove_from_group(index, fb_layout_group(index->layout, g), file);
        fb_mutex_unlock(&index->lock);
    }
    return removed;
}

static bool look(struct fb_index *index, uint64_t key, bool hold, struct fb_index_entry *ret_entry)
{
    struct fb_layout_item *it;

    fb_mutex_lock(&index->lock);
    it = locate(index, key);
    if (it != NULL) {
        entry_read(it, ret_entry);
        if (hold && index->watch.hold != NULL)
            index->watch.hold(index->watch.arg, key);
    }
    fb_mutex_unlock(&index->lock);
    return it != NULL;
}

bool fb_index_look(struct fb_index *index, uint64_t key, struct fb_index_entry *ret_entry)
{
    return look(index, key, false, ret_entry);
}

bool fb_index_hold(struct fb_index *index, uint64_t key, struct fb_index_entry *ret_entry)
{
    return look(index, key, true, ret_entry);
}

bool fb_index_get(const struct fb_index *index, uint64_t key, struct fb_index_entry *ret_entry)
{
    struct fb_found found;
    uint64_t meta;

    if (!fb_layout_find(index->layout, key, &found))
        return false;
    meta = atomic_load_explicit(&found.item->meta, memory_order_relaxed);
    ret_entry->key = key;
    ret_entry->loc[0] = found.loc[0];
    ret_entry->loc[1] = found.loc[1];
    ret_entry->length = found.length;
    ret_entry->use = use_of(meta);
    return true;
}

/* The exchange fails where the entry went to another item meanwhile; where it succeeds by chance,
 * the other item has the same length, and one access too many does no harm. NULL: one more. */
static void change_use(struct fb_index *index, uint64_t key, uint32_t last,
                       const struct fb_use *use)
{
    struct fb_found found;
    struct fb_use next;
    uint64_t meta;

    if (!fb_layout_find(index->layout, key, &found))
        return;
    meta = atomic_load_explicit(&found.item->meta, memory_order_relaxed);
    next = use ? *use : use_of(meta);
    if (!use) {
        next.last = last;
        if (next.history < UINT8_MAX)
            next.history++;
    }
    (void)atomic_compare_exchange_strong_explicit(&found.item->meta, &meta,
                                                  meta_make(length_of(meta), &next),
                                                  memory_order_relaxed, memory_order_relaxed);
}

void fb_index_touch(struct fb_index *index, uint64_t key, uint32_t now_s)
{
    change_use(index, key, now_s, NULL);
}

void fb_index_use(struct fb_index *index, uint64_t key, const struct fb_use *use)
{
    change_use(index, key, 0, use);
}

uint64_t fb_index_count(const struct fb_index *index)
{
    return atomic_load_explicit(&index->count, memory_order_relaxed);
}

uint64_t fb_index_capacity(const struct fb_index *index)
{
    return index->layout->h.groups * FB_GROUP_ITEMS;
}
