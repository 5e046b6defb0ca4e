/*
 * cli/listing.h - the files of a directory in the order in which a data set has them.
 *
 *     imagefolder  torchvision's ImageFolder: sorted class directories; in each, all directories
 *                  sorted by path; in each, the sorted names that have an image's extension
 *     sorted       all files by their path, as sorted(glob("**", recursive=True)) has them
 *     list:FILE    as the lines of FILE have them; the directory is not read
 *
 * Names are compared as bytes, which for UTF-8 is how Python compares strings. Links to files and
 * directories are followed.
 */
#ifndef FB_CLI_LISTING_H
#define FB_CLI_LISTING_H

#include <stdbool.h>

#include "base/attr.h"
#include "core/error.h"
#include "epoch/names.h"

#define CLI_IMAGE_EXTENSIONS ".jpg,.jpeg,.png,.ppm,.bmp,.pgm,.tif,.tiff,.webp"

#define CLI_LIST_PREFIX "list:"

struct cli_listing {
    const char *dir;
    const char *order;
    const char *extensions; /* separated by commas, without regard to case; NULL: the order's own */
    bool with_sizes;        /* asks for each file's size */
};

/* A negative errno, with a sentence. */
FB_MUST_CHECK int cli_list(const struct cli_listing *how, struct fb_names **ret_names,
                           struct fb_error *err);

/* The part of a path below the directory; all of one that is relative already. */
const char *cli_listing_strip(const char *dir, const char *line);

#endif
