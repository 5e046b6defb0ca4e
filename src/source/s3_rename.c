/*
 * RENAME: a copy, done by the server, and a deletion. It costs as much as the object is long, is
 * not atomic (for a moment both names are there, never none), and a directory is renamed object by
 * object: all are copied before the first is deleted, so that a failure leaves the old ones.
 *
 * Nothing that appears meanwhile may be deleted unseen. What is being made to appear through us is
 * waited for by nobody: EBUSY; what comes later waits (fb_s3_hold). What others put there before
 * the copy is another version than the one we have seen, and the copy is refused (ESTALE). What
 * they put there after it is theirs, too: the deletion is of the version that was copied. Amazon
 * heeds that condition; others may not say whether they do, and are asked right before what is
 * there (HEAD), which leaves the time of one request. All else is moved, and then it is ESTALE.
 */
#include <errno.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/mem.h"
#include "source/s3_file.h"
#include "source/s3_walk.h"

#define TREE_MAX    100000u /* objects in a directory that is renamed */
#define TREE_WIDTH  16u     /* of them at a time */
#define LIST_KEYS   "1000"
#define TARGET_KEYS "2"

/*
 * look at both names ─► a file: copy, delete
 *                     ─► a directory: is the other one empty? ─► list all below it ─► copy all
 *                        ─► delete all
 */
struct rename_op {
    struct fb_s3_op base;
    struct fb_s3_look from, to;
    struct fb_s3_hold hold; /* of `from` */
    bool from_out, to_out;
    bool occupied; /* there is more in the directory that is to be replaced than its marker */
    struct fb_s3_walk walk;
    char from_key[FB_S3_KEY_MAX + 1], to_key[FB_S3_KEY_MAX + 1];
    struct moved *keys; /* that are to be moved */
    size_t count, room, page_from;
    bool deleting;
    bool overtaken; /* something else stands where a copied object stood, and was left there */
    size_t next;
    unsigned out;
    struct move *moves[TREE_WIDTH];
    int result;
};

/* An object as it was seen; both in one piece of memory. */
struct moved {
    char *key;
    const char *etag; /* quoted, or "" */
};

/* One request of a rename; of a deletion two or three, one after the other. */
struct move {
    struct rename_op *op;
    const struct moved *what;
    struct fb_s3_call call;
    unsigned slot;
    char key[FB_S3_KEY_MAX + 1];
    char *source;
};

