#include "daemon/plans.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "daemon/wire.h"

/* ---- taking ---- */

/* The paths of the data set, from a file that the caller has made; not over a socket, as there may
 * be millions. */
static int read_names(const char *list, struct fb_names **ret_names, struct fb_error *err)
{
    struct fb_names *names = fb_names_new();
    FB_AUTO_FREE char *path = NULL;
    FILE *in = fopen(list, "re");
    size_t room = 0;
    ssize_t len;
    int rc = names ? 0 : -ENOMEM;

    if (!in)
        rc = -errno;
    while (rc == 0 && (len = getdelim(&path, &room, 0, in)) > 0) {
        if (path[len - 1] == 0)
            len--;
        rc = fb_names_add_path(names, path, (size_t)len, FB_NAMES_NO_SIZE);
    }
    if (rc == 0 && ferror(in))
        rc = -EIO;
    if (rc == 0 && fb_names_count(names) == 0)
        rc = -ENODATA;
    if (rc == 0)
        rc = fb_names_index(names);
    if (in)
        fclose(in);
    if (rc < 0) {
        fb_names_free(names);
        return fb_error_set(err, rc, "the list of files %s cannot be taken: %s", list,
                            fb_strerror(rc));
    }
    *ret_names = names;
    return 0;
}

static uint64_t number(const json_t *request, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(request, key));

    return value < 0 ? 0 : (uint64_t)value;
}

static uint32_t narrow(const json_t *request, const char *key)
{
    return (uint32_t)fb_min_u64(number(request, key), UINT32_MAX);
}

static bool flag(const json_t *request, const char *key)
{
    return json_is_true(json_object_get(request, key));
}

static int take_order(const json_t *request, struct fb_plan_order *order, struct fb_error *err)
{
    const char *sampler = json_string_value(json_object_get(request, "sampler"));
    const char *seed = json_string_value(json_object_get(request, "seed"));
    uint32_t rule = narrow(request, "rule"), generator = narrow(request, "generator");

    *order = (struct fb_plan_order){
        .epochs = number(request, "epochs"),
        .spec = {.shuffle = {.sampler = sampler ? fb_sampler_find(sampler) : NULL,
                             .rule = (enum fb_epoch_rule)rule,
                             .generator = (enum fb_torch_generator)generator,
                             .persistent_workers = flag(request, "persistent_workers"),
                             .old_randperm = flag(request, "old_randperm")},
                 .split = {.world = narrow(request, "world"),
                           .rank = narrow(request, "rank"),
                           .batch = narrow(request, "batch"),
                           .workers = narrow(request, "workers"),
                           .drop_last = flag(request, "drop_last"),
                           .drop_uneven = flag(request, "drop_uneven")},
                 .first_epoch = number(request, "first_epoch")},
    };
    /* A seed has 64 bits, a number of JSON 63. */
    if (!order->spec.shuffle.sampler || !seed || rule > FB_EPOCH_FIXED ||
        generator > FB_TORCH_SAMPLER || sscanf(seed, "%" SCNu64, &order->spec.shuffle.seed) != 1)
        return fb_error_set(err, -EINVAL, "the order of the plan was not understood");
    return 0;
}

json_t *fb_plans_take(struct fb_volume *volume, const char *dir, const json_t *request)
{
    struct fb_error error = {""};
    FB_AUTO_FREE char *list = NULL;
    struct fb_names *names = NULL;
    struct fb_plan_order order;
    int rc;

    if (flag(request, "end"))
        return json_pack("{s:b, s:i}", "ok", 1, "plans", (int)fb_cache_unplan(volume, dir));
    rc = fb_wire_get_path(request, "list", &list);
    if (rc < 0)
        return fb_wire_error(FB_WIRE_INVALID, "list must be a path");
    rc = take_order(request, &order, &error);
    if (rc == 0)
        rc = read_names(list, &names, &error);
    if (rc == 0)
        rc = fb_cache_plan(volume, dir, names, &order, &error);
    return rc < 0 ? fb_wire_error(FB_WIRE_FAILED, "%s", error.text) : fb_wire_ok();
}

/* ---- showing ---- */

/* So many accesses in a row that are not foretold, and the plan is not what is read. */
#define LOST_AFTER 64

static void write_text(const struct fb_plan_view *v, char text[FB_PLAN_TEXT_SIZE])
{
    snprintf(text, FB_PLAN_TEXT_SIZE, "seed %" PRIu64 ", epoch %" PRIu64 ", %s",
             v->order.spec.shuffle.seed, v->follow.epoch,
             v->follow.strange > LOST_AFTER ? "lost" : "exact");
}

struct listing {
    json_t *plans;
    fb_plans_path_fn *full;
    const void *arg;
};

static void add_plan(void *arg, const struct fb_plan_view *v)
{
    const struct listing *l = arg;
    const struct fb_plan_spec *spec = &v->order.spec;
    FB_AUTO_FREE char *path = l->full(l->arg, v->source, v->dir);
    char text[FB_PLAN_TEXT_SIZE];

    write_text(v, text);
    json_array_append_new(
        l->plans,
        json_pack(
            "{s:o*, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b}",
            "path", path ? fb_wire_path(path) : NULL, "plan", text, "sampler",
            spec->shuffle.sampler->name, "seed", (json_int_t)spec->shuffle.seed, "world",
            (json_int_t)spec->split.world, "rank", (json_int_t)spec->split.rank, "batch",
            (json_int_t)spec->split.batch, "workers", (json_int_t)spec->split.workers, "files",
            (json_int_t)v->files, "epoch", (json_int_t)v->follow.epoch, "samples",
            (json_int_t)v->follow.samples, "read", (json_int_t)v->follow.read, "ready",
            (json_int_t)v->ready, "window", (json_int_t)v->window, "buckets",
            (json_int_t)v->buckets, "found", v->found));
}

json_t *fb_plans_json(struct fb_cache *cache, fb_plans_path_fn *full, const void *arg)
{
    struct listing l = {.plans = json_array(), .full = full, .arg = arg};

    fb_cache_plans(cache, add_plan, &l);
    return l.plans;
}

struct wanted {
    uint16_t source;
    const char *dir;
    char *text;
    bool found;
};

static void find_plan(void *arg, const struct fb_plan_view *v)
{
    struct wanted *w = arg;

    if (v->source != w->source || strcmp(v->dir, w->dir) != 0)
        return;
    write_text(v, w->text);
    w->found = true;
}

bool fb_plans_text(struct fb_cache *cache, uint16_t source, const char *dir,
                   char text[FB_PLAN_TEXT_SIZE])
{
    struct wanted w = {.source = source, .dir = dir, .text = text};

    fb_cache_plans(cache, find_plan, &w);
    return w.found;
}
