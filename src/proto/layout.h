/*
 * proto/layout.h - the shared-memory formats: index, segment table, file table, records in
 * segments.
 *
 * Two memfds hold what a hit needs. `tables` holds everything below but the bytes; `dram` holds the
 * DRAM tier, segment after segment. The daemon writes both; any number of readers, in the daemon
 * and later in client processes, read them without a lock. All references are offsets or numbers.
 *
 *     tables:  header, signs of life | item groups | segment entries | path heads | file records
 *     dram:    segment 0 | segment 1 | ...         a segment:  record | record | ...
 *     record:  struct fb_record | one checksum per 4 KiB of data | data | padding to 64 bytes
 *
 * How a reader stays correct without a lock:
 *   1. A path is found by hash, then compared byte by byte. The file record says the version.
 *   2. An item's key is (file id, block): exact, since a file id stands for one version of one
 *      path. The item entry gives up to two locations: loc[0] in DRAM, loc[1] in a persistent tier.
 *   3. A location carries the low bits of its segment's generation. The reader copies the bytes,
 *      then looks at the generation again: if it moved, the copy is thrown away and the daemon is
 *      asked.
 *   4. The record in front of the bytes repeats the key, as a last check.
 *
 * Every doubt is a miss; a miss is always safe. Nothing a reader can do or fail to do harms a
 * writer.
 *
 * Cost: 32 bytes an item entry at 75% load = 43 bytes an item, 8 more in the segment's list of
 * keys.
 */
#ifndef FB_PROTO_LAYOUT_H
#define FB_PROTO_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/attr.h"
#include "base/hash.h"
#include "proto/file.h"

#define FB_LAYOUT_MAGIC   0x3159414245524f46ULL /* "FOREBAY1" */
#define FB_LAYOUT_VERSION 2u
#define FB_GROUP_ITEMS    4
#define FB_UNIT           64   /* granularity of records in segments and of file records */
#define FB_SUM_BYTES      4096 /* bytes of data covered by one checksum */

/* ---- locations --------------------------------------------------------------------------------
 * bit 63: valid; 62..48: generation; 47..24: segment number; 23..0: offset in units of 64 bytes. */
#define FB_LOC_NONE         0ULL
#define FB_LOC_GEN_MASK     0x7fffu
#define FB_SEGMENT_MAX      (1u << 24)   /* segments */
#define FB_SEGMENT_SIZE_MAX (1ULL << 30) /* bytes in one */

static inline uint64_t fb_loc_make(uint32_t gen, uint32_t segment, uint64_t offset_bytes)
{
    return 1ULL << 63 | (uint64_t)(gen & FB_LOC_GEN_MASK) << 48 | (uint64_t)segment << 24 |
           offset_bytes / FB_UNIT;
}

static inline uint32_t fb_loc_gen(uint64_t loc)
{
    return (uint32_t)(loc >> 48) & FB_LOC_GEN_MASK;
}

static inline uint32_t fb_loc_segment(uint64_t loc)
{
    return (uint32_t)(loc >> 24) & (FB_SEGMENT_MAX - 1);
}

static inline uint64_t fb_loc_offset(uint64_t loc)
{
    return (loc & 0xffffff) * FB_UNIT;
}

/* ---- items ---- */

static inline uint64_t fb_item_key(uint32_t file_id, uint32_t block)
{
    return (uint64_t)file_id << 32 | block;
}

/* meta: bits 55..32 length in bytes; the others are what is remembered of its use (struct fb_use in
 * store/index.h): 31..0 a time, 63..56 a count or a history. */
struct fb_layout_item {
    _Atomic uint64_t key; /* 0: free */
    _Atomic uint64_t loc[2];
    _Atomic uint64_t meta;
};

struct fb_layout_group {
    struct fb_layout_item items[FB_GROUP_ITEMS];
} FB_ALIGNED(FB_CACHELINE);

static_assert(sizeof(struct fb_layout_item) == 32, "an item entry is half a cache line");
static_assert(sizeof(struct fb_layout_group) == 128, "a group is two cache lines");

/* ---- segments ---------------------------------------------------------------------------------
 * Even: readable. Odd: being emptied. Rises by one at each change; a location is good while its
 * bits equal the generation's and the generation is even. */
struct fb_layout_segment {
    _Atomic uint32_t gen;
    uint32_t tier;
};

/* In front of each item's bytes, in every tier. On disk after a restart `key` means nothing (file
 * ids are given out anew) and path_hash, version_hash and block take its place; `sum` covers the
 * record and its checksums. */
