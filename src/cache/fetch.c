/*
 * Fetches: one an item however many wait, adjacent ones in one request, within limits.
 *
 *     QUEUED ── pump ──► RUNNING ── the source answers ──► ANSWERED ── admitted ──► gone
 *                                       │          └─ failed ──► gone
 *                                       └─ fetched ahead, and no room: PARKED ──► read, or too
 *                                          old, or others are parked ──► gone
 *
 * A fetch is in the table from the first miss until its bytes have been admitted, so whoever misses
 * in between joins it: while QUEUED or RUNNING as a waiter, while ANSWERED by taking its buffer.
 * The pump sends the oldest queued fetch together with its queued neighbours in the same file, up
 * to FB_SOURCE_READ_MAX, and keeps at most max_fetches requests at a source.
 *
 * What was fetched ahead of a reader and would have to displace something waits in its buffer for
 * the reader instead, for PARK_NS at most, in up to half of the volume's buffers.
 *
 * Failures are answered to all who wait and not remembered. A version that changed retires the
 * record on the spot, as the source has just told us what is there now.
 */
#include <errno.h>

#include "base/assert.h"
#include "cache/cache_priv.h"
#include "core/clock.h"
#include "core/mem.h"

#define PARK_NS   (20 * FB_NS_PER_S)
#define PASSED_NS FB_NS_PER_S /* one that makes room for others: its reader has passed by */
#define RUN_MAX   64u /* items in one request; of 128 KiB or more they make FB_SOURCE_READ_MAX */

enum fetch_state {
    FETCH_QUEUED,
    FETCH_RUNNING,
    FETCH_ANSWERED,
    FETCH_PARKED,
};

struct fetch {
    struct fb_list table_link;
    struct fb_list queue_link;
    struct fb_list waiters; /* pieces */
    struct fb_volume *volume;
    struct fb_buffer *buffer;
    uint64_t key;
    uint32_t file; /* with a reference */
    uint32_t block;
    uint32_t skip;   /* bytes of the item before what is fetched; 0 for what is to be kept */
    uint32_t length; /* fetched */
    bool alone;      /* for one read, and not kept: in the volume's list instead of the table */
    bool soon;       /* see struct fb_read */
    bool patient;    /* nobody waits, nor will at once */
    bool park;       /* nobody has asked for it yet, but will; guarded by fetch_lock */
    enum fetch_state state;
    uint64_t evictions; /* while parked: those that had been when it was sent, */
    int64_t parked_ns;  /* and since when */
    int64_t deadline_ns;
    struct fb_caller caller;
};

/* One request to the source: neighbours in one file. */
struct run {
    struct fb_volume *volume;
    uint64_t evictions; /* that had been when it was sent */
    uint64_t asked;     /* the moment of then */
    int64_t sent_ns;
    struct fetch *fetches[RUN_MAX];
    unsigned count;
    bool patient;          /* nobody waits for any of them */
    uint64_t demand_bytes; /* counted in the volume */
};

static_assert(RUN_MAX <= FB_SOURCE_IOV_MAX, "each item of a run has its own buffer");

static struct fb_list *bucket(struct fb_cache *cache, uint64_t key)
{
    return &cache->fetches[fb_mix64(key) % FB_FETCH_BUCKETS];
}

/* Two mounts of one source know a file by the same id, but each asks for itself: a mount that hangs
 * or ends must not fail the other's reads. */
static struct fetch *find_locked(struct fb_cache *cache, const struct fb_volume *volume,
                                 uint64_t key)
{
    struct fb_list *head = bucket(cache, key), *it, *tmp;

    FB_LIST_FOREACH (it, tmp, head) {
        struct fetch *f = FB_LIST_ENTRY(it, struct fetch, table_link);

        if (f->key == key && f->volume == volume)
            return f;
    }
    return NULL;
}

static struct fetch *fetch_new(struct fb_piece *piece, struct fb_buffer *buffer)
{
    struct fb_read *read = piece->read;
    struct fetch *f = fb_alloc(sizeof *f);

