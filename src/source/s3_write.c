/*
 * WRITE, and what goes with it: the buffer of a file that is being written (s3_file.h).
 *
 * The buffer holds the bytes [sent, size). Within it a program may write where and as often as it
 * likes; what was sent cannot be changed any more: such a write is refused (ENOTSUP), and with it
 * the file. A write that finds no room waits until a part is gone.
 */
#include <errno.h>
#include <string.h>

#include "core/log.h"
#include "core/mem.h"
#include "source/s3_file.h"
#include "source/s3_parts.h"

#define BUFFER_FIRST (64u << 10)
/* Beyond it a file that has parts on their way waits for them. */
#define BUFFERED_MAX  (64ULL << 20)
#define PARTS_OUT_MAX 4u

struct write_op {
    struct fb_s3_op base;
    struct fb_list link; /* among those that wait */
    uint64_t offset, done;
    uint64_t behind; /* the commit that was under way, by its number; 0: none was */
};

static uint64_t part_bytes(const struct fb_s3_file *file)
{
    return fb_s3_part_size(file->part_count + (file->copy_old ? 2 : 1), file->s3->part_bytes,
                           FB_S3_PART_CAP);
}

int fb_s3_file_make_room(struct fb_s3_file *file, size_t need)
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
static int flush_full(struct fb_s3_file *file)
{
    int r;

    if (file->size - file->sent < part_bytes(file))
        return 0;
    if (file->part_count >= FB_S3_PARTS_MAX)
        return -EFBIG;
    if (file->upload == FB_S3_UPLOAD_NONE)
        fb_s3_upload_begin(file);
    if (fb_s3_upload_is_beginning(file))
        return 1;
    if (file->copy_old) {
        r = fb_s3_upload_copy(file);
        if (r < 0)
            return r;
    }
    if (file->parts_out >= PARTS_OUT_MAX ||
        (file->parts_out > 0 && file->s3->upload_bytes > BUFFERED_MAX))
        return 1;
    r = fb_s3_upload_part(file);
    return r < 0 ? r : 0;
}

/* As much of [offset, offset + length) as there is room for; NULL: zeros. The bytes taken, 0 when
 * it must wait, or negative errno. */
static int64_t put(struct fb_s3_file *file, uint64_t offset, const char *data, uint64_t length)
{
    uint64_t most;
    int r;

    if (file->error < 0)
        return file->error;
    if (file->upload == FB_S3_UPLOAD_OVER) {
        fb_log_warn("%s: written after fsync had completed it; open it anew", file->key);
        return -EIO;
    }
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
    r = fb_s3_file_make_room(file, (size_t)(offset + length - file->sent));
    if (r < 0)
        return r;
    if (data)
        memcpy(file->buffer + (offset - file->sent), data, (size_t)length);
    else
        memset(file->buffer + (offset - file->sent), 0, (size_t)length);
    if (offset + length > file->size)
        file->size = offset + length;
    fb_s3_file_touch(file);
    return (int64_t)length;
}

/* A hole before `offset` is filled with zeros. True: the way is free; false: wait, or *ret_error.
 * */
static bool fill_hole(struct fb_s3_file *file, uint64_t offset, int *ret_error)
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

static bool is_behind(const struct fb_s3_file *file, const struct write_op *op)
{
    return file->commit && op->behind == file->commits;
}

bool fb_s3_file_is_awaited(const struct fb_s3_file *file)
{
    return !fb_list_empty(&file->writes) &&
           !is_behind(file, FB_LIST_ENTRY(file->writes.next, struct write_op, link));
}

/* True when it has ended. */
static bool go_on_writing(struct fb_s3_file *file, struct write_op *op)
{
    struct fb_source_job *job = op->base.job;
    const char *data;
    uint64_t left;
    int error = 0;

    /* What came before a commit is part of it, and what came after waits for its end. */
    if (is_behind(file, op))
        return false;
    if (op->done == 0)
        op->offset = job->flags & FB_WRITE_APPEND ? file->size : job->offset;
    if (job->op == FB_SOURCE_SETATTR) {
        if (fill_hole(file, job->attr.version.size, &error)) {
            fb_s3_file_live_attr(file, &job->attr);
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
    /* Without it the file is not what the program meant, whatever comes after: it does not appear.
     */
    if (error == -ENOTSUP)
        fb_s3_file_fail(file, error);
    fb_s3_op_end(&op->base, error);
    return true;
}

static void write_cancel(struct fb_s3_op *base)
{
    struct write_op *op = FB_CONTAINER_OF(base, struct write_op, base);
    struct fb_s3_file *file = fb_s3_file_at(base->job->handle);

    /* Part of it may be in the buffer: what comes of the file nobody can tell. */
    fb_s3_file_fail(file, -EIO);
    fb_list_remove(&op->link);
    fb_s3_op_end(base, -ETIMEDOUT);
    fb_s3_file_pump(file);
}

static void begin_write(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct fb_s3_file *file = fb_s3_file_at(job->handle);
    struct write_op *op = fb_s3_op_new(s3, job, sizeof *op, write_cancel);

    if (!op)
        return;
    fb_list_init(&op->link);
    op->behind = file->commit ? file->commits : 0;
    if (!fb_list_empty(&file->writes) || !go_on_writing(file, op))
        fb_list_push_back(&file->writes, &op->link);
}

void fb_s3_write(struct fb_s3 *s3, struct fb_source_job *job)
{
    /* Who was killed writes no more: another has the file, too. */
    fb_s3_file_at(job->handle)->killed = false;
    begin_write(s3, job);
}

int fb_s3_file_truncate(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct fb_s3_file *file = fb_s3_file_at(job->handle);
    uint64_t size = job->attr.version.size;

    if (size > file->size) {
        begin_write(s3, job);
        return FB_S3_BEGUN;
    }
    if (file->error < 0)
        return file->error;
    /* It goes by what the file is now. */
    if (file->commit)
        return -ENOTSUP;
    if (size == 0 && file->upload == FB_S3_UPLOAD_NONE) {
        /* All of it is to be new. */
        file->sent = 0;
        file->copy_old = false;
    }
    if (size < file->sent)
        return -ENOTSUP;
    if (file->dirty || size != file->size)
        fb_s3_file_touch(file);
    file->size = size;
    fb_s3_file_live_attr(file, &job->attr);
    return 0;
}

void fb_s3_pread(struct fb_s3 *s3, struct fb_source_job *job)
{
    struct fb_s3_file *file = fb_s3_file_at(job->handle);
    uint64_t at = job->offset;

    if (at < file->sent && at < file->size && !file->dirty && file->existed && !file->replaced) {
        fb_s3_read_object(s3, job, file->key, &file->attr.version);
        return;
    }
    if (at < file->sent) {
        fb_source_job_finish(job, file->replaced && !file->dirty ? -ESTALE : -ENOTSUP);
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

/* Something has happened: whoever waits for it goes on. */
void fb_s3_file_pump(struct fb_s3_file *file)
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
        fb_s3_commit_step(file);
}

void fb_s3_pump_files(struct fb_s3 *s3)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &s3->files) {
        struct fb_s3_file *file = FB_LIST_ENTRY(it, struct fb_s3_file, link);

        if (!fb_list_empty(&file->writes) || file->commit)
            fb_s3_file_pump(file);
    }
}
