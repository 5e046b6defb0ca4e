/*
 * Putting an item into a segment: reserve under the tier's lock, copy and sum without it, publish
 * in the index, finish. An item is found only once all of it is there.
 */
#include <errno.h>
#include <string.h>

#include "base/checksum.h"
#include "core/clock.h"
#include "store/store_priv.h"

/* Where no huge page was made the pages of an item come together, unless it is so short that faults
 * take no longer. */
#define TOUCH_FROM (64u << 10)

/* Whether the item has a copy of this kind that can be read, and stays. */
static bool already_there(struct fb_store *store, uint64_t key, unsigned which)
{
    struct fb_index_entry e;

    return fb_index_get(store->index, key, &e) &&
           fb_layout_loc_good(&store->layout, e.loc[which]) &&
           !atomic_load(&store->segments[fb_loc_segment(e.loc[which])].leaving);
}

/* `summed`: it will lie on a medium. Memory is not read with sums, and they take as long as the
 * copy. */
static void write_record(struct fb_store *store, uint8_t *to, uint64_t key,
                         const struct fb_item *item, bool summed)
{
    struct fb_record *record = (struct fb_record *)to;
    uint64_t *sums = (uint64_t *)(to + sizeof *record);
    uint32_t data_offset = fb_record_data_offset(item->length);
    uint32_t count = fb_record_sums(item->length);
    struct fb_record r = {
        .magic = FB_RECORD_MAGIC,
        .block = item->block,
        .key = key,
        .path_hash = fb_files_path_hash(store->files, item->file),
        .version_hash = fb_version_hash(fb_files_version(store->files, item->file)),
        .length = item->length,
        .charge = item->charge,
    };

    if (!summed) {
        memcpy(to + data_offset, item->data, item->length);
        memset(sums, 0, 8ULL * count);
    }
    for (uint32_t i = 0; summed && i < count; i++) {
        uint32_t at = i * FB_SUM_BYTES;
        uint32_t size = (uint32_t)fb_min_u64(FB_SUM_BYTES, item->length - at);

        memcpy(to + data_offset + at, item->data + at, size);
        sums[i] = fb_checksum(to + data_offset + at, size);
    }
    memset(sums + count, 0, data_offset - sizeof *record - 8ULL * count);
    memset(to + data_offset + item->length, 0,
           fb_record_size(item->length) - data_offset - item->length);
    r.sum = summed ? fb_record_sum(&r, sums) : 0;
    *record = r;
}

int fb_store_append(struct fb_store *store, unsigned tier, const struct fb_item *item)
{
    struct fb_store_tier *t = &store->tiers[tier];
    uint64_t key = fb_item_key(item->file, item->block);
    struct fb_index_entry displaced;
    struct fb_segment *seg;
    size_t path_len;
    uint32_t offset, gen;
    int rc;

    if (item->length > store->block_bytes)
        return -EINVAL;
    if (!item->anew && already_there(store, key, t->which))
        return 0;
    (void)fb_files_path(store->files, item->file, &path_len);
    if (!fb_segment_fits_empty(t, fb_record_size(item->length), path_len))
        return -EFBIG;
    /* The table of contents will want path and attributes, however long the segment stays open. */
    if (t->which == 1)
        fb_files_ref(store->files, item->file, 1);
    rc = fb_segment_reserve(store, t, item, path_len, &seg, &offset);
    if (rc != 0) {
        if (t->which == 1)
            fb_files_unref(store->files, item->file, 1);
        return rc;
    }
#if !FB_TSAN
    /* Pairs with the acquire fence of a copy without a reference: who reads what is written next
     * sees that the generation of the segment that was here before has moved. */
    atomic_thread_fence(memory_order_release);
#endif
    /* Relaxed: it stays as it is while the segment is open. */
    gen = atomic_load_explicit(fb_segment_gen(store, seg), memory_order_relaxed);
    if (gen == 0 && item->length >= (item->far ? TOUCH_FROM : store->block_bytes))
        fb_tier_touch(t->tier, seg->memory + offset, fb_record_size(item->length));
    write_record(store, seg->memory + offset, key, item, t->which == 1);
    fb_index_set(store->index, key, t->which, fb_loc_make(gen, seg->no, offset), item->length,
                 fb_store_now_s(fb_now_coarse_ns()), &displaced);
    if (t->which == 0 && item->block == 0)
        fb_files_near(store->files, item->file, seg->memory + offset - store->layout.dram);
    if (item->use.last != 0 || item->use.history != 0)
        fb_index_use(store->index, key, &item->use);
    fb_segment_finish(store, seg);
    fb_metric_add(&store->metrics, FB_SM_APPENDED, 1);
    fb_metric_add(&store->metrics, FB_SM_APPENDED_BYTES, item->length);
    if (displaced.key != 0)
        fb_metric_add(&store->metrics, FB_SM_DISPLACED, 1);
    return 0;
}

bool fb_store_has_room(struct fb_store *store, unsigned tier)
{
    struct fb_store_tier *t = &store->tiers[tier];

    return fb_segment_open_has_room(store, t) || fb_segment_may_open(t);
}
