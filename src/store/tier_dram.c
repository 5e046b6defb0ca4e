/*
 * The DRAM tier: one memfd, mapped once. Clients map it read-only (no writable mapping can be made
 * any more); its size is sealed, so that a mapping never faults. Pages are touched as slots are
 * first used, and kept when a slot is given back.
 *
 * Slots for many small items are to lie in huge pages (huge.h). Those for blocks of large files,
 * which gain nothing, do without; their pages come a block at a time, which takes two thirds of
 * what a fault for each of them does.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/mem.h"
#include "store/huge.h"
#include "store/tier_priv.h"

#ifndef MADV_POPULATE_WRITE
# define MADV_POPULATE_WRITE 23
#endif

struct dram {
    struct fb_huge *huge; /* NULL: not wanted */
};

static uint64_t map_bytes(const struct fb_tier *tier)
{
    return tier->slots * tier->segment_bytes;
}

/* NULL and errno. */
static uint8_t *map_aligned(uint64_t bytes, int memfd)
{
    void *at = fb_reserve_large(bytes);

    if (at &&
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd, 0) == MAP_FAILED) {
        int code = errno;

        munmap(at, bytes);
        errno = code;
        return NULL;
    }
    return at;
}

static int dram_open(struct fb_tier *tier, const struct fb_tier_config *config,
                     struct fb_error *err)
{
    struct dram *d = tier->state;
    int r;

    tier->memfd = memfd_create("forebay-dram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (tier->memfd < 0 || ftruncate(tier->memfd, (off_t)map_bytes(tier)) < 0 ||
        fcntl(tier->memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return fb_error_set(err, -errno, "cannot make the memory of the DRAM tier: %s",
                            fb_strerror(errno));
    tier->map = map_aligned(map_bytes(tier), tier->memfd);
    if (!tier->map)
        return fb_error_set(err, -errno, "cannot map the memory of the DRAM tier: %s",
                            fb_strerror(errno));
    /* Ours is the only mapping that can ever write. */
    if (fcntl(tier->memfd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
        return fb_error_set(err, -errno, "cannot seal the memory of the DRAM tier: %s",
                            fb_strerror(errno));
    if (!config->huge_pages)
        return 0;
    /* A wish: granted where /sys/kernel/mm/transparent_hugepage/shmem_enabled allows it. */
    (void)madvise(tier->map, map_bytes(tier), MADV_HUGEPAGE);
    r = fb_huge_create(tier->map, map_bytes(tier), FB_HUGE_CHEAP_NS, &d->huge);
    return r < 0 ? fb_error_set(err, r, "cannot start the DRAM tier: %s", fb_strerror(r)) : 0;
}

static void dram_close(struct fb_tier *tier)
{
    struct dram *d = tier->state;

    fb_huge_destroy(d->huge);
    if (tier->map)
        munmap(tier->map, map_bytes(tier));
    if (tier->memfd >= 0)
        close(tier->memfd);
}

static uint8_t *memory_of(struct fb_tier *tier, uint32_t slot)
{
    return tier->map + slot * tier->segment_bytes;
}

static void dram_smooth(struct fb_tier *tier, uint32_t slot, bool may_wait)
{
    struct dram *d = tier->state;

    if (d->huge)
        fb_huge_want(d->huge, slot * tier->segment_bytes, (slot + 1ULL) * tier->segment_bytes,
                     may_wait);
}

static void dram_touch(uint8_t *memory, uint64_t bytes)
{
    uintptr_t from = fb_align_down((uintptr_t)memory, FB_IO_ALIGN);

    /* A wish: what does not come now comes with the first write. Others may write to the first and
     * the last page meanwhile. */
    (void)madvise((void *)from, (uintptr_t)memory + bytes - from, MADV_POPULATE_WRITE);
}

static void dram_seal(struct fb_tier *tier, struct fb_tier_seal *seal)
{
    (void)tier;
    fb_tier_seal_end(seal, 0);
}

static void dram_read(struct fb_tier *tier, struct fb_tier_read *const *reads, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct fb_tier_read *r = reads[i];

        memcpy(r->data, memory_of(tier, r->slot) + r->offset, r->length);
        r->result = (int)r->length;
        r->done(r);
    }
}

const struct fb_tier_ops fb_tier_dram = {
    .name = "dram",
    .persistent = false,
    .state_bytes = sizeof(struct dram),
    .open = dram_open,
    .close = dram_close,
    .memory = memory_of,
    .smooth = dram_smooth,
    .touch = dram_touch,
    .seal = dram_seal,
    .read = dram_read,
};
