/*
 * store/store.h - the storage engine: items in segments, segments in tiers, one index over all.
 *
 * The store keeps promises about bytes; it decides nothing. Which tier an item goes to, which
 * segment leaves and what is worth keeping is for the cache and its policies to say.
 *
 * Life of a segment (no. of the call that moves it):
 *
 *     FREE ─1─► OPEN ─2─► SEALING ─3─► SEALED ─4─► DYING ─5─► FREE
 *
 *   1. append() finds no open segment with room, takes a slot.
 *   2. the open segment is full (or flush()), and the last copy into it has ended.
 *   3. DRAM: at once. Persistent: the tier reports that everything is durable; only now does a
 *      crash keep it. Failure: as 4.
 *   4. evict(): entries leave the index, one by one; then the generation turns odd, and readers
 *      that found theirs before that and come later miss.
 *   5. the last pin is dropped; the slot is given back and the generation turns even again.
 *
 * Reading. pin() finds an item and keeps its segment from being reused. An item in memory (DRAM, or
 * a persistent segment not yet written) is handed out as a pointer; one on a medium is read with
 * read(), which verifies the record and the 4 KiB stretches that it returns: damage is -EBADMSG,
 * the item is dropped and counted, the caller fetches it anew. copy() is the lock-free way for DRAM
 * alone: it takes no reference, looks at the generation twice.
 *
 * Two locations an item: a DRAM copy and a persistent copy. An item promoted from NVMe keeps its
 * place there, so that leaving DRAM again costs no write.
 *
 * Threads: any. Locks: FB_RANK_SEGMENT (states, one per tier), FB_RANK_FILES, FB_RANK_INDEX; none
 * is held during I/O or copies.
 */
#ifndef FB_STORE_STORE_H
#define FB_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"
#include "core/lock.h"
#include "core/metrics.h"
#include "io/buffer.h"
#include "io/engine.h"
#include "store/files.h"
#include "store/index.h"
#include "store/tier.h"

#define FB_STORE_METRICS(X)                                                                    \
 X(FB_SM_APPENDED, "store_appended_items", COUNTER, "", "Items written into segments")         \
 X(FB_SM_APPENDED_BYTES, "store_appended", COUNTER, "bytes", "Bytes written into segments")    \
 X(FB_SM_SEALED, "store_segments_sealed", COUNTER, "", "Segments sealed")                      \
 X(FB_SM_SEAL_FAILED, "store_segments_failed", COUNTER, "", "Segments lost to a write error")  \
 X(FB_SM_EVICTED, "store_segments_evicted", COUNTER, "", "Segments evicted")                   \
 X(FB_SM_EVICTED_ITEMS, "store_evicted_items", COUNTER, "", "Items that left with a segment")  \
 X(FB_SM_DAMAGED, "store_damaged_items", COUNTER, "", "Items found damaged when read")         \
 X(FB_SM_LATE, "store_late_reads", COUNTER, "", "Reads given up as a disk did not answer")     \
 X(FB_SM_DAMAGED_SEGMENTS, "store_damaged_segments", COUNTER, "", "Segments dropped at start") \
 X(FB_SM_RECOVERED, "store_recovered_items", COUNTER, "", "Items found again at start")        \
 X(FB_SM_DISPLACED, "store_displaced_items", COUNTER, "", "Items that gave way in a full index")

enum fb_store_metric {
    FB_STORE_METRICS(FB_METRIC_ENUM)
};

struct fb_store_config {
    uint32_t block_bytes; /* largest item */
    uint64_t max_items;
    uint64_t files_bytes;
    unsigned tier_count; /* from fast to slow; at most one of each kind */
    struct fb_tier_config tiers[FB_TIERS_MAX];
};

struct fb_store;

/* Large enough for any item read from a medium: record, data and alignment at both ends. */
uint32_t fb_store_buffer_bytes(uint32_t block_bytes);

/* Bytes of shared tables such a configuration takes. */
uint64_t fb_store_tables_bytes(const struct fb_store_config *config);

/* Opens the tiers and recovers what they hold. */
FB_MUST_CHECK int fb_store_open(const struct fb_store_config *config, struct fb_store **ret_store,
                                struct fb_error *err);
/* Seals what is open (unless `abandon`) and waits for it; no request may be under way. */
void fb_store_close(struct fb_store *store, bool abandon);

