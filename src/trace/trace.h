/*
 * trace/trace.h - readers of public trace formats: one interface, streaming, bounded memory.
 *
 * A trace is a sequence of requests. Formats differ in what they know; what is missing is filled
 * in the same way everywhere, so that results can be compared: a trace without times has 1,000
 * requests a second and begins in second 1; one without sizes has objects of 4,096 bytes; one that
 * does not know the future leaves `next` at 0 (fb_trace_knows_next() says so).
 *
 * A wrong or truncated trace ends with one sentence that names the byte or the line; nothing is
 * skipped in silence.
 */
#ifndef FB_TRACE_TRACE_H
#define FB_TRACE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"

#define FB_TRACE_NEVER        INT64_MAX
#define FB_TRACE_SIZE_DEFAULT 4096
#define FB_TRACE_RATE_DEFAULT 1000 /* requests a second */

struct fb_trace;

struct fb_trace_request {
    uint64_t id;
    int64_t next; /* number, from 1, of the next request for this id; NEVER; 0: not known */
    uint32_t size;
    uint32_t time_s;
};

struct fb_trace_options {
    const char *format;  /* a name out of fb_trace_format_at(), or NULL or "auto": find out */
    const char *columns; /* of a CSV: "time=1,id=2,size=3" or names; NULL: by its header */
    bool again;          /* it will be read more than once */
};

/* Format number `i`, from 0, for --help: its name, and one line; NULL: there are no more. */
const char *fb_trace_format_at(size_t i, const char **ret_summary);

/* `path` "-" is standard input. */
FB_MUST_CHECK int fb_trace_open(const char *path, const struct fb_trace_options *options,
                                struct fb_trace **ret_trace, struct fb_error *err);

/* Over bytes in memory, for tests. `name` stands for the path: formats show in it. */
FB_MUST_CHECK int fb_trace_open_memory(const char *name, const void *data, size_t len,
                                       const struct fb_trace_options *options,
                                       struct fb_trace **ret_trace, struct fb_error *err);

void fb_trace_close(struct fb_trace *trace);

/* The next requests, at most `max`; *ret_count 0 is the end. */
FB_MUST_CHECK int fb_trace_read(struct fb_trace *trace, struct fb_trace_request *requests,
                                size_t max, size_t *ret_count, struct fb_error *err);

FB_MUST_CHECK int fb_trace_rewind(struct fb_trace *trace, struct fb_error *err);

const char *fb_trace_format_name(const struct fb_trace *trace);
/* Bytes; 0: it is text. */
size_t fb_trace_record_size(const struct fb_trace *trace);
bool fb_trace_knows_next(const struct fb_trace *trace);

/* How much has been read, 0 to 1; negative when that is not known. */
double fb_trace_progress(const struct fb_trace *trace);

#endif
