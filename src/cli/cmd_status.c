#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/dead_mounts.h"
#include "cli/status_print.h"
#include "core/clock.h"
#include "core/mem.h"
#include "daemon/config.h"
#include "daemon/mountinfo.h"
#include "daemon/paths.h"
#include "daemon/runtime.h"
#include "daemon/wire.h"

struct options {
    bool json;
    char *cache_dir;
};

static const struct fb_setting table[] = {
    {.name = "json",
     .letter = 'j',
     .type = FB_SETTING_BOOL,
     .offset = offsetof(struct options, json),
     .help = "Print one JSON object: {\"daemons\": [...]}"},
    {.name = "cache-dir",
     .letter = 'd',
     .type = FB_SETTING_STRING,
     .offset = offsetof(struct options, cache_dir),
     .argument = "DIR",
     .help = "Only the daemon that owns this (first) cache directory"},
};

static const struct fb_setting *flags(size_t *ret_count)
{
    *ret_count = FB_ARRAY_SIZE(table);
    return table;
}

/* Whether one of the objects in `list` has that path as its `key`. */
static bool has_path(const json_t *list, const char *key, const char *wanted)
{
    size_t i;
    json_t *object;

    json_array_foreach(list, i, object)
    {
        FB_AUTO_FREE char *path = NULL;

        if (fb_wire_get_path(object, key, &path) == 0 && strcmp(path, wanted) == 0)
            return true;
    }
    return false;
}

static bool has_mount(const json_t *daemon, const char *mountpoint)
{
    return has_path(json_object_get(daemon, "mounts"), "mountpoint", mountpoint);
}

static bool serves(const json_t *daemon, const char *path)
{
    return has_mount(daemon, path) || has_path(json_object_get(daemon, "shares"), "source", path);
}

/* Appends the daemon at that socket, or a note that it does not answer. False: nobody listens
 * there. */
static bool ask(const char *socket, const char *path, json_t *daemons)
{
    json_t *request = json_pack("{s:s}", "op", "status");
    json_t *reply = NULL;
    int rc = request ? cli_request(socket, request, fb_now_ns() + CLI_STATUS_WAIT_NS, &reply, NULL)
                     : -ENOMEM;

    json_decref(request);
    if (rc == 0 && cli_reply_ok(reply) && (!path || serves(reply, path))) {
        json_object_del(reply, "ok");
        json_array_append(daemons, reply);
    } else if (rc == -ETIMEDOUT && !path) {
        fprintf(stderr, "forebay: the daemon at %s does not answer\n", socket);
    }
    json_decref(reply);
    return rc != -ENOENT;
}

/* *ret_left: a daemon that was killed has left its socket. */
static int ask_all(const char *path, json_t *daemons, bool *ret_left, struct fb_error *err)
{
    char **sockets;
    int rc = fb_runtime_sockets(&sockets, err);

    if (rc)
        return rc;
    for (char **s = sockets; *s; s++) {
        if (!ask(*s, path, daemons))
            *ret_left = true;
    }
    fb_runtime_sockets_free(sockets);
    return 0;
}

/* The first of several directories names the daemon. */
static int ask_home(char *cache_dir, json_t *daemons, struct fb_error *err)
{
    FB_AUTO_FREE char *home = NULL;
    FB_AUTO_FREE char *socket = NULL;
    int rc;

    cache_dir[strcspn(cache_dir, ":")] = 0;
    rc = fb_path_canonical(cache_dir, &home);
    if (rc)
        return fb_error_set(err, rc, "cache-dir: '%s': %s", cache_dir, fb_strerror(rc));
    rc = fb_runtime_socket(home, false, &socket, err);
    if (rc == 0)
        (void)ask(socket, NULL, daemons);
    if ((rc == 0 || rc == -ENOENT) && json_array_size(daemons) == 0)
        return fb_error_set(err, -ENOENT, "no daemon runs for the cache directory %s", home);
    return rc;
}

static int ask_mount(const char *path, json_t *daemons, struct fb_error *err)
{
    FB_AUTO_FREE char *mountpoint = NULL;
    bool left = false;
    int rc = fb_path_canonical(path, &mountpoint);

    if (rc)
        return fb_error_set(err, rc, "'%s': %s", path, fb_strerror(rc));
    rc = ask_all(mountpoint, daemons, &left, err);
    if (rc || json_array_size(daemons) > 0)
        return rc;
    if (fb_mountinfo_is_forebay(mountpoint))
        return fb_error_set(err, -ENOENT,
                            "the daemon of %s is dead or not yours; `forebay umount %s` removes a "
                            "dead mount, and so does the next `forebay mount`",
                            mountpoint, mountpoint);
    return fb_error_set(err, -ENOENT, "%s is not a Forebay mount", mountpoint);
}

static bool is_served(void *arg, const char *mountpoint)
{
    size_t i;
    json_t *daemon;

    json_array_foreach(arg, i, daemon)
    {
        if (has_mount(daemon, mountpoint))
            return true;
    }
    return false;
}

static void tell_dead(void *arg, const char *mountpoint)
{
    (void)arg;
    (void)cli_fail(CLI_FAILED,
                   "the daemon of %s is dead; `forebay umount %s` removes the mount, and so does "
                   "the next `forebay mount` there",
                   mountpoint, mountpoint);
}

static void print(const json_t *daemons, bool json)
{
    size_t i;
    json_t *daemon;

    if (json) {
        json_t *object = json_pack("{s:O}", "daemons", daemons);

        json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        fputc('\n', stdout);
        json_decref(object);
        return;
    }
    if (json_array_size(daemons) == 0)
        puts("no daemon of this user runs");
    json_array_foreach(daemons, i, daemon)
    {
        if (i)
            fputc('\n', stdout);
        cli_print_daemon(stdout, daemon);
    }
}

static int run(int argc, char **argv)
{
    struct fb_error error = {""};
    struct options options = {0};
    json_t *daemons = json_array();
    int positional = 0;
    bool left = false;
    int status = CLI_OK;
    int rc = fb_settings_from_args(table, FB_ARRAY_SIZE(table), &options, argc, argv, &positional,
                                   &error);

    if (rc || positional > 1) {
        status = cli_usage(&cli_status, "%s", rc ? error.text : "write one mount point, or none");
    } else {
        if (positional == 1)
            rc = ask_mount(argv[1], daemons, &error);
        else if (options.cache_dir)
            rc = ask_home(options.cache_dir, daemons, &error);
        else
            rc = ask_all(NULL, daemons, &left, &error);
        if (rc)
            status = cli_fail(CLI_FAILED, "%s", error.text[0] ? error.text : fb_strerror(rc));
        else
            print(daemons, options.json);
        /* Not without need: whoever asks a mount keeps it in use for a moment. */
        if (left)
            cli_dead_mounts(is_served, tell_dead, daemons);
    }
    json_decref(daemons);
    fb_settings_free(table, FB_ARRAY_SIZE(table), &options);
    return status;
}

const struct cli_command cli_status = {
    .name = "status",
    .synopsis = "[MOUNTPOINT | SOURCE] [--json]",
    .summary = "Show the daemons of this user, their mounts and how well they cache",
    .about = "Reads are those that reach the daemon, or a program under `forebay run`: what the "
             "kernel's page cache answers is not counted. Hits are reads answered from memory or "
             "disk, by count and by bytes; misses waited for the source. Mounts of daemons that "
             "were killed are named on standard error, with the remedy.",
    .example = "  forebay status\n"
               "  forebay status /data --json | jq '.daemons[0].hit_ratio'\n",
    .table = flags,
    .run = run,
};
