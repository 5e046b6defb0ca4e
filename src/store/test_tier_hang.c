/*
 * One of several directories hangs: what lies on the others is read and written as before, nothing
 * new is placed there, and when the disk answers it is used again. Hangs what the engine of threads
 * calls; tests/faults/cache_dir_hang hangs a file system under io_uring.
 */
#include <pthread.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#include "core/clock.h"
#include "store/test_tier.h"
#include "store/tier_priv.h"

#define STAGING   4u
#define HUNG      1u /* the directory */
#define DIR_SLOTS 4u
#define READS     8u /* more than the engine has threads for a disk */
#define SOON_NS   (30 * FB_NS_PER_S)

/* ---- a disk that hangs ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool hangs;
    dev_t dev; /* of its file */
    ino_t ino;
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void disk_hangs(struct fixture *f, bool hangs)
{
    struct stat st;

    assert_int_equal(stat(segments_path(f, HUNG), &st), 0);
    pthread_mutex_lock(&disk.lock);
    disk.dev = st.st_dev;
    disk.ino = st.st_ino;
    disk.hangs = hangs;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.lock);
}

static void disk_answer(int fd)
{
    struct stat st;
    bool known = fstat(fd, &st) == 0;

    pthread_mutex_lock(&disk.lock);
    while (known && disk.hangs && disk.dev == st.st_dev && disk.ino == st.st_ino)
        pthread_cond_wait(&disk.changed, &disk.lock);
    pthread_mutex_unlock(&disk.lock);
}

/* In the place of the C library's: what the engine calls, and who asks for space. */
ssize_t pread(int fd, void *buf, size_t nbytes, off_t offset)
{
    disk_answer(fd);
    return syscall(SYS_pread64, fd, buf, nbytes, offset);
}

ssize_t pwrite(int fd, const void *buf, size_t nbytes, off_t offset)
{
    disk_answer(fd);
    return syscall(SYS_pwrite64, fd, buf, nbytes, offset);
}

int fdatasync(int fildes)
{
    disk_answer(fildes);
    return (int)syscall(SYS_fdatasync, fildes);
}

int fstatvfs(int fildes, struct statvfs *buf)
{
    char path[32];

    disk_answer(fildes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fildes);
    return statvfs(path, buf);
}

/* ---- what is asked of it ---- */

static unsigned dir_of(const struct fixture *f, uint32_t slot)
{
    return slot % f->config.dir_count;
}

static bool soon(_Atomic bool *done)
{
    int64_t until_ns = fb_now_ns() + SOON_NS;

    while (!atomic_load_explicit(done, memory_order_acquire) && fb_now_ns() < until_ns)
        fb_sleep_ns(FB_NS_PER_MS);
    return atomic_load_explicit(done, memory_order_acquire);
}

static void begin_read(struct fixture *f, struct reading *r, uint32_t slot)
{
    struct fb_buffer *b = fb_buffer_get(f->buffers);
    struct fb_tier_read *reads[] = {&r->read};

    assert_non_null(b);
    *r = (struct reading){.read = {.slot = slot,
                                   .offset = FB_DISK_DATA_OFFSET,
                                   .length = FB_DISK_PAGE,
                                   .data = b->data,
                                   .buffer = b,
                                   .done = read_done}};
    fb_tier_read(f->tier, reads, 1);
}

/* What it has come to; 0 when that is not known yet. */
static int end_read(struct reading *r)
{
    int result = soon(&r->done) ? r->read.result : 0;

    fb_buffer_put(r->read.buffer);
    return result;
}

static struct sealing *begin_seal(struct fixture *f, uint32_t slot, uint8_t *memory)
{
    struct sealing *s = fb_alloc(sizeof *s);

    assert_non_null(s);
    build(memory, slot);
    s->seal.slot = slot;
    s->seal.memory = memory;
    s->seal.done = seal_done;
    s->seal.header = (struct fb_disk_header){.data_end = SEGMENT - 2 * FB_DISK_PAGE,
                                             .toc_offset = SEGMENT - FB_DISK_PAGE,
                                             .toc_bytes = TOC_SIZE};
    fb_tier_seal(f->tier, &s->seal);
    return s;
}

static void set_slots(struct fixture *f, unsigned each)
{
    f->config.budget_bytes = f->config.dir_count * ((uint64_t)each * SEGMENT + FB_TIER_ROOM_BYTES);
}

