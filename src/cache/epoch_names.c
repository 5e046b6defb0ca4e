#include "cache/epoch_names.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cache/dirs.h"
#include "cache/epochs_priv.h"
#include "core/mem.h"

#define ARENA_MIN (1u << 20)

/* Paths of a data set, one behind the other. */
struct listing {
    const _Atomic bool *stop;
    bool attrs;   /* are asked for */
    size_t strip; /* of each path: the directory */
    char *arena;
    size_t used, room, most;
    uint32_t *offsets;
    uint32_t count, offsets_room;
};

static int grow(void **memory, size_t *room, size_t need, size_t most)
{
    size_t want = *room ? *room * 2 : ARENA_MIN;
    void *grown;

    if (need <= *room)
        return 0;
    if (need > most)
        return -E2BIG;
    grown = realloc(*memory, fb_max_u64(need, fb_min_u64(want, most)));
    if (!grown)
        return -ENOMEM;
    *room = fb_max_u64(need, fb_min_u64(want, most));
    *memory = grown;
    return 0;
}

static int add_file(void *arg, const struct fb_walked *walked)
{
    struct listing *l = arg;
    const char *path = walked->path + l->strip;
    size_t len = strlen(path) + 1, room = l->offsets_room * sizeof *l->offsets;
    void *arena = l->arena, *offsets = l->offsets;
    int rc;

    if (atomic_load_explicit(l->stop, memory_order_relaxed))
        return -ESHUTDOWN;
    if (walked->type == DT_DIR)
        return 0;
    if (walked->type == DT_UNKNOWN && !l->attrs)
        return -EAGAIN;
    rc = grow(&arena, &l->room, l->used + len, l->most);
    l->arena = arena;
    if (rc == 0) {
        rc = grow(&offsets, &room, (l->count + 1) * sizeof *l->offsets, l->most);
        l->offsets = offsets;
        l->offsets_room = (uint32_t)(room / sizeof *l->offsets);
    }
    if (rc < 0)
        return rc;
    memcpy(l->arena + l->used, path, len);
    l->offsets[l->count++] = (uint32_t)l->used;
    l->used += len;
    return 0;
}

static int by_path(const void *a, const void *b, void *arg)
{
    const char *arena = arg;

    return strcmp(arena + *(const uint32_t *)a, arena + *(const uint32_t *)b);
}

static size_t part(const char *path, bool last)
{
    const char *slash = last ? strrchr(path, '/') : strchr(path, '/');

    return slash ? (size_t)(slash - path) : 0;
}

static size_t name_at(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash - path) + 1 : 0;
}

static int compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, fb_min_u64(a_len, b_len));

    return order ? order : (a_len > b_len) - (a_len < b_len);
}

/* Classes; in each, directories by their path; in each, names. */
static int by_class(const void *a, const void *b, void *arg)
{
    const char *x = (const char *)arg + *(const uint32_t *)a;
    const char *y = (const char *)arg + *(const uint32_t *)b;
    int order = compare(x, part(x, false), y, part(y, false));

    if (order == 0)
        order = compare(x, part(x, true), y, part(y, true));
    return order ? order : strcmp(x + part(x, true), y + part(y, true));
}

/* What ImageFolder takes. */
static bool is_image(const char *path)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                          ".pgm", ".tif",  ".tiff", ".webp"};
    const char *dot = strrchr(path, '.');

    for (size_t i = 0; dot && i < FB_ARRAY_SIZE(endings); i++) {
        if (strcasecmp(dot, endings[i]) == 0)
            return strchr(path, '/') != NULL;
    }
    return false;
}

/* The samples of all directories are numbered through, as their names say. */
static int by_name(const void *a, const void *b, void *arg)
{
    const char *x = (const char *)arg + *(const uint32_t *)a;
    const char *y = (const char *)arg + *(const uint32_t *)b;
    int order = strcmp(x + name_at(x), y + name_at(y));

    return order ? order : strcmp(x, y);
}

/* Paths stand in the arena as they came: what os.walk() and glob give, unsorted. */
static int as_listed(const void *a, const void *b, void *arg)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    (void)arg;
    return (x > y) - (x < y);
}

/* The orders in which programs number their files, the usual ones first. */
static const struct {
    int (*compare)(const void *a, const void *b, void *arg);
    bool images;
} orders[FB_SEED_ORDERS] = {
    {by_class, true},
    {by_path, false},
    {as_listed, false},
    {by_name, false},
};

static struct fb_names *make_names(const struct listing *l, unsigned order)
{
    struct fb_names *names = fb_names_new();
    int rc = names ? 0 : -ENOMEM;

    qsort_r(l->offsets, l->count, sizeof *l->offsets, orders[order].compare, l->arena);
    for (uint32_t i = 0; rc == 0 && i < l->count; i++) {
        const char *path = l->arena + l->offsets[i];

        if (!orders[order].images || is_image(path))
            rc = fb_names_add_path(names, path, strlen(path), FB_NAMES_NO_SIZE);
    }
    if (rc == 0 && fb_names_count(names) < FB_SEED_FILES)
        rc = -ENODATA;
    if (rc == 0)
        rc = fb_names_index(names);
    if (rc < 0) {
        fb_names_free(names);
        return NULL;
    }
    return names;
}

/* To ask a source for the attributes of every file takes longer than the search. Where its listings
 * do not tell directories from files there is no other way. */
static int list(struct fb_cache *cache, uint16_t source, const char *dir, struct listing *l)
{
    int rc = fb_dirs_walk(cache, source, dir, false, add_file, l);

    if (rc != -EAGAIN)
        return rc;
    l->attrs = true;
    l->count = 0;
    l->used = 0;
    return fb_dirs_walk(cache, source, dir, true, add_file, l);
}

int fb_epoch_names(struct fb_cache *cache, uint16_t source, const char *dir,
                   const _Atomic bool *stop, struct fb_names *names[FB_SEED_ORDERS],
                   unsigned *ret_orders)
{
    struct listing l = {.stop = stop,
                        .strip = *dir ? strlen(dir) + 1 : 0,
                        .most = fb_epochs_bytes(cache->config.memory_bytes) / 2};
    uint64_t taken = 0;
    int rc = list(cache, source, dir, &l);

    *ret_orders = 0;
    for (unsigned o = 0; rc == 0 && o < FB_SEED_ORDERS; o++) {
        struct fb_names *made = o < FB_SEED_USUAL || taken <= l.most ? make_names(&l, o) : NULL;

        if (!made)
            continue;
        taken += fb_names_memory(made);
        names[(*ret_orders)++] = made;
    }
    free(l.arena);
    free(l.offsets);
    return rc == 0 && *ret_orders == 0 ? -ENODATA : rc;
}
