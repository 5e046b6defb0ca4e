/*
 * The loop: epoll, libcurl's sockets and timer among it, and the pauses before a call is tried
 * again (a heap by due time). A round of it:
 *
 *     wait ──► sockets, timer ──► calls that ended: judged, done or put to a pause ──► pauses that
 *     are over ──► calls from the queue onto the wire, while there is room
 *
 * A `wire` is a libcurl handle with what belongs to one try; they are used again, and libcurl keeps
 * the connections beneath them.
 */
#include "source/s3_http.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/assert.h"
#include "base/rand.h"
#include "core/clock.h"
#include "core/lock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"

#define EVENTS_MAX     64
#define CALLS_MAX      65536u /* in a pause at once */
#define LIMIT_FIRST    8.0
#define LIMIT_LEAST    2.0
#define PAUSE_FIRST_NS (50 * FB_NS_PER_MS)
#define PAUSE_MAX_NS   (4 * FB_NS_PER_S)
#define MARGIN_NS      (150 * FB_NS_PER_MS) /* before the deadline: then it is for us to answer */
#define AMENDS_MAX     3
#define CLOCK_OFF_NS   (300 * FB_NS_PER_S) /* servers mind 15 minutes */
#define RENEWALS_MAX   4 /* how often one call waits for new keys: a second in all */
#define RECEIVE_BYTES  (256L << 10)
#define SLOWER         2.0 /* answers take so many times longer: enough calls are on the wire */
#define SLOWER_NS      (5 * FB_NS_PER_MS)
#define URL_MAX        8192

/* One try of one call. */
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
    const struct fb_s3_snapshot *who;
    char why[CURL_ERROR_SIZE];
};

struct fb_s3_http {
    struct fb_s3_http_config config;
    char *endpoint, *bucket, *region, *ca_bundle;
    char *base; /* scheme://host, of the URL */
    char *host; /* as signed */
    struct fb_s3_signer *signer;
    CURLM *multi;
    int64_t curl_due_ns;
    struct fb_list queue, urgent; /* of calls */
    struct fb_list finished;      /* of calls whose done() is due */
    struct fb_due_heap pauses;
    struct fb_list idle; /* of wires */
    double limit;
    double first_byte_ns, first_byte_best_ns; /* as of late, and the best there was */
    int64_t skew_ns;                          /* the server's clock less ours */
    struct fb_rand dice;
    pthread_t thread;
    _Atomic uint64_t requests, retries;
    _Atomic uint32_t shown_on_wire, shown_limit;
    int epoll, event;
    uint32_t on_wire;
    bool in_path;
    bool no_encoding; /* the server knows no encoding-type */
    bool stopping;
    bool threaded;
    struct fb_mutex why_lock; /* rank SOURCE: */
    char why[FB_S3_WHY_MAX];  /* what went wrong last */
};

/* ---- where requests go ----------------------------------------------------------------------- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && strcmp(s + n - m, end) == 0;
}

/* Names that can be part of a host name, and with a certificate for one level below. */
static bool fits_host(const char *bucket)
{
    return !strchr(bucket, '.') && !strchr(bucket, '_');
}

static int set_addresses(struct fb_s3_http *http)
{
    FB_AUTO_FREE char *endpoint = NULL;
    const char *at, *scheme_end;
    bool own = !http->endpoint || !*http->endpoint;

    endpoint =
        own ? fb_asprintf("https://s3.%s.amazonaws.com", http->region) : fb_strdup(http->endpoint);
    if (!endpoint)
        return -ENOMEM;
    while (ends_with(endpoint, "/"))
        endpoint[strlen(endpoint) - 1] = '\0';
    scheme_end = strstr(endpoint, "://");
    if (!scheme_end)
        return -EINVAL;
    at = scheme_end + 3;
    http->in_path = http->config.path_style || !fits_host(http->bucket) ||
                    !(own || ends_with(at, ".amazonaws.com"));
    free(http->base);
    free(http->host);
    http->host = http->in_path ? fb_strdup(at) : fb_asprintf("%s.%s", http->bucket, at);
    http->base = http->host
                     ? fb_asprintf("%.*s://%s", (int)(scheme_end - endpoint), endpoint, http->host)
                     : NULL;
    return http->base ? 0 : -ENOMEM;
}

