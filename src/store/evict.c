/*
 * Taking items out: a whole segment, or a whole file.
 *
 * A segment's list of keys says what may be in it; the index says what still is, and where. An item
 * is held (its file record, too) while the visitor looks at it, and leaves the index right after,
 * unless it has got another location meanwhile: the visitor may have appended it to a lower tier.
 * Until its turn it is found as before: to move a segment's items down takes time, and who asked
 * for one of them meanwhile would go to the source.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/assert.h"
#include "core/mem.h"
#include "store/store_priv.h"

#define LOOK_AHEAD    8 /* entries of the index on their way to us */
#define FORGET_PASSES 3 /* through the index, for a file with more blocks than that has room */

struct emptying {
    struct fb_store *store;
    struct fb_segment *segment;
    unsigned which;
    uint32_t gen; /* of the locations */
    fb_victim_fn *visit;
    void *arg;
    bool want_data;
    uint64_t loc;         /* of the item that is visited */
    struct fb_buffer own; /* for items on a medium, made when the first is wanted */
};

static bool lies_here(const struct emptying *e, uint64_t loc)
{
    return loc != FB_LOC_NONE && fb_loc_segment(loc) == e->segment->no &&
           fb_loc_gen(loc) == (e->gen & FB_LOC_GEN_MASK);
}

struct waiting_read {
    struct fb_store_read read;
    struct fb_event done;
};

static void wake(struct fb_store_read *read)
{
    fb_event_set(&FB_CONTAINER_OF(read, struct waiting_read, read)->done);
}

static const uint8_t *read_item(struct emptying *e, struct fb_pin *pin)
{
    struct waiting_read w = {
        .read = {.pin = pin, .length = pin->length, .buffer = &e->own, .done = wake}};

    /* Not from a pool: giving a buffer back there calls whoever waits for it, and our caller may
     * hold locks. */
    if (e->own.data == NULL)
        e->own.data = aligned_alloc(FB_IO_ALIGN, fb_align_up(e->own.size, FB_IO_ALIGN));
    if (e->own.data == NULL)
        return NULL;
    fb_event_init(&w.done);
    fb_store_read(e->store, &w.read);
    fb_event_wait(&w.done);
    return w.read.result == 0 ? w.read.data : NULL;
}

static const uint8_t *item_data(struct emptying *e, uint64_t key, uint64_t loc, uint32_t length)
{
    const uint8_t *memory;
    const struct fb_record *record;
    struct fb_pin pin = {
        .key = key, .loc = loc, .length = length, .tier = e->segment->tier, .segment = e->segment};

    if (e->which == 1)
        return read_item(e, &pin);
    memory = atomic_load_explicit(&e->segment->mem, memory_order_relaxed);
    record = (const struct fb_record *)(memory + fb_loc_offset(loc));
    FB_ASSERT(record->key == key && record->length == length);
    return memory + fb_loc_offset(loc) + fb_record_data_offset(length);
}

/* With a reference to the item's file. */
static void show(struct emptying *e, const struct fb_index_entry *entry)
{
    uint32_t file = (uint32_t)(entry->key >> 32);
    struct fb_victim victim = {
        .item = {.file = file,
                 .block = (uint32_t)entry->key,
                 .length = entry->length,
                 .use = entry->use},
        .other_copy = entry->loc[!e->which] != FB_LOC_NONE,
        .current = fb_files_current(e->store->files, file),
        .emptying = e,
    };

    e->loc = entry->loc[e->which];
    if (e->which == 0 || e->want_data)
        victim.item.data = fb_victim_data(&victim);
    e->visit(e->arg, &victim);
}

const uint8_t *fb_victim_data(const struct fb_victim *victim)
{
    struct emptying *e = victim->emptying;

    return item_data(e, fb_item_key(victim->item.file, victim->item.block), e->loc,
                     victim->item.length);
}

static void take_out(struct emptying *e, uint64_t key)
{
    struct fb_store *store = e->store;
    struct fb_index_entry entry;
    bool held = e->visit != NULL;

    if (held ? !fb_index_hold(store->index, key, &entry)
             : !fb_index_look(store->index, key, &entry))
        return;
    if (lies_here(e, entry.loc[e->which])) {
        if (held)
            show(e, &entry);
        if (fb_index_clear(store->index, key, e->which, entry.loc[e->which]))
            fb_metric_add(&store->metrics, FB_SM_EVICTED_ITEMS, 1);
    }
    if (held)
        fb_files_unref(store->files, (uint32_t)(key >> 32), 1);
}

void fb_segment_empty(struct fb_store *store, struct fb_segment *seg, bool want_data,
                      fb_victim_fn *visit, void *arg)
{
    struct emptying e = {
        .store = store,
        .segment = seg,
        .which = fb_segment_tier(store, seg)->which,
        .gen = atomic_load_explicit(fb_segment_gen(store, seg), memory_order_relaxed) & ~1u,
        .visit = visit,
        .arg = arg,
        .want_data = want_data,
        .own = {.size = fb_store_buffer_bytes(store->block_bytes)},
    };

    for (uint32_t i = 0; i < seg->items; i++)
        if (seg->keys[i] != 0)
            take_out(&e, seg->keys[i]);
    free(e.own.data);
    fb_segment_emptied(store, seg);
}

int fb_store_evict(struct fb_store *store, uint32_t segment, bool want_data, fb_victim_fn *visit,
                   void *arg)
{
    struct fb_segment *seg = &store->segments[segment];

    FB_ASSERT(segment < store->segment_count);
    if (!fb_segment_retire(store, seg, FB_SEGMENT_SEALED))
        return -EBUSY;
    fb_metric_add(&store->metrics, FB_SM_EVICTED, 1);
    fb_segment_empty(store, seg, want_data, visit, arg);
    return 0;
}

