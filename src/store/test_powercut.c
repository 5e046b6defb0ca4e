/*
 * Power cuts. A workload of filling, changing and evicting runs over small tiers (one disk, two
 * striped ones, persistent memory, all of them) while every write and flush is recorded with its
 * data, in the order in which they happened on all media. Then the power is cut at random places of
 * the record, for all at once:
 *
 *   - what was written, and covered by a flush that completed before the cut, is on the medium: of
 *     a disk's file a flush covers all, of a mapping only its own stretch;
 *   - what else was submitted is there, lost, or torn by chance: a disk's write into pieces of 512
 *     bytes or 4 KiB, a copy to memory into cache lines (DAX) or pages (a page cache).
 *
 * From what is left a store must come back that serves no wrong byte, and all items of segments
 * whose seal had completed and that had not been given back.
 */
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>

#include "core/clock.h"
#include "store/test_store.h"
#include "store/tier_files.h"

#define SEEDS          2
#define CUTS           50 /* for each seed */
#define STEPS          600
#define FILES          120
#define BLOCKS         3
#define MEDIA_MAX      4
#define SUPERBLOCK_MAX 65536

/* A file that tiers write to. */
struct medium {
    char name[8]; /* of its directory, in that of the world */
    int fd;
    size_t bytes;
    uint32_t grain[2]; /* into one of which what is torn falls */
    uint8_t *durable;  /* and, after it, */
    uint8_t *image;
};

enum kind {
    WRITE_SUBMITTED,
    WRITE_COMPLETED,
    FLUSH_SUBMITTED,
    FLUSH_COMPLETED,
};

struct event {
    enum kind kind;
    const struct fb_io *io; /* its identity while under way, no more */
    unsigned medium;
    uint64_t offset;
    uint32_t length; /* of a flush: 0 is the whole file */
    uint8_t *data;   /* of a write that was submitted */
};

/* What was in sealed segments, some time between two numbers of events. */
struct snapshot {
    size_t from, to;
    uint32_t version[FILES];
    uint64_t loc[FILES][BLOCKS];
};

struct record {
    struct medium media[MEDIA_MAX];
    unsigned media_count;
    pthread_mutex_t lock;
    struct event *events;
    size_t count, room;
    struct snapshot *snapshots;
    size_t snapshot_count;
};

/* ---- recording ---- */

static void find_media(struct world *w, struct record *rec)
{
    for (unsigned t = 0; t < fb_store_tiers(w->store); t++) {
        const struct fb_tier *tier = fb_store_tier(w->store, t);

        for (unsigned i = 0; i < tier->files->count; i++) {
            const struct fb_tier_file *f = &tier->files->file[i];
            struct medium *m = &rec->media[rec->media_count++];

            FB_ASSERT(rec->media_count <= MEDIA_MAX);
            *m = (struct medium){.fd = f->fd,
                                 .bytes = f->slots * tier->segment_bytes,
                                 .grain = {tier->kind == FB_TIER_PMEM ? 64 : 512, 4096}};
            snprintf(m->name, sizeof m->name, "%s", strrchr(f->dir.path, '/') + 1);
        }
    }
}

static unsigned medium_of(const struct record *rec, int fd)
{
    for (unsigned i = 0; i < rec->media_count; i++)
        if (rec->media[i].fd == fd)
            return i;
    FB_ASSERT(false);
    return 0;
}

static void observe(void *arg, const struct fb_io *io, bool completed)
{
    struct record *rec = arg;
    struct event *e;

    pthread_mutex_lock(&rec->lock);
    if (rec->count == rec->room) {
        rec->room = rec->room * 2 + 1024;
        rec->events = realloc(rec->events, rec->room * sizeof *rec->events);
        FB_ASSERT(rec->events != NULL);
    }
    e = &rec->events[rec->count++];
    *e = (struct event){
        .io = io, .medium = medium_of(rec, io->fd), .offset = io->offset, .length = io->length};
    if (io->op == FB_IO_WRITE) {
        e->kind = completed ? WRITE_COMPLETED : WRITE_SUBMITTED;
        if (!completed) {
            e->data = malloc(io->length);
            FB_ASSERT(e->data != NULL);
            memcpy(e->data, io->data, io->length);
        }
    } else {
        e->kind = completed ? FLUSH_COMPLETED : FLUSH_SUBMITTED;
    }
    pthread_mutex_unlock(&rec->lock);
}

