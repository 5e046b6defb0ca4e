/*
 * Sealing: a full segment gets its table of contents and goes to its medium; its staging memory
 * goes back when nobody reads it any more (rules 3 and 5 of store_priv.h). DRAM has neither, and is
 * sealed at once.
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

    /* Most segments have no memory most of the time: a look before the store to a shared line.
     * Acquire, since who finds no memory reads what the seal has written. */
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

/* ---- the seal ---- */

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
    struct seal_job *job = FB_CONTAINER_OF(seal, struct seal_job, seal);
    struct fb_store *store = job->store;
    struct fb_segment *seg = job->segment;
    int result = seal->result;

    free(job);
    if (result < 0 && fb_log_limited(&store->seal_logged_ns))
        fb_log_warn("a segment could not be written to %s: %s",
                    fb_tier_name(fb_segment_tier(store, seg)->tier), fb_strerror(result));
    sealed(store, seg, result);
}

/* The table names what is still in the index, and of files that have not changed since. The
 * number it gets is taken before the index is asked: so what has a lower number was written
 * before anything that changed since, and recovery can believe the highest (see fb_store_hide,
 * too). */
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

void fb_segment_seal(struct fb_store *store, struct fb_segment *seg)
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
