/*
 * `forebay streams`: the tree of access streams, as a table with the paths indented, or as JSON.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/settings.h"
#include "core/units.h"
#include "daemon/paths.h"
#include "daemon/runtime.h"
#include "daemon/wire.h"

#define PATH_WIDTH 44
#define SHOWN_MAX  24 /* children of a node, in the table */

struct options {
    bool json;
    bool model;
    bool watch;
    int64_t interval_ns;
};

static const struct fb_setting table[] = {
    {.name = "json",
     .letter = 'j',
     .type = FB_SETTING_BOOL,
     .offset = offsetof(struct options, json),
     .help = "Print one JSON object: {\"streams\": [...]}, each node with its children in it"},
    {.name = "model",
     .type = FB_SETTING_BOOL,
     .offset = offsetof(struct options, model),
     .help = "Show what was learned about reuse, and how good it is, instead of the tree"},
    {.name = "watch",
     .letter = 'w',
     .type = FB_SETTING_BOOL,
     .offset = offsetof(struct options, watch),
     .help = "Show it again and again, until interrupted"},
    {.name = "interval",
     .type = FB_SETTING_DURATION,
     .offset = offsetof(struct options, interval_ns),
     .fallback = "2s",
     .argument = "TIME",
     .help = "How often, with --watch"},
};

static const struct fb_setting *flags(size_t *ret_count)
{
    *ret_count = FB_ARRAY_SIZE(table);
    return table;
}

/* ---- asking ---- */

/* What a daemon has learned, with its name: the directory of its cache. */
static void add_model(json_t *models, const json_t *reply)
{
    json_t *model = json_object_get(reply, "model");

    if (!json_is_object(model))
        return;
    json_object_set(model, "cache_dir", json_object_get(reply, "cache_dir"));
    json_array_append(models, model);
}

static int ask_all(json_t *roots, json_t *plans, json_t *models, unsigned *ret_daemons,
                   struct fb_error *err)
{
    json_t *request = json_pack("{s:s}", "op", "streams");
    char **sockets = NULL;
    int rc = request ? fb_runtime_sockets(&sockets, err) : -ENOMEM;

    *ret_daemons = 0;
    for (size_t i = 0; rc == 0 && sockets[i]; i++) {
        json_t *reply = NULL;

        if (cli_request(sockets[i], request, fb_now_ns() + CLI_STATUS_WAIT_NS, &reply, NULL) == 0 &&
            cli_reply_ok(reply)) {
            json_array_extend(roots, json_object_get(reply, "streams"));
            json_array_extend(plans, json_object_get(reply, "plans"));
            add_model(models, reply);
            ++*ret_daemons;
        }
        json_decref(reply);
    }
    if (sockets)
        fb_runtime_sockets_free(sockets);
    json_decref(request);
    return rc;
}

/* Of the nodes, those at or below a path, or that lead to it. */
static bool concerns(const json_t *node, const char *path)
{
    FB_AUTO_FREE char *own = NULL;

    if (fb_wire_get_path(node, "path", &own) != 0)
        return false;
    return fb_path_below(path, own) || fb_path_below(own, path);
}

/* ---- showing ---- */

static double real(const json_t *node, const char *name)
{
    return json_number_value(json_object_get(node, name));
}

static uint64_t integer(const json_t *node, const char *name)
{
    json_int_t n = json_integer_value(json_object_get(node, name));

    return n > 0 ? (uint64_t)n : 0;
}

static const char *word(const json_t *node, const char *name)
{
    const char *s = json_string_value(json_object_get(node, name));

    return s ? s : "?";
}

static void print_name(const json_t *node, const char *above, unsigned depth)
{
    FB_AUTO_FREE char *path = NULL;
    const char *name;
    int used;

    if (fb_wire_get_path(node, "path", &path) != 0)
        return;
    name = path;
    if (above && strncmp(path, above, strlen(above)) == 0 && path[strlen(above)] == '/')
        name = path + strlen(above) + 1;
    used = (int)(2 * depth + strlen(name));
    printf("%*s", 2 * (int)depth, "");
    cli_print_text(stdout, name);
    printf("%*s", used < PATH_WIDTH ? PATH_WIDTH - used : 1, "");
}

