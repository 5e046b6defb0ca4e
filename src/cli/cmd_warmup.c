/*
 * `forebay warmup`: walks a directory of a mount, and has the daemon bring every file into the
 * cache, batch by batch. What is there already is passed over, so an interrupted warm-up goes on
 * where it was when it is started again.
 */
#include <errno.h>
#include <fts.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/settings.h"
#include "core/units.h"
#include "daemon/paths.h"
#include "daemon/wire.h"

#define BATCH_FILES 256
#define BATCH_BYTES \
 (24u << 10) /* of paths: a request is a line of 64 KiB at most, \u escapes in it */
#define BATCH_SIZE    (256ULL << 20)
#define BATCH_WAIT_NS (3600 * FB_NS_PER_S)
#define BAR_WIDTH     24
#define SHOW_EVERY_NS (200 * FB_NS_PER_MS)

struct options {
    bool check;
    bool json;
};

static const struct fb_setting table[] = {
    {.name = "check",
     .type = FB_SETTING_BOOL,
     .offset = offsetof(struct options, check),
     .help = "Only say how much is cached; fetch nothing"},
    {.name = "json",
     .letter = 'j',
     .type = FB_SETTING_BOOL,
     .offset = offsetof(struct options, json),
     .help = "Print one JSON object at the end, and no progress"},
};

static const struct fb_setting *flags(size_t *ret_count)
{
    *ret_count = FB_ARRAY_SIZE(table);
    return table;
}

struct warmup {
    struct options options;
    const char *path;
    uint64_t all_files, all_bytes; /* found by the walk */
    uint64_t files, bytes, cached, fetched, failed;
    char error[FB_ERROR_TEXT_MAX]; /* of the first that failed */
    json_t *batch;
    json_t *places;                   /* of its files, when the daemon has done a part of it */
    uint64_t batch_bytes, part_bytes; /* the latter of files that are not over */
    size_t batch_text;
    int64_t begun_ns, shown_ns;
    bool show;
};

/* ---- progress ---- */

static void show(struct warmup *w, bool last)
{
    char done[FB_UNITS_TEXT_MAX], all[FB_UNITS_TEXT_MAX], rate[FB_UNITS_TEXT_MAX];
    char left[FB_UNITS_TEXT_MAX] = "";
    int64_t now_ns = fb_now_ns();
    uint64_t bytes = fb_min_u64(w->bytes + w->part_bytes, w->all_bytes);
    double share = w->all_bytes ? (double)bytes / (double)w->all_bytes : 1;
    double took_s = (double)(now_ns - w->begun_ns) / (double)FB_NS_PER_S;
    int full = (int)(share * BAR_WIDTH);

    if (!w->show || (!last && now_ns - w->shown_ns < SHOW_EVERY_NS))
        return;
    w->shown_ns = now_ns;
    if (share > 0.001 && share < 1)
        fb_format_duration(left, (int64_t)ceil(took_s * (1 - share) / share) * FB_NS_PER_S);
    fprintf(stderr, "\r[%.*s%.*s] %5.1f%%  %s of %s  %s/s%s%s \033[K", full,
            "########################", BAR_WIDTH - full, "........................", 100 * share,
            fb_format_size(done, bytes), fb_format_size(all, w->all_bytes),
            fb_format_size(rate, (uint64_t)((double)w->fetched / (took_s > 0.1 ? took_s : 0.1))),
            *left ? "  left " : "", left);
    if (last)
        fputc('\n', stderr);
}

/* ---- batches ---- */

static uint64_t number(const json_t *reply, const char *name)
{
    json_int_t n = json_integer_value(json_object_get(reply, name));

    return n > 0 ? (uint64_t)n : 0;
}

/* How far the files are that are not over. */
static uint64_t sum_places(const json_t *places)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < json_array_size(places); i++) {
        json_int_t place = json_integer_value(json_array_get(places, i));

        sum += place > 0 ? (uint64_t)place : 0;
    }
    return sum;
}

static int take_reply(struct warmup *w, const json_t *reply, struct fb_error *err)
{
    const char *error = json_string_value(json_object_get(reply, "error"));

    if (!reply)
        return cli_nobody_serves(w->path, err);
    if (!cli_reply_ok(reply))
        return fb_error_set(err, -EIO, "%s", cli_reply_error(reply));
    json_decref(w->places);
    w->places = json_incref(json_object_get(reply, "places"));
    w->part_bytes = sum_places(w->places);
    w->bytes += number(reply, "bytes");
    w->cached += number(reply, "cached_bytes");
    w->fetched += number(reply, "fetched_bytes");
    w->failed += number(reply, "failed");
    if (error && !w->error[0])
        snprintf(w->error, sizeof w->error, "%s", error);
    return 0;
}

/* Once, and as far as the daemon gets with it for now. */
static int send_part(struct warmup *w, struct fb_error *err)
{
    json_t *request, *reply = NULL;
    int rc;

    request = json_pack("{s:s, s:o*, s:O, s:O*, s:b}", "op", "warm", "path", fb_wire_path(w->path),
                        "paths", w->batch, "places", w->places, "check", w->options.check);
    rc = request ? cli_request_any(request, BATCH_WAIT_NS, &reply, NULL, err) : -ENOMEM;
    if (rc == 0)
        rc = take_reply(w, reply, err);
    json_decref(request);
    json_decref(reply);
    return rc;
}

static int send_batch(struct warmup *w, struct fb_error *err)
{
    uint64_t bytes = w->bytes;
    int rc = 0;

    if (json_array_size(w->batch) == 0)
        return 0;
    do {
        rc = send_part(w, err);
        show(w, false);
    } while (rc == 0 && w->places);
    json_decref(w->places);
    w->places = NULL;
    w->files += json_array_size(w->batch);
    w->bytes = bytes + w->batch_bytes; /* as the walk has seen them, for the bar */
    json_array_clear(w->batch);
    w->batch_bytes = w->part_bytes = 0;
    w->batch_text = 0;
    show(w, false);
    return rc;
}