static void rename_end(struct rename_op *op)
{
    for (size_t i = 0; i < op->count; i++)
        free(op->keys[i].key);
    free(op->keys);
    fb_s3_let_go(op->base.s3, &op->hold);
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
    fb_s3_walk_cancel(&op->walk);
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

static void move_done(struct fb_s3_call *call);

static void submit(struct move *move, enum fb_s3_method method)
{
    struct rename_op *op = move->op;

    move->call.method = method;
    move->call.deadline_ns = op->base.job->deadline_ns;
    move->call.done = move_done;
    move->call.arg = move;
    fb_s3_http_submit(op->base.s3->http, &move->call);
}

static void send_delete(struct move *move)
{
    const struct fb_s3 *s3 = move->op->base.s3;

    move->call.headers[0] = (struct fb_s3_pair){"if-match", move->what->etag};
    move->call.header_count = *move->what->etag && !s3->deletes_any ? 1 : 0;
    submit(move, FB_S3_DELETE);
}

/* Whether the server is known to delete no other version than it is told to. */
static bool heeds_version(const struct fb_s3 *s3)
{
    return strstr(fb_s3_http_base(s3->http), ".amazonaws.com") && !s3->deletes_any;
}

static void begin_delete(struct move *move)
{
    move->call.key = move->what->key;
    move->call.header_count = 0;
    if (*move->what->etag && !heeds_version(move->op->base.s3))
        submit(move, FB_S3_HEAD);
    else
        send_delete(move);
}

/* The ETag of the answer is that one, which is quoted. */
static bool is_version(const struct fb_s3_call *call, const char *quoted)
{
    const char *etag = call->reply.etag;
    size_t len = strlen(etag);

    return strlen(quoted) == len + 2 && memcmp(quoted + 1, etag, len) == 0;
}

/* True: there is another request to come. */
static bool delete_goes_on(struct move *move)
{
    struct fb_s3_call *call = &move->call;
    struct fb_s3 *s3 = move->op->base.s3;

    if (call->method == FB_S3_HEAD) {
        if (call->result == 0 && !is_version(call, move->what->etag))
            call->result = -ESTALE;
        if (call->result < 0)
            return false;
        send_delete(move);
        return true;
    }
    /* A server that knows no conditions, and says so. */
    if (call->header_count > 0 && (call->status == 501 || call->status == 400) &&
        (call->result == -ENOTSUP || call->result == -EIO)) {
        s3->deletes_any = true;
        begin_delete(move);
        return true;
    }
    return false;
}

static void move_done(struct fb_s3_call *call)
{
    struct move *move = call->arg;
    struct rename_op *op = move->op;
    int r;

    if (op->deleting && delete_goes_on(move))
        return;
    r = call->result;
    if (r == 0 && !op->deleting && call->answer->document != FB_S3_DOC_COPY)
        r = -EIO;
    if (op->deleting && (r == -ENOENT || r == -ESTALE)) {
        op->overtaken |= r == -ESTALE;
        r = 0;
    }
    if (r < 0 && op->result == 0)
        op->result = r;
    move_free(move);
    send_moves(op);
}

static int begin_copy(struct move *move)
{
    struct rename_op *op = move->op;
    const char *key = move->what->key, *etag = move->what->etag;

    move->source = fb_s3_copy_source(op->base.s3, key);
    if (!move->source)
        return -ENOMEM;
    if (snprintf(move->key, sizeof move->key, "%s%s", op->to_key, key + strlen(op->from_key)) >
        FB_S3_KEY_MAX)
        return -ENAMETOOLONG;
    move->call.key = move->key;
    move->call.headers[0] = (struct fb_s3_pair){"x-amz-copy-source", move->source};
    move->call.headers[1] = (struct fb_s3_pair){"x-amz-copy-source-if-match", etag};
    move->call.header_count = *etag ? 2 : 1;
    move->call.works = true;
    submit(move, FB_S3_PUT);
    return 0;
}

static int send_move(struct rename_op *op, unsigned slot)
{
    struct move *move = fb_alloc(sizeof *move);
    int r = 0;

    if (!move)
        return -ENOMEM;
    move->op = op;
    move->what = &op->keys[op->next];
    move->slot = slot;
    op->moves[slot] = move;
    op->out++;
    if (op->deleting)
        begin_delete(move);
    else
        r = begin_copy(move);
    if (r < 0)
        move_free(move);
    else
        op->next++;
    return r;
}

static void renamed(struct rename_op *op)
{
    struct fb_s3 *s3 = op->base.s3;
    bool dir = op->from_key[strlen(op->from_key) - 1] == '/';

    if (op->result == 0 && dir)
        fb_s3_keep_moved(s3, op->from_key, op->to_key);
    if (op->result == 0)
        fb_s3_keep_parent(s3, op->from_key);
    if (op->result == 0 && op->overtaken)
        op->result = -ESTALE;
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

static int add_key(struct rename_op *op, const char *key, const char *etag)
{
    size_t len = strlen(key) + 1;
    struct moved *moved;

    if (op->count == op->room) {
        size_t room = op->room ? op->room * 2 : 16;
        struct moved *keys = realloc(op->keys, room * sizeof *keys);

        if (!keys)
            return -ENOMEM;
        op->keys = keys;
        op->room = room;
    }
    moved = &op->keys[op->count];
    moved->key = fb_alloc(len + strlen(etag) + 3);
    if (!moved->key)
        return -ENOMEM;
    memcpy(moved->key, key, len);
    if (*etag)
        sprintf(moved->key + len, "\"%s\"", etag);
    moved->etag = moved->key + len;
    op->count++;
    return 0;
}

static int tree_key(struct fb_s3_walk *walk, const char *key, const struct fb_s3_xml_entry *entry)
{
    struct rename_op *op = FB_CONTAINER_OF(walk, struct rename_op, walk);

    if (op->count >= TREE_MAX || entry->size > FB_S3_COPY_MAX)
        walk->error = -EXDEV;
    return add_key(op, key, entry->etag);
}

static void tree_restart(struct fb_s3_walk *walk)
{
    struct rename_op *op = FB_CONTAINER_OF(walk, struct rename_op, walk);

    while (op->count > op->page_from)
        free(op->keys[--op->count].key);
}

static void tree_listed(struct fb_s3_walk *walk, int result)
{
    struct rename_op *op = FB_CONTAINER_OF(walk, struct rename_op, walk);

    op->result = result < 0 ? result : walk->error;
    op->page_from = op->count;
    if (op->result == 0 && walk->more)
        fb_s3_walk_page(walk, op->base.job->deadline_ns);
    else
        send_moves(op);
}

static void list_tree(struct rename_op *op)
{
    op->walk = (struct fb_s3_walk){
        .s3 = op->base.s3,
        .prefix = op->from_key,
        .max_keys = LIST_KEYS,
        .key = tree_key,
        .restart = tree_restart,
        .done = tree_listed,
    };
    fb_s3_walk_page(&op->walk, op->base.job->deadline_ns);
}

static int target_key(struct fb_s3_walk *walk, const char *key, const struct fb_s3_xml_entry *entry)
{
    struct rename_op *op = FB_CONTAINER_OF(walk, struct rename_op, walk);

    (void)entry;
    op->occupied |= strcmp(key, op->to_key) != 0;
    return 0;
}

static void target_restart(struct fb_s3_walk *walk)
{
    struct rename_op *op = FB_CONTAINER_OF(walk, struct rename_op, walk);

    op->occupied = false;
}

static void target_listed(struct fb_s3_walk *walk, int result)
{
    struct rename_op *op = FB_CONTAINER_OF(walk, struct rename_op, walk);

    op->result = result;
    /* A key that we cannot name is one, too. */
    if (result == 0 && (op->occupied || walk->error < 0))
        op->result = walk->error == -EIO ? -EIO : -ENOTEMPTY;
    if (op->result < 0)
        send_moves(op);
    else
        list_tree(op);
}

static void look_into_target(struct rename_op *op)
{
    op->walk = (struct fb_s3_walk){
        .s3 = op->base.s3,
        .prefix = op->to_key,
        .max_keys = TARGET_KEYS,
        .key = target_key,
        .restart = target_restart,
        .done = target_listed,
    };
    fb_s3_walk_page(&op->walk, op->base.job->deadline_ns);
}

static int to_dir_keys(struct rename_op *op)
{
    const struct fb_source_job *job = op->base.job;
    const char *prefix = op->base.s3->prefix;
    ssize_t n = fb_s3_key_make(prefix, job->path, true, op->from_key);

    if (n >= 0)
        n = fb_s3_key_make(prefix, job->path2, true, op->to_key);
    /* What is being written below it would appear where it was opened. */
    if (n >= 0 && fb_s3_is_written_below(op->base.s3, op->from_key))
        return -EBUSY;
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
    if (!from_dir && op->from.attr.version.size > FB_S3_COPY_MAX)
        return -EXDEV;
    return 0;
}

static void rename_looked(struct rename_op *op)
{
    if (op->from_out || op->to_out)
        return;
    op->result = judge(op);
    if (op->result == 0 && !S_ISDIR(op->from.attr.mode))
        op->result = add_key(op, op->from_key, op->from.etag);
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
    if (n >= 0 && fb_s3_is_appearing(s3, op->from_key))
        n = -EBUSY;
    if (n >= 0) {
        int r = fb_s3_file_rename(s3, op->from_key, op->to_key, job->flags & RENAME_NOREPLACE);

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
    fb_s3_hold(s3, &op->hold, op->from_key);
    fb_s3_look(s3, &op->from);
    fb_s3_look(s3, &op->to);
}
