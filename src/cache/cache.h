/*
 * cache/cache.h - the cache: what doors talk to.
 *
 * Joins store, sources and policies. Everything a door asks is asynchronous: a call never waits for
 * a source, nor for a disk unless the read says that it may; `done` is called exactly once, in the
 * calling thread when the answer is at hand, else on a thread of store or source. A request that
 * waits for a source ends shortly after its deadline at the latest; one that waits for a disk of
 * the cache ends when the kernel answers. Doors may therefore call from their own few threads.
 *
 * Bytes. A file is known by its record's id (store/files.h): one version of one path. A read of
 * that id returns bytes of that version, or fails with -ESTALE when the source no longer has it and
 * the cache does not hold it. A fetch happens once, however many wait for it; what it brings is
 * verified to be of the record's version before and after, answered to all, and only then admitted.
 * Files younger than FB_SETTLE_TIME_NS are answered but not admitted.
 *
 * Names. lookup() answers from the file table while the record is valid (metadata TTL), else asks
 * the source. When the source cannot be reached, what is known stays true for FB_OUTAGE_GRACE_NS at
 * a time (counted in metrics); an answer that there is no such file is believed at once.
 */
#ifndef FB_CACHE_CACHE_H
#define FB_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/metrics.h"
#include "epoch/follow.h"
#include "io/buffer.h"
#include "io/engine.h"
#include "policy/reuse.h"
#include "proto/access.h"
#include "proto/file.h"
#include "source/source.h"
#include "store/speed.h"
#include "store/store.h"
#include "stream/streams.h"

