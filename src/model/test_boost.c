/*
 * Boosting: it learns what can be learned, ignores noise, keeps to weights, and survives bytes.
 */
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "core/mem.h"
#include "model/boost.h"

#define ROWS     4000
#define FEATURES 3

struct data {
    float rows[ROWS * FEATURES];
    float labels[ROWS];
};

/* A step in feature 0, a slope in feature 1, noise in feature 2 and in the label. */
static float truth(const float *row)
{
    return (row[0] > 3 ? 2.0f : 0.0f) + row[1];
}

static struct data *make_data(uint64_t seed)
{
    struct fb_rand rand = {seed};
    struct data *d = fb_alloc(sizeof *d);

    assert_non_null(d);
    for (size_t i = 0; i < ROWS; i++) {
        for (unsigned f = 0; f < FEATURES; f++)
            d->rows[i * FEATURES + f] = (float)fb_rand_unit(&rand);
        d->rows[i * FEATURES] = floorf(10 * d->rows[i * FEATURES]);
        d->labels[i] = truth(&d->rows[i * FEATURES]) + 0.2f * (float)fb_rand_unit(&rand) - 0.1f;
    }
    return d;
}

static double error_of(const struct fb_boost *model, const struct data *d)
{
    double sum = 0;

    for (size_t i = 0; i < ROWS; i++) {
        float y;

        fb_boost_predict(model, &d->rows[i * FEATURES], 1, &y);
        sum += pow((double)y - (double)truth(&d->rows[i * FEATURES]), 2);
    }
    return sqrt(sum / ROWS);
}

static void test_learns(void **state)
{
    struct data *d = make_data(1);
    struct data *fresh = make_data(2);
    struct fb_boost *model;
    double shares[FEATURES];

    (void)state;
    assert_int_equal(
        fb_boost_train(d->rows, d->labels, NULL, ROWS, FEATURES, &FB_BOOST_OPTIONS_DEFAULT, &model),
        0);
    assert_true(error_of(model, fresh) < 0.08); /* the labels' spread is about 1 */
    fb_boost_importance(model, shares);
    assert_true(shares[0] > shares[1] && shares[1] > shares[2]);
    assert_true(shares[2] < 0.01);
    assert_true(fabs(shares[0] + shares[1] + shares[2] - 1) < 1e-9);
    fb_boost_free(model);
    free(fresh);
    free(d);
}

/* Rows of weight 3 are the same as rows that are there three times. */
static void test_weights(void **state)
{
    struct data *d = make_data(3);
    FB_AUTO_FREE float *weights = fb_alloc_array(ROWS, sizeof *weights);
    struct data *twice = make_data(3);
    struct fb_boost *a;
    struct fb_boost *b;

    (void)state;
    assert_non_null(weights);
    /* The second half of `twice` repeats its first; of `d` the second half counts nothing. */
    memcpy(twice->rows + ROWS / 2 * FEATURES, twice->rows, sizeof twice->rows / 2);
    memcpy(twice->labels + ROWS / 2, twice->labels, sizeof twice->labels / 2);
    for (size_t i = 0; i < ROWS; i++)
        weights[i] = i < ROWS / 2 ? 2 : 0;
    memcpy(d->rows + ROWS / 2 * FEATURES, d->rows, sizeof d->rows / 2);
    assert_int_equal(
        fb_boost_train(d->rows, d->labels, weights, ROWS, FEATURES, &FB_BOOST_OPTIONS_DEFAULT, &a),
        0);
    assert_int_equal(fb_boost_train(twice->rows, twice->labels, NULL, ROWS, FEATURES,
                                    &FB_BOOST_OPTIONS_DEFAULT, &b),
                     0);
    for (size_t i = 0; i < ROWS; i++) {
        float x;
        float y;

        fb_boost_predict(a, &d->rows[i * FEATURES], 1, &x);
        fb_boost_predict(b, &d->rows[i * FEATURES], 1, &y);
        assert_true(fabsf(x - y) < 1e-3f);
    }
    fb_boost_free(a);
    fb_boost_free(b);
    free(twice);
    free(d);
}

static void test_bytes(void **state)
{
    struct data *d = make_data(4);
    struct fb_boost *model;
    struct fb_boost *again;
    size_t size;
    char *bytes;

    (void)state;
    assert_int_equal(
        fb_boost_train(d->rows, d->labels, NULL, ROWS, FEATURES, &FB_BOOST_OPTIONS_DEFAULT, &model),
        0);
    size = fb_boost_size(model);
    bytes = fb_alloc(size);
    assert_non_null(bytes);
    fb_boost_save(model, bytes);
    assert_int_equal(fb_boost_load(bytes, size, &again), 0);
    assert_int_equal(fb_boost_features(again), FEATURES);
    assert_true(error_of(model, d) == error_of(again, d));
    fb_boost_free(again);
    assert_int_equal(fb_boost_load(bytes, size - 1, &again), -EINVAL);
    assert_int_equal(fb_boost_load(bytes, 3, &again), -EINVAL);
    memset(bytes + size / 2, 0xff, 64); /* features that there are not, and no numbers */
    assert_int_equal(fb_boost_load(bytes, size, &again), -EINVAL);
    free(bytes);
    fb_boost_free(model);
    free(d);
}

static void test_odd_rows(void **state)
{
    const float rows[6] = {1, 1, 1, 1, 1, 1};
    const float labels[3] = {4, 4, 4};
    struct fb_boost_options options = FB_BOOST_OPTIONS_DEFAULT;
    struct fb_boost *model;
    double shares[2];
    float y;

    (void)state;
    assert_int_equal(fb_boost_train(rows, labels, NULL, 3, 2, &options, &model), 0);
    fb_boost_predict(model, rows, 1, &y);
    assert_true(fabsf(y - 4) < 1e-6f);
    fb_boost_importance(model, shares);
    assert_true(shares[0] == 0 && shares[1] == 0);
    fb_boost_free(model);
    assert_int_equal(fb_boost_train(rows, labels, NULL, 0, 2, &options, &model), -EINVAL);
    assert_int_equal(fb_boost_train(rows, labels, NULL, 3, 0, &options, &model), -EINVAL);
    options.depth = FB_BOOST_DEPTH_MAX + 1;
    assert_int_equal(fb_boost_train(rows, labels, NULL, 3, 2, &options, &model), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_odd_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
