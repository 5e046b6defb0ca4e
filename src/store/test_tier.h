/*
 * store/test_tier.h - for tests of tiers: every medium, with one and several directories, with both
 * engines. Directories lie on a small tmpfs of our own, in a mount namespace of our own: so free
 * space is what the test says, and a killed test leaves no mount behind. What needs no such thing
 * also runs on the disk.
 */
#ifndef FB_STORE_TEST_TIER_H
#define FB_STORE_TEST_TIER_H

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "io/buffer.h"
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

static inline bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

    if (fd >= 0)
        close(fd);
    return good;
}

/* As root, or as root of a user namespace of our own. */
static inline bool own_namespace(void)
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

static inline void mount_tmpfs(const char *path, unsigned bytes, unsigned long flags)
{
    char options[64];

    snprintf(options, sizeof options, "size=%u,mode=700", bytes);
    assert_int_equal(mount("forebay-test", path, "tmpfs", flags, options), 0);
}

static inline int set_up(void **state)
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
    assert_int_equal(fb_engine_create(v->engine, 3, 8, DIRS_MAX, &f->engine), 0);
    f->config.engine = f->engine;
    assert_int_equal(fb_buffer_pool_create(8, SEGMENT, &f->buffers), 0);
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
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

static inline int try_open(struct fixture *f)
{
    f->err.text[0] = '\0';
    return fb_tier_open(&f->config, &f->tier, &f->err);
}

/* Opens, and gives up all that was there. */
static inline void open_empty(struct fixture *f)
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

static inline void close_tier(struct fixture *f)
{
    fb_tier_close(f->tier);
    f->tier = NULL;
}

/* ---- segments ---- */

static inline uint64_t word(uint64_t seed, uint64_t i)
{
    return fb_mix64(seed << 32 | i);
}

/* From the first record to the end of the table. */
static inline void build(uint8_t *memory, uint64_t seed)
{
    uint64_t *words = (uint64_t *)memory;

    for (uint64_t i = FB_DISK_DATA_OFFSET / 8; i < SEGMENT / 8; i++)
        words[i] = word(seed, i);
}

struct sealing {
    struct fb_tier_seal seal;
    _Atomic bool done;
};

static inline void seal_done(struct fb_tier_seal *seal)
{
    struct sealing *s = FB_CONTAINER_OF(seal, struct sealing, seal);

    atomic_store_explicit(&s->done, true, memory_order_release);
}

static inline void wait_for(_Atomic bool *done)
{
    /* Pairs with the release in seal_done and read_done. */
    while (!atomic_load_explicit(done, memory_order_acquire))
        sched_yield();
}

static inline int seal(struct fb_tier *tier, uint32_t slot, uint8_t *memory, uint64_t sequence)
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
static inline uint32_t fill_one(struct fixture *f, uint64_t seed)
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

static inline void read_done(struct fb_tier_read *read)
{
    struct reading *r = FB_CONTAINER_OF(read, struct reading, read);

    atomic_store_explicit(&r->done, true, memory_order_release);
}

static inline int read_some(struct fb_tier *tier, uint32_t slot, uint64_t offset, uint32_t length,
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

static inline bool holds(struct fixture *f, uint32_t slot, uint64_t seed)
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

static inline const char *segments_path(const struct fixture *f, unsigned dir)
{
    static _Thread_local char path[PATH_SIZE + 16];

    snprintf(path, sizeof path, "%s/segments", f->paths[dir]);
    return path;
}

/* In whole segments: a file system adds a few blocks of its own. */
static inline uint64_t disk_bytes(const struct fixture *f)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < f->config.dir_count; i++) {
        struct stat st;

        assert_int_equal(stat(segments_path(f, i), &st), 0);
        bytes += (uint64_t)st.st_blocks * 512 / SEGMENT * SEGMENT;
    }
    return bytes;
}

/* Scans all: valid ones must hold what was made from their sequence, the others are given back.
 * Returns the bits of the valid ones. */
static inline unsigned scan_damaged(struct fixture *f, unsigned *ret_damaged)
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

static inline unsigned scan_all(struct fixture *f)
{
    unsigned damaged;
    unsigned valid = scan_damaged(f, &damaged);

    assert_int_equal(damaged, 0);
    return valid;
}

static inline void flip(const char *path, off_t offset)
{
    FB_AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
}

/* ---- all of it ---- */

enum {
    ON_DRAM = 1 << FB_TIER_DRAM,
    ON_PMEM = 1 << FB_TIER_PMEM,
    ON_NVME = 1 << FB_TIER_NVME,
    ON_FILES = ON_PMEM | ON_NVME,
    ON_ALL = ON_DRAM | ON_FILES,
    OWN_FS = 1 << 8, /* needs a file system to itself */
    ONCE = 1 << 9,   /* takes long: on the first variant of each kind */
    HANGS = 1 << 10, /* one of several directories, by what the engine of threads calls; a disk that
                      * is busy would be taken for one that hangs */
};

struct tier_case {
    const char *name;
    CMUnitTestFunction function;
    unsigned kinds;
};

/* Runs each case over the variants it is for; what main() is to return. */
static inline int run_cases(const char *group, const struct tier_case *cases, size_t case_count)
{
    size_t max = case_count * FB_ARRAY_SIZE(variants);
    FB_AUTO_FREE struct CMUnitTest *tests = fb_alloc_array(max, sizeof *tests);
    FB_AUTO_FREE char(*names)[64] = fb_alloc_array(max, sizeof *names);
    size_t count = 0;

    if (!tests || !names)
        return 1;
    if (!own_namespace()) {
        printf("no mount namespace to be had: the tiers were not tested\n");
        return 77;
    }
    signal(SIGXFSZ, SIG_IGN);
    for (size_t v = 0; v < FB_ARRAY_SIZE(variants); v++) {
        for (size_t c = 0; c < case_count; c++) {
            if (!(cases[c].kinds & 1u << variants[v].kind) ||
                (variants[v].on_disk && cases[c].kinds & (OWN_FS | HANGS)) ||
                (cases[c].kinds & HANGS &&
                 (variants[v].dirs < 2 || variants[v].engine != FB_ENGINE_THREADS)) ||
                (cases[c].kinds & ONCE && v > 0 && variants[v - 1].kind == variants[v].kind))
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
    return _cmocka_run_group_tests(group, tests, count, NULL, NULL);
}

#endif
