/*
 * sim/alike.h - how alike the objects of a group are (GL-Cache's paper, figure 2): the reason why
 * groups by time of writing can be judged as one.
 *
 * Of every object of a trace that is asked for more than once, the mean time between its requests
 * is taken. Objects are put into groups of a given size by the time of their first request, by lot
 * or by their size; a group's spread is the standard deviation of those times over their mean. The
 * less, the more alike. Times are counted in requests.
 */
#ifndef FB_SIM_ALIKE_H
#define FB_SIM_ALIKE_H

#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"
#include "trace/trace.h"

enum fb_sim_order {
    FB_SIM_BY_TIME,
    FB_SIM_BY_LOT,
    FB_SIM_BY_SIZE,
    FB_SIM_ORDERS,
};

struct fb_sim_alike;

/* Reads the trace to its end, and goes back to its start. */
FB_MUST_CHECK int fb_sim_alike_create(struct fb_trace *trace, uint64_t seed,
                                      struct fb_sim_alike **ret_alike, struct fb_error *err);
void fb_sim_alike_destroy(struct fb_sim_alike *alike);

/* The mean spread of groups of `group` objects; NAN when none has two objects with a time. */
double fb_sim_alike_spread(const struct fb_sim_alike *alike, enum fb_sim_order order, size_t group);

/* The mean times of groups by time of writing, at most `max` of them, evenly chosen, over the mean
 * of all groups; returns how many. */
size_t fb_sim_alike_means(const struct fb_sim_alike *alike, size_t group, double *ret_means,
                          size_t max);

#endif
