/*
 * sim/policies.h - every policy's table; sim/policies.c lists them.
 */
#ifndef FB_SIM_POLICIES_H
#define FB_SIM_POLICIES_H

#include "sim/cache.h"

extern const struct fb_sim_policy fb_sim_fifo;
extern const struct fb_sim_policy fb_sim_lru;

#endif
