/*
 * By what was learned about when items come back: policy/groups.h and policy/reuse.h. What is here
 * is what happens until there is a ranking, or when none of its segments can go.
 */
#include "policy/evict.h"

const struct fb_evict_ops fb_evict_learned = {
    .name = "learned",
    .help = "what will be asked for least, as learned from what was",
    .learns = true,
    .victim = fb_evict_lru_victim,
};
