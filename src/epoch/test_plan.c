#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "epoch/plan.h"

#define FILES 1003

static struct fb_names *make_names(bool with_sizes)
{
    struct fb_names *names = fb_names_new();
    char path[32];

    assert_non_null(names);
    for (uint32_t i = 0; i < FILES; i++) {
        int len = snprintf(path, sizeof path, "%u/%u", i / 100, i);

        assert_int_equal(fb_names_add_path(names, path, (size_t)len,
                                           with_sizes ? 100 + i % 7 : FB_NAMES_NO_SIZE),
                         0);
    }
    assert_int_equal(fb_names_index(names), 0);
    return names;
}

static struct fb_plan_spec make_spec(const char *sampler)
{
    return (struct fb_plan_spec){
        .shuffle = {.sampler = fb_sampler_find(sampler), .seed = 5},
        .split = {.world = 3, .rank = 1, .batch = 16, .workers = 2},
    };
}

/* Chunks are the rank's accesses without a gap, each of the right size and in its place. */
static void check_chunks(const struct fb_plan *p, const struct fb_epoch *e,
                         const struct fb_names *names, uint64_t chunk_bytes)
{
    uint64_t offset = 0;
    uint64_t k = 0;

    for (uint32_t c = 0; c < e->chunk_count; c++) {
        const struct fb_chunk *chunk = &e->chunks[c];
        uint64_t bytes = 0;

        assert_int_equal(chunk->first, k);
        assert_int_equal(chunk->offset, offset);
        for (uint32_t i = 0; i < chunk->count; i++, k++) {
            bytes += fb_names_size(names, fb_plan_file(p, e, k));
            assert_int_equal(fb_plan_chunk(e, k), c);
        }
        assert_int_equal(chunk->bytes, bytes);
        assert_true(!chunk_bytes || chunk->count == 1 || bytes <= chunk_bytes);
        offset += bytes;
    }
    assert_int_equal(k, fb_split_samples(fb_plan_split(p)));
}

/* What the plan says is what the shuffle and the split say, forward and backward. */
static void check_epoch(const struct fb_plan *p, const struct fb_epoch *e, const uint32_t *order)
{
    const struct fb_split *split = fb_plan_split(p);
    uint64_t samples = fb_split_samples(split);
    unsigned found = 0;
    uint64_t k;

    assert_memory_equal(e->order, order, FILES * sizeof *order);
    for (k = 0; k < samples; k++)
        assert_int_equal(fb_plan_file(p, e, k), order[fb_split_position(split, k)]);
    for (uint32_t file = 0; file < FILES; file++) {
        if (fb_plan_access(p, e, file, &k)) {
            assert_int_equal(fb_plan_file(p, e, k), file);
            found++;
        }
    }
    assert_int_equal(found, samples);
}

static void check_plan(const char *sampler, enum fb_epoch_rule rule, uint64_t chunk_bytes)
{
    struct fb_names *names = make_names(chunk_bytes > 0);
    struct fb_plan_spec spec = make_spec(sampler);
    struct fb_shuffle_spec shuffle;
    uint32_t order[FILES];
    struct fb_shuffle s;
    struct fb_plan *p;

    spec.shuffle.rule = rule;
    spec.first_epoch = 2;
    spec.chunk_bytes = chunk_bytes;
    shuffle = spec.shuffle;
    shuffle.count = FILES;
    assert_int_equal(fb_plan_new(&spec, names, &p, NULL), 0);
    assert_int_equal(fb_shuffle_init(&s, &shuffle, NULL), 0);
    for (unsigned i = 0; i < 3; i++)
        fb_shuffle_next(&s, order);
    for (unsigned i = 2; i < 6; i++) {
        assert_int_equal(fb_plan_current(p)->number, i);
        assert_int_equal(fb_plan_next(p)->number, i + 1);
        check_epoch(p, fb_plan_current(p), order);
        fb_shuffle_next(&s, order);
        check_epoch(p, fb_plan_next(p), order);
        check_chunks(p, fb_plan_current(p), names, chunk_bytes);
        check_chunks(p, fb_plan_next(p), names, chunk_bytes);
        assert_int_equal(fb_plan_advance(p), 0);
    }
    fb_plan_free(p);
    fb_names_free(names);
}