#define FB_RECORD_MAGIC 0x44524346u /* "FCRD" */

struct fb_record {
    uint32_t magic;
    uint32_t block;
    uint64_t key;
    uint64_t path_hash;
    uint64_t version_hash;
    uint32_t length; /* bytes of data */
    uint32_t flags;
    uint64_t charge; /* whom the space is charged to; 0 until there are tenants */
    uint64_t reserved;
    uint64_t sum; /* fb_record_sum() */
};

static_assert(sizeof(struct fb_record) == FB_UNIT, "a record header is one unit");

static inline uint32_t fb_record_sums(uint32_t length)
{
    return (length + FB_SUM_BYTES - 1) / FB_SUM_BYTES;
}

/* Where the data starts in a record, and how much room the whole record takes. */
static inline uint32_t fb_record_data_offset(uint32_t length)
{
    return (uint32_t)fb_align_up(sizeof(struct fb_record) + 8ULL * fb_record_sums(length), FB_UNIT);
}

static inline uint64_t fb_record_size(uint32_t length)
{
    return fb_record_data_offset(length) + fb_align_up(length, FB_UNIT);
}

/* Over header (but `key` and `sum`) and checksums, so that the same record is valid in any
 * process. */
static inline uint64_t fb_record_sum(const struct fb_record *r, const uint64_t *sums)
{
    struct fb_record copy = *r;

    copy.key = 0;
    copy.sum = 0;
    return fb_hash64_seed(sums, 8ULL * fb_record_sums(r->length), fb_hash64(&copy, sizeof copy));
}

static inline uint64_t fb_version_hash(const struct fb_version *v)
{
    return fb_hash64(v, sizeof *v);
}

/* ---- files ------------------------------------------------------------------------------------
 * A file record stands for one version of one path below one source; its id is its offset in units,
 * and never 0 or 1. Records hang in chains, one a path head, of those with the same hash.
 *
 * gen: even while the record stands, the same for its whole life and different at each life; odd:
 * it is free. attr_gen: odd while the fields from dev to gid are being refreshed. The fields from
 * `holds` on are the daemon's own. */
#define FB_FILE_CHAIN_MAX 128 /* records a reader without a lock looks at before it gives up */
#define FB_FILE_RETIRED   1u  /* flags: no longer the record of its path */

struct fb_layout_file {
    _Atomic uint32_t gen;
    _Atomic uint32_t next; /* id of the next record with the same path head; 0 ends the chain */
    uint64_t path_hash;    /* fb_path_hash() */
    struct fb_version version;
    _Atomic int64_t valid_until_ns; /* monotonic; later than that, ask the daemon first */
    uint64_t dev;
    uint64_t ino;
    uint64_t rdev;
    uint64_t blocks;
    int64_t atime_ns;
    uint32_t mode;
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    uint16_t source;
    uint16_t path_len; /* without the final zero that follows the path */
    _Atomic uint16_t attr_gen;
    _Atomic uint16_t flags;
    _Atomic uint64_t holds; /* low half: references; high half: entries of the index */
    uint32_t lru_next;      /* ids: the list of records that could be reclaimed */
    uint32_t lru_prev;
    char path[]; /* relative to the source, no leading slash; "" is its root */
};

static_assert(sizeof(struct fb_layout_file) == 144, "a file record without its path");
static_assert(offsetof(struct fb_layout_file, holds) == 128, "shared format");

static inline void fb_layout_file_attr_copy(const struct fb_layout_file *f, struct fb_attr *ret)
{
    *ret = (struct fb_attr){.version = f->version,
                            .dev = f->dev,
                            .ino = f->ino,
                            .rdev = f->rdev,
                            .blocks = f->blocks,
                            .atime_ns = f->atime_ns,
                            .mode = f->mode,
                            .nlink = f->nlink,
                            .uid = f->uid,
                            .gid = f->gid};
}

/* Where a chain begins, and a hint: where in DRAM, in units, the first item of one of its files was
 * put last; 0: nowhere. It says what to prefetch and nothing else, so it may be as wrong as it
 * likes. */
struct fb_layout_head {
    _Atomic uint32_t id;
    _Atomic uint32_t near;
};

static_assert(sizeof(struct fb_layout_head) == 8, "shared format");

/* A copy taken while nobody refreshed; false: somebody did. The race is meant. */
static inline bool fb_layout_file_attr(const struct fb_layout_file *f, struct fb_attr *ret)
{
    uint16_t before = atomic_load_explicit(&f->attr_gen, memory_order_acquire);

    if ((before & 1) != 0)
        return false;
    fb_layout_file_attr_copy(f, ret);
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&f->attr_gen, memory_order_relaxed) == before;
}

