/*
 * Files being written. What a program writes is gathered in a buffer of one part; a full one goes
 * off as a part of a multipart upload while the next is filled. The object appears as a whole when
 * the upload is completed, at COMMIT; what fits into one part is simply put.
 *
 *     OPEN ─► WRITE ... ─► buffer ─full─► initiate (once) ─► parts, several at a time
 *                             │                                   │
 *          COMMIT: ───────────┴─ none sent: PUT      else: last part, complete
 *          CLOSE without COMMIT, or an error: abort; what stood there before stays
 *
 * The buffer holds the bytes [sent, size). Within it a program may write where and as often as it
 * likes; what was sent cannot be changed any more, and such a write is refused (ENOTSUP). An object
 * that is there and opened without O_TRUNC is loaded when it fits into a part; of a longer one the
 * server copies the old bytes into the new object, so that it can be appended to.
 *
 * When is a file complete? A descriptor may have been duplicated, so a close() is only meant when
 * it comes from the process that opened the file, and after something was written: a shell that
 * redirects closes its own copy at once. Otherwise it is the last close that counts, of which
 * nobody hears the outcome. A process that was killed has not finished its file: nothing appears.
 *
 * Every upload is in the journal from the moment it exists until it is completed or aborted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/mem.h"
#include "source/s3_parts.h"
#include "source/s3_priv.h"

#define BUFFER_FIRST (64u << 10)
/* Beyond it a file that has parts on their way waits for them. */
#define BUFFERED_MAX   (64ULL << 20)
#define PARTS_OUT_MAX  4u
#define PART_CAP       (64ULL << 20)
#define COPY_MAX       (5ULL << 30) /* bytes that the server copies in one request */
#define PART_WAIT_NS   (120 * FB_NS_PER_S)
#define CLOSE_WAIT_NS  (1 * FB_NS_PER_S)
#define ETAG_XML_BYTES 384 /* of one part in the list that completes an upload */

enum upload {
    NONE,
    INITIATING,
    BEGUN,
    COMPLETED, /* what comes after cannot be added to it */
};

struct file {
    struct fb_source_handle base;
    struct fb_list link;
    struct fb_s3 *s3;
    char key[FB_S3_KEY_MAX + 1];
    uint32_t process; /* who opened it */
    bool existed;     /* there is an object of that key */
    bool dirty;       /* what was written is not in it */
    bool unlinked;
    bool killed;         /* its writer was */
    bool copy_old;       /* the first part is the object as it was */
    int error;           /* what went wrong once is so for good */
    struct fb_attr attr; /* of the object; of a new file what it will be */
    char etag[FB_S3_ETAG_MAX + 1];
    uint64_t size, sent;
    char *buffer;
    size_t room;

    enum upload upload;
    char upload_id[FB_S3_UPLOAD_ID_MAX + 1];
    uint64_t ticket;        /* its place in the journal */
    struct fb_s3_call call; /* initiate, put, complete: one at a time */
    bool call_out;
    char *body;                        /* of complete */
    char (*etags)[FB_S3_ETAG_MAX + 1]; /* of parts 1 to part_count */
    unsigned part_count, parts_room;
    struct fb_list parts; /* on their way */
    unsigned parts_out;
    struct fb_list writes; /* that wait for room */
    struct commit_op *commit;
};

struct part {
    struct fb_list link;
    struct file *file;
    struct fb_s3_call call;
    unsigned number;
    char number_text[8];
    char *data;
    size_t room;
    char *copy_source;
};

struct write_op {
    struct fb_s3_op base;
    struct fb_list link; /* among those that wait */
    uint64_t offset, done;
};

struct commit_op {
    struct fb_s3_op base;
    struct file *file;
    struct fb_s3_look look;
    bool looking;
};

static void pump(struct file *file);

static struct file *file_at(const struct fb_source_handle *handle)
{
    return FB_CONTAINER_OF(handle, struct file, base);
}

struct fb_source_handle *fb_s3_file_of(struct fb_list *link)
{
    return &FB_LIST_ENTRY(link, struct file, link)->base;
}

