/*
 * Uploads that nobody waits for: those of files that failed or were closed unfinished, and those
 * that an earlier run left. Every upload is in the journal (s3_journal.h) from before it exists
 * until it is completed or aborted, so that a crash leaves none behind for good.
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

/* Nobody waits for it. */
struct orphan {
    struct fb_list link; /* among those left by an earlier run */
    struct fb_s3 *s3;
    uint64_t ticket;
    struct fb_s3_call call;
    char key[FB_S3_KEY_MAX + 1];
    char id[FB_S3_UPLOAD_ID_MAX + 1];
};

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
    o = orphan_new(s3, upload->key, upload->id, ticket);
    if (!o)
        return false;
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

        fb_log_info("s3: aborting an upload to %s that was left unfinished", o->key);
        fb_list_remove(&o->link);
        send_abort(o);
    }
}
