#include <cmocka.h>
#include <stdlib.h>

#include "base/rand.h"
#include "core/mem.h"
#include "epoch/seed_search.h"
#include "epoch/seed_walk.h"

#define STEP 100000
#define NONE FB_SEED_NO_FILE

/* A process that reads: one worker of a rank, epoch after epoch. */
struct reader {
    struct fb_shuffle shuffle;
    struct fb_split split;
    uint32_t worker;
    uint64_t j;
    uint32_t *order;
};

static void reader_open(struct reader *r, const struct fb_shuffle_spec *spec,
                        const struct fb_split *split, uint32_t worker)
{
    *r = (struct reader){.split = *split, .worker = worker};
    r->split.count = spec->count;
    r->order = fb_alloc_array(spec->count, sizeof *r->order);
    assert_non_null(r->order);
    assert_int_equal(fb_shuffle_init(&r->shuffle, spec, NULL), 0);
    fb_shuffle_next(&r->shuffle, r->order);
}

static uint32_t reader_next(struct reader *r)
{
    uint64_t k;

    if (!fb_split_worker_sample(&r->split, r->worker, r->j, &k)) {
        fb_shuffle_next(&r->shuffle, r->order);
        r->j = 0;
        assert_true(fb_split_worker_sample(&r->split, r->worker, 0, &k));
    }
    r->j++;
    return r->order[fb_split_position(&r->split, k)];
}

static struct fb_seed_search *search_open(uint32_t count)
{
    struct fb_seed_config config = {
        .order_count = 1, .counts = {count}, .level = fb_scan_best(), .seed_limit = 0};
    struct fb_seed_search *s = fb_seed_search_new(&config);

    assert_non_null(s);
    return s;
}

static void search_to_end(struct fb_seed_search *s)
{
    while (fb_seed_search_state(s) == FB_SEED_SEARCH)
        assert_true(fb_seed_search_step(s, STEP) >= 0);
}

static void feed(struct fb_seed_search *s, uint32_t file)
{
    assert_int_equal(fb_seed_search_feed(s, &file), 0);
    search_to_end(s);
}

static struct fb_shuffle_spec distributed(uint64_t seed, uint32_t count)
{
    return (struct fb_shuffle_spec){
        .sampler = fb_sampler_find("torch-distributed"), .seed = seed, .count = count};
}

/* Found, with the right numbers, and kept over epochs. */
static void check_found(const struct fb_shuffle_spec *spec, const struct fb_split *split,
                        unsigned epochs)
{
    struct fb_seed_search *s = search_open(spec->count);
    const struct fb_seed_belief *b;
    struct reader r;

    reader_open(&r, spec, split, 0);
    for (unsigned i = 0; i < FB_SEED_ENOUGH; i++) {
        assert_int_not_equal(fb_seed_search_state(s), FB_SEED_BELIEVED);
        feed(s, reader_next(&r));
    }
    assert_int_equal(fb_seed_search_state(s), FB_SEED_BELIEVED);
    b = fb_seed_search_belief(s);
    assert_non_null(b);
    assert_int_equal(b->world, split->world);
    assert_int_equal(b->rank, split->rank);
    assert_int_equal(b->shuffle.seed, spec->seed);
    while (r.shuffle.epoch < epochs) {
        uint64_t before = r.shuffle.epoch;

        feed(s, reader_next(&r));
        b = fb_seed_search_belief(s);
        assert_non_null(b);
        assert_int_equal(b->lost, 0);
        assert_true(fb_seed_search_state(s) == FB_SEED_BELIEVED || r.j < 4);
        if (before == r.shuffle.epoch)
            continue;
        assert_int_equal(b->epoch + 1, r.shuffle.epoch);
        if (split->workers > 1) {
            assert_int_equal(b->batch, split->batch);
            assert_int_equal(b->workers, split->workers);
        }
    }
    free(r.order);
    fb_seed_search_free(s);
}

