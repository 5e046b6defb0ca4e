/*
 * Who holds a record is one atomic word: references in its low half, items in its high half, so
 * that "nothing holds it" is one reading. It becomes zero, and leaves zero, only under the lock;
 * that makes the LRU list exact: a record is on it if and only if it is current and its word is
 * zero.
 *
 *   - find, put, remove, visit take references under the lock;
 *   - who holds one may add more, and items, without it;
 *   - unref() lets go without the lock while something remains, with it otherwise;
 *   - the last item leaves under the index's lock, where ours may not be taken: it is turned into a
 *     reference in the same atomic step, and the record goes on the stack `orphans`, which the next
 *     writer empties.
 *
 * Order of stores. New record: fields, generation (release), link into the chain (release).
 * Replaced: the new one is linked before the old one is unlinked, so the path is never unknown.
 * Freed: unlinked, generation odd, then its memory may become anything.
 */
#include "store/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/lock.h"
#include "core/mem.h"
#include "store/files_priv.h"

#define ITEM_ONE     (1ULL << 32)
#define REFS(holds)  ((uint32_t)(holds))
#define ITEMS(holds) ((uint32_t)((holds) >> 32))

/* ---- chains and life ---- */

static uint32_t locate(struct fb_files *files, uint64_t hash, uint16_t source, const char *path,
                       size_t len) FB_REQUIRES(&files->lock)
{
    uint32_t id =
        atomic_load_explicit(&fb_layout_head(files->layout, hash)->id, memory_order_relaxed);

    while (id != 0) {
        const struct fb_layout_file *f = fb_files_at(files, id);

        if (f->path_hash == hash && f->source == source && f->path_len == len &&
            memcmp(f->path, path, len) == 0)
            break;
        id = atomic_load_explicit(&f->next, memory_order_relaxed);
    }
    return id;
}

/* The record keeps its own `next`: a reader that stands on it finds its way on. */
static void unlink_record(struct fb_files *files, uint32_t id) FB_REQUIRES(&files->lock)
{
    const struct fb_layout_file *f = fb_files_at(files, id);
    _Atomic uint32_t *link = &fb_layout_head(files->layout, f->path_hash)->id;
    uint32_t at;

    while ((at = atomic_load_explicit(link, memory_order_relaxed)) != id) {
        FB_ASSERT(at != 0);
        link = &fb_files_at(files, at)->next;
    }
    atomic_store_explicit(link, atomic_load_explicit(&f->next, memory_order_relaxed),
                          memory_order_release);
}

static void retire(struct fb_files *files, uint32_t id) FB_REQUIRES(&files->lock)
{
    unlink_record(files, id);
    atomic_store_explicit(&fb_files_at(files, id)->flags, FB_FILE_RETIRED, memory_order_relaxed);
}

static void release(struct fb_files *files, uint32_t id) FB_REQUIRES(&files->lock)
{
    struct fb_layout_file *f = fb_files_at(files, id);
    uint32_t gen = atomic_load_explicit(&f->gen, memory_order_relaxed);

    FB_ASSERT((gen & 1) == 0);
    if (!fb_files_retired(f))
        unlink_record(files, id);
    atomic_store_explicit(&f->gen, gen | 1, memory_order_relaxed);
#if !FB_TSAN
    /* Pairs with the acquire fence of fb_layout_find_file: who reads what comes here next sees the
     * odd generation. (Under TSan nobody reads without the lock.) */
    atomic_thread_fence(memory_order_release);
#endif
    fb_slab_free(&files->slab, id);
}

void fb_files_take_ref(struct fb_files *files, uint32_t id) FB_REQUIRES(&files->lock)
{
    uint64_t holds =
        atomic_fetch_add_explicit(&fb_files_at(files, id)->holds, 1, memory_order_acq_rel);

    if (holds == 0)
        fb_slab_lru_remove(&files->slab, id);
}

static void drop_refs(struct fb_files *files, uint32_t id, uint32_t count) FB_REQUIRES(&files->lock)
{
    struct fb_layout_file *f = fb_files_at(files, id);
    uint64_t holds = atomic_fetch_sub_explicit(&f->holds, count, memory_order_acq_rel);

    FB_ASSERT(REFS(holds) >= count);
    if (holds != count)
        return;
    if (fb_files_retired(f))
        release(files, id);
    else
        fb_slab_lru_add(&files->slab, id);
}

void fb_files_drain(struct fb_files *files) FB_REQUIRES(&files->lock)
{
    uint32_t id = 0;

    if (atomic_load_explicit(&files->orphans, memory_order_relaxed) != 0)
        id = atomic_exchange_explicit(&files->orphans, 0, memory_order_acquire);
    while (id != 0) {
        uint32_t next = fb_files_at(files, id)->lru_next;

        drop_refs(files, id, 1);
        id = next;
    }
}

