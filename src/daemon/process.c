#include "daemon/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>

#include "core/mem.h"
#include "daemon/last_error.h"

#define STAT_PATH_SIZE 32
#define STAT_SIZE      512
#define STARTED_FIELD  22 /* of /proc/PID/stat, counted from 1 */

/* The fields behind the name, which may hold anything, parentheses too: state is the third. */
static const char *fields_of(char *text)
{
    char *end = strrchr(text, ')');

    return end && end[1] == ' ' ? end + 2 : NULL;
}

/* -ESRCH for one that has ended, be it that its parent has not noticed yet. */
static int read_start(pid_t pid, uint64_t *ret_started)
{
    char path[STAT_PATH_SIZE];
    char text[STAT_SIZE];
    FB_AUTO_CLOSE int fd = -1;
    const char *p;
    ssize_t n;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : fb_last_error();
    n = read(fd, text, sizeof text - 1);
    if (n <= 0)
        return -ESRCH;
    text[n] = 0;
    p = fields_of(text);
    if (!p)
        return -EIO;
    if (*p == 'Z' || *p == 'X')
        return -ESRCH;
    for (int field = 3; field < STARTED_FIELD; field++) {
        p = strchr(p, ' ');
        if (!p)
            return -EIO;
        p++;
    }
    return sscanf(p, "%" SCNu64, ret_started) == 1 ? 0 : -EIO;
}

int fb_process_open_plain(pid_t pid, struct fb_process *ret_process)
{
    *ret_process = (struct fb_process){.pid = pid, .fd = -1};
    return pid > 0 ? read_start(pid, &ret_process->started) : -ESRCH;
}

int fb_process_open(pid_t pid, struct fb_process *ret_process)
{
    int fd = pid > 0 ? pidfd_open(pid, 0) : -1;

    if (fd < 0 && (pid <= 0 || errno == ESRCH))
        return -ESRCH;
    if (fd < 0)
        return fb_process_open_plain(pid, ret_process);
    *ret_process = (struct fb_process){.pid = pid, .fd = fd};
    if (fb_process_lives(ret_process))
        return 0;
    fb_process_close(ret_process);
    return -ESRCH;
}

bool fb_process_lives(const struct fb_process *process)
{
    struct pollfd p = {.fd = process->fd, .events = POLLIN};
    uint64_t started;
    int rc;

    if (process->fd >= 0)
        return poll(&p, 1, 0) <= 0;
    rc = read_start(process->pid, &started);
    /* What cannot be read for want of descriptors or memory may well live. */
    return rc == 0 ? started == process->started : rc != -ESRCH;
}

void fb_process_close(struct fb_process *process)
{
    fb_closep(&process->fd);
    process->fd = -1;
}
