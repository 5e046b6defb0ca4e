/*
 * The vectors were printed by torch 1.13.1, numpy 1.24.2 and Python 3.11.2 (Debian 12);
 * tests/scenarios/plan_orders compares with the libraries themselves, in many more cases.
 */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "epoch/shuffle.h"

#define EPOCHS_MAX 3
#define COUNT_MAX  16

struct vector {
    struct fb_shuffle_spec spec;
    const char *sampler;
    uint32_t expected[EPOCHS_MAX][COUNT_MAX]; /* an epoch of zeros ends it */
};

#define LARGE ((UINT64_C(1) << 40) + 7)

static const struct vector vectors[] = {
    /* torch.randperm(10, generator=torch.Generator().manual_seed(seed)) */
    {{.seed = 0, .count = 10}, "torch-distributed", {{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}}},
    {{.seed = LARGE, .count = 10}, "torch-distributed", {{5, 0, 3, 4, 1, 7, 9, 6, 8, 2}}},
    {{.seed = 0, .count = 10, .rule = FB_EPOCH_FIXED},
     "torch-distributed",
     {{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}, {4, 1, 7, 5, 3, 9, 0, 8, 6, 2}}},
    /* torch.manual_seed(5); DataLoader(range(8), shuffle=True) */
    {{.seed = 5, .count = 8}, "torch-random", {{4, 6, 1, 7, 5, 3, 2, 0}, {5, 3, 7, 1, 2, 0, 4, 6}}},
    /* DataLoader(range(8), shuffle=True, generator=torch.Generator().manual_seed(5)) */
    {{.seed = 5, .count = 8, .generator = FB_TORCH_LOADER},
     "torch-random",
     {{7, 4, 1, 3, 2, 0, 6, 5}, {7, 6, 5, 2, 4, 3, 1, 0}}},
    /* RandomSampler(range(8), generator=torch.Generator().manual_seed(5)) */
    {{.seed = 5, .count = 8, .generator = FB_TORCH_SAMPLER},
     "torch-random",
     {{3, 6, 0, 2, 1, 4, 5, 7}, {6, 3, 5, 1, 7, 0, 4, 2}}},
    /* numpy.random.RandomState(42).permutation(10) */
    {{.seed = 42, .count = 10}, "numpy", {{8, 1, 5, 0, 7, 2, 9, 4, 3, 6}}},
    /* numpy.random.default_rng(seed).permutation(10) */
    {{.seed = 42, .count = 10}, "numpy-generator", {{5, 6, 0, 7, 3, 2, 4, 9, 1, 8}}},
    {{.seed = LARGE, .count = 10}, "numpy-generator", {{6, 2, 8, 7, 9, 3, 4, 1, 5, 0}}},
    /* l = list(range(10)); random.Random(seed).shuffle(l) */
    {{.seed = 42, .count = 10}, "python", {{7, 3, 2, 8, 5, 6, 9, 4, 0, 1}}},
    {{.seed = LARGE, .count = 10}, "python", {{0, 5, 2, 3, 6, 1, 8, 4, 7, 9}}},
    {{.seed = 42, .count = 4}, "sequential", {{0, 1, 2, 3}, {0, 1, 2, 3}}},
};

static void check_vector(const struct vector *v)
{
    static const uint32_t zeros[COUNT_MAX];
    struct fb_shuffle_spec spec = v->spec;
    struct fb_shuffle s;
    uint32_t order[COUNT_MAX];

    spec.sampler = fb_sampler_find(v->sampler);
    assert_non_null(spec.sampler);
    assert_int_equal(fb_shuffle_init(&s, &spec, NULL), 0);
    for (unsigned e = 0; e < EPOCHS_MAX && memcmp(v->expected[e], zeros, sizeof zeros) != 0; e++) {
        fb_shuffle_next(&s, order);
        assert_memory_equal(order, v->expected[e], spec.count * sizeof *order);
    }
}

static void test_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(vectors); i++)
        check_vector(&vectors[i]);
}

