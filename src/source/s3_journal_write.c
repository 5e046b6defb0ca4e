/*
 * The thread that puts the journal into its file. It alone touches the disk once the journal is
 * open, and holds no lock while it does: whoever begins or ends an upload goes on at once, however
 * long the disk takes.
 *
 *     records ──► queued ──► batch ──► appended ──► flushed ──► the next one
 *                    │ too much, or failed: the file anew, out of the list of uploads
 *
 * A disk that hangs holds the thread; what is queued meanwhile stays below QUEUED_MAX. When the
 * journal is closed it is waited for, but not for ever: then it is left behind, with the journal.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"
#include "io/durable.h"
#include "source/s3_journal_priv.h"

#define QUEUED_MAX (64u << 10)

struct batch {
    uint64_t no;
    bool flushes;
    bool anew;
    char *image; /* of the whole file; else the lines are in journal->writing */
    size_t size;
};

/* ---- the file -------------------------------------------------------------------------------- */

static int write_anew(struct fb_s3_journal *journal, const struct batch *batch)
{
    int r;

    if (!batch->image)
        return -ENOMEM;
    r = fb_durable_write(journal->dir_fd, journal->name, batch->image, batch->size);
    if (r < 0)
        return r;
    fb_closep(&journal->fd);
    journal->fd =
        openat(journal->dir_fd, journal->name, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
    journal->file_bytes = batch->size;
    return journal->fd < 0 ? -errno : 0;
}

static int append(struct fb_s3_journal *journal)
{
    const char *data = journal->writing.data;
    size_t left = journal->writing.len;

    while (left > 0) {
        ssize_t n = write(journal->fd, data, left);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        data += n;
        left -= (size_t)n;
    }
    journal->file_bytes += journal->writing.len;
    return 0;
}

/* ---- batches --------------------------------------------------------------------------------- */

static void take(struct fb_s3_journal *journal, struct batch *ret_batch) FB_REQUIRES(&journal->lock)
{
    struct fb_s3_text lines = journal->queued;

    *ret_batch = (struct batch){
        .no = journal->batch++,
        .flushes = journal->flushes,
        .anew = journal->anew || journal->fd < 0 ||
                journal->file_bytes > 2 * journal->live_bytes + FB_S3_JOURNAL_ROOM,
    };
    if (ret_batch->anew)
        ret_batch->image = fb_s3_journal_image(journal, &ret_batch->size);
    journal->queued = journal->writing;
    journal->writing = lines;
    fb_s3_text_clear(&journal->queued);
    journal->changed = journal->flushes = journal->anew = false;
    journal->busy_since_ns = fb_now_ns();
}

static void tell(struct fb_s3_journal *journal) FB_REQUIRES(&journal->lock)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &journal->watchers) {
        struct fb_s3_journal_watch *watch = FB_LIST_ENTRY(it, struct fb_s3_journal_watch, link);

        watch->moved(watch->arg);
    }
}

static void written(struct fb_s3_journal *journal, const struct batch *batch)
{
    fb_mutex_lock(&journal->lock);
    journal->written = batch->no;
    tell(journal);
    fb_mutex_unlock(&journal->lock);
}

/* What failed is part of the next batch; nobody waits for it, since that may fail as well. */
static void batch_end(struct fb_s3_journal *journal, const struct batch *batch, int result)
    FB_REQUIRES(&journal->lock)
{
    journal->written = journal->flushed = batch->no;
    journal->busy_since_ns = 0;
    journal->told = false;
    journal->anew |= result < 0;
    if (result < 0 && !journal->failed)
        fb_log_warn("cannot write to the journal of uploads %s: %s; parts of an upload that a "
                    "crash cuts off may stay in its bucket",
                    journal->name, fb_strerror(result));
    journal->failed = result < 0;
    tell(journal);
}

static void write_batch(struct fb_s3_journal *journal) FB_REQUIRES(&journal->lock)
{
    struct batch batch;
    int r;

    take(journal, &batch);
    fb_mutex_unlock(&journal->lock);
    r = batch.anew ? write_anew(journal, &batch) : append(journal);
    if (r == 0 && !batch.anew && batch.flushes) {
        written(journal, &batch);
        r = fdatasync(journal->fd) < 0 ? -errno : 0;
    }
    free(batch.image);
    fb_mutex_lock(&journal->lock);
    batch_end(journal, &batch, r);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void *writer(void *arg)
{
    struct fb_s3_journal *journal = arg;
    bool abandoned;

    fb_mutex_lock(&journal->lock);
    while (!journal->abandoned && (journal->changed || !journal->ending)) {
        if (journal->changed)
            write_batch(journal);
        else
            fb_cond_wait(&journal->cond, &journal->lock, FB_NEVER_NS);
    }
    fb_mutex_unlock(&journal->lock);
    fb_closep(&journal->fd); /* to close it, too, may take for ever */
    fb_mutex_lock(&journal->lock);
    journal->over = true;
    abandoned = journal->abandoned;
    fb_cond_signal(&journal->ended);
    fb_mutex_unlock(&journal->lock);
    if (abandoned)
        fb_s3_journal_free(journal);
    return NULL;
}

int fb_s3_journal_queue(struct fb_s3_journal *journal, const struct fb_s3_text *line)
{
    int r;

    if (!journal->threaded) {
        r = fb_thread_start(&journal->thread, "fb-journal", writer, journal);
        if (r < 0)
            return r;
        journal->threaded = true;
    }
    if (!fb_s3_text_ok(line) || journal->queued.len + line->len > QUEUED_MAX)
        journal->anew = true;
    if (!journal->anew)
        fb_s3_text_add(&journal->queued, line->data, line->len);
    if (journal->anew || !fb_s3_text_ok(&journal->queued)) {
        journal->anew = true;
        fb_s3_text_clear(&journal->queued);
    }
    journal->changed = true;
    fb_cond_signal(&journal->cond);
    return 0;
}

bool fb_s3_journal_join(struct fb_s3_journal *journal, int64_t until_ns)
{
    bool in_time = true, over;

    if (!journal->threaded)
        return true;
    fb_mutex_lock(&journal->lock);
    journal->ending = true;
    fb_cond_signal(&journal->cond);
    while (!journal->over && in_time)
        in_time = fb_cond_wait(&journal->ended, &journal->lock, until_ns);
    over = journal->over;
    journal->abandoned = !over;
    if (!over)
        pthread_detach(journal->thread);
    fb_mutex_unlock(&journal->lock);
    if (over)
        pthread_join(journal->thread, NULL);
    return over;
}
