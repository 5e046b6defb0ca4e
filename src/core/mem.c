#include "core/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void *fb_alloc(size_t size)
{
    return fb_alloc_array(1, size);
}

/* Never a size of zero, for which calloc() may return NULL: to callers NULL means no memory. */
void *fb_alloc_array(size_t count, size_t size)
{
    return calloc(count ? count : 1, size ? size : 1);
}

char *fb_strdup(const char *s)
{
    return strdup(s);
}

char *fb_asprintf(const char *format, ...)
{
    va_list args;
    char *text;
    int len;

    va_start(args, format);
    len = vasprintf(&text, format, args);
    va_end(args);
    return len < 0 ? NULL : text;
}
