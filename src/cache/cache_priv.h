/*
 * cache/cache_priv.h - what the files of this module share.
 *
 *     read.c   splits a read into pieces, one an item, and joins their answers
 *     ahead.c  fetches ahead of who reads a large file from front to back
 *     warm.c   loads what a user asks for
 *     steer.c  the brain at work
 *     epochs.c plans at work; epoch_file.c: plans over a restart; epoch_log.c: the next epoch
 *     want.c   what the brain wants fetched ahead, as names; fill.c: data sets to have whole
 *     raise.c  what is on a disk and will be read comes up into DRAM
 *     near.c   what lies beside the files that are read
 *     bring.c  brings files that nobody has asked for yet
 *     pipe.c   how long a source takes, and how much it gives
 *     learn.c  what is learned about reuse, for eviction; the access log
 *     dirs.c   directories that are known; walk.c: whole data sets
 *     fetch.c  one fetch an item, adjacent ones in one request, within limits
 *     place.c  which tier an item enters, what leaves, what moves down or up; place_plan.c: where a
 *              plan says what is read next
 *     meta.c   names: look-ups, revalidation, what to believe during an outage
 *     cache.c  life of cache and volumes; watch.c: the background thread
 *
 * Locks: fetch_lock (FB_RANK_FETCH) guards the table of fetches, the volumes' queues and the list
 * of reads waiting for buffers; meta_lock (FB_RANK_META) the table of look-ups; admit_lock
 * (FB_RANK_ADMIT) the choice of victims. None is held while a `done` runs or a source is called.
 */
#ifndef FB_CACHE_CACHE_PRIV_H
#define FB_CACHE_CACHE_PRIV_H

#include <pthread.h>

#include "base/list.h"
#include "cache/bring.h"
#include "cache/budget.h"
#include "cache/cache.h"
#include "cache/dirs.h"
#include "cache/epochs.h"
#include "cache/exchange.h"
#include "cache/learn.h"
#include "cache/near.h"
#include "cache/orders.h"
#include "cache/raise.h"
#include "cache/steer.h"
#include "core/limits.h"
#include "core/lock.h"
#include "policy/evict.h"
#include "proto/access.h"

#define FB_FETCH_BUCKETS  1024u
#define FB_LOOKUP_BUCKETS 256u
#define FB_FORGET_BUCKETS 1024u
#define FB_WRITER_BUCKETS 1024u
#define FB_ACCESS_RINGS   4u
#define FB_ACCESS_SLOTS   8192u /* in each ring: 448 KiB */
#define FB_ACCESS_SPARE   4096u /* of them, which hits in memory leave to what had to wait */
#define FB_VOLUMES_MAX    256u
#define FB_AHEAD_SLOTS    64u
#define FB_TICK_NS        100000000LL /* between rounds of the background thread */

struct fb_tier_place {
    void *policy_state;
    struct fb_segment_info *infos; /* room for every slot of the tier */
    uint32_t infos_max;
    int64_t stuck_until_ns; /* nothing could go that is not pinned; guarded by admit_lock */
};

struct fb_cache {
    struct fb_cache_config config;
    struct fb_budget budget;
    struct fb_disk_speed speeds[FB_TIER_DIRS_MAX];
    struct fb_metrics metrics;
    struct fb_engine *engine;
    struct fb_buffer_pool *fetch_pool;
    struct fb_buffer_pool *medium_pool;
    struct fb_store *store;
    struct fb_files *files;
    const struct fb_evict_ops *evict;

    struct fb_mutex fetch_lock;
    struct fb_list fetches[FB_FETCH_BUCKETS];
    struct fb_list waiting; /* reads that wait for buffers */
    struct fb_list volumes;

    _Atomic uint64_t door_bytes; /* of requests that pass the cache by */

    struct fb_mutex meta_lock;
    struct fb_list lookups[FB_LOOKUP_BUCKETS];

    /* What was forgotten or changed: calls for everything below a path; for one path, by its hash;
     * and all of them. */
    _Atomic uint64_t forgets;
    _Atomic uint64_t forgets_at[FB_FORGET_BUCKETS];
    _Atomic uint64_t forgets_all;
    _Atomic int64_t changed_ns; /* when the last of them was */
    /* Files open for writing, by the hash of their numbers: see fb_cache_writing(). */
    _Atomic uint32_t writers[FB_WRITER_BUCKETS];
    /* Calls of fb_cache_evict(): what was read before one must not be kept after it. Counted
     * before anything is forgotten; who keeps something looks after it is in the index (all of
     * this seq_cst, the index has a lock): so one of the two sees the other. */
    _Atomic uint64_t evictions;

    _Atomic int64_t drop_logged_ns; /* for fb_log_limited() */
    _Atomic int64_t busy_until_ns;  /* disks were waited for in vain: nobody waits again before */
    struct fb_mutex admit_lock;
    int64_t displace_ns; /* under it: nothing of others goes for a plan's before */
    struct fb_tier_place places[FB_TIERS_MAX];

