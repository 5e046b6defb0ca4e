/*
 * The samplers. What each draws was learned from the libraries' behaviour and is held against them
 * by tests/scenarios/plan_orders.
 */
#include "epoch/shuffle.h"

#include <errno.h>
#include <string.h>

/* torch (2.6 and later) finds 32 bits too few from here on. */
#define TORCH_LARGE (UINT32_MAX / 20)

#define AHEAD 64 /* swaps whose places are fetched together */

static void swap(uint32_t *order, uint32_t a, uint32_t b)
{
    uint32_t kept = order[a];

    order[a] = order[b];
    order[b] = kept;
}

/* ---- torch ---- */

static void seed_torch(struct fb_shuffle *s, uint64_t seed)
{
    fb_mt19937_seed(&s->mt, (uint32_t)seed);
}

/* From the front: position i is final after draw i. What is drawn does not depend on what is
 * swapped, so the places are known, and fetched, ahead: four times as fast where the order does not
 * fit into the CPU's caches. */
static void randperm_forward(struct fb_mt19937 *mt, uint32_t n, uint32_t *order)
{
    uint32_t to[AHEAD];

    for (uint32_t i = 0; i + 1 < n;) {
        uint32_t batch = (uint32_t)fb_min_u64(AHEAD, n - 1 - i);

        for (uint32_t j = 0; j < batch; j++) {
            to[j] = i + j + fb_mt19937_u32(mt) % (n - i - j);
            __builtin_prefetch(&order[to[j]], 1);
        }
        for (uint32_t j = 0; j < batch; j++)
            swap(order, i++, to[j]);
    }
}

/* The order is 0, 1, 2 ... before. */
static void randperm(struct fb_mt19937 *mt, const struct fb_shuffle_spec *spec, uint32_t *order)
{
    uint32_t n = spec->count;

    if (n < TORCH_LARGE || spec->old_randperm) {
        randperm_forward(mt, n, order);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t to = (uint32_t)(fb_mt19937_u64(mt) % (i + 1));

        order[i] = order[to];
        order[to] = i;
    }
}

static void shuffle_torch(struct fb_shuffle *s, uint32_t *order)
{
    randperm(&s->mt, &s->spec, order);
}

static uint64_t randperm_draws(const struct fb_shuffle_spec *spec)
{
    if (spec->count < TORCH_LARGE || spec->old_randperm)
        return spec->count ? spec->count - 1 : 0;
    return 2 * (uint64_t)spec->count;
}

/* A DataLoader's iterator draws the base seed of its workers, then RandomSampler a seed for a
 * generator of its own, or the permutation itself. In the end RandomSampler draws one permutation
 * more, of which it uses nothing. */
static void shuffle_torch_random(struct fb_shuffle *s, uint32_t *order)
{
    const struct fb_shuffle_spec *spec = &s->spec;
    bool goes_on = spec->rule == FB_EPOCH_CONTINUE && s->epoch > 0;
    struct fb_mt19937 own;

    if (goes_on && spec->generator != FB_TORCH_GLOBAL)
        fb_mt19937_skip(&s->mt, randperm_draws(spec));
    if (spec->generator != FB_TORCH_SAMPLER && !(goes_on && spec->persistent_workers))
        fb_mt19937_skip(&s->mt, 2);
    if (spec->generator == FB_TORCH_GLOBAL) {
        fb_mt19937_seed(&own, (uint32_t)fb_mt19937_u64(&s->mt));
        randperm(&own, spec, order);
    } else {
        randperm(&s->mt, spec, order);
    }
}

/* ---- numpy and Python: from the back ---- */

static void seed_python(struct fb_shuffle *s, uint64_t seed)
{
    fb_mt19937_seed_python(&s->mt, seed);
}

/* RandomState: as many low bits as the bound has, again while too large. */
static void shuffle_numpy(struct fb_shuffle *s, uint32_t *order)
{
    for (uint32_t i = s->spec.count; i-- > 1;) {
        uint32_t mask = UINT32_MAX >> __builtin_clz(i);
        uint32_t j;

        do
            j = fb_mt19937_u32(&s->mt) & mask;
        while (j > i);
        swap(order, i, j);
    }
}

/* random.shuffle: as many high bits as the number of choices has, again while too large. */
static void shuffle_python(struct fb_shuffle *s, uint32_t *order)
{
    for (uint32_t i = s->spec.count; i-- > 1;) {
        int shift = __builtin_clz(i + 1);
        uint32_t j;

        do
            j = fb_mt19937_u32(&s->mt) >> shift;
        while (j > i);
        swap(order, i, j);
    }
}

