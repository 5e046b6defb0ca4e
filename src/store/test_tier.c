/*
 * The contract of store/tier.h, run over every medium, with one and several directories, with both
 * engines. Directories lie on a small tmpfs of our own, in a mount namespace of our own: so free space
 * is what the test says, and a killed test leaves no mount behind. What needs no such thing also runs
 * on the disk.
 */
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/rand.h"
#include "core/clock.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "core/thread.h"
#include "io/buffer.h"
#include "store/guard.h"
#include "store/tier.h"

#define SEGMENT   (256u << 10)
#define SLOTS     6
#define DIRS_MAX  3
#define FS_BYTES  (32u << 20)
#define TOC_SIZE  100
#define PATH_SIZE (PATH_MAX + 64)

struct variant {
    const char *name;
    enum fb_tier_kind kind;
    enum fb_engine_kind engine;
    unsigned dirs;
    bool on_disk; /* on the file system that tests run on, where direct I/O is real */
};

static const struct variant variants[] = {
    {"dram", FB_TIER_DRAM, FB_ENGINE_THREADS, 0, false},
    {"pmem", FB_TIER_PMEM, FB_ENGINE_THREADS, 1, false},
    {"pmem of 2", FB_TIER_PMEM, FB_ENGINE_THREADS, 2, false},
    {"pmem on disk", FB_TIER_PMEM, FB_ENGINE_THREADS, 1, true},
    {"nvme, threads", FB_TIER_NVME, FB_ENGINE_THREADS, 1, false},
    {"nvme, io_uring", FB_TIER_NVME, FB_ENGINE_URING, 1, false},
    {"nvme of 3, threads", FB_TIER_NVME, FB_ENGINE_THREADS, 3, false},
    {"nvme of 3, io_uring", FB_TIER_NVME, FB_ENGINE_URING, 3, false},
    {"nvme on disk, threads", FB_TIER_NVME, FB_ENGINE_THREADS, 2, true},
    {"nvme on disk, io_uring", FB_TIER_NVME, FB_ENGINE_URING, 2, true},
};

struct fixture {
    const struct variant *variant;
    struct fb_test_dir dir;
    char paths[DIRS_MAX][PATH_SIZE];
    struct fb_engine *engine;
    struct fb_tier_config config;
    struct fb_tier *tier;
    struct fb_error err;
    struct fb_buffer_pool *buffers;
};

/* ---- the place ---- */

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        close(fd);
    return good;
}

