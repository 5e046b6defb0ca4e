/*
 * trace/access_log.h - Forebay's own access log: what was asked for, and whether it was there.
 *
 * A head of 16 bytes, then 24 bytes an access, all little-endian. A reader that finds another
 * version or another record size refuses the file. A log that was cut in the middle of a record
 * (its writer was killed) is refused by the reader with the byte where it is cut.
 */
#ifndef FB_TRACE_ACCESS_LOG_H
#define FB_TRACE_ACCESS_LOG_H

#include <assert.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"

#define FB_ACCESS_LOG_MAGIC   "FBACCESS"
#define FB_ACCESS_LOG_VERSION 1

struct fb_access_log_head {
    char magic[8];
    uint32_t version;
    uint32_t record_size;
};

static_assert(sizeof(struct fb_access_log_head) == 16, "on disk");

enum {
    FB_ACCESS_HIT = 1,
    FB_ACCESS_WRITE = 2,
};

struct fb_access_record {
    uint64_t time_ns; /* of any clock that does not go back */
    uint64_t id;      /* of the item: a hash of path, version and block, or any number */
    uint32_t size;
    uint32_t flags;
};

static_assert(sizeof(struct fb_access_record) == 24, "on disk");

/* A writer belongs to one thread at a time. It keeps up to 64 KiB in memory. */
struct fb_access_log;

/* Makes the file, or empties it. */
FB_MUST_CHECK int fb_access_log_create(const char *path, struct fb_access_log **ret_log,
                                       struct fb_error *err);

/* In the machine's byte order. */
FB_MUST_CHECK int fb_access_log_append(struct fb_access_log *log,
                                       const struct fb_access_record *record);

/* Writes what is kept. */
FB_MUST_CHECK int fb_access_log_flush(struct fb_access_log *log);

/* Flushes, closes and frees, also when that fails; takes NULL. */
int fb_access_log_close(struct fb_access_log *log);

#endif
