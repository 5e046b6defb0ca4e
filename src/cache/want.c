#include "cache/want.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "cache/cache_priv.h"
#include "core/clock.h"
#include "core/mem.h"

#define ORIGINS     64u
#define LATER_MAX   64u               /* directories that wait for their listing */
#define LATER_NS    (5 * FB_NS_PER_S) /* for that long */
#define DIR_FILES   64u               /* brought for all directories of one want, */
#define DIR_FILES_1 8u                /* and of one of them at least */

/* How far names were asked for, in ranks: the brain knows that of positions only. */
struct fronts {
    uint64_t node;
    uint32_t until[FB_PREFETCH_FRONTS];
    uint32_t turn;
};

struct later {
    char *path; /* NULL: free */
    uint64_t node;
    int64_t until_ns;
    uint32_t stream;
    uint32_t files;
    uint16_t source;
    uint16_t origin;
};

struct fb_wants {
    struct fb_cache *cache;
    struct fb_prefetch_config config;
    struct fronts fronts[ORIGINS];
    struct later later[LATER_MAX];
};

/* One want, being carried out. */
struct carrying {
    struct fb_wants *wants;
    const struct fb_streams *tree;
    const struct fb_want *want;
    uint32_t stream;
    uint16_t source;
    char path[FB_PATH_MAX]; /* the node's, then with a child's name */
    size_t len;             /* of the node's */
};

static void bring(struct fb_wants *wants, uint16_t source, const char *path, uint64_t node,
                  uint16_t origin, uint32_t place)
{
    struct fb_bring_order order = {
        .source = source, .origin = origin, .path = path, .place = place, .node = node};

    /* Without room or memory it is not brought: a reader fetches it when it comes. */
    if (fb_bring(wants->cache->bring, &order) < 0)
        return;
}

/* ---- directories ----------------------------------------------------------------------------- */

/* Of a directory that is known: what is read in nearly all of its siblings. */
static void bring_below(struct fb_wants *wants, const struct fb_streams *tree,
                        const struct later *l, const struct fb_dir *dir)
{
    size_t len = strlen(l->path);
    char path[FB_PATH_MAX];
    uint32_t brought = 0;

    memcpy(path, l->path, len);
    path[len++] = '/';
    for (uint32_t i = 0; i < fb_dir_count(dir) && brought < l->files; i++) {
        struct fb_dir_entry e = fb_dir_at(dir, i);

        if (e.type != DT_REG || len + e.name_len >= sizeof path ||
            !fb_prefetch_wants_name(&wants->config, tree, l->node, e.name, e.name_len))
            continue;
        memcpy(path + len, e.name, e.name_len);
        path[len + e.name_len] = '\0';
        bring(wants, l->source, path, 0, l->origin, FB_POSITION_UNKNOWN);
        brought++;
    }
}

static bool try_below(struct fb_wants *wants, const struct fb_streams *tree, const struct later *l)
{
    struct fb_dir *dir = fb_dirs_get(wants->cache->dirs, l->source, l->path, strlen(l->path));

    if (!dir)
        return false;
    fb_steer_claim(wants->cache->steer, l->source, l->path, strlen(l->path), l->stream);
    bring_below(wants, tree, l, dir);
    fb_dir_put(dir);
    return true;
}

static void later_clear(struct later *l)
{
    free(l->path);
    *l = (struct later){.path = NULL};
}

static void want_directory(struct carrying *c, uint32_t files)
{
    struct later l = {
        .path = c->path,
        .node = c->want->node,
        .until_ns = fb_now_ns() + LATER_NS,
        .stream = c->stream,
        .files = files,
        .source = c->source,
        .origin = c->want->origin,
    };
    struct later *place = NULL;

    if (try_below(c->wants, c->tree, &l))
        return;
    for (unsigned i = 0; i < LATER_MAX && !place; i++) {
        if (!c->wants->later[i].path)
            place = &c->wants->later[i];
    }
    l.path = place ? fb_strdup(c->path) : NULL;
    if (l.path)
        *place = l;
}

void fb_wants_tick(struct fb_wants *wants, const struct fb_streams *tree, int64_t now_ns)
{
    for (unsigned i = 0; i < LATER_MAX; i++) {
        struct later *l = &wants->later[i];

        if (l->path && (try_below(wants, tree, l) || now_ns >= l->until_ns))
            later_clear(l);
    }
}

/* ---- children -------------------------------------------------------------------------------- */

