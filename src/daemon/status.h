/*
 * daemon/status.h - what the daemon tells of itself: as JSON for `forebay status`, as text for
 * Prometheus. Both are made from the metrics tables of the modules, so neither can drift from them.
 */
#ifndef FB_DAEMON_STATUS_H
#define FB_DAEMON_STATUS_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "base/attr.h"
#include "cache/cache.h"
#include "daemon/config.h"
#include "daemon/mounts.h"

struct fb_status {
    struct fb_cache *cache;
    struct fb_mounts *mounts;
    const struct fb_config *config;
    int64_t started_ns;
    const char *metrics_where; /* NULL: not served */
};

/* What a member of the JSON object means: for --help and the manual page. */
struct fb_status_field {
    const char *name; /* "mounts[].source" */
    const char *help;
};

const struct fb_status_field *fb_status_fields(size_t *ret_count);

/* NULL without memory. */
FB_MUST_CHECK json_t *fb_status_json(const struct fb_status *status);

void fb_status_prometheus(const struct fb_status *status, FILE *out);

/* Reads that were answered from a tier of that kind, and their bytes. */
struct fb_tier_hits {
    uint64_t reads;
    uint64_t bytes;
};

struct fb_tier_hits fb_status_tier_hits(struct fb_cache *cache, enum fb_tier_kind kind);

/* Hits of all tiers together. */
struct fb_tier_hits fb_status_hits(struct fb_cache *cache);

#endif
