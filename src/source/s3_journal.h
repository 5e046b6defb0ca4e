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
 * over and harms no other. One thread does it, for all buckets: a call returns at once, and its
 * record is on its way, behind those before it. Whoever is about to make what it tells of waits for
 * it (fb_s3_journal_until): to ask for an upload, until that is in the file, which outlives the
 * process however that ends; to send a part, until the id is on the disk, which outlives the
 * machine. A disk that takes too long, or fails, is not waited for: then a crash may leave parts
 * behind, and the log says so. An end is not flushed: if it is lost, an upload is aborted that does
 * not exist any more, which S3 answers with NoSuchUpload. The file is written anew, with the
 * uploads still under way, at every start, by the first upload, when most of it is struck out, and
 * when it could not be appended to.
 *
 * Thread-safe. Only opening waits for the disk, and closing for a while. One process at a time uses
 * a journal.
 */
#ifndef FB_SOURCE_S3_JOURNAL_H
#define FB_SOURCE_S3_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "base/list.h"
#include "core/clock.h"
#include "core/error.h"

#define FB_S3_UPLOADS_MAX       1024        /* under way at once */
#define FB_S3_JOURNAL_MAX       (64u << 20) /* bytes of the file */
#define FB_S3_JOURNAL_ROOM      (1u << 20)  /* struck out bytes that are let be */
#define FB_S3_JOURNAL_FIELD_MAX 1024        /* bytes of a name */
#define FB_S3_JOURNAL_CLOSE_NS  (5 * FB_NS_PER_S)

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
/* Takes NULL; the last one's counts, and waits until all is written. False: that has taken longer
 * than FB_S3_JOURNAL_CLOSE_NS, and the thread that waits for the disk is left behind. */
bool fb_s3_journal_close(struct fb_s3_journal *journal);

/* Tells of the uploads that an earlier run left and nobody has taken over yet; it takes the keys of
 * their bucket to abort them. Under the journal's lock. -ENOMEM. */
FB_MUST_CHECK int fb_s3_journal_left(struct fb_s3_journal *journal, fb_s3_upload_fn *left,
                                     void *arg);

/* -EAGAIN: FB_S3_UPLOADS_MAX are under way, or there is no thread. -ENAMETOOLONG, -ENOMEM. */
FB_MUST_CHECK int fb_s3_journal_begin(struct fb_s3_journal *journal,
                                      const struct fb_s3_upload *upload, uint64_t *ret_ticket);
void fb_s3_journal_end(struct fb_s3_journal *journal, uint64_t ticket); /* one not known: nothing */

/* Until when to wait for the record of a begin, and then to ask again. 0: no longer, as it is where
 * it has to be, or cannot get there, or the disk has not answered for `patience_ns`. */
FB_MUST_CHECK int64_t fb_s3_journal_until(struct fb_s3_journal *journal, uint64_t ticket,
                                          int64_t patience_ns);

/* The caller's, until unwatch: moved() is called when records have got somewhere. On the journal's
 * thread, under its lock. */
struct fb_s3_journal_watch {
    struct fb_list link;
    void (*moved)(void *arg);
    void *arg;
};

void fb_s3_journal_watch(struct fb_s3_journal *journal, struct fb_s3_journal_watch *watch);
void fb_s3_journal_unwatch(struct fb_s3_journal *journal, struct fb_s3_journal_watch *watch);

/* One of that id is under way. */
FB_MUST_CHECK bool fb_s3_journal_knows(struct fb_s3_journal *journal, const char *id);

/* Uploads under way. */
unsigned fb_s3_journal_count(struct fb_s3_journal *journal);

#endif
