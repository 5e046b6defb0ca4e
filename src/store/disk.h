/*
 * store/disk.h - the format of segments on persistent media, and its parser. Little-endian,
 * version 2.
 *
 * The table of contents names every item of the segment by path, version and block, so that
 * recovery reads tables and never data:
 *
 *     table:  file entry, path and a zero, padding to 8, its item entries | file entry, ... | ...
 *
 * Everything that comes from the medium is hostile until its checksum and every bound have been
 * checked; the parser touches nothing outside the table and is fuzzed.
 */
#ifndef FB_STORE_DISK_H
#define FB_STORE_DISK_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "proto/file.h"

#define FB_DISK_MAGIC       0x4745534246ULL /* "FBSEG" */
#define FB_DISK_VERSION     2u
#define FB_DISK_PAGE        4096u /* of which all offsets of reads and writes are multiples */
#define FB_DISK_DATA_OFFSET FB_DISK_PAGE
#define FB_DISK_WRITE_BYTES (1u << 20)
#define FB_DISK_WRITES_MAX  64 /* writes of one seal; larger segments use larger writes */
/* No cache gets so far; what says more is not ours, and would leave no numbers to go on with. */
#define FB_DISK_SEQUENCE_MAX (UINT64_C(1) << 62)

struct fb_disk_header {
    uint64_t magic;
    uint32_t version;
    uint32_t slot;
    uint64_t cache_id[2]; /* of the cache directory: a file copied from elsewhere is not ours */
    uint64_t sequence; /* of the segment, rising: of two copies of an item the later one counts */
    uint64_t segment_bytes;
    uint64_t data_end;   /* end of the records, from the start of the slot */
    uint64_t toc_offset; /* multiple of FB_DISK_PAGE */
    uint64_t toc_bytes;
    uint32_t items;
    uint32_t files;       /* file entries of the table; a file may have several */
    uint64_t block_bytes; /* no item is longer */
    int64_t created_wall_ns;
    uint64_t reserved[2];
    uint64_t toc_sum;
    uint64_t sum; /* of all the above */
};

static_assert(sizeof(struct fb_disk_header) == 128, "on-disk format");
static_assert(offsetof(struct fb_disk_header, toc_offset) == 56, "on-disk format");
static_assert(offsetof(struct fb_disk_header, sum) == 120, "on-disk format");

struct fb_disk_file {
    struct fb_attr attr; /* with the version */
    uint32_t items;      /* item entries that follow the path */
    uint16_t source;     /* from the cache directory's list of sources */
    uint16_t path_len;
};

static_assert(sizeof(struct fb_attr) == 96, "on-disk format");
static_assert(sizeof(struct fb_disk_file) == 104, "on-disk format");

struct fb_disk_item {
    uint32_t block;
    uint32_t length;
    uint32_t offset_units; /* of the record in the slot, in units of 64 bytes */
    uint32_t reserved;
    uint64_t charge;
};

static_assert(sizeof(struct fb_disk_item) == 24, "on-disk format");

/* Room in the table for one more item, of a file that is not the one before it / that is. */
uint64_t fb_disk_toc_room(size_t path_len, bool same_file);

/* Builds a table in memory that is large enough by fb_disk_toc_room. */
struct fb_disk_writer {
    uint8_t *at; /* where the next entry goes: the table's bytes so far are before it */
    uint8_t *end;
    struct fb_disk_file *file;
    uint32_t files;
    uint32_t items;
};

/* `memory` is aligned to 8. */
void fb_disk_write_begin(struct fb_disk_writer *w, uint8_t *memory, uint64_t room);
/* `path` NULL: another item of the file before. file->items is not looked at; `path` has
 * file->path_len bytes, less than FB_PATH_MAX. False: no room, the table is as before. */
FB_MUST_CHECK bool fb_disk_write_item(struct fb_disk_writer *w, const struct fb_disk_file *file,
                                      const char *path, const struct fb_disk_item *item);

/* Seals the sums, and sets magic and version. */
void fb_disk_header_finish(struct fb_disk_header *header, const uint8_t *toc);

enum {
    FB_DISK_NONE = 1, /* a page of zeros: never written, or not sealed to the end */
    FB_DISK_FOREIGN,  /* whole, but of another version, cache, slot or size */
};

/* The header at the start of `page` (FB_DISK_PAGE bytes, aligned to 8). 0: table and records lie
 * within the slot; FB_DISK_NONE, FB_DISK_FOREIGN; -EBADMSG: damaged. */
FB_MUST_CHECK int fb_disk_page_check(const uint8_t *page, const uint64_t cache_id[2], uint32_t slot,
                                     uint64_t segment_bytes);
/* The same without a page around it: anything but 0 is -EBADMSG. */
FB_MUST_CHECK int fb_disk_header_check(const struct fb_disk_header *header,
                                       const uint64_t cache_id[2], uint32_t slot,
                                       uint64_t segment_bytes);

/* Walks a table that has been read in whole (toc_bytes, aligned to 8), under a header that has been
 * checked. visit gets each file entry with its file->items items, whose records lie within the
 * segment; `path` is zero-terminated. It returns 0 to go on, anything else ends the walk and is
 * returned. -EBADMSG for a bad sum or bound: then visit has not been called at all. */
typedef int fb_disk_visit_fn(void *arg, const struct fb_disk_file *file, const char *path,
                             const struct fb_disk_item *items);
FB_MUST_CHECK int fb_disk_toc_walk(const struct fb_disk_header *header, const uint8_t *toc,
                                   fb_disk_visit_fn *visit, void *arg);

#endif
