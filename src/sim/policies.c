/*
 * The list of policies, and what they share.
 */
#include "sim/policies.h"

#include <errno.h>
#include <string.h>

#include "core/mem.h"
#include "sim/cache.h"

static const struct fb_sim_policy *const policies[] = {
    &fb_sim_fifo,
    &fb_sim_lru,
    NULL,
};

const struct fb_sim_policy *const *fb_sim_policies(void)
{
    return policies;
}

const struct fb_sim_policy *fb_sim_policy_find(const char *name, size_t len)
{
    for (const struct fb_sim_policy *const *p = policies; *p; p++) {
        if (strlen((*p)->name) == len && memcmp((*p)->name, name, len) == 0)
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