static void test_distributed(void **state)
{
    struct fb_shuffle_spec spec = distributed(1000, 10007);

    (void)state;
    check_found(&spec, &(struct fb_split){.world = 1, .batch = 16}, 3);
    check_found(&spec, &(struct fb_split){.world = 8, .rank = 5, .batch = 30, .workers = 4}, 3);
    check_found(&spec, &(struct fb_split){.world = 64, .rank = 63, .batch = 16, .workers = 2}, 4);
    check_found(&spec, &(struct fb_split){.world = 3, .batch = 2, .workers = 16}, 2);
    check_found(&spec, &(struct fb_split){.world = 5, .batch = 7, .workers = 3, .drop_last = true},
                3);
    spec.rule = FB_EPOCH_FIXED;
    spec.seed = FB_SEED_SMALL - 1;
    check_found(&spec, &(struct fb_split){.world = 2, .rank = 1, .batch = 100, .workers = 3}, 3);
}

static void test_random_sampler(void **state)
{
    struct fb_shuffle_spec spec = {
        .sampler = fb_sampler_find("torch-random"), .seed = 4321, .count = 5000};
    const struct fb_split split = {.world = 1, .batch = 32, .workers = 3};

    (void)state;
    for (unsigned g = FB_TORCH_GLOBAL; g <= FB_TORCH_SAMPLER; g++) {
        spec.generator = (enum fb_torch_generator)g;
        check_found(&spec, &split, 3);
    }
    spec.generator = FB_TORCH_LOADER;
    spec.persistent_workers = true;
    check_found(&spec, &split, 3);
}

/* The order of the data set is one of two. */
static void test_orders(void **state)
{
    struct fb_seed_config config = {
        .order_count = 2, .counts = {3000, 2900}, .level = FB_SCAN_PLAIN, .seed_limit = 1 << 12};
    struct fb_seed_search *s = fb_seed_search_new(&config);
    struct fb_shuffle_spec spec = distributed(77, 2900);
    struct reader r;

    (void)state;
    assert_non_null(s);
    reader_open(&r, &spec, &(struct fb_split){.world = 4, .rank = 1, .batch = 64}, 0);
    for (unsigned i = 0; i < FB_SEED_ENOUGH; i++) {
        uint32_t file = reader_next(&r);

        assert_int_equal(fb_seed_search_feed(s, (uint32_t[]){2999 - file, file}), 0);
        /* Read again, and another that is no sample. */
        assert_int_equal(fb_seed_search_feed(s, (uint32_t[]){2999 - file, file}), 0);
        assert_int_equal(fb_seed_search_feed(s, (uint32_t[]){NONE, NONE}), 0);
        search_to_end(s);
    }
    assert_int_equal(fb_seed_search_state(s), FB_SEED_BELIEVED);
    assert_int_equal(fb_seed_search_belief(s)->order, 1);
    assert_int_equal(fb_seed_search_belief(s)->shuffle.seed, 77);
    free(r.order);
    fb_seed_search_free(s);
}

/* A swap has put file 3 where rank 49 begins: found by what comes after it. */
static void test_displaced(void **state)
{
    struct fb_shuffle_spec spec = distributed(766181, 33871);
    struct reader r;

    (void)state;
    reader_open(&r, &spec, &(struct fb_split){.world = 64, .rank = 49, .batch = 82}, 0);
    assert_int_equal(reader_next(&r), 3);
    free(r.order);
    check_found(&spec, &(struct fb_split){.world = 64, .rank = 49, .batch = 82, .workers = 7}, 1);
}

/* A high rank, and a seed that is not small: where a longer search is allowed. */
static void test_long(void **state)
{
    struct fb_seed_config config = {.order_count = 1,
                                    .counts = {20011},
                                    .level = fb_scan_best(),
                                    .seed_limit = FB_SEED_SMALL + 100000};
    struct fb_shuffle_spec spec = distributed(4000, 20011);
    struct fb_split split = {.world = 150, .rank = 140, .batch = 64};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct fb_seed_search *s = fb_seed_search_new(&config);
        struct reader r;

        assert_non_null(s);
        reader_open(&r, &spec, &split, 0);
        while (r.j < FB_SEED_ENOUGH)
            feed(s, reader_next(&r));
        assert_int_equal(fb_seed_search_state(s), FB_SEED_BELIEVED);
        assert_int_equal(fb_seed_search_belief(s)->rank, split.rank);
        assert_int_equal(fb_seed_search_belief(s)->shuffle.seed, spec.seed);
        free(r.order);
        fb_seed_search_free(s);
        spec.seed = FB_SEED_SMALL + 99999;
        split.rank = 30;
    }
}

