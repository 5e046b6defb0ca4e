/*
 * source/source.h - where the data really lives: one interface for directories, object stores and
 * peers.
 *
 * A source answers jobs. A job is submitted with a deadline and `done` is called exactly once, at
 * the latest shortly after the deadline, on some thread of the source, with no lock held. What
 * makes that promise hold is in source.c, not in the backends: a backend may hang for ever (a dead
 * NFS server, a stopped FUSE daemon). When the deadline passes first, `done` gets -ETIMEDOUT, and
 * job and buffers stay alive, owned by the backend, until it lets go.
 *
 *     caller: job_new ──► fill in ──► submit ──► ... done(job): read results ──► job_put
 *     backend:               start(job) ──► ... fb_source_job_finish(job, result)
 *     clock:                                ... expire(job): done(-ETIMEDOUT) if it comes first
 *     the program that waits is killed:     ... the same with -EINTR
 *
 * Health. When a job expires the source is *suspect*: a probe (stat of the root) is sent. A probe
 * unanswered for FB_SOURCE_PROBE_NS makes it *down*: jobs fail at once with -EIO until a probe,
 * sent every second while fewer than FB_SOURCE_PROBES_MAX are unanswered, is answered. So cached
 * data is served without waiting for a dead source, and one slow file harms nobody else. A late
 * answer to a probe is an answer; one that is itself an outage (-EIO) changes nothing. A job that
 * may take long (doubt_ns: the usual time) makes the source suspect each time it has taken that
 * long, with a probe that has half of it to be answered, and expires once the source has been down
 * for as long.
 *
 * An outage is never an absence: -ENOENT means that the source stood there and had no such name.
 * fb_source_is_outage() tells the two kinds of error apart.
 */
#ifndef FB_SOURCE_SOURCE_H
#define FB_SOURCE_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/statvfs.h>
#include <sys/uio.h>

#include "base/attr.h"
#include "base/list.h"
#include "core/error.h"
#include "io/buffer.h"
#include "proto/file.h"
#include "source/due.h"

#define FB_SOURCE_READ_MAX   (8u << 20) /* bytes in one READ */
#define FB_SOURCE_IOV_MAX    64
#define FB_SOURCE_PROBE_NS   1000000000LL
#define FB_SOURCE_PROBES_MAX 4
#define FB_SOURCE_CANCEL_NS  100000000LL
#define FB_SOURCE_JOBS_MAX   4096         /* held by one backend at once; more fail with -EAGAIN */
#define FB_SOURCE_LIST_BYTES 65536        /* size of one batch of a listing */
#define FB_SOURCE_CLOSE_NS   2000000000LL /* how long closing waits for a backend's threads */

enum fb_source_op {
    FB_SOURCE_STAT,      /* path, or handle of an OPEN -> attr (of a symbolic link: its own);
                          * expect, if given, is what a file there was when last seen */
    FB_SOURCE_READ,      /* path, expect, offset, iov -> bytes, attr */
    FB_SOURCE_OPENDIR,   /* path -> handle, attr */
    FB_SOURCE_READDIR,   /* handle, cookie, want_attrs -> data: struct fb_source_dirent ... */
    FB_SOURCE_CLOSE,     /* handle */
    FB_SOURCE_READLINK,  /* path -> data: target, zero-terminated, data_len without the zero */
    FB_SOURCE_GETXATTR,  /* path, name -> data: value */
    FB_SOURCE_LISTXATTR, /* path -> data: names, each zero-terminated */
    FB_SOURCE_STATFS,    /* -> statfs */

