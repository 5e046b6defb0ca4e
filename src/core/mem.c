#include "core/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)

void *fb_alloc(size_t size)
{
    return fb_alloc_array(1, size);
}

/* Never a size of zero, for which calloc() may return NULL: to callers NULL means no memory. */
void *fb_alloc_array(size_t count, size_t size)
{
    return calloc(count ? count : 1, size ? size : 1);
}

void *fb_alloc_large(size_t count, size_t size)
{
    size_t bytes;
    void *p;

    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - HUGE_PAGE_BYTES)
        return NULL;
    if (bytes < 2 * HUGE_PAGE_BYTES)
        return fb_alloc(bytes);
    p = aligned_alloc(HUGE_PAGE_BYTES, fb_align_up(bytes, HUGE_PAGE_BYTES));
    if (p)
        (void)madvise(p, bytes, MADV_HUGEPAGE); /* a wish; without, it is slower */
    return p;
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
