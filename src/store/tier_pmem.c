/*
 * The PMem tier: files on a DAX file system (or any other), mapped.
 *
 * Segments are built in staging memory and copied into the mapping at the seal; every touch of the
 * mapping is a guarded copy, since whoever can truncate or fill up the file can make it fault.
 * Durability is msync() on every kind of mapping: on DAX it writes back the CPU's caches, elsewhere
 * the page cache. MAP_SYNC is asked for because it makes the file's own metadata durable at the
 * first fault, and is refused where the file system is no DAX.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/log.h"
#include "store/guard.h"
#include "store/tier_files.h"

struct pmem {
    struct fb_engine *engine; /* or NULL; for whoever observes it */
    uint8_t *map[FB_TIER_DIRS_MAX];
};

static uint64_t map_bytes(const struct fb_tier *tier, unsigned stripe)
{
    return tier->files->file[stripe].slots * tier->segment_bytes;
}

static int map_file(const struct fb_tier *tier, unsigned stripe, uint8_t **ret_map)
{
    const struct fb_tier_file *f = &tier->files->file[stripe];
    size_t size = map_bytes(tier, stripe);
    void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, f->fd, 0);

    if (map == MAP_FAILED) {
        map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
        if (map == MAP_FAILED)
            return -errno;
        fb_log_info("%s is no persistent memory: the pmem tier uses its page cache", f->dir.path);
    }
    *ret_map = map;
    return 0;
}

static int pmem_open(struct fb_tier *tier, const struct fb_tier_config *config,
                     struct fb_error *err)
{
    struct pmem *p = tier->state;
    int r = fb_tier_files_open(tier, config, 0, err);

    p->engine = config->engine;
    fb_guard_install();
    for (unsigned i = 0; i < tier->stripe_count && r == 0; i++) {
        r = map_file(tier, i, &p->map[i]);
        if (r < 0)
            return fb_error_set(err, r, "cannot map %s/segments: %s", tier->files->file[i].dir.path,
                                fb_strerror(r));
    }
    return r;
}

static void pmem_close(struct fb_tier *tier)
{
    const struct pmem *p = tier->state;

    for (unsigned i = 0; tier->files && i < tier->files->count; i++)
        if (p->map[i])
            munmap(p->map[i], map_bytes(tier, i));
    fb_tier_files_close(tier);
}

static uint8_t *place(const struct fb_tier *tier, uint32_t slot)
{
    const struct pmem *p = tier->state;

    return p->map[slot % tier->stripe_count] + fb_tier_file_offset(tier, slot);
}

/* The first `size` bytes of a slot. */
static int write_durably(const struct fb_tier *tier, uint32_t slot, uint8_t *from, uint32_t size)
{
    const struct pmem *p = tier->state;
    uint8_t *to = place(tier, slot);
    struct fb_io io = {.op = FB_IO_WRITE,
                       .fd = fb_tier_file_of(tier, slot)->fd,
                       .data = from,
                       .offset = fb_tier_file_offset(tier, slot),
                       .length = size};
    int r;

    fb_engine_tell(p->engine, &io, false);
    r = fb_guarded_copy(to, from, size);
    if (r < 0)
        return r;
    fb_engine_tell(p->engine, &io, true);
    io.op = FB_IO_FSYNC;
    fb_engine_tell(p->engine, &io, false);
    if (msync(to, size, MS_SYNC) < 0)
        return -errno;
    fb_engine_tell(p->engine, &io, true);
    return 0;
}

static void pmem_seal(struct fb_tier *tier, struct fb_tier_seal *seal)
{
    int r;

    memset(seal->memory, 0, FB_DISK_PAGE);
    r = write_durably(tier, seal->slot, seal->memory, (uint32_t)fb_tier_seal_bytes(seal));
    if (r == 0) {
        fb_tier_seal_header(seal);
        r = write_durably(tier, seal->slot, seal->memory, FB_DISK_PAGE);
    }
    fb_tier_seal_end(seal, r);
}

static void pmem_read(struct fb_tier *tier, struct fb_tier_read *const *reads, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct fb_tier_read *r = reads[i];
        int failed = fb_guarded_copy(r->data, place(tier, r->slot) + r->offset, r->length);

        r->result = failed < 0 ? failed : (int)r->length;
        r->done(r);
    }
}

/* Not through the mapping: touching a hole there may give it space. */
static int pmem_scan(struct fb_tier *tier, uint32_t slot, uint8_t *ret_page)
{
    ssize_t n = pread(fb_tier_file_of(tier, slot)->fd, ret_page, FB_DISK_PAGE,
                      (off_t)fb_tier_file_offset(tier, slot));

    if (n < 0)
        return -errno;
    /* What lies beyond the end of a file reads as zeros. */
    memset(ret_page + n, 0, FB_DISK_PAGE - (size_t)n);
    return 0;
}

const struct fb_tier_ops fb_tier_pmem = {
    .name = "pmem",
    .persistent = true,
    .state_bytes = sizeof(struct pmem),
    .open = pmem_open,
    .close = pmem_close,
    .seal = pmem_seal,
    .read = pmem_read,
    .scan = pmem_scan,
};