/* As root, or as root of a user namespace of our own. */
static bool own_namespace(void)
{
    char uids[64];
    char gids[64];

    snprintf(uids, sizeof uids, "0 %u 1\n", geteuid());
    snprintf(gids, sizeof gids, "0 %u 1\n", getegid());
    if (unshare(CLONE_NEWNS) < 0 &&
        (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 || !write_text("/proc/self/setgroups", "deny") ||
         !write_text("/proc/self/uid_map", uids) || !write_text("/proc/self/gid_map", gids)))
        return false;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static void mount_tmpfs(const char *path, unsigned bytes, unsigned long flags)
{
    char options[64];

    snprintf(options, sizeof options, "size=%u,mode=700", bytes);
    assert_int_equal(mount("forebay-test", path, "tmpfs", flags, options), 0);
}

static int set_up(void **state)
{
    const struct variant *v = *state;
    struct fixture *f = fb_alloc(sizeof *f);

    assert_non_null(f);
    fb_test_dir_make(&f->dir);
    f->variant = v;
    if (!v->on_disk)
        mount_tmpfs(f->dir.path, FS_BYTES, 0);
    f->config = (struct fb_tier_config){
        .kind = v->kind,
        .budget_bytes = SLOTS * SEGMENT + v->dirs * FB_TIER_ROOM_BYTES,
        .fill = 1.0,
        .segment_bytes = SEGMENT,
        .dir_count = v->dirs,
        .staging = SLOTS,
        .huge_pages = 1,
    };
    for (unsigned i = 0; i < v->dirs; i++) {
        snprintf(f->paths[i], sizeof f->paths[i], "%s/n%u/cache", f->dir.path, i);
        f->config.dirs[i] = f->paths[i];
    }
    assert_int_equal(fb_engine_create(v->engine, 8, &f->engine), 0);
    f->config.engine = f->engine;
    assert_int_equal(fb_buffer_pool_create(8, SEGMENT, &f->buffers), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    fb_tier_close(f->tier);
    fb_engine_destroy(f->engine);
    fb_buffer_pool_destroy(f->buffers);
    if (!f->variant->on_disk)
        assert_int_equal(umount2(f->dir.path, MNT_DETACH), 0);
    fb_test_dir_remove(&f->dir);
    free(f);
    return 0;
}

static int try_open(struct fixture *f)
{
    f->err.text[0] = '\0';
    return fb_tier_open(&f->config, &f->tier, &f->err);
}

/* Opens, and gives up all that was there. */
static void open_empty(struct fixture *f)
{
    assert_int_equal(try_open(f), 0);
    if (!fb_tier_persistent(f->tier))
        return;
    for (uint32_t i = 0; i < fb_tier_slots(f->tier); i++) {
        struct fb_disk_header h;
        bool valid = true;

        assert_int_equal(fb_tier_scan(f->tier, i, &h, &valid), 0);
        assert_false(valid);
        fb_tier_give(f->tier, i);
    }
}

static void close_tier(struct fixture *f)
{
    fb_tier_close(f->tier);
    f->tier = NULL;
}

/* ---- segments ---- */

static uint64_t word(uint64_t seed, uint64_t i)
{
    return fb_mix64(seed << 32 | i);
}

/* From the first record to the end of the table. */
static void build(uint8_t *memory, uint64_t seed)
{
    uint64_t *words = (uint64_t *)memory;

    for (uint64_t i = FB_DISK_DATA_OFFSET / 8; i < SEGMENT / 8; i++)
        words[i] = word(seed, i);
}

struct sealing {
    struct fb_tier_seal seal;
    _Atomic bool done;
};

static void seal_done(struct fb_tier_seal *seal)
{
    struct sealing *s = FB_CONTAINER_OF(seal, struct sealing, seal);

    atomic_store_explicit(&s->done, true, memory_order_release);
}

static void wait_for(_Atomic bool *done)
{
    /* Pairs with the release in seal_done and read_done. */
    while (!atomic_load_explicit(done, memory_order_acquire))
        sched_yield();
}

static int seal(struct fb_tier *tier, uint32_t slot, uint8_t *memory, uint64_t sequence)
{
    FB_AUTO_FREE struct sealing *s = fb_alloc(sizeof *s);

    assert_non_null(s);
    s->seal.slot = slot;
    s->seal.memory = memory;
    s->seal.done = seal_done;
    s->seal.header = (struct fb_disk_header){
        .sequence = sequence,
        .data_end = SEGMENT - 2 * FB_DISK_PAGE,
        .toc_offset = SEGMENT - FB_DISK_PAGE,
        .toc_bytes = TOC_SIZE,
        .items = 3,
        .files = 2,
        .block_bytes = 1 << 16,
    };
    fb_tier_seal(tier, &s->seal);
    wait_for(&s->done);
    return s->seal.result;
}

/* Takes a slot and seals a segment made from `seed` into it. */
static uint32_t fill_one(struct fixture *f, uint64_t seed)
{
    uint32_t slot;
    uint8_t *memory;

    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), 0);
    build(memory, seed);
    assert_int_equal(seal(f->tier, slot, memory, seed), 0);
    fb_tier_release_memory(f->tier, slot, memory);
    return slot;
}

struct reading {
    struct fb_tier_read read;
    _Atomic bool done;
};

static void read_done(struct fb_tier_read *read)
{
    struct reading *r = FB_CONTAINER_OF(read, struct reading, read);

    atomic_store_explicit(&r->done, true, memory_order_release);
}

static int read_some(struct fb_tier *tier, uint32_t slot, uint64_t offset, uint32_t length,
                     uint8_t *data)
{
    struct reading r = {
        .read = {
            .slot = slot, .offset = offset, .length = length, .data = data, .done = read_done}};
    struct fb_tier_read *reads[] = {&r.read};

    fb_tier_read(tier, reads, 1);
    wait_for(&r.done);
    return r.read.result;
}

static bool holds(struct fixture *f, uint32_t slot, uint64_t seed)
{
    struct fb_buffer *b = fb_buffer_get(f->buffers);
    const uint64_t *words = (const uint64_t *)b->data;
    uint64_t offset = FB_DISK_DATA_OFFSET;
    bool good;

    good = read_some(f->tier, slot, offset, SEGMENT - FB_DISK_DATA_OFFSET, b->data) ==
           (int)(SEGMENT - FB_DISK_DATA_OFFSET);
    for (uint64_t i = 0; good && i < (SEGMENT - offset) / 8; i++)
        good = words[i] == word(seed, i + offset / 8);
    /* A stretch from the middle. */
    offset = SEGMENT / 2;
    good = good && read_some(f->tier, slot, offset, 2 * FB_DISK_PAGE, b->data) == 8192 &&
           words[0] == word(seed, offset / 8) && words[1023] == word(seed, offset / 8 + 1023);
    fb_buffer_put(b);
    return good;
}

static const char *segments_path(const struct fixture *f, unsigned dir)
{
    static _Thread_local char path[PATH_SIZE + 16];

    snprintf(path, sizeof path, "%s/segments", f->paths[dir]);
    return path;
}

/* In whole segments: a file system adds a few blocks of its own. */
static uint64_t disk_bytes(const struct fixture *f)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < f->config.dir_count; i++) {
        struct stat st;

        assert_int_equal(stat(segments_path(f, i), &st), 0);
        bytes += (uint64_t)st.st_blocks * 512 / SEGMENT * SEGMENT;
    }
    return bytes;
}

