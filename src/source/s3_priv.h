/*
 * source/s3_priv.h - what the files of the S3 source share.
 *
 *     source_s3.c   the backend: jobs in, operations on the loop, the end
 *     s3_look.c     what a path is: HEAD and a listing of one key; STAT
 *     s3_read.c     READ
 *     s3_dir.c      OPENDIR, READDIR; pages of a listing
 *     s3_seen.c     what listings told answers look-ups
 *     s3_file.h     files being written: OPEN, WRITE, COMMIT
 *     s3_change.c, s3_rename.c, s3_setattr.c: everything else that changes the bucket
 *     s3_http.c     requests (s3_http_priv.h)
 *     s3_sign.c, s3_creds.c, s3_xml.c, s3_key.c, s3_parts.c: their parts
 *
 * All of it runs on the loop (s3_http.h), one step at a time, so nothing here takes a lock but the
 * inbox. What was read is answered by the threads of `answers`. An operation is a small struct that
 * begins with struct fb_s3_op, has its calls in it, and is freed when its job is finished.
 */
#ifndef FB_SOURCE_S3_PRIV_H
#define FB_SOURCE_S3_PRIV_H

#include "core/lock.h"
#include "source/s3_http.h"
#include "source/s3_journal.h"
#include "source/s3_key.h"
#include "source/source_s3.h"

struct fb_posix_pool;
struct fb_s3_kept;
struct fb_s3_seen;

/* A directory in which an object appeared through us. */
#define FB_S3_FILLED_MAX 16

struct fb_s3_filled {
    char key[FB_S3_KEY_MAX + 1];
    int64_t at_ns; /* 0: none */
};

struct fb_s3 {
    char *bucket;
    char *prefix; /* "" or ending in '/' */
    uint32_t uid, gid, umask;
    uint64_t part_bytes;
    int64_t timeout_ns;
    int64_t born_ns; /* wall clock: the time of directories, which have none */
    struct fb_s3_creds *creds;
    struct fb_s3_http *http;
    struct fb_posix_pool *answers;
    struct fb_s3_journal *journal; /* NULL: none is kept */
    struct fb_s3_journal_watch watch;
    int64_t journal_wait_ns;
    struct fb_list left; /* uploads that an earlier run left */

    struct fb_mutex lock; /* rank SOURCE: the inbox */
    struct fb_list inbox; /* of jobs */
    bool cancels;         /* some job has expired */
    bool closing;
    bool closed;
    struct fb_cond quiet;

    /* No key began with the prefix when the root was last asked for. Relaxed. */
    _Atomic bool bare;

    /* The loop's own. */
    struct fb_list ops;
    struct fb_list dirs;
    struct fb_list files;
    struct fb_list unrecorded; /* those whose upload waits for the journal */
    struct fb_list holds;
    struct fb_list unlinks; /* that wait for what is appearing */
    struct fb_s3_kept *kept;
    struct fb_s3_seen *seen;
    struct fb_s3_filled filled[FB_S3_FILLED_MAX];
    unsigned filled_at;
    uint64_t upload_bytes; /* buffered by files */
    uint64_t whole_bytes;  /* kept by them beside, for the cache */
    unsigned orphans;      /* aborts of uploads that nobody waits for */
    bool ending;
    bool unwritten;     /* the last upload could not be written down */
    bool no_conditions; /* the server knows no If-None-Match where something is put */
    bool deletes_any;   /* nor If-Match where something is deleted */
};

struct fb_s3_op {
    struct fb_list link;
    struct fb_s3 *s3;
    struct fb_source_job *job;
    /* Nobody waits any more: takes its calls back, and ends. */
    void (*cancel)(struct fb_s3_op *op);
};

/* Memory for an operation that begins with struct fb_s3_op; ends the job without. */
FB_MUST_CHECK void *fb_s3_op_new(struct fb_s3 *s3, struct fb_source_job *job, size_t size,
                                 void (*cancel)(struct fb_s3_op *op));
/* Finishes the job and frees the operation. */
void fb_s3_op_end(struct fb_s3_op *op, int result);

void fb_s3_file_attr(const struct fb_s3 *s3, const char *key, uint64_t size, int64_t mtime_ns,
                     const char *etag, struct fb_attr *ret_attr);
void fb_s3_dir_attr(const struct fb_s3 *s3, const char *key, struct fb_attr *ret_attr);

/* ---- s3_look.c ---- */

/* An object has just appeared: its directory is there. */
void fb_s3_filled(struct fb_s3 *s3, const char *key);
/* Something may be removed. */
void fb_s3_filled_forget(struct fb_s3 *s3);