/* All slots have their space: nobody asks for it any more. */
static void allocate_all(struct fixture *f)
{
    uint8_t *memory;
    uint32_t slot;

    while (fb_tier_take(f->tier, &slot, &memory) == 0)
        fb_tier_release_memory(f->tier, slot, memory);
    for (slot = 0; slot < fb_tier_slots(f->tier); slot++)
        fb_tier_give(f->tier, slot);
}

/* ---- reading ---- */

/* Whoever reads the others is not late; and once the disk is known to hang only their slots are
 * lent, until it answers. */
static void test_reads(void **state)
{
    struct fixture *f = *state;
    struct reading hung[READS], good;
    uint32_t slots[SLOTS], slot;
    bool out, answers = true;
    uint8_t *memory;
    unsigned lent = 0;
    int rc;

    f->config.timeout_ns = 3 * FB_NS_PER_S; /* in which the others answer, however busy all is */
    open_empty(f);
    for (unsigned i = 0; i < SLOTS; i++)
        slots[i] = fill_one(f, i);
    disk_hangs(f, true);
    for (unsigned i = 0; i < READS - 1; i++)
        begin_read(f, &hung[i], HUNG);
    for (unsigned i = 0; i < SLOTS; i++) {
        if (dir_of(f, slots[i]) == HUNG)
            continue;
        begin_read(f, &good, slots[i]);
        answers = end_read(&good) == FB_DISK_PAGE && answers;
    }
    for (unsigned i = 0; i < READS - 1; i++)
        answers = end_read(&hung[i]) == -ETIMEDOUT && answers;
    out = fb_tier_is_out(f->tier, HUNG) && !fb_tier_is_out(f->tier, HUNG + 1);
    for (unsigned i = 0; i < SLOTS; i++)
        fb_tier_give(f->tier, slots[i]);
    while ((rc = fb_tier_take(f->tier, &slot, &memory)) == 0) {
        answers = dir_of(f, slot) != HUNG && answers;
        fb_tier_release_memory(f->tier, slot, memory);
        lent++;
    }
    disk_hangs(f, false);
    assert_true(answers);
    assert_true(out);
    assert_int_equal(rc, FB_TIER_FULL);
    assert_int_equal(lent, SLOTS - SLOTS / f->config.dir_count);

    while (fb_tier_is_out(f->tier, HUNG))
        fb_sleep_ns(FB_NS_PER_MS);
    slot = fill_one(f, 9);
    assert_int_equal(dir_of(f, slot), HUNG);
    assert_true(holds(f, slot, 9));
}

/* ---- writing ---- */

/* Writes that never end keep neither the others' staging memory nor their places in the engine; and
 * after a while it is known that waiting for the disk is in vain. */
static void test_writes(void **state)
{
    struct fixture *f = *state;
    unsigned hung = 0, good = 0, all = DIR_SLOTS * f->config.dir_count;
    struct sealing *seals[STAGING];
    bool ends = true, had_room, out;
    uint8_t *memory;
    uint32_t slot;
    int rc, after;

    f->config.staging = STAGING;
    set_slots(f, DIR_SLOTS);
    open_empty(f);
    allocate_all(f);
    disk_hangs(f, true);
    while (ends && hung < STAGING && (rc = fb_tier_take(f->tier, &slot, &memory)) == 0) {
        struct sealing *s = begin_seal(f, slot, memory);

        if (dir_of(f, slot) == HUNG) {
            seals[hung++] = s;
            continue;
        }
        ends = soon(&s->done) && s->seal.result == 0;
        if (!ends)
            break; /* it is still written */
        fb_tier_release_memory(f->tier, slot, memory);
        free(s);
        good++;
    }
    had_room = fb_tier_has_room(f->tier);
    for (int64_t until_ns = fb_now_ns() + SOON_NS;
         !fb_tier_is_out(f->tier, HUNG) && ends && fb_now_ns() < until_ns;)
        fb_sleep_ns(10 * FB_NS_PER_MS);
    out =
        fb_tier_is_out(f->tier, HUNG) && !fb_tier_is_all_out(f->tier) && !fb_tier_has_room(f->tier);
    after = fb_tier_take(f->tier, &slot, &memory);
    disk_hangs(f, false);
    assert_true(ends);
    assert_int_equal(hung, STAGING / 2);
    assert_int_equal(good, all - DIR_SLOTS);
    assert_int_equal(rc, FB_TIER_BUSY);
    assert_true(had_room && out);
    assert_int_equal(after, FB_TIER_FULL);

    for (unsigned i = 0; i < hung; i++) {
        assert_true(soon(&seals[i]->done));
        assert_int_equal(seals[i]->seal.result, 0);
        fb_tier_release_memory(f->tier, seals[i]->seal.slot, seals[i]->seal.memory);
        free(seals[i]);
    }
    slot = fill_one(f, 9);
    assert_int_equal(dir_of(f, slot), HUNG);
    assert_true(holds(f, slot, 9));
}

