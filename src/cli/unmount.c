#include "cli/unmount.h"

#include <errno.h>

#include "doors/fuse/mount.h"

int cli_unmount(const char *mountpoint, bool lazy, struct fb_error *err)
{
    int rc = fb_mount_remove(mountpoint, lazy);

    if (rc == -EBUSY)
        return fb_error_set(err, rc, "%s is in use; end the programs that use it, or write --force",
                            mountpoint);
    if (rc == -EPERM)
        return fb_error_set(err, rc,
                            "%s belongs to another user: only that user and root may unmount it",
                            mountpoint);
    if (rc)
        return fb_error_set(err, rc, "cannot unmount %s: %s", mountpoint, fb_strerror(rc));
    return 0;
}
