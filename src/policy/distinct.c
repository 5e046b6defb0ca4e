#include "policy/distinct.h"

#include <math.h>

#include "base/hash.h"

#define PLACE_BITS 10
#define ALPHA      (0.7213 / (1 + 1.079 / FB_DISTINCT_PLACES)) /* of the paper by Flajolet et al. */

void fb_distinct_add(struct fb_distinct *d, uint64_t key, uint64_t bytes)
{
    uint64_t hash = fb_mix64(key);
    uint8_t *place = &d->place[hash & (FB_DISTINCT_PLACES - 1)];
    /* The bit set beyond the hash's end bounds the run. */
    uint8_t run = (uint8_t)(1 + __builtin_ctzll(hash >> PLACE_BITS | 1ULL << (64 - PLACE_BITS)));

    if (run <= *place)
        return;
    d->filled += *place == 0;
    d->lack += ldexp(1, -*place) - ldexp(1, -run);
    *place = run;
    d->raised++;
    d->bytes += (double)bytes;
}

uint64_t fb_distinct_items(const struct fb_distinct *d)
{
    double m = FB_DISTINCT_PLACES;
    double items = ALPHA * m * m / (m - d->lack);

    /* Few items: by the places that are still empty. */
    if (items < 2.5 * m && d->filled < FB_DISTINCT_PLACES)
        items = m * log(m / (m - d->filled));
    return (uint64_t)(items + 0.5);
}

uint64_t fb_distinct_bytes(const struct fb_distinct *d)
{
    return d->raised ? (uint64_t)((double)fb_distinct_items(d) * d->bytes / d->raised) : 0;
}
