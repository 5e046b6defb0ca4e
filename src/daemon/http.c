#include "daemon/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/mem.h"

#define CONNECTIONS_MAX   16
#define TIMEOUT_S         10
#define MEMORY_MAX        (32u << 10) /* of one connection */
#define HOST_MAX          46
#define BACKLOG           16
#define METRICS_MIME_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct fb_http {
    struct MHD_Daemon *daemon;
    void (*render)(void *arg, FILE *out);
    void *arg;
    char where[FB_HTTP_ADDRESS_MAX];
};

/* ---- addresses ---- */

static int refuse(const char *text, struct fb_error *err)
{
    return fb_error_set(err, -EINVAL,
                        "metrics: '%.64s' is no address; write HOST:PORT with an IP address, such "
                        "as 127.0.0.1:9567, or off",
                        text);
}

static int parse_port(const char *text, uint16_t *ret_port)
{
    unsigned long port;

    if (strspn(text, "0123456789") != strlen(text) || !*text || strlen(text) > 5)
        return -EINVAL;
    port = strtoul(text, NULL, 10);
    if (port > UINT16_MAX)
        return -EINVAL;
    *ret_port = (uint16_t)port;
    return 0;
}

static int set_address(const char *host, uint16_t port, struct fb_http_address *ret)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

    if (!*host || strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
        memcpy(&ret->address, &v4, sizeof v4);
        ret->length = sizeof v4;
    } else if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
        memcpy(&ret->address, &v6, sizeof v6);
        ret->length = sizeof v6;
    } else {
        return -EINVAL;
    }
    return 0;
}

int fb_http_parse(const char *text, struct fb_http_address *ret_address, struct fb_error *err)
{
    char host[HOST_MAX];
    const char *colon;
    const char *begin = text;
    size_t len;
    uint16_t port;

    memset(ret_address, 0, sizeof *ret_address);
    if (!text || !*text || strcmp(text, "off") == 0) {
        ret_address->off = true;
        return 0;
    }
    colon = strrchr(text, ':');
    if (!colon || parse_port(colon + 1, &port) != 0)
        return refuse(text, err);
    len = (size_t)(colon - text);
    if (len >= 2 && text[0] == '[' && colon[-1] == ']') {
        begin = text + 1;
        len -= 2;
    }
    if (len >= sizeof host)
        return refuse(text, err);
    memcpy(host, begin, len);
    host[len] = 0;
    return set_address(host, port, ret_address) ? refuse(text, err) : 0;
}

static void format_address(const struct sockaddr_storage *address, char out[FB_HTTP_ADDRESS_MAX])
{
    char host[INET6_ADDRSTRLEN] = "?";
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;

    if (address->ss_family == AF_INET) {
        memcpy(&v4, address, sizeof v4);
        inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
        snprintf(out, FB_HTTP_ADDRESS_MAX, "%s:%u", host, ntohs(v4.sin_port));
    } else {
        memcpy(&v6, address, sizeof v6);
        inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
        snprintf(out, FB_HTTP_ADDRESS_MAX, "[%s]:%u", host, ntohs(v6.sin6_port));
    }
}

/* ---- answers ---- */

static enum MHD_Result reply_text(struct MHD_Connection *connection, unsigned status, char *text,
                                  size_t len, enum MHD_ResponseMemoryMode mode, const char *mime)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(len, text, mode);
    enum MHD_Result result;

    if (!response) {
        if (mode == MHD_RESPMEM_MUST_FREE)
            free(text);
        return MHD_NO;
    }
    result = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, mime);
    if (result == MHD_YES)
        result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result reply_constant(struct MHD_Connection *connection, unsigned status,
                                      const char *text)
{
    return reply_text(connection, status, (char *)text, strlen(text), MHD_RESPMEM_PERSISTENT,
                      "text/plain");
}

static enum MHD_Result reply_metrics(struct fb_http *http, struct MHD_Connection *connection)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    if (!out)
        return MHD_NO;
    http->render(http->arg, out);
    if (fclose(out) != 0) {
        free(text);
        return MHD_NO;
    }
    return reply_text(connection, MHD_HTTP_OK, text, len, MHD_RESPMEM_MUST_FREE, METRICS_MIME_TYPE);
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **request)
{
    static int begun;
    struct fb_http *http = arg;

    (void)version;
    (void)upload;
    /* The first call comes with the headers; what body a client sends is not for us. */
    if (!*request) {
        *request = &begun;
        return MHD_YES;
    }
    *upload_size = 0;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return reply_constant(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n");
    if (strcmp(url, "/metrics") == 0)
        return reply_metrics(http, connection);
    if (strcmp(url, "/healthz") == 0)
        return reply_constant(connection, MHD_HTTP_OK, "ok\n");
    return reply_constant(connection, MHD_HTTP_NOT_FOUND, "see /metrics or /healthz\n");
}

/* ---- life ---- */

static int listen_at(const struct fb_http_address *address, int *ret_fd,
                     char where[FB_HTTP_ADDRESS_MAX])
{
    FB_AUTO_CLOSE int fd =
        socket(address->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_storage bound = {0};
    socklen_t len = sizeof bound;
    int yes = 1;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(fd, (const struct sockaddr *)&address->address, address->length) != 0 ||
        listen(fd, BACKLOG) != 0 || getsockname(fd, (struct sockaddr *)&bound, &len) != 0)
        return -errno;
    format_address(&bound, where);
    *ret_fd = fb_steal_fd(&fd);
    return 0;
}

int fb_http_start(const struct fb_http_address *address, void (*render)(void *arg, FILE *out),
                  void *arg, struct fb_http **ret_http, struct fb_error *err)
{
    FB_AUTO_FREE struct fb_http *http = fb_alloc(sizeof *http);
    int fd = -1;
    int rc;

    if (!http)
        return fb_error_set(err, -ENOMEM, "out of memory");
    format_address(&address->address, http->where);
    rc = listen_at(address, &fd, http->where);
    if (rc)
        return fb_error_set(err, rc, "cannot serve metrics at %s: %s", http->where,
                            fb_strerror(rc));
    http->render = render;
    http->arg = arg;
    /* The descriptor is the library's from here on, whatever comes of it. */
    http->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0, NULL, NULL, answer, http,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)MEMORY_MAX, MHD_OPTION_END);
    if (!http->daemon)
        return fb_error_set(err, -EIO, "cannot serve metrics at %s", http->where);
    *ret_http = fb_steal(http);
    return 0;
}

void fb_http_stop(struct fb_http *http)
{
    if (!http)
        return;
    MHD_stop_daemon(http->daemon);
    free(http);
}

const char *fb_http_where(const struct fb_http *http)
{
    return http->where;
}
