/*
 * Listings. A directory is one descriptor, read with getdents64; a cookie is the kernel's own
 * offset, so any READDIR may go on from any entry. The raw entries of one call are so few that all
 * of them fit into what is left of the batch: nothing is read twice.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/mem.h"
#include "source/posix_priv.h"

/* An entry grows most when its name is shortest: from 24 bytes to 128. */
#define GROWTH   6
#define RAW_MAX  (FB_SOURCE_LIST_BYTES / GROWTH / 8 * 8)
#define RAW_MIN  1024 /* room for less is not worth another call */
#define NAME_OFF offsetof(struct dirent64, d_name)

/* A listing with attributes must not take much longer than one without. Where each entry takes
 * long, as on a file system that asks another machine for it, all but a few are listed by name
 * alone: whoever wants the attributes of the others will ask for them. */
#define SLOW_NS     (100 * FB_NS_PER_US)
#define SLOW_MAX    32u /* more slow entries than quick ones */
#define SLOW_PROBES 2u  /* tried all the same at the start of a batch */

#define PROC_PATH_SIZE (sizeof "/proc/self/fd/4294967295/" + FB_NAME_MAX)

static_assert(sizeof(struct fb_source_dirent) + 8 <= GROWTH * 24, "a short name fits");
static_assert(RAW_MIN >= sizeof(struct dirent64), "the longest name fits");
static_assert(FB_NAME_MAX <= UINT8_MAX, "an entry's name_len has 8 bits");

struct posix_dir {
    struct fb_posix_handle handle;
    /* One READDIR at a time may use the descriptor's position; a second one, sent after the first
     * expired, opens the directory again. Acquire and release hand `at` and `slow` on. */
    atomic_flag busy;
    uint64_t at;   /* the position, as a cookie */
    unsigned slow; /* entries that took long, less those that did not */
};

int fb_posix_opendir(struct fb_posix_handles *handles, int root, struct fb_source_job *job)
{
    FB_AUTO_CLOSE int fd = fb_posix_openat(root, job->path, O_RDONLY | O_DIRECTORY);
    struct posix_dir *dir;
    struct stat st;

    if (fd < 0)
        return fd == -ESTALE ? FB_POSIX_AGAIN : fd;
    if (fstat(fd, &st) < 0)
        return fb_posix_errno();
    dir = fb_posix_handle_new(handles, sizeof *dir, &fd, job);
    if (!dir)
        return -ENOMEM;
    atomic_flag_clear(&dir->busy);
    fb_posix_attr(&st, &job->attr);
    return 0;
}

static bool is_dot(const char *name)
{
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

static bool has_no_xattrs(int fd, const char *name)
{
    char path[PROC_PATH_SIZE];

    snprintf(path, sizeof path, "/proc/self/fd/%d/%s", fd, name);
    return llistxattr(path, NULL, 0) == 0;
}

/* Fills in what the name alone does not tell. */
static void look_at(int fd, struct fb_source_dirent *entry, unsigned *slow)
{
    int64_t start_ns = fb_now_ns();
    struct stat st;

    if (fstatat(fd, entry->name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0) {
        fb_posix_attr(&st, &entry->attr);
        entry->has_attr = true;
        entry->type = (uint8_t)IFTODT(st.st_mode);
        entry->no_xattrs = S_ISREG(st.st_mode) && has_no_xattrs(fd, entry->name);
    }
    if (fb_now_ns() - start_ns > SLOW_NS)
        (*slow)++;
    else if (*slow > 0)
        (*slow)--;
}

static void append(struct fb_source_job *job, int fd, const struct dirent64 *raw, unsigned *slow)
{
    struct fb_source_dirent *entry = (struct fb_source_dirent *)(void *)(job->data + job->data_len);
    size_t len = strnlen(raw->d_name, fb_min_u64(raw->d_reclen - NAME_OFF, FB_NAME_MAX));
    size_t length = fb_align_up(sizeof *entry + len + 1, 8);

    FB_ASSERT(job->data_len + length <= FB_SOURCE_LIST_BYTES);
    memset(entry, 0, length);
    entry->length = (uint32_t)length;
    entry->name_len = (uint8_t)len;
    entry->type = raw->d_type;
    entry->ino = raw->d_ino;
    entry->cookie = (uint64_t)raw->d_off;
    memcpy(entry->name, raw->d_name, len);
    if (job->want_attrs && *slow < SLOW_MAX)
        look_at(fd, entry, slow);
    job->data_len += length;
}

/* Appends as much as fits; `at` is where the descriptor stands. */
static int list(struct fb_source_job *job, int fd, uint64_t *at, unsigned *slow)
{
    char raw[RAW_MAX] FB_ALIGNED(8);

    *slow = (unsigned)fb_min_u64(*slow, SLOW_MAX - SLOW_PROBES);

    for (;;) {
        size_t room = (FB_SOURCE_LIST_BYTES - job->data_len) / GROWTH / 8 * 8;
        ssize_t n;

        if (room < RAW_MIN)
            return 0;
        n = getdents64(fd, raw, room < sizeof raw ? room : sizeof raw);
        if (n < 0)
            return -errno;
        if (n == 0) {
            job->at_end = true;
            return 0;
        }
        for (ssize_t i = 0; i < n;) {
            const struct dirent64 *d = (const struct dirent64 *)(const void *)(raw + i);

            if (fb_source_job_expired(job))
                return -ETIMEDOUT;
            if (!is_dot(d->d_name))
                append(job, fd, d, slow);
            *at = (uint64_t)d->d_off;
            i += d->d_reclen;
        }
    }
}

static int list_from(struct fb_source_job *job, int fd, uint64_t *at, unsigned *slow)
{
    int r;

    if (*at != job->cookie && lseek(fd, (off_t)job->cookie, SEEK_SET) < 0)
        return -errno;
    *at = job->cookie;
    r = list(job, fd, at, slow);
    /* The descriptor may stand anywhere now: no cookie is this large, so the next READDIR seeks. */
    if (r < 0)
        *at = UINT64_MAX;
    return r;
}

static int list_apart(struct fb_source_job *job, int dir_fd)
{
    FB_AUTO_CLOSE int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint64_t at = 0;
    unsigned slow = 0;

    return fd < 0 ? -errno : list_from(job, fd, &at, &slow);
}

int fb_posix_readdir(struct fb_source_job *job)
{
    struct posix_dir *dir = FB_CONTAINER_OF(job->handle, struct posix_dir, handle.base);
    char *shrunk;
    int r;

    job->data = malloc(FB_SOURCE_LIST_BYTES);
    job->data_len = 0;
    if (!job->data)
        return -ENOMEM;
    if (atomic_flag_test_and_set_explicit(&dir->busy, memory_order_acquire)) {
        r = list_apart(job, dir->handle.fd);
    } else {
        r = list_from(job, dir->handle.fd, &dir->at, &dir->slow);
        atomic_flag_clear_explicit(&dir->busy, memory_order_release);
    }
    /* A handle gone stale says nothing about the directory. */
    if (r == -ESTALE)
        r = -EIO;
    shrunk = r == 0 && job->data_len > 0 ? realloc(job->data, job->data_len) : NULL;
    if (shrunk)
        job->data = shrunk;
    return r;
}
