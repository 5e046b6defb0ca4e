#include <errno.h>
#include <jansson.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/unmount.h"
#include "core/clock.h"
#include "core/mem.h"
#include "daemon/mountinfo.h"
#include "daemon/paths.h"
#include "daemon/wire.h"

struct options {
    bool force;
    bool lazy;
};

static const struct fb_setting table[] = {
    {.name = "force",
     .letter = 'f',
     .type = FB_SETTING_BOOL,
     .offset = offsetof(struct options, force),
     .help = "Unmount even when it is in use: the mount is gone at once for everybody who comes "
             "later, and for good when the last file is closed"},
    {.name = "lazy",
     .letter = 'l',
     .type = FB_SETTING_BOOL,
     .offset = offsetof(struct options, lazy),
     .help = "The same, under umount's name for it"},
};

static const struct fb_setting *flags(size_t *ret_count)
{
    *ret_count = FB_ARRAY_SIZE(table);
    return table;
}

/* A daemon that has lost its last mount is waited for: when we return, its cache is closed. */
static int take_reply(const json_t *reply, int fd)
{
    if (!cli_reply_ok(reply))
        return cli_fail(CLI_FAILED, "%s", cli_reply_error(reply));
    if (json_is_true(json_object_get(reply, "ending")) &&
        cli_wait_closed(fd, fb_now_ns() + CLI_END_WAIT_NS) != 0)
        return cli_fail(CLI_FAILED, "unmounted, but the daemon takes long to close its cache");
    return CLI_OK;
}

/* No daemon knows the mount: it is dead, does not answer, or is no mount of ours. */
static int umount_alone(const char *mountpoint, bool force)
{
    struct fb_error error = {""};
    bool gone;

    if (!fb_mountinfo_is_forebay(mountpoint))
        return cli_fail(CLI_FAILED, "%s is not a Forebay mount", mountpoint);
    gone = cli_unmount(mountpoint, force, &error) == 0;
    return gone ? CLI_OK : cli_fail(CLI_FAILED, "%s", error.text);
}

static int umount_path(const char *mountpoint, bool force)
{
    struct fb_error error = {""};
    FB_AUTO_CLOSE int fd = -1;
    json_t *reply = NULL;
    bool mounted = fb_mountinfo_is_forebay(mountpoint);
    json_t *request = json_pack("{s:s, s:o, s:b}", "op", "umount", "mountpoint",
                                fb_wire_path(mountpoint), "force", force);
    int status;
    int rc = request ? cli_request_any(request, CLI_WORK_WAIT_NS, &reply, &fd, &error) : -ENOMEM;

    json_decref(request);
    if (rc)
        return cli_fail(CLI_FAILED, "%s", error.text[0] ? error.text : fb_strerror(rc));
    if (reply)
        status = take_reply(reply, fd);
    else if (mounted && !fb_mountinfo_is_forebay(mountpoint))
        status = CLI_OK; /* it went with a daemon that was ending anyway */
    else
        status = umount_alone(mountpoint, force);
    json_decref(reply);
    return status;
}

static int umount_word(const char *word, bool force)
{
    FB_AUTO_FREE char *mountpoint = NULL;
    int rc = fb_path_canonical(word, &mountpoint);

    if (rc)
        return cli_fail(CLI_FAILED, "'%s': %s", word, fb_strerror(rc));
    return umount_path(mountpoint, force);
}

/* One that fails does not keep the others mounted. */
static int run(int argc, char **argv)
{
    struct fb_error error = {""};
    struct options options;
    int positional = 0;
    int status = CLI_OK;
    int rc;

    fb_settings_defaults(table, FB_ARRAY_SIZE(table), &options);
    rc = fb_settings_from_args(table, FB_ARRAY_SIZE(table), &options, argc, argv, &positional,
                               &error);
    if (rc)
        return cli_usage(&cli_umount, "%s", error.text);
    if (positional < 1)
        return cli_usage(&cli_umount, "write a mount point");
    for (int i = 1; i <= positional; i++) {
        if (umount_word(argv[i], options.force || options.lazy) != CLI_OK)
            status = CLI_FAILED;
    }
    return status;
}

const struct cli_command cli_umount = {
    .name = "umount",
    .synopsis = "MOUNTPOINT... [--force]",
    .summary = "Remove mounts",
    .about = "The daemon ends with its last mount (unless it was started by `forebay serve`); the "
             "command returns when its cache is safely closed. A mount whose daemon has died is "
             "removed, too. `umount` and `fusermount3 -u` do as well.",
    .example = "  forebay umount /data\n",
    .table = flags,
    .run = run,
};
