/*
 * What is learned about reuse: it must tell objects that come back from those that do not, by
 * history, size and age, and hold still when there is nothing to learn from.
 */
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rand.h"
#include "core/mem.h"
#include "policy/reuse.h"

#define CACHED 1000

/* Hot objects come back every 500 requests; every other request is for one that never does. */
#define HOT      250
#define REQUESTS 40000

static struct fb_reuse *make(uint64_t capacity)
{
    struct fb_reuse *reuse;

    assert_int_equal(fb_reuse_create(capacity, &reuse), 0);
    return reuse;
}

/* The metas of the hot objects, and of the last objects that came once. */
static void replay(struct fb_reuse *reuse, struct fb_reuse_meta *hot, struct fb_reuse_meta *once,
                   uint32_t once_size)
{
    for (uint64_t i = 0; i < REQUESTS; i++) {
        struct fb_reuse_meta *meta = &hot[i / 2 % HOT];

        if (i % 2 == 0 && i / 2 < HOT)
            fb_reuse_miss(reuse, fb_mix64(1 + i / 2), 1, meta);
        else if (i % 2 == 0)
            fb_reuse_hit(reuse, fb_mix64(1 + i / 2 % HOT), 1, meta);
        else
            fb_reuse_miss(reuse, fb_mix64(1000000 + i), once_size, &once[i / 2 % HOT]);
        if (i > 2 * CACHED && fb_reuse_due(reuse))
            assert_int_equal(fb_reuse_train(reuse, CACHED), 0);
    }
}

static void test_hot_and_once(void **state)
{
    struct fb_reuse *reuse = make(CACHED);
    struct fb_reuse_meta hot[HOT] = {0};
    struct fb_reuse_meta once[HOT] = {0};
    float best_once = 0;
    float worst_hot = 1e9f;

    (void)state;
    replay(reuse, hot, once, 1);
    assert_true(fb_reuse_trainings(reuse) > 2);
    for (unsigned i = 0; i < HOT; i++) {
        float h = fb_reuse_score(reuse, &hot[i], 1);
        float o = fb_reuse_score(reuse, &once[i], 1);

        worst_hot = h < worst_hot ? h : worst_hot;
        best_once = o > best_once ? o : best_once;
    }
    assert_true(worst_hot > 2 * best_once);
    fb_reuse_destroy(reuse);
}

/* Without a model the younger, the smaller and the more often used is better. */
static void test_before_training(void **state)
{
    struct fb_reuse *reuse = make(CACHED);
    struct fb_reuse_meta old = {0};
    struct fb_reuse_meta young = {0};
    struct fb_reuse_meta used = {0};

    (void)state;
    fb_reuse_miss(reuse, 1, 10, &old);
    fb_reuse_miss(reuse, 2, 10, &used);
    fb_reuse_hit(reuse, 2, 10, &used);
    fb_reuse_miss(reuse, 3, 10, &young);
    assert_true(fb_reuse_score(reuse, &young, 10) > fb_reuse_score(reuse, &old, 10));
    assert_true(fb_reuse_score(reuse, &old, 10) > fb_reuse_score(reuse, &old, 20));
    assert_true(fb_reuse_score(reuse, &used, 10) > fb_reuse_score(reuse, &old, 10));
    assert_int_equal(fb_reuse_trainings(reuse), 0);
    fb_reuse_destroy(reuse);
}

/* A ghost gives its history back, once; a stranger has none. */
static void test_ghosts(void **state)
{
    struct fb_reuse *reuse = make(CACHED);
    struct fb_reuse_meta hot[HOT] = {0};
    struct fb_reuse_meta once[HOT] = {0};
    struct fb_reuse_meta back = {0};
    unsigned found = 0;

    (void)state;
    replay(reuse, hot, once, 1);
    for (unsigned i = 0; i < HOT; i++)
        fb_reuse_evicted(reuse, CACHED, fb_mix64(1 + i), &hot[i]);
    for (unsigned i = 0; i < HOT; i++) {
        fb_reuse_miss(reuse, fb_mix64(1 + i), 1, &back);
        found += back.history >> 6 == 3;
    }
    assert_true(found > HOT * 9 / 10); /* a full bucket loses its oldest */
    found = 0;
    for (unsigned i = 0; i < HOT; i++) {
        fb_reuse_miss(reuse, fb_mix64(5000000 + i), 1, &back);
        found += back.history != 0;
    }
    assert_true(found < HOT / 20);
    fb_reuse_destroy(reuse);
}

/* Nothing ever comes back. It learns that of the ages that it has seen, and what is older than
 * anything it has seen is worth the most: in a loop that is what comes next. */