struct fb_files *fb_store_files(struct fb_store *store);
struct fb_metrics *fb_store_metrics(struct fb_store *store);
const struct fb_layout *fb_store_layout(const struct fb_store *store);
int fb_store_tables_memfd(const struct fb_store *store);
unsigned fb_store_tiers(const struct fb_store *store);
struct fb_tier *fb_store_tier(struct fb_store *store, unsigned tier);

int fb_store_dram_memfd(const struct fb_store *store); /* -1: no DRAM tier */

/* The NVMe tier, for those who read it themselves. */
struct fb_store_medium {
    uint32_t base; /* number of its first segment */
    uint32_t slots;
    uint64_t segment_bytes;
    unsigned count;            /* of files; 0: there is no such tier */
    int fds[FB_TIER_DIRS_MAX]; /* the tier's own */
};

void fb_store_medium(struct fb_store *store, struct fb_store_medium *ret_medium);

/* Others read DRAM segments without pins of ours: an emptied one is reused only when `held` says
 * no. Called under FB_RANK_SEGMENT, when a segment is about to be free; it must not wait. A segment
 * that was held is looked at again by fb_store_beat(). NULL: nobody. */
typedef bool fb_store_held_fn(void *arg, uint32_t segment);
void fb_store_set_guard(struct fb_store *store, fb_store_held_fn *held, void *arg);
bool fb_store_is_held(struct fb_store *store, uint32_t segment);

/* To be called ten times a second: shows readers of the tables that they are looked after. */
void fb_store_beat(struct fb_store *store);

/* ---- reading ---- */

enum {
    FB_STORE_MISS = 1,
    FB_STORE_MEDIUM = 2, /* found, on a medium: read() it */
    FB_STORE_FULL = 3,   /* evict something from this tier first */
    FB_STORE_BUSY = 4,   /* try again when a write has completed */
};

struct fb_pin {
    uint64_t key;
    uint64_t loc;
    uint32_t length; /* of the item */
    uint8_t tier;
    bool from_memory;
    const uint8_t *data; /* the item's bytes, when from_memory */
    void *segment;       /* private */
};

/* 0: pinned, data is readable until unpin. FB_STORE_MEDIUM: pinned, to be read. FB_STORE_MISS.
 * The caller holds a reference to the item's file until the item has been read. */
FB_MUST_CHECK int fb_store_pin(struct fb_store *store, uint64_t key, struct fb_pin *ret_pin);
void fb_store_unpin(struct fb_store *store, struct fb_pin *pin);

/* Copies from DRAM without a reference. Returns bytes copied (0 to length), or -ENOENT: use
 * pin(). */
FB_MUST_CHECK int64_t fb_store_copy(struct fb_store *store, uint64_t key, uint32_t offset,
                                    uint32_t length, void *ret_data);

/* Reads bytes [offset, offset + length) of a pinned item into `buffer`; they are then at `data`. */
struct fb_store_read {
    struct fb_pin *pin;
    uint32_t offset;
    uint32_t length;
    struct fb_buffer *buffer;
    struct fb_meanwhile *meanwhile; /* not NULL: the calling thread may wait for the medium */
    void (*done)(struct fb_store_read *read); /* the tier's thread, or the caller's own */
    /* 0; -EBADMSG: damaged; -ETIMEDOUT: the medium does not answer, and `buffer` has other memory;
     * other errors: the medium's. The item is dropped, whatever the error but -ETIMEDOUT. */
    int result;
    const uint8_t *data;
    /* private */
    struct fb_store *store;
    struct fb_tier_read parts[2];
    _Atomic unsigned parts_left;
};

void fb_store_read(struct fb_store *store, struct fb_store_read *read);

/* ---- writing ---- */

/* What was written anew, and what an eviction has kept, go into segments of their own: what is old
 * and good does not lie beside what nobody knows yet. So does what a plan will read together, and
 * what of it stays in DRAM: what has no other place, and copies of what lies below. */
enum fb_store_lane {
    FB_STORE_NEW,
    FB_STORE_KEPT,
    FB_STORE_PLAN,
    FB_STORE_COPY,
    FB_STORE_LANES,
};

struct fb_item {
    uint32_t file; /* id; the caller holds a reference */
    uint32_t block;
    uint32_t length;
    enum fb_store_lane lane;
    bool far;  /* comes from afar: somebody waits long enough without the costs of huge pages */
    bool anew; /* write it though it has a place of this kind, which it leaves */
    const uint8_t *data;
    uint64_t charge;   /* for tenants to come: 0 */
    struct fb_use use; /* all 0: used now, and nothing more is known */
};

