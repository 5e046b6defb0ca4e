/*
 * What stands at a path. A bucket has keys only: `a/b` is a file when there is an object of that
 * key, and a directory when some key begins with `a/b/`. So two questions are sent side by side,
 * HEAD of the object and a listing of one key; a directory wins where both say yes. For a path that
 * was a file when last seen, the HEAD goes alone first.
 *
 * An empty directory is an object `a/b/` of no bytes, as most tools make it. One that became empty
 * because its last file was deleted through us is remembered here for as long as we run: programs
 * that remove a tree expect to find the directory that they just emptied.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/mem.h"
#include "source/s3_priv.h"

#define KEPT_MAX  65536u
#define FILLED_NS FB_NS_PER_S

/* ---- attributes ------------------------------------------------------------------------------ */

void fb_s3_file_attr(const struct fb_s3 *s3, const char *key, uint64_t size, int64_t mtime_ns,
                     const char *etag, struct fb_attr *ret_attr)
{
    *ret_attr = (struct fb_attr){
        .ino = fb_s3_ino(key, strlen(key)),
        .blocks = (size + 511) / 512,
        .atime_ns = mtime_ns,
        .mode = S_IFREG | (0666 & ~s3->umask),
        .nlink = 1,
        .uid = s3->uid,
        .gid = s3->gid,
    };
    ret_attr->version = fb_s3_version(size, mtime_ns, etag);
}

/* Its tag is new each time: a listing is believed for as long as the record is, and no longer. */
void fb_s3_dir_attr(const struct fb_s3 *s3, const char *key, struct fb_attr *ret_attr)
{
    *ret_attr = (struct fb_attr){
        .version = {.mtime_ns = s3->born_ns,
                    .ctime_ns = s3->born_ns,
                    .tag = {(uint64_t)fb_now_ns(), 0}},
        .ino = fb_s3_ino(key, strlen(key)),
        .atime_ns = s3->born_ns,
        .mode = S_IFDIR | (0777 & ~s3->umask),
        .nlink = 1,
        .uid = s3->uid,
        .gid = s3->gid,
    };
}

/* ---- directories that are kept --------------------------------------------------------------- */

/* Open addressing. Full: forgets all. */
struct fb_s3_kept {
    uint32_t count;
    char *slots[2 * KEPT_MAX]; /* keys */
};

static size_t kept_home(const struct fb_s3_kept *kept, const char *dir_key)
{
    return fb_s3_ino(dir_key, strlen(dir_key)) % FB_ARRAY_SIZE(kept->slots);
}

static char **kept_slot(struct fb_s3_kept *kept, const char *dir_key)
{
    size_t at = kept_home(kept, dir_key);

    while (kept->slots[at] && strcmp(kept->slots[at], dir_key) != 0)
        at = (at + 1) % FB_ARRAY_SIZE(kept->slots);
    return &kept->slots[at];
}

bool fb_s3_kept_has(const struct fb_s3 *s3, const char *dir_key)
{
    return s3->kept && *kept_slot(s3->kept, dir_key);
}

static void kept_clear(struct fb_s3_kept *kept)
{
    for (size_t i = 0; i < FB_ARRAY_SIZE(kept->slots); i++)
        free(fb_steal(kept->slots[i]));
    kept->count = 0;
}

void fb_s3_keep_dir(struct fb_s3 *s3, const char *dir_key)
{
    char **slot;

    if (!s3->kept)
        s3->kept = fb_alloc(sizeof *s3->kept);
    if (!s3->kept)
        return;
    if (s3->kept->count == KEPT_MAX)
        kept_clear(s3->kept);
    slot = kept_slot(s3->kept, dir_key);
    if (*slot)
        return;
    *slot = fb_strdup(dir_key);
    s3->kept->count += *slot != NULL;
}

void fb_s3_unkeep_dir(struct fb_s3 *s3, const char *dir_key)
{
    size_t size, hole, at;
    char **slot;

    if (!fb_s3_kept_has(s3, dir_key))
        return;
    size = FB_ARRAY_SIZE(s3->kept->slots);
    slot = kept_slot(s3->kept, dir_key);
    free(fb_steal(*slot));
    s3->kept->count--;
    hole = (size_t)(slot - s3->kept->slots);
    /* What was pushed past the hole moves up. */
    for (at = (hole + 1) % size; s3->kept->slots[at]; at = (at + 1) % size) {
        size_t home = kept_home(s3->kept, s3->kept->slots[at]);

        if ((at + size - home) % size < (at + size - hole) % size)
            continue;
        s3->kept->slots[hole] = fb_steal(s3->kept->slots[at]);
        hole = at;
    }
}

/* Some directory below `prefix` that is kept, or the one itself. */
static const char *kept_below(const struct fb_s3_kept *kept, const char *prefix)
{
    size_t len = strlen(prefix);

    for (size_t i = 0; kept && i < FB_ARRAY_SIZE(kept->slots); i++) {
        if (kept->slots[i] && strncmp(kept->slots[i], prefix, len) == 0)
            return kept->slots[i];
    }
    return NULL;
}