static void test_nothing_comes_back(void **state)
{
    struct fb_reuse *reuse = make(CACHED);
    struct fb_reuse_meta first = {0};
    struct fb_reuse_meta meta = {0};

    (void)state;
    fb_reuse_miss(reuse, fb_mix64(1), 1, &first);
    for (uint64_t i = 2; i < CACHED + 2; i++)
        fb_reuse_miss(reuse, fb_mix64(i), 1, &meta);
    assert_true(fb_reuse_score(reuse, &first, 1) < fb_reuse_score(reuse, &meta, 1));
    assert_int_equal(fb_reuse_train(reuse, CACHED), 0);
    assert_int_equal(fb_reuse_trainings(reuse), 1);
    assert_true(fb_reuse_score(reuse, &first, 1) > fb_reuse_score(reuse, &meta, 1));
    fb_reuse_destroy(reuse);
}

/* What a cache holds can become more, as a disk fills up behind DRAM: so do the ghosts. */
static void test_grows(void **state)
{
    struct fb_reuse *reuse = make(100 * CACHED);
    struct fb_reuse_meta once = {0, 0x40};
    struct fb_reuse_meta meta = {0};
    size_t before;
    unsigned found = 0;

    (void)state;
    for (uint64_t i = 1; i < CACHED; i++)
        fb_reuse_miss(reuse, fb_mix64(i), 1, &meta);
    assert_int_equal(fb_reuse_train(reuse, CACHED), 0);
    before = fb_reuse_bytes(reuse);
    assert_int_equal(fb_reuse_train(reuse, 100 * CACHED), 0);
    assert_true(fb_reuse_bytes(reuse) > before + CACHED * 160);
    for (uint64_t i = CACHED; i < 100 * CACHED; i++)
        fb_reuse_miss(reuse, fb_mix64(i), 1, &meta);
    once.last = fb_reuse_now(reuse);
    for (uint64_t i = 1; i < 100 * CACHED; i++)
        fb_reuse_evicted(reuse, 100 * CACHED, fb_mix64(i), &once);
    for (uint64_t i = 1; i < 100 * CACHED; i++) {
        fb_reuse_miss(reuse, fb_mix64(i), 1, &meta);
        found += meta.history >> 6 == 2;
    }
    /* Buckets are filled by lot: some overflow. */
    assert_true(found > 70 * CACHED);
    fb_reuse_destroy(reuse);
}

static void check_bytes(const struct fb_reuse *reuse, uint64_t cached)
{
    uint64_t metas = cached * sizeof(struct fb_reuse_meta);

    assert_true(metas + fb_reuse_ghost_bytes(reuse) <= 5 * cached);
}

/* With its 3 bytes of meta an object takes 5 at most, ghosts and all, whatever becomes of the
 * cache; and one that holds somewhat less than before still knows who has left. */
static void test_bytes(void **state)
{
    struct fb_reuse *reuse = make(10 * CACHED);
    struct fb_reuse_meta once = {0, 0x40};
    struct fb_reuse_meta meta = {0};
    unsigned found = 0;

    (void)state;
    for (uint64_t i = 1; i < 10 * CACHED; i++)
        fb_reuse_miss(reuse, fb_mix64(i), 1, &meta);
    assert_int_equal(fb_reuse_train(reuse, 10 * CACHED), 0);
    once.last = fb_reuse_now(reuse);
    for (uint64_t left = 10 * CACHED - 1; left > 8 * CACHED; left--) {
        fb_reuse_evicted(reuse, left, fb_mix64(left), &once);
        check_bytes(reuse, left);
    }
    for (uint64_t i = 8 * CACHED + 1; i < 10 * CACHED; i++) {
        fb_reuse_miss(reuse, fb_mix64(i), 1, &meta);
        found += meta.history >> 6 == 2;
    }
    assert_in_range(found, 8 * CACHED / 5, 2 * CACHED);
    for (uint64_t left = 8 * CACHED; left > 0; left--) {
        fb_reuse_evicted(reuse, left, fb_mix64(left), &once);
        check_bytes(reuse, left);
    }
    for (uint64_t grown = 1; grown < 10 * CACHED; grown += CACHED / 7) {
        fb_reuse_evicted(reuse, grown, fb_mix64(grown), &once);
        check_bytes(reuse, grown);
        assert_int_equal(fb_reuse_train(reuse, grown), 0);
        check_bytes(reuse, grown);
    }
    fb_reuse_destroy(reuse);
}

/* A ghost knows how long ago its object was asked for: from its age when it left, and from its
 * place in the queue of its bucket. */