    /* Those that change the source. One that cannot do it answers -EROFS, or -ENOTSUP to what no
     * writer could do there. */
    FB_SOURCE_OPEN,        /* path, flags, mode -> handle, attr, direct */
    FB_SOURCE_PREAD,       /* handle, offset, iov -> bytes: what is being written */
    FB_SOURCE_WRITE,       /* handle, offset, iov, flags -> bytes: all of them, or the first */
    FB_SOURCE_COMMIT,      /* handle, flags -> attr, or path of a directory, flags: see below */
    FB_SOURCE_FALLOCATE,   /* handle, flags (of fallocate), offset, length */
    FB_SOURCE_SETATTR,     /* path or handle, set, attr -> attr */
    FB_SOURCE_MKNOD,       /* path, mode with type, attr.rdev -> attr; MKDIR is one of S_IFDIR */
    FB_SOURCE_SYMLINK,     /* path, path2: the target -> attr */
    FB_SOURCE_LINK,        /* path: the existing file, path2: the new name -> attr */
    FB_SOURCE_UNLINK,      /* path */
    FB_SOURCE_RMDIR,       /* path */
    FB_SOURCE_RENAME,      /* path, path2, flags (of renameat2) */
    FB_SOURCE_SETXATTR,    /* path, name, data, flags (of setxattr) */
    FB_SOURCE_REMOVEXATTR, /* path, name */
    FB_SOURCE_OPS,
};

/*
 * Handles: what OPENDIR and OPEN give. CLOSE takes one back and must come last: no job with the
 * handle may be submitted after it, but those submitted before may still be in flight, also past
 * their deadline. CLOSE is always answered at once, with 0, whatever the source's health; the
 * backend closes when it gets to it. The handle of an OPENDIR or OPEN that expired, and all those
 * left when the source is closed, are closed by themselves.
 *
 * READDIR at the end of the listing: result 0 and data_len 0. A backend that sees the end with the
 * last entries says `at_end`, which spares asking for it. A READDIR that expired may be repeated
 * with the same cookie.
 *
 * OPEN is for writing only (flags: O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC, O_APPEND). A
 * file made belongs to the caller. A source that can change files in place (a directory) does so
 * with every WRITE. One that cannot (an object store) says `direct`: what is written is a new file
 * that stands beside the old one, which all others go on reading, and takes its place as a whole at
 * COMMIT. Closed without, it never was.
 *
 * COMMIT comes at fsync (FB_COMMIT_SYNC), at each close of a descriptor (FB_COMMIT_FLUSH) and
 * before the last CLOSE of a handle (FB_COMMIT_LAST), whose outcome no program hears. 0 means
 * that the source has the bytes, and for FB_COMMIT_SYNC that it would keep them through a power
 * cut. A `direct` file may not be meant to appear yet, when a copy of its descriptor is closed:
 * attr.mode is 0 as long as what was written has not taken its place. `data`, if there is any, is
 * all of the new file. Of a directory it is FB_COMMIT_SYNC: the names in it are kept likewise.
 */
struct fb_source;

enum fb_source_commit {
    FB_COMMIT_SYNC = 1,
    FB_COMMIT_DATA = 2, /* with SYNC: fdatasync */
    FB_COMMIT_FLUSH = 4,
    FB_COMMIT_LAST = 8,
    FB_COMMIT_ALONE = 16, /* with FLUSH: nobody else has the file open */
};

/* WRITE by a descriptor with O_APPEND: at the file's end, wherever that is by now. Without it the
 * offset counts, as when a page is written back. */
#define FB_WRITE_APPEND 1u
#define FB_WRITE_WHOLE  2u /* all or an error, whatever was written */

/* What SETATTR is to set, from job->attr. */
enum fb_source_set {
    FB_SET_MODE = 1,
    FB_SET_UID = 2,
    FB_SET_GID = 4,
    FB_SET_SIZE = 8, /* version.size */
    FB_SET_ATIME = 16,
    FB_SET_MTIME = 32, /* version.mtime_ns */
    FB_SET_ATIME_NOW = 64,
    FB_SET_MTIME_NOW = 128,
};

/* Entries of a listing lie one behind the other in job->data, each aligned to 8 bytes. */
struct fb_source_dirent {
    uint32_t length;  /* of this entry, to the next one */
    uint8_t name_len; /* without the final zero */
    uint8_t type;     /* DT_* */
    bool has_attr;    /* false when not asked for, when the entry could not be looked at, or when
                       * looking takes long: a listing need not wait for what nobody may want */
    bool no_xattrs;   /* with has_attr: known to have no extended attributes, nor an ACL */
    uint64_t ino;
    uint64_t cookie; /* where a later READDIR goes on after this entry */
    struct fb_attr attr;
    char name[];
};

