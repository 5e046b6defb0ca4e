/*
 * Space and failures: the floor under free space, a full file system, and what others do to the
 * files of a tier.
 */
#include <pthread.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "core/clock.h"
#include "store/guard.h"
#include "store/test_tier.h"

/* ---- a disk that hangs ---- */

/* When it is asked how full it is. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool hangs;
    unsigned asked;
    unsigned waiting;       /* for an answer */
    _Atomic bool is_sparse; /* fallocate() is not to be had */
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void disk_hangs(bool hangs)
{
    pthread_mutex_lock(&disk.lock);
    disk.hangs = hangs;
    disk.asked = 0;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.lock);
}

static unsigned disk_count(const unsigned *counter)
{
    unsigned count;

    pthread_mutex_lock(&disk.lock);
    count = *counter;
    pthread_mutex_unlock(&disk.lock);
    return count;
}

/* In the place of the C library's: what the tiers ask. */
int fstatvfs(int fildes, struct statvfs *buf)
{
    char path[32];

    pthread_mutex_lock(&disk.lock);
    disk.asked++;
    disk.waiting++;
    while (disk.hangs)
        pthread_cond_wait(&disk.changed, &disk.lock);
    disk.waiting--;
    pthread_mutex_unlock(&disk.lock);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fildes);
    return statvfs(path, buf);
}

int fallocate(int fd, int mode, off_t offset, off_t len)
{
    if (disk.is_sparse) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, len);
}

/* Who gives a slot back waits for the disk, but not for one that hangs; the next do not even ask.
 * The others' slots are lent on meanwhile, and the first comes back with the disk. */
static void test_hung(void **state)
{
    struct fixture *f = *state;
    uint32_t slots[SLOTS], slot;

    open_empty(f);
    for (unsigned i = 0; i < SLOTS; i++)
        slots[i] = fill_one(f, i);
    disk_hangs(true);
    fb_tier_give(f->tier, slots[0]);
    assert_int_equal(disk_count(&disk.waiting), 1);
    assert_int_equal(fb_tier_free(f->tier), 0);
    assert_false(fb_tier_has_room(f->tier));
    fb_tier_give(f->tier, slots[1]);
    fb_tier_give(f->tier, slots[2]);
    assert_int_equal(disk_count(&disk.asked), 1);
    assert_int_equal(fb_tier_free(f->tier), 2);
    for (unsigned i = 0; i < 2; i++) {
        slot = fill_one(f, 10 + i);
        assert_true(slot == slots[1] || slot == slots[2]);
        assert_true(holds(f, slot, 10 + i));
    }
    assert_int_equal(disk_count(&disk.waiting), 1); /* all the time */

    disk_hangs(false);
    while (fb_tier_free(f->tier) == 0)
        fb_sleep_ns(10 * FB_NS_PER_MS);
    assert_int_equal(fill_one(f, 12), slots[0]);
    fb_tier_give(f->tier, slots[3]);
    assert_true(disk_count(&disk.asked) > 0); /* again */
    assert_int_equal(fill_one(f, 13), slots[3]);
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
    assert_false(fb_tier_is_short(f->tier));
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
    assert_true(fb_tier_is_short(f->tier));
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

/* One that allocates only as it is written to: that a slot was lent says nothing of its space. */
static void test_full_while_sealing(void **state)
{
    struct fixture *f = *state;
    FB_AUTO_CLOSE int filler =
        open(fb_test_dir_path(&f->dir, "filler"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    uint32_t slot;
    uint8_t *memory;

    assert_true(filler >= 0);
    disk.is_sparse = true;
    open_empty(f);
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), 0);
    build(memory, 1);
    assert_int_equal(posix_fallocate(filler, 0, FS_BYTES - SEGMENT / 2), 0);
    assert_int_equal(seal(f->tier, slot, memory, 1), -ENOSPC);
    fb_tier_release_memory(f->tier, slot, memory);
    fb_tier_give(f->tier, slot);
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), FB_TIER_FULL);
    assert_false(fb_tier_has_room(f->tier));

    assert_int_equal(ftruncate(filler, 0), 0);
    while (!fb_tier_has_room(f->tier))
        fb_sleep_ns(10 * FB_NS_PER_MS);
    assert_true(holds(f, fill_one(f, 9), 9));
    disk.is_sparse = false;
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

/* Nothing of one directory, that is, and all that is free of the others. */
static void assert_lends_nothing_of(struct fixture *f, unsigned dir)
{
    uint32_t slots[SLOTS];
    unsigned count = 0;
    uint8_t *memory;

    if (f->config.dir_count == 1) {
        assert_lends_nothing(f);
        return;
    }
    assert_false(fb_tier_broken(f->tier));
    for (; fb_tier_take(f->tier, &slots[count], &memory) == 0; count++) {
        assert_int_not_equal(slots[count] % f->config.dir_count, dir);
        fb_tier_release_memory(f->tier, slots[count], memory);
    }
    assert_int_equal(count, SLOTS - SLOTS / f->config.dir_count);
    for (unsigned i = 0; i < count; i++)
        fb_tier_give(f->tier, slots[i]);
}

