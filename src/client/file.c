/*
 * Files: found, read from shared memory, or asked for.
 *
 * A hit, without a lock and without a system call:
 *
 *     1. probe the index for (record id, block)             one cache line, mostly
 *     2. the segment's generation fits the location         one
 *     3. copy
 *     4. the generation still fits, and the file's record is still the one that was opened: ids are
 *        given out again, and the key alone would not tell
 *
 * Pages. A page of shared memory costs this process an entry in its page table when it first
 * touches it, as much as copying it: a process that reads everything again and again wants all of
 * them, one that reads a fourth of the items once (a worker of a data loader) only its own. So a
 * stretch of 2 MiB is made present as a whole when it has been read a number of times; before, the
 * kernel maps 64 KiB at each fault.
 */
#include <string.h>

#include "client/client_priv.h"

#ifndef MADV_POPULATE_READ
# define MADV_POPULATE_READ 22
#endif

#define PREFETCH_BYTES 4096u
#define POPULATE_FROM  16 /* reads of a stretch */
#define COARSE_NS      100000000LL
#define EXACT_READS    1024 /* of a process: by their order the shuffle of a loader is found */

/* ---- opening ---- */

const struct fb_client_place *fb_client_place(const struct fb_session *session, const char *path)
{
    const struct fb_client_place *best = NULL;

    for (uint32_t i = 0; i < session->place_count; i++) {
        const struct fb_client_place *p = &session->places[i];

        if (p->usable && strncmp(path, p->path, p->path_len) == 0 &&
            (path[p->path_len] == '/' || path[p->path_len] == '\0') &&
            (!best || p->path_len > best->path_len))
            best = p;
    }
    return best;
}

/* The coarse clock is behind, by milliseconds or by what a virtual machine stood still: it tells
 * what is good for long enough, and costs a fifth. */
static bool is_past(int64_t until_ns)
{
    return until_ns - fb_client_coarse_ns() < COARSE_NS && until_ns <= fb_client_now_ns();
}

/* From the table. False: not there, or to be asked about. */
static bool look(const struct fb_session *s, const char *path, struct fb_client_file *f)
{
    const struct fb_layout *l = &s->layout;
    uint64_t hash = fb_path_hash(f->source, path, f->path_len);
    const struct fb_layout_file *record;
    struct fb_found_file found;

    fb_layout_prefetch_file(l, hash);
    if (!fb_layout_find_file(l, hash, f->source, path, f->path_len, &found) ||
        is_past(found.valid_until_ns))
        return false;
    record = fb_layout_file(l, found.id);
    if (!fb_layout_file_attr(record, &f->attr))
        return false;
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&record->gen, memory_order_relaxed) != found.gen)
        return false;
    f->id = found.id;
    f->gen = found.gen;
    f->path_hash = hash;
    return true;
}

static int ask_open(struct fb_client *client, const char *path, struct fb_client_file *f)
{
    struct fb_client_request request = {.op = FB_CLIENT_OPEN, .source = f->source};
    struct fb_client_reply reply;
    int rc = fb_client_ask(client, &request, path, &reply, NULL, 0, NULL);

    if (rc == -ELOOP)
        return FB_CLIENT_LINK;
    if (rc < 0)
        return FB_CLIENT_PASS;
    f->id = reply.file;
    f->gen = reply.file_gen;
    f->attr = reply.attr;
    f->path_hash = fb_path_hash(f->source, path, f->path_len);
    return 0;
}

/* ---- changes ---- */

/* A daemon may live all the same: no descriptor was left to reach it with, or it was too busy to
 * answer. What it knows it doubts when it is reached: how much is changed until then nobody can
 * write down. */
static void miss(struct fb_client *client)
{
    if (!atomic_load_explicit(&client->off, memory_order_relaxed) &&
        atomic_exchange(&client->missed, FB_UNTOLD_PATH) == FB_UNTOLD_NONE)
        atomic_fetch_add(&client->untold_count, 1);
}

/* False: there is a daemon, and it did not hear. One that does not live knows nothing that it will
 * believe. */
static bool tell(struct fb_client *client, const char *path, uint32_t flags)
{
    struct fb_client_request request = {.op = FB_CLIENT_FORGET, .flags = flags};
    const struct fb_session *before = atomic_load_explicit(&client->session, memory_order_acquire);
    struct fb_session *s = fb_client_session(client);
    const struct fb_client_place *place = s ? fb_client_place(s, path) : NULL;
    struct fb_client_reply reply;

    /* One that hangs doubts by itself. */
    if (!s && (!before || atomic_load(&client->session) != before))
        miss(client);
    if (!place || strlen(path) <= place->path_len + 1u)
        return true;
    request.source = place->source;
    return fb_client_ask(client, &request, path + place->path_len + 1, &reply, NULL, 0, NULL) !=
           -FB_CLIENT_GONE;
}