bool fb_s3_is_file(const struct fb_s3 *s3, const struct fb_source_handle *handle)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &s3->files) {
        if (fb_s3_file_of(it) == handle)
            return true;
    }
    return false;
}

static struct file *find(const struct fb_s3 *s3, const char *key)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &s3->files) {
        struct file *file = FB_LIST_ENTRY(it, struct file, link);

        if (!file->unlinked && strcmp(file->key, key) == 0)
            return file;
    }
    return NULL;
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* Not a version that anything may be kept under: it changes with every write. */
static void live_attr(const struct file *file, struct fb_attr *ret_attr)
{
    *ret_attr = file->attr;
    if (!file->dirty)
        return;
    ret_attr->version =
        (struct fb_version){.size = file->size, .mtime_ns = fb_wall_ns(), .ctime_ns = fb_wall_ns()};
    ret_attr->blocks = (file->size + 511) / 512;
}

int fb_s3_handle_attr(const struct fb_s3 *s3, const struct fb_source_handle *handle,
                      struct fb_attr *ret_attr)
{
    if (!fb_s3_is_file(s3, handle))
        return -EINVAL;
    live_attr(file_at(handle), ret_attr);
    return 0;
}

int fb_s3_pending_attr(const struct fb_s3 *s3, const char *path, struct fb_attr *ret_attr)
{
    char key[FB_S3_KEY_MAX + 1];
    const struct file *file;

    if (fb_s3_key_make(s3->prefix, path, false, key) < 0)
        return -ENOENT;
    file = find(s3, key);
    if (!file || file->existed)
        return -ENOENT;
    live_attr(file, ret_attr);
    return 0;
}

/* ---- uploads --------------------------------------------------------------------------------- */

/* Nobody waits for it. */
struct orphan {
    struct fb_list link; /* among those left by an earlier run */
    struct fb_s3 *s3;
    uint64_t ticket;
    struct fb_s3_call call;
    char key[FB_S3_KEY_MAX + 1];
    char id[FB_S3_UPLOAD_ID_MAX + 1];
};

static void strike_out(struct fb_s3 *s3, uint64_t ticket)
{
    if (s3->journal)
        fb_s3_journal_end(s3->journal, ticket);
}

static void orphan_done(struct fb_s3_call *call)
{
    struct orphan *o = call->arg;
    struct fb_s3 *s3 = o->s3;

    if (call->result == 0 || call->result == -ENOENT)
        strike_out(s3, o->ticket);
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
        .deadline_ns = fb_now_ns() + (s3->ending ? CLOSE_WAIT_NS : PART_WAIT_NS),
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

static void part_free(struct part *part)
{
    part->file->s3->upload_bytes -= part->room;
    part->file->parts_out--;
    fb_list_remove(&part->link);
    free(part->copy_source);
    free(part->data);
    free(part);
}

static void fail(struct file *file, int error)
{
    struct fb_list *it, *tmp;

    if (file->error == 0)
        file->error = error;
    FB_LIST_FOREACH (it, tmp, &file->parts) {
        struct part *part = FB_LIST_ENTRY(it, struct part, link);

        fb_s3_http_cancel(file->s3->http, &part->call);
        part_free(part);
    }
    if (file->call_out)
        fb_s3_http_cancel(file->s3->http, &file->call);
    file->call_out = false;
    if (file->upload == BEGUN)
        fb_s3_abort_upload(file->s3, file->key, file->upload_id, file->ticket);
    if (file->upload != NONE)
        file->upload = COMPLETED;
}

static void send_call(struct file *file, void (*done)(struct fb_s3_call *call))
{
    file->call.done = done;
    file->call.arg = file;
    file->call.deadline_ns = fb_now_ns() + PART_WAIT_NS;
    file->call_out = true;
    fb_s3_http_submit(file->s3->http, &file->call);
}

static int write_down(struct file *file)
{
    struct fb_s3 *s3 = file->s3;
    struct fb_s3_upload upload = {.endpoint = fb_s3_http_base(s3->http),
                                  .bucket = s3->bucket,
                                  .key = file->key,
                                  .id = file->upload_id};

    return s3->journal ? fb_s3_journal_begin(s3->journal, &upload, &file->ticket) : 0;
}

static void initiated(struct fb_s3_call *call)
{
    struct file *file = call->arg;
    int r = call->result;

    file->call_out = false;
    if (r == 0 && !call->answer->upload_id[0])
        r = -EIO;
    if (r == 0) {
        snprintf(file->upload_id, sizeof file->upload_id, "%s", call->answer->upload_id);
        file->upload = BEGUN;
        r = write_down(file);
    }
    if (r < 0)
        fail(file, r);
    pump(file);
}

static void initiate(struct file *file)
{
    file->upload = INITIATING;
    file->call = (struct fb_s3_call){
        .method = FB_S3_POST, .key = file->key, .query = {{"uploads", ""}}, .query_count = 1};
    send_call(file, initiated);
}

static void part_done(struct fb_s3_call *call)
{
    struct part *part = call->arg;
    struct file *file = part->file;
    const char *etag = part->copy_source ? call->answer->etag : call->reply.etag;
    int r = call->result == 0 && !*etag ? -EIO : call->result;

    if (r == 0)
        snprintf(file->etags[part->number - 1], sizeof *file->etags, "%s", etag);
    part_free(part);
    if (r < 0)
        fail(file, r);
    pump(file);
    fb_s3_pump_files(file->s3);
}

static struct part *part_new(struct file *file)
{
    struct part *part = fb_alloc(sizeof *part);

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
        .deadline_ns = fb_now_ns() + PART_WAIT_NS,
        .done = part_done,
        .arg = part,
    };
    fb_list_push_back(&file->parts, &part->link);
    file->parts_out++;
    return part;
}

