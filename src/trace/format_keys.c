/*
 * Plain keys, nothing else: one a line (numbers or any text), or an array of u32 or u64 in either
 * byte order. Arrays have no mark of their own: the name of the file tells, or --format.
 */
#include <endian.h>
#include <string.h>

#include "trace/format_priv.h"
#include "trace/text_priv.h"

static bool key(struct fb_trace *trace, uint64_t id, struct fb_trace_request *ret)
{
    *ret = (struct fb_trace_request){id, 0, FB_TRACE_SIZE_DEFAULT, fb_trace_default_time(trace)};
    return true;
}

static bool record_u32le(struct fb_trace *trace, const uint8_t *bytes, struct fb_trace_request *ret,
                         const char **ret_why)
{
    uint32_t id;

    (void)ret_why;
    memcpy(&id, bytes, sizeof id);
    return key(trace, le32toh(id), ret);
}

static bool record_u32be(struct fb_trace *trace, const uint8_t *bytes, struct fb_trace_request *ret,
                         const char **ret_why)
{
    uint32_t id;

    (void)ret_why;
    memcpy(&id, bytes, sizeof id);
    return key(trace, be32toh(id), ret);
}

static bool record_u64le(struct fb_trace *trace, const uint8_t *bytes, struct fb_trace_request *ret,
                         const char **ret_why)
{
    uint64_t id;

    (void)ret_why;
    memcpy(&id, bytes, sizeof id);
    return key(trace, le64toh(id), ret);
}

static bool record_u64be(struct fb_trace *trace, const uint8_t *bytes, struct fb_trace_request *ret,
                         const char **ret_why)
{
    uint64_t id;

    (void)ret_why;
    memcpy(&id, bytes, sizeof id);
    return key(trace, be64toh(id), ret);
}

static int line(struct fb_trace *trace, char *text, struct fb_trace_request *ret,
                const char **ret_why)
{
    (void)ret_why;
    text = fb_trace_skip_blanks(text);
    if (*text == 0)
        return 0;
    return key(trace, fb_trace_key(text), ret);
}

/* The last resort among texts: lines of one word. */
static bool looks_like(const uint8_t *head, size_t len, bool whole)
{
    char first[FB_TRACE_LINE_MAX];

    return fb_trace_is_text(head, len) &&
           fb_trace_head_line(head, len, whole, 0, first, sizeof first) && *first &&
           !strpbrk(first, " \t,;");
}

const struct fb_trace_format fb_trace_keys = {
    .name = "keys",
    .summary = "text: one key a line, a number or any text",
    .suffix = ".keys",
    .looks_like = looks_like,
    .line = line,
};

const struct fb_trace_format fb_trace_u32le = {
    .name = "u32le",
    .summary = "array of 32-bit keys, little-endian",
    .suffix = ".u32le|.u32",
    .record_size = 4,
    .record = record_u32le,
};

const struct fb_trace_format fb_trace_u32be = {
    .name = "u32be",
    .summary = "array of 32-bit keys, big-endian",
    .suffix = ".u32be",
    .record_size = 4,
    .record = record_u32be,
};

const struct fb_trace_format fb_trace_u64le = {
    .name = "u64le",
    .summary = "array of 64-bit keys, little-endian",
    .suffix = ".u64le|.u64",
    .record_size = 8,
    .record = record_u64le,
};

const struct fb_trace_format fb_trace_u64be = {
    .name = "u64be",
    .summary = "array of 64-bit keys, big-endian",
    .suffix = ".u64be",
    .record_size = 8,
    .record = record_u64be,
};
