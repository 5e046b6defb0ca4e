/*
 * Gradient boosting with histograms.
 *
 *     cut every feature into bins by quantiles of the rows; write the rows as bins
 *     base = mean of the labels; residual = label - base
 *     for each round:
 *         all rows are in the root
 *         for each level:
 *             for each node, feature and bin: count of rows, sum of their residuals
 *             each node splits where (sum left)^2 / n left + (sum right)^2 / n right is largest,
 *             if both sides have leaf_min rows and the error shrinks; else all its rows go left
 *         leaf = rate * sum / (n + 1); subtract it from the residuals of its rows
 *
 * A tree of depth d is an array of 2^d - 1 nodes in the order of levels, and 2^d leaves. Rows are
 * kept as bins by feature, so a histogram reads memory in order.
 */
#include "model/boost.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "core/mem.h"

#define MAGIC       0x46424254u /* FBBT */
#define NODES_MAX   ((1u << FB_BOOST_DEPTH_MAX) - 1)
#define LEAVES_MAX  (1u << FB_BOOST_DEPTH_MAX)
#define SAMPLE_MAX  2048 /* rows that the quantiles are taken from */
#define SHRINK_LEAF 1.0  /* rows of zero residual that every leaf is thought to have */

struct node {
    uint32_t feature;
    float threshold; /* a row goes right when it is greater */
};

struct fb_boost {
    uint32_t magic;
    uint32_t features;
    uint32_t depth;
    uint32_t rounds;
    float base;
    float pad;
    double gain[FB_BOOST_FEATURES_MAX];

    /* For each round: 2^depth - 1 nodes, then 2^depth leaves in their place. */
    struct {
        struct node nodes[NODES_MAX];
        float leaves[LEAVES_MAX];
    } tree[];
};

struct cell {
    float sum;
    float weight;
};

struct split {
    double gain;
    unsigned feature;
    unsigned bin; /* rows of bins up to this one go left */
    double sum;   /* of the whole node */
    double weight;
};

struct trainer {
    const struct fb_boost_options *options;
    size_t count;
    unsigned features;
    uint8_t *bins;       /* of feature f and row i: bins[f * count + i] */
    float *residual;     /* of each row */
    const float *weight; /* NULL: 1 each */
    uint8_t *at;         /* the node of each row, within its level */
    struct cell *cells;
    unsigned edges[FB_BOOST_FEATURES_MAX];
    float edge[FB_BOOST_FEATURES_MAX][FB_BOOST_BINS_MAX]; /* bin b holds values up to edge b */
};

/* ---- bins ---- */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Edges between bins of about equal numbers of rows; equal values are never cut apart. */
static void cut(struct trainer *t, const float *rows, unsigned f)
{
    float sample[SAMPLE_MAX];
    size_t n = t->count < SAMPLE_MAX ? t->count : SAMPLE_MAX;
    unsigned edges = 0;

    for (size_t i = 0; i < n; i++)
        sample[i] = rows[(i * t->count / n) * t->features + f];
    qsort(sample, n, sizeof *sample, by_value);
    for (unsigned b = 1; b < FB_BOOST_BINS_MAX; b++) {
        float value = sample[b * n / FB_BOOST_BINS_MAX];

        if (value < sample[n - 1] && (edges == 0 || value > t->edge[f][edges - 1]))
            t->edge[f][edges++] = value;
    }
    t->edges[f] = edges;
}

static uint8_t bin_of(const struct trainer *t, unsigned f, float value)
{
    unsigned low = 0;
    unsigned high = t->edges[f];

    while (low < high) {
        unsigned middle = (low + high) / 2;

        if (value > t->edge[f][middle])
            low = middle + 1;
        else
            high = middle;
    }
    return (uint8_t)low;
}

static void fill_bins(struct trainer *t, const float *rows)
{
    for (unsigned f = 0; f < t->features; f++) {
        cut(t, rows, f);
        for (size_t i = 0; i < t->count; i++)
            t->bins[f * t->count + i] = bin_of(t, f, rows[i * t->features + f]);
    }
}

/* ---- one tree ---- */

static float weight_of(const struct trainer *t, size_t i)
{
    return t->weight ? t->weight[i] : 1;
}

static void best_of_feature(const struct trainer *t, unsigned f, const struct cell *cells,
                            struct split *best)
{
    double left = 0;
    double n = 0;

