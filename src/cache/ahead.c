/*
 * Read-ahead: a large file read from front to back is fetched ahead of its reader.
 *
 * The kernel reads ahead by a megabyte or two, which is little on a way that takes long. So each
 * volume watches a few files: reads that go on where the last one ended, give or take what the
 * kernel sends out of order (a few of its requests, and those are large), open a window behind the
 * reader's place once they make a block. Small reads here and there never do. It doubles with every
 * read that uses it, and closes when the reader goes elsewhere. All who read like that share three
 * quarters of the buffers that the volume may have, so that those who wait for bytes find some.
 * Only what no tier holds is fetched, as items like all others but for two things: they are asked
 * for in as few requests as possible, and they go to memory, whatever has to leave it.
 *
 * A file has a slot by the hash of its id; two readers of one file share it, and a slot that
 * somebody else works on is left alone: this is a hint, nothing is lost but time.
 */
#include "base/hash.h"
#include "cache/cache_priv.h"
#include "core/clock.h"
#include "core/mem.h"

#define SLACK_MAX    (4ULL << 20) /* the kernel's own read-ahead, out of order */
#define SLACK_READS  8            /* as many reads of the size at hand */
#define FIRST_BYTES  (256ULL << 10)
#define WINDOW_FIRST (1ULL << 20)
#define WINDOW_MAX   (64ULL << 20)
#define ACTIVE_NS    FB_NS_PER_S /* a reader that has not come for so long is none */

/* Bytes that may be on their way ahead of all readers together; the rest is for those who wait. */
static uint64_t room(const struct fb_volume *volume)
{
    uint64_t buffers = (uint64_t)volume->account->limit * volume->cache->config.block_bytes;

    return buffers - buffers / 4;
}

static void done(struct fb_read *read)
{
    struct fb_volume *volume = read->volume;
    uint32_t file = read->file;

    atomic_fetch_sub_explicit(&volume->ahead_bytes, read->length, memory_order_relaxed);
    fb_read_release(read);
    free(read);
    fb_files_unref(volume->cache->files, file, 1);
    fb_volume_leave(volume);
}

static void fetch(const struct fb_ahead *ahead, uint64_t offset, uint64_t length)
{
    struct fb_read *read = fb_alloc(sizeof *read);

    if (!read)
        return;
    length = fb_min_u64(length, FB_READ_MAX); /* a larger block comes whole all the same */
    fb_files_ref(ahead->volume->cache->files, ahead->file, 1);
    fb_volume_enter(ahead->volume);
    fb_metric_add(&ahead->volume->cache->metrics, FB_CM_AHEAD_BYTES, length);
    atomic_fetch_add_explicit(&ahead->volume->ahead_bytes, length, memory_order_relaxed);
    *read = (struct fb_read){
        .volume = ahead->volume,
        .caller = ahead->caller,
        .file = ahead->file,
        .offset = offset,
        .length = (uint32_t)length,
        .door = ahead->door,
        .early = true,
        .park = ahead->soon,
        .soon = ahead->soon,
        .batched = true,
        .done = done,
    };
    fb_read_submit(read);
}

void fb_ahead_go(const struct fb_ahead *ahead)
{
    struct fb_volume *volume = ahead->volume;
    struct fb_cache *cache = volume->cache;
    uint64_t block_bytes = cache->config.block_bytes, first = ahead->from;

    for (uint64_t at = ahead->from; at < ahead->until; at += block_bytes) {
        bool missing = !fb_item_is_there(cache, ahead->file, (uint32_t)(at / block_bytes));

        if (at > first && (!missing || at - first + block_bytes > FB_READ_MAX)) {
            fetch(ahead, first, at - first);
            first = at;
        }
        if (!missing)
            first = at + block_bytes;
    }
    if (first < ahead->until)
        fetch(ahead, first, ahead->until - first);
    fb_fetch_pump(volume);
    fb_files_unref(cache->files, ahead->file, 1);
    fb_volume_let_go(volume);
}

