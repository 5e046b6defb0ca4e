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
#include "daemon/plans.h"
#include "daemon/streams.h"
#include "daemon/version.h"
#include "daemon/warm.h"
#include "daemon/wire.h"
#include "source/source_s3.h"

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

static int take_env(const json_t *texts, struct fb_mount_settings *settings)
{
    size_t count = json_array_size(texts);
    FB_AUTO_FREE char **env = fb_alloc_array(count + 1, sizeof *env);

    if (!env)
        return -ENOMEM;
    for (size_t i = 0, taken = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(texts, i));

        if (text)
            env[taken++] = (char *)(uintptr_t)text;
    }
    return fb_mount_settings_set_env(settings, env);
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
    int rc;

    json_object_foreach(object, name, value)
    {
        rc = -EINVAL;
        if (json_is_string(value))
            rc = fb_settings_set(table, fb_config_mount_rows(), settings, name,
                                 json_string_value(value), err);
        if (rc)
            return fb_error_set(err, -EINVAL, "%s: is no text", name);
    }
    rc = take_env(json_object_get(request, "environment"), settings);
    return rc ? fb_error_set(err, rc, "out of memory") : fb_mount_settings_check(settings, err);
}

static int take_mount(const json_t *request, struct fb_mount_request **ret_request,
                      struct fb_error *err)
{
    FB_AUTO_FREE char *source = NULL;
    FB_AUTO_FREE char *mountpoint = NULL;
    struct fb_mount_settings settings;
    struct fb_mount_request *r = NULL;
    int rc;

    if (fb_wire_get_path(request, "source", &source) != 0 ||
        (source[0] != '/' && !fb_source_is_s3(source)) ||
        fb_wire_get_path(request, "mountpoint", &mountpoint) != 0 || mountpoint[0] != '/')
        return fb_error_set(err, -EINVAL, "source and mountpoint must be absolute paths");
    fb_mount_settings_defaults(&settings);
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
                                    "it changes when that one has ended",
                                    table[i].name, *value ? value : "none"));
    }
    return notes;
}

/* A source that hangs may let go long after the socket has told the caller that it took too long:
 * then there must be no mount all the same. */
static int add_in_time(struct fb_daemon *d, const struct fb_mount_request *mount,
                       struct fb_error *note, struct fb_error *err)
{
    int64_t until_ns = fb_now_ns() + fb_mount_settings_wait_ns(&mount->settings);
    FB_AUTO_FREE char *mountpoint = NULL;
    int rc = fb_mounts_add(d->mounts, mount, note, err);

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
    struct fb_error error = {""}, note = {""};
    struct fb_mount_request *mount = NULL;
    json_t *reply, *notes;
    int rc;

    (void)peer;
    if (!fb_daemon_enter(d))
        return fb_wire_error(FB_WIRE_STOPPING, STOPPING_SENTENCE);
    rc = take_mount(request, &mount, &error);
    if (rc == 0 && mount)
        rc = add_in_time(d, mount, &note, &error);
    fb_mount_request_free(mount);
    if (rc) {
        reply = fail(rc, &error);
    } else {
        reply = fb_wire_ok();
        json_object_set_new(reply, "pid", json_integer(getpid()));
        notes = notes_on(d->options->config, json_object_get(request, "cache"));
        if (note.text[0])
            json_array_append_new(notes, json_string(note.text));
        json_object_set_new(reply, "notes", notes);
    }
    fb_daemon_leave(d);
    return reply;
}

/* ---- programs without a mount ---- */

/* A request as it came in; the texts of its sources are ours. */
struct attach {
    struct fb_share_request request;
    struct fb_mount_settings settings;
    char *texts[2 * FB_SHARES_MAX];
};

static void attach_free(struct attach *a)
{
    for (size_t i = 0; i < FB_ARRAY_SIZE(a->texts); i++)
        free(a->texts[i]);
    fb_mount_settings_free(&a->settings);
}

static int take_share(const json_t *source, struct attach *a, struct fb_error *err)
{
    char **path = &a->texts[2 * a->request.count];
    char **name = path + 1;
    int rc = fb_wire_get_path(source, "path", path);

    if (rc == 0 && json_object_get(source, "name"))
        rc = fb_wire_get_path(source, "name", name);
    if (rc || ((*path)[0] != '/' && !fb_source_is_s3(*path)) || (*name && (*name)[0] != '/'))
        return fb_error_set(err, -EINVAL, "the path and the name of a source must be absolute");
    if (fb_source_is_s3(*path) && !*name)
        return fb_error_set(err, -EINVAL, "%s: write where programs are to find it", *path);
    a->request.sources[a->request.count++] = (struct fb_share_source){.path = *path, .name = *name};
    return 0;
}

