/*
 * The loop: epoll, libcurl's sockets and timer among it, and the pauses before a call is tried
 * again (a heap by due time). A round of it:
 *
 *     wait ──► sockets, timer ──► calls that ended: summed together, then judged, done or put to a
 *     pause ──► pauses that are over ──► calls from the queue onto the wire, while there is room
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"
#include "source/s3_http_priv.h"
#include "source/s3_md5.h"
#include "source/s3_profile.h"

#define EVENTS_MAX     64
#define SUMS_MAX       64
#define PASSED_MAX     4      /* calls for each that is patient */
#define CALLS_MAX      65536u /* in a pause at once */
#define PAUSE_FIRST_NS (50 * FB_NS_PER_MS)
#define PAUSE_MAX_NS   (4 * FB_NS_PER_S)
#define ASKED_MAX_NS   (30 * FB_NS_PER_S)   /* for a pause that the server asks for */
#define MARGIN_NS      (150 * FB_NS_PER_MS) /* before the deadline: then it is for us to answer */

/* ---- the queue ------------------------------------------------------------------------------- */

static void finish(struct fb_s3_http *http, struct fb_s3_call *call, int result)
{
    call->result = result;
    fb_list_push_back(&http->finished, &call->link);
}

static struct fb_s3_call *next_call(struct fb_s3_http *http)
{
    bool room = http->on_wire < (uint32_t)http->pace.limit;
    bool some = !fb_list_empty(&http->queue), patient = !fb_list_empty(&http->patient);
    struct fb_list *from = NULL;
    struct fb_s3_call *call;

    if (!fb_list_empty(&http->urgent))
        from = &http->urgent;
    else if (room && some && (!patient || http->passed < PASSED_MAX))
        from = &http->queue;
    else if (room && patient)
        from = &http->patient;
    if (!from)
        return NULL;
    http->passed = patient && from == &http->queue ? http->passed + 1 : 0;
    call = FB_LIST_ENTRY(from->next, struct fb_s3_call, link);
    fb_list_remove(&call->link);
    return call;
}

static void pause_call(struct fb_s3_http *http, struct fb_s3_call *call, bool at_once);

static void launch_all(struct fb_s3_http *http)
{
    struct fb_s3_call *call;

    while ((call = next_call(http))) {
        int r = fb_s3_wire_launch(http, call);

        if (r == -EKEYEXPIRED)
            pause_call(http, call, false);
        else if (r < 0) /* Keys that were good, and are no more, are an outage. */
            finish(http, call, r == -EACCES && http->accepted ? -EHOSTDOWN : r);
    }
    atomic_store_explicit(&http->shown_on_wire, http->on_wire, memory_order_relaxed);
    atomic_store_explicit(&http->shown_limit, (uint32_t)http->pace.limit, memory_order_relaxed);
}

static void enqueue(struct fb_s3_http *http, struct fb_s3_call *call)
{
    struct fb_list *queue = call->urgent ? &http->urgent : &http->queue;

    fb_list_push_back(call->patient ? &http->patient : queue, &call->link);
}

/* ---- calls that ended ------------------------------------------------------------------------ */

static void adapt(struct fb_s3_http *http, const struct fb_s3_call *call,
                  enum fb_s3_verdict verdict)
{
    struct fb_s3_pace_answer answer = {
        .kind = call->sink ? FB_S3_PACE_BYTES : FB_S3_PACE_WORDS,
        .mark = call->sent,
        .first_ns = call->first_ns,
        .now_ns = fb_now_ns(),
        .bytes = call->bytes,
        .waiting = !fb_list_empty(&http->queue) || !fb_list_empty(&http->patient),
    };

    if (verdict == FB_S3_TOO_MUCH)
        fb_s3_pace_refused(&http->pace, call->sent.sent_ns, answer.now_ns);
    /* When a body has gone out first, the wait says little about the server. */
    if (verdict == FB_S3_DONE && call->first_ns > 0 && call->body_len == 0)
        fb_s3_pace_answered(&http->pace, &answer);
}

/* What a server asks for (Retry-After) is the least, and ours comes on top of it: not all who were
 * told so come back in the same moment. */