/* In slices, however small, the search finds what it finds at once. */
static void test_slices(void **state)
{
    struct fb_seed_search *s = search_open(20000);
    struct fb_shuffle_spec spec = distributed(30000, 20000);
    unsigned steps = 0;
    struct reader r;
    uint32_t file;

    (void)state;
    reader_open(&r, &spec, &(struct fb_split){.world = 1, .batch = 64}, 0);
    for (unsigned i = 0; i < FB_SEED_FIRST; i++) {
        file = reader_next(&r);
        assert_int_equal(fb_seed_search_feed(s, &file), 0);
    }
    for (; fb_seed_search_state(s) == FB_SEED_SEARCH; steps++)
        assert_true(fb_seed_search_step(s, 100) >= 0);
    assert_true(steps > 200);
    assert_int_equal(fb_seed_search_state(s), FB_SEED_VERIFY);
    for (unsigned i = FB_SEED_FIRST; i < FB_SEED_ENOUGH; i++)
        feed(s, reader_next(&r));
    assert_int_equal(fb_seed_search_state(s), FB_SEED_BELIEVED);
    free(r.order);
    fb_seed_search_free(s);
}

static struct fb_seed_search *believe(struct reader *r)
{
    struct fb_seed_search *s = search_open(r->split.count);

    while (r->j < 20)
        feed(s, reader_next(r));
    assert_int_equal(fb_seed_search_state(s), FB_SEED_BELIEVED);
    return s;
}

/* What is lost is forgiven; what cannot be is not. */
static void test_contradiction(void **state)
{
    struct fb_shuffle_spec spec = distributed(5, 10000);
    struct fb_seed_search *s;
    uint32_t before[3];
    struct reader r;

    (void)state;
    reader_open(&r, &spec, &(struct fb_split){.world = 4, .rank = 2, .batch = 64}, 0);
    s = believe(&r);
    for (unsigned i = 0; i < 3; i++)
        before[i] = reader_next(&r);
    feed(s, reader_next(&r));
    assert_int_equal(fb_seed_search_state(s), FB_SEED_BELIEVED);
    assert_int_equal(fb_seed_search_belief(s)->lost, 3);
    for (unsigned i = 0; i < 3; i++)
        feed(s, before[i]); /* seen late */
    assert_int_equal(fb_seed_search_state(s), FB_SEED_BELIEVED);
    assert_int_equal(fb_seed_search_belief(s)->lost, 0);
    feed(s, before[0]); /* back */
    assert_int_equal(fb_seed_search_state(s), FB_SEED_COLLECT);
    assert_null(fb_seed_search_belief(s));
    fb_seed_search_free(s);

    r.j = 0;
    s = believe(&r);
    feed(s, r.order[4 * 30]); /* another rank's */
    assert_int_equal(fb_seed_search_state(s), FB_SEED_COLLECT);
    fb_seed_search_free(s);
    free(r.order);
}

