/*
 * sim/groups.h - objects in groups by the time of writing, and merging them: what GL-Cache and its
 * oracle share. They differ in which group goes, and in what a merge keeps.
 *
 * Groups are a list in the order of writing. An object is in at most one. The newest group of each
 * lane is open: it is written, and is no victim and no neighbour. With one lane groups are what was
 * written together; with several, the owner deals objects out by something else.
 *
 * A merge, in the owner's hands:
 *
 *     count = fb_sim_groups_neighbours(groups, victim, merge, chosen)
 *     fb_sim_groups_gather(groups, chosen, count): groups->candidate[] are all their objects
 *     the owner sets candidate[].cost; the cheapest stay
 *     keep = fb_sim_groups_choose(groups, count): they come first now
 *     fb_sim_groups_merge(groups, chosen, count, keep): candidate[keep ...] are not cached any more
 */
#ifndef FB_SIM_GROUPS_H
#define FB_SIM_GROUPS_H

#include "policy/glcache.h"
#include "sim/node.h"

#define FB_SIM_LANES         8
#define FB_SIM_GROUP_MAX     100000 /* objects */
#define FB_SIM_MERGE_MAX     64
#define FB_SIM_GROUPS_AT_MIN 20 /* a cache has at least about so many */

struct fb_sim_member {
    uint32_t next; /* of its group */
    uint32_t size;
    uint32_t group; /* 1 + number; 0: not cached */
    struct fb_gl_meta meta;
};

struct fb_sim_group {
    uint32_t first; /* object */
    uint32_t count;
    uint32_t prev; /* in the order of writing */
    uint32_t next;
    uint32_t stamp; /* the owner's; 0 in a new group, and in what a merge left */
    bool open;
};

struct fb_sim_candidate {
    double cost;
    uint32_t id;
};

struct fb_sim_groups {
    struct fb_sim_member *object;
    size_t objects;
    uint64_t capacity;
    uint64_t size;
    uint64_t cached;
    uint64_t seen_size; /* of all written, for the mean */
    uint64_t seen;
    uint32_t group_max; /* objects */
    uint32_t group_now; /* the same, for a cache of this size */
    struct fb_sim_group *group;
    size_t groups;
    size_t closed; /* groups that can be evicted */
    uint32_t free; /* a list through next */
    uint32_t oldest;
    uint32_t newest;
    uint32_t hand; /* the next one in the order of writing to be evicted, or NONE */
    uint32_t open[FB_SIM_LANES];
    struct fb_sim_candidate *candidate;
    size_t candidates;
    size_t candidates_room;
};

void fb_sim_groups_init(struct fb_sim_groups *g, uint64_t capacity, uint32_t group_max);
FB_MUST_CHECK int fb_sim_groups_reserve(struct fb_sim_groups *g, size_t objects);
void fb_sim_groups_free(struct fb_sim_groups *g);

/* The group of the lane is full, or there is none. */
bool fb_sim_groups_full(const struct fb_sim_groups *g, unsigned lane);

/* The next group of the lane. The one before it must be closed. */
FB_MUST_CHECK int fb_sim_groups_open(struct fb_sim_groups *g, unsigned lane);
/* Returns the group that was closed, or NONE. */
uint32_t fb_sim_groups_close(struct fb_sim_groups *g, unsigned lane);

/* Adds an object, of the size that it says, to the open group of the lane. */
void fb_sim_groups_write(struct fb_sim_groups *g, unsigned lane, uint32_t id);

/* The groups in turn, from the oldest on, `merge` at a time. There must be closed ones. */
uint32_t fb_sim_groups_next(struct fb_sim_groups *g, unsigned merge);

/* The victim and those written after it; before it when there are too few after it. */
unsigned fb_sim_groups_neighbours(const struct fb_sim_groups *g, uint32_t victim, unsigned merge,
                                  uint32_t *ret_chosen);
FB_MUST_CHECK int fb_sim_groups_gather(struct fb_sim_groups *g, const uint32_t *chosen,
                                       unsigned count);
size_t fb_sim_groups_choose(struct fb_sim_groups *g, unsigned count);

/* The first of `chosen` takes the first `keep` candidates; it is gone when there are none. */
void fb_sim_groups_merge(struct fb_sim_groups *g, const uint32_t *chosen, unsigned count,
                         size_t keep);

/* Asks for an object of a request to come. */
static inline void fb_sim_groups_prefetch(const struct fb_sim_groups *g,
                                          const struct fb_sim_batch *batch, size_t i)
{
    if (i + FB_SIM_PREFETCH < batch->count)
        __builtin_prefetch(&g->object[batch->id[i + FB_SIM_PREFETCH]], 1);
}

#endif
