/*
 * cli/join.h - something that is asked of the daemon of a cache directory: of the one that runs, or
 * of one that is started for it.
 */
#ifndef FB_CLI_JOIN_H
#define FB_CLI_JOIN_H

#include <jansson.h>

#include "base/attr.h"
#include "core/error.h"
#include "daemon/config.h"
#include "daemon/daemon.h"

/* Sends `request` to the daemon that runs, and prints the notes in its reply; or starts one, with
 * `options` and `others` as cli_start_daemon() has them. When that one is ready it has what was
 * asked for; it is sent the request all the same where the caller wants the reply (ret_reply is not
 * NULL).
 * START_CHILD, START_INTERRUPTED (cli/start.h); all other failures are negative, with a sentence.
 */
FB_MUST_CHECK int cli_join(const struct fb_daemon_options *options, char **others,
                           const json_t *request, json_t **ret_reply, struct fb_error *err);

/* Parts of a request: the settings of a mount, and what is asked of the cache beyond the defaults,
 * which a daemon that runs can only say that it does not do. NULL without memory. */
FB_MUST_CHECK json_t *cli_mount_settings_json(const struct fb_config *config);
/* The variables that name keys, for a daemon that has others or none. */
json_t *cli_environment_json(const struct fb_config *config);
FB_MUST_CHECK json_t *cli_cache_settings_json(const struct fb_config *config);

/* What a failed cli_join() comes to: the sentence, and the exit status. */
FB_MUST_CHECK int cli_join_failed(int rc, const struct fb_error *error);

#endif
