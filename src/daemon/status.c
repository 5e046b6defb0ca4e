#include "daemon/status.h"

#include <unistd.h>

#include "core/clock.h"
#include "core/mem.h"
#include "daemon/version.h"
#include "daemon/wire.h"
#include "doors/fuse/mount.h"

#define NAME_MAX_ 128

static const struct fb_status_field fields[] = {
    {"pid", "process of the daemon"},
    {"version", "of the daemon"},
    {"uptime_seconds", "since the daemon started"},
    {"cache_dir", "the directories of the cache"},
    {"memory_bytes", "the budget of --memory"},
    {"metrics_address", "where /metrics is served, or null"},
    {"metrics_error", "why it is not, where --metrics asks for it, or null"},
    {"settings.*", "the daemon's settings, as a flag would take them"},
    {"reads, read_bytes", "what programs asked for, beyond the kernel's page cache"},
    {"hits, hit_bytes", "of these, answered from the cache"},
    {"misses, miss_bytes", "of these, waited for the source"},
    {"hit_ratio", "hits / (hits + misses), or null before the first read"},
    {"byte_hit_ratio", "the same by bytes"},
    {"source_read_bytes", "bytes read from sources"},
    {"tiers[].name", "dram, pmem or nvme"},
    {"tiers[].budget_bytes, used_bytes, live_bytes",
     "room; taken by segments' records; of these, still wanted"},
    {"tiers[].items, segments, slots", "items held; segments in use; segments there is room for"},
    {"tiers[].disk_full", "the disk has no room for more, but for the share of --free-space-ratio"},
    {"tiers[].hits, hit_bytes", "reads answered from this tier"},
    {"disks[].dir, sequential_bytes_per_second, random_bytes_per_second",
     "how fast the disk of a cache directory reads, where it was measured"},
    {"epoch_log", "whether epochs of plans are laid out on disk"},
    {"mounts[].source, mountpoint, consistency", "the mount"},
    {"mounts[].state", "live, or changing: being mounted or unmounted"},
    {"mounts[].health", "of the source: up, suspect or down"},
    {"mounts[].source_requests, source_read_bytes, source_errors, source_timeouts",
     "what was asked of the source"},
    {"mounts[].source_in_flight, source_stuck", "requests not answered; of these, past their time"},
    {"shares[].source, names, consistency", "a source that programs read without a mount"},
    {"shares[].programs", "that were started for it (`forebay run`) and have not ended"},
    {"shares[].state, health, source_*", "as those of a mount"},
    {"clients", "processes that read so and are connected"},
    {"counters.*", "every counter of /metrics"},
};

const struct fb_status_field *fb_status_fields(size_t *ret_count)
{
    *ret_count = FB_ARRAY_SIZE(fields);
    return fields;
}

struct fb_tier_hits fb_status_tier_hits(struct fb_cache *cache, enum fb_tier_kind kind)
{
    static const struct {
        unsigned reads;
        unsigned bytes;
    } ids[] = {
        [FB_TIER_DRAM] = {FB_CM_HITS_DRAM, FB_CM_HIT_BYTES_DRAM},
        [FB_TIER_PMEM] = {FB_CM_HITS_PMEM, FB_CM_HIT_BYTES_PMEM},
        [FB_TIER_NVME] = {FB_CM_HITS_NVME, FB_CM_HIT_BYTES_NVME},
    };
    const struct fb_metrics *m = fb_cache_metrics(cache);

    return (struct fb_tier_hits){
        .reads = fb_metric_get(m, ids[kind].reads),
        .bytes = fb_metric_get(m, ids[kind].bytes),
    };
}

struct fb_tier_hits fb_status_hits(struct fb_cache *cache)
{
    static const enum fb_tier_kind kinds[] = {FB_TIER_DRAM, FB_TIER_PMEM, FB_TIER_NVME};
    struct fb_tier_hits sum = {0};

    for (size_t i = 0; i < FB_ARRAY_SIZE(kinds); i++) {
        struct fb_tier_hits hits = fb_status_tier_hits(cache, kinds[i]);

        sum.reads += hits.reads;
        sum.bytes += hits.bytes;
    }
    return sum;
}

