/*
 * Warming: what of a file is not in any tier is read, as if a program had asked for it, but for the
 * access record: the brain is told of what programs do.
 */
#include <errno.h>
#include <sys/stat.h>

#include "cache/cache_priv.h"
#include "core/clock.h"
#include "core/mem.h"

#define KEEP_WAIT_NS (5 * FB_NS_PER_S)

/* It is kept only after those who waited have it. */
static void wait_until_kept(struct fb_volume *volume, uint32_t file, uint32_t block)
{
    int64_t until_ns = fb_now_ns() + KEEP_WAIT_NS;

    while (fb_fetch_is_under_way(volume, file, block) && fb_now_ns() < until_ns)
        fb_sleep_ns(FB_NS_PER_MS);
}

/* One stretch of missing blocks, at most FB_READ_MAX. */
static int fetch(struct fb_volume *volume, uint32_t file, uint64_t offset, uint32_t length,
                 uint8_t *scratch)
{
    int64_t got = fb_cache_pread_steadily(volume, file, offset, length, scratch);

    return got < 0 ? (int)got : got < length ? -ESTALE : 0;
}

static uint64_t cached_bytes(struct fb_cache *cache, uint32_t file, uint64_t size)
{
    uint64_t block_bytes = cache->config.block_bytes, sum = 0;

    for (uint64_t at = 0; at < size; at += block_bytes)
        if (fb_item_is_there(cache, file, (uint32_t)(at / block_bytes)))
            sum += fb_min_u64(block_bytes, size - at);
    return sum;
}

static int warm_blocks(struct fb_volume *volume, uint32_t file, uint64_t size, uint8_t *scratch,
                       struct fb_warm *warm)
{
    struct fb_cache *cache = volume->cache;
    uint64_t block_bytes = cache->config.block_bytes;

    warm->place -= warm->place % block_bytes;
    while (warm->place < size) {
        uint32_t length = (uint32_t)fb_min_u64(block_bytes, size - warm->place);
        uint32_t block = (uint32_t)(warm->place / block_bytes);
        int rc;

        if (!fb_item_is_there(cache, file, block)) {
            /* Any part of an item brings all of it. */
            rc = fetch(volume, file, warm->place, (uint32_t)fb_min_u64(length, FB_READ_MAX),
                       scratch);
            if (rc < 0)
                return rc;
            warm->fetched_bytes += length;
            wait_until_kept(volume, file, block);
        }
        warm->place += length;
        if (warm->place < size && fb_now_ns() >= warm->until_ns)
            return -EINPROGRESS;
    }
    return 0;
}

int fb_cache_warm(struct fb_volume *volume, const char *path, bool check, struct fb_warm *warm)
{
    uint8_t *scratch;
    struct fb_attr attr;
    uint32_t file;
    int rc = fb_cache_stat(volume, path, &file, &attr);

    warm->bytes = warm->cached_bytes = warm->fetched_bytes = 0;
    if (rc < 0)
        return rc;
    scratch = malloc(FB_READ_MAX);
    if (!scratch)
        rc = -ENOMEM;
    else if (!S_ISREG(attr.mode))
        rc = S_ISDIR(attr.mode) ? -EISDIR : -EINVAL;
    else if (!check)
        rc = warm_blocks(volume, file, attr.version.size, scratch, warm);
    if (rc == 0) {
        /* Only now: a file may be larger than the room there is for it. */
        warm->bytes = attr.version.size;
        warm->cached_bytes = cached_bytes(volume->cache, file, attr.version.size);
    }
    free(scratch);
    fb_files_unref(volume->cache->files, file, 1);
    return rc;
}
