/*
 * stream/streams_priv.h - the tree's nodes; tree.c keeps them, feed.c visits them.
 *
 * Nodes lie in one array and name each other by place; place 0 is nobody. Their windows lie in
 * another, at the same place: who knows the one can send for both, as each may be far away. The
 * list of children begins with the newest. When all places are taken a hand goes round them: a node
 * that was fed since it last passed is passed over, the next one without children goes (second
 * chance: least recently used, to within a round, without a list to keep in order at every feed).
 */
#ifndef FB_STREAM_STREAMS_PRIV_H
#define FB_STREAM_STREAMS_PRIV_H

#include <assert.h>

#include "base/hash.h"
#include "stream/streams.h"
#include "stream/window.h"

#define LABEL_INLINE 32
#define SLOT_BITS    12
#define SLOTS        (1U << SLOT_BITS) /* of callers' last visits */
#define SLOT_WAYS    4                 /* to a cache line */
#define MEMO_WAYS    16
#define LEAF_BITS    12 /* of an entry's 32, beside FB_NAME_ORDER_BITS of order */

/* Two cache lines; every feed touches the first. */
struct node {
    uint32_t serial; /* 0: free */
    uint32_t parent;
    uint32_t order; /* of its label's first component among its siblings */
    uint32_t key;   /* of its label, for `below` of the node two levels up */
    uint32_t visits;
    uint32_t visit_no; /* which visit of its parent the present one is */
    uint32_t accesses; /* both halved before they overflow */
    uint32_t hits;
    uint16_t source;
    uint16_t label_len;
    bool is_file;
    bool has_positions; /* children come with positions */
    bool used;          /* since the hand passed */
    int64_t last_ns;
    uint64_t path_hash;       /* of a directory; 0: not yet known */
    struct fb_window *window; /* its place among the windows; NULL: not in use */

    uint32_t child; /* newest */
    uint32_t next;  /* siblings */
    uint32_t prev;
    uint32_t chain; /* nodes of one bucket, or free ones */
    uint32_t hash;
    uint32_t known;    /* children it has, as told; 0: unknown */
    uint32_t children; /* nodes */

    union {
        char text[LABEL_INLINE];
        char *far; /* label_len > LABEL_INLINE */
    } label;
} FB_ALIGNED(FB_CACHELINE);

static_assert(sizeof(struct node) == 2 * FB_CACHELINE, "see the cost in streams.h");

struct slot {
    uint64_t key;   /* slot_key(); 0: free */
    uint32_t child; /* where the caller was last */
    uint32_t visit; /* the node's visits then */
};

/* Directories fed lately, by the hash of their paths: a cache line of them. Room for twice as many
 * as there are nodes, so that few are pushed out by others. Each is the node's place in the lowest
 * place_bits (0: free), and above them as much of the hash as there is room for; the node has it in
 * full. */
struct memos {
    uint32_t word[MEMO_WAYS];
} FB_ALIGNED(FB_CACHELINE);

static_assert(sizeof(struct memos) == FB_CACHELINE, "one miss to look");

struct fb_streams {
    uint32_t window;
    uint32_t nodes_max;
    double alpha;
    float gap_weight; /* of the last gap between visits in their mean */
    uint32_t count;
    uint32_t serial; /* last given */
    uint32_t used;   /* places ever taken */
    uint32_t free;
    uint32_t hand;
    uint32_t roots; /* first of the sources' roots, linked as siblings */
    uint32_t buckets_mask;
    uint32_t memos_mask;
    uint32_t place_mask; /* of a node's place in a memo */
    size_t far_bytes;    /* windows in use and long labels */
    struct node *nodes;
    struct slot *slots;
    char *windows;
    struct memos *memos;
    void *memory; /* of all four, each of which begins a cache line */
    uint32_t *buckets;
};

#define SLOTS_BYTES (SLOTS * sizeof(struct slot))

static_assert(sizeof(struct slot) * SLOT_WAYS == FB_CACHELINE, "one miss to look");

/* Of a node and a caller. Serials are not 0. */
static inline uint64_t slot_key(uint32_t serial, uint32_t pid)
{
    return (uint64_t)serial << 32 | pid;
}

static inline struct fb_window *window_at(const struct fb_streams *s, uint32_t at)
{
    return (struct fb_window *)(s->windows + at * fb_window_bytes(s->window));
}

static inline const char *label_of(const struct node *n)
{
    return n->label_len > LABEL_INLINE ? n->label.far : n->label.text;
}

static inline bool is_nontrivial(const struct node *n)
{
    return n->window && n->window->trials > 0;
}

/* The node of a directory, made when it is not there; its source's root for an empty path. */
uint32_t fb_tree_dir(struct fb_streams *s, uint16_t source, const char *path, size_t len);

/* The node of a file below a directory's. */
uint32_t fb_tree_file(struct fb_streams *s, uint32_t dir, const char *name, size_t len);

/* 0 when it is not there; makes nothing. */
uint32_t fb_tree_find(struct fb_streams *s, uint32_t parent, const char *component, size_t len);
uint32_t fb_tree_root(struct fb_streams *s, uint16_t source);

struct fb_window *fb_tree_window(struct fb_streams *s, uint32_t at, enum fb_numbering numbering,
                                 uint8_t shift);

#endif
