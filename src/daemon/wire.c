#include "daemon/wire.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "core/clock.h"
#include "core/error.h"
#include "core/mem.h"

#define READ_STEP 4096

json_t *fb_wire_ok(void)
{
    return json_pack("{s:b}", "ok", 1);
}

json_t *fb_wire_error(const char *code, const char *format, ...)
{
    char text[FB_ERROR_TEXT_MAX];
    json_t *error;
    json_t *reply;
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    /* A sentence that quotes a name which is not UTF-8 is cut down to what is. */
    error = json_string(text);
    if (!error) {
        for (char *p = text; *p; p++) {
            if ((unsigned char)*p >= 0x80)
                *p = '?';
        }
        error = json_string(text);
    }
    reply = json_pack("{s:b, s:s, s:o*}", "ok", 0, "code", code, "error", error);
    return reply;
}

json_t *fb_wire_path(const char *path)
{
    static const char digits[] = "0123456789abcdef";
    json_t *text = json_string(path);
    FB_AUTO_FREE char *hex = NULL;
    size_t len = strlen(path);

    if (text)
        return text;
    hex = fb_alloc_array(len + 1, 2);
    if (!hex)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        hex[2 * i] = digits[(unsigned char)path[i] >> 4];
        hex[2 * i + 1] = digits[(unsigned char)path[i] & 15];
    }
    return json_pack("{s:s}", "hex", hex);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int path_of_hex(const char *hex, char **ret_path)
{
    size_t len = strlen(hex);
    FB_AUTO_FREE char *path = fb_alloc(len / 2 + 1);

    if (!path)
        return -ENOMEM;
    if (len == 0 || len % 2)
        return -EINVAL;
    for (size_t i = 0; i < len / 2; i++) {
        int high = hex_value(hex[2 * i]);
        int low = hex_value(hex[2 * i + 1]);

        if (high < 0 || low < 0 || (high == 0 && low == 0))
            return -EINVAL;
        path[i] = (char)(high * 16 + low);
    }
    *ret_path = fb_steal(path);
    return 0;
}

int fb_wire_path_text(const json_t *value, char **ret_path)
{
    const char *hex = json_string_value(json_object_get(value, "hex"));

    if (hex)
        return path_of_hex(hex, ret_path);
    if (!json_is_string(value) || json_string_length(value) == 0)
        return -EINVAL;
    *ret_path = fb_strdup(json_string_value(value));
    return *ret_path ? 0 : -ENOMEM;
}

int fb_wire_get_path(const json_t *object, const char *key, char **ret_path)
{
    return fb_wire_path_text(json_object_get(object, key), ret_path);
}

char *fb_wire_line(const json_t *message)
{
    FB_AUTO_FREE char *text = json_dumps(message, JSON_COMPACT);

    return text ? fb_asprintf("%s\n", text) : NULL;
}

int fb_wire_poll_ms(int64_t until_ns)
{
    int64_t left_ns = until_ns - fb_now_ns();

    if (left_ns <= 0)
        return 0;
    if (left_ns > 3600 * FB_NS_PER_S)
        return 3600 * 1000;
    return (int)(left_ns / FB_NS_PER_MS) + 1;
}

/* 0 when the descriptor is ready for `events`. */
static int wait_ready(int fd, short events, int64_t until_ns)
{
    struct pollfd p = {.fd = fd, .events = events};
    int n;

    do {
        n = poll(&p, 1, fb_wire_poll_ms(until_ns));
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return n > 0 ? 0 : -ETIMEDOUT;
}

int fb_wire_send(int fd, const json_t *message, int64_t until_ns)
{
    FB_AUTO_FREE char *line = fb_wire_line(message);
    size_t len = line ? strlen(line) : 0;
    size_t sent = 0;

    if (!line)
        return -ENOMEM;
    while (sent < len) {
        ssize_t n = send(fd, line + sent, len - sent, MSG_NOSIGNAL);
        int rc = 0;

        if (n >= 0)
            sent += (size_t)n;
        else if (errno == EAGAIN)
            rc = wait_ready(fd, POLLOUT, until_ns);
        else if (errno != EINTR)
            rc = errno == ECONNRESET ? -EPIPE : -errno;
        if (rc)
            return rc;
    }
    return 0;
}

/* Appends what is there to *buf. 0 or negative errno. */
static int receive_some(int fd, char **buf, size_t *len, size_t *size, int64_t until_ns)
{
    ssize_t n;

    if (*size - *len < READ_STEP) {
        char *grown = realloc(*buf, *size * 2 + READ_STEP);

        if (!grown)
            return -ENOMEM;
        *buf = grown;
        *size = *size * 2 + READ_STEP;
    }
    n = recv(fd, *buf + *len, *size - *len, 0);
    if (n == 0 || (n < 0 && errno == ECONNRESET))
        return -EPIPE;
    if (n < 0 && errno == EAGAIN)
        return wait_ready(fd, POLLIN, until_ns);
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    *len += (size_t)n;
    return 0;
}

int fb_wire_receive(int fd, size_t max, int64_t until_ns, json_t **ret_message)
{
    FB_AUTO_FREE char *buf = NULL;
    size_t len = 0;
    size_t size = 0;

    while (len == 0 || buf[len - 1] != '\n') {
        int rc = len < max ? receive_some(fd, &buf, &len, &size, until_ns) : -EMSGSIZE;

        if (rc)
            return rc;
    }
    *ret_message = json_loadb(buf, len, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(*ret_message))
        return 0;
    json_decref(*ret_message);
    return -EBADMSG;
}