#define FB_CACHE_METRICS(X)                                                                    \
 X(FB_CM_READS, "reads", COUNTER, "", "Reads of items that doors asked for")                   \
 X(FB_CM_READ_BYTES, "read", COUNTER, "bytes", "Bytes that doors asked for")                   \
 X(FB_CM_HITS_DRAM, "hits_dram", COUNTER, "", "Reads answered from DRAM")                      \
 X(FB_CM_HIT_BYTES_DRAM, "hit_dram", COUNTER, "bytes", "Bytes answered from DRAM")             \
 X(FB_CM_HITS_PMEM, "hits_pmem", COUNTER, "", "Reads answered from PMem")                      \
 X(FB_CM_HIT_BYTES_PMEM, "hit_pmem", COUNTER, "bytes", "Bytes answered from PMem")             \
 X(FB_CM_HITS_NVME, "hits_nvme", COUNTER, "", "Reads answered from NVMe")                      \
 X(FB_CM_HIT_BYTES_NVME, "hit_nvme", COUNTER, "bytes", "Bytes answered from NVMe")             \
 X(FB_CM_MISSES, "misses", COUNTER, "", "Reads that had to wait for the source")               \
 X(FB_CM_MISS_BYTES, "miss", COUNTER, "bytes", "Bytes of such reads")                          \
 X(FB_CM_JOINED, "joined", COUNTER, "", "Misses that waited for a fetch already under way")    \
 X(FB_CM_FETCHES, "source_requests", COUNTER, "", "Read requests sent to the source")          \
 X(FB_CM_FETCH_BYTES, "source_read", COUNTER, "bytes", "Bytes read from the source")           \
 X(FB_CM_FETCH_ERRORS, "source_errors", COUNTER, "", "Fetches that failed")                    \
 X(FB_CM_STALE, "stale_reads", COUNTER, "", "Reads of a version the source no longer has")     \
 X(FB_CM_UNSETTLED, "unsettled", COUNTER, "", "Fetched items too young to be kept")            \
 X(FB_CM_STATS, "source_stats", COUNTER, "", "Attribute requests sent to the source")          \
 X(FB_CM_CHANGED, "files_changed", COUNTER, "", "Files found changed on the source")           \
 X(FB_CM_OUTAGE_ANSWERS, "outage_answers", COUNTER, "",                                        \
   "Look-ups answered from memory because the source did not answer")                          \
 X(FB_CM_ADMITTED, "admitted", COUNTER, "", "Items admitted")                                  \
 X(FB_CM_ADMIT_DROPPED, "admit_dropped", COUNTER, "", "Items not admitted for want of room")   \
 X(FB_CM_DECLINED, "admit_declined", COUNTER, "", "Items that their stream has no use for")    \
 X(FB_CM_DEMOTED, "demoted", COUNTER, "", "Items moved down a tier")                           \
 X(FB_CM_KEPT, "kept", COUNTER, "", "Items that stayed when their segments were merged")       \
 X(FB_CM_TRAININGS, "trainings", COUNTER, "", "Trainings of the model of reuse")               \
 X(FB_CM_TRAIN_US, "training_microseconds", COUNTER, "", "Time that trainings took")           \
 X(FB_CM_RANKINGS, "rankings", COUNTER, "", "Rankings of a tier's segments for eviction")      \
 X(FB_CM_RANK_US, "ranking_microseconds", COUNTER, "", "Time that rankings took")              \
 X(FB_CM_PROMOTED, "promoted", COUNTER, "", "Items copied up into DRAM")                       \
 X(FB_CM_RAISED, "raised", COUNTER, "", "Those of them before a program asked")                \
 X(FB_CM_RAISED_BYTES, "raised_data", COUNTER, "bytes", "Bytes of such items")                 \
 X(FB_CM_ACCESS_RECORDS, "access_records", COUNTER, "", "Access records taken from the ring")  \
 X(FB_CM_ACCESS_DROPPED, "access_dropped", GAUGE, "", "Access records lost to a full ring")    \
 X(FB_CM_AHEAD_BYTES, "read_ahead", COUNTER, "bytes", "Bytes fetched ahead of a reader")       \
 X(FB_CM_ASKED, "kernel_requests", COUNTER, "", "Requests of the kernel to all mounts")        \
 X(FB_CM_PREFETCH_BYTES, "prefetched", COUNTER, "bytes",                                       \
   "Bytes of files that were read before a program asked, next in its order")                  \
 X(FB_CM_PREFETCH_USED, "prefetch_used", COUNTER, "", "Items of such files that were read")    \
 X(FB_CM_PREFETCH_WASTED, "prefetch_wasted", COUNTER, "", "Those that nobody read in time")    \
 X(FB_CM_EXCHANGED, "exchanged", COUNTER, "",                                                  \
   "Files that went after they were read, for others that are due")                            \
 X(FB_CM_FILLED_BYTES, "filled", COUNTER, "bytes",                                             \
   "Bytes read to have a data set whole that programs read in random order")                   \
 X(FB_CM_EARLY, "early_reads", COUNTER, "", "Reads begun before anybody asked")                \
 X(FB_CM_EARLY_USED, "early_reads_used", COUNTER, "", "Those that somebody asked for in time") \
 X(FB_CM_PLAN_BROUGHT, "plan_brought", COUNTER, "", "Files brought into DRAM by a plan")       \
 X(FB_CM_PLAN_BROUGHT_BYTES, "plan_brought_data", COUNTER, "bytes", "Bytes of such files")     \
 X(FB_CM_PLAN_READS, "plan_reads", COUNTER, "", "Files read as a plan had foretold")           \
 X(FB_CM_PLAN_IN_TIME, "plan_in_time", COUNTER, "", "Those of them found in DRAM")             \
 X(FB_CM_PLAN_STRANGE, "plan_strange", COUNTER, "", "Files of a plan read out of turn")        \
 X(FB_CM_LOG_ITEMS, "epoch_log_items", COUNTER, "", "Items laid out for the next epoch")       \
 X(FB_CM_LOG_BYTES, "epoch_log_written", COUNTER, "bytes", "Bytes of such items")              \
 X(FB_CM_LOG_SEGMENTS, "epoch_log_segments", COUNTER, "", "Segments so laid out")              \
 X(FB_CM_LOG_MOVED, "epoch_log_moved", COUNTER, "bytes",                                       \
   "Bytes written again to free segments for it")                                              \
 X(FB_CM_LOG_LEFT, "epoch_log_left", COUNTER, "",                                              \
   "Items not laid out: for want of room or time, or beyond the write budget")                 \
 X(FB_CM_LOG_LOADS, "epoch_log_loads", COUNTER, "", "Segments read whole for an epoch")        \
 X(FB_CM_LOG_LOAD_BYTES, "epoch_log_loaded", COUNTER, "bytes", "Bytes of items in these")

enum fb_cache_metric {
    FB_CACHE_METRICS(FB_METRIC_ENUM)
};

#define FB_OUTAGE_GRACE_NS 1000000000LL
#define FB_READ_MAX        (1u << 20) /* bytes in one read */
#define FB_BLOCK_MIN       (64u << 10)
#define FB_BLOCK_MAX       (8u << 20)
#define FB_READ_PIECES     (FB_READ_MAX / FB_BLOCK_MIN + 2)
#define FB_FILE_NONE       0u

