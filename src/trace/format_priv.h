/*
 * trace/format_priv.h - what a format is to the reader.
 *
 * A binary format has records of a fixed size; a text format has lines. Either turns one record or
 * line into requests; trace.c does the rest: input, numbering, errors with their place.
 */
#ifndef FB_TRACE_FORMAT_PRIV_H
#define FB_TRACE_FORMAT_PRIV_H

#include "trace/input.h"
#include "trace/trace.h"

#define FB_TRACE_LINE_MAX 4096

struct fb_trace {
    struct fb_trace_input *in;
    const struct fb_trace_format *format;
    uint64_t line;     /* of the next line, from 1 */
    uint64_t requests; /* handed out so far */
    /* What a text line still has to hand out: ARC's runs of blocks. */
    uint64_t run_id;
    uint64_t run_left;
    /* CSV: its columns, from 1; 0: there is none. */
    unsigned column_time;
    unsigned column_id;
    unsigned column_size;
    char separator; /* 0: the first line has not been seen */
    char *columns;
    uint64_t time_first;
    bool time_known; /* time_first is set */
};

struct fb_trace_format {
    const char *name;
    const char *summary;
    const char *suffix; /* of file names (without .zst, .gz); NULL: none says it */
    bool knows_next;
    size_t head_size;   /* bytes before the first record */
    size_t record_size; /* 0: lines */

    /* Whether the first bytes look like this; NULL: only the name can tell. */
    bool (*looks_like)(const uint8_t *head, size_t len, bool whole);

    /* One record; false: it cannot be one, with the reason. */
    bool (*record)(struct fb_trace *trace, const uint8_t *record, struct fb_trace_request *ret,
                   const char **ret_why);

    /* One line, ended by 0. 1: a request; 0: none here (a comment); -1: wrong, with the reason. */
    int (*line)(struct fb_trace *trace, char *line, struct fb_trace_request *ret,
                const char **ret_why);

    /* Reads head_size bytes; NULL: nothing to check. */
    bool (*head)(struct fb_trace *trace, const uint8_t *head, const char **ret_why);
};

extern const struct fb_trace_format fb_trace_access_log;
extern const struct fb_trace_format fb_trace_arc;
extern const struct fb_trace_format fb_trace_csv;
extern const struct fb_trace_format fb_trace_keys;
extern const struct fb_trace_format fb_trace_msr;
extern const struct fb_trace_format fb_trace_oracle;
extern const struct fb_trace_format fb_trace_seq;
extern const struct fb_trace_format fb_trace_u32be;
extern const struct fb_trace_format fb_trace_u32le;
extern const struct fb_trace_format fb_trace_u64be;
extern const struct fb_trace_format fb_trace_u64le;
extern const struct fb_trace_format fb_trace_vscsi1;
extern const struct fb_trace_format fb_trace_vscsi2;

static inline uint32_t fb_trace_default_time(const struct fb_trace *trace)
{
    return (uint32_t)(trace->requests / FB_TRACE_RATE_DEFAULT + 1);
}

#endif
