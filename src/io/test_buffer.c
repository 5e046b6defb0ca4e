#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "core/mem.h"
#include "core/thread.h"
#include "io/buffer.h"

#define COUNT 8

struct request {
    struct fb_buffer_wait wait;
    struct fb_buffer *buffers[COUNT];
    unsigned *order;
    unsigned served; /* 0: not yet, else when */
    bool give_up;
};

static void put_all(struct request *r)
{
    for (uint32_t i = 0; i < r->wait.count; i++)
        fb_buffer_put(r->buffers[i]);
}

static void ready(struct fb_buffer_wait *wait)
{
    struct request *r = FB_CONTAINER_OF(wait, struct request, wait);

    r->served = ++*r->order;
    if (r->give_up)
        put_all(r);
}

static void request_init(struct request *r, unsigned *order)
{
    *r = (struct request){.order = order, .wait.ready = ready};
    fb_list_init(&r->wait.link);
}

static int set_up(void **state)
{
    return fb_buffer_pool_create(COUNT, 10000, (struct fb_buffer_pool **)state);
}

static int tear_down(void **state)
{
    struct fb_buffer_pool *pool = *state;

    assert_int_equal(fb_buffer_pool_free(pool), COUNT);
    fb_buffer_pool_destroy(pool);
    return 0;
}

static void test_bounded_and_aligned(void **state)
{
    struct fb_buffer_pool *pool = *state;
    struct fb_buffer *b[COUNT];

    assert_int_equal(fb_buffer_pool_count(pool), COUNT);
    for (int i = 0; i < COUNT; i++) {
        b[i] = fb_buffer_get(pool);
        assert_non_null(b[i]);
        assert_int_equal(b[i]->size, 12288);
        assert_int_equal((uintptr_t)b[i]->data % FB_IO_ALIGN, 0);
        memset(b[i]->data, i, b[i]->size);
    }
    assert_null(fb_buffer_get(pool));
    assert_int_equal(fb_buffer_pool_free(pool), 0);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(b[i]->data[0], i);
        assert_int_equal(b[i]->data[b[i]->size - 1], i);
        fb_buffer_put(b[i]);
    }
    fb_buffer_put(NULL);
}

static void test_references(void **state)
{
    struct fb_buffer_pool *pool = *state;
    struct fb_buffer *b = fb_buffer_get(pool);

    assert_ptr_equal(fb_buffer_ref(b), b);
    fb_buffer_put(b);
    assert_int_equal(fb_buffer_pool_free(pool), COUNT - 1);
    fb_buffer_put(b);
}

static void test_first_come_first_served(void **state)
{
    struct fb_buffer_pool *pool = *state;
    struct fb_buffer *b[COUNT];
    struct request large;
    struct request small;
    unsigned order = 0;

    request_init(&large, &order);
    request_init(&small, &order);
    assert_true(fb_buffer_get_many(pool, NULL, COUNT - 1, b, NULL));
    assert_false(fb_buffer_get_many(pool, NULL, 3, large.buffers, &large.wait));
    /* One is free, but the small one came later. */
    assert_false(fb_buffer_get_many(pool, NULL, 1, small.buffers, &small.wait));
    assert_null(fb_buffer_get(pool));
    fb_buffer_put(b[0]);
    assert_int_equal(order, 0);
    fb_buffer_put(b[1]);
    assert_int_equal(large.served, 1);
    assert_int_equal(small.served, 0);
    fb_buffer_put(b[2]);
    assert_int_equal(small.served, 2);
    for (int i = 3; i < COUNT - 1; i++)
        fb_buffer_put(b[i]);
    put_all(&large);
    put_all(&small);
}

static void test_cancel(void **state)
{
    struct fb_buffer_pool *pool = *state;
    struct fb_buffer *b[COUNT];
    struct request large;
    struct request small;
    unsigned order = 0;

    request_init(&large, &order);
    request_init(&small, &order);
    assert_false(fb_buffer_cancel(pool, &large.wait));
    assert_true(fb_buffer_get_many(pool, NULL, COUNT - 1, b, NULL));
    assert_false(fb_buffer_get_many(pool, NULL, 3, large.buffers, &large.wait));
    assert_false(fb_buffer_get_many(pool, NULL, 1, small.buffers, &small.wait));
    assert_true(fb_buffer_cancel(pool, &large.wait));
    assert_int_equal(small.served, 0);
    fb_buffer_serve(pool);
    assert_int_equal(small.served, 1);
    assert_int_equal(large.served, 0);
    assert_false(fb_buffer_cancel(pool, &large.wait));
    assert_false(fb_buffer_cancel(pool, &small.wait));
    for (int i = 0; i < COUNT - 1; i++)
        fb_buffer_put(b[i]);
    put_all(&small);
}

/* So many that a recursion would not fit into the stack. */
static void test_long_line_that_gives_up(void **state)
{
    enum {
        LINE = 200000,
    };
    struct fb_buffer_pool *pool = *state;
    struct request *line = fb_alloc_array(LINE, sizeof *line);
    struct fb_buffer *b[COUNT];
    unsigned order = 0;

    assert_non_null(line);
    assert_true(fb_buffer_get_many(pool, NULL, COUNT, b, NULL));
    for (unsigned i = 0; i < LINE; i++) {
        request_init(&line[i], &order);
        line[i].give_up = true;
        assert_false(fb_buffer_get_many(pool, NULL, 1 + i % 2, line[i].buffers, &line[i].wait));
    }
    for (int i = 0; i < COUNT; i++)
        fb_buffer_put(b[i]);
    assert_int_equal(order, LINE);
    assert_int_equal(line[LINE - 1].served, LINE);
    free(line);
}

