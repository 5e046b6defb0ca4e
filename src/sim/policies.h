/*
 * sim/policies.h - every policy's table; sim/policies.c lists them.
 */
#ifndef FB_SIM_POLICIES_H
#define FB_SIM_POLICIES_H

#include "sim/cache.h"

extern const struct fb_sim_policy fb_sim_fifo;
extern const struct fb_sim_policy fb_sim_lru;
extern const struct fb_sim_policy fb_sim_clock;
extern const struct fb_sim_policy fb_sim_slru;
extern const struct fb_sim_policy fb_sim_lfu;
extern const struct fb_sim_policy fb_sim_2q;
extern const struct fb_sim_policy fb_sim_arc;
extern const struct fb_sim_policy fb_sim_lirs;
extern const struct fb_sim_policy fb_sim_s3fifo;
extern const struct fb_sim_policy fb_sim_sieve;
extern const struct fb_sim_policy fb_sim_lhd;
extern const struct fb_sim_policy fb_sim_gdsf;
extern const struct fb_sim_policy fb_sim_hyperbolic;
extern const struct fb_sim_policy fb_sim_wtinylfu;
extern const struct fb_sim_policy fb_sim_lecar;
extern const struct fb_sim_policy fb_sim_cacheus;
extern const struct fb_sim_policy fb_sim_segcache;
extern const struct fb_sim_policy fb_sim_uniform;
extern const struct fb_sim_policy fb_sim_glcache_e;
extern const struct fb_sim_policy fb_sim_glcache_t;
extern const struct fb_sim_policy fb_sim_learned;
extern const struct fb_sim_policy fb_sim_glcache_oracle;
extern const struct fb_sim_policy fb_sim_lrb;
extern const struct fb_sim_policy fb_sim_belady;
extern const struct fb_sim_policy fb_sim_belady_size;

#endif
