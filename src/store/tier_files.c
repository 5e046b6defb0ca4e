#include "store/tier_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/mem.h"

#define FILE_NAME "segments"

static int open_segments(struct fb_tier_file *f, int flags, struct fb_error *err)
{
    struct stat st;

    flags |= O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    f->fd = openat(f->dir.fd, FILE_NAME, flags, 0600);
    if (f->fd < 0 && errno == EINVAL && (flags & O_DIRECT)) {
        f->fd = openat(f->dir.fd, FILE_NAME, flags & ~O_DIRECT, 0600);
        if (f->fd >= 0)
            fb_log_warn("the file system of %s has no direct I/O: what is cached there is cached "
                        "twice",
                        f->dir.path);
    }
    if (f->fd < 0 || fstat(f->fd, &st) < 0)
        return fb_error_set(err, -errno, "cannot open %s/" FILE_NAME ": %s", f->dir.path,
                            fb_strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1)
        return fb_error_set(err, -EPERM, "%s/" FILE_NAME " is not a file of ours: remove it",
                            f->dir.path);
    if ((st.st_mode & 0077) != 0 && fchmod(f->fd, 0600) < 0)
        return fb_error_set(err, -errno, "cannot make %s/" FILE_NAME " private: %s", f->dir.path,
                            fb_strerror(errno));
    return 0;
}

static struct fb_cachedir_format format_of(const struct fb_tier *tier, unsigned index)
{
    return (struct fb_cachedir_format){
        .kind = tier->kind,
        .dir_count = tier->stripe_count,
        .dir_index = index,
        .segment_bytes = tier->segment_bytes,
    };
}

/* Whether the directories belong together and fit; otherwise one line says why not. */
static bool same_cache(struct fb_tier *tier)
{
    struct fb_tier_files *fs = tier->files;

    for (unsigned i = 0; i < fs->count; i++) {
        struct fb_cachedir_format format = format_of(tier, i);
        struct fb_error why = {0};
        uint64_t id[2];

        if (fb_cachedir_read_superblock(&fs->file[i].dir, &format, id, &why) && i > 0 &&
            (id[0] != fs->id[0] || id[1] != fs->id[1]))
            fb_error_set(&why, 0, "belongs to another cache than %s", fs->file[0].dir.path);
        if (why.text[0]) {
            fb_log_info("the cache directory %s %s: the %s tier starts empty", fs->file[i].dir.path,
                        why.text, tier->ops->name);
            return false;
        }
        fs->id[0] = id[0];
        fs->id[1] = id[1];
    }
    return true;
}

/* First the segments go, then the superblocks change: whatever a crash leaves, no segment is
 * believed under a format that it was not made for. */
static int start_empty(struct fb_tier *tier, struct fb_error *err)
{
    struct fb_tier_files *fs = tier->files;
    int r = getrandom(fs->id, sizeof fs->id, 0) == (ssize_t)sizeof fs->id ? 0 : -EIO;

    for (unsigned i = 0; i < fs->count && r == 0; i++)
        r = ftruncate(fs->file[i].fd, 0) < 0 ? -errno : 0;
    for (unsigned i = 0; i < fs->count && r == 0; i++) {
        struct fb_cachedir_format format = format_of(tier, i);

        r = fb_cachedir_write_superblock(&fs->file[i].dir, &format, fs->id);
        if (r < 0)
            return fb_error_set(err, r, "cannot write to the cache directory %s: %s",
                                fs->file[i].dir.path, fb_strerror(r));
    }
    if (r < 0)
        return fb_error_set(err, r, "cannot empty the cache directory %s: %s", fs->file[0].dir.path,
                            fb_strerror(r));
    return 0;
}

static int cut_to_budget(struct fb_tier *tier, struct fb_error *err)
{
    struct fb_tier_files *fs = tier->files;

    for (unsigned i = 0; i < fs->count; i++) {
        struct fb_tier_file *f = &fs->file[i];
        struct stat st;

        f->slots = tier->slots / fs->count + (i < tier->slots % fs->count);
        if (fstat(f->fd, &st) == 0 &&
            (uint64_t)st.st_size <= (uint64_t)f->slots * tier->segment_bytes)
            continue;
        if (ftruncate(f->fd, (off_t)((uint64_t)f->slots * tier->segment_bytes)) < 0)
            return fb_error_set(err, -errno, "cannot shrink %s/" FILE_NAME ": %s", f->dir.path,
                                fb_strerror(errno));
    }
    return 0;
}

