/*
 * cli/client.h - talking to daemons over their control sockets.
 */
#ifndef FB_CLI_CLIENT_H
#define FB_CLI_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"

#define CLI_PING_WAIT_NS   (3 * 1000000000LL)
#define CLI_STATUS_WAIT_NS (5 * 1000000000LL)
#define CLI_WORK_WAIT_NS   (75 * 1000000000LL)  /* a mount, an unmount */
#define CLI_END_WAIT_NS    (120 * 1000000000LL) /* a daemon that closes its cache, or gives it up */

/* The path by which daemons know what a user calls `text`: where a bucket is mounted that a program
 * under `forebay run` sees elsewhere; of what is below a mount the path without symbolic links; all
 * else as it is written, but absolute. */
FB_MUST_CHECK int cli_path_meant(const char *text, char **ret_path);

/* Where the bucket's mount has what a program under `forebay run` sees at `text`, and this command
 * does not; NULL: it names something else. */
char *cli_path_in_bucket(const char *text);

/* Sends the request to the daemon at `socket` and waits for its reply. *ret_fd, when asked for, is
 * the connection: the daemon closes it when it ends. -ENOENT: nobody listens there; -ETIMEDOUT;
 * -EPIPE: it ended meanwhile. */
FB_MUST_CHECK int cli_request(const char *socket, const json_t *request, int64_t until_ns,
                              json_t **ret_reply, int *ret_fd);

/* Waits until the daemon has closed the connection. -ETIMEDOUT. */
FB_MUST_CHECK int cli_wait_closed(int fd, int64_t until_ns);

bool cli_reply_ok(const json_t *reply);
bool cli_reply_is(const json_t *reply, const char *code);

/* The sentence of a reply that is not ok. */
const char *cli_reply_error(const json_t *reply);

/* Asks every daemon of this user in turn until one does not say that it is another's business.
 * *ret_reply is NULL when none did. Those that do not answer (a ping, at once) are passed over. */
FB_MUST_CHECK int cli_request_any(const json_t *request, int64_t wait_ns, json_t **ret_reply,
                                  int *ret_fd, struct fb_error *err);

/* Why none did, for a request about `path`: -ENOENT, with the sentence. */
FB_MUST_CHECK int cli_nobody_serves(const char *path, struct fb_error *err);

#endif
