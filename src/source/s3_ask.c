#include "source/s3_ask.h"

#include <curl/curl.h>
#include <errno.h>

static size_t on_body(char *bytes, size_t size, size_t count, void *arg)
{
    struct fb_s3_text *body = arg;

    /* Taking less than was given ends the transfer. */
    if (size * count > FB_S3_ASK_BODY_MAX - body->len)
        return 0;
    fb_s3_text_add(body, bytes, size * count);
    return fb_s3_text_ok(body) ? size * count : 0;
}

static int on_progress(void *arg, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                       curl_off_t up)
{
    const struct fb_s3_ask *ask = arg;

    (void)down_total;
    (void)down;
    (void)up_total;
    (void)up;
    return ask->cancel && atomic_load_explicit(ask->cancel, memory_order_relaxed);
}

static int to_errno(CURLcode code)
{
    switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
        return -ETIMEDOUT;
    case CURLE_COULDNT_CONNECT:
        return -ECONNREFUSED;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return -EHOSTUNREACH;
    case CURLE_ABORTED_BY_CALLBACK:
        return -ECANCELED;
    case CURLE_WRITE_ERROR:
        return -EMSGSIZE;
    case CURLE_OUT_OF_MEMORY:
        return -ENOMEM;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return -EINVAL;
    default:
        return -EIO;
    }
}

static int add_headers(const struct fb_s3_ask *ask, struct curl_slist **ret_list)
{
    struct fb_s3_text line = {0};
    int r = 0;

    for (unsigned i = 0; r == 0 && i < ask->header_count; i++) {
        struct curl_slist *longer;

        fb_s3_text_clear(&line);
        fb_s3_text_adds(&line, ask->headers[i].name);
        fb_s3_text_adds(&line, ": ");
        fb_s3_text_adds(&line, ask->headers[i].value);
        longer = fb_s3_text_ok(&line) ? curl_slist_append(*ret_list, line.data) : NULL;
        if (longer)
            *ret_list = longer;
        else
            r = -ENOMEM;
    }
    fb_s3_text_free(&line);
    return r;
}

static int set_options(CURL *curl, const struct fb_s3_ask *ask, struct curl_slist *headers,
                       struct fb_s3_text *body)
{
    CURLcode code = CURLE_OK;

    code |= curl_easy_setopt(curl, CURLOPT_URL, ask->url);
    code |= curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    code |= curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    code |= curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, ask->timeout_ms);
    code |= curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, ask->timeout_ms);
    code |= curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    code |= curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    code |= curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
    code |= curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    code |= curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    code |= curl_easy_setopt(curl, CURLOPT_XFERINFODATA, ask);
    if (ask->body)
        code |= curl_easy_setopt(curl, CURLOPT_POSTFIELDS, ask->body);
    code |= curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, ask->method);
    if (!ask->proxies)
        code |= curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    if (ask->ca_bundle)
        code |= curl_easy_setopt(curl, CURLOPT_CAINFO, ask->ca_bundle);
    return code == CURLE_OK ? 0 : -ENOMEM;
}

int fb_s3_ask(const struct fb_s3_ask *ask, struct fb_s3_text *ret_body)
{
    struct curl_slist *headers = NULL;
    CURL *curl = curl_easy_init();
    long status = 0;
    int r = curl ? add_headers(ask, &headers) : -ENOMEM;

    fb_s3_text_clear(ret_body);
    if (r == 0)
        r = set_options(curl, ask, headers, ret_body);
    if (r == 0) {
        CURLcode code = curl_easy_perform(curl);

        if (code == CURLE_OK)
            code = curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
        r = code == CURLE_OK ? (int)status : to_errno(code);
    }
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    return r;
}