static int send_part(struct file *file)
{
    struct part *part = part_new(file);

    if (!part)
        return -ENOMEM;
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
static int send_copy(struct file *file)
{
    struct part *part = part_new(file);

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
    file->copy_old = false;
    fb_s3_http_submit(file->s3->http, &part->call);
    return 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

static uint64_t part_bytes(const struct file *file)
{
    return fb_s3_part_size(file->part_count + (file->copy_old ? 2 : 1), file->s3->part_bytes,
                           PART_CAP);
}

static int make_room(struct file *file, size_t need)
{
    size_t room = file->room ? file->room : BUFFER_FIRST, most = (size_t)part_bytes(file);
    char *buffer;

    if (need <= file->room)
        return 0;
    while (room < need)
        room *= 2;
    if (room > most)
        room = most;
    buffer = realloc(file->buffer, room);
    if (!buffer)
        return -ENOMEM;
    file->s3->upload_bytes += room - file->room;
    file->buffer = buffer;
    file->room = room;
    return 0;
}

/* A full buffer is sent, or begins to be. 0: there is room; 1: not yet; negative errno. */
static int flush_full(struct file *file)
{
    int r;

    if (file->size - file->sent < part_bytes(file))
        return 0;
    if (file->part_count >= FB_S3_PARTS_MAX)
        return -EFBIG;
    if (file->upload == NONE)
        initiate(file);
    if (file->upload == INITIATING)
        return 1;
    if (file->copy_old) {
        r = send_copy(file);
        if (r < 0)
            return r;
    }
    if (file->parts_out >= PARTS_OUT_MAX ||
        (file->parts_out > 0 && file->s3->upload_bytes > BUFFERED_MAX))
        return 1;
    r = send_part(file);
    return r < 0 ? r : 0;
}

/* As much of [offset, offset + length) as there is room for; NULL: zeros. The bytes taken, 0 when
 * it must wait, or negative errno. */
static int64_t put(struct file *file, uint64_t offset, const char *data, uint64_t length)
{
    uint64_t most;
    int r;

    if (file->error < 0)
        return file->error;
    if (offset < file->sent)
        return -ENOTSUP;
    r = flush_full(file);
    if (r != 0)
        return r < 0 ? r : 0;
    if (offset < file->sent)
        return -ENOTSUP;
    most = file->sent + part_bytes(file) - offset;
    if (length > most)
        length = most;
    r = make_room(file, (size_t)(offset + length - file->sent));
    if (r < 0)
        return r;
    if (data)
        memcpy(file->buffer + (offset - file->sent), data, (size_t)length);
    else
        memset(file->buffer + (offset - file->sent), 0, (size_t)length);
    if (offset + length > file->size)
        file->size = offset + length;
    file->dirty = true;
    return (int64_t)length;
}

/* A hole before `offset` is filled with zeros. True: the way is free; false: wait, or *ret_error.
 * */
static bool fill_hole(struct file *file, uint64_t offset, int *ret_error)
{
    while (file->size < offset) {
        int64_t n = put(file, file->size, NULL, offset - file->size);

        if (n <= 0) {
            *ret_error = (int)n;
            return false;
        }
    }
    return true;
}

static uint64_t iov_at(const struct fb_source_job *job, uint64_t done, const char **ret_data)
{
    for (unsigned i = 0; i < job->iov_count; i++) {
        if (done < job->iov[i].iov_len) {
            *ret_data = (const char *)job->iov[i].iov_base + done;
            return job->iov[i].iov_len - done;
        }
        done -= job->iov[i].iov_len;
    }
    return 0;
}

/* True when it has ended. */
static bool go_on_writing(struct file *file, struct write_op *op)
{
    struct fb_source_job *job = op->base.job;
    const char *data;
    uint64_t left;
    int error = 0;

    if (file->commit)
        return false;
    if (op->done == 0)
        op->offset = job->flags & FB_WRITE_APPEND ? file->size : job->offset;
    if (job->op == FB_SOURCE_SETATTR) {
        if (fill_hole(file, job->attr.version.size, &error)) {
            live_attr(file, &job->attr);
            fb_s3_op_end(&op->base, 0);
            return true;
        }
    } else if (fill_hole(file, op->offset, &error)) {
        while ((left = iov_at(job, op->done, &data)) > 0 && error == 0) {
            int64_t n = put(file, op->offset + op->done, data, left);

            if (n == 0)
                return false;
            if (n < 0)
                error = (int)n;
            else
                op->done += (uint64_t)n;
        }
        job->bytes = op->done;
        if (left == 0) {
            fb_s3_op_end(&op->base, 0);
            return true;
        }
    }
    if (error == 0)
        return false;
    fb_s3_op_end(&op->base, error);
    return true;
}

static void write_cancel(struct fb_s3_op *base)
{
    struct write_op *op = FB_CONTAINER_OF(base, struct write_op, base);

    /* Part of it may be in the buffer: what comes of the file nobody can tell. */
    fail(file_at(base->job->handle), -EIO);
    fb_list_remove(&op->link);
    fb_s3_op_end(base, -ETIMEDOUT);
}

static void begin_write(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct file *file = file_at(job->handle);
    struct write_op *op;

    if (file->upload == COMPLETED && file->error == 0) {
        fb_log_warn("%s: written after fsync had completed it; open it anew", file->key);
        fb_source_job_finish(job, -EIO);
        return;
    }
    op = fb_s3_op_new(s3, job, sizeof *op, write_cancel);
    if (!op)
        return;
    fb_list_init(&op->link);
    if (!fb_list_empty(&file->writes) || !go_on_writing(file, op))
        fb_list_push_back(&file->writes, &op->link);
}

void fb_s3_write(struct fb_s3 *s3, struct fb_source_job *job)
{
    begin_write(s3, job);
}

int fb_s3_file_truncate(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct file *file = file_at(job->handle);
    uint64_t size = job->attr.version.size;

    if (size > file->size) {
        begin_write(s3, job);
        return FB_S3_BEGUN;
    }
    if (file->error < 0)
        return file->error;
    if (size == 0 && file->upload == NONE) {
        /* All of it is to be new. */
        file->sent = 0;
        file->copy_old = false;
    }
    if (size < file->sent || file->commit)
        return -ENOTSUP;
    file->dirty = file->dirty || size != file->size;
    file->size = size;
    live_attr(file, &job->attr);
    return 0;
}

void fb_s3_pread(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct file *file = file_at(job->handle);
    uint64_t at = job->offset;

    if (at < file->sent && at < file->size && !file->dirty && file->existed) {
        fb_s3_read_object(s3, job, file->key, &file->attr.version);
        return;
    }
    if (at < file->sent) {
        fb_source_job_finish(job, -ENOTSUP);
        return;
    }
    job->bytes = 0;
    for (unsigned i = 0; i < job->iov_count && at < file->size; i++) {
        size_t n = (size_t)fb_min_u64(job->iov[i].iov_len, file->size - at);

        memcpy(job->iov[i].iov_base, file->buffer + (at - file->sent), n);
        job->bytes += n;
        at += n;
    }
    fb_source_job_finish(job, 0);
}

/* ---- committing ------------------------------------------------------------------------------ */

/* What is still at hand need not be fetched when somebody reads it. */
static void give_bytes(const struct file *file, struct fb_source_job *job)
{
    if (file->sent > 0 || file->size == 0 || file->attr.version.size != file->size)
        return;
    job->data = malloc((size_t)file->size);
    if (!job->data)
        return;
    memcpy(job->data, file->buffer, (size_t)file->size);
    job->data_len = (size_t)file->size;
}

static void commit_end(struct file *file, int result)
{
    struct commit_op *op = fb_steal(file->commit);

    live_attr(file, &op->base.job->attr);
    if (result == 0)
        give_bytes(file, op->base.job);
    fb_s3_op_end(&op->base, result);
    pump(file);
}

static void looked(struct fb_s3_look *look)
{
    struct commit_op *op = FB_CONTAINER_OF(look, struct commit_op, look);
    struct file *file = op->file;

    op->looking = false;
    /* The source has the bytes. Who cannot see them now sees them later. */
    if (look->result == 0 && S_ISREG(look->attr.mode)) {
        file->attr = look->attr;
        memcpy(file->etag, look->etag, sizeof file->etag);
    }
    commit_end(file, 0);
}

static void committed(struct file *file, const char *etag)
{
    struct commit_op *op = file->commit;

    file->dirty = false;
    file->existed = true;
    fb_s3_file_attr(file->s3, file->key, file->size, fb_wall_ns(), etag, &file->attr);
    snprintf(file->etag, sizeof file->etag, "%s", etag);
    op->looking = true;
    op->look = (struct fb_s3_look){
        .path = file->key + strlen(file->s3->prefix),
        .is_file = true,
        .deadline_ns = op->base.job->deadline_ns,
        .done = looked,
    };
    fb_s3_look(file->s3, &op->look);
}

static void put_done(struct fb_s3_call *call)
{
    struct file *file = call->arg;

    file->call_out = false;
    if (call->result < 0) {
        /* The program is told, and the last close must not do it after all. */
        fail(file, call->result);
        commit_end(file, file->error);
        return;
    }
    committed(file, call->reply.etag);
}

static void complete_done(struct fb_s3_call *call)
{
    struct file *file = call->arg;
    int r = call->result;

    file->call_out = false;
    free(fb_steal(file->body));
    if (r == 0 && call->answer->document != FB_S3_DOC_COMPLETE)
        r = -EIO;
    /* A first try may have come through and its answer not: then there is no such upload. */
    if (r < 0) {
        fail(file, r == -ENOENT ? -EIO : r);
        commit_end(file, file->error);
        return;
    }
    file->upload = COMPLETED;
    strike_out(file->s3, file->ticket);
    committed(file, call->answer->etag);
}

static int complete(struct file *file)
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
    };
    send_call(file, complete_done);
    return 0;
}

