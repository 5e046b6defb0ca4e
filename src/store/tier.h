/*
 * store/tier.h - a tier: equal slots for segments on one medium. Knows bytes, not items.
 *
 * store.c decides what goes where and keeps every state; a tier only lends slots and moves bytes.
 * Three media: DRAM (a memfd), PMem (a mapped file), NVMe (an O_DIRECT file); the latter two one
 * file a directory, striped: slot s lies in directory s % n.
 *
 *     life of a slot:  free ── take ──► building in memory ── seal ──► on the medium
 *                       ▲                      │                            │
 *                       └──────── give ────────┴─────────── give ───────────┘
 *
 * A segment is always built in memory. DRAM lends its own mapping; PMem and NVMe lend a staging
 * buffer of the same size, of which there are few (`staging`); when all are being written, take()
 * says FB_TIER_BUSY. PMem could lend its mapping, too, but then a cache file truncated by somebody
 * else would kill whoever builds: as it is, only guarded copies touch it. After a seal has
 * completed the staging buffer stays lent, and readable, until fb_tier_release_memory().
 *
 * Persistent slots look like this (segment_bytes; all multiples of 4 KiB):
 *
 *     0            4 KiB                               toc_offset                    segment_bytes
 *     | header     | records ...                       | table of contents | unused  |
 *
 * and a seal writes in this order: zeros for a header, records and table in writes of up to 1 MiB;
 * flush; the header; flush. A crash before the last flush leaves no header that matches the table:
 * the slot counts as free. (The zeros may reach the medium after what follows them. Then an old
 * header and table stand over new records: those that were overwritten fail their checksums.)
 *
 * Budget: a slot's bytes are allocated (fallocate) before take() returns it, never beyond
 * budget_bytes * fill, never so that less than free_space_ratio of the file system stays free. 1
 * MiB a directory is kept out of the budget for what else lies there.
 *
 * Failures. No space: FB_TIER_FULL, tried again after a second. A medium that fails (EIO,
 * read-only) or a directory that is gone: one line in the log, then no slot of that directory is
 * lent until the tier is opened again; reads go on for as long as they can. Nor is a slot of a
 * directory that does not answer, as long as it does not, where there are others. A disk that hangs
 * keeps the staging memory of what is being written to it: one of several gets no more while it
 * writes and has half of it.
 *
 * Threads: any, but open, scan and close. Lock: FB_RANK_TIER; not held during I/O of
 * segments.
 */
#ifndef FB_STORE_TIER_H
#define FB_STORE_TIER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "core/error.h"
#include "io/buffer.h"
#include "io/engine.h"
#include "io/wait.h"
#include "store/disk.h"

#define FB_TIERS_MAX     3
#define FB_TIER_DIRS_MAX 16
#define FB_TIER_STAGING  2 /* when the configuration says 0 */
/* Of each directory's budget, for lock, superblock, ... */
#define FB_TIER_ROOM_BYTES (1ULL << 20)

enum fb_tier_kind {
    FB_TIER_DRAM,
    FB_TIER_PMEM,
    FB_TIER_NVME,
};

enum {
    FB_TIER_FULL = 1, /* no slot free within budget, fill limit and free-space floor */
    FB_TIER_BUSY = 2, /* all staging memory is lent or being written; slots may be free or not */
};

struct fb_tier_config {
    enum fb_tier_kind kind;
    uint64_t budget_bytes;
    double fill;             /* share of the budget that may be filled */
    double free_space_ratio; /* share of the file system that stays free; persistent tiers */
    uint64_t segment_bytes;  /* multiple of 4 KiB */
    unsigned dir_count;
    const char *dirs[FB_TIER_DIRS_MAX]; /* copied */
    unsigned staging;                   /* PMem, NVMe: staging buffers of segment_bytes each */
    struct fb_engine *engine;           /* NVMe; outlives the tier; a lane for each directory */
    int64_t timeout_ns;                 /* NVMe: a read that takes longer is given up; 0: none is */
    unsigned huge_pages;                /* DRAM: ask for huge pages where the kernel gives them */
};

struct fb_tier;

/* Opens or makes the directories (0700, files 0600, each locked), with a sentence in err for "in
 * use by another process", "belongs to someone else", "read-only" and the like. What was made with
 * another segment size, number or order of directories, or is damaged, is dropped: one line in the
 * log. Slots of persistent tiers count as taken by their old content until the store has looked at
 * them: scan() each one, then give() those that are of no use. DRAM's slots are free. */
FB_MUST_CHECK int fb_tier_open(const struct fb_tier_config *config, struct fb_tier **ret_tier,
                               struct fb_error *err);
/* No seal or read may be under way. Takes NULL. */
void fb_tier_close(struct fb_tier *tier);

const char *fb_tier_name(const struct fb_tier *tier); /* "dram", "pmem", "nvme" */
enum fb_tier_kind fb_tier_kind(const struct fb_tier *tier);
bool fb_tier_persistent(const struct fb_tier *tier);
uint32_t fb_tier_slots(const struct fb_tier *tier); /* at most: budget * fill / segment_bytes */
uint64_t fb_tier_segment_bytes(const struct fb_tier *tier);
int fb_tier_memfd(const struct fb_tier *tier); /* DRAM: to be mapped by clients; else -1 */
/* DRAM: slot s is at s * segment_bytes; else NULL. */
const uint8_t *fb_tier_map(const struct fb_tier *tier);
/* NVMe: the files that clients may read, by stripe: slot s lies in file s % n at (s / n) *
 * segment_bytes. Returns n; 0: none. */
