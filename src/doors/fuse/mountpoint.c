/*
 * The mount point: is it fit, what stands on it, taking it down.
 *
 * A daemon that was killed leaves a mount behind on which everything fails with ENOTCONN. When it
 * is one of ours it is removed before the new one; another's is not ours to remove.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "core/log.h"
#include "core/mem.h"
#include "core/mountinfo.h"
#include "doors/fuse/fuse_priv.h"

#define STACKED_MAX     16 /* dead mounts on top of each other */
#define UNMOUNT_PROGRAM "fusermount3"

/* ---- what stands there ---- */

struct mounted {
    dev_t dev;
    bool ours;
    bool others; /* another user's */
};

static bool find_mounted(const char *mountpoint, struct mounted *ret_mounted)
{
    struct fb_mountinfo info;

    if (fb_mountinfo_at(mountpoint, &info) < 0)
        return false;
    *ret_mounted = (struct mounted){
        .dev = info.dev,
        .ours = strcmp(info.type, FB_MOUNT_TYPE) == 0,
        .others = info.user >= 0 && info.user != (int64_t)geteuid(),
    };
    fb_mountinfo_free(&info);
    return true;
}

bool fb_mountpoint_is_mounted(const char *mountpoint, dev_t dev)
{
    struct fb_mountinfo info;
    struct stat st;
    int rc = fb_mountinfo_at(mountpoint, &info);

    /* Without /proc, or a descriptor to read it by, who serves it is still there to be asked. */
    if (rc < 0)
        return rc != -ENOENT && stat(mountpoint, &st) == 0 && st.st_dev == dev;
    st.st_dev = info.dev;
    fb_mountinfo_free(&info);
    return st.st_dev == dev;
}

/* ---- unmounting ---- */