int fb_tier_files_open(struct fb_tier *tier, const struct fb_tier_config *config, int open_flags,
                       struct fb_error *err)
{
    unsigned count = config->dir_count;
    struct fb_tier_files *fs = fb_alloc(sizeof *fs + count * sizeof fs->file[0]);
    int r = 0;

    if (!fs)
        return -ENOMEM;
    tier->files = fs;
    fs->free_space_ratio = config->free_space_ratio;
    for (unsigned i = 0; i < count && r == 0; i++) {
        fs->file[i].fd = -1;
        fs->count = i + 1;
        r = fb_cachedir_open(&fs->file[i].dir, config->dirs[i], err);
        if (r == 0)
            r = open_segments(&fs->file[i], open_flags, err);
    }
    if (r == 0 && !same_cache(tier))
        r = start_empty(tier, err);
    if (r == 0)
        r = cut_to_budget(tier, err);
    return r;
}

void fb_tier_files_close(struct fb_tier *tier)
{
    struct fb_tier_files *fs = tier->files;

    for (unsigned i = 0; fs && i < fs->count; i++) {
        if (fs->file[i].fd >= 0)
            close(fs->file[i].fd);
        fb_cachedir_close(&fs->file[i].dir);
    }
    free(fs);
    tier->files = NULL;
}

/* Bytes free to us and the floor under them. */
static bool space(const struct fb_tier *tier, const struct fb_tier_file *f, uint64_t *ret_free,
                  uint64_t *ret_floor)
{
    return fb_cachedir_space(f->fd, tier->files->free_space_ratio, ret_free, ret_floor);
}

int fb_tier_files_allocate(struct fb_tier *tier, uint32_t slot)
{
    struct fb_tier_file *f = fb_tier_file_of(tier, slot);
    uint64_t bytes_free;
    uint64_t floor;

    if (!space(tier, f, &bytes_free, &floor))
        return -errno;
    if (bytes_free < tier->segment_bytes || bytes_free - tier->segment_bytes < floor)
        return FB_TIER_FULL;
    while (fallocate(f->fd, 0, (off_t)fb_tier_file_offset(tier, slot), (off_t)tier->segment_bytes) <
           0) {
        if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) {
            /* Part of it may have been allocated. */
            (void)!fb_tier_files_discard(tier, slot);
            return FB_TIER_FULL;
        }
        /* A file system that allocates only as it is written to (ext3, NFS before 4.2): the seal
         * may find it full then, which loses a segment and no more. */
        if ((errno == EOPNOTSUPP || errno == ENOSYS) && tier->kind == FB_TIER_NVME)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
    return 0;
}

bool fb_tier_files_discard(struct fb_tier *tier, uint32_t slot)
{
    return fallocate(fb_tier_file_of(tier, slot)->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     (off_t)fb_tier_file_offset(tier, slot), (off_t)tier->segment_bytes) == 0;
}

bool fb_tier_files_has_data(struct fb_tier *tier, uint32_t slot)
{
    off_t start = (off_t)fb_tier_file_offset(tier, slot);
    off_t at = lseek(fb_tier_file_of(tier, slot)->fd, start, SEEK_DATA);

    return at >= start && at < start + (off_t)tier->segment_bytes;
}

uint64_t fb_tier_files_shortage(const struct fb_tier *tier, unsigned stripe)
{
    uint64_t bytes_free;
    uint64_t floor;

    if (!space(tier, &tier->files->file[stripe], &bytes_free, &floor) || bytes_free >= floor)
        return 0;
    return floor - bytes_free;
}

bool fb_tier_files_gone(const struct fb_tier *tier, unsigned stripe)
{
    const struct fb_tier_file *f = &tier->files->file[stripe];
    struct stat st;

    return fb_cachedir_gone(&f->dir) || fstat(f->fd, &st) < 0 || st.st_nlink == 0;
}