    if (!f)
        return NULL;
    f->volume = read->volume;
    f->buffer = buffer;
    f->key = fb_item_key(read->file, piece->block);
    f->file = read->file;
    f->block = piece->block;
    f->length = piece->item_length;
    f->alone = read->alone;
    f->soon = read->soon;
    f->patient = read->early && !read->soon;
    f->park = read->early && read->park;
    if (f->alone) {
        uint64_t end = fb_align_up((uint64_t)piece->offset + piece->length, FB_IO_ALIGN);

        f->skip = (uint32_t)fb_align_down(piece->offset, FB_IO_ALIGN);
        f->length = (uint32_t)fb_min_u64(end, piece->item_length) - f->skip;
    }
    f->deadline_ns = read->deadline_ns;
    f->caller = read->caller;
    fb_list_init(&f->waiters);
    fb_list_init(&f->table_link);
    fb_list_init(&f->queue_link);
    fb_files_ref(read->volume->cache->files, f->file, 1);
    return f;
}

/* Its volume may be gone by now. */
static void fetch_free(struct fb_cache *cache, struct fetch *f)
{
    fb_files_unref(cache->files, f->file, 1);
    fb_buffer_put(f->buffer);
    free(f);
}

static void take_bytes(struct fb_piece *piece, struct fetch *f)
{
    piece->buffer = fb_buffer_ref(f->buffer);
    piece->data = piece->buffer->data + (piece->offset - f->skip);
}

static void unpark_locked(struct fetch *f, struct fb_list *gone)
{
    f->volume->parked_count--;
    fb_list_remove(&f->table_link);
    fb_list_remove(&f->queue_link);
    fb_list_push_back(gone, &f->queue_link);
}

static void free_all(struct fb_cache *cache, struct fb_list *gone)
{
    struct fb_list *it, *tmp;

    FB_LIST_FOREACH (it, tmp, gone) {
        fb_list_remove(it);
        fetch_free(cache, FB_LIST_ENTRY(it, struct fetch, queue_link));
    }
}

/* What is under way or parked for the same item; a fetch from before an eviction by hand must not
 * answer who reads after it. */
static struct fetch *find_usable_locked(struct fb_cache *cache, const struct fetch *fresh,
                                        struct fb_list *gone)
{
    struct fetch *f = fresh->alone ? NULL : find_locked(cache, fresh->volume, fresh->key);

    if (f && f->state == FETCH_PARKED && f->evictions != atomic_load(&cache->evictions)) {
        unpark_locked(f, gone);
        return NULL;
    }
    return f;
}

/* What the reader did not find has come since, while it waited for a buffer as a rule: a fetch
 * leaves the table only after its bytes have their place. On a medium it is fetched again, since
 * the reader has no buffer for that, or has just seen the medium fail. */
static bool came_meanwhile(struct fb_cache *cache, struct fb_piece *piece)
{
    uint64_t key = fb_item_key(piece->read->file, piece->block);

    if (piece->read->alone || fb_store_pin(cache->store, key, &piece->pin) == FB_STORE_MISS)
        return false;
    if (!piece->pin.from_memory || piece->pin.length != piece->item_length) {
        fb_store_unpin(cache->store, &piece->pin);
        return false;
    }
    piece->pinned = true;
    piece->data = piece->pin.data + piece->offset;
    piece->outcome = FB_ACCESS_MEMORY;
    return true;
}

/* Takes `buffer` over. The caller pumps when it has no more to add. */
void fb_fetch_join(struct fb_piece *piece, struct fb_buffer *buffer)
{
    struct fb_cache *cache = piece->read->volume->cache;
    struct fetch *fresh = fetch_new(piece, buffer), *f;
    struct fb_list gone;
    bool answered = false, served;

    if (!fresh) {
        fb_buffer_put(buffer);
        fb_piece_done(piece, -ENOMEM, FB_ACCESS_FAILED);
        return;
    }
    fb_list_init(&gone);
    fb_mutex_lock(&cache->fetch_lock);
    f = find_usable_locked(cache, fresh, &gone);
    if (!f && came_meanwhile(cache, piece)) {
        answered = true;
    } else if (!f) {
        f = fresh;
        fresh = NULL;
        piece->outcome = FB_ACCESS_FETCHED;
        fb_list_push_back(f->alone ? &f->volume->alone : bucket(cache, f->key), &f->table_link);
        fb_list_push_back(&f->volume->pending, &f->queue_link);
    } else {
        piece->outcome = f->state == FETCH_PARKED ? FB_ACCESS_MEMORY : FB_ACCESS_JOINED;
        f->park = f->park && piece->read->early;
        f->patient = f->patient && piece->read->early;
        /* Not sent yet, it has as long as who comes to wait for it. */
        if (f->state == FETCH_QUEUED && f->deadline_ns < piece->read->deadline_ns)
            f->deadline_ns = piece->read->deadline_ns;
    }
    if (f && (f->state == FETCH_ANSWERED || f->state == FETCH_PARKED)) {
        answered = true;
        take_bytes(piece, f);
        /* Read to its end, it has served. */
        if (f->state == FETCH_PARKED && !f->park && piece->offset + piece->length == f->length)
            unpark_locked(f, &gone);
    } else if (f) {
        fb_list_push_back(&f->waiters, &piece->link);
    }
    fb_mutex_unlock(&cache->fetch_lock);
    if (fresh)
        fetch_free(cache, fresh);
    served = !fb_list_empty(&gone);
    free_all(cache, &gone);
    if (answered)
        fb_piece_done(piece, 0, piece->outcome);
    if (served)
        fb_bring_tick(cache->bring); /* the next may come */
}