static void seed_pcg64(struct fb_shuffle *s, uint64_t seed)
{
    fb_pcg64_seed(&s->pcg, seed);
}

/* default_rng: likewise. */
static void shuffle_numpy_generator(struct fb_shuffle *s, uint32_t *order)
{
    for (uint32_t i = s->spec.count; i-- > 1;) {
        uint32_t mask = UINT32_MAX >> __builtin_clz(i);
        uint32_t j;

        do
            j = fb_pcg64_u32(&s->pcg) & mask;
        while (j > i);
        swap(order, i, j);
    }
}

/* ---- none ---- */

static void seed_nothing(struct fb_shuffle *s, uint64_t seed)
{
    (void)s;
    (void)seed;
}

static void shuffle_nothing(struct fb_shuffle *s, uint32_t *order)
{
    (void)s;
    (void)order;
}

/* ---- the table ---- */

static const struct fb_sampler torch_distributed = {
    .name = "torch-distributed",
    .help = "DistributedSampler, with set_epoch",
    .rule = FB_EPOCH_RESEED,
    .can_split = true,
    .seed = seed_torch,
    .shuffle = shuffle_torch,
};

static const struct fb_sampler torch_random = {
    .name = "torch-random",
    .help = "DataLoader(shuffle=True), or RandomSampler",
    .rule = FB_EPOCH_CONTINUE,
    .seed = seed_torch,
    .shuffle = shuffle_torch_random,
};

static const struct fb_sampler numpy = {
    .name = "numpy",
    .help = "numpy.random.seed or RandomState, then permutation(n)",
    .rule = FB_EPOCH_CONTINUE,
    .can_reshuffle = true,
    .can_split = true,
    .seed = seed_torch,
    .shuffle = shuffle_numpy,
};

static const struct fb_sampler numpy_generator = {
    .name = "numpy-generator",
    .help = "numpy.random.default_rng, then permutation(n)",
    .rule = FB_EPOCH_CONTINUE,
    .can_reshuffle = true,
    .can_split = true,
    .seed = seed_pcg64,
    .shuffle = shuffle_numpy_generator,
};

static const struct fb_sampler python = {
    .name = "python",
    .help = "random.seed, then random.shuffle of a list 0 ... n-1",
    .rule = FB_EPOCH_CONTINUE,
    .can_reshuffle = true,
    .can_split = true,
    .seed = seed_python,
    .shuffle = shuffle_python,
};

static const struct fb_sampler sequential = {
    .name = "sequential",
    .help = "no shuffle",
    .rule = FB_EPOCH_FIXED,
    .can_split = true,
    .seed = seed_nothing,
    .shuffle = shuffle_nothing,
};

const struct fb_sampler *const fb_samplers[] = {
    &torch_distributed, &torch_random, &numpy, &numpy_generator, &python, &sequential, NULL,
};

const struct fb_sampler *fb_sampler_find(const char *name)
{
    for (const struct fb_sampler *const *s = fb_samplers; *s; s++) {
        if (strcmp((*s)->name, name) == 0)
            return *s;
    }
    return NULL;
}

/* ---- epochs ---- */

int fb_shuffle_init(struct fb_shuffle *s, const struct fb_shuffle_spec *spec, struct fb_error *err)
{
    const struct fb_sampler *sampler = spec->sampler;

    *s = (struct fb_shuffle){.spec = *spec};
    if (s->spec.rule == FB_EPOCH_USUAL)
        s->spec.rule = sampler->rule;
    if (s->spec.rule == FB_EPOCH_RESHUFFLE && !sampler->can_reshuffle)
        return fb_error_set(err, -EINVAL,
                            "the sampler %s begins every epoch with 0, 1, 2 ...: it cannot "
                            "reshuffle; choose another rule",
                            sampler->name);
    if (sampler == &numpy && spec->seed > UINT32_MAX)
        return fb_error_set(err, -EINVAL, "numpy's RandomState takes seeds below 2^32");
    sampler->seed(s, spec->seed);
    return 0;
}

void fb_shuffle_next(struct fb_shuffle *s, uint32_t *order)
{
    enum fb_epoch_rule rule = s->spec.rule;

    if (rule == FB_EPOCH_RESEED)
        s->spec.sampler->seed(s, s->spec.seed + s->epoch);
    else if (rule == FB_EPOCH_FIXED)
        s->spec.sampler->seed(s, s->spec.seed);
    if (rule != FB_EPOCH_RESHUFFLE || s->epoch == 0) {
        for (uint32_t i = 0; i < s->spec.count; i++)
            order[i] = i;
    }
    s->spec.sampler->shuffle(s, order);
    s->epoch++;
}
