#include "sim/alike.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/rand.h"
#include "core/mem.h"
#include "sim/cache.h"
#include "sim/map.h"

#define BATCH 4096

struct object {
    uint64_t first; /* request number */
    uint64_t last;
    uint32_t requests;
    uint32_t size;
};

struct fb_sim_alike {
    struct object *object; /* in the order of their first requests */
    size_t objects;
    size_t room;
    uint32_t *order[FB_SIM_ORDERS];
};

/* A draw that decides between objects of equal size. */
struct sized {
    uint32_t size;
    uint32_t lot;
    uint32_t id;
};

/* ---- reading ---- */

static int note(struct fb_sim_alike *a, const uint32_t *id, const uint32_t *size, size_t count,
                uint64_t first)
{
    for (size_t i = 0; i < count; i++) {
        struct object *o;

        if (id[i] >= a->room) {
            int rc = fb_sim_grow(&a->object, &a->room, 2 * (size_t)id[i] + BATCH, sizeof *o);

            if (rc)
                return rc;
        }
        o = &a->object[id[i]];
        if (o->requests == 0) {
            o->first = first + i;
            o->size = size[i];
            a->objects++;
        }
        o->last = first + i;
        o->requests++;
    }
    return 0;
}

static int read_all(struct fb_sim_alike *a, struct fb_trace *trace, struct fb_sim_map *map,
                    struct fb_error *err)
{
    struct fb_trace_request requests[BATCH];
    uint32_t id[BATCH];
    uint32_t size[BATCH];
    uint64_t first = 0;
    size_t count;

    for (;; first += count) {
        int rc = fb_trace_read(trace, requests, BATCH, &count, err);

        if (rc || count == 0)
            return rc;
        rc = fb_sim_map_batch(map, requests, count, id, size);
        if (!rc)
            rc = note(a, id, size, count, first);
        if (rc)
            return rc;
    }
}

/* ---- orders ---- */

static int by_size(const void *a, const void *b)
{
    const struct sized *x = a;
    const struct sized *y = b;

    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return x->lot < y->lot ? -1 : x->lot > y->lot;
}

static int make_orders(struct fb_sim_alike *a, uint64_t seed)
{
    FB_AUTO_FREE struct sized *sized = fb_alloc_array(a->objects, sizeof *sized);
    struct fb_rand lot = {seed};

    for (unsigned i = 0; i < FB_SIM_ORDERS; i++)
        a->order[i] = fb_alloc_array(a->objects, sizeof *a->order[i]);
    if (!sized || !a->order[FB_SIM_BY_TIME] || !a->order[FB_SIM_BY_LOT] ||
        !a->order[FB_SIM_BY_SIZE])
        return -ENOMEM;
    for (uint32_t i = 0; i < a->objects; i++) {
        uint32_t other = (uint32_t)fb_rand_below(&lot, i + 1);

        a->order[FB_SIM_BY_TIME][i] = i;
        a->order[FB_SIM_BY_LOT][i] = a->order[FB_SIM_BY_LOT][other];
        a->order[FB_SIM_BY_LOT][other] = i;
        sized[i] = (struct sized){a->object[i].size, (uint32_t)fb_rand_u64(&lot), i};
    }
    if (a->objects > 1)
        qsort(sized, a->objects, sizeof *sized, by_size);
    for (size_t i = 0; i < a->objects; i++)
        a->order[FB_SIM_BY_SIZE][i] = sized[i].id;
    return 0;
}

int fb_sim_alike_create(struct fb_trace *trace, uint64_t seed, struct fb_sim_alike **ret_alike,
                        struct fb_error *err)
{
    struct fb_sim_alike *a = fb_alloc(sizeof *a);
    struct fb_sim_map *map = NULL;
    int rc = a ? fb_sim_map_create(&map) : -ENOMEM;

    if (!rc)
        rc = read_all(a, trace, map, err);
    if (!rc)
        rc = make_orders(a, seed);
    if (!rc)
        rc = fb_trace_rewind(trace, err);
    fb_sim_map_destroy(map);
    if (rc) {
        fb_sim_alike_destroy(a);
        return rc;
    }
    *ret_alike = a;
    return 0;
}

void fb_sim_alike_destroy(struct fb_sim_alike *alike)
{
    if (!alike)
        return;
    for (unsigned i = 0; i < FB_SIM_ORDERS; i++)
        free(alike->order[i]);
    free(alike->object);
    free(alike);
}

/* ---- groups ---- */

/* Mean and deviation of the times of `group` objects from `from` on; how many have one. */
static size_t judge(const struct fb_sim_alike *a, enum fb_sim_order order, size_t from,
                    size_t group, double *ret_mean, double *ret_deviation)
{
    double sum = 0;
    double squares = 0;
    size_t count = 0;

    for (size_t i = from; i < from + group; i++) {
        const struct object *o = &a->object[a->order[order][i]];
        double gap;

        if (o->requests < 2)
            continue;
        gap = (double)(o->last - o->first) / (o->requests - 1);
        sum += gap;
        squares += gap * gap;
        count++;
    }
    if (count > 0) {
        *ret_mean = sum / (double)count;
        *ret_deviation = sqrt(fmax(squares / (double)count - *ret_mean * *ret_mean, 0));
    }
    return count;
}

double fb_sim_alike_spread(const struct fb_sim_alike *alike, enum fb_sim_order order, size_t group)
{
    double sum = 0;
    size_t groups = 0;

    for (size_t from = 0; from + group <= alike->objects; from += group) {
        double mean;
        double deviation;

        if (judge(alike, order, from, group, &mean, &deviation) < 2)
            continue;
        sum += deviation / mean;
        groups++;
    }
    return groups ? sum / (double)groups : NAN;
}

size_t fb_sim_alike_means(const struct fb_sim_alike *alike, size_t group, double *ret_means,
                          size_t max)
{
    size_t groups = alike->objects / group;
    size_t wanted = groups < max ? groups : max;
    size_t count = 0;
    double sum = 0;

    for (size_t i = 0; i < wanted; i++) {
        double deviation;

        if (judge(alike, FB_SIM_BY_TIME, i * groups / wanted * group, group, &ret_means[count],
                  &deviation) > 0)
            sum += ret_means[count++];
    }
    for (size_t i = 0; i < count; i++)
        ret_means[i] *= (double)count / sum;
    return count;
}
