/*
 * Reading. Three ways, from cheap to thorough:
 *
 *   copy   DRAM only, no reference: bytes are copied first and believed after the generation has
 *          been seen unchanged. Cost: one probe (two cache lines), one look at the generation
 *          before and one after, the record's header, the copy.
 *   pin    an atomic add on the segment; what is in memory is handed out as a pointer.
 *   read   from a medium: record and the touched 4 KiB stretches are verified.
 *
 * A read from a medium is one operation when the wanted bytes are near the record's start, or the
 * item is small; otherwise two, side by side: header with checksums, and the wanted stretches.
 *
 *     slot:    ...| record header | sums | data: chunk 0 | chunk 1 | ... | chunk n |...
 *     one:     [----------------------------------------)
 *     two:     [-------------------)                       [---------)
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/checksum.h"
#include "store/store_priv.h"

#define ONE_READ_BYTES (64u << 10)
#define PIN_TRIES      2
#define PREFETCH_BYTES 4096u

/* ---- copy ---- */

#if FB_TSAN
/* Copying bytes that another thread may overwrite is a race: a meant one, whose loser throws its
 * copy away, but TSan cannot know. Its builds copy under a pin. */
int64_t fb_store_copy(struct fb_store *store, uint64_t key, uint32_t offset, uint32_t length,
                      void *ret_data)
{
    struct fb_pin pin;
    int64_t copied = -ENOENT;

    if (fb_store_pin(store, key, &pin) == FB_STORE_MISS)
        return -ENOENT;
    if (pin.from_memory && store->tiers[pin.tier].which == 0) {
        copied = offset < pin.length ? (int64_t)fb_min_u64(length, pin.length - offset) : 0;
        memcpy(ret_data, pin.data + (copied > 0 ? offset : 0), (size_t)copied);
    }
    fb_store_unpin(store, &pin);
    return copied;
}
#else
/* A random item is in no cache. The second level waits for more lines at a time than a copy does:
 * a fifth off one of 4 KiB. In longer ones the processor sees the pattern by itself. */
static void prefetch(const uint8_t *data, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes && i < PREFETCH_BYTES; i += FB_CACHELINE)
        __builtin_prefetch(data + i, 0, 2);
}

int64_t fb_store_copy(struct fb_store *store, uint64_t key, uint32_t offset, uint32_t length,
                      void *ret_data)
{
    const struct fb_layout *l = &store->layout;
    const struct fb_record *record;
    const uint8_t *data;
    struct fb_found found;
    uint64_t at;
    uint32_t bytes;

    if (fb_unlikely(!fb_layout_find(l, key, &found)) ||
        fb_unlikely(!fb_layout_loc_good(l, found.loc[0])))
        return -ENOENT;
    at = fb_loc_offset(found.loc[0]);
    /* A length that belongs to another item (the probe was overtaken) must not lead outside. */
    if (fb_unlikely(at + fb_record_size(found.length) > store->dram_segment_bytes))
        return -ENOENT;
    record =
        (const struct fb_record *)(l->dram +
                                   fb_loc_segment(found.loc[0]) * store->dram_segment_bytes + at);
    bytes = offset < found.length ? (uint32_t)fb_min_u64(length, found.length - offset) : 0;
    data = (const uint8_t *)record + fb_record_data_offset(found.length) + offset;
    prefetch(data, bytes);
    if (fb_unlikely(record->key != key) || fb_unlikely(record->length != found.length))
        return -ENOENT;
    memcpy(ret_data, data, bytes);
    /* Pairs with the release fence before a record is written: see append.c. */
    atomic_thread_fence(memory_order_acquire);
    if (fb_unlikely(!fb_layout_loc_good(l, found.loc[0])))
        return -ENOENT;
    return bytes;
}
#endif

/* ---- pin ---- */

bool fb_segment_pin(struct fb_store *store, uint64_t loc, struct fb_segment **ret_segment)
{
    struct fb_segment *seg;
    uint32_t gen;

    if (!fb_layout_loc_good(&store->layout, loc))
        return false;
    seg = &store->segments[fb_loc_segment(loc)];
    atomic_fetch_add(&seg->pins, 1);
    gen = atomic_load(fb_segment_gen(store, seg));
    if ((gen & 1) != 0 || (gen & FB_LOC_GEN_MASK) != fb_loc_gen(loc)) {
        fb_segment_unpin(store, seg);
        return false;
    }
    *ret_segment = seg;
    return true;
}

