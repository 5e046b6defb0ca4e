/*
 * policy/groups.h - which groups of items leave a cache, and which of their items stay.
 *
 * A group is a segment: items written at about the same time. Both the daemon (cache/place.c) and
 * the simulator (sim/cache_learned.c) evict by what is here:
 *
 *     rank:   every group by the mean utility of its bytes (policy/reuse.h), from a sample of at
 *             most FB_GROUPS_SAMPLE of its items; the ranking serves until FB_GROUPS_RERANK of the
 *             groups were taken
 *     merge:  the FB_GROUPS_MERGE worst; the best items stay, by utility per byte, as many as fill
 *             FB_GROUPS_KEEP groups, in a group apart from what is written anew; the rest goes
 *
 * Bytes of a group that nobody can ask for any more have no utility, so what is mostly dead is
 * ranked low by itself. Pure: the owner says what its groups and their items are.
 */
#ifndef FB_POLICY_GROUPS_H
#define FB_POLICY_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "policy/reuse.h"

#define FB_GROUPS_MERGE  2
#define FB_GROUPS_KEEP   1
#define FB_GROUPS_RERANK 0.05
#define FB_GROUPS_SAMPLE 16

/* How many items of a group of `items` to pass over for each one that is looked at. */
static inline size_t fb_groups_stride(size_t items, size_t sample)
{
    return items > sample ? (items + sample - 1) / sample : 1;
}

/* The utility of a group: begin with zeroes, add the items looked at, end. */
struct fb_group_sum {
    double utility;
    uint64_t looked_bytes;
};

void fb_group_add(struct fb_group_sum *sum, struct fb_reuse *reuse,
                  const struct fb_reuse_meta *meta, uint32_t size);

/* Of each of its bytes. `live_bytes` belong to items, all of them; `bytes` is what the group takes.
 */
float fb_group_score(const struct fb_group_sum *sum, uint64_t live_bytes, uint64_t bytes);

/* A ranking of groups. The owner fills in group[0 ... count), then calls sort(). */
struct fb_ranked_group {
    float score;
    uint32_t no;
    uint64_t stamp; /* the owner's: tells whether the group is still the same */
};

struct fb_ranking {
    struct fb_ranked_group *group; /* the owner's memory */
    uint32_t count;
    uint32_t next; /* to be taken */
    uint32_t end;  /* here it is used up, though the others are in order, too */
};

void fb_ranking_sort(struct fb_ranking *ranking, double share, unsigned merge);

/* The items of a merge. The owner fills in score (fb_reuse_score), size and no; split() puts them
 * in order, the best first, and marks those that stay: at most `room` bytes. At least one goes, so
 * that every merge makes room; of equals those with the higher number stay. */
struct fb_merge_item {
    float score;
    uint32_t size;
    uint32_t no;
    bool stays;
};

/* Returns how many bytes stay. */
uint64_t fb_groups_split(struct fb_merge_item *items, size_t count, uint64_t room);

#endif
