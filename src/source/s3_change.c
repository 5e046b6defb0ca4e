/*
 * What changes the bucket beside writing: objects deleted, copied, put empty.
 *
 * A rename is a copy, done by the server, and a deletion: it costs as much as the object is long,
 * is not atomic (for a moment both names are there, never none), and a directory is renamed object
 * by object: all are copied before the first is deleted, so that a failure leaves the old ones.
 *
 * Owner and mode are the mount's: setting them to what they are is fine, else EPERM. An object's
 * time is the server's; a program that sets one is let believe so.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/mem.h"
#include "source/s3_priv.h"
#include "source/s3_text.h"

#define COPY_MAX   (5ULL << 30)
#define TREE_MAX   100000u /* objects in a directory that is renamed */
#define TREE_WIDTH 16u     /* of them at a time */
#define LIST_KEYS  "1000"
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
static void keep_parent(struct fb_s3 *s3, const char *key)
{
    char parent[FB_S3_KEY_MAX + 1];

    if (parent_key(s3, key, parent))
        fb_s3_keep_dir(s3, parent);
}

/* ---- one object, one request ----------------------------------------------------------------- */

struct one_op {
    struct fb_s3_op base;
    struct fb_s3_call call;
    bool out;
    char key[FB_S3_KEY_MAX + 1];
};

static void one_cancel(struct fb_s3_op *base)
{
    struct one_op *op = FB_CONTAINER_OF(base, struct one_op, base);

    if (op->out)
        fb_s3_http_cancel(base->s3->http, &op->call);
    fb_s3_op_end(base, -ETIMEDOUT);
}

static struct one_op *one_new(struct fb_s3 *s3, struct fb_source_job *job, bool directory)
{
    struct one_op *op = fb_s3_op_new(s3, job, sizeof *op, one_cancel);
    ssize_t n;

