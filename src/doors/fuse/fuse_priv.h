/*
 * doors/fuse/fuse_priv.h - what the files of this module share.
 *
 *     mount.c      life of a mount: volume, session, threads, end
 *     session.c    libfuse: options, capabilities, the threads that take requests in
 *     lone.c       one reader at a time: fewer threads to wake
 *     early.c      reads a file when it is looked up
 *     crowd.c      the same for several readers at a time
 *     mountpoint.c dead mounts, unmounting, read-ahead
 *     node.c       which records the kernel knows, and how often it was told
 *     live.c       those that programs change here, and what is open for writing
 *     claim.c      who writes an object has an inode of its own
 *     change.c     the frame of every change
 *     notify.c     telling the kernel to forget
 *     shed.c       keeping what it knows within the file table
 *     reply.c      attributes, entries and time-outs as the kernel wants them
 *     op_*.c       one file an operation
 *
 * References. The kernel knows records as inodes. For as long as it knows one, the node table holds
 * one reference on the record; and the kernel knows an inode for as long as a file on it is open or
 * a request for it is under way. So operations use the record of the inode they are called with
 * without a reference of their own. Only an aborted connection breaks that rule, and then no FORGET
 * comes any more: what the table holds is dropped once the last request is answered.
 *
 * Locks: those of the node table, of the notifier and of the list of open directories, all
 * FB_RANK_DOOR; none is held while anything else of this module is called. Under that of live nodes
 * (FB_RANK_LIVE) the node table is used.
 */
#ifndef FB_DOORS_FUSE_FUSE_PRIV_H
#define FB_DOORS_FUSE_FUSE_PRIV_H

#include <fuse_lowlevel.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/attr.h"
#include "cache/cache.h"
#include "core/error.h"
#include "core/lock.h"
#include "doors/fuse/mount.h"

#define FB_DOOR_FUSE           1            /* in access records */
#define FB_FUSE_REQUESTS_MAX   1024u        /* under way; the threads take in no more */
#define FB_FUSE_THREADS_MAX    64u          /* that take requests in */
#define FB_FUSE_DIR_BYTES      (128u << 10) /* of one answer to READDIR */
#define FB_FUSE_DIR_MARKS      4096u
#define FB_FUSE_NOTIFY_MAX     4096u /* records waiting to be invalidated */
#define FB_FUSE_SAMPLE         64u   /* one file in so many is read from here again: see notify.c */
#define FB_FUSE_SAMPLE_MAX     64u   /* of them waiting */
#define FB_FUSE_SAMPLE_NS      (1000 * 1000000LL) /* after it was read */
#define FB_FUSE_SWEEP_NS       (100 * 1000000LL)  /* between looks at what was read early */
#define FB_FUSE_SAMPLE_GAP_NS  (50 * 1000000LL)   /* between two of them, at least */
#define FB_FUSE_READ_AHEAD     (1u << 20)
#define FB_FUSE_BACKGROUND     512u /* those that wait for a hung source must not fill it at once */
#define FB_FUSE_FOREVER_S      86400.0 /* time-out of what does not change */
#define FB_FUSE_FOREVER_NS     (86400 * 1000000000LL)
#define FB_FUSE_NEGATIVE_MAX_S 1.0 /* time-out of an absence; static mounts have none */
#define FB_FUSE_LINGER_CPUS    4u  /* from here on threads linger; on fewer see lone.c */
#define FB_FUSE_STOP_WAIT_NS   (5 * 1000000000LL) /* beyond the requests' own deadlines */
#define FB_FUSE_LIVE_BUCKETS   1024u
#define FB_FUSE_CLAIMS_MAX     64u
#define FB_FUSE_INQUIRIES_MAX  8u
#define FB_FUSE_CLAIM_NS       (60 * 1000000000LL) /* who was killed does not come back */
#define FB_FUSE_WRITE_MAX      (1u << 20)
#define FB_FUSE_BYTES_MIN      (8u * FB_FUSE_WRITE_MAX) /* being written, whatever others write */
#define FB_FUSE_COPY_MAX       (64u << 10) /* a smaller write is copied rather than taken over */
#define FB_FUSE_LONG_NS        (600 * 1000000000LL) /* for what may take an object store long */

