/*
 * store/test_store.h - for tests of the store: a small world of files whose bytes follow from path,
 * version and offset, a store over any set of tiers, and a recount of its accounts.
 */
#ifndef FB_STORE_TEST_STORE_H
#define FB_STORE_TEST_STORE_H

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/rand.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "store/store.h"
#include "store/store_priv.h"

#define WORLD_FILES_MAX 256u
#define WORLD_SOURCE    1

/* Bits of world.mask, in the order of the tiers. */
#define WITH_DRAM 1u
#define WITH_PMEM 2u
#define WITH_NVME 4u

struct world {
    unsigned mask;
    uint32_t block_bytes;
    uint64_t segment_bytes;
    uint32_t slots; /* in each tier */
    unsigned dirs;  /* of each persistent tier, up to two; 0: one */
    uint32_t file_count;
    uint64_t max_items;
    enum fb_engine_kind engine_kind;
    struct fb_test_dir dir;
    char pmem_dir[PATH_MAX + 8];
    char nvme_dir[PATH_MAX + 8];
    char second_dir[2][PATH_MAX + 8]; /* of pmem and nvme */
    struct fb_engine *engine;
    struct fb_buffer_pool *buffers;
    struct fb_store *store;
    _Atomic uint32_t version[WORLD_FILES_MAX]; /* that the source has */
};

/* ---- files ---- */

static inline void world_path(uint32_t file, char *path, size_t size)
{
    snprintf(path, size, "set-%u/%0*u.bin", file % 3, (int)(1 + file % 50 * (file % 3)), file);
}

static inline uint64_t world_size(const struct world *w, uint32_t file, uint32_t version)
{
    const uint64_t sizes[] = {0,
                              1,
                              100,
                              4095,
                              4096,
                              4097,
                              w->block_bytes - 1,
                              w->block_bytes,
                              w->block_bytes + 1,
                              w->block_bytes / 2,
                              w->block_bytes * 2ull + 5000};

    return sizes[fb_mix64(file * 1000 + version) % FB_ARRAY_SIZE(sizes)];
}

static inline uint32_t world_blocks(const struct world *w, uint64_t size)
{
    return (uint32_t)fb_max_u64(1, fb_div_up(size, w->block_bytes));
}

static inline uint32_t world_length(const struct world *w, uint64_t size, uint32_t block)
{
    return (uint32_t)fb_min_u64(w->block_bytes, size - (uint64_t)block * w->block_bytes);
}

static inline struct fb_attr world_attr(const struct world *w, uint32_t file, uint32_t version)
{
    return (struct fb_attr){
        .version = {.size = world_size(w, file, version),
                    .mtime_ns = version,
                    .ctime_ns = version * 3,
                    .tag = {file + 1000, 0}},
        .ino = file + 1000,
        .mode = S_IFREG | 0640,
        .nlink = 1,
        .uid = 7,
        .gid = file,
    };
}

/* The bytes of a block from `offset` on: eight at a time, each word from its own place. */
static inline void world_bytes(uint32_t file, uint32_t version, uint32_t block, uint32_t offset,
                               uint32_t length, uint8_t *ret)
{
    uint64_t seed = fb_mix64((uint64_t)file << 32 | version) ^ fb_mix64(block + 77);

    for (uint32_t i = 0; i < length;) {
        uint64_t word = fb_mix64(seed + (offset + i) / 8);
        uint32_t within = (offset + i) % 8;
        uint32_t take = (uint32_t)fb_min_u64(8 - within, length - i);

        memcpy(ret + i, (const uint8_t *)&word + within, take);
        i += take;
    }
}

/* True when `data` is what the block holds in that version. */
static inline bool world_right(uint32_t file, uint32_t version, uint32_t block, uint32_t offset,
                               uint32_t length, const uint8_t *data)
{
    uint8_t want[512];

    for (uint32_t at = 0; at < length; at += sizeof want) {
        uint32_t part = (uint32_t)fb_min_u64(sizeof want, length - at);

        world_bytes(file, version, block, offset + at, part, want);
        if (memcmp(want, data + at, part) != 0)
            return false;
    }
    return true;
}

/* ---- the store ---- */

