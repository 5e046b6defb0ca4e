/*
 * Many threads at once on few segments: whatever one of them gets to see is right, and when all
 * have ended the accounts are exact. Files change, segments are evicted and their room is used
 * again all the time.
 */
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>

#include "core/clock.h"
#include "core/thread.h"
#include "store/test_store.h"

#define THREADS    8
#define STEPS      (FB_TSAN ? 6000 : 25000)
#define ROOM_TRIES 40
#define WAIT_NS    (20 * FB_NS_PER_MS)
#define COPY_BYTES 6000u
#define BLOCKS     3u

struct worker {
    struct world *w;
    uint64_t seed;
    uint64_t hits, copies, appended, evicted;
};

struct visitor {
    struct worker *worker;
    struct fb_rand *r;
    unsigned tier;
};

static void evict_one(struct worker *k, struct fb_rand *r, unsigned tier);

static void put_item(struct worker *k, struct fb_rand *r, unsigned tier, const struct fb_item *item)
{
    for (int i = 0; i < ROOM_TRIES; i++) {
        int rc = fb_store_append(k->w->store, tier, item);

        FB_ASSERT(rc == 0 || rc == FB_STORE_FULL || rc == FB_STORE_BUSY);
        if (rc == 0) {
            k->appended++;
            return;
        }
        if (rc == FB_STORE_FULL)
            evict_one(k, r, tier);
        fb_store_wait_writes(k->w->store, fb_now_ns() + WAIT_NS);
    }
}

static void visit(void *arg, const struct fb_victim *v)
{
    struct visitor *t = arg;
    struct world *w = t->worker->w;
    uint32_t id = v->item.file;
    uint32_t file = (uint32_t)fb_files_version(fb_store_files(w->store), id)->tag[0] - 1000;

    FB_ASSERT(v->item.data != NULL);
    FB_ASSERT(
        world_right(file, world_version_of(w, id), v->item.block, 0, v->item.length, v->item.data));
    t->worker->evicted++;
    if (v->current && !v->other_copy && t->tier + 1 < fb_store_tiers(w->store))
        put_item(t->worker, t->r, t->tier + 1, &v->item);
}

static void evict_one(struct worker *k, struct fb_rand *r, unsigned tier)
{
    struct fb_segment_info infos[16];
    struct visitor t = {.worker = k, .r = r, .tier = tier};
    uint32_t count = fb_store_sealed(k->w->store, tier, infos, FB_ARRAY_SIZE(infos));
    bool plain = fb_rand_below(r, 3) == 0;
    int rc;

    if (count == 0)
        return;
    rc = fb_store_evict(k->w->store, infos[fb_rand_below(r, count)].no, true, plain ? NULL : visit,
                        &t);
    FB_ASSERT(rc == 0 || rc == -EBUSY);
}

static void add(struct worker *k, struct fb_rand *r, uint32_t file)
{
    struct world *w = k->w;
    struct fb_files *files = fb_store_files(w->store);
    uint32_t id = world_put(w, file), version = world_version_of(w, id);
    uint64_t size = world_size(w, file, version);
    uint32_t block = (uint32_t)fb_rand_below(r, world_blocks(w, size));
    struct fb_item item = {.file = id, .block = block, .length = world_length(w, size, block)};
    FB_AUTO_FREE uint8_t *data = malloc(item.length + 1);

    FB_ASSERT(data != NULL);
    world_bytes(file, version, block, 0, item.length, data);
    item.data = data;
    put_item(k, r, (unsigned)fb_rand_below(r, fb_store_tiers(w->store)), &item);
    fb_files_unref(files, id, 1);
}

static void copy(struct worker *k, struct fb_rand *r, uint32_t file, uint32_t id)
{
    struct world *w = k->w;
    uint8_t data[COPY_BYTES];
    uint32_t block = (uint32_t)fb_rand_below(r, BLOCKS);
    uint32_t offset = (uint32_t)fb_rand_below(r, w->block_bytes);
    int64_t copied = fb_store_copy(w->store, fb_item_key(id, block), offset, sizeof data, data);

    FB_ASSERT(copied >= 0 || copied == -ENOENT);
    if (copied < 0)
        return;
    FB_ASSERT(world_right(file, world_version_of(w, id), block, offset, (uint32_t)copied, data));
    k->copies++;
}