/* The next step of a commit under way. */
static void go_on_committing(struct file *file)
{
    int r = file->error;

    if (file->call_out || file->commit->looking || !fb_list_empty(&file->writes))
        return;
    if (r == 0 && file->sent == 0 && file->upload == NONE) {
        file->call = (struct fb_s3_call){
            .method = FB_S3_PUT, .key = file->key, .body = file->buffer, .body_len = file->size};
        send_call(file, put_done);
        return;
    }
    if (r == 0 && file->upload == NONE) {
        initiate(file);
        return;
    }
    if (r == 0 && file->copy_old)
        r = send_copy(file);
    if (r == 0 && file->size > file->sent)
        r = send_part(file);
    if (r == 0 && file->parts_out > 0)
        return;
    if (r == 0)
        r = complete(file);
    if (r < 0) {
        fail(file, r);
        commit_end(file, file->error);
    }
}

static void commit_cancel(struct fb_s3_op *base)
{
    struct commit_op *op = FB_CONTAINER_OF(base, struct commit_op, base);
    struct file *file = op->file;

    if (op->looking)
        fb_s3_look_cancel(&op->look);
    fail(file, -EIO);
    file->commit = NULL;
    fb_s3_op_end(base, -ETIMEDOUT);
    pump(file);
}

/* Whether this is the close, or fsync, at which the object is to appear. */
static bool is_meant(struct file *file, const struct fb_source_job *job)
{
    uint32_t tid = job->caller.pid;
    bool own;

    if (job->flags & (FB_COMMIT_SYNC | FB_COMMIT_LAST))
        return !file->killed;
    own = fb_task_process(tid) == file->process;
    if (own && fb_task_is_killed(tid))
        file->killed = true;
    return own && !file->killed && file->size > 0;
}

