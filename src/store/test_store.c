/*
 * The store against a model, over each tier and over all together: whatever is done to it, bytes
 * are right or not there, what was just put in is there, and the accounts are exact.
 */
#include "store/test_store.h"

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>

#include "core/clock.h"

#define ROUNDS 500

struct tally {
    uint64_t hits, medium_reads, copies, evicted, demoted, reopened, recovered, damaged;
};

/* ---- operations ---- */

struct demotion {
    struct world *w;
    struct tally *tally;
    struct fb_rand *r;
    unsigned tier;
    uint32_t segment;
};

static void evict_one(struct world *w, struct fb_rand *r, unsigned tier, struct tally *tally);

/* Puts an item into a tier, making room as a cache would. */
static void put_item(struct world *w, struct fb_rand *r, unsigned tier, const struct fb_item *item,
                     struct tally *tally)
{
    int rc;

    while ((rc = fb_store_append(w->store, tier, item)) != 0) {
        assert_true(rc == FB_STORE_FULL || rc == FB_STORE_BUSY);
        if (rc == FB_STORE_BUSY)
            fb_store_wait_writes(w->store, FB_NEVER_NS);
        else
            evict_one(w, r, tier, tally);
    }
}

static uint32_t file_of(struct world *w, uint32_t id)
{
    return (uint32_t)fb_files_version(fb_store_files(w->store), id)->tag[0] - 1000;
}

static void demote(void *arg, const struct fb_victim *v)
{
    struct demotion *d = arg;
    uint32_t id = v->item.file;
    struct fb_whereabouts where;

    d->tally->evicted++;
    if (v->item.data != NULL)
        assert_true(world_right(file_of(d->w, id), world_version_of(d->w, id), v->item.block, 0,
                                v->item.length, v->item.data));
    if (v->item.data == NULL || !v->current || v->other_copy ||
        d->tier + 1 == fb_store_tiers(d->w->store) || fb_rand_below(d->r, 3) == 0)
        return;
    put_item(d->w, d->r, d->tier + 1, &v->item, d->tally);
    fb_store_where(d->w->store, fb_item_key(id, v->item.block), &where);
    assert_true(where.below && where.segment != d->segment);
    d->tally->demoted++;
}

static void evict_one(struct world *w, struct fb_rand *r, unsigned tier, struct tally *tally)
{
    struct fb_segment_info infos[64];
    struct demotion d = {.w = w, .tally = tally, .r = r, .tier = tier};
    uint32_t count = fb_store_sealed(w->store, tier, infos, FB_ARRAY_SIZE(infos));
    bool plain = fb_rand_below(r, 4) == 0;
    uint32_t pick;

    if (count == 0) /* all of it is being written */
        fb_store_wait_writes(w->store, FB_NEVER_NS);
    if (count == 0)
        return;
    pick = (uint32_t)fb_rand_below(r, count);
    d.segment = infos[pick].no;
    assert_int_equal(fb_store_evict(w->store, infos[pick].no, !plain, plain ? NULL : demote, &d),
                     0);
    assert_int_equal(fb_store_evict(w->store, infos[pick].no, false, NULL, NULL), -EBUSY);
}

static void op_append(struct world *w, struct fb_rand *r, struct tally *tally)
{
    uint32_t file = (uint32_t)fb_rand_below(r, w->file_count);
    uint32_t id = world_put(w, file);
    uint64_t size = world_size(w, file, w->version[file]);
    uint32_t block = (uint32_t)fb_rand_below(r, world_blocks(w, size));
    uint32_t length = world_length(w, size, block);
    FB_AUTO_FREE uint8_t *data = malloc(length + 1);
    struct fb_item item = {.file = id, .block = block, .length = length, .data = data};

    assert_non_null(data);
    world_bytes(file, w->version[file], block, 0, length, data);
    put_item(w, r, (unsigned)fb_rand_below(r, fb_store_tiers(w->store)), &item, tally);
    assert_int_equal(world_check(w, file, id, block, 0, length), 0);
    fb_files_unref(fb_store_files(w->store), id, 1);
}

