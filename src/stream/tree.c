/*
 * The nodes of the tree: found by (parent, first component of the label), made, split, forgotten.
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "core/mem.h"
#include "stream/name.h"
#include "stream/streams_priv.h"

#define WINDOW_DEFAULT 100
#define NODES_DEFAULT  10000
#define ALPHA_DEFAULT  0.01
#define PRUNE_LOOK     8 /* children looked at for one to let go */

int fb_streams_new(const struct fb_streams_config *config, struct fb_streams **ret_streams)
{
    struct fb_streams *s = fb_alloc(sizeof *s);
    size_t memos_bytes, nodes_bytes, windows_bytes;
    uint32_t buckets = 1;

    if (!s)
        return -ENOMEM;
    s->window = config->window ? config->window : WINDOW_DEFAULT;
    s->nodes_max = config->nodes_max ? config->nodes_max : NODES_DEFAULT;
    s->alpha = config->alpha > 0 ? config->alpha : ALPHA_DEFAULT;
    FB_ASSERT(s->window >= FB_WINDOW_MIN && s->window <= FB_WINDOW_MAX);
    s->gap_weight = 1.0F / (float)s->window;
    FB_ASSERT(s->nodes_max >= FB_STREAM_NODES_MIN && s->nodes_max <= FB_STREAM_NODES_MAX);
    while (buckets < s->nodes_max)
        buckets *= 2;
    s->buckets_mask = buckets - 1;
    s->used = 1;
    s->memos_mask = 2 * buckets / MEMO_WAYS - 1;
    s->place_mask = 2 * buckets - 1; /* nodes_max may be `buckets` itself */
    memos_bytes = (s->memos_mask + 1) * sizeof *s->memos;
    nodes_bytes = (s->nodes_max + 1) * sizeof *s->nodes;
    windows_bytes = (s->nodes_max + 1) * fb_window_bytes(s->window);
    s->memory =
        fb_alloc_large(1, FB_CACHELINE + SLOTS_BYTES + memos_bytes + nodes_bytes + windows_bytes);
    s->slots = (struct slot *)fb_align_up((uintptr_t)s->memory, FB_CACHELINE);
    s->memos = (struct memos *)((char *)s->slots + SLOTS_BYTES);
    s->nodes = (struct node *)((char *)s->memos + memos_bytes);
    s->windows = (char *)s->nodes + nodes_bytes;
    s->buckets = fb_alloc_array(buckets, sizeof *s->buckets);
    if (!s->memory || !s->buckets) {
        fb_streams_free(s);
        return -ENOMEM;
    }
    memset(s->slots, 0, SLOTS_BYTES + memos_bytes + sizeof *s->nodes); /* with nobody's node */
    *ret_streams = s;
    return 0;
}

static void free_parts(struct fb_streams *s, struct node *n)
{
    if (n->window)
        s->far_bytes -= fb_window_bytes(s->window);
    if (n->label_len > LABEL_INLINE) {
        s->far_bytes -= n->label_len;
        free(n->label.far);
    }
    n->window = NULL;
    n->label_len = 0;
}

void fb_streams_free(struct fb_streams *s)
{
    if (!s)
        return;
    for (uint32_t i = 1; i < s->used; i++) {
        if (s->nodes[i].serial)
            free_parts(s, &s->nodes[i]);
    }
    free(s->memory);
    free(s->buckets);
    free(s);
}

/* ---- lists ---- */

/* The head of a node's children, or of the roots. */
static uint32_t *children_of(struct fb_streams *s, uint32_t parent)
{
    return parent ? &s->nodes[parent].child : &s->roots;
}

/* The first child's prev is the last child. */
static void child_push(struct fb_streams *s, uint32_t parent, uint32_t at)
{
    struct node *n = &s->nodes[at];
    uint32_t *head = children_of(s, parent);

    n->parent = parent;
    n->next = *head;
    n->prev = at;
    if (*head) {
        n->prev = s->nodes[*head].prev;
        s->nodes[*head].prev = at;
    }
    *head = at;
    s->nodes[parent].children += parent != 0;
}

static void child_remove(struct fb_streams *s, uint32_t at)
{
    struct node *n = &s->nodes[at];
    uint32_t *head = children_of(s, n->parent);

    if (*head == at)
        *head = n->next;
    else
        s->nodes[n->prev].next = n->next;
    if (n->next)
        s->nodes[n->next].prev = n->prev;
    else if (*head)
        s->nodes[*head].prev = n->prev;
    s->nodes[n->parent].children -= n->parent != 0;
}

/* ---- finding ---- */

