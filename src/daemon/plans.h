/*
 * daemon/plans.h - plans of training jobs, as they come over the control socket.
 */
#ifndef FB_DAEMON_PLANS_H
#define FB_DAEMON_PLANS_H

#include <jansson.h>

#include "base/attr.h"
#include "cache/cache.h"

/* Takes a plan for a directory below the volume's source. `request` has the order's members as
 * numbers, and the name of a file with the paths of the data set, each ended by a zero. */
FB_MUST_CHECK json_t *fb_plans_take(struct fb_volume *volume, const char *dir,
                                    const json_t *request);

/* All plans, a list of objects; `full` makes a whole path of one below a source (malloc'd). */
typedef char *fb_plans_path_fn(const void *arg, uint16_t source, const char *dir);
FB_MUST_CHECK json_t *fb_plans_json(struct fb_cache *cache, fb_plans_path_fn *full,
                                    const void *arg);

/* "seed 42, epoch 3, exact", for the directory of a plan, in `text`; false: there is none. */
#define FB_PLAN_TEXT_SIZE 128
bool fb_plans_text(struct fb_cache *cache, uint16_t source, const char *dir,
                   char text[FB_PLAN_TEXT_SIZE]);

#endif