/* ---- node.c ---- */

struct fb_nodes;

enum fb_node_flag {
    FB_NODE_UNSETTLED = 1,      /* opened before its version could be trusted */
    FB_NODE_NO_ACL = 2,         /* the source said that it has no access ACL */
    FB_NODE_NO_DEFAULT_ACL = 4, /* nor a default one */
    FB_NODE_NO_LABEL = 8,       /* nor a security label */
    FB_NODE_LIVE = 16,          /* see live.c */
    FB_NODE_GONE = 32,          /* its name was removed, or given to another, through this mount */
    FB_NODE_NO_XATTRS = FB_NODE_NO_ACL | FB_NODE_NO_DEFAULT_ACL | FB_NODE_NO_LABEL,
};

FB_MUST_CHECK int fb_nodes_create(struct fb_nodes **ret_nodes);
void fb_nodes_destroy(struct fb_nodes *nodes); /* takes NULL */

enum fb_node_outcome {
    FB_NODE_NEW = 1,   /* the table keeps the caller's reference on the record */
    FB_NODE_KNOWN = 2, /* the caller keeps it */
};

/* The kernel is told of `id`, whose directory is the node `parent` (0: the root). -ENOMEM. */
FB_MUST_CHECK int fb_node_tell(struct fb_nodes *nodes, uint32_t id, uint32_t parent);
/* The kernel forgot `count` tellings; true when it knows the node no more: the caller drops the
 * table's reference. */
FB_MUST_CHECK bool fb_node_forget(struct fb_nodes *nodes, uint32_t id, uint64_t count);
/* False when the kernel does not know it. ret_parent may be NULL. */
bool fb_node_known(struct fb_nodes *nodes, uint32_t id, uint32_t *ret_parent);

/* Flags of a node; 0 when the kernel does not know it. */
unsigned fb_node_flags(struct fb_nodes *nodes, uint32_t id);
void fb_node_set_flags(struct fb_nodes *nodes, uint32_t id, unsigned set, unsigned clear);

/* Calls `visit`, under the lock of one part of the table, for every node in the directory `parent`,
 * for all of them, or for all in one of the parts. `visit` may only take locks of higher rank. */
typedef void fb_node_visit_fn(void *arg, uint32_t id);
#define FB_NODE_ANY_PARENT UINT32_MAX
#define FB_NODE_PARTS      16u
void fb_nodes_visit(struct fb_nodes *nodes, uint32_t parent, fb_node_visit_fn *visit, void *arg);
void fb_nodes_visit_part(struct fb_nodes *nodes, unsigned part, fb_node_visit_fn *visit, void *arg);
uint64_t fb_nodes_count(struct fb_nodes *nodes);
uint64_t fb_nodes_part_count(struct fb_nodes *nodes, unsigned part);
uint64_t fb_nodes_bytes(struct fb_nodes *nodes);

/* ---- the mount ---- */

struct fb_notifier;
struct fb_lives;

/* See linger() in session.c. */
struct fb_linger {
    bool able;          /* there are CPUs enough */
    _Atomic bool taken; /* a thread lingers, or looks whether to */
    uint32_t skip;      /* requests to come after which nobody lingers */
    uint32_t penalty;
};

/* See lone.c. */
struct fb_lone {
    bool able;        /* there are threads enough, and CPUs, but not too many */
    unsigned threads; /* that take requests in */
    _Atomic int64_t last_ns;
    _Atomic uint32_t pid;
    _Atomic uint32_t count;  /* requests */
    _Atomic uint32_t streak; /* of them, the last ones: dense, one at a time, of one task */
    _Atomic unsigned level;  /* changed under the lock, as are all that follow */
    _Atomic bool on;
    struct fb_mutex lock;
    struct fb_cond over;
    bool closing;
    unsigned parked;
    bool watched;   /* one of them looks whether requests still come */
    uint32_t begun; /* `count` then */
    uint32_t skip;  /* requests for which nobody stays awake; of the one who serves, as is: */
    uint32_t penalty;
};