void fb_segment_unpin(struct fb_store *store, struct fb_segment *seg)
{
    if (atomic_fetch_sub(&seg->pins, 1) == 1 && (atomic_load(fb_segment_gen(store, seg)) & 1) != 0)
        fb_segment_settle(store, seg);
}

/* 0, FB_STORE_MEDIUM, or FB_STORE_MISS without a pin. */
static int pin_location(struct fb_store *store, uint64_t key, uint64_t loc, uint32_t length,
                        struct fb_pin *pin)
{
    const struct fb_record *record;
    struct fb_segment *seg;
    uint8_t *memory;

    if (loc == FB_LOC_NONE || !fb_segment_pin(store, loc, &seg))
        return FB_STORE_MISS;
    *pin = (struct fb_pin){
        .key = key, .loc = loc, .length = length, .tier = seg->tier, .segment = seg};
    memory = store->tiers[seg->tier].which == 0
                 ? atomic_load_explicit(&seg->mem, memory_order_relaxed)
                 : fb_segment_mem_pin(store, seg);
    if (memory == NULL)
        return FB_STORE_MEDIUM;
    pin->from_memory = true;
    pin->data = memory + fb_loc_offset(loc) + fb_record_data_offset(length);
    record = (const struct fb_record *)(memory + fb_loc_offset(loc));
    if (record->key == key && record->length == length)
        return 0;
    fb_store_unpin(store, pin);
    return FB_STORE_MISS;
}

int fb_store_pin(struct fb_store *store, uint64_t key, struct fb_pin *ret_pin)
{
    for (int i = 0; i < PIN_TRIES; i++) {
        struct fb_found found;
        int rc;

        if (!fb_layout_find(&store->layout, key, &found))
            return FB_STORE_MISS;
        rc = pin_location(store, key, found.loc[0], found.length, ret_pin);
        if (rc == FB_STORE_MISS)
            rc = pin_location(store, key, found.loc[1], found.length, ret_pin);
        if (rc != FB_STORE_MISS)
            return rc;
    }
    return FB_STORE_MISS;
}

void fb_store_unpin(struct fb_store *store, struct fb_pin *pin)
{
    struct fb_segment *seg = pin->segment;

    if (pin->from_memory && store->tiers[pin->tier].which == 1)
        fb_segment_mem_unpin(store, seg);
    fb_segment_unpin(store, seg);
    pin->segment = NULL;
}

/* ---- read ---- */

uint32_t fb_store_buffer_bytes(uint32_t block_bytes)
{
    /* Two stretches, each up to a page longer at both ends. */
    return (uint32_t)(fb_align_up(fb_record_data_offset(block_bytes), FB_DISK_PAGE) +
                      fb_align_up(block_bytes, FB_DISK_PAGE) + 4 * FB_DISK_PAGE);
}

/* What is read and where in the buffer it will be; offsets are those of the slot. */
struct plan {
    uint64_t record_at;
    uint32_t data_offset;
    uint32_t first_chunk, end_chunk;
    unsigned parts;
    uint64_t at[2];
    uint32_t length[2];
};

static struct plan make_plan(const struct fb_store_read *read)
{
    const struct fb_pin *pin = read->pin;
    struct plan p = {
        .record_at = fb_loc_offset(pin->loc),
        .data_offset = fb_record_data_offset(pin->length),
        .first_chunk = read->offset / FB_SUM_BYTES,
        .end_chunk = (uint32_t)fb_div_up(read->offset + (uint64_t)read->length, FB_SUM_BYTES),
        .parts = 1,
    };
    uint64_t data_at = p.record_at + p.data_offset;
    uint64_t start = data_at + (uint64_t)p.first_chunk * FB_SUM_BYTES;
    uint64_t end = data_at + fb_min_u64((uint64_t)p.end_chunk * FB_SUM_BYTES, pin->length);

    p.at[0] = fb_align_down(p.record_at, FB_DISK_PAGE);
    if (read->length > 0 && pin->length > ONE_READ_BYTES && start - p.record_at > ONE_READ_BYTES) {
        p.parts = 2;
        p.at[1] = fb_align_down(start, FB_DISK_PAGE);
        p.length[1] = (uint32_t)(fb_align_up(end, FB_DISK_PAGE) - p.at[1]);
        end = data_at;
    }
    p.length[0] = (uint32_t)(fb_align_up(end, FB_DISK_PAGE) - p.at[0]);
    return p;
}

