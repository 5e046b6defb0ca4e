/*
 * A read, from request to answer.
 *
 *     1. split      one piece for each item the range touches; pin what the store has
 *     2. buffers    for pieces that miss or lie on a medium, all at once: from the fetch pool, then
 *                   from the medium pool; always in this order, so that reads cannot wait for each
 *                   other in a circle
 *     3. start      media are read, misses join or begin a fetch
 *     4. join       the last piece answers the read; a medium that fails or lies turns into a miss
 *     5. release    the door has sent the bytes: pins and buffers go back
 *
 * A read whose pieces are all in memory goes from 1 to 4 without a lock but the pins.
 */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "cache/cache_priv.h"
#include "core/clock.h"

static void count_hit(struct fb_cache *cache, unsigned tier, uint32_t bytes)
{
    unsigned kind = (unsigned)fb_tier_kind(fb_store_tier(cache->store, tier));

    fb_metric_add(&cache->metrics, FB_CM_HITS_DRAM + 2 * kind, 1);
    fb_metric_add(&cache->metrics, FB_CM_HIT_BYTES_DRAM + 2 * kind, bytes);
}

/* Found in some tier: not parked (fetch.c), which is memory as well. */
static bool is_placed(const struct fb_piece *piece)
{
    return piece->outcome == FB_ACCESS_MEDIUM ||
           (piece->outcome == FB_ACCESS_MEMORY && piece->pinned);
}

static void note_access(struct fb_piece *piece)
{
    struct fb_read *read = piece->read;
    struct fb_cache *cache = read->volume->cache;
    bool hit = piece->outcome == FB_ACCESS_MEMORY || piece->outcome == FB_ACCESS_MEDIUM;
    struct fb_access access = {
        .time_ns = fb_now_ns(), /* exact: the records of a program may lie in several rings */
        .key = fb_item_key(read->file, piece->block),
        .loc = is_placed(piece) ? piece->pin.loc : FB_LOC_NONE,
        .offset = piece->offset,
        .length = piece->length,
        .item_length = piece->item_length,
        .pid = read->caller.pid,
        .uid = read->caller.uid,
        .source = read->volume->id,
        .outcome = piece->outcome,
        .door = read->door,
    };

    fb_cache_note(cache, fb_thread_index(), &access);
    fb_metric_add(&cache->metrics, FB_CM_READS, 1);
    fb_metric_add(&cache->metrics, FB_CM_READ_BYTES, piece->length);
    if (hit && !is_placed(piece)) {
        fb_metric_add(&cache->metrics, FB_CM_HITS_DRAM, 1);
        fb_metric_add(&cache->metrics, FB_CM_HIT_BYTES_DRAM, piece->length);
        return;
    }
    if (hit) {
        count_hit(cache, piece->pin.tier, piece->length);
        return;
    }
    fb_metric_add(&cache->metrics, FB_CM_MISSES, 1);
    fb_metric_add(&cache->metrics, FB_CM_MISS_BYTES, piece->length);
    if (piece->outcome == FB_ACCESS_JOINED)
        fb_metric_add(&cache->metrics, FB_CM_JOINED, 1);
}

/* The last piece is in: the read answers with all of its bytes or with one error. */
static void answer(struct fb_read *read)
{
    read->result = 0;
    read->bytes = 0;
    for (unsigned i = 0; i < read->piece_count; i++) {
        /* Who warms is no reader: a directory that was walked once by name would pass for one that
         * is read in order, of which nothing need be kept. */
        if (!read->early && !read->steady)
            note_access(&read->pieces[i]);
        if (read->pieces[i].result < 0 && read->result == 0)
            read->result = read->pieces[i].result;
        read->bytes += read->pieces[i].length;
    }
    if (read->result < 0) {
        fb_read_release(read);
        read->bytes = 0;
    }
    read->done(read);
}

static void piece_left(struct fb_read *read)
{
    /* Acquire and release: the last one sees what all the others have written into their pieces. */
    if (atomic_fetch_sub_explicit(&read->left, 1, memory_order_acq_rel) == 1)
        answer(read);
}

void fb_piece_done(struct fb_piece *piece, int result, uint8_t outcome)
{
    piece->result = result;
    piece->outcome = result < 0 ? FB_ACCESS_FAILED : outcome;
    piece_left(piece->read);
}

