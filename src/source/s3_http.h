/*
 * source/s3_http.h - requests to one bucket: signed, retried, bounded in number.
 *
 * One thread, the loop, does everything there is to do for a bucket: libcurl's multi interface over
 * epoll, signing, retries, and what the operations (s3_*.c) do between one request and the next. So
 * nothing of an S3 source needs a lock but the inbox through which jobs come in.
 *
 *     submit ──► queue ──► on the wire ──► check ──► done
 *                  ▲            │            │ wrong length, wrong checksum
 *                  └── pause ◄──┴────────────┘ 5xx, 429, reset, stall, truncated ...
 *
 * A pause is random and doubles each time, and is never shorter than the server asks for
 * (Retry-After, of which half a minute is believed). What fails for longer than the request's
 * deadline allows, or would have to be tried after it, is -EHOSTDOWN; so is what is refused because
 * keys that were good have expired and there are no new ones. How many requests are on the wire
 * adapts (s3_pace.h).
 */
#ifndef FB_SOURCE_S3_HTTP_H
#define FB_SOURCE_S3_HTTP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/attr.h"
#include "base/list.h"
#include "core/error.h"
#include "source/due.h"
#include "source/s3_creds.h"
#include "source/s3_pace.h"
#include "source/s3_sign.h"
#include "source/s3_verify.h"
#include "source/s3_xml.h"

#define FB_S3_QUERY_MAX   6
#define FB_S3_HEADERS_MAX 8

struct fb_s3_http;

enum fb_s3_method {
    FB_S3_GET,
    FB_S3_HEAD,
    FB_S3_PUT,
    FB_S3_POST,
    FB_S3_DELETE,
};

struct fb_s3_call {
    /* In. What pointers lead to lives until done. */
    enum fb_s3_method method;
    const char *key; /* "": the bucket itself */
    struct fb_s3_pair query[FB_S3_QUERY_MAX];
    unsigned query_count;
    struct fb_s3_pair headers[FB_S3_HEADERS_MAX]; /* names in lower case */
    unsigned header_count;
    const void *body; /* sent; its hash is signed */
    size_t body_len;
    /* Where the body of a good answer goes; one byte more is an error. Without, it is parsed. */
    const struct iovec *sink;
    unsigned sink_count;
    bool is_whole; /* the sink is for a whole object, which has a checksum */
    /* Of a listing: for each line. It may begin anew, with restart(); both NULL for others. */
    int (*entry)(struct fb_s3_call *call, const struct fb_s3_xml_entry *entry);
    void (*restart)(struct fb_s3_call *call);
    /* Before done(0); -EAGAIN: as if the answer had not come. May be NULL. */
    int (*check)(struct fb_s3_call *call);
    int64_t deadline_ns;
    bool urgent;  /* passes all others, and the bound on their number */
    bool patient; /* most others pass it */
    bool works;   /* the server may be silent until it has done its work: that is no stall */
    void (*done)(struct fb_s3_call *call);
    void *arg;

    /* Out. */
    int result;           /* 0 or negative errno */
    bool lost;            /* the server may have done it and was not heard; also after a cancel */
    struct fb_s3_sum sum; /* of a whole object, when it came cheaply */
    long status;
    uint64_t bytes; /* of the body */
    struct fb_s3_headers reply;
    /* What was parsed, and of errors what the server said; during check and done. */
    const struct fb_s3_answer *answer;

    /* Private. */
    struct fb_list link;
    struct fb_due due;
    struct wire *wire;
    struct fb_s3_pace_mark sent;
    int64_t first_ns;
    int64_t skew_ns; /* of our clock, as it was signed */
    unsigned tries;
    unsigned amends; /* region, place, clock, credentials: put right and sent again */
    char place[FB_S3_PLACE_MAX + 1]; /* where this one is to be asked for; "": where all are */
};

struct fb_s3_http_config {
    const char *endpoint; /* "https://host[:port]", NULL: Amazon's own of the region */
    const char *bucket;
    bool path_style;
    const char *region;
    struct fb_s3_creds *creds;
    const char *const *env;   /* where proxies are named; NULL: nowhere */
    const char *ca_bundle;    /* NULL: the system's */
    unsigned connections;     /* at most */
    int64_t stall_ns;         /* a connection on which nothing moves for so long is given up */
    void (*woken)(void *arg); /* on the loop, some time after fb_s3_http_wake(), or at wake_by() */
    void *arg;
};

/* The loop runs from here on. Strings are copied; the credentials stay the caller's. */
FB_MUST_CHECK int fb_s3_http_create(const struct fb_s3_http_config *config,
                                    struct fb_s3_http **ret_http, struct fb_error *err);

/* Any thread. */
void fb_s3_http_wake(struct fb_s3_http *http);

/* On the loop: woken() is called then at the latest. */
void fb_s3_http_wake_by(struct fb_s3_http *http, int64_t at_ns);

/* On the loop only. done() is called on the loop, not before submit has returned. */
void fb_s3_http_submit(struct fb_s3_http *http, struct fb_s3_call *call);
/* On the loop: takes a request back that is not done; done() will not be called. */
void fb_s3_http_cancel(struct fb_s3_http *http, struct fb_s3_call *call);
/* On the loop: ends it after this round. */
void fb_s3_http_stop(struct fb_s3_http *http);

/* After stop: waits for the loop and frees. All requests are done or cancelled. */
void fb_s3_http_destroy(struct fb_s3_http *http);

/* What went wrong last, for people; "" when nothing has. Any thread. */
#define FB_S3_WHY_MAX 1024
void fb_s3_http_why(struct fb_s3_http *http, char ret_why[FB_S3_WHY_MAX]);
/* scheme://host. On the loop, or before anything is submitted; for any thread, a copy. */
const char *fb_s3_http_base(const struct fb_s3_http *http);
void fb_s3_http_where(struct fb_s3_http *http, char ret_base[FB_S3_WHY_MAX]);

struct fb_s3_http_stats {
    uint64_t requests; /* sent, tries included */
    uint64_t retries;
    uint32_t on_wire;
    uint32_t limit;
};

void fb_s3_http_stats(const struct fb_s3_http *http, struct fb_s3_http_stats *ret_stats);

#endif