enum fb_early_state {
    FB_EARLY_IDLE,
    FB_EARLY_READING,
    FB_EARLY_ABANDONED,
    FB_EARLY_READY,
    FB_EARLY_ENDING,
};

#define FB_EARLY_TASKS 64u

/* See early.c. */
struct fb_early_task {
    _Atomic uint32_t task;
    _Atomic uint32_t last; /* file of the last look-up, until it is read */
    _Atomic int score;
};

struct fb_early {
    struct fb_early_task tasks[FB_EARLY_TASKS];
    _Atomic int state; /* enum fb_early_state */
    struct fb_read read;
};

/* A READ: what it asks for. */
struct fb_wanted {
    fuse_req_t req;
    uint32_t size;
    uint64_t offset;
};

#define FB_CROWD_READS 8u

enum fb_crowd_state {
    FB_CROWD_IDLE,
    FB_CROWD_READING,
    FB_CROWD_WAITED,
    FB_CROWD_READY,
    FB_CROWD_ENDING,
};

/* See crowd.c. */
struct fb_crowd_read {
    enum fb_crowd_state state;
    uint32_t file;
    int64_t begun_ns;
    struct fb_mount *mount;
    struct fb_wanted wanted; /* WAITED: by whom */
    _Atomic bool interrupted;
    struct fb_read read;
};

struct fb_crowd {
    struct fb_mutex lock;
    bool closing;
    bool swept;            /* the notifier's thread looks after them */
    _Atomic unsigned held; /* places that are not IDLE */
    struct fb_crowd_read reads[FB_CROWD_READS];
};

struct fb_mount {
    struct fb_mount_config config; /* the strings are copies */
    struct fb_cache *cache;
    struct fb_files *files;
    struct fb_volume *volume;
    struct fb_nodes *nodes;
    struct fb_notifier *notifier;
    struct fuse_session *session;
    uint32_t root;             /* record of the root, with a reference */
    bool no_open;              /* OPEN is answered ENOSYS */
    bool direct;               /* what is written takes its place as a whole: see claim.c */
    _Atomic bool parallel_due; /* the next answer is that to INIT: see session.c */
    bool no_prune; /* the kernel lacks FUSE_NOTIFY_PRUNE; the notifier's own, with the next two */
    unsigned shed_part;
    int64_t shed_after_ns; /* no use to try before */
    uint64_t pinned_max;
    _Atomic uint64_t pinned_bytes; /* of records that the kernel knows */
    dev_t dev;
    pthread_t threads[FB_FUSE_THREADS_MAX];
    unsigned thread_count;
    _Atomic unsigned running;  /* threads in their loop */
    _Atomic bool stopping;     /* by fb_mount_stop() */
    _Atomic uint32_t requests; /* under way */
    _Atomic uint64_t bytes;    /* of those that pass the cache by */
    struct fb_linger linger;
    struct fb_lone lone;
    struct fb_early early;
    struct fb_crowd crowd;
    struct fb_mutex dirs_lock;
    struct fb_list
        dirs; /* open directories: those whose RELEASEDIR never comes are closed at the end */
    struct fb_mutex lives_lock;
    struct fb_lives *lives;
    struct fb_list handles; /* open for writing, likewise */
    struct fb_list claims;  /* oldest first; also under lives_lock */
    _Atomic unsigned claim_count;
    _Atomic uint64_t live_count; /* nodes */
    _Atomic unsigned inquiries;  /* under way: see op_sync.c */
    /* Directories whose listing the kernel may have cached: hashes of id and version. */
    _Atomic uint64_t dir_marks[FB_FUSE_DIR_MARKS];
};

/* Counts a request under way; the mount is not taken apart until all have ended. */
void fb_request_begin(struct fb_mount *mount);
void fb_request_end(struct fb_mount *mount);
/* The same with memory for it, not cleared; NULL without any. */
FB_MUST_CHECK void *fb_request_new(struct fb_mount *mount, size_t size);
void fb_request_free(struct fb_mount *mount, void *request);