/* A whole item has come from a slow tier: give it a place in DRAM if one is free. */
static void consider_promotion(struct fb_cache *cache, uint32_t file, uint32_t block,
                               uint32_t length, struct fb_buffer *buffer, const uint8_t *data)
{
    struct fb_item item = {
        .file = file, .block = block, .length = length, .far = true, .data = data};

    (void)fb_place_promote(cache, &item);
    fb_files_unref(cache->files, file, 1);
    fb_buffer_put(buffer);
}

static void medium_done(struct fb_store_read *medium)
{
    struct fb_piece *piece = FB_CONTAINER_OF(medium, struct fb_piece, medium);
    struct fb_read *read = piece->read;
    struct fb_volume *volume = read->volume;
    struct fb_cache *cache = volume->cache;
    uint32_t file = read->file, block = piece->block, length = piece->item_length;
    struct fb_buffer *buffer = piece->buffer;
    const uint8_t *data = medium->data;
    bool promote;

    /* Once the piece is done the read may be gone; the volume stays until we leave it. */
    fb_volume_enter(volume);
    fb_store_unpin(cache->store, &piece->pin);
    piece->pinned = false;
    if (medium->result < 0) {
        piece->buffer = NULL;
        fb_fetch_join(piece, buffer);
        fb_fetch_pump(volume);
        fb_volume_leave(volume);
        return;
    }
    piece->data = data;
    promote = piece->offset == 0 && piece->length == length &&
              fb_tier_kind(fb_store_tier(cache->store, 0)) == FB_TIER_DRAM &&
              fb_store_has_room(cache->store, 0);
    if (promote) {
        fb_buffer_ref(buffer);
        fb_files_ref(cache->files, file, 1);
    }
    fb_piece_done(piece, 0, FB_ACCESS_MEDIUM);
    if (promote)
        consider_promotion(cache, file, block, length, buffer, data);
    fb_volume_leave(volume);
}

/* All buffers are there. `left` counts the pieces to come and this call. */
static void start(struct fb_read *read)
{
    struct fb_cache *cache = read->volume->cache;
    unsigned fetch_at = 0, medium_at = read->fetch_count;
    bool pump = read->fetch_count > 0;
    bool alone = read->meanwhile && read->piece_count == 1;
    bool batched = read->batched; /* the read may be gone by then */
    struct fb_volume *volume = read->volume;

    for (unsigned i = 0; i < read->piece_count; i++) {
        struct fb_piece *piece = &read->pieces[i];

        if (piece->data)
            continue;
        if (piece->pinned) {
            piece->buffer = read->buffers[medium_at++];
            piece->medium = (struct fb_store_read){.pin = &piece->pin,
                                                   .offset = piece->offset,
                                                   .length = piece->length,
                                                   .buffer = piece->buffer,
                                                   .meanwhile = alone ? read->meanwhile : NULL,
                                                   .done = medium_done};
            /* A disk that hangs keeps this thread; it must not keep the read, which may be over
             * when this returns. */
            if (alone)
                piece_left(read);
            fb_store_read(cache->store, &piece->medium);
            if (alone) {
                fb_volume_leave(volume);
                return;
            }
        } else {
            fb_fetch_join(piece, read->buffers[fetch_at++]);
        }
    }
    piece_left(read);
    if (pump && !batched)
        fb_fetch_pump(volume);
    fb_volume_leave(volume); /* entered in fb_cache_read */
}

static void wait_over(struct fb_buffer_wait *wait);

/* Waits in line at `pool` for count buffers; true when they are there at once. */
static bool want_buffers(struct fb_read *read, struct fb_buffer_pool *pool, unsigned count,
                         struct fb_buffer **ret_buffers)
{
    struct fb_cache *cache = read->volume->cache;
    struct fb_buffer_account *account = pool == cache->fetch_pool ? read->volume->account : NULL;
    bool got;

    if (count == 0 || fb_buffer_get_many(pool, account, count, ret_buffers, NULL))
        return true;
    /* `ready` may come at once; it waits for the lock, and takes the read off the list. */
    fb_mutex_lock(&cache->fetch_lock);
    read->wait_pool = pool;
    read->wait.ready = wait_over;
    fb_list_init(&read->wait.link);
    got = fb_buffer_get_many(pool, account, count, ret_buffers, &read->wait);
    if (!got)
        fb_list_push_back(&cache->waiting, &read->link);
    fb_mutex_unlock(&cache->fetch_lock);
    if (!got)
        fb_buffer_serve(pool); /* the read may be over when this returns */
    return got;
}

