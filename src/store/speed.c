#include "store/speed.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/rand.h"
#include "core/clock.h"
#include "core/mem.h"
#include "io/durable.h"
#include "store/cachedir.h"

#define FILE_NAME   "speed"
#define SCRATCH     "speed.tmp"
#define MAGIC       UINT64_C(0x4445455053424546) /* "FEBSPEED" */
#define PIECE_BYTES (1u << 20)
#define AT_ONCE     (8u << 20) /* bytes under way */
#define IOS_MAX     (AT_ONCE / FB_SPEED_ITEM_BYTES)
#define PHASE_NS    (300 * FB_NS_PER_MS)
#define WRITE_NS    FB_NS_PER_S
#define ROUNDS      2
#define VALID_NS    (30 * 24 * 3600 * FB_NS_PER_S)

struct note {
    uint64_t magic;
    struct fb_disk_speed speed;
    uint64_t sum;
};

struct measuring {
    struct fb_engine *engine;
    int fd;
    uint8_t *memory; /* AT_ONCE */
    uint64_t size;
    struct fb_rand random;
};

/* ---- remembered ---- */

static bool recall(int dir_fd, struct fb_disk_speed *ret_speed)
{
    FB_AUTO_FREE char *data = NULL;
    struct note note;
    size_t size;
    int64_t age_ns;

    if (fb_durable_read(dir_fd, FILE_NAME, sizeof note, &data, &size) < 0 || size != sizeof note)
        return false;
    memcpy(&note, data, sizeof note);
    age_ns = fb_wall_ns() - note.speed.measured_wall_ns;
    if (note.magic != MAGIC || note.sum != fb_checksum(&note, offsetof(struct note, sum)) ||
        age_ns < 0 || age_ns > VALID_NS)
        return false;
    *ret_speed = note.speed;
    return true;
}

static int remember(int dir_fd, const struct fb_disk_speed *speed)
{
    struct note note = {.magic = MAGIC, .speed = *speed};

    note.sum = fb_checksum(&note, offsetof(struct note, sum));
    return fb_durable_write(dir_fd, FILE_NAME, &note, sizeof note);
}

/* ---- measured ---- */

/* As much as fits at a time: `length` bytes each, in sequence from `at`, or anywhere. */
static int run(struct measuring *m, enum fb_io_op op, uint32_t length, uint64_t at, bool anywhere)
{
    struct fb_io io[IOS_MAX];
    struct fb_io *ios[IOS_MAX] = {NULL};
    unsigned count = 0;

    for (; count < AT_ONCE / length && (anywhere || at + length <= m->size); count++) {
        uint64_t place = anywhere ? fb_rand_below(&m->random, m->size / length) * length : at;

        io[count] = (struct fb_io){.op = op,
                                   .fd = m->fd,
                                   .data = m->memory + (size_t)count * length,
                                   .offset = place,
                                   .length = length};
        ios[count] = &io[count];
        at += length;
    }
    fb_engine_run(m->engine, ios, count);
    for (unsigned i = 0; i < count; i++)
        if (io[i].result < (int32_t)length)
            return io[i].result < 0 ? io[i].result : -EIO;
    return 0;
}

static int sync_all(struct measuring *m)
{
    struct fb_io io = {.op = FB_IO_FSYNC, .fd = m->fd};
    struct fb_io *ios[] = {&io};

    fb_engine_run(m->engine, ios, 1);
    return io.result < 0 ? io.result : 0;
}

/* Bytes a second of one way through the file; the better one stays. */
static int pass(struct measuring *m, uint32_t length, bool anywhere, uint64_t *best)
{
    int64_t start_ns = fb_now_ns(), now_ns = start_ns;
    uint64_t done = 0, speed;
    int rc = 0;

    while (rc == 0 && done + AT_ONCE <= m->size && now_ns - start_ns < PHASE_NS) {
        rc = run(m, FB_IO_READ, length, done, anywhere);
        done += AT_ONCE;
        now_ns = fb_now_ns();
    }
    speed = (uint64_t)((double)done * (double)FB_NS_PER_S /
                       (double)fb_max_u64(1, (uint64_t)(now_ns - start_ns)));
    *best = fb_max_u64(*best, speed);
    return rc;
}

/* A disk that is slow gets a shorter file. */
static int fill(struct measuring *m, uint64_t bytes)
{
    int64_t until_ns = fb_now_ns() + WRITE_NS;
    int rc = 0;

    m->size = bytes;
    for (uint64_t at = 0; rc == 0 && at < bytes; at += AT_ONCE) {
        if (at > 0 && fb_now_ns() >= until_ns) {
            m->size = at;
            break;
        }
        rc = run(m, FB_IO_WRITE, PIECE_BYTES, at, false);
    }
    return rc == 0 ? sync_all(m) : rc;
}

/* The scratch file is as much a guest on the disk as segments are. */
static bool leaves_free(int fd, uint64_t bytes, double free_space_ratio)
{
    uint64_t bytes_free, floor;

    return fb_cachedir_space(fd, free_space_ratio, &bytes_free, &floor) &&
           bytes_free >= floor + bytes;
}

static int measure(struct fb_engine *engine, int dir_fd, uint64_t bytes, double free_space_ratio,
                   struct fb_disk_speed *speed)
{
    FB_AUTO_FREE uint8_t *memory = aligned_alloc(PIECE_BYTES, AT_ONCE);
    FB_AUTO_CLOSE int fd =
        openat(dir_fd, SCRATCH, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT | O_CLOEXEC, 0600);
    struct measuring m = {
        .engine = engine, .fd = fd, .memory = memory, .random = {(uint64_t)fb_now_ns()}};
    int rc;

    if (fd < 0)
        return -errno;
    (void)unlinkat(dir_fd, SCRATCH, 0);
    if (!leaves_free(fd, bytes, free_space_ratio))
        return -ENOSPC;
    if (!memory)
        return -ENOMEM;
    /* Bytes that no disk shrinks. */
    for (size_t i = 0; i < AT_ONCE / sizeof(uint64_t); i++)
        ((uint64_t *)memory)[i] = fb_rand_u64(&m.random);
    rc = fill(&m, bytes);
    for (int i = 0; i < ROUNDS && rc == 0; i++) {
        rc = pass(&m, PIECE_BYTES, false, &speed->sequential);
        if (rc == 0)
            rc = pass(&m, FB_SPEED_ITEM_BYTES, true, &speed->random);
    }
    speed->measured_wall_ns = fb_wall_ns();
    return rc;
}

int fb_disk_speed(struct fb_engine *engine, const char *dir, uint64_t bytes,
                  double free_space_ratio, struct fb_disk_speed *ret_speed)
{
    struct fb_cachedir d = {.fd = -1, .lock_fd = -1};
    struct fb_error err = {""};
    int rc = fb_cachedir_open(&d, dir, &err);

    *ret_speed = (struct fb_disk_speed){0};
    if (rc == 0 && !recall(d.fd, ret_speed)) {
        rc = measure(engine, d.fd, fb_align_down(bytes, AT_ONCE), free_space_ratio, ret_speed);
        if (rc == 0)
            rc = remember(d.fd, ret_speed);
        if (rc < 0)
            *ret_speed = (struct fb_disk_speed){0};
    }
    fb_cachedir_close(&d);
    return rc;
}