struct worker {
    pthread_t thread;
    struct fb_buffer_pool *pool;
    uint64_t seed;
};

struct turn {
    struct fb_buffer_wait wait;
    _Atomic bool ready;
};

static void turn_ready(struct fb_buffer_wait *wait)
{
    atomic_store_explicit(&FB_CONTAINER_OF(wait, struct turn, wait)->ready, true,
                          memory_order_release);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct fb_rand rand = {w->seed};

    for (int i = 0; i < 2000; i++) {
        struct fb_buffer *b[COUNT];
        struct turn turn = {.wait.ready = turn_ready};
        uint32_t count = 1 + (uint32_t)fb_rand_below(&rand, COUNT);

        fb_list_init(&turn.wait.link);
        if (!fb_buffer_get_many(w->pool, NULL, count, b, &turn.wait)) {
            if (fb_rand_below(&rand, 4) == 0 && fb_buffer_cancel(w->pool, &turn.wait)) {
                fb_buffer_serve(w->pool);
                continue;
            }
            /* Pairs with turn_ready's release. */
            while (!atomic_load_explicit(&turn.ready, memory_order_acquire))
                sched_yield();
        }
        for (uint32_t n = 0; n < count; n++)
            *(uint64_t *)b[n]->data = w->seed;
        for (uint32_t n = 0; n < count; n++) {
            assert_int_equal(*(uint64_t *)b[n]->data, w->seed);
            fb_buffer_put(b[n]);
        }
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    struct worker workers[4];

    for (unsigned i = 0; i < FB_ARRAY_SIZE(workers); i++) {
        workers[i].pool = *state;
        workers[i].seed = i + 1;
        assert_int_equal(fb_thread_start(&workers[i].thread, "worker", work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < FB_ARRAY_SIZE(workers); i++)
        pthread_join(workers[i].thread, NULL);
}

/* A party that keeps what it has must not keep others from theirs, nor overtake itself. */
static void test_accounts(void **state)
{
    struct fb_buffer_pool *pool = *state;
    struct fb_buffer_account *a = fb_buffer_account_open(pool, 3);
    struct fb_buffer_account *b = fb_buffer_account_open(pool, 3);
    struct fb_buffer *held[2];
    struct request two, one, other;
    unsigned order = 0;

    assert_non_null(a);
    assert_non_null(b);
    request_init(&two, &order);
    request_init(&one, &order);
    request_init(&other, &order);
    assert_true(fb_buffer_get_many(pool, a, 2, held, NULL));
    assert_false(fb_buffer_get_many(pool, a, 2, two.buffers, &two.wait));
    assert_false(fb_buffer_get_many(pool, a, 1, one.buffers, &one.wait));
    assert_false(fb_buffer_get_many(pool, b, 2, other.buffers, &other.wait));
    fb_buffer_serve(pool);
    assert_int_equal(other.served, 1); /* the other party is not held up */
    assert_int_equal(one.served, 0);   /* it would fit, but stands behind one of its own */
    fb_buffer_put(held[0]);
    assert_int_equal(two.served, 2);
    assert_int_equal(one.served, 0);
    fb_buffer_account_close(pool, a); /* what is out may come back later */
    fb_buffer_put(held[1]);
    assert_int_equal(one.served, 3);
    put_all(&two);
    put_all(&one);
    put_all(&other);
    fb_buffer_account_close(pool, b);
    assert_int_equal(fb_buffer_pool_free(pool), COUNT);
}

/* Memory that is still written to stays until it is freed, and its buffer has other meanwhile. */
static void test_exchange(void **state)
{
    struct fb_buffer_pool *pool;
    struct fb_buffer *b;
    uint8_t *first, *second;

    (void)state;
    assert_int_equal(fb_buffer_pool_create(2, 5000, &pool), 0);
    b = fb_buffer_get(pool);
    assert_non_null(b);
    first = fb_buffer_exchange(b, fb_buffer_memory_new(b->size));
    assert_ptr_not_equal(first, b->data);
    assert_int_equal((uintptr_t)b->data % FB_IO_ALIGN, 0);
    memset(first, 1, b->size);
    memset(b->data, 2, b->size);
    assert_int_equal(first[0], 1);
    second = fb_buffer_exchange(b, fb_buffer_memory_new(b->size));
    assert_int_equal(second[b->size - 1], 2);
    fb_buffer_memory_free(pool, second, b->size);
    fb_buffer_memory_free(pool, first, b->size);
    memset(b->data, 3, b->size);
    fb_buffer_put(b);
    assert_int_equal(fb_buffer_pool_free(pool), 2);
    fb_buffer_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bounded_and_aligned, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_references, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_first_come_first_served, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cancel, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_accounts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_long_line_that_gives_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_threads, set_up, tear_down),
        cmocka_unit_test(test_exchange),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
