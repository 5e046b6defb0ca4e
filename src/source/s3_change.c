/*
 * What changes the bucket with one request, or little more: UNLINK, MKNOD, RMDIR.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/mem.h"
#include "source/s3_text.h"
#include "source/s3_walk.h"

#define RMDIR_KEYS "2"

char *fb_s3_copy_source(const struct fb_s3 *s3, const char *key)
{
    struct fb_s3_text text = {.data = NULL};
    char *copy;

    fb_s3_text_addc(&text, '/');
    fb_s3_text_adds(&text, s3->bucket);
    fb_s3_text_addc(&text, '/');
    fb_s3_text_add_encoded(&text, key, strlen(key), true);
    copy = fb_s3_text_ok(&text) ? fb_strdup(fb_s3_text_string(&text)) : NULL;
    fb_s3_text_free(&text);
    return copy;
}

/* The directory that a key lies in, with its '/'; false for what lies at the top. */
static bool parent_key(const struct fb_s3 *s3, const char *key, char ret_key[FB_S3_KEY_MAX + 1])
{
    size_t len = strlen(key), top = strlen(s3->prefix);

    if (len > top && key[len - 1] == '/')
        len--;
    while (len > top && key[len - 1] != '/')
        len--;
    if (len <= top)
        return false;
    memcpy(ret_key, key, len);
    ret_key[len] = '\0';
    return true;
}

/* What was in it may have been all: it stays a directory for us. */
void fb_s3_keep_parent(struct fb_s3 *s3, const char *key)
{
    char parent[FB_S3_KEY_MAX + 1];

    if (parent_key(s3, key, parent))
        fb_s3_keep_dir(s3, parent);
}

/* ---- holds ----------------------------------------------------------------------------------- */

bool fb_s3_is_at_or_below(const char *key, const char *top)
{
    size_t len = strlen(top);

    if (len > 0 && top[len - 1] == '/')
        len--;
    return strncmp(key, top, len) == 0 && (key[len] == '\0' || key[len] == '/');
}

void fb_s3_hold(struct fb_s3 *s3, struct fb_s3_hold *hold, const char *key)
{
    hold->key = key;
    fb_list_push_back(&s3->holds, &hold->link);
}

void fb_s3_let_go(struct fb_s3 *s3, struct fb_s3_hold *hold)
{
    if (!hold->key)
        return;
    hold->key = NULL;
    fb_list_remove(&hold->link);
    fb_s3_pump_files(s3);
}

bool fb_s3_is_moving(const struct fb_s3 *s3, const char *key)
{
    for (const struct fb_list *it = s3->holds.next; it != &s3->holds; it = it->next) {
        const char *held = FB_LIST_ENTRY(it, struct fb_s3_hold, link)->key;
        size_t len = strlen(held);

        if (len > 0 && held[len - 1] == '/' && strncmp(key, held, len) == 0)
            return true;
    }
    return false;
}

bool fb_s3_is_held(const struct fb_s3 *s3, const char *key)
{
    for (const struct fb_list *it = s3->holds.next; it != &s3->holds; it = it->next) {
        if (fb_s3_is_at_or_below(key, FB_LIST_ENTRY(it, struct fb_s3_hold, link)->key))
            return true;
    }
    return false;
}

/* ---- one object, one request ----------------------------------------------------------------- */

struct one_op {
    struct fb_s3_op base;
    struct fb_s3_call call;
    bool out;
    struct fb_list link; /* UNLINK, while it waits */
    struct fb_s3_hold hold;
    char key[FB_S3_KEY_MAX + 1];
};

static void one_end(struct one_op *op, int result)
{
    fb_list_remove(&op->link);
    fb_s3_let_go(op->base.s3, &op->hold);
    fb_s3_op_end(&op->base, result);
}

static void one_cancel(struct fb_s3_op *base)
{
    struct one_op *op = FB_CONTAINER_OF(base, struct one_op, base);

    if (op->out)
        fb_s3_http_cancel(base->s3->http, &op->call);
    one_end(op, -ETIMEDOUT);
}

static struct one_op *one_new(struct fb_s3 *s3, struct fb_source_job *job, bool directory)
{
    struct one_op *op = fb_s3_op_new(s3, job, sizeof *op, one_cancel);
    ssize_t n;

    if (!op)
        return NULL;
    fb_list_init(&op->link);
    n = fb_s3_key_make(s3->prefix, job->path, directory, op->key);
    if (n < 0) {
        one_end(op, (int)n);
        return NULL;
    }
    op->call.key = op->key;
    op->call.deadline_ns = job->deadline_ns;
    op->call.arg = op;
    return op;
}

static void one_send(struct one_op *op, enum fb_s3_method method,
                     void (*done)(struct fb_s3_call *call))
{
    op->call.method = method;
    op->call.done = done;
    op->out = true;
    fb_s3_http_submit(op->base.s3->http, &op->call);
}

/* What is being written under the name is told now, not before: were there an error, it would be
 * lost though the name is there. */
static void unlinked(struct fb_s3_call *call)
{
    struct one_op *op = call->arg;
    int r = call->result;

    if ((r == 0 || r == -ENOENT) && fb_s3_file_unlink(op->base.s3, op->key))
        r = 0;
    if (r == 0)
        fb_s3_keep_parent(op->base.s3, op->key);
    one_end(op, r);
}

/* What is appearing at this moment is deleted when it is there, and what would appear after waits,
 * to hear that its name is gone. There may be an object of a name that was new when it was opened:
 * another's. So the server is always asked. */
