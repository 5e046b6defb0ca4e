#include "cache/epoch_writes.h"

#include <stddef.h>
#include <string.h>

#include "base/checksum.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "core/mem.h"
#include "io/durable.h"

#define FILE_NAME "epoch_log.writes"
#define MAGIC     UINT64_C(0x5345544952574246) /* "FBWRITES" */
#define SLICES    64u
#define DAY_S     86400.0

struct saved {
    uint64_t magic;
    uint64_t daily_bytes;
    uint64_t left_bytes;
    int64_t wall_ns;
    uint64_t sum;
};

static bool load(int dir_fd, struct saved *ret)
{
    FB_AUTO_FREE char *data = NULL;
    size_t size;

    if (fb_durable_read(dir_fd, FILE_NAME, sizeof *ret, &data, &size) < 0 || size != sizeof *ret)
        return false;
    memcpy(ret, data, sizeof *ret);
    return ret->magic == MAGIC && ret->sum == fb_checksum(ret, offsetof(struct saved, sum));
}

static void save(const struct fb_epoch_writes *w)
{
    struct saved s = {.magic = MAGIC,
                      .daily_bytes = w->daily_bytes,
                      .left_bytes = w->left_bytes,
                      .wall_ns = w->wall_ns};
    int rc;

    if (w->dir_fd < 0)
        return;
    s.sum = fb_checksum(&s, offsetof(struct saved, sum));
    rc = fb_durable_write(w->dir_fd, FILE_NAME, &s, sizeof s);
    if (rc < 0)
        fb_log_warn("what the epoch log has written today cannot be noted: %s", fb_strerror(rc));
}

void fb_epoch_writes_open(struct fb_epoch_writes *w, int dir_fd, uint64_t daily_bytes,
                          int64_t wall_ns)
{
    struct saved s;

    *w = (struct fb_epoch_writes){.dir_fd = dir_fd,
                                  .daily_bytes = daily_bytes,
                                  .left_bytes = daily_bytes,
                                  .wall_ns = wall_ns};
    if (dir_fd < 0 || !load(dir_fd, &s))
        return;
    /* With another limit what was used before counts as it is. */
    w->left_bytes = s.daily_bytes - fb_min_u64(s.left_bytes, s.daily_bytes);
    w->left_bytes = daily_bytes - fb_min_u64(w->left_bytes, daily_bytes);
    w->wall_ns = s.wall_ns;
}

/* A clock that was set back gives nothing. */
static void refill(struct fb_epoch_writes *w, int64_t wall_ns)
{
    double days = (double)(wall_ns - w->wall_ns) / (double)FB_NS_PER_S / DAY_S;

    w->wall_ns = wall_ns;
    if (days <= 0)
        return;
    w->left_bytes =
        days >= 1
            ? w->daily_bytes
            : fb_min_u64(w->daily_bytes, w->left_bytes + (uint64_t)(days * (double)w->daily_bytes));
}

bool fb_epoch_writes_take(struct fb_epoch_writes *w, uint64_t bytes, int64_t wall_ns)
{
    uint64_t slice;

    if (w->slice_bytes < bytes) {
        refill(w, wall_ns);
        slice = fb_min_u64(fb_max_u64(bytes, w->daily_bytes / SLICES), w->left_bytes);
        if (w->slice_bytes + slice < bytes)
            return false;
        w->left_bytes -= slice;
        w->slice_bytes += slice;
        save(w);
    }
    w->slice_bytes -= bytes;
    return true;
}