static size_t events_so_far(struct record *rec)
{
    size_t count;

    pthread_mutex_lock(&rec->lock);
    count = rec->count;
    pthread_mutex_unlock(&rec->lock);
    return count;
}

static bool in_sealed_segment(struct world *w, uint64_t loc)
{
    struct fb_segment *seg = &w->store->segments[fb_loc_segment(loc)];
    struct fb_store_tier *t = fb_segment_tier(w->store, seg);
    bool is;

    fb_mutex_lock(&t->lock);
    is = loc != FB_LOC_NONE && seg->state == FB_SEGMENT_SEALED;
    fb_mutex_unlock(&t->lock);
    return is;
}

static void take_snapshot(struct world *w, struct record *rec)
{
    struct snapshot *s = &rec->snapshots[rec->snapshot_count++];

    s->from = events_so_far(rec);
    for (uint32_t file = 0; file < FILES; file++) {
        uint32_t id = world_find(w, file);

        if (id == 0)
            continue;
        s->version[file] = world_version_of(w, id);
        for (uint32_t block = 0; block < BLOCKS; block++) {
            struct fb_index_entry e;

            if (fb_index_look(w->store->index, fb_item_key(id, block), &e) &&
                in_sealed_segment(w, e.loc[1]))
                s->loc[file][block] = e.loc[1];
        }
        fb_files_unref(fb_store_files(w->store), id, 1);
    }
    s->to = events_so_far(rec);
}

static unsigned some_tier(struct world *w, struct fb_rand *r)
{
    return (unsigned)fb_rand_below(r, fb_store_tiers(w->store));
}

static void make_room(struct world *w, unsigned tier, struct fb_rand *r)
{
    struct fb_segment_info infos[16];
    uint32_t count = fb_store_sealed(w->store, tier, infos, FB_ARRAY_SIZE(infos));

    if (count == 0)
        fb_store_wait_writes(w->store, FB_NEVER_NS);
    else
        assert_int_equal(
            fb_store_evict(w->store, infos[fb_rand_below(r, count)].no, false, NULL, NULL), 0);
}

static void append_one(struct world *w, struct fb_rand *r)
{
    uint32_t file = (uint32_t)fb_rand_below(r, FILES);
    uint32_t id = world_put(w, file);
    uint32_t blocks = world_blocks(w, world_size(w, file, w->version[file]));
    uint32_t block = (uint32_t)fb_rand_below(r, blocks);
    unsigned tier = some_tier(w, r);
    int rc;

    while ((rc = world_append(w, file, id, block, tier)) != 0) {
        assert_true(rc == FB_STORE_BUSY || rc == FB_STORE_FULL);
        if (rc == FB_STORE_BUSY)
            fb_store_wait_writes(w->store, FB_NEVER_NS);
        else
            make_room(w, tier, r);
    }
    fb_files_unref(fb_store_files(w->store), id, 1);
}

static void run_workload(struct world *w, struct record *rec, uint64_t seed)
{
    struct fb_rand r = {.state = seed};

    take_snapshot(w, rec);
    for (int step = 0; step < STEPS; step++) {
        uint64_t dice = fb_rand_below(&r, 100);

        if (dice < 85)
            append_one(w, &r);
        else if (dice < 93)
            w->version[fb_rand_below(&r, FILES)]++;
        else if (dice < 96)
            make_room(w, some_tier(w, &r), &r);
        else
            assert_int_equal(fb_store_flush(w->store), 0);
        take_snapshot(w, rec);
    }
}

/* ---- cutting ---- */

struct pending {
    const struct event *write;
    size_t completed; /* number of the event; SIZE_MAX: not yet */
};

struct disk {
    const struct record *rec;
    size_t at; /* events taken in */
    struct pending pending[256];
    unsigned pending_count;

    struct {
        const struct event *event;
        size_t submitted;
    } flushes[16];

    unsigned flush_count;
};

static bool covers(const struct event *flush, const struct event *write)
{
    return flush->medium == write->medium &&
           (flush->length == 0 || (flush->offset <= write->offset &&
                                   write->offset + write->length <= flush->offset + flush->length));
}

static void flushed(struct disk *d, const struct event *flush, size_t submitted)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < d->pending_count; i++) {
        const struct pending *p = &d->pending[i];

        if (p->completed < submitted && covers(flush, p->write))
            memcpy(d->rec->media[p->write->medium].durable + p->write->offset, p->write->data,
                   p->write->length);
        else
            d->pending[kept++] = *p;
    }
    d->pending_count = kept;
}