/* What stands at a path. Embedded in whoever asks. */
struct fb_s3_look {
    /* in */
    const char *path;
    bool is_file; /* most likely: first ask for the object alone */
    bool urgent;
    int64_t deadline_ns;
    void (*done)(struct fb_s3_look *look);
    /* out */
    int result; /* 0, -ENOENT, -EACCES, -EIO ... */
    struct fb_attr attr;
    char etag[FB_S3_ETAG_MAX + 1];
    /* private */
    struct fb_s3 *s3;
    char key[FB_S3_KEY_MAX + 1], dir_key[FB_S3_KEY_MAX + 1];
    struct fb_s3_call head, list;
    bool head_out, list_out;
    bool found_key, foreign;
};

void fb_s3_look(struct fb_s3 *s3, struct fb_s3_look *look);
void fb_s3_look_cancel(struct fb_s3_look *look);

/* s3_open.c: attributes of a file that is being written and was not there before; -ENOENT. */
FB_MUST_CHECK int fb_s3_pending_attr(const struct fb_s3 *s3, const char *path,
                                     struct fb_attr *ret_attr);
FB_MUST_CHECK int fb_s3_handle_attr(const struct fb_s3 *s3, const struct fb_source_handle *handle,
                                    struct fb_attr *ret_attr);

/* Directories that were seen here and have nothing in them: a bucket knows none. */
bool fb_s3_kept_has(const struct fb_s3 *s3, const char *dir_key);
void fb_s3_keep_dir(struct fb_s3 *s3, const char *dir_key);
/* s3_change.c: what was in the key's directory may have been all; it stays one for us. */
void fb_s3_keep_parent(struct fb_s3 *s3, const char *key);
void fb_s3_unkeep_dir(struct fb_s3 *s3, const char *dir_key);
/* A directory was moved, and all below it; `to` does not lie below `from`. */
void fb_s3_keep_moved(struct fb_s3 *s3, const char *from, const char *to);
void fb_s3_kept_free(struct fb_s3 *s3);

/* ---- s3_dir.c: a listing, page by page ---- */

struct fb_s3_pages {
    struct fb_s3_listing *listing;
    struct fb_s3_call call;
    bool out;       /* a page is being fetched */
    bool ended;     /* there are no more */
    bool failed;    /* one has come and could not be taken in: nor can what follows */
    unsigned asked; /* pages */
    char token[FB_S3_TOKEN_MAX + 1];
};

/* `key` of the directory; `entry` is called in come(). */
FB_MUST_CHECK int fb_s3_pages_begin(struct fb_s3_pages *pages, const char *key,
                                    fb_s3_entry_fn *entry, void *arg);
void fb_s3_pages_fetch(struct fb_s3 *s3, struct fb_s3_pages *pages, const char *key,
                       int64_t deadline_ns, void (*done)(struct fb_s3_call *call), void *arg);
/* In done(): takes the page in. The request's own error, or that of `entry`. */
FB_MUST_CHECK int fb_s3_pages_come(struct fb_s3_pages *pages);
void fb_s3_pages_end(struct fb_s3 *s3, struct fb_s3_pages *pages);
void fb_s3_entry_attr(const struct fb_s3 *s3, const char *dir_key, const struct fb_s3_entry *entry,
                      struct fb_attr *ret_attr);

/* ---- s3_seen.c: what listings told ---- */

/* Fills in a STAT, if there is an answer that is young enough. */
FB_MUST_CHECK bool fb_s3_seen_find(struct fb_s3 *s3, struct fb_source_job *job);

/* Embedded in who waits for a listing that has been asked for and may have the answer. done(): it
 * is there, as far as it goes, or will not come; taken out of its list before, or by who gives up.
 */
struct fb_s3_waiter {
    struct fb_list link;
    void (*done)(struct fb_s3_waiter *waiter, bool listed);
};

/* False: there is none to wait for. */
FB_MUST_CHECK bool fb_s3_seen_wait(struct fb_s3 *s3, const char *path, struct fb_s3_waiter *waiter);
/* All entries of a directory (its key with the slash), when a listing has told them all and is no
 * older than that; false: ask the server. A directory without any is not told here. */
FB_MUST_CHECK bool fb_s3_seen_list(struct fb_s3 *s3, const char *dir_key, int64_t max_age_ns,
                                   fb_s3_entry_fn *entry, void *arg);
/* The server has just told otherwise. */
void fb_s3_seen_wrong(struct fb_s3 *s3, const char *path);
/* Something is about to change. */
void fb_s3_seen_forget(struct fb_s3 *s3);
void fb_s3_seen_free(struct fb_s3 *s3);
/* source_s3.c: some change is under way. */
bool fb_s3_is_changing(const struct fb_s3 *s3);

/* ---- files being written: s3_file.h ---- */

