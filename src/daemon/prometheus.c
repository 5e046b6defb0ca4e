/*
 * The text format: HELP and TYPE of a name once, then its samples. Counters end in _total, units
 * stand before that.
 */
#include <inttypes.h>

#include "core/clock.h"
#include "core/mem.h"
#include "daemon/status.h"
#include "daemon/version.h"

struct tier_gauge {
    const char *name;
    const char *kind;
    const char *help;
    uint64_t (*value)(const struct fb_tier_stats *stats, const struct fb_tier_hits *hits);
};

struct source_gauge {
    const char *name;
    const char *kind;
    const char *help;
    uint64_t (*value)(const struct fb_source_stats *stats);
};

static void write_head(FILE *out, const char *name, const char *kind, const char *help)
{
    fprintf(out, "# HELP forebay_%s %s\n# TYPE forebay_%s %s\n", name, help, name, kind);
}

static void write_table(FILE *out, const struct fb_metrics *m)
{
    for (unsigned i = 0; i < m->count; i++) {
        const struct fb_metric_info *info = &m->info[i];
        bool counter = info->kind == FB_METRIC_COUNTER;
        FB_AUTO_FREE char *name = fb_asprintf("%s%s%s%s", info->name, *info->unit ? "_" : "",
                                              info->unit, counter ? "_total" : "");

        if (!name)
            return;
        write_head(out, name, counter ? "counter" : "gauge", info->help);
        fprintf(out, "forebay_%s %" PRIu64 "\n", name, fb_metric_get(m, i));
    }
}

/* ---- tiers ---- */

static uint64_t tier_budget(const struct fb_tier_stats *s, const struct fb_tier_hits *h)
{
    (void)h;
    return s->budget_bytes;
}

static uint64_t tier_used(const struct fb_tier_stats *s, const struct fb_tier_hits *h)
{
    (void)h;
    return s->used_bytes;
}

static uint64_t tier_live(const struct fb_tier_stats *s, const struct fb_tier_hits *h)
{
    (void)h;
    return s->live_bytes;
}

static uint64_t tier_items(const struct fb_tier_stats *s, const struct fb_tier_hits *h)
{
    (void)h;
    return s->items;
}

static uint64_t tier_segments(const struct fb_tier_stats *s, const struct fb_tier_hits *h)
{
    (void)h;
    return s->segments;
}

static uint64_t tier_hits(const struct fb_tier_stats *s, const struct fb_tier_hits *h)
{
    (void)s;
    return h->reads;
}

static uint64_t tier_hit_bytes(const struct fb_tier_stats *s, const struct fb_tier_hits *h)
{
    (void)s;
    return h->bytes;
}

static const struct tier_gauge tier_gauges[] = {
    {"tier_budget_bytes", "gauge", "Room in the tier", tier_budget},
    {"tier_used_bytes", "gauge", "Taken by the records of segments", tier_used},
    {"tier_live_bytes", "gauge", "Of these, still wanted", tier_live},
    {"tier_items", "gauge", "Items in the tier", tier_items},
    {"tier_segments", "gauge", "Segments in use", tier_segments},
    {"tier_hits_total", "counter", "Reads answered from the tier", tier_hits},
    {"tier_hit_bytes_total", "counter", "Bytes answered from the tier", tier_hit_bytes},
};

static void write_tiers(FILE *out, struct fb_cache *cache)
{
    struct fb_store *store = fb_cache_store(cache);

    for (size_t g = 0; g < FB_ARRAY_SIZE(tier_gauges); g++) {
        const struct tier_gauge *gauge = &tier_gauges[g];

        write_head(out, gauge->name, gauge->kind, gauge->help);
        for (unsigned i = 0; i < fb_store_tiers(store); i++) {
            struct fb_tier_hits hits =
                fb_status_tier_hits(cache, fb_tier_kind(fb_store_tier(store, i)));
            struct fb_tier_stats stats;

            fb_store_tier_stats(store, i, &stats);
            fprintf(out, "forebay_%s{tier=\"%s\"} %" PRIu64 "\n", gauge->name, stats.name,
                    gauge->value(&stats, &hits));
        }
    }
}

/* ---- sources, of mounts and shares ---- */

static uint64_t source_up(const struct fb_source_stats *s)
{
    return s->health != FB_SOURCE_DOWN;
}

static uint64_t source_suspect(const struct fb_source_stats *s)
{
    return s->health == FB_SOURCE_SUSPECT;
}

static uint64_t source_jobs(const struct fb_source_stats *s)
{
    return s->jobs;
}

static uint64_t source_bytes(const struct fb_source_stats *s)
{
    return s->bytes_read;
}

static uint64_t source_errors(const struct fb_source_stats *s)
{
    return s->errors;
}

