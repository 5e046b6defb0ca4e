/*
 * The DRAM tier: one memfd, mapped once. Clients map it read-only (no writable mapping can be made
 * any more); its size is sealed, so that a mapping never faults. Pages are touched as slots are
 * first used, and kept when a slot is given back.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "store/tier_priv.h"

static uint64_t map_bytes(const struct fb_tier *tier)
{
    return tier->slots * tier->segment_bytes;
}

static int dram_open(struct fb_tier *tier, const struct fb_tier_config *config,
                     struct fb_error *err)
{
    tier->memfd = memfd_create("forebay-dram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (tier->memfd < 0 || ftruncate(tier->memfd, (off_t)map_bytes(tier)) < 0 ||
        fcntl(tier->memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return fb_error_set(err, -errno, "cannot make the memory of the DRAM tier: %s",
                            fb_strerror(errno));
    tier->map = mmap(NULL, map_bytes(tier), PROT_READ | PROT_WRITE, MAP_SHARED, tier->memfd, 0);
    if (tier->map == MAP_FAILED) {
        tier->map = NULL;
        return fb_error_set(err, -errno, "cannot map the memory of the DRAM tier: %s",
                            fb_strerror(errno));
    }
    /* Ours is the only mapping that can ever write. */
    if (fcntl(tier->memfd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
        return fb_error_set(err, -errno, "cannot seal the memory of the DRAM tier: %s",
                            fb_strerror(errno));
    /* A wish: granted where /sys/kernel/mm/transparent_hugepage/shmem_enabled allows it. */
    if (config->huge_pages)
        (void)madvise(tier->map, map_bytes(tier), MADV_HUGEPAGE);
    return 0;
}

static void dram_close(struct fb_tier *tier)
{
    if (tier->map)
        munmap(tier->map, map_bytes(tier));
    if (tier->memfd >= 0)
        close(tier->memfd);
}

static uint8_t *dram_memory(struct fb_tier *tier, uint32_t slot)
{
    return tier->map + slot * tier->segment_bytes;
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

        memcpy(r->data, dram_memory(tier, r->slot) + r->offset, r->length);
        r->result = (int)r->length;
        r->done(r);
    }
}

const struct fb_tier_ops fb_tier_dram = {
    .name = "dram",
    .persistent = false,
    .open = dram_open,
    .close = dram_close,
    .memory = dram_memory,
    .seal = dram_seal,
    .read = dram_read,
};
