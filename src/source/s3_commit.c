/*
 * COMMIT: the object appears. What fits into one part is put; of an upload the last part is sent
 * and then it is completed. A look at the new object ends it: the version is what the server says.
 *
 * When is a file complete? A descriptor may have been duplicated, so a close() is only meant when
 * it comes from the process that opened the file, and after something was written: a shell that
 * redirects closes its own copy at once. Otherwise it is the one after which nobody has the file
 * open any more, as far as can be seen from outside, and at the latest the last close, of which
 * nobody hears the outcome. A process that was killed has not finished its file: nothing appears,
 * unless another goes on writing it, or wants it to be safe.
 *
 * A file made with O_EXCL was not there at its open. That nobody has made it since is for the
 * server to see to (If-None-Match: *): the later of two is told EEXIST at its close. Not all
 * servers know the condition, and Ceph not where an upload is completed; so before that we look
 * once more, which leaves a gap of one round trip there. What we are told to be there may also be
 * our own, when the answer to a first try was lost.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/mem.h"
#include "source/s3_file.h"
#include "source/s3_verify.h"

#define ETAG_XML_BYTES 384 /* of one part in the list that completes an upload */

/* Of what has not appeared there is nothing to tell. */
static void tell_attr(const struct fb_s3_file *file, struct fb_source_job *job)
{
    if (file->dirty)
        memset(&job->attr, 0, sizeof job->attr);
    else
        fb_s3_file_live_attr(file, &job->attr);
}

/* What is still at hand need not be fetched when somebody reads it. */
static void give_bytes(struct fb_s3_file *file, struct fb_source_job *job)
{
    if (file->size == 0 || !file->etag[0] || file->replaced)
        return;
    if (file->sent > 0) {
        if (file->whole_len == file->size) {
            job->data = fb_steal(file->whole);
            job->data_len = file->whole_len;
        }
        return;
    }
    job->data = malloc((size_t)file->size);
    if (!job->data)
        return;
    memcpy(job->data, file->buffer, (size_t)file->size);
    job->data_len = (size_t)file->size;
}

static void begin_later(struct fb_s3_file *file);

static void commit_end(struct fb_s3_file *file, int result)
{
    struct fb_s3_commit_op *op = fb_steal(file->commit);

    tell_attr(file, op->base.job);
    if (result == 0 && !file->dirty)
        give_bytes(file, op->base.job);
    fb_s3_file_drop_whole(file);
    fb_s3_op_end(&op->base, result);
    begin_later(file);
    fb_s3_file_pump(file);
}

static void appeared(struct fb_s3_file *file)
{
    file->dirty = false;
    file->replaced = false;
    fb_s3_file_appeared(file->s3, file->key);
    fb_s3_filled(file->s3, file->key);
}

static void looked(struct fb_s3_look *look)
{
    struct fb_s3_commit_op *op = FB_CONTAINER_OF(look, struct fb_s3_commit_op, look);
    struct fb_s3_file *file = op->file;

    op->looking = false;
    if (op->unheard && (look->result < 0 || strcmp(look->etag, file->etag) != 0 ||
                        look->attr.version.size != file->size)) {
        fb_s3_file_fail(file, -EIO);
        commit_end(file, file->error);
        return;
    }
    if (op->unheard)
        appeared(file);
    /* The source has the bytes. Who cannot see them now sees them later. What is there may be
     * another's by now, as long as ours perhaps: our bytes are none of that version. */
    if (look->result == 0 && S_ISREG(look->attr.mode)) {
        file->replaced =
            strcmp(look->etag, file->etag) != 0 || look->attr.version.size != file->size;
        file->attr = look->attr;
        memcpy(file->etag, look->etag, sizeof file->etag);
    }
    commit_end(file, 0);
}

static void look_by(struct fb_s3_file *file, void (*done)(struct fb_s3_look *look))
{
    struct fb_s3_commit_op *op = file->commit;

    op->looking = true;
    op->look = (struct fb_s3_look){
        .path = file->key + strlen(file->s3->prefix),
        .is_file = true,
        .deadline_ns = op->base.job->deadline_ns,
        .done = done,
    };
    fb_s3_look(file->s3, &op->look);
}

static void look_at(struct fb_s3_file *file, const char *etag)
{
    snprintf(file->etag, sizeof file->etag, "%s", etag);
    look_by(file, looked);
}

