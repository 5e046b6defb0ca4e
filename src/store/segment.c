/*
 * Segments, from FREE to FREE (see store.h for the states, store_priv.h for the rules).
 *
 * A slot is taken, and a segment sealed, without the tier's lock: both may touch the file system.
 * `opening` keeps two threads from taking a slot each; who comes second waits for the first.
 *
 * While OPEN a segment has lists with room for as many items as could ever fit. They are taken from
 * the kernel untouched, so they cost what is used of them; sealing keeps 8 bytes an item.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "store/store_priv.h"

struct seal_job {
    struct fb_store *store;
    struct fb_segment *segment;
    struct fb_tier_seal seal;
};

/* ---- memory ---- */

static void write_ended(struct fb_store *store, unsigned released)
{
    fb_mutex_lock(&store->writes_lock);
    store->writes_done++;
    store->memory_lent -= released;
    fb_cond_broadcast(&store->writes_cond);
    fb_mutex_unlock(&store->writes_lock);
}

/* mem is NULL by now: no new reader can come in. */
static void mem_try_release(struct fb_store *store, struct fb_segment *seg)
{
    struct fb_store_tier *t = fb_segment_tier(store, seg);
    uint8_t *memory;

    if (atomic_load(&seg->mem_pins) != 0)
        return;
    memory = atomic_exchange(&seg->mem_done, NULL);
    if (memory == NULL)
        return;
    fb_tier_release_memory(t->tier, fb_segment_slot(store, seg), memory);
    write_ended(store, 1);
}

uint8_t *fb_segment_mem_pin(struct fb_store *store, struct fb_segment *seg)
{
    uint8_t *memory;

    /* Most segments have no memory most of the time: a look before the store to a shared line. Acquire,
     * since who finds no memory reads what the seal has written. */
    if (atomic_load_explicit(&seg->mem, memory_order_acquire) == NULL)
        return NULL;
    atomic_fetch_add(&seg->mem_pins, 1);
    memory = atomic_load(&seg->mem);
    if (memory == NULL)
        fb_segment_mem_unpin(store, seg);
    return memory;
}

void fb_segment_mem_unpin(struct fb_store *store, struct fb_segment *seg)
{
    atomic_fetch_sub(&seg->mem_pins, 1);
    if (atomic_load(&seg->mem) == NULL)
        mem_try_release(store, seg);
}

static void mem_retire(struct fb_store *store, struct fb_segment *seg)
{
    atomic_store(&seg->mem_done, seg->memory);
    seg->memory = NULL;
    atomic_store(&seg->mem, NULL);
    mem_try_release(store, seg);
}

/* ---- DYING, FREE ---- */

bool fb_segment_kill(struct fb_store *store, struct fb_segment *seg, enum fb_segment_state from)
{
    struct fb_store_tier *t = fb_segment_tier(store, seg);
    bool killed;

    fb_mutex_lock(&t->lock);
    killed = seg->state == from;
    if (killed) {
        seg->state = FB_SEGMENT_DYING;
        seg->emptied = false;
        /* Odd. Pairs with the load after a pin was added (rule 4), and with readers that look twice
         * (fb_layout_loc_good). */
        atomic_fetch_add(fb_segment_gen(store, seg), 1);
    }
    fb_mutex_unlock(&t->lock);
    return killed;
}

