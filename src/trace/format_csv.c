/*
 * Comma-separated values. Two formats:
 *
 * msr  MSR Cambridge: `timestamp(100 ns),host,disk,Read|Write,offset,size,response`. A header is
 *      passed over. The key is host, disk and offset.
 * csv  Any other, separated by commas, semicolons or tabs. Its first line names the columns, and
 *      those called time, id (key, object, url, ...) and size are used; --columns says otherwise,
 *      by name or by number from 1, and then a first line without names is a request, too. Times
 *      are in seconds. A key that is no number stands for its 64-bit hash. A field may be in double
 *      quotes.
 */
#include <stdlib.h>
#include <strings.h>

#include "trace/format_priv.h"
#include "trace/text_priv.h"

#define COLUMNS_MAX  64
#define MSR_TICKS    10000000 /* a second */
#define MSR_COLUMNS  7
#define COLUMN_NAMES 12

/* Without the blanks around it, and without quotes. */
static char *trim(char *text)
{
    size_t len;

    text += strspn(text, " \t");
    len = strlen(text);
    while (len > 0 && (text[len - 1] == ' ' || text[len - 1] == '\t'))
        text[--len] = 0;
    if (len >= 2 && text[0] == '"' && text[len - 1] == '"') {
        text[len - 1] = 0;
        text++;
    }
    return text;
}

/* The separator behind the field; NULL: it is the last. */
static char *field_end(char *text, char separator)
{
    char *p = fb_trace_skip_blanks(text);

    while (*p == '"') { /* a quote in quotes is written twice */
        p = strchr(p + 1, '"');
        if (!p)
            return strchr(text, separator);
        p++;
    }
    return strchr(p, separator);
}

/* Splits the line in place; returns how many fields it has. */
static unsigned split(char *text, char separator, char **field)
{
    unsigned count = 0;

    while (count < COLUMNS_MAX) {
        char *end = field_end(text, separator);

        if (end)
            *end = 0;
        field[count++] = trim(text);
        if (!end)
            break;
        text = end + 1;
    }
    return count;
}

static uint32_t relative_time(struct fb_trace *trace, uint64_t time, uint64_t ticks)
{
    if (!trace->time_known) {
        trace->time_known = true;
        trace->time_first = time;
    }
    return (uint32_t)(time > trace->time_first ? (time - trace->time_first) / ticks : 0);
}

/* The whole of the field is a number; a fraction is dropped. */
static bool number(char *text, uint64_t *ret)
{
    if (!fb_trace_number(&text, ret))
        return false;
    if (*text == '.')
        text += 1 + strspn(text + 1, "0123456789");
    return *fb_trace_skip_blanks(text) == 0;
}

/* ---- MSR ---- */

static bool is_msr_header(char **field)
{
    return strcasecmp(field[0], "timestamp") == 0 && strcasecmp(field[3], "type") == 0;
}

static int line_msr(struct fb_trace *trace, char *text, struct fb_trace_request *ret,
                    const char **ret_why)
{
    char *field[COLUMNS_MAX];
    uint64_t time;
    uint64_t disk;
    uint64_t offset;
    uint64_t size;

    if (*text == 0)
        return 0;
    if (split(text, ',', field) != MSR_COLUMNS) {
        *ret_why = "it has seven columns: timestamp,host,disk,type,offset,size,response";
        return -1;
    }
    if (trace->line == 1 && is_msr_header(field))
        return 0;
    if (!number(field[0], &time) || !number(field[2], &disk) || !number(field[4], &offset) ||
        !number(field[5], &size) || size > UINT32_MAX) {
        *ret_why = "timestamp, disk, offset and size are numbers, and a size is below 4 GiB";
        return -1;
    }
    ret->id = offset ^ fb_mix64(fb_hash64(field[1], strlen(field[1])) + disk);
    ret->next = 0;
    ret->size = (uint32_t)size;
    ret->time_s = relative_time(trace, time, MSR_TICKS);
    return 1;
}

static bool looks_like_msr(const uint8_t *head, size_t len, bool whole)
{
    char first[FB_TRACE_LINE_MAX];
    char *field[COLUMNS_MAX];
    uint64_t x;

    return fb_trace_head_line(head, len, whole, 0, first, sizeof first) &&
           split(first, ',', field) == MSR_COLUMNS &&
           (is_msr_header(field) || (number(field[0], &x) && (strcasecmp(field[3], "Read") == 0 ||
                                                              strcasecmp(field[3], "Write") == 0)));
}

const struct fb_trace_format fb_trace_msr = {
    .name = "msr",
    .summary = "CSV of MSR Cambridge: timestamp,host,disk,type,offset,size,response",
    .looks_like = looks_like_msr,
    .line = line_msr,
};

/* ---- named columns ---- */

static const char *const time_names[COLUMN_NAMES] = {"time",   "timestamp",  "ts",
                                                     "time_s", "clock_time", "real_time"};
static const char *const id_names[COLUMN_NAMES] = {
    "id", "key", "obj_id", "object_id", "object", "obj", "obj_key", "url", "path", "lbn", "lba"};
static const char *const size_names[COLUMN_NAMES] = {
    "size", "obj_size", "object_size", "bytes", "length", "len", "size_bytes", "value_size"};

