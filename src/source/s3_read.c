/*
 * READ: a range of an object, in one request, or in several side by side when it is long.
 *
 * Every answer says which version it is of (ETag) and what it covers (Content-Range); both must be
 * what was asked for, else the bytes are thrown away: another version is -ESTALE, anything else a
 * fault of the way here, and asked for again. An object read whole is held against its checksum:
 * one that S3 keeps (x-amz-checksum-*), or its MD5 where the ETag is one. It is asked for without a
 * range, as long as the server is told which version is meant: Ceph looks an object up before it
 * reads a part of it, and whole ones at once, for four fifths of the processor's time.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/log.h"
#include "core/mem.h"
#include "source/s3_priv.h"
#include "source/s3_verify.h"

#define PIECE_BYTES  (4u << 20) /* of a long read; a server has as much work for 1 MiB as for 2 */
#define LENGTH_TRIES 3
#define PIECES_MAX   (FB_SOURCE_READ_MAX / PIECE_BYTES)

struct piece {
    struct fb_s3_call call;
    struct read_op *op;
    uint64_t offset, length;
    char range[64];
    struct iovec iov[FB_SOURCE_IOV_MAX];
    bool out;
};

struct read_op {
    struct fb_s3_op base;
    char key[FB_S3_KEY_MAX + 1];
    char match[FB_S3_ETAG_TEXT];
    struct fb_version version;
    uint64_t need;
    unsigned count, left;
    int result;
    bool looking;
    bool unseen; /* some answer had no version, but that it is not the one asked for */
    struct fb_s3_look look;
    struct piece pieces[PIECES_MAX];
};

static void finish(struct read_op *op)
{
    struct fb_source_job *job = op->base.job;

    job->bytes = op->result == 0 ? op->need : 0;
    if (job->path && (op->result == -ESTALE || op->result == -ENOENT))
        fb_s3_seen_wrong(op->base.s3, job->path);
    fb_s3_op_end(&op->base, op->result);
}

static void cancel(struct fb_s3_op *base)
{
    struct read_op *op = FB_CONTAINER_OF(base, struct read_op, base);

    if (op->looking)
        fb_s3_look_cancel(&op->look);
    for (unsigned i = 0; i < op->count; i++) {
        if (op->pieces[i].out)
            fb_s3_http_cancel(base->s3->http, &op->pieces[i].call);
    }
    op->result = -ETIMEDOUT;
    finish(op);
}

static bool same_tag(const struct fb_version *a, const struct fb_version *b)
{
    return a->tag[0] == b->tag[0] && a->tag[1] == b->tag[1];
}

static bool same_object(const struct fb_version *a, const struct fb_version *b)
{
    return a->size == b->size && same_tag(a, b);
}

/* True when the answer says how long the object is. */
static bool tells_total(const struct piece *p)
{
    const struct fb_s3_headers *reply = &p->call.reply;

    if (p->call.status != 200)
        return reply->has_range && reply->has_total;
    /* Sent in chunks: one that came to its end, and is as long as it should be, will do. */
    return reply->has_length || p->call.bytes == p->op->version.size;
}

static bool covers(const struct piece *p, uint64_t *ret_total)
{
    const struct fb_s3_headers *reply = &p->call.reply;

    /* A server that knows no ranges sends all. */
    if (p->call.status == 200) {
        *ret_total = reply->has_length ? reply->length : p->call.bytes;
        return p->offset == 0 && *ret_total == p->length;
    }
    *ret_total = reply->range_total;
    return reply->range_first == p->offset && reply->range_last == p->offset + p->length - 1;
}

static bool is_right(const struct fb_s3_call *call)
{
    if (fb_s3_verify(&call->reply, call->sink, call->sink_count, &call->sum))
        return true;
    fb_log_warn("s3: %s came with other bytes than its checksum says; it is asked for again",
                call->key);
    return false;
}

/* What the answer is of, and whether it is all there. */
static int check(struct fb_s3_call *call)
{
    const struct piece *p = call->arg;
    struct read_op *op = p->op;
    struct fb_source_job *job = op->base.job;
    const struct fb_s3_headers *reply = &call->reply;
    uint64_t total;
    bool all = covers(p, &total);
    struct fb_attr attr;

    if (!reply->etag[0] || !tells_total(p))
        return -EAGAIN;
    fb_s3_file_attr(op->base.s3, op->key, total, reply->mtime_ns, reply->etag, &attr);
    if (!same_object(&op->version, &attr.version)) {
        /* Of one ETag and two lengths: more likely than a new version is an answer that lies. */
        if (same_tag(&op->version, &attr.version) && call->tries < LENGTH_TRIES)
            return -EAGAIN;
        job->attr = attr;
        return -ESTALE;
    }
    if (!all || call->bytes != p->length)
        return -EAGAIN;
    if (p->length == total && !is_right(call))
        return -EAGAIN;
    /* A time that listing and answer tell differently makes no other version. */
    attr.version = op->version;
    job->attr = attr;
    return 0;
}

int fb_s3_check_load(const struct fb_s3_call *call, const char *etag, uint64_t size)
{
    if (!call->reply.etag[0])
        return -EAGAIN;
    if (strcmp(call->reply.etag, etag) != 0)
        return -ESTALE;
    if (size > 0 && (call->bytes != size || !is_right(call)))
        return -EAGAIN;
    return 0;
}