    for (unsigned b = 0; b < t->edges[f]; b++) {
        double right = best->sum - (left += cells[b].sum);
        double rest = best->weight - (n += cells[b].weight);
        double gain;

        if (n < t->options->leaf_min || rest < t->options->leaf_min)
            continue;
        gain = left * left / n + right * right / rest - best->sum * best->sum / best->weight;
        if (gain > best->gain) {
            best->gain = gain;
            best->feature = f;
            best->bin = b;
        }
    }
}

/* The best split of every node of a level. */
static void split_level(struct trainer *t, unsigned nodes, struct split *splits)
{
    memset(splits, 0, nodes * sizeof *splits);
    for (unsigned f = 0; f < t->features; f++) {
        const uint8_t *bins = t->bins + f * t->count;

        for (unsigned k = 0; k < nodes; k++)
            memset(t->cells + (size_t)k * FB_BOOST_BINS_MAX, 0,
                   (t->edges[f] + 1) * sizeof *t->cells);
        for (size_t i = 0; i < t->count; i++) {
            struct cell *c = &t->cells[t->at[i] * FB_BOOST_BINS_MAX + bins[i]];

            c->sum += weight_of(t, i) * t->residual[i];
            c->weight += weight_of(t, i);
        }
        for (unsigned k = 0; k < nodes; k++) {
            const struct cell *cells = t->cells + (size_t)k * FB_BOOST_BINS_MAX;

            if (f == 0) {
                for (unsigned b = 0; b <= t->edges[f]; b++) {
                    splits[k].sum += cells[b].sum;
                    splits[k].weight += cells[b].weight;
                }
            }
            if (splits[k].weight >= 2 * t->options->leaf_min)
                best_of_feature(t, f, cells, &splits[k]);
        }
    }
}

static void descend(struct trainer *t, const struct split *splits)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct split *s = &splits[t->at[i]];
        bool right = s->gain > 0 && t->bins[s->feature * t->count + i] > s->bin;

        t->at[i] = (uint8_t)(2 * t->at[i] + right);
    }
}

static void grow(struct trainer *t, struct fb_boost *model, unsigned round)
{
    struct split splits[LEAVES_MAX];
    double sum[LEAVES_MAX] = {0};
    double weight[LEAVES_MAX] = {0};
    unsigned leaves = 1u << model->depth;

    memset(t->at, 0, t->count);
    for (unsigned level = 0; level < model->depth; level++) {
        unsigned nodes = 1u << level;
        struct node *node = &model->tree[round].nodes[nodes - 1];

        split_level(t, nodes, splits);
        for (unsigned k = 0; k < nodes; k++) {
            const struct split *s = &splits[k];

            node[k] = (struct node){0, FLT_MAX};
            if (s->gain <= 0)
                continue;
            node[k] = (struct node){s->feature, t->edge[s->feature][s->bin]};
            model->gain[s->feature] += s->gain;
        }
        descend(t, splits);
    }
    for (size_t i = 0; i < t->count; i++) {
        sum[t->at[i]] += (double)weight_of(t, i) * t->residual[i];
        weight[t->at[i]] += weight_of(t, i);
    }
    for (unsigned k = 0; k < leaves; k++)
        model->tree[round].leaves[k] =
            (float)((double)t->options->rate * sum[k] / (weight[k] + SHRINK_LEAF));
    for (size_t i = 0; i < t->count; i++)
        t->residual[i] -= model->tree[round].leaves[t->at[i]];
}

/* ---- the whole ---- */

static bool options_good(const struct fb_boost_options *o)
{
    return o->rounds > 0 && o->rounds <= FB_BOOST_ROUNDS_MAX && o->depth > 0 &&
           o->depth <= FB_BOOST_DEPTH_MAX && o->leaf_min > 0 && o->rate > 0;
}

static size_t model_size(unsigned rounds)
{
    return sizeof(struct fb_boost) + rounds * sizeof((struct fb_boost *)0)->tree[0];
}

static void train(struct trainer *t, const float *rows, const float *labels, struct fb_boost *model)
{
    double sum = 0;
    double weight = 0;

    for (size_t i = 0; i < t->count; i++) {
        sum += (double)weight_of(t, i) * labels[i];
        weight += weight_of(t, i);
    }
    model->base = (float)(weight > 0 ? sum / weight : 0);
    for (size_t i = 0; i < t->count; i++)
        t->residual[i] = labels[i] - model->base;
    fill_bins(t, rows);
    for (unsigned round = 0; round < model->rounds; round++)
        grow(t, model, round);
}