bool fb_record_is_good(struct fb_store *store, uint64_t key, uint32_t length,
                       const struct fb_record *record)
{
    uint32_t file = (uint32_t)(key >> 32);

    return record->magic == FB_RECORD_MAGIC && record->block == (uint32_t)key &&
           record->length == length &&
           record->path_hash == fb_files_path_hash(store->files, file) &&
           record->version_hash == fb_version_hash(fb_files_version(store->files, file)) &&
           record->sum == fb_record_sum(record, (const uint64_t *)(record + 1));
}

/* Verifies what was asked for, and where it is. */
static int verify(struct fb_store *store, struct fb_store_read *read)
{
    struct plan p = make_plan(read);
    const uint8_t *buffer = read->buffer->data;
    const struct fb_record *record = (const struct fb_record *)(buffer + (p.record_at - p.at[0]));
    const uint64_t *sums = (const uint64_t *)(record + 1);
    uint64_t start = p.record_at + p.data_offset + (uint64_t)p.first_chunk * FB_SUM_BYTES;
    const uint8_t *chunk =
        p.parts == 1 ? buffer + (start - p.at[0]) : buffer + p.length[0] + (start - p.at[1]);

    if (!fb_record_is_good(store, read->pin->key, read->pin->length, record))
        return -EBADMSG;
    read->data = chunk + read->offset % FB_SUM_BYTES;
    for (uint32_t i = p.first_chunk; i < p.end_chunk; i++, chunk += FB_SUM_BYTES) {
        uint64_t size = fb_min_u64(FB_SUM_BYTES, read->pin->length - (uint64_t)i * FB_SUM_BYTES);

        if (fb_checksum(chunk, size) != sums[i])
            return -EBADMSG;
    }
    return 0;
}

static void part_done(struct fb_store_read *read)
{
    struct fb_store *store = read->store;
    const struct fb_pin *pin = read->pin;
    unsigned parts = make_plan(read).parts;

    /* The last one sees what the other has left. */
    if (atomic_fetch_sub_explicit(&read->parts_left, 1, memory_order_acq_rel) != 1)
        return;
    read->result = 0;
    for (unsigned i = 0; i < parts; i++)
        if (read->parts[i].result < 0)
            read->result = read->parts[i].result;
    if (read->result == 0)
        read->result = verify(store, read);
    /* What cannot be read is dropped as well: else the item could never be cached again. What is
     * late is still there. */
    if (read->result == -ETIMEDOUT)
        fb_metric_add(&store->metrics, FB_SM_LATE, 1);
    else if (read->result < 0 &&
             fb_index_clear(store->index, pin->key, store->tiers[pin->tier].which, pin->loc))
        fb_metric_add(&store->metrics, FB_SM_DAMAGED, 1);
    read->done(read);
}

static void first_part_done(struct fb_tier_read *part)
{
    part_done(FB_CONTAINER_OF(part, struct fb_store_read, parts[0]));
}

static void second_part_done(struct fb_tier_read *part)
{
    part_done(FB_CONTAINER_OF(part, struct fb_store_read, parts[1]));
}

void fb_store_read(struct fb_store *store, struct fb_store_read *read)
{
    struct fb_store_tier *t = &store->tiers[read->pin->tier];
    struct fb_tier_read *parts[2] = {&read->parts[0], &read->parts[1]};
    uint32_t slot = fb_segment_slot(store, read->pin->segment);
    uint64_t filled = 0;
    struct plan p;

    FB_ASSERT((uint64_t)read->offset + read->length <= read->pin->length);
    read->store = store;
    if (read->pin->from_memory) {
        memcpy(read->buffer->data, read->pin->data + read->offset, read->length);
        read->data = read->buffer->data;
        read->result = 0;
        read->done(read);
        return;
    }
    p = make_plan(read);
    for (unsigned i = 0; i < p.parts; i++) {
        read->parts[i] = (struct fb_tier_read){
            .slot = slot,
            .offset = p.at[i],
            .length = p.length[i],
            .data = read->buffer->data + filled,
            .buffer = read->buffer,
            .done = i == 0 ? first_part_done : second_part_done,
            .meanwhile = p.parts == 1 ? read->meanwhile : NULL,
        };
        filled += p.length[i];
    }
    FB_ASSERT(filled <= read->buffer->size);
    atomic_store_explicit(&read->parts_left, p.parts, memory_order_release);
    fb_tier_read(t->tier, parts, p.parts);
}
