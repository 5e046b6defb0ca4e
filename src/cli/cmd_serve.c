#include <errno.h>
#include <unistd.h>

#include "cli/cli.h"
#include "daemon/config.h"
#include "daemon/daemon.h"

static int run(int argc, char **argv)
{
    struct fb_list mounts = FB_LIST_INIT(mounts);
    struct fb_error error = {""};
    struct fb_config config;
    struct fb_daemon_options options = {.config = &config, .mounts = &mounts, .keep = true};
    int positional = 0;
    int status = CLI_OK;
    int rc = fb_config_load(&config, argc, argv, &positional, &mounts, &error);

    if (rc == 0 && positional != 0)
        rc = fb_error_set(&error, -EINVAL, "'%.64s': mounts stand in the file; write --config FILE",
                          argv[1]);
    if (rc == 0 && !config.config)
        rc = fb_error_set(&error, -EINVAL, "write --config FILE");
    /* For the log: a daemon that is kept by a supervisor writes to standard error. */
    config.foreground = true;
    if (rc == 0)
        rc = fb_config_resolve(&config, "/", &error);
    if (rc) {
        status = cli_usage(&cli_serve, "%s", error.text);
    } else {
        rc = fb_daemon_run(&options, &error);
        if (rc)
            status = cli_fail(CLI_FAILED, "%s", error.text);
        if (rc == FB_DAEMON_STUCK)
            _exit(status);
    }
    fb_mount_requests_free(&mounts);
    fb_config_free(&config);
    return status;
}

static const char *const without[] = {"foreground", NULL}; /* it always is */

const struct cli_command cli_serve = {
    .name = "serve",
    .synopsis = "--config FILE [FLAG]...",
    .summary = "Run a daemon in the foreground, with the mounts of a file",
    .about =
        "For systemd and containers. The INI file has the settings below, one `name = value` a "
        "line, and a section [mount NAME] for each mount with source, mountpoint and any of the "
        "settings of a mount. It logs to standard error, unless --log-file names a file. SIGTERM "
        "unmounts all and ends, SIGHUP opens the log anew. Further mounts may join with `forebay "
        "mount` and the same --cache-dir.",
    .example = "  # /etc/forebay.conf\n"
               "  memory = 16G\n"
               "  cache-dir = /nvme/forebay\n"
               "  [mount imagenet]\n"
               "  source = /nfs/imagenet\n"
               "  mountpoint = /data/imagenet\n"
               "  consistency = static\n"
               "\n"
               "  forebay serve --config /etc/forebay.conf\n",
    .table = fb_config_table,
    .without = without,
    .run = run,
};