static void committed(struct fb_s3_file *file, const char *etag)
{
    appeared(file);
    fb_s3_file_attr(file->s3, file->key, file->size, fb_wall_ns(), etag, &file->attr);
    look_at(file, etag);
}

static void ask_to_be_first(const struct fb_s3_file *file, struct fb_s3_call *call)
{
    if (file->exclusive && !file->existed && !file->s3->no_conditions)
        call->headers[call->header_count++] = (struct fb_s3_pair){"if-none-match", "*"};
}

/* Of a call that asked to be the first; true when that is dealt with. */
static bool was_second(struct fb_s3_file *file, const struct fb_s3_call *call, const char *etag)
{
    if (call->header_count == 0 || call->result == 0)
        return false;
    if (call->status == 501) {
        file->s3->no_conditions = true;
        fb_s3_commit_step(file);
        return true;
    }
    if (call->status != 412)
        return false;
    if (call->lost && etag[0]) {
        file->commit->unheard = true;
        look_at(file, etag);
        return true;
    }
    fb_s3_file_fail(file, -EEXIST);
    commit_end(file, file->error);
    return true;
}

static void put_done(struct fb_s3_call *call)
{
    struct fb_s3_file *file = call->arg;
    char etag[FB_S3_ETAG_MAX + 1] = "";

    file->call_out = false;
    if (call->lost)
        fb_s3_etag_of_bytes(call->body, call->body_len, etag);
    if (was_second(file, call, etag))
        return;
    if (call->result < 0) {
        /* The program is told, and the last close must not do it after all. */
        fb_s3_file_fail(file, call->result);
        commit_end(file, file->error);
        return;
    }
    committed(file, call->reply.etag);
}

static void complete_done(struct fb_s3_call *call)
{
    struct fb_s3_file *file = call->arg;
    char etag[FB_S3_ETAG_MAX + 1];
    int r = call->result;

    file->call_out = false;
    free(fb_steal(file->body));
    if (r == 0 && call->answer->document != FB_S3_DOC_COMPLETE)
        r = -EIO;
    fb_s3_etag_of_parts(file->etags, file->part_count, etag);
    if (was_second(file, call, etag))
        return;
    if (r < 0 && (r != -ENOENT || !call->lost || !etag[0])) {
        fb_s3_file_fail(file, r == -ENOENT ? -EIO : r);
        commit_end(file, file->error);
        return;
    }
    file->upload = FB_S3_UPLOAD_OVER;
    fb_s3_strike_out(file->s3, file->ticket);
    /* A first try may have come through and its answer not: then there is no such upload, but the
     * object. */
    file->commit->unheard = r < 0;
    if (r < 0)
        look_at(file, etag);
    else /* Ceph does not tell. */
        committed(file, call->answer->etag[0] ? call->answer->etag : etag);
}

static int complete(struct fb_s3_file *file)
{
    size_t room = 128 + (size_t)file->part_count * ETAG_XML_BYTES;
    size_t at;

    file->body = malloc(room);
    if (!file->body)
        return -ENOMEM;
    at = (size_t)snprintf(file->body, room, "<CompleteMultipartUpload>");
    for (unsigned i = 0; i < file->part_count; i++)
        at +=
            (size_t)snprintf(file->body + at, room - at,
                             "<Part><PartNumber>%u</PartNumber><ETag>&quot;%s&quot;</ETag></Part>",
                             i + 1, file->etags[i]);
    at += (size_t)snprintf(file->body + at, room - at, "</CompleteMultipartUpload>");
    file->call = (struct fb_s3_call){
        .method = FB_S3_POST,
        .key = file->key,
        .query = {{"uploadId", file->upload_id}},
        .query_count = 1,
        .body = file->body,
        .body_len = at,
        .works = true,
    };
    ask_to_be_first(file, &file->call);
    fb_s3_file_call(file, complete_done);
    return 0;
}

static void looked_before(struct fb_s3_look *look)
{
    struct fb_s3_commit_op *op = FB_CONTAINER_OF(look, struct fb_s3_commit_op, look);
    struct fb_s3_file *file = op->file;

    op->looking = false;
    op->absent = look->result == -ENOENT;
    if (op->absent) {
        fb_s3_commit_step(file);
        return;
    }
    fb_s3_file_fail(file, look->result == 0 ? -EEXIST : look->result);
    commit_end(file, file->error);
}