static int add_file(struct warmup *w, const char *path, uint64_t size, struct fb_error *err)
{
    int rc = 0;

    if (json_array_size(w->batch) == BATCH_FILES || w->batch_text + strlen(path) > BATCH_BYTES ||
        w->batch_bytes + size > BATCH_SIZE)
        rc = send_batch(w, err);
    if (rc == 0 && json_array_append_new(w->batch, fb_wire_path(path)) < 0)
        rc = -ENOMEM;
    w->batch_text += strlen(path) + 8;
    w->batch_bytes += size;
    return rc;
}

/* ---- the walk ---- */

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Twice over the tree: to know how much it is, then to do it. */
static int walk(struct warmup *w, bool count, struct fb_error *err)
{
    char *roots[] = {(char *)(uintptr_t)w->path, NULL};
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    FTSENT *e;
    int rc = 0;

    if (!fts)
        return fb_error_set(err, -errno, "%s: %s", w->path, fb_strerror(errno));
    while (rc == 0 && (e = fts_read(fts))) {
        if (e->fts_info == FTS_ERR || e->fts_info == FTS_DNR || e->fts_info == FTS_NS)
            rc = fb_error_set(err, -e->fts_errno, "%s: %s", e->fts_path, fb_strerror(e->fts_errno));
        if (e->fts_info != FTS_F)
            continue;
        if (count) {
            w->all_files++;
            w->all_bytes += (uint64_t)e->fts_statp->st_size;
        } else {
            rc = add_file(w, e->fts_path, (uint64_t)e->fts_statp->st_size, err);
        }
    }
    fts_close(fts);
    return rc;
}

/* ---- the command ---- */

static void print_result(const struct warmup *w)
{
    char cached[FB_UNITS_TEXT_MAX], all[FB_UNITS_TEXT_MAX], fetched[FB_UNITS_TEXT_MAX];

    if (w->options.json) {
        printf("{\"files\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"cached_bytes\": %" PRIu64
               ", \"fetched_bytes\": %" PRIu64 ", \"failed\": %" PRIu64 "}\n",
               w->files, w->bytes, w->cached, w->fetched, w->failed);
        return;
    }
    printf("%" PRIu64 " file%s, %s of %s cached (%.1f%%), %s fetched\n", w->files,
           w->files == 1 ? "" : "s", fb_format_size(cached, w->cached),
           fb_format_size(all, w->bytes),
           w->bytes ? 100 * (double)w->cached / (double)w->bytes : 100.0,
           fb_format_size(fetched, w->fetched));
    if (!w->options.check && w->cached < w->bytes && w->failed == 0)
        puts("not all of it stays: the cache is too small, its disk is full, or a policy keeps it "
             "out");
}

static int walk_and_send(struct warmup *w, struct fb_error *err)
{
    int rc = walk(w, false, err);

    return rc ? rc : send_batch(w, err);
}

/* What was there when its batch was over may have made room for what came later. */
static int look_again(struct warmup *w, struct fb_error *err)
{
    struct warmup again = {.options = {.check = true}, .path = w->path, .batch = w->batch};
    int rc = walk_and_send(&again, err);

    w->cached = again.cached;
    return rc;
}

static int warm(struct warmup *w)
{
    struct fb_error error = {""};
    int rc = walk(w, true, &error);

    w->begun_ns = fb_now_ns();
    if (rc == 0)
        rc = walk_and_send(w, &error);
    if (rc == 0)
        show(w, true);
    if (rc == 0 && w->fetched > 0)
        rc = look_again(w, &error);
    if (rc)
        return cli_fail(CLI_FAILED, "%s", error.text[0] ? error.text : fb_strerror(rc));
    print_result(w);
    if (w->failed)
        return cli_fail(CLI_FAILED, "%" PRIu64 " file%s could not be read (%s)", w->failed,
                        w->failed == 1 ? "" : "s", w->error);
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    struct fb_error error = {""};
    FB_AUTO_FREE char *path = NULL;
    struct warmup w = {.bytes = 0};
    int positional = 0;
    int status;
    int rc;

    fb_settings_defaults(table, FB_ARRAY_SIZE(table), &w.options);
    rc = fb_settings_from_args(table, FB_ARRAY_SIZE(table), &w.options, argc, argv, &positional,
                               &error);
    if (rc || positional != 1)
        return cli_usage(&cli_warmup, "%s", rc ? error.text : "write one path");
    path = cli_path_in_bucket(argv[1]);
    rc = path ? 0 : fb_path_canonical(argv[1], &path);
    if (rc)
        return cli_fail(CLI_FAILED, "'%s': %s", argv[1], fb_strerror(rc));
    w.path = path;
    w.batch = json_array();
    w.show = !w.options.json && isatty(STDERR_FILENO);
    status = w.batch ? warm(&w) : cli_fail(CLI_FAILED, "out of memory");
    json_decref(w.batch);
    return status;
}

const struct cli_command cli_warmup = {
    .name = "warmup",
    .synopsis = "PATH [--check] [--json]",
    .summary = "Bring a directory of a mount into the cache",
    .about = "Every file at and below PATH, on a mount or below a source of `forebay run`, is "
             "fetched unless it is cached; several at a time. Interrupted, it can be started again "
             "and goes on with what is missing. --check says how much is cached.",
    .example = "  forebay warmup /data/imagenet/train\n"
               "  forebay warmup /data/imagenet --check\n",
    .table = flags,
    .run = run,
};