void fb_s3_keep_moved(struct fb_s3 *s3, const char *from, const char *to)
{
    const char *found;

    if (strncmp(to, from, strlen(from)) == 0)
        return;
    /* From the front each time, as they move about; there are few. */
    while ((found = kept_below(s3->kept, from))) {
        char moved[FB_S3_KEY_MAX + 1];
        int n = snprintf(moved, sizeof moved, "%s%s", to, found + strlen(from));

        fb_s3_unkeep_dir(s3, found);
        if (n >= 0 && (size_t)n < sizeof moved)
            fb_s3_keep_dir(s3, moved);
    }
}

void fb_s3_kept_free(struct fb_s3 *s3)
{
    if (s3->kept)
        kept_clear(s3->kept);
    free(fb_steal(s3->kept));
}

/* ---- directories that were just written to --------------------------------------------------- */

/* The kernel asks for a directory's attributes after each file that is made in it. What is asked
 * for is only whether it is there: two requests, of which the answer is known. */

void fb_s3_filled(struct fb_s3 *s3, const char *key)
{
    const char *slash = strrchr(key, '/');
    struct fb_s3_filled *f = &s3->filled[s3->filled_at % FB_S3_FILLED_MAX];

    if (!slash)
        return;
    s3->filled_at++;
    f->at_ns = fb_now_ns();
    memcpy(f->key, key, (size_t)(slash + 1 - key));
    f->key[slash + 1 - key] = '\0';
}

void fb_s3_filled_forget(struct fb_s3 *s3)
{
    memset(s3->filled, 0, sizeof s3->filled);
}

static bool answer_filled(struct fb_s3 *s3, struct fb_source_job *job)
{
    char key[FB_S3_KEY_MAX + 1];
    ssize_t len = fb_s3_key_make(s3->prefix, job->path, true, key);
    int64_t now_ns = fb_now_ns();

    for (unsigned i = 0; len > 0 && i < FB_S3_FILLED_MAX; i++) {
        const struct fb_s3_filled *f = &s3->filled[i];

        if (f->at_ns == 0 || now_ns - f->at_ns > FILLED_NS || strcmp(f->key, key) != 0)
            continue;
        fb_s3_dir_attr(s3, key, &job->attr);
        job->age_ns = now_ns - f->at_ns;
        fb_source_job_finish(job, 0);
        return true;
    }
    return false;
}

/* ---- looking --------------------------------------------------------------------------------- */

static void answer(struct fb_s3_look *look, int result)
{
    look->result = result;
    look->done(look);
}

static int of_head(struct fb_s3_look *look)
{
    const struct fb_s3_headers *reply = &look->head.reply;

    if (look->head.result < 0)
        return look->head.result;
    fb_s3_file_attr(look->s3, look->key, reply->length, reply->mtime_ns, reply->etag, &look->attr);
    memcpy(look->etag, reply->etag, sizeof look->etag);
    return 0;
}

static void conclude(struct fb_s3_look *look)
{
    bool has_head = *look->path != '\0';
    int head = has_head ? of_head(look) : -ENOENT, list = look->list.result;

    if (list == 0 && !has_head)
        atomic_store_explicit(&look->s3->bare, *look->dir_key && !look->found_key,
                              memory_order_relaxed);
    if (list == 0 && (look->found_key || !has_head || fb_s3_kept_has(look->s3, look->dir_key))) {
        fb_s3_dir_attr(look->s3, look->dir_key, &look->attr);
        answer(look, 0);
    } else if (head == 0 && (list == 0 || list == -EACCES)) {
        /* Who may read but not list sees files. */
        answer(look, 0);
    } else if (list < 0) {
        answer(look, list == -ENOENT ? -EIO : list);
    } else {
        answer(look, head);
    }
}

static void send_list(struct fb_s3_look *look);

static void head_done(struct fb_s3_call *call)
{
    struct fb_s3_look *look = call->arg;

    look->head_out = false;
    if (look->list_out)
        return;
    if (!look->is_file) {
        conclude(look);
    } else if (call->result == 0) {
        answer(look, of_head(look));
    } else if ((call->result == -ENOENT || call->result == -EACCES) && look->dir_key[0]) {
        look->is_file = false;
        send_list(look);
    } else {
        answer(look, call->result);
    }
}

static void list_done(struct fb_s3_call *call)
{
    struct fb_s3_look *look = call->arg;

    look->list_out = false;
    /* A page without a key of a listing that goes on, or with keys that nobody asked for: who
     * knows. */
    if (call->result == 0 && (look->foreign || (!look->found_key && call->answer->truncated)))
        call->result = -EIO;
    if (!look->head_out)
        conclude(look);
}

static int list_entry(struct fb_s3_call *call, const struct fb_s3_xml_entry *entry)
{
    struct fb_s3_look *look = call->arg;
    size_t len = strlen(look->dir_key);

    if (entry->key_len >= len && memcmp(entry->key, look->dir_key, len) == 0)
        look->found_key = true;
    else
        look->foreign = true;
    return 0;
}