/* Another region than we thought; true when the call may be sent again. */
static bool move_to(struct fb_s3_http *http, const char *region)
{
    char *copy;

    if (!*region || strcmp(region, http->region) == 0)
        return false;
    copy = fb_strdup(region);
    if (!copy)
        return false;
    fb_log_info("the bucket %s is in the region %s", http->bucket, region);
    free(http->region);
    http->region = copy;
    return set_addresses(http) == 0;
}

/* ---- what a try is made of ------------------------------------------------------------------- */

static const char *method_name(enum fb_s3_method method)
{
    static const char *const names[] = {"GET", "HEAD", "PUT", "POST", "DELETE"};

    return names[method];
}

static int add_header(struct wire *w, const char *name, const char *value)
{
    FB_AUTO_FREE char *line = fb_asprintf("%s: %s", name, value);
    struct curl_slist *list = line ? curl_slist_append(w->headers, line) : NULL;

    if (!list)
        return -ENOMEM;
    w->headers = list;
    return 0;
}

/* Keys in listings are asked for encoded, so that XML can carry them all. */
static unsigned make_query(const struct fb_s3_http *http, const struct fb_s3_call *call,
                           struct fb_s3_pair ret_query[FB_S3_QUERY_MAX + 1])
{
    memcpy(ret_query, call->query, call->query_count * sizeof *ret_query);
    if (!call->entry || http->no_encoding)
        return call->query_count;
    ret_query[call->query_count] = (struct fb_s3_pair){"encoding-type", "url"};
    return call->query_count + 1;
}

static int sign(struct fb_s3_http *http, struct wire *w, char url[URL_MAX])
{
    struct fb_s3_call *call = w->call;
    struct fb_s3_pair query[FB_S3_QUERY_MAX + 1];
    const struct fb_s3_snapshot *who;
    struct fb_s3_identity identity;
    char hash[FB_S3_SHA256_TEXT] = FB_S3_EMPTY_PAYLOAD;
    FB_AUTO_FREE char *path = fb_asprintf("%s%s/%s", http->in_path ? "/" : "",
                                          http->in_path ? http->bucket : "", call->key);
    struct fb_s3_request request = {
        .method = method_name(call->method),
        .host = http->host,
        .path = path,
        .query = query,
        .query_count = make_query(http, call, query),
        .headers = call->headers,
        .header_count = call->header_count,
        .payload_hash = hash,
        .wall_ns = fb_wall_ns() + http->skew_ns,
    };
    struct fb_s3_signed with;
    int r = path ? fb_s3_creds_get(http->config.creds, &w->who, NULL) : -ENOMEM;

    call->skew_ns = http->skew_ns;
    if (r < 0)
        return r;
    who = w->who;
    if (call->body_len > 0)
        r = fb_s3_sha256(http->signer, call->body, call->body_len, hash);
    identity = (struct fb_s3_identity){.access_key = who->access_key,
                                       .secret = who->secret,
                                       .session_token = who->session_token,
                                       .region = http->region};
    if (r == 0)
        r = fb_s3_sign(http->signer, who->anonymous ? NULL : &identity, &request, &with);
    if (r == 0 && snprintf(url, URL_MAX, "%s%s%s%s", http->base, with.path,
                           with.query[0] ? "?" : "", with.query) >= URL_MAX)
        r = -ENAMETOOLONG;
    for (unsigned i = 0; r == 0 && i < call->header_count; i++)
        r = add_header(w, call->headers[i].name, call->headers[i].value);
    if (r == 0 && !who->anonymous) {
        r = add_header(w, "x-amz-date", with.date);
        if (r == 0)
            r = add_header(w, "x-amz-content-sha256", hash);
        if (r == 0 && *who->session_token)
            r = add_header(w, "x-amz-security-token", who->session_token);
        if (r == 0)
            r = add_header(w, "Authorization", with.authorization);
    }
    if (r == 0)
        r = add_header(w, "Expect", "");
    return r;
}

/* ---- libcurl's callbacks --------------------------------------------------------------------- */