static inline uint64_t fb_path_hash(uint16_t source, const char *path, size_t len)
{
    return fb_hash64_seed(path, len, source);
}

/* ---- header ---- */

struct fb_layout_header {
    uint64_t magic;
    uint32_t version;
    uint32_t block_bytes;
    uint64_t tables_bytes;
    uint64_t groups_offset;
    uint64_t groups;
    uint64_t segments_offset;
    uint64_t segments;
    uint64_t heads_offset;
    uint64_t heads;
    uint64_t files_offset; /* file id n is at files_offset + n * FB_UNIT; id 0 is never used */
    uint64_t files_bytes;
    uint64_t dram_segment_bytes;
    uint64_t dram_segments; /* segment numbers 0 ... dram_segments - 1, in this order in the dram
                               memfd */
    uint64_t instance;      /* a random number for this run of the daemon */
};

/* At FB_LAYOUT_LIVE_OFFSET: whether the owner of the tables still looks after them. */
#define FB_LAYOUT_LIVE_OFFSET 512u

struct fb_layout_live {
    _Atomic int64_t beat_ns; /* monotonic; rises ten times a second while the daemon works */
    _Atomic uint32_t closed; /* 1: it has ended; nothing here is kept true any more */
    _Atomic uint32_t ask;    /* 1: who could read from a medium asks the daemon to do it instead */
};

static_assert(sizeof(struct fb_layout_header) <= FB_LAYOUT_LIVE_OFFSET, "the two do not overlap");

/* A mapping of the tables; base is where they are mapped in this process. */
struct fb_layout {
    uint8_t *base;
    struct fb_layout_header h; /* a private, checked copy: shared memory is not believed twice */
    const uint8_t *dram;       /* NULL: no DRAM tier */
};

static inline struct fb_layout_live *fb_layout_live(const struct fb_layout *l)
{
    return (struct fb_layout_live *)(l->base + FB_LAYOUT_LIVE_OFFSET);
}

static inline struct fb_layout_group *fb_layout_group(const struct fb_layout *l, uint64_t i)
{
    return (struct fb_layout_group *)(l->base + l->h.groups_offset) + i;
}

static inline struct fb_layout_segment *fb_layout_segment(const struct fb_layout *l, uint32_t no)
{
    return (struct fb_layout_segment *)(l->base + l->h.segments_offset) + no;
}

static inline struct fb_layout_head *fb_layout_head_no(const struct fb_layout *l, uint64_t i)
{
    return (struct fb_layout_head *)(l->base + l->h.heads_offset) + i;
}

static inline struct fb_layout_head *fb_layout_head(const struct fb_layout *l, uint64_t path_hash)
{
    return fb_layout_head_no(l, (uint64_t)(((unsigned __int128)path_hash * l->h.heads) >> 64));
}

/* NULL when the id lies outside the table. */
static inline struct fb_layout_file *fb_layout_file(const struct fb_layout *l, uint32_t id)
{
    uint64_t at = (uint64_t)id * FB_UNIT;

    if (id == 0 || at + sizeof(struct fb_layout_file) > l->h.files_bytes)
        return NULL;
    return (struct fb_layout_file *)(l->base + l->h.files_offset + at);
}

struct fb_found_file {
    uint32_t id;
    uint32_t gen;
    struct fb_version version;
    int64_t valid_until_ns;
};

/* The two groups a key may live in. */
static inline void fb_layout_groups_of(const struct fb_layout *l, uint64_t key, uint64_t ret[2])
{
    uint64_t h = fb_mix64(key);

    ret[0] = ((h >> 32) * l->h.groups) >> 32;
    ret[1] = ((h & 0xffffffff) * l->h.groups) >> 32;
}

/* The first line of the first group, where entries are put while there is room; who looks for one
 * sends for the others. */
static inline void fb_layout_prefetch(const struct fb_layout *l, uint64_t key)
{
    uint64_t groups[2];

    fb_layout_groups_of(l, key, groups);
    __builtin_prefetch(fb_layout_group(l, groups[0]));
}

/* Who opens a file reads it next. Record, index entry and item are mostly far from any cache, and
 * each says where the next one is: with the hint all are waited for at once. */
