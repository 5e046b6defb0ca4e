#include <errno.h>

#include "cli/bucket_flags.h"
#include "cli/cli.h"
#include "cli/join.h"
#include "cli/mount_options.h"
#include "cli/start.h"
#include "core/mem.h"
#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/paths.h"
#include "daemon/source_dir.h"
#include "daemon/wire.h"
#include "source/source_s3.h"

static json_t *mount_json(const struct fb_config *config, const struct fb_mount_request *mount)
{
    return json_pack("{s:s, s:o*, s:o*, s:o*, s:o*, s:o*}", "op", "mount", "source",
                     fb_wire_path(mount->source), "mountpoint", fb_wire_path(mount->mountpoint),
                     "settings", cli_mount_settings_json(config), "environment",
                     cli_environment_json(config), "cache", cli_cache_settings_json(config));
}

static int mount_background(const struct fb_daemon_options *options,
                            const struct fb_mount_request *mount, struct fb_error *err)
{
    json_t *request = mount_json(options->config, mount);
    int rc = request ? cli_join(options, NULL, request, NULL, err) : -ENOMEM;

    json_decref(request);
    return rc;
}

static int mount_foreground(const struct fb_daemon_options *options, struct fb_error *err)
{
    int rc = fb_daemon_run(options, err);

    if (rc == FB_DAEMON_STUCK)
        _exit(cli_fail(CLI_FAILED, "%s", err->text));
    return rc ? -EIO : 0;
}

static int mount_request(const struct fb_config *config, const char *source, const char *mountpoint,
                         struct fb_mount_request **ret_request, struct fb_error *err)
{
    FB_AUTO_FREE char *from = NULL;
    FB_AUTO_FREE char *at = NULL;
    int rc = 0;

    if (fb_source_is_s3(source)) {
        rc = fb_s3_uri_canonical(source, &from, err);
        if (rc)
            return rc;
    } else {
        rc = fb_source_dir_check_url(source, err);
        if (rc)
            return rc;
        rc = fb_path_absolute(source, &from);
        if (rc)
            return fb_error_set(err, rc, "the source '%s': %s", source, fb_strerror(rc));
    }
    rc = fb_path_absolute(mountpoint, &at);
    if (rc)
        return fb_error_set(err, rc, "the mount point '%s': %s", mountpoint, fb_strerror(rc));
    *ret_request = fb_mount_request_new(from, at, &config->mount);
    return *ret_request ? 0 : fb_error_set(err, -ENOMEM, "out of memory");
}

static int do_mount(const struct fb_config *config, char **paths)
{
    struct fb_list mounts = FB_LIST_INIT(mounts);
    struct fb_daemon_options options = {.config = config, .mounts = &mounts};
    struct fb_error error = {""};
    struct fb_mount_request *mount = NULL;
    int rc = mount_request(config, paths[0], paths[1], &mount, &error);

    if (rc == 0 && mount) {
        if (!fb_source_is_s3(mount->source))
            cli_warn_of_bucket_flags(config);
        fb_list_push_back(&mounts, &mount->link);
        rc = config->foreground ? mount_foreground(&options, &error)
                                : mount_background(&options, mount, &error);
    }
    fb_mount_request_free(mount);
    return rc == 0 || rc == START_CHILD ? CLI_OK : cli_join_failed(rc, &error);
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
    size_t rows;
    const struct fb_setting *table = fb_config_table(&rows);
    int count;
    int status;

    if (cli_mount_options(table, rows, argc, argv, &count, &words, &error) != 0)
        return cli_usage(&cli_mount, "%s", error.text);
    status = run_words(count, words);
    free(words);
    return status;
}

const struct cli_command cli_mount = {
    .name = "mount",
    .synopsis = "SOURCE MOUNTPOINT [FLAG]...",
    .summary = "Show a slow directory or a bucket through the cache",
    .about =
        "Mounts SOURCE, a directory on any file system or a bucket, s3://BUCKET/PREFIX, on "
        "MOUNTPOINT, a directory; what is in it is hidden while it is mounted on. What is read "
        "there is fetched once and kept in memory and on disk. The daemon starts in the background "
        "when none runs for the cache directory, and ends with its last mount; the command returns "
        "when the mount is live.\n"
        "\n"
        "Only the user who mounts can use the mount, even when that is root; --allow-other lets "
        "others in. Keys for a bucket are found where AWS tools find them.\n"
        "\n"
        "Flags may also be written as in fstab: -o allow_other,metadata_ttl=5m. Every flag is also "
        "a variable (--cache-dir: FOREBAY_CACHE_DIR) and a key of the file given with --config; a "
        "flag wins over a variable, a variable over the file.",
    .example = "  forebay mount /nfs/imagenet /data --memory 16G --cache-dir /nvme/forebay\n"
               "  python train.py --data /data\n"
               "  forebay umount /data\n"
               "  forebay mount s3://datasets/imagenet /data --region eu-west-1\n",
    .table = fb_config_table,
    .run = run,
};