/* Without a path: that something was changed. */
static bool tell_all(struct fb_client *client)
{
    const struct fb_session *s = fb_client_session(client);
    bool told = s != NULL;

    for (uint32_t i = 0; told && i < s->place_count; i++) {
        struct fb_client_request request = {.op = FB_CLIENT_FORGET, .source = s->places[i].source};
        struct fb_client_reply reply;

        told = fb_client_ask(client, &request, "", &reply, NULL, 0, NULL) != -FB_CLIENT_GONE;
    }
    return told;
}

static bool tell_missed(struct fb_client *client)
{
    int to_tell = FB_UNTOLD_PATH, busy = FB_UNTOLD_BUSY;

    if (!atomic_compare_exchange_strong(&client->missed, &to_tell, FB_UNTOLD_BUSY))
        return to_tell == FB_UNTOLD_NONE;
    if (!tell_all(client)) {
        atomic_store(&client->missed, FB_UNTOLD_PATH);
        return false;
    }
    /* More was missed meanwhile, perhaps. */
    if (!atomic_compare_exchange_strong(&client->missed, &busy, FB_UNTOLD_NONE))
        return false;
    atomic_fetch_sub(&client->untold_count, 1);
    return true;
}

/* True: nothing is left to be told. */
static bool tell_rest(struct fb_client *client)
{
    if (!tell_missed(client))
        return false;
    for (unsigned i = 0; i < FB_CLIENT_UNTOLD; i++) {
        struct fb_client_untold *u = &client->untold[i];
        int state = FB_UNTOLD_PATH;
        bool told;

        if (!atomic_compare_exchange_strong(&u->state, &state, FB_UNTOLD_BUSY))
            continue;
        told = tell(client, u->path, 0);
        atomic_store(&u->state, told ? FB_UNTOLD_NONE : FB_UNTOLD_PATH);
        if (!told)
            return false;
        atomic_fetch_sub(&client->untold_count, 1);
    }
    return atomic_load(&client->untold_count) == 0;
}

/* Who was at a slot is not in the child to leave it. A path that is half written is some path: the
 * last byte of a slot is always 0. One that was not counted yet is its writer's to tell. */
void fb_client_recount_untold(struct fb_client *client)
{
    uint32_t count = 0;

    if (fb_likely(atomic_load(&client->untold_count) == 0))
        return;
    if (atomic_load(&client->missed) != FB_UNTOLD_NONE) {
        atomic_store(&client->missed, FB_UNTOLD_PATH);
        count++;
    }
    for (unsigned i = 0; i < FB_CLIENT_UNTOLD; i++) {
        struct fb_client_untold *u = &client->untold[i];

        if (atomic_load(&u->state) == FB_UNTOLD_NONE)
            continue;
        atomic_store(&u->state, FB_UNTOLD_PATH);
        count++;
    }
    atomic_store(&client->untold_count, count);
}

static void forget(struct fb_client *client, const char *path, uint32_t flags)
{
    size_t len = strlen(path);

    if (fb_unlikely(atomic_load(&client->untold_count) > 0) && fb_client_session(client))
        (void)tell_rest(client);
    if (fb_likely(tell(client, path, flags)))
        return;
    for (unsigned i = 0; len < FB_CLIENT_FILE_PATH && i < FB_CLIENT_UNTOLD; i++) {
        struct fb_client_untold *u = &client->untold[i];
        int state = FB_UNTOLD_NONE;

        if (!atomic_compare_exchange_strong(&u->state, &state, FB_UNTOLD_BUSY))
            continue;
        memcpy(u->path, path, len + 1);
        atomic_fetch_add(&client->untold_count, 1);
        atomic_store(&u->state, FB_UNTOLD_PATH);
        return;
    }
    fb_client_turn_off(client);
}

void fb_client_forget(struct fb_client *client, const char *path)
{
    forget(client, path, 0);
}

void fb_client_writes(struct fb_client *client, const char *path)
{
    forget(client, path, FB_CLIENT_WRITES);
}

/* ---- opening ---- */

