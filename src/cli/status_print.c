/*
 * What a daemon says is shown as it is, but never trusted: a member that is missing or of another
 * type reads as zero, and text is printed without control characters.
 */
#include "cli/status_print.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/units.h"
#include "daemon/wire.h"

#define BAR_WIDTH   20
#define NUMBER_SIZE 32
#define RATIO_SIZE  16

static uint64_t number(const json_t *object, const char *name)
{
    json_int_t n = json_integer_value(json_object_get(object, name));

    return n > 0 ? (uint64_t)n : 0;
}

static const char *text(const json_t *object, const char *name)
{
    const char *s = json_string_value(json_object_get(object, name));

    return s ? s : "?";
}

static void print_path(FILE *out, const json_t *object, const char *name)
{
    FB_AUTO_FREE char *path = NULL;

    if (fb_wire_get_path(object, name, &path) == 0)
        cli_print_text(out, path);
    else
        fputc('?', out);
}

/* 1234567 as 1,234,567. */
static const char *format_count(char buf[NUMBER_SIZE], uint64_t n)
{
    char digits[NUMBER_SIZE];
    size_t len = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    size_t used = 0;

    for (size_t i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            buf[used++] = ',';
        buf[used++] = digits[i];
    }
    buf[used] = 0;
    return buf;
}

static const char *format_ratio(char buf[RATIO_SIZE], const json_t *object, const char *name)
{
    const json_t *ratio = json_object_get(object, name);

    if (json_is_number(ratio))
        snprintf(buf, RATIO_SIZE, "%.1f%%", 100 * json_number_value(ratio));
    else
        snprintf(buf, RATIO_SIZE, "-");
    return buf;
}

static void print_head(FILE *out, const json_t *daemon)
{
    char up[FB_UNITS_TEXT_MAX];
    double seconds = json_number_value(json_object_get(daemon, "uptime_seconds"));
    const json_t *dirs = json_object_get(daemon, "cache_dir");

    fprintf(out, "forebay ");
    cli_print_text(out, text(daemon, "version"));
    fprintf(out, "  process %llu, up %s, cache in ", (unsigned long long)number(daemon, "pid"),
            fb_format_duration(
                up, seconds > 0 && seconds < 1e9 ? (int64_t)(seconds * (double)FB_NS_PER_S) : 0));
    for (size_t i = 0; i < json_array_size(dirs); i++) {
        json_t *wrapped = json_pack("{s:O}", "dir", json_array_get(dirs, i));

        fputs(i ? ":" : "", out);
        print_path(out, wrapped, "dir");
        json_decref(wrapped);
    }
    if (json_is_string(json_object_get(daemon, "metrics_address"))) {
        fprintf(out, "\n  metrics  http://");
        cli_print_text(out, text(daemon, "metrics_address"));
        fputs("/metrics", out);
    } else if (json_is_string(json_object_get(daemon, "metrics_error"))) {
        fprintf(out, "\n  metrics  none: ");
        cli_print_text(out, text(daemon, "metrics_error"));
    }
    fputc('\n', out);
}

static void print_health(FILE *out, const json_t *source)
{
    uint64_t stuck = number(source, "source_stuck");

    cli_print_text(out, text(source, "consistency"));
    fputs(", source ", out);
    cli_print_text(out, text(source, "health"));
    if (stuck)
        fprintf(out, ", %llu requests stuck", (unsigned long long)stuck);
}

static void print_mounts(FILE *out, const json_t *mounts)
{
    size_t i;
    json_t *mount;

    json_array_foreach(mounts, i, mount)
    {
        fputs(i ? "           " : "  mounts   ", out);
        print_path(out, mount, "mountpoint");
        fputs("  from ", out);
        print_path(out, mount, "source");
        fputs("  (", out);
        print_health(out, mount);
        fputs(")\n", out);
    }
    if (json_array_size(mounts) == 0)
        fputs("  mounts   none\n", out);
}

static void print_shares(FILE *out, const json_t *d)
{
    const json_t *shares = json_object_get(d, "shares");
    const json_t *counters = json_object_get(d, "counters");
    char hits[NUMBER_SIZE];
    char bytes[FB_UNITS_TEXT_MAX];
    size_t i;
    json_t *share;

    json_array_foreach(shares, i, share)
    {
        uint64_t programs = number(share, "programs");

        fputs(i ? "           " : "  shares   ", out);
        print_path(out, share, "source");
        fprintf(out, "  to %llu program%s  (", (unsigned long long)programs,
                programs == 1 ? "" : "s");
        print_health(out, share);
        fputs(")\n", out);
    }
    if (json_array_size(shares) || number(counters, "client_hits"))
        fprintf(out, "  clients  %llu connected, with %s hits of their own (%s bytes)\n",
                (unsigned long long)number(d, "clients"),
                format_count(hits, number(counters, "client_hits")),
                fb_format_size(bytes, number(counters, "client_hit_bytes")));
}

