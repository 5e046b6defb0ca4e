/*
 * source/s3_journal.h - which multipart uploads are under way, on disk.
 *
 * The parts of an upload that is neither completed nor aborted stay in the bucket, unseen and paid
 * for. So each upload is written down before its first part is sent, and struck out when it has
 * ended; what a killed daemon left is found at the next start, aborted, and struck out then. That
 * one is asked for is written down before, since a crash may come before the answer with its id:
 * then those of that key that were begun at that time are looked for.
 *
 *     forebay-uploads 1 CHECKSUM
 *     ask TICKET ENDPOINT BUCKET KEY SECONDS CHECKSUM
 *     begin TICKET ENDPOINT BUCKET KEY UPLOAD-ID CHECKSUM     names with %XX, whatever their bytes
 *     end TICKET CHECKSUM
 *
 * Lines are only appended. Each has a checksum of its own: one that was torn, or damaged, is passed
 * over and harms no other. A begin is in the file when the call returns, so it outlives the process
 * however that ends; a thread flushes it to disk, as whoever asks has other things to do than to
 * wait for one. A machine that loses power within these milliseconds may leave an upload behind. An
 * end is not flushed: if it is lost, an upload is aborted that does not exist any more, which S3
 * answers with NoSuchUpload. The file is written anew, with the uploads still under way, at every
 * start and when most of it is struck out; then, and when it is made, the call waits for the disk.
 *
 * Thread-safe. One process at a time uses a journal.
 */
#ifndef FB_SOURCE_S3_JOURNAL_H
#define FB_SOURCE_S3_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"

#define FB_S3_UPLOADS_MAX       1024        /* under way at once */
#define FB_S3_JOURNAL_MAX       (64u << 20) /* bytes of the file */
#define FB_S3_JOURNAL_ROOM      (1u << 20)  /* struck out bytes that are let be */
#define FB_S3_JOURNAL_FIELD_MAX 1024        /* bytes of a name */

struct fb_s3_upload {
    const char *endpoint;
    const char *bucket;
    const char *key;
    const char *id;  /* NULL: not known yet, it is only asked for */
    int64_t asked_s; /* then: when, by our clock */
};

/* An upload that was begun and not ended. True: the callee takes it over, and ends it by its ticket
 * once it is aborted. */
typedef bool fb_s3_upload_fn(void *arg, uint64_t ticket, const struct fb_s3_upload *upload);

struct fb_s3_journal;

/* A file that does not exist is an empty one. A sentence when it cannot be read or written. */
FB_MUST_CHECK int fb_s3_journal_open(int dir_fd, const char *name,
                                     struct fb_s3_journal **ret_journal, struct fb_error *err);
/* One more who closes it: what hangs may outlive who opened it. Takes and returns NULL. */
struct fb_s3_journal *fb_s3_journal_share(struct fb_s3_journal *journal);
void fb_s3_journal_close(struct fb_s3_journal *journal); /* takes NULL; the last one's counts */

/* Tells of the uploads that an earlier run left and nobody has taken over yet; it takes the keys of
 * their bucket to abort them. Under the journal's lock. -ENOMEM. */
FB_MUST_CHECK int fb_s3_journal_left(struct fb_s3_journal *journal, fb_s3_upload_fn *left,
                                     void *arg);

/* -EAGAIN: FB_S3_UPLOADS_MAX are under way. -ENAMETOOLONG. -EIO, -ENOSPC and so on: it may or may
 * not be on disk. */
FB_MUST_CHECK int fb_s3_journal_begin(struct fb_s3_journal *journal,
                                      const struct fb_s3_upload *upload, uint64_t *ret_ticket);
void fb_s3_journal_end(struct fb_s3_journal *journal, uint64_t ticket); /* one not known: nothing */

/* One of that id is under way. */
FB_MUST_CHECK bool fb_s3_journal_knows(struct fb_s3_journal *journal, const char *id);

/* Uploads under way. */
unsigned fb_s3_journal_count(struct fb_s3_journal *journal);

#endif
