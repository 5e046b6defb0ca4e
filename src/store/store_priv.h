/*
 * store/store_priv.h - the store's inside, shared by its files:
 *
 *     store.c    opening, closing, small questions        read.c     copy, pin, verified reads
 *     segment.c  states of segments, from free to free    evict.c    emptying segments, forgetting
 *     load.c     whole segments, read at once
 *     append.c   putting an item into a segment           recover.c  what the tiers hold at start
 *     seal.c     tables of contents, staging memory       sources.c  the list of sources
 *
 * A segment's rules, by number:
 *   1. state, full, copies, items, used, toc_room, emptied change under the tier's lock.
 *   2. keys and building are written under it while OPEN, by nobody afterwards; sealing replaces
 *      keys before it says SEALED. Who evicts owns them from then on.
 *   3. Only the thread that turned a segment to SEALING, SEALED -> DYING or FREE -> OPEN does what
 *      that step needs; no two threads ever share a step.
 *   4. pins keep a segment from becoming FREE. A pin counts if the generation was even and the
 *      right one after it was taken; pins and gen are seq_cst on both sides (pin: add, then load
 *      gen; evict: store gen, then load pins), so one of the two sees the other.
 *   5. mem_pins keep memory from being given back, under the same rule with mem in the place of
 *      gen: reader: add, then load mem; seal: clear mem, then load mem_pins. Whoever finds mem_pins
 *      0 after mem is NULL takes mem_done by an exchange and releases it; only one can get it. A
 *      mem pin is dropped before its pin: so memory is back before the slot can be.
 *   6. live_items and live_bytes follow the index, under its lock: never out of step with it.
 */
#ifndef FB_STORE_STORE_PRIV_H
#define FB_STORE_STORE_PRIV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/lock.h"
#include "store/evictions.h"
#include "store/index.h"
#include "store/store.h"

enum fb_segment_state {
    FB_SEGMENT_FREE,
    FB_SEGMENT_OPEN,
    FB_SEGMENT_SEALING,
    FB_SEGMENT_SEALED,
    FB_SEGMENT_DYING,
};

/* Where an item lies in a segment that is being built: the table of contents is made from this, not
 * from the records. */
struct fb_building {
    uint32_t offset_units;
    uint32_t length;
};

struct fb_segment {
    _Atomic uint32_t pins;
    _Atomic uint32_t mem_pins;
    _Atomic(uint8_t *) mem;      /* where it can be read; NULL: on the medium */
    _Atomic(uint8_t *) mem_done; /* staging memory that waits to be given back */
    _Atomic uint32_t live_items;
    _Atomic uint32_t live_bytes; /* records, with their headers and padding */
    _Atomic uint32_t hits;
    _Atomic uint8_t lane; /* since it was opened; relaxed: says what it is for, no more */
    _Atomic int64_t last_access_ns;

    uint32_t no;
    uint8_t tier;
    uint8_t state;
    bool full;            /* closed: nothing more is appended */
    bool emptied;         /* DYING: nothing of it is left in the index */
    _Atomic bool leaving; /* DYING: what is found in it is about to go; a hint to who appends */
    uint32_t items;
    uint32_t used;   /* where the next record goes, from the start of the slot */
    uint32_t copies; /* appends that have reserved room and not yet finished */
    uint32_t last_file;
    uint64_t toc_room;
    uint64_t sequence;
    int64_t opened_ns;
    uint64_t *keys; /* of the items, in their order; 0: never indexed */
    struct fb_building *building;
    uint8_t *memory; /* while OPEN and SEALING: where it is built */
};

struct fb_store_tier {
    struct fb_mutex lock; /* FB_RANK_SEGMENT */
    struct fb_cond cond;  /* opening became false, unsealed became 0 */
    struct fb_tier *tier;
    struct fb_segment *segments; /* by slot */
    uint32_t base;               /* number of its first segment */
    uint32_t slots;
    uint32_t first_offset; /* of the first record in a segment */
    uint64_t segment_bytes;
    unsigned which; /* location kind: 0 DRAM, 1 persistent */
    struct fb_segment *open[FB_STORE_LANES];
    bool opening;                   /* somebody is taking a slot */
    bool set_aside;                 /* free slots are for FB_STORE_KEPT */
    uint32_t lanes[FB_STORE_LANES]; /* segments of each that are not free */
    uint32_t spare;                 /* free slots that are not for FB_STORE_NEW */
    uint32_t unsealed;              /* segments that are full and not yet sealed */
    uint64_t failures;              /* seals that failed */
};

struct fb_sources;

struct fb_store {
    struct fb_layout layout;
    int tables_memfd;
    uint32_t block_bytes;
    uint64_t dram_segment_bytes;
    struct fb_index *index;
    struct fb_files *files;
    struct fb_segment *segments;
    uint32_t segment_count;
    unsigned tier_count;
    struct fb_store_tier tiers[FB_TIERS_MAX];
    _Atomic uint64_t last_sequence; /* given to a segment when it is opened, and to its table */
    struct fb_sources *sources;
    struct fb_mutex evictions_lock; /* FB_RANK_SEGMENT, never with another of that rank */
    struct fb_evictions *evictions;

    struct fb_mutex writes_lock; /* FB_RANK_SEGMENT, never with another of that rank */
    struct fb_cond writes_cond;
    uint64_t writes_done;
    uint32_t memory_lent; /* staging memory that is being written, or read after that */