struct fb_source_job {
    /* In; set before submit, not changed after. */
    enum fb_source_op op;
    struct fb_caller caller;
    int64_t deadline_ns;             /* monotonic */
    int64_t doubt_ns;                /* 0, or what may take long ends when the source is down */
    char *path;                      /* copied by job_new; relative, "" is the root */
    char *path2;                     /* malloc'd, released with the job */
    const struct fb_version *expect; /* NULL, or &expected: READ fails with -ESTALE for others */
    struct fb_version expected;
    uint64_t own_ino; /* 0, or with own_dev the one file that OPEN, SETATTR and SETXATTR by path
                       * are meant for: -ESTALE for others. Not where files are `direct` */
    uint64_t own_dev;
    uint64_t offset;
    struct fb_buffer *buffers[FB_SOURCE_IOV_MAX]; /* a reference each, given back with the job */
    unsigned buffer_count;
    unsigned iov_count;
    void *memory;                        /* instead of buffers: malloc'd, released with the job */
    struct iovec iov[FB_SOURCE_IOV_MAX]; /* into buffers or memory */
    struct fb_source_handle *handle;     /* of OPENDIR and OPEN an answer */
    uint64_t cookie;                     /* 0: from the start */
    char name[FB_NAME_MAX + 1];
    bool want_attrs;
    bool urgent;    /* of source.c: a probe; a backend should let it pass all others */
    bool patient;   /* READ: nobody waits for it yet; a backend should let most others pass */
    uint32_t flags; /* as the operation says */
    uint32_t mode;
    uint32_t umask; /* taken from mode, unless the directory has a default ACL */
    uint32_t set;   /* enum fb_source_set */
    uint64_t length;
    int64_t max_age_ns; /* STAT, OPENDIR: an answer that old will do; 0: the source is asked. That
                         * a directory which we wrote into a second ago is there needs no asking. */
    const _Atomic bool *cancel; /* NULL, or set when a signal came: once caller.pid is dying,
                                 * done(-EINTR), within FB_SOURCE_CANCEL_NS or so */
    void (*done)(struct fb_source_job *job);
    void *arg;

    /* Out; valid in done(), but for -ETIMEDOUT, -EINTR and -ESHUTDOWN: then only the result is, for
     * the backend may still be writing the rest. */
    int result;          /* 0 or negative errno */
    bool refused;        /* the backend never saw it */
    bool direct;         /* OPEN: see above */
    bool at_end;         /* READDIR: nothing comes after these entries */
    uint64_t bytes;      /* READ, PREAD: less than asked only at the end of the file; with -ESTALE
                          * and no `expect`: of the file while it changed */
    int64_t age_ns;      /* STAT, READDIR: of the answer */
    struct fb_attr attr; /* READ: holds for all bytes read; with -ESTALE the version seen */
    char *data;          /* malloc'd, released with the job */
    size_t data_len;
    struct statvfs statfs;

    /* Private to this module. A backend may use backend_link for its queue. */
    struct fb_source *source;
    _Atomic uint32_t refs;
    _Atomic uint32_t state;
    struct fb_due due;
    struct fb_list backend_link;
};

/* NULL without memory. `path` may be NULL for jobs with a handle and for STATFS. */
FB_MUST_CHECK struct fb_source_job *fb_source_job_new(enum fb_source_op op, const char *path);
void fb_source_job_put(struct fb_source_job *job); /* takes NULL */

/* Takes the caller's reference and gives it back in done(); the caller calls job_put there or
 * later. done() may run before submit returns, and must not block or close the source. Not after
 * fb_source_close() returned; while it runs, jobs get -ESHUTDOWN. */
void fb_source_submit(struct fb_source *source, struct fb_source_job *job);

/* Submits and waits: returns job->result. For tools, start-up and tests. Sets done and arg. */
FB_MUST_CHECK int fb_source_wait(struct fb_source *source, struct fb_source_job *job);