/* ---- every medium ---- */

static void test_identity(void **state)
{
    struct fixture *f = *state;

    open_empty(f);
    assert_int_equal(fb_tier_kind(f->tier), f->config.kind);
    assert_int_equal(fb_tier_slots(f->tier), SLOTS);
    assert_int_equal(fb_tier_segment_bytes(f->tier), SEGMENT);
    if (f->config.kind == FB_TIER_DRAM) {
        assert_false(fb_tier_persistent(f->tier));
        assert_true(fb_tier_memfd(f->tier) >= 0);
        assert_non_null(fb_tier_map(f->tier));
        assert_int_equal(fb_tier_dir_fd(f->tier), -1);
        assert_int_equal(ftruncate(fb_tier_memfd(f->tier), 0), -1);
    } else {
        assert_true(fb_tier_persistent(f->tier));
        assert_int_equal(fb_tier_memfd(f->tier), -1);
        assert_null(fb_tier_map(f->tier));
        assert_true(fb_tier_dir_fd(f->tier) >= 0);
    }
    assert_int_equal(fb_tier_excess(f->tier), 0);
}

static void test_round_trip(void **state)
{
    struct fixture *f = *state;
    uint32_t slots[SLOTS];
    uint32_t slot;
    uint8_t *memory;

    open_empty(f);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < SLOTS; i++) {
            assert_true(fb_tier_has_room(f->tier));
            slots[i] = fill_one(f, round * SLOTS + i);
            for (unsigned n = 0; n < i; n++)
                assert_int_not_equal(slots[n], slots[i]);
        }
        assert_false(fb_tier_has_room(f->tier));
        assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
        for (unsigned i = 0; i < SLOTS; i++)
            assert_true(holds(f, slots[i], round * SLOTS + i));
        assert_true(disk_bytes(f) <= SLOTS * SEGMENT);
        for (unsigned i = 0; i < SLOTS; i++)
            fb_tier_give(f->tier, slots[i]);
    }
    if (f->config.dir_count > 0) /* free slots keep their space */
        assert_int_equal(disk_bytes(f), SLOTS * SEGMENT);
}

/* Memory is readable until it is released, and a slot given up unsealed is free again. */
static void test_give_up(void **state)
{
    struct fixture *f = *state;
    uint32_t slot;
    uint8_t *memory;

    open_empty(f);
    for (unsigned i = 0; i < 3 * SLOTS; i++) {
        assert_int_equal(fb_tier_take(f->tier, &slot, &memory), 0);
        build(memory, i);
        assert_int_equal(((uint64_t *)memory)[SEGMENT / 8 - 1], word(i, SEGMENT / 8 - 1));
        fb_tier_release_memory(f->tier, slot, memory);
        fb_tier_give(f->tier, slot);
    }
}

static void test_fill_limit(void **state)
{
    struct fixture *f = *state;
    uint32_t slot;
    uint8_t *memory;

    f->config.budget_bytes = 16 * SEGMENT;
    f->config.fill = 0.3;
    open_empty(f);
    assert_int_equal(fb_tier_slots(f->tier), 4);
    for (unsigned i = 0; i < 4; i++)
        fill_one(f, i);
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
    assert_true(disk_bytes(f) <= 16 * SEGMENT * 3 / 10);
}

static void test_too_small(void **state)
{
    struct fixture *f = *state;

    f->config.budget_bytes = SEGMENT - 1;
    assert_int_equal(try_open(f), -EINVAL);
    assert_non_null(strstr(f->err.text, "too small"));
    f->config.budget_bytes = 16 * SEGMENT;
    f->config.segment_bytes = SEGMENT + 1;
    assert_int_equal(try_open(f), -EINVAL);
}

struct worker {
    pthread_t thread;
    struct fixture *f;
    unsigned no;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    struct fixture *f = w->f;
    struct fb_rand rand = {w->no};

    for (unsigned i = 0; i < 30; i++) {
        uint64_t seed = w->no * 1000 + i;
        uint32_t slot;
        uint8_t *memory;
        int r = fb_tier_take(f->tier, &slot, &memory);

        if (r != 0) {
            assert_true(r == FB_TIER_FULL || r == FB_TIER_BUSY);
            sched_yield();
            continue;
        }
        build(memory, seed);
        if (fb_rand_below(&rand, 4) > 0) {
            assert_int_equal(seal(f->tier, slot, memory, seed), 0);
            fb_tier_release_memory(f->tier, slot, memory);
            assert_true(holds(f, slot, seed));
        } else {
            fb_tier_release_memory(f->tier, slot, memory);
        }
        assert_int_equal(fb_tier_excess(f->tier), 0);
        fb_tier_has_room(f->tier);
        fb_tier_give(f->tier, slot);
    }
    return NULL;
}

