#include <cmocka.h>
#include <stdint.h>

#include "base/rand.h"
#include "source/due.h"

#define COUNT  200
#define ROUNDS 20000

static const struct fb_due *model_first(const struct fb_due *nodes)
{
    const struct fb_due *first = NULL;

    for (int i = 0; i < COUNT; i++) {
        if (nodes[i].slot > 0 && (!first || nodes[i].at_ns < first->at_ns))
            first = &nodes[i];
    }
    return first;
}

static void test_against_model(void **state)
{
    struct fb_due nodes[COUNT] = {0};
    struct fb_rand rand = {.state = 1};
    struct fb_due_heap heap;
    uint32_t count = 0;

    (void)state;
    assert_int_equal(fb_due_create(&heap, COUNT), 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct fb_due *node = &nodes[fb_rand_below(&rand, COUNT)];
        const struct fb_due *first;

        if (node->slot == 0) {
            fb_due_add(&heap, node, (int64_t)fb_rand_below(&rand, 1000));
            count++;
        } else {
            fb_due_remove(&heap, node);
            count--;
        }
        first = model_first(nodes);
        assert_int_equal(heap.count, count);
        if (first)
            assert_int_equal(fb_due_first(&heap)->at_ns, first->at_ns);
        else
            assert_null(fb_due_first(&heap));
    }
    fb_due_destroy(&heap);
}

static void test_in_order(void **state)
{
    struct fb_due nodes[COUNT] = {0};
    struct fb_rand rand = {.state = 2};
    struct fb_due_heap heap;
    struct fb_due *first;
    int64_t last = -1;

    (void)state;
    assert_int_equal(fb_due_create(&heap, COUNT), 0);
    for (int i = 0; i < COUNT; i++)
        fb_due_add(&heap, &nodes[i], (int64_t)fb_rand_below(&rand, 50));
    while ((first = fb_due_first(&heap))) {
        assert_true(first->at_ns >= last);
        last = first->at_ns;
        fb_due_remove(&heap, first);
        fb_due_remove(&heap, first); /* in no heap: nothing happens */
    }
    fb_due_destroy(&heap);
    fb_due_destroy(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_model),
        cmocka_unit_test(test_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
