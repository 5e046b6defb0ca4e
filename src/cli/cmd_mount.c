#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/mount_options.h"
#include "cli/start.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/paths.h"
#include "daemon/runtime.h"
#include "daemon/wire.h"

#define MOUNT_MORE_NS (5 * FB_NS_PER_S) /* than the daemon takes to give up */
#define OWNED_WAIT_NS (3 * FB_NS_PER_S) /* for the socket of a daemon that is just starting */
#define RETRY_STEP_NS (50 * FB_NS_PER_MS)

enum {
    JOIN_NOBODY = 1, /* no daemon listens for that cache directory */
    JOIN_ENDING = 2, /* it is about to end */
};

/* ---- joining a daemon that runs ---- */

/* The rows [from, to) of the table as texts; only those that differ from `base` when given. */
static json_t *settings_json(const struct fb_config *config, const struct fb_config *base,
                             size_t from, size_t to)
{
    size_t rows;
    const struct fb_setting *table = fb_config_table(&rows);
    json_t *settings = json_object();

    for (size_t i = from; i < to; i++) {
        char value[FB_ERROR_TEXT_MAX];
        char usual[FB_ERROR_TEXT_MAX];

        fb_settings_format(&table[i], config, value, sizeof value);
        if (base && strcmp(value, fb_settings_format(&table[i], base, usual, sizeof usual)) == 0)
            continue;
        json_object_set_new(settings, table[i].name, json_string(value));
    }
    return settings;
}

/* What was asked of the daemon itself, which it can only tell us that it does not do. */
static json_t *wishes_json(const struct fb_config *config)
{
    size_t rows;
    struct fb_config base;
    json_t *wishes = NULL;

    (void)fb_config_table(&rows);
    fb_config_defaults(&base);
    base.cache_dir = fb_strdup(config->cache_dir);
    if (base.cache_dir && fb_config_resolve(&base, "/", NULL) == 0)
        wishes = settings_json(config, &base, fb_config_mount_rows(), rows);
    fb_config_free(&base);
    json_object_del(wishes, "config");
    return wishes;
}

static json_t *mount_json(const struct fb_config *config, const struct fb_mount_request *mount)
{
    return json_pack("{s:s, s:o*, s:o*, s:o*, s:o*}", "op", "mount", "source",
                     fb_wire_path(mount->source), "mountpoint", fb_wire_path(mount->mountpoint),
                     "settings", settings_json(config, NULL, 0, fb_config_mount_rows()), "cache",
                     wishes_json(config));
}

static void print_notes(const json_t *reply)
{
    size_t i;
    json_t *note;

    json_array_foreach(json_object_get(reply, "notes"), i, note)
    {
        if (json_is_string(note))
            fb_log_warn("%s", json_string_value(note));
    }
}

static int judge_reply(const json_t *reply, struct fb_error *err)
{
    if (cli_reply_ok(reply)) {
        print_notes(reply);
        return 0;
    }
    if (cli_reply_is(reply, FB_WIRE_STOPPING))
        return JOIN_ENDING;
    return fb_error_set(err, -EIO, "%s", cli_reply_error(reply));
}

static int join(const struct fb_config *config, const struct fb_mount_request *mount,
                int64_t until_ns, struct fb_error *err)
{
    FB_AUTO_FREE char *socket = NULL;
    json_t *request;
    json_t *reply = NULL;
    int rc = fb_runtime_socket(fb_config_home(config), false, &socket, err);

    if (rc)
        return rc == -ENOENT ? JOIN_NOBODY : rc;
    request = mount_json(config, mount);
    rc = request ? cli_request(socket, request, until_ns, &reply, NULL) : -ENOMEM;
    json_decref(request);
    if (rc == 0)
        rc = judge_reply(reply, err);
    else if (rc == -ENOENT)
        rc = JOIN_NOBODY;
    else if (rc == -EPIPE)
        rc = JOIN_ENDING;
    else if (rc == -ETIMEDOUT)
        rc = fb_error_set(
            err, rc, "the mount was not live in time and is given up; does the source answer?");
    else
        rc = fb_error_set(err, rc, "the daemon of %s does not answer: %s", fb_config_home(config),
                          fb_strerror(rc));
    json_decref(reply);
    return rc;
}

/* ---- joining or starting ---- */

/* Two mounts at once, or a mount while the last daemon closes its cache: whoever loses the race
 * tries again, until it is clear that the owner of the directory does not listen where we look. */
static int mount_background(const struct fb_config *config, const struct fb_mount_request *mount,
                            struct fb_error *err)
{
    int64_t until_ns = fb_now_ns() + fb_mount_settings_wait_ns(&mount->settings) + MOUNT_MORE_NS;
    int64_t owned_ns = 0;
    int rc;