static void op_read(struct world *w, struct fb_rand *r, struct tally *tally)
{
    uint32_t file = (uint32_t)fb_rand_below(r, w->file_count);
    uint32_t id = world_find(w, file);
    uint32_t block, offset, length, version;
    uint8_t copy[6000];
    uint64_t size, key;
    int64_t copied;

    if (id == 0)
        return;
    version = world_version_of(w, id);
    size = world_size(w, file, version);
    block = (uint32_t)fb_rand_below(r, world_blocks(w, size));
    offset = (uint32_t)fb_rand_below(r, world_length(w, size, block) + 1ull);
    length = (uint32_t)fb_rand_below(r, world_length(w, size, block) + 1ull - offset);
    if (fb_rand_below(r, 3) == 0) {
        offset = 0;
        length = UINT32_MAX;
    }
    tally->hits += world_check(w, file, id, block, offset, length) == 0;
    key = fb_item_key(id, block);
    copied = fb_store_copy(w->store, key, offset, (uint32_t)fb_min_u64(length, sizeof copy), copy);
    assert_true(copied >= 0 || copied == -ENOENT);
    if (copied >= 0) {
        assert_int_equal(copied, fb_min_u64(fb_min_u64(length, sizeof copy),
                                            world_length(w, size, block) - offset));
        assert_true(world_right(file, version, block, offset, (uint32_t)copied, copy));
        tally->copies++;
    }
    fb_store_touch(w->store, key, fb_loc_make(2, 0, 0), 12000000000LL, NULL);
    fb_files_unref(fb_store_files(w->store), id, 1);
}

static void op_forget(struct world *w, struct fb_rand *r)
{
    uint32_t file = (uint32_t)fb_rand_below(r, w->file_count);
    uint32_t id = world_find(w, file);
    struct fb_pin pin;

    if (id == 0)
        return;
    fb_store_forget(w->store, id);
    assert_int_equal(fb_files_items(fb_store_files(w->store), id), 0);
    for (uint32_t block = 0; block < 3; block++)
        assert_int_equal(fb_store_pin(w->store, fb_item_key(id, block), &pin), FB_STORE_MISS);
    fb_files_unref(fb_store_files(w->store), id, 1);
}

/* Which items have a persistent copy, of the version that is current. */
static void note_persistent(struct world *w, bool (*there)[3])
{
    for (uint32_t file = 0; file < w->file_count; file++) {
        uint32_t id = world_find(w, file);

        for (uint32_t block = 0; block < 3; block++) {
            struct fb_index_entry e;

            there[file][block] = id != 0 &&
                                 fb_index_look(w->store->index, fb_item_key(id, block), &e) &&
                                 e.loc[1] != FB_LOC_NONE;
        }
        if (id != 0)
            fb_files_unref(fb_store_files(w->store), id, 1);
    }
}

static void op_reopen(struct world *w, struct fb_rand *r, struct tally *tally)
{
    static bool there[WORLD_FILES_MAX][3];
    bool abandon = fb_rand_below(r, 2) == 0;

    if (!abandon)
        note_persistent(w, there);
    world_recount(w);
    fb_store_close(w->store, abandon);
    world_open(w);
    world_recount(w);
    assert_int_equal(fb_metric_get(fb_store_metrics(w->store), FB_SM_DAMAGED_SEGMENTS), 0);
    tally->reopened++;
    tally->recovered += fb_metric_get(fb_store_metrics(w->store), FB_SM_RECOVERED);
    for (uint32_t file = 0; !abandon && file < w->file_count; file++) {
        uint32_t id = world_find(w, file);

        for (uint32_t block = 0; block < 3; block++)
            if (there[file][block])
                assert_true(id != 0 && world_check(w, file, id, block, 0, UINT32_MAX) == 0);
        if (id != 0) {
            assert_int_equal(fb_files_valid_until(fb_store_files(w->store), id), 0);
            fb_files_unref(fb_store_files(w->store), id, 1);
        }
    }
}