int fb_client_open(struct fb_client *client, const char *path, struct fb_client_file *ret_file)
{
    struct fb_session *s = fb_client_session(client);
    struct fb_client_file *f = ret_file;
    const struct fb_client_place *place;
    const char *below;
    size_t len;
    int rc = 0;

    if (!s)
        return FB_CLIENT_PASS;
    if (fb_unlikely(atomic_load_explicit(&client->untold_count, memory_order_relaxed) > 0) &&
        !tell_rest(client))
        return FB_CLIENT_PASS;
    place = fb_client_place(s, path);
    len = strlen(path);
    if (!place || len >= FB_CLIENT_FILE_PATH || len <= place->path_len + 1u)
        return FB_CLIENT_PASS;
    f->full = path;
    f->session = s;
    f->source = place->source;
    f->block_bytes = place->block_bytes;
    f->root_dev = place->dev;
    f->path_at = (uint16_t)(place->path_len + 1);
    f->path_len = (uint16_t)(len - f->path_at);
    below = f->full + f->path_at;
    if (!look(s, below, f))
        rc = ask_open(client, below, f);
    if (rc)
        return rc;
    if (S_ISLNK(f->attr.mode))
        return FB_CLIENT_LINK;
    return S_ISREG(f->attr.mode) ? 0 : FB_CLIENT_PASS;
}

/* ---- hits ---- */

/* Apart: who copies needs the registers. */
__attribute__((noinline, cold)) static void make_present(const struct fb_session *s, uint64_t from)
{
    uint64_t dram = s->layout.h.dram_segments * s->layout.h.dram_segment_bytes;

    (void)fb_sys(SYS_madvise, s->layout.dram + from,
                 dram - from < FB_STRETCH_SIZE ? dram - from : FB_STRETCH_SIZE, MADV_POPULATE_READ,
                 0);
}

static void populate(struct fb_session *s, uint64_t at, uint32_t bytes)
{
    for (uint64_t i = at / FB_STRETCH_SIZE; i <= (at + bytes - 1) / FB_STRETCH_SIZE; i++) {
        uint8_t times = atomic_load_explicit(&s->touched[i], memory_order_relaxed);

        /* Raced for: at worst it is done twice, or late. */
        if (fb_likely(times >= POPULATE_FROM))
            continue;
        atomic_store_explicit(&s->touched[i], ++times, memory_order_relaxed);
        if (times == POPULATE_FROM)
            make_present(s, i * FB_STRETCH_SIZE);
    }
}

bool fb_client_find(const struct fb_session *s, uint64_t key, struct fb_spot *ret)
{
    const struct fb_layout *l = &s->layout;
    const struct fb_record *record;
    struct fb_found found;
    uint64_t at;

    if (!fb_layout_find(l, key, &found) || !fb_layout_loc_good(l, found.loc[0]) ||
        fb_loc_segment(found.loc[0]) >= l->h.dram_segments)
        return false;
    at = fb_loc_offset(found.loc[0]);
    if (at + fb_record_size(found.length) > l->h.dram_segment_bytes)
        return false;
    at += fb_loc_segment(found.loc[0]) * l->h.dram_segment_bytes;
    record = (const struct fb_record *)(l->dram + at);
    if (record->key != key || record->length != found.length)
        return false;
    ret->loc = found.loc[0];
    ret->at = at + fb_record_data_offset(found.length);
    ret->length = found.length;
    return true;
}

bool fb_client_still_good(const struct fb_client_file *f, uint64_t loc)
{
    const struct fb_layout *l = &f->session->layout;
    const struct fb_layout_file *record = fb_layout_file(l, f->id);

    /* Pairs with the release fence before a record of a segment, or of the table, is rewritten. */
    atomic_thread_fence(memory_order_acquire);
    return fb_layout_loc_good(l, loc) && record &&
           atomic_load_explicit(&record->gen, memory_order_relaxed) == f->gen &&
           record->path_hash == f->path_hash;
}

/* The first records carry the exact time: the daemon has records of the same process, of what it
 * was asked for, and puts all in order. Later ones need not be so exact, and cost less. */
void fb_client_note(struct fb_client *client, const struct fb_client_file *f, uint64_t key,
                    const struct fb_spot *spot, uint32_t offset, uint32_t bytes,
                    enum fb_access_outcome outcome)
{
    bool memory = outcome == FB_ACCESS_MEMORY;
    struct fb_client_area *area = atomic_load_explicit(&f->session->area, memory_order_acquire);
    struct fb_access access;
    uint64_t before;

