#include "trace/trace.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "core/mem.h"
#include "trace/format_priv.h"

/* In the order in which they are tried: the surest first. */
static const struct fb_trace_format *const formats[] = {
    &fb_trace_access_log, &fb_trace_vscsi1, &fb_trace_vscsi2, &fb_trace_oracle, &fb_trace_msr,
    &fb_trace_arc,        &fb_trace_seq,    &fb_trace_csv,    &fb_trace_keys,   &fb_trace_u32le,
    &fb_trace_u32be,      &fb_trace_u64le,  &fb_trace_u64be,
};

#define LOOK_SIZE (16u << 10)
#define BOM       "\xef\xbb\xbf" /* some programs begin a text so */
#define BOM_SIZE  3

static bool has_bom(const uint8_t *head, size_t len)
{
    return len >= BOM_SIZE && memcmp(head, BOM, BOM_SIZE) == 0;
}

const char *fb_trace_format_at(size_t i, const char **ret_summary)
{
    if (i >= FB_ARRAY_SIZE(formats))
        return NULL;
    *ret_summary = formats[i]->summary;
    return formats[i]->name;
}

/* ---- which format ---- */

static bool ends_with(const char *name, size_t len, const char *suffix, size_t suffix_len)
{
    return len >= suffix_len && strncasecmp(name + len - suffix_len, suffix, suffix_len) == 0;
}

/* Whether the name, without what tells its packing, ends with one of the suffixes. */
static bool has_suffix(const char *name, const char *suffixes)
{
    static const char *const packings[] = {".zst", ".zstd", ".gz"};
    size_t len = strlen(name);

    for (size_t i = 0; i < FB_ARRAY_SIZE(packings); i++) {
        if (ends_with(name, len, packings[i], strlen(packings[i]))) {
            len -= strlen(packings[i]);
            break;
        }
    }
    while (suffixes && *suffixes) {
        size_t suffix_len = strcspn(suffixes, "|");

        if (ends_with(name, len, suffixes, suffix_len))
            return true;
        suffixes += suffix_len + (suffixes[suffix_len] == '|');
    }
    return false;
}

static size_t named_format(const char *name)
{
    size_t i = 0;

    while (i < FB_ARRAY_SIZE(formats) && !has_suffix(name, formats[i]->suffix))
        i++;
    return i;
}

/* A text that looks like a surer format than its name says is that: MSR's traces are called .csv.
 * The name of a binary one is believed. */
static int find_format(struct fb_trace *trace, const char *name, struct fb_error *err)
{
    const uint8_t *head;
    size_t len;
    size_t named = named_format(name);
    bool binary = named < FB_ARRAY_SIZE(formats) && formats[named]->record_size > 0;
    bool whole;
    int rc = fb_trace_input_peek(trace->in, LOOK_SIZE, &head, &len, err);

    if (rc)
        return rc;
    if (len == 0)
        return fb_error_set(err, -EBADMSG, "%s is empty", fb_trace_input_name(trace->in));
    whole = len < LOOK_SIZE;
    if (has_bom(head, len)) {
        head += BOM_SIZE;
        len -= BOM_SIZE;
    }
    for (size_t i = 0; i < named && !binary; i++) {
        if (formats[i]->looks_like && formats[i]->looks_like(head, len, whole)) {
            trace->format = formats[i];
            return 0;
        }
    }
    if (named < FB_ARRAY_SIZE(formats)) {
        trace->format = formats[named];
        return 0;
    }
    return fb_error_set(err, -EBADMSG,
                        "%s looks like no trace format that can be told from its first bytes; say "
                        "which it is with --format",
                        fb_trace_input_name(trace->in));
}

static int name_format(struct fb_trace *trace, const char *format, struct fb_error *err)
{
    for (size_t i = 0; i < FB_ARRAY_SIZE(formats); i++) {
        if (strcasecmp(formats[i]->name, format) == 0) {
            trace->format = formats[i];
            return 0;
        }
    }
    return fb_error_set(err, -EINVAL,
                        "there is no trace format '%.64s'; `forebay sim --help` "
                        "lists those there are",
                        format);
}