/* ---- space ---- */

/* A file system of its own that does not say whether it has space: the others go on to be asked. */
static void test_space(void **state)
{
    struct fixture *f = *state;
    const char *place = fb_test_dir_path(&f->dir, "n1");
    unsigned good = 0, all;
    bool others = true;
    uint8_t *memory;
    uint32_t slot;

    assert_int_equal(mkdir(place, 0700), 0);
    mount_tmpfs(place, FS_BYTES, 0);
    f->config.staging = STAGING;
    set_slots(f, DIR_SLOTS);
    open_empty(f);
    all = DIR_SLOTS * (f->config.dir_count - 1);
    disk_hangs(f, true);
    for (int64_t until_ns = fb_now_ns() + SOON_NS; good < all && fb_now_ns() < until_ns;) {
        if (fb_tier_take(f->tier, &slot, &memory) != 0) {
            fb_sleep_ns(FB_NS_PER_MS);
            continue;
        }
        others = dir_of(f, slot) != HUNG && others;
        fb_tier_release_memory(f->tier, slot, memory);
        good++;
    }
    disk_hangs(f, false);
    assert_int_equal(good, all);
    assert_true(others);

    while (fb_tier_take(f->tier, &slot, &memory) != 0)
        fb_sleep_ns(FB_NS_PER_MS);
    assert_int_equal(dir_of(f, slot), HUNG);
    fb_tier_release_memory(f->tier, slot, memory);
}

/* Who gives a slot of another directory back waits for that one, and not for what was given before
 * it to the disk that hangs. */
static void test_give(void **state)
{
    struct fixture *f = *state;
    const char *place = fb_test_dir_path(&f->dir, "n1");
    unsigned all = DIR_SLOTS * f->config.dir_count;
    int64_t took_ns = 0;
    uint8_t *memory;
    uint32_t slot;

    assert_int_equal(mkdir(place, 0700), 0);
    mount_tmpfs(place, FS_BYTES, 0);
    set_slots(f, DIR_SLOTS);
    open_empty(f);
    allocate_all(f);
    for (unsigned i = 0; i < all; i++) {
        assert_int_equal(fb_tier_take(f->tier, &slot, &memory), 0);
        fb_tier_release_memory(f->tier, slot, memory);
    }
    disk_hangs(f, true);
    fb_tier_give(f->tier, HUNG);
    for (slot = HUNG + 1; slot < all; slot += f->config.dir_count) {
        uint32_t free_slot;

        /* Once somebody else has had an answer, who gives asks, too. */
        while (fb_tier_take(f->tier, &free_slot, &memory) == FB_TIER_BUSY)
            fb_sleep_ns(FB_NS_PER_MS);
        took_ns -= fb_now_ns();
        fb_tier_give(f->tier, slot);
        took_ns += fb_now_ns();
        if (fb_tier_take(f->tier, &free_slot, &memory) != 0 || free_slot != slot)
            break;
        fb_tier_release_memory(f->tier, slot, memory);
    }
    disk_hangs(f, false);
    assert_true(slot >= all);
    assert_true(took_ns < FB_TIER_PATIENCE_NS);
    while (fb_tier_take(f->tier, &slot, &memory) != 0)
        fb_sleep_ns(FB_NS_PER_MS);
    assert_int_equal(slot, HUNG);
    fb_tier_release_memory(f->tier, slot, memory);
}

/* ---- all of it ---- */

static const struct tier_case cases[] = {
    {"reads", test_reads, ON_NVME | HANGS},
    {"writes", test_writes, ON_NVME | HANGS},
    {"space", test_space, ON_NVME | HANGS | OWN_FS},
    {"give", test_give, ON_NVME | HANGS | OWN_FS},
};

int main(void)
{
    return run_cases("tier_hang", cases, FB_ARRAY_SIZE(cases));
}
