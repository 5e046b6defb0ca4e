/*
 * One try of a call: signed, given to libcurl, and its answer taken in as it comes: bytes go to
 * where the call wants them, everything else is parsed. Handles are used again, and libcurl keeps
 * the connections beneath them.
 */
#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "source/s3_http_priv.h"

#define RECEIVE_BYTES (256L << 10)
#define URL_MAX       20480 /* the longest key and the longest token, encoded */

/* ---- what a try is made of ------------------------------------------------------------------- */

const char *fb_s3_method_name(enum fb_s3_method method)
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

static bool names_bucket(const struct fb_s3_http *http, const char *host)
{
    size_t n = strlen(http->bucket);

    return strncmp(host, http->bucket, n) == 0 && host[n] == '.';
}

static int sign(struct fb_s3_http *http, struct wire *w, char url[URL_MAX])
{
    struct fb_s3_call *call = w->call;
    struct fb_s3_pair query[FB_S3_QUERY_MAX + 1];
    const struct fb_s3_snapshot *who;
    struct fb_s3_identity identity;
    char hash[FB_S3_SHA256_TEXT] = FB_S3_EMPTY_PAYLOAD;
    const char *base = call->place[0] ? call->place : http->base;
    const char *host = call->place[0] ? strstr(base, "://") + 3 : http->host;
    bool in_path = call->place[0] ? !names_bucket(http, host) : http->in_path;
    FB_AUTO_FREE char *path = fb_asprintf("%s%s%s/%s", http->root, in_path ? "/" : "",
                                          in_path ? http->bucket : "", call->key);
    struct fb_s3_request request = {
        .method = fb_s3_method_name(call->method),
        .host = host,
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
    if (r == 0 && snprintf(url, URL_MAX, "%s%s%s%s", base, with.path, with.query[0] ? "?" : "",
                           with.query) >= URL_MAX)
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
    /* As signed: libcurl would leave out a port that goes without saying. */
    if (r == 0)
        r = add_header(w, "Host", host);
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

/* ---- onto the wire --------------------------------------------------------------------------- */

void fb_s3_wire_free(struct wire *w)
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
        fb_s3_wire_free(w);
        return NULL;
    }
    return w;
}

void fb_s3_wire_stop(struct wire *w)
{
    if (!w->active)
        return;
    curl_multi_remove_handle(w->http->multi, w->easy);
    w->http->on_wire--;
    w->active = false;
}

void fb_s3_wire_put(struct wire *w)
{
    fb_s3_wire_stop(w);
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
        curl_easy_setopt(w->easy, CURLOPT_CUSTOMREQUEST, fb_s3_method_name(call->method));
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
    /* A resolver that hangs is not waited for: the loop has other calls. */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, w);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, w);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, w);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, w->why);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, RECEIVE_BYTES);
    if (!w->call->works) {
        curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, stall_s);
    }
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, stall_s * 1000);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY,
                     strncmp(url, "https:", 6) == 0 ? http->secure_proxy : http->proxy);
    curl_easy_setopt(easy, CURLOPT_NOPROXY, http->no_proxy);
    if (http->ca_bundle)
        curl_easy_setopt(easy, CURLOPT_CAINFO, http->ca_bundle);
    if (w->call->deadline_ns != FB_NEVER_NS)
        curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS,
                         left_ns > FB_NS_PER_MS ? (long)(left_ns / FB_NS_PER_MS) : 1L);
    set_body_options(w);
}

int fb_s3_wire_launch(struct fb_s3_http *http, struct fb_s3_call *call)
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
    call->sum.present = false;
    memset(&call->reply, 0, sizeof call->reply);
    if (call->restart)
        call->restart(call);
    r = fb_s3_xml_begin(w->xml, call->entry && !http->no_encoding);
    if (r == 0)
        r = sign(http, w, url);
    if (r == 0) {
        set_options(w, url);
        call->sent = fb_s3_pace_sent(&http->pace, fb_now_ns());
        w->active = curl_multi_add_handle(http->multi, w->easy) == CURLM_OK;
        r = w->active ? 0 : -EIO;
    }
    http->on_wire += w->active;
    if (r < 0) {
        fb_s3_wire_put(w);
        return r;
    }
    call->wire = w;
    atomic_fetch_add_explicit(&http->requests, 1, memory_order_relaxed);
    return 0;
}