/* For those who may not unmount themselves. True when it said that it did. */
static bool run_fusermount(const char *mountpoint, bool lazy)
{
    char program[] = UNMOUNT_PROGRAM, unmount[] = "-u", detach[] = "-z", end[] = "--";
    char *point = (char *)(uintptr_t)mountpoint;
    char *plain_argv[] = {program, unmount, end, point, NULL};
    char *lazy_argv[] = {program, unmount, detach, end, point, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int rc, status = 0;

    if (posix_spawn_file_actions_init(&actions) != 0)
        return false;
    rc = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (rc == 0)
        rc = posix_spawnp(&pid, program, &actions, NULL, lazy ? lazy_argv : plain_argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0)
        return false;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int fb_mount_remove(const char *mountpoint, bool lazy)
{
    struct mounted m;

    if (umount2(mountpoint, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
        return 0;
    /* Not mounted at all: what was wanted. */
    if (errno == EINVAL || errno == ENOENT)
        return 0;
    if (errno != EPERM)
        return -errno;
    if (run_fusermount(mountpoint, lazy) || !find_mounted(mountpoint, &m))
        return 0;
    return lazy || m.others ? -EPERM : -EBUSY;
}

/* ---- preparing ---- */

/* The path as mountinfo spells it. realpath() fails on a dead mount: then it is all but the last
 * component that can be resolved. */
static char *canonical(const char *path)
{
    char *real = realpath(path, NULL);
    FB_AUTO_FREE char *copy = NULL, *dir = NULL;
    char *slash;
    size_t len;

    if (real || (errno != ENOTCONN && errno != ECONNABORTED))
        return real;
    copy = fb_strdup(path);
    if (!copy)
        return NULL;
    for (len = strlen(copy); len > 1 && copy[len - 1] == '/'; len--)
        copy[len - 1] = '\0';
    slash = strrchr(copy, '/');
    if (!slash) {
        errno = EINVAL;
        return NULL;
    }
    *slash = '\0';
    dir = realpath(slash == copy ? "/" : copy, NULL);
    return dir ? fb_asprintf("%s/%s", strcmp(dir, "/") == 0 ? "" : dir, slash + 1) : NULL;
}

/* What the kernel knows of the root may outlive the daemon, so stat() proves nothing; statfs()
 * always asks. */
bool fb_mount_is_dead(const char *mountpoint)
{
    struct statfs fs;

    return statfs(mountpoint, &fs) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

static int remove_dead(const char *mountpoint, struct fb_error *err)
{
    struct mounted m;

    for (unsigned i = 0; i < STACKED_MAX; i++) {
        if (!fb_mount_is_dead(mountpoint))
            return 0;
        if (!find_mounted(mountpoint, &m) || !m.ours)
            return fb_error_set(err, -ENOTCONN,
                                "%s is a dead mount of another program: unmount it first",
                                mountpoint);
        fb_log_info("%s: removing the mount of a daemon that died", mountpoint);
        if (fb_mount_remove(mountpoint, true) < 0)
            break;
    }
    return fb_error_set(err, -ENOTCONN,
                        "cannot remove the dead mount on %s: unmount it with `fusermount3 -uz %s`",
                        mountpoint, mountpoint);
}

int fb_mount_clear(const char *mountpoint, struct fb_error *err)
{
    return remove_dead(mountpoint, err);
}

/* What fusermount3 would only say on our standard error. */
static int check_allow_other(struct fb_error *err)
{
    FILE *f = fopen("/etc/fuse.conf", "re");
    FB_AUTO_FREE char *line = NULL;
    size_t size = 0;
    bool allowed = false;

    while (f && !allowed && getline(&line, &size, f) > 0) {
        char word[32];

        allowed = sscanf(line, "%31s", word) == 1 && strcmp(word, "user_allow_other") == 0;
    }
    if (f)
        fclose(f);
    if (!allowed)
        return fb_error_set(err, -EPERM,
                            "--allow-other needs root, or the line user_allow_other in "
                            "/etc/fuse.conf");
    return 0;
}

static int check_device(struct fb_error *err)
{
    if (access("/dev/fuse", R_OK | W_OK) == 0)
        return 0;
    if (errno == ENOENT)
        return fb_error_set(err, -ENODEV,
                            "there is no /dev/fuse: load the kernel module fuse (modprobe fuse)");
    return fb_error_set(err, -errno,
                        "/dev/fuse may not be opened: %s; `forebay run` serves a directory to "
                        "programs without it",
                        fb_strerror(-errno));
}

int fb_mountpoint_prepare(const struct fb_mount_config *config, char **ret_mountpoint,
                          struct fb_error *err)
{
    FB_AUTO_FREE char *mountpoint = canonical(config->mountpoint);
    struct mounted m;
    struct stat st;
    int rc;

    if (!mountpoint)
        return fb_error_set(err, -errno, "cannot mount on %s: %s", config->mountpoint,
                            fb_strerror(-errno));
    rc = remove_dead(mountpoint, err);
    if (rc < 0)
        return rc;
    if (stat(mountpoint, &st) < 0)
        return fb_error_set(err, -errno, "cannot mount on %s: %s", mountpoint, fb_strerror(-errno));
    if (!S_ISDIR(st.st_mode))
        return fb_error_set(err, -ENOTDIR, "cannot mount on %s: it is not a directory", mountpoint);
    if (find_mounted(mountpoint, &m) && m.ours)
        return fb_error_set(err, -EBUSY, "%s is already mounted", mountpoint);
    rc = check_device(err);
    if (rc == 0 && config->allow_other && geteuid() != 0)
        rc = check_allow_other(err);
    if (rc == 0)
        *ret_mountpoint = fb_steal(mountpoint);
    return rc;
}

/* The kernel starts at 128 KiB and only root may ask for more; without it large reads cost more
 * round trips, no more than that. */
void fb_mountpoint_set_read_ahead(dev_t dev)
{
    char path[64];
    FILE *f;

    snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", major(dev), minor(dev));
    f = fopen(path, "we");
    if (!f)
        return;
    fprintf(f, "%u\n", FB_FUSE_READ_AHEAD >> 10);
    fclose(f);
}
