/*
 * store/files_priv.h - the file table's inside.
 *
 * The room in the file table: pages of 16 KiB, each cut into equal slots of one size class. A
 * page's first units hold its own account, so nothing is allocated outside the table.
 *
 *     page:  account (2 units) | slot | slot | ...     ids: 2 and up, since page 0 starts so, too
 *
 * A page without records goes back to the free pages and may serve another class. Every class has
 * an LRU list of the records that could be reclaimed (current, nothing holds them).
 */
#ifndef FB_STORE_FILES_PRIV_H
#define FB_STORE_FILES_PRIV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"
#include "core/lock.h"
#include "proto/layout.h"

#define FB_SLAB_PAGE_UNITS 256u
#define FB_SLAB_PAGE_BYTES (FB_SLAB_PAGE_UNITS * FB_UNIT)
#define FB_SLAB_FIRST_UNIT 2u /* of a page's slots */
#define FB_SLAB_CLASSES    15
#define FB_SLAB_PAGE_SLOTS 84   /* at most: the slots of the smallest class */
#define FB_SLAB_SCAN_MAX   1024 /* pages looked at when a whole one is wanted */
#define FB_SLAB_NO_CLASS   0xffffu

struct fb_slab_page {
    uint16_t class_no; /* FB_SLAB_NO_CLASS: a free page */
    uint16_t used;     /* slots with a record */
    uint16_t idle;     /* of these, on the LRU list */
    uint16_t slots;
    uint32_t free_slot; /* id; chained by lru_next */
    uint32_t next;      /* page number + 1: free pages, or pages of the class with a free slot */
    uint32_t prev;
};

static_assert(sizeof(struct fb_slab_page) <= FB_SLAB_FIRST_UNIT * FB_UNIT, "fits its place");

struct fb_slab_class {
    uint32_t units;
    uint32_t partial;    /* page number + 1 */
    uint32_t lru_newest; /* ids */
    uint32_t lru_oldest;
};

struct fb_slab {
    const struct fb_layout *layout;
    uint32_t pages;
    uint32_t free_pages; /* page number + 1 */
    uint32_t rover;      /* where the search for an idle page goes on */
    uint64_t records;
    uint64_t bytes_used;
    struct fb_slab_class classes[FB_SLAB_CLASSES];
};

/* False: the table is smaller than a page. */
bool fb_slab_init(struct fb_slab *slab, const struct fb_layout *layout);

/* The smallest class for a record with such a path. */
unsigned fb_slab_class_for(const struct fb_slab *slab, size_t path_len);

/* A slot of the class, its generation odd; 0: neither a slot nor a page is free. */
uint32_t fb_slab_alloc(struct fb_slab *slab, unsigned class_no);
void fb_slab_free(struct fb_slab *slab, uint32_t id);

void fb_slab_lru_add(struct fb_slab *slab, uint32_t id);
void fb_slab_lru_remove(struct fb_slab *slab, uint32_t id);

/* The oldest reclaimable record of the class, or 0. */
uint32_t fb_slab_lru_oldest(const struct fb_slab *slab, unsigned class_no);

/* Ids of all records of a page; returns how many. */
/* False for any other number, too. */
bool fb_slab_is_record(const struct fb_slab *slab, uint32_t id);
unsigned fb_slab_page_ids(const struct fb_slab *slab, uint32_t page,
                          uint32_t ret_ids[FB_SLAB_PAGE_SLOTS]);

/* A page that has records, all of them reclaimable; false: none within reach. */
bool fb_slab_idle_page(struct fb_slab *slab, uint32_t *ret_page);

struct fb_files {
    struct fb_mutex lock;
    struct fb_layout *layout;
    struct fb_slab slab;
    uint32_t next_gen;
    uint64_t reclaimed;
    _Atomic uint32_t orphans; /* id of the first; chained by lru_next */
};

static inline struct fb_layout_file *fb_files_at(const struct fb_files *files, uint32_t id)
{
    struct fb_layout_file *f = fb_layout_file(files->layout, id);

    FB_ASSERT(f != NULL);
    return f;
}

static inline bool fb_files_retired(const struct fb_layout_file *f)
{
    return (atomic_load_explicit(&f->flags, memory_order_relaxed) & FB_FILE_RETIRED) != 0;
}

void fb_files_take_ref(struct fb_files *files, uint32_t id) FB_REQUIRES(&files->lock);

/* Lets go of records that lost their last item. */
void fb_files_drain(struct fb_files *files) FB_REQUIRES(&files->lock);

#endif