static int excess_without_one(const struct fixture *f)
{
    return f->config.dir_count == 1 ? -EIO : 0;
}

static void test_directory_moved(void **state)
{
    struct fixture *f = *state;
    char away[PATH_SIZE + 16];
    uint32_t slot;
    unsigned last = f->config.dir_count - 1;

    open_empty(f);
    do
        slot = fill_one(f, 1);
    while (slot % f->config.dir_count != last);
    for (uint32_t i = 0; i < slot; i++)
        fb_tier_give(f->tier, i);
    snprintf(away, sizeof away, "%s.away", f->paths[last]);
    assert_int_equal(rename(f->paths[last], away), 0);
    assert_int_equal(fb_tier_excess(f->tier), excess_without_one(f));
    assert_lends_nothing_of(f, last);
    assert_true(holds(f, slot, 1));
    /* Another one of its name is not it. */
    assert_int_equal(mkdir(f->paths[last], 0700), 0);
    assert_int_equal(fb_tier_excess(f->tier), excess_without_one(f));
    fb_tier_give(f->tier, slot);
    assert_lends_nothing_of(f, last);
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
    assert_int_equal(fb_tier_excess(f->tier), excess_without_one(f));
    assert_lends_nothing_of(f, 0);
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

static int fail_to_seal(struct fixture *f, uint32_t slot, uint8_t *memory)
{
    struct rlimit before, low = {.rlim_cur = 4096};
    int r;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low.rlim_max = before.rlim_max;
    build(memory, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    r = seal(f->tier, slot, memory, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    return r;
}

/* A write that fails is told, and nothing more is lent of its directory. */
static void test_write_error(void **state)
{
    struct fixture *f = *state;
    uint32_t slot;
    uint8_t *memory;

    open_empty(f);
    assert_int_equal(fb_tier_take(f->tier, &slot, &memory), 0);
    assert_int_equal(fail_to_seal(f, slot, memory), -EFBIG);
    fb_tier_release_memory(f->tier, slot, memory);
    fb_tier_give(f->tier, slot);
    assert_lends_nothing_of(f, slot % f->config.dir_count);
    close_tier(f);
    open_empty(f);
    fill_one(f, 1);
}

/* What lies in a directory that has failed is not evicted: nor is anything else, for the floor of
 * its file system. */
static void test_excess_of_broken(void **state)
{
    struct fixture *f = *state;
    const char *place = fb_test_dir_path(&f->dir, "n1");
    FB_AUTO_CLOSE int filler = -1;
    unsigned dirs = f->config.dir_count;
    uint8_t *memory;
    uint32_t slot;

    if (dirs < 2)
        return;
    assert_int_equal(mkdir(place, 0700), 0);
    mount_tmpfs(place, FS_BYTES, 0);
    f->config.free_space_ratio = 0.5;
    open_empty(f);
    for (unsigned i = 0; i < dirs; i++)
        fill_one(f, i);
    for (;;) {
        assert_int_equal(fb_tier_take(f->tier, &slot, &memory), 0);
        if (slot % dirs == 1)
            break;
        fb_tier_release_memory(f->tier, slot, memory);
    }
    filler = open(fb_test_dir_path(&f->dir, "n1/filler"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(filler >= 0);
    assert_int_equal(posix_fallocate(filler, 0, FS_BYTES / 8 * 5), 0);
    assert_int_equal(fb_tier_excess(f->tier), 2 * SEGMENT);

    assert_int_equal(fail_to_seal(f, slot, memory), -EFBIG);
    fb_tier_release_memory(f->tier, slot, memory);
    assert_true(fb_tier_is_out(f->tier, slot));
    assert_false(fb_tier_is_all_out(f->tier));
    assert_int_equal(fb_tier_excess(f->tier), 0);
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

static const struct tier_case cases[] = {
    {"floor", test_floor, ON_FILES | OWN_FS},
    {"excess", test_excess, ON_FILES | OWN_FS},
    {"full file system", test_full_file_system, ON_FILES | OWN_FS},
    {"full while sealing", test_full_while_sealing, ON_NVME | OWN_FS},
    {"hung", test_hung, ON_NVME | ONCE},
    {"refused space", test_refused_space, ON_FILES},
    {"directory moved", test_directory_moved, ON_FILES},
    {"files deleted", test_files_deleted, ON_FILES},
    {"directory deleted", test_directory_deleted, ON_FILES},
    {"truncated", test_truncated, ON_FILES},
    {"write error", test_write_error, ON_NVME},
    {"excess of a broken directory", test_excess_of_broken, ON_NVME | OWN_FS},
    {"foreign fault", test_foreign_fault, ON_PMEM},
};

int main(void)
{
    return run_cases("tier_space", cases, FB_ARRAY_SIZE(cases));
}