static void random_op(struct world *w, struct fb_rand *r, struct tally *tally)
{
    uint64_t dice = fb_rand_below(r, 100);

    if (dice < 45)
        op_append(w, r, tally);
    else if (dice < 80)
        op_read(w, r, tally);
    else if (dice < 86)
        w->version[fb_rand_below(r, w->file_count)]++;
    else if (dice < 90)
        op_forget(w, r);
    else if (dice < 95)
        evict_one(w, r, (unsigned)fb_rand_below(r, fb_store_tiers(w->store)), tally);
    else if (dice < 97)
        assert_int_equal(fb_store_flush(w->store), 0);
    else
        op_reopen(w, r, tally);
}

static void run_model(unsigned mask, uint64_t seed)
{
    struct world w = {0};
    struct fb_rand r = {.state = seed};
    struct tally tally = {0};

    world_make(&w, mask);
    world_open(&w);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 12; i++)
            random_op(&w, &r, &tally);
        world_recount(&w);
    }
    assert_true(tally.hits > 50 && tally.evicted > 50 && tally.reopened > 10);
    assert_true((tally.recovered > 100) == ((mask & ~WITH_DRAM) != 0));
    assert_true((tally.copies > 20) == ((mask & WITH_DRAM) != 0));
    assert_true((tally.demoted > 20) == ((mask & (mask - 1)) != 0));
    world_end(&w);
}

static void test_model_dram(void **state)
{
    (void)state;
    run_model(WITH_DRAM, 1);
}

static void test_model_pmem(void **state)
{
    (void)state;
    run_model(WITH_PMEM, 2);
}

static void test_model_nvme(void **state)
{
    (void)state;
    run_model(WITH_NVME, 3);
}

static void test_model_all(void **state)
{
    (void)state;
    run_model(WITH_DRAM | WITH_PMEM | WITH_NVME, 4);
}

/* ---- particular promises ---- */

/* Every offset and length near the edges of chunks and of the one-read limit. */
static void test_partial_reads(void **state)
{
    static const uint32_t places[] = {0,     1,     4095,  4096,  4097,   8192,   61000,
                                      64960, 65535, 65536, 66000, 120000, 159744, 163839};
    struct world w = {0};

    (void)state;
    world_make(&w, WITH_NVME | WITH_PMEM);
    world_open(&w);
    for (unsigned tier = 0; tier < 2; tier++) {
        uint32_t file = 0, id;

        while (world_size(&w, file, tier) != w.block_bytes)
            file++;
        w.version[file] = tier;
        id = world_put(&w, file);
        assert_int_equal(world_append(&w, file, id, 0, tier), 0);
        assert_int_equal(world_check(&w, file, id, 0, 0, UINT32_MAX), 0); /* not yet written */
        assert_int_equal(fb_store_flush(w.store), 0);
        for (size_t i = 0; i < FB_ARRAY_SIZE(places); i++)
            for (size_t j = i; j < FB_ARRAY_SIZE(places); j++)
                assert_int_equal(world_check(&w, file, id, 0, places[i], places[j] - places[i]), 0);
        assert_int_equal(world_check(&w, file, id, 0, w.block_bytes, 0), 0);
        fb_files_unref(fb_store_files(w.store), id, 1);
    }
    world_end(&w);
}