/* Ends the waiting: with bytes, or with an error, which also takes the fetch out of the table. */
static void fetch_answer(struct fetch *f, int result)
{
    struct fb_cache *cache = f->volume->cache;
    struct fb_list waiters, *it, *tmp;

    fb_list_init(&waiters);
    fb_mutex_lock(&cache->fetch_lock);
    f->state = FETCH_ANSWERED;
    fb_list_splice(&waiters, &f->waiters);
    if (result < 0)
        fb_list_remove(&f->table_link);
    fb_mutex_unlock(&cache->fetch_lock);
    FB_LIST_FOREACH (it, tmp, &waiters) {
        struct fb_piece *piece = FB_LIST_ENTRY(it, struct fb_piece, link);

        fb_list_remove(it);
        if (result == 0)
            take_bytes(piece, f);
        fb_piece_done(piece, result, piece->outcome);
    }
}

/* Twice as many may be parked (see park()): they leave what one read needs. */
static uint32_t park_max(const struct fb_volume *volume)
{
    uint32_t limit = volume->account->limit;
    uint32_t one = FB_READ_MAX / volume->cache->config.block_bytes + 2;

    return (uint32_t)fb_min_u64(limit / 4, limit > one ? (limit - one) / 2 : 0);
}

bool fb_fetch_may_park(struct fb_volume *volume, unsigned coming)
{
    int64_t passed_ns = fb_now_ns() - PASSED_NS;
    bool may;

    fb_mutex_lock(&volume->cache->fetch_lock);
    may = volume->parked_count + coming < park_max(volume) ||
          (volume->parked_count > 0 &&
           FB_LIST_ENTRY(volume->parked.next, struct fetch, queue_link)->parked_ns < passed_ns);
    fb_mutex_unlock(&volume->cache->fetch_lock);
    return may;
}

/* Leaves it in its buffer for the reader to come; false when one has come already. The oldest make
 * room. */
static bool park(struct fetch *f, uint64_t evictions)
{
    struct fb_volume *volume = f->volume;
    struct fb_cache *cache = volume->cache;
    /* Besides those of bring.c that had begun when there was room. */
    uint32_t most = f->soon ? park_max(volume) : 2 * park_max(volume);
    struct fb_list gone;
    bool parked;

    fb_list_init(&gone);
    fb_mutex_lock(&cache->fetch_lock);
    parked = f->park && most > 0 && !volume->leaving;
    if (parked) {
        f->state = FETCH_PARKED;
        f->evictions = evictions;
        f->parked_ns = fb_now_ns();
        fb_list_push_back(&volume->parked, &f->queue_link);
        volume->parked_count++;
        while (volume->parked_count > most)
            unpark_locked(FB_LIST_ENTRY(volume->parked.next, struct fetch, queue_link), &gone);
    }
    fb_mutex_unlock(&cache->fetch_lock);
    free_all(cache, &gone);
    return parked;
}

bool fb_fetch_is_under_way(struct fb_volume *volume, uint32_t file, uint32_t block)
{
    struct fb_cache *cache = volume->cache;
    const struct fetch *f;
    bool under_way;

    fb_mutex_lock(&cache->fetch_lock);
    f = find_locked(cache, volume, fb_item_key(file, block));
    under_way = f && f->state != FETCH_PARKED;
    fb_mutex_unlock(&cache->fetch_lock);
    return under_way;
}

