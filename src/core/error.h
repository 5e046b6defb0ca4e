/*
 * core/error.h - how functions report failure, and the one sentence a person gets to read.
 *
 * Returns are int: 0 is success, a negative errno is passed up unchanged, a positive value is one
 * of the outcomes the function documents. Functions whose failure a person must understand also
 * take a struct fb_error and leave there one sentence that names the thing and says what to do.
 */
#ifndef FB_CORE_ERROR_H
#define FB_CORE_ERROR_H

#include "base/attr.h"

#define FB_ERROR_TEXT_MAX 1024

struct fb_error {
    char text[FB_ERROR_TEXT_MAX];
};

/* Writes the sentence and returns `code`, so that callers can write `return fb_error_set(...)`.
 * `err` may be NULL. The innermost sentence wins: a text already there is kept. */
int fb_error_set(struct fb_error *err, int code, const char *format, ...) FB_PRINTF(3, 4);

/* strerror_r without its two personalities; the text is static or thread-local. */
const char *fb_strerror(int code);

#endif