static void want_medium_buffers(struct fb_read *read)
{
    if (want_buffers(read, read->volume->cache->medium_pool, read->medium_count,
                     read->buffers + read->fetch_count))
        start(read);
}

static void wait_over(struct fb_buffer_wait *wait)
{
    struct fb_read *read = FB_CONTAINER_OF(wait, struct fb_read, wait);
    struct fb_cache *cache = read->volume->cache;

    fb_mutex_lock(&cache->fetch_lock);
    fb_list_remove(&read->link);
    fb_mutex_unlock(&cache->fetch_lock);
    read->batched = false;  /* it comes late */
    read->meanwhile = NULL; /* and on a thread that is not its caller's */
    if (read->wait_pool == cache->fetch_pool)
        want_medium_buffers(read);
    else
        start(read);
}

/* Why a read should wait for buffers no longer, or 0. A source that hangs may hold all buffers that
 * fetches have; once it is known to be down, nobody waits for a turn to ask it. */
static int wait_is_over(struct fb_read *read, int64_t now_ns)
{
    struct fb_source_stats stats;

    if (fb_cancelled(read->cancel, &read->caller))
        return -EINTR;
    if (read->deadline_ns <= now_ns)
        return -ETIMEDOUT;
    if (read->volume->leaving) /* and its source is gone */
        return -ESHUTDOWN;
    if (read->wait_pool != read->volume->cache->fetch_pool)
        return 0;
    fb_source_stats(read->volume->source, &stats);
    return stats.health == FB_SOURCE_DOWN ? -EIO : 0;
}

/* A read that waited for buffers in vain, with the reason in its result. */
static void give_up(struct fb_read *read)
{
    struct fb_volume *volume = read->volume;
    int result = read->result;

    if (read->wait_pool == volume->cache->medium_pool)
        for (unsigned i = 0; i < read->fetch_count; i++)
            fb_buffer_put(read->buffers[i]);
    for (unsigned i = 0; i < read->piece_count; i++)
        if (!read->pieces[i].data)
            fb_piece_done(&read->pieces[i], result, FB_ACCESS_FAILED);
    piece_left(read);
    fb_volume_leave(volume);
}

void fb_read_expire(struct fb_cache *cache, int64_t now_ns)
{
    struct fb_list expired, *it, *tmp;

    fb_list_init(&expired);
    fb_mutex_lock(&cache->fetch_lock);
    FB_LIST_FOREACH (it, tmp, &cache->waiting) {
        struct fb_read *read = FB_LIST_ENTRY(it, struct fb_read, link);

        int result = wait_is_over(read, now_ns);

        if (result == 0 || !fb_buffer_cancel(read->wait_pool, &read->wait))
            continue;
        read->result = result;
        fb_list_remove(it);
        fb_list_push_back(&expired, it);
    }
    fb_mutex_unlock(&cache->fetch_lock);
    FB_LIST_FOREACH (it, tmp, &expired) {
        fb_list_remove(it);
        give_up(FB_LIST_ENTRY(it, struct fb_read, link));
    }
    fb_buffer_serve(cache->fetch_pool);
    fb_buffer_serve(cache->medium_pool);
}