void fb_fetch_unpark_key(struct fb_cache *cache, uint64_t key)
{
    struct fb_list gone, *it, *tmp;

    fb_list_init(&gone);
    fb_mutex_lock(&cache->fetch_lock);
    FB_LIST_FOREACH (it, tmp, bucket(cache, key)) {
        struct fetch *f = FB_LIST_ENTRY(it, struct fetch, table_link);

        if (f->key == key && f->state == FETCH_PARKED)
            unpark_locked(f, &gone);
    }
    fb_mutex_unlock(&cache->fetch_lock);
    free_all(cache, &gone);
}

void fb_fetch_unpark(struct fb_cache *cache, struct fb_volume *only, int64_t before_ns)
{
    struct fb_list gone, *v, *vtmp, *it, *tmp;

    fb_list_init(&gone);
    fb_mutex_lock(&cache->fetch_lock);
    FB_LIST_FOREACH (v, vtmp, &cache->volumes) {
        struct fb_volume *volume = FB_LIST_ENTRY(v, struct fb_volume, link);

        if (only && volume != only)
            continue;
        FB_LIST_FOREACH (it, tmp, &volume->parked) {
            struct fetch *f = FB_LIST_ENTRY(it, struct fetch, queue_link);

            if (f->parked_ns > before_ns)
                break;
            unpark_locked(f, &gone);
        }
    }
    fb_mutex_unlock(&cache->fetch_lock);
    free_all(cache, &gone);
}

/* The bytes are good and all who waited have them: keep them, unless the file is too young. */
static void fetch_keep(struct fetch *f, bool keep, uint64_t evictions)
{
    struct fb_cache *cache = f->volume->cache;
    struct fb_item item = {.file = f->file,
                           .block = f->block,
                           .length = f->length,
                           .far = fb_source_is_far(f->volume->source),
                           .data = f->buffer->data};

    if (keep && fb_place_is_full(cache) &&
        fb_steer_parks(cache->steer, f->file, f->length, f->soon) && park(f, evictions))
        return;
    if (keep)
        fb_place_admit(cache, &item, evictions, f->soon);
    fb_mutex_lock(&cache->fetch_lock);
    fb_list_remove(&f->table_link);
    fb_mutex_unlock(&cache->fetch_lock);
    fetch_free(cache, f);
}

/* Whether what the record stands for is no longer there: another version, another kind of file, or
 * nothing. To who has the file open these are all one. */
static bool moved_on(int result)
{
    return result == -ESTALE || result == -ENOENT || result == -ENOTDIR || result == -EISDIR ||
           result == -ELOOP;
}

static int run_verdict(const struct run *run, const struct fb_source_job *job, unsigned i)
{
    uint64_t before = 0;

    if (job->result < 0)
        return moved_on(job->result) ? -ESTALE : job->result;
    for (unsigned j = 0; j < i; j++)
        before += run->fetches[j]->length;
    return before + run->fetches[i]->length <= job->bytes ? 0 : -EIO;
}

/* Whether the bytes may be kept; asked at the end of the fetch, with the clock of then. */
static bool may_keep(struct run *run)
{
    struct fb_cache *cache = run->volume->cache;
    const struct fb_version *v = fb_files_version(cache->files, run->fetches[0]->file);

    if (run->volume->config.bypass)
        return false;
    if (!run->fetches[0]->alone && fb_version_settled(v, fb_wall_ns() - FB_NS_PER_MS))
        return true;
    fb_metric_add(&cache->metrics, FB_CM_UNSETTLED, run->count);
    return false;
}

static void source_changed(struct run *run, const struct fb_source_job *job)
{
    struct fb_cache *cache = run->volume->cache;
    uint32_t file = FB_FILE_NONE;
    int result = job->result == -ESTALE ? 0 : job->result;

    fb_metric_add(&cache->metrics, FB_CM_STALE, run->count);
    /* It is no longer a file: what it is, the next look-up asks. */
    if (result == -EISDIR || result == -ELOOP)
        fb_cache_forget(run->volume, job->path);
    if (fb_meta_settle(run->volume, job->path, result, &job->attr, &file) < 0)
        return;
    /* What was changed through a door since then is believed once only. */
    if (run->asked != fb_cache_moment(run->volume, job->path))
        fb_files_set_valid_until(cache->files, file, FB_FILES_OUTDATED_NS);
    fb_files_unref(cache->files, file, 1);
}

