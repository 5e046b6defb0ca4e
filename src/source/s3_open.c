/*
 * OPEN and CLOSE of files for writing (s3_file.h), and what others do to a file meanwhile.
 *
 * An object that is there and opened without O_TRUNC is loaded when it fits into a part; of a
 * longer one the server copies the old bytes into the new object, so that it can be appended to.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/mem.h"
#include "source/s3_file.h"

struct fb_s3_file *fb_s3_file_at(const struct fb_source_handle *handle)
{
    return FB_CONTAINER_OF(handle, struct fb_s3_file, base);
}

struct fb_source_handle *fb_s3_file_of(struct fb_list *link)
{
    return &FB_LIST_ENTRY(link, struct fb_s3_file, link)->base;
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

static struct fb_s3_file *find(const struct fb_s3 *s3, const char *key)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &s3->files) {
        struct fb_s3_file *file = FB_LIST_ENTRY(it, struct fb_s3_file, link);

        if (!file->unlinked && strcmp(file->key, key) == 0)
            return file;
    }
    return NULL;
}

/* The file that will be the first object of that key. One that is just being opened may turn out to
 * be there already. */
static struct fb_s3_file *find_new(const struct fb_s3 *s3, const char *key)
{
    struct fb_s3_file *file = find(s3, key);

    return file && file->opened && !file->existed ? file : NULL;
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* Not a version that anything may be kept under: it changes with every write. */
void fb_s3_file_live_attr(const struct fb_s3_file *file, struct fb_attr *ret_attr)
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
    fb_s3_file_live_attr(fb_s3_file_at(handle), ret_attr);
    return 0;
}

int fb_s3_pending_attr(const struct fb_s3 *s3, const char *path, struct fb_attr *ret_attr)
{
    char key[FB_S3_KEY_MAX + 1];
    const struct fb_s3_file *file;

    if (fb_s3_key_make(s3->prefix, path, false, key) < 0)
        return -ENOENT;
    file = find_new(s3, key);
    if (!file)
        return -ENOENT;
    fb_s3_file_live_attr(file, ret_attr);
    return 0;
}

/* ---- opening and closing --------------------------------------------------------------------- */

struct open_op {
    struct fb_s3_op base;
    struct fb_s3_file *file;
    struct fb_s3_look look;
    bool looking;
    struct fb_s3_call load;
    bool loading;
    struct iovec iov;
    char match[FB_S3_ETAG_MAX + 3];
};

static void file_free(struct fb_s3_file *file)
{
    fb_list_remove(&file->link);
    file->s3->upload_bytes -= file->room;
    fb_s3_file_drop_whole(file);
    free(file->buffer);
    free(file->body);
    free(file->etags);
    free(file);
}