/* Columns are named for a CSV. */
static int check_columns(const char *columns, const char *format, struct fb_error *err)
{
    static const char *const keys[] = {"time=", "id=", "size="};

    if (format && strcmp(format, "auto") != 0 && strcasecmp(format, fb_trace_csv.name) != 0)
        return fb_error_set(err, -EINVAL, "columns are named for --format csv, not for '%.64s'",
                            format);
    while (*columns) {
        size_t len = strcspn(columns, ",");
        bool known = false;

        for (size_t i = 0; i < FB_ARRAY_SIZE(keys); i++)
            known = known || strncmp(columns, keys[i], strlen(keys[i])) == 0;
        if (!known)
            return fb_error_set(err, -EINVAL,
                                "columns: '%.*s' is none of time=, id= and size= with a name or a "
                                "number",
                                (int)fb_min_u64(len, 64), columns);
        columns += len + (columns[len] == ',');
    }
    return 0;
}

/* ---- opening ---- */

static int wrong_record(struct fb_trace *trace, const char *why, struct fb_error *err)
{
    return fb_error_set(
        err, -EBADMSG, "%s: the record at byte %llu is not %s: %s", fb_trace_input_name(trace->in),
        (unsigned long long)fb_trace_input_offset(trace->in), trace->format->name, why);
}

static int cut_record(struct fb_trace *trace, size_t len, struct fb_error *err)
{
    return fb_error_set(
        err, -EBADMSG,
        "%s is truncated: at byte %llu there are %zu bytes of a record, and those of "
        "%s have %zu",
        fb_trace_input_name(trace->in), (unsigned long long)fb_trace_input_offset(trace->in), len,
        trace->format->name, trace->format->record_size);
}

static int read_head(struct fb_trace *trace, struct fb_error *err)
{
    size_t size = trace->format->head_size;
    const char *why = "it is too short";
    const uint8_t *head;
    size_t len;
    int rc = fb_trace_input_peek(trace->in, size, &head, &len, err);

    if (rc || size == 0)
        return rc;
    if (len < size || !trace->format->head(trace, head, &why))
        return wrong_record(trace, why, err);
    fb_trace_input_skip(trace->in, size);
    return 0;
}

static int start(struct fb_trace *trace, const char *name, const struct fb_trace_options *options,
                 struct fb_error *err)
{
    int rc = options->columns ? check_columns(options->columns, options->format, err) : 0;

    if (rc)
        return rc;
    trace->line = 1;
    trace->columns = options->columns ? fb_strdup(options->columns) : NULL;
    if (options->columns && !trace->columns)
        return -ENOMEM;
    if (options->columns)
        trace->format = &fb_trace_csv;
    else if (options->format && strcmp(options->format, "auto") != 0)
        rc = name_format(trace, options->format, err);
    else
        rc = find_format(trace, name, err);
    return rc ? rc : read_head(trace, err);
}

static int open_input(struct fb_trace_input *in, const char *name,
                      const struct fb_trace_options *options, struct fb_trace **ret_trace,
                      struct fb_error *err)
{
    struct fb_trace *trace = fb_alloc(sizeof *trace);
    int rc;

    if (!trace) {
        fb_trace_input_close(in);
        return -ENOMEM;
    }
    trace->in = in;
    rc = start(trace, name, options, err);
    if (rc) {
        fb_trace_close(trace);
        return rc;
    }
    *ret_trace = trace;
    return 0;
}

int fb_trace_open(const char *path, const struct fb_trace_options *options,
                  struct fb_trace **ret_trace, struct fb_error *err)
{
    struct fb_trace_input *in;
    int rc = fb_trace_input_open(path, options->again, &in, err);

    return rc ? rc : open_input(in, path, options, ret_trace, err);
}

int fb_trace_open_memory(const char *name, const void *data, size_t len,
                         const struct fb_trace_options *options, struct fb_trace **ret_trace,
                         struct fb_error *err)
{
    struct fb_trace_input *in;
    int rc = fb_trace_input_open_memory(data, len, &in, err);

    return rc ? rc : open_input(in, name, options, ret_trace, err);
}

void fb_trace_close(struct fb_trace *trace)
{
    if (!trace)
        return;
    fb_trace_input_close(trace->in);
    free(trace->columns);
    free(trace);
}

int fb_trace_rewind(struct fb_trace *trace, struct fb_error *err)
{
    int rc = fb_trace_input_rewind(trace->in, err);

    trace->line = 1;
    trace->requests = 0;
    trace->run_left = 0;
    trace->time_known = false;
    trace->separator = 0;
    return rc ? rc : read_head(trace, err);
}

