/*
 * The DRAM tier: one memfd, mapped once. Clients map it read-only (no writable mapping can be made
 * any more); its size is sealed, so that a mapping never faults. Pages are touched as slots are
 * first used, and kept when a slot is given back.
 *
 * Huge pages. A random hit costs more for the page tables than for the bytes, and every client
 * process pays for entries of its own: 100 KiB take 6 us instead of 13 at the first touch, 5.4
 * instead of 6.9 later. Kernels mostly give no huge pages to shared memory by themselves
 * (shmem_enabled is "never"), but since 6.1 they make one of a stretch when asked to, a quarter of
 * a millisecond each: done as slots are first used. Where that fails or takes long (memory is in
 * pieces) it is given up. On a virtual machine whose host takes free memory back, a huge page is
 * always one that the host has to find again: 4 ms each, 2 s of processor time a gigabyte, against
 * 0.6 s for small pages. So slots for blocks of large files, which gain nothing, do without; their
 * pages come a block at a time, which takes two thirds of what a fault for each of them does.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/clock.h"
#include "store/tier_priv.h"

#ifndef MADV_COLLAPSE
# define MADV_COLLAPSE 25
#endif

#ifndef MADV_POPULATE_WRITE
# define MADV_POPULATE_WRITE 23
#endif

#define HUGE_BYTES   (2ULL << 20)
#define SLOW_NS      (20 * FB_NS_PER_MS) /* for one page */
#define FAILURES_MAX 4

/* One thread at a time makes slots smooth: no lock. */
struct dram {
    uint8_t *asked; /* one a stretch of HUGE_BYTES; NULL: not wanted */
    unsigned failures;
};

static uint64_t map_bytes(const struct fb_tier *tier)
{
    return tier->slots * tier->segment_bytes;
}

/* At an address where huge pages fit; what was reserved around it is given back. NULL and errno. */
static uint8_t *map_aligned(uint64_t bytes, int memfd)
{
    uint64_t rest = fb_align_up(bytes, FB_IO_ALIGN);
    uint8_t *room = mmap(NULL, rest + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *at, *map;

    if (room == MAP_FAILED)
        return NULL;
    at = (uint8_t *)fb_align_up((uintptr_t)room, HUGE_BYTES);
    map = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd, 0);
    if (map == MAP_FAILED) {
        munmap(room, rest + HUGE_BYTES);
        return NULL;
    }
    if (at > room)
        munmap(room, (size_t)(at - room));
    if (at < room + HUGE_BYTES)
        munmap(at + rest, (size_t)(room + HUGE_BYTES - at));
    return map;
}

static int dram_open(struct fb_tier *tier, const struct fb_tier_config *config,
                     struct fb_error *err)
{
    struct dram *d = tier->state;

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
    d->asked = calloc(map_bytes(tier) / HUGE_BYTES + 1, 1);
    return d->asked ? 0 : fb_error_set(err, -ENOMEM, "out of memory");
}

static void dram_close(struct fb_tier *tier)
{
    struct dram *d = tier->state;

    free(d->asked);
    if (tier->map)
        munmap(tier->map, map_bytes(tier));
    if (tier->memfd >= 0)
        close(tier->memfd);
}

static uint8_t *memory_of(struct fb_tier *tier, uint32_t slot)
{
    return tier->map + slot * tier->segment_bytes;
}

/* Makes one huge page of a stretch, whatever lies in it. */
static bool collapse(uint8_t *at)
{
    int64_t start_ns = fb_now_ns();

    /* There must be a page for the kernel to begin with; reading makes one. */
    (void)*(volatile uint8_t *)at;
    return madvise(at, HUGE_BYTES, MADV_COLLAPSE) == 0 && fb_now_ns() - start_ns < SLOW_NS;
}

static void dram_smooth(struct fb_tier *tier, uint32_t slot)
{
    struct dram *d = tier->state;
    uint64_t from = slot * tier->segment_bytes / HUGE_BYTES;
    uint64_t end = fb_min_u64(fb_div_up((slot + 1ULL) * tier->segment_bytes, HUGE_BYTES),
                              map_bytes(tier) / HUGE_BYTES);

    for (uint64_t i = from; d->asked && i < end && d->failures < FAILURES_MAX; i++) {
        if (d->asked[i])
            continue;
        d->asked[i] = 1;
        d->failures = collapse(tier->map + i * HUGE_BYTES) ? 0 : d->failures + 1;
    }
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