static void test_many_threads(void **state)
{
    struct worker workers[4];
    struct fixture *f = *state;
    uint32_t slots[SLOTS];

    f->config.staging = 3;
    open_empty(f);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(workers); i++) {
        workers[i] = (struct worker){.f = f, .no = i};
        assert_int_equal(fb_thread_start(&workers[i].thread, "worker", work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < FB_ARRAY_SIZE(workers); i++)
        pthread_join(workers[i].thread, NULL);
    for (unsigned i = 0; i < SLOTS; i++)
        slots[i] = fill_one(f, i);
    for (unsigned i = 0; i < SLOTS; i++)
        assert_true(holds(f, slots[i], i));
}

/* ---- persistent media ---- */

static void test_busy(void **state)
{
    struct fixture *f = *state;
    uint32_t slots[3];
    uint8_t *memory[3];

    f->config.staging = 2;
    open_empty(f);
    assert_int_equal(fb_tier_take(f->tier, &slots[0], &memory[0]), 0);
    assert_int_equal(fb_tier_take(f->tier, &slots[1], &memory[1]), 0);
    assert_int_equal(fb_tier_take(f->tier, &slots[2], &memory[2]), FB_TIER_BUSY);
    assert_true(fb_tier_has_room(f->tier));
    assert_int_equal(seal(f->tier, slots[0], memory[0], 1), 0);
    assert_int_equal(fb_tier_take(f->tier, &slots[2], &memory[2]), FB_TIER_BUSY);
    fb_tier_release_memory(f->tier, slots[0], memory[0]);
    assert_int_equal(fb_tier_take(f->tier, &slots[2], &memory[2]), 0);
}

/* More than one write a seal, the last one short. */
static void test_large_segments(void **state)
{
    struct fixture *f = *state;
    uint32_t size = (7u << 19) + FB_DISK_PAGE;
    FB_AUTO_FREE struct sealing *s = fb_alloc(sizeof *s);
    FB_AUTO_FREE uint8_t *copy = malloc(size);
    FB_AUTO_FREE uint8_t *back = aligned_alloc(FB_DISK_PAGE, size);

    assert_true(s && copy && back);
    f->config.segment_bytes = size;
    f->config.budget_bytes = f->config.dir_count * (size + FB_TIER_ROOM_BYTES);
    f->config.staging = 1;
    open_empty(f);
    assert_int_equal(fb_tier_take(f->tier, &s->seal.slot, &s->seal.memory), 0);
    for (uint32_t i = 0; i < size / 8; i++)
        ((uint64_t *)s->seal.memory)[i] = word(5, i);
    memcpy(copy, s->seal.memory, size);
    s->seal.done = seal_done;
    s->seal.header = (struct fb_disk_header){
        .data_end = size - 2 * FB_DISK_PAGE,
        .toc_offset = size - FB_DISK_PAGE,
        .toc_bytes = FB_DISK_PAGE,
    };
    fb_tier_seal(f->tier, &s->seal);
    wait_for(&s->done);
    assert_int_equal(s->seal.result, 0);
    assert_int_equal(read_some(f->tier, s->seal.slot, 0, size, back), size);
    assert_memory_equal(back, &s->seal.header, sizeof s->seal.header);
    assert_memory_equal(back + FB_DISK_PAGE, copy + FB_DISK_PAGE, size - FB_DISK_PAGE);
}

/* Scans all: valid ones must hold what was made from their sequence, the others are given back.
 * Returns the bits of the valid ones. */
static unsigned scan_damaged(struct fixture *f, unsigned *ret_damaged)
{
    unsigned valid_slots = 0;

    *ret_damaged = 0;
    for (uint32_t i = 0; i < fb_tier_slots(f->tier); i++) {
        struct fb_disk_header h;
        bool valid;

        int r = fb_tier_scan(f->tier, i, &h, &valid);

        assert_true(r == 0 || (r == -EBADMSG && !valid));
        if (r < 0)
            *ret_damaged |= 1u << i;
        if (!valid) {
            fb_tier_give(f->tier, i);
            continue;
        }
        valid_slots |= 1u << i;
        assert_int_equal(h.slot, i);
        assert_int_equal(h.items, 3);
        assert_int_equal(h.toc_bytes, TOC_SIZE);
        assert_true(holds(f, i, h.sequence));
    }
    return valid_slots;
}

static unsigned scan_all(struct fixture *f)
{
    unsigned damaged;
    unsigned valid = scan_damaged(f, &damaged);

    assert_int_equal(damaged, 0);
    return valid;
}

static void test_reopen(void **state)
{
    struct fixture *f = *state;
    unsigned sealed = 0;
    unsigned again;
    uint32_t slot;
    uint8_t *memory;

    open_empty(f);
    for (unsigned i = 0; i < 3; i++)
        sealed |= 1u << fill_one(f, 100 + i);
    /* Lent and never sealed. */
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), 0);
    build(memory, 1);
    close_tier(f);

    assert_int_equal(try_open(f), 0);
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
    close_tier(f);

    assert_int_equal(try_open(f), 0);
    assert_int_equal(scan_all(f), sealed);
    for (unsigned i = 3; i < SLOTS; i++)
        sealed |= 1u << fill_one(f, 200 + i);
    assert_int_equal(sealed, (1u << SLOTS) - 1);
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
    fb_tier_give(f->tier, 0);
    again = fill_one(f, 300);
    assert_int_equal(again, 0);
    assert_true(disk_bytes(f) <= SLOTS * SEGMENT);
    close_tier(f);

    assert_int_equal(try_open(f), 0);
    assert_int_equal(scan_all(f), sealed);
}

