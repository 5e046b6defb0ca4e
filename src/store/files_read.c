/*
 * What a record says, and the walk over all of them. Nothing here changes the table but to take
 * references.
 */
#include <string.h>

#include "core/lock.h"
#include "store/files.h"
#include "store/files_priv.h"

#define ATTR_TRIES_MAX 8

const struct fb_version *fb_files_version(const struct fb_files *files, uint32_t id)
{
    return &fb_files_at(files, id)->version;
}

const char *fb_files_path(const struct fb_files *files, uint32_t id, size_t *ret_len)
{
    const struct fb_layout_file *f = fb_files_at(files, id);

    if (ret_len != NULL)
        *ret_len = f->path_len;
    return f->path;
}

uint16_t fb_files_source(const struct fb_files *files, uint32_t id)
{
    return fb_files_at(files, id)->source;
}

uint64_t fb_files_path_hash(const struct fb_files *files, uint32_t id)
{
    return fb_files_at(files, id)->path_hash;
}

uint64_t fb_files_identity(const struct fb_files *files, uint32_t id)
{
    const struct fb_layout_file *f = fb_files_at(files, id);

    return fb_mix64(f->path_hash ^ fb_version_hash(&f->version));
}

/* TSan builds take the lock. */
static bool attr_try(const struct fb_layout_file *f, struct fb_attr *ret)
{
    return !FB_TSAN && fb_layout_file_attr(f, ret);
}

void fb_files_attr(struct fb_files *files, uint32_t id, struct fb_attr *ret_attr)
{
    const struct fb_layout_file *f = fb_files_at(files, id);

    for (int i = 0; i < ATTR_TRIES_MAX; i++)
        if (attr_try(f, ret_attr))
            return;
    fb_mutex_lock(&files->lock);
    fb_layout_file_attr_copy(f, ret_attr);
    fb_mutex_unlock(&files->lock);
}

int64_t fb_files_valid_until(const struct fb_files *files, uint32_t id)
{
    return atomic_load_explicit(&fb_files_at(files, id)->valid_until_ns, memory_order_relaxed);
}

void fb_files_doubt(struct fb_files *files, uint32_t id)
{
    int64_t until_ns = fb_files_valid_until(files, id);

    /* Who learns it anew meanwhile is believed. */
    if (until_ns > 0)
        (void)atomic_compare_exchange_strong_explicit(&fb_files_at(files, id)->valid_until_ns,
                                                      &until_ns, 0, memory_order_relaxed,
                                                      memory_order_relaxed);
}

void fb_files_set_valid_until(struct fb_files *files, uint32_t id, int64_t until_ns)
{
    atomic_store_explicit(&fb_files_at(files, id)->valid_until_ns, until_ns, memory_order_relaxed);
}

bool fb_files_current(const struct fb_files *files, uint32_t id)
{
    return !fb_files_retired(fb_files_at(files, id));
}

uint32_t fb_files_generation(const struct fb_files *files, uint32_t id)
{
    return atomic_load_explicit(&fb_files_at(files, id)->gen, memory_order_relaxed);
}

bool fb_files_peek(struct fb_files *files, uint32_t id, uint16_t source, char *ret_path,
                   size_t *ret_len, struct fb_version *ret_version)
{
    const struct fb_layout_file *f;
    bool is;

    fb_mutex_lock(&files->lock);
    is = fb_slab_is_record(&files->slab, id);
    f = is ? fb_files_at(files, id) : NULL;
    is = is && f->source == source && f->path_len < FB_PATH_MAX;
    if (is) {
        memcpy(ret_path, f->path, (size_t)f->path_len + 1);
        *ret_len = f->path_len;
        *ret_version = f->version;
    }
    fb_mutex_unlock(&files->lock);
    return is;
}

bool fb_files_peek_identity(struct fb_files *files, uint32_t id, uint16_t source,
                            uint64_t *ret_identity)
{
    bool is;

    fb_mutex_lock(&files->lock);
    is = fb_slab_is_record(&files->slab, id) && fb_files_at(files, id)->source == source;
    if (is)
        *ret_identity = fb_files_identity(files, id);
    fb_mutex_unlock(&files->lock);
    return is;
}

static bool lies_below(const struct fb_layout_file *f, uint16_t source, const char *path,
                       size_t len)
{
    if (f->source != source || fb_files_retired(f) || f->path_len < len)
        return false;
    return memcmp(f->path, path, len) == 0 &&
           (len == 0 || f->path[len] == 0 || f->path[len] == '/');
}

/* A page at a time: the visitor runs without the lock, and what is added behind us is not missed by
 * anybody who asked before it was there. */
uint64_t fb_files_visit(struct fb_files *files, uint16_t source, const char *path,
                        fb_files_visit_fn *visit, void *arg)
{
    uint32_t ids[FB_SLAB_PAGE_SLOTS];
    size_t len = strlen(path);
    uint64_t visited = 0;

    for (uint32_t page = 0; page < files->slab.pages; page++) {
        unsigned found, count = 0;

        fb_mutex_lock(&files->lock);
        found = fb_slab_page_ids(&files->slab, page, ids);
        for (unsigned i = 0; i < found; i++) {
            if (!lies_below(fb_files_at(files, ids[i]), source, path, len))
                continue;
            fb_files_take_ref(files, ids[i]);
            ids[count++] = ids[i];
        }
        fb_mutex_unlock(&files->lock);
        for (unsigned i = 0; i < count; i++)
            visit(arg, ids[i]);
        visited += count;
    }
    return visited;
}

void fb_files_stats(struct fb_files *files, struct fb_files_stats *ret_stats)
{
    fb_mutex_lock(&files->lock);
    fb_files_drain(files);
    *ret_stats = (struct fb_files_stats){
        .records = files->slab.records,
        .bytes_used = files->slab.bytes_used,
        .bytes_total = (uint64_t)files->slab.pages * FB_SLAB_PAGE_BYTES,
        .reclaimed = files->reclaimed,
    };
    fb_mutex_unlock(&files->lock);
}
