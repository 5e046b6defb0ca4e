#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "proto/access.h"

#define SLOTS     64u
#define PRODUCERS 4u
#define EACH      20000u

static struct fb_access_ring *make(struct fb_access_reader *ret_reader)
{
    struct fb_access_ring *ring =
        aligned_alloc(FB_CACHELINE, fb_align_up(fb_access_ring_bytes(SLOTS), FB_CACHELINE));

    assert_non_null(ring);
    fb_access_ring_init(ring, SLOTS);
    fb_access_reader_init(ret_reader, ring, SLOTS);
    return ring;
}

static void in_order_and_bounded(void **state)
{
    struct fb_access_reader reader;
    struct fb_access_ring *ring = make(&reader);
    struct fb_access got;

    (void)state;
    assert_false(fb_access_pop(&reader, &got));
    for (int round = 0; round < 5; round++) {
        for (uint64_t i = 0; i < SLOTS; i++)
            assert_true(fb_access_push(ring, &(struct fb_access){.key = i + 1}));
        assert_false(fb_access_push(ring, &(struct fb_access){.key = 999}));
        assert_int_equal(atomic_load(&ring->dropped), round + 1);
        for (uint64_t i = 0; i < SLOTS; i++) {
            assert_true(fb_access_pop(&reader, &got));
            assert_int_equal(got.key, i + 1);
        }
        assert_false(fb_access_pop(&reader, &got));
    }
    free(ring);
}

/* Some slots are left to records that matter more. */
static void a_part_may_be_spared(void **state)
{
    struct fb_access_reader reader;
    struct fb_access_ring *ring = make(&reader);
    struct fb_access got;
    unsigned pushed = 0;

    (void)state;
    for (int round = 0; round < 3; round++) {
        for (; !fb_access_full(ring, SLOTS / 4); pushed++)
            assert_true(fb_access_push(ring, &(struct fb_access){.key = 1}));
        assert_int_equal(pushed, SLOTS - SLOTS / 4);
        for (; !fb_access_full(ring, 0); pushed++)
            assert_true(fb_access_push(ring, &(struct fb_access){.key = 2}));
        assert_int_equal(pushed, SLOTS);
        for (; pushed > 0; pushed--)
            assert_true(fb_access_pop(&reader, &got));
    }
    assert_int_equal(atomic_load(&ring->dropped), 0);
    free(ring);
}

/* A producer killed between claiming a slot and filling it must not stop the ring. */
static void a_dead_producer_is_passed_over(void **state)
{
    struct fb_access_reader reader;
    struct fb_access_ring *ring = make(&reader);
    struct fb_access got;

    (void)state;
    atomic_fetch_add(&ring->tail, 1);
    assert_true(fb_access_push(ring, &(struct fb_access){.key = 5}));
    for (int i = 0; i < FB_ACCESS_PATIENCE; i++) {
        assert_false(fb_access_pop(&reader, &got));
        fb_access_pass_dead(&reader);
    }
    assert_true(fb_access_pop(&reader, &got));
    assert_int_equal(got.key, 5);
    /* The slot serves again in the next round. */
    for (uint64_t i = 0; i < SLOTS; i++)
        assert_true(fb_access_push(ring, &(struct fb_access){.key = i}));
    for (uint64_t i = 0; i < SLOTS; i++)
        assert_true(fb_access_pop(&reader, &got));
    free(ring);
}

struct producer {
    struct fb_access_ring *ring;
    uint64_t id;
    uint64_t pushed;
};

static void *produce(void *arg)
{
    struct producer *p = arg;

    for (uint64_t i = 0; i < EACH; i++)
        p->pushed += fb_access_push(p->ring, &(struct fb_access){.key = p->id, .loc = i});
    return NULL;
}

static void many_producers(void **state)
{
    struct fb_access_reader reader;
    struct fb_access_ring *ring = make(&reader);
    struct producer producers[PRODUCERS];
    pthread_t threads[PRODUCERS];
    uint64_t last[PRODUCERS], seen = 0, pushed = 0;
    struct fb_access got;

    (void)state;
    for (uint64_t i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){.ring = ring, .id = i};
        last[i] = 0;
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    while (seen + atomic_load(&ring->dropped) < PRODUCERS * EACH) {
        if (!fb_access_pop(&reader, &got)) {
            sched_yield();
            continue;
        }
        assert_true(got.key < PRODUCERS);
        assert_true(got.loc + 1 > last[got.key]); /* each producer's records in its order */
        last[got.key] = got.loc + 1;
        seen++;
    }
    for (int i = 0; i < (int)PRODUCERS; i++) {
        pthread_join(threads[i], NULL);
        pushed += producers[i].pushed;
    }
    assert_int_equal(seen, pushed);
    free(ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order_and_bounded),
        cmocka_unit_test(a_part_may_be_spared),
        cmocka_unit_test(a_dead_producer_is_passed_over),
        cmocka_unit_test(many_producers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
