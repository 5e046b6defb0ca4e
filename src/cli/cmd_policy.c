/*
 * `forebay policy`, `pin` and `unpin`: orders for a path and all below it.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/settings.h"
#include "daemon/paths.h"
#include "daemon/wire.h"
#include "policy/keep.h"

/* An order may well be there before what it is for; a name that is written wrong should be told. */
static void warn_of_nothing(const char *path)
{
    if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT)
        fb_log_warn("there is no %s; the order holds for what comes to be there", path);
}

static int order(const char *text, const char *policy)
{
    struct fb_error error = {""};
    FB_AUTO_FREE char *path = NULL;
    json_t *reply = NULL, *request;
    int status = CLI_OK;
    int rc = cli_path_meant(text, &path);

    if (rc)
        return cli_fail(CLI_FAILED, "'%s': %s", text, fb_strerror(rc));
    request =
        json_pack("{s:s, s:o, s:s}", "op", "policy", "path", fb_wire_path(path), "policy", policy);
    rc = request ? cli_request_any(request, CLI_WORK_WAIT_NS, &reply, NULL, &error) : -ENOMEM;
    json_decref(request);
    if (rc)
        status = cli_fail(CLI_FAILED, "%s", error.text[0] ? error.text : fb_strerror(rc));
    else if (!reply && cli_nobody_serves(path, &error) != 0)
        status = cli_fail(CLI_FAILED, "%s", error.text);
    else if (!cli_reply_ok(reply))
        status = cli_fail(CLI_FAILED, "%s", cli_reply_error(reply));
    else if (strcmp(policy, "auto") != 0)
        warn_of_nothing(path);
    json_decref(reply);
    return status;
}

static int take_words(const struct cli_command *command, int argc, char **argv, int wanted,
                      const char *sentence)
{
    struct fb_error error = {""};
    int positional = 0;
    int rc = fb_settings_from_args(NULL, 0, NULL, argc, argv, &positional, &error);

    if (rc || positional != wanted)
        return cli_usage(command, "%s", rc ? error.text : sentence);
    return CLI_OK;
}

static int run_policy(int argc, char **argv)
{
    enum fb_keep ignored;
    int status = take_words(&cli_policy, argc, argv, 2, "write a path and a policy");

    if (status != CLI_OK)
        return status;
    if (strcmp(argv[2], "auto") != 0 && fb_keep_parse(argv[2], &ignored) < 0)
        return cli_usage(&cli_policy, "'%.32s' is no policy; write one of " FB_KEEP_CHOICES,
                         argv[2]);
    return order(argv[1], argv[2]);
}

static int run_pin(int argc, char **argv)
{
    int status = take_words(&cli_pin, argc, argv, 1, "write one path");

    return status == CLI_OK ? order(argv[1], "pinned") : status;
}

static int run_unpin(int argc, char **argv)
{
    int status = take_words(&cli_unpin, argc, argv, 1, "write one path");

    return status == CLI_OK ? order(argv[1], "auto") : status;
}

const struct cli_command cli_policy = {
    .name = "policy",
    .synopsis = "PATH " FB_KEEP_CHOICES,
    .summary = "Say what is to be kept of a path, whatever the accesses look like",
    .about = "Holds for PATH and all below it, until the daemon ends or another order is given; "
             "`auto` follows the pattern again. uniform: what came first stays; lru: what goes is "
             "chosen by the daemon's --evict; eager: an item goes once it was read; never: nothing "
             "is kept.",
    .example = "  forebay policy /data/logs never\n"
               "  forebay policy /data/logs auto\n",
    .run = run_policy,
};

const struct cli_command cli_pin = {
    .name = "pin",
    .synopsis = "PATH",
    .summary = "Keep what is cached of a path",
    .about =
        "What was read of PATH, and what will be, stays while it is pinned: it is not exchanged "
        "for other items of the same path, and the end of its job does not drop it.",
    .example = "  forebay pin /data/validation\n",
    .run = run_pin,
};

const struct cli_command cli_unpin = {
    .name = "unpin",
    .synopsis = "PATH",
    .summary = "Let a pinned path go its way again",
    .about = "From then on its pattern decides again.",
    .example = "  forebay unpin /data/validation\n",
    .run = run_unpin,
};
