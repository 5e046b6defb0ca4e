/*
 * oracleGeneral: 24 bytes a request, little-endian, packed: u32 time in seconds, u64 id, u32 size,
 * i64 number of the next request for this id (from 1; -1: none).
 */
#include <endian.h>
#include <string.h>

#include "trace/format_priv.h"

#define RECORD_SIZE 24
#define LOOK_MIN    8 /* records */
#define LOOK_MAX    64
#define NEXT_MAX    (1LL << 44)

struct fields {
    uint32_t time_s;
    uint64_t id;
    uint32_t size;
    int64_t next;
};

static struct fields parse(const uint8_t *record)
{
    struct fields f;

    memcpy(&f.time_s, record, 4);
    memcpy(&f.id, record + 4, 8);
    memcpy(&f.size, record + 12, 4);
    memcpy(&f.next, record + 16, 8);
    f.time_s = le32toh(f.time_s);
    f.id = le64toh(f.id);
    f.size = le32toh(f.size);
    f.next = (int64_t)le64toh((uint64_t)f.next);
    return f;
}

static bool record(struct fb_trace *trace, const uint8_t *bytes, struct fb_trace_request *ret,
                   const char **ret_why)
{
    struct fields f = parse(bytes);

    *ret = (struct fb_trace_request){f.id, f.next, f.size, f.time_s};
    if (f.next == -1 || f.next == FB_TRACE_NEVER) {
        ret->next = FB_TRACE_NEVER;
    } else if (f.next <= (int64_t)trace->requests + 1) {
        *ret_why = "its next access lies in the past";
        return false;
    }
    return true;
}

/* Times do not run backwards, and the future lies ahead: random bytes fail both. */
static bool looks_like(const uint8_t *head, size_t len, bool whole)
{
    size_t count = fb_min_u64(len / RECORD_SIZE, LOOK_MAX);
    uint32_t before = 0;

    /* With few records to go by, the length must be right as well. */
    if (count == 0 || (whole && count < LOOK_MIN && len % RECORD_SIZE))
        return false;
    for (size_t i = 0; i < count; i++) {
        struct fields f = parse(head + i * RECORD_SIZE);
        bool last = f.next == -1 || f.next == FB_TRACE_NEVER;

        if (f.time_s < before || (!last && (f.next <= (int64_t)i + 1 || f.next > NEXT_MAX)))
            return false;
        before = f.time_s;
    }
    return true;
}

const struct fb_trace_format fb_trace_oracle = {
    .name = "oracleGeneral",
    .summary = "24-byte records that know the next access (libCacheSim)",
    .suffix = ".oraclegeneral.bin|.oraclegeneral",
    .knows_next = true,
    .record_size = RECORD_SIZE,
    .looks_like = looks_like,
    .record = record,
};
