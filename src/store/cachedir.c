#include "store/cachedir.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/hash.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/units.h"
#include "io/durable.h"

#define SUPERBLOCK_MAGIC   0x52455055534246ULL /* "FBSUPER" */
#define SUPERBLOCK_VERSION 1u
#define PID_TEXT_MAX       32

struct superblock {
    uint64_t magic;
    uint32_t version;
    uint32_t kind;
    uint64_t id[2];
    uint64_t segment_bytes;
    uint32_t dir_count;
    uint32_t dir_index;
    uint64_t reserved[2];
    uint64_t sum; /* of all the above */
};

static_assert(sizeof(struct superblock) == 72, "on-disk format");
static_assert(offsetof(struct superblock, sum) == 64, "on-disk format");

static int make_parents(const char *path)
{
    char above[PATH_MAX];
    size_t len = strlen(path);

    if (len >= sizeof above)
        return -ENAMETOOLONG;
    memcpy(above, path, len + 1);
    for (char *p = above + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (mkdir(above, 0700) < 0 && errno != EEXIST)
            return -errno;
        *p = '/';
    }
    return 0;
}

static int make(const char *path, struct fb_error *err)
{
    int r;

    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        return 0;
    r = errno == ENOENT ? make_parents(path) : -errno;
    if (r == 0 && mkdir(path, 0700) < 0 && errno != EEXIST)
        r = -errno;
    if (r < 0)
        return fb_error_set(err, r, "cannot create the cache directory %s: %s", path,
                            fb_strerror(r));
    return 0;
}

static bool has(int fd, const char *name)
{
    return faccessat(fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A disk that was just made has one directory. */
static bool is_empty(int fd)
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
    const struct dirent *entry;
    bool empty = dir != NULL;

    if (!dir) {
        fb_closep(&copy);
        return false;
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is ours alone */
    while (empty && (entry = readdir(dir)))
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                strcmp(entry->d_name, "lost+found") == 0;
    closedir(dir);
    return empty;
}

/* /tmp, /home or a disk that all users share must stay what it is, whoever names it by mistake, or
 * plants a link to it where a cache is to be. */
int fb_cachedir_make_private(int fd, const char *path, mode_t mode, struct fb_error *err)
{
    if ((mode & 0077) == 0)
        return 0;
    if ((mode & S_ISVTX) || (!has(fd, "daemon.lock") && !has(fd, "superblock") && !is_empty(fd)))
        return fb_error_set(err, -EPERM,
                            "the cache directory %s is open to others and holds other files; "
                            "choose one of its own, such as %s/forebay",
                            path, path);
    if (fchmod(fd, 0700) < 0)
        return fb_error_set(err, -errno, "cannot make the cache directory %s private: %s", path,
                            fb_strerror(errno));
    fb_log_info("the cache directory %s was open to others; it is private now", path);
    return 0;
}

static int possess(struct fb_cachedir *d, struct fb_error *err)
{
    struct stat st;

    if (fstat(d->fd, &st) < 0)
        return fb_error_set(err, -errno, "cannot look at the cache directory %s: %s", d->path,
                            fb_strerror(errno));
    d->dev = st.st_dev;
    d->ino = st.st_ino;
    if (st.st_uid != geteuid())
        return fb_error_set(err, -EPERM,
                            "the cache directory %s belongs to user %u, and this is user %u: "
                            "choose a directory of your own",
                            d->path, st.st_uid, geteuid());
    return fb_cachedir_make_private(d->fd, d->path, st.st_mode, err);
}

static int refuse_second(const struct fb_cachedir *d, struct fb_error *err)
{
    char text[PID_TEXT_MAX] = "";
    ssize_t n = pread(d->lock_fd, text, sizeof text - 1, 0);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;

    if (pid == getpid())
        return fb_error_set(err, -EBUSY, "the cache directory %s is in use twice by this process",
                            d->path);
    if (pid <= 0) /* it has the lock, but has not come to writing its number */
        return fb_error_set(err, -EBUSY, "the cache directory %s is in use by another process",
                            d->path);
    return fb_error_set(err, -EBUSY,
                        "the cache directory %s is in use by process %ld: stop that one first, or "
                        "choose another directory",
                        d->path, pid);
}

static int lock(struct fb_cachedir *d, struct fb_error *err)
{
    char text[PID_TEXT_MAX];
    /* Always as long as the last one: written over it, it needs no space. */
    int len = snprintf(text, sizeof text, "%-15d\n", getpid());

    d->lock_fd = openat(d->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d->lock_fd < 0)
        return fb_error_set(err, -errno, "cannot write to the cache directory %s: %s", d->path,
                            fb_strerror(errno));
    if (flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK)
            return refuse_second(d, err);
        return fb_error_set(err, -errno, "cannot lock the cache directory %s: %s", d->path,
                            fb_strerror(errno));
    }
    if (pwrite(d->lock_fd, text, (size_t)len, 0) != len) {
        int r = errno ? -errno : -EIO;

        /* The number is for people; a full disk must not keep the cache from being used. */
        if (r != -ENOSPC && r != -EDQUOT)
            return fb_error_set(err, r, "cannot write to the cache directory %s: %s", d->path,
                                fb_strerror(r));
    }
    return 0;
}

int fb_cachedir_open(struct fb_cachedir *d, const char *path, struct fb_error *err)
{
    int r;

    *d = (struct fb_cachedir){.fd = -1, .lock_fd = -1, .path = fb_strdup(path)};
    if (!d->path)
        return -ENOMEM;
    r = make(path, err);
    if (r < 0)
        return r;
    d->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0)
        return fb_error_set(err, -errno, "cannot open the cache directory %s: %s", path,
                            fb_strerror(errno));
    r = possess(d, err);
    return r < 0 ? r : lock(d, err);
}