/* Puts an item into the open segment of a tier. 0, FB_STORE_FULL, FB_STORE_BUSY, negative errno. An
 * item that already is there (same location kind) is left alone: 0, unless `anew`. */
FB_MUST_CHECK int fb_store_append(struct fb_store *store, unsigned tier,
                                  const struct fb_item *item);

/* Reads a sealed segment whole, in large pieces side by side, and visits its live items, verified
 * and with a reference to their files. `memory` has the size of a segment of that tier, aligned to
 * 4 KiB. Waits for the medium. -EBUSY: not sealed. Damaged items are dropped. */
typedef void fb_store_loaded_fn(void *arg, const struct fb_item *item);
FB_MUST_CHECK int fb_store_load(struct fb_store *store, uint32_t segment, uint8_t *memory,
                                fb_store_loaded_fn *visit, void *arg);

/* A stretch of a sealed segment of a medium: items that lie close together, read at once. */
struct fb_stretch {
    uint32_t segment;         /* the caller says where, */
    uint32_t first;           /* from which item on, by its place among those of the segment, */
    struct fb_buffer *buffer; /* and into what: of fb_store_buffer_bytes() at least */
    uint32_t end;             /* known once it has begun: where the next one goes on */
    /* private */
    uint64_t from, until;
    struct fb_tier_read read;
    struct fb_event done;
};

/* Begins to read the next items that have no copy in DRAM and that `wants` (which has a reference
 * to the item's file, and no data) says yes to. 0: end() is due, by any thread. FB_STORE_MISS:
 * there are none in the rest of the segment. -EBUSY: it is not sealed. */
typedef bool fb_store_wants_fn(void *arg, const struct fb_item *item);
FB_MUST_CHECK int fb_store_stretch_begin(struct fb_store *store, struct fb_stretch *stretch,
                                         fb_store_wants_fn *wants, void *arg);
/* Waits for it, and visits its items as load() does. -ETIMEDOUT: the medium does not answer, and
 * the buffer has other memory. */
FB_MUST_CHECK int fb_store_stretch_end(struct fb_store *store, struct fb_stretch *stretch,
                                       fb_store_loaded_fn *visit, void *arg);

/* Whether append would find room without evicting. */
bool fb_store_has_room(struct fb_store *store, unsigned tier);

/* Bytes of slots that what is new may have without evicting. */
uint64_t fb_store_room(struct fb_store *store, unsigned tier);

/* While on, free slots of the tier are for what is kept (FB_STORE_KEPT): who empties segments and
 * puts some of it back finds the room that he made. */
void fb_store_set_aside(struct fb_store *store, unsigned tier, bool on);

/* The last `slots` free ones of the tier are not for what is new: who moves what is there needs
 * room to do it. */
void fb_store_set_spare(struct fb_store *store, unsigned tier, uint32_t slots);

/* Bytes of the segments of a lane. */
uint64_t fb_store_lane_bytes(struct fb_store *store, unsigned tier, enum fb_store_lane lane);

/* A sealed segment is of that lane from now on. False: it is not sealed (any more). */
bool fb_store_set_lane(struct fb_store *store, uint32_t segment, enum fb_store_lane lane);

/* Those of FB_STORE_PLAN and FB_STORE_COPY are like any others from now on, but for those that are
 * just being sealed. */
void fb_store_end_planned(struct fb_store *store, unsigned tier);

/* Waits until a write has completed, at most until the deadline. */
void fb_store_wait_writes(struct fb_store *store, int64_t until_ns);

/* Closes the open segment of a lane: what comes next goes into another. */
void fb_store_end_segment(struct fb_store *store, unsigned tier, enum fb_store_lane lane);

/* Seals the open segments and waits until they are durable: for tests and shutdown. */
FB_MUST_CHECK int fb_store_flush(struct fb_store *store);

/* ---- evicting ---- */

struct fb_segment_info {
    uint32_t no;
    uint32_t items; /* ever appended */
    uint32_t live_items;
    uint32_t live_bytes;
    uint32_t used_bytes;
    uint32_t hits;     /* accesses since it was opened */
    uint64_t sequence; /* order of opening over all tiers */
    int64_t opened_ns;
    int64_t last_access_ns;
    bool pinned; /* somebody reads it, or its disk is out of order: emptying it is of no use now */
    enum fb_store_lane lane;
};