static bool must_look_first(const struct fb_s3_file *file)
{
    return file->exclusive && !file->existed && !file->commit->absent;
}

/* The next step of a commit under way. */
void fb_s3_commit_step(struct fb_s3_file *file)
{
    int r = file->error;

    if (file->call_out || fb_s3_upload_is_beginning(file) || file->commit->looking ||
        fb_s3_file_is_awaited(file) || fb_s3_is_held(file->s3, file->key))
        return;
    if (file->unlinked) {
        /* While it waited: nothing appears. */
        commit_end(file, r);
        return;
    }
    if (r == 0 && file->sent == 0 && file->upload == FB_S3_UPLOAD_NONE) {
        file->call = (struct fb_s3_call){
            .method = FB_S3_PUT, .key = file->key, .body = file->buffer, .body_len = file->size};
        ask_to_be_first(file, &file->call);
        fb_s3_file_call(file, put_done);
        return;
    }
    if (r == 0 && file->upload == FB_S3_UPLOAD_NONE) {
        fb_s3_upload_begin(file);
        return;
    }
    if (r == 0 && file->copy_old)
        r = fb_s3_upload_copy(file);
    if (r == 0 && file->size > file->sent)
        r = fb_s3_upload_part(file);
    if (r == 0 && file->parts_out > 0)
        return;
    if (r == 0 && must_look_first(file)) {
        look_by(file, looked_before);
        return;
    }
    if (r == 0)
        r = complete(file);
    if (r < 0) {
        fb_s3_file_fail(file, r);
        commit_end(file, file->error);
    }
}

static void commit_cancel(struct fb_s3_op *base)
{
    struct fb_s3_commit_op *op = FB_CONTAINER_OF(base, struct fb_s3_commit_op, base);
    struct fb_s3_file *file = op->file;

    if (file->commit != op) {
        fb_list_remove(&op->link);
        fb_s3_op_end(base, -ETIMEDOUT);
        return;
    }
    if (op->looking)
        fb_s3_look_cancel(&op->look);
    fb_s3_file_fail(file, -EIO);
    file->commit = NULL;
    fb_s3_op_end(base, -ETIMEDOUT);
    begin_later(file);
    fb_s3_file_pump(file);
}

static void begin(struct fb_s3_file *file, struct fb_s3_commit_op *op)
{
    file->commit = op;
    file->commits++;
    fb_s3_commit_step(file);
}

/* Those that came while another was under way: two threads' fsync and close. Most have nothing left
 * to do. */
static void begin_later(struct fb_s3_file *file)
{
    while (!file->commit && !fb_list_empty(&file->later)) {
        struct fb_s3_commit_op *op = FB_LIST_ENTRY(file->later.next, struct fb_s3_commit_op, link);

        fb_list_remove(&op->link);
        if (file->error == 0 && file->dirty && !file->unlinked) {
            begin(file, op);
            continue;
        }
        tell_attr(file, op->base.job);
        fb_s3_op_end(&op->base, file->error);
    }
}

/* Whether this is the close, or fsync, at which the object is to appear. */
static bool is_meant(struct fb_s3_file *file, const struct fb_source_job *job)
{
    uint32_t tid = job->caller.pid;
    bool own, alone = job->flags & FB_COMMIT_ALONE;

    if (job->flags & FB_COMMIT_SYNC)
        file->killed = false;
    if (job->flags & (FB_COMMIT_SYNC | FB_COMMIT_LAST))
        return !file->killed;
    own = fb_task_process(tid) == file->process;
    if ((own || alone) && fb_task_is_killed(tid))
        file->killed = true;
    return !file->killed && (alone || (own && file->size > 0));
}

void fb_s3_commit(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct fb_s3_file *file;
    struct fb_s3_commit_op *op;

    /* A directory: what its names lead to is with the server, or has not appeared. */
    if (!job->handle) {
        fb_source_job_finish(job, 0);
        return;
    }
    file = fb_s3_file_at(job->handle);
    if (file->error < 0 || !file->dirty || file->unlinked || file->overtaken ||
        !is_meant(file, job)) {
        tell_attr(file, job);
        fb_source_job_finish(job, file->error);
        return;
    }
    op = fb_s3_op_new(s3, job, sizeof *op, commit_cancel);
    if (!op)
        return;
    op->file = file;
    fb_list_init(&op->link);
    if (file->commit)
        fb_list_push_back(&file->later, &op->link);
    else
        begin(file, op);
}