struct fb_metrics *fb_status_client_metrics(const struct fb_status *status)
{
    static const struct fb_metric_info info[] = {FB_CLIENT_METRICS(FB_METRIC_INFO)};
    struct fb_metrics *m = fb_alloc(sizeof *m);
    uint64_t reads = 0;
    uint64_t bytes = 0;

    if (!m)
        return NULL;
    fb_metrics_init(m, info, FB_ARRAY_SIZE(info));
    if (status->local)
        fb_local_hits(status->local, &reads, &bytes);
    fb_metric_set(m, FB_XM_CLIENT_HITS, reads);
    fb_metric_set(m, FB_XM_CLIENT_HIT_BYTES, bytes);
    fb_metric_set(m, FB_XM_CLIENTS, status->local ? fb_local_clients(status->local) : 0);
    return m;
}

static json_t *count(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *ratio(uint64_t part, uint64_t rest)
{
    return part + rest ? json_real((double)part / (double)(part + rest)) : json_null();
}

/* All setters take the value over and tolerate NULL: the object then lacks a member. */
static void set(json_t *object, const char *name, json_t *value)
{
    if (value)
        json_object_set_new(object, name, value);
}

static json_t *tier_json(const struct fb_status *s, unsigned no)
{
    struct fb_store *store = fb_cache_store(s->cache);
    struct fb_tier_hits hits =
        fb_status_tier_hits(s->cache, fb_tier_kind(fb_store_tier(store, no)));
    struct fb_tier_stats stats;
    json_t *tier = json_object();

    fb_store_tier_stats(store, no, &stats);
    set(tier, "name", json_string(stats.name));
    set(tier, "budget_bytes", count(stats.budget_bytes));
    set(tier, "used_bytes", count(stats.used_bytes));
    set(tier, "live_bytes", count(stats.live_bytes));
    set(tier, "items", count(stats.items));
    set(tier, "segments", count(stats.segments));
    set(tier, "slots", count(stats.slots));
    set(tier, "disk_full", json_boolean(stats.is_short));
    set(tier, "hits", count(hits.reads));
    set(tier, "hit_bytes", count(hits.bytes));
    return tier;
}

/* What mounts and shares have in common: each is a source with its settings. */
static void add_source(json_t *object, const struct fb_mount_settings *settings, bool live,
                       int64_t age_ns, const struct fb_source_stats *stats)
{
    char consistency[32];

    set(object, "consistency",
        json_string(fb_config_choice(FB_CONSISTENCY_NAMES, settings->consistency, consistency,
                                     sizeof consistency)));
    set(object, "state", json_string(live ? "live" : "changing"));
    if (!live)
        return;
    set(object, "age_seconds", json_real((double)age_ns / (double)FB_NS_PER_S));
    set(object, "health", json_string(fb_source_health_name(stats->health)));
    set(object, "source_requests", count(stats->jobs));
    set(object, "source_read_bytes", count(stats->bytes_read));
    set(object, "source_errors", count(stats->errors));
    set(object, "source_timeouts", count(stats->timeouts));
    set(object, "source_in_flight", count(stats->in_flight));
    set(object, "source_stuck", count(stats->stuck));
}

static void add_mount(void *arg, const struct fb_mount_view *view)
{
    json_t *mount = json_object();

    set(mount, "source", fb_wire_path(view->source));
    set(mount, "mountpoint", fb_wire_path(view->mountpoint));
    add_source(mount, view->settings, view->live, view->age_ns, &view->stats);
    json_array_append_new(arg, mount);
}

static void add_share(void *arg, const struct fb_share_view *view)
{
    json_t *share = json_object();
    json_t *names = json_array();

    set(share, "source", fb_wire_path(view->source));
    for (unsigned i = 0; i < view->name_count; i++)
        json_array_append_new(names, fb_wire_path(view->names[i]));
    set(share, "names", names);
    set(share, "programs", count(view->programs));
    add_source(share, view->settings, view->live, view->age_ns, &view->stats);
    json_array_append_new(arg, share);
}

static void add_counters(json_t *counters, const struct fb_metrics *m)
{
    for (unsigned i = 0; i < m->count; i++) {
        char name[NAME_MAX_];

        snprintf(name, sizeof name, "%s%s%s", m->info[i].name, *m->info[i].unit ? "_" : "",
                 m->info[i].unit);
        set(counters, name, count(fb_metric_get(m, i)));
    }
}

static void add_ratios(json_t *object, struct fb_cache *cache)
{
    const struct fb_metrics *m = fb_cache_metrics(cache);
    struct fb_tier_hits hits = fb_status_hits(cache);
    uint64_t misses = fb_metric_get(m, FB_CM_MISSES);
    uint64_t miss_bytes = fb_metric_get(m, FB_CM_MISS_BYTES);

    set(object, "reads", count(fb_metric_get(m, FB_CM_READS)));
    set(object, "read_bytes", count(fb_metric_get(m, FB_CM_READ_BYTES)));
    set(object, "hits", count(hits.reads));
    set(object, "hit_bytes", count(hits.bytes));
    set(object, "misses", count(misses));
    set(object, "miss_bytes", count(miss_bytes));
    set(object, "hit_ratio", ratio(hits.reads, misses));
    set(object, "byte_hit_ratio", ratio(hits.bytes, miss_bytes));
    set(object, "source_read_bytes", count(fb_metric_get(m, FB_CM_FETCH_BYTES)));
}

static json_t *settings_json(const struct fb_config *config)
{
    size_t rows;
    const struct fb_setting *table = fb_config_table(&rows);
    json_t *settings = json_object();

    for (size_t i = fb_config_mount_rows(); i < rows; i++) {
        char value[FB_ERROR_TEXT_MAX];

        set(settings, table[i].name,
            fb_wire_path(fb_settings_format(&table[i], config, value, sizeof value)));
    }
    return settings;
}

static json_t *disks_json(const struct fb_status *s)
{
    json_t *disks = json_array();

    for (unsigned i = 0; i < s->config->dir_count; i++) {
        struct fb_disk_speed speed;
        json_t *disk;

        if (!fb_cache_disk_speed(s->cache, i, &speed))
            continue;
        disk = json_object();
        set(disk, "dir", fb_wire_path(s->config->dirs[i]));
        set(disk, "sequential_bytes_per_second", count(speed.sequential));
        set(disk, "random_bytes_per_second", count(speed.random));
        json_array_append_new(disks, disk);
    }
    return disks;
}

json_t *fb_status_json(const struct fb_status *status)
{
    struct fb_store *store = fb_cache_store(status->cache);
    json_t *object = fb_wire_ok();
    json_t *dirs = json_array();
    json_t *tiers = json_array();
    json_t *mounts = json_array();
    json_t *shares = json_array();
    json_t *counters = json_object();
    FB_AUTO_FREE struct fb_metrics *clients = fb_status_client_metrics(status);

    set(object, "pid", json_integer(getpid()));
    set(object, "version", json_string(fb_version_text()));
    set(object, "uptime_seconds",
        json_real((double)(fb_now_ns() - status->started_ns) / (double)FB_NS_PER_S));
    for (unsigned i = 0; i < status->config->dir_count; i++)
        json_array_append_new(dirs, fb_wire_path(status->config->dirs[i]));
    set(object, "cache_dir", dirs);
    set(object, "memory_bytes", count(status->config->memory_bytes));
    set(object, "metrics_address",
        status->metrics_where ? json_string(status->metrics_where) : json_null());
    set(object, "metrics_error",
        status->metrics_error ? json_string(status->metrics_error) : json_null());
    set(object, "settings", settings_json(status->config));
    add_ratios(object, status->cache);
    for (unsigned i = 0; i < fb_store_tiers(store); i++)
        json_array_append_new(tiers, tier_json(status, i));
    set(object, "tiers", tiers);
    set(object, "disks", disks_json(status));
    set(object, "epoch_log", json_boolean(fb_cache_lays_out(status->cache)));
    fb_mounts_visit(status->mounts, add_mount, mounts);
    set(object, "mounts", mounts);
    if (status->shares)
        fb_shares_visit(status->shares, add_share, shares);
    set(object, "shares", shares);
    add_counters(counters, fb_cache_metrics(status->cache));
    add_counters(counters, fb_store_metrics(store));
    if (clients) {
        add_counters(counters, clients);
        set(object, "clients", count(fb_metric_get(clients, FB_XM_CLIENTS)));
    }
    set(object, "counters", counters);
    return object;
}
