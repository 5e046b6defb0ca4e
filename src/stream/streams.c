/*
 * Asking the tree.
 */
#include <math.h>
#include <string.h>

#include "stream/name.h"
#include "stream/streams_priv.h"

static uint64_t id_of(const struct fb_streams *s, uint32_t at)
{
    return at ? (uint64_t)s->nodes[at].serial << 32 | at : 0;
}

/* NULL when the node is gone. */
static const struct node *node_of(const struct fb_streams *s, uint64_t id)
{
    uint32_t at = (uint32_t)id;

    if (at == 0 || at >= s->used || s->nodes[at].serial != (uint32_t)(id >> 32))
        return NULL;
    return &s->nodes[at];
}

/* ---- owners ---- */

/* Asked from the root down. True when this one settles it. `direct`: the file is its child, or it
 * is the file. */
static bool owns(const struct node *n, uint64_t id, bool direct, uint64_t *deepest)
{
    const struct fb_verdict *v;
    bool wide;

    if (!is_nontrivial(n) || n->window->verdict.pattern == FB_PATTERN_UNKNOWN)
        return false;
    v = &n->window->verdict;
    wide = v->spread >= FB_STREAM_SPREAD_MIN;
    if (wide || direct)
        *deepest = id;
    return wide && v->pattern != FB_PATTERN_SKEWED;
}

/* The node below `at` on the way along a path, of which *i bytes lie behind. 0: there is none. */
static uint32_t step_down(struct fb_streams *s, uint32_t at, const char *path, size_t path_len,
                          size_t *i)
{
    const char *rest = path + *i;
    const char *slash = *i < path_len ? memchr(rest, '/', path_len - *i) : NULL;
    const struct node *n;

    if (*i >= path_len)
        return 0;
    at = fb_tree_find(s, at, rest, slash ? (size_t)(slash - rest) : path_len - *i);
    n = &s->nodes[at];
    if (!at || n->label_len > path_len - *i || memcmp(label_of(n), rest, n->label_len) != 0)
        return 0;
    *i += n->label_len;
    if (*i < path_len && path[*i] != '/')
        return 0;
    ++*i;
    return at;
}

uint64_t fb_streams_owner(struct fb_streams *s, uint16_t source, const char *path, size_t path_len)
{
    uint32_t at = fb_tree_root(s, source);
    uint64_t deepest = 0;
    size_t i = 0;

    while (at) {
        bool direct = i >= path_len || !memchr(path + i, '/', path_len - i);

        if (owns(&s->nodes[at], id_of(s, at), direct, &deepest))
            break;
        at = step_down(s, at, path, path_len, &i);
    }
    return deepest;
}

uint64_t fb_streams_shuffled(struct fb_streams *s, uint16_t source, const char *path,
                             size_t path_len)
{
    uint32_t at = fb_tree_root(s, source);
    size_t i = 0;

    while (at) {
        const struct node *n = &s->nodes[at];

        if (is_nontrivial(n) && (n->window->verdict.pattern == FB_PATTERN_RANDOM ||
                                 n->window->verdict.pattern == FB_PATTERN_CYCLIC))
            break;
        at = step_down(s, at, path, path_len, &i);
    }
    return id_of(s, at);
}

uint64_t fb_streams_fed_owner(const struct fb_streams *s, const struct fb_fed *fed)
{
    const struct node *last = fed->depth ? node_of(s, fed->steps[fed->depth - 1].id) : NULL;
    unsigned direct = fed->depth - 1 - (last && last->is_file);
    uint64_t deepest = 0;

    for (unsigned i = 0; i < fed->depth; i++) {
        const struct node *n = node_of(s, fed->steps[i].id);

        if (n && owns(n, fed->steps[i].id, i >= direct, &deepest))
            break;
    }
    return deepest;
}

/* ---- nodes ---- */

bool fb_streams_get(const struct fb_streams *s, uint64_t id, struct fb_stream_info *ret_info)
{
    const struct node *n = node_of(s, id);
    const struct fb_window *w;
    uint64_t seen;

    if (!n)
        return false;
    w = n->window;
    seen = w ? fb_window_items(w) : n->visits;
    *ret_info = (struct fb_stream_info){
        .id = id,
        .parent = id_of(s, n->parent),
        .source = n->source,
        .is_file = n->is_file,
        .is_nontrivial = is_nontrivial(n),
        .accesses = n->accesses,
        .hits = n->hits,
        .visits = n->visits,
        .items = n->known > seen ? n->known : seen,
        .children = n->children,
        .last_ns = n->last_ns,
    };
    if (w) {
        ret_info->verdict = w->verdict;
        ret_info->by_name = w->numbering == FB_NUMBER_NAME;
        ret_info->gap_mean_s = w->gap_mean_s;
        ret_info->gap_sigma_s = sqrt(w->gap_var_s2);
    }
    return true;
}

size_t fb_streams_path(const struct fb_streams *s, uint64_t id, char *buf, size_t size)
{
    const struct node *n = node_of(s, id);
    size_t len = 0, at;

    if (size)
        buf[0] = 0;
    if (!n || !n->parent)
        return 0;
    for (const struct node *up = n; up->parent; up = &s->nodes[up->parent])
        len += up->label_len + 1U;
    len--; /* there is no slash before the first */
    if (len >= size)
        return len;
    buf[len] = 0;
    at = len;
    for (const struct node *up = n; up->parent; up = &s->nodes[up->parent]) {
        at -= up->label_len;
        memcpy(buf + at, label_of(up), up->label_len);
        if (at)
            buf[--at] = '/';
    }
    return len;
}

uint64_t fb_streams_child(const struct fb_streams *s, uint64_t id)
{
    const struct node *n = node_of(s, id);

    return id == 0 ? id_of(s, s->roots) : n ? id_of(s, n->child) : 0;
}

uint64_t fb_streams_next(const struct fb_streams *s, uint64_t id)
{
    const struct node *n = node_of(s, id);

    return n ? id_of(s, n->next) : 0;
}

double fb_streams_below(const struct fb_streams *s, uint64_t id, uint32_t key)
{
    const struct node *n = node_of(s, id);

    return n && n->window ? fb_window_below_share(n->window, key) : 0;
}

double fb_streams_below_whole(const struct fb_streams *s, uint64_t id)
{
    const struct node *n = node_of(s, id);

    return n && n->window ? fb_window_below_whole(n->window) : 0;
}

uint32_t fb_streams_count(const struct fb_streams *s)
{
    return s->count;
}

size_t fb_streams_bytes(const struct fb_streams *s)
{
    return sizeof *s + FB_CACHELINE + SLOTS_BYTES + (s->nodes_max + 1) * sizeof *s->nodes +
           (s->buckets_mask + 1) * sizeof *s->buckets + (s->memos_mask + 1) * sizeof *s->memos +
           s->far_bytes;
}
