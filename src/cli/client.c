#include "cli/client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "cli/preload.h"
#include "core/clock.h"
#include "core/mem.h"
#include "daemon/mountinfo.h"
#include "daemon/paths.h"
#include "daemon/runtime.h"
#include "daemon/wire.h"

/* ---- paths ---- */

int cli_path_meant(const char *text, char **ret_path)
{
    FB_AUTO_FREE char *path = NULL;
    FB_AUTO_FREE char *other = NULL;
    int rc = fb_path_absolute(text, &path);

    if (rc)
        return rc;
    fb_path_tidy(path);
    other = cli_preload_point(path);
    if (!other && (fb_path_canonical(path, &other) != 0 || !fb_mountinfo_is_below_forebay(other)))
        free(fb_steal(other));
    *ret_path = other ? fb_steal(other) : fb_steal(path);
    return 0;
}

char *cli_path_in_bucket(const char *text)
{
    FB_AUTO_FREE char *path = NULL;

    if (fb_path_absolute(text, &path) != 0)
        return NULL;
    fb_path_tidy(path);
    return cli_preload_point(path);
}

#define CONNECT_RETRY_NS (20 * FB_NS_PER_MS)

/* A full backlog is no daemon less: it is tried again. */
static int connect_until(int fd, const struct sockaddr_un *address, int64_t until_ns)
{
    while (connect(fd, (const struct sockaddr *)address, sizeof *address) != 0) {
        if (errno == ECONNREFUSED || errno == ENOENT)
            return -ENOENT;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        if (fb_now_ns() >= until_ns)
            return -ETIMEDOUT;
        fb_sleep_ns(CONNECT_RETRY_NS);
    }
    return 0;
}

int cli_request(const char *socket_path, const json_t *request, int64_t until_ns,
                json_t **ret_reply, int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    FB_AUTO_CLOSE int fd = -1;
    int rc;

    if (strlen(socket_path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    memcpy(address.sun_path, socket_path, strlen(socket_path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    rc = connect_until(fd, &address, until_ns);
    if (rc == 0)
        rc = fb_wire_send(fd, request, until_ns);
    if (rc == 0)
        rc = fb_wire_receive(fd, FB_WIRE_REPLY_MAX, until_ns, ret_reply);
    if (rc == 0 && ret_fd)
        *ret_fd = fb_steal_fd(&fd);
    return rc;
}

int cli_wait_closed(int fd, int64_t until_ns)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char ignored[256];
        ssize_t n = recv(fd, ignored, sizeof ignored, 0);

        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return 0;
        if (fb_now_ns() >= until_ns)
            return -ETIMEDOUT;
        if (poll(&p, 1, fb_wire_poll_ms(until_ns)) < 0 && errno != EINTR)
            return -errno;
    }
}

bool cli_reply_ok(const json_t *reply)
{
    return json_is_true(json_object_get(reply, "ok"));
}

bool cli_reply_is(const json_t *reply, const char *code)
{
    const char *is = json_string_value(json_object_get(reply, "code"));

    return is && strcmp(is, code) == 0;
}

const char *cli_reply_error(const json_t *reply)
{
    const char *text = json_string_value(json_object_get(reply, "error"));

    return text ? text : "the daemon refused without saying why";
}

/* One that is stopped takes a connection and says nothing: it must not hold up what others would do
 * at once. */
static bool responds(const char *socket_path)
{
    json_t *request = json_pack("{s:s}", "op", "ping");
    json_t *reply = NULL;
    int rc = request
                 ? cli_request(socket_path, request, fb_now_ns() + CLI_PING_WAIT_NS, &reply, NULL)
                 : -ENOMEM;

    json_decref(request);
    json_decref(reply);
    return rc == 0;
}

int cli_request_any(const json_t *request, int64_t wait_ns, json_t **ret_reply, int *ret_fd,
                    struct fb_error *err)
{
    char **sockets;
    int rc = fb_runtime_sockets(&sockets, err);

    *ret_reply = NULL;
    if (rc)
        return rc;
    for (char **s = sockets; *s && !*ret_reply; s++) {
        json_t *reply = NULL;
        FB_AUTO_CLOSE int fd = -1;

        if (!responds(*s) || cli_request(*s, request, fb_now_ns() + wait_ns, &reply, &fd) != 0)
            continue;
        /* What was asked of one that is ending is soon undone by that. */
        if (cli_reply_is(reply, FB_WIRE_STOPPING) &&
            cli_wait_closed(fd, fb_now_ns() + CLI_END_WAIT_NS) == 0) {
            json_decref(reply);
            continue;
        }
        if (cli_reply_is(reply, FB_WIRE_NOT_MINE)) {
            json_decref(reply);
            continue;
        }
        *ret_reply = reply;
        if (ret_fd)
            *ret_fd = fb_steal_fd(&fd);
    }
    fb_runtime_sockets_free(sockets);
    return 0;
}

int cli_nobody_serves(const char *path, struct fb_error *err)
{
    struct fb_mountinfo info;
    int rc = -ENOENT;

    if (fb_mountinfo_find(path, &info) != 0)
        info = (struct fb_mountinfo){0};
    if (info.type && strcmp(info.type, FB_MOUNT_TYPE) == 0)
        rc = fb_error_set(err, rc,
                          "the daemon of the mount that holds %s does not answer; if it has ended, "
                          "`forebay umount %s` and mount again",
                          path, info.mountpoint);
    else
        rc = fb_error_set(
            err, rc, "%s is not below a Forebay mount, nor below a source of `forebay run`", path);
    fb_mountinfo_free(&info);
    return rc;
}
