/*
 * ARC's text: `start n_blocks ignored request_number`. Each of the blocks start, start + 1, ... is
 * one request.
 */
#include "trace/format_priv.h"
#include "trace/text_priv.h"

#define BLOCKS_MAX (1u << 30) /* of one line; more is a mistake */

static int line(struct fb_trace *trace, char *text, struct fb_trace_request *ret,
                const char **ret_why)
{
    uint64_t field[4];

    if (trace->run_left == 0) {
        if (*fb_trace_skip_blanks(text) == 0)
            return 0;
        if (!fb_trace_numbers(text, field, 4)) {
            *ret_why = "it has four numbers: start, blocks, one that is ignored, request";
            return -1;
        }
        if (field[1] == 0 || field[1] > BLOCKS_MAX || field[0] > UINT64_MAX - field[1]) {
            *ret_why = "the second number, of blocks, is out of range";
            return -1;
        }
        trace->run_id = field[0];
        trace->run_left = field[1];
    }
    trace->run_left--;
    *ret = (struct fb_trace_request){trace->run_id++, 0, FB_TRACE_SIZE_DEFAULT,
                                     fb_trace_default_time(trace)};
    return 1;
}

static bool looks_like(const uint8_t *head, size_t len, bool whole)
{
    char first[FB_TRACE_LINE_MAX];
    uint64_t field[4];

    return fb_trace_head_line(head, len, whole, 0, first, sizeof first) &&
           fb_trace_numbers(first, field, 4);
}

const struct fb_trace_format fb_trace_arc = {
    .name = "arc",
    .summary = "text: start blocks ignored request, each block a request (ARC)",
    .suffix = ".lis",
    .looks_like = looks_like,
    .line = line,
};
