/*
 * daemon/process.h - whether a process still lives: by a descriptor of it, which poll(2) finds
 * readable once it has ended; where the kernel gives none (a container may forbid it), by the time
 * it started, in /proc, which somebody has to look at now and then.
 */
#ifndef FB_DAEMON_PROCESS_H
#define FB_DAEMON_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/attr.h"

struct fb_process {
    pid_t pid;
    int fd;           /* -1: none */
    uint64_t started; /* clock ticks after boot; only without a descriptor */
};

/* -ESRCH: it has ended. */
FB_MUST_CHECK int fb_process_open(pid_t pid, struct fb_process *ret_process);

/* The same without a descriptor. */
FB_MUST_CHECK int fb_process_open_plain(pid_t pid, struct fb_process *ret_process);

/* One that nobody has waited for yet has ended, too. */
bool fb_process_lives(const struct fb_process *process);

void fb_process_close(struct fb_process *process);

#endif