    struct fb_access_ring *rings[FB_ACCESS_RINGS];
    struct fb_access_reader readers[FB_ACCESS_RINGS]; /* the background thread's */

    struct fb_orders *orders;
    struct fb_exchange *exchange;
    struct fb_steer *steer;
    struct fb_epochs *epochs;
    struct fb_learn *learn;
    uint64_t watched;      /* accesses, the background thread's, */
    int64_t rest_until_ns; /* as is when it takes records again */
    int64_t beat_ns;       /* the last one; 0: none yet */
    struct fb_dirs *dirs;
    struct fb_bring *bring;
    struct fb_near *near;
    struct fb_fill *fill;   /* NULL: without a background thread */
    struct fb_raise *raise; /* NULL: without one, or without DRAM and a disk */

    struct fb_mutex hook_lock; /* FB_RANK_HOOK: held while the hook runs */
    bool (*hook)(void *arg);
    void *hook_arg;

    struct fb_mutex watch_lock;
    struct fb_cond watch_cond;
    struct fb_cond looked;
    uint64_t looks;
    unsigned looks_wanted;
    bool watch_stop;
    bool watch_running;
    bool floor_running;
    pthread_t watch;
    pthread_t floor;
    struct fb_cond floor_cond;
};

/* See pipe.c. */
struct fb_pipe {
    _Atomic int64_t read_ns; /* a request takes, lately; 0: unknown */
    _Atomic int64_t stat_ns;
    _Atomic int64_t idle_ns; /* one takes when the source has little to do */
    _Atomic uint64_t bytes;  /* read in all, */
    _Atomic uint64_t reads;  /* by so many requests */
    uint64_t bytes_before;   /* when last looked, by the background thread */
    int64_t looked_ns;
    double bytes_per_s; /* that it gave when it was busy; 0: it never was */
};

/* See ahead.c. */
struct fb_ahead_slot {
    atomic_flag busy;
    uint32_t file;
    uint64_t next;           /* where the reader is */
    uint64_t run;            /* bytes since it began to go from front to back */
    uint64_t window;         /* bytes to have ready */
    uint64_t until;          /* what was fetched ahead, or asked for */
    _Atomic int64_t used_ns; /* when its window was last used */
};

struct fb_volume {
    struct fb_cache *cache;
    struct fb_source *source;
    struct fb_volume_config config;
    _Atomic int64_t ttl_ns; /* the shortest of all volumes of this source */
    uint16_t id;
    struct fb_buffer_account *account; /* in the fetch pool */
    struct fb_list link;
    struct fb_list alone;   /* fetches that are shared with nobody, guarded by fetch_lock */
    struct fb_list pending; /* fetches not yet sent, likewise */
    struct fb_list parked;  /* those that wait in their buffers for a reader, likewise */
    unsigned parked_count;
    unsigned running;      /* requests at the source, likewise, */
    uint64_t demand_bytes; /* and what of them somebody waits for, or reads on to */
    unsigned busy;         /* callbacks of ours that have not returned, likewise */
    unsigned holds;        /* those who ask unbidden, likewise */
    bool leaving;          /* is being detached, likewise */
    struct fb_cond idle;
    unsigned bringing; /* files that bring.c brings, guarded by its lock */
    struct fb_pipe pipe;
    struct fb_ahead_slot ahead[FB_AHEAD_SLOTS];
    _Atomic uint64_t ahead_bytes; /* asked for ahead, and not there yet */
};

/* In some tier. */
static inline bool fb_item_is_there(struct fb_cache *cache, uint32_t file, uint32_t block)
{
    struct fb_pin pin;

    if (fb_store_pin(cache->store, fb_item_key(file, block), &pin) == FB_STORE_MISS)
        return false;
    fb_store_unpin(cache->store, &pin);
    return true;
}

/* ahead.c: what a read is a reason to fetch, if anything; true: go() must follow, for the plan
 * holds the file and the volume. */
struct fb_ahead {
    struct fb_volume *volume;
    struct fb_caller caller;
    uint32_t file;
    uint8_t door;
    bool soon; /* see struct fb_read */
    uint64_t from, until;
};

FB_MUST_CHECK bool fb_ahead_plan(const struct fb_read *read, struct fb_ahead *ret_ahead);
void fb_ahead_go(const struct fb_ahead *ahead);

/* read.c */
void fb_read_submit(struct fb_read *read);
/* As fb_cache_pread(), of what is only to be kept. */
FB_MUST_CHECK int64_t fb_cache_pread_steadily(struct fb_volume *volume, uint32_t file,
                                              uint64_t offset, uint32_t length, void *ret_data);