static size_t on_send(char *buffer, size_t size, size_t count, void *arg)
{
    struct wire *w = arg;
    size_t n = size * count, left = w->call->body_len - w->sent;

    if (n > left)
        n = left;
    memcpy(buffer, (const char *)w->call->body + w->sent, n);
    w->sent += n;
    return n;
}

static int on_rewind(void *arg, curl_off_t offset, int origin)
{
    struct wire *w = arg;

    if (origin != SEEK_SET || offset < 0 || (size_t)offset > w->call->body_len)
        return CURL_SEEKFUNC_CANTSEEK;
    w->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

static bool fill_sink(struct wire *w, const char *data, size_t length)
{
    const struct fb_s3_call *call = w->call;

    while (length > 0 && w->iov < call->sink_count) {
        const struct iovec *iov = &call->sink[w->iov];
        size_t n = iov->iov_len - w->iov_filled;

        if (n > length)
            n = length;
        memcpy((char *)iov->iov_base + w->iov_filled, data, n);
        data += n;
        length -= n;
        w->iov_filled += n;
        if (w->iov_filled == iov->iov_len) {
            w->iov++;
            w->iov_filled = 0;
        }
    }
    return length == 0;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct wire *w = arg;
    struct fb_s3_call *call = w->call;
    size_t length = size * count;
    long status = 0;
    bool good = true;

    curl_easy_getinfo(w->easy, CURLINFO_RESPONSE_CODE, &status);
    call->bytes += length;
    if (status / 100 == 2 && call->sink)
        good = fill_sink(w, data, length);
    else if (!w->unreadable)
        w->unreadable = fb_s3_xml_feed(w->xml, data, length) < 0;
    /* What a proxy says is seldom XML; its status is enough. */
    return good ? length : 0;
}

static int on_entry(void *arg, const struct fb_s3_xml_entry *entry)
{
    struct fb_s3_call *call = ((struct wire *)arg)->call;

    return call->entry ? call->entry(call, entry) : -EBADMSG;
}

static size_t on_header(char *data, size_t size, size_t count, void *arg)
{
    struct wire *w = arg;
    struct fb_s3_call *call = w->call;

    if (call->first_ns == 0)
        call->first_ns = fb_now_ns();
    fb_s3_headers_line(&call->reply, data, size * count);
    return size * count;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
    struct fb_s3_http *http = arg;
    struct epoll_event event = {.data.fd = fd};

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(http->epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    event.events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);
    if (epoll_ctl(http->epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) < 0 &&
        errno == EEXIST)
        epoll_ctl(http->epoll, EPOLL_CTL_MOD, fd, &event);
    curl_multi_assign(http->multi, fd, http);
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *arg)
{
    struct fb_s3_http *http = arg;

    (void)multi;
    http->curl_due_ns = timeout_ms < 0 ? FB_NEVER_NS : fb_now_ns() + timeout_ms * FB_NS_PER_MS;
    return 0;
}

/* ---- onto the wire --------------------------------------------------------------------------- */

static void wire_free(struct wire *w)
{
    curl_easy_cleanup(w->easy);
    fb_s3_xml_destroy(w->xml);
    free(w);
}

static struct wire *wire_get(struct fb_s3_http *http)
{
    struct wire *w;

    if (!fb_list_empty(&http->idle)) {
        w = FB_LIST_ENTRY(http->idle.next, struct wire, link);
        fb_list_remove(&w->link);
        return w;
    }
    w = fb_alloc(sizeof *w);
    if (!w)
        return NULL;
    w->http = http;
    fb_list_init(&w->link);
    w->easy = curl_easy_init();
    if (!w->easy || fb_s3_xml_create(on_entry, w, &w->xml) < 0) {
        wire_free(w);
        return NULL;
    }
    return w;
}

/* Takes it from libcurl. */
static void wire_stop(struct wire *w)
{
    if (!w->active)
        return;
    curl_multi_remove_handle(w->http->multi, w->easy);
    w->http->on_wire--;
    w->active = false;
}

static void wire_put(struct wire *w)
{
    wire_stop(w);
    fb_s3_creds_put(fb_steal(w->who));
    curl_slist_free_all(w->headers);
    w->headers = NULL;
    w->call = NULL;
    curl_easy_reset(w->easy);
    fb_list_push_front(&w->http->idle, &w->link);
}

static void set_body_options(struct wire *w)
{
    const struct fb_s3_call *call = w->call;

    switch (call->method) {
    case FB_S3_GET:
        break;
    case FB_S3_HEAD:
        curl_easy_setopt(w->easy, CURLOPT_NOBODY, 1L);
        break;
    case FB_S3_DELETE:
        curl_easy_setopt(w->easy, CURLOPT_CUSTOMREQUEST, "DELETE");
        break;
    case FB_S3_POST:
    case FB_S3_PUT:
        curl_easy_setopt(w->easy, CURLOPT_CUSTOMREQUEST, method_name(call->method));
        curl_easy_setopt(w->easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(w->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)call->body_len);
        curl_easy_setopt(w->easy, CURLOPT_READFUNCTION, on_send);
        curl_easy_setopt(w->easy, CURLOPT_READDATA, w);
        curl_easy_setopt(w->easy, CURLOPT_SEEKFUNCTION, on_rewind);
        curl_easy_setopt(w->easy, CURLOPT_SEEKDATA, w);
        curl_easy_setopt(w->easy, CURLOPT_UPLOAD_BUFFERSIZE, RECEIVE_BYTES);
        break;
    }
}

static void set_options(struct wire *w, const char *url)
{
    struct fb_s3_http *http = w->http;
    long stall_s = (long)(http->config.stall_ns / FB_NS_PER_S);
    int64_t left_ns = w->call->deadline_ns - fb_now_ns();
    CURL *easy = w->easy;

    if (stall_s < 1)
        stall_s = 1;
    w->why[0] = '\0';
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, w->headers);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "forebay");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, w);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, w);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, w);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, w->why);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, RECEIVE_BYTES);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, stall_s);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, stall_s * 1000);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    if (http->ca_bundle)
        curl_easy_setopt(easy, CURLOPT_CAINFO, http->ca_bundle);
    if (w->call->deadline_ns != FB_NEVER_NS)
        curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
                         left_ns > FB_NS_PER_MS ? (long)(left_ns / FB_NS_PER_MS) : 1L);
    set_body_options(w);
}

