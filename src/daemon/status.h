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
#include "daemon/shares.h"

/* Programs that are served without a mount. The cache's own metrics count their hits, too. */
#define FB_CLIENT_METRICS(X)                                                                    \
 X(FB_XM_CLIENT_HITS, "client_hits", COUNTER, "",                                               \
   "Reads that programs answered themselves from shared memory; they are hits in DRAM as well") \
 X(FB_XM_CLIENT_HIT_BYTES, "client_hit", COUNTER, "bytes", "Bytes of such reads")               \
 X(FB_XM_CLIENTS, "clients", GAUGE, "", "Processes that are connected")

enum fb_client_metric {
    FB_CLIENT_METRICS(FB_METRIC_ENUM)
};

struct fb_status {
    struct fb_cache *cache;
    struct fb_mounts *mounts;
    struct fb_shares *shares; /* NULL: programs are not served, */
    struct fb_local *local;   /* and so is this */
    const struct fb_config *config;
    int64_t started_ns;
    const char *metrics_where; /* NULL: not served */
    const char *metrics_error; /* the reason, where they should be */
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

/* A table filled with the present values; free(3) it. NULL without memory. */
FB_MUST_CHECK struct fb_metrics *fb_status_client_metrics(const struct fb_status *status);

/* Reads that were answered from a tier of that kind, and their bytes. */
struct fb_tier_hits {
    uint64_t reads;
    uint64_t bytes;
};

struct fb_tier_hits fb_status_tier_hits(struct fb_cache *cache, enum fb_tier_kind kind);

/* Hits of all tiers together. */
struct fb_tier_hits fb_status_hits(struct fb_cache *cache);

#endif
