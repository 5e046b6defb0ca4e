#include "trace/access_log.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "core/mem.h"
#include "trace/format_priv.h"

#define BUFFER_SIZE (64u << 10)
#define NS_PER_S    1000000000ULL

/* ---- writing ---- */

struct fb_access_log {
    int fd;
    size_t used;
    uint8_t buffer[BUFFER_SIZE];
};

int fb_access_log_create(const char *path, struct fb_access_log **ret_log, struct fb_error *err)
{
    struct fb_access_log_head head = {
        .magic = {'F', 'B', 'A', 'C', 'C', 'E', 'S', 'S'},
        .version = htole32(FB_ACCESS_LOG_VERSION),
        .record_size = htole32(sizeof(struct fb_access_record)),
    };
    struct fb_access_log *log = fb_alloc(sizeof *log);

    if (!log)
        return -ENOMEM;
    log->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (log->fd < 0) {
        int rc = -errno;

        free(log);
        return fb_error_set(err, rc, "cannot write the access log %s: %s", path, fb_strerror(rc));
    }
    memcpy(log->buffer, &head, sizeof head);
    log->used = sizeof head;
    *ret_log = log;
    return 0;
}

int fb_access_log_flush(struct fb_access_log *log)
{
    for (size_t at = 0; at < log->used;) {
        ssize_t n = write(log->fd, log->buffer + at, log->used - at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            memmove(log->buffer, log->buffer + at, log->used - at);
            log->used -= at;
            return -errno;
        }
        at += (size_t)n;
    }
    log->used = 0;
    return 0;
}

int fb_access_log_append(struct fb_access_log *log, const struct fb_access_record *record)
{
    struct fb_access_record r = {
        .time_ns = htole64(record->time_ns),
        .id = htole64(record->id),
        .size = htole32(record->size),
        .flags = htole32(record->flags),
    };
    int rc = 0;

    if (log->used + sizeof r > BUFFER_SIZE)
        rc = fb_access_log_flush(log);
    if (rc)
        return rc;
    memcpy(log->buffer + log->used, &r, sizeof r);
    log->used += sizeof r;
    return 0;
}

int fb_access_log_close(struct fb_access_log *log)
{
    int rc;

    if (!log)
        return 0;
    rc = fb_access_log_flush(log);
    if (close(log->fd) < 0 && rc == 0)
        rc = -errno;
    free(log);
    return rc;
}

/* ---- reading: a trace format ---- */

static bool head(struct fb_trace *trace, const uint8_t *bytes, const char **ret_why)
{
    struct fb_access_log_head h;

    (void)trace;
    memcpy(&h, bytes, sizeof h);
    if (memcmp(h.magic, FB_ACCESS_LOG_MAGIC, sizeof h.magic) != 0)
        *ret_why = "its first bytes are others";
    else if (le32toh(h.version) != FB_ACCESS_LOG_VERSION)
        *ret_why = "it is of another version";
    else if (le32toh(h.record_size) != sizeof(struct fb_access_record))
        *ret_why = "its records have another size";
    else
        return true;
    return false;
}

static bool looks_like(const uint8_t *bytes, size_t len, bool whole)
{
    (void)whole;
    return len >= sizeof(struct fb_access_log_head) && memcmp(bytes, FB_ACCESS_LOG_MAGIC, 8) == 0;
}

static bool record(struct fb_trace *trace, const uint8_t *bytes, struct fb_trace_request *ret,
                   const char **ret_why)
{
    struct fb_access_record r;
    uint64_t time;

    memcpy(&r, bytes, sizeof r);
    time = le64toh(r.time_ns);
    if (!trace->time_known) {
        trace->time_known = true;
        trace->time_first = time;
    }
    if (time < trace->time_first) {
        *ret_why = "its time lies before the first";
        return false;
    }
    *ret = (struct fb_trace_request){le64toh(r.id), 0, le32toh(r.size),
                                     (uint32_t)((time - trace->time_first) / NS_PER_S)};
    return true;
}

const struct fb_trace_format fb_trace_access_log = {
    .name = "forebay",
    .summary = "Forebay's own access log",
    .head_size = sizeof(struct fb_access_log_head),
    .record_size = sizeof(struct fb_access_record),
    .looks_like = looks_like,
    .record = record,
    .head = head,
};