/* True for errors that say nothing about the file: time-outs, I/O errors, a vanished root, a lost
 * connection, no memory, anything not known to be an answer. False for 0 and for answers: ENOENT,
 * ENOTDIR, EACCES, EPERM, ELOOP, ENAMETOOLONG, ESTALE, EISDIR, EINVAL, ENODATA, ENOTSUP... */
bool fb_source_is_outage(int result);

enum fb_source_health {
    FB_SOURCE_UP,
    FB_SOURCE_SUSPECT,
    FB_SOURCE_DOWN,
};

struct fb_source_stats {
    enum fb_source_health health;
    uint64_t jobs;
    uint64_t bytes_read;
    uint64_t errors; /* jobs answered with an outage, time-outs apart */
    uint64_t timeouts;
    uint32_t in_flight; /* jobs the backend holds */
    uint32_t stuck;     /* those of them past their deadline */
};

void fb_source_stats(struct fb_source *source, struct fb_source_stats *ret_stats);

/* What is written there takes the old file's place as a whole: see `direct` above. */
bool fb_source_is_direct(const struct fb_source *source);

/* Every request goes over a network, however quick it is. */
bool fb_source_is_far(const struct fb_source *source);

/* Its root, when last asked for, had nothing in it and was no more than a name somebody wrote. */
bool fb_source_is_bare(const struct fb_source *source);

/* Canonical: what names this source in the cache. */
const char *fb_source_uri(const struct fb_source *source);

/* Stops: jobs not answered yet get -ESHUTDOWN, and every done() has returned when this does, which
 * takes FB_SOURCE_CLOSE_NS or little more at most. Threads stuck in the kernel are left to the end
 * of the process (the memory they may still write to is left, too): false. Takes NULL. */
bool fb_source_close(struct fb_source *source);

/* ---- for backends ---------------------------------------------------------------------------- */

/* Embedded in what a backend knows of an open directory or file; zeroed at first, then the business
 * of source.c, which starts the CLOSE only when every other job of the handle is finished. */
struct fb_source_handle {
    uint32_t users;
    struct fb_source_job *closer;
};

struct fb_source_ops {
    const char *name;
    /* Begin to answer; call fb_source_job_finish() later, from any thread, or here. Must not block.
     * Comes from any thread, also from inside finish, and until close() has returned. */
    void (*start)(void *backend, struct fb_source_job *job);
    /* Optional. The job's deadline passed, or it was cancelled, and nobody waits any more; it may
     * be finished by now, but its memory holds during the call. A backend may let go of it here, or
     * see that others do not have to wait behind it. Must not block. */
    void (*expired)(void *backend, struct fb_source_job *job);
    /* Finishes what is queued and waits, at most until `until_ns`, for the backend's threads.
     * Returns true when every job is finished and no thread will touch backend or source again;
     * false when some are stuck: then nothing may be freed. */
    bool (*close)(void *backend, int64_t until_ns);
    /* Frees, also handles left open; called only after close returned true. */
    void (*destroy)(void *backend);
    /* Optional: whether OPEN gives `direct` handles. */
    bool (*is_direct)(void *backend);
    bool (*is_far)(void *backend);  /* optional: no */
    bool (*is_bare)(void *backend); /* the same */
};

/* Once a job, by its backend: results are in the job, this ends it. Drops the backend's reference.
 * With no lock held. -EHOSTDOWN: tried until the deadline in vain; the source is suspect, and
 * the caller gets -EIO. */
void fb_source_job_finish(struct fb_source_job *job, int result);

/* True once nobody waits for the job: a backend may skip queued work. Never true of CLOSE. */
bool fb_source_job_expired(const struct fb_source_job *job);

/* Joins a backend with what source.c adds: deadlines, health, statistics. Takes the backend over,
 * also on failure. */
FB_MUST_CHECK int fb_source_create(const struct fb_source_ops *ops, void *backend, const char *uri,
                                   struct fb_source **ret_source);

/* The backend of a source made with these ops, else NULL. */
void *fb_source_backend(struct fb_source *source, const struct fb_source_ops *ops);

#endif
