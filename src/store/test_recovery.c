/*
 * What comes back after a restart, and what must not: versions, evictions by hand, tables that are
 * well-formed and wrong, damaged and truncated files, tables too small for what is there, writes
 * that fail.
 */
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/clock.h"
#include "store/test_store.h"

static uint64_t metric(struct world *w, unsigned id)
{
    return fb_metric_get(fb_store_metrics(w->store), id);
}

/* A file of the wanted size in its present version. */
static uint32_t file_of_size(struct world *w, uint64_t size, uint32_t from)
{
    while (world_size(w, from, w->version[from]) != size)
        from++;
    FB_ASSERT(from < WORLD_FILES_MAX);
    return from;
}

static void append(struct world *w, uint32_t file, uint32_t block, unsigned tier)
{
    uint32_t id = world_put(w, file);
    int rc;

    while ((rc = world_append(w, file, id, block, tier)) == FB_STORE_BUSY)
        fb_store_wait_writes(w->store, FB_NEVER_NS);
    assert_int_equal(rc, 0);
    fb_files_unref(fb_store_files(w->store), id, 1);
}

static int look(struct world *w, uint32_t file, uint32_t block)
{
    uint32_t id = world_find(w, file);
    int rc = FB_STORE_MISS;

    if (id == 0)
        return rc;
    rc = world_check(w, file, id, block, 0, UINT32_MAX);
    fb_files_unref(fb_store_files(w->store), id, 1);
    return rc;
}

static void reopen(struct world *w, bool abandon)
{
    fb_store_close(w->store, abandon);
    world_open(w);
    world_recount(w);
}

/* Fills all tiers but DRAM with whole files, one after the other, and seals everything. */
static void fill(struct world *w)
{
    for (unsigned tier = 0; tier < fb_store_tiers(w->store); tier++)
        for (uint32_t file = tier; file < w->file_count; file += fb_store_tiers(w->store)) {
            uint32_t id = world_put(w, file), blocks = world_blocks(w, world_size(w, file, 0));
            int rc = 0;

            for (uint32_t b = 0; b < blocks && rc != FB_STORE_FULL; b++)
                while ((rc = world_append(w, file, id, b, tier)) == FB_STORE_BUSY)
                    fb_store_wait_writes(w->store, FB_NEVER_NS);
            fb_files_unref(fb_store_files(w->store), id, 1);
        }
    assert_int_equal(fb_store_flush(w->store), 0);
}

struct seen {
    unsigned right, missing, damaged;
};

/* Reads everything; wrong bytes fail the test. */
static struct seen look_at_all(struct world *w)
{
    struct seen seen = {0};

    for (uint32_t file = 0; file < w->file_count; file++)
        for (uint32_t block = 0; block < 3; block++) {
            int rc = look(w, file, block);

            assert_int_not_equal(rc, 100);
            seen.right += rc == 0;
            seen.missing += rc == FB_STORE_MISS;
            seen.damaged += rc < 0;
        }
    return seen;
}

static void test_attributes_come_back(void **state)
{
    struct world w = {0};
    struct fb_attr want, got;
    uint32_t file, id;

    (void)state;
    world_make(&w, WITH_PMEM | WITH_NVME);
    world_open(&w);
    file = file_of_size(&w, w.block_bytes * 2ull + 5000, 0);
    append(&w, file, 0, 0);
    append(&w, file, 2, 1);
    reopen(&w, false);
    assert_int_equal(metric(&w, FB_SM_RECOVERED), 2);
    id = world_find(&w, file);
    assert_int_not_equal(id, 0);
    want = world_attr(&w, file, 0);
    fb_files_attr(fb_store_files(w.store), id, &got);
    assert_memory_equal(&want, &got, sizeof got);
    assert_int_equal(fb_files_valid_until(fb_store_files(w.store), id), 0);
    assert_int_equal(fb_files_items(fb_store_files(w.store), id), 2);
    assert_int_equal(look(&w, file, 0), 0);
    assert_int_equal(look(&w, file, 1), FB_STORE_MISS);
    assert_int_equal(look(&w, file, 2), 0);
    fb_files_unref(fb_store_files(w.store), id, 1);
    world_end(&w);
}