static bool is_named(const char *field, const char *const *names)
{
    for (size_t i = 0; i < COLUMN_NAMES && names[i]; i++) {
        if (strcasecmp(field, names[i]) == 0)
            return true;
    }
    return false;
}

/* What is asked for: `--columns time=a,id=b`. NULL: nothing is said of it. Copied to buf. */
static const char *asked_for(const struct fb_trace *trace, const char *what, char *buf, size_t size)
{
    size_t len = strlen(what);

    for (const char *p = trace->columns; p && *p; p += strcspn(p, ","), p += *p == ',') {
        size_t value_len;

        if (strncmp(p, what, len) != 0 || p[len] != '=')
            continue;
        value_len = strcspn(p + len + 1, ",");
        if (value_len >= size)
            value_len = size - 1;
        memcpy(buf, p + len + 1, value_len);
        buf[value_len] = 0;
        return buf;
    }
    return NULL;
}

/* Its number, from 1, or 0: there is none. *ret_named: the line is a header. False: the one that is
 * asked for is not there. */
static bool find_column(const struct fb_trace *trace, const char *what, const char *const *names,
                        char **field, unsigned count, unsigned *ret_column, bool *ret_named)
{
    char buf[256];
    const char *wanted = asked_for(trace, what, buf, sizeof buf);
    uint64_t n;

    *ret_column = 0;
    if (wanted && number(buf, &n)) {
        *ret_column = n <= count ? (unsigned)n : 0;
        return *ret_column > 0;
    }
    for (unsigned i = 0; i < count; i++) {
        if (wanted ? strcasecmp(field[i], wanted) == 0
                   : !trace->columns && is_named(field[i], names)) {
            *ret_named = true;
            *ret_column = i + 1;
            return true;
        }
    }
    return !wanted;
}

static char find_separator(const char *text)
{
    static const char separators[] = ",;\t";

    for (const char *s = separators; *s; s++) {
        if (strchr(text, *s))
            return *s;
    }
    return ',';
}

/* The first line: which columns are meant. 0: it was a header; 1: it is a request as well. */
static int find_columns(struct fb_trace *trace, char **field, unsigned count, const char **ret_why)
{
    bool named = false;

    if (!find_column(trace, "time", time_names, field, count, &trace->column_time, &named) ||
        !find_column(trace, "id", id_names, field, count, &trace->column_id, &named) ||
        !find_column(trace, "size", size_names, field, count, &trace->column_size, &named)) {
        *ret_why = "it does not have all columns of --columns";
        return -1;
    }
    if (!trace->column_id) {
        *ret_why = "no column is the key; say which: --columns time=1,id=2,size=3";
        return -1;
    }
    /* Columns by number: a header shows by a size or a time that is no number. */
    for (unsigned i = 0; i < count && !named; i++) {
        uint64_t x;

        if (i + 1 == trace->column_time || i + 1 == trace->column_size)
            named = !number(field[i], &x);
    }
    return !named;
}

static int line_csv(struct fb_trace *trace, char *text, struct fb_trace_request *ret,
                    const char **ret_why)
{
    char *field[COLUMNS_MAX];
    uint64_t size = FB_TRACE_SIZE_DEFAULT;
    uint64_t time;
    unsigned count;
    bool first = !trace->separator;

    if (*text == 0)
        return 0;
    if (first) {
        trace->separator = find_separator(text);
        text += *text == '#'; /* a header may begin so */
    }
    count = split(text, trace->separator, field);
    if (first) {
        int rc = find_columns(trace, field, count, ret_why);

        if (rc <= 0)
            return rc;
    }
    if (trace->column_id > count || trace->column_size > count || trace->column_time > count) {
        *ret_why = "it has fewer columns than the first";
        return -1;
    }
    ret->time_s = fb_trace_default_time(trace);
    if (trace->column_time) {
        if (!number(field[trace->column_time - 1], &time)) {
            *ret_why = "its time is no number of seconds";
            return -1;
        }
        ret->time_s = relative_time(trace, time, 1);
    }
    if (trace->column_size &&
        (!number(field[trace->column_size - 1], &size) || size > UINT32_MAX)) {
        *ret_why = "its size is no number below 4 GiB";
        return -1;
    }
    ret->id = fb_trace_key(field[trace->column_id - 1]);
    ret->next = 0;
    ret->size = (uint32_t)size;
    return 1;
}

static bool looks_like_csv(const uint8_t *head, size_t len, bool whole)
{
    struct fb_trace none = {0};
    char first[FB_TRACE_LINE_MAX];
    char *field[COLUMNS_MAX];
    const char *why;
    unsigned count;

    if (!fb_trace_is_text(head, len) ||
        !fb_trace_head_line(head, len, whole, 0, first, sizeof first))
        return false;
    count = split(first + (*first == '#'), find_separator(first), field);
    return find_columns(&none, field, count, &why) == 0;
}

const struct fb_trace_format fb_trace_csv = {
    .name = "csv",
    .summary = "CSV with named columns: time, id and size, or those of --columns",
    .suffix = ".csv|.tsv",
    .looks_like = looks_like_csv,
    .line = line_csv,
};