/* The lock file stays: removing it would let two processes hold a lock on two files of one name. */
void fb_cachedir_close(struct fb_cachedir *d)
{
    if (d->lock_fd >= 0)
        close(d->lock_fd);
    if (d->fd >= 0)
        close(d->fd);
    free(d->path);
    *d = (struct fb_cachedir){.fd = -1, .lock_fd = -1};
}

static uint64_t superblock_sum(const struct superblock *s)
{
    return fb_hash64(s, offsetof(struct superblock, sum));
}

static bool compare(const struct superblock *s, const struct fb_cachedir_format *format,
                    struct fb_error *ret_why)
{
    char size[FB_UNITS_TEXT_MAX];

    if (s->version != SUPERBLOCK_VERSION)
        fb_error_set(ret_why, 0, "has format %u", s->version);
    else if (s->kind != format->kind)
        fb_error_set(ret_why, 0, "was of another tier");
    else if (s->segment_bytes != format->segment_bytes)
        fb_error_set(ret_why, 0, "was made with segments of %s",
                     fb_format_size(size, s->segment_bytes));
    else if (s->dir_count != format->dir_count || s->dir_index != format->dir_index)
        fb_error_set(ret_why, 0, "was number %u of %u directories", s->dir_index + 1, s->dir_count);
    else
        return true;
    return false;
}

bool fb_cachedir_read_superblock(const struct fb_cachedir *d,
                                 const struct fb_cachedir_format *format, uint64_t ret_id[2],
                                 struct fb_error *ret_why)
{
    FB_AUTO_FREE char *data = NULL;
    struct superblock s;
    size_t size;
    int r = fb_durable_read(d->fd, "superblock", sizeof s, &data, &size);

    if (r == -ENOENT) {
        fb_error_set(ret_why, 0, "is new");
        return false;
    }
    if (r < 0 || size != sizeof s) {
        fb_error_set(ret_why, 0, "has a damaged superblock");
        return false;
    }
    memcpy(&s, data, sizeof s);
    if (s.magic != SUPERBLOCK_MAGIC || s.sum != superblock_sum(&s)) {
        fb_error_set(ret_why, 0, "has a damaged superblock");
        return false;
    }
    if (!compare(&s, format, ret_why))
        return false;
    memcpy(ret_id, s.id, sizeof s.id);
    return true;
}

int fb_cachedir_write_superblock(const struct fb_cachedir *d,
                                 const struct fb_cachedir_format *format, const uint64_t id[2])
{
    struct superblock s = {
        .magic = SUPERBLOCK_MAGIC,
        .version = SUPERBLOCK_VERSION,
        .kind = format->kind,
        .id = {id[0], id[1]},
        .segment_bytes = format->segment_bytes,
        .dir_count = format->dir_count,
        .dir_index = format->dir_index,
    };

    s.sum = superblock_sum(&s);
    return fb_durable_write(d->fd, "superblock", &s, sizeof s);
}

bool fb_cachedir_space(int fd, double free_space_ratio, uint64_t *ret_free, uint64_t *ret_floor)
{
    struct statvfs st;

    if (fstatvfs(fd, &st) < 0)
        return false;
    *ret_free = (uint64_t)st.f_bavail * st.f_frsize;
    *ret_floor = (uint64_t)(free_space_ratio * (double)st.f_blocks * (double)st.f_frsize);
    return true;
}

bool fb_cachedir_gone(const struct fb_cachedir *d)
{
    struct stat st;

    if (fstat(d->fd, &st) < 0 || st.st_nlink == 0)
        return true;
    if (stat(d->path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR || errno == EIO || errno == ESTALE;
    return st.st_dev != d->dev || st.st_ino != d->ino;
}