void fb_s3_commit(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct file *file = file_at(job->handle);
    struct commit_op *op;

    if (file->error < 0 || !file->dirty || file->unlinked || !is_meant(file, job)) {
        /* Of what has not appeared yet there is nothing to tell. */
        if (file->dirty)
            memset(&job->attr, 0, sizeof job->attr);
        else
            live_attr(file, &job->attr);
        fb_source_job_finish(job, file->error);
        return;
    }
    if (file->commit) {
        fb_source_job_finish(job, -EBUSY);
        return;
    }
    op = fb_s3_op_new(s3, job, sizeof *op, commit_cancel);
    if (!op)
        return;
    op->file = file;
    file->commit = op;
    go_on_committing(file);
}

/* Something has happened: whoever waits for it goes on. */
static void pump(struct file *file)
{
    while (!fb_list_empty(&file->writes)) {
        struct write_op *op = FB_LIST_ENTRY(file->writes.next, struct write_op, link);

        fb_list_remove(&op->link);
        if (!go_on_writing(file, op)) {
            fb_list_push_front(&file->writes, &op->link);
            break;
        }
    }
    if (file->commit)
        go_on_committing(file);
}

void fb_s3_pump_files(struct fb_s3 *s3)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &s3->files) {
        struct file *file = FB_LIST_ENTRY(it, struct file, link);

        if (!fb_list_empty(&file->writes))
            pump(file);
    }
}

