/*
 * stream/streams.h - the AccessStreamTree (IGTCache, section 3.1): one tree for all accesses, fed
 * one by one, that knows what is done at each directory and file.
 *
 *     source 0 ── "imagenet/train" ─┬─ "n01440764" ── items: its files
 *                                   └─ "n01443537"
 *              └─ "corpus" ── "train.arrow" ── items: its blocks
 *
 * A node is a directory, or a file of more than one block. Files of one block and blocks are no
 * nodes: they are entries in the window (stream/window.h) of the node they are children of. Chains
 * of directories without a branch are one node (layer compression), split when a branch appears.
 * A node with a full window is non-trivial: it has a pattern. Of a non-trivial node only the last
 * `window` child nodes are kept unless they are non-trivial themselves (child pruning), and at most
 * `nodes_max` in all, the least recently used going first.
 *
 * One thread feeds and asks; time is in the facts. No I/O, no locks. A feed allocates only for a
 * node with a long name. Cost: 0.15 KB a node, and 0.83 KB more once it has been visited twice
 * (window of 100), of memory that is set aside at the beginning and not touched before; 70 to 200
 * ns a feed.
 *
 * An id names a node for as long as it lives, and no other ever after. 0 is no node.
 */
#ifndef FB_STREAM_STREAMS_H
#define FB_STREAM_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attr.h"
#include "stream/pattern.h"

#define FB_STREAM_DEPTH_MAX  32
#define FB_STREAM_NODES_MIN  64
#define FB_STREAM_NODES_MAX  1000000
#define FB_STREAM_SPREAD_MIN 32 /* children a node chooses among to own what is below them */
#define FB_POSITION_UNKNOWN  UINT32_MAX

struct fb_streams;

struct fb_streams_config {
    uint32_t window;    /* 0: 100 */
    uint32_t nodes_max; /* 0: 10,000 */
    double alpha;       /* 0: 0.01 */
};

/* One access. `path` is read during the call only and need not end in a zero byte. */
struct fb_fact {
    int64_t time_ns;
    const char *path; /* of the file below its source: no slash at either end, none doubled */
    uint32_t path_len;
    uint32_t pid;    /* caller; any number that tells callers apart */
    uint32_t block;  /* of the file */
    uint32_t blocks; /* the file has; 0 counts as 1 */
    /* Where the file stands in its directory's listing as a program sees it, and how long that is,
     * when this is known (UNKNOWN and 0 otherwise). New files count on at the end. */
    uint32_t position;
    uint32_t siblings;
    uint16_t source;
    bool hit;
};

/* What a feed did, from the source's root down to the file: for whoever prefetches. */
struct fb_fed {
    unsigned depth;

    struct {
        uint64_t id;
        bool visit;   /* a caller stepped to another child of this node */
        bool changed; /* its pattern is another now */
    } steps[FB_STREAM_DEPTH_MAX];
};

struct fb_stream_info {
    uint64_t id;
    uint64_t parent; /* 0: a source's root */
    uint16_t source;
    bool is_file;
    bool is_nontrivial;
    bool by_name; /* orders in the verdict are of names, not positions */
    struct fb_verdict verdict;
    uint64_t accesses;
    uint64_t hits;
    uint64_t visits;
    uint64_t items;    /* below it, about: as told, or as many different ones as were seen */
    uint32_t children; /* child nodes */
    int64_t last_ns;
    double gap_mean_s; /* between visits */
    double gap_sigma_s;
};

FB_MUST_CHECK int fb_streams_new(const struct fb_streams_config *config,
                                 struct fb_streams **ret_streams);
void fb_streams_free(struct fb_streams *streams);

/* Never fails: without memory the tree knows less. ret_fed may be NULL. */
void fb_streams_feed(struct fb_streams *streams, const struct fb_fact *fact,
                     struct fb_fed *ret_fed);

/* Forgets all that is below a source. */
void fb_streams_forget(struct fb_streams *streams, uint16_t source);

/* ---- asking ---- */

/* The node that owns the items of a file (whose eviction, TTL and space apply): the highest one on
 * its path that is sequential, random or cyclic over many children, else the deepest that has any
 * pattern. The highest, since a data set read in order or shuffled is one thing, however many
 * directories it is cut into; the deepest, since skew above only says that what is below differs. A
 * node over few children is a shelf: it owns the files that lie on it, not what is in the boxes.
 * 0: none, nothing is known yet. */
uint64_t fb_streams_owner(struct fb_streams *streams, uint16_t source, const char *path,
                          size_t path_len);

/* The highest node on a file's path that is read in random order or as a cycle, over however few
 * children: what is below it will be read, or was lately, though not all of it need be read alike.
 * 0: there is none. */
uint64_t fb_streams_shuffled(struct fb_streams *streams, uint16_t source, const char *path,
                             size_t path_len);

/* The same as fb_streams_owner() for what was just fed. */
uint64_t fb_streams_fed_owner(const struct fb_streams *streams, const struct fb_fed *fed);

/* False when the node is gone. */
bool fb_streams_get(const struct fb_streams *streams, uint64_t id, struct fb_stream_info *ret_info);

/* Path below the source; "" for a root, and when it does not fit. Returns the length it has. */
size_t fb_streams_path(const struct fb_streams *streams, uint64_t id, char *buf, size_t size);

/* Walks the tree: the newest child of a node (of 0: the first source's root), its next sibling. */
uint64_t fb_streams_child(const struct fb_streams *streams, uint64_t id);
uint64_t fb_streams_next(const struct fb_streams *streams, uint64_t id);

/* How often, among visits of children of this node, the child's child of that key was read
 * (stream/window.h): what prefetch goes down by. `whole`: the share of a child read on average. */
double fb_streams_below(const struct fb_streams *streams, uint64_t id, uint32_t key);
double fb_streams_below_whole(const struct fb_streams *streams, uint64_t id);

uint32_t fb_streams_count(const struct fb_streams *streams);

/* All memory that hangs off the tree. */
size_t fb_streams_bytes(const struct fb_streams *streams);

#endif