static void print_node(const json_t *node, const char *above, unsigned depth, const char *filter)
{
    char held[FB_UNITS_TEXT_MAX], quota[FB_UNITS_TEXT_MAX];
    FB_AUTO_FREE char *path = NULL;
    const json_t *children = json_object_get(node, "children");
    bool stream = json_is_true(json_object_get(node, "stream"));
    size_t i, left_out = 0;
    json_t *child;

    if (filter && !concerns(node, filter))
        return;
    print_name(node, above, depth);
    printf("%-10s %-8s %6.3f  %-8s %5.1f%% %9" PRIu64, word(node, "pattern"), word(node, "test"),
           real(node, "statistic"), word(node, "policy"), 100 * real(node, "hit_ratio"),
           integer(node, "accesses"));
    if (stream)
        printf(" %9s %9s %9.2g", fb_format_size(held, integer(node, "held_bytes")),
               fb_format_size(quota, integer(node, "quota_bytes")), real(node, "marginal_benefit"));
    if (stream && json_is_number(json_object_get(node, "ttl_s")))
        printf(" %6.0fs", real(node, "ttl_s"));
    if (json_is_true(json_object_get(node, "ended")))
        printf(" ended");
    if (json_is_string(json_object_get(node, "plan")))
        printf(" %s", word(node, "plan"));
    putchar('\n');
    if (fb_wire_get_path(node, "path", &path) != 0)
        return;
    json_array_foreach(children, i, child)
    {
        if (i < SHOWN_MAX)
            print_node(child, path, depth + 1, filter);
        else
            left_out++;
    }
    if (left_out > 0)
        printf("%*s... and %zu more\n", 2 * (int)depth + 2, "", left_out);
}

static void print_plan(const json_t *plan, const char *filter)
{
    FB_AUTO_FREE char *path = NULL;

    if (fb_wire_get_path(plan, "path", &path) != 0 || (filter && !concerns(plan, filter)))
        return;
    printf("plan of ");
    cli_print_text(stdout, path);
    printf(": %s%s, rank %" PRIu64 " of %" PRIu64 ", %" PRIu64 " of %" PRIu64 " read, %" PRIu64
           " ready\n",
           word(plan, "plan"), json_is_true(json_object_get(plan, "found")) ? " (found)" : "",
           integer(plan, "rank"), integer(plan, "world"), integer(plan, "read"),
           integer(plan, "samples"), integer(plan, "ready"));
}

static void print_model(json_t *model)
{
    double ago_s = real(model, "trained_ago_s"), by_age = real(model, "loss_by_age_bits");
    FB_AUTO_FREE char *dir = NULL;
    const char *name;
    json_t *share;

    if (fb_wire_get_path(model, "cache_dir", &dir) == 0) {
        printf("cache       ");
        cli_print_text(stdout, dir);
        putchar('\n');
    }
    if (integer(model, "trainings") == 0) {
        printf("no model yet; %" PRIu64 " requests were seen, and nothing had to go so far, or too "
               "little has come back\n",
               integer(model, "requests"));
        return;
    }
    printf("trained     %" PRIu64 " times, last at request %" PRIu64 " of %" PRIu64,
           integer(model, "trainings"), integer(model, "trained_at"), integer(model, "requests"));
    if (ago_s >= 0)
        printf(", %.0f s ago, in %.1f ms from %" PRIu64 " rows", ago_s, real(model, "training_ms"),
               integer(model, "rows"));
    if (integer(model, "ranked") > 0)
        printf("\nranked      %" PRIu64 " segments in %.1f ms", integer(model, "ranked"),
               real(model, "ranking_ms"));
    putchar('\n');
    printf("surprise    %.3f bits at each chance to come back, of %.0f not seen before; by age "
           "alone %.3f (%.0f%% less)\n",
           real(model, "loss_bits"), real(model, "observations"), by_age,
           by_age > 0 ? 100 * (1 - real(model, "loss_bits") / by_age) : 0);
    printf("importance ");
    json_object_foreach(json_object_get(model, "importance"), name, share)
        printf(" %s %.0f%%", name, 100 * json_number_value(share));
    putchar('\n');
}

static void show_models(const json_t *models)
{
    size_t i;
    json_t *model;

    if (json_array_size(models) == 0)
        puts("no daemon learns: see --evict");
    json_array_foreach(models, i, model) print_model(model);
}