static inline struct fb_store_config world_config(struct world *w)
{
    const char *dirs[][2] = {
        {NULL}, {w->pmem_dir, w->second_dir[0]}, {w->nvme_dir, w->second_dir[1]}};
    unsigned dir_count = w->dirs ? w->dirs : 1;
    struct fb_store_config c = {
        .block_bytes = w->block_bytes, .max_items = w->max_items, .files_bytes = 1u << 20};

    for (unsigned kind = 0; kind < 3; kind++) {
        if ((w->mask & 1u << kind) == 0)
            continue;
        c.tiers[c.tier_count++] = (struct fb_tier_config){
            .kind = (enum fb_tier_kind)kind,
            .budget_bytes =
                w->slots * w->segment_bytes + (kind > 0 ? dir_count * FB_TIER_ROOM_BYTES : 0),
            .fill = 1,
            .segment_bytes = w->segment_bytes,
            .dir_count = kind > 0 ? dir_count : 0,
            .dirs = {dirs[kind][0], dirs[kind][1]},
            .staging = 2,
            .engine = w->engine,
        };
    }
    return c;
}

static inline void world_open(struct world *w)
{
    struct fb_store_config c = world_config(w);
    struct fb_error err = {0};

    if (fb_store_open(&c, &w->store, &err) < 0)
        fail_msg("%s", err.text);
}

/* Without a store yet. Defaults: blocks of 160 KiB, so that reads in two parts happen. */
static inline void world_make(struct world *w, unsigned mask)
{
    w->mask = mask;
    w->block_bytes = w->block_bytes ? w->block_bytes : 160u << 10;
    w->segment_bytes = w->segment_bytes ? w->segment_bytes : 512u << 10;
    w->slots = w->slots ? w->slots : 6;
    w->file_count = w->file_count ? w->file_count : 60;
    w->max_items = w->max_items ? w->max_items : 10000;
    assert_int_equal(fb_log_open(NULL, FB_LOG_ERROR, 0, 0), 0); /* damage is meant here */
    fb_test_dir_make(&w->dir);
    snprintf(w->pmem_dir, sizeof w->pmem_dir, "%s/pmem", w->dir.path);
    snprintf(w->nvme_dir, sizeof w->nvme_dir, "%s/nvme", w->dir.path);
    snprintf(w->second_dir[0], sizeof w->second_dir[0], "%s/pmem2", w->dir.path);
    snprintf(w->second_dir[1], sizeof w->second_dir[1], "%s/nvme2", w->dir.path);
    assert_int_equal(fb_engine_create(w->engine_kind, 3, 32, 2, &w->engine), 0);
    assert_int_equal(fb_buffer_pool_create(16, fb_store_buffer_bytes(w->block_bytes), &w->buffers),
                     0);
}

static inline void world_end(struct world *w)
{
    fb_store_close(w->store, true);
    fb_buffer_pool_destroy(w->buffers);
    fb_engine_destroy(w->engine);
    fb_test_dir_remove(&w->dir);
}

/* What the source says now of a file; a reference. */
static inline uint32_t world_put(struct world *w, uint32_t file)
{
    struct fb_files *files = fb_store_files(w->store);
    struct fb_attr attr = world_attr(w, file, w->version[file]);
    uint32_t id, old;
    char path[512];

    world_path(file, path, sizeof path);
    assert_true(fb_files_put(files, WORLD_SOURCE, path, &attr, 1, &id, &old) > 0);
    if (old != 0) {
        fb_store_forget(w->store, old);
        fb_files_unref(files, old, 1);
    }
    return id;
}

static inline uint32_t world_find(struct world *w, uint32_t file)
{
    char path[512];

    world_path(file, path, sizeof path);
    return fb_files_find(fb_store_files(w->store), WORLD_SOURCE, path);
}

static inline uint32_t world_version_of(struct world *w, uint32_t id)
{
    return (uint32_t)fb_files_version(fb_store_files(w->store), id)->mtime_ns;
}

/* Once: 0, FB_STORE_FULL, FB_STORE_BUSY or an error. Of the version that `id` has. */
static inline int world_append(struct world *w, uint32_t file, uint32_t id, uint32_t block,
                               unsigned tier)
{
    uint32_t version = world_version_of(w, id);
    uint64_t size = world_size(w, file, version);
    struct fb_item item = {.file = id, .block = block, .length = world_length(w, size, block)};
    FB_AUTO_FREE uint8_t *data = malloc(item.length + 1);

    assert_non_null(data);
    world_bytes(file, version, block, 0, item.length, data);
    item.data = data;
    return fb_store_append(w->store, tier, &item);
}