static void test_ghost_gaps(void **state)
{
    struct fb_reuse *reuse = make(CACHED);
    struct fb_reuse_meta meta = {0};
    unsigned soon = 0;
    unsigned late = 0;

    (void)state;
    for (uint64_t i = 1; i <= 3 * CACHED; i++) {
        fb_reuse_miss(reuse, fb_mix64(i), 1, &meta);
        if (i == CACHED)
            assert_int_equal(fb_reuse_train(reuse, CACHED), 0);
        if (i > CACHED) /* asked for CACHED requests ago */
            fb_reuse_evicted(reuse, CACHED, fb_mix64(i - CACHED),
                             &(struct fb_reuse_meta){(uint16_t)((i - CACHED) >> 1), 0});
    }
    for (uint64_t i = 0; i < 100; i++) {
        fb_reuse_miss(reuse, fb_mix64(2 * CACHED - i), 1, &meta);
        soon += meta.history >> 6 == 1 && (meta.history >> 3 & 7) <= 4; /* below 2 R */
        fb_reuse_miss(reuse, fb_mix64(CACHED + 200 - i), 1, &meta);
        late += meta.history >> 6 == 1 && (meta.history >> 3 & 7) >= 4;
    }
    assert_true(soon > 80 && late > 20);
    fb_reuse_destroy(reuse);
}

/* How many requests after a training the next is due; half of them are for hot objects, or none. */
static unsigned until_due(bool drifts)
{
    struct fb_reuse *reuse = make(CACHED);
    struct fb_reuse_meta hot[HOT] = {0};
    struct fb_reuse_meta once[HOT] = {0};
    unsigned i;

    replay(reuse, hot, once, 1);
    assert_int_equal(fb_reuse_train(reuse, CACHED), 0);
    for (i = 0; !fb_reuse_due(reuse) && i < REQUESTS; i++) {
        if (i % 2 == 0 && !drifts)
            fb_reuse_hit(reuse, fb_mix64(1 + i / 2 % HOT), 1, &hot[i / 2 % HOT]);
        else
            fb_reuse_miss(reuse, fb_mix64(2000000 + i), 1, &once[i / 2 % HOT]);
    }
    fb_reuse_destroy(reuse);
    return i;
}

/* When what was popular is not any more, it learns anew at once. */
static void test_drift(void **state)
{
    (void)state;
    assert_in_range(until_due(true), 1, 1000);
    assert_in_range(until_due(false), 2000, REQUESTS - 1);
}

/* Times come round after 65,536 units: an object is as old as it is for 256 R at least. */
static void test_time(void **state)
{
    for (uint64_t objects = 1; objects <= 1u << 20; objects *= 64) {
        struct fb_reuse *reuse = make(objects);
        struct fb_reuse_meta meta = {0};
        uint16_t begin;

        (void)state;
        fb_reuse_miss(reuse, 1, 1, &meta);
        begin = fb_reuse_now(reuse);
        for (uint64_t i = 0; i < 2 * objects && i < 300000; i++)
            fb_reuse_miss(reuse, 0, 1, &meta);
        assert_true((uint16_t)(fb_reuse_now(reuse) - begin) <= 512);
        fb_reuse_destroy(reuse);
    }
}

/* What another rule keeps is worth more than anything; what was not asked for yet begins its
 * history with the first request, however long it has been there. */
static void test_marks(void **state)
{
    struct fb_reuse *reuse = make(CACHED);
    struct fb_reuse_meta hot[HOT] = {0};
    struct fb_reuse_meta once[HOT] = {0};
    struct fb_reuse_meta held = {.history = FB_REUSE_HELD};
    struct fb_reuse_meta pinned = {.history = FB_REUSE_PINNED};
    struct fb_reuse_meta fresh = {.history = FB_REUSE_FRESH};

    (void)state;
    replay(reuse, hot, once, 1);
    assert_true(fb_reuse_score(reuse, &held, 1) < fb_reuse_score(reuse, &pinned, 2));
    for (unsigned i = 0; i < HOT; i++)
        assert_true(fb_reuse_score(reuse, &hot[i], 2) < fb_reuse_score(reuse, &held, 2));
    fresh.last = once[0].last;
    assert_float_equal(fb_reuse_score(reuse, &fresh, 1), fb_reuse_score(reuse, &once[0], 1), 0);
    fb_reuse_hit(reuse, 77, 1, &fresh);
    assert_int_equal(fresh.history, 0);
    assert_int_equal(fresh.last, fb_reuse_now(reuse));
    fb_reuse_hit(reuse, 78, 1, &held);
    assert_int_equal(held.history, 0);
    fb_reuse_destroy(reuse);
}