/* The sealed segments of a tier, at most `max`. Returns how many. */
uint32_t fb_store_sealed(struct fb_store *store, unsigned tier, struct fb_segment_info *ret_infos,
                         uint32_t max);

struct fb_victim {
    struct fb_item item; /* data NULL: on a medium and not wanted (want_data false) or damaged */
    bool other_copy;     /* it has a copy in another tier */
    bool current;        /* its file's version is still the current one */
    void *emptying;      /* private */
};

/* The bytes of an item whose segment is emptied without want_data: for who wants some of them.
 * Only during the visit. NULL: damaged, or no memory. */
const uint8_t *fb_victim_data(const struct fb_victim *victim);

/* Empties a sealed segment: calls visit (may be NULL) for each live item, with a reference to
 * its file, then takes it out of the index. -EBUSY: not sealed (any more). visit may append to a
 * lower tier, or the item to this one again. The slot is free when this returns, or when the last
 * pin goes. */
typedef void fb_victim_fn(void *arg, const struct fb_victim *victim);
FB_MUST_CHECK int fb_store_evict(struct fb_store *store, uint32_t segment, bool want_data,
                                 fb_victim_fn *visit, void *arg);

/* Notes that everything below `path` was evicted by hand, so that a restart does not bring back
 * what is in segments by now. Takes nothing out of the index: forget() does, and must have done
 * so before. Durable when it returns 0. */
FB_MUST_CHECK int fb_store_hide(struct fb_store *store, uint16_t source, const char *path);

/* Takes all items of a file out of the index (all tiers). The caller holds a reference. */
void fb_store_forget(struct fb_store *store, uint32_t file);

/* Takes one item out of the index (all tiers). */
void fb_store_drop(struct fb_store *store, uint64_t key);

/* Where an item is. */
struct fb_whereabouts {
    bool in_dram;
    enum fb_store_lane lane; /* of its segment there */
    bool below;              /* in a persistent tier */
    uint32_t segment;        /* there */
};

void fb_store_where(const struct fb_store *store, uint64_t key, struct fb_whereabouts *ret_where);

/* Takes an item's copy in DRAM out of the index, whether or not there is another one. */
void fb_store_drop_dram(struct fb_store *store, uint64_t key);

/* One access to an item, told by whoever drained the access records. loc FB_LOC_NONE: wherever
 * it is. `use` is what is remembered of it from now on; NULL: the second it was used in, and how
 * often. */
void fb_store_touch(struct fb_store *store, uint64_t key, uint64_t loc, int64_t now_ns,
                    const struct fb_use *use);

/* What is remembered of an item; false: it is not here. */
bool fb_store_use(struct fb_store *store, uint64_t key, struct fb_use *ret_use);

/* As fb_store_sealed(), of one segment; false: it is not sealed. */
bool fb_store_segment(struct fb_store *store, uint32_t segment, struct fb_segment_info *ret_info);

/* What part of a sealed segment items of a kind of files take up, by at most `sample` of those that
 * were ever in it; each file is held while it is judged. 0 when it is not sealed. */
typedef bool fb_store_file_fn(void *arg, uint32_t file);
double fb_store_share(struct fb_store *store, uint32_t segment, uint32_t sample,
                      fb_store_file_fn *is_of_kind, void *arg);

/* Visits items of a sealed segment that are still there, evenly spread and at most `sample` of
 * those that were ever in it. Nothing is held: an item may leave meanwhile. -EBUSY: not sealed. */
typedef void fb_store_item_fn(void *arg, uint64_t key, uint32_t length, const struct fb_use *use);
FB_MUST_CHECK int fb_store_visit(struct fb_store *store, uint32_t segment, uint32_t sample,
                                 fb_store_item_fn *visit, void *arg);

/* Items in the index. */
uint64_t fb_store_items(const struct fb_store *store);

struct fb_tier_stats {
    const char *name;
    uint64_t budget_bytes; /* slots * segment_bytes */
    uint64_t used_bytes;   /* records in open and sealed segments */
    uint64_t live_bytes;
    uint32_t segments; /* taken */
    uint32_t slots;
    uint64_t items;
    bool is_short; /* its disk has no room for more */
};

void fb_store_tier_stats(struct fb_store *store, unsigned tier, struct fb_tier_stats *ret_stats);

/* Sources are named by small numbers that stay the same over restarts; kept in the first persistent
 * tier's first directory (file `sources`). */
FB_MUST_CHECK int fb_store_source_id(struct fb_store *store, const char *uri, uint16_t *ret_id);

#endif