static void want_child(struct carrying *c, const struct fb_dir_entry *e, uint32_t place)
{
    size_t slash = c->len > 0 ? 1 : 0;
    uint32_t files = DIR_FILES / (c->want->range.count ? c->want->range.count : 1);

    if (c->len + slash + e->name_len >= sizeof c->path)
        return;
    if (slash)
        c->path[c->len] = '/';
    memcpy(c->path + c->len + slash, e->name, e->name_len);
    c->path[c->len + slash + e->name_len] = '\0';
    if (e->type == DT_DIR)
        want_directory(c, files > DIR_FILES_1 ? files : DIR_FILES_1);
    else if (e->type == DT_REG)
        bring(c->wants, c->source, c->path, c->want->node, c->want->origin, place);
    c->path[c->len] = '\0';
}

/* The first rank not yet asked for, of the reader at `rank`. */
static uint32_t *front_of(struct fb_wants *wants, const struct fb_want *want, uint32_t rank)
{
    struct fronts *f = &wants->fronts[want->origin % ORIGINS];

    if (f->node != want->node)
        *f = (struct fronts){.node = want->node};
    for (unsigned i = 0; i < FB_PREFETCH_FRONTS; i++) {
        if (f->until[i] > rank && f->until[i] - rank <= 2 * want->range.count + 1)
            return &f->until[i];
    }
    f->turn = (f->turn + 1) % FB_PREFETCH_FRONTS;
    f->until[f->turn] = 0;
    return &f->until[f->turn];
}

static void want_by_name(struct carrying *c, const struct fb_dir *dir, uint32_t rank)
{
    const struct fb_prefetch_range *range = &c->want->range;
    uint32_t *front = front_of(c->wants, c->want, rank);
    uint64_t end = fb_min_u64((uint64_t)rank + range->count + 1, fb_dir_count(dir));

    for (uint64_t i = fb_max_u64(rank + (uint64_t)range->first, *front); i < end; i++) {
        struct fb_dir_entry e = fb_dir_at(dir, fb_dir_ranked(dir, (uint32_t)i));

        want_child(c, &e, (uint32_t)i);
    }
    if (end > *front)
        *front = (uint32_t)end;
}

static void want_by_position(struct carrying *c, const struct fb_dir *dir)
{
    const struct fb_prefetch_range *range = &c->want->range;
    uint64_t at = range->first;

    for (uint32_t i = 0; i < range->count && at < fb_dir_count(dir); i++, at += range->stride) {
        struct fb_dir_entry e = fb_dir_at(dir, (uint32_t)at);

        want_child(c, &e, (uint32_t)at);
    }
}

static void want_blocks(struct carrying *c)
{
    struct fb_bring_order order = {
        .source = c->source, .origin = c->want->origin, .path = c->path, .blocks = c->want->range};

    if (order.blocks.stride > 1 && fb_bring(c->wants->cache->bring, &order) < 0)
        return;
}

static void want_children(struct carrying *c, const struct fb_fact *fact)
{
    struct fb_dir *dir = fb_dirs_get(c->wants->cache->dirs, c->source, c->path, c->len);
    const char *name = fact->path + c->len + (c->len > 0 ? 1 : 0),
               *end = fact->path + fact->path_len;
    const char *slash = name < end ? memchr(name, '/', (size_t)(end - name)) : NULL;
    uint32_t position, rank;

    if (dir && name < end &&
        fb_dir_find(dir, name, (size_t)((slash ? slash : end) - name), &position, &rank)) {
        fb_bring_passed(c->wants->cache->bring, c->want->origin,
                        c->want->by_name ? rank : position);
        if (c->want->by_name)
            want_by_name(c, dir, rank);
        else if (!slash) /* only files have positions */
            want_by_position(c, dir);
    }
    fb_dir_put(dir);
}

void fb_wants_take(struct fb_wants *wants, const struct fb_streams *tree,
                   const struct fb_fact *fact, uint32_t stream, const struct fb_want *want)
{
    struct carrying c = {
        .wants = wants, .tree = tree, .want = want, .stream = stream, .source = fact->source};
    struct fb_stream_info info;

    c.len = fb_streams_path(tree, want->node, c.path, sizeof c.path);
    if (!fb_streams_get(tree, want->node, &info) || c.len >= sizeof c.path ||
        c.len > fact->path_len)
        return;
    if (info.is_file)
        want_blocks(&c);
    else
        want_children(&c, fact);
}

/* ---- life ------------------------------------------------------------------------------------ */

int fb_wants_create(struct fb_cache *cache, const struct fb_prefetch_config *config,
                    struct fb_wants **ret_wants)
{
    struct fb_wants *wants = fb_alloc(sizeof *wants);

    if (!wants)
        return -ENOMEM;
    wants->cache = cache;
    wants->config = *config;
    *ret_wants = wants;
    return 0;
}

void fb_wants_destroy(struct fb_wants *wants)
{
    if (!wants)
        return;
    for (unsigned i = 0; i < LATER_MAX; i++)
        free(wants->later[i].path);
    free(wants);
}