/* ---- room ---- */

static void reclaim(struct fb_files *files, uint32_t id) FB_REQUIRES(&files->lock)
{
    fb_slab_lru_remove(&files->slab, id);
    release(files, id);
    files->reclaimed++;
}

static uint32_t alloc_in_class(struct fb_files *files, unsigned class_no) FB_REQUIRES(&files->lock)
{
    uint32_t id = fb_slab_alloc(&files->slab, class_no);
    uint32_t oldest;

    if (id != 0)
        return id;
    oldest = fb_slab_lru_oldest(&files->slab, class_no);
    if (oldest == 0)
        return 0;
    reclaim(files, oldest);
    return fb_slab_alloc(&files->slab, class_no);
}

/* A slot of the right class, else a page that another class can spare, else a larger slot. */
static uint32_t alloc_record(struct fb_files *files, size_t path_len) FB_REQUIRES(&files->lock)
{
    unsigned class_no = fb_slab_class_for(&files->slab, path_len);
    uint32_t ids[FB_SLAB_PAGE_SLOTS];
    uint32_t id = alloc_in_class(files, class_no);
    uint32_t page;

    if (id != 0)
        return id;
    if (fb_slab_idle_page(&files->slab, &page)) {
        unsigned count = fb_slab_page_ids(&files->slab, page, ids);

        for (unsigned i = 0; i < count; i++)
            reclaim(files, ids[i]);
        return fb_slab_alloc(&files->slab, class_no);
    }
    for (class_no++; id == 0 && class_no < FB_SLAB_CLASSES; class_no++)
        id = alloc_in_class(files, class_no);
    return id;
}

/* ---- content ---- */

static void refresh(struct fb_layout_file *f, const struct fb_attr *attr)
{
    uint16_t gen = atomic_load_explicit(&f->attr_gen, memory_order_relaxed);

    atomic_store_explicit(&f->attr_gen, (uint16_t)(gen + 1), memory_order_relaxed);
#if !FB_TSAN
    atomic_thread_fence(memory_order_release); /* pairs with the acquire fence in attr_try() */
#endif
    /* A regular file is here only with its own version, which others read without a lock. */
    if (!fb_version_equal(&f->version, &attr->version))
        f->version = attr->version;
    f->ino = attr->ino;
    f->dev = attr->dev;
    f->rdev = attr->rdev;
    f->blocks = attr->blocks;
    f->atime_ns = attr->atime_ns;
    f->mode = attr->mode;
    f->nlink = attr->nlink;
    f->uid = attr->uid;
    f->gid = attr->gid;
    atomic_store_explicit(&f->attr_gen, (uint16_t)(gen + 2), memory_order_release);
}

/* Makes a current record with one reference. */
static uint32_t make(struct fb_files *files, uint64_t hash, uint16_t source, const char *path,
                     size_t len, const struct fb_attr *attr, int64_t valid_until_ns)
    FB_REQUIRES(&files->lock)
{
    _Atomic uint32_t *head = &fb_layout_head(files->layout, hash)->id;
    uint32_t id = alloc_record(files, len);
    struct fb_layout_file *f;

    if (id == 0)
        return 0;
    f = fb_files_at(files, id);
    f->path_hash = hash;
    f->version = attr->version;
    f->source = source;
    f->path_len = (uint16_t)len;
    memcpy(f->path, path, len);
    f->path[len] = 0;
    atomic_store_explicit(&f->valid_until_ns, valid_until_ns, memory_order_relaxed);
    atomic_store_explicit(&f->attr_gen, 0, memory_order_relaxed);
    atomic_store_explicit(&f->flags, 0, memory_order_relaxed);
    atomic_store_explicit(&f->holds, 1, memory_order_relaxed);
    refresh(f, attr);
    atomic_store_explicit(&f->next, atomic_load_explicit(head, memory_order_relaxed),
                          memory_order_relaxed);
    files->next_gen += 2;
    /* Pairs with the acquire loads of gen and of the head in fb_layout_find_file. */
    atomic_store_explicit(&f->gen, files->next_gen, memory_order_release);
    atomic_store_explicit(head, id, memory_order_release);
    return id;
}

/* Whether what the source says fits into the record as it is. */
static bool same_record(const struct fb_layout_file *f, const struct fb_attr *attr)
{
    if ((f->mode & S_IFMT) != (attr->mode & S_IFMT))
        return false;
    return !S_ISREG(attr->mode) || fb_version_equal(&f->version, &attr->version);
}

/* When and for how long something was so. */
struct seen {
    int64_t at_ns;
    int64_t ttl_ns;
};