static void advance(struct disk *d)
{
    const struct event *e = &d->rec->events[d->at];
    unsigned i;

    switch (e->kind) {
    case WRITE_SUBMITTED:
        FB_ASSERT(d->pending_count < FB_ARRAY_SIZE(d->pending));
        FB_ASSERT(e->offset + e->length <= d->rec->media[e->medium].bytes);
        d->pending[d->pending_count++] = (struct pending){.write = e, .completed = SIZE_MAX};
        break;
    case WRITE_COMPLETED:
        for (i = d->pending_count; i-- > 0 && d->pending[i].write->io != e->io;)
            continue;
        d->pending[i].completed = d->at;
        break;
    case FLUSH_SUBMITTED:
        FB_ASSERT(d->flush_count < FB_ARRAY_SIZE(d->flushes));
        d->flushes[d->flush_count].event = e;
        d->flushes[d->flush_count++].submitted = d->at;
        break;
    case FLUSH_COMPLETED:
        for (i = 0; d->flushes[i].event->io != e->io; i++)
            continue;
        flushed(d, d->flushes[i].event, d->flushes[i].submitted);
        d->flushes[i] = d->flushes[--d->flush_count];
        break;
    }
    d->at++;
}

static void apply_by_chance(struct disk *d, const struct event *write, struct fb_rand *r)
{
    const struct medium *m = &d->rec->media[write->medium];
    uint64_t fate = fb_rand_below(r, 3);
    uint32_t grain = m->grain[fb_rand_below(r, 2)];

    for (uint32_t at = 0; fate != 0 && at < write->length; at += grain)
        if (fate == 1 || fb_rand_below(r, 2) == 0)
            memcpy(m->image + write->offset + at, write->data + at,
                   fb_min_u64(grain, write->length - at));
}

static void cut(struct disk *d, size_t at, struct fb_rand *r)
{
    while (d->at < at)
        advance(d);
    for (unsigned i = 0; i < d->rec->media_count; i++)
        memcpy(d->rec->media[i].image, d->rec->media[i].durable, d->rec->media[i].bytes);
    for (unsigned i = 0; i < d->pending_count; i++)
        apply_by_chance(d, d->pending[i].write, r);
}

/* ---- coming back ---- */

static void write_file(const struct world *w, const char *dir, const char *name, const void *data,
                       size_t size)
{
    char path[PATH_MAX + 64];
    int fd;

    snprintf(path, sizeof path, "%s/%s/%s", w->dir.path, dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, size), size);
    close(fd);
}

/* The items that must be there: in a sealed segment before the cut, and still in it after. */
static uint64_t check_all(struct world *w, const struct snapshot *before,
                          const struct snapshot *after)
{
    uint64_t required = 0;

    for (uint32_t file = 0; file < FILES; file++) {
        uint32_t id = world_find(w, file);

        for (uint32_t block = 0; block < BLOCKS; block++) {
            bool must = before->loc[file][block] != 0 &&
                        before->loc[file][block] == after->loc[file][block];
            int rc = id != 0 ? world_check(w, file, id, block, 0, UINT32_MAX) : FB_STORE_MISS;

            assert_int_not_equal(rc, 100);
            if (!must)
                continue;
            required++;
            if (rc != 0 || world_version_of(w, id) != before->version[file])
                fail_msg("file %u block %u: %d", file, block, rc);
        }
        if (id != 0)
            fb_files_unref(fb_store_files(w->store), id, 1);
    }
    return required;
}

/* Life goes on: more is put in, and that comes back, too. */
static void use_and_reopen(struct world *w, struct fb_rand *r)
{
    static const struct snapshot nothing;

    memset(w->version, 0, sizeof w->version);
    for (uint32_t file = 0; file < FILES; file++)
        w->version[file] = 1000000 + file;
    for (int i = 0; i < 30; i++)
        append_one(w, r);
    fb_store_close(w->store, fb_rand_below(r, 2) == 0);
    world_open(w);
    (void)check_all(w, &nothing, &nothing);
    world_recount(w);
}