static inline void fb_layout_prefetch_file(const struct fb_layout *l, uint64_t path_hash)
{
    const struct fb_layout_head *head = fb_layout_head(l, path_hash);
    uint32_t id = atomic_load_explicit(&head->id, memory_order_relaxed);
    uint64_t near = (uint64_t)FB_UNIT * atomic_load_explicit(&head->near, memory_order_relaxed);
    const uint8_t *record = l->base + l->h.files_offset + (uint64_t)id * FB_UNIT;

    for (int line = 0; line < 3; line++)
        __builtin_prefetch(record + line * FB_CACHELINE);
    fb_layout_prefetch(l, fb_item_key(id, 0));
    if (near == 0 || l->dram == NULL)
        return;
    /* Of a small item, where checksums take one line, the bytes begin in the third. */
    __builtin_prefetch(l->dram + near);
    __builtin_prefetch(l->dram + near + 2 * FB_CACHELINE);
}

/* Finds the record of a path, of which `hash` is the fb_path_hash(), without a lock. A record may
 * be freed and its memory reused while it is looked at: nothing read from it counts until its
 * generation has been seen unchanged, and every doubt is "not found". The races are meant: no use
 * of this under ThreadSanitizer. */
static inline bool fb_layout_find_file(const struct fb_layout *l, uint64_t hash, uint16_t source,
                                       const char *path, size_t len, struct fb_found_file *ret)
{
    uint32_t id = atomic_load_explicit(&fb_layout_head(l, hash)->id, memory_order_acquire);

    for (int step = 0; step < FB_FILE_CHAIN_MAX; step++) {
        struct fb_layout_file *f = fb_layout_file(l, id);
        uint32_t next;
        bool same;

        if (f == NULL)
            return false;
        /* Pairs with the release store that ends the making of a record. */
        ret->gen = atomic_load_explicit(&f->gen, memory_order_acquire);
        if (ret->gen & 1)
            return false;
        next = atomic_load_explicit(&f->next, memory_order_relaxed);
        same = f->path_hash == hash && f->source == source && f->path_len == len &&
               (uint64_t)id * FB_UNIT + sizeof *f + len <= l->h.files_bytes &&
               memcmp(f->path, path, len) == 0;
        ret->version = f->version;
        ret->valid_until_ns = atomic_load_explicit(&f->valid_until_ns, memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&f->gen, memory_order_relaxed) != ret->gen)
            return false;
        ret->id = id;
        if (same)
            return true;
        id = next;
    }
    return false;
}

struct fb_found {
    uint64_t loc[2];
    uint32_t length;
    struct fb_layout_item *item;
};

/* Probe without a lock. The key is read again after the locations, so that they belong to it. */
static inline bool fb_layout_find(const struct fb_layout *l, uint64_t key, struct fb_found *ret)
{
    uint64_t groups[2];

    fb_layout_groups_of(l, key, groups);
    /* Mostly far from any cache: to wait for all of them at once. */
    for (int g = 0; g < 2; g++)
        for (int line = 0; line < 2; line++)
            __builtin_prefetch(&fb_layout_group(l, groups[g])->items[line * FB_GROUP_ITEMS / 2]);
    for (int g = 0; g < 2; g++) {
        struct fb_layout_group *group = fb_layout_group(l, groups[g]);

        for (int i = 0; i < FB_GROUP_ITEMS; i++) {
            struct fb_layout_item *it = &group->items[i];

            /* Pairs with the release store of key in the index's insert. */
            if (atomic_load_explicit(&it->key, memory_order_acquire) != key)
                continue;
            ret->loc[0] = atomic_load_explicit(&it->loc[0], memory_order_acquire);
            ret->loc[1] = atomic_load_explicit(&it->loc[1], memory_order_acquire);
            ret->length =
                (uint32_t)(atomic_load_explicit(&it->meta, memory_order_relaxed) >> 32) & 0xffffff;
            ret->item = it;
            if (atomic_load_explicit(&it->key, memory_order_relaxed) == key)
                return true;
        }
    }
    return false;
}

/* True while `loc` is good; call before the copy and, after an acquire fence, once more. */
static inline bool fb_layout_loc_good(const struct fb_layout *l, uint64_t loc)
{
    uint32_t gen;

    if (loc == FB_LOC_NONE || fb_loc_segment(loc) >= l->h.segments)
        return false;
    gen =
        atomic_load_explicit(&fb_layout_segment(l, fb_loc_segment(loc))->gen, memory_order_acquire);
    return (gen & 1) == 0 && (gen & FB_LOC_GEN_MASK) == fb_loc_gen(loc);
}

#endif