/* Clients are told where a file's first item is before they ask the index. */
static void test_hint_leads_to_item(void **state)
{
    struct world w = {.slots = 2, .file_count = 20};
    const struct fb_layout *l;
    struct fb_segment_info info;

    (void)state;
    world_make(&w, WITH_DRAM);
    world_open(&w);
    l = fb_store_layout(w.store);
    for (uint32_t file = 0; file < 3; file++) {
        uint32_t id = world_put(&w, file);
        uint64_t key = fb_item_key(id, 0), hash = fb_files_path_hash(fb_store_files(w.store), id);
        struct fb_record record;

        assert_int_equal(world_append(&w, file, id, 0, 0), 0);
        memcpy(&record, l->dram + (uint64_t)FB_UNIT * fb_layout_head(l, hash)->near, sizeof record);
        assert_true(file == 0 || fb_layout_head(l, hash)->near != 0);
        assert_true(record.key == key);
        fb_files_unref(fb_store_files(w.store), id, 1);
    }
    /* What has gone is no longer found, whatever the hint says. */
    assert_int_equal(fb_store_flush(w.store), 0);
    assert_int_equal(fb_store_sealed(w.store, 0, &info, 1), 1);
    assert_int_equal(fb_store_evict(w.store, info.no, false, NULL, NULL), 0);
    world_recount(&w);
    world_end(&w);
}

/* A pinned segment outlives its eviction; its slot is lent again only after the last pin. */
static void test_pin_outlives_eviction(void **state)
{
    struct world w = {.slots = 1, .file_count = 20};
    struct fb_segment_info info;
    struct fb_pin pin;
    uint32_t id, file = 0, other;

    (void)state;
    world_make(&w, WITH_DRAM);
    world_open(&w);
    while (world_size(&w, file, 0) != w.block_bytes)
        file++;
    id = world_put(&w, file);
    assert_int_equal(world_append(&w, file, id, 0, 0), 0);
    assert_int_equal(fb_store_flush(w.store), 0);
    assert_int_equal(fb_store_pin(w.store, fb_item_key(id, 0), &pin), 0);
    assert_int_equal(fb_store_sealed(w.store, 0, &info, 1), 1);
    assert_true(info.pinned);
    assert_int_equal(fb_store_evict(w.store, info.no, false, NULL, NULL), 0);
    assert_int_equal(fb_store_sealed(w.store, 0, &info, 1), 0);
    other = world_put(&w, file + 1);
    assert_int_equal(world_append(&w, file + 1, other, 0, 0), FB_STORE_FULL);
    assert_true(world_right(file, 0, 0, 0, pin.length, pin.data));
    assert_false(fb_store_has_room(w.store, 0));
    fb_store_unpin(w.store, &pin);
    assert_true(fb_store_has_room(w.store, 0));
    assert_int_equal(world_append(&w, file + 1, other, 0, 0), 0);
    assert_int_equal(fb_store_pin(w.store, fb_item_key(id, 0), &pin), FB_STORE_MISS);
    world_recount(&w);
    world_end(&w);
}

struct onlooker {
    struct fb_store *store;
    uint64_t keys[8];
    unsigned count, visits;
};

static void look_around(void *arg, const struct fb_victim *victim)
{
    struct onlooker *o = arg;
    uint64_t own = fb_item_key(victim->item.file, victim->item.block);
    bool gone = true;

    for (unsigned i = 0; i < o->count; i++) {
        struct fb_pin pin;
        int rc = fb_store_pin(o->store, o->keys[i], &pin);

        gone = gone && o->keys[i] != own;
        assert_int_equal(rc, gone ? FB_STORE_MISS : 0);
        if (rc == 0)
            fb_store_unpin(o->store, &pin);
    }
    o->visits++;
}

/* What a segment holds is found until its turn has come to leave: who evicts may take long, moving
 * things down, and nobody has to fetch meanwhile what is there. */
static void test_read_until_it_leaves(void **state)
{
    struct world w = {.slots = 2, .file_count = 20};
    struct onlooker o = {.count = 0};
    struct fb_segment_info info;

    (void)state;
    world_make(&w, WITH_DRAM);
    world_open(&w);
    o.store = w.store;
    for (uint32_t file = 0; o.count < 3; file++) {
        uint32_t id = world_put(&w, file);

        assert_int_equal(world_append(&w, file, id, 0, 0), 0);
        o.keys[o.count++] = fb_item_key(id, 0);
        fb_files_unref(fb_store_files(w.store), id, 1);
    }
    assert_int_equal(fb_store_flush(w.store), 0);
    assert_int_equal(fb_store_sealed(w.store, 0, &info, 1), 1);
    assert_int_equal(fb_store_evict(w.store, info.no, false, look_around, &o), 0);
    assert_int_equal(o.visits, 3);
    world_recount(&w);
    world_end(&w);
}

