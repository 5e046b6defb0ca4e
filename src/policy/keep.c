#include "policy/keep.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"

const char *fb_keep_name(enum fb_keep keep)
{
    static const char *const names[] = {"lru", "eager", "uniform", "cycle", "never"};

    FB_ASSERT((size_t)keep < FB_ARRAY_SIZE(names));
    return names[keep];
}

enum fb_keep fb_keep_for(enum fb_pattern pattern)
{
    switch (pattern) {
    case FB_PATTERN_SEQUENTIAL:
        return FB_KEEP_EAGER;
    case FB_PATTERN_RANDOM:
        return FB_KEEP_UNIFORM;
    case FB_PATTERN_CYCLIC:
        return FB_KEEP_CYCLE;
    default:
        return FB_KEEP_LRU;
    }
}

int fb_keep_parse(const char *name, enum fb_keep *ret_keep)
{
    for (int keep = 0; keep < FB_KEEPS; keep++) {
        if (keep != FB_KEEP_CYCLE && strcmp(fb_keep_name((enum fb_keep)keep), name) == 0) {
            *ret_keep = (enum fb_keep)keep;
            return 0;
        }
    }
    return -EINVAL;
}

bool fb_keep_admits(enum fb_keep keep, bool is_ahead, uint64_t used_bytes, uint64_t quota_bytes,
                    uint64_t item_bytes)
{
    switch (keep) {
    case FB_KEEP_NEVER:
        return false;
    case FB_KEEP_CYCLE:
        if (is_ahead)
            return item_bytes <= quota_bytes;
        return used_bytes + item_bytes <= quota_bytes;
    case FB_KEEP_UNIFORM:
        return used_bytes + item_bytes <= quota_bytes;
    default:
        return item_bytes <= quota_bytes;
    }
}

bool fb_keep_drops(enum fb_keep keep, uint64_t end_bytes, uint64_t item_bytes)
{
    return (keep == FB_KEEP_EAGER || keep == FB_KEEP_NEVER) && end_bytes >= item_bytes;
}

/* Eager: of what was read the oldest, then what was fetched for nothing for longest. */
static bool goes_before(enum fb_keep keep, const struct fb_kept *a, const struct fb_kept *b)
{
    bool a_read = a->used_ns != 0, b_read = b->used_ns != 0;

    switch (keep) {
    case FB_KEEP_UNIFORM:
        return a->admitted_ns > b->admitted_ns;
    case FB_KEEP_CYCLE:
        return a->used_ns > b->used_ns;
    case FB_KEEP_EAGER:
    case FB_KEEP_NEVER:
        if (a_read != b_read)
            return a_read;
        return a_read ? a->used_ns < b->used_ns : a->admitted_ns < b->admitted_ns;
    default:
        return (a_read ? a->used_ns : a->admitted_ns) < (b_read ? b->used_ns : b->admitted_ns);
    }
}

uint32_t fb_keep_victim(enum fb_keep keep, const struct fb_kept *kept, uint32_t count)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < count; i++) {
        if (goes_before(keep, &kept[i], &kept[best]))
            best = i;
    }
    return best;
}
