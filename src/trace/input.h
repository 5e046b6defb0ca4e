/*
 * trace/input.h - the bytes of a trace: a file or standard input, plain, gzip or zstd.
 *
 * Compression is found by the first bytes, whatever the file is called. Memory is two fixed
 * buffers. Offsets count bytes of the trace itself, after decompression: that is what a person can
 * look up. A file can be read again from the start; a pipe only if it was opened `again`, which
 * copies it to a temporary file first.
 */
#ifndef FB_TRACE_INPUT_H
#define FB_TRACE_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"

/* The most that one peek may ask for. */
#define FB_TRACE_PEEK_MAX (64u << 10)

struct fb_trace_input;

/* `path` "-" is standard input. */
FB_MUST_CHECK int fb_trace_input_open(const char *path, bool again, struct fb_trace_input **ret_in,
                                      struct fb_error *err);

/* The same over bytes in memory, which must outlive it: for tests. */
FB_MUST_CHECK int fb_trace_input_open_memory(const void *data, size_t len,
                                             struct fb_trace_input **ret_in, struct fb_error *err);

void fb_trace_input_close(struct fb_trace_input *in);

/* Shows the next bytes, at least `want` of them unless the trace ends before. They stay until the
 * next call. */
FB_MUST_CHECK int fb_trace_input_peek(struct fb_trace_input *in, size_t want,
                                      const uint8_t **ret_data, size_t *ret_len,
                                      struct fb_error *err);

/* Goes on past `len` bytes that were shown. */
void fb_trace_input_skip(struct fb_trace_input *in, size_t len);

FB_MUST_CHECK int fb_trace_input_rewind(struct fb_trace_input *in, struct fb_error *err);

/* As given to open; "standard input" for "-". */
const char *fb_trace_input_name(const struct fb_trace_input *in);

/* Of the next byte. */
uint64_t fb_trace_input_offset(const struct fb_trace_input *in);

/* How much of the file has been read, 0 to 1; negative when its size is not known. */
double fb_trace_input_progress(const struct fb_trace_input *in);

#endif