static void finish(struct fb_s3_http *http, struct fb_s3_call *call, int result)
{
    call->result = result;
    fb_list_push_back(&http->finished, &call->link);
}

static int launch(struct fb_s3_http *http, struct fb_s3_call *call)
{
    char url[URL_MAX];
    struct wire *w = wire_get(http);
    int r;

    if (!w)
        return -ENOMEM;
    w->call = call;
    w->sent = w->iov = w->iov_filled = 0;
    w->unreadable = false;
    call->bytes = 0;
    call->status = 0;
    call->first_ns = 0;
    memset(&call->reply, 0, sizeof call->reply);
    if (call->restart)
        call->restart(call);
    r = fb_s3_xml_begin(w->xml, call->entry && !http->no_encoding);
    if (r == 0)
        r = sign(http, w, url);
    if (r == 0) {
        set_options(w, url);
        call->sent_ns = fb_now_ns();
        w->active = curl_multi_add_handle(http->multi, w->easy) == CURLM_OK;
        r = w->active ? 0 : -EIO;
    }
    http->on_wire += w->active;
    if (r < 0) {
        wire_put(w);
        return r;
    }
    call->wire = w;
    atomic_fetch_add_explicit(&http->requests, 1, memory_order_relaxed);
    return 0;
}

static struct fb_s3_call *next_call(struct fb_s3_http *http)
{
    struct fb_list *from = NULL;
    struct fb_s3_call *call;

    if (!fb_list_empty(&http->urgent))
        from = &http->urgent;
    else if (!fb_list_empty(&http->queue) && http->on_wire < (uint32_t)http->limit)
        from = &http->queue;
    if (!from)
        return NULL;
    call = FB_LIST_ENTRY(from->next, struct fb_s3_call, link);
    fb_list_remove(&call->link);
    return call;
}

