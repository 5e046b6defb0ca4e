/*
 * cli/mount_options.h - the ways of mount(8) and fstab, turned into our flags.
 */
#ifndef FB_CLI_MOUNT_OPTIONS_H
#define FB_CLI_MOUNT_OPTIONS_H

#include <stdbool.h>

#include "base/attr.h"
#include "core/error.h"
#include "core/settings.h"

/* Replaces every `-o a,b=c` by `--a --b=c`, which must be flags of the table; -ENOENT otherwise,
 * with a sentence that names the option as it was written. Options that are the kernel's or fstab's
 * own business are dropped; `ro` is --read-only; `_` in a name counts as `-`; a comma in a value is
 * written `\,`. The array is one block with its texts and ends with NULL: free(3) it. */
FB_MUST_CHECK int cli_mount_options(const struct fb_setting *table, size_t count, int argc,
                                    char **argv, int *ret_count, char ***ret_words,
                                    struct fb_error *err);

/* The arguments of a /sbin/mount.forebay, `SOURCE DIR [-sfnv] [-N NS] [-o OPTIONS] [-t TYPE]`, as
 * those of `mount`. mount(8) says rw whenever nobody said ro, so rw is dropped here. *ret_fake: do
 * nothing. The array is freed with free(3); its words are argv's. */
FB_MUST_CHECK int cli_mount_helper_args(int argc, char **argv, int *ret_count, char ***ret_words,
                                        bool *ret_fake, struct fb_error *err);

#endif