static void open_end(struct open_op *op, int result)
{
    struct fb_s3_file *file = op->file;

    if (result == 0) {
        file->opened = true;
        op->base.job->handle = &file->base;
        op->base.job->direct = true;
        fb_s3_file_live_attr(file, &op->base.job->attr);
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
    open_end(op, call->result);
}

/* It will be put again, with what is changed: no byte of it may be wrong. */
static int load_check(struct fb_s3_call *call)
{
    const struct open_op *op = call->arg;

    return fb_s3_check_load(call, op->file->etag, op->file->size);
}

/* What is there is to be changed or added to. */
static void load(struct open_op *op)
{
    struct fb_s3_file *file = op->file;

    file->size = file->attr.version.size;
    if (file->size > file->s3->part_bytes) {
        file->sent = file->size;
        file->copy_old = true;
        open_end(op, file->size > FB_S3_COPY_MAX ? -EFBIG : 0);
        return;
    }
    if (file->size == 0 || fb_s3_file_make_room(file, (size_t)file->size) < 0) {
        open_end(op, file->size == 0 ? 0 : -ENOMEM);
        return;
    }
    op->iov = (struct iovec){.iov_base = file->buffer, .iov_len = (size_t)file->size};
    snprintf(op->match, sizeof op->match, "\"%s\"", file->etag);
    op->load = (struct fb_s3_call){
        .method = FB_S3_GET,
        .key = file->key,
        .headers = {{"if-match", op->match}, {"x-amz-checksum-mode", "ENABLED"}},
        .header_count = 2,
        .sink = &op->iov,
        .sink_count = 1,
        .is_whole = true,
        .check = load_check,
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
    struct fb_s3_file *file = op->file;
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
        file->exclusive = flags & O_EXCL;
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
    struct fb_s3_file *file = fb_alloc(sizeof *file);
    struct open_op *op;
    ssize_t n;

    if (!file) {
        fb_source_job_finish(job, -ENOMEM);
        return;
    }
    file->s3 = s3;
    file->process = fb_task_process(job->caller.pid);
    fb_list_init(&file->link);
    fb_list_init(&file->record);
    fb_list_init(&file->parts);
    fb_list_init(&file->writes);
    fb_list_init(&file->later);
    n = fb_s3_key_make(s3->prefix, job->path, false, file->key);
    /* It would appear where its directory was. */
    if (n >= 0 && fb_s3_is_moving(s3, file->key))
        n = -EBUSY;
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
    struct fb_s3_file *file = fb_s3_file_at(handle);

    (void)s3;
    fb_s3_file_fail(file, -ESHUTDOWN);
    file_free(file);
}

/* ---- what others do to a file that is being written ------------------------------------------ */

void fb_s3_file_touch(struct fb_s3_file *file)
{
    file->dirty = file->touched = true;
    file->overtaken = false;
}

/* Who has opened a file to replace it, and written nothing yet, has emptied it at the open: what
 * was written after that stays. */
void fb_s3_file_appeared(struct fb_s3 *s3, const char *key)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &s3->files) {
        struct fb_s3_file *file = FB_LIST_ENTRY(it, struct fb_s3_file, link);

        if (strcmp(file->key, key) != 0)
            continue;
        file->existed = true;
        file->overtaken |= file->opened && file->dirty && !file->touched && !file->commit;
    }
}

bool fb_s3_file_unlink(struct fb_s3 *s3, const char *key)
{
    struct fb_s3_file *file = find(s3, key);
    bool any = file != NULL;

    for (; file; file = find(s3, key))
        file->unlinked = true;
    return any;
}

bool fb_s3_is_written_below(const struct fb_s3 *s3, const char *dir_key)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &s3->files) {
        const struct fb_s3_file *file = FB_LIST_ENTRY(it, struct fb_s3_file, link);

        if (!file->unlinked && strncmp(file->key, dir_key, strlen(dir_key)) == 0)
            return true;
    }
    return false;
}

/* The path of a job leads to where its key lies, below the same prefix. */
static bool is_put(const struct fb_s3 *s3, const struct fb_source_job *job, const char *key)
{
    return (job->op == FB_SOURCE_MKNOD ||
            (job->op == FB_SOURCE_SETATTR && (job->set & FB_SET_SIZE))) &&
           job->path && fb_s3_is_at_or_below(job->path, key + strlen(s3->prefix));
}

bool fb_s3_is_appearing(const struct fb_s3 *s3, const char *key)
{
    for (const struct fb_list *it = s3->ops.next; it != &s3->ops; it = it->next) {
        const struct fb_source_job *job = FB_LIST_ENTRY(it, struct fb_s3_op, link)->job;

        if (is_put(s3, job, key) || (job->op == FB_SOURCE_COMMIT &&
                                     fb_s3_is_at_or_below(fb_s3_file_at(job->handle)->key, key)))
            return true;
    }
    return false;
}

int fb_s3_file_rename(struct fb_s3 *s3, const char *from, const char *to, bool exclusive)
{
    struct fb_s3_file *file = find_new(s3, from);

    if (!file)
        return -ENOENT;
    if (file->upload != FB_S3_UPLOAD_NONE || file->commit)
        return -EBUSY;
    snprintf(file->key, sizeof file->key, "%s", to);
    file->exclusive = exclusive; /* else a rename replaces what it finds */
    return 0;
}
