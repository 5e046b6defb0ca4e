/*
 * The index against an array: every location that comes is told once, every one that goes is told
 * once, and what can be found is what should be there.
 */
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/rand.h"
#include "core/thread.h"
#include "store/index.h"
#include "store/tables.h"

#define KEYS   4000u
#define ROUNDS 200000

struct model {
    struct fb_layout layout;
    int memfd;
    struct fb_index *index;
    uint64_t loc[KEYS][2];
    uint32_t length[KEYS];
    int64_t told_locations;
    int64_t told_bytes;
    int64_t told_entries;
    uint64_t holds;
};

static void on_location(void *arg, uint64_t loc, uint32_t length, int delta)
{
    struct model *m = arg;

    assert_true(loc != FB_LOC_NONE);
    m->told_locations += delta;
    m->told_bytes += (int64_t)delta * length;
}

static void on_entry(void *arg, uint64_t key, int delta)
{
    assert_true(key != 0);
    ((struct model *)arg)->told_entries += delta;
}

static void on_hold(void *arg, uint64_t key)
{
    assert_true(key != 0);
    ((struct model *)arg)->holds++;
}

static void start(struct model *m, uint64_t items, bool watched)
{
    struct fb_tables_shape shape = {.items = items, .files_bytes = 1 << 16, .segments = 1};
    struct fb_index_watch watch = {
        .location = on_location, .entry = on_entry, .hold = on_hold, .arg = m};

    assert_int_equal(fb_tables_create(&shape, &m->layout, &m->memfd), 0);
    assert_int_equal(fb_index_create(&m->layout, watched ? &watch : NULL, &m->index), 0);
}

static void stop(struct model *m)
{
    fb_index_destroy(m->index);
    fb_tables_destroy(&m->layout, m->memfd);
}

static uint64_t key_of(uint32_t i)
{
    return fb_item_key(2 + i / 3, i % 3);
}

static void model_drop(struct model *m, uint64_t key)
{
    uint32_t i = (uint32_t)(((key >> 32) - 2) * 3 + (key & 0xffffffff));

    m->loc[i][0] = 0;
    m->loc[i][1] = 0;
}

static void model_check(struct model *m)
{
    int64_t locations = 0, bytes = 0, entries = 0;

    for (uint32_t i = 0; i < KEYS; i++) {
        struct fb_index_entry e;
        bool there = m->loc[i][0] != 0 || m->loc[i][1] != 0;

        assert_int_equal(fb_index_get(m->index, key_of(i), &e), there);
        if (!there)
            continue;
        assert_true(e.loc[0] == m->loc[i][0] && e.loc[1] == m->loc[i][1]);
        assert_int_equal(e.length, m->length[i]);
        entries++;
        for (int w = 0; w < 2; w++) {
            locations += m->loc[i][w] != 0;
            bytes += m->loc[i][w] != 0 ? m->length[i] : 0;
        }
    }
    assert_int_equal(m->told_entries, entries);
    assert_int_equal(m->told_locations, locations);
    assert_int_equal(m->told_bytes, bytes);
    assert_int_equal(fb_index_count(m->index), (uint64_t)entries);
}

