/*
 * The list of policies, and what they share.
 */
#include "sim/policies.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "core/mem.h"
#include "sim/node.h"

static const struct fb_sim_policy *const policies[] = {
    &fb_sim_fifo,
    &fb_sim_lru,
    &fb_sim_clock,
    &fb_sim_slru,
    &fb_sim_lfu,
    &fb_sim_2q,
    &fb_sim_arc,
    &fb_sim_lirs,
    &fb_sim_s3fifo,
    &fb_sim_sieve,
    &fb_sim_wtinylfu,
    &fb_sim_lhd,
    &fb_sim_gdsf,
    &fb_sim_hyperbolic,
    &fb_sim_lecar,
    &fb_sim_cacheus,
    &fb_sim_segcache,
    &fb_sim_uniform,
    &fb_sim_glcache_e,
    &fb_sim_glcache_t,
    &fb_sim_learned,
    &fb_sim_lrb,
    &fb_sim_belady,
    &fb_sim_belady_size,
    &fb_sim_glcache_oracle,
    NULL,
};

const struct fb_sim_policy *const *fb_sim_policies(void)
{
    return policies;
}

/* GL-Cache-E is glcache-e: neither capitals nor hyphens matter. */
static bool is_called(const char *name, const char *text, size_t len)
{
    const char *end = text + len;

    if (!name)
        return false;
    for (;; name++, text++) {
        name += *name == '-';
        text += text < end && *text == '-';
        if (*name == 0 || text == end)
            return *name == 0 && text == end;
        if (tolower((unsigned char)*name) != tolower((unsigned char)*text))
            return false;
    }
}

const struct fb_sim_policy *fb_sim_policy_find(const char *name, size_t len)
{
    for (const struct fb_sim_policy *const *p = policies; *p; p++) {
        if (is_called((*p)->name, name, len) || is_called((*p)->alias, name, len))
            return *p;
    }
    return NULL;
}

int fb_sim_grow(void *array_pointer, size_t *count, size_t wanted, size_t size)
{
    void **array = array_pointer;
    void *grown;

    if (wanted <= *count)
        return 0;
    grown = fb_alloc_array(wanted, size);
    if (!grown)
        return -ENOMEM;
    if (*count > 0)
        memcpy(grown, *array, *count * size);
    free(*array);
    *array = grown;
    *count = wanted;
    return 0;
}

void *fb_sim_base_new(const struct fb_sim_setup *setup, size_t size)
{
    struct fb_sim_base *base = fb_alloc(size);

    if (base)
        base->capacity = setup->capacity;
    return base;
}

int fb_sim_base_reserve(void *cache, size_t objects)
{
    struct fb_sim_base *base = cache;

    return fb_sim_grow(&base->node, &base->objects, objects, sizeof *base->node);
}

void fb_sim_base_destroy(void *cache)
{
    struct fb_sim_base *base = cache;

    if (base)
        free(base->node);
    free(base);
}