    if (!op)
        return NULL;
    n = fb_s3_key_make(s3->prefix, job->path, directory, op->key);
    if (n < 0) {
        fb_s3_op_end(&op->base, (int)n);
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

static void unlinked(struct fb_s3_call *call)
{
    struct one_op *op = call->arg;

    if (call->result == 0)
        keep_parent(op->base.s3, op->key);
    fb_s3_op_end(&op->base, call->result);
}

void fb_s3_unlink(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct one_op *op = one_new(s3, job, false);

    if (!op)
        return;
    if (fb_s3_file_unlink(s3, op->key)) {
        keep_parent(s3, op->key);
        fb_s3_op_end(&op->base, 0);
        return;
    }
    one_send(op, FB_S3_DELETE, unlinked);
}

static void made(struct fb_s3_call *call)
{
    struct one_op *op = call->arg;
    struct fb_source_job *job = op->base.job;

    if (call->result == 0 && S_ISDIR(job->mode))
        fb_s3_dir_attr(op->base.s3, op->key, &job->attr);
    else if (call->result == 0)
        fb_s3_file_attr(op->base.s3, op->key, 0, fb_wall_ns(), call->reply.etag, &job->attr);
    fb_s3_op_end(&op->base, call->result);
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
    if (S_ISDIR(job->mode) && fb_s3_kept_has(s3, op->key))
        fb_s3_unkeep_dir(s3, op->key);
    one_send(op, FB_S3_PUT, made);
}

/* ---- listings of all that lies below a key --------------------------------------------------- */

/* Every key with a prefix, page by page. Embedded in whoever asks. */
struct walk {
    struct fb_s3_call call;
    bool out;
    struct fb_s3 *s3;
    const char *prefix;
    const char *max_keys;
    char token[FB_S3_TOKEN_MAX + 1];
    bool more;
    int error; /* of `key` */
    int (*key)(struct walk *walk, const char *key, uint64_t size);
    void (*restart)(struct walk *walk);          /* this page comes again */
    void (*done)(struct walk *walk, int result); /* of a page */
};

static int walk_entry(struct fb_s3_call *call, const struct fb_s3_xml_entry *entry)
{
    struct walk *walk = call->arg;
    char key[FB_S3_KEY_MAX + 1];

    /* None that we could name. */
    if (entry->key_len > FB_S3_KEY_MAX || memchr(entry->key, 0, entry->key_len)) {
        walk->error = -EXDEV;
        return 0;
    }
    memcpy(key, entry->key, entry->key_len);
    key[entry->key_len] = '\0';
    return walk->key(walk, key, entry->size);
}

static void walk_restart(struct fb_s3_call *call)
{
    struct walk *walk = call->arg;

    walk->restart(walk);
}

static void walk_done(struct fb_s3_call *call)
{
    struct walk *walk = call->arg;

    walk->out = false;
    walk->more = call->answer->truncated;
    snprintf(walk->token, sizeof walk->token, "%s", call->answer->token);
    walk->done(walk, call->result);
}

static void walk_page(struct walk *walk, int64_t deadline_ns)
{
    walk->call = (struct fb_s3_call){
        .method = FB_S3_GET,
        .key = "",
        .query = {{"list-type", "2"},
                  {"max-keys", walk->max_keys},
                  {"prefix", walk->prefix},
                  {"continuation-token", walk->token}},
        .query_count = walk->token[0] ? 4 : 3,
        .entry = walk_entry,
        .restart = walk_restart,
        .deadline_ns = deadline_ns,
        .done = walk_done,
        .arg = walk,
    };
    walk->out = true;
    fb_s3_http_submit(walk->s3->http, &walk->call);
}

static void walk_cancel(struct walk *walk)
{
    if (walk->out)
        fb_s3_http_cancel(walk->s3->http, &walk->call);
    walk->out = false;
}

/* ---- RMDIR ----------------------------------------------------------------------------------- */

struct rmdir_op {
    struct fb_s3_op base;
    struct walk walk;
    struct fb_s3_call call;
    bool out;
    bool marker, other;
    char key[FB_S3_KEY_MAX + 1];
};

static void rmdir_cancel(struct fb_s3_op *base)
{
    struct rmdir_op *op = FB_CONTAINER_OF(base, struct rmdir_op, base);

    walk_cancel(&op->walk);
    if (op->out)
        fb_s3_http_cancel(base->s3->http, &op->call);
    fb_s3_op_end(base, -ETIMEDOUT);
}

static int rmdir_key(struct walk *walk, const char *key, uint64_t size)
{
    struct rmdir_op *op = FB_CONTAINER_OF(walk, struct rmdir_op, walk);

    (void)size;
    if (strcmp(key, op->key) == 0)
        op->marker = true;
    else
        op->other = true;
    return 0;
}

static void rmdir_restart(struct walk *walk)
{
    struct rmdir_op *op = FB_CONTAINER_OF(walk, struct rmdir_op, walk);

    op->marker = op->other = false;
}

static void rmdir_end(struct rmdir_op *op, int result)
{
    struct fb_s3 *s3 = op->base.s3;

    if (result == 0) {
        fb_s3_unkeep_dir(s3, op->key);
        keep_parent(s3, op->key);
    }
    fb_s3_op_end(&op->base, result);
}

static void rmdir_deleted(struct fb_s3_call *call)
{
    rmdir_end(call->arg, call->result);
}

static void rmdir_listed(struct walk *walk, int result)
{
    struct rmdir_op *op = FB_CONTAINER_OF(walk, struct rmdir_op, walk);

    if (result == 0 && op->other)
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
    op->walk = (struct walk){
        .s3 = s3,
        .prefix = op->key,
        .max_keys = RMDIR_KEYS,
        .key = rmdir_key,
        .restart = rmdir_restart,
        .done = rmdir_listed,
    };
    walk_page(&op->walk, job->deadline_ns);
}

/* ---- RENAME ---------------------------------------------------------------------------------- */

/*
 * look at both names ─► a file: copy, delete
 *                     ─► a directory: is the other one empty? ─► list all below it ─► copy all
 *                        ─► delete all
 */
struct rename_op {
    struct fb_s3_op base;
    struct fb_s3_look from, to;
    bool from_out, to_out;
    bool occupied; /* there is more in the directory that is to be replaced than its marker */
    struct walk walk;
    char from_key[FB_S3_KEY_MAX + 1], to_key[FB_S3_KEY_MAX + 1];
    char **keys; /* that are to be moved */
    size_t count, room, page_from;
    bool deleting;
    size_t next;
    unsigned out;
    struct move *moves[TREE_WIDTH];
    int result;
};

/* One request of a rename. */
struct move {
    struct rename_op *op;
    struct fb_s3_call call;
    unsigned slot;
    char key[FB_S3_KEY_MAX + 1];
    char *source;
};

static void rename_end(struct rename_op *op)
{
    for (size_t i = 0; i < op->count; i++)
        free(op->keys[i]);
    free(op->keys);
    fb_s3_op_end(&op->base, op->result);
}

static void move_free(struct move *move)
{
    move->op->moves[move->slot] = NULL;
    move->op->out--;
    free(move->source);
    free(move);
}

static void rename_cancel(struct fb_s3_op *base)
{
    struct rename_op *op = FB_CONTAINER_OF(base, struct rename_op, base);

    if (op->from_out)
        fb_s3_look_cancel(&op->from);
    if (op->to_out)
        fb_s3_look_cancel(&op->to);
    walk_cancel(&op->walk);
    for (unsigned i = 0; i < TREE_WIDTH; i++) {
        if (op->moves[i]) {
            fb_s3_http_cancel(base->s3->http, &op->moves[i]->call);
            move_free(op->moves[i]);
        }
    }
    op->result = -ETIMEDOUT;
    rename_end(op);
}

static void send_moves(struct rename_op *op);

static void move_done(struct fb_s3_call *call)
{
    struct move *move = call->arg;
    struct rename_op *op = move->op;
    int r = call->result;

    if (r == 0 && !op->deleting && call->answer->document != FB_S3_DOC_COPY)
        r = -EIO;
    if (r < 0 && op->result == 0)
        op->result = r == -ENOENT && op->deleting ? 0 : r;
    move_free(move);
    send_moves(op);
}

static int send_move(struct rename_op *op, unsigned slot)
{
    struct fb_s3 *s3 = op->base.s3;
    const char *key = op->keys[op->next];
    struct move *move = fb_alloc(sizeof *move);

    if (!move)
        return -ENOMEM;
    move->op = op;
    move->slot = slot;
    op->moves[slot] = move;
    op->out++;
    move->call.method = op->deleting ? FB_S3_DELETE : FB_S3_PUT;
    move->call.key = key;
    move->call.deadline_ns = op->base.job->deadline_ns;
    move->call.done = move_done;
    move->call.arg = move;
    if (!op->deleting) {
        move->source = fb_s3_copy_source(s3, key);
        if (!move->source || snprintf(move->key, sizeof move->key, "%s%s", op->to_key,
                                      key + strlen(op->from_key)) > FB_S3_KEY_MAX) {
            int r = move->source ? -ENAMETOOLONG : -ENOMEM;

            move_free(move);
            return r;
        }
        move->call.key = move->key;
        move->call.headers[0] = (struct fb_s3_pair){"x-amz-copy-source", move->source};
        move->call.header_count = 1;
    }
    op->next++;
    fb_s3_http_submit(s3->http, &move->call);
    return 0;
}

static void renamed(struct rename_op *op)
{
    struct fb_s3 *s3 = op->base.s3;
    bool dir = op->from_key[strlen(op->from_key) - 1] == '/';

    if (op->result == 0 && dir)
        fb_s3_keep_moved(s3, op->from_key, op->to_key);
    if (op->result == 0)
        keep_parent(s3, op->from_key);
    rename_end(op);
}

static void send_moves(struct rename_op *op)
{
    for (unsigned i = 0; i < TREE_WIDTH; i++) {
        if (op->result == 0 && !op->moves[i] && op->next < op->count)
            op->result = send_move(op, i);
    }
    if (op->out > 0)
        return;
    if (op->result < 0 || op->deleting) {
        renamed(op);
        return;
    }
    op->deleting = true;
    op->next = 0;
    if (op->count == 0)
        renamed(op);
    else
        send_moves(op);
}

static int add_key(struct rename_op *op, const char *key)
{
    if (op->count == op->room) {
        size_t room = op->room ? op->room * 2 : 16;
        char **keys = realloc(op->keys, room * sizeof *keys);

        if (!keys)
            return -ENOMEM;
        op->keys = keys;
        op->room = room;
    }
    op->keys[op->count] = fb_strdup(key);
    if (!op->keys[op->count])
        return -ENOMEM;
    op->count++;
    return 0;
}

static int tree_key(struct walk *walk, const char *key, uint64_t size)
{
    struct rename_op *op = FB_CONTAINER_OF(walk, struct rename_op, walk);

    if (op->count >= TREE_MAX || size > COPY_MAX)
        walk->error = -EXDEV;
    return add_key(op, key);
}

static void tree_restart(struct walk *walk)
{
    struct rename_op *op = FB_CONTAINER_OF(walk, struct rename_op, walk);

    while (op->count > op->page_from)
        free(op->keys[--op->count]);
}

static void tree_listed(struct walk *walk, int result)
{
    struct rename_op *op = FB_CONTAINER_OF(walk, struct rename_op, walk);

    op->result = result < 0 ? result : walk->error;
    op->page_from = op->count;
    if (op->result == 0 && walk->more)
        walk_page(walk, op->base.job->deadline_ns);
    else
        send_moves(op);
}

static void list_tree(struct rename_op *op)
{
    op->walk = (struct walk){
        .s3 = op->base.s3,
        .prefix = op->from_key,
        .max_keys = LIST_KEYS,
        .key = tree_key,
        .restart = tree_restart,
        .done = tree_listed,
    };
    walk_page(&op->walk, op->base.job->deadline_ns);
}

static int target_key(struct walk *walk, const char *key, uint64_t size)
{
    struct rename_op *op = FB_CONTAINER_OF(walk, struct rename_op, walk);

    (void)size;
    op->occupied |= strcmp(key, op->to_key) != 0;
    return 0;
}

static void target_restart(struct walk *walk)
{
    struct rename_op *op = FB_CONTAINER_OF(walk, struct rename_op, walk);

    op->occupied = false;
}

static void target_listed(struct walk *walk, int result)
{
    struct rename_op *op = FB_CONTAINER_OF(walk, struct rename_op, walk);

    op->result = result;
    /* A key that we cannot name is one, too. */
    if (result == 0 && (op->occupied || walk->error < 0))
        op->result = -ENOTEMPTY;
    if (op->result < 0)
        send_moves(op);
    else
        list_tree(op);
}

static void look_into_target(struct rename_op *op)
{
    op->walk = (struct walk){
        .s3 = op->base.s3,
        .prefix = op->to_key,
        .max_keys = RMDIR_KEYS,
        .key = target_key,
        .restart = target_restart,
        .done = target_listed,
    };
    walk_page(&op->walk, op->base.job->deadline_ns);
}

static int to_dir_keys(struct rename_op *op)
{
    const struct fb_source_job *job = op->base.job;
    const char *prefix = op->base.s3->prefix;
    ssize_t n = fb_s3_key_make(prefix, job->path, true, op->from_key);

    if (n >= 0)
        n = fb_s3_key_make(prefix, job->path2, true, op->to_key);
    return n < 0 ? (int)n : 0;
}

/* What rename(2) says of the two. */
static int judge(const struct rename_op *op)
{
    bool from_dir = S_ISDIR(op->from.attr.mode), there = op->to.result == 0;
    bool to_dir = there && S_ISDIR(op->to.attr.mode);

    if (op->from.result < 0)
        return op->from.result;
    if (!there && op->to.result != -ENOENT)
        return op->to.result;
    if (there && (op->base.job->flags & RENAME_NOREPLACE))
        return -EEXIST;
    if (there && from_dir != to_dir)
        return to_dir ? -EISDIR : -ENOTDIR;
    if (!from_dir && op->from.attr.version.size > COPY_MAX)
        return -EXDEV;
    return 0;
}

static void rename_looked(struct rename_op *op)
{
    if (op->from_out || op->to_out)
        return;
    op->result = judge(op);
    if (op->result == 0 && !S_ISDIR(op->from.attr.mode))
        op->result = add_key(op, op->from_key);
    else if (op->result == 0)
        op->result = to_dir_keys(op);
    if (op->result < 0 || !S_ISDIR(op->from.attr.mode)) {
        send_moves(op);
        return;
    }
    if (op->to.result == 0)
        look_into_target(op);
    else
        list_tree(op);
}

static void from_looked(struct fb_s3_look *look)
{
    struct rename_op *op = FB_CONTAINER_OF(look, struct rename_op, from);

    op->from_out = false;
    rename_looked(op);
}

static void to_looked(struct fb_s3_look *look)
{
    struct rename_op *op = FB_CONTAINER_OF(look, struct rename_op, to);

    op->to_out = false;
    rename_looked(op);
}

void fb_s3_rename(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct rename_op *op = fb_s3_op_new(s3, job, sizeof *op, rename_cancel);
    ssize_t n;

    if (!op)
        return;
    n = fb_s3_key_make(s3->prefix, job->path, false, op->from_key);
    if (n >= 0)
        n = fb_s3_key_make(s3->prefix, job->path2, false, op->to_key);
    if (n >= 0 && (job->flags & ~(uint32_t)RENAME_NOREPLACE))
        n = -EINVAL;
    if (n >= 0) {
        int r = fb_s3_file_rename(s3, op->from_key, op->to_key);

        if (r != -ENOENT) {
            op->result = r;
            rename_end(op);
            return;
        }
    }
    if (n < 0) {
        op->result = (int)n;
        rename_end(op);
        return;
    }
    op->from = (struct fb_s3_look){
        .path = job->path, .deadline_ns = job->deadline_ns, .done = from_looked};
    op->to =
        (struct fb_s3_look){.path = job->path2, .deadline_ns = job->deadline_ns, .done = to_looked};
    op->from_out = op->to_out = true;
    fb_s3_look(s3, &op->from);
    fb_s3_look(s3, &op->to);
}

/* ---- SETATTR --------------------------------------------------------------------------------- */

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
        fb_s3_file_attr(op->base.s3, op->key, op->iov.iov_len, fb_wall_ns(), call->reply.etag,
                        &job->attr);
    setattr_end(op, call->result);
}

static void put_resized(struct setattr_op *op)
{
    op->call = (struct fb_s3_call){
        .method = FB_S3_PUT,
        .key = op->key,
        .body = op->body,
        .body_len = op->iov.iov_len,
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
    if (call->result == 0 && call->bytes != fb_min_u64(op->iov.iov_len, op->look.attr.version.size))
        call->result = -EIO;
    if (call->result < 0)
        setattr_end(op, call->result);
    else
        put_resized(op);
}

/* A short object is read, cut or filled up, and put again. */
static void resize(struct setattr_op *op)
{
    uint64_t size = op->base.job->attr.version.size, old = op->look.attr.version.size;

    if (size > op->base.s3->part_bytes) {
        setattr_end(op, -ENOTSUP);
        return;
    }
    op->body = fb_alloc((size_t)size + 1);
    op->iov = (struct iovec){.iov_base = op->body, .iov_len = (size_t)size};
    if (!op->body) {
        setattr_end(op, -ENOMEM);
        return;
    }
    if (size == 0 || old == 0) {
        put_resized(op);
        return;
    }
    snprintf(op->range, sizeof op->range, "bytes=0-%" PRIu64, fb_min_u64(size, old) - 1);
    snprintf(op->match, sizeof op->match, "\"%s\"", op->look.etag);
    op->call = (struct fb_s3_call){
        .method = FB_S3_GET,
        .key = op->key,
        .headers = {{"if-match", op->match}, {"range", op->range}},
        .header_count = 2,
        .sink = &op->iov,
        .sink_count = 1,
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