static uint32_t component_hash(const struct fb_streams *s, uint32_t parent, const char *component,
                               size_t len)
{
    return (uint32_t)fb_hash64_seed(component, len, s->nodes[parent].serial);
}

static void bucket_push(struct fb_streams *s, uint32_t at)
{
    uint32_t *head = &s->buckets[s->nodes[at].hash & s->buckets_mask];

    s->nodes[at].chain = *head;
    *head = at;
}

static void bucket_remove(struct fb_streams *s, uint32_t at)
{
    uint32_t *link = &s->buckets[s->nodes[at].hash & s->buckets_mask];

    while (*link != at)
        link = &s->nodes[*link].chain;
    *link = s->nodes[at].chain;
}

static bool begins_with(const struct node *n, const char *component, size_t len)
{
    const char *label = label_of(n);

    return n->label_len >= len && memcmp(label, component, len) == 0 &&
           (n->label_len == len || label[len] == '/');
}

uint32_t fb_tree_find(struct fb_streams *s, uint32_t parent, const char *component, size_t len)
{
    uint32_t hash = component_hash(s, parent, component, len);
    uint32_t at = s->buckets[hash & s->buckets_mask];

    for (; at; at = s->nodes[at].chain) {
        const struct node *n = &s->nodes[at];

        if (n->hash == hash && n->parent == parent && begins_with(n, component, len))
            return at;
    }
    return 0;
}

uint32_t fb_tree_root(struct fb_streams *s, uint16_t source)
{
    uint32_t at = s->roots;

    while (at && s->nodes[at].source != source)
        at = s->nodes[at].next;
    return at;
}

/* ---- making and forgetting ---- */

static void remove_leaf(struct fb_streams *s, uint32_t at)
{
    struct node *n = &s->nodes[at];

    if (n->parent)
        bucket_remove(s, at);
    child_remove(s, at);
    free_parts(s, n);
    *n = (struct node){.chain = s->free};
    s->free = at;
    s->count--;
}

/* False when there is nothing to let go but `keep`. */
static bool make_room(struct fb_streams *s, uint32_t keep)
{
    if (s->count < s->nodes_max)
        return true;
    /* The first round clears all marks at the latest, the second finds one. */
    for (uint32_t i = 0; i <= 2 * s->nodes_max; i++) {
        uint32_t at = s->hand = s->hand % s->nodes_max + 1;
        struct node *n = &s->nodes[at];

        if (n->used || n->child || at == keep) {
            n->used = false;
            continue;
        }
        remove_leaf(s, at);
        return true;
    }
    return false;
}

/* Puts a node under its parent by the label it has. */
static void place(struct fb_streams *s, uint32_t parent, uint32_t at)
{
    struct node *n = &s->nodes[at];
    const char *label = label_of(n);
    const char *slash = memchr(label, '/', n->label_len);
    size_t len = slash ? (size_t)(slash - label) : n->label_len;

    child_push(s, parent, at);
    if (!parent)
        return;
    n->order = fb_name_order(label, len);
    n->key = fb_name_hash(label, n->label_len);
    n->hash = component_hash(s, parent, label, len);
    bucket_push(s, at);
}

static bool set_label(struct fb_streams *s, struct node *n, const char *label, size_t len)
{
    char *text = n->label.text;

    if (len > LABEL_INLINE) {
        text = fb_alloc(len);
        if (!text)
            return false;
        s->far_bytes += len;
        n->label.far = text;
    }
    memcpy(text, label, len);
    n->label_len = (uint16_t)len;
    return true;
}

/* 0 without memory. `keep` is not to be let go for it. */
static uint32_t make(struct fb_streams *s, uint32_t parent, uint32_t keep, uint16_t source,
                     const char *label, size_t len)
{
    uint32_t at;
    struct node *n;

    if (!make_room(s, keep))
        return 0;
    at = s->free ? s->free : s->used;
    n = &s->nodes[at];
    if (at == s->used)
        *n = (struct node){0};
    if (!set_label(s, n, label, len))
        return 0;
    if (at == s->free)
        s->free = n->chain;
    else
        s->used++;
    n->serial = ++s->serial ? s->serial : ++s->serial;
    n->source = source;
    n->chain = 0;
    s->count++;
    n->used = true;
    place(s, parent, at);
    return at;
}

/* A non-trivial node lets go of its oldest trivial children beyond the window. Those with a pattern
 * or children of their own stay, and count as new. */