/* ---- looking ---- */

bool fb_segment_hold_sealed(struct fb_store *store, struct fb_segment *seg)
{
    struct fb_store_tier *t = fb_segment_tier(store, seg);
    bool sealed;

    fb_mutex_lock(&t->lock);
    sealed = seg->state == FB_SEGMENT_SEALED;
    if (sealed)
        atomic_fetch_add(&seg->pins, 1);
    fb_mutex_unlock(&t->lock);
    return sealed;
}

static void look_at(struct fb_store *store, const struct fb_segment *seg, unsigned which,
                    uint64_t key, fb_store_item_fn *visit, void *arg)
{
    struct fb_index_entry e;

    if (key != 0 && fb_index_get(store->index, key, &e) && e.loc[which] != FB_LOC_NONE &&
        fb_loc_segment(e.loc[which]) == seg->no)
        visit(arg, key, e.length, &e.use);
}

int fb_store_visit(struct fb_store *store, uint32_t segment, uint32_t sample,
                   fb_store_item_fn *visit, void *arg)
{
    struct fb_segment *seg = &store->segments[segment];
    unsigned which = fb_segment_tier(store, seg)->which;
    uint32_t stride, ahead;

    FB_ASSERT(segment < store->segment_count && sample > 0);
    if (!fb_segment_hold_sealed(store, seg))
        return -EBUSY;
    stride = (uint32_t)fb_max_u64(1, fb_div_up(seg->items, sample));
    ahead = stride * LOOK_AHEAD;
    for (uint32_t i = 0; i < seg->items; i += stride) {
        if (i + ahead < seg->items)
            fb_layout_prefetch(&store->layout, seg->keys[i + ahead]);
        look_at(store, seg, which, seg->keys[i], visit, arg);
    }
    fb_segment_unpin(store, seg);
    return 0;
}

/* Of an item of that kind; 0 of others, and of one that lies elsewhere by now. */
static uint32_t length_if(struct fb_store *store, const struct fb_segment *seg, uint64_t key,
                          fb_store_file_fn *is_of_kind, void *arg)
{
    unsigned which = fb_segment_tier(store, seg)->which;
    uint32_t file = (uint32_t)(key >> 32), length = 0;
    struct fb_index_entry e;

    if (key == 0 || !fb_index_hold(store->index, key, &e))
        return 0;
    if (e.loc[which] != FB_LOC_NONE && fb_loc_segment(e.loc[which]) == seg->no &&
        is_of_kind(arg, file))
        length = e.length;
    fb_files_unref(store->files, file, 1);
    return length;
}

double fb_store_share(struct fb_store *store, uint32_t segment, uint32_t sample,
                      fb_store_file_fn *is_of_kind, void *arg)
{
    struct fb_segment *seg = &store->segments[segment];
    uint64_t bytes = 0, segment_bytes;
    uint32_t stride, looked = 0;
    double share;

    FB_ASSERT(segment < store->segment_count && sample > 0);
    if (!fb_segment_hold_sealed(store, seg))
        return 0;
    segment_bytes = fb_tier_segment_bytes(fb_segment_tier(store, seg)->tier);
    stride = (uint32_t)fb_max_u64(1, fb_div_up(seg->items, sample));
    for (uint32_t i = 0; i < seg->items; i += stride, looked++)
        bytes += length_if(store, seg, seg->keys[i], is_of_kind, arg);
    share = (double)bytes * seg->items / (looked ? looked : 1) / (double)segment_bytes;
    fb_segment_unpin(store, seg);
    return share;
}

void fb_store_where(const struct fb_store *store, uint64_t key, struct fb_whereabouts *ret_where)
{
    struct fb_index_entry e;
    bool found = fb_index_get(store->index, key, &e);

    ret_where->in_dram = found && fb_layout_loc_good(&store->layout, e.loc[0]);
    ret_where->lane = ret_where->in_dram
                          ? fb_segment_lane(&store->segments[fb_loc_segment(e.loc[0])])
                          : FB_STORE_NEW;
    ret_where->below = found && fb_layout_loc_good(&store->layout, e.loc[1]);
    ret_where->segment = ret_where->below ? fb_loc_segment(e.loc[1]) : 0;
}

void fb_store_drop(struct fb_store *store, uint64_t key)
{
    struct fb_index_entry old;

    (void)fb_index_remove(store->index, key, &old);
}

void fb_store_drop_dram(struct fb_store *store, uint64_t key)
{
    struct fb_index_entry e;

    if (fb_index_look(store->index, key, &e) && e.loc[0] != FB_LOC_NONE)
        (void)fb_index_clear(store->index, key, 0, e.loc[0]);
}

void fb_store_forget(struct fb_store *store, uint32_t file)
{
    struct fb_index_entry old;
    uint64_t blocks;

    /* Only the version of a regular file stays as it is, and only those have items. */
    if (fb_files_items(store->files, file) == 0)
        return;
    blocks = fb_div_up(fb_files_version(store->files, file)->size, store->block_bytes);
    blocks = fb_max_u64(1, blocks);

    /* A huge file of which little can be here: the table is the shorter way. A second pass finds
     * what was moved during the first. */
    if (blocks > fb_index_capacity(store->index)) {
        for (int pass = 0; pass < FORGET_PASSES; pass++)
            (void)fb_index_remove_file(store->index, file, fb_files_items(store->files, file));
        return;
    }
    blocks = fb_min_u64(blocks, UINT32_MAX);
    for (uint64_t b = 0; b < blocks && fb_files_items(store->files, file) > 0; b++)
        (void)fb_index_remove(store->index, fb_item_key(file, (uint32_t)b), &old);
}
