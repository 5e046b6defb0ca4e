/*
 * SETATTR. Owner and mode are the mount's: setting them to what they are is fine, else EPERM. An
 * object's time is the server's; a program that sets one is let believe so. A short object gets
 * another size by being read, cut or filled up, and put again.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/mem.h"
#include "source/s3_priv.h"

/* By path: look, and for another size open, truncate, commit and close what is then a file. */
struct setattr_op {
    struct fb_s3_op base;
    struct fb_s3_look look;
    bool looking;
    struct fb_s3_call call;
    bool out;
    char key[FB_S3_KEY_MAX + 1];
    char match[FB_S3_ETAG_MAX + 3];
    char range[64];
    char *body;
    struct iovec iov;
};

static int judge_set(const struct fb_s3 *s3, const struct fb_source_job *job, uint32_t mode)
{
    if ((job->set & FB_SET_MODE) && ((job->attr.mode ^ mode) & 07777))
        return -EPERM;
    if ((job->set & FB_SET_UID) && job->attr.uid != s3->uid)
        return -EPERM;
    if ((job->set & FB_SET_GID) && job->attr.gid != s3->gid)
        return -EPERM;
    return 0;
}

static void setattr_end(struct setattr_op *op, int result)
{
    free(op->body);
    fb_s3_op_end(&op->base, result);
}

static void setattr_cancel(struct fb_s3_op *base)
{
    struct setattr_op *op = FB_CONTAINER_OF(base, struct setattr_op, base);

    if (op->looking)
        fb_s3_look_cancel(&op->look);
    if (op->out)
        fb_s3_http_cancel(base->s3->http, &op->call);
    setattr_end(op, -ETIMEDOUT);
}

static void resized(struct fb_s3_call *call)
{
    struct setattr_op *op = call->arg;
    struct fb_source_job *job = op->base.job;

    op->out = false;
    if (call->result == 0)
        fb_s3_file_attr(op->base.s3, op->key, op->call.body_len, fb_wall_ns(), call->reply.etag,
                        &job->attr);
    setattr_end(op, call->result);
}

static void put_resized(struct setattr_op *op)
{
    op->call = (struct fb_s3_call){
        .method = FB_S3_PUT,
        .key = op->key,
        .body = op->body,
        .body_len = (size_t)op->base.job->attr.version.size,
        .deadline_ns = op->base.job->deadline_ns,
        .done = resized,
        .arg = op,
    };
    op->out = true;
    fb_s3_http_submit(op->base.s3->http, &op->call);
}

static void resize_loaded(struct fb_s3_call *call)
{
    struct setattr_op *op = call->arg;

    op->out = false;
    if (call->result == 0 && call->bytes != op->iov.iov_len)
        call->result = -EIO;
    if (call->result < 0)
        setattr_end(op, call->result);
    else
        put_resized(op);
}

static int resize_check(struct fb_s3_call *call)
{
    const struct setattr_op *op = call->arg;

    return fb_s3_check_load(call, op->look.etag, call->is_whole ? op->iov.iov_len : 0);
}

/* A short object is read, cut or filled up, and put again. What fits into a part is read whole, as
 * then there is a checksum of it. */
static void resize(struct setattr_op *op)
{
    uint64_t size = op->base.job->attr.version.size, old = op->look.attr.version.size;
    bool whole = old <= op->base.s3->part_bytes;
    uint64_t load = whole ? old : size;

    if (size > op->base.s3->part_bytes || fb_s3_is_held(op->base.s3, op->key)) {
        setattr_end(op, size > op->base.s3->part_bytes ? -ENOTSUP : -EBUSY);
        return;
    }
    op->body = fb_alloc((size_t)(size > load ? size : load) + 1);
    op->iov = (struct iovec){.iov_base = op->body, .iov_len = (size_t)load};
    if (!op->body) {
        setattr_end(op, -ENOMEM);
        return;
    }
    if (size == 0 || old == 0) {
        put_resized(op);
        return;
    }
    snprintf(op->range, sizeof op->range, "bytes=0-%" PRIu64, load - 1);
    snprintf(op->match, sizeof op->match, "\"%s\"", op->look.etag);
    op->call = (struct fb_s3_call){
        .method = FB_S3_GET,
        .key = op->key,
        .headers = {{"if-match", op->match},
                    {"range", op->range},
                    {"x-amz-checksum-mode", "ENABLED"}},
        .header_count = whole ? 3 : 2,
        .sink = &op->iov,
        .sink_count = 1,
        .is_whole = whole,
        .check = resize_check,
        .deadline_ns = op->base.job->deadline_ns,
        .done = resize_loaded,
        .arg = op,
    };
    op->out = true;
    fb_s3_http_submit(op->base.s3->http, &op->call);
}

static void setattr_looked(struct fb_s3_look *look)
{
    struct setattr_op *op = FB_CONTAINER_OF(look, struct setattr_op, look);
    struct fb_source_job *job = op->base.job;
    int result = look->result;

    op->looking = false;
    if (result == -ENOENT)
        result = fb_s3_pending_attr(op->base.s3, job->path, &look->attr);
    if (result == 0)
        result = judge_set(op->base.s3, job, look->attr.mode);
    if (result == 0 && (job->set & FB_SET_SIZE) && S_ISDIR(look->attr.mode))
        result = -EISDIR;
    if (result == 0 && (job->set & FB_SET_SIZE) &&
        job->attr.version.size != look->attr.version.size) {
        resize(op);
        return;
    }
    job->attr = look->attr;
    setattr_end(op, result);
}

void fb_s3_setattr(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct setattr_op *op;
    ssize_t n;
    int r;

    if (job->handle) {
        r = judge_set(s3, job, S_IFREG | (0666 & ~s3->umask));
        if (r == 0 && (job->set & FB_SET_SIZE))
            r = fb_s3_file_truncate(s3, job);
        else if (r == 0)
            r = fb_s3_handle_attr(s3, job->handle, &job->attr);
        if (r != FB_S3_BEGUN)
            fb_source_job_finish(job, r);
        return;
    }
    op = fb_s3_op_new(s3, job, sizeof *op, setattr_cancel);
    if (!op)
        return;
    n = fb_s3_key_make(s3->prefix, job->path, false, op->key);
    if (n < 0) {
        setattr_end(op, (int)n);
        return;
    }
    op->looking = true;
    op->look = (struct fb_s3_look){
        .path = job->path, .deadline_ns = job->deadline_ns, .done = setattr_looked};
    fb_s3_look(s3, &op->look);
}