static void version_seen(struct fb_s3_look *look)
{
    struct read_op *op = FB_CONTAINER_OF(look, struct read_op, look);

    op->looking = false;
    op->base.job->attr = look->attr;
    if (look->result < 0)
        op->result = look->result;
    else if (S_ISDIR(look->attr.mode))
        op->result = -EISDIR;
    finish(op);
}

static void piece_done(struct fb_s3_call *call)
{
    struct piece *p = call->arg;
    struct read_op *op = p->op;
    struct fb_source_job *job = op->base.job;

    p->out = false;
    if (call->result < 0 && (op->result == 0 || call->result == -ESTALE))
        op->result = call->result;
    op->unseen |= call->status == 412 || call->status == 416;
    if (--op->left > 0)
        return;
    if (op->result != -ESTALE || !op->unseen || !job->path) {
        finish(op);
        return;
    }
    /* The object is another, but the answer does not say which; who asked wants to know. */
    op->looking = true;
    op->look = (struct fb_s3_look){
        .path = job->path, .is_file = true, .deadline_ns = job->deadline_ns, .done = version_seen};
    fb_s3_look(op->base.s3, &op->look);
}

/* The part of the job's buffers that takes [from, from + length) of what is read. */
static unsigned cut_iov(const struct fb_source_job *job, uint64_t from, uint64_t length,
                        struct iovec *ret_iov)
{
    unsigned count = 0;

    for (unsigned i = 0; i < job->iov_count && length > 0; i++) {
        uint64_t n = job->iov[i].iov_len;

        if (from >= n) {
            from -= n;
            continue;
        }
        n -= from;
        if (n > length)
            n = length;
        ret_iov[count++] =
            (struct iovec){.iov_base = (char *)job->iov[i].iov_base + from, .iov_len = n};
        length -= n;
        from = 0;
    }
    return count;
}

static void send_piece(struct read_op *op, struct piece *p, uint64_t from, uint64_t length)
{
    struct fb_source_job *job = op->base.job;
    struct fb_s3_call *call = &p->call;

    p->op = op;
    p->offset = job->offset + from;
    p->length = length;
    p->out = true;
    snprintf(p->range, sizeof p->range, "bytes=%" PRIu64 "-%" PRIu64, p->offset,
             p->offset + length - 1);
    call->method = FB_S3_GET;
    call->key = op->key;
    call->is_whole = length == op->version.size;
    if (!call->is_whole || !op->match[0])
        call->headers[call->header_count++] = (struct fb_s3_pair){"range", p->range};
    if (op->match[0])
        call->headers[call->header_count++] = (struct fb_s3_pair){"if-match", op->match};
    if (call->is_whole)
        call->headers[call->header_count++] = (struct fb_s3_pair){"x-amz-checksum-mode", "ENABLED"};
    call->sink = p->iov;
    call->sink_count = cut_iov(job, from, length, p->iov);
    call->check = check;
    call->done = piece_done;
    call->arg = p;
    call->deadline_ns = job->deadline_ns;
    call->patient = job->patient;
    fb_s3_http_submit(op->base.s3->http, call);
}

static void send_all(struct read_op *op)
{
    uint64_t share = op->need / PIECE_BYTES, from = 0;

    op->count = share < 1 ? 1 : share > PIECES_MAX ? PIECES_MAX : (unsigned)share;
    op->left = op->count;
    for (unsigned i = 0; i < op->count; i++) {
        uint64_t until = op->need * (i + 1) / op->count;

        send_piece(op, &op->pieces[i], from, until - from);
        from = until;
    }
}

static void begin(struct read_op *op)
{
    const struct fb_source_job *job = op->base.job;
    uint64_t size = op->version.size;

    for (unsigned i = 0; i < job->iov_count; i++)
        op->need += job->iov[i].iov_len;
    op->need = job->offset < size ? fb_min_u64(op->need, size - job->offset) : 0;
    fb_s3_version_etag(&op->version, op->match);
    if (op->need > 0 && op->result == 0)
        send_all(op);
    else
        finish(op);
}

static void looked(struct fb_s3_look *look)
{
    struct read_op *op = FB_CONTAINER_OF(look, struct read_op, look);
    struct fb_source_job *job = op->base.job;

    op->looking = false;
    op->result = look->result;
    job->attr = look->attr;
    if (op->result == 0 && S_ISDIR(look->attr.mode))
        op->result = -EISDIR;
    else if (op->result == 0 && job->expect && !same_object(job->expect, &look->attr.version))
        op->result = -ESTALE;
    op->version = look->attr.version;
    if (op->result == 0)
        begin(op);
    else
        finish(op);
}

void fb_s3_read_object(struct fb_s3 *s3, struct fb_source_job *job, const char *key,
                       const struct fb_version *version)
{
    struct read_op *op = fb_s3_op_new(s3, job, sizeof *op, cancel);

    if (!op)
        return;
    snprintf(op->key, sizeof op->key, "%s", key);
    op->version = *version;
    begin(op);
}

void fb_s3_read(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct read_op *op = fb_s3_op_new(s3, job, sizeof *op, cancel);

    if (!op)
        return;
    if (fb_s3_key_make(s3->prefix, job->path, false, op->key) < 0) {
        op->result = -ENOENT;
        finish(op);
        return;
    }
    if (job->expect && job->offset < job->expect->size) {
        op->version = *job->expect;
        begin(op);
        return;
    }
    /* There is no byte whose answer would tell the version. */
    op->looking = true;
    op->look = (struct fb_s3_look){
        .path = job->path, .is_file = true, .deadline_ns = job->deadline_ns, .done = looked};
    fb_s3_look(s3, &op->look);
}
