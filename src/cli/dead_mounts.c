/*
 * Only asking a mount tells whether it is dead, and one whose daemon hangs does not answer: so a
 * child asks, and is left behind when it takes too long. It may not even be killed then, but it
 * holds nothing of ours.
 */
#include "cli/dead_mounts.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "daemon/mountinfo.h"
#include "doors/fuse/mount.h"

#define ONE_WAIT_NS (1 * FB_NS_PER_S)
#define ALL_WAIT_NS (5 * FB_NS_PER_S)
#define STEP_NS     (1 * FB_NS_PER_MS)

enum {
    ANSWERS = 0,
    DEAD = 1,
};

static bool is_dead(const char *mountpoint, int64_t until_ns)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        close_range(0, ~0U, 0);
        _exit(fb_mount_is_dead(mountpoint) ? DEAD : ANSWERS);
    }
    if (pid < 0)
        return false;
    while (waitpid(pid, &status, WNOHANG) != pid) {
        if (fb_now_ns() >= until_ns) {
            kill(pid, SIGKILL);
            return false;
        }
        fb_sleep_ns(STEP_NS);
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == DEAD;
}

void cli_dead_mounts(bool (*alive)(void *arg, const char *mountpoint),
                     void (*found)(void *arg, const char *mountpoint), void *arg)
{
    int64_t end_ns = fb_now_ns() + ALL_WAIT_NS;
    char **points;

    if (fb_mountinfo_points(FB_MOUNT_TYPE, &points) != 0)
        return;
    for (char **p = points; *p && fb_now_ns() < end_ns; p++) {
        if (!alive(arg, *p) && is_dead(*p, fb_now_ns() + ONE_WAIT_NS))
            found(arg, *p);
    }
    fb_mountinfo_points_free(points);
}