/* Who reads from front to back just now, the one at hand included. */
static unsigned readers(struct fb_volume *volume, struct fb_ahead_slot *self, int64_t now_ns)
{
    unsigned count = 1;

    /* Relaxed, here and below: an estimate. */
    for (unsigned i = 0; i < FB_AHEAD_SLOTS; i++) {
        struct fb_ahead_slot *slot = &volume->ahead[i];

        count += slot != self &&
                 atomic_load_explicit(&slot->used_ns, memory_order_relaxed) + ACTIVE_NS > now_ns;
    }
    atomic_store_explicit(&self->used_ns, now_ns, memory_order_relaxed);
    return count;
}

/* Where the window ends now; nothing when the reader does not go from front to back. */
static bool move(struct fb_ahead_slot *slot, const struct fb_read *read, uint64_t *ret_until)
{
    uint64_t end = read->offset + read->length, most = room(read->volume);
    uint64_t slack = fb_min_u64(SLACK_READS * (uint64_t)read->length, SLACK_MAX);

    if (slot->file != read->file || read->offset > slot->next + slack ||
        read->offset + slack < slot->next) {
        slot->file = read->file;
        slot->next = slot->until = end;
        slot->run = slot->window = 0;
        return false;
    }
    if (end <= slot->next)
        return false;
    slot->run += fb_min_u64(read->length, end - slot->next);
    slot->next = end;
    if (slot->run < FIRST_BYTES)
        return false;
    most = fb_min_u64(most / readers(read->volume, slot, fb_now_coarse_ns()), WINDOW_MAX);
    slot->window = slot->window == 0 ? WINDOW_FIRST : slot->window * 2;
    slot->window = fb_max_u64(fb_min_u64(slot->window, most), WINDOW_FIRST);
    *ret_until = slot->next + slot->window;
    return true;
}

/* What may be asked for now, in whole blocks. */
static uint64_t spare(struct fb_volume *volume)
{
    uint64_t most = room(volume);
    /* Relaxed: an estimate. */
    uint64_t out = atomic_load_explicit(&volume->ahead_bytes, memory_order_relaxed);

    return out < most ? fb_align_down(most - out, volume->cache->config.block_bytes) : 0;
}

bool fb_ahead_plan(const struct fb_read *read, struct fb_ahead *ret_ahead)
{
    struct fb_volume *volume = read->volume;
    struct fb_cache *cache = volume->cache;
    const struct fb_version *version = fb_files_version(cache->files, read->file);
    uint64_t block_bytes = cache->config.block_bytes;
    struct fb_ahead_slot *slot = &volume->ahead[fb_mix64(read->file) % FB_AHEAD_SLOTS];
    uint64_t from = 0, until = 0;

    if (version->size <= block_bytes || volume->config.bypass || room(volume) < WINDOW_FIRST ||
        !fb_version_settled(version, fb_wall_ns()) ||
        atomic_flag_test_and_set_explicit(&slot->busy, memory_order_acquire))
        return false;
    if (move(slot, read, &until)) {
        from = fb_align_up(fb_max_u64(slot->until, slot->next), block_bytes);
        until = fb_min_u64(fb_align_down(until, block_bytes), version->size);
        until = fb_min_u64(until, from + spare(volume));
        /* Not in crumbs. */
        if (until > from && (until - from >= fb_min_u64(slot->window / 2, FB_SOURCE_READ_MAX) ||
                             until == version->size))
            slot->until = until;
        else
            until = from;
    }
    atomic_flag_clear_explicit(&slot->busy, memory_order_release);
    if (until <= from)
        return false;
    /* Until it has asked the source, that must not be closed. */
    if (!fb_volume_hold(volume))
        return false;
    fb_files_ref(cache->files, read->file, 1);
    *ret_ahead = (struct fb_ahead){
        .volume = volume,
        .caller = read->caller,
        .file = read->file,
        .door = read->door,
        .soon = !read->steady,
        .from = from,
        .until = until,
    };
    return true;
}