/* A smaller budget takes effect at once, and the slots that remain are where they were. */
static void test_shrink_and_grow(void **state)
{
    struct fixture *f = *state;

    open_empty(f);
    for (unsigned i = 0; i < SLOTS; i++)
        fill_one(f, i);
    close_tier(f);
    f->config.budget_bytes -= 2 * SEGMENT;
    assert_int_equal(try_open(f), 0);
    assert_int_equal(fb_tier_slots(f->tier), SLOTS - 2);
    assert_true(disk_bytes(f) <= (SLOTS - 2) * SEGMENT);
    assert_int_equal(scan_all(f), (1u << (SLOTS - 2)) - 1);
    close_tier(f);
    f->config.budget_bytes += 2 * SEGMENT;
    assert_int_equal(try_open(f), 0);
    assert_int_equal(scan_all(f), (1u << (SLOTS - 2)) - 1);
    fill_one(f, 1);
    fill_one(f, 2);
    assert_false(fb_tier_has_room(f->tier));
}

static void flip(const char *path, off_t offset)
{
    FB_AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
}

static void test_damaged_header(void **state)
{
    struct fixture *f = *state;
    unsigned all = (1u << SLOTS) - 1;
    unsigned damaged;

    open_empty(f);
    for (unsigned i = 0; i < SLOTS; i++)
        fill_one(f, i);
    close_tier(f);
    flip(segments_path(f, 0), 40);
    assert_int_equal(try_open(f), 0);
    assert_int_equal(scan_damaged(f, &damaged), all & ~1u);
    assert_int_equal(damaged, 1);
}

static void assert_starts_empty(struct fixture *f)
{
    assert_int_equal(try_open(f), 0);
    assert_int_equal(scan_all(f), 0);
    assert_int_equal(disk_bytes(f), 0);
    fill_one(f, 1);
    close_tier(f);
}

static void test_starts_empty(void **state)
{
    struct fixture *f = *state;
    char superblock[PATH_SIZE + 16];
    unsigned last = f->config.dir_count - 1;

    open_empty(f);
    fill_one(f, 1);
    close_tier(f);
    snprintf(superblock, sizeof superblock, "%s/superblock", f->paths[last]);
    for (off_t i = 0; i < 72; i += 7) {
        flip(superblock, i);
        assert_starts_empty(f);
    }
    assert_int_equal(truncate(superblock, 71), 0);
    assert_starts_empty(f);
    assert_int_equal(truncate(superblock, 0), 0);
    assert_starts_empty(f);
    assert_int_equal(unlink(superblock), 0);
    assert_starts_empty(f);
    f->config.segment_bytes = SEGMENT / 2;
    assert_int_equal(try_open(f), 0);
    assert_int_equal(scan_all(f), 0);
    close_tier(f);
    f->config.segment_bytes = SEGMENT;
    assert_starts_empty(f);
    /* And what is not damaged stays. */
    assert_int_equal(try_open(f), 0);
    assert_int_not_equal(scan_all(f), 0);
}

static void test_order_of_directories(void **state)
{
    struct fixture *f = *state;
    unsigned count = f->config.dir_count;
    const char *first = f->config.dirs[0];

    open_empty(f);
    fill_one(f, 1);
    close_tier(f);
    if (count == 1)
        return;
    f->config.dirs[0] = f->config.dirs[count - 1];
    f->config.dirs[count - 1] = first;
    assert_starts_empty(f);
    f->config.dir_count--;
    assert_starts_empty(f);
    f->config.dirs[1] = f->config.dirs[0];
    f->config.dir_count = 2;
    assert_int_equal(try_open(f), -EBUSY);
    assert_non_null(strstr(f->err.text, "twice"));
}

