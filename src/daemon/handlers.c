/*
 * Requests on the control socket. What comes in is checked as input from anyone; a request that is
 * refused leaves nothing behind.
 */
#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "daemon/daemon_priv.h"
#include "daemon/paths.h"
#include "daemon/version.h"
#include "daemon/wire.h"

#define STOPPING_SENTENCE "the daemon is ending; try again"

static json_t *fail(int rc, const struct fb_error *error)
{
    const char *code = rc == -EBUSY ? FB_WIRE_BUSY : FB_WIRE_FAILED;

    return fb_wire_error(code, "%s", error->text[0] ? error->text : fb_strerror(rc));
}

static json_t *op_ping(void *arg, const json_t *request, const struct ucred *peer)
{
    (void)arg;
    (void)request;
    (void)peer;
    return json_pack("{s:b, s:i, s:s}", "ok", 1, "pid", (int)getpid(), "version",
                     fb_version_text());
}

static json_t *op_status(void *arg, const json_t *request, const struct ucred *peer)
{
    struct fb_daemon *d = arg;
    struct fb_status status;
    json_t *reply;

    (void)request;
    (void)peer;
    if (!fb_daemon_enter(d))
        return fb_wire_error(FB_WIRE_STOPPING, STOPPING_SENTENCE);
    status = fb_daemon_status(d);
    reply = fb_status_json(&status);
    fb_daemon_leave(d);
    return reply;
}

/* Members of `settings` are rows of a mount, as text. */
static int take_settings(const json_t *request, struct fb_mount_settings *settings,
                         struct fb_error *err)
{
    size_t rows;
    const struct fb_setting *table = fb_config_table(&rows);
    json_t *object = json_object_get(request, "settings");
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
    {
        int rc = -EINVAL;

        if (json_is_string(value))
            rc = fb_settings_set(table, fb_config_mount_rows(), settings, name,
                                 json_string_value(value), err);
        if (rc)
            return fb_error_set(err, -EINVAL, "%s: is no text", name);
    }
    return fb_mount_settings_check(settings, err);
}

static int take_mount(const json_t *request, struct fb_mount_request **ret_request,
                      struct fb_error *err)
{
    size_t rows;
    const struct fb_setting *table = fb_config_table(&rows);
    FB_AUTO_FREE char *source = NULL;
    FB_AUTO_FREE char *mountpoint = NULL;
    struct fb_mount_settings settings;
    struct fb_mount_request *r = NULL;
    int rc;

    if (fb_wire_get_path(request, "source", &source) != 0 || source[0] != '/' ||
        fb_wire_get_path(request, "mountpoint", &mountpoint) != 0 || mountpoint[0] != '/')
        return fb_error_set(err, -EINVAL, "source and mountpoint must be absolute paths");
    fb_settings_defaults(table, fb_config_mount_rows(), &settings);
    rc = take_settings(request, &settings, err);
    if (rc == 0) {
        r = fb_mount_request_new(source, mountpoint, &settings);
        rc = r ? 0 : fb_error_set(err, -ENOMEM, "out of memory");
    }
    fb_mount_settings_free(&settings);
    *ret_request = r;
    return rc;
}

/* What the user asked of the cache that this daemon, started before, does otherwise. */
static json_t *notes_on(const struct fb_config *config, const json_t *wishes)
{
    size_t rows;
    const struct fb_setting *table = fb_config_table(&rows);
    json_t *notes = json_array();

    for (size_t i = fb_config_mount_rows(); i < rows; i++) {
        const char *wish = json_string_value(json_object_get(wishes, table[i].name));
        char value[FB_ERROR_TEXT_MAX];

        fb_settings_format(&table[i], config, value, sizeof value);
        if (wish && strcmp(wish, value) != 0)
            json_array_append_new(
                notes, json_sprintf("%s stays at %s, as the daemon that runs already was started; "
                                    "unmount all its mounts to change it",
                                    table[i].name, *value ? value : "none"));
    }
    return notes;
}

/* A source that hangs may let go long after the socket has told the caller that it took too long:
 * then there must be no mount all the same. */
static int add_in_time(struct fb_daemon *d, const struct fb_mount_request *mount,
                       struct fb_error *err)
{
    int64_t until_ns = fb_now_ns() + fb_mount_settings_wait_ns(&mount->settings);
    FB_AUTO_FREE char *mountpoint = NULL;
    int rc = fb_mounts_add(d->mounts, mount, err);