static uint64_t cut_and_recover(struct world *w, struct disk *d, size_t at, struct fb_rand *r,
                                bool go_on)
{
    const struct record *rec = d->rec;
    size_t before = 0, after = rec->snapshot_count - 1;
    uint64_t required;

    while (before + 1 < rec->snapshot_count && rec->snapshots[before + 1].to <= at)
        before++;
    while (after > 0 && rec->snapshots[after - 1].from >= at)
        after--;
    cut(d, at, r);
    for (unsigned i = 0; i < rec->media_count; i++)
        write_file(w, rec->media[i].name, "segments", rec->media[i].image, rec->media[i].bytes);
    world_open(w);
    world_recount(w);
    required = check_all(w, &rec->snapshots[before], &rec->snapshots[after]);
    world_recount(w);
    if (go_on)
        use_and_reopen(w, r);
    fb_store_close(w->store, true);
    w->store = NULL;
    return required;
}

static int by_number(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;

    return x < y ? -1 : x > y;
}

/* The directories as they were made: nothing of it is written again. */
static void copy_superblocks(struct world *from, struct world *to, const struct record *rec)
{
    char superblock[SUPERBLOCK_MAX], path[32];

    for (unsigned i = 0; i < rec->media_count; i++) {
        const char *name = rec->media[i].name;
        size_t bytes;
        FILE *f;

        snprintf(path, sizeof path, "%s/superblock", name);
        f = fopen(fb_test_dir_path(&from->dir, path), "re");
        assert_non_null(f);
        bytes = fread(superblock, 1, sizeof superblock, f);
        fclose(f);
        assert_int_equal(mkdir(fb_test_dir_path(&to->dir, name), 0700), 0);
        write_file(to, name, "superblock", superblock, bytes);
    }
}

static void cut_often(struct world *from, struct record *rec, uint64_t seed)
{
    struct world w = {.block_bytes = from->block_bytes,
                      .segment_bytes = from->segment_bytes,
                      .slots = from->slots,
                      .dirs = from->dirs,
                      .file_count = FILES};
    struct fb_rand r = {.state = ~seed};
    struct disk *d = calloc(1, sizeof *d);
    size_t cuts[CUTS];
    uint64_t required = 0;

    FB_ASSERT(d != NULL);
    d->rec = rec;
    for (unsigned i = 0; i < rec->media_count; i++) {
        rec->media[i].durable = calloc(2, rec->media[i].bytes);
        FB_ASSERT(rec->media[i].durable != NULL);
        rec->media[i].image = rec->media[i].durable + rec->media[i].bytes;
    }
    world_make(&w, from->mask);
    copy_superblocks(from, &w, rec);
    for (int i = 0; i < CUTS; i++)
        cuts[i] = (size_t)fb_rand_below(&r, rec->count + 1);
    qsort(cuts, CUTS, sizeof cuts[0], by_number);
    for (int i = 0; i < CUTS; i++)
        required += cut_and_recover(&w, d, cuts[i], &r, i % 8 == 7);
    assert_true(required > 5 * CUTS);
    free(d);
    world_end(&w);
}

static void record_free(struct record *rec)
{
    for (size_t i = 0; i < rec->count; i++)
        free(rec->events[i].data);
    for (unsigned i = 0; i < rec->media_count; i++)
        free(rec->media[i].durable);
    free(rec->events);
    free(rec->snapshots);
}

static void cut_power(unsigned mask, unsigned dirs)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct world w = {.block_bytes = 24u << 10,
                          .segment_bytes = 160u << 10,
                          .slots = 6,
                          .dirs = dirs,
                          .file_count = FILES};
        struct record rec = {.lock = PTHREAD_MUTEX_INITIALIZER};

        rec.snapshots = calloc(STEPS + 1, sizeof *rec.snapshots);
        FB_ASSERT(rec.snapshots != NULL);
        world_make(&w, mask);
        world_open(&w);
        find_media(&w, &rec);
        fb_engine_observe(w.engine, observe, &rec);
        run_workload(&w, &rec, seed);
        fb_store_close(w.store, false);
        w.store = NULL;
        fb_engine_observe(w.engine, NULL, NULL);
        assert_true(rec.count > 100);
        cut_often(&w, &rec, seed);
        record_free(&rec);
        world_end(&w);
    }
}

static void test_one_disk(void **state)
{
    (void)state;
    cut_power(WITH_NVME, 1);
}

static void test_striped_disks(void **state)
{
    (void)state;
    cut_power(WITH_NVME, 2);
}

static void test_persistent_memory(void **state)
{
    (void)state;
    cut_power(WITH_PMEM, 1);
}

static void test_all_together(void **state)
{
    (void)state;
    cut_power(WITH_PMEM | WITH_NVME, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_disk),
        cmocka_unit_test(test_striped_disks),
        cmocka_unit_test(test_persistent_memory),
        cmocka_unit_test(test_all_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
