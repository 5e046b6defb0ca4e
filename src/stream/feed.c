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

static struct slot *slots_of(struct fb_streams *s, uint32_t serial, uint32_t pid)
{
    return &s->slots[fb_mix64((uint64_t)serial << 32 | pid) & (SLOTS - SLOT_WAYS)];
}

static struct slot *find_slot(struct fb_streams *s, uint32_t serial, uint32_t pid)
{
    struct slot *set = slots_of(s, serial, pid);

    for (unsigned i = 0; i < SLOT_WAYS; i++) {
        if (set[i].node == serial && set[i].pid == pid)
            return &set[i];
    }
    /* Anyone's place: who it was will be taken for new here. */
    set += pid % SLOT_WAYS;
    *set = (struct slot){.node = serial, .pid = pid};
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

/* True when it was a visit. `fresh`: the caller came to this node just now. */
static bool visit(struct fb_streams *s, uint32_t at, const struct step *step,
                  const struct fb_fact *fact, bool fresh, bool *ret_changed)
{
    struct node *n = &s->nodes[at];
    struct slot *slot = find_slot(s, n->serial, fact->pid);
    /* Times come from other processes, too, and may be anything. */
    int64_t gap_ns = (int64_t)((uint64_t)fact->time_ns - (uint64_t)n->last_ns);
    struct fb_window *w = n->window;
    uint32_t back;

    if (n->accesses == UINT32_MAX) {
        n->accesses /= 2;
        n->hits /= 2;
    }
    n->accesses++;
    n->hits += fact->hit;
    n->last_ns = fact->time_ns;
    if (slot->visit && slot->child == step->child && !fresh)
        return false;
    n->visits++;
    if (n->parent && s->nodes[n->parent].window)
        fb_window_below_add(s->nodes[n->parent].window, step->key, n->visit_no, step->share);
    back = slot->visit ? n->visits - slot->visit : 0;
    slot->visit = n->visits;
    slot->child = step->child;
    if (!w) {
        enum fb_numbering numbering =
            step->position == FB_POSITION_UNKNOWN ? FB_NUMBER_NAME : FB_NUMBER_POSITION;

        if (n->visits < WINDOW_AFTER)
            return true;
        w = fb_tree_window(s, at, numbering, numbering == FB_NUMBER_NAME ? LEAF_BITS : 0);
        if (!w)
            return true;
        n->has_positions = numbering == FB_NUMBER_POSITION;
    }
    fb_window_gap(w, gap_ns);
    fb_window_below_begin(w);
    if (fb_window_add(w, entry_for(n, w, step), back > UINT8_MAX ? 0 : (uint8_t)back, step->hash,
                      n->visits))
        *ret_changed = judge(s, n);
    else if (w->count == FB_GUESS_AT && w->trials == 0)
        *ret_changed = fb_window_guess(w, s->alpha);
    return true;
}

/* ---- the path ---- */

static uint32_t find_dir(struct fb_streams *s, const struct fb_fact *fact, size_t len,
                         uint64_t hash)
{
    uint32_t *memo = &s->memos[hash & (MEMOS_A_BUCKET * (s->buckets_mask + 1ULL) - 1)];

    if (s->nodes[*memo].path_hash != hash || s->nodes[*memo].is_file) {
        *memo = fb_tree_dir(s, fact->source, fact->path, len);
        s->nodes[*memo].path_hash = *memo ? hash : 0;
    }
    return *memo;
}

/* Nodes from `at` up, the lowest FB_STREAM_DEPTH_MAX of them. */
static unsigned climb(struct fb_streams *s, uint32_t at, uint32_t pid,
                      uint32_t path[FB_STREAM_DEPTH_MAX])
{
    unsigned depth = 0;

    for (; at && depth < FB_STREAM_DEPTH_MAX; at = s->nodes[at].parent) {
        __builtin_prefetch(s->nodes[at].window);
        __builtin_prefetch(slots_of(s, s->nodes[at].serial, pid));
        s->nodes[at].used = true;
        path[depth++] = at;
    }
    return depth;
}

static struct step block_step(const struct fb_fact *fact)
{
    return (struct step){
        .child = fact->block,
        .position = fact->block,
        .key = fb_below_block(fact->block, fact->blocks),
        .share = 1.0F / (float)fact->blocks,
        .hash = fb_mix64(fact->block + 1ULL),
    };
}

/* Of a file in its directory. */
static struct step file_step(const struct fb_fact *fact, const char *name, uint64_t dir_hash)
{
    size_t len = fact->path_len - (size_t)(name - fact->path);
    uint64_t hash = fb_hash64(name, len);

    return (struct step){
        .child = (uint32_t)hash,
        .order = fb_name_order(name, len),
        .position = fact->position,
        .key = (uint32_t)(hash >> 32),
        .share = fact->siblings ? 1.0F / (float)fact->siblings : 0,
        .hash = fb_mix64(dir_hash ^ hash),
    };
}

/* One level up: another child, the same item. */
static struct step step_above(const struct step *step, const struct node *below)
{
    return (struct step){
        .child = below->serial,
        .order = below->order,
        .position = FB_POSITION_UNKNOWN,
        .key = below->key,
        .hash = step->hash,
    };
}

/* From the root, which is the last of the path. */
static void visit_all(struct fb_streams *s, const uint32_t *path, const struct step *steps,
                      unsigned depth, const struct fb_fact *fact, struct fb_fed *ret_fed)
{
    bool fresh = false;

    for (unsigned level = depth; level-- > 0;) {
        struct node *n = &s->nodes[path[level]];
        bool changed = false;

        fresh = visit(s, path[level], &steps[level], fact, fresh, &changed);
        if (fresh && level > 0)
            s->nodes[path[level - 1]].visit_no = n->visits;
        if (ret_fed) {
            ret_fed->steps[depth - 1 - level].id = (uint64_t)n->serial << 32 | path[level];
            ret_fed->steps[depth - 1 - level].visit = fresh;
            ret_fed->steps[depth - 1 - level].changed = changed;
        }
    }
}

void fb_streams_feed(struct fb_streams *s, const struct fb_fact *fact, struct fb_fed *ret_fed)
{
    const char *slash = memrchr(fact->path, '/', fact->path_len);
    size_t dir_len = slash ? (size_t)(slash - fact->path) : 0;
    const char *name = slash ? slash + 1 : fact->path;
    uint64_t dir_hash = fb_hash64_seed(fact->path, dir_len, fact->source);
    uint32_t dir = find_dir(s, fact, dir_len, dir_hash);
    uint32_t file = 0;
    uint32_t path[FB_STREAM_DEPTH_MAX];
    struct step steps[FB_STREAM_DEPTH_MAX], step;
    unsigned depth = 0, level = 0;

    if (dir && fact->siblings)
        s->nodes[dir].known = fact->siblings;
    if (dir && fact->blocks > 1)
        file = fb_tree_file(s, dir, name, fact->path_len - (size_t)(name - fact->path));
    if (dir)
        depth = climb(s, file ? file : dir, fact->pid, path);
    if (file) {
        s->nodes[file].known = fact->blocks;
        steps[level++] = block_step(fact);
    }
    for (step = file_step(fact, name, dir_hash); level < depth; level++) {
        steps[level] = step;
        step = step_above(&step, &s->nodes[path[level]]);
    }
    visit_all(s, path, steps, depth, fact, ret_fed);
    if (ret_fed)
        ret_fed->depth = depth;
}