/* A record's validity says when it was learned: a TTL before its end. One that is not valid may
 * have been learned, and believed once only, at the very end. */
static bool learned_since(const struct fb_layout_file *f, const struct seen *seen)
{
    int64_t until_ns = atomic_load_explicit(&f->valid_until_ns, memory_order_relaxed);

    if (until_ns > fb_now_ns())
        return until_ns > seen->at_ns + seen->ttl_ns;
    return until_ns >= seen->at_ns;
}

/* `seen`: NULL for just now. */
static int put(struct fb_files *files, uint16_t source, const char *path,
               const struct fb_attr *attr, int64_t valid_until_ns, const struct seen *seen,
               uint32_t *ret_id, uint32_t *ret_old)
{
    size_t len = strlen(path);
    uint64_t hash = fb_path_hash(source, path, len);
    int outcome = FB_FILES_NEW;
    uint32_t id;

    *ret_id = 0;
    *ret_old = 0;
    if (len >= FB_PATH_MAX)
        return -ENAMETOOLONG;
    fb_mutex_lock(&files->lock);
    fb_files_drain(files);
    id = locate(files, hash, source, path, len);
    if (id != 0) {
        struct fb_layout_file *f = fb_files_at(files, id);
        bool older = seen && learned_since(f, seen);

        if (same_record(f, attr)) {
            fb_files_take_ref(files, id);
            if (!older) {
                refresh(f, attr);
                atomic_store_explicit(&f->valid_until_ns, valid_until_ns, memory_order_relaxed);
            }
            *ret_id = id;
            outcome = FB_FILES_SAME;
            goto out;
        }
        if (older) {
            atomic_store_explicit(&f->valid_until_ns, 0, memory_order_relaxed);
            outcome = -ESTALE;
            goto out;
        }
        fb_files_take_ref(files, id);
        *ret_old = id;
        outcome = FB_FILES_CHANGED;
    }
    *ret_id = make(files, hash, source, path, len, attr, valid_until_ns);
    if (*ret_id == 0) {
        outcome = -ENOMEM;
        if (id != 0) {
            atomic_store_explicit(&fb_files_at(files, id)->valid_until_ns, 0, memory_order_relaxed);
            drop_refs(files, id, 1);
        }
        *ret_old = 0;
    } else if (*ret_old != 0) {
        retire(files, *ret_old);
    }
out:
    fb_mutex_unlock(&files->lock);
    return outcome;
}

int fb_files_put(struct fb_files *files, uint16_t source, const char *path,
                 const struct fb_attr *attr, int64_t valid_until_ns, uint32_t *ret_id,
                 uint32_t *ret_old)
{
    return put(files, source, path, attr, valid_until_ns, NULL, ret_id, ret_old);
}

int fb_files_hear(struct fb_files *files, uint16_t source, const char *path,
                  const struct fb_attr *attr, int64_t seen_ns, int64_t ttl_ns, uint32_t *ret_id,
                  uint32_t *ret_old)
{
    struct seen seen = {.at_ns = seen_ns, .ttl_ns = ttl_ns};

    return put(files, source, path, attr, seen_ns + ttl_ns, &seen, ret_id, ret_old);
}

int fb_files_put_aside(struct fb_files *files, uint16_t source, const char *path,
                       const struct fb_attr *attr, uint32_t *ret_id)
{
    size_t len = strlen(path);

    *ret_id = 0;
    if (len >= FB_PATH_MAX)
        return -ENAMETOOLONG;
    fb_mutex_lock(&files->lock);
    fb_files_drain(files);
    *ret_id = make(files, fb_path_hash(source, path, len), source, path, len, attr, 0);
    if (*ret_id != 0)
        retire(files, *ret_id);
    fb_mutex_unlock(&files->lock);
    return *ret_id != 0 ? 0 : -ENOMEM;
}

int fb_files_adopt(struct fb_files *files, uint16_t source, const char *path,
                   const struct fb_attr *attr, uint32_t *ret_id)
{
    size_t len = strlen(path);
    uint64_t hash = fb_path_hash(source, path, len);
    int outcome = FB_FILES_SAME;
    uint32_t id;

    *ret_id = 0;
    if (len >= FB_PATH_MAX)
        return -ENAMETOOLONG;
    fb_mutex_lock(&files->lock);
    fb_files_drain(files);
    id = locate(files, hash, source, path, len);
    if (id == 0) {
        *ret_id = make(files, hash, source, path, len, attr, 0);
        outcome = *ret_id != 0 ? FB_FILES_NEW : -ENOMEM;
    } else if (same_record(fb_files_at(files, id), attr)) {
        fb_files_take_ref(files, id);
        *ret_id = id;
    } else {
        outcome = FB_FILES_CHANGED;
    }
    fb_mutex_unlock(&files->lock);
    return outcome;
}