static void test_epochs(void **state)
{
    (void)state;
    check_plan("torch-distributed", FB_EPOCH_USUAL, 0);
    check_plan("torch-distributed", FB_EPOCH_USUAL, 1000);
    check_plan("torch-distributed", FB_EPOCH_USUAL, 1);
    check_plan("torch-distributed", FB_EPOCH_USUAL, 1u << 30);
    check_plan("numpy", FB_EPOCH_CONTINUE, 0);
    check_plan("numpy", FB_EPOCH_RESHUFFLE, 500);
}

/* An epoch that does not rest on the one before is there at once, however far away it is; one that
 * does is refused where all before it would take too long. */
static void test_far_epochs(void **state)
{
    struct fb_names *names = make_names(false);
    struct fb_plan_spec spec = make_spec("torch-distributed");
    const uint64_t far = UINT64_C(1) << 50;
    struct fb_error error = {""};
    uint32_t order[FILES];
    struct fb_shuffle s;
    struct fb_plan *p;

    (void)state;
    spec.first_epoch = far;
    assert_int_equal(fb_plan_new(&spec, names, &p, NULL), 0);
    spec.shuffle.count = FILES;
    assert_int_equal(fb_shuffle_init(&s, &spec.shuffle, NULL), 0);
    s.epoch = far;
    fb_shuffle_next(&s, order);
    assert_int_equal(fb_plan_current(p)->number, far);
    check_epoch(p, fb_plan_current(p), order);
    fb_shuffle_next(&s, order);
    check_epoch(p, fb_plan_next(p), order);
    fb_plan_free(p);

    spec.first_epoch = UINT64_MAX;
    assert_int_equal(fb_plan_new(&spec, names, &p, &error), -EINVAL);
    assert_non_null(strstr(error.text, "is too far away"));
    spec = make_spec("numpy");
    spec.first_epoch = far;
    error.text[0] = 0;
    assert_int_equal(fb_plan_new(&spec, names, &p, &error), -EINVAL);
    assert_non_null(strstr(error.text, "all before it are shuffled, too"));
    spec.shuffle.rule = FB_EPOCH_FIXED;
    assert_int_equal(fb_plan_new(&spec, names, &p, NULL), 0);
    fb_plan_free(p);
    fb_names_free(names);
}

static void test_batches(void **state)
{
    struct fb_names *names = make_names(false);
    struct fb_plan_spec spec = make_spec("torch-distributed");
    struct fb_plan *p;

    (void)state;
    assert_int_equal(fb_plan_new(&spec, names, &p, NULL), 0);
    assert_int_equal(fb_plan_current(p)->chunk_count, 21); /* 335 samples, 16 each */
    assert_int_equal(fb_plan_current(p)->chunks[20].count, 15);
    fb_plan_free(p);
    fb_names_free(names);
}

static void test_refusals(void **state)
{
    struct fb_names *names = make_names(false);
    struct fb_error error = {""};
    struct fb_plan_spec spec = make_spec("torch-random");
    struct fb_plan *p;

    (void)state;
    assert_true(fb_plan_new(&spec, names, &p, &error) < 0);
    assert_non_null(strstr(error.text, "torch-random"));
    spec = make_spec("numpy");
    spec.chunk_bytes = 5;
    assert_true(fb_plan_new(&spec, names, &p, NULL) < 0);
    spec.chunk_bytes = 0;
    spec.split.rank = 3;
    assert_true(fb_plan_new(&spec, names, &p, NULL) < 0);
    fb_names_free(names);
    fb_plan_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_far_epochs),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
