/*
 * source/s3_file.h - a file of a bucket that is being written, shared by those who do it.
 *
 *     s3_open.c     OPEN and CLOSE; what others do to such a file
 *     s3_write.c    WRITE: the buffer, and when it is full
 *     s3_upload.c   the upload: begun once, its parts, its end when something goes wrong
 *     s3_commit.c   COMMIT: the object appears
 *     s3_orphan.c   uploads that nobody waits for are aborted
 *
 * What a program writes is gathered in a buffer of one part; a full one goes off as a part of a
 * multipart upload while the next is filled. The object appears as a whole when the upload is
 * completed, at COMMIT; what fits into one part is simply put. Before an upload is asked for, and
 * before its first part, it waits for the journal to have it (s3_journal.h).
 *
 *     OPEN ─► WRITE ... ─► buffer ─full─► begin (once) ─► parts, several at a time
 *                             │                                   │
 *          COMMIT: ───────────┴─ none sent: PUT      else: last part, complete
 *          CLOSE without COMMIT, or an error: abort; what stood there before stays
 */
#ifndef FB_SOURCE_S3_FILE_H
#define FB_SOURCE_S3_FILE_H

#include "source/s3_priv.h"

#define FB_S3_COPY_MAX (5ULL << 30) /* bytes that the server copies in one request */

enum fb_s3_upload_state {
    FB_S3_UPLOAD_NONE,
    FB_S3_UPLOAD_BEGINNING,
    FB_S3_UPLOAD_BEGUN,
    FB_S3_UPLOAD_OVER, /* what comes after cannot be added to it */
};

struct fb_s3_file {
    struct fb_source_handle base;
    struct fb_list link;
    struct fb_s3 *s3;
    char key[FB_S3_KEY_MAX + 1];
    uint32_t process; /* who opened it */
    bool opened;      /* what is there has been looked at */
    bool existed;     /* there is an object of that key */
    bool dirty;       /* what was written is not in it */
    bool touched;     /* written to or cut since it was opened */
    bool overtaken;   /* never touched, and another's has appeared since: it has nothing to say */
    bool replaced;    /* the object is another's by now */
    bool unlinked;
    bool exclusive;      /* made with O_EXCL: nobody else may have made it meanwhile */
    bool killed;         /* its writer was */
    bool copy_old;       /* the first part is the object as it was */
    int error;           /* what went wrong once is so for good */
    struct fb_attr attr; /* of the object; of a new file what it will be */
    char etag[FB_S3_ETAG_MAX + 1];
    uint64_t size, sent;
    char *buffer;
    size_t room;
    char *whole; /* what was sent, for the cache, as long as it is not too much */
    size_t whole_len;

    enum fb_s3_upload_state upload;
    char upload_id[FB_S3_UPLOAD_ID_MAX + 1];
    uint64_t ticket;        /* its place in the journal */
    uint64_t asked;         /* that of the question for it */
    int64_t asked_s;        /* when it was asked for; 0: it is answered */
    struct fb_list record;  /* while it waits for the journal */
    struct fb_s3_call call; /* initiate, put, complete: one at a time */
    bool call_out;
    char *body;                        /* of complete */
    char (*etags)[FB_S3_ETAG_MAX + 1]; /* of parts 1 to part_count */
    unsigned part_count, parts_room;
    struct fb_list parts; /* on their way */
    unsigned parts_out;
    struct fb_list writes; /* that wait for room, or for the commit before them */
    struct fb_s3_commit_op *commit;
    struct fb_list later; /* commits that wait for its end */
    uint64_t commits;     /* so far, with that one */
};

struct fb_s3_part {
    struct fb_list link;
    struct fb_s3_file *file;
    struct fb_s3_call call;
    unsigned number;
    char number_text[8];
    char *data;
    size_t room;
    char *copy_source;
};

struct fb_s3_commit_op {
    struct fb_s3_op base;
    struct fb_list link; /* while it waits */
    struct fb_s3_file *file;
    struct fb_s3_look look;
    bool looking;
    bool unheard; /* whether it was completed is to be seen */
    bool absent;  /* there was no such object just now */
};

struct fb_s3_file *fb_s3_file_at(const struct fb_source_handle *handle);
/* Of what has not appeared yet: not a version that anything may be kept under. */
void fb_s3_file_live_attr(const struct fb_s3_file *file, struct fb_attr *ret_attr);
/* Something has happened: whoever waits for it goes on. */
void fb_s3_file_pump(struct fb_s3_file *file);
FB_MUST_CHECK int fb_s3_file_make_room(struct fb_s3_file *file, size_t need);
/* It is written to, or cut: what it is then is meant to appear. */
void fb_s3_file_touch(struct fb_s3_file *file);
/* There is an object of that key: whoever writes it knows. */
void fb_s3_file_appeared(struct fb_s3 *s3, const char *key);
/* A write waits that came before the commit under way. */
bool fb_s3_file_is_awaited(const struct fb_s3_file *file);

/* ---- s3_upload.c ---- */

/* Once and for all: what was sent is aborted. */
void fb_s3_file_fail(struct fb_s3_file *file, int error);
/* What was kept of it for the cache is not. */
void fb_s3_file_drop_whole(struct fb_s3_file *file);
/* Sends file->call. */
void fb_s3_file_call(struct fb_s3_file *file, void (*done)(struct fb_s3_call *call));
void fb_s3_upload_begin(struct fb_s3_file *file);
/* No part can be sent yet. */
bool fb_s3_upload_is_beginning(const struct fb_s3_file *file);
/* The buffer; the object as it was. */
FB_MUST_CHECK int fb_s3_upload_part(struct fb_s3_file *file);
FB_MUST_CHECK int fb_s3_upload_copy(struct fb_s3_file *file);

/* ---- s3_commit.c ---- */

/* The next step of a commit under way. */
void fb_s3_commit_step(struct fb_s3_file *file);

/* ---- s3_orphan.c ---- */

/* The upload is no more: out of the journal. */
void fb_s3_strike_out(struct fb_s3 *s3, uint64_t ticket);
/* Into the journal, by key and id; id NULL: it is asked for, at asked_s. Its ticket; 0 when there
 * is no journal, or no room in it: what is written to a bucket does not depend on it. */
uint64_t fb_s3_write_down(struct fb_s3 *s3, const char *key, const char *id, int64_t asked_s);
/* It was asked for from then until now, and nobody knows the answer: one that exists is aborted. */
void fb_s3_abort_unknown(struct fb_s3 *s3, const char *key, int64_t asked_s, uint64_t ticket);

#endif
