#include "store/tables.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/mem.h"
#include "store/index.h"

#define PAGE_BYTES       4096u
#define FILE_BYTES       256u /* one path head for so much of the file table: about one a record */
#define FILES_BYTES_MAX  (UINT32_MAX * (uint64_t)FB_UNIT) /* ids have 32 bits */
#define HUGE_PAGES_BYTES (8u << 20) /* smaller tables are not worth huge pages */

static struct fb_layout_header plan(const struct fb_tables_shape *shape)
{
    struct fb_layout_header h = {
        .magic = FB_LAYOUT_MAGIC,
        .version = FB_LAYOUT_VERSION,
        .block_bytes = shape->block_bytes,
        .groups = fb_index_groups(shape->items),
        .segments = shape->segments,
        .files_bytes = fb_align_up(fb_min_u64(shape->files_bytes, FILES_BYTES_MAX), PAGE_BYTES),
        .dram_segment_bytes = shape->dram_segment_bytes,
        .dram_segments = shape->dram_segments,
    };

    h.heads = fb_max_u64(1, h.files_bytes / FILE_BYTES);
    h.groups_offset = PAGE_BYTES;
    h.segments_offset =
        fb_align_up(h.groups_offset + h.groups * sizeof(struct fb_layout_group), PAGE_BYTES);
    h.heads_offset =
        fb_align_up(h.segments_offset + h.segments * sizeof(struct fb_layout_segment), PAGE_BYTES);
    h.files_offset =
        fb_align_up(h.heads_offset + h.heads * sizeof(struct fb_layout_head), PAGE_BYTES);
    h.tables_bytes = h.files_offset + h.files_bytes;
    return h;
}

uint64_t fb_tables_bytes(const struct fb_tables_shape *shape)
{
    return plan(shape).tables_bytes;
}

int fb_tables_create(const struct fb_tables_shape *shape, struct fb_layout *ret_layout,
                     int *ret_memfd)
{
    struct fb_layout_header h = plan(shape);
    FB_AUTO_CLOSE int fd = -1;
    void *base;

    *ret_layout = (struct fb_layout){0};
    *ret_memfd = -1;
    if (getrandom(&h.instance, sizeof h.instance, 0) != (ssize_t)sizeof h.instance)
        return -errno;
    fd = memfd_create("forebay-tables", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)h.tables_bytes) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return -errno;
    base = mmap(NULL, h.tables_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    /* Ours is the only mapping that can ever write. */
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0) {
        int rc = -errno;

        munmap(base, h.tables_bytes);
        return rc;
    }
    /* Probes are random: fewer TLB misses where the kernel has huge pages for shared memory. */
    if (h.tables_bytes >= HUGE_PAGES_BYTES)
        (void)madvise(base, h.tables_bytes, MADV_HUGEPAGE);
    ret_layout->base = base;
    ret_layout->h = h;
    *(struct fb_layout_header *)base = h;
    *ret_memfd = fb_steal_fd(&fd);
    return 0;
}

void fb_tables_destroy(struct fb_layout *layout, int memfd)
{
    if (layout->base != NULL)
        munmap(layout->base, layout->h.tables_bytes);
    *layout = (struct fb_layout){0};
    if (memfd >= 0)
        close(memfd);
}