/* Pins what is there; counts what is not. */
static void split(struct fb_read *read, uint64_t size)
{
    struct fb_cache *cache = read->volume->cache;
    uint32_t block_bytes = cache->config.block_bytes;
    uint64_t at = read->offset, end = fb_min_u64(size, read->offset + read->length);

    while (at < end) {
        struct fb_piece *piece = &read->pieces[read->piece_count++];
        uint64_t item_at = at / block_bytes * block_bytes;
        int rc;

        FB_ASSERT(read->piece_count <= FB_READ_PIECES);
        piece->read = read;
        piece->block = (uint32_t)(at / block_bytes);
        piece->offset = (uint32_t)(at - item_at);
        piece->item_length = (uint32_t)fb_min_u64(block_bytes, size - item_at);
        piece->length = (uint32_t)(fb_min_u64(item_at + piece->item_length, end) - at);
        piece->data = NULL;
        piece->buffer = NULL;
        piece->result = 0;
        at += piece->length;

        rc = read->volume->config.bypass
                 ? FB_STORE_MISS
                 : fb_store_pin(cache->store, fb_item_key(read->file, piece->block), &piece->pin);
        piece->pinned = rc != FB_STORE_MISS;
        /* Lengths follow from the version; an entry that disagrees is not this item. */
        if (piece->pinned && piece->pin.length != piece->item_length) {
            fb_store_unpin(cache->store, &piece->pin);
            piece->pinned = false;
        }
        if (piece->pinned && piece->pin.from_memory) {
            piece->data = piece->pin.data + piece->offset;
            piece->outcome = FB_ACCESS_MEMORY;
        } else if (piece->pinned) {
            read->medium_count++;
        } else {
            read->fetch_count++;
        }
    }
}

/* Blocks have 32-bit numbers. */
static bool beyond_blocks(const struct fb_cache *cache, uint64_t end)
{
    return end > (uint64_t)cache->config.block_bytes << 32;
}

void fb_read_submit(struct fb_read *read)
{
    struct fb_volume *volume = read->volume;
    struct fb_cache *cache = volume->cache;
    const struct fb_version *version;

    read->piece_count = 0;
    read->fetch_count = 0;
    read->medium_count = 0;
    read->bytes = 0;
    fb_list_init(&read->link);
    if (read->early)
        fb_metric_add(&cache->metrics, FB_CM_EARLY, 1);
    if (read->deadline_ns == 0)
        read->deadline_ns = fb_now_ns() + volume->config.timeout_ns;
    if (read->length > FB_READ_MAX)
        read->length = FB_READ_MAX;
    version = fb_files_version(cache->files, read->file);
    if (beyond_blocks(cache, fb_min_u64(version->size, read->offset + read->length))) {
        read->result = -EFBIG;
        read->done(read);
        return;
    }
    split(read, version->size);
    atomic_store_explicit(&read->left, read->fetch_count + read->medium_count + 1,
                          memory_order_relaxed);
    if (read->fetch_count + read->medium_count == 0) {
        piece_left(read);
        return;
    }
    read->alone = volume->config.bypass || !fb_version_settled(version, fb_wall_ns());
    fb_volume_enter(volume); /* left in start, or in give_up */
    if (want_buffers(read, cache->fetch_pool, read->fetch_count, read->buffers))
        want_medium_buffers(read);
}

void fb_cache_read(struct fb_read *read)
{
    struct fb_ahead ahead;
    bool more = !read->early && fb_ahead_plan(read, &ahead);

    read->soon = read->batched = false;
    /* Answered, the read may be gone. */
    fb_read_submit(read);
    if (more)
        fb_ahead_go(&ahead);
}

void fb_read_wanted(struct fb_read *read)
{
    for (unsigned i = 0; i < read->piece_count; i++)
        note_access(&read->pieces[i]);
    fb_metric_add(&read->volume->cache->metrics, FB_CM_EARLY_USED, 1);
}

void fb_read_release(struct fb_read *read)
{
    struct fb_cache *cache = read->volume->cache;

    for (unsigned i = 0; i < read->piece_count; i++) {
        struct fb_piece *piece = &read->pieces[i];

        if (piece->pinned)
            fb_store_unpin(cache->store, &piece->pin);
        fb_buffer_put(piece->buffer);
        piece->pinned = false;
        piece->buffer = NULL;
    }
    read->piece_count = 0;
}

bool fb_cache_on_medium(struct fb_volume *volume, uint32_t file)
{
    struct fb_cache *cache = volume->cache;
    uint64_t size = fb_files_version(cache->files, file)->size;
    struct fb_pin pin;
    int rc;

    if (volume->config.bypass || size == 0 || size > cache->config.block_bytes)
        return false;
    rc = fb_store_pin(cache->store, fb_item_key(file, 0), &pin);
    if (rc != FB_STORE_MISS)
        fb_store_unpin(cache->store, &pin);
    return rc == FB_STORE_MEDIUM;
}

bool fb_cache_medium_is_free(struct fb_cache *cache)
{
    return 2 * fb_buffer_pool_free(cache->medium_pool) >= fb_buffer_pool_count(cache->medium_pool);
}

