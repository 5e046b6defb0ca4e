/*
 * The contract of store/tier.h: what every medium does, and what persistent ones keep. See
 * test_tier_dirs.c for directories, test_tier_space.c for space and failures.
 */
#include "store/test_tier.h"

#include "base/rand.h"
#include "core/thread.h"

/* ---- every medium ---- */

static void test_identity(void **state)
{
    struct fixture *f = *state;

    open_empty(f);
    assert_int_equal(fb_tier_kind(f->tier), f->config.kind);
    assert_int_equal(fb_tier_slots(f->tier), SLOTS);
    assert_int_equal(fb_tier_segment_bytes(f->tier), SEGMENT);
    if (f->config.kind == FB_TIER_DRAM) {
        assert_false(fb_tier_persistent(f->tier));
        assert_true(fb_tier_memfd(f->tier) >= 0);
        assert_non_null(fb_tier_map(f->tier));
        assert_int_equal(fb_tier_dir_fd(f->tier), -1);
        assert_int_equal(ftruncate(fb_tier_memfd(f->tier), 0), -1);
    } else {
        assert_true(fb_tier_persistent(f->tier));
        assert_int_equal(fb_tier_memfd(f->tier), -1);
        assert_null(fb_tier_map(f->tier));
        assert_true(fb_tier_dir_fd(f->tier) >= 0);
    }
    assert_int_equal(fb_tier_excess(f->tier), 0);
}

static void test_round_trip(void **state)
{
    struct fixture *f = *state;
    uint32_t slots[SLOTS];
    uint32_t slot;
    uint8_t *memory;

    open_empty(f);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < SLOTS; i++) {
            assert_true(fb_tier_has_room(f->tier));
            slots[i] = fill_one(f, round * SLOTS + i);
            for (unsigned n = 0; n < i; n++)
                assert_int_not_equal(slots[n], slots[i]);
        }
        assert_false(fb_tier_has_room(f->tier));
        assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
        for (unsigned i = 0; i < SLOTS; i++)
            assert_true(holds(f, slots[i], round * SLOTS + i));
        assert_true(disk_bytes(f) <= SLOTS * SEGMENT);
        for (unsigned i = 0; i < SLOTS; i++)
            fb_tier_give(f->tier, slots[i]);
    }
    if (f->config.dir_count > 0) /* free slots keep their space */
        assert_int_equal(disk_bytes(f), SLOTS * SEGMENT);
}

/* Memory is readable until it is released, whatever is touched of it, and a slot given up unsealed
 * is free again. */
static void test_give_up(void **state)
{
    struct fixture *f = *state;
    uint32_t slot;
    uint8_t *memory;

    open_empty(f);
    for (unsigned i = 0; i < 3 * SLOTS; i++) {
        assert_int_equal(fb_tier_take(f->tier, &slot, &memory), 0);
        fb_tier_touch(f->tier, memory + 100, SEGMENT / 2);
        build(memory, i);
        fb_tier_touch(f->tier, memory + SEGMENT / 2 + 100, SEGMENT / 2 - 100);
        for (unsigned n = SEGMENT / 16; n < SEGMENT / 8; n++)
            assert_int_equal(((uint64_t *)memory)[n], word(i, n));
        fb_tier_release_memory(f->tier, slot, memory);
        fb_tier_give(f->tier, slot);
    }
}

static void test_fill_limit(void **state)
{
    struct fixture *f = *state;
    uint32_t slot;
    uint8_t *memory;

    f->config.budget_bytes = 16 * SEGMENT;
    f->config.fill = 0.3;
    open_empty(f);
    assert_int_equal(fb_tier_slots(f->tier), 4);
    for (unsigned i = 0; i < 4; i++)
        fill_one(f, i);
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
    assert_true(disk_bytes(f) <= 16 * SEGMENT * 3 / 10);
}

static void test_too_small(void **state)
{
    struct fixture *f = *state;

    f->config.budget_bytes = SEGMENT - 1;
    assert_int_equal(try_open(f), -EINVAL);
    assert_non_null(strstr(f->err.text, "too small"));
    f->config.budget_bytes = 16 * SEGMENT;
    f->config.segment_bytes = SEGMENT + 1;
    assert_int_equal(try_open(f), -EINVAL);
}

struct worker {
    pthread_t thread;
    struct fixture *f;
    unsigned no;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct fixture *f = w->f;
    struct fb_rand rand = {w->no};