int fb_boost_train(const float *rows, const float *labels, const float *weights, size_t count,
                   unsigned features, const struct fb_boost_options *options,
                   struct fb_boost **ret_model)
{
    FB_AUTO_FREE struct trainer *t = fb_alloc(sizeof *t);
    FB_AUTO_FREE struct fb_boost *model = NULL;
    FB_AUTO_FREE float *residual = NULL;
    FB_AUTO_FREE uint8_t *bytes = NULL;
    FB_AUTO_FREE struct cell *cells = NULL;

    if (count == 0 || count > UINT32_MAX || features == 0 || features > FB_BOOST_FEATURES_MAX ||
        !options_good(options))
        return -EINVAL;
    model = fb_alloc(model_size(options->rounds));
    residual = fb_alloc_array(count, sizeof *residual);
    bytes = fb_alloc_array(count, features + 1);
    cells = fb_alloc_array((size_t)LEAVES_MAX * FB_BOOST_BINS_MAX, sizeof *cells);
    if (!t || !model || !residual || !bytes || !cells)
        return -ENOMEM;
    *t = (struct trainer){.options = options,
                          .count = count,
                          .features = features,
                          .bins = bytes,
                          .residual = residual,
                          .weight = weights,
                          .at = bytes + count * features,
                          .cells = cells};
    model->magic = MAGIC;
    model->features = features;
    model->depth = options->depth;
    model->rounds = options->rounds;
    train(t, rows, labels, model);
    *ret_model = fb_steal(model);
    return 0;
}

void fb_boost_free(struct fb_boost *model)
{
    free(model);
}

static float predict_one(const struct fb_boost *model, const float *row)
{
    unsigned inner = (1u << model->depth) - 1;
    float sum = model->base;

    for (unsigned r = 0; r < model->rounds; r++) {
        const struct node *nodes = model->tree[r].nodes;
        unsigned k = 0;

        for (unsigned level = 0; level < model->depth; level++)
            k = 2 * k + 1 + (row[nodes[k].feature] > nodes[k].threshold);
        sum += model->tree[r].leaves[k - inner];
    }
    return sum;
}

void fb_boost_predict(const struct fb_boost *model, const float *rows, size_t count, float *ret)
{
    for (size_t i = 0; i < count; i++)
        ret[i] = predict_one(model, rows + i * model->features);
}

void fb_boost_importance(const struct fb_boost *model, double *ret_shares)
{
    double sum = 0;

    for (unsigned f = 0; f < model->features; f++)
        sum += model->gain[f];
    for (unsigned f = 0; f < model->features; f++)
        ret_shares[f] = sum > 0 ? model->gain[f] / sum : 0;
}

unsigned fb_boost_features(const struct fb_boost *model)
{
    return model->features;
}

/* ---- over a restart ---- */

size_t fb_boost_size(const struct fb_boost *model)
{
    return model_size(model->rounds);
}

void fb_boost_save(const struct fb_boost *model, void *ret_bytes)
{
    memcpy(ret_bytes, model, fb_boost_size(model));
}

static bool trees_good(const struct fb_boost *model)
{
    for (unsigned r = 0; r < model->rounds; r++) {
        for (unsigned k = 0; k < NODES_MAX; k++) {
            if (model->tree[r].nodes[k].feature >= model->features)
                return false;
        }
        for (unsigned k = 0; k < LEAVES_MAX; k++) {
            if (!isfinite(model->tree[r].leaves[k]))
                return false;
        }
    }
    return isfinite(model->base);
}

int fb_boost_load(const void *bytes, size_t size, struct fb_boost **ret_model)
{
    FB_AUTO_FREE struct fb_boost *model = NULL;

    if (size < sizeof *model || size > model_size(FB_BOOST_ROUNDS_MAX))
        return -EINVAL;
    model = fb_alloc(size);
    if (!model)
        return -ENOMEM;
    memcpy(model, bytes, size);
    if (model->magic != MAGIC || model->features == 0 || model->features > FB_BOOST_FEATURES_MAX ||
        model->depth == 0 || model->depth > FB_BOOST_DEPTH_MAX ||
        model->rounds > FB_BOOST_ROUNDS_MAX || size != model_size(model->rounds) ||
        !trees_good(model))
        return -EINVAL;
    *ret_model = fb_steal(model);
    return 0;
}