static void print_line(FILE *out, const char *label, const char *n, const char *bytes,
                       const char *share, const char *byte_share)
{
    fprintf(out, "  %-8s %14s %8s   %6s of reads %6s of bytes\n", label, n, bytes, share,
            byte_share);
}

static void print_reads(FILE *out, const json_t *d)
{
    const json_t *counters = json_object_get(d, "counters");
    char n[NUMBER_SIZE];
    char bytes[FB_UNITS_TEXT_MAX];
    char share[RATIO_SIZE];
    char byte_share[RATIO_SIZE];

    fprintf(out, "  %-8s %14s %8s\n", "reads", format_count(n, number(d, "reads")),
            fb_format_size(bytes, number(d, "read_bytes")));
    print_line(out, "hits", format_count(n, number(d, "hits")),
               fb_format_size(bytes, number(d, "hit_bytes")), format_ratio(share, d, "hit_ratio"),
               format_ratio(byte_share, d, "byte_hit_ratio"));
    fprintf(out, "  %-8s %14s %8s\n", "misses", format_count(n, number(d, "misses")),
            fb_format_size(bytes, number(d, "miss_bytes")));
    fprintf(out, "  %-8s %14s requests %8s read, ", "source",
            format_count(n, number(counters, "source_requests")),
            fb_format_size(bytes, number(d, "source_read_bytes")));
    fprintf(out, "%s look%s at attributes\n", format_count(n, number(counters, "source_stats")),
            number(counters, "source_stats") == 1 ? "" : "s");
}

static void print_tier(FILE *out, const json_t *tier)
{
    char used_text[FB_UNITS_TEXT_MAX];
    char budget_text[FB_UNITS_TEXT_MAX];
    char items[NUMBER_SIZE];
    char hits[NUMBER_SIZE];
    uint64_t used = number(tier, "used_bytes");
    uint64_t budget = number(tier, "budget_bytes");
    double share = budget ? (double)used / (double)budget : 0;
    int filled = (int)(share * BAR_WIDTH + 0.5);
    char bar[BAR_WIDTH + 1];

    for (int i = 0; i < BAR_WIDTH; i++)
        bar[i] = i < filled ? '#' : '.';
    bar[BAR_WIDTH] = 0;
    fputs("  ", out);
    cli_print_text(out, text(tier, "name"));
    fprintf(out, "%*s [%s] %8s of %8s %14s items %14s hits\n",
            (int)(strlen(text(tier, "name")) < 8 ? 8 - strlen(text(tier, "name")) : 0), "", bar,
            fb_format_size(used_text, used), fb_format_size(budget_text, budget),
            format_count(items, number(tier, "items")), format_count(hits, number(tier, "hits")));
    if (json_is_true(json_object_get(tier, "disk_full")))
        fputs("           its disk has no room for more (see --free-space-ratio)\n", out);
}

static void print_disk(FILE *out, const json_t *disk)
{
    char sequential[FB_UNITS_TEXT_MAX], at_random[FB_UNITS_TEXT_MAX];

    fputs("  disk     ", out);
    print_path(out, disk, "dir");
    fprintf(out, "  reads %s/s in sequence, %s/s at random\n",
            fb_format_size(sequential, number(disk, "sequential_bytes_per_second")),
            fb_format_size(at_random, number(disk, "random_bytes_per_second")));
}

void cli_print_daemon(FILE *out, const json_t *daemon)
{
    size_t i;
    json_t *tier, *disk;

    print_head(out, daemon);
    print_mounts(out, json_object_get(daemon, "mounts"));
    print_shares(out, daemon);
    print_reads(out, daemon);
    json_array_foreach(json_object_get(daemon, "tiers"), i, tier)
    {
        print_tier(out, tier);
    }
    json_array_foreach(json_object_get(daemon, "disks"), i, disk)
    {
        print_disk(out, disk);
    }
    if (json_is_true(json_object_get(daemon, "epoch_log")))
        fputs("  epochs   of plans are laid out on disk\n", out);
}
