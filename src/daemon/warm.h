/*
 * daemon/warm.h - a batch of files brought into the cache, or looked for there.
 */
#ifndef FB_DAEMON_WARM_H
#define FB_DAEMON_WARM_H

#include <jansson.h>

#include "cache/cache.h"

/* {"paths": [...], "check": bool}: absolute paths below `root`, which is where the volume is seen.
 * Waits for the source. */
json_t *fb_warm_batch(struct fb_volume *volume, const char *root, const json_t *request);

#endif