uint32_t fb_files_remove(struct fb_files *files, uint16_t source, const char *path)
{
    size_t len = strlen(path);
    uint32_t id;

    fb_mutex_lock(&files->lock);
    fb_files_drain(files);
    id = locate(files, fb_path_hash(source, path, len), source, path, len);
    if (id != 0) {
        fb_files_take_ref(files, id);
        retire(files, id);
    }
    fb_mutex_unlock(&files->lock);
    return id;
}

uint32_t fb_files_find(struct fb_files *files, uint16_t source, const char *path)
{
    size_t len = strlen(path);
    uint64_t hash = fb_path_hash(source, path, len);
    uint32_t id;

    fb_mutex_lock(&files->lock);
    id = locate(files, hash, source, path, len);
    if (id != 0)
        fb_files_take_ref(files, id);
    fb_mutex_unlock(&files->lock);
    return id;
}

/* ---- holding ---- */

bool fb_files_hold(struct fb_files *files, uint32_t id, uint16_t source, const char *path)
{
    uint32_t current = fb_files_find(files, source, path);

    if (current != 0 && current != id)
        fb_files_unref(files, current, 1);
    return current != 0 && current == id;
}

void fb_files_near(struct fb_files *files, uint32_t id, uint64_t dram_offset)
{
    struct fb_layout_head *head = fb_layout_head(files->layout, fb_files_at(files, id)->path_hash);
    uint64_t near = dram_offset / FB_UNIT;

    /* Relaxed: nothing follows from it. */
    atomic_store_explicit(&head->near, near <= UINT32_MAX ? (uint32_t)near : 0,
                          memory_order_relaxed);
}

void fb_files_ref(struct fb_files *files, uint32_t id, uint32_t count)
{
    uint64_t holds =
        atomic_fetch_add_explicit(&fb_files_at(files, id)->holds, count, memory_order_acq_rel);

    FB_ASSERT(holds != 0 && REFS(holds) + count > REFS(holds));
}

void fb_files_unref(struct fb_files *files, uint32_t id, uint32_t count)
{
    struct fb_layout_file *f = fb_files_at(files, id);
    uint64_t holds = atomic_load_explicit(&f->holds, memory_order_relaxed);

    while (holds != count) {
        FB_ASSERT(REFS(holds) >= count);
        if (atomic_compare_exchange_weak_explicit(&f->holds, &holds, holds - count,
                                                  memory_order_acq_rel, memory_order_relaxed))
            return;
    }
    fb_mutex_lock(&files->lock);
    drop_refs(files, id, count);
    fb_files_drain(files);
    fb_mutex_unlock(&files->lock);
}

static void push_orphan(struct fb_files *files, uint32_t id)
{
    struct fb_layout_file *f = fb_files_at(files, id);
    uint32_t head = atomic_load_explicit(&files->orphans, memory_order_relaxed);

    do {
        f->lru_next = head;
    } while (!atomic_compare_exchange_weak_explicit(&files->orphans, &head, id,
                                                    memory_order_release, memory_order_relaxed));
}

void fb_files_items_add(struct fb_files *files, uint32_t id, int delta)
{
    struct fb_layout_file *f = fb_files_at(files, id);
    uint64_t holds = atomic_load_explicit(&f->holds, memory_order_relaxed);
    uint64_t next;

    do {
        FB_ASSERT(delta > 0 ? holds != 0 : ITEMS(holds) > 0);
        if (delta > 0)
            next = holds + ITEM_ONE;
        else
            next = holds == ITEM_ONE ? 1 : holds - ITEM_ONE;
    } while (!atomic_compare_exchange_weak_explicit(&f->holds, &holds, next, memory_order_acq_rel,
                                                    memory_order_relaxed));
    if (delta < 0 && holds == ITEM_ONE)
        push_orphan(files, id);
}

uint32_t fb_files_items(const struct fb_files *files, uint32_t id)
{
    return ITEMS(atomic_load_explicit(&fb_files_at(files, id)->holds, memory_order_relaxed));
}

int fb_files_create(struct fb_layout *layout, struct fb_files **ret_files)
{
    struct fb_files *files = fb_alloc(sizeof *files);

    if (files == NULL)
        return -ENOMEM;
    if (layout->h.heads == 0 || !fb_slab_init(&files->slab, layout)) {
        free(files);
        return -EINVAL;
    }
    fb_mutex_init(&files->lock, FB_RANK_FILES);
    files->layout = layout;
    *ret_files = files;
    return 0;
}

void fb_files_destroy(struct fb_files *files)
{
    if (files == NULL)
        return;
    fb_mutex_destroy(&files->lock);
    free(files);
}