static void prune(struct fb_streams *s, uint32_t at)
{
    const struct node *n = &s->nodes[at];

    if (!is_nontrivial(n))
        return;
    for (unsigned i = 0; i < PRUNE_LOOK && n->children > s->window; i++) {
        uint32_t last = s->nodes[n->child].prev;

        if (!s->nodes[last].child && !is_nontrivial(&s->nodes[last])) {
            remove_leaf(s, last);
            continue;
        }
        child_remove(s, last);
        child_push(s, at, last);
    }
}

/* Length of the longest run of whole components with which label and path both begin. */
static size_t common_len(const struct node *n, const char *path, size_t len)
{
    const char *label = label_of(n);
    size_t i = 0, end = 0;

    for (; i < n->label_len && i < len && label[i] == path[i]; i++) {
        if (label[i] == '/')
            end = i;
    }
    if ((i == n->label_len || label[i] == '/') && (i == len || path[i] == '/'))
        end = i;
    return end;
}

/* "a/b/c" becomes "a/b" with "c" below it; returns the upper one, 0 without memory. */
static uint32_t split(struct fb_streams *s, uint32_t at, size_t len)
{
    struct node *n = &s->nodes[at];
    uint32_t parent = n->parent;
    size_t rest_len = n->label_len - len - 1;
    struct node lower = {0};
    const char *label = label_of(n);
    uint32_t upper;

    if (!set_label(s, &lower, label + len + 1, rest_len))
        return 0;
    upper = make(s, parent, at, n->source, label, len);
    if (!upper) {
        free_parts(s, &lower);
        return 0;
    }
    s->nodes[upper].last_ns = n->last_ns;
    s->nodes[upper].accesses = n->accesses;
    s->nodes[upper].hits = n->hits;
    s->nodes[upper].visits = 1;
    bucket_remove(s, at);
    child_remove(s, at);
    if (n->label_len > LABEL_INLINE) {
        s->far_bytes -= n->label_len;
        free(n->label.far);
    }
    n->label = lower.label;
    n->label_len = lower.label_len;
    place(s, upper, at);
    return upper;
}

/* What was a file is a directory now, or the other way round: another thing under the same name. */
static void change_kind(struct fb_streams *s, struct node *n, bool is_file)
{
    if (n->is_file == is_file)
        return;
    if (n->window)
        s->far_bytes -= fb_window_bytes(s->window);
    n->window = NULL;
    n->is_file = is_file;
    n->visits = 0;
    n->known = 0;
}

uint32_t fb_tree_dir(struct fb_streams *s, uint16_t source, const char *path, size_t len)
{
    uint32_t at = fb_tree_root(s, source);

    if (!at)
        at = make(s, 0, 0, source, "", 0);
    for (size_t i = 0; at && i < len;) {
        const char *rest = path + i;
        const char *slash = memchr(rest, '/', len - i);
        uint32_t child = fb_tree_find(s, at, rest, slash ? (size_t)(slash - rest) : len - i);
        size_t common;

        if (!child) {
            child = make(s, at, at, source, rest, len - i);
            prune(s, at);
            return child;
        }
        common = common_len(&s->nodes[child], rest, len - i);
        if (common < s->nodes[child].label_len)
            child = split(s, child, common);
        if (child)
            change_kind(s, &s->nodes[child], false);
        at = child;
        i += common + 1;
    }
    return at;
}

uint32_t fb_tree_file(struct fb_streams *s, uint32_t dir, const char *name, size_t len)
{
    uint32_t at = fb_tree_find(s, dir, name, len);

    /* A directory of that name that runs on into another: the file replaced it. */
    if (at && s->nodes[at].label_len != len)
        at = split(s, at, len);
    if (!at) {
        at = make(s, dir, dir, s->nodes[dir].source, name, len);
        prune(s, dir);
    }
    if (at)
        change_kind(s, &s->nodes[at], true);
    return at;
}

struct fb_window *fb_tree_window(struct fb_streams *s, uint32_t at, enum fb_numbering numbering,
                                 uint8_t shift)
{
    struct node *n = &s->nodes[at];

    if (!n->window) {
        n->window = window_at(s, at);
        memset(n->window, 0, fb_window_bytes(s->window));
        s->far_bytes += fb_window_bytes(s->window);
        fb_window_init(n->window, s->window, numbering, shift);
    }
    return n->window;
}

static void forget_below(struct fb_streams *s, uint32_t at)
{
    while (at) {
        uint32_t up = s->nodes[at].parent;

        if (s->nodes[at].child) {
            at = s->nodes[at].child;
            continue;
        }
        remove_leaf(s, at);
        at = up;
    }
}

void fb_streams_forget(struct fb_streams *s, uint16_t source)
{
    forget_below(s, fb_tree_root(s, source));
}
