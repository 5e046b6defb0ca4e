/*
 * An access becomes a visit of each node on its path:
 *
 *     find the directory's node (by the hash of its path if it was fed lately), the file's if it
 *     has blocks
 *     from the root down: did this caller just come to the node, or was it at another child before?
 *         no:  it reads on; only the counts of accesses rise
 *         yes: a visit: an entry in the node's window, and one in its parent's `below`
 *     a full window is judged; the first one is guessed at before
 *
 * Numbering. Blocks have numbers. Files and directories are numbered by name (stream/name.h), which
 * needs no listing. Where facts bring positions, windows are numbered by position and by name in
 * turn until one shows a scan: a program that sorts is sequential in the one, a program that takes
 * the listing as it comes in the other. Random is random in both.
 */
#include <string.h>

#include "stream/name.h"
#include "stream/streams_priv.h"

#define WINDOW_AFTER 2 /* visits: most directories of a wide scan never need a window */

/* One level's part of an access. */
struct step {
    uint32_t child;    /* tells children of this node apart */
    uint32_t order;    /* FB_NAME_ORDER_BITS of it */
    uint32_t position; /* FB_POSITION_UNKNOWN */
    uint32_t key;      /* for `below` of the node above */
    float share;       /* of the node's children this one is; 0: unknown */
    uint64_t hash;     /* of the item */
};

/* A node on the way down to what is read, and where callers' last visits of it are. */
struct level {
    struct node *node;
    struct slot *slots;
};

static struct slot *slots_of(struct fb_streams *s, uint64_t key)
{
    /* The golden ratio: each bit of the product's highest depends on all of both. */
    uint64_t mixed = key * 0x9e3779b97f4a7c15ULL;

    return &s->slots[mixed >> (64 - SLOT_BITS) & ~(SLOT_WAYS - 1ULL)];
}

static struct slot *find_slot(struct slot *set, uint64_t key)
{
    if (set->key == key)
        return set;
    for (unsigned i = 1; i < SLOT_WAYS; i++) {
        struct slot found;

        if (set[i].key != key)
            continue;
        found = set[i];
        set[i] = set[i - 1];
        set[i - 1] = found;
        return &set[i - 1];
    }
    /* The last one's place: it will be taken for new here. Who comes again moves up, so that
     * thousands who come once (workers of a shuffled loader, each in any directory) push out each
     * other, and not who goes from file to file. */
    set += SLOT_WAYS - 1;
    *set = (struct slot){.key = key};
    return set;
}

/* The window speaks of other numbers from now on. */
static void renumber(struct fb_window *w, enum fb_numbering numbering)
{
    w->numbering = (uint8_t)numbering;
    w->shift = numbering == FB_NUMBER_NAME ? LEAF_BITS : 0;
    w->count = 0;
}

static uint32_t entry_for(struct node *n, struct fb_window *w, const struct step *step)
{
    if (w->numbering == FB_NUMBER_POSITION) {
        if (step->position != FB_POSITION_UNKNOWN)
            return step->position;
        n->has_positions = false;
        renumber(w, FB_NUMBER_NAME);
    }
    return step->order << LEAF_BITS | (uint32_t)(step->hash & ((1U << LEAF_BITS) - 1));
}

static bool judge(struct fb_streams *s, struct node *n)
{
    struct fb_window *w = n->window;
    bool changed = fb_window_judge(w, n->known, s->alpha);

    if (n->has_positions && !n->is_file && w->verdict.pattern != FB_PATTERN_SEQUENTIAL &&
        w->verdict.pattern != FB_PATTERN_CYCLIC && w->candidate != FB_PATTERN_SEQUENTIAL)
        renumber(w, w->numbering == FB_NUMBER_NAME ? FB_NUMBER_POSITION : FB_NUMBER_NAME);
    return changed;
}

enum {
    VISITED = 1,
    CHANGED = 2, /* its pattern, too */
};

/* `fresh`: the caller came to this node just now. `above`: the window of the node above, if it has
 * one. */
