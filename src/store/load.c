/*
 * Whole segments, read at once, for who knows that all of it will be wanted; and stretches of them,
 * for who wants much of it and has little memory, or must not keep a disk from others for long.
 *
 * The records of a whole segment come in as few and as large reads as the tier writes them with,
 * all side by side; those of a stretch in one. Then the list of keys says what may be in the
 * segment, and the index what still is. Records are verified as those that are read one by one,
 * every chunk of them.
 */
#include <errno.h>

#include "base/assert.h"
#include "base/checksum.h"
#include "store/store_priv.h"

/* Of what is not wanted, read on the way to what is: that takes no longer than to ask anew. */
#define STRETCH_GAP (64u << 10)

/* What has come of a segment. */
struct part {
    struct fb_store *store;
    struct fb_segment *segment;
    uint64_t from, until; /* in the slot */
    const uint8_t *memory;
};

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

static bool is_whole(struct fb_store *store, const struct fb_index_entry *e,
                     const struct fb_record *record)
{
    const uint64_t *sums = (const uint64_t *)(record + 1);
    const uint8_t *data = (const uint8_t *)record + fb_record_data_offset(e->length);

    if (!fb_record_is_good(store, e->key, e->length, record))
        return false;
    for (uint32_t at = 0; at < e->length; at += FB_SUM_BYTES)
        if (fb_checksum(data + at, fb_min_u64(FB_SUM_BYTES, e->length - at)) !=
            sums[at / FB_SUM_BYTES])
            return false;
    return true;
}

/* Whether an item's place on the medium is in the segment, which is what it was. */
static bool is_in(struct fb_store *store, const struct fb_segment *segment,
                  const struct fb_index_entry *e)
{
    return e->loc[1] != FB_LOC_NONE && fb_loc_segment(e->loc[1]) == segment->no &&
           fb_layout_loc_good(&store->layout, e->loc[1]);
}

static struct fb_item item_of(const struct fb_index_entry *e)
{
    return (struct fb_item){.file = (uint32_t)(e->key >> 32),
                            .block = (uint32_t)e->key,
                            .length = e->length,
                            .use = e->use};
}

/* With a reference to the item's file. */
static void show(const struct part *part, const struct fb_index_entry *e, fb_store_loaded_fn *visit,
                 void *arg)
{
    struct fb_store *store = part->store;
    struct fb_item item = item_of(e);
    const struct fb_record *record;
    uint64_t at = fb_loc_offset(e->loc[1]);

    if (!is_in(store, part->segment, e) || at < part->from ||
        at + fb_record_size(e->length) > part->until)
        return;
    record = (const struct fb_record *)(part->memory + (at - part->from));
    if (!is_whole(store, e, record)) {
        if (fb_index_clear(store->index, e->key, 1, e->loc[1]))
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
    struct part part = {.store = store, .segment = l.segment, .memory = memory};
    struct fb_index_entry e;
    int rc;

    FB_ASSERT(segment < store->segment_count);
    l.tier = fb_segment_tier(store, l.segment);
    FB_ASSERT(l.tier->which == 1);
    if (fb_tier_is_stuck(l.tier->tier, fb_segment_slot(store, l.segment)))
        return -ETIMEDOUT;
    if (!fb_segment_hold_sealed(store, l.segment))
        return -EBUSY;
    rc = read_records(&l);
    part.until = l.segment->used;
    for (uint32_t i = 0; rc == 0 && i < l.segment->items; i++) {
        if (l.segment->keys[i] == 0 || !fb_index_hold(store->index, l.segment->keys[i], &e))
            continue;
        show(&part, &e, visit, arg);
        fb_files_unref(store->files, (uint32_t)(e.key >> 32), 1);
    }
    fb_segment_unpin(store, l.segment);
    return rc;
}

/* ---- stretches ---- */

/* One that has no copy in DRAM, and that the caller wants. */
static bool is_wanted(struct fb_store *store, const struct fb_segment *segment, uint64_t key,
                      fb_store_wants_fn *wants, void *arg, struct fb_index_entry *ret_entry)
{
    struct fb_item item;
    bool wanted;

    if (key == 0 || !fb_index_hold(store->index, key, ret_entry))
        return false;
    item = item_of(ret_entry);
    wanted = is_in(store, segment, ret_entry) &&
             !fb_layout_loc_good(&store->layout, ret_entry->loc[0]) && wants(arg, &item);
    fb_files_unref(store->files, item.file, 1);
    return wanted;
}

/* The first that is wanted, and as many after it as lie close by and fit. */
static bool choose(struct fb_store *store, const struct fb_segment *segment, struct fb_stretch *s,
                   fb_store_wants_fn *wants, void *arg)
{
    struct fb_index_entry e;
    uint32_t i = s->first;

    for (s->until = 0; i < segment->items; i++) {
        uint64_t at, end;

        if (!is_wanted(store, segment, segment->keys[i], wants, arg, &e))
            continue;
        at = fb_align_down(fb_loc_offset(e.loc[1]), FB_DISK_PAGE);
        end = fb_align_up(fb_loc_offset(e.loc[1]) + fb_record_size(e.length), FB_DISK_PAGE);
        if (s->until == 0) {
            s->first = i;
            s->from = at;
        } else if (at < s->from || at > s->until + STRETCH_GAP || end - s->from > s->buffer->size) {
            break;
        }
        s->until = fb_max_u64(s->until, end);
        s->end = i + 1;
    }
    return s->until != 0 && s->until - s->from <= s->buffer->size;
}

static void stretch_done(struct fb_tier_read *read)
{
    struct fb_stretch *s = read->owner;

    fb_event_set(&s->done);
}

int fb_store_stretch_begin(struct fb_store *store, struct fb_stretch *s, fb_store_wants_fn *wants,
                           void *arg)
{
    struct fb_segment *segment = &store->segments[s->segment];
    struct fb_tier_read *reads[] = {&s->read};

    FB_ASSERT(s->segment < store->segment_count);
    FB_ASSERT(fb_segment_tier(store, segment)->which == 1);
    if (!fb_segment_hold_sealed(store, segment))
        return -EBUSY;
    if (!choose(store, segment, s, wants, arg)) {
        fb_segment_unpin(store, segment);
        return FB_STORE_MISS;
    }
    s->read = (struct fb_tier_read){
        .slot = fb_segment_slot(store, segment),
        .offset = s->from,
        .length = (uint32_t)(s->until - s->from),
        .data = s->buffer->data,
        .buffer = s->buffer,
        .done = stretch_done,
        .owner = s,
    };
    fb_event_init(&s->done);
    fb_tier_read(fb_segment_tier(store, segment)->tier, reads, 1);
    return 0;
}

int fb_store_stretch_end(struct fb_store *store, struct fb_stretch *s, fb_store_loaded_fn *visit,
                         void *arg)
{
    struct fb_segment *segment = &store->segments[s->segment];
    struct part part = {.store = store, .segment = segment, .from = s->from, .until = s->until};
    struct fb_index_entry e;
    int rc;

    fb_event_wait(&s->done);
    rc = s->read.result < 0 ? s->read.result : 0;
    part.memory = s->buffer->data; /* a disk that is late may have the old one */
    for (uint32_t i = s->first; rc == 0 && i < s->end; i++) {
        if (segment->keys[i] == 0 || !fb_index_hold(store->index, segment->keys[i], &e))
            continue;
        if (!fb_layout_loc_good(&store->layout, e.loc[0]))
            show(&part, &e, visit, arg);
        fb_files_unref(store->files, (uint32_t)(e.key >> 32), 1);
    }
    fb_segment_unpin(store, segment);
    return rc;
}
