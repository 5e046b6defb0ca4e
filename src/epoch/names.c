#include "epoch/names.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"
#include "core/mem.h"

#define FIRST_ROOM   1024 /* elements of an array when it is first used */
#define INDEX_BATCH  32   /* files whose slots are fetched together */
#define FREE         UINT32_MAX
#define RUN_SPAN_MAX (UINT32_C(1) << 31) /* bytes of names, so that offsets fit */

struct array {
    void *items;
    size_t count;
    size_t room;
};

struct run {
    uint64_t start; /* in the arena */
    uint32_t first; /* file */
    uint32_t dir;   /* in dirs */
};

struct dir {
    uint64_t start; /* in dir_text */
    uint32_t len;
};

/* A hash table of numbers; what they stand for is elsewhere. */
struct slots {
    uint32_t *numbers;
    uint64_t count;
};

struct fb_names {
    struct array arena;    /* char */
    struct array offsets;  /* uint32_t */
    struct array runs;     /* struct run */
    struct array sizes;    /* uint32_t */
    struct array sizes64;  /* uint64_t, instead of those */
    struct array dirs;     /* struct dir */
    struct array dir_text; /* char */
    struct slots dir_slots;
    struct slots slots;
};

/* ---- arrays ---- */

/* Room for `more` elements behind the last. Large arrays grow by a half, of which the kernel gives
 * only what is touched. */
static int reserve(struct array *a, size_t size, size_t more)
{
    size_t room = a->room ? a->room : FIRST_ROOM;
    void *grown;

    if (a->count + more <= a->room)
        return 0;
    while (room < a->count + more)
        room += room / 2;
    grown = reallocarray(a->items, room, size);
    if (!grown)
        return -ENOMEM;
    a->items = grown;
    a->room = room;
    return 0;
}

static int append(struct array *a, size_t size, const void *items, size_t count)
{
    int rc = reserve(a, size, count);

    if (rc)
        return rc;
    memcpy((char *)a->items + a->count * size, items, count * size);
    a->count += count;
    return 0;
}

static const struct run *runs(const struct fb_names *n)
{
    return n->runs.items;
}

static const struct dir *dirs(const struct fb_names *n)
{
    return n->dirs.items;
}

static const uint32_t *offsets(const struct fb_names *n)
{
    return n->offsets.items;
}

/* ---- slots ---- */

static int slots_make(struct slots *s, uint64_t count)
{
    free(s->numbers);
    s->count = count;
    s->numbers = fb_alloc_large(count, sizeof *s->numbers);
    if (!s->numbers)
        return -ENOMEM;
    memset(s->numbers, 0xff, count * sizeof *s->numbers);
    return 0;
}

static uint64_t slots_home(const struct slots *s, uint64_t hash)
{
    return (uint64_t)(((unsigned __int128)hash * s->count) >> 64);
}

static uint64_t slots_after(const struct slots *s, uint64_t at)
{
    return at + 1 == s->count ? 0 : at + 1;
}

/* There is always a free one. */
static void slots_put(struct slots *s, uint64_t hash, uint32_t number)
{
    uint64_t at = slots_home(s, hash);

    while (s->numbers[at] != FREE)
        at = slots_after(s, at);
    s->numbers[at] = number;
}

/* ---- directories ---- */

static const char *dir_text(const struct fb_names *n, uint32_t dir)
{
    return (const char *)n->dir_text.items + dirs(n)[dir].start;
}

static bool dir_find(const struct fb_names *n, const char *text, size_t len, uint32_t *ret_dir)
{
    const struct slots *s = &n->dir_slots;
    uint64_t at = s->count ? slots_home(s, fb_hash64(text, len)) : 0;

    for (; s->count && s->numbers[at] != FREE; at = slots_after(s, at)) {
        *ret_dir = s->numbers[at];
        if (dirs(n)[*ret_dir].len == len && memcmp(dir_text(n, *ret_dir), text, len) == 0)
            return true;
    }
    return false;
}

static int dir_slots_grow(struct fb_names *n)
{
    int rc = slots_make(&n->dir_slots, 4 * n->dirs.count + FIRST_ROOM);

    for (uint32_t i = 0; rc == 0 && i < n->dirs.count; i++)
        slots_put(&n->dir_slots, fb_hash64(dir_text(n, i), dirs(n)[i].len), i);
    return rc;
}