static void random_step(struct model *m, struct fb_rand *r, int round)
{
    uint32_t i = (uint32_t)fb_rand_below(r, KEYS);
    unsigned which = (unsigned)fb_rand_below(r, 2);
    struct fb_index_entry e;

    switch (fb_rand_below(r, 8)) {
    case 0:
    case 1:
    case 2: {
        uint64_t loc = fb_loc_make(2, (uint32_t)fb_rand_below(r, 1000), 64u * (uint32_t)round);
        uint32_t length =
            fb_rand_below(r, 20) == 0 ? (uint32_t)fb_rand_below(r, 0x1000000) : m->length[i];

        fb_index_set(m->index, key_of(i), which, loc, length, (uint32_t)round, &e);
        if (e.key != 0)
            model_drop(m, e.key);
        if (length != m->length[i])
            model_drop(m, key_of(i));
        m->length[i] = length;
        m->loc[i][which] = loc;
        break;
    }
    case 3:
        assert_int_equal(fb_index_clear(m->index, key_of(i), which, 1ULL << 63 | 12345), false);
        break;
    case 4:
        if (m->loc[i][which] != 0)
            assert_true(fb_index_clear(m->index, key_of(i), which, m->loc[i][which]));
        m->loc[i][which] = 0;
        break;
    case 5:
        if (fb_rand_below(r, 4) != 0)
            break;
        assert_int_equal(fb_index_remove(m->index, key_of(i), &e),
                         m->loc[i][0] != 0 || m->loc[i][1] != 0);
        model_drop(m, key_of(i));
        break;
    case 6: {
        uint64_t before = m->holds;
        bool held = fb_index_hold(m->index, key_of(i), &e);

        assert_int_equal(m->holds - before, held);
        assert_int_equal(held, m->loc[i][0] != 0 || m->loc[i][1] != 0);
        break;
    }
    default:
        fb_index_touch(m->index, key_of(i), (uint32_t)round);
    }
}

static void test_model(void **state)
{
    static const uint64_t sizes[] = {KEYS, KEYS / 3, 16};

    (void)state;
    for (size_t s = 0; s < FB_ARRAY_SIZE(sizes); s++) {
        struct model *m = calloc(1, sizeof *m);
        struct fb_rand r = {.state = 42 + s};

        assert_non_null(m);
        start(m, sizes[s], true);
        for (int round = 0; round < ROUNDS; round++) {
            random_step(m, &r, round);
            if (round % 10000 == 0)
                model_check(m);
        }
        model_check(m);
        stop(m);
        free(m);
    }
}

/* What the budget counts on: at the planned load nothing, or next to nothing, is displaced. */
static void test_load(void **state)
{
    static struct model m;
    const uint64_t items = 300000;
    uint64_t displaced = 0;

    (void)state;
    start(&m, items, false);
    for (uint64_t i = 0; i < items; i++) {
        struct fb_index_entry e;

        fb_index_set(m.index, fb_item_key((uint32_t)(i + 2), 0), 0, fb_loc_make(2, 0, 0), 4096, 1,
                     &e);
        displaced += e.key != 0;
    }
    assert_true(displaced <= items / 100000);
    assert_true(m.layout.h.groups * sizeof(struct fb_layout_group) + items * sizeof(uint64_t) <=
                items * FB_INDEX_ITEM_BYTES);
    assert_true(fb_index_capacity(m.index) * 3 >= items * 4);
    stop(&m);
}

/* Readers look there first, and fetch it ahead. */
static void test_first_line(void **state)
{
    static struct model m;
    uint32_t elsewhere = 0;

    (void)state;
    start(&m, KEYS, false);
    for (uint32_t i = 0; i < KEYS / 2; i++) {
        uint64_t key = fb_item_key(i + 2, 0), groups[2];
        struct fb_layout_group *first;
        struct fb_index_entry e;
        struct fb_found found = {0};
        int used = 0;

        fb_layout_groups_of(&m.layout, key, groups);
        first = fb_layout_group(&m.layout, groups[0]);
        for (int k = 0; k < FB_GROUP_ITEMS; k++)
            used += first->items[k].key != 0;
        fb_index_set(m.index, key, 0, fb_loc_make(2, 0, 0), 4096, 1, &e);
        assert_true(fb_layout_find(&m.layout, key, &found));
        if (used < FB_GROUP_ITEMS / 2)
            assert_true(found.item == &first->items[0] || found.item == &first->items[1]);
        else
            elsewhere++;
    }
    assert_in_range(elsewhere, 1, KEYS / 4);
    stop(&m);
}