static void run_done(struct fb_source_job *job)
{
    struct run *run = job->arg;
    struct fb_volume *volume = run->volume;
    struct fb_cache *cache = volume->cache;
    bool keep = job->result == 0 && may_keep(run);
    int verdicts[RUN_MAX];

    fb_volume_enter(volume);
    fb_mutex_lock(&cache->fetch_lock);
    volume->running--;
    volume->demand_bytes -= run->demand_bytes;
    fb_mutex_unlock(&cache->fetch_lock);
    fb_metric_add(&cache->metrics, FB_CM_FETCH_BYTES, job->result == 0 ? job->bytes : 0);
    if (job->result < 0)
        fb_metric_add(&cache->metrics, FB_CM_FETCH_ERRORS, 1);
    else
        fb_pipe_read(volume, fb_now_ns() - run->sent_ns, job->bytes);
    if (moved_on(job->result))
        source_changed(run, job);
    for (unsigned i = 0; i < run->count; i++) {
        verdicts[i] = run_verdict(run, job, i);
        fetch_answer(run->fetches[i], verdicts[i]);
    }
    fb_fetch_pump(volume);
    for (unsigned i = 0; i < run->count; i++) {
        if (verdicts[i] == 0)
            fetch_keep(run->fetches[i], keep, run->evictions);
        else
            fetch_free(volume->cache, run->fetches[i]);
    }
    free(run);
    fb_source_job_put(job);
    fb_volume_leave(volume);
}

/* Takes the oldest queued fetch and its queued neighbours. */
static void gather_locked(struct fb_volume *volume, struct run *run)
{
    struct fb_cache *cache = volume->cache;
    struct fetch *first = FB_LIST_ENTRY(volume->pending.next, struct fetch, queue_link);
    unsigned most = (unsigned)fb_min_u64(RUN_MAX, FB_SOURCE_READ_MAX / cache->config.block_bytes);
    struct fetch *f = first;

    if (most == 0)
        most = 1;
    for (unsigned back = 1; back < most && f->block > 0 && !first->alone; back++) {
        struct fetch *before = find_locked(cache, volume, f->key - 1);

        if (!before || before->state != FETCH_QUEUED)
            break;
        f = before;
    }
    run->volume = volume;
    run->patient = true;
    run->evictions = atomic_load(&cache->evictions);
    run->asked = fb_cache_moment(volume, fb_files_path(cache->files, first->file, NULL));
    while (f && f->state == FETCH_QUEUED && run->count < most) {
        bool last = f->block == UINT32_MAX || f->alone;

        f->state = FETCH_RUNNING;
        fb_list_remove(&f->queue_link);
        run->patient = run->patient && f->patient;
        run->demand_bytes += f->patient ? 0 : f->length;
        run->fetches[run->count++] = f;
        f = last ? NULL : find_locked(cache, volume, f->key + 1);
    }
}

/* A job for the run, or NULL without memory. */
static struct fb_source_job *run_job(struct run *run)
{
    struct fb_cache *cache = run->volume->cache;
    struct fetch *first = run->fetches[0];
    struct fb_source_job *job =
        fb_source_job_new(FB_SOURCE_READ, fb_files_path(cache->files, first->file, NULL));

    if (!job)
        return NULL;
    job->caller = first->caller;
    job->deadline_ns = first->deadline_ns;
    job->patient = run->patient;
    job->offset = (uint64_t)first->block * cache->config.block_bytes + first->skip;
    job->expected = *fb_files_version(cache->files, first->file);
    job->expect = &job->expected;
    for (unsigned i = 0; i < run->count; i++) {
        struct fetch *f = run->fetches[i];

        job->buffers[i] = fb_buffer_ref(f->buffer);
        job->iov[i] = (struct iovec){.iov_base = f->buffer->data, .iov_len = f->length};
        if (f->deadline_ns > job->deadline_ns)
            job->deadline_ns = f->deadline_ns;
    }
    job->buffer_count = run->count;
    job->iov_count = run->count;
    job->done = run_done;
    job->arg = run;
    return job;
}

static void run_fail(struct run *run, int result)
{
    for (unsigned i = 0; i < run->count; i++) {
        fetch_answer(run->fetches[i], result);
        fetch_free(run->volume->cache, run->fetches[i]);
    }
}