static int dir_add(struct fb_names *n, const char *text, size_t len, uint32_t *ret_dir)
{
    struct dir dir = {.start = n->dir_text.count, .len = (uint32_t)len};
    int rc = append(&n->dir_text, 1, text, len);

    if (rc == 0)
        rc = append(&n->dirs, sizeof dir, &dir, 1);
    if (rc)
        return rc;
    *ret_dir = (uint32_t)n->dirs.count - 1;
    if (n->dirs.count > n->dir_slots.count / 2)
        return dir_slots_grow(n);
    slots_put(&n->dir_slots, fb_hash64(text, len), *ret_dir);
    return 0;
}

static int begin_run(struct fb_names *n, uint32_t dir)
{
    struct run run = {.start = n->arena.count, .first = (uint32_t)n->offsets.count, .dir = dir};
    struct run *last = n->runs.count ? (struct run *)n->runs.items + n->runs.count - 1 : NULL;

    if (last && last->first == run.first) {
        last->dir = dir; /* it had no file */
        return 0;
    }
    return append(&n->runs, sizeof run, &run, 1);
}

int fb_names_enter(struct fb_names *n, const char *dir, size_t len)
{
    uint32_t number = 0;
    int rc;

    if (len >= FB_NAMES_PATH_SIZE / 2)
        return -ENAMETOOLONG;
    rc = dir_find(n, dir, len, &number) ? 0 : dir_add(n, dir, len, &number);
    return rc ? rc : begin_run(n, number);
}

/* ---- files ---- */

struct fb_names *fb_names_new(void)
{
    struct fb_names *n = fb_alloc(sizeof *n);

    /* The text of "", the top, has an address. */
    if (n && reserve(&n->dir_text, 1, 1) != 0) {
        free(n);
        return NULL;
    }
    return n;
}

void fb_names_free(struct fb_names *n)
{
    if (!n)
        return;
    free(n->arena.items);
    free(n->offsets.items);
    free(n->runs.items);
    free(n->sizes.items);
    free(n->sizes64.items);
    free(n->dirs.items);
    free(n->dir_text.items);
    free(n->dir_slots.numbers);
    free(n->slots.numbers);
    free(n);
}

static int widen_sizes(struct fb_names *n)
{
    const uint32_t *narrow = n->sizes.items;
    int rc = reserve(&n->sizes64, sizeof(uint64_t), n->sizes.count + 1);

    for (size_t i = 0; rc == 0 && i < n->sizes.count; i++)
        rc = append(&n->sizes64, sizeof(uint64_t), &(uint64_t){narrow[i]}, 1);
    if (rc)
        return rc;
    free(n->sizes.items);
    n->sizes = (struct array){0};
    return 0;
}

static int add_size(struct fb_names *n, uint64_t size_bytes)
{
    int rc = 0;

    if (size_bytes > UINT32_MAX && n->sizes64.count == 0)
        rc = widen_sizes(n);
    if (rc)
        return rc;
    if (n->sizes64.room)
        return append(&n->sizes64, sizeof size_bytes, &size_bytes, 1);
    return append(&n->sizes, sizeof(uint32_t), &(uint32_t){(uint32_t)size_bytes}, 1);
}

int fb_names_add(struct fb_names *n, const char *name, size_t len, uint64_t size_bytes)
{
    const struct run *run = n->runs.count ? &runs(n)[n->runs.count - 1] : NULL;
    uint32_t offset;
    int rc = 0;

    if (len >= FB_NAMES_PATH_SIZE / 2)
        return -ENAMETOOLONG;
    if (n->offsets.count == FB_NAMES_MAX)
        return -E2BIG;
    if (!run)
        rc = fb_names_enter(n, "", 0);
    else if (n->arena.count - run->start > RUN_SPAN_MAX)
        rc = begin_run(n, run->dir);
    if (rc == 0 && size_bytes != FB_NAMES_NO_SIZE)
        rc = add_size(n, size_bytes);
    if (rc == 0)
        rc = reserve(&n->arena, 1, len + 1);
    if (rc)
        return rc;
    offset = (uint32_t)(n->arena.count - runs(n)[n->runs.count - 1].start);
    rc = append(&n->offsets, sizeof offset, &offset, 1);
    if (rc)
        return rc;
    memcpy((char *)n->arena.items + n->arena.count, name, len);
    ((char *)n->arena.items)[n->arena.count + len] = 0;
    n->arena.count += len + 1;
    return 0;
}

