/*
 * A table of directories by the hash of their path, each with its last listing, if there is one.
 *
 * Listing is a chain of jobs, each begun when the one before is answered: OPENDIR, READDIR until
 * there is no more, CLOSE. The volume is entered for as long as the chain runs, so that detaching
 * waits for it, and the source ends it early. A slot with a chain stays in the table.
 *
 * Where the source is far, what a listing tells of the first LEARN_MAX names is learned on the way,
 * as if each had been looked up: whoever reads there next is spared a trip for each.
 *
 * A listing in memory is one block: entries by position, positions by rank, names. To find a name
 * is to find its rank, by halves.
 */
#include "cache/dirs.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "cache/cache_priv.h"
#include "core/clock.h"
#include "core/mem.h"
#include "stream/name.h"

#define BUCKETS       256u
#define SLOTS_MAX     1024u
#define BYTES_MAX     (16ULL << 20)
#define FRESH_NS      (60 * FB_NS_PER_S) /* a listing is believed for that long, */
#define FRESH_TIMES   20                 /* or for so many times what it took */
#define RETRY_NS      (10 * FB_NS_PER_S) /* after one that failed */
#define TOO_LARGE_NS  (600 * FB_NS_PER_S)
#define NAMES_FIRST   4096u
#define COUNT_FIRST   64u
#define LEARN_MAX     8192u
#define LISTING_MAX   16u
#define LISTING_MIN   4u
#define LISTING_SHARE (32ULL << 20) /* of memory for each: a bucket's takes half a megabyte */

struct entry {
    uint64_t size;
    uint32_t name; /* where it begins */
    uint32_t order;
    uint8_t name_len;
    uint8_t type;
};

struct fb_dir {
    _Atomic uint32_t refs;
    uint32_t count;
    uint64_t set_hash;   /* of the names, in any order, */
    uint64_t order_hash; /* and in this one */
    uint64_t serial;
    uint64_t bytes;
    bool unstable;
    struct entry *entries; /* by position */
    uint32_t *ranked;      /* positions by rank */
    char *names;
};

struct slot {
    struct fb_list link; /* in its bucket */
    struct fb_list used; /* the least recently used first */
    uint64_t hash;
    uint32_t visits;
    uint16_t source;
    bool listing;
    int64_t again_ns;   /* when it may be listed again */
    struct fb_dir *dir; /* or NULL */
    char *path;
};

struct fb_dirs {
    struct fb_cache *cache;
    uint64_t bytes_max;
    unsigned listing_max;
    struct fb_mutex lock; /* FB_RANK_DIRS: what follows */
    struct fb_list buckets[BUCKETS];
    struct fb_list used;
    unsigned count;
    unsigned listing; /* of them */
    uint64_t bytes;
    uint64_t serial; /* of the last listing */
};

/* A chain of jobs, and the listing as it grows. */
struct listing {
    struct fb_dirs *dirs;
    struct slot *slot;
    struct fb_volume *volume; /* entered */
    struct fb_source_handle *handle;
    struct fb_dir *dir;
    size_t names_used, names_max;
    uint32_t entries_max;
    uint64_t cookie;
    struct fb_heard heard; /* the last batch */
    int64_t begun_ns;
    bool learns;
    int result;
};

/* ---- one listing ----------------------------------------------------------------------------- */