static void list_restart(struct fb_s3_call *call)
{
    struct fb_s3_look *look = call->arg;

    look->found_key = look->foreign = false;
}

/* A length that is missing is not 0, and without an ETag there is no version. */
static int head_check(struct fb_s3_call *call)
{
    return call->reply.has_length && call->reply.etag[0] ? 0 : -EAGAIN;
}

static void send_head(struct fb_s3_look *look)
{
    look->head = (struct fb_s3_call){
        .method = FB_S3_HEAD,
        .key = look->key,
        .deadline_ns = look->deadline_ns,
        .urgent = look->urgent,
        .check = head_check,
        .done = head_done,
        .arg = look,
    };
    look->head_out = true;
    fb_s3_http_submit(look->s3->http, &look->head);
}

static void send_list(struct fb_s3_look *look)
{
    look->list = (struct fb_s3_call){
        .method = FB_S3_GET,
        .key = "",
        .query = {{"list-type", "2"}, {"max-keys", "1"}, {"prefix", look->dir_key}},
        .query_count = 3,
        .entry = list_entry,
        .restart = list_restart,
        .deadline_ns = look->deadline_ns,
        .urgent = look->urgent,
        .done = list_done,
        .arg = look,
    };
    look->list_out = true;
    fb_s3_http_submit(look->s3->http, &look->list);
}

void fb_s3_look(struct fb_s3 *s3, struct fb_s3_look *look)
{
    ssize_t n = fb_s3_key_make(s3->prefix, look->path, false, look->key);

    look->s3 = s3;
    if (n < 0) {
        /* What cannot be a key is not there. */
        answer(look, n == -EINVAL ? -ENOENT : (int)n);
        return;
    }
    /* The longest key there can be is no directory's: nothing fits below it. */
    if (fb_s3_key_make(s3->prefix, look->path, true, look->dir_key) < 0) {
        look->dir_key[0] = '\0';
        look->is_file = true;
    }
    if (*look->path)
        send_head(look);
    else
        look->is_file = false;
    if (!look->is_file)
        send_list(look);
}

void fb_s3_look_cancel(struct fb_s3_look *look)
{
    if (look->head_out)
        fb_s3_http_cancel(look->s3->http, &look->head);
    if (look->list_out)
        fb_s3_http_cancel(look->s3->http, &look->list);
    look->head_out = look->list_out = false;
}

/* ---- STAT ------------------------------------------------------------------------------------ */

struct stat_op {
    struct fb_s3_op base;
    struct fb_s3_look look;
    struct fb_s3_waiter waiter; /* for a listing */
};

static void stat_done(struct fb_s3_look *look)
{
    struct stat_op *op = FB_CONTAINER_OF(look, struct stat_op, look);
    const struct fb_version *expect = op->base.job->expect;
    int result = look->result;

    if (result == -ENOENT ||
        (expect && result == 0 && !fb_version_equal(expect, &look->attr.version)))
        fb_s3_seen_wrong(op->base.s3, op->base.job->path);
    if (result == -ENOENT)
        result = fb_s3_pending_attr(op->base.s3, op->base.job->path, &look->attr);
    op->base.job->attr = look->attr;
    fb_s3_op_end(&op->base, result);
}

static void stat_cancel(struct fb_s3_op *base)
{
    struct stat_op *op = FB_CONTAINER_OF(base, struct stat_op, base);

    fb_list_remove(&op->waiter.link);
    fb_s3_look_cancel(&op->look);
    fb_s3_op_end(base, -ETIMEDOUT);
}

static void listed(struct fb_s3_waiter *waiter, bool is_listed)
{
    struct stat_op *op = FB_CONTAINER_OF(waiter, struct stat_op, waiter);

    if (is_listed && fb_s3_seen_find(op->base.s3, op->base.job))
        fb_s3_op_end(&op->base, 0);
    else
        fb_s3_look(op->base.s3, &op->look);
}

void fb_s3_stat(struct fb_s3 *s3, struct fb_source_job *job)
{
    bool from_listing = !job->handle && !job->expect && !job->urgent && job->max_age_ns > 0;
    struct stat_op *op;

    if (job->handle) {
        fb_source_job_finish(job, fb_s3_handle_attr(s3, job->handle, &job->attr));
        return;
    }
    if (!job->urgent && !job->expect && answer_filled(s3, job))
        return;
    if (from_listing && fb_s3_seen_find(s3, job)) {
        fb_source_job_finish(job, 0);
        return;
    }
    op = fb_s3_op_new(s3, job, sizeof *op, stat_cancel);
    if (!op)
        return;
    op->look = (struct fb_s3_look){
        .path = job->path,
        .is_file = job->expect != NULL,
        .urgent = job->urgent,
        /* A probe's own is over long before a slow server's answer comes. */
        .deadline_ns = job->urgent ? fb_now_ns() + s3->timeout_ns : job->deadline_ns,
        .done = stat_done,
    };
    fb_list_init(&op->waiter.link);
    op->waiter.done = listed;
    if (!from_listing || !fb_s3_seen_wait(s3, job->path, &op->waiter))
        fb_s3_look(s3, &op->look);
}