    for (unsigned i = 0; i < 30; i++) {
        uint64_t seed = w->no * 1000 + i;
        uint32_t slot;
        uint8_t *memory;
        int r = fb_tier_take(f->tier, &slot, &memory);

        if (r != 0) {
            assert_true(r == FB_TIER_FULL || r == FB_TIER_BUSY);
            sched_yield();
            continue;
        }
        build(memory, seed);
        if (fb_rand_below(&rand, 4) > 0) {
            assert_int_equal(seal(f->tier, slot, memory, seed), 0);
            fb_tier_release_memory(f->tier, slot, memory);
            assert_true(holds(f, slot, seed));
        } else {
            fb_tier_release_memory(f->tier, slot, memory);
        }
        assert_int_equal(fb_tier_excess(f->tier), 0);
        fb_tier_has_room(f->tier);
        fb_tier_give(f->tier, slot);
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    struct worker workers[4];
    struct fixture *f = *state;
    uint32_t slots[SLOTS];

    f->config.staging = 3;
    open_empty(f);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(workers); i++) {
        workers[i] = (struct worker){.f = f, .no = i};
        assert_int_equal(fb_thread_start(&workers[i].thread, "worker", work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < FB_ARRAY_SIZE(workers); i++)
        pthread_join(workers[i].thread, NULL);
    for (unsigned i = 0; i < SLOTS; i++)
        slots[i] = fill_one(f, i);
    for (unsigned i = 0; i < SLOTS; i++)
        assert_true(holds(f, slots[i], i));
}

/* ---- persistent media ---- */

static void test_busy(void **state)
{
    struct fixture *f = *state;
    uint32_t slots[3];
    uint8_t *memory[3];

    f->config.staging = 2;
    open_empty(f);
    assert_int_equal(fb_tier_take(f->tier, &slots[0], &memory[0]), 0);
    assert_int_equal(fb_tier_take(f->tier, &slots[1], &memory[1]), 0);
    assert_int_equal(fb_tier_take(f->tier, &slots[2], &memory[2]), FB_TIER_BUSY);
    assert_true(fb_tier_has_room(f->tier));
    assert_int_equal(seal(f->tier, slots[0], memory[0], 1), 0);
    assert_int_equal(fb_tier_take(f->tier, &slots[2], &memory[2]), FB_TIER_BUSY);
    fb_tier_release_memory(f->tier, slots[0], memory[0]);
    assert_int_equal(fb_tier_take(f->tier, &slots[2], &memory[2]), 0);
}

/* With no slot free, too: emptying one would be of no use yet. */
static void test_busy_and_full(void **state)
{
    struct fixture *f = *state;
    uint32_t slots[3];
    uint8_t *memory[3];

    f->config.staging = 2;
    open_empty(f);
    for (unsigned i = 0; i < SLOTS - 2; i++)
        fill_one(f, i);
    assert_int_equal(fb_tier_take(f->tier, &slots[0], &memory[0]), 0);
    assert_false(fb_tier_busy(f->tier));
    assert_int_equal(fb_tier_take(f->tier, &slots[1], &memory[1]), 0);
    assert_true(fb_tier_busy(f->tier));
    assert_false(fb_tier_has_room(f->tier));
    assert_int_equal(fb_tier_take(f->tier, &slots[2], &memory[2]), FB_TIER_BUSY);
    fb_tier_release_memory(f->tier, slots[0], memory[0]);
    assert_int_equal(fb_tier_take(f->tier, &slots[2], &memory[2]), FB_TIER_FULL);
    /* Its directory has staging memory to spare, as one of several has not always. */
    fb_tier_give(f->tier, slots[0]);
    assert_int_equal(fb_tier_take(f->tier, &slots[2], &memory[2]), 0);
    assert_int_equal(slots[2], slots[0]);
}

/* Segments that are only being filled, however long, keep nothing of a directory from others:
 * nobody could wait for a write to end. */
static void test_filled(void **state)
{
    struct fixture *f = *state;
    unsigned dirs = f->config.dir_count;
    uint32_t slots[SLOTS];
    uint8_t *memory[SLOTS];

    f->config.staging = SLOTS / dirs;
    open_empty(f);
    for (unsigned i = 0; i < SLOTS; i++)
        slots[i] = fill_one(f, i);
    for (unsigned i = 0; i < SLOTS; i++)
        if (slots[i] % dirs == 0)
            fb_tier_give(f->tier, slots[i]);
    for (unsigned i = 0; i < SLOTS / dirs; i++) {
        assert_int_equal(fb_tier_take(f->tier, &slots[i], &memory[i]), 0);
        assert_int_equal(slots[i] % dirs, 0);
    }
    assert_int_equal(fb_tier_take(f->tier, &slots[0], &memory[0]), FB_TIER_BUSY);
}

/* More than one write a seal, the last one short. */
static void test_large_segments(void **state)
{
    struct fixture *f = *state;
    uint32_t size = (7u << 19) + FB_DISK_PAGE;
    FB_AUTO_FREE struct sealing *s = fb_alloc(sizeof *s);
    FB_AUTO_FREE uint8_t *copy = malloc(size);
    FB_AUTO_FREE uint8_t *back = aligned_alloc(FB_DISK_PAGE, size);

    assert_true(s && copy && back);
    f->config.segment_bytes = size;
    f->config.budget_bytes = f->config.dir_count * (size + FB_TIER_ROOM_BYTES);
    f->config.staging = 1;
    open_empty(f);
    assert_int_equal(fb_tier_take(f->tier, &s->seal.slot, &s->seal.memory), 0);
    for (uint32_t i = 0; i < size / 8; i++)
        ((uint64_t *)s->seal.memory)[i] = word(5, i);
    memcpy(copy, s->seal.memory, size);
    s->seal.done = seal_done;
    s->seal.header = (struct fb_disk_header){
        .data_end = size - 2 * FB_DISK_PAGE,
        .toc_offset = size - FB_DISK_PAGE,
        .toc_bytes = FB_DISK_PAGE,
    };
    fb_tier_seal(f->tier, &s->seal);
    wait_for(&s->done);
    assert_int_equal(s->seal.result, 0);
    assert_int_equal(read_some(f->tier, s->seal.slot, 0, size, back), size);
    assert_memory_equal(back, &s->seal.header, sizeof s->seal.header);
    assert_memory_equal(back + FB_DISK_PAGE, copy + FB_DISK_PAGE, size - FB_DISK_PAGE);
}

static void test_reopen(void **state)
{
    struct fixture *f = *state;
    unsigned sealed = 0;
    unsigned again;
    uint32_t slot;
    uint8_t *memory;

    open_empty(f);
    for (unsigned i = 0; i < 3; i++)
        sealed |= 1u << fill_one(f, 100 + i);
    /* Lent and never sealed. */
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), 0);
    build(memory, 1);
    close_tier(f);

