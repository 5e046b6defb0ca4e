/*
 * store/index.h - item -> where it is. The writing side of the table whose probing is in
 * proto/layout.h.
 *
 * Two-choice hashing over groups of four: no chains, no tombstones, no resizing. An insert that
 * finds both groups full moves an entry to its other group; where that does not help either (rare
 * at 75% load), the entry longest not used gives way: it is a cache. One mutex for writers
 * (FB_RANK_INDEX, ~100 ns held); readers never take it.
 *
 * Order of stores on insert: locations and meta first, key last with release; on removal the key
 * first. A reader that sees the key therefore sees good locations, or locations of a segment whose
 * generation has moved on.
 *
 * Memory: an entry has 32 bytes, at 75% load 32 / 0.75 = 42.7 bytes an item. With the 8 bytes of
 * the key in its segment's list that is 50.7 bytes an item, below the limit of 64.
 */
#ifndef FB_STORE_INDEX_H
#define FB_STORE_INDEX_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/attr.h"
#include "proto/layout.h"

#define FB_INDEX_GROUP_LOAD 3  /* of FB_GROUP_ITEMS entries in a group, so many are counted on */
#define FB_INDEX_ITEM_BYTES 64 /* the limit: entry and key, an item */

static_assert(sizeof(struct fb_layout_group) + FB_INDEX_GROUP_LOAD * sizeof(uint64_t) <=
                  FB_INDEX_GROUP_LOAD * FB_INDEX_ITEM_BYTES,
              "index entries and keys take at most 64 bytes an item");

struct fb_index;

/* What is remembered of an item's use, by whoever evicts: a time (seconds, or requests: of equal
 * entries the one of the lowest time gives way in a full index; it may wrap), and a byte. */
struct fb_use {
    uint32_t last;
    uint8_t history;
};

/* What an entry held when it was changed or removed. */
struct fb_index_entry {
    uint64_t key; /* 0: nothing */
    uint64_t loc[2];
    uint32_t length;
    struct fb_use use;
};

/* Told of every change, once, under the index's lock: so whoever keeps accounts by it is exact. No
 * lock may be taken within. */
struct fb_index_watch {
    /* A location came into (1) or left (-1) the index. */
    void (*location)(void *arg, uint64_t loc, uint32_t length, int delta);
    /* An entry, which has at least one location, came or left. */
    void (*entry)(void *arg, uint64_t key, int delta);
    /* fb_index_hold() found the entry. */
    void (*hold)(void *arg, uint64_t key);
    void *arg;
};

/* Groups needed for so many items. */
uint64_t fb_index_groups(uint64_t max_items);

/* The table's memory, zeroed, belongs to the store. */
FB_MUST_CHECK int fb_index_create(struct fb_layout *layout, const struct fb_index_watch *watch,
                                  struct fb_index **ret_index);
void fb_index_destroy(struct fb_index *index);

/* Sets location `which` (0 DRAM, 1 persistent) of `key`. *ret_displaced: another key's entry that
 * had to go (key 0: none). An entry of another length is replaced as a whole. */
void fb_index_set(struct fb_index *index, uint64_t key, unsigned which, uint64_t loc,
                  uint32_t length, uint32_t now_s, struct fb_index_entry *ret_displaced);

/* Clears location `which` if it is `loc`; the entry goes when no location is left. False: it was
 * not there. */
bool fb_index_clear(struct fb_index *index, uint64_t key, unsigned which, uint64_t loc);

/* Removes the entry; *ret_old says what it held. False: none. */
bool fb_index_remove(struct fb_index *index, uint64_t key, struct fb_index_entry *ret_old);

/* Removes every entry whose key has these upper 32 bits, by a walk through the whole table that
 * lets others in between; ends early after `count` of them. Returns how many went: an entry that
 * comes or is moved meanwhile may be missed. */
uint64_t fb_index_remove_file(struct fb_index *index, uint32_t file, uint64_t count);

/* Looks an entry up under the lock, and misses none; hold() also calls watch.hold before it lets
 * the lock go. False: none. */
bool fb_index_look(struct fb_index *index, uint64_t key, struct fb_index_entry *ret_entry);
bool fb_index_hold(struct fb_index *index, uint64_t key, struct fb_index_entry *ret_entry);

/* Without a lock. get() may miss an entry that is being moved. */
bool fb_index_get(const struct fb_index *index, uint64_t key, struct fb_index_entry *ret_entry);
/* Sets the time, and counts in the byte, up to 255. */
void fb_index_touch(struct fb_index *index, uint64_t key, uint32_t now_s);
void fb_index_use(struct fb_index *index, uint64_t key, const struct fb_use *use);

uint64_t fb_index_count(const struct fb_index *index);
uint64_t fb_index_capacity(const struct fb_index *index);

#endif