/* An older version in a segment that was opened later must not win over the newer one. */
static void test_newest_version_wins(void **state)
{
    struct world w = {0};
    uint32_t file = 5;

    (void)state;
    world_make(&w, WITH_PMEM | WITH_NVME);
    world_open(&w);
    append(&w, 9, 0, 0); /* opens a segment in PMem */
    append(&w, file, 0, 1);
    fb_segment_close_open(w.store, &w.store->tiers[1]); /* sealed with the old version */
    w.version[file]++;
    append(&w, file, 0, 0);
    reopen(&w, false);
    assert_int_equal(world_version_of(&w, world_find(&w, file)), w.version[file]);
    assert_int_equal(look(&w, file, 0), 0);
    world_end(&w);
}

/* Versions that were replaced, and items that were forgotten, are not in the tables. */
static void test_stale_is_not_written(void **state)
{
    struct world w = {0};

    (void)state;
    world_make(&w, WITH_NVME);
    world_open(&w);
    for (uint32_t file = 0; file < 6; file++)
        append(&w, file, 0, 0);
    w.version[1]++;
    fb_files_unref(fb_store_files(w.store), world_put(&w, 1), 1);
    fb_store_forget(w.store, world_find(&w, 2));
    reopen(&w, false);
    assert_int_equal(metric(&w, FB_SM_RECOVERED), 4);
    assert_int_equal(world_find(&w, 1), 0);
    assert_int_equal(world_find(&w, 2), 0);
    /* A segment of which nothing is left is not written at all. */
    for (uint32_t file = 0; file < 6; file++)
        if (world_find(&w, file) != 0)
            fb_store_forget(w.store, world_find(&w, file));
    append(&w, 7, 0, 0);
    fb_store_forget(w.store, world_find(&w, 7));
    assert_int_equal(fb_store_flush(w.store), 0);
    assert_int_equal(metric(&w, FB_SM_SEALED), 0);
    world_recount(&w);
    world_end(&w);
}

static void test_evicted_by_hand(void **state)
{
    struct world w = {0};
    uint32_t id;
    char path[512];

    (void)state;
    world_make(&w, WITH_NVME);
    world_open(&w);
    append(&w, 3, 0, 0);
    append(&w, 4, 0, 0);
    assert_int_equal(fb_store_flush(w.store), 0);
    id = world_find(&w, 3);
    world_path(3, path, sizeof path);
    fb_store_forget(w.store, id);
    assert_int_equal(fb_store_hide(w.store, WORLD_SOURCE, path), 0);
    reopen(&w, true);
    assert_int_equal(look(&w, 3, 0), FB_STORE_MISS);
    assert_int_equal(look(&w, 4, 0), 0);
    append(&w, 3, 0, 0); /* cached anew: it is allowed to come back */
    reopen(&w, false);
    assert_int_equal(look(&w, 3, 0), 0);
    world_end(&w);
}

/* The slots of what is hidden are given back, but their headers stand until they are used again. */
static void test_evicted_stays_evicted(void **state)
{
    struct world w = {0};

    (void)state;
    world_make(&w, WITH_NVME);
    world_open(&w);
    append(&w, 3, 0, 0);
    append(&w, 4, 0, 0);
    assert_int_equal(fb_store_flush(w.store), 0);
    fb_store_forget(w.store, world_find(&w, 3));
    fb_store_forget(w.store, world_find(&w, 4));
    assert_int_equal(fb_store_hide(w.store, WORLD_SOURCE, ""), 0);
    for (int i = 0; i < 3; i++) {
        reopen(&w, false);
        assert_int_equal(metric(&w, FB_SM_RECOVERED), 0);
    }
    world_end(&w);
}

/* By a daemon that can use nothing of what is there, and one that can comes after it. */
static void test_evicted_with_other_blocks(void **state)
{
    struct world w = {0};

    (void)state;
    world_make(&w, WITH_NVME);
    world_open(&w);
    append(&w, 3, 0, 0);
    assert_int_equal(fb_store_flush(w.store), 0);
    fb_store_close(w.store, false);
    w.block_bytes /= 2;
    world_open(&w);
    assert_int_equal(fb_store_hide(w.store, WORLD_SOURCE, ""), 0);
    fb_store_close(w.store, false);
    w.block_bytes *= 2;
    world_open(&w);
    assert_int_equal(look(&w, 3, 0), FB_STORE_MISS);
    world_end(&w);
}

static void test_other_block_size(void **state)
{
    struct world w = {0};

    (void)state;
    world_make(&w, WITH_NVME);
    world_open(&w);
    fill(&w);
    fb_store_close(w.store, false);
    w.block_bytes /= 2;
    world_open(&w);
    assert_int_equal(metric(&w, FB_SM_RECOVERED), 0);
    assert_int_equal(metric(&w, FB_SM_DAMAGED_SEGMENTS), 0);
    world_recount(&w);
    world_end(&w);
}

