#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "core/mem.h"
#include "daemon/mountinfo.h"
#include "daemon/paths.h"
#include "daemon/wire.h"

/* A symbolic link below a mount is meant itself; one that leads to a mount is followed. */
static int find_path(const char *text, char **ret_path)
{
    int rc;

    *ret_path = cli_path_in_bucket(text);
    if (*ret_path)
        return 0;
    rc = fb_path_canonical_parent(text, ret_path);
    if (rc || fb_mountinfo_is_below_forebay(*ret_path))
        return rc;
    free(fb_steal(*ret_path));
    return fb_path_canonical(text, ret_path);
}

static int take_reply(const json_t *reply, const char *path)
{
    struct fb_error error = {""};
    json_int_t files = json_integer_value(json_object_get(reply, "files"));

    if (!reply && cli_nobody_serves(path, &error) != 0)
        return cli_fail(CLI_FAILED, "%s", error.text);
    if (!cli_reply_ok(reply))
        return cli_fail(CLI_FAILED, "%s", cli_reply_error(reply));
    if (files == 0) {
        fputs("nothing is cached below ", stdout);
        cli_print_text(stdout, path);
        fputc('\n', stdout);
    } else {
        printf("%" JSON_INTEGER_FORMAT " file%s evicted\n", files, files == 1 ? "" : "s");
    }
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    struct fb_error error = {""};
    FB_AUTO_FREE char *path = NULL;
    json_t *reply = NULL;
    json_t *request;
    int status;
    int positional = 0;
    int rc = fb_settings_from_args(NULL, 0, NULL, argc, argv, &positional, &error);

    if (rc)
        return cli_usage(&cli_evict, "%s", error.text);
    if (positional != 1)
        return cli_usage(&cli_evict, "write one path");
    rc = find_path(argv[1], &path);
    if (rc)
        return cli_fail(CLI_FAILED, "'%s': %s", argv[1], fb_strerror(rc));
    request = json_pack("{s:s, s:o}", "op", "evict", "path", fb_wire_path(path));
    rc = request ? cli_request_any(request, CLI_WORK_WAIT_NS, &reply, NULL, &error) : -ENOMEM;
    json_decref(request);
    if (rc)
        return cli_fail(CLI_FAILED, "%s", error.text[0] ? error.text : fb_strerror(rc));
    status = take_reply(reply, path);
    json_decref(reply);
    return status;
}

const struct cli_command cli_evict = {
    .name = "evict",
    .synopsis = "PATH",
    .summary = "Forget what is cached of a file, a directory or a whole mount",
    .about = "PATH is a path below a mount, or a mount point; or one at or below a source that "
             "`forebay run` serves. Everything at and below it is "
             "forgotten, here and in the kernel, so the next access asks the source. With "
             "--consistency static this is how a change of the source is made visible.",
    .example = "  forebay evict /data/train/labels.csv\n"
               "  forebay evict /data\n",
    .run = run,
};