static void note_copy(struct fb_volume *volume, unsigned thread, const struct fb_caller *caller,
                      uint64_t key, uint32_t offset, uint32_t length)
{
    struct fb_access_ring *ring = volume->cache->rings[thread % FB_ACCESS_RINGS];
    struct fb_access access;

    if (fb_access_full(ring, FB_ACCESS_SPARE)) {
        fb_access_drop(ring);
        return;
    }
    access = (struct fb_access){.time_ns = fb_now_coarse_ns(),
                                .key = key,
                                .offset = offset,
                                .length = length,
                                .pid = caller->pid,
                                .uid = caller->uid,
                                .source = volume->id,
                                .outcome = FB_ACCESS_MEMORY};
    fb_access_push(ring, &access);
}

int64_t fb_cache_copy(struct fb_volume *volume, const struct fb_caller *caller, uint32_t file,
                      uint64_t offset, uint32_t length, void *ret_data)
{
    struct fb_cache *cache = volume->cache;
    uint32_t block_bytes = cache->config.block_bytes;
    uint64_t size = fb_files_version(cache->files, file)->size;
    uint64_t at = offset, end = fb_min_u64(size, offset + length);
    unsigned thread = fb_thread_index();

    if (beyond_blocks(cache, end))
        return -EFBIG;
    while (at < end) {
        uint32_t block = (uint32_t)(at / block_bytes);
        uint32_t in_item = (uint32_t)(at - (uint64_t)block * block_bytes);
        uint32_t want = (uint32_t)fb_min_u64(block_bytes - in_item, end - at);
        uint64_t key = fb_item_key(file, block);
        int64_t got =
            fb_store_copy(cache->store, key, in_item, want, (uint8_t *)ret_data + (at - offset));

        if (got != want)
            return -ENOENT;
        note_copy(volume, thread, caller, key, in_item, want);
        fb_metric_add_at(&cache->metrics, thread, FB_CM_READS, 1);
        fb_metric_add_at(&cache->metrics, thread, FB_CM_READ_BYTES, want);
        fb_metric_add_at(&cache->metrics, thread, FB_CM_HITS_DRAM, 1);
        fb_metric_add_at(&cache->metrics, thread, FB_CM_HIT_BYTES_DRAM, want);
        at += want;
    }
    return at > offset ? (int64_t)(at - offset) : 0;
}

/* ---- for those who can wait ---- */

static void wake(struct fb_read *read)
{
    fb_event_set(read->arg);
}

static int64_t pread_once(struct fb_volume *volume, uint32_t file, uint64_t offset, uint32_t length,
                          bool steady, uint8_t *ret_data)
{
    struct fb_event answered;
    struct fb_read read = {.volume = volume,
                           .steady = steady,
                           .file = file,
                           .offset = offset,
                           .length = length,
                           .done = wake,
                           .arg = &answered};
    int64_t got;

    fb_event_init(&answered);
    fb_cache_read(&read);
    fb_event_wait(&answered);
    got = read.result < 0 ? read.result : (int64_t)read.bytes;
    for (unsigned i = 0; i < read.piece_count; i++) {
        memcpy(ret_data, read.pieces[i].data, read.pieces[i].length);
        ret_data += read.pieces[i].length;
    }
    fb_read_release(&read);
    return got;
}

static int64_t pread_all(struct fb_volume *volume, uint32_t file, uint64_t offset, uint32_t length,
                         bool steady, void *ret_data)
{
    uint64_t total = 0;

    while (total < length) {
        uint32_t want = (uint32_t)fb_min_u64(length - total, FB_READ_MAX);
        int64_t got =
            pread_once(volume, file, offset + total, want, steady, (uint8_t *)ret_data + total);

        if (got < 0)
            return got;
        total += (uint64_t)got;
        if (got < want)
            break;
    }
    return (int64_t)total;
}

int64_t fb_cache_pread(struct fb_volume *volume, uint32_t file, uint64_t offset, uint32_t length,
                       void *ret_data)
{
    return pread_all(volume, file, offset, length, false, ret_data);
}

int64_t fb_cache_pread_steadily(struct fb_volume *volume, uint32_t file, uint64_t offset,
                                uint32_t length, void *ret_data)
{
    return pread_all(volume, file, offset, length, true, ret_data);
}