void fb_piece_done(struct fb_piece *piece, int result, uint8_t outcome);
/* Ends reads that wait for buffers and whose time is up, or that were cancelled. */
void fb_read_expire(struct fb_cache *cache, int64_t now_ns);

/* fetch.c */
void fb_fetch_join(struct fb_piece *piece, struct fb_buffer *buffer);
void fb_fetch_pump(struct fb_volume *volume);
/* Ends fetches that were never sent and whose time is up; and parks those no longer whose time is.
 */
void fb_fetch_expire(struct fb_cache *cache, int64_t now_ns);
/* An item is being fetched, or kept. */
bool fb_fetch_is_under_way(struct fb_volume *volume, uint32_t file, uint32_t block);
/* Whether another could be parked besides those and `coming`, or instead of one that nobody came
 * for. */
bool fb_fetch_may_park(struct fb_volume *volume, unsigned coming);
/* Lets one go, if it is parked. */
void fb_fetch_unpark_key(struct fb_cache *cache, uint64_t key);
/* Lets what was parked until then go; NULL: of all volumes. */
void fb_fetch_unpark(struct fb_cache *cache, struct fb_volume *only, int64_t before_ns);
/* Ends the waiting of cancelled reads; their fetches go on. */
void fb_fetch_cancel(struct fb_cache *cache);

/* Tells the doors of all volumes of a source that a record is no longer current. */
void fb_volumes_retired(struct fb_cache *cache, uint16_t source, uint32_t file);

/* Holds a volume for who asks its source unbidden: detach waits before it closes the source. False:
 * it is being detached. */
FB_MUST_CHECK bool fb_volume_hold(struct fb_volume *volume);
/* Holds some volume of a source that keeps what it reads; NULL: there is none. */
FB_MUST_CHECK struct fb_volume *fb_volume_hold_any(struct fb_cache *cache, uint16_t source);
void fb_volume_let_go(struct fb_volume *volume);

/* Requests that its source has. */
unsigned fb_volume_running(struct fb_volume *volume);

/* Marks that a callback works on the volume, so that detach waits for it. */
void fb_volume_enter(struct fb_volume *volume);
void fb_volume_leave(struct fb_volume *volume);

/* place.c */
FB_MUST_CHECK int fb_place_open(struct fb_cache *cache);
void fb_place_close(struct fb_cache *cache);
/* `evictions` as they were before the item was read; `soon`: it is about to be used. */
void fb_place_admit(struct fb_cache *cache, const struct fb_item *item, uint64_t evictions,
                    bool soon);
/* Whether something would have to go for another item. */
bool fb_place_is_full(const struct fb_cache *cache);
/* Copies an item up if DRAM has room; false: it has not, or the item has left its place below. */
bool fb_place_promote(struct fb_cache *cache, const struct fb_item *item);
/* Bytes of DRAM that no segment has. */
uint64_t fb_place_dram_free(struct fb_cache *cache);
/* The same of all tiers, as far as what is new may have it, and stay: a disk may be full, or have
 * failed, and while a plan is followed some of DRAM is its way through. */
uint64_t fb_place_free(struct fb_cache *cache);
/* Makes so much of DRAM free, by what nobody needs there any more, then by what came first, then by
 * what was kept; 0: only the first. What is due stays there: segments half empty become fewer.
 * `is_due` may be NULL; it has a reference to the item's file, and the admit lock is held. */
typedef bool fb_place_due_fn(void *arg, const struct fb_item *item);
void fb_place_clear(struct fb_cache *cache, uint64_t bytes, fb_place_due_fn *is_due, void *arg);
/* An item was read and is of no use in DRAM for long: it stays below or moves there if its stream
 * keeps it. Where there is no room below it stays, beside others of its kind, while all of that
 * takes less than kept_bytes; where there is, a copy stays while it takes less than copied_bytes.
 * The caller holds a reference. */
void fb_place_leave(struct fb_cache *cache, uint64_t key, uint64_t kept_bytes,
                    uint64_t copied_bytes);
/* Bytes of DRAM that are kept so. */
uint64_t fb_place_kept(struct fb_cache *cache);
/* A plan has come. What DRAM has of its data set already, from readers without a plan or with
 * another one, counts as kept from now on: up to `most_bytes`, of segments that are well filled; as
 * copies, where the disk has room for all of that. What is kept for no plan any more counts as
 * anybody's. `is_planned` is asked of file ids that nobody holds; the admit lock is held. */
typedef bool fb_place_planned_fn(void *arg, uint32_t file);
void fb_place_adopt(struct fb_cache *cache, uint64_t most_bytes, fb_place_planned_fn *is_planned,
                    void *arg);
/* Lets a segment of copies go, the oldest, but for what is due. False: there is none. */
bool fb_place_give_copies(struct fb_cache *cache, fb_place_due_fn *is_due, void *arg);
/* Writes what DRAM has of an item into the log's open segment of the slowest tier; its old place
 * there is dead then. 0; positive or negative: it stays as it is. The caller holds a reference. */