/* Fewer entries, fewer paths than the disk has: what fits is there, and the accounts hold. */
static void test_small_tables(void **state)
{
    struct world w = {.file_count = 200, .block_bytes = 8192, .segment_bytes = 128 << 10};
    struct fb_store_config c;
    struct fb_error err = {0};
    struct seen seen;

    (void)state;
    world_make(&w, WITH_NVME);
    world_open(&w);
    fill(&w);
    fb_store_close(w.store, false);
    w.max_items = 30;
    world_open(&w);
    world_recount(&w);
    assert_true(metric(&w, FB_SM_RECOVERED) <= 40 && metric(&w, FB_SM_DISPLACED) > 0);
    seen = look_at_all(&w);
    assert_int_equal(seen.right, metric(&w, FB_SM_RECOVERED));
    fb_store_close(w.store, true);
    c = world_config(&w);
    c.max_items = 10000;
    c.files_bytes = 16 << 10;
    assert_int_equal(fb_store_open(&c, &w.store, &err), 0);
    world_recount(&w);
    assert_true(look_at_all(&w).right > 20);
    world_end(&w);
}

/* ---- a table that checks out and is wrong all the same ---- */

struct forged {
    uint32_t block, length, offset_units;
    uint32_t mode;
};

struct forging {
    struct fb_tier_seal seal;
    struct fb_event done;
};

static void forged_done(struct fb_tier_seal *seal)
{
    fb_event_set(&FB_CONTAINER_OF(seal, struct forging, seal)->done);
}

static void forge_segment(struct world *w, const struct forged *items, unsigned count)
{
    struct fb_store_config c = world_config(w);
    struct forging *forging = calloc(1, sizeof *forging);
    struct fb_tier_seal *seal = &forging->seal;
    struct fb_disk_writer writer;
    struct fb_error err = {0};
    struct fb_tier *tier;
    bool valid;

    FB_ASSERT(forging != NULL);
    assert_int_equal(fb_tier_open(&c.tiers[0], &tier, &err), 0);
    for (uint32_t slot = 0; slot < fb_tier_slots(tier); slot++) {
        assert_int_equal(fb_tier_scan(tier, slot, &seal->header, &valid), 0);
        fb_tier_give(tier, slot);
    }
    seal->header = (struct fb_disk_header){.sequence = 1};
    assert_int_equal(fb_tier_take(tier, &seal->slot, &seal->memory), 0);
    fb_disk_write_begin(&writer, seal->memory + 65536, 65536);
    for (unsigned i = 0; i < count; i++) {
        struct fb_disk_file file = {.attr = world_attr(w, i, 0), .source = WORLD_SOURCE};
        struct fb_disk_item item = {.block = items[i].block,
                                    .length = items[i].length,
                                    .offset_units = items[i].offset_units};
        char path[512];

        world_path(i, path, sizeof path);
        file.path_len = (uint16_t)strlen(path);
        file.attr.mode = items[i].mode;
        file.attr.version.size = 5000;
        assert_true(fb_disk_write_item(&writer, &file, path, &item));
    }
    seal->header.data_end = 40000;
    seal->header.toc_offset = 65536;
    seal->header.toc_bytes = (uint64_t)(writer.at - (seal->memory + 65536));
    seal->header.items = writer.items;
    seal->header.files = writer.files;
    seal->header.block_bytes = w->block_bytes;
    fb_event_init(&forging->done);
    seal->done = forged_done;
    fb_tier_seal(tier, seal);
    fb_event_wait(&forging->done);
    assert_int_equal(seal->result, 0);
    fb_tier_release_memory(tier, seal->slot, seal->memory);
    fb_tier_close(tier);
    free(forging);
}

static void test_forged_tables(void **state)
{
    const struct forged items[] = {
        {.block = 0, .length = 5000, .offset_units = 64, .mode = S_IFREG}, /* plausible */
        {.block = 0, .length = 4999, .offset_units = 64, .mode = S_IFREG}, /* short of the end */
        {.block = 0, .length = 0, .offset_units = 64, .mode = S_IFREG},
        {.block = 1, .length = 100, .offset_units = 64, .mode = S_IFREG}, /* beyond the end */
        {.block = UINT32_MAX, .length = 1, .offset_units = 64, .mode = S_IFREG},
        {.block = 0, .length = 5001, .offset_units = 64, .mode = S_IFREG},
        {.block = 0, .length = 5000, .offset_units = 64, .mode = S_IFDIR},
    };
    struct world w = {0};

    (void)state;
    world_make(&w, WITH_NVME);
    forge_segment(&w, items, FB_ARRAY_SIZE(items));
    world_open(&w);
    world_recount(&w);
    assert_int_equal(metric(&w, FB_SM_RECOVERED), 1);
    fb_store_close(w.store, true);
    w.store = NULL;
    world_end(&w);
}

