/*
 * source/s3_walk.h - every key with a prefix, page by page. Embedded in whoever asks.
 */
#ifndef FB_SOURCE_S3_WALK_H
#define FB_SOURCE_S3_WALK_H

#include "source/s3_priv.h"

struct fb_s3_walk {
    struct fb_s3_call call;
    bool out;
    struct fb_s3 *s3;
    const char *prefix;
    const char *max_keys;
    char token[FB_S3_TOKEN_MAX + 1];
    bool more;
    int error; /* of this page: -EXDEV, or -EIO: keys that nobody asked for */
    int (*key)(struct fb_s3_walk *walk, const char *key, const struct fb_s3_xml_entry *entry);
    void (*restart)(struct fb_s3_walk *walk);          /* this page comes again */
    void (*done)(struct fb_s3_walk *walk, int result); /* of a page */
};

void fb_s3_walk_page(struct fb_s3_walk *walk, int64_t deadline_ns);
void fb_s3_walk_cancel(struct fb_s3_walk *walk);

#endif