/* ---- opening and closing --------------------------------------------------------------------- */

struct open_op {
    struct fb_s3_op base;
    struct file *file;
    struct fb_s3_look look;
    bool looking;
    struct fb_s3_call load;
    bool loading;
    struct iovec iov;
    char match[FB_S3_ETAG_MAX + 3];
};

static void file_free(struct file *file)
{
    fb_list_remove(&file->link);
    file->s3->upload_bytes -= file->room;
    free(file->buffer);
    free(file->body);
    free(file->etags);
    free(file);
}

static void open_end(struct open_op *op, int result)
{
    struct file *file = op->file;

    if (result == 0) {
        op->base.job->handle = &file->base;
        op->base.job->direct = true;
        live_attr(file, &op->base.job->attr);
    } else {
        file_free(file);
    }
    fb_s3_op_end(&op->base, result);
}

static void open_cancel(struct fb_s3_op *base)
{
    struct open_op *op = FB_CONTAINER_OF(base, struct open_op, base);

    if (op->looking)
        fb_s3_look_cancel(&op->look);
    if (op->loading)
        fb_s3_http_cancel(base->s3->http, &op->load);
    open_end(op, -ETIMEDOUT);
}

static void loaded(struct fb_s3_call *call)
{
    struct open_op *op = call->arg;

    op->loading = false;
    if (call->result == 0 && call->bytes != op->file->size)
        call->result = -EIO;
    open_end(op, call->result);
}

