/*
 * sim/spec.h - what a person writes for policies and sizes, and what it means.
 *
 *   lru,s3fifo:small=0.2,glcache        policies, with parameters
 *   1%,10%,1G                           sizes: of the footprint, or bytes (objects)
 *   0.1%..100%                          sizes from .. to, 16 of them, each larger by one factor
 */
#ifndef FB_SIM_SPEC_H
#define FB_SIM_SPEC_H

#include "sim/replay.h"

#define FB_SIM_SPEC_MAX 1024 /* policies, or sizes */

struct fb_sim_choice {
    char *text; /* as written */
    const struct fb_sim_policy *policy;
    double param[FB_SIM_PARAMS_MAX];
};

struct fb_sim_size {
    char *text;
    double share;    /* of the footprint; negative: `amount` instead */
    uint64_t amount; /* bytes; objects when sizes are ignored */
};

/* Arrays of *ret_count, freed with the functions below. -EINVAL with a sentence. */
FB_MUST_CHECK int fb_sim_parse_policies(const char *text, struct fb_sim_choice **ret_choices,
                                        size_t *ret_count, struct fb_error *err);
FB_MUST_CHECK int fb_sim_parse_sizes(const char *text, struct fb_sim_size **ret_sizes,
                                     size_t *ret_count, struct fb_error *err);
void fb_sim_free_policies(struct fb_sim_choice *choices, size_t count);
void fb_sim_free_sizes(struct fb_sim_size *sizes, size_t count);

/* In bytes (objects), rounded down, at least 1. */
uint64_t fb_sim_size_of(const struct fb_sim_size *size, uint64_t footprint);

#endif