static void launch_all(struct fb_s3_http *http)
{
    struct fb_s3_call *call;

    while ((call = next_call(http))) {
        int r = launch(http, call);

        if (r < 0)
            finish(http, call, r);
    }
    atomic_store_explicit(&http->shown_on_wire, http->on_wire, memory_order_relaxed);
    atomic_store_explicit(&http->shown_limit, (uint32_t)http->limit, memory_order_relaxed);
}

static void enqueue(struct fb_s3_http *http, struct fb_s3_call *call)
{
    fb_list_push_back(call->urgent ? &http->urgent : &http->queue, &call->link);
}

/* ---- judging an answer ----------------------------------------------------------------------- */

enum verdict {
    DONE,
    AGAIN,    /* after a pause */
    AT_ONCE,  /* something was put right */
    TOO_MUCH, /* after a pause, and with fewer calls at once */
};

static bool says(const struct fb_s3_call *call, const char *code)
{
    return strcmp(call->answer->code, code) == 0;
}

/* The keys were good, and are no more. The answer to a HEAD has no room for a reason; nothing else
 * makes one malformed. */
static bool keys_expired(const struct fb_s3_call *call)
{
    return says(call, "ExpiredToken") || says(call, "InvalidToken") ||
           says(call, "TokenRefreshRequired") ||
           (call->method == FB_S3_HEAD && call->status == 400);
}

/* Our clock was wrong, or what we made of it: it may have been set meanwhile. */
static bool clock_off(const struct fb_s3_call *call)
{
    int64_t ahead_ns = call->reply.date_ns - fb_wall_ns() - call->skew_ns;

    return call->reply.has_date &&
           (says(call, "RequestTimeTooSkewed") ||
            (call->method == FB_S3_HEAD && (ahead_ns > CLOCK_OFF_NS || ahead_ns < -CLOCK_OFF_NS)));
}

static enum verdict judge_refusal(struct fb_s3_http *http, struct fb_s3_call *call)
{
    bool may = call->amends < AMENDS_MAX;

    call->result = -EACCES;
    if (may && clock_off(call)) {
        http->skew_ns = call->reply.date_ns - fb_wall_ns();
        return AT_ONCE;
    }
    if (!may || call->wire->who->anonymous)
        return DONE;
    if ((keys_expired(call) || says(call, "InvalidAccessKeyId") ||
         says(call, "SignatureDoesNotMatch") || call->method == FB_S3_HEAD) &&
        fb_s3_creds_refused(http->config.creds, call->wire->who))
        return AT_ONCE;
    return keys_expired(call) && call->tries < RENEWALS_MAX ? AGAIN : DONE;
}

static int errno_of(const struct fb_s3_call *call)
{
    switch (call->status) {
    case 404:
        return says(call, "NoSuchBucket") ? -EIO : -ENOENT;
    case 409:
        return -EBUSY;
    case 411:
    case 501:
        return -ENOTSUP;
    case 412:
    case 416:
        return -ESTALE;
    default:
        return -EIO;
    }
}

static enum verdict judge_status(struct fb_s3_http *http, struct fb_s3_call *call)
{
    const char *region = call->reply.region[0] ? call->reply.region : call->answer->region;
    long status = call->status;

    if ((status / 100 == 3 || status == 400) && call->amends < AMENDS_MAX && move_to(http, region))
        return AT_ONCE;
    if (status == 503 || status == 429 || says(call, "SlowDown"))
        return TOO_MUCH;
    if (status >= 500 || status == 408 || says(call, "RequestTimeout") ||
        says(call, "OperationAborted") || says(call, "InternalError"))
        return AGAIN;
    if (status == 403 || status == 401 || keys_expired(call))
        return judge_refusal(http, call);
    call->result = errno_of(call);
    return DONE;
}

/* A good answer: is it all there, and is it one? */
static enum verdict judge_good(struct fb_s3_http *http, struct fb_s3_call *call)
{
    struct wire *w = call->wire;
    int r = call->sink || (call->bytes == 0 && !call->entry) ? 0 : fb_s3_xml_end(w->xml);