    struct fb_mutex guard_lock; /* FB_RANK_GUARD */
    fb_store_held_fn *held;     /* who else reads DRAM; NULL: nobody */
    void *held_arg;
    _Atomic bool held_some; /* a segment waits for one of them: look again */

    _Atomic int64_t seal_logged_ns; /* for fb_log_limited() */
    struct fb_metrics metrics;
};

static inline struct fb_store_tier *fb_segment_tier(struct fb_store *store,
                                                    const struct fb_segment *seg)
{
    return &store->tiers[seg->tier];
}

static inline uint32_t fb_segment_slot(struct fb_store *store, const struct fb_segment *seg)
{
    return seg->no - fb_segment_tier(store, seg)->base;
}

static inline enum fb_store_lane fb_segment_lane(const struct fb_segment *seg)
{
    return atomic_load_explicit(&seg->lane, memory_order_relaxed);
}

static inline _Atomic uint32_t *fb_segment_gen(struct fb_store *store, const struct fb_segment *seg)
{
    return &fb_layout_segment(&store->layout, seg->no)->gen;
}

static inline uint32_t fb_store_now_s(int64_t now_ns)
{
    return (uint32_t)(now_ns / 1000000000LL);
}

/* seq_cst, as are the changes of the index that a table must not miss: they are under its lock. */
static inline uint64_t fb_store_next_sequence(struct fb_store *store)
{
    return atomic_fetch_add(&store->last_sequence, 1) + 1;
}

/* ---- segment.c ---- */

/* Room for a record of the item in the tier's open segment of its lane, which is opened where there
 * is none. 0, FB_STORE_FULL, FB_STORE_BUSY or negative errno; after 0
 * fb_segment_finish() is due. */
FB_MUST_CHECK int fb_segment_reserve(struct fb_store *store, struct fb_store_tier *t,
                                     const struct fb_item *item, size_t path_len,
                                     struct fb_segment **ret_segment, uint32_t *ret_offset);
/* The copy has ended. The last one of a full segment seals it. */
void fb_segment_finish(struct fb_store *store, struct fb_segment *seg);

/* Closes the open segments; each is sealed once the copies into it have ended. */
void fb_segment_close_open(struct fb_store *store, struct fb_store_tier *t);

/* Whether a record and its entry in the table would fit into an empty segment. */
bool fb_segment_fits_empty(const struct fb_store_tier *t, uint64_t size, size_t path_len);
/* Whether an item of the largest size would fit into the open one. Under no lock. */
bool fb_segment_open_has_room(struct fb_store *store, struct fb_store_tier *t);
/* Whether a slot may be taken for what is new. Under no lock. */
bool fb_segment_may_open(struct fb_store_tier *t);

/* SEALED (or SEALING, by its owner) -> DYING, but its items can be read until they have left the
 * index; or nobody comes to read any more. False: it was not `from`. */
FB_MUST_CHECK bool fb_segment_retire(struct fb_store *store, struct fb_segment *seg,
                                     enum fb_segment_state from);
FB_MUST_CHECK bool fb_segment_kill(struct fb_store *store, struct fb_segment *seg,
                                   enum fb_segment_state from);
/* DYING, and nothing of it is left in the index: nobody comes any more, and it is free when the
 * last pin goes, or now. */
void fb_segment_emptied(struct fb_store *store, struct fb_segment *seg);
/* The last pin may have gone. */
void fb_segment_settle(struct fb_store *store, struct fb_segment *seg);

/* ---- seal.c ---- */

/* Of a segment that this thread has turned to SEALING. */
void fb_segment_seal(struct fb_store *store, struct fb_segment *seg);

/* Rule 5. Returns the memory or NULL; after non-NULL mem_unpin is due. */
uint8_t *fb_segment_mem_pin(struct fb_store *store, struct fb_segment *seg);
void fb_segment_mem_unpin(struct fb_store *store, struct fb_segment *seg);

/* ---- evict.c ---- */

/* Takes what is left of a DYING segment out of the index; visit may be NULL. */
void fb_segment_empty(struct fb_store *store, struct fb_segment *seg, bool want_data,
                      fb_victim_fn *visit, void *arg);

/* Keeps a sealed segment's list of keys: SEALED -> DYING needs the lock, and frees the list only
 * once nobody has a pin. False: it is not sealed. */
FB_MUST_CHECK bool fb_segment_hold_sealed(struct fb_store *store, struct fb_segment *seg);

/* ---- read.c ---- */

/* Whether a record read from a medium is that of the item; its sums are to be trusted then. */
bool fb_record_is_good(struct fb_store *store, uint64_t key, uint32_t length,
                       const struct fb_record *record);

/* A segment pinned by location; false: the location is no longer good. */
FB_MUST_CHECK bool fb_segment_pin(struct fb_store *store, uint64_t loc,
                                  struct fb_segment **ret_segment);
void fb_segment_unpin(struct fb_store *store, struct fb_segment *seg);

/* ---- recover.c ---- */

FB_MUST_CHECK int fb_store_recover(struct fb_store *store, struct fb_error *err);

/* ---- sources.c ---- */

/* dir_fd -1: nothing is kept. seen(): a number met in a table; numbers up to it are not given out
 * anew, in case the list was lost. */
FB_MUST_CHECK int fb_sources_open(int dir_fd, struct fb_sources **ret_sources);
void fb_sources_close(struct fb_sources *sources);
void fb_sources_seen(struct fb_sources *sources, uint16_t id);
FB_MUST_CHECK int fb_sources_id(struct fb_sources *sources, const char *uri, uint16_t *ret_id);

#endif