/* Holds on to what it has pinned while the others go on. */
static void hold(struct worker *k, struct fb_rand *r, uint32_t file, uint32_t id)
{
    uint32_t block = (uint32_t)fb_rand_below(r, BLOCKS);
    struct fb_pin pin;
    int rc = fb_store_pin(k->w->store, fb_item_key(id, block), &pin);

    if (rc == FB_STORE_MISS)
        return;
    sched_yield();
    if (rc == 0)
        FB_ASSERT(world_right(file, world_version_of(k->w, id), block, 0, pin.length, pin.data));
    fb_store_unpin(k->w->store, &pin);
}

static void read_some(struct worker *k, struct fb_rand *r, uint32_t file, uint32_t id)
{
    uint32_t offset = (uint32_t)fb_rand_below(r, k->w->block_bytes);
    int rc = world_check(k->w, file, id, (uint32_t)fb_rand_below(r, BLOCKS), offset, 9000);

    FB_ASSERT(rc == 0 || rc == FB_STORE_MISS);
    k->hits += rc == 0;
}

static void *work(void *arg)
{
    struct worker *k = arg;
    struct world *w = k->w;
    struct fb_files *files = fb_store_files(w->store);
    struct fb_rand r = {.state = k->seed};

    for (int step = 0; step < STEPS; step++) {
        uint32_t file = (uint32_t)fb_rand_below(&r, w->file_count);
        uint64_t dice = fb_rand_below(&r, 100);
        uint32_t id;

        if (dice < 30)
            add(k, &r, file);
        else if (dice < 33)
            w->version[file]++;
        else if (dice < 36)
            evict_one(k, &r, (unsigned)fb_rand_below(&r, fb_store_tiers(w->store)));
        if (dice < 36)
            continue;
        id = world_find(w, file);
        if (id == 0)
            continue;
        if (dice < 60)
            copy(k, &r, file, id);
        else if (dice < 75)
            hold(k, &r, file, id);
        else if (dice < 97)
            read_some(k, &r, file, id);
        else
            fb_store_forget(w->store, id);
        fb_store_touch(w->store, fb_item_key(id, 0), fb_loc_make(0, 0, 0), fb_now_ns(), NULL);
        fb_files_unref(files, id, 1);
    }
    return NULL;
}

static void run(unsigned mask, uint32_t slots)
{
    struct world w = {
        .block_bytes = 12u << 10, .segment_bytes = 64u << 10, .slots = slots, .file_count = 50};
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    uint64_t copies = 0, hits = 0, evicted = 0;

    world_make(&w, mask);
    world_open(&w);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.w = &w, .seed = 100 + (uint64_t)i};
        assert_int_equal(fb_thread_start(&threads[i], "worker", work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        copies += workers[i].copies;
        hits += workers[i].hits;
        evicted += workers[i].evicted;
    }
    assert_int_equal(fb_store_flush(w.store), 0);
    world_recount(&w);
    assert_true(hits > 100 && evicted > 100);
    assert_true((copies > 100) == ((mask & WITH_DRAM) != 0));
    assert_int_equal(fb_metric_get(fb_store_metrics(w.store), FB_SM_DAMAGED), 0);
    fb_store_close(w.store, false);
    world_open(&w);
    world_recount(&w);
    for (uint32_t file = 0; file < w.file_count; file++) {
        uint32_t id = world_find(&w, file);

        for (uint32_t block = 0; id != 0 && block < BLOCKS; block++)
            assert_in_range(world_check(&w, file, id, block, 0, UINT32_MAX), 0, FB_STORE_MISS);
    }
    world_end(&w);
}

static void test_dram(void **state)
{
    (void)state;
    run(WITH_DRAM, 4);
}

static void test_nvme(void **state)
{
    (void)state;
    run(WITH_NVME, 6);
}

static void test_all(void **state)
{
    (void)state;
    run(WITH_DRAM | WITH_PMEM | WITH_NVME, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dram),
        cmocka_unit_test(test_nvme),
        cmocka_unit_test(test_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