/* numpy's and Python's shuffles begin at the back: only seeds that people like are tried. */
static void test_liked(void **state)
{
    static const char *const names[] = {"numpy", "numpy-generator", "python", "numpy"};

    static const enum fb_epoch_rule rules[] = {FB_EPOCH_USUAL, FB_EPOCH_RESHUFFLE, FB_EPOCH_RESEED,
                                               FB_EPOCH_FIXED};

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(names); i++) {
        struct fb_seed_config config = {.order_count = 1,
                                        .counts = {60013},
                                        .level = fb_scan_best(),
                                        .seed_limit = FB_SEED_SMALL + 1};
        struct fb_seed_search *s = fb_seed_search_new(&config);
        struct fb_shuffle_spec spec = {
            .sampler = fb_sampler_find(names[i]), .seed = 5, .count = 60013, .rule = rules[i]};
        struct reader r;

        assert_non_null(s);
        reader_open(&r, &spec, &(struct fb_split){.world = 2, .rank = 1, .batch = 30}, 0);
        while (r.shuffle.epoch < 3 || r.j < 20)
            feed(s, reader_next(&r));
        assert_int_equal(fb_seed_search_state(s), FB_SEED_BELIEVED);
        assert_ptr_equal(fb_seed_search_belief(s)->shuffle.sampler, spec.sampler);
        assert_int_equal(fb_seed_search_belief(s)->shuffle.seed, 5);
        assert_int_equal(fb_seed_search_belief(s)->epoch, 2);
        free(r.order);
        fb_seed_search_free(s);
    }
}

/* A rank's neighbour, another worker, and the next epoch's new processes, are found without a
 * search. */
static void test_last(void **state)
{
    struct fb_shuffle_spec spec = distributed(5, 10000);
    struct fb_split split = {.world = 4, .rank = 2, .batch = 64, .workers = 2};
    struct fb_seed_search *s;
    const struct fb_seed_belief *b;
    struct fb_seed_belief last;
    struct reader r, other;

    (void)state;
    reader_open(&r, &spec, &split, 0);
    s = believe(&r);
    last = *fb_seed_search_belief(s);
    for (unsigned i = 0; i < 4; i++) {
        uint32_t worker = i % 2;
        uint64_t epoch = i / 2;

        split.rank = 3 - worker;
        reader_open(&other, &spec, &split, worker);
        other.shuffle.epoch = epoch;
        fb_shuffle_next(&other.shuffle, other.order);
        fb_seed_search_restart(s, &last);
        for (unsigned j = 0; j < 100; j++) {
            uint32_t file = reader_next(&other);

            assert_int_equal(fb_seed_search_feed(s, &file), 0);
            assert_true(fb_seed_search_step(s, 0) >= 0);
        }
        b = fb_seed_search_belief(s);
        assert_non_null(b);
        assert_int_equal(fb_seed_search_state(s), FB_SEED_BELIEVED);
        assert_int_equal(b->rank, split.rank);
        assert_int_equal(b->epoch, epoch);
        assert_int_equal(b->batch, split.batch);
        assert_int_equal(b->workers, split.workers);
        assert_int_equal(b->worker, worker);
        assert_int_equal(b->lost, 0);
        free(other.order);
    }
    free(r.order);
    fb_seed_search_free(s);
}

/* A worker that is not the first, and nothing known of another: by accesses in a first batch, from
 * the middle of the epoch to its end. */
static void check_alone(struct fb_shuffle_spec spec, struct fb_split split, uint32_t worker,
                        uint64_t walk_bytes, bool is_found)
{
    struct fb_seed_config config = {.order_count = 2,
                                    .counts = {spec.count, spec.count},
                                    .level = fb_scan_best(),
                                    .seed_limit = 3000,
                                    .any_worker = true,
                                    .walk_bytes = walk_bytes};
    struct fb_seed_search *s = fb_seed_search_new(&config);
    const struct fb_seed_belief *b;
    struct reader r;

    assert_non_null(s);
    reader_open(&r, &spec, &split, worker);
    for (unsigned i = 0; i < FB_SEED_ENOUGH; i++) {
        uint32_t file = reader_next(&r);

        assert_int_not_equal(fb_seed_search_state(s), FB_SEED_BELIEVED);
        assert_int_equal(fb_seed_search_feed(s, (uint32_t[]){spec.count - 1 - file, file}), 0);
        search_to_end(s);
    }
    if (!is_found) {
        assert_int_equal(fb_seed_search_state(s), FB_SEED_NONE);
        free(r.order);
        fb_seed_search_free(s);
        return;
    }
    assert_int_equal(fb_seed_search_state(s), FB_SEED_BELIEVED);
    b = fb_seed_search_belief(s);
    assert_int_equal(b->shuffle.seed, spec.seed);
    assert_int_equal(b->shuffle.generator, spec.generator);
    assert_int_equal(b->world, split.world);
    assert_int_equal(b->rank, split.rank);
    assert_int_equal(b->start, (uint64_t)worker * split.batch);
    while (r.j < 3 * (uint64_t)split.batch) {
        uint32_t file = reader_next(&r);

        assert_int_equal(fb_seed_search_feed(s, (uint32_t[]){spec.count - 1 - file, file}), 0);
    }
    assert_int_equal(b->workers, split.workers);
    assert_int_equal(b->worker, worker);
    assert_int_equal(b->lost, 0);
    free(r.order);
    fb_seed_search_free(s);
}