static int take_attach(const json_t *request, const struct ucred *peer, struct attach *a,
                       struct fb_error *err)
{
    const json_t *sources = json_object_get(request, "sources");
    size_t count = json_array_size(sources);
    int rc;

    fb_mount_settings_defaults(&a->settings);
    a->request.pid = peer->pid;
    a->request.settings = &a->settings;
    if (peer->uid != geteuid())
        return fb_error_set(err, -EPERM, "the daemon serves programs of its own user only");
    if (count == 0 || count > FB_SHARES_MAX)
        return fb_error_set(err, -EINVAL, "write one source, and at most %d", FB_SHARES_MAX);
    rc = take_settings(request, &a->settings, err);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = take_share(json_array_get(sources, i), a, err);
    return rc;
}

/* Two sources of a request may be one. */
static void add_root(void *arg, const char *name)
{
    json_t *roots = json_object_get(arg, "roots");
    json_t *root = fb_wire_path(name);
    size_t i;
    json_t *other;

    json_array_foreach(roots, i, other)
    {
        if (json_equal(root, other)) {
            json_decref(root);
            return;
        }
    }
    json_array_append_new(roots, root);
}

static void add_mounted(void *arg, const char *name, const char *point)
{
    json_array_append_new(
        json_object_get(arg, "mounted"),
        json_pack("{s:o*, s:o*}", "name", fb_wire_path(name), "point", fb_wire_path(point)));
}

static void add_note(void *arg, const char *sentence)
{
    json_array_append_new(json_object_get(arg, "notes"), json_string(sentence));
}

static json_t *attach(struct fb_daemon *d, const json_t *request, const struct ucred *peer)
{
    struct fb_error error = {""};
    struct attach a = {0};
    json_t *reply = json_pack("{s:b, s:i, s:o*, s:[], s:[], s:o}", "ok", 1, "pid", (int)getpid(),
                              "socket", fb_wire_path(d->client_socket), "roots", "mounted", "notes",
                              notes_on(d->options->config, json_object_get(request, "cache")));
    struct fb_share_answer answer = {
        .root = add_root, .mounted = add_mounted, .note = add_note, .arg = reply};
    int rc = reply ? take_attach(request, peer, &a, &error) : -ENOMEM;

    if (rc == 0)
        rc = fb_shares_attach(d->shares, &a.request, &answer, &error);
    attach_free(&a);
    if (rc == 0)
        return reply;
    json_decref(reply);
    return fail(rc, &error);
}

static json_t *op_attach(void *arg, const json_t *request, const struct ucred *peer)
{
    struct fb_daemon *d = arg;
    json_t *reply;

    if (!fb_daemon_enter(d))
        return fb_wire_error(FB_WIRE_STOPPING, STOPPING_SENTENCE);
    reply = d->shares ? attach(d, request, peer)
                      : fb_wire_error(FB_WIRE_FAILED, "%s", d->local_error.text);
    fb_daemon_leave(d);
    return reply;
}

/* ---- the rest ---- */

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
    json_object_set_new(reply, "ending", json_boolean(fb_daemon_begin_end(d)));
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

static json_t *op_streams(void *arg, const json_t *request, const struct ucred *peer)
{
    struct fb_daemon *d = arg;
    json_t *reply;

    (void)request;
    (void)peer;
    if (!fb_daemon_enter(d))
        return fb_wire_error(FB_WIRE_STOPPING, STOPPING_SENTENCE);
    reply = fb_streams_json(d->cache, d->mounts, d->shares);
    if (reply)
        json_object_set_new(reply, "cache_dir", fb_wire_path(fb_config_home(d->options->config)));
    fb_daemon_leave(d);
    return reply;
}

static int use_volume(struct fb_daemon *d, const char *path, fb_volume_use_fn *use, void *arg)
{
    int rc = fb_mounts_use(d->mounts, path, use, arg);

    return rc == -ENOENT && d->shares ? fb_shares_use(d->shares, path, use, arg) : rc;
}

static int use_policy(void *arg, struct fb_volume *volume, const char *below, const char *root)
{
    (void)root;
    return fb_cache_set_policy(volume, below, arg);
}

