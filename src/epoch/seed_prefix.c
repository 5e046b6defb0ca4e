#include "epoch/seed_prefix.h"

#include <string.h>

#include "base/attr.h"

/* The slot of a place, or the free one it would get. */
static uint32_t slot_of(const struct fb_prefix *p, uint32_t place)
{
    uint32_t slot = place * 2654435769u >> 20;

    _Static_assert(FB_PREFIX_SLOTS == 1 << 12, "the shift above");
    while (p->at[slot] && p->at[slot] != place + 1)
        slot = (slot + 1) % FB_PREFIX_SLOTS;
    return slot;
}

static uint32_t value_at(const struct fb_prefix *p, uint32_t place)
{
    uint32_t slot = slot_of(p, place);

    return p->at[slot] ? p->value[slot] : place;
}

void fb_prefix_begin(struct fb_prefix *p, uint32_t n)
{
    p->n = n;
    p->count = 0;
    memset(p->at, 0, sizeof p->at);
}

void fb_prefix_draw(struct fb_prefix *p, struct fb_mt19937 *mt, uint32_t count)
{
    count = (uint32_t)fb_min_u64(fb_min_u64(count, FB_PREFIX_MAX), p->n);
    for (uint32_t i = p->count; i < count; i++) {
        /* The last position of all takes what is left, without a draw. */
        uint32_t from = i + 1 < p->n ? i + fb_mt19937_u32(mt) % (p->n - i) : i;
        uint32_t here = value_at(p, i);
        uint32_t slot = slot_of(p, from);

        p->order[i] = p->at[slot] ? p->value[slot] : from;
        p->at[slot] = from + 1;
        p->value[slot] = here;
    }
    p->count = count > p->count ? count : p->count;
}