static uint64_t source_timeouts(const struct fb_source_stats *s)
{
    return s->timeouts;
}

static uint64_t source_in_flight(const struct fb_source_stats *s)
{
    return s->in_flight;
}

static uint64_t source_stuck(const struct fb_source_stats *s)
{
    return s->stuck;
}

static const struct source_gauge source_gauges[] = {
    {"source_up", "gauge", "1 while the source answers, 0 when it is down", source_up},
    {"source_suspect", "gauge", "1 while a probe of the source is under way", source_suspect},
    {"source_requests_total", "counter", "Requests of any kind to the source", source_jobs},
    {"source_read_bytes_total", "counter", "Bytes read from the source", source_bytes},
    {"source_errors_total", "counter", "Requests that failed", source_errors},
    {"source_timeouts_total", "counter", "Requests that took too long", source_timeouts},
    {"source_in_flight", "gauge", "Requests not answered yet", source_in_flight},
    {"source_stuck", "gauge", "Requests past their time that hang in the source", source_stuck},
};

/* Scrapers refuse a page with a byte that is no UTF-8. */
static void write_label(FILE *out, const char *name, const char *value)
{
    json_t *text = json_string(value);
    bool utf8 = text != NULL;

    json_decref(text);
    fprintf(out, "%s=\"", name);
    for (; *value; value++) {
        if (!utf8 && (unsigned char)*value >= 0x80)
            fputc('?', out);
        else if (*value == '\n')
            fputs("\\n", out);
        else if (*value == '"' || *value == '\\')
            fprintf(out, "\\%c", *value);
        else
            fputc(*value, out);
    }
    fputc('"', out);
}

struct source_writer {
    FILE *out;
    const struct source_gauge *gauge;
};

static void write_mount(void *arg, const struct fb_mount_view *view)
{
    const struct source_writer *w = arg;

    if (!view->live)
        return;
    fprintf(w->out, "forebay_mount_%s{", w->gauge->name);
    write_label(w->out, "mountpoint", view->mountpoint);
    fputc(',', w->out);
    write_label(w->out, "source", view->source);
    fprintf(w->out, "} %" PRIu64 "\n", w->gauge->value(&view->stats));
}

static void write_share(void *arg, const struct fb_share_view *view)
{
    const struct source_writer *w = arg;

    if (!view->live)
        return;
    fprintf(w->out, "forebay_share_%s{", w->gauge->name);
    write_label(w->out, "source", view->source);
    fprintf(w->out, "} %" PRIu64 "\n", w->gauge->value(&view->stats));
}

static void write_source_head(const struct source_writer *w, const char *of)
{
    FB_AUTO_FREE char *name = fb_asprintf("%s_%s", of, w->gauge->name);

    if (name)
        write_head(w->out, name, w->gauge->kind, w->gauge->help);
}

static void write_sources(FILE *out, const struct fb_status *status)
{
    for (size_t g = 0; g < FB_ARRAY_SIZE(source_gauges); g++) {
        struct source_writer w = {.out = out, .gauge = &source_gauges[g]};

        write_source_head(&w, "mount");
        fb_mounts_visit(status->mounts, write_mount, &w);
        write_source_head(&w, "share");
        if (status->shares)
            fb_shares_visit(status->shares, write_share, &w);
    }
}

void fb_status_prometheus(const struct fb_status *status, FILE *out)
{
    FB_AUTO_FREE struct fb_metrics *clients = fb_status_client_metrics(status);

    write_head(out, "build_info", "gauge", "The version, as a label");
    fprintf(out, "forebay_build_info{version=\"%s\"} 1\n", fb_version_text());
    write_head(out, "uptime_seconds", "gauge", "Since the daemon started");
    fprintf(out, "forebay_uptime_seconds %.3f\n",
            (double)(fb_now_ns() - status->started_ns) / (double)FB_NS_PER_S);
    write_head(out, "memory_budget_bytes", "gauge", "The budget of --memory");
    fprintf(out, "forebay_memory_budget_bytes %" PRIu64 "\n", status->config->memory_bytes);
    write_head(out, "mounts", "gauge", "Mounts of this daemon");
    fprintf(out, "forebay_mounts %u\n", fb_mounts_count(status->mounts));
    write_head(out, "shares", "gauge", "Sources that programs read without a mount");
    fprintf(out, "forebay_shares %u\n", status->shares ? fb_shares_count(status->shares) : 0);
    write_table(out, fb_cache_metrics(status->cache));
    write_table(out, fb_store_metrics(fb_cache_store(status->cache)));
    if (clients)
        write_table(out, clients);
    write_tiers(out, status->cache);
    write_sources(out, status);
}
