#include <cmocka.h>
#include <stdlib.h>

#include "base/rand.h"
#include "policy/turns.h"

#define ITEMS 5000

static uint32_t counts[ITEMS];

static void read_item(struct fb_turns *turns, uint32_t item)
{
    fb_turns_read(turns, counts[item]++);
}

static void shuffle(uint32_t *a, struct fb_rand *rand)
{
    for (uint32_t i = 0; i < ITEMS; i++)
        a[i] = i;
    for (uint32_t i = ITEMS; i > 1; i--) {
        uint32_t j = (uint32_t)fb_rand_below(rand, i), t = a[j];

        a[j] = a[i - 1];
        a[i - 1] = t;
    }
}

static void forget(void)
{
    for (uint32_t i = 0; i < ITEMS; i++)
        counts[i] = 0;
}

/* From a fifth of the first epoch on, at every moment; and what was not yet read is due. */
static void epochs_take_turns(void **state)
{
    static uint32_t order[2][ITEMS];

    (void)state;
    for (unsigned jobs = 1; jobs <= 2; jobs++) {
        struct fb_turns turns = {0};
        struct fb_rand rand = {jobs};

        forget();
        for (unsigned epoch = 0; epoch < 4; epoch++) {
            for (unsigned j = 0; j < jobs; j++)
                shuffle(order[j], &rand);
            for (uint32_t i = 0; i < ITEMS; i++) {
                for (unsigned j = 0; j < jobs; j++)
                    read_item(&turns, order[j][i]);
                /* Two jobs are told from draws when they have read a good part. */
                if (epoch > 0 || i > ITEMS * jobs / 4)
                    assert_true(fb_turns_taken(&turns, ITEMS));
            }
            if (jobs == 1)
                assert_true(fb_turns_due(&turns) > epoch && fb_turns_due(&turns) < epoch + 1);
        }
    }
}

/* However many epochs there were: a small set has as many turns as a large one. */
static void few_items_go_on(void **state)
{
    struct fb_rand rand = {7};

    (void)state;
    for (uint32_t items = 300; items <= 2400; items *= 2) {
        struct fb_turns turns = {0};

        forget();
        for (unsigned epoch = 0; epoch < 100; epoch++) {
            for (uint32_t i = 0; i < items; i++) {
                /* Any order will do: those that were read are at one end. */
                read_item(&turns, epoch % 2 ? i : items - 1 - i);
                if (epoch > 1)
                    assert_true(fb_turns_taken(&turns, items));
                if (epoch > 1 && i == items * 3 / 4)
                    assert_true(fb_turns_due(&turns) > epoch && fb_turns_due(&turns) <= epoch + 1);
            }
        }
        turns = (struct fb_turns){0};
        forget();
        for (uint32_t i = 0; i < 50 * items; i++) {
            read_item(&turns, (uint32_t)fb_rand_below(&rand, items));
            assert_false(fb_turns_taken(&turns, items));
        }
    }
}

static void draws_do_not(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct fb_turns turns = {0};
        struct fb_rand rand = {seed};

        forget();
        assert_false(fb_turns_taken(&turns, ITEMS));
        for (uint32_t i = 0; i < 8 * ITEMS; i++) {
            read_item(&turns, (uint32_t)fb_rand_below(&rand, ITEMS));
            assert_false(fb_turns_taken(&turns, ITEMS));
        }
    }
    assert_false(fb_turns_taken(&(struct fb_turns){0}, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epochs_take_turns),
        cmocka_unit_test(few_items_go_on),
        cmocka_unit_test(draws_do_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