int fb_names_add_path(struct fb_names *n, const char *path, size_t len, uint64_t size_bytes)
{
    const char *slash = memrchr(path, '/', len);
    size_t dir_len = slash ? (size_t)(slash - path) : 0;
    size_t skip = slash ? dir_len + 1 : 0;
    const struct run *run = n->runs.count ? &runs(n)[n->runs.count - 1] : NULL;
    int rc = 0;

    if (!run || dirs(n)[run->dir].len != dir_len ||
        memcmp(dir_text(n, run->dir), path, dir_len) != 0)
        rc = fb_names_enter(n, path, dir_len);
    return rc ? rc : fb_names_add(n, path + skip, len - skip, size_bytes);
}

uint32_t fb_names_count(const struct fb_names *n)
{
    return (uint32_t)n->offsets.count;
}

bool fb_names_have_sizes(const struct fb_names *n)
{
    return n->sizes.count + n->sizes64.count > 0;
}

uint64_t fb_names_size(const struct fb_names *n, uint32_t file)
{
    if (n->sizes64.count)
        return ((const uint64_t *)n->sizes64.items)[file];
    return n->sizes.count ? ((const uint32_t *)n->sizes.items)[file] : 0;
}

uint64_t fb_names_memory(const struct fb_names *n)
{
    return sizeof *n + n->arena.count + n->offsets.count * sizeof(uint32_t) +
           n->runs.count * sizeof(struct run) + n->sizes.count * sizeof(uint32_t) +
           n->sizes64.count * sizeof(uint64_t) + n->dirs.count * sizeof(struct dir) +
           n->dir_text.count + (n->dir_slots.count + n->slots.count) * sizeof(uint32_t);
}

/* ---- by number ---- */

/* The last run that begins at or before the file. Runs are much alike in length, as a rule: it is
 * looked for from where it would be then, in steps that grow. */
static const struct run *run_of(const struct fb_names *n, uint32_t file)
{
    size_t low = (uint64_t)file * n->runs.count / n->offsets.count;
    size_t high = low + 1;

    for (size_t step = 1; low > 0 && runs(n)[low].first > file; step *= 2) {
        high = low;
        low -= fb_min_u64(low, step);
    }
    for (size_t step = 1; high < n->runs.count && runs(n)[high].first <= file; step *= 2) {
        low = high;
        high = fb_min_u64(n->runs.count, high + step);
    }
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (runs(n)[middle].first <= file)
            low = middle;
        else
            high = middle;
    }
    return &runs(n)[low];
}

static size_t path_in_run(const struct fb_names *n, const struct run *run, uint32_t file,
                          char buf[FB_NAMES_PATH_SIZE])
{
    const char *name = (const char *)n->arena.items + run->start + offsets(n)[file];
    size_t len = dirs(n)[run->dir].len;
    size_t name_len = strlen(name);

    memcpy(buf, dir_text(n, run->dir), len);
    if (len)
        buf[len++] = '/';
    memcpy(buf + len, name, name_len + 1);
    return len + name_len;
}

size_t fb_names_path(const struct fb_names *n, uint32_t file, char buf[FB_NAMES_PATH_SIZE])
{
    return path_in_run(n, run_of(n, file), file, buf);
}

/* ---- by path ---- */

int fb_names_index(struct fb_names *n)
{
    uint32_t count = fb_names_count(n);
    const struct run *run = runs(n);
    char path[FB_NAMES_PATH_SIZE];
    uint64_t hashes[INDEX_BATCH];
    int rc = slots_make(&n->slots, (uint64_t)count + count / 2 + 1);

    if (rc)
        return rc;
    for (uint32_t first = 0; first < count; first += INDEX_BATCH) {
        uint32_t batch = (uint32_t)fb_min_u64(INDEX_BATCH, count - first);

        for (uint32_t i = 0; i < batch; i++) {
            while (run + 1 < runs(n) + n->runs.count && run[1].first <= first + i)
                run++;
            hashes[i] = fb_hash64(path, path_in_run(n, run, first + i, path));
            __builtin_prefetch(&n->slots.numbers[slots_home(&n->slots, hashes[i])], 1);
        }
        for (uint32_t i = 0; i < batch; i++)
            slots_put(&n->slots, hashes[i], first + i);
    }
    return 0;
}

bool fb_names_find(const struct fb_names *n, const char *path, size_t len, uint32_t *ret_file)
{
    const struct slots *s = &n->slots;
    char other[FB_NAMES_PATH_SIZE];
    uint64_t at = slots_home(s, fb_hash64(path, len));

    for (; s->numbers[at] != FREE; at = slots_after(s, at)) {
        *ret_file = s->numbers[at];
        if (fb_names_path(n, *ret_file, other) == len && memcmp(other, path, len) == 0)
            return true;
    }
    return false;
}