/* Whether the next epoch of a plan is laid out on NVMe in its order (cache/epoch_log.h). */
enum fb_epoch_log_use {
    FB_EPOCH_LOG_AUTO, /* where the disk is bad at reading at random */
    FB_EPOCH_LOG_ON,
    FB_EPOCH_LOG_OFF,
};

struct fb_cache_config {
    uint64_t memory_bytes; /* everything: DRAM segments, tables, buffers */
    unsigned cache_dir_count;
    const char *cache_dirs[FB_TIER_DIRS_MAX];
    uint64_t cache_bytes; /* NVMe budget; 0: no NVMe tier */
    const char *pmem_dir;
    uint64_t pmem_bytes; /* 0: no PMem tier */
    double nvme_fill;
    double pmem_fill;
    double dram_fill;
    double free_space_ratio;
    int64_t cache_timeout_ns; /* see fb_tier_config; 0: a disk that hangs is waited for */
    uint32_t block_bytes;
    uint64_t segment_bytes; /* 0: chosen per tier */
    unsigned max_fetches;   /* requests to one source at a time */
    enum fb_engine_kind engine;
    const char *home;        /* a directory for what is learned where no tier has one, or NULL */
    const char *evict;       /* policy name */
    const char *access_log;  /* a file for what is asked for, or NULL */
    bool no_patterns;        /* keep by `evict` alone, whatever programs do */
    bool no_prefetch;        /* nothing is loaded before it is asked for */
    uint32_t prefetch_depth; /* 0: as it takes */
    int64_t stream_ttl_ns;   /* see policy/brain.h; of these, 0 is its default */
    int64_t share_round_ns;
    uint64_t share_step_bytes;
    uint64_t share_min_bytes;
    enum fb_epoch_log_use epoch_log;
    uint64_t epoch_log_daily_bytes; /* that it may write; 0: cache_bytes */
    bool no_watch;                  /* tests: start no background threads; call fb_cache_tick() */
};

void fb_cache_config_defaults(struct fb_cache_config *config);

struct fb_cache;
struct fb_volume;

FB_MUST_CHECK int fb_cache_open(const struct fb_cache_config *config, struct fb_cache **ret_cache,
                                struct fb_error *err);
/* All volumes are detached. What DRAM holds moves into free room below, for a few seconds at most.
 * Bounded in time, also when a source hangs. */
void fb_cache_close(struct fb_cache *cache);

/* Whether epochs are laid out on disk; how fast the disk of a cache directory reads, when that was
 * measured. */
bool fb_cache_lays_out(const struct fb_cache *cache);
FB_MUST_CHECK bool fb_cache_disk_speed(const struct fb_cache *cache, unsigned dir,
                                       struct fb_disk_speed *ret_speed);

struct fb_store *fb_cache_store(struct fb_cache *cache);
struct fb_files *fb_cache_files(struct fb_cache *cache);
struct fb_metrics *fb_cache_metrics(struct fb_cache *cache);

/* Bytes that doors hold for requests under way which pass the cache by: written ones, and read ones
 * of files that change. All doors share what --memory has for them; when that is used up, they take
 * no more in until some were given back. */
void fb_cache_door_take(struct fb_cache *cache, uint64_t bytes);
void fb_cache_door_give(struct fb_cache *cache, uint64_t bytes);
bool fb_cache_door_full(struct fb_cache *cache);

/* ---- volumes: a source attached to the cache ---- */

struct fb_volume_config {
    int64_t metadata_ttl_ns;
    int64_t timeout_ns; /* deadline of each request to the source */
    bool bypass;        /* keep nothing: every read goes to the source */
    /* Tells the door that a record is no longer current, so that the kernel may forget it. Any
     * thread, no lock held; must not wait. */
    void (*retired)(void *arg, uint32_t file);
    void *arg;
};

/* Takes the source over (also on failure). */
FB_MUST_CHECK int fb_volume_attach(struct fb_cache *cache, struct fb_source *source,
                                   const struct fb_volume_config *config,
                                   struct fb_volume **ret_volume, struct fb_error *err);
/* No request may be under way but those that a hung source holds. */
void fb_volume_detach(struct fb_volume *volume);