    if (!area)
        return;
    before = atomic_fetch_add_explicit(memory ? &area->reads : &area->medium_reads, 1,
                                       memory_order_relaxed);
    atomic_fetch_add_explicit(memory ? &area->read_bytes : &area->medium_bytes, bytes,
                              memory_order_relaxed);
    if (fb_access_full(&area->ring, 0)) {
        fb_access_drop(&area->ring);
        return;
    }
    access = (struct fb_access){
        .time_ns = memory && before >= EXACT_READS ? fb_client_coarse_ns() : fb_client_now_ns(),
        .key = key,
        .loc = spot->loc,
        .offset = offset,
        .length = bytes,
        .item_length = spot->length,
        .pid = (uint32_t)atomic_load_explicit(&client->pid, memory_order_relaxed),
        .source = f->source,
        .outcome = (uint8_t)outcome,
    };
    (void)fb_access_push(&area->ring, &access);
}

/* A random item is in no cache: let the first lines of it come together. */
static void prefetch(const uint8_t *data, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes && i < PREFETCH_BYTES; i += FB_CACHELINE)
        __builtin_prefetch(data + i, 0, 2);
}

size_t fb_client_copy(struct fb_client *client, const struct fb_client_file *file, void *ret_data,
                      size_t bytes, uint64_t offset)
{
    struct fb_session *s = file->session;
    uint64_t size = file->attr.version.size;
    uint32_t block_bytes = s->layout.h.block_bytes;
    uint64_t at = offset, end;

    if (offset >= size || !s->layout.dram)
        return 0;
    end = size - offset < bytes ? size : offset + bytes;
    while (at < end) {
        uint32_t block = (uint32_t)(at / block_bytes);
        uint32_t in_item = (uint32_t)(at - (uint64_t)block * block_bytes);
        uint32_t want = (uint32_t)fb_min_u64(block_bytes - in_item, end - at);
        uint64_t key = fb_item_key(file->id, block);
        struct fb_spot spot;

        if (!fb_client_find(s, key, &spot) || in_item + (uint64_t)want > spot.length)
            break;
        prefetch(s->layout.dram + spot.at + in_item, want);
        populate(s, spot.at + in_item, want);
        memcpy((uint8_t *)ret_data + (at - offset), s->layout.dram + spot.at + in_item, want);
        if (!fb_client_still_good(file, spot.loc))
            break;
        fb_client_note(client, file, key, &spot, in_item, want, FB_ACCESS_MEMORY);
        at += want;
    }
    return at - offset;
}

/* ---- misses ---- */

static int64_t ask_read(struct fb_client *client, const struct fb_client_file *file, void *ret_data,
                        size_t bytes, uint64_t offset)
{
    struct fb_client_request request = {
        .op = FB_CLIENT_READ,
        .source = file->source,
        .length = (uint32_t)fb_min_u64(bytes, FB_CLIENT_READ_MAX),
        .offset = offset,
        .version = file->attr.version,
    };
    const struct fb_session *s = fb_client_session(client);
    struct fb_client_reply reply;
    size_t got = 0;
    int rc;

    /* Another daemon counts its sources anew, and may have this one below another path. */
    if (!s)
        return -FB_CLIENT_GONE;
    if (s != file->session) {
        const struct fb_client_place *place = fb_client_place(s, file->full);

        if (!place || place->path_len + 1u != file->path_at)
            return -FB_CLIENT_GONE;
        request.source = place->source;
    }
    rc = fb_client_ask(client, &request, file->full + file->path_at, &reply, ret_data,
                       request.length, &got);
    return rc < 0 ? rc : (int64_t)got;
}

int64_t fb_client_pread(struct fb_client *client, const struct fb_client_file *file, void *ret_data,
                        size_t bytes, uint64_t offset)
{
    uint64_t size = file->attr.version.size;
    size_t done = 0;

    if (offset >= size)
        return 0;
    bytes = (size_t)fb_min_u64(bytes, size - offset);
    while (done < bytes) {
        int64_t n;

        done +=
            fb_client_copy(client, file, (uint8_t *)ret_data + done, bytes - done, offset + done);
        if (done == bytes)
            break;
        n = (int64_t)fb_client_read_medium(client, file, (uint8_t *)ret_data + done, bytes - done,
                                           offset + done);
        if (n == 0)
            n = ask_read(client, file, (uint8_t *)ret_data + done, bytes - done, offset + done);
        /* The version says how long the file is: an answer of nothing is none. */
        if (n <= 0)
            return done > 0 ? (int64_t)done : n < 0 ? n : -ESTALE;
        done += (size_t)n;
    }
    return (int64_t)done;
}
