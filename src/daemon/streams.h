/*
 * daemon/streams.h - what the brain has recognised, for `forebay streams`.
 */
#ifndef FB_DAEMON_STREAMS_H
#define FB_DAEMON_STREAMS_H

#include <jansson.h>

#include "daemon/mounts.h"
#include "daemon/shares.h"

/* The reply to who asks: the sources' roots, each with its children in it, and the plans. `shares`
 * may be NULL. */
json_t *fb_streams_json(struct fb_cache *cache, struct fb_mounts *mounts, struct fb_shares *shares);

#endif
