#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int fb_error_set(struct fb_error *err, int code, const char *format, ...)
{
    va_list args;

    if (!err || err->text[0])
        return code;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return code;
}

const char *fb_strerror(int code)
{
    static _Thread_local char unknown[32];
    const char *text = strerrordesc_np(code < 0 ? (int)-(unsigned)code : code);

    if (text)
        return text;
    snprintf(unknown, sizeof unknown, "error %d", code);
    return unknown;
}
