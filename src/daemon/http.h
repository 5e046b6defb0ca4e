/*
 * daemon/http.h - /metrics for Prometheus and /healthz, on the loopback address unless told
 * otherwise. One thread (libmicrohttpd's own), few connections, each with a deadline.
 */
#ifndef FB_DAEMON_HTTP_H
#define FB_DAEMON_HTTP_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/attr.h"
#include "core/error.h"

#define FB_HTTP_ADDRESS_MAX 64 /* as text */

struct fb_http_address {
    bool off;
    struct sockaddr_storage address;
    socklen_t length;
};

/* `HOST:PORT`, `[HOST]:PORT`, `:PORT` (loopback), `off`; HOST is an IP address or localhost. NULL
 * and "" are off. -EINVAL with a sentence. */
FB_MUST_CHECK int fb_http_parse(const char *text, struct fb_http_address *ret_address,
                                struct fb_error *err);

struct fb_http;

/* `render` writes the body of /metrics; on the server's thread, one at a time. */
FB_MUST_CHECK int fb_http_start(const struct fb_http_address *address,
                                void (*render)(void *arg, FILE *out), void *arg,
                                struct fb_http **ret_http, struct fb_error *err);
void fb_http_stop(struct fb_http *http); /* takes NULL */

/* Where it listens, with the port that port 0 stands for. */
const char *fb_http_where(const struct fb_http *http);

#endif
