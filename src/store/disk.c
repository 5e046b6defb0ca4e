#include "store/disk.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "proto/layout.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is that of the machine");

static uint64_t path_room(size_t path_len)
{
    return fb_align_up(path_len + 1, 8);
}

uint64_t fb_disk_toc_room(size_t path_len, bool same_file)
{
    uint64_t room = sizeof(struct fb_disk_item);

    if (!same_file)
        room += sizeof(struct fb_disk_file) + path_room(path_len);
    return room;
}

void fb_disk_write_begin(struct fb_disk_writer *w, uint8_t *memory, uint64_t room)
{
    FB_ASSERT((uintptr_t)memory % 8 == 0);
    *w = (struct fb_disk_writer){.at = memory, .end = memory + room};
}

bool fb_disk_write_item(struct fb_disk_writer *w, const struct fb_disk_file *file, const char *path,
                        const struct fb_disk_item *item)
{
    FB_ASSERT(path ? file->path_len < FB_PATH_MAX : w->file != NULL);
    if (fb_disk_toc_room(path ? file->path_len : 0, !path) > (uint64_t)(w->end - w->at))
        return false;
    if (path) {
        uint64_t room = path_room(file->path_len);

        w->file = (struct fb_disk_file *)w->at;
        *w->file = *file;
        w->file->items = 0;
        w->at += sizeof *file;
        /* Not what lay here before: it would go to the medium. */
        memset(w->at + room - 8, 0, 8);
        memcpy(w->at, path, file->path_len);
        w->at += room;
        w->files++;
    }
    memcpy(w->at, item, sizeof *item);
    w->at += sizeof *item;
    w->file->items++;
    w->items++;
    return true;
}

static uint64_t header_sum(const struct fb_disk_header *header)
{
    return fb_hash64(header, offsetof(struct fb_disk_header, sum));
}

void fb_disk_header_finish(struct fb_disk_header *header, const uint8_t *toc)
{
    header->magic = FB_DISK_MAGIC;
    header->version = FB_DISK_VERSION;
    header->toc_sum = fb_hash64(toc, header->toc_bytes);
    header->sum = header_sum(header);
}

int fb_disk_header_check(const struct fb_disk_header *header, const uint64_t cache_id[2],
                         uint32_t slot, uint64_t segment_bytes)
{
    const struct fb_disk_header *h = header;

    if (h->magic != FB_DISK_MAGIC || h->version != FB_DISK_VERSION || h->sum != header_sum(h))
        return -EBADMSG;
    if (h->slot != slot || h->segment_bytes != segment_bytes || h->cache_id[0] != cache_id[0] ||
        h->cache_id[1] != cache_id[1])
        return -EBADMSG;
    if (h->sequence > FB_DISK_SEQUENCE_MAX)
        return -EBADMSG;
    /* Each bound makes the next subtraction safe. */
    if (segment_bytes > FB_SEGMENT_SIZE_MAX || h->toc_offset > segment_bytes ||
        h->toc_bytes > segment_bytes - h->toc_offset || h->toc_offset % FB_DISK_PAGE != 0 ||
        h->data_end > h->toc_offset || h->data_end < FB_DISK_DATA_OFFSET)
        return -EBADMSG;
    return 0;
}

static bool all_zero(const uint8_t *page)
{
    return page[0] == 0 && memcmp(page, page + 1, FB_DISK_PAGE - 1) == 0;
}

int fb_disk_page_check(const uint8_t *page, const uint64_t cache_id[2], uint32_t slot,
                       uint64_t segment_bytes)
{
    const struct fb_disk_header *h = (const struct fb_disk_header *)page;

    FB_ASSERT((uintptr_t)page % 8 == 0);
    if (all_zero(page))
        return FB_DISK_NONE;
    if (h->magic != FB_DISK_MAGIC || h->sum != header_sum(h))
        return -EBADMSG;
    if (h->version != FB_DISK_VERSION || h->slot != slot || h->segment_bytes != segment_bytes ||
        h->cache_id[0] != cache_id[0] || h->cache_id[1] != cache_id[1])
        return FB_DISK_FOREIGN;
    return fb_disk_header_check(h, cache_id, slot, segment_bytes);
}

/* A file entry of the table at `at`, of which `left` bytes remain. Its size, or 0: it is bad. */
static uint64_t file_size(const uint8_t *at, uint64_t left)
{
    const struct fb_disk_file *file = (const struct fb_disk_file *)at;
    uint64_t size;

    if (left < sizeof *file || file->path_len >= FB_PATH_MAX || file->items == 0)
        return 0;
    size = sizeof *file + path_room(file->path_len);
    if (left < size || (left - size) / sizeof(struct fb_disk_item) < file->items)
        return 0;
    if (strnlen((const char *)at + sizeof *file, file->path_len + 1u) != file->path_len)
        return 0;
    return size + file->items * sizeof(struct fb_disk_item);
}

static const struct fb_disk_item *items_of(const struct fb_disk_file *file)
{
    return (const struct fb_disk_item *)((const uint8_t *)(file + 1) + path_room(file->path_len));
}

static bool items_good(const struct fb_disk_header *header, const struct fb_disk_file *file)
{
    const struct fb_disk_item *items = items_of(file);

    for (uint32_t i = 0; i < file->items; i++) {
        uint64_t offset = (uint64_t)items[i].offset_units * FB_UNIT;

        /* The first bound also keeps fb_record_size() from overflowing. */
        if (items[i].length > header->segment_bytes || items[i].length > header->block_bytes ||
            offset < FB_DISK_DATA_OFFSET || offset > header->data_end ||
            fb_record_size(items[i].length) > header->data_end - offset)
            return false;
    }
    return true;
}

static bool table_good(const struct fb_disk_header *header, const uint8_t *toc)
{
    uint64_t at = 0;
    uint64_t items = 0;

    if (fb_hash64(toc, header->toc_bytes) != header->toc_sum)
        return false;
    for (uint32_t i = 0; i < header->files; i++) {
        const struct fb_disk_file *file = (const struct fb_disk_file *)(toc + at);
        uint64_t size = file_size(toc + at, header->toc_bytes - at);

        if (size == 0 || !items_good(header, file))
            return false;
        items += file->items;
        at += size;
    }
    return at == header->toc_bytes && items == header->items;
}

int fb_disk_toc_walk(const struct fb_disk_header *header, const uint8_t *toc,
                     fb_disk_visit_fn *visit, void *arg)
{
    uint64_t at = 0;

    FB_ASSERT((uintptr_t)toc % 8 == 0);
    if (!table_good(header, toc))
        return -EBADMSG;
    for (uint32_t i = 0; i < header->files; i++) {
        const struct fb_disk_file *file = (const struct fb_disk_file *)(toc + at);
        int r = visit(arg, file, (const char *)(file + 1), items_of(file));

        if (r != 0)
            return r;
        at += file_size((const uint8_t *)file, header->toc_bytes - at);
    }
    return 0;
}