/* Whatever the sampler, rule and size: a permutation. */
static void check_permutation(const struct fb_shuffle_spec *spec)
{
    FB_AUTO_FREE uint32_t *order = fb_alloc_array(spec->count, sizeof *order);
    FB_AUTO_FREE unsigned char *seen = fb_alloc(spec->count);
    struct fb_shuffle s;

    assert_non_null(order);
    assert_non_null(seen);
    if (fb_shuffle_init(&s, spec, NULL) != 0)
        return;
    for (unsigned char e = 1; e <= EPOCHS_MAX; e++) {
        fb_shuffle_next(&s, order);
        for (uint32_t i = 0; i < spec->count; i++) {
            assert_true(order[i] < spec->count);
            assert_int_equal(seen[order[i]], e - 1);
            seen[order[i]] = e;
        }
    }
}

static void test_permutations(void **state)
{
    static const uint32_t counts[] = {1, 2, 3, 625, 2000};

    (void)state;
    for (const struct fb_sampler *const *s = fb_samplers; *s; s++) {
        for (unsigned rule = FB_EPOCH_USUAL; rule <= FB_EPOCH_FIXED; rule++) {
            for (size_t i = 0; i < FB_ARRAY_SIZE(counts); i++)
                check_permutation(&(struct fb_shuffle_spec){.sampler = *s,
                                                            .seed = 3,
                                                            .count = counts[i],
                                                            .rule = (enum fb_epoch_rule)rule});
        }
    }
}

static void test_rules(void **state)
{
    struct fb_shuffle_spec spec = {.sampler = fb_sampler_find("numpy"), .seed = 1, .count = 100};
    uint32_t first[100], again[100], other[100];
    struct fb_shuffle s;

    (void)state;
    assert_int_equal(fb_shuffle_init(&s, &spec, NULL), 0);
    fb_shuffle_next(&s, first);
    fb_shuffle_next(&s, again);
    assert_memory_not_equal(first, again, sizeof first);

    /* What is shuffled again is what the second permutation picks from the first. */
    spec.rule = FB_EPOCH_RESHUFFLE;
    assert_int_equal(fb_shuffle_init(&s, &spec, NULL), 0);
    fb_shuffle_next(&s, other);
    fb_shuffle_next(&s, other);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(other[i], first[again[i]]);

    /* Epoch 1 of one seed is epoch 0 of the next. */
    spec.rule = FB_EPOCH_RESEED;
    assert_int_equal(fb_shuffle_init(&s, &spec, NULL), 0);
    fb_shuffle_next(&s, other);
    assert_memory_equal(other, first, sizeof first);
    fb_shuffle_next(&s, other);
    spec.seed = 2;
    assert_int_equal(fb_shuffle_init(&s, &spec, NULL), 0);
    fb_shuffle_next(&s, first);
    assert_memory_equal(other, first, sizeof first);
}

static void test_refusals(void **state)
{
    struct fb_shuffle_spec spec = {
        .sampler = fb_sampler_find("torch-random"), .count = 10, .rule = FB_EPOCH_RESHUFFLE};
    struct fb_error error = {""};
    struct fb_shuffle s;

    (void)state;
    assert_true(fb_shuffle_init(&s, &spec, &error) < 0);
    assert_non_null(strstr(error.text, "torch-random"));
    spec = (struct fb_shuffle_spec){.sampler = fb_sampler_find("numpy"), .seed = LARGE};
    assert_true(fb_shuffle_init(&s, &spec, NULL) < 0);
    assert_null(fb_sampler_find("torch"));
}

/* Skipping is drawing. */
static void test_skip(void **state)
{
    static const uint64_t counts[] = {0, 1, 623, 624, 625, 5000, 0, 624};
    struct fb_mt19937 a, b;

    (void)state;
    fb_mt19937_seed(&a, 9);
    fb_mt19937_seed(&b, 9);
    for (size_t i = 0; i < FB_ARRAY_SIZE(counts); i++) {
        fb_mt19937_skip(&a, counts[i]);
        for (uint64_t j = 0; j < counts[i]; j++)
            (void)fb_mt19937_u32(&b);
        assert_int_equal(fb_mt19937_u32(&a), fb_mt19937_u32(&b));
    }
}

/* The table and the list of its names are one. */
static void test_names(void **state)
{
    const char *names = FB_SAMPLER_NAMES;

    (void)state;
    for (const struct fb_sampler *const *s = fb_samplers; *s; s++) {
        size_t len = strcspn(names, "|");

        assert_int_equal(len, strlen((*s)->name));
        assert_memory_equal(names, (*s)->name, len);
        names += len + (names[len] == '|');
    }
    assert_int_equal(*names, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_permutations),
        cmocka_unit_test(test_rules),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_skip),    cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