static int64_t pause_of(struct fb_s3_http *http, const struct fb_s3_call *call)
{
    int64_t own_ns = PAUSE_FIRST_NS << (call->tries < 7 ? call->tries : 7), asked_ns = 0;

    if (own_ns > PAUSE_MAX_NS)
        own_ns = PAUSE_MAX_NS;
    if (call->reply.has_retry_after)
        asked_ns = (int64_t)call->reply.retry_after_s * FB_NS_PER_S;
    if (asked_ns > ASKED_MAX_NS)
        asked_ns = ASKED_MAX_NS;
    return asked_ns + (int64_t)((0.5 + fb_rand_unit(&http->dice) / 2) * (double)own_ns);
}

static void pause_call(struct fb_s3_http *http, struct fb_s3_call *call, bool at_once)
{
    int64_t now_ns = fb_now_ns(), pause_ns = at_once ? 0 : pause_of(http, call);

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
        fb_s3_wire_put(w);
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

void fb_s3_http_where(struct fb_s3_http *http, char ret_base[FB_S3_WHY_MAX])
{
    fb_mutex_lock(&http->why_lock);
    snprintf(ret_base, FB_S3_WHY_MAX, "%s", http->base);
    fb_mutex_unlock(&http->why_lock);
}

static void note_ended(struct fb_s3_http *http, CURL *easy, CURLcode code)
{
    struct fb_s3_call *call;
    struct wire *w = NULL;

    curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&w);
    call = w->call;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &call->status);
    fb_s3_wire_stop(w);
    w->code = code;
    fb_list_push_back(&http->ended, &call->link);
}

/* Of objects that came in the same moment, side by side; one alone is left to the check. */
static void sum_ended(struct fb_s3_http *http)
{
    struct fb_s3_call *calls[SUMS_MAX];
    struct fb_s3_md5 messages[SUMS_MAX];
    struct fb_list *it, *tmp;
    unsigned count = 0;

    FB_LIST_FOREACH (it, tmp, &http->ended) {
        struct fb_s3_call *call = FB_LIST_ENTRY(it, struct fb_s3_call, link);

        if (count == SUMS_MAX)
            break;
        if (!call->is_whole || call->wire->code != CURLE_OK || call->status / 100 != 2 ||
            !fb_s3_verify_by_md5(&call->reply))
            continue;
        calls[count] = call;
        messages[count++] = (struct fb_s3_md5){
            .iov = call->sink, .count = call->sink_count, .digest = call->sum.md5};
    }
    if (count < 2 || !fb_s3_md5_able())
        return;
    fb_s3_md5_all(messages, count);
    for (unsigned i = 0; i < count; i++)
        calls[i]->sum.present = true;
}

static void judge_ended(struct fb_s3_http *http, struct fb_s3_call *call)
{
    struct wire *w = call->wire;
    enum fb_s3_verdict verdict;

    call->answer = fb_s3_xml_answer(w->xml);
    verdict = fb_s3_judge(http, call, w->code);
    adapt(http, call, verdict);
    if (verdict == FB_S3_DONE) {
        deliver(call);
        return;
    }
    fb_log_debug("s3: %s %s: %s; again", fb_s3_method_name(call->method), call->key, http->why);
    fb_s3_wire_put(fb_steal(call->wire));
    pause_call(http, call, verdict == FB_S3_AT_ONCE);
}

/* ---- the loop -------------------------------------------------------------------------------- */

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

static const struct fb_s3_answer nothing;