void fb_dir_put(struct fb_dir *dir)
{
    /* Release and acquire: all use of it comes before its end. */
    if (!dir || atomic_fetch_sub_explicit(&dir->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(dir->entries);
    free(dir->ranked);
    free(dir->names);
    free(dir);
}

uint32_t fb_dir_count(const struct fb_dir *dir)
{
    return dir->count;
}

uint64_t fb_dir_serial(const struct fb_dir *dir)
{
    return dir->serial;
}

bool fb_dir_is_unstable(const struct fb_dir *dir)
{
    return dir->unstable;
}

struct fb_dir_entry fb_dir_at(const struct fb_dir *dir, uint32_t position)
{
    const struct entry *e = &dir->entries[position];

    return (struct fb_dir_entry){
        .name = dir->names + e->name, .name_len = e->name_len, .type = e->type, .size = e->size};
}

uint32_t fb_dir_ranked(const struct fb_dir *dir, uint32_t rank)
{
    return dir->ranked[rank];
}

static int compare(const struct fb_dir *dir, uint32_t position, uint32_t order, const char *name,
                   size_t len)
{
    const struct entry *e = &dir->entries[position];
    int rc;

    if (e->order != order)
        return e->order < order ? -1 : 1;
    rc = memcmp(dir->names + e->name, name, fb_min_u64(e->name_len, len));
    return rc != 0 ? rc : (e->name_len > len) - (e->name_len < len);
}

bool fb_dir_find(const struct fb_dir *dir, const char *name, size_t len, uint32_t *ret_position,
                 uint32_t *ret_rank)
{
    uint32_t order = fb_name_order(name, len), low = 0, high = dir->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int rc = compare(dir, dir->ranked[middle], order, name, len);

        if (rc == 0) {
            *ret_position = dir->ranked[middle];
            *ret_rank = middle;
            return true;
        }
        if (rc < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static int by_rank(const void *a, const void *b, void *arg)
{
    const struct fb_dir *dir = arg;
    const struct entry *e = &dir->entries[*(const uint32_t *)b];

    return compare(dir, *(const uint32_t *)a, e->order, dir->names + e->name, e->name_len);
}

/* All entries are there. */
static int finish_dir(struct fb_dir *dir)
{
    dir->ranked = fb_alloc_array(dir->count ? dir->count : 1, sizeof *dir->ranked);
    if (!dir->ranked)
        return -ENOMEM;
    for (uint32_t i = 0; i < dir->count; i++)
        dir->ranked[i] = i;
    qsort_r(dir->ranked, dir->count, sizeof *dir->ranked, by_rank, dir);
    dir->bytes += dir->count * sizeof *dir->ranked;
    return 0;
}

static int grow(void **memory, size_t count, size_t size)
{
    void *larger = reallocarray(*memory, count, size);

    if (!larger)
        return -ENOMEM;
    *memory = larger;
    return 0;
}

static int add_entry(struct listing *l, const struct fb_source_dirent *d)
{
    struct fb_dir *dir = l->dir;
    uint64_t hash = fb_hash64(d->name, d->name_len);
    int rc = 0;

    if (strcmp(d->name, ".") == 0 || strcmp(d->name, "..") == 0)
        return 0;
    if (l->names_used + d->name_len > l->names_max) {
        l->names_max = l->names_max ? 2 * l->names_max : NAMES_FIRST;
        rc = grow((void **)&dir->names, l->names_max, 1);
    }
    if (rc == 0 && dir->count == l->entries_max) {
        l->entries_max = l->entries_max ? 2 * l->entries_max : COUNT_FIRST;
        rc = grow((void **)&dir->entries, l->entries_max, sizeof *dir->entries);
    }
    dir->bytes = sizeof *dir + l->names_max + l->entries_max * sizeof *dir->entries;
    if (rc == 0 && dir->bytes > l->dirs->bytes_max / 2)
        rc = -EFBIG;
    if (rc < 0)
        return rc;
    memcpy(dir->names + l->names_used, d->name, d->name_len);
    dir->entries[dir->count++] = (struct entry){
        .size = d->has_attr ? d->attr.version.size : FB_DIR_SIZE_NONE,
        .name = (uint32_t)l->names_used,
        .name_len = d->name_len,
        .order = fb_name_order(d->name, d->name_len),
        .type = d->type,
    };
    l->names_used += d->name_len;
    dir->set_hash += hash;
    dir->order_hash = fb_mix64(dir->order_hash ^ hash);
    return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void slot_free(struct slot *slot)
{
    fb_list_remove(&slot->link);
    fb_list_remove(&slot->used);
    fb_dir_put(slot->dir);
    free(slot->path);
    free(slot);
}

static void set_dir(struct fb_dirs *dirs, struct slot *slot, struct fb_dir *dir)
    FB_REQUIRES(&dirs->lock)
{
    if (slot->dir)
        dirs->bytes -= slot->dir->bytes;
    fb_dir_put(slot->dir);
    slot->dir = dir;
    if (dir)
        dirs->bytes += dir->bytes;
}

/* The least recently used go, but for those that are being listed. */
static void shrink(struct fb_dirs *dirs) FB_REQUIRES(&dirs->lock)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &dirs->used) {
        struct slot *slot = FB_LIST_ENTRY(it, struct slot, used);

        if (dirs->count < SLOTS_MAX && dirs->bytes <= dirs->bytes_max)
            return;
        if (slot->listing)
            continue;
        set_dir(dirs, slot, NULL);
        slot_free(slot);
        dirs->count--;
    }
}

static struct slot *find(struct fb_dirs *dirs, uint64_t hash, uint16_t source, const char *path,
                         size_t len) FB_REQUIRES(&dirs->lock)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, &dirs->buckets[hash % BUCKETS]) {
        struct slot *slot = FB_LIST_ENTRY(it, struct slot, link);

        if (slot->hash == hash && slot->source == source && strlen(slot->path) == len &&
            memcmp(slot->path, path, len) == 0)
            return slot;
    }
    return NULL;
}

static struct slot *add(struct fb_dirs *dirs, uint64_t hash, uint16_t source, const char *path,
                        size_t len) FB_REQUIRES(&dirs->lock)
{
    struct slot *slot;

    shrink(dirs);
    slot = dirs->count < SLOTS_MAX ? fb_alloc(sizeof *slot) : NULL;
    if (!slot)
        return NULL;
    slot->path = fb_alloc(len + 1);
    if (!slot->path) {
        free(slot);
        return NULL;
    }
    memcpy(slot->path, path, len);
    slot->hash = hash;
    slot->source = source;
    fb_list_push_back(&dirs->buckets[hash % BUCKETS], &slot->link);
    fb_list_push_back(&dirs->used, &slot->used);
    dirs->count++;
    return slot;
}

/* ---- listing --------------------------------------------------------------------------------- */

static void step_done(struct fb_source_job *job);

static void listing_end(struct listing *l)
{
    struct fb_dirs *dirs = l->dirs;
    struct slot *slot = l->slot;
    int64_t now_ns = fb_now_ns(), fresh_ns = (now_ns - l->begun_ns) * FRESH_TIMES;
    struct fb_dir *dir = l->dir;
    int rc = l->result == 0 ? finish_dir(dir) : l->result;

    fb_mutex_lock(&dirs->lock);
    slot->listing = false;
    dirs->listing--;
    if (rc == 0) {
        const struct fb_dir *old = slot->dir;

        dir->unstable = old && (old->unstable || (old->set_hash == dir->set_hash &&
                                                  old->order_hash != dir->order_hash));
        dir->serial = ++dirs->serial;
        set_dir(dirs, slot, fb_steal(dir));
        slot->again_ns = now_ns + (fresh_ns > FRESH_NS ? fresh_ns : FRESH_NS);
        shrink(dirs);
    } else {
        slot->again_ns = now_ns + (rc == -EFBIG ? TOO_LARGE_NS : RETRY_NS);
    }
    fb_mutex_unlock(&dirs->lock);
    fb_dir_put(dir);
    fb_volume_leave(l->volume);
    free(l);
}

static void learn(struct listing *l, const struct fb_source_dirent *d)
{
    char path[FB_PATH_MAX];
    int len =
        snprintf(path, sizeof path, "%s%s%s", l->slot->path, *l->slot->path ? "/" : "", d->name);

    uint32_t file;

    /* What was changed since is not worth a doubt. */
    if (!l->learns || !d->has_attr || l->dir->count > LEARN_MAX || len >= (int)sizeof path ||
        l->heard.asked != fb_cache_moment(l->volume, NULL))
        return;
    if (fb_cache_hear(l->volume, path, &d->attr, &l->heard, &file) == 0)
        fb_files_unref(l->volume->cache->files, file, 1);
}

/* Sends the next job of the chain. Without memory the chain ends. */
static void step(struct listing *l, enum fb_source_op op)
{
    struct fb_source_job *job =
        fb_source_job_new(op, op == FB_SOURCE_OPENDIR ? l->slot->path : NULL);

    if (!job) {
        l->result = -ENOMEM;
        listing_end(l); /* the handle goes with the source */
        return;
    }
    /* A bucket's pages may have been fetched before they are asked for. */
    if (op == FB_SOURCE_OPENDIR || !fb_source_is_direct(l->volume->source))
        l->heard.asked = fb_cache_moment(l->volume, NULL);
    l->heard.seen_ns = fb_now_ns();
    job->handle = l->handle;
    job->cookie = l->cookie;
    job->want_attrs = true;
    job->max_age_ns = l->learns ? 0 : fb_meta_age_allowed(l->volume);
    job->deadline_ns = fb_now_ns() + l->volume->config.timeout_ns;
    job->done = step_done;
    job->arg = l;
    fb_source_submit(l->volume->source, job);
}

static int take_batch(struct listing *l, const struct fb_source_job *job)
{
    int rc = 0;

    for (size_t at = 0; rc == 0 && at < job->data_len;) {
        const struct fb_source_dirent *d = (const void *)(job->data + at);

        rc = add_entry(l, d);
        learn(l, d);
        l->cookie = d->cookie;
        at += d->length;
    }
    return rc;
}

static void step_done(struct fb_source_job *job)
{
    struct listing *l = job->arg;
    enum fb_source_op next = FB_SOURCE_READDIR;

    if (job->op == FB_SOURCE_CLOSE) {
        fb_source_job_put(job);
        listing_end(l);
        return;
    }
    l->result = job->result;
    if (job->op == FB_SOURCE_OPENDIR && job->result == 0) {
        l->handle = job->handle;
    } else if (job->result == 0) {
        if (job->data_len == 0 || job->at_end)
            next = FB_SOURCE_CLOSE;
        fb_heard_answer(&l->heard, job);
        l->result = take_batch(l, job);
    }
    if (l->result < 0)
        next = FB_SOURCE_CLOSE;
    fb_source_job_put(job);
    if (l->handle)
        step(l, next);
    else
        listing_end(l);
}

/* The slot is marked already, so it stays. */
static void list(struct fb_dirs *dirs, struct slot *slot)
{
    struct listing *l = fb_alloc(sizeof *l);
    struct fb_dir *dir = fb_alloc(sizeof *dir);
    struct fb_volume *volume = l && dir ? fb_volume_hold_any(dirs->cache, slot->source) : NULL;

    if (!volume) {
        free(l);
        free(dir);
        fb_mutex_lock(&dirs->lock);
        slot->listing = false;
        dirs->listing--;
        slot->again_ns = fb_now_ns() + RETRY_NS;
        fb_mutex_unlock(&dirs->lock);
        return;
    }
    atomic_init(&dir->refs, 1);
    *l = (struct listing){.dirs = dirs,
                          .slot = slot,
                          .volume = volume,
                          .dir = dir,
                          .begun_ns = fb_now_ns(),
                          .learns = fb_pipe_is_far(dirs->cache, slot->source)};
    fb_volume_enter(volume); /* left in listing_end */
    step(l, FB_SOURCE_OPENDIR);
    fb_volume_let_go(volume);
}

static struct fb_dir *get(struct fb_dirs *dirs, uint16_t source, const char *path, size_t len,
                          uint32_t visits_min)
{
    uint64_t hash = fb_hash64_seed(path, len, source);
    struct fb_dir *dir = NULL;
    struct slot *slot;
    bool lists = false;

    fb_mutex_lock(&dirs->lock);
    slot = find(dirs, hash, source, path, len);
    if (!slot)
        slot = add(dirs, hash, source, path, len);
    if (slot) {
        fb_list_remove(&slot->used);
        fb_list_push_back(&dirs->used, &slot->used);
        slot->visits += slot->visits < visits_min;
        lists = slot->visits >= visits_min && !slot->listing && fb_now_ns() >= slot->again_ns &&
                dirs->listing < dirs->listing_max;
        slot->listing = slot->listing || lists;
        dirs->listing += lists;
        dir = slot->dir;
        /* Relaxed: the table has a reference. */
        if (dir)
            atomic_fetch_add_explicit(&dir->refs, 1, memory_order_relaxed);
    }
    fb_mutex_unlock(&dirs->lock);
    if (lists)
        list(dirs, slot);
    return dir;
}

struct fb_dir *fb_dirs_get(struct fb_dirs *dirs, uint16_t source, const char *path, size_t len)
{
    return get(dirs, source, path, len, 0);
}

struct fb_dir *fb_dirs_visited(struct fb_dirs *dirs, uint16_t source, const char *path, size_t len)
{
    return get(dirs, source, path, len, FB_DIRS_VISITS);
}

void fb_dirs_changed(struct fb_dirs *dirs, uint16_t source, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    int64_t soon_ns = fb_now_ns() + RETRY_NS;
    struct slot *slot;

    fb_mutex_lock(&dirs->lock);
    slot = find(dirs, fb_hash64_seed(path, len, source), source, path, len);
    /* A program that writes many files must not make us list at every turn. */
    if (slot && slot->dir)
        slot->again_ns = slot->again_ns < soon_ns ? slot->again_ns : soon_ns;
    fb_mutex_unlock(&dirs->lock);
}

/* ---- life ------------------------------------------------------------------------------------ */

uint64_t fb_dirs_bytes(uint64_t memory_bytes)
{
    return fb_min_u64(memory_bytes / 64, BYTES_MAX);
}

unsigned fb_dirs_at_once(uint64_t memory_bytes)
{
    uint64_t most = fb_min_u64(memory_bytes / LISTING_SHARE, LISTING_MAX);

    return (unsigned)fb_max_u64(most, LISTING_MIN);
}

int fb_dirs_create(struct fb_cache *cache, struct fb_dirs **ret_dirs)
{
    struct fb_dirs *dirs = fb_alloc(sizeof *dirs);

    if (!dirs)
        return -ENOMEM;
    dirs->cache = cache;
    dirs->bytes_max = fb_dirs_bytes(cache->config.memory_bytes);
    dirs->listing_max = fb_dirs_at_once(cache->config.memory_bytes);
    fb_mutex_init(&dirs->lock, FB_RANK_DIRS);
    fb_list_init(&dirs->used);
    for (unsigned i = 0; i < BUCKETS; i++)
        fb_list_init(&dirs->buckets[i]);
    *ret_dirs = dirs;
    return 0;
}

void fb_dirs_destroy(struct fb_dirs *dirs)
{
    struct fb_list *it, *tmp;

    if (!dirs)
        return;
    FB_LIST_FOREACH (it, tmp, &dirs->used)
        slot_free(FB_LIST_ENTRY(it, struct slot, used));
    fb_mutex_destroy(&dirs->lock);
    free(dirs);
}
