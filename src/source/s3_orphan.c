/*
 * Uploads that nobody waits for: those of files that failed or were closed unfinished, and those
 * that an earlier run left. Every upload is in the journal (s3_journal.h) from before it exists
 * until it is completed or aborted, so that a crash leaves none behind for good, unless the
 * journal's disk hung then.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "source/s3_file.h"

#define ABORT_WAIT_NS (120 * FB_NS_PER_S)
#define CLOSE_WAIT_NS (1 * FB_NS_PER_S)
/* When an upload that was asked for may have been begun, by the server's clock: while it was asked
 * for, or what that may have been when a crash has ended it; and clocks have seconds. */
#define SLACK_S      5
#define AFTER_S      600
#define UPLOADS_PAGE "1000"

/* Nobody waits for it. */
struct orphan {
    struct fb_list link; /* among those left by an earlier run, or found */
    struct fb_s3 *s3;
    uint64_t ticket;
    int64_t asked_s, until_s; /* without an id */
    struct fb_list found;
    struct fb_s3_call call;
    char key[FB_S3_KEY_MAX + 1];
    char id[FB_S3_UPLOAD_ID_MAX + 1];
};

uint64_t fb_s3_write_down(struct fb_s3 *s3, const char *key, const char *id, int64_t asked_s)
{
    struct fb_s3_upload upload = {.endpoint = fb_s3_http_base(s3->http),
                                  .bucket = s3->bucket,
                                  .key = key,
                                  .id = id,
                                  .asked_s = asked_s};
    uint64_t ticket = 0;
    int r = s3->journal ? fb_s3_journal_begin(s3->journal, &upload, &ticket) : 0;

    if (r < 0 && !s3->unwritten)
        fb_log_warn("cannot write down uploads to the bucket %s: %s; one that is cut off by a "
                    "crash will stay there",
                    s3->bucket, fb_strerror(r));
    s3->unwritten = r < 0;
    return r < 0 ? 0 : ticket;
}

void fb_s3_strike_out(struct fb_s3 *s3, uint64_t ticket)
{
    if (s3->journal)
        fb_s3_journal_end(s3->journal, ticket);
}

static void orphan_done(struct fb_s3_call *call)
{
    struct orphan *o = call->arg;
    struct fb_s3 *s3 = o->s3;

    if (call->result == 0 || call->result == -ENOENT)
        fb_s3_strike_out(s3, o->ticket);
    free(o);
    fb_s3_orphan_done(s3);
}

static struct orphan *orphan_new(struct fb_s3 *s3, const char *key, const char *id, uint64_t ticket)
{
    struct orphan *o = fb_alloc(sizeof *o);

    if (!o)
        return NULL;
    fb_list_init(&o->link);
    fb_list_init(&o->found);
    o->s3 = s3;
    o->ticket = ticket;
    snprintf(o->key, sizeof o->key, "%s", key);
    snprintf(o->id, sizeof o->id, "%s", id);
    return o;
}

static void send_abort(struct orphan *o)
{
    struct fb_s3 *s3 = o->s3;

    o->call = (struct fb_s3_call){
        .method = FB_S3_DELETE,
        .key = o->key,
        .query = {{"uploadId", o->id}},
        .query_count = 1,
        .deadline_ns = fb_now_ns() + (s3->ending ? CLOSE_WAIT_NS : ABORT_WAIT_NS),
        .done = orphan_done,
        .arg = o,
    };
    s3->orphans++;
    fb_s3_http_submit(s3->http, &o->call);
}

/* ---- those whose id nobody knows ---- */

/* What is known to somebody here is none. */
static bool is_in_use(const struct fb_s3 *s3, const char *id)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &s3->files) {
        const struct fb_s3_file *file = FB_LIST_ENTRY(it, struct fb_s3_file, link);

        if (file->upload == FB_S3_UPLOAD_BEGUN && strcmp(file->upload_id, id) == 0)
            return true;
    }
    /* Another mount's. */
    return s3->journal && fb_s3_journal_knows(s3->journal, id);
}

/* Somebody asks for one of that key in this moment: who could tell whose it is. */
static bool is_asked_for(const struct fb_s3 *s3, const char *key)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &s3->files) {
        const struct fb_s3_file *file = FB_LIST_ENTRY(it, struct fb_s3_file, link);

        if (file->upload == FB_S3_UPLOAD_BEGINNING && strcmp(file->key, key) == 0)
            return true;
    }
    return false;
}

/* Encoded or not: the server was asked for nothing but what begins with the key. */
static bool is_key(const char *key, const struct fb_s3_xml_entry *entry)
{
    size_t len = strlen(key);
    char text[FB_S3_XML_TEXT_MAX + 1];
    ssize_t n;

    if (entry->key_len == len && memcmp(entry->key, key, len) == 0)
        return true;
    if (entry->key_len > FB_S3_XML_TEXT_MAX)
        return false;
    memcpy(text, entry->key, entry->key_len);
    n = fb_s3_decode(text, entry->key_len);
    return n == (ssize_t)len && memcmp(text, key, len) == 0;
}

