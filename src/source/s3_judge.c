/*
 * What an answer means: whether it is one, is whole and says yes; else whether it is worth another
 * try, and what has to be put right before: the region, our clock, the keys.
 */
#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "source/s3_http_priv.h"

#define REFUSED_TRIES 4 /* within a second, more or less */
#define AMENDS_MAX    3
#define CLOCK_OFF_NS  (300 * FB_NS_PER_S) /* servers mind 15 minutes */
#define RENEWALS_MAX  4 /* how often one call waits for new keys: a second in all */

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

static enum fb_s3_verdict judge_refusal(struct fb_s3_http *http, struct fb_s3_call *call)
{
    bool may = call->amends < AMENDS_MAX;

    /* Who we are is as it was; that nobody says so in time tells nothing about the file. */
    call->result = keys_expired(call) && http->accepted ? -EHOSTDOWN : -EACCES;
    if (may && clock_off(call)) {
        http->skew_ns = call->reply.date_ns - fb_wall_ns();
        return FB_S3_AT_ONCE;
    }
    if (!may || call->wire->who->anonymous)
        return FB_S3_DONE;
    if ((keys_expired(call) || says(call, "InvalidAccessKeyId") ||
         says(call, "SignatureDoesNotMatch") || call->method == FB_S3_HEAD) &&
        fb_s3_creds_refused(http->config.creds, call->wire->who))
        return FB_S3_AT_ONCE;
    return keys_expired(call) && call->tries < RENEWALS_MAX ? FB_S3_AGAIN : FB_S3_DONE;
}

/* What the server got is not what was sent. */
static bool came_otherwise(const struct fb_s3_call *call)
{
    return says(call, "BadDigest") || says(call, "XAmzContentSHA256Mismatch") ||
           says(call, "IncompleteBody");
}

/* Some servers have names of their own before it. */
static bool quota_exceeded(const struct fb_s3_call *call)
{
    return strstr(call->answer->code, "QuotaExceeded") != NULL;
}

/* S3 says what it does not have; a door on the way to it that says so, without a word, has lost the
 * server. HEAD has no words; but most servers give every answer a number, and who has done so once
 * always does. */
