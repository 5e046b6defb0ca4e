/*
 * source/s3_journal_priv.h - what the files of the journal share.
 *
 *     s3_journal.c        the uploads under way: what is told of them, and asked
 *     s3_journal_write.c  the thread that puts it into the file
 *
 * A record is a line at the end of `queued`, and the upload it tells of is in the list, or no more.
 * The thread takes what is queued, a batch, appends it, and flushes it. What cannot be queued, or
 * could not be appended, is not lost: the next batch is the whole file anew, out of the list.
 */
#ifndef FB_SOURCE_S3_JOURNAL_PRIV_H
#define FB_SOURCE_S3_JOURNAL_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "core/lock.h"
#include "source/s3_journal.h"
#include "source/s3_text.h"

struct upload {
    struct fb_list link;
    uint64_t ticket;
    bool taken;       /* begun, or taken over, in this run */
    bool asked;       /* it has no id */
    uint64_t batch;   /* that its line is part of */
    int64_t since_ns; /* when it was queued */
    size_t len;
    char line[]; /* as in the file, with its end */
};

struct fb_s3_journal {
    _Atomic unsigned users;
    int dir_fd;
    char *name;

    struct fb_mutex lock; /* rank JOURNAL: all that follows, and never while the disk is at work */
    struct fb_list uploads;
    unsigned count;
    uint64_t last_ticket;
    uint64_t live_bytes;     /* of the uploads' lines */
    struct fb_s3_text text;  /* one line, as it is put together */
    struct fb_list watchers; /* of struct fb_s3_journal_watch */

    struct fb_cond cond;  /* there is something to write, or the end has come */
    struct fb_cond ended; /* the thread has */
    bool threaded;        /* the thread was needed, and is there */
    bool ending;          /* it is to write what is queued, and go */
    bool over;            /* it is gone */
    bool abandoned;       /* nobody waits for it: what there is, is its own */
    pthread_t thread;     /* while it is not abandoned */
    bool changed;         /* since the last batch was taken */
    bool flushes;         /* some of it is to be flushed */
    bool anew;            /* the file has to be written anew */
    struct fb_s3_text queued;
    uint64_t batch;        /* that is being gathered */
    uint64_t written;      /* the last one in the file, or that failed to get there */
    uint64_t flushed;      /* the same, on the disk */
    int64_t busy_since_ns; /* the disk has had one since then; 0: it has none */
    bool told;             /* that it takes too long */

    /* The thread's own. */
    int fd;
    struct fb_s3_text writing;
    uint64_t file_bytes;
    bool failed; /* the last batch did */
};

/* The file as it should be. NULL without memory. Under the lock. */
FB_MUST_CHECK char *fb_s3_journal_image(struct fb_s3_journal *journal, size_t *ret_size)
    FB_REQUIRES(&journal->lock);

/* Under the lock. -ENOMEM, -EAGAIN: there is no thread that could write it. */
FB_MUST_CHECK int fb_s3_journal_queue(struct fb_s3_journal *journal, const struct fb_s3_text *line)
    FB_REQUIRES(&journal->lock);

/* Ends the thread. False: it hangs, and frees the journal when it does no more. */
FB_MUST_CHECK bool fb_s3_journal_join(struct fb_s3_journal *journal, int64_t until_ns);

/* Nobody has it any more. */
void fb_s3_journal_free(struct fb_s3_journal *journal);

#endif