/* Sends queued fetches for as long as the source may have more. */
void fb_fetch_pump(struct fb_volume *volume)
{
    struct fb_cache *cache = volume->cache;

    for (;;) {
        struct run *run = fb_alloc(sizeof *run);
        struct fb_source_job *job = NULL;
        bool leaving;

        if (!run)
            return; /* the next answer, or the watch thread, tries again */
        fb_mutex_lock(&cache->fetch_lock);
        leaving = volume->leaving;
        if (volume->running < cache->config.max_fetches && !fb_list_empty(&volume->pending)) {
            gather_locked(volume, run);
            volume->running++;
            volume->demand_bytes += run->demand_bytes;
            volume->holds++; /* the source must not be closed before it is sent */
        }
        fb_mutex_unlock(&cache->fetch_lock);
        if (run->count == 0) {
            free(run);
            return;
        }
        job = leaving ? NULL : run_job(run);
        if (!job) {
            fb_mutex_lock(&cache->fetch_lock);
            volume->running--;
            volume->demand_bytes -= run->demand_bytes;
            fb_mutex_unlock(&cache->fetch_lock);
            run_fail(run, leaving ? -ESHUTDOWN : -ENOMEM);
            free(run);
            fb_volume_let_go(volume);
            if (leaving)
                continue;
            return;
        }
        fb_metric_add(&cache->metrics, FB_CM_FETCHES, 1);
        run->sent_ns = fb_now_ns();
        fb_source_submit(volume->source, job);
        fb_volume_let_go(volume);
    }
}

/* Queued fetches whose time ran out before they could be sent. */
void fb_fetch_expire(struct fb_cache *cache, int64_t now_ns)
{
    struct fb_list expired, *v, *vtmp, *it, *tmp;

    fb_fetch_unpark(cache, NULL, now_ns - PARK_NS);
    fb_list_init(&expired);
    fb_mutex_lock(&cache->fetch_lock);
    FB_LIST_FOREACH (v, vtmp, &cache->volumes) {
        struct fb_volume *volume = FB_LIST_ENTRY(v, struct fb_volume, link);

        FB_LIST_FOREACH (it, tmp, &volume->pending) {
            struct fetch *f = FB_LIST_ENTRY(it, struct fetch, queue_link);

            if (f->deadline_ns > now_ns)
                continue;
            f->state = FETCH_RUNNING; /* nobody gathers it; joiners still get its answer */
            volume->busy++;
            fb_list_remove(it);
            fb_list_push_back(&expired, it);
        }
    }
    fb_mutex_unlock(&cache->fetch_lock);
    FB_LIST_FOREACH (it, tmp, &expired) {
        struct fetch *f = FB_LIST_ENTRY(it, struct fetch, queue_link);
        struct fb_volume *volume = f->volume;

        fb_list_remove(it);
        fetch_answer(f, -ETIMEDOUT);
        fetch_free(cache, f);
        fb_volume_leave(volume);
    }
}

static void collect_cancelled(struct fb_list *fetches, struct fb_list *cancelled)
{
    struct fb_list *it, *tmp, *w, *wtmp;

    FB_LIST_FOREACH (it, tmp, fetches) {
        struct fetch *f = FB_LIST_ENTRY(it, struct fetch, table_link);

        FB_LIST_FOREACH (w, wtmp, &f->waiters) {
            struct fb_read *read = FB_LIST_ENTRY(w, struct fb_piece, link)->read;

            if (!fb_cancelled(read->cancel, &read->caller))
                continue;
            fb_list_remove(w);
            fb_list_push_back(cancelled, w);
        }
    }
}

void fb_fetch_cancel(struct fb_cache *cache)
{
    struct fb_list cancelled, *it, *tmp;

    fb_list_init(&cancelled);
    fb_mutex_lock(&cache->fetch_lock);
    for (unsigned i = 0; i < FB_FETCH_BUCKETS; i++)
        collect_cancelled(&cache->fetches[i], &cancelled);
    FB_LIST_FOREACH (it, tmp, &cache->volumes)
        collect_cancelled(&FB_LIST_ENTRY(it, struct fb_volume, link)->alone, &cancelled);
    fb_mutex_unlock(&cache->fetch_lock);
    FB_LIST_FOREACH (it, tmp, &cancelled) {
        fb_list_remove(it);
        fb_piece_done(FB_LIST_ENTRY(it, struct fb_piece, link), -EINTR, FB_ACCESS_FAILED);
    }
}