    if (rc || fb_now_ns() < until_ns)
        return rc;
    fb_log_warn("%s became live too late and is removed again", mount->mountpoint);
    if (fb_path_canonical(mount->mountpoint, &mountpoint) != 0 ||
        fb_mounts_remove(d->mounts, mountpoint, true, NULL) != 0)
        fb_log_error("%s could not be removed", mount->mountpoint);
    return fb_error_set(err, -ETIMEDOUT,
                        "the source %s took too long to answer; the mount was given up",
                        mount->source);
}

static json_t *op_mount(void *arg, const json_t *request, const struct ucred *peer)
{
    struct fb_daemon *d = arg;
    struct fb_error error = {""};
    struct fb_mount_request *mount = NULL;
    json_t *reply;
    int rc;

    (void)peer;
    if (!fb_daemon_enter(d))
        return fb_wire_error(FB_WIRE_STOPPING, STOPPING_SENTENCE);
    rc = take_mount(request, &mount, &error);
    if (rc == 0 && mount)
        rc = add_in_time(d, mount, &error);
    fb_mount_request_free(mount);
    if (rc) {
        reply = fail(rc, &error);
    } else {
        reply = fb_wire_ok();
        json_object_set_new(reply, "pid", json_integer(getpid()));
        json_object_set_new(reply, "notes",
                            notes_on(d->options->config, json_object_get(request, "cache")));
    }
    fb_daemon_leave(d);
    return reply;
}

static json_t *umount(struct fb_daemon *d, const json_t *request)
{
    struct fb_error error = {""};
    FB_AUTO_FREE char *mountpoint = NULL;
    bool force = json_is_true(json_object_get(request, "force"));
    json_t *reply;
    int rc;

    if (fb_wire_get_path(request, "mountpoint", &mountpoint) != 0)
        return fb_wire_error(FB_WIRE_INVALID, "mountpoint must be a path");
    rc = fb_mounts_remove(d->mounts, mountpoint, force, &error);
    if (rc == -ENOENT)
        return fb_wire_error(FB_WIRE_NOT_MINE, "%s is not mounted by this daemon", mountpoint);
    if (rc)
        return fail(rc, &error);
    reply = fb_wire_ok();
    json_object_set_new(reply, "ending",
                        json_boolean(!d->options->keep && fb_mounts_count(d->mounts) == 0));
    return reply;
}

static json_t *op_umount(void *arg, const json_t *request, const struct ucred *peer)
{
    struct fb_daemon *d = arg;
    json_t *reply;

    (void)peer;
    if (!fb_daemon_enter(d))
        return fb_wire_error(FB_WIRE_STOPPING, STOPPING_SENTENCE);
    reply = umount(d, request);
    fb_daemon_leave(d);
    return reply;
}

static json_t *evict(struct fb_daemon *d, const json_t *request)
{
    FB_AUTO_FREE char *path = NULL;
    uint64_t files = 0;
    int rc;

    if (fb_wire_get_path(request, "path", &path) != 0 || path[0] != '/')
        return fb_wire_error(FB_WIRE_INVALID, "path must be an absolute path");
    rc = fb_mounts_evict(d->mounts, path, &files);
    if (rc)
        return fb_wire_error(FB_WIRE_NOT_MINE, "%s is below no mount of this daemon", path);
    return json_pack("{s:b, s:I}", "ok", 1, "files", (json_int_t)files);
}

static json_t *op_evict(void *arg, const json_t *request, const struct ucred *peer)
{
    struct fb_daemon *d = arg;
    json_t *reply;

    (void)peer;
    if (!fb_daemon_enter(d))
        return fb_wire_error(FB_WIRE_STOPPING, STOPPING_SENTENCE);
    reply = evict(d, request);
    fb_daemon_leave(d);
    return reply;
}

static json_t *op_shutdown(void *arg, const json_t *request, const struct ucred *peer)
{
    struct fb_daemon *d = arg;

    (void)request;
    (void)peer;
    /* Release pairs with the acquire of the main loop. */
    atomic_store_explicit(&d->shutdown, true, memory_order_release);
    fb_daemon_wake(d);
    return fb_wire_ok();
}

const struct fb_control_op *fb_daemon_ops(size_t *ret_count)
{
    static const struct fb_control_op ops[] = {
        {"ping", false, op_ping},    {"status", false, op_status}, {"mount", true, op_mount},
        {"umount", true, op_umount}, {"evict", true, op_evict},    {"shutdown", false, op_shutdown},
    };

    *ret_count = FB_ARRAY_SIZE(ops);
    return ops;
}