/* What is there is to be changed or added to. */
static void load(struct open_op *op)
{
    struct file *file = op->file;

    file->size = file->attr.version.size;
    if (file->size > file->s3->part_bytes) {
        file->sent = file->size;
        file->copy_old = true;
        open_end(op, file->size > COPY_MAX ? -EFBIG : 0);
        return;
    }
    if (file->size == 0 || make_room(file, (size_t)file->size) < 0) {
        open_end(op, file->size == 0 ? 0 : -ENOMEM);
        return;
    }
    op->iov = (struct iovec){.iov_base = file->buffer, .iov_len = (size_t)file->size};
    snprintf(op->match, sizeof op->match, "\"%s\"", file->etag);
    op->load = (struct fb_s3_call){
        .method = FB_S3_GET,
        .key = file->key,
        .headers = {{"if-match", op->match}},
        .header_count = 1,
        .sink = &op->iov,
        .sink_count = 1,
        .deadline_ns = op->base.job->deadline_ns,
        .done = loaded,
        .arg = op,
    };
    op->loading = true;
    fb_s3_http_submit(file->s3->http, &op->load);
}

static void open_looked(struct fb_s3_look *look)
{
    struct open_op *op = FB_CONTAINER_OF(look, struct open_op, look);
    struct file *file = op->file;
    uint32_t flags = op->base.job->flags;
    int result = look->result;

    op->looking = false;
    if (result == 0 && S_ISDIR(look->attr.mode))
        result = -EISDIR;
    else if (result == 0 && (flags & O_CREAT) && (flags & O_EXCL))
        result = -EEXIST;
    else if (result == -ENOENT && (flags & O_CREAT)) {
        fb_s3_file_attr(file->s3, file->key, 0, fb_wall_ns(), "", &file->attr);
        file->dirty = true;
        result = 0;
    } else if (result == 0) {
        file->existed = true;
        file->attr = look->attr;
        memcpy(file->etag, look->etag, sizeof file->etag);
        if (!(flags & O_TRUNC)) {
            load(op);
            return;
        }
        file->dirty = true;
    }
    open_end(op, result);
}

void fb_s3_open(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct file *file = fb_alloc(sizeof *file);
    struct open_op *op;
    ssize_t n;

    if (!file) {
        fb_source_job_finish(job, -ENOMEM);
        return;
    }
    file->s3 = s3;
    file->process = fb_task_process(job->caller.pid);
    fb_list_init(&file->link);
    fb_list_init(&file->parts);
    fb_list_init(&file->writes);
    n = fb_s3_key_make(s3->prefix, job->path, false, file->key);
    if (n < 0) {
        file_free(file);
        fb_source_job_finish(job, (int)n);
        return;
    }
    op = fb_s3_op_new(s3, job, sizeof *op, open_cancel);
    if (!op) {
        file_free(file);
        return;
    }
    fb_list_push_back(&s3->files, &file->link);
    op->file = file;
    op->looking = true;
    op->look = (struct fb_s3_look){
        .path = job->path,
        .is_file = !(job->flags & O_CREAT),
        .deadline_ns = job->deadline_ns,
        .done = open_looked,
    };
    fb_s3_look(s3, &op->look);
}

void fb_s3_closefile(struct fb_s3 *s3, struct fb_source_handle *handle)
{
    struct file *file = file_at(handle);

    (void)s3;
    fail(file, -ESHUTDOWN);
    file_free(file);
}

/* ---- what others do to a file that is being written ------------------------------------------ */

bool fb_s3_file_unlink(struct fb_s3 *s3, const char *key)
{
    struct file *file = find(s3, key);
    bool only_here = file && !file->existed;

    if (file)
        file->unlinked = true;
    return only_here;
}

int fb_s3_file_rename(struct fb_s3 *s3, const char *from, const char *to)
{
    struct file *file = find(s3, from);

    if (!file || file->existed)
        return -ENOENT;
    if (file->upload != NONE || file->commit)
        return -EBUSY;
    snprintf(file->key, sizeof file->key, "%s", to);
    return 0;
}