struct fb_source *fb_volume_source(struct fb_volume *volume);
struct fb_cache *fb_volume_cache(struct fb_volume *volume);
uint16_t fb_volume_id(const struct fb_volume *volume);
int64_t fb_volume_timeout_ns(const struct fb_volume *volume);

/* ---- names ---- */

struct fb_lookup {
    /* in */
    struct fb_volume *volume;
    struct fb_caller caller;
    int64_t deadline_ns; /* 0: the volume's timeout from now */
    const char *path;    /* lives until done */
    bool revalidate;     /* ask the source, however young the record */
    _Atomic bool
        *cancel; /* NULL, or set when a signal came: once caller.pid is dying, done(-EINTR) */
    void (*done)(struct fb_lookup *lookup);
    void *arg;
    /* out */
    int result;    /* 0, or negative errno */
    uint32_t file; /* with a reference for the caller */
    struct fb_attr attr;
    int64_t valid_until_ns;
    /* private */
    struct fb_list link;
};

void fb_cache_lookup(struct fb_lookup *lookup);

/* The path is being changed, or was: the next look-up asks the source. What is cached of it stays,
 * in case it turns out to be the same. */
void fb_cache_forget(struct fb_volume *volume, const char *path);
/* The same of every path: something was changed, and it is not known what. */
void fb_cache_doubt(struct fb_volume *volume);

/* The path was changed through a door: its record is retired and its bytes are dropped, for all
 * volumes of the source and their doors. `attr`: NULL, or what it is now; other names of a file
 * that has several are retired with it. */
void fb_cache_changed(struct fb_volume *volume, const char *path, const struct fb_attr *attr);
/* A file is open for writing through a door, before its names are told as changed; or no longer.
 * While it is, what is learned of a file with several names is believed once only: each write
 * changes it by all of them, and names but one of them as changed. */
void fb_cache_writing(struct fb_volume *volume, const struct fb_attr *attr, bool begins);
/* The same of a path and everything below it: a directory that went, or came. */
void fb_cache_changed_below(struct fb_volume *volume, const char *path);

/* What was asked of the source after this, and before anybody changed that path, can be learned.
 * NULL: anything at all, for questions about many paths. */
uint64_t fb_cache_moment(struct fb_volume *volume, const char *path);

/* What a change told of a path: as if it had been looked up. `asked`: the moment
 * before the source was asked; when something was changed since, this is believed once only.
 * *ret_file has a reference. */
FB_MUST_CHECK int fb_cache_learn(struct fb_volume *volume, const char *path,
                                 const struct fb_attr *attr, uint64_t asked, uint32_t *ret_file);

/* When a listing was made. */
struct fb_heard {
    uint64_t asked;  /* the moment, of all paths */
    int64_t seen_ns; /* its entries were so then, or later: when it was asked for */
};

/* It may have been made before that. */
static inline void fb_heard_answer(struct fb_heard *heard, const struct fb_source_job *job)
{
    int64_t made_ns = fb_now_ns() - job->age_ns;

    if (made_ns < heard->seen_ns)
        heard->seen_ns = made_ns;
}

/* What a listing told of a path that nobody may have asked for: valid for a TTL since then, and no
 * cached bytes go to make room for it. -ESTALE: it is too old, or the source was asked about the
 * path since then, and said otherwise: who wants to know asks again. *ret_file has a reference. */
FB_MUST_CHECK int fb_cache_hear(struct fb_volume *volume, const char *path,
                                const struct fb_attr *attr, const struct fb_heard *heard,
                                uint32_t *ret_file);

/* A record beside the one that stands for the path: for what is to become a new version of it.
 * *ret_file has a reference. -ENOMEM. */
FB_MUST_CHECK int fb_cache_aside(struct fb_volume *volume, const char *path,
                                 const struct fb_attr *attr, uint32_t *ret_file);

/* All bytes of a file that was just written: kept as if they had been read. */
void fb_cache_fill(struct fb_volume *volume, uint32_t file, const uint8_t *data, uint64_t length);

/* ---- bytes ---- */

struct fb_read;

/* One stretch of the answer: from a segment or a buffer, both held until fb_read_release(). */
struct fb_piece {
    const uint8_t *data;
    uint32_t length;
    /* private */
    struct fb_read *read;
    uint32_t block;
    uint32_t offset; /* in the item */
    uint32_t item_length;
    uint8_t outcome;
    int result;
    struct fb_pin pin;
    bool pinned;
    struct fb_buffer *buffer;
    struct fb_store_read medium;
    struct fb_list link; /* among those who wait for a fetch */
};