static void test_modes(void **state)
{
    struct fixture *f = *state;
    struct stat st;

    open_empty(f);
    close_tier(f);
    assert_int_equal(chmod(f->paths[0], 0755), 0);
    assert_int_equal(chmod(segments_path(f, 0), 0644), 0);
    assert_int_equal(try_open(f), 0);
    assert_int_equal(stat(f->paths[0], &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(stat(segments_path(f, 0), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

static void test_foreign_owner(void **state)
{
    struct fixture *f = *state;
    struct stat st;

    open_empty(f);
    close_tier(f);
    if (chown(f->paths[0], 12345, 12345) < 0)
        skip(); /* not root: nobody else to give it to */
    assert_int_equal(try_open(f), -EPERM);
    assert_non_null(strstr(f->err.text, f->paths[0]));
    assert_non_null(strstr(f->err.text, "12345"));
    assert_int_equal(stat(f->paths[0], &st), 0);
    assert_int_equal(st.st_uid, 12345);
}

static void test_not_a_directory(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(mkdir(fb_test_dir_path(&f->dir, "n0"), 0700), 0);
    fb_test_dir_write(&f->dir, "n0/cache", "a file");
    assert_int_equal(try_open(f), -ENOTDIR);
    assert_non_null(strstr(f->err.text, f->paths[0]));
}

/* The other process: it needs no engine to be refused. */
static int open_in_child(struct fixture *f)
{
    char pid[32];
    pid_t parent = getpid();
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        snprintf(pid, sizeof pid, "process %d:", parent);
        if (try_open(f) != -EBUSY)
            _exit(1);
        _exit(strstr(f->err.text, pid) && strstr(f->err.text, f->paths[0]) ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_second_opener(void **state)
{
    struct fixture *f = *state;
    struct fb_tier *first;

    open_empty(f);
    fill_one(f, 1);
    first = f->tier;
    assert_int_equal(open_in_child(f), 0);
    assert_int_equal(try_open(f), -EBUSY);
    f->tier = first;
    assert_true(fb_tier_has_room(f->tier));
    close_tier(f);
    assert_int_equal(try_open(f), 0);
    assert_int_not_equal(scan_all(f), 0);
}

static void test_read_only(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(mkdir(fb_test_dir_path(&f->dir, "n0"), 0700), 0);
    mount_tmpfs(fb_test_dir_path(&f->dir, "n0"), FS_BYTES, MS_RDONLY);
    assert_int_equal(try_open(f), -EROFS);
    assert_non_null(strstr(f->err.text, f->paths[0]));
    assert_non_null(strstr(f->err.text, "Read-only"));
    assert_int_equal(umount(fb_test_dir_path(&f->dir, "n0")), 0);
}

/* ---- space ---- */

static void set_ratio(struct fixture *f, int64_t bytes_above_floor)
{
    struct statvfs st;

    assert_int_equal(statvfs(f->dir.path, &st), 0);
    f->config.free_space_ratio =
        ((double)((uint64_t)st.f_bavail * st.f_frsize) - (double)bytes_above_floor) /
        ((double)st.f_blocks * (double)st.f_frsize);
}

static void test_floor(void **state)
{
    struct fixture *f = *state;
    uint32_t slots[2];
    uint32_t slot;
    uint8_t *memory;

    open_empty(f); /* so that its small files are there before we look */
    close_tier(f);
    set_ratio(f, 2 * SEGMENT + SEGMENT / 2);
    open_empty(f);
    slots[0] = fill_one(f, 0);
    slots[1] = fill_one(f, 1);
    assert_int_equal(fb_tier_excess(f->tier), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
    assert_false(fb_tier_has_room(f->tier));
    assert_int_equal(disk_bytes(f), 2 * SEGMENT);
    /* Space that the cache has already is not asked of the file system again. */
    fb_tier_give(f->tier, slots[0]);
    assert_true(fb_tier_has_room(f->tier));
    slots[0] = fill_one(f, 2);
    assert_true(holds(f, slots[0], 2));
    assert_true(holds(f, slots[1], 1));
    close_tier(f);
    /* Nor after a restart. */
    assert_int_equal(try_open(f), 0);
    assert_int_equal(scan_all(f), 1u << slots[0] | 1u << slots[1]);
    fb_tier_give(f->tier, slots[1]);
    assert_int_equal(fill_one(f, 3), slots[1]);
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
}

/* Others fill the disk: what is free goes at once, the rest when it is evicted. */
static void test_excess(void **state)
{
    struct fixture *f = *state;
    uint32_t slots[SLOTS];
    FB_AUTO_CLOSE int filler = -1;
    int64_t before;

    open_empty(f);
    close_tier(f);
    set_ratio(f, SLOTS * SEGMENT + SEGMENT / 2);
    open_empty(f);
    for (unsigned i = 0; i < SLOTS; i++)
        slots[i] = fill_one(f, i);
    assert_int_equal(fb_tier_excess(f->tier), 0);
    fb_tier_give(f->tier, slots[0]);
    assert_int_equal(disk_bytes(f), SLOTS * SEGMENT);

    filler = open(fb_test_dir_path(&f->dir, "filler"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(filler >= 0);
    assert_int_equal(posix_fallocate(filler, 0, 3 * SEGMENT), 0);
    before = fb_tier_excess(f->tier);
    assert_true(before > 0 && before <= 2 * SEGMENT);
    assert_int_equal(disk_bytes(f), (SLOTS - 1) * SEGMENT);
    fb_tier_give(f->tier, slots[1]);
    assert_int_equal(fb_tier_excess(f->tier), before - SEGMENT);
    fb_tier_give(f->tier, slots[2]);
    assert_int_equal(fb_tier_excess(f->tier), 0);
    assert_int_equal(disk_bytes(f), (SLOTS - 3) * SEGMENT);
    for (unsigned i = 3; i < SLOTS; i++)
        assert_true(holds(f, slots[i], i));

    /* They leave again: sooner or later there is room. */
    assert_int_equal(ftruncate(filler, 0), 0);
    while (!fb_tier_has_room(f->tier))
        fb_sleep_ns(10 * FB_NS_PER_MS);
    fill_one(f, 9);
}

static void test_full_file_system(void **state)
{
    struct fixture *f = *state;
    FB_AUTO_CLOSE int filler =
        open(fb_test_dir_path(&f->dir, "filler"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint32_t slot;
    uint8_t *memory;

    assert_true(filler >= 0);
    assert_int_equal(posix_fallocate(filler, 0, FS_BYTES - 2 * SEGMENT - SEGMENT / 2), 0);
    open_empty(f);
    slot = fill_one(f, 1);
    assert_true(holds(f, slot, 1));
    while (fb_tier_take(f->tier, &slot, &memory) == 0)
        build(memory, 2);
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
    assert_true(disk_bytes(f) <= 2 * SEGMENT);
}

/* Something else than free space says no: here the limit on a file's size, elsewhere a quota. */
static void test_refused_space(void **state)
{
    struct fixture *f = *state;
    struct rlimit before;
    struct rlimit low = {.rlim_cur = 2 * SEGMENT - 1};
    unsigned got = 0;
    uint32_t slot;
    uint8_t *memory;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low.rlim_max = before.rlim_max;
    open_empty(f);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    while (fb_tier_take(f->tier, &slot, &memory) == 0)
        got++;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(got, f->config.dir_count);
    assert_false(fb_tier_has_room(f->tier));
    while (!fb_tier_has_room(f->tier))
        fb_sleep_ns(10 * FB_NS_PER_MS);
    fill_one(f, 1);
}

/* ---- what others do to the files ---- */

static void assert_lends_nothing(struct fixture *f)
{
    uint32_t slot;
    uint8_t *memory;

    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
    assert_false(fb_tier_has_room(f->tier));
}

static void test_directory_moved(void **state)
{
    struct fixture *f = *state;
    char away[PATH_SIZE + 16];
    uint32_t slot;
    unsigned last = f->config.dir_count - 1;

    open_empty(f);
    slot = fill_one(f, 1);
    snprintf(away, sizeof away, "%s.away", f->paths[last]);
    assert_int_equal(rename(f->paths[last], away), 0);
    assert_int_equal(fb_tier_excess(f->tier), -EIO);
    assert_lends_nothing(f);
    assert_true(holds(f, slot, 1));
    /* Another one of its name is not it. */
    assert_int_equal(mkdir(f->paths[last], 0700), 0);
    assert_int_equal(fb_tier_excess(f->tier), -EIO);
    fb_tier_give(f->tier, slot);
    assert_lends_nothing(f);
    close_tier(f);
    open_empty(f);
    fill_one(f, 1);
}

static void test_files_deleted(void **state)
{
    struct fixture *f = *state;
    uint32_t slot;

    open_empty(f);
    slot = fill_one(f, 1);
    assert_int_equal(unlink(segments_path(f, 0)), 0);
    assert_int_equal(fb_tier_excess(f->tier), -EIO);
    assert_lends_nothing(f);
    assert_true(holds(f, slot, 1));
}

static void test_directory_deleted(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"lock", "superblock", "segments"};
    uint32_t slot;
    uint8_t *memory;

    open_empty(f);
    slot = fill_one(f, 1);
    for (unsigned d = 0; d < f->config.dir_count; d++) {
        for (unsigned i = 0; i < FB_ARRAY_SIZE(names); i++) {
            char path[PATH_SIZE + 16];

            snprintf(path, sizeof path, "%s/%s", f->paths[d], names[i]);
            assert_int_equal(unlink(path), 0);
        }
        assert_int_equal(rmdir(f->paths[d]), 0);
    }
    /* A slot that needs new space finds out by itself. */
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
    assert_lends_nothing(f);
    assert_int_equal(fb_tier_excess(f->tier), -EIO);
}

static void test_truncated(void **state)
{
    struct fixture *f = *state;
    struct fb_buffer *b = fb_buffer_get(f->buffers);
    uint32_t slots[SLOTS];
    uint32_t slot;
    uint8_t *memory;
    int r;

    open_empty(f);
    for (unsigned i = 0; i < SLOTS; i++)
        slots[i] = fill_one(f, i);
    for (unsigned d = 0; d < f->config.dir_count; d++)
        assert_int_equal(truncate(segments_path(f, d), 8192), 0);
    for (unsigned i = 0; i < SLOTS; i++) {
        assert_int_equal(read_some(f->tier, slots[i], 8192, SEGMENT - 8192, b->data), -EIO);
        assert_int_equal(read_some(f->tier, slots[i], SEGMENT / 2, 4096, b->data), -EIO);
    }
    fb_buffer_put(b);
    /* Building and sealing there may fail, but nothing worse. */
    fb_tier_give(f->tier, slots[3]);
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), 0);
    build(memory, 9);
    r = seal(f->tier, slot, memory, 9);
    assert_int_equal(r, f->config.kind == FB_TIER_PMEM ? -EIO : 0);
    fb_tier_release_memory(f->tier, slot, memory);
    if (r == 0)
        assert_true(holds(f, slot, 9));
    else
        assert_lends_nothing(f);
}

/* A write that fails is told, and the tier lends nothing more. */
static void test_write_error(void **state)
{
    struct fixture *f = *state;
    struct rlimit before;
    struct rlimit low = {.rlim_cur = 4096};
    uint32_t slot;
    uint8_t *memory;
    int r;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low.rlim_max = before.rlim_max;
    open_empty(f);
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), 0);
    build(memory, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    r = seal(f->tier, slot, memory, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(r, -EFBIG);
    fb_tier_release_memory(f->tier, slot, memory);
    fb_tier_give(f->tier, slot);
    assert_lends_nothing(f);
    close_tier(f);
    open_empty(f);
    fill_one(f, 1);
}

/* A process that dies of SIGBUS elsewhere dies of it still. */
static void test_foreign_fault(void **state)
{
    struct fixture *f = *state;
    pid_t child;
    int status;

    open_empty(f);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit none = {0};

        setrlimit(RLIMIT_CORE, &none);
        signal(SIGBUS, SIG_DFL); /* not cmocka's, which would go on with the tests here */
        fb_guard_install();
        raise(SIGBUS);
        raise(SIGBUS);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

/* ---- all of it ---- */

enum {
    ON_DRAM = 1 << FB_TIER_DRAM,
    ON_PMEM = 1 << FB_TIER_PMEM,
    ON_NVME = 1 << FB_TIER_NVME,
    ON_FILES = ON_PMEM | ON_NVME,
    ON_ALL = ON_DRAM | ON_FILES,
    OWN_FS = 1 << 8, /* needs a file system to itself */
};

static const struct {
    const char *name;
    CMUnitTestFunction function;
    unsigned kinds;
} cases[] = {
    {"identity", test_identity, ON_ALL},
    {"round trip", test_round_trip, ON_ALL},
    {"give up", test_give_up, ON_ALL},
    {"fill limit", test_fill_limit, ON_ALL},
    {"too small", test_too_small, ON_ALL},
    {"many threads", test_many_threads, ON_ALL},
    {"large segments", test_large_segments, ON_FILES},
    {"busy", test_busy, ON_FILES},
    {"reopen", test_reopen, ON_FILES},
    {"shrink and grow", test_shrink_and_grow, ON_FILES},
    {"damaged header", test_damaged_header, ON_FILES},
    {"starts empty", test_starts_empty, ON_FILES},
    {"order of directories", test_order_of_directories, ON_FILES},
    {"modes", test_modes, ON_FILES},
    {"foreign owner", test_foreign_owner, ON_FILES},
    {"not a directory", test_not_a_directory, ON_FILES},
    {"second opener", test_second_opener, ON_FILES},
    {"read-only", test_read_only, ON_FILES},
    {"floor", test_floor, ON_FILES | OWN_FS},
    {"excess", test_excess, ON_FILES | OWN_FS},
    {"full file system", test_full_file_system, ON_FILES | OWN_FS},
    {"refused space", test_refused_space, ON_FILES},
    {"directory moved", test_directory_moved, ON_FILES},
    {"files deleted", test_files_deleted, ON_FILES},
    {"directory deleted", test_directory_deleted, ON_FILES},
    {"truncated", test_truncated, ON_FILES},
    {"write error", test_write_error, ON_NVME},
    {"foreign fault", test_foreign_fault, ON_PMEM},
};

#define TESTS_MAX (FB_ARRAY_SIZE(cases) * FB_ARRAY_SIZE(variants))

int main(void)
{
    struct CMUnitTest tests[TESTS_MAX];
    char names[TESTS_MAX][64];
    size_t count = 0;

    if (!own_namespace()) {
        printf("no mount namespace to be had: the tiers were not tested\n");
        return 77;
    }
    signal(SIGXFSZ, SIG_IGN);
    for (size_t v = 0; v < FB_ARRAY_SIZE(variants); v++) {
        for (size_t c = 0; c < FB_ARRAY_SIZE(cases); c++) {
            if (!(cases[c].kinds & 1u << variants[v].kind) ||
                (variants[v].on_disk && cases[c].kinds & OWN_FS))
                continue;
            snprintf(names[count], sizeof names[count], "%s: %s", variants[v].name, cases[c].name);
            tests[count] = (struct CMUnitTest){.name = names[count],
                                               .test_func = cases[c].function,
                                               .setup_func = set_up,
                                               .teardown_func = tear_down,
                                               .initial_state = (void *)&variants[v]};
            count++;
        }
    }
    return _cmocka_run_group_tests("tier", tests, count, NULL, NULL);
}