    if (r == FB_S3_XML_NOT_ENCODED) {
        http->no_encoding = true;
        return AT_ONCE;
    }
    /* An answer may begin well and end with an error: it was sent before the work was done. */
    if (r == 0 && call->answer->document == FB_S3_DOC_ERROR)
        return judge_status(http, call);
    /* Nothing at all is no empty listing. */
    if (r == 0 && call->entry && call->answer->document != FB_S3_DOC_LIST)
        r = -EBADMSG;
    if (r < 0 || w->unreadable || call->reply.malformed)
        return AGAIN;
    if (call->check)
        call->result = call->check(call);
    return call->result == -EAGAIN ? AGAIN : DONE;
}

static enum verdict judge(struct fb_s3_http *http, struct fb_s3_call *call, CURLcode code)
{
    call->result = 0;
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
        code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) {
        call->result = -EIO;
        return DONE;
    }
    if (code != CURLE_OK)
        return AGAIN;
    return call->status / 100 == 2 ? judge_good(http, call) : judge_status(http, call);
}

/* One more per round trip while it does not get slower; fewer at once when it is too much. */
static void adapt(struct fb_s3_http *http, const struct fb_s3_call *call, enum verdict verdict)
{
    double took_ns = (double)(call->first_ns - call->sent_ns);

    if (verdict == TOO_MUCH) {
        http->limit = http->limit * 2 / 3;
        if (http->limit < LIMIT_LEAST)
            http->limit = LIMIT_LEAST;
        return;
    }
    if (verdict != DONE || call->first_ns == 0 || call->body_len > 0)
        return;
    http->first_byte_ns =
        http->first_byte_ns == 0 ? took_ns : http->first_byte_ns * 0.9 + took_ns * 0.1;
    /* What was once quick may never be so again: forgotten slowly. */
    if (http->first_byte_best_ns == 0 || took_ns < http->first_byte_best_ns)
        http->first_byte_best_ns = took_ns;
    else
        http->first_byte_best_ns *= 1.0005;
    if (http->first_byte_ns > http->first_byte_best_ns * SLOWER + (double)SLOWER_NS)
        return;
    if (!fb_list_empty(&http->queue) && http->limit < http->config.connections)
        http->limit += 1 / http->limit;
}

static void pause_call(struct fb_s3_http *http, struct fb_s3_call *call, bool at_once)
{
    int64_t now_ns = fb_now_ns(), pause_ns = PAUSE_FIRST_NS << (call->tries < 7 ? call->tries : 7);

    if (pause_ns > PAUSE_MAX_NS)
        pause_ns = PAUSE_MAX_NS;
    pause_ns = at_once ? 0 : (int64_t)((0.5 + fb_rand_unit(&http->dice) / 2) * (double)pause_ns);
    if (at_once)
        call->amends++;
    else
        call->tries++;
    if ((call->deadline_ns != FB_NEVER_NS && now_ns + pause_ns > call->deadline_ns - MARGIN_NS) ||
        http->pauses.count == http->pauses.capacity) {
        finish(http, call, -EHOSTDOWN);
        return;
    }
    atomic_fetch_add_explicit(&http->retries, 1, memory_order_relaxed);
    if (at_once)
        enqueue(http, call);
    else
        fb_due_add(&http->pauses, &call->due, now_ns + pause_ns);
}

/* done() may free the call, and sees the answer. */
static void deliver(struct fb_s3_call *call)
{
    struct wire *w = fb_steal(call->wire);

    call->done(call);
    if (w)
        wire_put(w);
}

static void note_why(struct fb_s3_http *http, const struct wire *w, CURLcode code)
{
    const struct fb_s3_call *call = w->call;

    fb_mutex_lock(&http->why_lock);
    if (code != CURLE_OK)
        snprintf(http->why, sizeof http->why, "%s", w->why[0] ? w->why : curl_easy_strerror(code));
    else
        snprintf(http->why, sizeof http->why, "status %ld%s%s%s%s", call->status,
                 call->answer->code[0] ? ", " : "", call->answer->code,
                 call->answer->message[0] ? ": " : "", call->answer->message);
    fb_mutex_unlock(&http->why_lock);
}

void fb_s3_http_why(struct fb_s3_http *http, char ret_why[FB_S3_WHY_MAX])
{
    fb_mutex_lock(&http->why_lock);
    memcpy(ret_why, http->why, FB_S3_WHY_MAX);
    fb_mutex_unlock(&http->why_lock);
}

