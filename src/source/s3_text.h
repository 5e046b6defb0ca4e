/*
 * source/s3_text.h - a growing string: what requests to S3 and answers from it are put together in.
 *
 * Zeroed memory is an empty one. Appending never fails visibly: without memory, or beyond
 * FB_S3_TEXT_MAX bytes, the text is marked as broken and stays as it is, and whoever uses the
 * result asks fb_s3_text_ok() once. Clearing keeps the memory, so a text used again and again soon
 * allocates no more. Secrets may pass through, so memory is wiped before it is given back.
 */
#ifndef FB_SOURCE_S3_TEXT_H
#define FB_SOURCE_S3_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/attr.h"

#define FB_S3_TEXT_MAX (1u << 20)

struct fb_s3_text {
    char *data; /* zero-terminated; NULL as long as nothing was ever appended */
    size_t len;
    size_t room;
    bool broken;
};

void fb_s3_text_add(struct fb_s3_text *text, const char *bytes, size_t len);
void fb_s3_text_adds(struct fb_s3_text *text, const char *string);
void fb_s3_text_addc(struct fb_s3_text *text, char c);

/* All bytes but A-Z a-z 0-9 - _ . ~ as %XX, with upper-case digits; '/' stays if told so. */
void fb_s3_text_add_encoded(struct fb_s3_text *text, const char *bytes, size_t len,
                            bool keep_slash);

void fb_s3_text_clear(struct fb_s3_text *text); /* also of its mark */
void fb_s3_text_free(struct fb_s3_text *text);  /* an empty one again */

static inline bool fb_s3_text_ok(const struct fb_s3_text *text)
{
    return !text->broken;
}

/* 0 to 15, or -1. */
static inline int fb_s3_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* As a string, never NULL. */
static inline const char *fb_s3_text_string(const struct fb_s3_text *text)
{
    return text->data ? text->data : "";
}

#endif
