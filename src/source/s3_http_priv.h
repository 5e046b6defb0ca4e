/*
 * source/s3_http_priv.h - what the files that make requests share.
 *
 *     s3_http.c     the queue, the loop and its life
 *     s3_address.c  where requests go
 *     s3_wire.c     one try: signed, sent, received
 *     s3_judge.c    what an answer means
 *     s3_pace.c     how many at once
 */
#ifndef FB_SOURCE_S3_HTTP_PRIV_H
#define FB_SOURCE_S3_HTTP_PRIV_H

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/rand.h"
#include "core/lock.h"
#include "source/s3_http.h"
#include "source/s3_pace.h"

/* One try of one call: a libcurl handle, used again and again. */
struct wire {
    struct fb_list link; /* among the idle ones */
    CURL *easy;
    struct curl_slist *headers;
    struct fb_s3_http *http;
    struct fb_s3_call *call;
    size_t sent;       /* of the body */
    size_t iov;        /* where the sink goes on */
    size_t iov_filled; /* and how much of that is full */
    struct fb_s3_xml *xml;
    bool unreadable; /* the body is no XML */
    bool active;     /* libcurl has it */
    CURLcode code;   /* when it has ended */
    const struct fb_s3_snapshot *who;
    char why[CURL_ERROR_SIZE];
};

struct fb_s3_http {
    struct fb_s3_http_config config;
    char *endpoint, *bucket, *region, *ca_bundle;
    char *base;                            /* scheme://host, of the URL */
    char *host;                            /* as signed */
    char *root;                            /* of the path: "", or what a gateway has before it */
    char *proxy, *secure_proxy, *no_proxy; /* for http, for https, for which hosts none */
    struct fb_s3_signer *signer;
    CURLM *multi;
    int64_t curl_due_ns;
    int64_t woken_due_ns;
    struct fb_list queue, urgent, patient; /* of calls */
    unsigned passed;                       /* calls that were sent while patient ones waited */
    struct fb_list ended;                  /* of calls: not judged yet */
    struct fb_list finished;               /* of calls whose done() is due */
    struct fb_due_heap pauses;
    struct fb_list idle; /* of wires */
    struct fb_s3_pace pace;
    int64_t skew_ns; /* the server's clock less ours */
    struct fb_rand dice;
    pthread_t thread;
    _Atomic uint64_t requests, retries;
    _Atomic uint32_t shown_on_wire, shown_limit;
    int epoll, event;
    uint32_t on_wire;
    bool in_path;
    bool answered;    /* the server has, once */
    bool accepted;    /* it has taken our keys */
    bool numbered;    /* good answers of its have a request's id */
    bool no_encoding; /* the server knows no encoding-type */
    bool stopping;
    bool threaded;
    struct fb_mutex why_lock; /* rank SOURCE: */
    char why[FB_S3_WHY_MAX];  /* what went wrong last */
};

/* ---- s3_address.c ---- */

/* -EINVAL: the endpoint is no URL. */
FB_MUST_CHECK int fb_s3_address(struct fb_s3_http *http);
/* Another region than we thought; true when the call may be sent again. */
FB_MUST_CHECK bool fb_s3_move_to(struct fb_s3_http *http, const char *region);

/* The server says who else to ask for this; true when the call may be sent there. */
FB_MUST_CHECK bool fb_s3_redirect(const struct fb_s3_http *http, struct fb_s3_call *call);

/* ---- s3_wire.c ---- */

const char *fb_s3_method_name(enum fb_s3_method method);
/* Sends a call; its wire is libcurl's from then on. */
FB_MUST_CHECK int fb_s3_wire_launch(struct fb_s3_http *http, struct fb_s3_call *call);
/* Takes it from libcurl. */
void fb_s3_wire_stop(struct wire *w);
/* Stops it, and keeps it for the next. */
void fb_s3_wire_put(struct wire *w);
void fb_s3_wire_free(struct wire *w);

/* ---- s3_judge.c ---- */

enum fb_s3_verdict {
    FB_S3_DONE,
    FB_S3_AGAIN,    /* after a pause */
    FB_S3_AT_ONCE,  /* something was put right */
    FB_S3_TOO_MUCH, /* after a pause, and with fewer calls at once */
};

/* Sets the call's result, and notes why for people. */
enum fb_s3_verdict fb_s3_judge(struct fb_s3_http *http, struct fb_s3_call *call, CURLcode code);

#endif
