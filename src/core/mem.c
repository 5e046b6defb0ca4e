#include "core/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)
#define PAGE_BYTES      4096

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

size_t fb_map_large_bytes(size_t bytes)
{
    size_t whole = fb_align_up(bytes, HUGE_PAGE_BYTES);

    return whole - bytes <= bytes / 8 ? whole : fb_align_up(bytes, PAGE_BYTES);
}

/* The kernel places a mapping anywhere, and makes huge pages of aligned stretches alone: so room
 * for one more is taken, and what is around given back. */
void *fb_reserve_large(size_t bytes)
{
    size_t whole = fb_align_up(bytes, PAGE_BYTES), room_bytes = whole + HUGE_PAGE_BYTES;
    uint8_t *room, *p;

    if (bytes > SIZE_MAX - 2 * HUGE_PAGE_BYTES) {
        errno = ENOMEM;
        return NULL;
    }
    room = mmap(NULL, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    p = (uint8_t *)fb_align_up((uintptr_t)room, HUGE_PAGE_BYTES);
    if (p > room)
        munmap(room, (size_t)(p - room));
    if (p < room + HUGE_PAGE_BYTES)
        munmap(p + whole, (size_t)(room + HUGE_PAGE_BYTES - p));
    return p;
}

void *fb_map_large(size_t bytes)
{
    size_t whole = fb_map_large_bytes(bytes);
    void *p = fb_reserve_large(whole);

    if (p && mmap(p, whole, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
        munmap(p, whole);
        return NULL;
    }
    if (p)
        (void)madvise(p, whole, MADV_HUGEPAGE);
    return p;
}

void fb_unmap_large(void *p, size_t bytes)
{
    if (p)
        munmap(p, fb_map_large_bytes(bytes));
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