/* ---- damage ---- */

static void flip(const char *dir, const char *name, struct fb_rand *r, unsigned bits)
{
    char path[PATH_MAX + 64];
    struct stat st;
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    for (unsigned i = 0; st.st_size > 0 && i < bits; i++) {
        off_t at = (off_t)fb_rand_below(r, (uint64_t)st.st_size);
        uint8_t byte;

        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (uint8_t)(1u << fb_rand_below(r, 8));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    close(fd);
}

static void flip_at(const char *dir, off_t at)
{
    char path[PATH_MAX + 64];
    uint8_t byte;
    int fd;

    snprintf(path, sizeof path, "%s/segments", dir);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* Each place counts once, whatever stands there; slots that were never written count for
 * nothing. */
static void damage_headers(unsigned mask)
{
    const off_t places[] = {0 /* magic */, 12 /* slot */, 16 /* cache */, 56, 120 /* sum */};
    struct world w = {.slots = 8};
    const char *dir;

    world_make(&w, mask);
    dir = mask == WITH_PMEM ? w.pmem_dir : w.nvme_dir;
    for (unsigned i = 0; i < FB_ARRAY_SIZE(places); i++) {
        world_open(&w);
        assert_int_equal(metric(&w, FB_SM_DAMAGED_SEGMENTS), 0);
        append(&w, file_of_size(&w, 4097, 0), 0, 0);
        fb_segment_close_open(w.store, &w.store->tiers[0]);
        append(&w, file_of_size(&w, 100, 0), 0, 0);
        fb_store_close(w.store, false);
        flip_at(dir, places[i]);
        world_open(&w);
        assert_int_equal(metric(&w, FB_SM_DAMAGED_SEGMENTS), 1);
        assert_int_equal(metric(&w, FB_SM_RECOVERED), 1);
        world_recount(&w);
        fb_store_close(w.store, true);
        flip_at(dir, places[i]); /* back again, so that the next round finds all as it was */
    }
    w.store = NULL;
    world_end(&w);
}

static void test_damaged_headers(void **state)
{
    (void)state;
    damage_headers(WITH_NVME);
    damage_headers(WITH_PMEM);
}

/* The segments are whole, the directory says that they are not its own: nothing was damaged. */
static void test_reset_is_no_damage(void **state)
{
    struct world w = {0};
    char path[PATH_MAX + 64];

    (void)state;
    world_make(&w, WITH_NVME);
    world_open(&w);
    fill(&w);
    fb_store_close(w.store, false);
    snprintf(path, sizeof path, "%s/superblock", w.nvme_dir);
    assert_int_equal(unlink(path), 0);
    world_open(&w);
    assert_int_equal(metric(&w, FB_SM_RECOVERED), 0);
    assert_int_equal(metric(&w, FB_SM_DAMAGED_SEGMENTS), 0);
    world_end(&w);
}

static void cut_file(const char *dir, struct fb_rand *r)
{
    char path[PATH_MAX + 64];
    struct stat st;

    snprintf(path, sizeof path, "%s/segments", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, (off_t)fb_rand_below(r, (uint64_t)st.st_size)), 0);
}

static void run_damage(unsigned mask, bool offline, bool truncated, uint64_t seed)
{
    struct fb_rand r = {.state = seed};
    unsigned found = 0;

    for (int round = 0; round < 12; round++) {
        struct world w = {.slots = 4, .file_count = 40};
        const char *dir;
        struct seen before, after;

        world_make(&w, mask);
        dir = mask == WITH_PMEM ? w.pmem_dir : w.nvme_dir;
        world_open(&w);
        fill(&w);
        before = look_at_all(&w);
        assert_true(before.right > 10 && before.damaged == 0);
        if (offline)
            fb_store_close(w.store, false);
        if (truncated)
            cut_file(dir, &r);
        else
            flip(dir, "segments", &r, 1u << fb_rand_below(&r, 8));
        if (offline)
            world_open(&w);
        after = look_at_all(&w);
        found += after.damaged + (unsigned)metric(&w, FB_SM_DAMAGED_SEGMENTS);
        assert_int_equal(metric(&w, FB_SM_DAMAGED), after.damaged);
        world_recount(&w);
        /* What was found damaged is gone, and can be cached again. */
        assert_int_equal(look_at_all(&w).damaged, 0);
        for (uint32_t file = 0; file < 5; file++)
            if (look(&w, file, 0) == FB_STORE_MISS) {
                uint32_t id = world_put(&w, file);
                int rc = world_append(&w, file, id, 0, 0);

                assert_true(rc == 0 || rc == FB_STORE_FULL);
            }
        (void)look_at_all(&w);
        world_recount(&w);
        world_end(&w);
    }
    assert_true(found > 5 || (offline && truncated));
}

static void test_flips_while_open(void **state)
{
    (void)state;
    run_damage(WITH_NVME, false, false, 1);
    run_damage(WITH_PMEM, false, false, 2);
}

static void test_flips_while_closed(void **state)
{
    (void)state;
    run_damage(WITH_NVME, true, false, 3);
    run_damage(WITH_PMEM, true, false, 4);
}

static void test_truncation_while_open(void **state)
{
    (void)state;
    run_damage(WITH_NVME, false, true, 5);
    run_damage(WITH_PMEM, false, true, 6);
}

static void test_truncation_while_closed(void **state)
{
    (void)state;
    run_damage(WITH_NVME, true, true, 7);
    run_damage(WITH_PMEM, true, true, 8);
}

/* The small files beside the segments: whatever becomes of them, the store opens and lies about
 * nothing. */
static void test_damaged_notes(void **state)
{
    static const char *const names[] = {"superblock", "sources", "evictions"};
    struct fb_rand r = {.state = 11};

    (void)state;
    for (int round = 0; round < 12; round++) {
        struct world w = {.slots = 3, .file_count = 20};
        uint16_t id, again;

        world_make(&w, WITH_NVME);
        world_open(&w);
        assert_int_equal(fb_store_source_id(w.store, "file:///one", &id), 0);
        fill(&w);
        assert_int_equal(fb_store_hide(w.store, WORLD_SOURCE, "nowhere"), 0);
        fb_store_close(w.store, false);
        flip(w.nvme_dir, names[round % 3], &r, 1 + (unsigned)fb_rand_below(&r, 4));
        world_open(&w);
        (void)look_at_all(&w);
        world_recount(&w);
        /* The same number, or one that nobody had: never that of the items' source. */
        assert_int_equal(fb_store_source_id(w.store, "file:///two", &again), 0);
        if (round % 3 == 1)
            assert_true(again != id && again != WORLD_SOURCE);
        world_end(&w);
    }
}

/* ---- writes that fail ---- */

static void test_failed_seal(void **state)
{
    struct world w = {.slots = 3, .file_count = 40};
    struct fb_segment_info infos[3];
    struct rlimit limit, none;
    uint32_t count, file;

    (void)state;
    world_make(&w, WITH_NVME);
    world_open(&w);
    fill(&w);
    count = fb_store_sealed(w.store, 0, infos, 3);
    assert_int_equal(count, 3);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(fb_store_evict(w.store, infos[i].no, false, NULL, NULL), 0);
    /* The disk refuses every write from now on. */
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    file = file_of_size(&w, 4097, 0);
    append(&w, file, 0, 0);
    assert_int_equal(look(&w, file, 0), 0); /* from memory */
    assert_int_equal(fb_store_flush(w.store), -EIO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(metric(&w, FB_SM_SEAL_FAILED), 1);
    assert_int_equal(metric(&w, FB_SM_DAMAGED), 0);
    assert_int_equal(look(&w, file, 0), FB_STORE_MISS);
    assert_int_equal(fb_store_sealed(w.store, 0, infos, 3), 0);
    world_recount(&w);
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attributes_come_back),
        cmocka_unit_test(test_newest_version_wins),
        cmocka_unit_test(test_stale_is_not_written),
        cmocka_unit_test(test_evicted_by_hand),
        cmocka_unit_test(test_evicted_stays_evicted),
        cmocka_unit_test(test_evicted_with_other_blocks),
        cmocka_unit_test(test_other_block_size),
        cmocka_unit_test(test_small_tables),
        cmocka_unit_test(test_forged_tables),
        cmocka_unit_test(test_damaged_headers),
        cmocka_unit_test(test_reset_is_no_damage),
        cmocka_unit_test(test_flips_while_open),
        cmocka_unit_test(test_flips_while_closed),
        cmocka_unit_test(test_truncation_while_open),
        cmocka_unit_test(test_truncation_while_closed),
        cmocka_unit_test(test_damaged_notes),
        cmocka_unit_test(test_failed_seal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