static void test_touch(void **state)
{
    static struct model m;
    struct fb_index_entry e;

    (void)state;
    start(&m, 100, false);
    fb_index_set(m.index, 77, 1, fb_loc_make(2, 3, 64), 0xffffff, 5, &e);
    for (uint32_t i = 0; i < 300; i++)
        fb_index_touch(m.index, 77, 1000 + i);
    assert_true(fb_index_get(m.index, 77, &e));
    assert_int_equal(e.use.history, 255);
    assert_int_equal(e.use.last, 1299);
    assert_int_equal(e.length, 0xffffff);
    fb_index_touch(m.index, 78, 1);
    assert_false(fb_index_get(m.index, 78, &e));
    stop(&m);
}

/* The full index gives up the entry longest not used of those it may. */
static void test_displace_oldest(void **state)
{
    static struct model m;
    struct fb_index_entry e;

    (void)state;
    start(&m, 3, false); /* one group */
    for (uint32_t i = 1; i <= FB_GROUP_ITEMS; i++)
        fb_index_set(m.index, i, 0, fb_loc_make(2, 0, 0), 1, 100 - i, &e);
    fb_index_touch(m.index, FB_GROUP_ITEMS, 200);
    fb_index_set(m.index, 50, 0, fb_loc_make(2, 0, 0), 1, 300, &e);
    assert_int_equal(e.key, FB_GROUP_ITEMS - 1);
    stop(&m);
}

#define READERS      3
#define KEYS_ALIVE   200u
#define WRITER_STEPS 100000u

struct shared {
    struct model m;
    _Atomic uint32_t latest;
    _Atomic bool over;
};

/* A location names its key in the place of the segment; a reader must never see another's. Keys do
 * not come back here: an entry that is left and entered again by the same key within one probe can
 * show a stranger's location, which the record's own key gives away (test_store.c). */
static void *read_all_the_time(void *arg)
{
    struct shared *s = arg;
    uint32_t i = 0;

    while (!atomic_load_explicit(&s->over, memory_order_relaxed)) {
        uint32_t latest = atomic_load_explicit(&s->latest, memory_order_relaxed);
        uint64_t key = 1 + (latest > KEYS_ALIVE ? latest - KEYS_ALIVE : 0) + i++ % KEYS_ALIVE;
        struct fb_index_entry e;

        if (!fb_index_get(s->m.index, key, &e))
            continue;
        for (int w = 0; w < 2; w++)
            if (e.loc[w] != 0 && fb_loc_segment(e.loc[w]) != key)
                return "a location of another key";
        fb_index_touch(s->m.index, key, i);
    }
    return NULL;
}

static void test_readers(void **state)
{
    static struct shared s;
    pthread_t threads[READERS];

    (void)state;
    start(&s.m, KEYS_ALIVE, false);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(fb_thread_start(&threads[i], "reader", read_all_the_time, &s), 0);
    for (uint32_t key = 1; key <= WRITER_STEPS; key++) {
        struct fb_index_entry e;

        fb_index_set(s.m.index, key, key % 2, fb_loc_make(2, key, 0), key, key, &e);
        if (key > 50)
            fb_index_set(s.m.index, key - 50, 1, fb_loc_make(4, key - 50, 64), key - 50, key, &e);
        if (key > KEYS_ALIVE)
            (void)fb_index_remove(s.m.index, key - KEYS_ALIVE, &e);
        atomic_store_explicit(&s.latest, key, memory_order_relaxed);
    }
    atomic_store(&s.over, true);
    for (int i = 0; i < READERS; i++) {
        void *complaint;

        assert_int_equal(pthread_join(threads[i], &complaint), 0);
        assert_null(complaint);
    }
    stop(&s.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),   cmocka_unit_test(test_load),
        cmocka_unit_test(test_touch),   cmocka_unit_test(test_displace_oldest),
        cmocka_unit_test(test_readers), cmocka_unit_test(test_first_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