/* Staging memory that somebody reads is handed back by the last reader, not by the write. */
static void test_staging_is_kept_for_readers(void **state)
{
    struct world w = {.file_count = 20};
    struct fb_pin pins[2];
    uint32_t id, file = 0;
    int rc;

    (void)state;
    world_make(&w, WITH_NVME);
    world_open(&w);
    while (world_size(&w, file, 0) != w.block_bytes)
        file++;
    id = world_put(&w, file);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world_append(&w, file, id, 0, 0), 0);
        assert_int_equal(fb_store_pin(w.store, fb_item_key(id, 0), &pins[i]), 0);
        assert_int_equal(fb_store_flush(w.store), 0);
        fb_store_forget(w.store, id);
    }
    /* Both buffers are out: written long since, but being read. */
    rc = world_append(&w, file, id, 0, 0);
    assert_int_equal(rc, FB_STORE_BUSY);
    for (int i = 0; i < 2; i++)
        assert_true(world_right(file, 0, 0, 0, pins[i].length, pins[i].data));
    fb_store_unpin(w.store, &pins[0]);
    assert_int_equal(world_append(&w, file, id, 0, 0), 0);
    fb_store_unpin(w.store, &pins[1]);
    world_recount(&w);
    world_end(&w);
}

static void test_numbers(void **state)
{
    struct world w = {0};
    struct fb_tier_stats stats;
    struct fb_store_config c;
    uint32_t file = 0, id;
    struct fb_item item = {0};

    (void)state;
    world_make(&w, WITH_DRAM | WITH_NVME);
    world_open(&w);
    c = world_config(&w);
    assert_true(fb_store_tables_bytes(&c) >= fb_store_layout(w.store)->h.tables_bytes);
    assert_true(fb_store_tables_memfd(w.store) >= 0);
    while (world_size(&w, file, 0) != 4097)
        file++;
    id = world_put(&w, file);
    assert_int_equal(world_append(&w, file, id, 0, 1), 0);
    assert_int_equal(world_append(&w, file, id, 0, 1), 0); /* already there */
    assert_int_equal(fb_metric_get(fb_store_metrics(w.store), FB_SM_APPENDED), 1);
    fb_store_tier_stats(w.store, 1, &stats);
    assert_string_equal(stats.name, "nvme");
    assert_int_equal(stats.items, 1);
    assert_int_equal(stats.segments, 1);
    assert_int_equal(stats.live_bytes, fb_record_size(4097));
    assert_int_equal(stats.used_bytes, fb_record_size(4097));
    assert_int_equal(stats.budget_bytes, w.slots * w.segment_bytes);
    fb_store_tier_stats(w.store, 0, &stats);
    assert_int_equal(stats.segments, 0);
    item = (struct fb_item){.file = id, .length = w.block_bytes + 1};
    assert_int_equal(fb_store_append(w.store, 0, &item), -EINVAL);
    fb_files_unref(fb_store_files(w.store), id, 1);
    world_end(&w);
}