    for (;;) {
        struct fb_error error = {""};

        rc = join(config, mount, until_ns, &error);
        if (rc == JOIN_NOBODY) {
            rc = cli_start_daemon(config, mount, until_ns, &error);
            if (rc == START_OWNED && owned_ns == 0)
                owned_ns = fb_now_ns();
            if (rc != START_OWNED || fb_now_ns() - owned_ns > OWNED_WAIT_NS) {
                *err = error;
                return rc == START_OWNED ? -EBUSY : rc;
            }
        } else if (rc == JOIN_ENDING) {
            owned_ns = 0;
        } else {
            *err = error;
            return rc;
        }
        if (fb_now_ns() >= until_ns)
            return fb_error_set(err, -ETIMEDOUT, "the daemon of %s does not end",
                                fb_config_home(config));
        fb_sleep_ns(RETRY_STEP_NS);
    }
}

static int mount_foreground(const struct fb_config *config, struct fb_mount_request *mount,
                            struct fb_error *err)
{
    struct fb_list mounts = FB_LIST_INIT(mounts);
    struct fb_daemon_options options = {.config = config, .mounts = &mounts};
    int rc;

    fb_list_push_back(&mounts, &mount->link);
    rc = fb_daemon_run(&options, err);
    fb_list_remove(&mount->link);
    if (rc == FB_DAEMON_STUCK)
        _exit(cli_fail(CLI_FAILED, "%s", err->text));
    return rc;
}

static int mount_request(const struct fb_config *config, const char *source, const char *mountpoint,
                         struct fb_mount_request **ret_request, struct fb_error *err)
{
    FB_AUTO_FREE char *from = NULL;
    FB_AUTO_FREE char *at = NULL;
    int rc = fb_path_absolute(source, &from);

    if (rc)
        return fb_error_set(err, rc, "the source '%s': %s", source, fb_strerror(rc));
    rc = fb_path_absolute(mountpoint, &at);
    if (rc)
        return fb_error_set(err, rc, "the mount point '%s': %s", mountpoint, fb_strerror(rc));
    *ret_request = fb_mount_request_new(from, at, &config->mount);
    return *ret_request ? 0 : fb_error_set(err, -ENOMEM, "out of memory");
}

static int do_mount(const struct fb_config *config, char **paths)
{
    struct fb_error error = {""};
    struct fb_mount_request *mount = NULL;
    int rc = mount_request(config, paths[0], paths[1], &mount, &error);

    if (rc == 0 && mount)
        rc = config->foreground ? mount_foreground(config, mount, &error)
                                : mount_background(config, mount, &error);
    fb_mount_request_free(mount);
    if (rc == START_CHILD && !config->foreground)
        return CLI_OK;
    if (rc == 0)
        return CLI_OK;
    return cli_fail(rc == START_INTERRUPTED ? CLI_INTERRUPTED : CLI_FAILED, "%s",
                    error.text[0] ? error.text : fb_strerror(rc));
}

static int run_words(int count, char **words)
{
    struct fb_error error = {""};
    struct fb_config config;
    int positional = 0;
    int status;
    int rc = fb_config_load(&config, count, words, &positional, NULL, &error);

    if (rc == 0 && positional != 2)
        rc = fb_error_set(&error, -EINVAL,
                          positional < 2 ? "write a source and a mount point"
                                         : "write one source and one mount point, no more");
    if (rc == 0)
        rc = fb_config_resolve(&config, "/", &error);
    if (rc)
        status = cli_usage(&cli_mount, "%s", error.text);
    else
        status = do_mount(&config, words + 1);
    fb_config_free(&config);
    return status;
}

static int run(int argc, char **argv)
{
    struct fb_error error = {""};
    char **words;
    int count;
    int status;

    if (cli_mount_options(argc, argv, &count, &words, &error) != 0)
        return cli_usage(&cli_mount, "%s", error.text);
    status = run_words(count, words);
    free(words);
    return status;
}

const struct cli_command cli_mount = {
    .name = "mount",
    .synopsis = "SOURCE MOUNTPOINT [FLAG]...",
    .summary = "Show a slow directory through the cache",
    .about =
        "Mounts SOURCE, a directory on any file system, on MOUNTPOINT, a directory; what is in it "
        "is hidden while it is mounted on. What is read there is fetched once and kept in memory "
        "and on disk. The daemon starts in the background when none runs for the cache directory, "
        "and ends with its last mount; the command returns when the mount is live.\n"
        "\n"
        "Flags may also be written as in fstab: -o allow_other,metadata_ttl=5m. Every flag is also "
        "a variable (--cache-dir: FOREBAY_CACHE_DIR) and a key of the file given with --config; a "
        "flag wins over a variable, a variable over the file.",
    .example = "  forebay mount /nfs/imagenet /data --memory 16G --cache-dir /nvme/forebay\n"
               "  python train.py --data /data\n"
               "  forebay umount /data\n",
    .table = fb_config_table,
    .run = run,
};