static inline struct fb_mount *fb_mount_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* Node ids are record ids plus one, so that 1 is free for the root. */
static inline uint32_t fb_file_of(const struct fb_mount *mount, fuse_ino_t ino)
{
    return ino == FUSE_ROOT_ID ? mount->root : (uint32_t)(ino - FUSE_ROOT_ID);
}

static inline fuse_ino_t fb_ino_of(uint32_t id)
{
    return (fuse_ino_t)id + FUSE_ROOT_ID;
}

/* The node table's name for a directory: 0 is the root. */
static inline uint32_t fb_parent_of(fuse_ino_t ino)
{
    return (uint32_t)(ino - FUSE_ROOT_ID);
}

static inline bool fb_mount_is_static(const struct fb_mount *mount)
{
    return mount->config.consistency == FB_STATIC;
}

struct fb_caller fb_caller_of(fuse_req_t req);

/* ---- live.c ---- */

/* A file open for writing: what the kernel calls its file handle. Others have no handle: 0. */
struct fb_handle {
    struct fb_list link;
    struct fb_list live_link; /* among the writers of its node */
    struct fb_mount *mount;
    struct fb_source_handle *source;
    uint32_t id;          /* the node */
    bool direct;          /* as the source says */
    _Atomic bool written; /* something was */
    _Atomic bool failed;  /* something was not, and the source does not know */
    uint32_t process;     /* who opened it, when direct */
    struct fb_version published;
    _Atomic uint32_t refs; /* the open file, and requests of others that use it */
};

FB_MUST_CHECK int fb_lives_create(struct fb_lives **ret_lives);
void fb_lives_destroy(struct fb_lives *lives); /* takes NULL */

/* `job`: the OPEN that succeeded. NULL without memory. */
FB_MUST_CHECK struct fb_handle *fb_handle_new(struct fb_mount *mount,
                                              const struct fb_source_job *job, uint32_t id);
void fb_handle_get(struct fb_handle *handle);
void fb_handle_put(struct fb_handle *handle); /* takes NULL */
/* What the kernel left open, as fb_dirs_close(). */
void fb_handles_close(struct fb_mount *mount);
void fb_source_close_handle(struct fb_mount *mount, struct fb_source_handle *handle);

/* An object that appears as a whole does not without a write that the source never saw, whatever
 * comes after. */
static inline bool fb_handle_failed(const struct fb_handle *handle)
{
    return handle->direct && atomic_load_explicit(&handle->failed, memory_order_relaxed);
}

static inline void fb_handle_fail(struct fb_handle *handle)
{
    atomic_store_explicit(&handle->failed, true, memory_order_relaxed);
}

static inline struct fb_handle *fb_handle_of(const struct fuse_file_info *fi)
{
    return fi ? (struct fb_handle *)(uintptr_t)fi->fh : NULL;
}

/* The node's file was changed; `path` and `attr` (of which the inode number counts) are those it
 * has now. */
void fb_live_touch(struct fb_mount *mount, uint32_t id, const char *path,
                   const struct fb_attr *attr);
/* It is open for writing, by this handle; `named`: and its name leads to it. -ENOMEM. */
FB_MUST_CHECK int fb_live_open(struct fb_handle *handle, uint32_t id, const char *path,
                               const struct fb_attr *attr, bool named);
/* The same for a file that was made, or that nobody knew. *ret_id has a reference. */
FB_MUST_CHECK int fb_live_create(struct fb_handle *handle, const char *path,
                                 const struct fb_attr *attr, uint32_t *ret_id);
/* Its name leads elsewhere from now on. */
void fb_live_unname(struct fb_mount *mount, uint32_t id);
/* What the handle wrote is this version now; false: and everybody was told before. */
FB_MUST_CHECK bool fb_handle_publishes(struct fb_handle *handle, const struct fb_version *version);
/* No longer open by this handle; also when it made nothing live. */
void fb_live_close(struct fb_handle *handle);
/* The kernel does not know the node any more. */
void fb_live_forget(struct fb_mount *mount, uint32_t id);

