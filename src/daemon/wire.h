/*
 * daemon/wire.h - messages on the control socket: one JSON object a line, in both directions.
 *
 *     {"op": "mount", "source": "/data", "mountpoint": "/mnt", "settings": {...}}
 *     {"ok": true, ...}
 *     {"ok": false, "code": "busy", "error": "one sentence"}
 *
 * A path that is not UTF-8, which JSON cannot carry, is written as {"hex": "2f746d70..."}.
 */
#ifndef FB_DAEMON_WIRE_H
#define FB_DAEMON_WIRE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"

#define FB_WIRE_REQUEST_MAX (64u << 10) /* bytes of a line to the daemon */
#define FB_WIRE_REPLY_MAX   (4u << 20)  /* and back */

/* Codes of failures that callers tell apart. */
#define FB_WIRE_STOPPING "stopping" /* the daemon is about to end: try again with a new one */
#define FB_WIRE_NOT_MINE "not-mine" /* another daemon may know */
#define FB_WIRE_BUSY     "busy"
#define FB_WIRE_INVALID  "invalid" /* the request was not understood */
#define FB_WIRE_FAILED   "failed"

FB_MUST_CHECK json_t *fb_wire_ok(void);
FB_MUST_CHECK json_t *fb_wire_error(const char *code, const char *format, ...) FB_PRINTF(2, 3);

/* NULL without memory. */
FB_MUST_CHECK json_t *fb_wire_path(const char *path);

/* A copy of the path in a member of `object`. -EINVAL: missing, or no path. */
FB_MUST_CHECK int fb_wire_get_path(const json_t *object, const char *key, char **ret_path);

/* The same of a value, as it stands in a list. */
FB_MUST_CHECK int fb_wire_path_text(const json_t *value, char **ret_path);

/* One line, with its newline. NULL without memory. */
FB_MUST_CHECK char *fb_wire_line(const json_t *message);

/* Both wait at most until `until_ns`; `fd` does not block. -ETIMEDOUT, -EPIPE (the other side is
 * gone), -EMSGSIZE, -EBADMSG (no JSON object). receive() expects that nothing follows the line. */
FB_MUST_CHECK int fb_wire_send(int fd, const json_t *message, int64_t until_ns);
FB_MUST_CHECK int fb_wire_receive(int fd, size_t max, int64_t until_ns, json_t **ret_message);

/* Milliseconds for poll(2): at least 1 before the time, 0 after it. */
int fb_wire_poll_ms(int64_t until_ns);

#endif
