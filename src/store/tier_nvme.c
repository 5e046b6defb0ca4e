/*
 * The NVMe tier: O_DIRECT through the engine, each directory in a lane of its own.
 *
 * A seal is a chain of batches, each submitted when the one before has completed:
 *
 *     RECORDS (all at once) ── FLUSH ── HEADER (one page) ── FLUSH_HEADER ── done
 *
 * The header's page is the staging memory's own first page, which records leave alone. Scanning
 * reads the headers of the next slots ahead, in one batch.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "core/mem.h"
#include "store/late.h"
#include "store/tier_files.h"

#define SCAN_AHEAD 64

enum phase {
    PHASE_RECORDS,
    PHASE_FLUSH,
    PHASE_HEADER,
    PHASE_FLUSH_HEADER,
    PHASE_DONE,
};

struct nvme {
    struct fb_engine *engine;
    struct fb_late *late;
    /* headers of slots [scan_first, scan_first + scan_count); one thread, at start */
    uint8_t *scan_pages;
    uint32_t scan_first;
    uint32_t scan_count;
    int scan_result[SCAN_AHEAD];
};

static int nvme_open(struct fb_tier *tier, const struct fb_tier_config *config,
                     struct fb_error *err)
{
    struct nvme *n = tier->state;
    int rc = fb_tier_files_open(tier, config, O_DIRECT, err);

    if (rc < 0)
        return rc;
    n->engine = config->engine;
    /* Last: a directory that is not ours is refused without a thread. */
    rc = fb_late_create(config->engine, config->timeout_ns, &n->late);
    return rc < 0 ? fb_error_set(err, rc, "cannot start a thread: %s", fb_strerror(rc)) : 0;
}

static void nvme_scan_end(struct fb_tier *tier)
{
    struct nvme *n = tier->state;

    free(n->scan_pages);
    n->scan_pages = NULL;
    n->scan_count = 0;
}

static void nvme_close(struct fb_tier *tier)
{
    struct nvme *n = tier->state;

    nvme_scan_end(tier);
    fb_late_close(n->late);
    fb_tier_files_close(tier);
}

/* ---- sealing ---- */

static void phase_start(struct fb_tier_seal *seal);

static void phase_end(struct fb_tier_seal *seal)
{
    int failure = atomic_load_explicit(&seal->failure, memory_order_relaxed);

    if (failure < 0)
        seal->phase = PHASE_DONE;
    else
        seal->phase++;
    if (seal->phase == PHASE_DONE)
        fb_tier_seal_end(seal, failure);
    else
        phase_start(seal);
}

static void io_done(struct fb_io *io)
{
    struct fb_tier_seal *seal = io->owner;

    if (io->result < 0)
        atomic_store_explicit(&seal->failure, io->result, memory_order_relaxed);
    /* The last one sees the failures of all: release by each, acquire by the last. */
    if (atomic_fetch_sub_explicit(&seal->writes_left, 1, memory_order_acq_rel) == 1)
        phase_end(seal);
}

/* One io, or as many as the records need: `size` bytes from `start` of the slot. */
static unsigned prepare(struct fb_tier_seal *seal, enum fb_io_op op, uint64_t start, uint64_t size)
{
    const struct fb_tier *tier = seal->tier;
    uint64_t place = fb_tier_file_offset(tier, seal->slot);
    uint64_t each = fb_max_u64(FB_DISK_WRITE_BYTES,
                               fb_align_up(fb_div_up(size, FB_DISK_WRITES_MAX), FB_DISK_PAGE));
    unsigned count = 0;

    do {
        uint64_t length = fb_min_u64(each, size);

        FB_ASSERT(count < FB_DISK_WRITES_MAX);
        seal->ios[count++] = (struct fb_io){
            .op = op,
            .fd = fb_tier_file_of(tier, seal->slot)->fd,
            .lane = seal->slot % tier->stripe_count,
            .data = seal->memory + start,
            .offset = place + start,
            .length = (uint32_t)length,
            .done = io_done,
            .owner = seal,
        };
        start += length;
        size -= length;
    } while (size > 0);
    return count;
}

/* The seal may be gone when this returns: its last io may be done already. */
static void phase_start(struct fb_tier_seal *seal)
{
    const struct nvme *n = seal->tier->state;
    struct fb_io *ios[FB_DISK_WRITES_MAX];
    unsigned count = 0;

    switch ((enum phase)seal->phase) {
    case PHASE_RECORDS:
        /* The page in front goes with them, as zeros: the old header is no more. */
        memset(seal->memory, 0, FB_DISK_PAGE);
        count = prepare(seal, FB_IO_WRITE, 0, fb_tier_seal_bytes(seal));
        break;
    case PHASE_HEADER:
        fb_tier_seal_header(seal);
        count = prepare(seal, FB_IO_WRITE, 0, FB_DISK_PAGE);
        break;
    case PHASE_FLUSH:
    case PHASE_FLUSH_HEADER:
        count = prepare(seal, FB_IO_FSYNC, 0, 0);
        break;
    case PHASE_DONE:
        break;
    }
    for (unsigned i = 0; i < count; i++)
        ios[i] = &seal->ios[i];
    atomic_store_explicit(&seal->writes_left, count, memory_order_relaxed);
    fb_engine_submit(n->engine, ios, count);
}

