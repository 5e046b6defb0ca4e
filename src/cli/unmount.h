/*
 * cli/unmount.h - removing a mount without its daemon, with a sentence where that fails.
 */
#ifndef FB_CLI_UNMOUNT_H
#define FB_CLI_UNMOUNT_H

#include <stdbool.h>

#include "base/attr.h"
#include "core/error.h"

FB_MUST_CHECK int cli_unmount(const char *mountpoint, bool lazy, struct fb_error *err);

#endif