static void unlink_step(struct one_op *op)
{
    struct fb_s3 *s3 = op->base.s3;

    fb_list_remove(&op->link);
    if (fb_s3_is_appearing(s3, op->key)) {
        fb_list_push_back(&s3->unlinks, &op->link);
        return;
    }
    fb_s3_hold(s3, &op->hold, op->key);
    one_send(op, FB_S3_DELETE, unlinked);
}

void fb_s3_pump_unlinks(struct fb_s3 *s3)
{
    struct fb_list waiting;

    fb_list_init(&waiting);
    fb_list_splice(&waiting, &s3->unlinks);
    while (!fb_list_empty(&waiting))
        unlink_step(FB_LIST_ENTRY(waiting.next, struct one_op, link));
}

void fb_s3_unlink(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct one_op *op = one_new(s3, job, false);

    if (op)
        unlink_step(op);
}

static void made(struct fb_s3_call *call)
{
    struct one_op *op = call->arg;
    struct fb_source_job *job = op->base.job;

    if (call->result == 0 && S_ISDIR(job->mode))
        fb_s3_dir_attr(op->base.s3, op->key, &job->attr);
    else if (call->result == 0)
        fb_s3_file_attr(op->base.s3, op->key, 0, fb_wall_ns(), call->reply.etag, &job->attr);
    one_end(op, call->result);
}

/* A directory is an empty object whose key ends in '/'. The kernel has looked whether the name is
 * taken. */
void fb_s3_mknod(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct one_op *op;

    if (!S_ISDIR(job->mode) && !S_ISREG(job->mode)) {
        fb_source_job_finish(job, -EPERM);
        return;
    }
    op = one_new(s3, job, S_ISDIR(job->mode));
    if (!op)
        return;
    if (fb_s3_is_held(s3, op->key)) {
        one_end(op, -EBUSY);
        return;
    }
    if (S_ISDIR(job->mode) && fb_s3_kept_has(s3, op->key))
        fb_s3_unkeep_dir(s3, op->key);
    one_send(op, FB_S3_PUT, made);
}

/* ---- RMDIR ----------------------------------------------------------------------------------- */

struct rmdir_op {
    struct fb_s3_op base;
    struct fb_s3_walk walk;
    struct fb_s3_call call;
    bool out;
    bool marker, other;
    char key[FB_S3_KEY_MAX + 1];
};

static void rmdir_cancel(struct fb_s3_op *base)
{
    struct rmdir_op *op = FB_CONTAINER_OF(base, struct rmdir_op, base);

    fb_s3_walk_cancel(&op->walk);
    if (op->out)
        fb_s3_http_cancel(base->s3->http, &op->call);
    fb_s3_op_end(base, -ETIMEDOUT);
}

static int rmdir_key(struct fb_s3_walk *walk, const char *key, const struct fb_s3_xml_entry *entry)
{
    struct rmdir_op *op = FB_CONTAINER_OF(walk, struct rmdir_op, walk);

    (void)entry;
    if (strcmp(key, op->key) == 0)
        op->marker = true;
    else
        op->other = true;
    return 0;
}

static void rmdir_restart(struct fb_s3_walk *walk)
{
    struct rmdir_op *op = FB_CONTAINER_OF(walk, struct rmdir_op, walk);

    op->marker = op->other = false;
}

static void rmdir_end(struct rmdir_op *op, int result)
{
    struct fb_s3 *s3 = op->base.s3;

    if (result == 0) {
        fb_s3_unkeep_dir(s3, op->key);
        fb_s3_keep_parent(s3, op->key);
    }
    fb_s3_op_end(&op->base, result);
}

static void rmdir_deleted(struct fb_s3_call *call)
{
    rmdir_end(call->arg, call->result);
}

static void rmdir_listed(struct fb_s3_walk *walk, int result)
{
    struct rmdir_op *op = FB_CONTAINER_OF(walk, struct rmdir_op, walk);

    /* A key that we cannot name is one, too. */
    if (result == 0 && walk->error == -EIO)
        result = -EIO;
    else if (result == 0 && (op->other || walk->error < 0))
        result = -ENOTEMPTY;
    else if (result == 0 && !op->marker && !fb_s3_kept_has(op->base.s3, op->key))
        result = -ENOENT;
    if (result < 0 || !op->marker) {
        rmdir_end(op, result);
        return;
    }
    op->call = (struct fb_s3_call){
        .method = FB_S3_DELETE,
        .key = op->key,
        .deadline_ns = op->base.job->deadline_ns,
        .done = rmdir_deleted,
        .arg = op,
    };
    op->out = true;
    fb_s3_http_submit(op->base.s3->http, &op->call);
}

void fb_s3_rmdir(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct rmdir_op *op = fb_s3_op_new(s3, job, sizeof *op, rmdir_cancel);
    ssize_t n;

    if (!op)
        return;
    n = fb_s3_key_make(s3->prefix, job->path, true, op->key);
    if (n < 0) {
        fb_s3_op_end(&op->base, (int)n);
        return;
    }
    op->walk = (struct fb_s3_walk){
        .s3 = s3,
        .prefix = op->key,
        .max_keys = RMDIR_KEYS,
        .key = rmdir_key,
        .restart = rmdir_restart,
        .done = rmdir_listed,
    };
    fb_s3_walk_page(&op->walk, job->deadline_ns);
}