struct fb_read {
    /* in */
    struct fb_volume *volume;
    struct fb_caller caller;
    int64_t deadline_ns; /* 0: the volume's timeout from now */
    uint32_t file;       /* the caller holds a reference until done */
    uint64_t offset;
    uint32_t length; /* at most FB_READ_MAX */
    uint8_t door;
    /* Not NULL: the calling thread may wait for a medium, quicker for one read at a time. */
    struct fb_meanwhile *meanwhile;
    bool steady; /* nobody is about to use it: what is fetched ahead of it displaces nothing, and it
                  * does not count as a read */
    bool early;  /* nobody asked yet: it counts as a read once fb_read_wanted() says so */
    bool park;   /* with early: what finds no room waits a while in its buffer */
    _Atomic bool
        *cancel; /* NULL, or set when a signal came: once caller.pid is dying, done(-EINTR) */
    void (*done)(struct fb_read *read);
    void *arg;
    /* out */
    int result;     /* 0, or negative errno: then no pieces */
    uint32_t bytes; /* less than length only at the end of the file */
    unsigned piece_count;
    struct fb_piece pieces[FB_READ_PIECES];
    /* private */
    _Atomic unsigned left; /* pieces not answered yet, and one for the caller */
    struct fb_buffer *buffers[FB_READ_PIECES];
    unsigned fetch_count;  /* buffers[0 ...] for pieces that miss, */
    unsigned medium_count; /* then for pieces on a medium */
    struct fb_buffer_wait wait;
    struct fb_buffer_pool *wait_pool;
    bool alone;   /* what it fetches is not kept: only the bytes asked for, for nobody else */
    bool soon;    /* of ahead.c: goes to memory, at the cost of what lies there, */
    bool batched; /* and whoever submits it pumps: more of the file follows */
    struct fb_list link; /* among those who wait for buffers */
};

/* Fill in the `in` part (the rest need not be zeroed). */
void fb_cache_read(struct fb_read *read);
/* Somebody asked for what was read early; after done(), before release. */
void fb_read_wanted(struct fb_read *read);
void fb_read_release(struct fb_read *read);

/* The file is one item, and only on a medium; a hint. The caller holds a reference. */
bool fb_cache_on_medium(struct fb_volume *volume, uint32_t file);
/* Half of the buffers for media at least are free, so nobody waits for one; a hint. */
bool fb_cache_medium_is_free(struct fb_cache *cache);

/* Copies a hit in DRAM into memory of the caller without any reference; -ENOENT: use
 * fb_cache_read(). Leaves an access record. */
FB_MUST_CHECK int64_t fb_cache_copy(struct fb_volume *volume, const struct fb_caller *caller,
                                    uint32_t file, uint64_t offset, uint32_t length,
                                    void *ret_data);

/* Submits and waits: bytes read or negative errno. For tools and tests. */
FB_MUST_CHECK int64_t fb_cache_pread(struct fb_volume *volume, uint32_t file, uint64_t offset,
                                     uint32_t length, void *ret_data);
FB_MUST_CHECK int fb_cache_stat(struct fb_volume *volume, const char *path, uint32_t *ret_file,
                                struct fb_attr *ret_attr);

/* ---- control ---- */

/* Forgets `path` and everything below it, here and (through `retired`) in the kernel; the next
 * access asks the source. Stays forgotten over a restart. Returns how many files were forgotten,
 * without directories and links. */
uint64_t fb_cache_evict(struct fb_volume *volume, const char *path);

/* ---- the brain: what was recognised, and what follows from it (cache/steer.h) ---- */

struct fb_stream_view {
    unsigned depth;   /* below a source's root */
    const char *path; /* below the source */
    struct fb_stream_info info;
    bool owns; /* it is a stream: what is below it is kept by its rule and within its quota */
    bool ended;
    const char *policy;
    uint64_t quota_bytes;
    uint64_t held_bytes;
    double benefit;
    double accuracy; /* of prefetch; 1 when there was none */
    int64_t ttl_ns;  /* INT64_MAX: none */
};

/* Each node of the tree, before those below it. The brain waits meanwhile. */
typedef void fb_stream_visit_fn(void *arg, const struct fb_stream_view *view);
void fb_cache_streams(struct fb_cache *cache, fb_stream_visit_fn *visit, void *arg);

