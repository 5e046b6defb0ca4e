#include "cli/unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

/* What it prints is dropped: our own sentence says it. */
static int run_fusermount(const char *mountpoint, bool lazy)
{
    char *const argv[] = {"fusermount3", lazy ? "-uz" : "-u", "--", (char *)mountpoint, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0;
    int rc = posix_spawn_file_actions_init(&actions);

    if (rc)
        return -rc;
    rc = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (rc == 0)
        rc = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc)
        return -rc;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

int cli_unmount(const char *mountpoint, bool lazy, struct fb_error *err)
{
    int rc = 0;

    if (geteuid() == 0)
        rc = umount2(mountpoint, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0 ? 0 : -errno;
    else
        rc = run_fusermount(mountpoint, lazy);
    if (rc == -EBUSY)
        return fb_error_set(err, rc, "%s is in use; end the programs that use it, or write --force",
                            mountpoint);
    if (rc)
        return fb_error_set(err, rc, "cannot unmount %s: %s", mountpoint, fb_strerror(rc));
    return 0;
}
