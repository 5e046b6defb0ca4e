/*
 * What the persistent tiers hold at start. Headers are looked at slot by slot, then tables of
 * contents are read, the newest segment first, several at a time; records are not touched. So of
 * several copies of an item the newest is indexed, and of several versions of a file the newest is
 * known.
 *
 *     for each valid header, by falling sequence:
 *         read the table (up to WINDOW_TABLES and WINDOW_BYTES ahead)
 *         damaged: the segment is dropped and counted
 *         for each file in it: known with another version, or evicted by hand: pass over
 *             for each item: within bounds and not indexed yet: index it
 *         nothing indexed: the slot is given back
 *
 * Paths come back with validity 0: the first use asks the source.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "store/store_priv.h"

#define WINDOW_TABLES 16
#define WINDOW_BYTES  (32u << 20) /* but at least one table */

struct found {
    struct fb_segment *segment;
    struct fb_disk_header header;
};

struct table {
    struct fb_tier_read read;
    struct fb_event done;
};

struct recovery {
    struct fb_store *store;
    struct found *found;
    uint32_t count;
    struct table tables[WINDOW_TABLES];
    uint64_t bytes_ahead;
    uint64_t damaged;
    /* Of all headers, also of slots that are given back: they stay there. */
    uint64_t oldest;
    uint64_t newest;
    /* the segment at hand */
    const struct found *at;
    uint32_t key_count;
    uint64_t indexed;
};

static void drop(struct fb_store *store, struct fb_segment *seg)
{
    if (fb_segment_kill(store, seg, FB_SEGMENT_SEALED))
        fb_segment_empty(store, seg, false, NULL, NULL);
}

/* ---- headers ---- */

static bool of_use(const struct recovery *r, const struct fb_store_tier *t,
                   const struct fb_disk_header *h)
{
    return h->block_bytes == r->store->block_bytes && h->items > 0 &&
           h->items <= t->segment_bytes / sizeof(struct fb_record);
}

static void scan_tier(struct recovery *r, struct fb_store_tier *t)
{
    for (uint32_t slot = 0; slot < t->slots; slot++) {
        struct found *f = &r->found[r->count];
        bool valid = false;
        int rc = fb_tier_scan(t->tier, slot, &f->header, &valid);

        if (rc < 0)
            r->damaged++;
        if (valid) {
            r->oldest = fb_min_u64(r->oldest, f->header.sequence);
            r->newest = fb_max_u64(r->newest, f->header.sequence);
        }
        if (rc < 0 || !valid || !of_use(r, t, &f->header)) {
            fb_tier_give(t->tier, slot);
            continue;
        }
        f->segment = &t->segments[slot];
        r->count++;
    }
}