unsigned fb_tier_fds(const struct fb_tier *tier, int ret_fds[FB_TIER_DIRS_MAX]);
/* Whether it lends nothing more until it is opened again, however much of it is given back: no
 * directory is in order. */
bool fb_tier_broken(const struct fb_tier *tier);
/* Whether a directory does not answer who reads; that of the slot. */
bool fb_tier_stuck(struct fb_tier *tier);
bool fb_tier_is_stuck(struct fb_tier *tier, uint32_t slot);
/* Whether the slot's directory is out of order, where there are others: nothing is gained by giving
 * the slot back now. */
bool fb_tier_is_out(struct fb_tier *tier, uint32_t slot);
/* Whether that is so of all directories: then no slot can be given back, or lent. */
bool fb_tier_is_all_out(struct fb_tier *tier);
/* The first directory, for small files beside the segments (io/durable.h); DRAM: -1. */
int fb_tier_dir_fd(const struct fb_tier *tier);

/* Lends a slot and the memory to build its segment in (segment_bytes long, with arbitrary content;
 * for persistent tiers the records start at FB_DISK_DATA_OFFSET). 0, FB_TIER_FULL, FB_TIER_BUSY. */
FB_MUST_CHECK int fb_tier_take(struct fb_tier *tier, uint32_t *ret_slot, uint8_t **ret_memory);
/* The slot that was just taken will have many small items: huge pages, where there are any.
 * `may_wait`: where they cost much, they may come later. */
void fb_tier_smooth(struct fb_tier *tier, uint32_t slot, bool may_wait);
/* Memory of a slot that is about to be written for the first time. Any thread. */
void fb_tier_touch(struct fb_tier *tier, uint8_t *memory, uint64_t bytes);

/* Slots that are not lent. */
uint32_t fb_tier_free(struct fb_tier *tier);

/* Of these, those that it could lend, as far as anybody knows: not what the file system had no
 * space for when it was asked last. */
uint32_t fb_tier_room(struct fb_tier *tier);

/* Whether take() could lend a slot now (it may still say BUSY; and FULL, when nobody knew before
 * that the file system is full). */
bool fb_tier_has_room(struct fb_tier *tier);

/* Whether the budget is more than a file system had room for when it was asked last. */
bool fb_tier_is_short(struct fb_tier *tier);

/* Whether take() says BUSY now, however many slots are free: emptying one is of no use yet. */
bool fb_tier_busy(struct fb_tier *tier);

/* Makes the segment durable. The caller fills in sequence, data_end, toc_offset, toc_bytes, items,
 * files, block_bytes and created_wall_ns of the header, the tier the rest; the table of contents
 * lies in the memory at toc_offset. The memory's first 4 KiB are the tier's, and what lies between
 * table and the next 4 KiB goes to the medium as it is. DRAM: nothing to do, done() is called at
 * once. */
struct fb_tier_seal {
    uint32_t slot;
    uint8_t *memory;
    struct fb_disk_header header;
    void (*done)(struct fb_tier_seal *seal); /* from the engine's thread, or from seal() itself */
    int result;                              /* 0 or negative errno */
    /* private to the tier */
    struct fb_tier *tier;
    unsigned phase;
    _Atomic unsigned writes_left;
    _Atomic int failure;
    struct fb_io ios[FB_DISK_WRITES_MAX];
};

void fb_tier_seal(struct fb_tier *tier, struct fb_tier_seal *seal);

/* The staging memory of a sealed (or given-up) slot is free again. DRAM: nothing to do. */
void fb_tier_release_memory(struct fb_tier *tier, uint32_t slot, uint8_t *memory);

/* The slot is free again, and nobody reads it any more. Where the file system is under its floor
 * the bytes are given back, too. */
void fb_tier_give(struct fb_tier *tier, uint32_t slot);

/* Raw bytes of a sealed slot, aligned to 4 KiB at both ends. NVMe: asynchronous; DRAM, PMem: copied
 * (PMem under a guard against SIGBUS) before it returns. done() as in fb_io; result is `length` or
 * negative errno: what cannot be read in whole is -EIO. */
struct fb_tier_read {
    uint32_t slot;
    uint32_t length;
    uint64_t offset;
    uint8_t *data; /* aligned to 4 KiB */
    /* What the data lies in, the same for all reads of a call; or NULL. With it a read that a disk
     * does not answer in time is given up: -ETIMEDOUT, and the buffer has other memory then. */
    struct fb_buffer *buffer;
    struct fb_meanwhile *meanwhile; /* not NULL: the calling thread may wait for the medium, which
                                     * saves two hops between threads */
    void (*done)(struct fb_tier_read *read);
    void *owner; /* the caller's, for done() */
    int result;
    struct fb_io io; /* private */
};

void fb_tier_read(struct fb_tier *tier, struct fb_tier_read *const *reads, unsigned count);

/* At start, each slot once and best in rising order: the header of a slot as it stands on the
 * medium. 0: *ret_valid says whether there is one, false for a slot that is free or foreign.
 * Negative: it cannot be read, or (-EBADMSG) is damaged; the slot is to be given back all the same.
 * Synchronous. One thread, before any take(). */
FB_MUST_CHECK int fb_tier_scan(struct fb_tier *tier, uint32_t slot,
                               struct fb_disk_header *ret_header, bool *ret_valid);

/* Bytes that must be given up (by evicting) so that the free-space floor holds again; 0 when all is
 * well. Also notices a directory that was deleted; -EIO when no directory is in order any more.
 * Called every second or so. */
int64_t fb_tier_excess(struct fb_tier *tier);

#endif
