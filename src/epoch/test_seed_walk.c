#include <cmocka.h>
#include <stdlib.h>

#include "base/rand.h"
#include "epoch/generator.h"
#include "epoch/seed_walk.h"

#define FILES_MAX 3000

/* Where a seed puts the files, by shuffling. */
static void shuffle(uint32_t seed, bool is_nested, uint32_t n, uint32_t offset, uint32_t *place)
{
    static uint32_t order[FILES_MAX];
    struct fb_mt19937 mt;

    fb_mt19937_seed(&mt, seed);
    if (is_nested) {
        fb_mt19937_skip(&mt, 3);
        fb_mt19937_seed(&mt, fb_mt19937_u32(&mt));
    }
    fb_mt19937_skip(&mt, offset);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t to = i + fb_mt19937_u32(&mt) % (n - i);
        uint32_t file = order[to];

        order[to] = order[i];
        order[i] = file;
        place[file] = i;
    }
}

/* All seeds of a block, two files at random; each at every level. */
static void check_walk(enum fb_scan_level level, struct fb_rand *rand, uint32_t n, uint32_t steps,
                       uint32_t offset)
{
    static uint32_t place[FILES_MAX];
    uint32_t seed = (uint32_t)fb_rand_below(rand, UINT32_MAX);
    struct fb_walked walked;
    struct fb_walk w;

    assert_int_equal(fb_walk_open(&w, n, steps, offset), 0);
    w.is_nested = seed % 2 == 0;
    w.apart = n;
    for (uint32_t f = 0; f < FB_WALK_FILES; f++)
        w.files[f] = (uint32_t)fb_rand_below(rand, n);
    fb_walk_run(&w, level, seed, &walked);
    for (uint32_t i = 0; i < FB_WALK_BLOCK; i++) {
        shuffle(seed + i, w.is_nested, n, offset, place);
        for (uint32_t f = 0; f < FB_WALK_FILES; f++) {
            uint32_t right = place[w.files[f]];

            assert_int_equal(walked.positions[f][i], right < steps ? right : FB_WALK_NOWHERE);
        }
    }
    fb_walk_close(&w);
}

static void test_positions(void **state)
{
    struct fb_rand rand = {7};

    (void)state;
    for (unsigned level = 0; level <= fb_scan_best(); level++) {
        for (unsigned i = 0; i < 50; i++) {
            uint32_t n = 2 + (uint32_t)fb_rand_below(&rand, FILES_MAX - 1);

            check_walk((enum fb_scan_level)level, &rand, n, n, i % 3);
            check_walk((enum fb_scan_level)level, &rand, n, n / 2, i % 3);
        }
        check_walk((enum fb_scan_level)level, &rand, 1, 1, 0);
        check_walk((enum fb_scan_level)level, &rand, 2048, 2048, 2);
    }
}

/* A second file farther behind than is asked for may be found or not; one that is not, is. */
static void test_apart(void **state)
{
    static uint32_t place[FILES_MAX];
    struct fb_rand rand = {8};
    struct fb_walk w;

    (void)state;
    assert_int_equal(fb_walk_open(&w, FILES_MAX, FILES_MAX, 0), 0);
    w.apart = 64;
    for (unsigned i = 0; i < 50; i++) {
        uint32_t lane = i % FB_WALK_BLOCK;
        struct fb_walked walked;

        shuffle(100 * i + lane, false, FILES_MAX, 0, place);
        w.files[0] = (uint32_t)fb_rand_below(&rand, FILES_MAX);
        for (w.files[1] = 0; place[w.files[1]] != (place[w.files[0]] + 64) % FILES_MAX;)
            w.files[1]++;
        fb_walk_run(&w, fb_scan_best(), 100 * i, &walked);
        for (uint32_t f = 0; f < FB_WALK_FILES; f++)
            assert_int_equal(walked.positions[f][lane], place[w.files[f]]);
    }
    fb_walk_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
