/*
 * The upload of a file that is longer than a part: begun when the first part is full, parts sent
 * several at a time, aborted when anything goes wrong. It is completed in s3_commit.c.
 *
 *     written down ─wait─► asked for ──► id written down ─wait─► parts
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "core/mem.h"
#include "source/s3_file.h"

#define SLOW_BYTES (1u << 20)    /* a second for so many */
#define WHOLE_MAX  (32ULL << 20) /* bytes of a file that are kept for the cache */
#define WHOLES_MAX (64ULL << 20) /* and of all together */

/* What is written goes off while nobody waits, so it has the source's deadline, and the time that a
 * slow line takes for all that is on its way. `more`: bytes that the server has to look at. */
static int64_t deadline(const struct fb_s3_file *file, uint64_t more)
{
    const struct fb_s3 *s3 = file->s3;

    return fb_now_ns() + s3->timeout_ns +
           (int64_t)((s3->upload_bytes + more) / SLOW_BYTES) * FB_NS_PER_S;
}

static void part_free(struct fb_s3_part *part)
{
    part->file->s3->upload_bytes -= part->room;
    part->file->parts_out--;
    fb_list_remove(&part->link);
    free(part->copy_source);
    free(part->data);
    free(part);
}

/* There is an answer, or there will be none; `clear`: and no other upload than the one it tells of.
 */
static void answered(struct fb_s3_file *file, bool clear)
{
    uint64_t ticket = file->asked;
    int64_t asked_s = file->asked_s;

    file->asked = 0;
    file->asked_s = 0;
    if (asked_s == 0)
        return;
    if (clear)
        fb_s3_strike_out(file->s3, ticket);
    else
        fb_s3_abort_unknown(file->s3, file->key, asked_s, ticket);
}

void fb_s3_file_fail(struct fb_s3_file *file, int error)
{
    struct fb_list *it, *tmp;

    if (file->error == 0)
        file->error = error;
    fb_s3_file_drop_whole(file);
    fb_list_remove(&file->record);
    FB_LIST_FOREACH (it, tmp, &file->parts) {
        struct fb_s3_part *part = FB_LIST_ENTRY(it, struct fb_s3_part, link);

        fb_s3_http_cancel(file->s3->http, &part->call);
        part_free(part);
    }
    if (file->call_out)
        fb_s3_http_cancel(file->s3->http, &file->call);
    file->call_out = false;
    if (file->upload == FB_S3_UPLOAD_BEGUN)
        fb_s3_abort_upload(file->s3, file->key, file->upload_id, file->ticket);
    if (file->upload != FB_S3_UPLOAD_NONE)
        file->upload = FB_S3_UPLOAD_OVER;
    answered(file, !file->call.lost);
}

void fb_s3_file_call(struct fb_s3_file *file, void (*done)(struct fb_s3_call *call))
{
    file->call.done = done;
    file->call.arg = file;
    /* To complete an upload is work for each part. */
    file->call.deadline_ns = deadline(file, (uint64_t)file->part_count * SLOW_BYTES);
    file->call_out = true;
    fb_s3_http_submit(file->s3->http, &file->call);
}

/* True: it goes on when the journal has what was written down last. */
static bool waits_for_journal(struct fb_s3_file *file)
{
    struct fb_s3 *s3 = file->s3;
    uint64_t ticket = file->upload == FB_S3_UPLOAD_BEGINNING ? file->asked : file->ticket;
    int64_t until_ns =
        s3->journal ? fb_s3_journal_until(s3->journal, ticket, s3->journal_wait_ns) : 0;

    if (until_ns == 0)
        return false;
    fb_list_push_back(&s3->unrecorded, &file->record);
    fb_s3_http_wake_by(s3->http, until_ns);
    return true;
}

static void initiated(struct fb_s3_call *call)
{
    struct fb_s3_file *file = call->arg;
    int r = call->result;

    file->call_out = false;
    if (r == 0 && !call->answer->upload_id[0])
        r = -EIO;
    if (r == 0) {
        snprintf(file->upload_id, sizeof file->upload_id, "%s", call->answer->upload_id);
        file->upload = FB_S3_UPLOAD_BEGUN;
        file->ticket = fb_s3_write_down(file->s3, file->key, file->upload_id, 0);
    }
    /* An answer that was lost on its way may have been a yes, and one without a name was. */
    answered(file, !call->lost && (r == 0 || call->result < 0));
    if (r < 0)
        fb_s3_file_fail(file, r);
    if (r < 0 || !waits_for_journal(file))
        fb_s3_file_pump(file);
}

void fb_s3_pump_unrecorded(struct fb_s3 *s3)
{
    struct fb_list files;

    fb_list_init(&files);
    fb_list_splice(&files, &s3->unrecorded);
    while (!fb_list_empty(&files)) {
        struct fb_s3_file *file = FB_LIST_ENTRY(files.next, struct fb_s3_file, record);

        fb_list_remove(&file->record);
        if (waits_for_journal(file))
            continue;
        if (file->upload == FB_S3_UPLOAD_BEGINNING)
            fb_s3_file_call(file, initiated);
        else
            fb_s3_file_pump(file);
    }
}