/* How to reach a live node's file: by a handle, else by path, else not at all. */
struct fb_live_view {
    struct fb_handle *handle;
    char *path;
    struct fb_attr attr; /* what was last seen of it */
    bool open;           /* for who reads: else the name leads to another node */
};

/* False: the node is not live. End the view with fb_live_view_end(). */
FB_MUST_CHECK bool fb_live_get(struct fb_mount *mount, uint32_t id, struct fb_live_view *ret_view);
void fb_live_view_end(struct fb_live_view *view);
/* What the source has told of a file when it was asked then: kept for its live nodes, which answer
 * it once nothing leads to the file any more. */
void fb_live_seen(struct fb_mount *mount, const struct fb_attr *attr, int64_t asked_ns);
/* The node that has the name, if it is live: more than 0; the kernel counts as told of it, and the
 * handle has a reference. -ENOMEM. */
FB_MUST_CHECK int fb_live_lookup(struct fb_mount *mount, const char *path, uint32_t parent,
                                 uint32_t *ret_id, struct fb_handle **ret_handle);
bool fb_live_has_name(struct fb_mount *mount, const char *path);
/* Somebody writes a file that has, or is to have, this path. */
bool fb_live_is_written(struct fb_mount *mount, const char *path);

/* `file`: the one that was moved, or FB_FILE_NONE: a directory, or nobody knows. */
void fb_live_moved(struct fb_mount *mount, const char *from, const char *to, bool exchange,
                   uint32_t file);
void fb_live_removed(struct fb_mount *mount, const char *path);

/* Where a node's file lies now: the record's path, or a copy in buf. NULL: nowhere. ret_len may be
 * NULL. */
const char *fb_node_path(struct fb_mount *mount, uint32_t id, char buf[FB_PATH_MAX],
                         size_t *ret_len);
/* For what is done to the file itself, by its path: NULL also when that is another's by now. */
const char *fb_node_own_path(struct fb_mount *mount, uint32_t id, char buf[FB_PATH_MAX]);
/* And then the source is not to do it to another either. (Of a directory its path is what counts.)
 */
void fb_job_own(struct fb_mount *mount, uint32_t id, struct fb_source_job *job);

static inline bool fb_is_live(struct fb_mount *mount, uint32_t id)
{
    /* Relaxed: who must see a change has waited for its answer. */
    return atomic_load_explicit(&mount->live_count, memory_order_relaxed) > 0 &&
           (fb_node_flags(mount->nodes, id) & FB_NODE_LIVE);
}

/* ---- claim.c ---- */

/* Refuses the request (ESTALE), upon which the kernel looks the node's name up again and comes back
 * with a node for this caller alone. */
void fb_claim(fuse_req_t req, uint32_t id);
/* LOOKUP by one that was refused; true: it has been answered. */
FB_MUST_CHECK bool fb_claim_lookup(fuse_req_t req, uint32_t parent, const char *path);
/* True once: the node was made for the caller. */
FB_MUST_CHECK bool fb_claim_take(fuse_req_t req, uint32_t id);
void fb_claims_end(struct fb_mount *mount);

/* ---- change.c ---- */

/* A change under way; job->path and path2 say of what. */
struct fb_change {
    struct fb_mount *mount;
    fuse_req_t req;
    _Atomic bool interrupted;
    uint64_t asked; /* the cache's moment */
    int64_t asked_ns;
    uint32_t parent;  /* of path: as the node table calls it */
    uint32_t parent2; /* of path2 */
    uint32_t id;      /* the node that is changed, if it has one */
    uint32_t file;    /* RENAME: the regular file that is moved, with a reference */
    struct fb_handle *handle;
    struct fb_handle *held; /* NULL, or one with a reference, given back at the end */
    struct fuse_file_info fi;
    size_t bytes; /* taken in */
    /* Replies. */
    void (*answer)(struct fb_change *change, struct fb_source_job *job);
};