/* What is kept of a path and all below it: one of FB_KEEP_CHOICES (policy/keep.h), or PINNED: it
 * stays, whoever else wants the room; AUTO takes an order back. -EINVAL. */
#define FB_POLICY_AUTO   "auto"
#define FB_POLICY_PINNED "pinned"
FB_MUST_CHECK int fb_cache_set_policy(struct fb_volume *volume, const char *path,
                                      const char *policy);

/* ---- plans: what a training job will read (cache/epochs.h) ---- */

struct fb_plan_order {
    struct fb_plan_spec spec;
    uint64_t epochs; /* after so many the plan has ended; 0: never */
};

/* The files of a job below `dir`, by their paths relative to it, in the data set's order (indexed;
 * taken over, also on failure), and the order in which one rank reads them: from now on they are
 * brought into DRAM ahead of their readers. A plan for the same directory and rank is replaced.
 * Stays over a restart. -EINVAL, -ENOMEM, with a sentence. */
FB_MUST_CHECK int fb_cache_plan(struct fb_volume *volume, const char *dir, struct fb_names *names,
                                const struct fb_plan_order *order, struct fb_error *err);
/* Ends all plans of a directory. Returns how many there were. */
unsigned fb_cache_unplan(struct fb_volume *volume, const char *dir);

struct fb_plan_view {
    uint16_t source;
    const char *dir; /* below the source */
    struct fb_plan_order order;
    bool found; /* by itself, from accesses */
    uint32_t files;
    struct fb_follow_stats follow;
    uint64_t window;  /* files to have ready */
    uint32_t buckets; /* that the next epoch is laid out in; 0: it is not */
    uint64_t ready;   /* brought, and not read yet */
};

typedef void fb_plan_visit_fn(void *arg, const struct fb_plan_view *view);
void fb_cache_plans(struct fb_cache *cache, fb_plan_visit_fn *visit, void *arg);

/* ---- what is learned about reuse (cache/learn.h) ---- */

struct fb_model_view {
    unsigned trainings;      /* over restarts; 0: there is no model yet */
    uint64_t requests;       /* seen, likewise */
    uint64_t trained_at;     /* the last time, in requests */
    int64_t trained_wall_ns; /* 0: not since the start */
    int64_t train_ns;        /* what the last training took, and the last ranking; 0: none yet */
    int64_t rank_ns;
    uint64_t rows;   /* that it trained with */
    uint32_t ranked; /* segments */
    uint64_t bytes;
    double importance[FB_REUSE_FEATURES]; /* shares of 1 */
    struct fb_reuse_quality quality;
};

/* False: this cache does not learn. */
FB_MUST_CHECK bool fb_cache_model(struct fb_cache *cache, struct fb_model_view *ret_view);

/* ---- warming ---- */

struct fb_warm {
    int64_t until_ns;       /* ends about then with -EINPROGRESS, however much is missing */
    uint64_t place;         /* where to begin; then, how far it is */
    uint64_t bytes;         /* of the file */
    uint64_t cached_bytes;  /* of them, in some tier when this returns */
    uint64_t fetched_bytes; /* read for it */
};

/* Brings what is missing of a file, or (check) only looks. Waits for the source, each read within
 * its deadline. What was read is counted by each call, what is cached by the last. */
FB_MUST_CHECK int fb_cache_warm(struct fb_volume *volume, const char *path, bool check,
                                struct fb_warm *warm);

/* How many client processes memory was set aside for. */
unsigned fb_cache_clients_max(const struct fb_cache *cache);

/* Calls `hook` ten times a second on the background thread, for doors that have access records of
 * their own to tell of; it returns whether it has told of all. NULL: no more; returns when a call
 * under way has ended. */
void fb_cache_set_hook(struct fb_cache *cache, bool (*hook)(void *arg), void *arg);

/* Has the background thread take all records, and call the hook, once more; returns when it has. */
void fb_cache_look(struct fb_cache *cache);

/* One access that a door has seen: the brain learns of it. Only from the hook. */
void fb_cache_watch(struct fb_cache *cache, const struct fb_access *access);

/* Counts hits that clients have served themselves. */
void fb_cache_count_client_hits(struct fb_cache *cache, enum fb_tier_kind tier, uint64_t reads,
                                uint64_t bytes);

/* Access records, deadlines, cancelled requests, free-space floors: what the background thread does
 * every 100 ms. */
void fb_cache_tick(struct fb_cache *cache);

#endif