static int found(struct fb_s3_call *call, const struct fb_s3_xml_entry *entry)
{
    struct orphan *o = call->arg, *one;
    /* Both times are the server's, as far as one can tell. */
    int64_t ahead_s = call->reply.date_ns ? (call->reply.date_ns - fb_wall_ns()) / FB_NS_PER_S : 0;
    int64_t begun_s = entry->mtime_ns / FB_NS_PER_S - ahead_s;

    if (!entry->upload_id || !is_key(o->key, entry) || begun_s < o->asked_s - SLACK_S ||
        begun_s > o->until_s + SLACK_S || is_in_use(o->s3, entry->upload_id))
        return 0;
    one = orphan_new(o->s3, o->key, entry->upload_id, 0);
    if (!one)
        return -ENOMEM;
    fb_list_push_back(&o->found, &one->link);
    return 0;
}

static void forget_found(struct fb_s3_call *call)
{
    struct orphan *o = call->arg;
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &o->found) {
        fb_list_remove(it);
        free(FB_LIST_ENTRY(it, struct orphan, link));
    }
}

static void searched(struct fb_s3_call *call)
{
    struct orphan *o = call->arg;
    struct fb_s3 *s3 = o->s3;
    struct fb_list *it, *tmp;

    /* What cannot be told now is, at the next start. */
    if (call->result == 0 && !is_asked_for(s3, o->key)) {
        FB_LIST_FOREACH (it, tmp, &o->found) {
            struct orphan *one = FB_LIST_ENTRY(it, struct orphan, link);

            fb_list_remove(it);
            /* Its answer may have come meanwhile. */
            if (is_in_use(s3, one->id)) {
                free(one);
                continue;
            }
            one->ticket = fb_s3_write_down(s3, one->key, one->id, 0);
            fb_log_info("s3: aborting an upload to %s that nobody knew of", one->key);
            send_abort(one);
        }
        fb_s3_strike_out(s3, o->ticket);
    }
    forget_found(call);
    free(o);
    fb_s3_orphan_done(s3);
}

static void search(struct orphan *o)
{
    struct fb_s3 *s3 = o->s3;

    o->call = (struct fb_s3_call){
        .method = FB_S3_GET,
        .key = "",
        .query = {{"uploads", ""}, {"prefix", o->key}, {"max-uploads", UPLOADS_PAGE}},
        .query_count = 3,
        .entry = found,
        .restart = forget_found,
        .deadline_ns = fb_now_ns() + (s3->ending ? CLOSE_WAIT_NS : ABORT_WAIT_NS),
        .done = searched,
        .arg = o,
    };
    s3->orphans++;
    fb_s3_http_submit(s3->http, &o->call);
}

void fb_s3_abort_unknown(struct fb_s3 *s3, const char *key, int64_t asked_s, uint64_t ticket)
{
    struct orphan *o = orphan_new(s3, key, "", ticket);

    if (!o)
        return;
    o->asked_s = asked_s;
    o->until_s = fb_wall_ns() / FB_NS_PER_S;
    search(o);
}

/* ---- */

void fb_s3_abort_upload(struct fb_s3 *s3, const char *key, const char *id, uint64_t ticket)
{
    struct orphan *o = orphan_new(s3, key, id, ticket);

    /* Without memory it is the next start that finds it in the journal. */
    if (o)
        send_abort(o);
}

static bool take_left(void *arg, uint64_t ticket, const struct fb_s3_upload *upload)
{
    struct fb_s3 *s3 = arg;
    struct orphan *o;

    if (strcmp(upload->bucket, s3->bucket) != 0 ||
        strcmp(upload->endpoint, fb_s3_http_base(s3->http)) != 0)
        return false;
    o = orphan_new(s3, upload->key, upload->id ? upload->id : "", ticket);
    if (!o)
        return false;
    o->asked_s = upload->asked_s;
    o->until_s = upload->asked_s + AFTER_S;
    fb_list_push_back(&s3->left, &o->link);
    return true;
}

int fb_s3_find_left(struct fb_s3 *s3)
{
    return s3->journal ? fb_s3_journal_left(s3->journal, take_left, s3) : 0;
}

void fb_s3_abort_left(struct fb_s3 *s3)
{
    while (!fb_list_empty(&s3->left)) {
        struct orphan *o = FB_LIST_ENTRY(s3->left.next, struct orphan, link);

        fb_list_remove(&o->link);
        if (!o->id[0]) {
            search(o);
            continue;
        }
        fb_log_info("s3: aborting an upload to %s that was left unfinished", o->key);
        send_abort(o);
    }
}
