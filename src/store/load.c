/*
 * Whole segments, read at once: for who knows that all of it will be wanted.
 *
 * The records come in as few and as large reads as the tier writes them with, all side by side;
 * then the list of keys says what may be in the segment, and the index what still is. Records are
 * verified as those that are read one by one, every stretch of them.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/checksum.h"
#include "store/store_priv.h"

struct loading {
    struct fb_store *store;
    struct fb_segment *segment;
    struct fb_store_tier *tier;
    uint8_t *memory; /* the slot's first byte is its first */
    struct fb_tier_read reads[FB_DISK_WRITES_MAX];
    _Atomic unsigned left;
    struct fb_event done;
};

static void piece_done(struct fb_tier_read *read)
{
    struct loading *l = read->owner;

    /* The last one sees what the others have left. */
    if (atomic_fetch_sub_explicit(&l->left, 1, memory_order_acq_rel) == 1)
        fb_event_set(&l->done);
}

static int read_records(struct loading *l)
{
    uint64_t at = l->tier->first_offset;
    uint64_t end = fb_align_up(l->segment->used, FB_DISK_PAGE);
    uint64_t each = fb_max_u64(FB_DISK_WRITE_BYTES,
                               fb_align_up(fb_div_up(end - at, FB_DISK_WRITES_MAX), FB_DISK_PAGE));
    struct fb_tier_read *reads[FB_DISK_WRITES_MAX];
    unsigned count = 0;

    for (; at < end; at += each, count++) {
        l->reads[count] = (struct fb_tier_read){
            .slot = fb_segment_slot(l->store, l->segment),
            .offset = at,
            .length = (uint32_t)fb_min_u64(each, end - at),
            .data = l->memory + at,
            .done = piece_done,
            .owner = l,
        };
        reads[count] = &l->reads[count];
    }
    if (count == 0)
        return 0;
    fb_event_init(&l->done);
    atomic_store_explicit(&l->left, count, memory_order_release);
    fb_tier_read(l->tier->tier, reads, count);
    fb_event_wait(&l->done);
    for (unsigned i = 0; i < count; i++)
        if (l->reads[i].result < 0)
            return l->reads[i].result;
    return 0;
}

static bool is_whole(struct loading *l, const struct fb_index_entry *e,
                     const struct fb_record *record)
{
    const uint64_t *sums = (const uint64_t *)(record + 1);
    const uint8_t *data = (const uint8_t *)record + fb_record_data_offset(e->length);

    if (!fb_record_is_good(l->store, e->key, e->length, record))
        return false;
    for (uint32_t at = 0; at < e->length; at += FB_SUM_BYTES)
        if (fb_checksum(data + at, fb_min_u64(FB_SUM_BYTES, e->length - at)) !=
            sums[at / FB_SUM_BYTES])
            return false;
    return true;
}

/* With a reference to the item's file. */
static void show(struct loading *l, const struct fb_index_entry *e, fb_store_loaded_fn *visit,
                 void *arg)
{
    struct fb_store *store = l->store;
    uint64_t loc = e->loc[1];
    const struct fb_record *record;
    struct fb_item item = {.file = (uint32_t)(e->key >> 32),
                           .block = (uint32_t)e->key,
                           .length = e->length,
                           .use = e->use};

    if (loc == FB_LOC_NONE || fb_loc_segment(loc) != l->segment->no ||
        !fb_layout_loc_good(&store->layout, loc))
        return;
    record = (const struct fb_record *)(l->memory + fb_loc_offset(loc));
    if (!is_whole(l, e, record)) {
        if (fb_index_clear(store->index, e->key, 1, loc))
            fb_metric_add(&store->metrics, FB_SM_DAMAGED, 1);
        return;
    }
    item.data = (const uint8_t *)record + fb_record_data_offset(e->length);
    visit(arg, &item);
}

int fb_store_load(struct fb_store *store, uint32_t segment, uint8_t *memory,
                  fb_store_loaded_fn *visit, void *arg)
{
    struct loading l = {.store = store, .segment = &store->segments[segment], .memory = memory};
    struct fb_index_entry e;
    int rc;

    FB_ASSERT(segment < store->segment_count);
    l.tier = fb_segment_tier(store, l.segment);
    FB_ASSERT(l.tier->which == 1);
    if (!fb_segment_hold_sealed(store, l.segment))
        return -EBUSY;
    rc = read_records(&l);
    for (uint32_t i = 0; rc == 0 && i < l.segment->items; i++) {
        if (l.segment->keys[i] == 0 || !fb_index_hold(store->index, l.segment->keys[i], &e))
            continue;
        show(&l, &e, visit, arg);
        fb_files_unref(store->files, (uint32_t)(e.key >> 32), 1);
    }
    fb_segment_unpin(store, l.segment);
    return rc;
}