/* ---- reading ---- */

static int read_records(struct fb_trace *trace, struct fb_trace_request *requests, size_t max,
                        size_t *ret_count, struct fb_error *err)
{
    const struct fb_trace_format *f = trace->format;
    const uint8_t *data;
    const char *why = NULL;
    size_t len;
    size_t count;
    int rc = fb_trace_input_peek(trace->in, f->record_size, &data, &len, err);

    if (rc)
        return rc;
    if (len > 0 && len < f->record_size)
        return cut_record(trace, len, err);
    count = fb_min_u64(max, len / f->record_size);
    for (size_t i = 0; i < count; i++, data += f->record_size) {
        if (!f->record(trace, data, &requests[i], &why)) {
            fb_trace_input_skip(trace->in, i * f->record_size);
            return wrong_record(trace, why, err);
        }
        trace->requests++;
    }
    fb_trace_input_skip(trace->in, count * f->record_size);
    *ret_count = count;
    return 0;
}

static int wrong_line(struct fb_trace *trace, const char *why, struct fb_error *err)
{
    return fb_error_set(err, -EBADMSG, "%s: line %llu is not %s: %s",
                        fb_trace_input_name(trace->in), (unsigned long long)trace->line,
                        trace->format->name, why);
}

/* Copies the next line, without its end, to `line`. 1: there is one; 0: no more. */
static int next_line(struct fb_trace *trace, char line[FB_TRACE_LINE_MAX], struct fb_error *err)
{
    const uint8_t *data;
    const uint8_t *end;
    size_t len;
    int rc = fb_trace_input_peek(trace->in, FB_TRACE_LINE_MAX, &data, &len, err);

    if (rc || len == 0)
        return rc;
    if (trace->line == 1 && has_bom(data, len)) {
        fb_trace_input_skip(trace->in, BOM_SIZE);
        rc = fb_trace_input_peek(trace->in, FB_TRACE_LINE_MAX, &data, &len, err);
        if (rc || len == 0)
            return rc;
    }
    len = fb_min_u64(len, FB_TRACE_LINE_MAX);
    end = memchr(data, '\n', len);
    if (!end && len == FB_TRACE_LINE_MAX)
        return wrong_line(trace, "it is longer than 4,095 characters", err);
    len = end ? (size_t)(end - data) : len;
    if (memchr(data, 0, len))
        return wrong_line(trace, "it has a zero byte", err);
    memcpy(line, data, len);
    line[len] = 0;
    if (len > 0 && line[len - 1] == '\r')
        line[len - 1] = 0;
    fb_trace_input_skip(trace->in, len + (end != NULL));
    return 1;
}

static int read_lines(struct fb_trace *trace, struct fb_trace_request *requests, size_t max,
                      size_t *ret_count, struct fb_error *err)
{
    char line[FB_TRACE_LINE_MAX];
    const char *why = NULL;
    size_t count = 0;

    while (count < max) {
        int rc;

        if (trace->run_left == 0) {
            rc = next_line(trace, line, err);
            if (rc < 0)
                return rc;
            if (rc == 0)
                break;
        }
        rc = trace->format->line(trace, line, &requests[count], &why);
        if (rc < 0)
            return wrong_line(trace, why, err);
        if (trace->run_left == 0)
            trace->line++;
        count += (size_t)rc;
        trace->requests += (uint64_t)rc;
    }
    *ret_count = count;
    return 0;
}

int fb_trace_read(struct fb_trace *trace, struct fb_trace_request *requests, size_t max,
                  size_t *ret_count, struct fb_error *err)
{
    *ret_count = 0;
    if (trace->format->record_size)
        return read_records(trace, requests, max, ret_count, err);
    return read_lines(trace, requests, max, ret_count, err);
}

const char *fb_trace_format_name(const struct fb_trace *trace)
{
    return trace->format->name;
}

size_t fb_trace_record_size(const struct fb_trace *trace)
{
    return trace->format->record_size;
}

bool fb_trace_knows_next(const struct fb_trace *trace)
{
    return trace->format->knows_next;
}

double fb_trace_progress(const struct fb_trace *trace)
{
    return fb_trace_input_progress(trace->in);
}