static bool not_s3s_word(const struct fb_s3_http *http, const struct fb_s3_call *call)
{
    if (call->status != 404)
        return false;
    return call->method == FB_S3_HEAD ? http->numbered && !call->reply.request_id[0]
                                      : !call->answer->code[0];
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

static enum fb_s3_verdict judge_status(struct fb_s3_http *http, struct fb_s3_call *call)
{
    const char *region = call->reply.region[0] ? call->reply.region : call->answer->region;
    long status = call->status;

    if ((status / 100 == 3 || status == 400) && call->amends < AMENDS_MAX &&
        fb_s3_move_to(http, region)) {
        call->place[0] = '\0';
        return FB_S3_AT_ONCE;
    }
    if ((status == 301 || status == 302 || status == 307 || status == 308) &&
        call->amends < AMENDS_MAX && fb_s3_redirect(http, call))
        return FB_S3_AT_ONCE;
    if (status == 503 || status == 429 || says(call, "SlowDown"))
        return FB_S3_TOO_MUCH;
    if (status == 507 || quota_exceeded(call)) {
        call->result = status == 507 ? -ENOSPC : -EDQUOT;
        return FB_S3_DONE;
    }
    if ((status >= 500 && !says(call, "NotImplemented")) || status == 408 ||
        says(call, "RequestTimeout") || says(call, "OperationAborted") ||
        (says(call, "ConditionalRequestConflict") && call->method != FB_S3_POST) ||
        says(call, "InternalError") || came_otherwise(call) || not_s3s_word(http, call))
        return FB_S3_AGAIN;
    if (says(call, "InvalidObjectState")) {
        fb_log_warn("s3: %s is archived%s%s: restore it before it can be read", call->key,
                    call->answer->storage_class[0] ? ", storage class " : "",
                    call->answer->storage_class);
        call->result = -EIO;
        return FB_S3_DONE;
    }
    if (status == 403 || status == 401 || keys_expired(call))
        return judge_refusal(http, call);
    call->result = errno_of(call);
    return FB_S3_DONE;
}

/* More comes than was asked for; when it is of another version, that is known already. */
static bool is_another(struct fb_s3_call *call, CURLcode code)
{
    return code == CURLE_WRITE_ERROR && call->sink && call->check && call->status / 100 == 2 &&
           call->check(call) == -ESTALE;
}

/* A good answer: is it all there, and is it one? */
static enum fb_s3_verdict judge_good(struct fb_s3_http *http, struct fb_s3_call *call)
{
    struct wire *w = call->wire;
    int r = call->sink || (call->bytes == 0 && !call->entry) ? 0 : fb_s3_xml_end(w->xml);

    if (r == FB_S3_XML_NOT_ENCODED) {
        http->no_encoding = true;
        return FB_S3_AT_ONCE;
    }
    /* An answer may begin well and end with an error: it was sent before the work was done. */
    if (r == 0 && call->answer->document == FB_S3_DOC_ERROR)
        return judge_status(http, call);
    /* Nothing at all is no empty listing. */
    if (r == 0 && call->entry && call->answer->document != FB_S3_DOC_LIST &&
        call->answer->document != FB_S3_DOC_UPLOADS)
        r = -EBADMSG;
    if (r < 0 || w->unreadable || call->reply.malformed)
        return FB_S3_AGAIN;
    /* Who has stored an object tells its tag; of a copy the document does. */
    if (call->method == FB_S3_PUT && call->bytes == 0 && !call->reply.etag[0])
        return FB_S3_AGAIN;
    if (call->check)
        call->result = call->check(call);
    http->accepted |= !w->who->anonymous;
    http->numbered |= call->result == 0 && call->reply.request_id[0];
    return call->result == -EAGAIN ? FB_S3_AGAIN : FB_S3_DONE;
}

static enum fb_s3_verdict judge(struct fb_s3_http *http, struct fb_s3_call *call, CURLcode code)
{
    call->result = 0;
    if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
        code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) {
        call->result = -EIO;
        return FB_S3_DONE;
    }
    /* Who mounts is told soon that nobody is there; later on somebody may come back. */
    if (!http->answered && call->tries >= REFUSED_TRIES &&
        (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
         code == CURLE_COULDNT_RESOLVE_PROXY)) {
        call->result = -EHOSTDOWN;
        return FB_S3_DONE;
    }
    if (is_another(call, code)) {
        call->result = -ESTALE;
        return FB_S3_DONE;
    }
    if (code != CURLE_OK) {
        /* Who sent us there may know better by now. */
        call->place[0] = '\0';
        return FB_S3_AGAIN;
    }
    http->answered = true;
    return call->status / 100 == 2 ? judge_good(http, call) : judge_status(http, call);
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

/* Whether the try may have done its work all the same. Who is told that it is too much, or that
 * nobody is there, knows that it has not. */
static bool may_be_done(const struct fb_s3_call *call, CURLcode code, enum fb_s3_verdict verdict)
{
    if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST ||
        code == CURLE_COULDNT_RESOLVE_PROXY || verdict == FB_S3_TOO_MUCH)
        return false;
    return code != CURLE_OK || call->status >= 500 ||
           (call->status / 100 == 2 && verdict != FB_S3_DONE);
}

enum fb_s3_verdict fb_s3_judge(struct fb_s3_http *http, struct fb_s3_call *call, CURLcode code)
{
    enum fb_s3_verdict verdict = judge(http, call, code);

    call->lost |= may_be_done(call, code, verdict);
    if (code != CURLE_OK || call->status / 100 != 2)
        note_why(http, call->wire, code);
    return verdict;
}