/* It knows more than the age alone would tell, of what it had not seen. */
static void test_quality(void **state)
{
    struct fb_reuse *reuse = make(CACHED);
    struct fb_reuse_meta hot[HOT] = {0};
    struct fb_reuse_meta once[HOT] = {0};
    struct fb_reuse_quality q;

    (void)state;
    fb_reuse_quality(reuse, &q);
    assert_float_equal(q.observations, 0, 0);
    replay(reuse, hot, once, 1);
    fb_reuse_quality(reuse, &q);
    assert_true(q.observations > 1000);
    assert_true(q.loss > 0 && q.loss < 0.5 * q.loss_by_age);
    fb_reuse_destroy(reuse);
}

static uint8_t *saved_of(const struct fb_reuse *reuse, size_t *ret_size)
{
    uint8_t *bytes = malloc(fb_reuse_saved_bytes(reuse));

    assert_non_null(bytes);
    *ret_size = fb_reuse_saved_bytes(reuse);
    fb_reuse_save(reuse, bytes);
    return bytes;
}

static void test_restart(void **state)
{
    struct fb_reuse *before = make(CACHED), *after = make(CACHED);
    struct fb_reuse_meta hot[HOT] = {0};
    struct fb_reuse_meta once[HOT] = {0};
    FB_AUTO_FREE uint8_t *bytes = NULL;
    size_t size;
    uint16_t now;

    (void)state;
    replay(before, hot, once, 1);
    now = fb_reuse_now(before);
    bytes = saved_of(before, &size);
    assert_int_equal(fb_reuse_load(after, bytes, size), 0);
    assert_int_equal(fb_reuse_trainings(after), fb_reuse_trainings(before));
    assert_int_equal(fb_reuse_requests(after), fb_reuse_requests(before));
    assert_int_equal(fb_reuse_now(after), 0);
    /* The same model, though other observations may have been counted since its training. */
    for (unsigned i = 0; i < HOT; i++) {
        struct fb_reuse_meta h = {(uint16_t)(hot[i].last - now), hot[i].history};
        struct fb_reuse_meta o = {(uint16_t)(once[i].last - now), once[i].history};

        assert_true(fb_reuse_score(after, &h, 1) > 2 * fb_reuse_score(after, &o, 1));
    }
    /* It goes on learning. */
    replay(after, hot, once, 1);
    assert_true(fb_reuse_trainings(after) > fb_reuse_trainings(before));
    fb_reuse_destroy(before);
    fb_reuse_destroy(after);
}

/* Whatever is wrong with what was saved: it is refused, or harmless. */
static void test_damage(void **state)
{
    struct fb_reuse *before = make(CACHED);
    struct fb_reuse_meta hot[HOT] = {0};
    struct fb_reuse_meta once[HOT] = {0};
    FB_AUTO_FREE uint8_t *bytes = NULL;
    struct fb_reuse *other;
    struct fb_rand lot = {4};
    size_t size;

    (void)state;
    replay(before, hot, once, 1);
    bytes = saved_of(before, &size);
    other = make(CACHED * 10);
    assert_int_equal(fb_reuse_load(other, bytes, size), -EINVAL);
    assert_int_equal(fb_reuse_trainings(other), 0);
    fb_reuse_destroy(other);
    for (unsigned i = 0; i < 60; i++) {
        size_t at = fb_rand_below(&lot, i % 2 ? 128 : size);
        uint8_t was = bytes[at];

        bytes[at] ^= (uint8_t)(1 << fb_rand_below(&lot, 8));
        other = make(CACHED);
        if (fb_reuse_load(other, bytes, size) == 0)
            assert_true(fb_reuse_score(other, &hot[0], 1) >= 0);
        fb_reuse_destroy(other);
        bytes[at] = was;
    }
    other = make(CACHED);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(fb_reuse_load(other, bytes, fb_rand_below(&lot, size)), -EINVAL);
    fb_reuse_destroy(other);
    fb_reuse_destroy(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hot_and_once), cmocka_unit_test(test_before_training),
        cmocka_unit_test(test_ghosts),       cmocka_unit_test(test_nothing_comes_back),
        cmocka_unit_test(test_marks),        cmocka_unit_test(test_quality),
        cmocka_unit_test(test_restart),      cmocka_unit_test(test_damage),
        cmocka_unit_test(test_grows),        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_ghost_gaps),   cmocka_unit_test(test_time),
        cmocka_unit_test(test_drift),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