/* Zeroed but for mount and req. `path` may be NULL for jobs with a handle. Replies by itself, with
 * NULL, when there is no memory. */
FB_MUST_CHECK struct fb_change *fb_change_new(fuse_req_t req, enum fb_source_op op,
                                              const char *path, struct fb_source_job **ret_job);
/* `lengthy`: has FB_FUSE_LONG_NS, while the source is there. */
void fb_change_submit(struct fb_change *change, struct fb_source_job *job, bool lengthy,
                      void (*answer)(struct fb_change *change, struct fb_source_job *job));
/* Path of a name in a directory. Replies by itself; false then. */
FB_MUST_CHECK bool fb_child_path(fuse_req_t req, fuse_ino_t parent, const char *name,
                                 char buf[FB_PATH_MAX]);

/* What everybody is to forget. */
void fb_changed_gone(struct fb_mount *mount, const char *path);
void fb_changed_file(struct fb_mount *mount, const char *path, const struct fb_attr *attr);
void fb_changed_parent(struct fb_mount *mount, const char *path);

/* Answers with the entry of what was made. Takes job->attr. */
void fb_change_reply_entry(struct fb_change *change, struct fb_source_job *job);
/* Answers with attributes that hold for no time. */
void fb_reply_live_attr(fuse_req_t req, const struct fb_attr *attr);
/* Puts what was written into the cache's tables, for handles that are direct. */
void fb_publish(struct fb_change *change, const struct fb_source_job *job);

/* Bytes of a request that passes the cache by are counted while it is under way. */
void fb_bytes_take(struct fb_mount *mount, size_t bytes);
void fb_bytes_give(struct fb_mount *mount, size_t bytes);
/* Memory with a request's data, which lies in `buf` (NULL: somewhere else): that of `buf` where it
 * can, else a copy. To be freed. NULL without memory. */
FB_MUST_CHECK void *fb_buffer_take(struct fuse_buf *buf, const char *data, size_t size,
                                   char **ret_data);
/* The same for the request that this thread handles. The memory that it takes, all of it and not
 * only what is data, is counted: *ret_bytes, to be given back with fb_bytes_give(). */
FB_MUST_CHECK void *fb_session_take(struct fb_mount *mount, const char *data, size_t size,
                                    char **ret_data, size_t *ret_bytes);

/* ---- reply.c ---- */

void fb_stat_of(const struct fb_attr *attr, struct stat *ret_stat);
double fb_attr_timeout(const struct fb_mount *mount, const struct fb_attr *attr,
                       int64_t valid_until_ns);

/* The same for a live node, which the kernel was told of: it holds for no time. */
void fb_entry_live(struct fb_mount *mount, uint32_t id, const struct fb_attr *attr,
                   struct fuse_entry_param *ret_entry);
/* Tells the node table, takes over the caller's reference on `id`, and fills in the entry.
 * -ENOMEM. Undo with fb_entry_forget(). */
FB_MUST_CHECK int fb_entry_make(struct fb_mount *mount, uint32_t id, uint32_t parent,
                                const struct fb_attr *attr, int64_t valid_until_ns,
                                struct fuse_entry_param *ret_entry);
/* True when the record is not what it was when the look-up said that it is valid until then. */
bool fb_entry_outdated(const struct fb_mount *mount, uint32_t id, int64_t valid_until_ns);
void fb_entry_forget(struct fb_mount *mount, uint32_t id, uint64_t count);

/* `dir`/`name` into buf of FB_PATH_MAX bytes; -ENAMETOOLONG. */
FB_MUST_CHECK int fb_path_join(const char *dir, size_t dir_len, const char *name, char *buf);

/* A question to the source: sets caller and deadline and submits. `cancel`: NULL, or the flag of
 * fb_interruptible(), which must have been called before and lives until done. */
void fb_job_submit(struct fb_mount *mount, struct fb_source_job *job,
                   const struct fb_caller *caller, const _Atomic bool *cancel,
                   void (*done)(struct fb_source_job *job), void *arg);