FB_MUST_CHECK int fb_place_relocate(struct fb_cache *cache, uint64_t key, uint64_t evictions,
                                    uint32_t *ret_bytes);
/* Makes room in the slowest tier without losing anything: frees what is dead, and moves what is
 * left of the emptiest segment into another. Returns the bytes written; 0: all are well filled.
 * `memory` has the size of a segment. */
FB_MUST_CHECK uint64_t fb_place_compact(struct fb_cache *cache, uint8_t *memory);
void fb_place_tick(struct fb_cache *cache);
void fb_place_save(struct fb_cache *cache, int64_t until_ns);
/* Empties a segment of the slowest tier that has one. -ENOSPC: nothing can go. */
FB_MUST_CHECK int fb_place_shed(struct fb_cache *cache);

/* meta.c: what the source said of a path. Returns the look-up's result; *ret_file has a reference.
 */
FB_MUST_CHECK int fb_meta_settle(struct fb_volume *volume, const char *path, int result,
                                 const struct fb_attr *attr, uint32_t *ret_file);

/* Before anything is forgotten: what is learned from questions asked before is believed once only.
 * NULL: of all paths. */
void fb_meta_forgetting(struct fb_volume *volume, const char *path);

/* How old what is learned of a path for the first time may be. */
int64_t fb_meta_age_allowed(struct fb_volume *volume);

/* Ends the waiting of cancelled look-ups. */
void fb_meta_cancel(struct fb_cache *cache);

/* A signal came, and it ends the program: nobody will miss the answer. Other signals leave a wait
 * as it is, as on any disk file system. Relaxed: a hint that is looked at ten times a second. */
static inline bool fb_cancelled(const _Atomic bool *cancel, const struct fb_caller *caller)
{
    return cancel && atomic_load_explicit(cancel, memory_order_relaxed) &&
           fb_task_is_dying(caller->pid);
}

/* pipe.c: a request was answered; the background thread looks now and then. */
void fb_pipe_read(struct fb_volume *volume, int64_t took_ns, uint64_t bytes);
void fb_pipe_stat(struct fb_volume *volume, int64_t took_ns);
void fb_pipe_tick(struct fb_cache *cache, int64_t now_ns);
/* To have a file that is not known: to look it up, and to read it. */
struct fb_prefetch_pipe fb_pipe_of(struct fb_cache *cache, uint16_t source, uint64_t item_bytes);
/* Whoever reads there waits longer than it takes to work: a network, or as slow as one. */
bool fb_pipe_is_far(struct fb_cache *cache, uint16_t source);

/* Programs fill the way to a source that is far: nothing else begins (policy/prefetch.h). */
bool fb_pipe_yields(struct fb_volume *volume);

/* fill.c: loads `bytes` of what lies below a path; false: something else is being loaded. */
struct fb_fill;
FB_MUST_CHECK int fb_fill_create(struct fb_cache *cache, struct fb_fill **ret_fill);
void fb_fill_destroy(struct fb_fill *fill); /* takes NULL */
bool fb_fill_want(struct fb_fill *fill, uint16_t source, const char *path, uint64_t bytes);
/* Goes once over what lies below a path, of a stream that takes turns: what is due is brought in
 * place of what is not (exchange.h), as long as there is such; false as above. */
bool fb_fill_turns(struct fb_fill *fill, uint16_t source, const char *path, uint32_t stream);
/* How many were asked for, or had room made for them; known once, when it is over. */
bool fb_fill_turned(struct fb_fill *fill, uint32_t *ret_stream, uint64_t *ret_count);
/* Learns the attributes of files that have records, which are out of date; false as above. */
bool fb_fill_learn(struct fb_fill *fill, uint16_t source, const char *path);
bool fb_fill_is_busy(struct fb_fill *fill);
/* Adds up how large that is, for a node; false as above. Known once, when it is. */
bool fb_fill_measure(struct fb_fill *fill, uint16_t source, const char *path, uint64_t node);
bool fb_fill_measured(struct fb_fill *fill, uint64_t *ret_node, uint64_t *ret_bytes);

/* watch.c */
FB_MUST_CHECK int fb_watch_start(struct fb_cache *cache);
void fb_watch_stop(struct fb_cache *cache);

static inline void fb_cache_note(struct fb_cache *cache, unsigned thread,
                                 const struct fb_access *access)
{
    struct fb_access_ring *ring = cache->rings[thread % FB_ACCESS_RINGS];

    if (access->outcome == FB_ACCESS_MEMORY && fb_access_full(ring, FB_ACCESS_SPARE))
        fb_access_drop(ring);
    else
        fb_access_push(ring, access);
}

#endif