static unsigned visit(struct fb_streams *s, const struct level *level, const struct step *step,
                      const struct fb_fact *fact, bool fresh, struct fb_window *above)
{
    struct node *n = level->node;
    struct slot *slot = find_slot(level->slots, slot_key(n->serial, fact->pid));
    /* Times come from other processes, too, and may be anything. */
    int64_t gap_ns = (int64_t)((uint64_t)fact->time_ns - (uint64_t)n->last_ns);
    struct fb_window *w = n->window;
    bool changed = false;
    uint32_t back;

    if (n->accesses == UINT32_MAX) {
        n->accesses /= 2;
        n->hits /= 2;
    }
    n->accesses++;
    n->hits += fact->hit;
    n->last_ns = fact->time_ns;
    if (slot->visit && slot->child == step->child && !fresh)
        return 0;
    n->visits++;
    if (above)
        fb_window_below_add(above, step->key, n->visit_no, step->share);
    back = slot->visit ? n->visits - slot->visit : 0;
    slot->visit = n->visits;
    slot->child = step->child;
    if (!w) {
        enum fb_numbering numbering =
            step->position == FB_POSITION_UNKNOWN ? FB_NUMBER_NAME : FB_NUMBER_POSITION;

        if (n->visits < WINDOW_AFTER)
            return VISITED;
        w = fb_tree_window(s, (uint32_t)(n - s->nodes), numbering,
                           numbering == FB_NUMBER_NAME ? LEAF_BITS : 0);
        n->has_positions = numbering == FB_NUMBER_POSITION;
    }
    fb_window_gap(w, gap_ns, s->gap_weight);
    fb_window_below_begin(w);
    if (fb_window_add(w, entry_for(n, w, step), back > UINT8_MAX ? 0 : (uint8_t)back, step->hash,
                      n->visits))
        changed = judge(s, n);
    else if (w->count == FB_GUESS_AT && w->trials == 0)
        changed = fb_window_guess(w);
    return changed ? VISITED | CHANGED : VISITED;
}

/* ---- the path ---- */

/* Where the directory with this hash was at its last feed, which may be another node by now; 0: it
 * was not there. All of the line is looked at, without a branch: which of it is the right one can
 * not be foretold. Should two seem right, the place that comes of both is another node's, if any,
 * and the hash that the node has says so. */
static uint32_t recall(struct fb_streams *s, const struct memos *memos, uint64_t hash)
{
    uint32_t key = (uint32_t)(hash >> 32) & ~s->place_mask, at = 0;

    for (unsigned i = 0; i < MEMO_WAYS; i++) {
        uint32_t word = memos->word[i] ^ key;

        at |= word & ~s->place_mask ? 0 : word;
    }
    if (at == 0 || at >= s->used)
        return 0;
    __builtin_prefetch(&s->nodes[at]);
    fb_window_prefetch(window_at(s, at));
    return at;
}

/* In its place of before, else in a free one, else in anyone's. */
static void remember(struct fb_streams *s, struct memos *memos, uint64_t hash, uint32_t at)
{
    uint32_t key = (uint32_t)(hash >> 32) & ~s->place_mask;
    unsigned way = (unsigned)(hash >> 60) % MEMO_WAYS;

    for (unsigned i = MEMO_WAYS; i-- > 0;) {
        bool is_free = (memos->word[i] & s->place_mask) == 0;

        if (is_free)
            way = i;
        if (!is_free && (memos->word[i] & ~s->place_mask) == key) {
            way = i;
            break;
        }
    }
    memos->word[way] = at ? key | at : 0;
}

static uint32_t find_dir(struct fb_streams *s, const struct fb_fact *fact, size_t len,
                         uint64_t hash, struct memos *memos, uint32_t recalled)
{
    uint32_t at = recalled;

    if (at && s->nodes[at].path_hash == hash && !s->nodes[at].is_file)
        return at;
    at = fb_tree_dir(s, fact->source, fact->path, len);
    if (at)
        s->nodes[at].path_hash = hash;
    remember(s, memos, hash, at);
    return at;
}

/* Nodes from `at` up, the lowest FB_STREAM_DEPTH_MAX of them. */
static unsigned climb(struct fb_streams *s, uint32_t at, uint32_t pid,
                      struct level path[FB_STREAM_DEPTH_MAX])
{
    unsigned depth = 0;

    while (at && depth < FB_STREAM_DEPTH_MAX) {
        struct level *level = &path[depth++];

        level->node = &s->nodes[at];
        level->slots = slots_of(s, slot_key(level->node->serial, pid));
        __builtin_prefetch(level->slots);
        level->node->used = true;
        at = level->node->parent;
    }
    return depth;
}