static void collect(struct fb_s3_http *http)
{
    struct fb_s3_call *call;
    CURLMsg *message;
    struct fb_due *due;
    int left;

    while ((message = curl_multi_info_read(http->multi, &left))) {
        if (message->msg == CURLMSG_DONE)
            note_ended(http, message->easy_handle, message->data.result);
    }
    sum_ended(http);
    while (!fb_list_empty(&http->ended)) {
        call = FB_LIST_ENTRY(http->ended.next, struct fb_s3_call, link);
        fb_list_remove(&call->link);
        judge_ended(http, call);
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

    if (http->woken_due_ns < until_ns)
        until_ns = http->woken_due_ns;
    if (!fb_list_empty(&http->finished))
        return 0;
    if (until_ns == FB_NEVER_NS)
        return -1;
    now_ns = fb_now_ns();
    return until_ns <= now_ns ? 0 : (int)((until_ns - now_ns + FB_NS_PER_MS - 1) / FB_NS_PER_MS);
}

static void serve_events(struct fb_s3_http *http, const struct epoll_event *events, int count)
{
    bool woken = http->woken_due_ns <= fb_now_ns();
    uint64_t ignored;
    int running;

    for (int i = 0; i < count; i++) {
        int flags = (events[i].events & EPOLLIN ? CURL_CSELECT_IN : 0) |
                    (events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                    (events[i].events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);

        if (events[i].data.fd == http->event) {
            woken |= read(http->event, &ignored, sizeof ignored) > 0;
        } else {
            curl_multi_socket_action(http->multi, events[i].data.fd, flags, &running);
        }
    }
    if (http->curl_due_ns <= fb_now_ns()) {
        http->curl_due_ns = FB_NEVER_NS;
        curl_multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    if (woken) {
        http->woken_due_ns = FB_NEVER_NS;
        http->config.woken(http->config.arg);
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

void fb_s3_http_wake_by(struct fb_s3_http *http, int64_t at_ns)
{
    if (at_ns < http->woken_due_ns)
        http->woken_due_ns = at_ns;
}

void fb_s3_http_submit(struct fb_s3_http *http, struct fb_s3_call *call)
{
    fb_list_init(&call->link);
    call->due.slot = 0;
    call->wire = NULL;
    call->tries = call->amends = 0;
    call->place[0] = '\0';
    call->lost = false;
    enqueue(http, call);
    if (http->on_wire == 0)
        fb_s3_http_wake(http);
}

void fb_s3_http_cancel(struct fb_s3_http *http, struct fb_s3_call *call)
{
    fb_due_remove(&http->pauses, &call->due);
    fb_list_remove(&call->link);
    if (!call->wire)
        return;
    call->lost = true;
    fb_s3_wire_put(fb_steal(call->wire));
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

static char *copy_first(const char *const *env, const char *const *names)
{
    for (; *names; names++) {
        const char *value = fb_s3_env(env, *names);

        if (value)
            return fb_strdup(value);
    }
    return fb_strdup("");
}

/* As libcurl would, but in the environment of who asked for this, which is not always ours. Of
 * HTTP_PROXY it takes no notice, since that may come from a request (CGI). */
static bool find_proxies(struct fb_s3_http *http)
{
    static const char *const open[] = {"http_proxy", "all_proxy", "ALL_PROXY", NULL};
    static const char *const secure[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY",
                                         NULL};
    static const char *const none[] = {"no_proxy", "NO_PROXY", NULL};

    http->proxy = copy_first(http->config.env, open);
    http->secure_proxy = copy_first(http->config.env, secure);
    http->no_proxy = copy_first(http->config.env, none);
    return http->proxy && http->secure_proxy && http->no_proxy;
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
    http->curl_due_ns = http->woken_due_ns = FB_NEVER_NS;
    fb_s3_pace_init(&http->pace, config->connections);
    http->dice.state = (uint64_t)fb_wall_ns();
    fb_mutex_init(&http->why_lock, FB_RANK_SOURCE);
    fb_list_init(&http->queue);
    fb_list_init(&http->urgent);
    fb_list_init(&http->patient);
    fb_list_init(&http->ended);
    fb_list_init(&http->finished);
    fb_list_init(&http->idle);
    http->endpoint = config->endpoint ? fb_strdup(config->endpoint) : NULL;
    http->bucket = fb_strdup(config->bucket);
    http->region = fb_strdup(config->region);
    http->ca_bundle = config->ca_bundle ? fb_strdup(config->ca_bundle) : NULL;
    r = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK && http->bucket && http->region &&
                find_proxies(http)
            ? fb_s3_address(http)
            : -ENOMEM;
    if (r == -EINVAL && config->endpoint && strchr(config->endpoint, '@'))
        fb_error_set(err, r,
                     "the endpoint has a name or password in it; write it as https://host:port");
    else if (r == -EINVAL)
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
        fb_s3_wire_free(FB_LIST_ENTRY(it, struct wire, link));
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
    free(http->root);
    free(http->proxy);
    free(http->secure_proxy);
    free(http->no_proxy);
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
