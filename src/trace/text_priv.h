/*
 * trace/text_priv.h - words and numbers in a line of text.
 */
#ifndef FB_TRACE_TEXT_PRIV_H
#define FB_TRACE_TEXT_PRIV_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/hash.h"

static inline char *fb_trace_skip_blanks(char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

/* The decimal number at *p, which then stands behind it. False: there is none, or it has more than
 * 64 bits. */
static inline bool fb_trace_number(char **p, uint64_t *ret)
{
    char *at = fb_trace_skip_blanks(*p);
    uint64_t value = 0;

    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return false;
    }
    *ret = value;
    *p = at;
    return true;
}

/* `count` numbers with blanks between them, and nothing else. */
static inline bool fb_trace_numbers(char *line, uint64_t *ret, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (!fb_trace_number(&line, &ret[i]) || (*line && *line != ' ' && *line != '\t'))
            return false;
    }
    return *fb_trace_skip_blanks(line) == 0;
}

/* A key as a number: itself if it is one, else the hash of its text. */
static inline uint64_t fb_trace_key(char *text)
{
    char *end = text;
    uint64_t value;

    if (fb_trace_number(&end, &value) && *end == 0)
        return value;
    return fb_hash64(text, strlen(text));
}

/* Whether this is text at all: no control characters. */
static inline bool fb_trace_is_text(const uint8_t *head, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (head[i] < 0x20 && head[i] != '\n' && head[i] != '\r' && head[i] != '\t')
            return false;
    }
    return len > 0;
}

/* Copies line `number` (from 0) out of the first bytes of a file; false: it is not whole there. */
static inline bool fb_trace_head_line(const uint8_t *head, size_t len, bool whole, unsigned number,
                                      char *line, size_t size)
{
    const uint8_t *end = head + len;
    const uint8_t *stop;

    for (; number > 0; number--) {
        stop = memchr(head, '\n', (size_t)(end - head));
        if (!stop)
            return false;
        head = stop + 1;
    }
    stop = memchr(head, '\n', (size_t)(end - head));
    if (!stop && whole)
        stop = end;
    if (!stop || head == end || (size_t)(stop - head) >= size)
        return false;
    memcpy(line, head, (size_t)(stop - head));
    line[stop - head] = 0;
    if (stop > head && stop[-1] == '\r')
        line[stop - head - 1] = 0;
    return true;
}

#endif