/* s3_dir.c and s3_open.c: the handle whose link in the source's list this is. */
struct fb_source_handle *fb_s3_dir_of(struct fb_list *link);
struct fb_source_handle *fb_s3_file_of(struct fb_list *link);
bool fb_s3_is_file(const struct fb_s3 *s3, const struct fb_source_handle *handle);

/* What was not committed is aborted. */
void fb_s3_closefile(struct fb_s3 *s3, struct fb_source_handle *handle);
/* Nobody waits for it; `ticket` is its place in the journal. */
void fb_s3_abort_upload(struct fb_s3 *s3, const char *key, const char *id, uint64_t ticket);
/* Those that an earlier run left: found when the source is opened, aborted on the loop. */
FB_MUST_CHECK int fb_s3_find_left(struct fb_s3 *s3);
void fb_s3_abort_left(struct fb_s3 *s3);
void fb_s3_orphan_done(struct fb_s3 *s3);
/* Something has come of what was written down, or it is not waited for any longer. */
void fb_s3_pump_unrecorded(struct fb_s3 *s3);
/* Memory has become free, or a key. */
void fb_s3_pump_files(struct fb_s3 *s3);

/* s3_change.c: what stands at a key, and below it, is being taken away: until the hold is let go
 * nothing appears there, lest it be taken, too. */
struct fb_s3_hold {
    struct fb_list link;
    const char *key;
};

void fb_s3_hold(struct fb_s3 *s3, struct fb_s3_hold *hold, const char *key);
void fb_s3_let_go(struct fb_s3 *s3, struct fb_s3_hold *hold); /* of one not held: nothing */
bool fb_s3_is_held(const struct fb_s3 *s3, const char *key);
/* It lies below a directory that is held. */
bool fb_s3_is_moving(const struct fb_s3 *s3, const char *key);
/* Some operation has ended. */
void fb_s3_pump_unlinks(struct fb_s3 *s3);
/* `key` is `top`, with or without its last '/', or lies below it. */
bool fb_s3_is_at_or_below(const char *key, const char *top);

/* SETATTR of the size, by handle; FB_S3_BEGUN: the job is answered later. */
#define FB_S3_BEGUN 1
FB_MUST_CHECK int fb_s3_file_truncate(struct fb_s3 *s3, struct fb_source_job *job);
/* The name is gone: what is being written under it does not appear. True when anything is. */
bool fb_s3_file_unlink(struct fb_s3 *s3, const char *key);
/* Some file is being written whose key begins with that. */
bool fb_s3_is_written_below(const struct fb_s3 *s3, const char *dir_key);
/* What was written is about to appear there, or below. */
bool fb_s3_is_appearing(const struct fb_s3 *s3, const char *key);
/* -ENOENT when there is no such file, or an object of it. `exclusive`: nobody else may have made
 * one of the new name until it appears. */
FB_MUST_CHECK int fb_s3_file_rename(struct fb_s3 *s3, const char *from, const char *to,
                                    bool exclusive);

/* "/bucket/key" encoded, for x-amz-copy-source. NULL without memory. */
FB_MUST_CHECK char *fb_s3_copy_source(const struct fb_s3 *s3, const char *key);

/* s3_read.c, for the check() of a GET: it is of that version, and whole (`size` bytes), or what was
 * asked for of it (0). */
FB_MUST_CHECK int fb_s3_check_load(const struct fb_s3_call *call, const char *etag, uint64_t size);
/* READ and PREAD of a version. */
void fb_s3_read_object(struct fb_s3 *s3, struct fb_source_job *job, const char *key,
                       const struct fb_version *version);

/* ---- operations ---- */

void fb_s3_stat(struct fb_s3 *s3, struct fb_source_job *job);
void fb_s3_read(struct fb_s3 *s3, struct fb_source_job *job);
void fb_s3_opendir(struct fb_s3 *s3, struct fb_source_job *job);
void fb_s3_readdir(struct fb_s3 *s3, struct fb_source_job *job);
void fb_s3_closedir(struct fb_source_handle *handle);
void fb_s3_open(struct fb_s3 *s3, struct fb_source_job *job);
void fb_s3_write(struct fb_s3 *s3, struct fb_source_job *job);
void fb_s3_pread(struct fb_s3 *s3, struct fb_source_job *job);
void fb_s3_commit(struct fb_s3 *s3, struct fb_source_job *job);
void fb_s3_setattr(struct fb_s3 *s3, struct fb_source_job *job);
void fb_s3_mknod(struct fb_s3 *s3, struct fb_source_job *job);
void fb_s3_unlink(struct fb_s3 *s3, struct fb_source_job *job);
void fb_s3_rmdir(struct fb_s3 *s3, struct fb_source_job *job);
void fb_s3_rename(struct fb_s3 *s3, struct fb_source_job *job);

#endif