static json_t *set_policy(struct fb_daemon *d, const json_t *request)
{
    FB_AUTO_FREE char *path = NULL;
    const char *policy = json_string_value(json_object_get(request, "policy"));
    int rc;

    if (fb_wire_get_path(request, "path", &path) != 0 || path[0] != '/' || !policy)
        return fb_wire_error(FB_WIRE_INVALID, "path must be an absolute path, policy a word");
    rc = use_volume(d, path, use_policy, (void *)(uintptr_t)policy);
    if (rc == -ENOENT)
        return fb_wire_error(FB_WIRE_NOT_MINE, "%s is below no mount of this daemon", path);
    if (rc)
        return fb_wire_error(FB_WIRE_INVALID, "'%s' is no policy", policy);
    fb_log_info("%s: policy %s", path, policy);
    return fb_wire_ok();
}

static json_t *op_policy(void *arg, const json_t *request, const struct ucred *peer)
{
    struct fb_daemon *d = arg;
    json_t *reply;

    (void)peer;
    if (!fb_daemon_enter(d))
        return fb_wire_error(FB_WIRE_STOPPING, STOPPING_SENTENCE);
    reply = set_policy(d, request);
    fb_daemon_leave(d);
    return reply;
}

struct warming {
    const json_t *request;
    json_t *reply;
};

static int use_warm(void *arg, struct fb_volume *volume, const char *below, const char *root)
{
    struct warming *w = arg;

    (void)below;
    w->reply = fb_warm_batch(volume, root, w->request);
    return 0;
}

static json_t *op_warm(void *arg, const json_t *request, const struct ucred *peer)
{
    struct fb_daemon *d = arg;
    struct warming w = {.request = request};
    FB_AUTO_FREE char *path = NULL;

    (void)peer;
    if (fb_wire_get_path(request, "path", &path) != 0 || path[0] != '/')
        return fb_wire_error(FB_WIRE_INVALID, "path must be an absolute path");
    if (!fb_daemon_enter(d))
        return fb_wire_error(FB_WIRE_STOPPING, STOPPING_SENTENCE);
    if (use_volume(d, path, use_warm, &w) == -ENOENT)
        w.reply = fb_wire_error(FB_WIRE_NOT_MINE, "%s is below no mount of this daemon", path);
    fb_daemon_leave(d);
    return w.reply;
}

struct planning {
    const json_t *request;
    json_t *reply;
};

static int use_plan(void *arg, struct fb_volume *volume, const char *below, const char *root)
{
    struct planning *p = arg;

    (void)root;
    p->reply = fb_plans_take(volume, below, p->request);
    return 0;
}

static json_t *op_plan(void *arg, const json_t *request, const struct ucred *peer)
{
    struct fb_daemon *d = arg;
    struct planning p = {.request = request};
    FB_AUTO_FREE char *path = NULL;

    if (fb_wire_get_path(request, "path", &path) != 0 || path[0] != '/')
        return fb_wire_error(FB_WIRE_INVALID, "path must be an absolute path");
    /* It names a file to be read. */
    if (peer->uid != geteuid())
        return fb_wire_error(FB_WIRE_FAILED, "the daemon takes plans of its own user only");
    if (!fb_daemon_enter(d))
        return fb_wire_error(FB_WIRE_STOPPING, STOPPING_SENTENCE);
    if (use_volume(d, path, use_plan, &p) == -ENOENT)
        p.reply = fb_wire_error(FB_WIRE_NOT_MINE, "%s is below no mount of this daemon", path);
    fb_daemon_leave(d);
    return p.reply;
}

static json_t *evict(struct fb_daemon *d, const json_t *request)
{
    FB_AUTO_FREE char *path = NULL;
    uint64_t files = 0;
    int rc;

    if (fb_wire_get_path(request, "path", &path) != 0 || path[0] != '/')
        return fb_wire_error(FB_WIRE_INVALID, "path must be an absolute path");
    rc = fb_mounts_evict(d->mounts, path, &files);
    if (rc == -ENOENT && d->shares)
        rc = fb_shares_evict(d->shares, path, &files);
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
        {"ping", false, op_ping},         {"status", false, op_status}, {"mount", true, op_mount},
        {"streams", false, op_streams},   {"policy", false, op_policy}, {"warm", true, op_warm},
        {"umount", true, op_umount},      {"attach", true, op_attach},  {"evict", true, op_evict},
        {"shutdown", false, op_shutdown}, {"plan", true, op_plan},
    };

    *ret_count = FB_ARRAY_SIZE(ops);
    return ops;
}