static void nvme_seal(struct fb_tier *tier, struct fb_tier_seal *seal)
{
    (void)tier;
    seal->phase = PHASE_RECORDS;
    atomic_store_explicit(&seal->failure, 0, memory_order_relaxed);
    phase_start(seal);
}

/* ---- reading ---- */

static void read_done(struct fb_io *io)
{
    struct fb_tier_read *r = FB_CONTAINER_OF(io, struct fb_tier_read, io);

    /* Short: somebody truncated the file. */
    r->result = io->result >= 0 && (uint32_t)io->result < r->length ? -EIO : io->result;
    r->done(r);
}

static void nvme_read(struct fb_tier *tier, struct fb_tier_read *const *reads, unsigned count)
{
    const struct nvme *n = tier->state;
    const struct fb_tier_file *file = fb_tier_file_of(tier, reads[0]->slot);
    struct fb_late_place place = {
        .stripe = reads[0]->slot % tier->files->count,
        .fd = file->fd,
        .offset = fb_tier_file_offset(tier, reads[0]->slot),
    };
    struct fb_io *ios[FB_DISK_WRITES_MAX];

    if (fb_late_read(n->late, &place, reads, count))
        return;
    while (count > 0) {
        unsigned batch = (unsigned)fb_min_u64(count, FB_ARRAY_SIZE(ios));

        for (unsigned i = 0; i < batch; i++) {
            struct fb_tier_read *r = reads[i];

            r->io = (struct fb_io){
                .op = FB_IO_READ,
                .fd = fb_tier_file_of(tier, r->slot)->fd,
                .lane = r->slot % tier->stripe_count,
                .data = r->data,
                .offset = fb_tier_file_offset(tier, r->slot) + r->offset,
                .length = r->length,
                .done = read_done,
            };
            ios[i] = &r->io;
        }
        fb_engine_submit(n->engine, ios, batch);
        reads += batch;
        count -= batch;
    }
}

static bool nvme_stuck(struct fb_tier *tier, unsigned stripe)
{
    const struct nvme *n = tier->state;

    return fb_late_is_stuck(n->late, stripe);
}

/* ---- scanning ---- */

static int scan_ahead(struct fb_tier *tier, uint32_t first)
{
    struct nvme *n = tier->state;
    struct fb_io io[SCAN_AHEAD];
    struct fb_io *ios[SCAN_AHEAD];

    if (!n->scan_pages)
        n->scan_pages = aligned_alloc(FB_DISK_PAGE, SCAN_AHEAD * FB_DISK_PAGE);
    if (!n->scan_pages)
        return -ENOMEM;
    /* What lies beyond the end of a file reads as zeros. */
    memset(n->scan_pages, 0, SCAN_AHEAD * FB_DISK_PAGE);
    n->scan_first = first;
    n->scan_count = (uint32_t)fb_min_u64(SCAN_AHEAD, tier->slots - first);
    for (uint32_t i = 0; i < n->scan_count; i++) {
        io[i] = (struct fb_io){
            .op = FB_IO_READ,
            .fd = fb_tier_file_of(tier, first + i)->fd,
            .lane = (first + i) % tier->stripe_count,
            .data = n->scan_pages + (size_t)i * FB_DISK_PAGE,
            .offset = fb_tier_file_offset(tier, first + i),
            .length = FB_DISK_PAGE,
        };
        ios[i] = &io[i];
    }
    fb_engine_run(n->engine, ios, n->scan_count);
    for (uint32_t i = 0; i < n->scan_count; i++)
        n->scan_result[i] = io[i].result;
    return 0;
}

static int nvme_scan(struct fb_tier *tier, uint32_t slot, uint8_t *ret_page)
{
    struct nvme *n = tier->state;
    uint32_t i = slot - n->scan_first;

    if (i >= n->scan_count) {
        int r = scan_ahead(tier, slot);

        if (r < 0)
            return r;
        i = 0;
    }
    if (n->scan_result[i] < 0)
        return n->scan_result[i];
    memcpy(ret_page, n->scan_pages + (size_t)i * FB_DISK_PAGE, FB_DISK_PAGE);
    return 0;
}

const struct fb_tier_ops fb_tier_nvme = {
    .name = "nvme",
    .persistent = true,
    .state_bytes = sizeof(struct nvme),
    .open = nvme_open,
    .close = nvme_close,
    .seal = nvme_seal,
    .read = nvme_read,
    .stuck = nvme_stuck,
    .scan = nvme_scan,
    .scan_end = nvme_scan_end,
};
