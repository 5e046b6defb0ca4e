/*
 * epoch/shuffle.h - the order in which a training job visits its samples, epoch after epoch.
 *
 * A sampler is a generator and a way to shuffle with it: one row of an ops table. What an epoch
 * does with the generator of the last one is the rule, which has nothing to do with the generator:
 *
 *     reseed     seeded anew with seed + epoch (DistributedSampler with set_epoch)
 *     continue   the generator goes on, from 0, 1, 2 ... (RandomSampler, rng.permutation(n))
 *     reshuffle  the generator goes on, from the last order (rng.shuffle(indices) every epoch)
 *     fixed      the same order always (DistributedSampler without set_epoch)
 *
 * torch-random follows DataLoader as well: it says from which generator the loader draws the base
 * seed of its workers and the seed of its RandomSampler. An order is an array of sample numbers; an
 * epoch of n samples costs n draws and n random accesses to it.
 */
#ifndef FB_EPOCH_SHUFFLE_H
#define FB_EPOCH_SHUFFLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"
#include "epoch/generator.h"

enum fb_epoch_rule {
    FB_EPOCH_USUAL, /* what the sampler does when nobody says otherwise */
    FB_EPOCH_RESEED,
    FB_EPOCH_CONTINUE,
    FB_EPOCH_RESHUFFLE,
    FB_EPOCH_FIXED,
};

#define FB_EPOCH_RULE_NAMES "usual|reseed|continue|reshuffle|fixed"

/* Which torch.Generator the seed was given to (torch-random). */
enum fb_torch_generator {
    FB_TORCH_GLOBAL,  /* torch.manual_seed(seed), and nothing else draws from it */
    FB_TORCH_LOADER,  /* DataLoader(shuffle=True, generator=g) */
    FB_TORCH_SAMPLER, /* DataLoader(sampler=RandomSampler(data, generator=g)) */
};

#define FB_TORCH_GENERATOR_NAMES "global|loader|sampler"

struct fb_sampler;

struct fb_shuffle_spec {
    const struct fb_sampler *sampler;
    uint64_t seed;
    uint32_t count; /* samples */
    enum fb_epoch_rule rule;
    enum fb_torch_generator generator;
    bool persistent_workers; /* torch-random: the base seed is drawn once */
    bool old_randperm;       /* torch before 2.6: one algorithm for all sizes */
};

/* A shuffle under way. Large (5 KB), and its fields are the samplers' own. */
struct fb_shuffle {
    struct fb_shuffle_spec spec;
    uint64_t epoch; /* the next one */

    union {
        struct fb_mt19937 mt;
        struct fb_pcg64 pcg;
    };
};

struct fb_sampler {
    const char *name;
    const char *help;
    enum fb_epoch_rule rule; /* the usual one */
    bool can_reshuffle;
    bool can_split; /* among the ranks of a world, as DistributedSampler does */
    void (*seed)(struct fb_shuffle *shuffle, uint64_t seed);
    void (*shuffle)(struct fb_shuffle *shuffle, uint32_t *order);
};

#define FB_SAMPLER_NAMES "torch-distributed|torch-random|numpy|numpy-generator|python|sequential"

/* In the order of their names above, ended by NULL. */
extern const struct fb_sampler *const fb_samplers[];

/* NULL when there is none of that name. */
const struct fb_sampler *fb_sampler_find(const char *name);

/* -EINVAL, with a sentence, when sampler, seed and rule do not go together. */
FB_MUST_CHECK int fb_shuffle_init(struct fb_shuffle *s, const struct fb_shuffle_spec *spec,
                                  struct fb_error *err);

/* The next epoch's order, spec.count numbers. With the rule reshuffle `order` must hold the last
 * epoch's; otherwise it may hold anything. */
void fb_shuffle_next(struct fb_shuffle *s, uint32_t *order);

#endif
