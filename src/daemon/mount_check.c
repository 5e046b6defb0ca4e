#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "core/mem.h"
#include "daemon/mountinfo.h"
#include "daemon/mounts.h"
#include "daemon/paths.h"
#include "doors/fuse/mount.h"
#include "source/source_s3.h"

static int check_standing_mount(const char *path, struct fb_error *err)
{
    struct fb_mountinfo info;
    int rc = 0;

    if (fb_mountinfo_find(path, &info) != 0)
        return 0;
    if (strcmp(info.mountpoint, path) == 0 && strcmp(info.type, FB_MOUNT_TYPE) == 0)
        rc = fb_error_set(err, -EBUSY,
                          "%s is mounted already, with the source %s; `forebay umount %s` first",
                          path, info.source, path);
    fb_mountinfo_free(&info);
    return rc;
}

/* A dead mount of ours is fine: the door removes it. It may look alive as long as the kernel
 * remembers its attributes. */
static int check_mountpoint(const char *path, struct fb_error *err)
{
    struct stat st;
    int code;

    if (fb_mount_is_dead(path)) {
        if (fb_mountinfo_is_forebay(path))
            return 0;
        return fb_error_set(err, -ENOTCONN,
                            "a dead mount of another program stands on %s; `umount %s` first", path,
                            path);
    }
    if (stat(path, &st) == 0) {
        if (!S_ISDIR(st.st_mode))
            return fb_error_set(err, -ENOTDIR, "the mount point %s is not a directory", path);
        return check_standing_mount(path, err);
    }
    code = -errno;
    if (code == -ENOENT)
        return fb_error_set(err, code, "the mount point %s does not exist; make it: mkdir %s", path,
                            path);
    return fb_error_set(err, code, "cannot use the mount point %s: %s", path, fb_strerror(code));
}

static int check_pair(const char *source, const char *mountpoint, struct fb_error *err)
{
    if (strcmp(source, mountpoint) == 0)
        return fb_error_set(err, -EINVAL,
                            "the source %s cannot be mounted on itself; choose another mount point",
                            source);
    if (fb_path_within(source, mountpoint))
        return fb_error_set(err, -EINVAL,
                            "the mount point %s lies inside the source %s; choose one outside",
                            mountpoint, source);
    if (fb_path_within(mountpoint, source))
        return fb_error_set(err, -EINVAL,
                            "the source %s lies inside the mount point %s, which would hide it",
                            source, mountpoint);
    return 0;
}

static int check_own_dir(const char *dir, const char *mountpoint, struct fb_error *err)
{
    if (fb_path_within(mountpoint, dir))
        return fb_error_set(err, -EINVAL,
                            "the cache directory %s lies inside the mount point %s, which would "
                            "hide it",
                            dir, mountpoint);
    if (fb_path_within(dir, mountpoint))
        return fb_error_set(err, -EINVAL, "the mount point %s lies inside the cache directory %s",
                            mountpoint, dir);
    return 0;
}

/* Names that mean the same directory are told by inode, so a path that is given in two ways is
 * still one. A dead mount has no inode to compare; its name must do. */
int fb_mount_check(const char *source, const char *mountpoint, const struct fb_own_dirs *own,
                   char **ret_source, char **ret_mountpoint, struct fb_error *err)
{
    FB_AUTO_FREE char *from = NULL;
    FB_AUTO_FREE char *at = NULL;
    int rc = fb_source_dir_check(source, own, &from, err);

    if (rc)
        return rc;
    rc = fb_path_canonical(mountpoint, &at);
    if (rc)
        return fb_error_set(err, rc, "the mount point %s: %s", mountpoint, fb_strerror(rc));
    rc = check_mountpoint(at, err);
    if (rc == 0 && !fb_source_is_s3(from))
        rc = check_pair(from, at, err);
    for (unsigned i = 0; rc == 0 && i < own->count; i++)
        rc = check_own_dir(own->dirs[i], at, err);
    if (rc == 0 && own->pmem_dir)
        rc = check_own_dir(own->pmem_dir, at, err);
    if (rc)
        return rc;
    *ret_source = fb_steal(from);
    *ret_mountpoint = fb_steal(at);
    return 0;
}
