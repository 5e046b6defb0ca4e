/*
 * Text of web caches: `seq id size`. An object that changes its size is another object: the key is
 * the pair. The sequence number is the time in seconds.
 */
#include "base/hash.h"
#include "trace/format_priv.h"
#include "trace/text_priv.h"

static int line(struct fb_trace *trace, char *text, struct fb_trace_request *ret,
                const char **ret_why)
{
    uint64_t field[3];

    (void)trace;
    if (*fb_trace_skip_blanks(text) == 0)
        return 0;
    if (!fb_trace_numbers(text, field, 3)) {
        *ret_why = "it has three numbers: sequence, id, size";
        return -1;
    }
    if (field[0] > UINT32_MAX || field[2] > UINT32_MAX) {
        *ret_why = "sequence and size have at most 32 bits";
        return -1;
    }
    *ret = (struct fb_trace_request){field[0], 0, (uint32_t)field[2], (uint32_t)field[0]};
    /* Exact where the id leaves room for the size. */
    if (field[1] <= UINT32_MAX)
        ret->id = field[1] << 32 | field[2];
    else
        ret->id = fb_mix64(field[1]) ^ fb_mix64(~field[2]);
    return 1;
}

static bool looks_like(const uint8_t *head, size_t len, bool whole)
{
    char first[FB_TRACE_LINE_MAX];
    uint64_t field[3];

    return fb_trace_head_line(head, len, whole, 0, first, sizeof first) &&
           fb_trace_numbers(first, field, 3);
}

const struct fb_trace_format fb_trace_seq = {
    .name = "seq-id-size",
    .summary = "text: sequence id size; the key is the pair of id and size",
    .suffix = ".tr",
    .looks_like = looks_like,
    .line = line,
};
