/*
 * Reading the NVMe tier. An item that is not in DRAM lies in a file that this process may read as
 * well as the daemon: one O_DIRECT read, verified here, is half the work of asking for it.
 *
 * Nothing is believed of what comes from there: the record says path, version and block by hash,
 * and each 4 KiB has a checksum. A segment that is being written or reused while it is read shows
 * by that, and so does a descriptor that the program has closed and reused. Then the daemon is
 * asked, who knows what to do about damage.
 *
 *     file:    ...| record header | sums | data: chunk 0 | chunk 1 | ... | chunk n |...
 *     read:    [--------------------------------------------------)        up to what is wanted
 *
 * While DRAM has room the daemon wants to be asked, since only it can put a copy there.
 */
#include <string.h>

#include "base/checksum.h"
#include "client/client_priv.h"

#define PAGE_BYTES   4096u
#define BUFFER_BYTES (512u << 10) /* an item that does not fit is asked for */
#define CLAIMED      ((uint8_t *)1)

/* ---- buffers ---- */

static uint8_t *claim(struct fb_client *client, unsigned *ret_slot)
{
    for (unsigned i = 0; i < FB_CLIENT_BUFFERS; i++) {
        uint8_t *buffer = atomic_load_explicit(&client->buffers[i], memory_order_relaxed);

        if (buffer == CLAIMED ||
            !atomic_compare_exchange_strong(&client->buffers[i], &buffer, CLAIMED))
            continue;
        if (!buffer)
            buffer = fb_sys_memory(BUFFER_BYTES);
        if (!buffer)
            atomic_store(&client->buffers[i], NULL);
        *ret_slot = i;
        return buffer;
    }
    return NULL;
}

void fb_client_free_buffers(struct fb_client *client)
{
    for (unsigned i = 0; i < FB_CLIENT_BUFFERS; i++) {
        uint8_t *buffer = atomic_exchange(&client->buffers[i], NULL);

        if (buffer && buffer != CLAIMED)
            fb_sys_munmap(buffer, BUFFER_BYTES);
    }
}

void fb_client_close_medium(struct fb_session *session)
{
    struct fb_client_medium *m = &session->medium;

    for (uint32_t i = 0; i < m->count; i++)
        fb_client_close_ours(atomic_exchange(&m->fds[i], -1), m->marks[i]);
}

/* ---- one item ---- */

/* What is wanted of an item, and where it is in its file; offsets are from the record's page. */
struct wish {
    const struct fb_client_file *file;
    uint32_t block;
    uint32_t item_length;
    uint32_t offset; /* in the item */
    uint32_t length;
    int fd;
    uint64_t page_at; /* in the file */
    uint32_t record;  /* after that */
    uint32_t bytes;   /* to be read */
};

static bool locate(const struct fb_session *s, uint64_t key, struct wish *w, struct fb_spot *spot)
{
    const struct fb_client_medium *m = &s->medium;
    struct fb_found found;
    uint32_t slot;
    uint64_t at, end;

    if (!fb_layout_find(&s->layout, key, &found) || !fb_layout_loc_good(&s->layout, found.loc[1]))
        return false;
    slot = fb_loc_segment(found.loc[1]) - m->base;
    at = fb_loc_offset(found.loc[1]);
    if (slot >= m->slots || found.length != w->item_length ||
        at + fb_record_size(found.length) > m->segment_bytes)
        return false;
    *spot = (struct fb_spot){.loc = found.loc[1], .length = found.length};
    w->record = (uint32_t)(at % PAGE_BYTES);
    w->page_at = slot / m->count * m->segment_bytes + at - w->record;
    end = fb_min_u64(fb_align_up((uint64_t)w->offset + w->length, FB_SUM_BYTES), found.length);
    w->bytes =
        (uint32_t)fb_align_up(w->record + fb_record_data_offset(found.length) + end, PAGE_BYTES);
    w->fd = atomic_load_explicit(&s->medium.fds[slot % m->count], memory_order_relaxed);
    return w->fd >= 0 && w->bytes <= BUFFER_BYTES;
}

static bool record_good(const struct wish *w, const struct fb_record *r)
{
    return r->magic == FB_RECORD_MAGIC && r->block == w->block && r->length == w->item_length &&
           r->path_hash == w->file->path_hash &&
           r->version_hash == fb_version_hash(&w->file->attr.version) &&
           r->sum == fb_record_sum(r, (const uint64_t *)(r + 1));
}

/* Verifies what is wanted and copies it. */
static bool take(const struct wish *w, const uint8_t *buffer, uint8_t *ret_data)
{
    const struct fb_record *r = (const struct fb_record *)(buffer + w->record);
    const uint64_t *sums = (const uint64_t *)(r + 1);
    const uint8_t *data = (const uint8_t *)r + fb_record_data_offset(w->item_length);
    uint64_t end = (uint64_t)w->offset + w->length;

    if (!record_good(w, r))
        return false;
    for (uint64_t at = w->offset / FB_SUM_BYTES * FB_SUM_BYTES; at < end; at += FB_SUM_BYTES)
        if (fb_checksum(data + at, fb_min_u64(FB_SUM_BYTES, w->item_length - at)) !=
            sums[at / FB_SUM_BYTES])
            return false;
    memcpy(ret_data, data + w->offset, w->length);
    return true;
}

size_t fb_client_read_medium(struct fb_client *client, const struct fb_client_file *file,
                             void *ret_data, size_t bytes, uint64_t offset)
{
    struct fb_session *s = file->session;
    uint32_t block_bytes = s->layout.h.block_bytes;
    uint64_t size = file->attr.version.size;
    struct wish w = {.file = file,
                     .block = (uint32_t)(offset / block_bytes),
                     .offset = (uint32_t)(offset % block_bytes)};
    uint64_t key = fb_item_key(file->id, w.block);
    struct fb_spot spot;
    uint8_t *buffer;
    unsigned slot;
    bool good;

    if (s->medium.count == 0 || offset >= size ||
        atomic_load_explicit(&fb_layout_live(&s->layout)->ask, memory_order_relaxed) != 0)
        return 0;
    w.item_length = (uint32_t)fb_min_u64(block_bytes, size - (uint64_t)w.block * block_bytes);
    w.length = (uint32_t)fb_min_u64(bytes, w.item_length - w.offset);
    if (!locate(s, key, &w, &spot))
        return 0;
    buffer = claim(client, &slot);
    if (!buffer)
        return 0;
    good = fb_sys_pread(w.fd, buffer, w.bytes, (int64_t)w.page_at) == (int64_t)w.bytes &&
           take(&w, buffer, ret_data);
    atomic_store_explicit(&client->buffers[slot], buffer, memory_order_release);
    if (!good)
        return 0;
    fb_client_note(client, file, key, &spot, w.offset, w.length, FB_ACCESS_MEDIUM);
    return w.length;
}