/* A node's path looked up again, on behalf of a request. */
struct fb_ask {
    char *path; /* malloc'd when the node is live */
    struct fb_lookup lookup;
    struct fb_mount *mount;
    fuse_req_t req;
    fuse_ino_t ino;
    uint32_t id;
    uint32_t mode; /* of the node, before it was asked for */
    _Atomic bool interrupted;
    void (*answer)(const struct fb_ask *ask);
};

/* `answer` is called once and replies; it has the look-up's reference for as long as it runs.
 * Replies by itself without memory. */
void fb_ask(fuse_req_t req, fuse_ino_t ino, void (*answer)(const struct fb_ask *ask));

/* From now on a signal to the waiting program sets *flag, which lets the cache end the request;
 * NULL: no longer, and the flag is not touched once this has returned. Before every reply. */
void fb_interruptible(fuse_req_t req, _Atomic bool *flag);

/* ---- notify.c ---- */

FB_MUST_CHECK int fb_notifier_create(struct fb_mount *mount, struct fb_notifier **ret_notifier);
FB_MUST_CHECK int fb_notifier_start(struct fb_notifier *notifier);
void fb_notifier_stop(struct fb_notifier *notifier); /* joins; the session must still be served */
void fb_notifier_destroy(struct fb_notifier *notifier); /* takes NULL */
/* The record is no longer current; never waits. The caller has a reference, or the kernel knows
 * it. */
void fb_notifier_retired(struct fb_notifier *notifier, uint32_t id);
/* The kernel is about to be sent a file up to `end`. Where it would not ask again, perhaps it
 * shall. The kernel knows the record. */
void fb_notifier_read(struct fb_notifier *notifier, uint32_t id, uint64_t end);
/* Waits until the kernel was told of all that was retired before, or until until_ns. */
bool fb_notifier_flush(struct fb_notifier *notifier, int64_t until_ns);
/* Has its thread call fb_crowd_sweep() every now and then, until that says it is enough. */
void fb_notifier_sweep(struct fb_notifier *notifier);

/* The name of a node: the kernel drops it. Notifier's thread only. */
void fb_notify_entry(struct fb_mount *mount, uint32_t id, uint32_t parent);
/* Has fb_shed() called, soon. */
void fb_notifier_shed(struct fb_notifier *notifier, bool hard);

/* ---- shed.c ---- */

void fb_shed_init(struct fb_mount *mount);
/* The kernel is told of a record, or knows it no more; the caller still has a reference. */
void fb_shed_pin(struct fb_mount *mount, uint32_t id);
void fb_shed_unpin(struct fb_mount *mount, uint32_t id);
/* True when the kernel should not be told of what it did not ask for. */
bool fb_shed_is_full(const struct fb_mount *mount);
/* Asks the kernel to drop what nobody uses until the bound holds, or (hard) half of it. */
void fb_shed(struct fb_mount *mount, bool hard);

/* ---- session.c ---- */

FB_MUST_CHECK int fb_session_open(struct fb_mount *mount, struct fb_error *err);
FB_MUST_CHECK int fb_session_start(struct fb_mount *mount, struct fb_error *err);
/* Ends the threads that take requests in, also when the kernel still has some to send. False: one
 * hangs, and will come back to the mount. */
FB_MUST_CHECK bool fb_session_join(struct fb_mount *mount);
/* Closes the connection; the kernel fails whatever still waits. */
void fb_session_close(struct fb_mount *mount);

/* ---- lone.c ---- */

void fb_lone_init(struct fb_mount *mount, unsigned threads);
void fb_lone_destroy(struct fb_mount *mount);
/* Before a thread asks for a request: it may wait here for another thread's sake, or for its own.
 */
void fb_lone_wait(struct fb_mount *mount);
/* A request has come. */
void fb_lone_request(struct fb_mount *mount, const struct fuse_buf *buf);
/* It has been answered, or waits for something. */
void fb_lone_answered(struct fb_mount *mount);
bool fb_lone_is_on(const struct fb_mount *mount);
/* Nobody waits in fb_lone_wait() any more. */
void fb_lone_close(struct fb_mount *mount);

