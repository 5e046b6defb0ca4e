#include "cli/join.h"

#include <errno.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/start.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "daemon/runtime.h"
#include "daemon/wire.h"

#define ANSWER_MORE_NS (5 * FB_NS_PER_S) /* than the daemon takes to give up */
#define OWNED_WAIT_NS  (3 * FB_NS_PER_S) /* for the socket of a daemon that is just starting */
#define RETRY_STEP_NS  (50 * FB_NS_PER_MS)

/* Beside those of cli/start.h. */
enum {
    JOIN_NOBODY = 10, /* no daemon listens for that cache directory */
    JOIN_ENDING,      /* it is about to end */
    JOIN_AGAIN,       /* things have changed meanwhile */
};

/* ---- the request ---- */

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

json_t *cli_mount_settings_json(const struct fb_config *config)
{
    return settings_json(config, NULL, 0, fb_config_mount_rows());
}

json_t *cli_environment_json(const struct fb_config *config)
{
    json_t *texts = json_array();

    /* What is no UTF-8 is no key. */
    for (size_t i = 0; config->mount.env && config->mount.env[i]; i++)
        json_array_append_new(texts, json_string(config->mount.env[i]));
    return texts;
}

json_t *cli_cache_settings_json(const struct fb_config *config)
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

/* ---- joining a daemon that runs ---- */

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

static int join(const char *home, const json_t *request, int64_t until_ns, json_t **ret_reply,
                struct fb_error *err)
{
    FB_AUTO_FREE char *socket = NULL;
    json_t *reply = NULL;
    int rc = fb_runtime_socket(home, false, &socket, err);

    if (rc)
        return rc == -ENOENT ? JOIN_NOBODY : rc;
    rc = cli_request(socket, request, until_ns, &reply, NULL);
    if (rc == 0)
        rc = judge_reply(reply, err);
    else if (rc == -ENOENT)
        rc = JOIN_NOBODY;
    else if (rc == -EPIPE)
        rc = JOIN_ENDING;
    else if (rc == -ETIMEDOUT)
        rc = fb_error_set(
            err, rc, "the daemon did not answer in time and was given up; does the source answer?");
    else
        rc = fb_error_set(err, rc, "the daemon of %s does not answer: %s", home, fb_strerror(rc));
    if (rc == 0 && ret_reply)
        *ret_reply = json_incref(reply);
    json_decref(reply);
    return rc;
}

/* ---- joining or starting ---- */

/* owned_ns: since when the directory has had an owner that does not listen; 0: has not. */
static int try_once(const struct fb_daemon_options *options, char **others, const json_t *request,
                    int64_t until_ns, int64_t *owned_ns, json_t **ret_reply, struct fb_error *err)
{
    const char *home = fb_config_home(options->config);
    int rc = join(home, request, until_ns, ret_reply, err);

    if (rc == JOIN_NOBODY) {
        rc = cli_start_daemon(options, others, until_ns, err);
        if (rc == START_OWNED && *owned_ns == 0)
            *owned_ns = fb_now_ns();
        if (rc == START_OWNED)
            return fb_now_ns() - *owned_ns > OWNED_WAIT_NS ? -EBUSY : JOIN_AGAIN;
        if (rc || !ret_reply)
            return rc;
        rc = join(home, request, until_ns, ret_reply, err);
    }
    if (rc == JOIN_NOBODY || rc == JOIN_ENDING) {
        *owned_ns = 0;
        return JOIN_AGAIN;
    }
    return rc;
}

/* Two that ask at once, or one that asks while the last daemon closes its cache: whoever loses the
 * race tries again, until it is clear that the owner of the directory does not listen where we
 * look. */
int cli_join(const struct fb_daemon_options *options, char **others, const json_t *request,
             json_t **ret_reply, struct fb_error *err)
{
    const struct fb_config *config = options->config;
    int64_t until_ns = fb_now_ns() + fb_mount_settings_wait_ns(&config->mount) + ANSWER_MORE_NS;
    int64_t owned_ns = 0;

    for (;;) {
        struct fb_error error = {""};
        int rc = try_once(options, others, request, until_ns, &owned_ns, ret_reply, &error);

        if (rc != JOIN_AGAIN) {
            *err = error;
            return rc;
        }
        if (fb_now_ns() >= until_ns)
            return fb_error_set(err, -ETIMEDOUT, "the daemon of %s does not end",
                                fb_config_home(config));
        fb_sleep_ns(RETRY_STEP_NS);
    }
}

int cli_join_failed(int rc, const struct fb_error *error)
{
    return cli_fail(rc == START_INTERRUPTED ? CLI_INTERRUPTED : CLI_FAILED, "%s",
                    error->text[0] ? error->text : fb_strerror(rc));
}
