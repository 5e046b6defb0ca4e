#include "io/durable.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/mem.h"

static int write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

static int write_temporary(int dir_fd, const char *name, const void *data, size_t size)
{
    FB_AUTO_CLOSE int fd = -1;
    int r;

    /* What a crash left, with whatever owner and mode, is not written to. */
    if (unlinkat(dir_fd, name, 0) < 0 && errno != ENOENT)
        return -errno;
    fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    r = write_all(fd, data, size);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    return r;
}

int fb_durable_write(int dir_fd, const char *name, const void *data, size_t size)
{
    char temporary[NAME_MAX + 1];
    int n = snprintf(temporary, sizeof temporary, "%s.tmp", name);
    int r;

    if (n < 0 || (size_t)n >= sizeof temporary)
        return -ENAMETOOLONG;
    r = write_temporary(dir_fd, temporary, data, size);
    if (r == 0 && renameat(dir_fd, temporary, dir_fd, name) < 0)
        r = -errno;
    if (r < 0) {
        unlinkat(dir_fd, temporary, 0);
        return r;
    }
    return fsync(dir_fd) < 0 ? -errno : 0;
}

int fb_durable_read(int dir_fd, const char *name, size_t max, char **ret_data, size_t *ret_size)
{
    FB_AUTO_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    FB_AUTO_FREE char *data = NULL;
    struct stat st;
    size_t size = 0;
    size_t room;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if ((uint64_t)st.st_size > max)
        return -EFBIG;
    /* One more than the file should have, to notice that it has grown; and the final zero. */
    room = (size_t)st.st_size + 1;
    data = fb_alloc(room + 1);
    if (!data)
        return -ENOMEM;
    while (size < room) {
        ssize_t n = read(fd, data + size, room - size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        size += (size_t)n;
    }
    if (size == room)
        return -EAGAIN;
    data[size] = '\0';
    *ret_size = size;
    *ret_data = fb_steal(data);
    return 0;
}