    assert_int_equal(try_open(f), 0);
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
    close_tier(f);

    assert_int_equal(try_open(f), 0);
    assert_int_equal(scan_all(f), sealed);
    for (unsigned i = 3; i < SLOTS; i++)
        sealed |= 1u << fill_one(f, 200 + i);
    assert_int_equal(sealed, (1u << SLOTS) - 1);
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
    fb_tier_give(f->tier, 0);
    again = fill_one(f, 300);
    assert_int_equal(again, 0);
    assert_true(disk_bytes(f) <= SLOTS * SEGMENT);
    close_tier(f);

    assert_int_equal(try_open(f), 0);
    assert_int_equal(scan_all(f), sealed);
}

/* A smaller budget takes effect at once, and the slots that remain are where they were. */
static void test_shrink_and_grow(void **state)
{
    struct fixture *f = *state;

    open_empty(f);
    for (unsigned i = 0; i < SLOTS; i++)
        fill_one(f, i);
    close_tier(f);
    f->config.budget_bytes -= 2 * SEGMENT;
    assert_int_equal(try_open(f), 0);
    assert_int_equal(fb_tier_slots(f->tier), SLOTS - 2);
    assert_true(disk_bytes(f) <= (SLOTS - 2) * SEGMENT);
    assert_int_equal(scan_all(f), (1u << (SLOTS - 2)) - 1);
    close_tier(f);
    f->config.budget_bytes += 2 * SEGMENT;
    assert_int_equal(try_open(f), 0);
    assert_int_equal(scan_all(f), (1u << (SLOTS - 2)) - 1);
    fill_one(f, 1);
    fill_one(f, 2);
    assert_false(fb_tier_has_room(f->tier));
}

static void test_damaged_header(void **state)
{
    struct fixture *f = *state;
    unsigned all = (1u << SLOTS) - 1;
    unsigned damaged;

    open_empty(f);
    for (unsigned i = 0; i < SLOTS; i++)
        fill_one(f, i);
    close_tier(f);
    flip(segments_path(f, 0), 40);
    assert_int_equal(try_open(f), 0);
    assert_int_equal(scan_damaged(f, &damaged), all & ~1u);
    assert_int_equal(damaged, 1);
}

/* ---- all of it ---- */

static const struct tier_case cases[] = {
    {"identity", test_identity, ON_ALL},
    {"round trip", test_round_trip, ON_ALL},
    {"give up", test_give_up, ON_ALL},
    {"fill limit", test_fill_limit, ON_ALL},
    {"too small", test_too_small, ON_ALL},
    {"many threads", test_many_threads, ON_ALL},
    {"large segments", test_large_segments, ON_FILES},
    {"busy", test_busy, ON_FILES},
    {"filled", test_filled, ON_FILES},
    {"busy and full", test_busy_and_full, ON_FILES},
    {"reopen", test_reopen, ON_FILES},
    {"shrink and grow", test_shrink_and_grow, ON_FILES},
    {"damaged header", test_damaged_header, ON_FILES},
};

int main(void)
{
    return run_cases("tier", cases, FB_ARRAY_SIZE(cases));
}