static void test_alone(void **state)
{
    struct fb_shuffle_spec spec = distributed(42, 20011);
    struct fb_split split = {.world = 8, .rank = 5, .batch = 64, .workers = 4};

    (void)state;
    check_alone(spec, split, 1, 0, true);
    check_alone(spec, split, 3, 0, true);
    spec.seed = 2500;
    check_alone(spec, split, 2, 0, true);
    split = (struct fb_split){.world = 1, .batch = 300, .workers = 16};
    check_alone(spec, split, 15, 0, true);
    spec.sampler = fb_sampler_find("torch-random");
    split.batch = 32;
    check_alone(spec, split, 7, 0, true);
    spec.generator = FB_TORCH_LOADER;
    check_alone(spec, split, 1, 0, true);
}

/* It looks as far as its table may go: worker 15 begins at 15 * 300. */
static void test_little_memory(void **state)
{
    struct fb_shuffle_spec spec = distributed(42, 20011);
    struct fb_split split = {.world = 1, .batch = 300, .workers = 16};

    (void)state;
    check_alone(spec, split, 15, 5000 * sizeof(struct fb_walk_step), true);
    check_alone(spec, split, 15, 4000 * sizeof(struct fb_walk_step), false);
}

/* Nobody asked for it: it costs nothing. */
static void test_not_alone(void **state)
{
    struct fb_shuffle_spec spec = distributed(42, 20011);
    struct fb_seed_search *s = search_open(spec.count);
    struct reader r;

    (void)state;
    reader_open(&r, &spec, &(struct fb_split){.world = 2, .batch = 64, .workers = 4}, 1);
    while (r.j < 20)
        feed(s, reader_next(&r));
    assert_int_equal(fb_seed_search_state(s), FB_SEED_NONE);
    free(r.order);
    fb_seed_search_free(s);
}

/* Streams that are no such shuffle, and a shuffle of another kind. */
static void test_nothing_there(void **state)
{
    struct fb_shuffle_spec spec = {.sampler = fb_sampler_find("numpy"), .seed = 5, .count = 10000};
    struct fb_rand rand = {1};

    (void)state;
    for (unsigned kind = 0; kind < 3; kind++) {
        struct fb_seed_search *s = search_open(spec.count);
        struct reader r;

        reader_open(&r, &spec, &(struct fb_split){.world = 1, .batch = 64}, 0);
        for (uint32_t i = 0; i < 64; i++) {
            uint32_t next = reader_next(&r);

            feed(s, kind == 0 ? (uint32_t)fb_rand_below(&rand, spec.count) : kind == 1 ? i : next);
            assert_null(fb_seed_search_belief(s));
        }
        assert_int_equal(fb_seed_search_state(s), FB_SEED_NONE);
        free(r.order);
        fb_seed_search_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distributed),   cmocka_unit_test(test_random_sampler),
        cmocka_unit_test(test_orders),        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_displaced),     cmocka_unit_test(test_long),
        cmocka_unit_test(test_contradiction), cmocka_unit_test(test_last),
        cmocka_unit_test(test_liked),         cmocka_unit_test(test_nothing_there),
        cmocka_unit_test(test_alone),         cmocka_unit_test(test_not_alone),
        cmocka_unit_test(test_little_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
