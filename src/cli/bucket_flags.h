/*
 * cli/bucket_flags.h - flags that say something of buckets, where there is none.
 */
#ifndef FB_CLI_BUCKET_FLAGS_H
#define FB_CLI_BUCKET_FLAGS_H

#include "daemon/config.h"

/* A warning that names the flags of `config` that a directory as source makes nothing of. What the
 * environment and the file say is not meant: that is often there for several mounts. */
void cli_warn_of_bucket_flags(const struct fb_config *config);

#endif