bool fb_s3_upload_is_beginning(const struct fb_s3_file *file)
{
    return file->upload == FB_S3_UPLOAD_BEGINNING || fb_list_linked(&file->record);
}

void fb_s3_upload_begin(struct fb_s3_file *file)
{
    file->asked_s = fb_wall_ns() / FB_NS_PER_S;
    file->asked = fb_s3_write_down(file->s3, file->key, NULL, file->asked_s);
    file->upload = FB_S3_UPLOAD_BEGINNING;
    file->call = (struct fb_s3_call){
        .method = FB_S3_POST, .key = file->key, .query = {{"uploads", ""}}, .query_count = 1};
    if (!waits_for_journal(file))
        fb_s3_file_call(file, initiated);
}

static void part_done(struct fb_s3_call *call)
{
    struct fb_s3_part *part = call->arg;
    struct fb_s3_file *file = part->file;
    const char *etag = part->copy_source ? call->answer->etag : call->reply.etag;
    int r = call->result == 0 && !*etag ? -EIO : call->result;

    if (r == 0)
        snprintf(file->etags[part->number - 1], sizeof *file->etags, "%s", etag);
    part_free(part);
    if (r < 0)
        fb_s3_file_fail(file, r);
    fb_s3_file_pump(file);
    fb_s3_pump_files(file->s3);
}

static struct fb_s3_part *part_new(struct fb_s3_file *file, uint64_t copied)
{
    struct fb_s3_part *part = fb_alloc(sizeof *part);

    if (part && file->part_count == file->parts_room) {
        unsigned room = file->parts_room ? file->parts_room * 2 : 16;
        void *etags = realloc(file->etags, room * sizeof *file->etags);

        if (!etags) {
            free(part);
            return NULL;
        }
        file->etags = etags;
        file->parts_room = room;
    }
    if (!part)
        return NULL;
    part->file = file;
    part->number = ++file->part_count;
    snprintf(part->number_text, sizeof part->number_text, "%u", part->number);
    part->call = (struct fb_s3_call){
        .method = FB_S3_PUT,
        .key = file->key,
        .query = {{"partNumber", part->number_text}, {"uploadId", file->upload_id}},
        .query_count = 2,
        .deadline_ns = deadline(file, copied),
        .done = part_done,
        .arg = part,
    };
    fb_list_push_back(&file->parts, &part->link);
    file->parts_out++;
    return part;
}

void fb_s3_file_drop_whole(struct fb_s3_file *file)
{
    file->s3->whole_bytes -= file->whole_len;
    file->whole_len = 0;
    free(fb_steal(file->whole));
}

/* The version that bytes can be cached under is known when all have been sent: until then those of
 * a file that is not too long are kept. */
static void keep_whole(struct fb_s3_file *file)
{
    size_t len = (size_t)(file->size - file->sent);
    char *whole;

    /* Something before is missing: the object as it was, or it was too much. */
    if (file->whole_len != file->sent)
        return;
    whole = file->size <= WHOLE_MAX && file->s3->whole_bytes + len <= WHOLES_MAX
                ? realloc(file->whole, (size_t)file->size)
                : NULL;
    if (!whole) {
        fb_s3_file_drop_whole(file);
        return;
    }
    memcpy(whole + file->whole_len, file->buffer, len);
    file->whole = whole;
    file->whole_len += len;
    file->s3->whole_bytes += len;
}

int fb_s3_upload_part(struct fb_s3_file *file)
{
    struct fb_s3_part *part = part_new(file, 0);

    if (!part)
        return -ENOMEM;
    keep_whole(file);
    part->data = fb_steal(file->buffer);
    part->room = file->room;
    part->call.body = part->data;
    part->call.body_len = (size_t)(file->size - file->sent);
    file->room = 0;
    file->sent = file->size;
    fb_s3_http_submit(file->s3->http, &part->call);
    return 0;
}

/* The object as it was becomes the first part of the new one. */
int fb_s3_upload_copy(struct fb_s3_file *file)
{
    struct fb_s3_part *part = part_new(file, file->attr.version.size);

    if (!part)
        return -ENOMEM;
    part->copy_source = fb_s3_copy_source(file->s3, file->key);
    if (!part->copy_source) {
        part_free(part);
        return -ENOMEM;
    }
    part->call.headers[0] = (struct fb_s3_pair){"x-amz-copy-source", part->copy_source};
    part->call.headers[1] = (struct fb_s3_pair){"x-amz-copy-source-if-match", file->etag};
    part->call.header_count = 2;
    part->call.works = true;
    file->copy_old = false;
    fb_s3_http_submit(file->s3->http, &part->call);
    return 0;
}
