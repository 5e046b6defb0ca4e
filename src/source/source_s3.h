/*
 * source/source_s3.h - a bucket, or what lies below a prefix of it, as a source.
 *
 * Keys are paths: `/` divides them, and a directory is whatever some key continues. The rules for
 * keys that are no paths are in s3_key.h and in docs/SEMANTICS.md.
 *
 * A version is size, time and ETag; the ETag alone says which bytes an object has, so what was
 * written a moment ago may be kept at once. Reads ask for the version they expect (If-Match) and
 * look at what the answer says it is, so parts of two versions never mix.
 *
 * Nothing in an object can be changed in place: writing makes a new one (s3_file.h).
 */
#ifndef FB_SOURCE_SOURCE_S3_H
#define FB_SOURCE_SOURCE_S3_H

#include "source/s3_creds.h"
#include "source/s3_journal.h"
#include "source/source.h"

#define FB_S3_CONNECTIONS 64
#define FB_S3_PART_BYTES  (8ULL << 20)
/* An upload waits so long for the journal's disk, and not more than a part of timeout_ns, since the
 * program that writes waits for it. */
#define FB_S3_JOURNAL_WAIT_NS    (5 * FB_NS_PER_S)
#define FB_S3_JOURNAL_WAIT_SHARE 4

struct fb_s3_config {
    const char *uri;      /* s3://bucket[/prefix] */
    const char *endpoint; /* NULL: Amazon's, or what the environment says */
    const char *region;   /* the same */
    const char *profile;  /* the same */
    bool path_style;
    bool unsigned_requests;
    uint32_t uid, gid, umask;      /* of all that is shown */
    unsigned connections;          /* at most; 0: FB_S3_CONNECTIONS */
    uint64_t part_bytes;           /* first part of an upload; 0: FB_S3_PART_BYTES */
    int64_t timeout_ns;            /* of a request that no job waits for; 0: 30 s */
    int64_t stall_ns;              /* a connection on which nothing moves for so long is given up */
    const char *const *env;        /* NAME=VALUE of who asked, ended by NULL; NULL: none */
    struct fb_s3_journal *journal; /* of uploads under way; the caller's. NULL: none is kept */
    int64_t journal_wait_ns;       /* for its disk; 0: FB_S3_JOURNAL_WAIT_NS, or less */
};

/* True for "s3://...". */
bool fb_source_is_s3(const char *uri);

/* s3://bucket/prefix without slashes to spare; a sentence when it names no bucket. Free it. */
FB_MUST_CHECK int fb_s3_uri_canonical(const char *uri, char **ret_uri, struct fb_error *err);

/* Asks the bucket for a first answer, so that wrong names and keys are told at once. */
FB_MUST_CHECK int fb_source_s3_open(const struct fb_s3_config *config,
                                    struct fb_source **ret_source, struct fb_error *err);

#endif