const char *fb_s3_http_base(const struct fb_s3_http *http)
{
    return http->base;
}

static void ended(struct fb_s3_http *http, CURL *easy, CURLcode code)
{
    struct fb_s3_call *call;
    enum verdict verdict;
    struct wire *w = NULL;

    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&w);
    call = w->call;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &call->status);
    wire_stop(w);
    call->answer = fb_s3_xml_answer(w->xml);
    verdict = judge(http, call, code);
    if (code != CURLE_OK || call->status / 100 != 2)
        note_why(http, w, code);
    if (verdict != DONE)
        fb_log_debug("s3: %s %s: %s; again", method_name(call->method), call->key, http->why);
    adapt(http, call, verdict);
    if (verdict == DONE) {
        deliver(call);
        return;
    }
    wire_put(fb_steal(call->wire));
    pause_call(http, call, verdict == AT_ONCE);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static const struct fb_s3_answer nothing;

static void collect(struct fb_s3_http *http)
{
    struct fb_s3_call *call;
    CURLMsg *message;
    struct fb_due *due;
    int left;

    while ((message = curl_multi_info_read(http->multi, &left))) {
        if (message->msg == CURLMSG_DONE)
            ended(http, message->easy_handle, message->data.result);
    }
    while ((due = fb_due_first(&http->pauses)) && due->at_ns <= fb_now_ns()) {
        fb_due_remove(&http->pauses, due);
        enqueue(http, FB_CONTAINER_OF(due, struct fb_s3_call, due));
    }
    while (!fb_list_empty(&http->finished)) {
        call = FB_LIST_ENTRY(http->finished.next, struct fb_s3_call, link);
        fb_list_remove(&call->link);
        call->answer = &nothing;
        deliver(call);
    }
}

static int wait_ms(const struct fb_s3_http *http)
{
    const struct fb_due *due = fb_due_first(&http->pauses);
    int64_t until_ns = due && due->at_ns < http->curl_due_ns ? due->at_ns : http->curl_due_ns;
    int64_t now_ns;

    if (!fb_list_empty(&http->finished))
        return 0;
    if (until_ns == FB_NEVER_NS)
        return -1;
    now_ns = fb_now_ns();
    return until_ns <= now_ns ? 0 : (int)((until_ns - now_ns + FB_NS_PER_MS - 1) / FB_NS_PER_MS);
}