static void print_roots(const json_t *roots, const char *filter)
{
    size_t i, shown = 0;
    json_t *root;

    json_array_foreach(roots, i, root) shown += !filter || concerns(root, filter);
    if (shown == 0) {
        printf("nothing has been read %s", filter ? "of " : "yet");
        if (filter)
            cli_print_text(stdout, filter);
        putchar('\n');
        return;
    }
    printf("%-*s%-10s %-8s %6s  %-8s %6s %9s %9s %9s %9s %7s\n", PATH_WIDTH, "path", "pattern",
           "test", "value", "keeps", "hits", "accesses", "holds", "quota", "benefit", "ttl");
    json_array_foreach(roots, i, root) print_node(root, NULL, 0, filter);
}

static void show(const json_t *roots, const json_t *plans, const json_t *models, const char *filter,
                 const struct options *options)
{
    size_t i;
    json_t *plan;

    if (options->json) {
        json_t *object =
            json_pack("{s:O, s:O, s:O}", "streams", roots, "plans", plans, "models", models);

        json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        putchar('\n');
        json_decref(object);
        return;
    }
    if (options->model) {
        show_models(models);
        return;
    }
    print_roots(roots, filter);
    json_array_foreach(plans, i, plan) print_plan(plan, filter);
}

static int show_once(const char *filter, const struct options *options, struct fb_error *err)
{
    json_t *roots = json_array(), *plans = json_array(), *models = json_array();
    unsigned daemons;
    int rc = roots && plans && models ? ask_all(roots, plans, models, &daemons, err) : -ENOMEM;

    if (rc == 0 && daemons == 0)
        rc = fb_error_set(err, -ENOENT, "no daemon of this user runs");
    if (rc == 0) {
        if (options->watch && isatty(STDOUT_FILENO))
            fputs("\033[H\033[J", stdout);
        show(roots, plans, models, filter, options);
        fflush(stdout);
    }
    json_decref(roots);
    json_decref(plans);
    json_decref(models);
    return rc;
}

static int run(int argc, char **argv)
{
    FB_AUTO_FREE char *filter = NULL;
    struct fb_error error = {""};
    struct options options;
    int positional = 0;
    int rc;

    fb_settings_defaults(table, FB_ARRAY_SIZE(table), &options);
    rc = fb_settings_from_args(table, FB_ARRAY_SIZE(table), &options, argc, argv, &positional,
                               &error);
    if (rc || positional > 1)
        return cli_usage(&cli_streams, "%s", rc ? error.text : "write one path, or none");
    if (positional == 1) {
        rc = cli_path_meant(argv[1], &filter);
        if (rc)
            return cli_fail(CLI_FAILED, "'%s': %s", argv[1], fb_strerror(rc));
    }
    do {
        rc = show_once(filter, &options, &error);
        if (rc)
            return cli_fail(CLI_FAILED, "%s", error.text[0] ? error.text : fb_strerror(rc));
        if (options.watch)
            fb_sleep_ns(options.interval_ns);
    } while (options.watch);
    return CLI_OK;
}

const struct cli_command cli_streams = {
    .name = "streams",
    .synopsis = "[PATH] [--json] [--model] [--watch]",
    .summary = "Show what the programs do, and what is kept because of it",
    .about =
        "Every directory and every large file that is read is a node of a tree; one that was "
        "visited often enough has a pattern: sequential, random, cyclic or skewed, with the test "
        "that decided and its value. A node that owns what is below it (a stream) keeps by its "
        "pattern: uniform (what came first stays), cycle, eager (gone once it was read), or what "
        "--evict says, which is learned unless told otherwise, within its quota, which goes where "
        "a little more space saves most (benefit, per second). A stream that is silent for longer "
        "than its ttl has ended. What goes from skewed streams (learned) is chosen by what was "
        "learned about when items come back: --model shows, for each daemon, when that was, how "
        "much each feature explains (requests before, the last two gaps, size, age), and how "
        "surprising what came since was to it.",
    .example = "  forebay streams\n"
               "  forebay streams /data/imagenet --watch\n"
               "  forebay streams --model\n"
               "  forebay streams --json | jq '.streams[].children[] | [.path, .pattern]'\n",
    .table = flags,
    .run = run,
};
