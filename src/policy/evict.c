#include "policy/evict.h"

#include <string.h>

static const struct fb_evict_ops *const policies[] = {
    &fb_evict_learned,
    &fb_evict_fifo,
    &fb_evict_lru,
};

const struct fb_evict_ops *fb_evict_find(const char *name)
{
    for (size_t i = 0; i < FB_ARRAY_SIZE(policies); i++)
        if (strcmp(policies[i]->name, name) == 0)
            return policies[i];
    return NULL;
}