/* ---- early.c ---- */

/* LOOKUP of a regular file, by a thread that takes requests in; the caller holds a reference.
 * Where the file is read, `reply` is run first; else it is left to the caller. */
void fb_early_lookup(struct fb_mount *mount, uint32_t file, const struct fb_caller *caller,
                     struct fb_meanwhile *reply);
/* READ by a task; true: it has been answered, or will be. */
FB_MUST_CHECK bool fb_early_read(struct fb_mount *mount, uint32_t task, uint32_t file,
                                 const struct fb_wanted *wanted);
/* Lets go of what was read and not asked for. Any thread. */
void fb_early_drop(struct fb_mount *mount);
/* For crowd.c, too: what all early reads have in common, with a request begun and a reference. */
void fb_early_fill(struct fb_mount *mount, struct fb_read *read, uint32_t file,
                   const struct fb_caller *caller);

/* ---- crowd.c ---- */

void fb_crowd_init(struct fb_mount *mount);
void fb_crowd_destroy(struct fb_mount *mount);
/* Begins to read a file that was looked up, if there is a place; the caller holds a reference. */
void fb_crowd_begin(struct fb_mount *mount, uint32_t file, const struct fb_caller *caller);
/* READ; true: it has been answered, or will be. */
FB_MUST_CHECK bool fb_crowd_read(struct fb_mount *mount, uint32_t file,
                                 const struct fb_wanted *wanted);
/* Lets go of what nobody asked for; false: there is nothing to look after any more. */
FB_MUST_CHECK bool fb_crowd_sweep(struct fb_mount *mount);
/* From here on nothing is kept. No thread takes requests in any more. */
void fb_crowd_close(struct fb_mount *mount);

/* ---- op_read.c ---- */

/* `deadline_ns` 0: the mount's; `meanwhile`: as in struct fb_read. */
void fb_read_begin(struct fb_mount *mount, uint32_t file, const struct fb_wanted *wanted,
                   int64_t deadline_ns, struct fb_meanwhile *meanwhile);
/* Answers out of an early read of the whole file that has succeeded; false: it does not have it. */
FB_MUST_CHECK bool fb_read_answer(struct fb_mount *mount, struct fb_read *read,
                                  const struct fb_wanted *wanted);

/* ---- mountpoint.c ---- */

/* The mount point as the kernel will call it, free of a dead mount. Sentences. */
FB_MUST_CHECK int fb_mountpoint_prepare(const struct fb_mount_config *config, char **ret_mountpoint,
                                        struct fb_error *err);
/* True when the file system `dev` is what stands on the mount point. */
bool fb_mountpoint_is_mounted(const char *mountpoint, dev_t dev);
void fb_mountpoint_set_read_ahead(dev_t dev);

/* ---- operations ---- */

/* What the kernel left open. Nothing is taken in any more and nothing is under way. */
void fb_dirs_close(struct fb_mount *mount);

void fb_op_init(void *userdata, struct fuse_conn_info *conn);
void fb_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void fb_op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count);
void fb_op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void fb_op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fb_op_readlink(fuse_req_t req, fuse_ino_t ino);
void fb_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fb_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void fb_op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fb_op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                   struct fuse_file_info *fi);
void fb_op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                       struct fuse_file_info *fi);
void fb_op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fb_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void fb_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void fb_op_statfs(fuse_req_t req, fuse_ino_t ino);
void fb_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                  struct fuse_file_info *fi);
void fb_open_for_writing(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi);
void fb_op_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t off,
                 struct fuse_file_info *fi);
/* Takes the view's handle over. */
void fb_live_read(fuse_req_t req, uint32_t id, size_t size, off_t off, struct fb_live_view *view);
void fb_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fb_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void fb_op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void fb_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fb_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                     struct fuse_file_info *fi);
void fb_op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int to_set,
                   struct fuse_file_info *fi);
void fb_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void fb_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void fb_op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void fb_op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void fb_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void fb_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void fb_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                  const char *new_name, unsigned flags);
void fb_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                    size_t size, int flags);
void fb_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

#endif