void fb_segment_settle(struct fb_store *store, struct fb_segment *seg)
{
    struct fb_store_tier *t = fb_segment_tier(store, seg);
    uint64_t *keys = NULL;
    bool freed;

    fb_mutex_lock(&t->lock);
    freed = seg->state == FB_SEGMENT_DYING && seg->emptied && atomic_load(&seg->pins) == 0;
    if (freed) {
        FB_ASSERT(atomic_load_explicit(&seg->live_items, memory_order_relaxed) == 0);
        seg->state = FB_SEGMENT_FREE;
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
    room = t->open != NULL &&
           fits(t, t->open->used, t->open->toc_room, fb_record_size(store->block_bytes),
                fb_disk_toc_room(FB_PATH_MAX - 1, false));
    fb_mutex_unlock(&t->lock);
    return room;
}

/* FREE -> OPEN, but for its state. Under no lock: `opening` is ours. */
static int open_segment(struct fb_store *store, struct fb_store_tier *t,
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
    seg->keys = fb_alloc_array(items_max, sizeof *seg->keys);
    seg->building = t->which == 1 ? fb_alloc_array(items_max, sizeof *seg->building) : NULL;
    if (seg->keys == NULL || (t->which == 1 && seg->building == NULL)) {
        free(fb_steal(seg->keys));
        free(fb_steal(seg->building));
        fb_tier_release_memory(t->tier, slot, memory);
        fb_tier_give(t->tier, slot);
        return -ENOMEM;
    }
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

static bool take_room(struct fb_store_tier *t, uint64_t key, uint32_t length, size_t path_len,
                      uint32_t *ret_offset) FB_REQUIRES(&t->lock)
{
    struct fb_segment *seg = t->open;
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

/* ---- SEALING, SEALED ---- */

/* result: 0; negative: the write failed; positive: there was nothing worth writing. */
static void sealed(struct fb_store *store, struct fb_segment *seg, int result)
{
    struct fb_store_tier *t = fb_segment_tier(store, seg);

    if (result != 0 && !fb_segment_kill(store, seg, FB_SEGMENT_SEALING))
        FB_ASSERT(false);
    /* From now on readers go to the medium, but for those who have come before. */
    if (t->which == 1)
        mem_retire(store, seg);
    if (result == 0)
        fb_metric_add(&store->metrics, FB_SM_SEALED, 1);
    else
        fb_segment_empty(store, seg, false, NULL, NULL);
    if (result < 0)
        fb_metric_add(&store->metrics, FB_SM_SEAL_FAILED, 1);
    if (result == 0) {
        fb_mutex_lock(&t->lock);
        seg->state = FB_SEGMENT_SEALED;
        fb_mutex_unlock(&t->lock);
    }
    write_ended(store, 0);
    /* Last, since who closes the store waits for this and nothing else. */
    fb_mutex_lock(&t->lock);
    if (result < 0)
        t->failures++;
    t->unsealed--;
    fb_cond_broadcast(&t->cond);
    fb_mutex_unlock(&t->lock);
}

static void seal_done(struct fb_tier_seal *seal)
{
    static _Atomic int64_t last_warning_ns;
    struct seal_job *job = FB_CONTAINER_OF(seal, struct seal_job, seal);
    struct fb_store *store = job->store;
    struct fb_segment *seg = job->segment;
    int result = seal->result;

    free(job);
    if (result < 0 && fb_log_limited(&last_warning_ns))
        fb_log_warn("a segment could not be written to %s: %s",
                    fb_tier_name(fb_segment_tier(store, seg)->tier), fb_strerror(result));
    sealed(store, seg, result);
}

/* The table names what is still in the index, and of files that have not changed since. The number it
 * gets is taken before the index is asked: so what has a lower number was written before anything that
 * changed since, and recovery can believe the highest (see fb_store_hide, too). */
static void write_toc(struct fb_store *store, struct fb_segment *seg, struct fb_disk_header *header)
{
    uint32_t gen = atomic_load_explicit(fb_segment_gen(store, seg), memory_order_relaxed);
    uint64_t toc_offset = fb_align_up(seg->used, FB_DISK_PAGE);
    struct fb_disk_writer w;
    uint32_t last_file = 0;

    header->sequence = fb_store_next_sequence(store);
    memset(seg->memory + seg->used, 0, toc_offset - seg->used);
    fb_disk_write_begin(&w, seg->memory + toc_offset, fb_align_up(seg->toc_room, FB_DISK_PAGE));
    for (uint32_t i = 0; i < seg->items; i++) {
        const struct fb_building *b = &seg->building[i];
        uint64_t offset = (uint64_t)b->offset_units * FB_UNIT;
        const struct fb_record *record = (const struct fb_record *)(seg->memory + offset);
        uint32_t id = (uint32_t)(seg->keys[i] >> 32);
        struct fb_disk_file file = {0};
        struct fb_disk_item item = {.block = (uint32_t)seg->keys[i],
                                    .length = b->length,
                                    .offset_units = b->offset_units,
                                    .charge = record->charge};
        struct fb_index_entry e;
        const char *path;
        size_t path_len;

        if (!fb_index_look(store->index, seg->keys[i], &e) ||
            e.loc[1] != fb_loc_make(gen, seg->no, offset) || !fb_files_current(store->files, id))
            continue;
        path = fb_files_path(store->files, id, &path_len);
        file.source = fb_files_source(store->files, id);
        file.path_len = (uint16_t)path_len;
        if (id != last_file)
            fb_files_attr(store->files, id, &file.attr);
        /* Room was reserved with each item, and leaving some out never takes more. */
        if (!fb_disk_write_item(&w, &file, id != last_file ? path : NULL, &item))
            FB_ASSERT(false);
        last_file = id;
    }
    header->data_end = seg->used;
    header->toc_offset = toc_offset;
    header->toc_bytes = (uint64_t)(w.at - (seg->memory + toc_offset));
    header->items = w.items;
    header->files = w.files;
    header->block_bytes = store->block_bytes;
    header->created_wall_ns = fb_wall_ns();
    memset(w.at, 0, fb_align_up(header->toc_bytes, FB_DISK_PAGE) - header->toc_bytes);
}

/* The references that appends took, so that paths and versions were still there for the table. */
static void drop_file_refs(struct fb_store *store, struct fb_segment *seg)
{
    for (uint32_t i = 0, run; i < seg->items; i += run) {
        uint32_t id = (uint32_t)(seg->keys[i] >> 32);

        for (run = 1; i + run < seg->items && seg->keys[i + run] >> 32 == id; run++)
            continue;
        fb_files_unref(store->files, id, run);
    }
}

static void shrink_keys(struct fb_segment *seg)
{
    uint64_t *keys = fb_alloc_array(seg->items + 1, sizeof *keys);

    if (keys == NULL)
        return; /* the larger one serves as well */
    memcpy(keys, seg->keys, seg->items * sizeof *keys);
    free(seg->keys);
    seg->keys = keys;
}

/* Of a segment that this thread turned to SEALING. */
static void seal(struct fb_store *store, struct fb_segment *seg)
{
    struct fb_store_tier *t = fb_segment_tier(store, seg);
    bool empty = atomic_load_explicit(&seg->live_items, memory_order_relaxed) == 0;
    struct seal_job *job = t->which == 1 && !empty ? fb_alloc(sizeof *job) : NULL;

    if (t->which == 1) {
        fb_mutex_lock(&store->writes_lock);
        store->memory_lent++;
        fb_mutex_unlock(&store->writes_lock);
    }
    if (job != NULL)
        write_toc(store, seg, &job->seal.header);
    if (t->which == 1)
        drop_file_refs(store, seg);
    free(fb_steal(seg->building));
    shrink_keys(seg);
    if (job == NULL) {
        sealed(store, seg, empty ? 1 : t->which == 1 ? -ENOMEM : 0);
        return;
    }
    job->store = store;
    job->segment = seg;
    job->seal.slot = fb_segment_slot(store, seg);
    job->seal.memory = seg->memory;
    job->seal.done = seal_done;
    fb_tier_seal(t->tier, &job->seal);
}

/* Returns the segment if the caller is to seal it. */
static struct fb_segment *close_open(struct fb_store_tier *t) FB_REQUIRES(&t->lock)
{
    struct fb_segment *seg = fb_steal(t->open);

    if (seg == NULL)
        return NULL;
    seg->full = true;
    t->unsealed++;
    if (seg->copies > 0)
        return NULL;
    seg->state = FB_SEGMENT_SEALING;
    return seg;
}

void fb_segment_close_open(struct fb_store *store, struct fb_store_tier *t)
{
    struct fb_segment *seg;

    fb_mutex_lock(&t->lock);
    seg = close_open(t);
    fb_mutex_unlock(&t->lock);
    if (seg != NULL)
        seal(store, seg);
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
        seal(store, seg);
}

/* Makes t->open something; called and returns with the lock, which it gives up meanwhile. */
static int provide_open(struct fb_store *store, struct fb_store_tier *t) FB_REQUIRES(&t->lock)
{
    struct fb_segment *seg = NULL;
    int rc;

    if (t->opening) {
        fb_cond_wait(&t->cond, &t->lock, FB_NEVER_NS);
        return 0;
    }
    t->opening = true;
    fb_mutex_unlock(&t->lock);
    rc = open_segment(store, t, &seg);
    fb_mutex_lock(&t->lock);
    t->opening = false;
    if (rc == 0) {
        seg->state = FB_SEGMENT_OPEN;
        t->open = seg;
    }
    fb_cond_broadcast(&t->cond);
    return rc;
}

int fb_segment_reserve(struct fb_store *store, struct fb_store_tier *t, uint64_t key,
                       uint32_t length, size_t path_len, struct fb_segment **ret_segment,
                       uint32_t *ret_offset)
{
    int rc = 0;

    fb_mutex_lock(&t->lock);
    for (;;) {
        struct fb_segment *full;

        *ret_segment = t->open;
        if (t->open != NULL && take_room(t, key, length, path_len, ret_offset))
            break;
        full = close_open(t);
        if (full != NULL) {
            fb_mutex_unlock(&t->lock);
            seal(store, full);
            fb_mutex_lock(&t->lock);
            continue;
        }
        rc = provide_open(store, t);
        if (rc != 0)
            break;
    }
    fb_mutex_unlock(&t->lock);
    return rc;
}