static int newest_first(const void *a, const void *b)
{
    uint64_t x = ((const struct found *)a)->header.sequence;
    uint64_t y = ((const struct found *)b)->header.sequence;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* ---- tables ---- */

static uint32_t table_bytes(const struct found *f)
{
    return (uint32_t)fb_align_up(f->header.toc_bytes, FB_DISK_PAGE);
}

static void table_read_done(struct fb_tier_read *read)
{
    fb_event_set(&FB_CONTAINER_OF(read, struct table, read)->done);
}

static int table_start(struct recovery *r, uint32_t i)
{
    const struct found *f = &r->found[i];
    struct table *table = &r->tables[i % WINDOW_TABLES];
    struct fb_tier_read *read = &table->read;

    *read = (struct fb_tier_read){
        .slot = fb_segment_slot(r->store, f->segment),
        .length = table_bytes(f),
        .offset = f->header.toc_offset,
        .data = aligned_alloc(FB_IO_ALIGN, table_bytes(f)),
        .done = table_read_done,
    };
    if (read->data == NULL)
        return -ENOMEM;
    r->bytes_ahead += read->length;
    fb_event_init(&table->done);
    fb_tier_read(fb_segment_tier(r->store, f->segment)->tier, &read, 1);
    return 0;
}

/* As long as the file says: another length would be found by every read, and be of use to none. An
 * empty file has one item, of nothing. */
static bool length_good(const struct recovery *r, const struct fb_disk_file *file,
                        const struct fb_disk_item *item)
{
    uint64_t start = (uint64_t)item->block * r->store->block_bytes;
    uint64_t size = file->attr.version.size;

    if (start >= size)
        return item->block == 0 && item->length == 0;
    return item->length == fb_min_u64(r->store->block_bytes, size - start);
}

static bool item_in_bounds(const struct recovery *r, const struct fb_disk_file *file,
                           const struct fb_disk_item *item)
{
    uint64_t offset = (uint64_t)item->offset_units * FB_UNIT;

    return length_good(r, file, item) && offset >= FB_DISK_DATA_OFFSET &&
           offset + fb_record_size(item->length) <= r->at->header.data_end;
}

static void index_item(struct recovery *r, uint32_t id, const struct fb_disk_item *item)
{
    struct fb_store *store = r->store;
    struct fb_segment *seg = r->at->segment;
    uint64_t key = fb_item_key(id, item->block);
    uint32_t gen = atomic_load_explicit(fb_segment_gen(store, seg), memory_order_relaxed);
    struct fb_index_entry e;

    if (fb_index_look(store->index, key, &e) && e.loc[1] != FB_LOC_NONE)
        return;
    fb_index_set(store->index, key, 1,
                 fb_loc_make(gen, seg->no, (uint64_t)item->offset_units * FB_UNIT), item->length, 0,
                 &e);
    seg->keys[r->key_count++] = key;
    r->indexed++;
    if (e.key != 0) {
        fb_metric_add(&store->metrics, FB_SM_DISPLACED, 1);
        r->indexed--;
    }
}

static int recover_file(void *arg, const struct fb_disk_file *file, const char *path,
                        const struct fb_disk_item *items)
{
    struct recovery *r = arg;
    struct fb_store *store = r->store;
    uint32_t id;
    int rc;

    fb_sources_seen(store->sources, file->source);
    if (!S_ISREG(file->attr.mode) ||
        fb_evictions_hide(store->evictions, r->at->header.sequence, file->source, path))
        return 0;
    rc = fb_files_adopt(store->files, file->source, path, &file->attr, &id);
    if (rc != FB_FILES_NEW && rc != FB_FILES_SAME)
        return 0; /* another version, or no room for one more path */
    for (uint32_t i = 0; i < file->items; i++)
        if (item_in_bounds(r, file, &items[i]))
            index_item(r, id, &items[i]);
    fb_files_unref(store->files, id, 1);
    return 0;
}

static int recover_segment(struct recovery *r, const struct found *f,
                           const struct fb_tier_read *read)
{
    struct fb_segment *seg = f->segment;
    int rc = read->result;

    seg->state = FB_SEGMENT_SEALED;
    fb_segment_tier(r->store, seg)->lanes[FB_STORE_NEW]++;
    seg->full = true;
    seg->sequence = f->header.sequence;
    seg->opened_ns = fb_now_coarse_ns();
    atomic_store_explicit(&seg->last_access_ns, seg->opened_ns, memory_order_relaxed);
    seg->used = (uint32_t)f->header.data_end;
    seg->keys = fb_alloc_array(f->header.items + 1, sizeof *seg->keys);
    if (seg->keys == NULL)
        return -ENOMEM;
    seg->items = f->header.items;
    r->at = f;
    r->key_count = 0;
    if (rc >= 0)
        rc = fb_disk_toc_walk(&f->header, read->data, recover_file, r);
    if (rc < 0)
        r->damaged++;
    if (rc < 0 || atomic_load_explicit(&seg->live_items, memory_order_relaxed) == 0)
        drop(r->store, seg);
    return 0;
}

static int recover_tables(struct recovery *r)
{
    uint32_t started = 0, ended = 0;
    int rc = 0;

    while (ended < r->count) {
        struct table *table = &r->tables[ended % WINDOW_TABLES];

        while (rc == 0 && started < r->count && started - ended < WINDOW_TABLES &&
               (started == ended ||
                r->bytes_ahead + table_bytes(&r->found[started]) <= WINDOW_BYTES)) {
            rc = table_start(r, started);
            if (rc == 0)
                started++;
        }
        if (started == ended)
            break;
        fb_event_wait(&table->done);
        if (rc == 0)
            rc = recover_segment(r, &r->found[ended], &table->read);
        r->bytes_ahead -= table->read.length;
        free(fb_steal(table->read.data));
        ended++;
    }
    return rc;
}

/* New segments come after everything that is there, and after what was evicted by hand. */
static void set_sequence(struct recovery *r)
{
    uint64_t last = fb_max_u64(fb_evictions_sequence(r->store->evictions), r->newest);

    atomic_store_explicit(&r->store->last_sequence, last, memory_order_relaxed);
}

static void trim_evictions(struct recovery *r)
{
    uint64_t oldest = atomic_load_explicit(&r->store->last_sequence, memory_order_relaxed) + 1;
    int rc;

    rc = fb_evictions_trim(r->store->evictions, fb_min_u64(oldest, r->oldest), oldest - 1);
    if (rc < 0) /* notes that are of no use any more do no harm */
        fb_log_debug("the list of evictions was not trimmed: %s", fb_strerror(rc));
}

int fb_store_recover(struct fb_store *store, struct fb_error *err)
{
    struct recovery *r = fb_alloc(sizeof *r);
    uint64_t slots = 0;
    int rc = -ENOMEM;

    for (unsigned i = 0; i < store->tier_count; i++)
        slots += store->tiers[i].which == 1 ? store->tiers[i].slots : 0;
    if (r == NULL)
        goto out;
    r->store = store;
    r->oldest = UINT64_MAX;
    r->found = fb_alloc_array(slots + 1, sizeof *r->found);
    if (r->found == NULL)
        goto out;
    for (unsigned i = 0; i < store->tier_count; i++)
        if (store->tiers[i].which == 1)
            scan_tier(r, &store->tiers[i]);
    qsort(r->found, r->count, sizeof *r->found, newest_first);
    set_sequence(r);
    rc = recover_tables(r);
    if (rc == 0)
        trim_evictions(r);
    fb_metric_add(&store->metrics, FB_SM_RECOVERED, r->indexed);
    fb_metric_add(&store->metrics, FB_SM_DAMAGED_SEGMENTS, r->damaged);
    if (r->damaged > 0)
        fb_log_warn("%llu damaged segments of the cache were dropped",
                    (unsigned long long)r->damaged);
out:
    if (r != NULL)
        free(r->found);
    free(r);
    return rc < 0 ? fb_error_set(err, rc, "the cache could not be read back: %s", fb_strerror(rc))
                  : 0;
}