static void test_sources(void **state)
{
    struct world w = {0};
    uint16_t a, b, again;
    char text[4096];

    (void)state;
    world_make(&w, WITH_DRAM | WITH_NVME);
    world_open(&w);
    assert_int_equal(fb_store_source_id(w.store, "file:///a b\n%41", &a), 0);
    assert_int_equal(fb_store_source_id(w.store, "file:///b", &b), 0);
    assert_int_not_equal(a, b);
    assert_int_equal(fb_store_source_id(w.store, "file:///a b\n%41", &again), 0);
    assert_int_equal(a, again);
    fb_store_close(w.store, false);
    world_open(&w);
    assert_int_equal(fb_store_source_id(w.store, "file:///b", &again), 0);
    assert_int_equal(b, again);
    assert_int_equal(fb_store_source_id(w.store, "file:///a b\n%41", &again), 0);
    assert_int_equal(a, again);
    fb_store_close(w.store, false);
    /* A damaged line is dropped; its number is not given to anybody else. */
    assert_non_null(fb_test_dir_read(&w.dir, "nvme/sources", text, sizeof text));
    *strstr(text, "file:///b") = 'g';
    fb_test_dir_write(&w.dir, "nvme/sources", text);
    world_open(&w);
    assert_int_equal(fb_store_source_id(w.store, "gile:///b", &again), 0);
    assert_true(again != a && again != b);
    world_end(&w);
}

static void test_refused(void **state)
{
    struct world w = {0};
    struct fb_store_config c;
    struct fb_error err = {0};

    (void)state;
    world_make(&w, WITH_DRAM | WITH_NVME);
    c = world_config(&w);
    c.tiers[1].segment_bytes = 64 << 10; /* below a block */
    assert_int_equal(fb_store_open(&c, &w.store, &err), -EINVAL);
    assert_true(err.text[0] != 0);
    c = world_config(&w);
    c.tiers[1].kind = FB_TIER_DRAM;
    assert_int_equal(fb_store_open(&c, &w.store, &err), -EINVAL);
    c = world_config(&w);
    c.tier_count = 0;
    assert_int_equal(fb_store_open(&c, &w.store, &err), -EINVAL);
    w.store = NULL;
    world_end(&w);
}

/* One block near the end of 100 TiB: by blocks this would take minutes. */
static void test_forget_sparse(void **state)
{
    const uint64_t size = 100ull << 40;
    struct world w = {.block_bytes = 64u << 10};
    struct fb_files *files;
    struct fb_attr attr;
    uint32_t id, old, other;
    uint8_t data[100] = {1};
    int64_t start;

    (void)state;
    world_make(&w, WITH_DRAM | WITH_NVME);
    world_open(&w);
    files = fb_store_files(w.store);
    attr = world_attr(&w, 0, 0);
    attr.version.size = size;
    assert_int_equal(fb_files_put(files, WORLD_SOURCE, "sparse", &attr, 1, &id, &old),
                     FB_FILES_NEW);
    other = world_put(&w, 3);
    assert_int_equal(world_append(&w, 3, other, 0, 0), 0);
    for (unsigned tier = 0; tier < 2; tier++)
        for (uint32_t i = 1; i <= 3; i++) {
            struct fb_item item = {.file = id,
                                   .block = (uint32_t)(size / w.block_bytes) - i * i,
                                   .length = sizeof data,
                                   .data = data};

            assert_int_equal(fb_store_append(w.store, tier, &item), 0);
        }
    assert_int_equal(fb_files_items(files, id), 3);
    start = fb_now_ns();
    fb_store_forget(w.store, id);
    assert_true(fb_now_ns() - start < 5 * FB_NS_PER_S);
    assert_int_equal(fb_files_items(files, id), 0);
    assert_int_equal(fb_files_items(files, other), 1);
    world_recount(&w);
    fb_files_unref(files, id, 1);
    fb_files_unref(files, other, 1);
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_dram),
        cmocka_unit_test(test_model_pmem),
        cmocka_unit_test(test_model_nvme),
        cmocka_unit_test(test_model_all),
        cmocka_unit_test(test_partial_reads),
        cmocka_unit_test(test_hint_leads_to_item),
        cmocka_unit_test(test_pin_outlives_eviction),
        cmocka_unit_test(test_read_until_it_leaves),
        cmocka_unit_test(test_staging_is_kept_for_readers),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_forget_sparse),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