struct world_wait {
    struct fb_store_read read;
    struct fb_event done;
};

static inline void world_read_done(struct fb_store_read *read)
{
    fb_event_set(&FB_CONTAINER_OF(read, struct world_wait, read)->done);
}

/* Looks at [offset, offset + length) of an item, however it is to be had. FB_STORE_MISS, 0 when the
 * bytes were right, the error of a read; wrong bytes: 100. */
static inline int world_check(struct world *w, uint32_t file, uint32_t id, uint32_t block,
                              uint32_t offset, uint32_t length)
{
    uint32_t version = world_version_of(w, id);
    struct fb_pin pin;
    struct world_wait wait;
    int rc = fb_store_pin(w->store, fb_item_key(id, block), &pin);

    if (rc == FB_STORE_MISS)
        return rc;
    assert_true(pin.length == world_length(w, world_size(w, file, version), block));
    offset = (uint32_t)fb_min_u64(offset, pin.length);
    length = (uint32_t)fb_min_u64(length, pin.length - offset);
    if (rc == 0) {
        rc = world_right(file, version, block, offset, length, pin.data + offset) ? 0 : 100;
        fb_store_unpin(w->store, &pin);
        return rc;
    }
    wait = (struct world_wait){.read = {.pin = &pin,
                                        .offset = offset,
                                        .length = length,
                                        .buffer = fb_buffer_get(w->buffers),
                                        .done = world_read_done}};
    assert_non_null(wait.read.buffer);
    fb_event_init(&wait.done);
    fb_store_read(w->store, &wait.read);
    fb_event_wait(&wait.done);
    rc = wait.read.result;
    if (rc == 0 && !world_right(file, version, block, offset, length, wait.read.data))
        rc = 100;
    fb_buffer_put(wait.read.buffer);
    fb_store_unpin(w->store, &pin);
    return rc;
}

/* ---- the recount ---- */

/* Nobody else may be at work, but for segments being sealed. Every account must be what the index
 * says. */
static inline void world_recount(struct world *w)
{
    struct fb_store *s = w->store;
    const struct fb_layout *l = &s->layout;
    uint32_t *items = calloc(s->segment_count + 1, sizeof *items);
    uint64_t *bytes = calloc(s->segment_count + 1, sizeof *bytes);
    uint32_t *per_file = calloc(l->h.files_bytes / FB_UNIT, sizeof *per_file);
    uint64_t entries = 0;

    FB_ASSERT(items != NULL && bytes != NULL && per_file != NULL);
    for (uint64_t n = 0; n < l->h.groups * FB_GROUP_ITEMS; n++) {
        struct fb_layout_item *it =
            &fb_layout_group(l, n / FB_GROUP_ITEMS)->items[n % FB_GROUP_ITEMS];
        uint32_t length = (uint32_t)(it->meta >> 32) & 0xffffff;

        if (it->key == 0)
            continue;
        entries++;
        per_file[it->key >> 32]++;
        assert_true(it->loc[0] != 0 || it->loc[1] != 0);
        for (int which = 0; which < 2; which++) {
            uint64_t loc = it->loc[which];

            if (loc == 0)
                continue;
            assert_true(fb_layout_loc_good(l, loc));
            assert_int_equal(s->tiers[s->segments[fb_loc_segment(loc)].tier].which, which);
            items[fb_loc_segment(loc)]++;
            bytes[fb_loc_segment(loc)] += fb_record_size(length);
        }
    }
    assert_int_equal(fb_index_count(s->index), entries);
    for (uint32_t no = 0; no < s->segment_count; no++) {
        struct fb_store_tier *t = fb_segment_tier(s, &s->segments[no]);
        uint8_t state;

        fb_mutex_lock(&t->lock);
        state = s->segments[no].state;
        fb_mutex_unlock(&t->lock);
        assert_int_equal(s->segments[no].live_items, items[no]);
        assert_int_equal(s->segments[no].live_bytes, bytes[no]);
        assert_int_equal(s->segments[no].pins, 0);
        assert_true(state != FB_SEGMENT_FREE || items[no] == 0);
    }
    for (uint32_t id = 2; id < l->h.files_bytes / FB_UNIT; id++)
        if (per_file[id] > 0)
            assert_int_equal(fb_files_items(s->files, id), per_file[id]);
    free(items);
    free(bytes);
    free(per_file);
}

#endif