/* Steps are filled in where they will be read, field by field: a struct that is copied right after
 * its fields were written waits until these stores are done. */
static void block_step(const struct fb_fact *fact, struct step *step)
{
    step->child = fact->block;
    step->order = 0;
    step->position = fact->block;
    step->key = fb_below_block(fact->block, fact->blocks);
    step->share = 1.0F / (float)fact->blocks;
    step->hash = fb_mix64(fact->block + 1ULL);
}

/* Of a file in its directory. */
static void file_step(const struct fb_fact *fact, const char *name, size_t len, uint64_t hash,
                      uint64_t dir_hash, struct step *step)
{
    step->child = (uint32_t)hash;
    step->order = fb_name_order(name, len);
    step->position = fact->position;
    step->key = (uint32_t)(hash >> 32);
    step->share = fact->siblings ? 1.0F / (float)fact->siblings : 0;
    step->hash = fb_mix64(dir_hash ^ hash);
}

/* Of a node in the one above it: another child, the same item. */
static void node_step(const struct node *n, uint64_t hash, struct step *step)
{
    step->child = n->serial;
    step->order = n->order;
    step->position = FB_POSITION_UNKNOWN;
    step->key = n->key;
    step->share = 0;
    step->hash = hash;
}

/* From the root, which is the last of the path. Steps: the lowest node's, and that of the one above
 * it if it is a file. */
static void visit_all(struct fb_streams *s, const struct level *path, const struct step *steps,
                      unsigned count, unsigned depth, const struct fb_fact *fact,
                      struct fb_fed *ret_fed)
{
    struct fb_window *above = depth ? s->nodes[path[depth - 1].node->parent].window : NULL;
    unsigned what = 0;

    for (unsigned i = depth; i-- > 0;) {
        const struct node *n = path[i].node;
        const struct step *step = &steps[i];
        struct step between;

        if (i >= count) {
            node_step(path[i - 1].node, steps[count - 1].hash, &between);
            step = &between;
        }
        what = visit(s, &path[i], step, fact, what != 0, above);
        above = n->window;
        if (what && i > 0)
            path[i - 1].node->visit_no = n->visits;
        if (ret_fed) {
            ret_fed->steps[depth - 1 - i].id = (uint64_t)n->serial << 32 | (uint32_t)(n - s->nodes);
            ret_fed->steps[depth - 1 - i].visit = what != 0;
            ret_fed->steps[depth - 1 - i].changed = what & CHANGED;
        }
    }
}

void fb_streams_feed(struct fb_streams *s, const struct fb_fact *fact, struct fb_fed *ret_fed)
{
    const char *slash = memrchr(fact->path, '/', fact->path_len);
    size_t dir_len = slash ? (size_t)(slash - fact->path) : 0;
    const char *name = slash ? slash + 1 : fact->path;
    size_t name_len = fact->path_len - (size_t)(name - fact->path);
    uint64_t dir_hash = fb_hash64_seed(fact->path, dir_len, fact->source), name_hash;
    struct memos *memos = &s->memos[dir_hash & s->memos_mask];
    uint32_t recalled, dir, file = 0;
    struct level path[FB_STREAM_DEPTH_MAX];
    struct step steps[2], *step;
    unsigned depth = 0;

    /* In this order: the name is looked at while what is known of the directory comes from memory,
     * first where it is, then the node. */
    __builtin_prefetch(memos);
    name_hash = fb_hash64(name, name_len);
    recalled = recall(s, memos, dir_hash);
    step = &steps[fact->blocks > 1];
    file_step(fact, name, name_len, name_hash, dir_hash, step);
    dir = find_dir(s, fact, dir_len, dir_hash, memos, recalled);
    if (dir && fact->siblings)
        s->nodes[dir].known = fact->siblings;
    if (dir && fact->blocks > 1) {
        file = fb_tree_file(s, dir, name, name_len);
        fb_window_prefetch(window_at(s, file));
    }
    if (dir)
        depth = climb(s, file ? file : dir, fact->pid, path);
    if (file) {
        s->nodes[file].known = fact->blocks;
        block_step(fact, steps);
    }
    visit_all(s, path, file ? steps : step, file ? 2 : 1, depth, fact, ret_fed);
    if (ret_fed)
        ret_fed->depth = depth;
}