static void serve_events(struct fb_s3_http *http, const struct epoll_event *events, int count)
{
    uint64_t ignored;
    int running;

    for (int i = 0; i < count; i++) {
        int flags = (events[i].events & EPOLLIN ? CURL_CSELECT_IN : 0) |
                    (events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                    (events[i].events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);

        if (events[i].data.fd == http->event) {
            if (read(http->event, &ignored, sizeof ignored) > 0)
                http->config.woken(http->config.arg);
        } else {
            curl_multi_socket_action(http->multi, events[i].data.fd, flags, &running);
        }
    }
    if (http->curl_due_ns <= fb_now_ns()) {
        http->curl_due_ns = FB_NEVER_NS;
        curl_multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
}

static void *loop_main(void *arg)
{
    struct fb_s3_http *http = arg;
    struct epoll_event events[EVENTS_MAX];

    while (!http->stopping) {
        int count = epoll_wait(http->epoll, events, EVENTS_MAX, wait_ms(http));

        serve_events(http, events, count > 0 ? count : 0);
        collect(http);
        launch_all(http);
    }
    return NULL;
}

void fb_s3_http_wake(struct fb_s3_http *http)
{
    uint64_t one = 1;
    ssize_t n = write(http->event, &one, sizeof one);

    (void)n; /* full: it is awake */
}

void fb_s3_http_submit(struct fb_s3_http *http, struct fb_s3_call *call)
{
    fb_list_init(&call->link);
    call->due.slot = 0;
    call->wire = NULL;
    call->tries = call->amends = 0;
    enqueue(http, call);
    if (http->on_wire == 0)
        fb_s3_http_wake(http);
}

void fb_s3_http_cancel(struct fb_s3_http *http, struct fb_s3_call *call)
{
    fb_due_remove(&http->pauses, &call->due);
    fb_list_remove(&call->link);
    if (call->wire)
        wire_put(fb_steal(call->wire));
}

void fb_s3_http_stop(struct fb_s3_http *http)
{
    http->stopping = true;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int start(struct fb_s3_http *http)
{
    struct epoll_event event = {.events = EPOLLIN};
    int r;

    http->multi = curl_multi_init();
    http->epoll = epoll_create1(EPOLL_CLOEXEC);
    http->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!http->multi)
        return -ENOMEM;
    if (http->epoll < 0 || http->event < 0)
        return -errno;
    event.data.fd = http->event;
    if (epoll_ctl(http->epoll, EPOLL_CTL_ADD, http->event, &event) < 0)
        return -errno;
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
    curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)http->config.connections);
    curl_multi_setopt(http->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    r = fb_due_create(&http->pauses, CALLS_MAX);
    if (r == 0)
        r = fb_s3_signer_create(&http->signer);
    if (r == 0)
        r = fb_thread_start(&http->thread, "fb-s3", loop_main, http);
    http->threaded = r == 0;
    return r;
}

int fb_s3_http_create(const struct fb_s3_http_config *config, struct fb_s3_http **ret_http,
                      struct fb_error *err)
{
    struct fb_s3_http *http = fb_alloc(sizeof *http);
    int r;

    if (!http)
        return fb_error_set(err, -ENOMEM, "no memory for %s", config->bucket);
    http->config = *config;
    http->epoll = http->event = -1;
    http->curl_due_ns = FB_NEVER_NS;
    http->limit = LIMIT_FIRST < config->connections ? LIMIT_FIRST : config->connections;
    http->dice.state = (uint64_t)fb_wall_ns();
    fb_mutex_init(&http->why_lock, FB_RANK_SOURCE);
    fb_list_init(&http->queue);
    fb_list_init(&http->urgent);
    fb_list_init(&http->finished);
    fb_list_init(&http->idle);
    http->endpoint = config->endpoint ? fb_strdup(config->endpoint) : NULL;
    http->bucket = fb_strdup(config->bucket);
    http->region = fb_strdup(config->region);
    http->ca_bundle = config->ca_bundle ? fb_strdup(config->ca_bundle) : NULL;
    r = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK && http->bucket && http->region
            ? set_addresses(http)
            : -ENOMEM;
    if (r == -EINVAL)
        fb_error_set(err, r, "the endpoint %s is no URL; write it as https://host:port",
                     config->endpoint);
    else if (r == 0 && (r = start(http)) < 0)
        fb_error_set(err, r, "cannot start the connection to %s: %s", config->bucket,
                     fb_strerror(r));
    else if (r < 0)
        fb_error_set(err, r, "no memory for %s", config->bucket);
    if (r < 0) {
        fb_s3_http_destroy(http);
        return r;
    }
    *ret_http = http;
    return 0;
}

void fb_s3_http_destroy(struct fb_s3_http *http)
{
    struct fb_list *it, *tmp;

    if (http->threaded)
        pthread_join(http->thread, NULL);
    FB_LIST_FOREACH (it, tmp, &http->idle) {
        wire_free(FB_LIST_ENTRY(it, struct wire, link));
    }
    if (http->multi)
        curl_multi_cleanup(http->multi);
    fb_s3_signer_destroy(http->signer);
    fb_due_destroy(&http->pauses);
    if (http->epoll >= 0)
        close(http->epoll);
    if (http->event >= 0)
        close(http->event);
    fb_mutex_destroy(&http->why_lock);
    free(http->base);
    free(http->host);
    free(http->endpoint);
    free(http->bucket);
    free(http->region);
    free(http->ca_bundle);
    free(http);
}

void fb_s3_http_stats(const struct fb_s3_http *http, struct fb_s3_http_stats *ret_stats)
{
    *ret_stats = (struct fb_s3_http_stats){
        .requests = atomic_load_explicit(&http->requests, memory_order_relaxed),
        .retries = atomic_load_explicit(&http->retries, memory_order_relaxed),
        .on_wire = atomic_load_explicit(&http->shown_on_wire, memory_order_relaxed),
        .limit = atomic_load_explicit(&http->shown_limit, memory_order_relaxed),
    };
}
